"""What a run is going to ask, and in which order: arms, cases, repeats and modes as asks. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from gates.contracts.case import Case, Sampling, Suite
from gates.contracts.errors import RunError
from gates.contracts.sample import Key, Mode
from gates.run.request import build, digest
from gates.run.target import Arm


@dataclass(frozen=True, slots=True)
class Repeat:
    """One time that a case is asked; None is the suite's own temperature or seed."""

    temperature: float | None = None
    seed: int | None = None

    def of(self, sampling: Sampling) -> Sampling:
        """The sampling of this repeat."""
        return replace(
            sampling,
            temperature=sampling.temperature if self.temperature is None else self.temperature,
            seed=sampling.seed if self.seed is None else self.seed,
        )


ONCE: Final = (Repeat(),)


def repeats_at(temperatures: Iterable[float], seed: int) -> tuple[Repeat, ...]:
    """A repeat for each of a policy's temperatures, every one with a seed of its own."""
    return tuple(Repeat(temperature, seed + i) for i, temperature in enumerate(temperatures))


@dataclass(frozen=True, slots=True)
class Ask:
    """One request that a run makes, to the arm in its key.

    `before` is a body that is sent first, its reply thrown away; then there are `wait_s` seconds of
    silence. An ask that is not `recorded` warms an engine up: it leaves no sample, and is made again
    whenever a run that is not over begins anew.
    """

    key: Key
    request: Mapping[str, Any]
    before: Mapping[str, Any] | None = None
    wait_s: float = 0.0
    recorded: bool = True


def ask(
    suite: str, arm: Arm, case: Case, sampling: Sampling, repeat: int, mode: Mode = "stream", **more: Any
) -> Ask:
    """One ask of a case; `suite` is the suite's digest, `more` goes to `Ask`. Raises RunError."""
    target = arm.target
    body = build(case, sampling, target, arm.variant, mode)
    key = Key(suite, target.artefact, target.engine, digest(body), arm.name, case.id, repeat, mode)
    return Ask(key, body, **more)


def pending(asks: Iterable[Ask], present: Container[Key]) -> tuple[Ask, ...]:
    """What is still to be asked: no sample twice, and a warm-up only where a sample will follow."""
    left = [a for a in asks if not a.recorded or a.key not in present]
    arms = {a.key.arm for a in left if a.recorded}
    return tuple(a for a in left if a.key.arm in arms)


def plan(
    suite: Suite,
    arms: Sequence[Arm],
    *,
    stage: int | None = 1,
    gates: Iterable[str] | None = None,
    repeats: Sequence[Repeat] = ONCE,
    numbers: Callable[[Case], Collection[int]] | None = None,
    whole: bool = True,
    interleaved: bool = True,
) -> tuple[Ask, ...]:
    """Every ask of a stage (None: of all), in order.

    `gates` keeps the cases that count for one of them; `numbers` says with which of the repeats a
    case is asked (all). ParsedRequest as production asks, streaming; with `whole` each case of the gate
    `tools` is asked once more for a reply in one piece, for engines have a second tool parser for
    those (vLLM #28297, #18108). `interleaved` asks all arms a case before the next case, so that a slow drift
    of the host meets all of them; otherwise arm after arm.

    Raises:
        RunError: two arms have one name, or a request cannot be made.
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

    def of(arm: Arm, case: Case) -> Iterator[Ask]:
        chosen = range(len(repeats)) if numbers is None else sorted(numbers(case))
        return _asks(suite, arm, case, {i: repeats[i].of(suite.sampling) for i in chosen}, whole)

    if interleaved:
        return tuple(ask for case in cases for arm in arms for ask in of(arm, case))
    return tuple(ask for arm in arms for case in cases for ask in of(arm, case))


def _asks(
    suite: Suite, arm: Arm, case: Case, samplings: Mapping[int, Sampling], whole: bool
) -> Iterator[Ask]:
    """A case's asks in one arm; the one for a whole reply is the coolest of them."""
    for number, sampling in samplings.items():
        yield ask(suite.digest, arm, case, sampling, number)
    if whole and case.tools and "tools" in case.gates and arm.variant.tools and samplings:
        coolest = min(samplings, key=lambda number: samplings[number].temperature)
        yield ask(suite.digest, arm, case, samplings[coolest], coolest, "whole")
