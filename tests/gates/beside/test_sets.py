"""The sets beside the gates: ours, and files in the formats of IFEval and BFCL."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from gates.beside.calls import expected_calls, tools_of
from gates.beside.judge import fault
from gates.beside.sets import MAX_BYTES, load_sets
from gates.contracts.case import Case
from gates.contracts.errors import SuiteError
from gates.reply.calls import ReplyCall
from gates.reply.reply import Reply

IFEVAL = {
    "key": 1000,
    "prompt": "Write 300 words, no commas.",
    "instruction_id_list": ["punctuation:no_comma", "length_constraints:number_words"],
    "kwargs": [{}, {"relation": "at least", "num_words": 300, "language": None}],
}
FUNCTION = {
    "name": "math.area",
    "description": "An area.",
    "parameters": {
        "type": "dict",
        "properties": {
            "base": {"type": "float", "description": "b"},
            "unit": {"type": "string"},
            "size": {"type": "tuple", "items": {"type": "integer"}},
            "more": {"type": "dict", "properties": {"deep": {"type": "any"}}},
        },
        "required": ["base"],
    },
}


def bfcl(
    folder: Path, questions: list[dict[str, Any]], answers: list[dict[str, Any]], kind: str = "simple"
) -> Path:
    (folder / "possible_answer").mkdir(parents=True, exist_ok=True)
    name = f"BFCL_v3_{kind}.json"
    (folder / name).write_text("".join(json.dumps(one) + "\n" for one in questions))
    (folder / "possible_answer" / name).write_text("".join(json.dumps(one) + "\n" for one in answers))
    return folder


def question(name: str = "simple_0", **more: Any) -> dict[str, Any]:
    return {"id": name, "question": [[{"role": "user", "content": "Area?"}]], "function": [FUNCTION], **more}


def answer(name: str = "simple_0", *calls: dict[str, Any]) -> dict[str, Any]:
    return {"id": name, "ground_truth": list(calls) or [{"math.area": {"base": [10], "unit": ["m", ""]}}]}


def replied(*calls: tuple[str, Any], content: str = "") -> Reply:
    made = tuple(ReplyCall(i, str(i), name, json.dumps(args)) for i, (name, args) in enumerate(calls))
    return Reply(200, content=content, calls=made, finish_reason="tool_calls" if calls else "stop", done=True)


def test_our_sets_load_whole_and_their_tools_are_sound() -> None:
    found = load_sets(["instructions, calls", "answers"])
    assert {one.name: (len(one.cases), one.skipped) for one in found} == {
        "instructions": (40, 0), "calls": (36, 0), "answers": (44, 0),
    }  # fmt: skip
    for case in (case for one in found for case in one.cases):
        for tool in case.tools:
            Draft202012Validator.check_schema(tool["function"]["parameters"])


def test_what_our_calls_expect_their_own_schemas_accept() -> None:
    """The first accepted value of each argument, as a reply, is right and valid."""
    (calls,) = load_sets(["calls"])
    for case in calls.cases:
        schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in case.tools}
        made = [(one["name"], {k: first(v[0]) for k, v in one["arguments"].items() if v[0] != ""})
                for one in case.expect["calls"]]  # fmt: skip
        assert fault(case, replied(*made)) == "", case.id
        for name, arguments in made:
            Draft202012Validator(schemas[name]).validate(arguments)


def first(value: Any) -> Any:
    if isinstance(value, dict) and value.keys() == {"one_of"}:
        return first(value["one_of"][0])
    if isinstance(value, dict):
        return {key: first(one) for key, one in value.items() if first(one) != ""}
    return value


def test_ifeval_is_read_as_it_is_published(tmp_path: Path) -> None:
    """Keys without a value are absent; an instruction that is not known here skips its line."""
    odd = IFEVAL | {"key": 1, "instruction_id_list": ["new:one"], "kwargs": [{}]}
    (tmp_path / "input_data.jsonl").write_text(json.dumps(IFEVAL) + "\n\n" + json.dumps(odd) + "\n")
    (found,) = load_sets([f"ifeval={tmp_path}"])
    assert (len(found.cases), found.skipped, found.source) == (1, 1, "input_data.jsonl")
    case = found.cases[0]
    assert case.id == "1000" and case.messages == ({"role": "user", "content": IFEVAL["prompt"]},)
    assert fault(case, replied(content="word " * 300)) == ""
    assert fault(case, replied(content="word, " * 300)) == "punctuation:no_comma"


def test_bfcl_is_read_as_it_is_published(tmp_path: Path) -> None:
    """Types and names in OpenAI's words; a line without an answer is skipped."""
    (found,) = load_sets([f"bfcl={bfcl(tmp_path, [question(), question('simple_1')], [answer()])}"])
    assert (len(found.cases), found.skipped) == (1, 1)
    parameters = found.cases[0].tools[0]["function"]["parameters"]
    assert found.cases[0].tools[0]["function"]["name"] == "math_area" and parameters["type"] == "object"
    assert {k: v["type"] for k, v in parameters["properties"].items()} == {
        "base": "number", "unit": "string", "size": "array", "more": "object",
    }  # fmt: skip
    assert parameters["properties"]["more"]["properties"]["deep"]["type"] == "string"


