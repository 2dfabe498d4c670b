"""A field that would change the reply and is not honoured is 400 by its name, on every API."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from app.api.completions import Completions
from app.api.messages import Messages
from app.api.reading import UNSERVED
from app.api.responses import Responses
from app.api.surface import ChatCompletions, Surface
from app.errors.tree import BadField
from app.wiring import SURFACES as SERVED
from deploy.engine.dialects import COMMON_FIELDS

TURN = [{"role": "user", "content": "Hi"}]
SURFACES: dict[str, tuple[Surface, dict[str, Any]]] = {
    "chat": (ChatCompletions(), {"messages": TURN}),
    "responses": (Responses(), {"input": "Hi"}),
    "messages": (Messages(), {"messages": TURN, "max_tokens": 5}),
    "completions": (Completions(), {"prompt": "Hi"}),
}


@pytest.mark.parametrize("name", SURFACES)
def test_each_is_refused_by_its_name_unless_it_asks_for_nothing(name: str) -> None:
    surface, base = SURFACES[name]

    def parse(field: str, value: Any) -> Any:
        return surface.parse(json.dumps({"model": "annie", **base, field: value}).encode(), 512)

    for field in UNSERVED - surface.request.model_fields.keys():
        with pytest.raises(BadField, match=field) as caught:
            parse(field, ["a"])
        assert (caught.value.code, caught.value.param) == ("unsupported_parameter", field)
        for nothing in (None, False, {"type": "text"}):
            parse(field, nothing)


def test_the_page_names_every_field_that_is_served() -> None:
    page = (Path(__file__).parents[3] / "docs/api.md").read_text("utf-8")
    for surface in SERVED:
        (row,) = re.findall(rf"^\| `{surface.path}` \| (.*) \|$", page, re.MULTILINE)
        common = COMMON_FIELDS if surface.path == "/v1/chat/completions" else set()
        assert set(re.findall(r"`(\w+)`", row)) == common | surface.request.model_fields.keys()
