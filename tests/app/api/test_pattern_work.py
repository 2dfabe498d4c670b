"""What a pattern in a schema may make an engine do is counted before the engine sees it."""

import re
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.api.strict_json import MAX_PATTERN_WORK
from app.api.tool_schema import pattern_cost
from tests.work import Counted

EVERYDAY = [
    r"^[a-zA-Z0-9._%+-]+@[a-zA-Z0-9.-]+\.[a-zA-Z]{2,}$",
    r"^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$",
    r"^(\d{4})-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])$",
    r"^((25[0-5]|(2[0-4]|1\d|[1-9]|)\d)\.?\b){4}$",
    r"^(\([0-9]{3}\))?[0-9]{3}-[0-9]{4}$",
    r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$",
    r"^(AL|AK|AZ|AR|CA|CO|CT|DE|FL|GA|HI|ID|IL|IN|IA|KS|KY|LA|ME|MD|MA|MI|MN|MS|MO|MT|NE|NV|NH|NJ|NM|NY)$",
    r"^.{1,1000}$",
    r"^(https?://)?([\w-]+\.)+[\w-]+(/[\w./?%&=-]*)?$",
]
HARMFUL = {
    "optional in a row": "^" + "a?" * 300 + "$",
    "an optional one, repeated": "^(a?){0,300}$",
    "repetitions in a row": "^" + "a{0,10}" * 50 + "$",
    "a repetition of a repetition": "^(a{0,100}){0,100}$",
    "with spaces, as llama.cpp reads it": "^(a{0, 100}){ 0,100}$",
    "with a sign and a rest": "^(a{+0,100x}){0,100}$",
    "a long number": "^(a{0,00000000000100}){0,100}$",
    "the same in many branches": "^(" + "|".join("a" * 90) + ")*$",
    "optional ones, repeated": "^(" + "a?" * 62 + ")*$",
    "groups in groups": "^" + "(" * 40 + "a" + "?)?" * 40 + ")*" * 4 + "a{0,9999}{0,9999}",
    "behind an empty class": "[](a{0,100}){0,100}]",
    "behind an escape": r"\((a{0,100}){0,100}",
    "without ends": "(a{0,100}){0,100}",
    "a group that is not closed": "(((a{0,100}){0,100}",
    "a group that captures nothing": "(?:(?:a{0,100}){0,100})",
    "a named group": "(?<n>(?<m>a{0,100}){0,100})",
}  # fmt: skip


@pytest.mark.parametrize("pattern", EVERYDAY)
def test_what_people_write_is_little_work(pattern: str) -> None:
    assert pattern_cost(pattern) < MAX_PATTERN_WORK / 2


@pytest.mark.parametrize("pattern", HARMFUL.values(), ids=HARMFUL)
def test_what_stops_an_engine_is_too_much(pattern: str) -> None:
    assert pattern_cost(pattern) > MAX_PATTERN_WORK


@given(st.text(alphabet="ab(){}[]|*+?\\,0123456789^$:<>=! \n", max_size=200))
def test_any_text_has_a_number(pattern: str) -> None:
    assert pattern_cost(pattern) >= len(pattern)


ATOMS = st.sampled_from(["a", "b", "[ab]", ".", r"\d"])
EXPRESSIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("(%s|%s)".__mod__),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{0,2}", "{2}", "{1,}"])).map("(%s)%s".__mod__),
    ),
    max_leaves=12,
)


@given(EXPRESSIONS)
def test_around_an_expression_there_is_never_less_work_than_in_it(expression: str) -> None:
    """Groups change nothing, and repetition adds."""
    re.compile(expression)
    work = pattern_cost(expression)
    assert pattern_cost(f"({expression})") >= work
    assert pattern_cost(f"(?:{expression}|b)") >= work
    assert pattern_cost(f"({expression}){{0,9}}") >= work
    assert pattern_cost(f"({expression})*({expression})*") >= work


@pytest.mark.parametrize("piece", ["(((a{0,9}){0,9}){0,9})", "[[", "(", "{1", "a{", "[\\", "(?", ")|(", "a?"])
def test_counting_is_linear(piece: str) -> None:
    counted = Counted()
    count = counted("app.api.tool_schema").pattern_cost
    short, long = (counted.steps(partial(count, piece * n)) for n in (250, 1000))
    assert long < 4.5 * short
