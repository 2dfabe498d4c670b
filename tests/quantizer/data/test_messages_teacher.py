"""A teacher behind Anthropic's Messages API: what it is asked, what its answers become, and what it refuses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from anthropic.types import Message, MessageCreateParams
from pydantic import TypeAdapter

from app.__main__ import main
from app.config.config import parse
from gates.reply.reply import Reply, read_reply
from quantizer.data.generate import LEDGER
from quantizer.data.messages_api import chat_reply, request_body
from tests.app.house import House, run
from tests.quantizer.data.teachers import Teacher, plan_file, teaching, well
from tests.script import Head, Say, Step, status
from tests.scripted_engine import Seen

MODELS = Path(__file__).parents[3] / "models"
KEY = "sk-ant-of-a-test"
USAGE = {"input_tokens": 9, "output_tokens": 5}

CHAT: dict[str, Any] = {
    "model": "claude", "temperature": 0.5, "top_p": 0.9, "seed": 3, "max_tokens": 64, "stream": False,
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Rain in Pune and in Goa?"},
        {"role": "assistant", "content": "", "reasoning_content": "Two cities.", "tool_calls": [
            {"id": "call_0", "type": "function", "function": {"name": "look_up", "arguments": '{"q": "Pune"}'}},
            {"id": "call_1", "type": "function", "function": {"name": "look_up", "arguments": ""}}]},
        {"role": "tool", "tool_call_id": "call_0", "content": "Rain."},
        {"role": "tool", "tool_call_id": "call_1", "content": "Sun."},
        {"role": "assistant", "content": "Rain in Pune, sun in Goa."},
        {"role": "user", "content": "Thanks."},
    ],
    "tools": [{"type": "function", "function": {"name": "look_up", "description": "Looks it up."}}],
}  # fmt: skip


def test_a_request_is_one_that_the_api_takes() -> None:
    """By the types of Anthropic's own client; results of one turn are one turn, and no text is empty."""
    body = request_body(CHAT)
    TypeAdapter(MessageCreateParams).validate_python(body)
    assert body["system"] == "Be brief." and body["thinking"] == {"type": "disabled"}
    assert not body.keys() & {"top_p", "seed", "stream"} and body["temperature"] == 0.5
    asked, calls, results, answer, last = body["messages"]
    assert [turn["role"] for turn in body["messages"]] == ["user", "assistant", "user", "assistant", "user"]
    assert [(block["type"], block["input"]) for block in calls["content"]] == [
        ("tool_use", {"q": "Pune"}),
        ("tool_use", {}),
    ]
    assert [block["tool_use_id"] for block in results["content"]] == ["call_0", "call_1"]
    assert "Two cities" not in json.dumps(body)
    assert body["tools"][0]["input_schema"] == {"type": "object", "properties": {}}


def test_thinking_has_its_budget_on_top_and_no_temperature() -> None:
    body = request_body(CHAT, 2048)
    TypeAdapter(MessageCreateParams).validate_python(body)
    assert body["thinking"] == {"type": "enabled", "budget_tokens": 2048} and body["max_tokens"] == 64 + 2048
    assert "temperature" not in body
    handed_in = request_body({**CHAT, "messages": CHAT["messages"][:5]}, 2048)
    assert handed_in["thinking"] == {"type": "disabled"} and handed_in["max_tokens"] == 64


def answer(*blocks: dict[str, Any], stop: str = "end_turn") -> dict[str, Any]:
    """A reply as Anthropic's own client reads it."""
    fields = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude", "stop_sequence": None}
    made = Message.model_validate({**fields, "content": list(blocks), "stop_reason": stop, "usage": USAGE})
    whole: dict[str, Any] = made.model_dump(mode="json")
    return whole


def read(reply: dict[str, Any]) -> Reply:
    from gates.contracts.sample import Sample, SampleKey, TimedRead

    key = SampleKey("s", "a", "e", "r", "teacher", "c", 0, "whole")
    data = chat_reply(json.dumps(reply).encode())
    return read_reply(Sample(key, {}, "", status=200, reads=(TimedRead(1, data),)))


