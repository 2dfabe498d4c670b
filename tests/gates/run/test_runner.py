"""The runner over real sockets: what is asked again, what never is, and what is on file at the end."""

import asyncio
import io
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from gates.contracts.errors import RunError
from gates.contracts.sample import Sample, TransportFault
from gates.reply.reply import read_reply
from gates.run.http import RequestTimeouts
from gates.run.progress import Display
from gates.run.request import encode_body, plan_requests
from gates.run.runner import Pace, run
from gates.run.sample_store import SampleStore, read_samples
from tests.gates.run.parts import QUICK, SUITE, arm, asked, asks_of, case, sample, suite, target
from tests.scale import PATIENCE
from tests.script import (
    DONE,
    CloseNow,
    Hang,
    Head,
    Reset,
    Say,
    Step,
    Tell,
    Until,
    chunk,
    event,
    finish,
    reply,
    role,
    status,
    text,
    thought,
)
from tests.scripted_engine import ScriptedEngine

HELLO, FACT, FIND = case("hello"), case("fact"), case("find", tools=True, gates=("tools",))
MANY = [case(f"case-{n}") for n in range(8)]


@pytest.fixture
async def engine() -> AsyncIterator[ScriptedEngine]:
    async with ScriptedEngine() as it:
        yield it


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "samples.jsonl"


def cases_of(samples: list[Sample]) -> list[str]:
    return [s.key.case for s in samples]


async def test_a_sample_is_what_went_out_and_every_byte_that_came(engine: ScriptedEngine, path: Path) -> None:
    engine.play(Head(), Say(role()), Say(b"data: \xff\n\n"), Say(text("Hi.")), Say(finish()), Say(DONE))
    asks = asks_of(engine, HELLO)
    _, (sample,) = await asked(engine, path, asks)

    assert engine.requests[0].raw == encode_body(asks[0].request) and sample.request == asks[0].request
    assert (
        b"".join(r.data for r in sample.reads) == role() + b"data: \xff\n\n" + text("Hi.") + finish() + DONE
    )
    assert sample.headers_ns is not None
    times = [0, sample.headers_ns, *(r.at_ns for r in sample.reads), sample.ended_ns]
    assert times == sorted(times) and (sample.status, sample.fault, sample.retries) == (200, None, ())


FAULTS: dict[str, tuple[tuple[Step, ...], str]] = {
    "503": (status(503, b"loading"), "status"),
    "429": (status(429, b"slow down"), "status"),
    "reset": ((Head(), Say(role()), Reset()), "broken"),
    "cut": ((Head(), Say(role()), Say(text("Hi")), CloseNow()), "broken"),
    "short": ((Head(framing="length", size=9999), Say(text("Hi")), CloseNow()), "broken"),
    "no-finish": ((Head(), Say(role()), Say(text("Hi")), Say(DONE)), "broken"),
    "engine-died": ((Head(), Say(text("Hi")), Say(event({"error": {"message": "dead", "code": 500}})), Say(DONE)),
                    "broken"),
    "aborted": ((Head(), Say(text("Hi")), Say(finish("abort")), Say(DONE)), "broken"),
    "silence": ((Head(), Say(role()), Hang()), "timeout"),
}  # fmt: skip


@pytest.mark.parametrize("steps, kind", FAULTS.values(), ids=FAULTS)
async def test_a_fault_of_transport_is_tried_again_and_stays_visible(
    engine: ScriptedEngine, path: Path, steps: tuple[Step, ...], kind: str
) -> None:
    engine.play(*steps)
    pace = replace(QUICK, timeouts=RequestTimeouts(idle=0.2))
    tally, (sample,) = await asked(engine, path, asks_of(engine, HELLO), pace)

    assert (tally.retried, tally.lost, len(engine.requests)) == (1, 0, 2)
    assert [fault.kind for fault in sample.retries] == [kind] and sample.retries[0].detail
    assert sample.fault is None and read_reply(sample).content == "Hello there."


