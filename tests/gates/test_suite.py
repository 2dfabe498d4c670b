"""Suites from disk: what loads, what is refused and how it is told, and what the digest is over."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gates.contracts.errors import SuiteError
from gates.suite.load import load_suite

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
            },
            "required": ["city"],
        },
    },
}
DATE = {
    "type": "function",
    "function": {"name": "get_date", "parameters": {"type": "object", "properties": {}}},
}
HEAD = """
name = "little"
version = 3
description = "Two cases."
cases = ["little.jsonl"]
tools_file = "tools.json"

[sampling]
temperature = 0.0
seed = 7

[systems]
annie = "You are Annie."

[tools]
house = ["get_date", "get_weather"]
"""
RAIN = {
    "id": "rain",
    "gates": ["tools", "raw_call"],
    "system": "annie",
    "user": "Is it raining in Hassan?",
    "tools": "house",
    "expect": {
        "calls": [{"name": "get_weather", "arguments": {"city": ["Hassan"], "unit": ["celsius", ""]}}]
    },
}
HELLO = {"id": "hello", "gates": ["leak"], "named": ["leak"], "user": "Hello, it's me!", "turn": "greeting"}
CALL = {"id": "c1", "type": "function", "function": {"name": "get_date", "arguments": "{}"}}

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a suite of these lines (values, or text as it stands) and returns the head's path."""

    def _write(*lines: object, head: str = HEAD, tools: object = (WEATHER, DATE)) -> Path:
        texts = [line if isinstance(line, str) else json.dumps(line) for line in lines or (RAIN, HELLO)]
        (tmp_path / "little.jsonl").write_text("\n".join(texts) + "\n", encoding="utf-8")
        (tmp_path / "tools.json").write_text(json.dumps(tools), encoding="utf-8")
        (tmp_path / "little.toml").write_text(head, encoding="utf-8")
        return tmp_path / "little.toml"

    return _write


# ----------------------------------------------------------------------------------- what is refused


def case(**changes: Any) -> dict[str, Any]:
    """RAIN with some keys changed, or dropped where the value is `...`."""
    return {k: v for k, v in (RAIN | changes).items() if v is not ...}


def calls(**arguments: object) -> dict[str, Any]:
    return {"calls": [{"name": "get_weather", "arguments": arguments}]}


def said(*messages: object) -> dict[str, Any]:
    return case(user=..., messages=list(messages), system=...)


USER = {"role": "user", "content": "What day is it?"}
ASKED = {"role": "assistant", "content": "", "tool_calls": [CALL]}
BAD_TOOL = {"type": "function", "function": {"name": "x", "parameters": {"type": "object", "required": 5}}}

NOT_WHOLE = "messages: must have a system prompt at first or not at all, a result behind each call"
REFUSED = [
    ("{", "not JSON"),
    ('{"id": "a", "id": "b"}', "a key is there twice"),
    ("[]", "must be a JSON object"),
    (case(colour="red"), "colour: unknown key; known"),
    (case(gates=["tool"]), "gates: there is no 'tool'; did you mean 'tools'"),
    (case(gates=["leak", "leak"], expect={}), "must name each gate once"),
    (case(named=["leak"]), "named: has leak, which is not in gates"),
    (case(stage=2, named=["tools"]), "stage: must be 1, for the case is a named one"),
    (case(system="anie"), "system: there is no 'anie'; did you mean 'annie'"),
    (case(tools="hose"), "tools: there is no 'hose'; did you mean 'house'"),
    (case(tools=[BAD_TOOL]), r"tools\[0\].function.parameters: 5 is not of type 'array'"),
    (case(tools=[DATE, DATE]), "a name twice"),
    (case(tools=...), "tools: are missing"),
    (HELLO | {"tool_choice": "auto"}, "tool_choice: says nothing without tools"),
    (said({"role": "user", "content": " "}), r"messages\[0\].content: must be a text"),
    (case(user=...), "either user or messages"),
    (said(), "at least one message"),
    (said(USER, ASKED), NOT_WHOLE),
    (said(USER, ASKED, USER), NOT_WHOLE),
    (said(USER, {"role": "tool", "tool_call_id": "c1", "content": ""}), NOT_WHOLE),
    (said(USER, {"role": "assistant", "content": "Sunday."}), NOT_WHOLE),
    (said(ASKED, {"role": "tool", "tool_call_id": "c1", "content": ""}), NOT_WHOLE),
    (said(USER, {"role": "system", "content": "Be brief."}), NOT_WHOLE),
    (case(user=..., messages=[{"role": "system", "content": "Hi."}, USER]), "begin with one of their own"),
    (case(expect={}), "expect.calls: is missing"),
    (case(gates=["leak"]), "expect.calls: no gate of this case judges it"),
    (case(expect={"calls": [{"name": "weather", "arguments": {}}]}), "'weather' is none of the case's tools"),
    (case(expect=calls()), "arguments: the tool's schema does not take {}: 'city' is a required property"),
    (case(expect=calls(city=["Hassan"], day=["Monday"])), "'day' was unexpected"),
    (case(expect=calls(city=["Hassan", ""])), "'city' is a required property"),
    (case(expect=calls(city=["Hassan"], unit=["kelvin"])), "'kelvin' is not one of"),
    (case(expect=calls(city=[{"has": "Hassan"}])), "has takes texts"),
    (case(expect=calls(city=[{"one_of": [""]}])), "one_of takes values"),
    (case(expect=calls(city=[{"one_of": [5, "Hassan"]}])), "5 is not of type 'string'"),
    (case(gates=["reasoning"], expect={"answer": {"number": 4}}), "answer.tolerance: belongs to number"),
]


