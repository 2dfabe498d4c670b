"""Plans a run's requests: arms, cases, repeats and modes, in order. Pure."""

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from gates.contracts.case import Case, Sampling, Suite
from gates.contracts.errors import RunError
from gates.contracts.sample import Mode, SampleKey
from gates.run.request import body_digest, build_body
from gates.run.target import Arm


@dataclass(frozen=True, slots=True)
class RepeatSampling:
    """The sampling of one repeat; None keeps the suite's temperature or seed."""

    temperature: float | None = None
    seed: int | None = None

    def of(self, sampling: Sampling) -> Sampling:
        return replace(
            sampling,
            temperature=sampling.temperature if self.temperature is None else self.temperature,
            seed=sampling.seed if self.seed is None else self.seed,
        )


ONCE: Final = (RepeatSampling(),)


def repeats_at(temperatures: Iterable[float], seed: int) -> tuple[RepeatSampling, ...]:
    """One repeat for each of a policy's temperatures, each with its own seed."""
    return tuple(RepeatSampling(temperature, seed + i) for i, temperature in enumerate(temperatures))


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
    stage: int | None = 1,
    gates: Iterable[str] | None = None,
    repeats: Sequence[RepeatSampling] = ONCE,
    numbers: Callable[[Case], Collection[int]] | None = None,
    whole: bool = True,
) -> tuple[PlannedRequest, ...]:
    """Every request of a stage (None: of all), one case to all arms before the next. `gates` keeps the cases of one of them; `numbers`
    selects a case's repeats. With `whole`, each case of the gate `tools` is asked once more without streaming, as engines have a
    second tool parser for that (vLLM #28297, #18108). Raises RunError.
    """
    names = [arm.name for arm in arms]
    if len(set(names)) != len(names):
        raise RunError(f"two arms have one name: {', '.join(names)}")
    wanted = None if gates is None else set(gates)
    cases = [
        case
        for case in suite.cases
        if stage in (None, case.stage) and (wanted is None or wanted & set(case.gates))
    ]

    def of(arm: Arm, case: Case) -> Iterator[PlannedRequest]:
        chosen = range(len(repeats)) if numbers is None else sorted(numbers(case))
        return _case_requests(suite, arm, case, {i: repeats[i].of(suite.sampling) for i in chosen}, whole)

    return tuple(request for case in cases for arm in arms for request in of(arm, case))


def _case_requests(
    suite: Suite, arm: Arm, case: Case, samplings: Mapping[int, Sampling], whole: bool
) -> Iterator[PlannedRequest]:
    """A case's requests for one arm; the one without streaming uses the lowest temperature."""
    for number, sampling in samplings.items():
        yield planned_request(suite.digest, arm, case, sampling, number)
    if whole and case.tools and "tools" in case.gates and arm.variant.tools and samplings:
        coolest = min(samplings, key=lambda number: samplings[number].temperature)
        yield planned_request(suite.digest, arm, case, samplings[coolest], coolest, "whole")
