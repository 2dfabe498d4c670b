"""Plans a run's requests: arms, cases, repeats and modes, in order. Pure."""

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gates.contracts.case import Case, Sampling, Suite
from gates.contracts.sample import Mode, SampleKey
from gates.run.request import body_digest, build_body
from gates.run.target import Arm


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """One request to the arm that its key names, after the body `before` (whose reply is discarded) and `wait_s` seconds of silence.
    What is not `recorded` warms an engine up and is repeated when a run is resumed.
    """

    key: SampleKey
    request: Mapping[str, Any]
    before: Mapping[str, Any] | None = None
    wait_s: float = 0.0
    recorded: bool = True


def planned_request(
    suite: str, arm: Arm, case: Case, sampling: Sampling, repeat: int, mode: Mode = "stream", **more: Any
) -> PlannedRequest:
    """One request for a case; `suite` is the suite's digest, `more` goes to `PlannedRequest`. Raises RunError."""
    target = arm.target
    body = build_body(case, sampling, target, arm.variant, mode)
    key = SampleKey(suite, target.artefact, target.engine, body_digest(body), arm.name, case.id, repeat, mode)
    return PlannedRequest(key, body, **more)


def pending_requests(
    requests: Iterable[PlannedRequest], present: Container[SampleKey]
) -> tuple[PlannedRequest, ...]:
    """The requests that are still to be made: no sample twice, and warm-ups only of arms with samples left."""
    left = [a for a in requests if not a.recorded or a.key not in present]
    arms = {a.key.arm for a in left if a.recorded}
    return tuple(a for a in left if a.key.arm in arms)


def plan_requests(
    suite: Suite,
    arms: Sequence[Arm],
    *,
    stage: int = 1,
    gates: Container[str] | None = None,
    temperatures: Sequence[float] = (),
    numbers: Callable[[Case], Collection[int]] | None = None,
    whole: bool = True,
) -> tuple[PlannedRequest, ...]:
    """Every request of a stage, one case to all arms before the next. `gates` keeps the cases of one of them.

    `temperatures` are those of the repeats, each with its own seed (none: one repeat as the suite has it); `numbers` selects a case's
    repeats. With `whole`, each case of the gate `tools` is asked once more without streaming, as engines have a second tool parser
    for that (vLLM #28297, #18108). Raises RunError.
    """
    base = suite.sampling
    samplings = [replace(base, temperature=t, seed=base.seed + i) for i, t in enumerate(temperatures)] or [
        base
    ]
    return tuple(
        request
        for case in suite.cases
        if case.stage == stage and (gates is None or any(gate in gates for gate in case.gates))
        for arm in arms
        for request in _case_requests(
            suite,
            arm,
            case,
            {i: samplings[i] for i in (sorted(numbers(case)) if numbers else range(len(samplings)))},
            whole,
        )
    )


def _case_requests(
    suite: Suite, arm: Arm, case: Case, samplings: Mapping[int, Sampling], whole: bool
) -> Iterator[PlannedRequest]:
    """A case's requests for one arm; the one without streaming uses the lowest temperature."""
    for number, sampling in samplings.items():
        yield planned_request(suite.digest, arm, case, sampling, number)
    if whole and case.tools and "tools" in case.gates and arm.variant.tools and samplings:
        coolest = min(samplings, key=lambda number: samplings[number].temperature)
        yield planned_request(suite.digest, arm, case, samplings[coolest], coolest, "whole")
