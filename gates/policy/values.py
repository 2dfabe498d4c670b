"""A policy as a value: the rules of every gate, how the run asks, and what it has to hold. Pure.

A policy that exists is well formed and gates something. The keys of the file are the fields here
and in `gates/policy/rules.py`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Final, Literal, NamedTuple

from gates.contracts.verdict import Rule, Tier, Verdict
from gates.policy.decoder import Refused, nearest
from gates.policy.rules import Gate, Latency, between, inside
from gates.suite.expect import NEEDS

SAME: Final = "A/A"
BEHAVIOUR: Final[tuple[Rule, ...]] = ("floor", "zero", "rate", "compare")
METRICS: Final = ("ttft", "decode", "first_sentence")
UNITS: Final = {"ttft": "ms", "decode": "tokens/s", "first_sentence": "ms"}


@dataclass(frozen=True, slots=True)
class Speed:
    """How latency is measured; `gates.run.latency` says why so.

    `buckets` are prompt lengths in tokens, of which those are asked that both engines' contexts
    hold; `pause` the shortest and longest silence before a request, in seconds; `cache_unsaid` takes
    an engine that does not say how much of a prompt it had cached.
    """

    buckets: tuple[int, ...] = (500, 2000, 4000, 8000)
    regime: Literal["cold", "steady"] = "steady"
    blocks: int = 8
    pause: tuple[float, ...] = (5.0, 10.0)
    cache_unsaid: bool = False

    def __post_init__(self) -> None:
        if not self.buckets:
            raise Refused("buckets", "must hold a prompt length at least")
        for bucket in self.buckets:
            between("buckets", bucket, 1, 1_000_000)
        between("blocks", self.blocks, 1, 1_000)
        if len(self.pause) != 2 or not 0.0 <= self.pause[0] <= self.pause[1] <= 600.0:
            raise Refused("pause", "must be two numbers of seconds, the shortest and the longest silence")


@dataclass(frozen=True, slots=True)
class Repeat:
    """`n` askings of a prompt at one temperature."""

    temperature: float
    n: int

    def __post_init__(self) -> None:
        between("temperature", self.temperature, 0.0, 2.0)
        between("n", self.n, 1, 100)


@dataclass(frozen=True, slots=True)
class Run:
    """How the run asks. `max_lost`: the share of prompts that transport faults may cost.

    `system` is text appended to every system prompt (the seeds' hardened prompt), or "".
    """

    repeats: tuple[Repeat, ...]
    concurrency: int = 1
    retries: int = 2
    max_lost: float = 0.02
    system: str = ""

    def __post_init__(self) -> None:
        if not any(r.temperature == 0.0 for r in self.repeats):
            raise Refused("repeats", "must hold one at temperature 0; the paired comparison is made there")
        between("concurrency", self.concurrency, 1, 256)
        between("retries", self.retries, 0, 2)
        between("max_lost", self.max_lost, 0.0, 0.1)

    @property
    def temperatures(self) -> tuple[float, ...]:
        """The temperature of every repeat, by its number."""
        return tuple(r.temperature for r in self.repeats for _ in range(r.n))


@dataclass(frozen=True, slots=True)
class Same:
    """A/A: the baseline against itself, on `n` prompts of each comparative gate.

    If more than `max_flips` of them flip, the comparison is lost in the noise and not usable.
    """

    n: int = 100
    max_flips: float = 0.08

    def __post_init__(self) -> None:
        between("n", self.n, 1, 1_000_000)
        inside("max_flips", self.max_flips)


@dataclass(frozen=True, slots=True)
class KnownBad:
    """A negative control: a candidate that must fail, on every gate in `breaks`."""

    name: str
    breaks: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.name or not self.breaks:
            raise Refused("breaks", "must name the gates that this control has to fail")


class Demand(NamedTuple):
    """A result that every report under a policy must hold. `gate` of a latency may end in `[BUCKET]` there."""

    gate: str
    rule: Rule
    tier: Tier


@dataclass(frozen=True, slots=True)
class Policy:
    """All of it.

    `confidence` is one-sided, for each gate. All gates must pass, so none is corrected for the others
    (an intersection-union test: Berger 1982, Technometrics 24:295-300). A rule with an extension has
    two looks, each of which could let a bad model in by luck; both are made at `look`, so that they
    keep `confidence` together. 0.97 keeps 0.95: the exact chance to pass on the limit is then 5.1 %
    at most, over the rules and sizes shipped here, and would be 6 to 9 % at 0.95 a look (Pocock 1977,
    Biometrika 64:191-199, for normal data: 0.9696).
    """

    name: str
    version: int
    run: Run
    gates: Mapping[str, Gate]
    latency: Mapping[str, Latency] = field(default_factory=dict)
    speed: Speed = field(default_factory=Speed)
    same: Same = field(default_factory=Same)
    controls: tuple[KnownBad, ...] = ()
    confidence: float = 0.95
    look: float = 0.97
    description: str = ""

    def __post_init__(self) -> None:
        between("confidence", self.confidence, 0.8, 0.999)
        between("look", self.look, self.confidence, 0.9999)
        for table, names, known in (("gates", self.gates, NEEDS), ("latency", self.latency, METRICS)):
            for name in names:
                if name not in known:
                    raise Refused(f"{table}.{name}", f"there is no such gate{nearest(name, known)}")
        if not any(gate.tier != "advisory" for gate in self.gates.values()):
            raise Refused("gates", "nothing is gated; one critical or supporting gate at least must decide")
        for number, control in enumerate(self.controls):
            for name in control.breaks:
                if name not in self.gates:
                    raise Refused(f"controls[{number}].breaks", f"{name!r} is no gate of this policy")

    @property
    def digest(self) -> str:
        """`sha256:` and 64 hex digits over the canonical form."""
        document = {key: value for key, value in asdict(self).items() if key != "description"}
        text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
        return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"

    def counted(self, gate: str) -> tuple[int, ...]:
        """The numbers of the repeats that a gate counts."""
        every = self.gates[gate].asks == "every"
        return tuple(i for i, t in enumerate(self.run.temperatures) if every or t == 0.0)

    def asked(self, gates: Iterable[str]) -> tuple[int, ...]:
        """The numbers of the repeats that a case of these gates is asked with; none if none is gated."""
        return tuple(sorted({i for gate in gates if gate in self.gates for i in self.counted(gate)}))

    def level(self, n: int, n_max: int) -> float:
        """The one-sided confidence of a look of a rule that may be extended from n to n_max."""
        return self.look if n_max > n else self.confidence

    @property
    def demands(self) -> tuple[Demand, ...]:
        """Every result that a report must hold, in the order in which `gates.judge.decide` judges."""
        behaviour = (
            Demand(name, rule, gate.tier)
            for rule in BEHAVIOUR
            for name, gate in self.gates.items()
            if getattr(gate, rule) is not None
        )
        return (*behaviour, *(demand for name, rule in self.latency.items() for demand in _speed(name, rule)))

    @property
    def wanted_controls(self) -> dict[str, Verdict]:
        """Every control that a report must hold, and how it has to come out."""
        compares = any(gate.compare and gate.tier != "advisory" for gate in self.gates.values())
        bad = {control.name: Verdict.FAIL for control in self.controls}
        return ({SAME: Verdict.PASS} if compares else {}) | bad


def _speed(metric: str, rule: Latency) -> tuple[Demand, ...]:
    absolute = Demand(metric, "latency", rule.tier)
    return (absolute, Demand(metric, "ratio", rule.ratio.tier)) if rule.ratio else (absolute,)
