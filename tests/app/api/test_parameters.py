"""`docs/api.md` against the surfaces, and against the official clients' own lists of parameters."""

import json
import re

import pytest

from app.api.messages import Messages
from deploy.engine.dialects import DIALECTS
from tests.app.api.blocks import BLOCKS, Block
from tests.app.api.parameters import APIS, DOCUMENT, HERE, Api, written

PATHS = [api.surface.path for api in APIS]


@pytest.mark.parametrize("api", APIS, ids=PATHS)
def test_every_parameter_of_the_official_client_is_judged(api: Api) -> None:
    """A newer package may have more: give each a row in `tests/app/api/parameters.py`, with what should become of it."""
    assert not api.official - api.rows.keys()


@pytest.mark.parametrize("api, name", [(api, name) for api in APIS for name in api.rows])
def test_no_parameter_is_dropped_in_silence(api: Api, name: str) -> None:
    """It is refused, sent on, or named as ignored, unless the gateway itself honours it."""
    assert (api.fate(name) == HERE) == api.rows[name].ours


@pytest.mark.parametrize("block, name", [(block, name) for block in BLOCKS for name in block.expected])
def test_no_field_of_a_block_is_dropped_in_silence(block: Block, name: str) -> None:
    """Used, ignored by name, or one that only comes back: a newer package's field is none of them, and has to be judged."""
    assert block.fate(name) == block.expected[name]


def test_a_field_of_a_block_is_named_once_however_often_it_comes() -> None:
    """By its path without numbers: the header stays short in a long conversation."""
    part = {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}
    body = {
        "model": "m",
        "max_tokens": 5,
        "system": [part],
        "messages": [{"role": "user", "content": [part, part]}] * 20,
    }
    surface = Messages()
    asked = surface.parse(json.dumps(body).encode(), 512)

    assert surface.ignored(asked, "vllm") == ["messages.content.cache_control", "system.cache_control"]


def test_the_page_names_every_field_of_the_engines_own_that_is_sent_on() -> None:
    text = DOCUMENT.read_text("utf-8").partition("dialect lists them (")[2].partition(")")[0]
    assert {*re.findall(r"`(\w+)`", text)} == {name for spec in DIALECTS.values() for name in spec.fields}


def test_the_page_says_what_the_surfaces_do() -> None:
    """Else: python -m tests.app.api.parameters."""
    document = DOCUMENT.read_text("utf-8")
    assert written(document) == document