async def test_a_sample_is_lost_after_three_tries(engine: ScriptedEngine, path: Path) -> None:
    for code in (503, 500, 502):
        engine.play(*status(code, b"down"))
    asks = asks_of(engine, HELLO, FACT)
    tally, samples = await asked(engine, path, asks)
    again, _ = await asked(engine, path, asks)

    assert (tally.lost, again.asked, len(engine.requests)) == (1, 0, 4)
    lost = samples[0]
    assert [f.detail for f in lost.retries] == ["HTTP 503: down", "HTTP 500: down"]
    assert lost.fault is not None and lost.fault.detail == "HTTP 502: down" and lost.status == 502
    assert not read_reply(lost).complete


ANSWERS: dict[str, tuple[Step, ...]] = {
    "empty": reply(),
    "thought": (Head(), Say(thought("Hm.")), Say(finish()), Say(DONE)),
    "markdown": reply("**Hi**"),
    "cut-by-length": reply("And so", reason="length"),
    "broken-arguments": (Head(), Say(chunk({"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": "{"}}]})),
                         Say(finish("tool_calls")), Say(DONE)),
    "a-bad-frame": (Head(), Say(b"data: {oops\n\n"), Say(text("Hi.")), Say(finish()), Say(DONE)),
    "refused": status(400, {"error": {"message": "tools are not supported", "code": 400}}),
    "refused-in-the-stream": (Head(), Say(event({"error": {"message": "too long", "code": 400}})), Say(DONE)),
}  # fmt: skip


@pytest.mark.parametrize("steps", ANSWERS.values(), ids=ANSWERS)
async def test_an_answer_is_never_asked_for_again_however_bad(
    engine: ScriptedEngine, path: Path, steps: tuple[Step, ...]
) -> None:
    engine.play(*steps)
    tally, (sample,) = await asked(engine, path, asks_of(engine, HELLO))

    assert (len(engine.requests), tally.retried, sample.fault) == (1, 0, None)


@pytest.mark.parametrize(
    "code, told", [(401, "another API key"), (403, "another API key"), (404, "does not serve 'annie'")]
)
async def test_an_engine_that_cannot_be_asked_ends_the_run_and_leaves_no_sample(
    engine: ScriptedEngine, path: Path, code: int, told: str
) -> None:
    engine.always(
        *status(code, b"Incorrect API key provided: sk-secret" if code != 404 else b"no such model")
    )

    with pytest.raises(RunError, match=told) as caught:
        await asked(engine, path, asks_of(engine, HELLO))
    assert "sk-secret" not in str(caught.value) and list(read_samples(path)) == []


async def test_an_engine_that_is_gone_ends_the_run_and_is_asked_again_when_it_is_back(
    engine: ScriptedEngine, path: Path
) -> None:
    asks = asks_of(engine, *MANY)
    for _ in range(2):
        engine.play(*reply("Hi."))
    engine.always(CloseNow())
    with pytest.raises(RunError, match="failed 3 times in a row.*run again: what was answered is kept"):
        await asked(engine, path, asks, replace(QUICK, patience=3))
    before = list(read_samples(path))
    engine.always(*reply("Hi."))
    _, after = await asked(engine, path, asks)

    assert len(before) == 2 and after[:2] == before
    assert cases_of(after) == [c.id for c in MANY]


@pytest.mark.parametrize(
    "pace, at_once",
    [(QUICK, (1, 0)), (replace(QUICK, concurrency=3), (2, 1)), (replace(QUICK, jobs=4), (1, 1))],
    ids=["one", "three of either engine", "one of each engine"],
)
async def test_as_many_are_asked_at_once_as_the_pace_says(
    engine: ScriptedEngine, path: Path, pace: Pace, at_once: tuple[int, int]
) -> None:
    gate = asyncio.Event()
    async with ScriptedEngine() as other:
        engines = {"candidate": engine, "baseline": other}
        for one in engines.values():
            one.always(Head(), Until(gate), Say(text("Hi.")), Say(finish()), Say(DONE))
        targets = {name: target(one) for name, one in engines.items()}
        asks = plan_requests(suite(*MANY), [arm(name, where) for name, where in targets.items()])
        with SampleStore(path, suite=SUITE) as store:
            task = asyncio.create_task(run(asks, targets, store, pace=pace))
            for one, count in zip(engines.values(), at_once, strict=True):
                if count:
                    await one.request(count)
            await asyncio.sleep(0.05)  # time for one more, if one came
            assert tuple(len(one.requests) for one in engines.values()) == at_once
            gate.set()
            assert (await task).asked == 2 * len(MANY)