@pytest.mark.parametrize("line, why", REFUSED)
def test_a_bad_case_is_told_with_file_line_and_field(write: Write, line: object, why: str) -> None:
    path = write(HELLO | {"id": "first", "user": "Good evening"}, line)

    with pytest.raises(SuiteError, match=rf"little\.jsonl:2: .*{why}"):
        load_suite(path)


HEADS = [
    ("name = ", "not TOML"),
    ("colour = 1" + HEAD, "colour: unknown key"),
    (HEAD.replace('"You are Annie."', '" "'), "systems.annie: must be a text"),
    (HEAD.replace('["get_date", ', '["get_dte", '), "tools.house: 'get_dte' is not in tools.json"),
    (HEAD.replace('"little.jsonl"', '"other.jsonl"'), r"other\.jsonl: cannot be read"),
]


@pytest.mark.parametrize("head, why", HEADS, ids=[why for _, why in HEADS])
def test_a_bad_head_is_told_with_its_key(write: Write, head: str, why: str) -> None:
    with pytest.raises(SuiteError, match=why):
        load_suite(write(head=head))


AGAIN = {"id": "again", "gates": ["leak"], "system": "annie", "user": "hello its me", "tools": "house"}


@pytest.mark.parametrize(
    "lines, why",
    [
        (("",), "has no prompt"),
        ((HELLO, HELLO | {"user": "Good day"}), "two cases have the id 'hello'"),
        ((HELLO, AGAIN), "'hello' and 'again' say the same"),
    ],
)
def test_cases_that_are_no_evidence_of_their_own_are_refused(
    write: Write, lines: tuple[object, ...], why: str
) -> None:
    with pytest.raises(SuiteError, match=why):
        load_suite(write(*lines))


# --------------------------------------------------------------------------------------- the digest


def test_the_digest_does_not_know_the_layout_of_files(write: Write, tmp_path: Path) -> None:
    whole = load_suite(write())
    inline = case(system=..., user=..., tools=[DATE, WEATHER], messages=list(whole.cases[0].messages))
    (tmp_path / "more.jsonl").write_text(json.dumps(inline), encoding="utf-8")
    head = HEAD.replace('["little.jsonl"]', '["little.jsonl", "more.jsonl"]').replace("little", "other", 1)
    head = head.replace("version = 3", "version = 4").replace("Two cases", "Cases")

    apart = load_suite(write(HELLO | {"turn": "small talk"}, head=head))

    assert apart.cases != whole.cases
    assert apart.digest == whole.digest


CHANGES: tuple[dict[str, Any], ...] = (
    {"user": "Is it raining in Hassan now?"},
    {"system": ...},
    {"tools": [WEATHER]},
    {"tools": [DATE, json.loads(json.dumps(WEATHER, sort_keys=True))]},
    {"tools": [WEATHER, DATE]},
    {"expect": calls(city=["Hassan", "Hassan, Karnataka"], unit=["celsius", ""])},
    {"gates": ["tools"]},
    {"stage": 2},
    {"named": ["tools"]},
    {"id": "rains"},
    {"language": "kn"},
    {"tool_choice": "required"},
)


def test_the_digest_changes_with_what_is_asked_or_judged(write: Write) -> None:
    digests = {load_suite(write(case(**changes), HELLO)).digest for changes in CHANGES}
    assert len(digests | {load_suite(write()).digest}) == len(CHANGES) + 1
