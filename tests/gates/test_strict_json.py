"""JSON from elsewhere, and what reads it: a number that nobody can compute with is an error of the file."""

import pytest

from app.shadow import record
from gates.contracts import strict_json

ODD = {
    "NaN": "NaN",
    "minus infinity": "-Infinity",
    "a huge exponent": "1e5200",
    "a huge negative": "-1.5E+400",
    "309 digits": "1" * 309,
    "5,000 digits": "1" * 5000,
    "nested": "[" * 100_000 + "]" * 100_000,
}


@pytest.mark.parametrize("name", ODD)
def test_what_is_no_json_elsewhere_is_none_here(name: str) -> None:
    for text in (ODD[name], f'{{"a": [{ODD[name]}]}}'):
        with pytest.raises(ValueError, match=r"no JSON|beyond a double|nested too deeply"):
            strict_json.loads(text)


def test_numbers_that_are_doubles_stay_as_they_are() -> None:
    assert strict_json.loads("[1e308, -0.0, 5e-324, " + "9" * 308 + "]") == [
        1e308,
        -0.0,
        5e-324,
        int("9" * 308),
    ]


@pytest.mark.parametrize("odd", ODD)
def test_a_shadow_record_with_one_is_left_out(odd: str) -> None:
    assert record.parse(f'{{"schema": "{record.SCHEMA}", "n": {ODD[odd]}}}'.encode()) is None
