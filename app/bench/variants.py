"""`manners bench --matrix FILE`: each variant is started, checked, timed and stopped, one after the other.

What is known is written after every step, so that a variant that breaks, a spent budget or a kill loses nothing.
"""

import asyncio
import json
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import httpx2

from app.bench.load import run_load
from app.bench.memory import PeakMemory
from app.conformance.suite import open_session, results, short_checks
from deploy.core.engine_http import engine_client
from deploy.core.errors import DeployError, EngineError
from deploy.drivers.embedded import EmbeddedEngine
from deploy.drivers.process import ProcessEngine
from deploy.engine.engine import EngineState
from deploy.engine.gpu import host_gpu
from deploy.engine.log import start_of, tail
from deploy.engine.probe import metric
from deploy.engine.supervisor import RestartPolicy
from deploy.memory.guard import Guard
from deploy.memory.lease import Lease, lease_path
from deploy.profiles.variant_result import VariantResult, as_json, empty, host_facts, markdown
from deploy.profiles.variants import BenchVariant, Matrix

ONCE: Final = RestartPolicy(boot_attempts=1, max_attempts=1)
"""An engine that fails is not started again: the failure is the result."""
DRAFTED, ACCEPTED = "vllm:spec_decode_num_draft_tokens_total", "vllm:spec_decode_num_accepted_tokens_total"
METRICS_SECONDS: Final = 5.0
"""How long the engine's own counters may take to answer."""
_CAUSE: Final = re.compile(
    r"^(?:\(\w+ pid=\d+\) )?(?:[A-Z]+ \d\d-\d\d [\d:]{8} \[[^\]\n]*\] )?([\w.]*(?:Error|Exception): [^\n]+(?:\n  [^\n]+)?)",
    re.MULTILINE,
)
"""The last line of a traceback, as Python writes it or as vLLM logs it."""
LOG_LINES: Final = 40


@dataclass(kw_only=True)
class MatrixRun:
    """One run over a file of variants; `out` gets `matrix.json` and `matrix.md`, `state` the engines' logs."""

    matrix: Matrix
    out: Path
    state: Path
    budget_s: float | None = None
    guard: Guard = field(default_factory=Guard)
    results: list[VariantResult] = field(init=False)

    def __post_init__(self) -> None:
        self.out.mkdir(parents=True, exist_ok=True)
        self.results = [empty(one) for one in self.matrix.variants]
        self._end = None if self.budget_s is None else time.monotonic() + self.budget_s
        self._host = host_facts(host_gpu(), os.cpu_count())
        self._spent = f"the budget of {self.budget_s or 0:g} s was spent"

    @property
    def broken(self) -> int:
        """How many variants were not reached, did not start, or failed a check or a request."""
        return sum(
            bool(one.why or one.passed < len(one.checks) or any(load.failed for load in one.loads))
            for one in self.results
        )

    async def run(self) -> None:
        """Every variant in its order."""
        self.write()
        for variant, result in zip(self.matrix.variants, self.results, strict=True):
            await self._try(variant, result)
            self.write()

    @property
    def table(self) -> str:
        """What is known so far, in Markdown."""
        return markdown(self.matrix, self._host, self.results)

    @property
    def json(self) -> str:
        """What is known so far."""
        return json.dumps(as_json(self.matrix, self._host, self.results), indent=1, ensure_ascii=False) + "\n"

    def write(self) -> None:
        """Both files, each in one step."""
        for name, text in {"matrix.json": self.json, "matrix.md": self.table}.items():
            fresh = self.out / f".{name}"
            fresh.write_text(text, encoding="utf-8")
            fresh.replace(self.out / name)

    async def _try(self, variant: BenchVariant, result: VariantResult) -> None:
        """Measure one variant; a failure becomes its result."""
        left = None if self._end is None else self._end - time.monotonic()
        if left is not None and left <= 0:
            result.why = f"not reached: {self._spent}"
            return
        limit = asyncio.timeout(left)
        try:
            async with limit:
                await self._measure(variant, result)
            result.why = ""
        except TimeoutError:
            how = "ended early" if result.start_s else "not started"
            if limit.expired() and not result.start_s:
                result.at = None  # the budget ended, not the engine: no run of its profile
            result.why = f"{how}: {self._spent if limit.expired() else 'the engine did not answer in time'}"
        except EngineError as error:
            result.why = error.why.splitlines()[0]
        except (DeployError, OSError, httpx2.HTTPError) as error:
            result.why = str(error) or repr(error)

    async def _measure(self, variant: BenchVariant, result: VariantResult) -> None:
        engine = _engine(variant, self.state, self.matrix.table.limit)
        memory = PeakMemory(lambda: engine.state.pid)
        if (short := self.guard.admit(variant.spec)) is not None:
            raise DeployError(f"{variant.name} {short.why}")
        with memory.watching(), self.guard.watching(engine):
            try:
                begun = time.monotonic()
                result.at = datetime.now(UTC).isoformat(timespec="seconds")
                async with Lease(lease_path(self.state)).held(f"manners bench {variant.name}"):
                    state = await engine.start()
                result.start_s = round(time.monotonic() - begun, 2)
                result.numerics = str((await engine.describe())["numerics"])
                result.build = state.abilities.build
                await self._steps(variant, result, state)
            except EngineError as error:
                raise EngineError(variant.name, _cause(engine.log_path) or error.why) from None
            finally:
                result.host_peak, result.gpu_peak = memory.host, memory.gpu
                if result.start_s is None:
                    result.log = tail(engine.log_path, LOG_LINES)
                await engine.stop()

    async def _steps(self, variant: BenchVariant, result: VariantResult, state: EngineState) -> None:
        """What is asked of an engine that runs."""
        assert state.url is not None and state.model is not None
        self.write()
        checks = short_checks(trained=variant.weights == "trained")
        async with open_session(state.url, variant.spec.dialect, model=state.model) as session:
            async for outcome in results(session, checks):
                result.checks[outcome.name] = outcome.why
                self.write()
        first = 0
        for shape in self.matrix.table.loads:
            load = await run_load(state.url, state.model, self.matrix.table, shape, first)
            first += shape.streams + shape.requests
            result.loads.append(load)
            result.drafts = await drafts(state.url)
            self.write()


def _engine(variant: BenchVariant, state: Path, limit_s: float) -> ProcessEngine | EmbeddedEngine:
    driver = ProcessEngine if variant.spec.driver == "process" else EmbeddedEngine
    return driver(variant.spec, state_dir=state, policy=ONCE, start_timeout_s=limit_s)


def _cause(log: Path) -> str:
    """The first error that ended a traceback in an engine's log: the last is that of a process that waited for it."""
    found = _CAUSE.search(start_of(log))
    return " ".join(found[1].split())[:300] if found else ""


async def drafts(url: str) -> Mapping[str, int] | None:
    """How many tokens were drafted and how many accepted, by vLLM's own counters; None for an engine without a draft model."""
    try:
        async with asyncio.timeout(METRICS_SECONDS), engine_client() as client:
            drafted = await metric(client, f"{url}/metrics", DRAFTED)
            accepted = await metric(client, f"{url}/metrics", ACCEPTED)
    except (TimeoutError, httpx2.HTTPError, ValueError):
        return None
    return {"drafted": drafted, "accepted": accepted or 0} if drafted else None
