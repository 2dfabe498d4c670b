"""Three reports as they come out of a run: a pass, a failure and one that is inconclusive, judged by a policy of their own.

The cases are those of the field notes: a PTQ model that lost its manners, and the same model after QAT.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from gates.artefact.artefact import ModelIdentity
from gates.contracts.case import Case, Sampling, Suite
from gates.contracts.sample import Sample, SampleKey, render
from gates.contracts.verdict import CaseResult, ControlResult, Decision, Outcome, Verdict
from gates.judge.context import Measurements
from gates.judge.decide import decide
from gates.policy.policy import (
    CompareRule,
    FloorRule,
    GateRules,
    LatencyRule,
    NegativeControl,
    Policy,
    RateRule,
    ZeroRule,
)
from gates.report.labels import PromptAndReply
from gates.report.statement import (
    ComparedArm,
    EngineIdentity,
    Harness,
    Pinned,
    SampleIndex,
    Statement,
    format_time,
)
from gates.run import report_builder as collectors
from tests.gates import judged

WHEN = datetime(2026, 11, 21, 9, 30, 15, tzinfo=UTC)
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
OTHER_KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33)))

P, F = Verdict.PASS, Verdict.FAIL


def sha(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


SOURCE = sha("annie-9b-bf16")
IMAGE = f"vllm/vllm-openai@{sha('image')}"
ARGV = (
    "--quantization", "modelopt", "--max-model-len", "32768", "--gpu-memory-utilization", "0.85",
    "--tool-call-parser", "hermes", "--enable-auto-tool-choice", "--reasoning-parser", "qwen3",
)  # fmt: skip


def model(name: str, format: str) -> ModelIdentity:
    return ModelIdentity(name, format, sha(name + format), "Qwen/Qwen3.5-9B", {"source": SOURCE})


CANDIDATE = ComparedArm(
    model("annie-9b-nvfp4", "hf-nvfp4"),
    EngineIdentity("spark-nvfp4", "docker", "vllm", IMAGE, ARGV, {"VLLM_USE_V1": "1"}, "vLLM 0.25.1", None),
)
BASELINE = ComparedArm(
    model("annie-9b-q4", "gguf-q4_k_m"),
    EngineIdentity(
        "spark-q4", "embedded", "llama-server", None, ("-c", "32768", "--jinja", "--reasoning-budget", "0"), {},
        "llama.cpp b7611", sha("annie-9b-q4_k_m.gguf"),
    ),
)  # fmt: skip
HARNESS = Harness(
    "0.1.0", "8d70da0c3f1b2a4e5d6c7b8a9f0e1d2c3b4a5968", False, {"aiohttp": "3.14.5", "python": "3.12.3"}
)
HOST = {"gpu": "NVIDIA GB10", "driver": "580.95.05", "memory": "121.7 GB", "os": "Ubuntu 24.04"}


# ------------------------------------------------------------------------------------------ cases

SIZES = {"leak": (25, 165), "raw_call": (0, 165), "empty": (50, 165), "tools": (10, 100), "no_markdown": (15, 150),
         "factual": (10, 100), "reasoning": (5, 50), "speakable": (0, 150), "verbosity": (0, 150)}  # fmt: skip
"""Per gate, how many cases are named and how many there are."""


def cases(gate: str, bad: Iterable[int] = (), why: str = "", lost: Iterable[int] = ()) -> list[CaseResult]:
    """The case results of a gate, some of them bad, by their numbers."""
    named, n = SIZES[gate]
    bad, lost = set(bad), set(lost)

    def outcome(i: int) -> Outcome:
        return "bad" if i in bad else "lost" if i in lost else "ok"

    return [
        CaseResult(f"{gate}-{i:03}", gate, outcome(i), 1, i < named, why if i in bad else "")
        for i in range(n)
    ]


# ------------------------------------------------------------------------------------------ rules

GREEDY = partial(GateRules, "critical", "greedy")
LAW = judged.policy(
    gates={
        "leak": GateRules("critical", floor=FloorRule(25, 25), zero=ZeroRule(165, 115)),
        "raw_call": GateRules("critical", zero=ZeroRule(165, 115)),
        "empty": GateRules("critical", floor=FloorRule(50, 50), zero=ZeroRule(165, 115)),
        "tools": GREEDY(floor=FloorRule(10, 6), rate=RateRule(0.6, 100, 100), compare=CompareRule(0.1, 100, 100)),
        "no_markdown": GREEDY(floor=FloorRule(15, 12), rate=RateRule(0.8, 150, 150), compare=CompareRule(0.05, 150, 150)),
        "factual": GateRules("critical", floor=FloorRule(10, 10), rate=RateRule(0.9, 100, 100)),
        "reasoning": GateRules("critical", floor=FloorRule(5, 5), rate=RateRule(0.8, 50, 50)),
        "speakable": GateRules("supporting", "greedy", compare=CompareRule(0.1, 150, 150)),
        "verbosity": GateRules("advisory", rate=RateRule(0.8, 150, 150)),
    },
    latency={"ttft": replace(judged.FAST, n_max=100), "decode": LatencyRule("critical", 25.0, 100, 100)},
    controls=(NegativeControl("thinking on", ("leak",)), NegativeControl("asked for markdown", ("no_markdown",))),
)  # fmt: skip
SUITE = Suite("annie", 3, "", Sampling(), tuple(
    Case(f"{gate}-{i:03}", (gate,), ({"role": "user", "content": f"{gate} {i}"},), named=(gate,) if i < named else (),
         stage=1 if i < n else 2)
    for gate, (named, n) in SIZES.items() for i in range(n + (115 if gate in ("leak", "raw_call", "empty") else 0))
), sha("suite"))  # fmt: skip
KEPT = (
    ControlResult("thinking on", F, F, ("leak",), "thinking on must fail on leak, and did: leak: 61 of 165 leaked (limit 0)"),
    ControlResult("asked for markdown", F, F, ("no_markdown",), "asked for markdown must fail on no_markdown, and did: no_markdown: 2 of 150"),
)  # fmt: skip


def decided(
    arms: Mapping[str, list[CaseResult]], ttft: float = 91.6, kept: tuple[ControlResult, ...] = KEPT
) -> Decision:
    """What the judge says of these cases, and of a time to first token in milliseconds."""
    base = tuple(arms["baseline"])
    speed = (*judged.timings(ttft, 329.0), *judged.timings(33.1, 36.4, metric="decode"))
    return decide(LAW, Measurements(SUITE, tuple(arms["candidate"]), base, base, speed, judged.KIN), kept)


# ---------------------------------------------------------------------------------------- samples


def sample_lines(arms: dict[str, list[CaseResult]]) -> list[bytes]:
    """One line of samples.jsonl for every case of every arm."""
    lines = []
    for arm, results in arms.items():
        for name in dict.fromkeys(result.case for result in results):
            key = SampleKey(sha("suite"), sha(arm), sha("engine"), sha(name), arm, name, 0, "stream")
            lines.append(render(Sample(key, {"model": "m"}, format_time(WHEN), 200)).encode())
    return lines


def ledger(arms: dict[str, list[CaseResult]]) -> SampleIndex:
    lines = sample_lines(arms)
    order: tuple[Outcome, ...] = ("ok", "lost", "bad")
    worst: dict[str, Outcome] = {}
    for arm, results in arms.items():
        for r in results:
            name = f"{arm}/{r.case}"
            worst[name] = max(worst.get(name, "ok"), r.outcome, key=order.index)
    outcomes = {}
    for line in lines:
        found = json.loads(line)
        outcomes[found["id"]] = worst[f"{found['key']['arm']}/{found['key']['case']}"]
    return collectors.sample_index(lines, outcomes)


def statement(decision: Decision, arms: dict[str, list[CaseResult]], **changes: object) -> Statement:
    made = Statement(
        candidate=CANDIDATE,
        baseline=BASELINE,
        suite=Pinned("annie", 3, sha("suite")),
        policy=Pinned("annie", 2, sha("policy")),
        harness=HARNESS,
        host=HOST,
        decision=decision,
        tallies=collectors.tallies(arms),
        failures=collectors.failures(arms),
        samples=ledger(arms),
        created=format_time(WHEN),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def all_cases(bad: Mapping[str, tuple[Iterable[int], str]] | None = None) -> list[CaseResult]:
    bad = bad or {}
    return [r for gate in SIZES for r in cases(gate, *bad.get(gate, ((), "")))]


# ---------------------------------------------------------------------------------- the three of them

CANDIDATE_FEW: dict[str, tuple[Iterable[int], str]] = {
    "tools": ([3, 17, 44, 61, 80], "called none: expected web_search"),
    "reasoning": ([41], "said 14, expected 15"),
    "verbosity": (range(0, 62, 2), "19 seconds; 12 are allowed"),
}
BASELINE_FEW: dict[str, tuple[Iterable[int], str]] = {
    "tools": ([3, 22, 61, 93], "called none: expected web_search"),
    "factual": ([55], "said Sydney, expected Canberra"),
}


@cache
def passing() -> Statement:
    """The model after QAT: as well behaved as the baseline, and three times as quick."""
    arms = {"candidate": all_cases(CANDIDATE_FEW), "baseline": all_cases(BASELINE_FEW)}
    return statement(decided(arms), arms, expires="2026-11-28T09:30:15Z")


def passed(policy: Policy) -> Decision:
    """A pass in which every rule and every control of a policy is there."""
    one, held = passing().decision.gates[0], KEPT[0]
    gates = tuple(
        replace(one, gate=gate, rule=rule, tier=tier) for gate, rule, tier in policy.required_results
    )
    controls = tuple(
        replace(held, name=n, expected=way, verdict=way) for n, way in policy.required_controls.items()
    )
    return Decision(P, gates, controls, ("all passed",))


LEAKY = [2, 7, 11, 18, 23, 40, 66, 71, 90, 102, 130, 141, 144, 150, 151, 152, 155, 158, 160, 161, 162, 163, 164]  # fmt: skip
LISTS = [i for i in range(150) if i % 5]
"""The cases in which the model after PTQ thinks aloud, and those in which it writes markdown."""


@cache
def failing() -> Statement:
    """The model after PTQ: it knows as much as before, and has lost its manners."""
    bad: dict[str, tuple[Iterable[int], str]] = {
        "leak": (LEAKY, "opening: 'The user is asking for' at 0"),
        "raw_call": ([4, 9, 13], "literal: '<tool_call>' at 0"),
        "tools": (range(100), "called none: expected web_search; the call stands in the text"),
        "no_markdown": (LISTS, "markdown: bullet_list at 14: '- milk'"),
        "speakable": (LISTS, "list, emphasis"),
        "verbosity": (range(131), "61 seconds; 12 are allowed"),
        "factual": ([55], "said Sydney, expected Canberra"),
    }
    arms = {"candidate": all_cases(bad), "baseline": all_cases(BASELINE_FEW)}
    return statement(decided(arms), arms)


@cache
def inconclusive() -> Statement:
    """Nearly there: one prompt leaks and the second stage was not run, and a control did not hold."""
    bad: dict[str, tuple[Iterable[int], str]] = {"leak": ([31], "tag: '</think>' at 118")}
    arms = {"candidate": all_cases(bad), "baseline": all_cases(BASELINE_FEW)}
    weak = replace(
        KEPT[1], verdict=P, because=(), sentence="asked for markdown must fail on no_markdown, and gave pass"
    )
    return statement(decided(arms, 118.0, (KEPT[0], weak)), arms)


# ------------------------------------------------------------------------------------------ texts

BAD = (
    "The user is asking for the shopping list. Let me think.\n\n</think>\n\nMilk and bread.",
    '<tool_call>{"name": "search_memory", "arguments": {"query": "shopping list"}}</tool_call>',
    "Here's your **shopping list**:\n\n- milk\n- bread\n- 2 lemons\n" * 40,
)
"""What a model without manners says."""


class Texts(dict[tuple[str, str], PromptAndReply]):
    """The texts of any case and arm."""

    def __init__(self, of: Callable[[str, str], PromptAndReply]) -> None:
        self._of = of

    def get(self, key: tuple[str, str], default: Any = None) -> Any:
        return self._of(*key)


def _said(case: str, arm: str) -> PromptAndReply:
    """A prompt and a reply for any case and arm, good ones of the baseline."""
    bad = BAD[int(case.rpartition("-")[2]) % len(BAD)]
    return PromptAndReply("ನಾಳೆ ಮಳೆ ಬರುತ್ತಾ?", "ಹೌದು, ನಾಳೆ ಸಂಜೆ ಮಳೆ ಬರಬಹುದು." if arm == "baseline" else bad)


SAID = Texts(_said)
