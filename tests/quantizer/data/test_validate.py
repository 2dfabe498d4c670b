"""`manners data validate`: everything that makes a row unfit is found with its line, and an unreadable file is one line."""

import json
from pathlib import Path
from typing import Any

import pytest

from app.__main__ import main

ROOT = Path(__file__).parents[3]
TOOL = {
    "type": "function",
    "function": {
        "name": "web_search",
        "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
    },
}


def says(role: str, content: str, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def call(
    arguments: str = '{"query": "rain"}', name: str = "web_search", id: str = "call_0"
) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def talk(answer: str, asked: str = "How is the garden today?", **more: Any) -> dict[str, Any]:
    return {"messages": [says("user", asked), says("assistant", answer)], **more}


def called(made: dict[str, Any] | None = None, result: bool = True, **more: Any) -> dict[str, Any]:
    """A call, its result and an answer."""
    made = made or call()
    given = [says("tool", "Rain until noon.", tool_call_id=made["id"])] if result else []
    first = says("assistant", "", tool_calls=[made])
    messages = [says("user", "Will it rain?"), first, *given, says("assistant", "It rains until noon.")]
    return {"messages": messages, "tools": [TOOL], **more}


FINE = [talk("The garden is doing well."), called()]


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def validated(path: Path, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, dict[str, Any]]:
    """The exit code and the report."""
    code = main(["data", "validate", str(path), "--suite", "annie-nano", "--json", *more])
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    return code, report


def test_rows_without_a_fault_are_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, report = validated(write(tmp_path / "rows.jsonl", *FINE), capsys)

    assert code == 0 and report["fit"] and report["findings"] == []
    assert (report["rows"], report["with_calls"]) == (2, 1)
    assert report["spoken_seconds"]["most"] == 2.0 and report["tokens"] is None


BAD: list[tuple[Any, str, str]] = [
    ('{"messages"', "row", "not JSON"),
    ({"messages": [says("user", "hi")]}, "row", "no message of the assistant's"),
    (talk("It is **fine**."), "markdown", "strong"),
    (talk("<think>The user asks. Fine."), "leak", "tag"),
    (talk("Okay, the user wants to know about the garden. Let me think about what to say."), "leak", ""),
    (talk('<tool_call>{"name": "web_search", "arguments": {}}</tool_call>', tools=[TOOL]), "raw_call", ""),
    (talk("..."), "empty", "signs"),
    (talk("so it goes and so it goes " * 12), "loop", ""),
    (talk("It is fine. " + "The roses are out and the beans are up. " * 12), "verbosity", "too_long"),
    (talk("See www.garden.com for that."), "speakable", "url"),
    (talk("The garden is well.", language="kn"), "script", "wrong_script"),
    (talk("Fine.", chat_template_kwargs={"enable_thinking": False}) | {"messages": [
        says("user", "Well?"), says("assistant", "Fine.", reasoning_content="Hm.")]}, "thought", "switched off"),
    (called(call('{"query": 5}')), "toolcall", "type_error"),
    (called(call('{"query": "a", "query": "b"}')), "toolcall", "invalid_json"),
    (called(call("{}")), "toolcall", "missing_required"),
    (called(call(name="fly")), "toolcall", "unknown_tool"),
    (called(call(id="")), "toolcall", "id_missing"),
    (called(result=False), "result", "no result before it"),
    ({"messages": [says("user", "Well?"), says("tool", "x", tool_call_id="c"), says("assistant", "Well.")]}, "result", "no call that waits"),
    (talk("Fine.", tools=[{"type": "function", "function": {"name": "f", "parameters": {"type": "objekt"}}}]), "tools", "schema"),
    (talk("The garden is doing well!", "how is the garden, today"), "duplicate", "says the same as line 1"),
    (talk("Namaste.", "Annie, hello there!"), "wall", "annie-nano: chat-greeting-003, same"),
]  # fmt: skip


@pytest.mark.parametrize("row, code, detail", BAD, ids=[f"{case[1]}-{case[2]}" for case in BAD])
def test_an_unfit_row_is_found_with_its_line(
    row: Any, code: str, detail: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exit_code, report = validated(write(tmp_path / "rows.jsonl", *FINE, row), capsys)

    assert exit_code == 1 and not report["fit"]
    assert {found["line"] for found in report["findings"]} == {3}
    assert any(found["code"] == code and detail in found["detail"] for found in report["findings"]), report


def test_the_report_is_for_people_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "rows.jsonl", *FINE, talk("It is **fine**."))
    assert main(["data", "validate", str(path), "--suite", "annie-nano"]) == 1
    told = capsys.readouterr().out

    for words in ("3 rows, sha256:", "not rendered: name a model folder with --source",
                  "annie-nano yes", "line 3, message 1: markdown: strong: '**fine**'"):  # fmt: skip
        assert words in told
    assert told.rstrip().endswith("not fit")


@pytest.mark.torch
def test_rows_are_rendered_and_masked_as_in_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("transformers", reason="needs the quantizer extra: pip install -e '.[quantizer]'")
    source = str(ROOT / "models" / "annie-nano-hf")
    code, report = validated(write(tmp_path / "rows.jsonl", *FINE), capsys, "--source", source)
    assert code == 0 and 0 < report["tokens"]["learned"] < report["tokens"]["most"] * 2

    odd = talk("Fine.", chat_template_kwargs={"enable_thinking": True}) | {
        "messages": [says("user", "Well?"), says("assistant", "Fine<|im_end|>, I think.")]
    }
    code, report = validated(write(tmp_path / "rows.jsonl", odd), capsys, "--source", source)
    assert code == 1 and "end-of-turn token" in report["findings"][-1]["detail"]


@pytest.mark.parametrize("spoil", ["missing", "empty", "folder"])
def test_a_file_that_cannot_be_read_is_one_line(
    spoil: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rows.jsonl"
    if spoil == "empty":
        path.write_text("\n")
    elif spoil == "folder":
        path.mkdir()
    assert main(["data", "validate", str(path), "--suite", "annie-nano"]) == 65

    told = capsys.readouterr()
    assert told.out == "" and told.err.count("\n") == 1 and str(path) in told.err
