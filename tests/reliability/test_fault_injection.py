"""Every function on a reply's way raises once, under concurrent replies: nobody else may notice.

The functions are found, not listed: all methods of all classes of the modules below. Whatever one of them
raises, each reply is either whole, byte for byte, or an honest failure (a status, one error frame without
finish reason and [DONE], a broken connection), and at most one of them fails.
"""

import asyncio
import contextlib
import importlib
import inspect
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from app.proxy.reply_writer import ReplyWriter
from app.upstream.client import Upstream
from tests.app.house import TOOLS, GatewayFixture, config, eventually, forget, frames, run, said
from tests.scale import PATIENCE, scaled
from tests.script import DONE, Head, Say, Step, Wait, finish, role, text, thought, usage
from tests.scripted_engine import ScriptedEngine, Seen

pytestmark = [pytest.mark.reliability, pytest.mark.asyncio(loop_scope="module")]

READING = (
    "app.upstream.connection", "gates.reply.sse", "gates.reply.chunks", "app.stream.pipeline", "app.stream.holdback",
    "app.stream.parser", "app.stream.call_reader", "app.stream.call_normalizer", "app.stream.json_value",
)  # fmt: skip
"""What raises here while a reply is read is told as the engine's fault."""
SERVING = (
    "app.upstream.client", "app.proxy.exchange", "app.proxy.reply_writer", "app.proxy.deadlines",
    "app.telemetry.clocks", "app.stream.encode", "app.api.surface", "app.stream.audit",
)  # fmt: skip
OURS = {"send", "set_body_consumer", "pause", "close", "abort"}
"""Methods of the reading modules that the gateway calls on its own account."""
NOT_RAISING = {ReplyWriter._flush, Upstream.give_back}
"""The event loop calls the one to write, and each request ends with the other: an exception before its first line would lose
what is to be written, or leave the connection where it is."""
RAISED = (ValueError, RecursionError, MemoryError, StopIteration, AssertionError, asyncio.CancelledError)
PLACES = (0.0, 0.5, 0.9)  # of the calls that a whole run makes
EACH = scaled(1, len(PLACES))
"""In how many of these places a function raises: at small counts in one, and the next function in the next place."""
STREAMED, WHOLE = 20, 4


class Echoing(ScriptedEngine):
    """Answers each request with words of its own, a chunk now and then."""

    async def script_for(self, seen: Seen) -> Sequence[Step]:
        if seen.method == "GET" or seen.is_probe or not seen.raw:
            return await super().script_for(seen)
        word, *calls = seen.body["messages"][-1]["content"].split()
        steps: list[Step] = [Head(), Say(role()), Say(thought("hm"))]
        for piece in pieces(word):
            steps += [Say(text(piece)), Wait(0.002)]
        if calls:
            steps += [
                Say(text('<tool_call>{"name": "web_search", ')),
                Say(text(f'"arguments": {{"q": "{word}"}}}}')),
            ]
            steps += [Say(text("</tool_call>"))]
        return *steps, Say(finish() + usage(3) + DONE)


def pieces(word: str) -> list[str]:
    """What the engine says to a word: plain text, and some that looks like a tag."""
    return [f"{word}-0 ", f"{word}-1 ", "a <", " b ", f"{word}-2 ", f"{word}-3."]


@dataclass
class Fault:
    """Raises once, in the `at`th call of a function; `calls` counts them."""

    at: int | None = None
    error: type[BaseException] = ValueError
    calls: int = 0
    fired: bool = False

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **named: Any) -> Any:
            self.calls += 1
            if self.at is not None and self.calls > self.at and not self.fired:
                self.fired = True
                raise self.error("injected")
            return function(*args, **named)

        return wrapped


@dataclass(frozen=True)
class Target:
    """A function of a module, and every class or module that holds it under its name."""

    name: str
    function: Callable[..., Any]
    holders: tuple[Any, ...]

    @property
    def label(self) -> str:
        return f"{self.holders[0].__name__}.{self.name}"

    @contextlib.contextmanager
    def injected(self, fault: Fault) -> Iterator[None]:
        """With this fault, while the block runs."""
        for holder in self.holders:
            setattr(holder, self.name, fault.around(self.function))
        try:
            yield
        finally:
            for holder in self.holders:
                setattr(holder, self.name, self.function)