@pytest.mark.parametrize(
    "calls, right",
    [
        ([("math_area", {"base": 10})], True),
        ([("math_area", {"base": 10.0, "unit": "M"})], True),
        ([("math_area", {"base": 10, "unit": "cm"})], False),
        ([("math_area", {"unit": "m"})], False),
        ([("math_area", {"base": "10"})], False),
        ([("math_area", {"base": 10, "size": [1]})], False),
        ([("other", {"base": 10})], False),
        ([("math_area", {"base": 10}), ("math_area", {"base": 10})], False),
        ([], False),
    ],
)
def test_a_call_is_compared_as_bfcl_compares_it(calls: list[Any], right: bool) -> None:
    tools = tools_of([FUNCTION])
    case = Case("x", ("simple",), ({"role": "user", "content": "?"},), tools,
                expect={"calls": expected_calls(answer()["ground_truth"], tools)})  # fmt: skip
    assert (fault(case, replied(*calls)) == "") is right


def test_parallel_calls_may_come_in_any_order_and_many_are_compared_quickly() -> None:
    """Twelve calls of which each could stand for most others: a search over all orders would not end."""
    tools = tools_of([FUNCTION])
    truth = [{"math.area": {"base": list(range(n, 13))}} for n in range(12)]
    case = Case("x", ("parallel",), ({"role": "user", "content": "?"},), tools,
                expect={"calls": expected_calls(truth, tools)})  # fmt: skip
    assert fault(case, replied(*(("math_area", {"base": n}) for n in range(12, 0, -1)))) == ""
    assert fault(case, replied(*(("math_area", {"base": 0}) for n in range(12)))) != ""


def test_values_inside_an_object_are_lists_of_accepted_ones() -> None:
    tools = tools_of([FUNCTION])
    case = Case("x", ("simple",), ({"role": "user", "content": "?"},), tools, expect={
        "calls": expected_calls([{"math.area": {"base": [1], "more": [{"deep": ["a", "b"], "opt": [2, ""]}]}}], tools)
    })  # fmt: skip
    assert fault(case, replied(("math_area", {"base": 1, "more": {"deep": "B"}}))) == ""
    assert fault(case, replied(("math_area", {"base": 1, "more": {"deep": "a", "opt": 2}}))) == ""
    assert fault(case, replied(("math_area", {"base": 1, "more": {"deep": "c"}}))) != ""


def test_a_part_is_the_same_for_everybody_and_grows() -> None:
    (found,) = load_sets(["answers"])
    few, more = ({case.id for case in found.first(n)} for n in (5, 9))
    assert len(few) == 5 and few < more and len(found.first(0)) == len(found.first(1000)) == 44
    order = [case.id for case in found.cases]
    assert [case.id for case in found.first(9)] == sorted(more, key=order.index)


@pytest.mark.parametrize(
    "wanted, words",
    [
        (["facts"], "there is no such set; there are instructions, calls, answers, ifeval=DIR, bfcl=DIR"),
        (["bfcl"], "needs the place of your files: bfcl=DIR"),
        (["answers=x"], "there is no such set"),
        (["answers,answers"], "names a set twice"),
        (["ifeval={tmp}"], "there is no input_data.jsonl"),
        (["bfcl={tmp}"], "there is no BFCL_v"),
        (["ifeval={tmp}/bad.jsonl"], "bad.jsonl:1: not JSON"),
        (["ifeval={tmp}/list.jsonl"], "list.jsonl:1: must be a JSON object"),
        (["ifeval={tmp}/short.jsonl"], "lists of one length"),
        (["ifeval={tmp}/kwargs.jsonl"], "each of kwargs must be an object"),
        (["ifeval={tmp}/latin.jsonl"], "not UTF-8"),
        (["ifeval={tmp}/none.jsonl"], "can be judged here"),
        (["ifeval={tmp}/twice.jsonl"], "an id twice"),
        (["ifeval={tmp}/huge.jsonl"], "larger than"),
    ],
)
def test_what_cannot_be_used_is_one_line(tmp_path: Path, wanted: list[str], words: str) -> None:
    line = json.dumps(IFEVAL)
    files = {
        "bad": "{", "list": "[]", "short": json.dumps(IFEVAL | {"kwargs": []}), "none": json.dumps({**IFEVAL, "prompt": 7}),
        "twice": f"{line}\n{line}\n", "kwargs": json.dumps(IFEVAL | {"kwargs": [1, []]}),
    }  # fmt: skip
    for name, text in files.items():
        (tmp_path / f"{name}.jsonl").write_text(text)
    (tmp_path / "latin.jsonl").write_bytes(b'{"a": "\xff"}\n')
    with (tmp_path / "huge.jsonl").open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(SuiteError) as refused:
        load_sets([one.format(tmp=tmp_path) for one in wanted])
    assert words in str(refused.value) and "\n" not in str(refused.value)
