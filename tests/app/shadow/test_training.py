"""Recorded chats into a training file: of a real gateway's records, only with consent, and nothing that is unfit."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from app.__main__ import main
from app.config.config import ConfigError, Shadow, load
from app.shadow.record import FinishedChat, RecordedCall, ShadowRecord, parse, redacted, render
from app.shadow.store import Store
from app.shadow.training import as_row, reason_against
from app.telemetry.redact import compiled
from gates.suite.load import load_suite
from tests.app import house as houses
from tests.app.house import TOOLS, House
from tests.script import Head, Say, call, finish, reply, role, text, thought
from tests.scripted_engine import ScriptedEngine

CONSENT = "Terms of 2026-11-01, section 4"
AGREED: dict[str, Any] = {"record": True, "share": 1.0, "replies": True, "training_consent": CONSENT}
DONE = Say(b"data: [DONE]\n\n")


@asynccontextmanager
async def recording(base: Path, model: dict[str, Any] | None = None, **settings: Any) -> AsyncIterator[House]:
    """A gateway that records all of it, by `settings` of [shadow]."""
    async with ScriptedEngine() as engine:
        plain = houses.config(engine, base, **(model or {}))
        async with houses.run(plain.model_copy(update={"shadow": Shadow(**settings)}), engine) as it:
            yield it
            assert it.gateway.shadow is not None
            await asyncio.to_thread(it.gateway.shadow.close)


async def chat(house: House, *said: str, **more: Any) -> None:
    """One chat, recorded."""
    house.engine.play(*reply(*said))
    assert (await house.ask(**more)).status == 200
    await house.booked()


def asks(content: str, *before: dict[str, Any]) -> list[dict[str, Any]]:
    return [*before, {"role": "user", "content": content}]


def said(content: str) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


def toml(base: Path, **shadow: Any) -> str:
    """The configuration of the gateway whose records lie in `base`."""
    lines = [f"{key} = {json.dumps(value)}" for key, value in {**AGREED, **shadow}.items()]
    path = base / "manners.toml"
    engine = '[engines.scripted]\ndialect = "vllm"\ndriver = "url"\nurl = "http://127.0.0.1:9"\n'
    model = '[models.annie]\nlive = "scripted"\n'
    path.write_text(f'[gateway]\nstate = "{base}"\n{engine}{model}[shadow]\n' + "\n".join(lines) + "\n")
    return str(path)


def export(base: Path, *more: str, code: int = 0, **shadow: Any) -> list[dict[str, Any]]:
    """The rows of `manners data from-shadow`."""
    out = base / "training"
    assert main(["data", "from-shadow", "--config", toml(base, **shadow), "--out", str(out), *more]) == code
    path = out / "conversations.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def manifest(base: Path) -> dict[str, Any]:
    made: dict[str, Any] = json.loads((base / "training" / "manifest.json").read_text())
    return made


@pytest.mark.slow  # a real engine is asked: 1 s
@pytest.mark.asyncio
async def test_what_callers_agreed_to_becomes_rows_that_are_found_fit(tmp_path: Path) -> None:
    """Text, calls with their results, and values that stand for each other; through the whole gateway."""
    async with recording(tmp_path, **AGREED) as house:
        await chat(
            house,
            "I called 98765 43210, ",
            "she will be glad.",
            messages=asks("Call 98765-43210 and thank for the cake."),
        )
        made = call("web_search", '{"query": "trains to Hassan"}')
        house.engine.play(Head(), Say(role() + made + finish("tool_calls")), DONE)
        await house.ask(messages=asks("When does a train go to Hassan?"), tools=TOOLS, stream=True)
        await house.booked()
    rows = await asyncio.to_thread(export, tmp_path)
    assert rows[0]["messages"] == [
        {"role": "user", "content": "Call NUMBER_A and thank for the cake."},
        said("I called NUMBER_A, she will be glad."),
    ]
    (made_call,) = rows[1]["messages"][-1]["tool_calls"]
    assert made_call["function"] == {"name": "web_search", "arguments": '{"query": "trains to Hassan"}'}
    assert rows[1]["tools"] == TOOLS
    found = manifest(tmp_path)
    assert (found["source"], found["consent"], found["conversations"]) == ("shadow", CONSENT, 2)
    assert (
        found["models"] == {"annie": 2} and found["engines"] == {"scripted": 2} and found["with_calls"] == 1
    )
    checked = ["data", "validate", str(tmp_path / "training" / "conversations.jsonl")]
    assert await asyncio.to_thread(main, checked) == 0


@pytest.mark.asyncio
@pytest.mark.parametrize("reasoning", ["strip", "separate", "inline"])
async def test_no_thought_is_ever_in_a_record_or_a_row(tmp_path: Path, reasoning: str) -> None:
    """However it comes: apart, in tags, and shown to the caller."""
    model = {"reasoning": reasoning, "thinking": "on"}
    async with recording(tmp_path, model, **AGREED) as house:
        for pieces in ([thought("Secretly I doubt it."), text("The shop is open.")],
                       [text("<think>Secretly I doubt it.</think>"), text("The shop is closed now.")]):  # fmt: skip
            house.engine.play(Head(), Say(role() + b"".join(pieces) + finish()), DONE)
            await house.ask(messages=asks(f"Is the shop {len(pieces[0])} open?"), stream=True)
            await house.booked()
    kept = "".join(path.read_text() for path in (tmp_path / "shadow").glob("*.jsonl"))
    assert "Secretly" not in kept and "The shop is open." in kept and "The shop is closed now." in kept
    rows = await asyncio.to_thread(export, tmp_path)
    assert len(rows) == 2 and "Secretly" not in json.dumps(rows) and "think>" not in json.dumps(rows)


@pytest.mark.asyncio
async def test_without_the_operators_word_no_reply_is_kept_and_no_row_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with recording(tmp_path, record=True, share=1.0) as house:
        await chat(house, "The ladder is in the shed.", messages=asks("Where is our ladder?"))
    kept = "".join(path.read_text() for path in (tmp_path / "shadow").glob("*.jsonl"))
    assert "shed" not in kept
    assert await asyncio.to_thread(export, tmp_path, code=78, replies=False, training_consent="") == []
    assert "no consent is stated" in capsys.readouterr().err
    assert (
        await asyncio.to_thread(export, tmp_path, code=65) == []
    )  # agreed to since: what is older stays unused
    assert "1 no consent" in capsys.readouterr().err


@pytest.mark.asyncio
async def test_consent_to_other_words_is_no_consent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings: dict[str, Any] = {**AGREED, "training_consent": "Terms of 2025"}
    async with recording(tmp_path, **settings) as house:
        await chat(house, "The ladder is in the shed.", messages=asks("Where is our ladder?"))
    assert await asyncio.to_thread(export, tmp_path, code=65) == []
    assert "1 another consent" in capsys.readouterr().err


def test_consent_without_replies_is_a_fault_of_the_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="set replies = true"):
        load(Path(toml(tmp_path, replies=False)))


# --------------------------------------------------------------------------------------------- what is dropped


def keep(base: Path, messages: list[dict[str, Any]], answer: str, number: int = 0, **more: Any) -> None:
    """One record, as the gateway writes it."""
    at = datetime.now(UTC) - timedelta(seconds=100 - number)
    body = {"messages": messages, **more.pop("body", {})}
    breaches = frozenset(more.pop("breaches", ()))
    calls = tuple(more.pop("calls", ()))
    made = FinishedChat(
        f"id{number}x", at, "annie", "scripted", False, body, calls, breaches, 0.1, answer, CONSENT
    )
    Store(base).append(at.date(), render(redacted(made)))


GATED = load_suite("annie").cases[0].messages[-1]["content"]
UNFIT: list[tuple[list[dict[str, Any]], str, dict[str, Any], str]] = [
    (asks("Where is it?"), "Here is a list.", {"breaches": ["markdown"]}, "breach: markdown"),
    (asks("Where is it?"), "* one\n* two", {}, "markdown"),
    (asks("Where is it?"), "Okay, the user wants to know where it is. Let me think.", {}, "leak"),
    (asks("And now?", *asks("Hm?"), said("<think>Well.</think>It is here.")), "It is there.", {}, "thought"),
    (asks("What is her number?"), "It is 98765 43210, call her soon.", {}, "placeholder"),
    (asks(GATED), "I would be glad to.", {}, "wall"),
    (asks("As JSON, please."), "It is here now.", {"body": {"response_format": {"type": "json_object"}}}, "forced form"),
    (asks("Rain?"), "", {"body": {"tools": TOOLS, "tool_choice": "required"}, "calls": [("web_search", '{"query": "x"}')]}, "forced form"),
    (asks("Rain?"), "", {"body": {"tools": TOOLS}, "calls": [("web_search", "{")]}, "row"),
    (asks("Rain?"), "", {"body": {"tools": TOOLS}, "calls": [("play_song", '{"q": "x"}')]}, "toolcall"),
    (asks("Where is it?"), "", {}, "row"),
]  # fmt: skip


@pytest.mark.parametrize(("messages", "answer", "more", "reason"), UNFIT, ids=[case[-1] for case in UNFIT])
def test_what_is_unfit_is_dropped_and_counted_by_its_reason(
    tmp_path: Path, messages: list[dict[str, Any]], answer: str, more: dict[str, Any], reason: str
) -> None:
    keep(tmp_path, messages, answer, 1, **more)
    keep(tmp_path, asks("Where is our ladder?"), "The ladder is in the shed.", 2)
    assert [row["messages"][0]["content"] for row in export(tmp_path)] == ["Where is our ladder?"]
    assert manifest(tmp_path)["dropped"] == {reason: 1} and manifest(tmp_path)["records"] == 2


def test_of_a_conversation_that_was_recorded_turn_by_turn_the_whole_is_kept(tmp_path: Path) -> None:
    first = asks("Where is our ladder?")
    second = asks("And the red paint?", *first, said("The ladder is in the shed."))
    keep(tmp_path, first, "The ladder is in the shed.", 1)
    keep(tmp_path, second, "The red paint is under the stairs.", 2)
    keep(tmp_path, asks("Who has the key?"), "Ravi has the key to the shed.", 3)
    rows = export(tmp_path)
    assert [len(row["messages"]) for row in rows] == [4, 2] and manifest(tmp_path)["dropped"] == {"part": 1}


def test_todays_patterns_are_looked_for_again(tmp_path: Path) -> None:
    keep(tmp_path, asks("Where does customer Rao live?"), "Customer Rao lives in Hassan.", 1)
    keep(tmp_path, asks("Where is our ladder?"), "The ladder is in the shed.", 2)
    rows = export(tmp_path, redact=["(?i)customer [a-z]+"])
    assert len(rows) == 1 and manifest(tmp_path)["dropped"] == {"more to redact": 1}


def test_only_the_model_and_the_days_that_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(tmp_path, asks("Where is our ladder?"), "The ladder is in the shed.", 1)
    assert export(tmp_path, "--model", "other", code=65) == []
    assert "none of 0 records can be trained on: nothing was recorded" in capsys.readouterr().err
    assert len(export(tmp_path, "--model", "annie", "--days", "1")) == 1
    assert export(tmp_path, "--days", "0", code=78)


def record(**more: Any) -> ShadowRecord:
    fields: dict[str, Any] = {
        "id": "a", "at": "2026-11-24T10:00:00+00:00", "model": "annie", "engine": "e", "thinking": False,
        "request": {"messages": asks("Where?")}, "calls": (), "breaches": (), "first_content": None,
        "reply": "Here.", "consent": CONSENT,
    }  # fmt: skip
    return ShadowRecord(**{**fields, **more})


@pytest.mark.parametrize(
    ("more", "reason"),
    [({}, ""), ({"consent": ""}, "no consent"), ({"consent": "x"}, "another consent"), ({"reply": None}, "reply not kept"),
     ({"dropped": 1}, "cut at the recorder's limits"), ({"breaches": ("leak",)}, "breach: leak"),
     ({"reply": "Ask maya@example.org."}, "more to redact"),
     ({"request": {"messages": asks("Where?"), "tool_choice": {"type": "function"}}}, "forced form")],
)  # fmt: skip
def test_a_record_is_used_only_if_nothing_speaks_against_it(more: dict[str, Any], reason: str) -> None:
    assert reason_against(record(**more), CONSENT, ()) == reason


@pytest.mark.parametrize("more", [{"reply": 5}, {"consent": None}, {"request": {"messages": ["Where?"]}}])
def test_a_damaged_record_is_no_record(more: dict[str, Any]) -> None:
    assert parse(render(record())) == record() and parse(render(record(**more))) is None


def test_placeholders_are_not_redacted_again() -> None:
    calls = (RecordedCall("send", {"to": "EMAIL_A", "phone": "NUMBER_B"}),)
    messages: Iterable[Any] = asks("Write to EMAIL_A or NUMBER_B.")
    used = record(request={"messages": list(messages)}, calls=calls)
    assert reason_against(used, CONSENT, [compiled("customer [a-z]+")]) == ""
    assert as_row(used)["messages"][-1]["tool_calls"][0]["id"] == "call_a_0"