@pytest.mark.parametrize(
    ("stop", "reason"),
    [("end_turn", "stop"), ("stop_sequence", "stop"), ("max_tokens", "length"), ("refusal", "content_filter"),
     ("pause_turn", None)],
)  # fmt: skip
def test_a_stop_reason_is_told_as_a_finish_reason(stop: str, reason: str | None) -> None:
    reply = read(answer({"type": "text", "text": "It is Rome."}, stop=stop))
    assert (reply.content, reply.finish_reason, reply.completion_tokens) == ("It is Rome.", reason, 5)


def test_thoughts_and_calls_are_read_apart_from_the_text() -> None:
    thought = {"type": "thinking", "thinking": "I look it up.", "signature": "x"}
    call = {"type": "tool_use", "id": "toolu_1", "name": "look_up", "input": {"q": "Pune ಮಳೆ"}}
    reply = read(answer(thought, {"type": "text", "text": "Let me see."}, call, stop="tool_use"))
    assert (reply.content, reply.reasoning, reply.finish_reason) == (
        "Let me see.",
        "I look it up.",
        "tool_calls",
    )
    assert [(made.name, json.loads(made.arguments)) for made in reply.calls] == [
        ("look_up", {"q": "Pune ಮಳೆ"})
    ]


@pytest.mark.parametrize("data", [b"", b"[]", b"<html>", b'{"content": "text"}', b'{"content": [1]}'])
def test_what_is_no_reply_says_so(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        chat_reply(data)


class MessagesTeacher(Teacher):
    """The good teacher of chat completions, behind the other API."""

    async def script_for(self, seen: Seen) -> Sequence[Step]:
        if not seen.path.endswith("/messages"):
            return await super().script_for(seen)
        await self._note(seen)
        played = self.mischief(seen.body, len(self.requests))
        return played or status(200, self._reply(seen.body))

    def _reply(self, body: dict[str, Any]) -> dict[str, Any]:
        last = body["messages"][-1]["content"]
        chat = {"role": "user", "content": last}
        if isinstance(last, list):
            chat = {"role": "tool", "content": last[0]["content"]}
        said = well({"messages": [chat]})[1]
        assert isinstance(said, Say)
        message = json.loads(said.data)["choices"][0]["message"]
        thinks = body["thinking"]["type"] == "enabled"
        blocks: list[dict[str, Any]] = (
            [{"type": "thinking", "thinking": "Hm.", "signature": "s"}] if thinks else []
        )
        blocks += [{"type": "text", "text": message["content"]}] if message["content"] else []
        for call in message.get("tool_calls", ()):
            made = call["function"]
            blocks.append(
                {
                    "type": "tool_use",
                    "id": "toolu_1",
                    "name": made["name"],
                    "input": json.loads(made["arguments"]),
                }
            )
        return answer(*blocks, stop="tool_use" if "tool_calls" in message else "end_turn")


@pytest.fixture
def teacher() -> Iterator[MessagesTeacher]:
    with teaching(MessagesTeacher) as made:
        assert isinstance(made, MessagesTeacher)
        yield made


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses of a run, which are not made."""
    made: list[float] = []
    sleep = asyncio.sleep

    async def pause(seconds: float) -> None:
        if seconds:
            made.append(seconds)
        await sleep(0)

    monkeypatch.setattr("gates.run.runner.asyncio.sleep", pause)
    return made


def command(teacher: Teacher, folder: Path, *more: str) -> list[str]:
    named = ["--url", teacher.url, "--dialect", "anthropic", "--model", "claude", "--key-env", "TEACHER_KEY"]
    kept = ["--plan", str(plan_file(folder)), "--out", str(folder / "out"), "--suite", "annie"]
    return ["data", "generate", *named, *kept, "--concurrency", "1", *more]


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "out" / "conversations.jsonl").read_text().splitlines()]


def test_a_set_is_made_and_the_key_is_written_nowhere(
    teacher: MessagesTeacher,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TEACHER_KEY", KEY)
    assert main(command(teacher, tmp_path)) == 0
    assert all(
        seen.headers["x-api-key"] == KEY and "authorization" not in seen.headers for seen in teacher.requests
    )
    assert {seen.headers["anthropic-version"] for seen in teacher.requests} == {"2023-06-01"}
    assert [row["category"] for row in rows(tmp_path)] == ["factual"] * 3 + ["memory"] * 4
    assert rows(tmp_path)[-1]["messages"][2]["tool_calls"][0]["function"]["name"] == "search_memory"
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["teacher"] == {"model": "claude", "dialect": "anthropic", "thinking": 0}
    said = capsys.readouterr()
    assert KEY not in said.out + said.err
    assert all(KEY.encode() not in path.read_bytes() for path in (tmp_path / "out").iterdir())
    assert (tmp_path / "out" / LEDGER).exists()


def test_thoughts_are_kept_where_they_were_asked_for(
    teacher: MessagesTeacher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEACHER_KEY", KEY)
    assert main(command(teacher, tmp_path, "--thinking", "1024")) == 0
    for row in rows(tmp_path):
        spoken = [m for m in row["messages"] if m["role"] == "assistant"]
        assert spoken[0]["reasoning_content"] == "Hm." and row["chat_template_kwargs"] == {
            "enable_thinking": True
        }


@pytest.mark.slow  # a teacher is asked again and again: 1 s
def test_a_row_without_any_thought_is_no_trace(
    teacher: MessagesTeacher,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TEACHER_KEY", KEY)
    teacher.mischief = lambda body, number: status(
        200, teacher._reply({**body, "thinking": {"type": "disabled"}})
    )
    assert (
        main(command(teacher, tmp_path, "--thinking", "1024", "--count", "memory=0", "--count", "factual=1"))
        == 65
    )
    assert "thought: none" in capsys.readouterr().err


def failure(code: int, kind: str, message: str, *more: tuple[str, str]) -> tuple[Step, ...]:
    """An error as the API sends it."""
    body = {
        "type": "error",
        "error": {"type": kind, "message": message},
        "request_id": "req_011CSHoEeqs5C35K2UUqR7Fy",
    }
    data = json.dumps(body).encode()
    return (Head(code, "application/json", "length", len(data), more), Say(data))


def test_a_busy_teacher_is_asked_again_when_it_says(
    teacher: MessagesTeacher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: list[float]
) -> None:
    """More often than one that is broken, and never later than a minute."""
    monkeypatch.setenv("TEACHER_KEY", KEY)
    limited = failure(
        429, "rate_limit_error", "This request would exceed your rate limit.", ("retry-after", "17")
    )
    overloaded = failure(529, "overloaded_error", "Overloaded")
    far = failure(429, "rate_limit_error", "Tomorrow.", ("retry-after", "86400"))
    script = {1: limited, 2: overloaded, 3: overloaded, 4: far}
    teacher.mischief = lambda body, number: script.get(number)
    assert main(command(teacher, tmp_path, "--count", "memory=0")) == 0
    assert waits == [17, 4, 16, 60] and len(rows(tmp_path)) == 3


def test_an_overloaded_teacher_is_given_up_at_last(
    teacher: MessagesTeacher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: list[float],
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("TEACHER_KEY", KEY)
    teacher.mischief = lambda body, number: failure(529, "overloaded_error", "Overloaded")
    assert main(command(teacher, tmp_path)) == 69
    assert len(waits) == 5 * 12 and max(waits) == 60
    assert "Overloaded" in capsys.readouterr().err


@pytest.mark.slow  # a teacher is asked again and again: 1 s
@pytest.mark.parametrize(
    ("played", "code", "told"),
    [
        (failure(401, "authentication_error", f"invalid x-api-key {KEY}"), 69, "wants another API key (HTTP 401)"),
        (failure(404, "not_found_error", "model: claude"), 69, "does not serve 'claude'"),
        (failure(400, "invalid_request_error", "max_tokens: too large"), 65, "refused: HTTP 400"),
        (status(200, answer({"type": "text", "text": "It is Tokyo, Paris or Rome."}, stop="refusal")), 65, "refused: by the teacher"),
        (status(200, answer({"type": "text", "text": "The capital of"}, stop="max_tokens")), 65, "cut off: too many"),
    ],
)  # fmt: skip
def test_a_refusal_is_one_line_without_the_key(
    played: tuple[Step, ...], code: int, told: str, teacher: MessagesTeacher, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("TEACHER_KEY", KEY)
    teacher.mischief = lambda body, number: played
    assert (
        main(command(teacher, tmp_path, "--count", "memory=0", "--count", "factual=1", "--tries", "1"))
        == code
    )
    said = capsys.readouterr()
    assert told in said.err.splitlines()[-1] and KEY not in said.err + said.out


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--dialect", "anthropic", "--model", "claude", "--key-file", "key"], "the key from --key-env only"),
        (["--dialect", "anthropic"], "needs --model"),
        (["--dialect", "anthropic", "--model", "claude", "--thinking", "100"], "1024 tokens or more"),
        (["--thinking", "100", "--model", "gpt"], "the dialect openai has no switch"),
        (["--thinking", "-1", "--model", "gpt"], "must be a number of tokens"),
    ],
)
def test_flags_that_do_not_fit_are_refused(
    more: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fixed = ["--url", "http://127.0.0.1:9", "--out", str(tmp_path), "--plan", str(plan_file(tmp_path))]
    assert main(["data", "generate", *fixed, *more]) == 78
    assert told in capsys.readouterr().err


# -------------------------------------------------------------------------- annie-nano behind our own gateway


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    """annie, who shows her thoughts, behind a gateway that serves the Messages API."""
    base = tmp_path_factory.mktemp("state")
    engine = {"dialect": "llama-server", "driver": "embedded", "artefact": str(MODELS / "annie-nano-q4_k_m")}
    tables: dict[str, Any] = {
        "gateway": {"listen": "127.0.0.1:0", "admin": "127.0.0.1:0", "state": str(base)},
        "engines": {"annie-nano": engine},
        "models": {"annie": {"live": "annie-nano", "reasoning": "separate"}},
    }
    nobody: Any = None
    async with run(parse(tables, base), nobody) as it:
        while not all(state.url for state in it.gateway.pool.states().values()):
            await asyncio.sleep(0.02)
        yield it


@pytest.mark.slow
@pytest.mark.engine
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.skipif(
    not (MODELS / "annie-nano-q4_k_m").exists(), reason="the nano models are missing: make nano"
)
@pytest.mark.parametrize("thinking", [0, 1024])
async def test_a_gateway_of_our_own_teaches_by_the_messages_api(
    running: House, tmp_path: Path, thinking: int
) -> None:
    """Tools and their results, with thoughts and without; rows that are found fit."""
    named = [
        "--url",
        running.url,
        "--dialect",
        "anthropic",
        "--model",
        "annie",
        "--plan",
        str(plan_file(tmp_path)),
    ]
    counts = ["--count", "factual=2", "--count", "memory=2", "--tries", "10", "--thinking", str(thinking)]
    made = ["data", "generate", *named, *counts, "--suite", "annie", "--out", str(tmp_path / "out")]
    assert await asyncio.to_thread(main, made) == 0
    found = rows(tmp_path)
    assert [row["category"] for row in found] == ["factual"] * 2 + ["memory"] * 2
    thoughts = [any("reasoning_content" in m for m in row["messages"]) for row in found]
    assert all(thoughts) if thinking else not any(thoughts)
    checked = ["data", "validate", str(tmp_path / "out" / "conversations.jsonl"), "--suite", "annie"]
    assert await asyncio.to_thread(main, checked) == 0
