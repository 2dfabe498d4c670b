"""A field that would change the reply and is not honoured is 400 by its name, on every API."""

import json
from typing import Any

import pytest

from app.api import unserved
from app.api.completions import Completions
from app.api.messages import Messages
from app.api.responses import Responses
from app.api.surface import ChatCompletions, Surface
from app.errors.tree import BadField

TURN = [{"role": "user", "content": "Hi"}]
SURFACES: dict[str, tuple[Surface, dict[str, Any], Any]] = {
    "chat": (ChatCompletions(), {"messages": TURN}, unserved.CHAT),
    "responses": (Responses(), {"input": "Hi"}, unserved.RESPONSES),
    "messages": (Messages(), {"messages": TURN, "max_tokens": 5}, unserved.MESSAGES),
    "completions": (Completions(), {"prompt": "Hi"}, unserved.COMPLETIONS),
}


def parse(surface: Surface, body: dict[str, Any]) -> Any:
    return surface.parse(json.dumps({"model": "annie", **body}).encode(), 512)


@pytest.mark.parametrize("name", SURFACES)
def test_each_is_refused_by_its_name_and_with_what_to_do(name: str) -> None:
    surface, base, fields = SURFACES[name]
    for field, why in fields.items():
        with pytest.raises(BadField) as caught:
            parse(surface, {**base, field: ["a"]})
        assert (caught.value.code, caught.value.param) == ("unsupported_parameter", field)
        assert field in caught.value.message and why in caught.value.message
        parse(surface, {**base, field: None})


@pytest.mark.parametrize("name", SURFACES)
def test_a_surfaces_own_fields_are_none_of_them(name: str) -> None:
    surface, base, fields = SURFACES[name]
    assert not base.keys() & fields.keys()
    known = surface.request.model_json_schema()["properties"].keys() - {"echo", "best_of"}
    assert not known & fields.keys(), known & fields.keys()


def test_what_asks_for_nothing_is_taken() -> None:
    surface, base, _ = SURFACES["messages"]
    asked: list[dict[str, Any]] = [
        {"n": 1},
        {"response_format": {"type": "text"}},
        {"stop": []},
        {"logprobs": False},
    ]
    for nothing in asked:
        parse(surface, {**base, **nothing})
    with pytest.raises(BadField):
        parse(surface, {**base, "n": 2})


@pytest.mark.parametrize("name", ["chat", "completions"])
def test_llama_servers_words_for_a_limit_are_those_of_openai(name: str) -> None:
    surface, base, _ = SURFACES[name]
    limits: dict[str, Any] = {
        "one that is named": ({"n_predict": 7}, 7),
        "which openai's goes before": ({"n_predict": 7, "max_tokens": 5}, 5),
        "none": ({"max_tokens": -1, "best_of": 1}, None),
        "none either": ({"n_predict": -1}, None),
    }
    for fields, limit in limits.values():
        asked = parse(surface, {**base, **fields})
        assert (asked.chat.most, asked.body.get("max_tokens"), asked.body.get("n_predict")) == (
            limit,
            limit,
            None,
        )
    for field in ("max_tokens", "n_predict"):
        with pytest.raises(BadField, match=f"^{field}: "):
            parse(surface, {**base, field: -2})
