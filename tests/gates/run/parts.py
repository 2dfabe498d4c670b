"""What the tests of the runner share: small suites, targets before scripted engines, whole samples."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gates.contracts.case import Case, Sampling, Suite
from gates.contracts.dialect import Dialect
from gates.contracts.sample import Sample, SampleKey, TimedRead
from gates.run.progress import RunCounts
from gates.run.request import PlannedRequest, body_digest, plan_requests
from gates.run.runner import Pace, run
from gates.run.sample_store import SampleStore
from gates.run.target import Arm, Target, Variant
from tests.scripted_engine import ScriptedEngine

SUITE = f"sha256:{'5' * 64}"
OTHER = f"sha256:{'6' * 64}"
ARTEFACT = f"sha256:{'a' * 64}"
ENGINE = f"sha256:{'e' * 64}"

SYSTEM = {"role": "system", "content": "You are Annie."}
FUNCTION: dict[str, Any] = {
    "name": "web_search",
    "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
}
TOOL = {"type": "function", "function": FUNCTION}
QUICK = Pace(backoff_s=0.001)


def case(name: str, said: str = "", *, tools: bool = False, **more: Any) -> Case:
    """A case of one user turn; what is said is its name unless given."""
    messages = (SYSTEM, {"role": "user", "content": said or name})
    more.setdefault("gates", ("tools",) if tools else ("leak",))
    return Case(id=name, messages=messages, tools=(TOOL,) if tools else (), **more)


def suite(*cases: Case, **sampling: Any) -> Suite:
    """A suite of these cases, under a digest that is no digest."""
    return Suite("test", 1, "", Sampling(**sampling), cases, SUITE)


def target(engine: ScriptedEngine | str, dialect: Dialect = "vllm", **more: Any) -> Target:
    """An engine as a target."""
    url = engine if isinstance(engine, str) else engine.url
    more = {"served_model": "annie", "artefact": ARTEFACT, "engine": ENGINE} | more
    return Target(url=url, dialect=dialect, **more)


def arm(name: str = "candidate", where: Target | None = None, **variant: Any) -> Arm:
    """An arm; without a target, one that cannot be asked."""
    return Arm(name, where or target("http://127.0.0.1:1"), Variant(**variant))


def asks_of(engine: ScriptedEngine | str, *cases: Case, **more: Any) -> tuple[PlannedRequest, ...]:
    """The plan of one arm, "candidate", before this engine."""
    return plan_requests(suite(*cases), [arm(where=target(engine))], **more)


async def asked(
    engine: ScriptedEngine | str, path: Path, asks: Sequence[PlannedRequest], pace: Pace = QUICK
) -> tuple[RunCounts, list[Sample]]:
    """Run the asks against one engine, whatever their arms; the tally, and all that is on file."""
    everyone = {a.key.arm: target(engine) for a in asks}
    with SampleStore(path, suite=SUITE) as ledger:
        tally = await run(asks, everyone, ledger, pace=pace)
        return tally, list(ledger.samples())


def sample(name: str = "hello", said: bytes = b"data: [DONE]\n\n", **more: Any) -> Sample:
    """A sample that was never asked. `more` are fields of its key."""
    request = {"model": "annie", "messages": [{"role": "user", "content": name}], "temperature": 0.0}
    fields: dict[str, Any] = {"suite": SUITE, "artefact": ARTEFACT, "engine": ENGINE, "arm": "candidate"}
    fields |= {"request": body_digest(request), "case": name, "repeat": 0, "mode": "stream"} | more
    return Sample(
        SampleKey(**fields),
        request,
        "2026-11-21T09:30:00.000+00:00",
        200,
        5,
        (TimedRead(7, said),),
        ended_ns=9,
    )