def targets_in(module: str) -> Iterator[Target]:
    """Every function that the module defines, and every plain method of its classes.

    Of the pure stream core the public ones: its private ones are called by those, and by nobody else.
    """
    found = importlib.import_module(module)
    gateway = [m for name, m in list(sys.modules.items()) if name.startswith("app.")]
    private = "_" if module.startswith("app.stream.") else "__"
    for name, value in list(vars(found).items()):
        if getattr(value, "__module__", "") != module:
            continue
        if inspect.isfunction(value) and not name.startswith(private):
            yield Target(name, value, tuple(m for m in gateway if vars(m).get(name) is value))
        elif inspect.isclass(value) and not getattr(value, "_is_protocol", False):
            for method, function in list(vars(value).items()):
                if inspect.isfunction(function) and not method.startswith(private):
                    yield Target(method, function, (value,))


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def home(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GatewayFixture]:
    """A gateway that holds all of them at once."""
    async with Echoing() as engine:
        settings = config(
            engine, tmp_path_factory.mktemp("state"), concurrency=64,
            timeouts={"first_token": 8.0, "idle": 8.0},
        )  # fmt: skip
        async with run(settings, engine) as it:
            yield it


async def ask(home: GatewayFixture, number: int, stream: bool) -> str:
    """Empty if the reply is whole; the error's code if it failed honestly. Anything else fails the test."""
    word, calls = f"w{number}", number % 3 == 0
    asked = {"messages": [{"role": "user", "content": f"{word} call" if calls else word}]}
    body = home.body(stream=stream, **asked, **({"tools": TOOLS} if calls else {}))
    try:
        answer = await home.ask(body)
    except aiohttp.ClientError:
        return "disconnected"
    if not answer.headers["content-type"].startswith("text/event-stream"):
        if answer.status != 200:
            return str(answer.error["code"]) if "json" in answer.headers["content-type"] else "no JSON"
        choice = answer.json["choices"][0]
        check_whole(word, calls, [{"delta": choice["message"], "finish_reason": choice["finish_reason"]}])
        return ""
    *chunks, last = frames(answer.raw)
    if last == "[DONE]":
        check_whole(word, calls, [chunk["choices"][0] for chunk in chunks])
        return ""
    assert "error" in last, answer.raw
    assert "".join(pieces(word)).startswith(said(chunks)), answer.raw
    assert not any("error" in c or c["choices"][0]["finish_reason"] for c in chunks), answer.raw
    return str(last["error"]["code"])


def check_whole(word: str, calls: bool, choices: list[dict[str, Any]]) -> None:
    """Every word, the whole call, and the right end."""
    deltas = [choice["delta"] for choice in choices]
    assert "".join(delta.get("content") or "" for delta in deltas) == "".join(pieces(word))
    made = [call["function"] for delta in deltas for call in delta.get("tool_calls") or ()]
    arguments = "".join(function["arguments"] for function in made)
    assert (json.loads(arguments) if made else None) == ({"q": word} if calls else None)
    assert choices[-1]["finish_reason"] == ("tool_calls" if calls else "stop")


async def all_at_once(home: GatewayFixture) -> list[str]:
    """What became of each reply; afterwards nothing is left open."""
    forget(home.gateway.pool)
    async with asyncio.timeout(PATIENCE):
        found = await asyncio.gather(*(ask(home, n, n < STREAMED) for n in range(STREAMED + WHOLE)))
    await eventually(lambda: home.is_quiet() and not home.gateway.pool.outstanding)
    return found


async def called(home: GatewayFixture, module: str) -> dict[Target, int]:
    """The functions of a module that replies run through, and how often one run calls them."""
    faults = {target: Fault() for target in targets_in(module)}
    with contextlib.ExitStack() as stack:
        for target, fault in faults.items():
            stack.enter_context(target.injected(fault))
        assert not any(await all_at_once(home))
    hit = {target: fault.calls for target, fault in faults.items() if fault.calls}
    return {target: calls for target, calls in hit.items() if target.function not in NOT_RAISING}


@pytest.mark.parametrize("module", [*READING, *SERVING])
async def test_what_one_callback_raises_reaches_no_other_reply(home: GatewayFixture, module: str) -> None:
    """Each method at the beginning, in the middle and late in the run, with another error each time."""
    targets = await called(home, module)
    assert targets
    for number, (target, nth) in enumerate(product(targets, range(EACH))):
        place = PLACES[(number if EACH == 1 else nth) % len(PLACES)]
        fault = Fault(int(targets[target] * place), RAISED[number % len(RAISED)])
        with target.injected(fault):
            found = [code for code in await all_at_once(home) if code]
        what = f"{target.label} raised {fault.error.__name__}: {found}"
        print(what)
        assert len(found) <= 1, what
        if module in READING and target.name not in OURS:
            assert all(code.startswith("upstream_") for code in found), what
    assert not any(await all_at_once(home))
