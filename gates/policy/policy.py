"""The policy: what a model must show before it may serve, as frozen values that are checked when they are made. Pure."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Final, Literal, NamedTuple

from msgspec import Meta

from gates.contracts.numerics import Part
from gates.contracts.verdict import METRICS, Rule, Tier, Verdict
from gates.decode.decoder import DecodeError, nearest, require_between
from gates.detect.catalogue import GATES

SELF_COMPARISON: Final = "A/A"
BEHAVIOUR: Final[tuple[Rule, ...]] = ("floor", "zero", "rate", "compare")
BUCKETS: Final = (500, 2000, 4000, 8000)
"""Prompt lengths in tokens. TTFT is first flat and then linear in the length (vLLM #7635)."""


Share = Annotated[float, Meta(gt=0, lt=1)]
Count = Annotated[int, Meta(ge=1, le=1_000_000)]


def _require_stage_sizes(n: int, n_max: int) -> None:
    if n_max < n:
        raise DecodeError("n_max", f"must be at least n, which is {n}; equal means no extension")


@dataclass(frozen=True, slots=True)
class FloorRule:
    """At least `least` of the `of` named cases must succeed."""

    of: Count
    least: int

    def __post_init__(self) -> None:
        require_between("least", self.least, 1, self.of)


@dataclass(frozen=True, slots=True)
class ZeroRule:
    """Rule A: no failure in `first` prompts. One failure outside the named cases requires `second` clean ones."""

    first: Count
    second: Annotated[int, Meta(ge=0)] = 0


@dataclass(frozen=True, slots=True)
class RateRule:
    """Rule B: Wilson's one-sided lower bound must be at least `least`, over n prompts or n_max after one extension."""

    least: Share
    n: Count
    n_max: Count

    def __post_init__(self) -> None:
        _require_stage_sizes(self.n, self.n_max)


@dataclass(frozen=True, slots=True)
class CompareRule:
    """Rule C: Tango's one-sided upper bound of the loss against the baseline must be at most `margin`."""

    margin: Share
    n: Count
    n_max: Count

    def __post_init__(self) -> None:
        _require_stage_sizes(self.n, self.n_max)


@dataclass(frozen=True, slots=True)
class GateRules:
    """The rules of one gate. `asks`: with "every" a prompt is bad if any repeat was, "greedy" counts the one at temperature 0."""

    tier: Tier
    asks: Literal["every", "greedy"] = "every"
    floor: FloorRule | None = None
    zero: ZeroRule | None = None
    rate: RateRule | None = None
    compare: CompareRule | None = None

    def __post_init__(self) -> None:
        if not any((self.floor, self.zero, self.rate, self.compare)):
            raise DecodeError("", "has no rule; give it floor, zero, rate or compare")
        if self.compare and self.asks != "greedy":
            raise DecodeError("asks", 'must be "greedy" beside compare; pairs are made at temperature 0')


@dataclass(frozen=True, slots=True)
class RatioRule:
    """Rule D against the baseline: at most `margin` slower, by a cluster bootstrap of `pairs` pairs in `blocks` blocks. `seed`: of the resampling."""

    margin: Share
    tier: Tier = "supporting"
    blocks: Annotated[int, Meta(ge=4, le=10_000)] = 8  # with fewer, the bootstrap has no usable distribution
    pairs: int = 100
    resamples: Annotated[int, Meta(ge=1_000, le=1_000_000)] = 10_000
    seed: int = 0

    def __post_init__(self) -> None:
        require_between("pairs", self.pairs, self.blocks, 1_000_000)


@dataclass(frozen=True, slots=True)
class LatencyRule:
    """Rule D: a quantile of a metric, from its slow end, over n requests or n_max. `limit`: at most so many ms, or at least so many tokens/s."""

    tier: Tier
    limit: Annotated[float, Meta(gt=0, le=1e9)]
    n: Count
    n_max: Count
    quantile: Share = 0.5
    per_bucket: Literal[False] = False  # of earlier policies, and of their digests
    ratio: RatioRule | None = None

    def __post_init__(self) -> None:
        _require_stage_sizes(self.n, self.n_max)


@dataclass(frozen=True, slots=True)
class LatencySettings:
    """How latency is measured (`gates.run.latency`). `buckets`: prompt lengths in tokens. `regime`: the conversation before
    the last turn is cached. `pause`: the shortest and longest
    silence before a request, in seconds. `cache_unsaid` accepts engines that do not report cached tokens.
    """

    buckets: Annotated[tuple[Count, ...], Meta(min_length=1)] = BUCKETS
    regime: Literal["steady"] = "steady"
    blocks: Annotated[int, Meta(ge=1, le=1_000)] = 8
    pause: tuple[float, ...] = (5.0, 10.0)
    cache_unsaid: bool = False

    def __post_init__(self) -> None:
        if len(self.pause) != 2 or not 0.0 <= self.pause[0] <= self.pause[1] <= 600.0:
            raise DecodeError("pause", "must be two numbers of seconds, the shortest and the longest silence")


@dataclass(frozen=True, slots=True)
class TemperatureRepeats:
    """`n` repeats of a prompt at one temperature."""

    temperature: Annotated[float, Meta(ge=0, le=2)]
    n: Annotated[int, Meta(ge=1, le=100)]


@dataclass(frozen=True, slots=True)
class RunSettings:
    """How requests are made. `max_lost`: the share of prompts that may be lost. `system` is appended to every system prompt."""

    repeats: tuple[TemperatureRepeats, ...]
    concurrency: Annotated[int, Meta(ge=1, le=256)] = 1
    retries: Annotated[int, Meta(ge=0, le=2)] = 2
    max_lost: Annotated[float, Meta(ge=0, le=0.1)] = 0.02
    system: str = ""

    def __post_init__(self) -> None:
        if not any(r.temperature == 0.0 for r in self.repeats):
            raise DecodeError(
                "repeats", "must hold one at temperature 0; the paired comparison is made there"
            )

    @property
    def temperatures(self) -> tuple[float, ...]:
        """The temperature of every repeat, by its index."""
        return tuple(r.temperature for r in self.repeats for _ in range(r.n))


@dataclass(frozen=True, slots=True)
class SelfComparison:
    """A/A: the baseline against itself, on `n` prompts of each comparative gate; more than `max_flips` make it unusable."""

    n: Count = 100
    max_flips: Share = 0.08


@dataclass(frozen=True, slots=True)
class NegativeControl:
    """A candidate that is known to be bad and must fail every gate in `breaks`."""

    name: Annotated[str, Meta(min_length=1)]
    breaks: Annotated[tuple[str, ...], Meta(min_length=1)]


@dataclass(frozen=True, slots=True)
class NumericsRule:
    """How a promotion compares what computed the report's answers with what is to serve. Parts in `may_differ` may ("scheme" includes
    "kernel"). `required`: what only one side knows differs, and a report must state its parts.
    """

    may_differ: tuple[Part, ...] = ()
    required: bool = False


class RequiredResult(NamedTuple):
    """A result that every report under a policy must hold. A latency gate's name may end in `[BUCKET]` in the report."""

    gate: str
    rule: Rule
    tier: Tier


@dataclass(frozen=True, slots=True)
class Policy:
    """A whole policy. `confidence` is one-sided and holds for each gate; as all must pass, no correction is needed (intersection-union
    test: Berger 1982, Technometrics 24:295-300). A rule with an extension looks twice, each time at the stricter level `look`:
    0.97 keeps 0.95 (at most 5.1 % over the shipped rules, exact; Pocock 1977, Biometrika 64:191-199, has 0.9696).
    `draw`: so many of each gate's prompts are asked (`gates.contracts.case.drawn`); without it all are. `judged`: the replies that decide, as
    callers hear them through the gateway or as the engine sent them; the report shows both. `sequential`: whether a promotion takes
    reports of runs that stopped when they were decided.
    """

    name: str
    version: int
    run: RunSettings
    gates: Mapping[str, GateRules]
    latency: Mapping[str, LatencyRule] = field(default_factory=dict)
    speed: LatencySettings = field(default_factory=LatencySettings)
    same: SelfComparison = field(default_factory=SelfComparison)
    controls: tuple[NegativeControl, ...] = ()
    numerics: NumericsRule = field(default_factory=NumericsRule)
    confidence: Annotated[float, Meta(ge=0.8, le=0.999)] = 0.95
    look: float = 0.97
    description: str = ""
    draw: Mapping[str, Count] = field(default_factory=dict)
    judged: Literal["through", "engine"] = "through"
    sequential: Literal["refused", "allowed"] = "refused"

    def __post_init__(self) -> None:
        require_between("look", self.look, self.confidence, 0.9999)
        for table, names, known in (
            ("gates", self.gates, GATES),
            ("latency", self.latency, METRICS),
            ("draw", self.draw, self.gates),
        ):
            for name in names:
                if name not in known:
                    raise DecodeError(f"{table}.{name}", f"there is no such gate{nearest(name, known)}")
        if not any(gate.tier != "advisory" for gate in self.gates.values()):
            raise DecodeError(
                "gates", "nothing is gated; one critical or supporting gate at least must decide"
            )
        for number, control in enumerate(self.controls):
            for name in control.breaks:
                if name not in self.gates:
                    raise DecodeError(f"controls[{number}].breaks", f"{name!r} is no gate of this policy")

    @property
    def digest(self) -> str:
        """`sha256:` over the canonical JSON of what the gate judges by: without the description, an empty `draw`, what only a promotion
        asks (`numerics`, `sequential`), and `judged` = "engine", by which all reports were judged before it existed.
        """
        absent = {"description", "numerics", "sequential"} | (set() if self.draw else {"draw"})
        absent |= {"judged"} if self.judged == "engine" else set()
        document = {key: value for key, value in asdict(self).items() if key not in absent}
        text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
        return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"

    def counted(self, gate: str) -> tuple[int, ...]:
        """The indices of the repeats that a gate counts."""
        every = self.gates[gate].asks == "every"
        return tuple(i for i, t in enumerate(self.run.temperatures) if every or t == 0.0)

    def asked(self, gates: Iterable[str]) -> tuple[int, ...]:
        """The indices of the repeats that a case of these gates is asked with."""
        return tuple(sorted({i for gate in gates if gate in self.gates for i in self.counted(gate)}))

    def level(self, n: int, n_max: int) -> float:
        """The one-sided confidence of each look of a rule that may be extended from n to n_max."""
        return self.look if n_max > n else self.confidence

    @property
    def required_results(self) -> tuple[RequiredResult, ...]:
        """Every result that a report must hold, in the order in which `gates.judge.decide` makes them."""
        required = [
            RequiredResult(name, rule, gate.tier)
            for rule in BEHAVIOUR
            for name, gate in self.gates.items()
            if getattr(gate, rule) is not None
        ]
        for name, speed in self.latency.items():
            required.append(RequiredResult(name, "latency", speed.tier))
            if speed.ratio:
                required.append(RequiredResult(name, "ratio", speed.ratio.tier))
        return tuple(required)

    @property
    def required_controls(self) -> dict[str, Verdict]:
        """Every control that a report must hold, and its expected verdict."""
        compares = any(gate.compare and gate.tier != "advisory" for gate in self.gates.values())
        bad = {control.name: Verdict.FAIL for control in self.controls}
        return ({SELF_COMPARISON: Verdict.PASS} if compares else {}) | bad