async def test_a_run_that_is_cancelled_keeps_what_was_answered_and_lets_go_of_the_rest(
    engine: ScriptedEngine, path: Path
) -> None:
    begun = asyncio.Event()
    for _ in range(2):
        engine.play(*reply("Hi."))
    engine.play(Head(), Say(text("Hi")), Tell(begun), Hang())
    task = asyncio.create_task(asked(engine, path, asks_of(engine, *MANY)))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    async with asyncio.timeout(PATIENCE):
        await engine.requests[2].gone.wait()
    assert cases_of(list(read_samples(path))) == ["case-0", "case-1"]
    _, samples = await asked(engine, path, asks_of(engine, *MANY))
    assert cases_of(samples) == [c.id for c in MANY]


async def test_a_key_goes_out_with_the_request_and_into_no_file(engine: ScriptedEngine, path: Path) -> None:
    secret = target(engine, headers={"authorization": "Bearer sk-secret"})
    engine.play(*status(503))
    with SampleStore(path, suite=SUITE) as store:
        await run(plan_requests(suite(HELLO), [arm(where=secret)]), {"candidate": secret}, store, pace=QUICK)

    assert {seen.headers["authorization"] for seen in engine.requests} == {"Bearer sk-secret"}
    assert b"sk-secret" not in path.read_bytes()


async def test_a_warm_up_leaves_no_sample_and_has_to_be_answered(engine: ScriptedEngine, path: Path) -> None:
    (hello, fact) = asks_of(engine, HELLO, FACT)
    asks = [replace(hello, recorded=False), fact]
    tally, samples = await asked(engine, path, asks)
    engine.play(*status(400, {"error": {"message": "longer than the context"}}))

    assert (cases_of(samples), tally.planned, len(engine.requests)) == (["fact"], 1, 2)
    with pytest.raises(RunError, match="could not be warmed up: HTTP 400: .*longer than the context"):
        await asked(engine, path, [replace(fact, recorded=False), hello])


LOST = replace(sample(), fault=TransportFault("timeout", "x"), retries=(TransportFault("timeout", "x"),))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_log_gets_a_line_every_ten_seconds_and_one_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = {"now": 100.0}
    monkeypatch.setattr("gates.run.progress.time.monotonic", lambda: clock["now"])
    log = io.StringIO()
    told = Display("gate", log)
    told.start(total=90, present=10, later=22)
    for now in (104.0, 110.0, 111.0, 119.0):
        clock["now"] = now
        told.sample(LOST if now == 110.0 else sample())
    told.stop()
    nothing = Display("gate", log)
    nothing.start(total=5, present=5)
    nothing.stop()

    assert log.getvalue().splitlines() == [
        "gate: 12/90, 1 lost, 1 retried, 8 min 20 s left",
        "gate: 14/90, 1 lost, 1 retried, 7 min 46 s left",
        "gate: 5/5, 0 lost, 0 retried",
    ]


def test_a_terminal_gets_a_bar_without_a_thread() -> None:
    terminal = Terminal()
    bar = Display("gate", terminal)
    bar.start(total=3, present=1)
    bar.sample(LOST)
    bar.stop()

    assert "gate" in terminal.getvalue() and "2/3" in terminal.getvalue()
    assert "1 lost, 1 retried" in terminal.getvalue()
    assert bar._bar is not None and bar._bar.live._refresh_thread is None
