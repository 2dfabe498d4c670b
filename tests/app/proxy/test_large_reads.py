"""What the stream core may be busy with for long is worked on in a thread: everybody else is served meanwhile.

The core's work is made to last until another caller has been served, so nothing here depends on a clock.
"""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from app.stream.holdback import FILTERED
from app.stream.pipeline import LARGE_BYTES, Pipeline
from tests.app.house import Answer, GatewayFixture, eventually, frames, house, said
from tests.scale import PATIENCE
from tests.script import DONE, CloseNow, Head, Say, Step, finish, role, text, thought

pytestmark = pytest.mark.asyncio

LONG = "a <b " * LARGE_BYTES
CALL = '<tool_call>{"name": "now", "arguments": {"q": "'


class Gate:
    """Holds the core's work that is not done in the event loop's thread."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.open = threading.Event()

    def pass_through(self) -> None:
        if threading.current_thread() is threading.main_thread():
            return
        self.entered.set()
        assert self.open.wait(PATIENCE)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    made = Gate()
    for name in ("feed", "close", "abort", "feed_message"):
        original = getattr(Pipeline, name)

        def held(self: Pipeline, *args: Any, original: Any = original) -> Any:
            made.pass_through()
            return original(self, *args)

        monkeypatch.setattr(Pipeline, name, held)
    yield made
    made.open.set()


@pytest_asyncio.fixture
async def home(tmp_path: Path) -> AsyncIterator[GatewayFixture]:
    async with house(tmp_path, dialect="vllm") as it:
        yield it


def whole(content: str) -> tuple[Step, ...]:
    """A reply in one piece of JSON, from an engine that did not stream."""
    message = {"role": "assistant", "content": content}
    body = json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}).encode()
    return Head(content_type="application/json", framing="length", size=len(body)), Say(body)


PART = "a <b " * (LARGE_BYTES // 8)
"""Less than is large; two of them are more."""


@dataclass(frozen=True)
class Case:
    """What the engine says, and what is heard of it: a text, or the code of an error."""

    steps: tuple[Step, ...]
    text: str = ""
    error: str | None = None


END = Say(finish() + DONE)
CASES = {
    "a long delta": Case((Head(), Say(role() + text(LONG)), END), LONG),
    "a reply that is not streamed": Case(whole(LONG), LONG),
    "reasoning that is the answer": Case((Head(), Say(thought(PART)), Say(thought(PART)), END), 2 * PART),
    "a call in a thought that never ends": Case(
        (Head(), Say(text(f"<think>{CALL}{PART}")), Say(text(PART)), END), error=FILTERED
    ),
    "a call that breaks off": Case(
        (Head(), Say(text(CALL + PART)), Say(text(PART)), Say(DONE)), error="upstream_truncated"
    ),
    "a connection that breaks off": Case(
        (Head(), Say(role() + text(LONG)), CloseNow()), LONG, "upstream_truncated"
    ),
}  # fmt: skip


def heard(answer: Answer) -> tuple[str, str | None]:
    """The text, and the code of the error."""
    if answer.headers["content-type"] == "application/json":
        return ("", answer.error["code"]) if answer.status != 200 else (answer.text, None)
    *chunks, last = frames(answer.raw)
    return said(chunks), None if last == "[DONE]" else last["error"]["code"]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("name", CASES)
async def test_others_are_served_while_much_is_read(
    home: GatewayFixture, gate: Gate, name: str, stream: bool
) -> None:
    case = CASES[name]
    home.engine.play(*case.steps)
    large = asyncio.create_task(home.ask(stream=stream))
    await eventually(gate.entered.is_set)
    for _ in range(3):
        assert (await home.ask(stream=True)).text == "Hello there."
    gate.open.set()
    shown = case.text if stream or case.error is None else ""
    told, error = heard(await large)
    assert error == case.error
    is_same = told == shown  # not in the assert: to show the difference would take minutes
    assert is_same, f"{len(told)} characters, and not {len(shown)}: {told[:80]!r}"


@pytest.mark.parametrize("name", ["a long delta", "a reply that is not streamed"])
async def test_a_caller_who_leaves_meanwhile_frees_everything_at_once(
    home: GatewayFixture, gate: Gate, name: str
) -> None:
    home.engine.play(*CASES[name].steps)
    large = asyncio.create_task(home.ask(stream=True))
    await eventually(gate.entered.is_set)
    large.cancel()
    assert (await home.booked())["outcome"] == "client_cancel"
    assert home.is_quiet() and not home.gateway.pool.outstanding
    gate.open.set()
    assert (await home.ask(stream=True)).text == "Hello there."
