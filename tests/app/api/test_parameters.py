"""`docs/api.md` against the surfaces, and against the official clients' own lists of parameters."""

import re

import pytest

from deploy.engine.dialects import DIALECTS
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


def test_the_page_names_every_field_of_the_engines_own_that_is_sent_on() -> None:
    text = DOCUMENT.read_text("utf-8").partition("dialect lists them (")[2].partition(")")[0]
    assert {*re.findall(r"`(\w+)`", text)} == {name for spec in DIALECTS.values() for name in spec.fields}


def test_the_page_says_what_the_surfaces_do() -> None:
    """Else: python -m tests.app.api.parameters."""
    document = DOCUMENT.read_text("utf-8")
    assert written(document) == document
