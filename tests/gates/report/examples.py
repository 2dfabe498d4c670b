"""Three reports as they would come out of a run: a pass, a failure and one that is inconclusive.

The numbers are those of the field notes where there are such (a PTQ model that lost its manners, the
same model after QAT) and of the rules' own tables where there are not. Deterministic.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from gates.contracts.sample import Sample, SampleKey, render
from gates.contracts.verdict import (
    CaseResult,
    ControlResult,
    CurvePoint,
    Decision,
    Flip,
    GateResult,
    Interval,
    Outcome,
    Tier,
    Verdict,
)
from gates.policy.policy import Policy
from gates.report import collectors
from gates.report.statement import (
    ComparedArm,
    Distribution,
    EngineIdentity,
    Harness,
    ModelIdentity,
    Pinned,
    SampleIndex,
    Statement,
    format_time,
)
from gates.report.texts import PromptAndReply

WHEN = datetime(2026, 11, 21, 9, 30, 15, tzinfo=UTC)
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
OTHER_KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33)))

P, F, U = Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE


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


def flips(gate: str, lost: Iterable[int], won: Iterable[int] = ()) -> tuple[Flip, ...]:
    """Cases that the candidate lost to the baseline, and that it won."""
    return (
        *(Flip(f"{gate}-{i:03}", "bad", "ok") for i in lost),
        *(Flip(f"{gate}-{i:03}", "ok", "bad") for i in won),
    )


# ------------------------------------------------------------------------------------------ gates

ZERO_CURVE = (CurvePoint(0.03, 0.008), CurvePoint(0.02, 0.047), CurvePoint(0.01, 0.29), CurvePoint(0.005, 0.64), CurvePoint(0.0025, 0.87), CurvePoint(0.001, 0.97))  # fmt: skip
ZERO_WORDS = "would pass a model that {} 2 % of the time in 1 run of 21, one at 0.1 % in 97 runs of 100"
RATE_CURVE = tuple(CurvePoint(r / 100, min(1.0, max(0.0, (r - 55) / 30))) for r in range(50, 100, 5))
COMPARE_CURVE = tuple(
    CurvePoint(*one) for one in ((0.0, 0.92), (0.02, 0.61), (0.04, 0.19), (0.05, 0.05), (0.08, 0.002))
)
COMPARE_WORDS = "would pass a candidate that is 5 points worse in 1 run of 20, an equal one in 92 runs of 100"
FLOOR_CURVE = tuple(CurvePoint(r / 10, (r / 10) ** 3) for r in range(3, 11))


def pct(share: float) -> str:
    return f"{100 * share:.3g} %"


def zero(gate: str, verdict: Verdict, bad: int, high: float, low: float = 0.0, n: int = 165) -> GateResult:
    said = f"{bad} of {n} failed (limit 0"
    if verdict is P:
        said += f"; 95 % confidence: below {pct(high)})"
    else:
        said += ")" if verdict is F else "); undecided until 115 more prompts are asked (limit 0)"
    shown = Interval(low, None if verdict is F else high, 0.95, "Clopper-Pearson")
    return GateResult(gate, "zero", "critical", verdict, n, bad, bad / n, shown, 0.0, "share", said, extend=verdict is U,
                      curve=ZERO_CURVE, curve_words=ZERO_WORDS.format({"leak": "leaks"}.get(gate, "fails")))  # fmt: skip


def floor(gate: str, verdict: Verdict, n: int, bad: int, least: int) -> GateResult:
    said = f"{bad} of {n} named prompts failed (limit {n - least})"
    shown = Interval(max(0.0, (n - bad) / n - 0.15), None, 0.95, "Clopper-Pearson")
    return GateResult(gate, "floor", "critical", verdict, n, bad, (n - bad) / n, shown, least / n, "share", said,
                      curve=FLOOR_CURVE, curve_words="alone would pass a model that is right only 70 % of the time in 1 run of 3")  # fmt: skip


def rate(
    gate: str,
    verdict: Verdict,
    n: int,
    bad: int,
    low: float,
    high: float,
    least: float,
    tier: Tier = "critical",
) -> GateResult:
    sure = f"at most {pct(high)}" if verdict is F else f"at least {pct(low)}"
    said = f"{n - bad} of {n} passed ({pct((n - bad) / n)}; 95 % confidence: {sure}; required: {pct(least)})"
    if verdict is U:
        said += "; undecided until 50 more prompts are asked"
    return GateResult(gate, "rate", tier, verdict, n, bad, (n - bad) / n, Interval(low, high, 0.95, "Wilson"), least,
                      "share", said, extend=verdict is U, curve=RATE_CURVE,
                      curve_words=f"would pass a model that is right only {pct(least)} of the time in 1 run of 20")  # fmt: skip


def compare(gate: str, verdict: Verdict, n: int, lost: list[int], won: list[int], low: float, high: float, margin: float = 0.05,
            tier: Tier = "critical", alarms: tuple[str, ...] = ()) -> GateResult:  # fmt: skip
    loss = (len(lost) - len(won)) / n
    change = (
        f"{100 * abs(loss):.1f} points {'worse' if loss > 0 else 'better'} than" if loss else "as good as"
    )
    said = f"{change} the baseline ({len(lost)} lost, {len(won)} won of {n} prompts; 95 % confidence: "
    worse = f"at most {100 * high:.1f}" if verdict is P else f"more than {100 * low:.1f}"
    return GateResult(gate, "compare", tier, verdict, n, len(lost), loss, Interval(low, high, 0.95, "Tango"), margin,
                      "share", f"{said}{worse} points worse; limit: {100 * margin:g})", extend=verdict is U, curve=COMPARE_CURVE,
                      curve_words=COMPARE_WORDS, flips=flips(gate, lost, won), alarms=alarms)  # fmt: skip


def latency(
    gate: str, verdict: Verdict, n: int, estimate: float, low: float, high: float, limit: float, unit: str
) -> GateResult:
    least = unit == "tokens/s"
    edge = f"at least {low:g}" if least else f"at most {high:g}"
    told = f"{estimate:g} {unit} over {n} requests"
    said = (
        f"median: {told} (95 % confidence: {edge} {unit}; limit: {edge.rpartition(' ')[0]} {limit:g} {unit})"
    )
    return GateResult(gate, "latency", "critical", verdict, n, 0, estimate, Interval(low, high, 0.95, "order statistic"),
                      limit, unit, said)  # fmt: skip


def ratio(
    gate: str, verdict: Verdict, estimate: float, low: float, high: float, margin: float = 0.10
) -> GateResult:
    change = f"{pct(abs(estimate))} {'slower' if estimate > 0 else 'faster'}"
    said = f"TTFT: {change} than the baseline (100 pairs in 8 blocks; limit: {pct(margin)} slower)"
    return GateResult(gate, "ratio", "supporting", verdict, 100, 0, estimate, Interval(low, high, 0.95, "bootstrap"), margin,
                      "share slower", said)  # fmt: skip


CONTROLS = (
    ControlResult("A/A", P, P, (), "A/A must pass, and did: 3 of 150 prompts flipped (2 %)"),
    ControlResult("thinking on", F, F, ("leak",), "thinking on must fail on leak, and did: leak: 61 of 165 leaked (limit 0)"),
    ControlResult("asked for markdown", F, F, ("no_markdown", "speakable"), "asked for markdown must fail on no_markdown, and did: no_markdown: 2 of 150 contained no markdown"),
    ControlResult("tools taken away", F, F, ("tools",), "tools taken away must fail on tools, and did: tools: 10 of 10 named prompts made a wrong call (limit 4)"),
)  # fmt: skip


# ---------------------------------------------------------------------------------------- timings


def times(
    gate: str, arm: str, unit: str, centre: float, spread: float, seed: int, n: int = 100, tail: int = 0
) -> Distribution:
    """A skewed distribution around a median, with some that never came."""
    dice = random.Random(seed)
    values = [centre * dice.lognormvariate(0.0, spread) for _ in range(n - tail)] + [float("inf")] * tail
    return collectors.distribution(gate, arm, unit, values)


def timings(
    ttft: float = 92.0, spread: float = 0.07, decode: float = 33.0, tail: int = 0
) -> tuple[Distribution, ...]:
    return (
        times("ttft", "candidate", "ms", ttft, spread, 1, tail=tail),
        times("ttft", "baseline", "ms", 318.0, 0.35, 2),
        times("first_sentence", "candidate", "ms", ttft + 340, 0.18, 3, tail=tail),
        times("first_sentence", "baseline", "ms", 655.0, 0.25, 4),
        times("decode", "candidate", "tokens/s", decode, 0.06, 5),
        times("decode", "baseline", "tokens/s", 36.5, 0.05, 6),
    )


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


def statement(
    decision: Decision, arms: dict[str, list[CaseResult]], times: tuple[Distribution, ...], **changes: object
) -> Statement:
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
        distributions=times,
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
    gates = (
        floor("leak", P, 25, 0, 25), floor("empty", P, 50, 0, 50), floor("tools", P, 10, 1, 6), floor("no_markdown", P, 15, 0, 12),
        floor("factual", P, 10, 0, 10), floor("reasoning", P, 5, 0, 5),
        zero("leak", P, 0, 0.018), zero("raw_call", P, 0, 0.018), zero("empty", P, 0, 0.018),
        rate("tools", P, 100, 5, 0.901, 0.976, 0.60), rate("no_markdown", P, 150, 0, 0.982, 1.0, 0.80),
        rate("factual", P, 100, 0, 0.974, 1.0, 0.90), rate("reasoning", P, 50, 1, 0.915, 0.995, 0.80),
        rate("verbosity", U, 150, 31, 0.733, 0.841, 0.80, "advisory"),
        compare("tools", P, 100, [17, 44, 80], [22, 93], -0.028, 0.046),
        compare("no_markdown", P, 150, [], [], -0.018, 0.018),
        compare("speakable", P, 150, [], [], -0.018, 0.018, 0.1, "supporting", ("6 replies had a sentence of more than 30 words",)),
        latency("ttft", P, 100, 91.6, 89.9, 93.2, 120, "ms"), ratio("ttft", P, -0.712, -0.731, -0.694),
        latency("decode", P, 100, 33.1, 32.7, 33.4, 25, "tokens/s"),
    )  # fmt: skip
    why = ("all 19 rules of 10 gates that decide passed",)
    return statement(Decision(P, gates, CONTROLS, why), arms, timings(), expires="2026-11-28T09:30:15Z")


def passed(policy: Policy) -> Decision:
    """A pass in which every rule and every control of a policy is there."""
    one = floor("leak", P, 25, 0, 25)
    gates = tuple(
        replace(one, gate=gate, rule=rule, tier=tier) for gate, rule, tier in policy.required_results
    )
    controls = tuple(
        replace(CONTROLS[0], name=n, expected=way, verdict=way) for n, way in policy.required_controls.items()
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
    lost = [i for i in range(100) if i not in (3, 22, 61, 93)]
    gates = (
        floor("leak", F, 25, 5, 25), floor("empty", P, 50, 0, 50), floor("tools", F, 10, 10, 6), floor("no_markdown", F, 15, 12, 12),
        floor("factual", P, 10, 0, 10), floor("reasoning", P, 5, 0, 5),
        zero("leak", F, 23, 0.192, 0.096), zero("raw_call", F, 3, 0.046, 0.005), zero("empty", P, 0, 0.018),
        rate("tools", F, 100, 100, 0.0, 0.026, 0.60), rate("no_markdown", F, 150, 120, 0.152, 0.259, 0.80),
        rate("factual", P, 100, 1, 0.956, 0.998, 0.90), rate("reasoning", P, 50, 0, 0.949, 1.0, 0.80),
        rate("verbosity", F, 150, 131, 0.09, 0.175, 0.80, "advisory"),
        compare("tools", F, 100, lost, [], 0.914, 0.984, alarms=("96 % of prompts flipped, and 2 % where the baseline met itself",)),
        compare("no_markdown", F, 150, LISTS, [], 0.741, 0.848, alarms=("80 % of prompts flipped, and 2 % where the baseline met itself",)),
        compare("speakable", F, 150, LISTS, [], 0.741, 0.848, 0.1, "supporting"),
        latency("ttft", P, 100, 91.6, 89.9, 93.2, 120, "ms"), ratio("ttft", P, -0.712, -0.731, -0.694),
        latency("decode", P, 100, 33.1, 32.7, 33.4, 25, "tokens/s"),
    )  # fmt: skip
    reasons = tuple(
        f"{gate.gate}: {gate.sentence}" for gate in gates if gate.verdict is F and gate.tier != "advisory"
    )
    return statement(Decision(F, gates, CONTROLS, reasons), arms, timings())


@cache
def inconclusive() -> Statement:
    """Nearly there: tools is open and the second stage was not run, and a control did not hold."""
    bad = {
        "tools": ([*range(6, 10), *range(60, 90)], "called none: expected set_timer"),
        "leak": ([31], "tag: '</think>' at 118"),
    }
    arms = {"candidate": all_cases(bad), "baseline": all_cases(BASELINE_FEW)}
    weak = ControlResult(
        "asked for markdown", F, P, (), "asked for markdown must fail on no_markdown, and gave pass"
    )
    gates = (
        floor("leak", P, 25, 0, 25), floor("empty", P, 50, 0, 50), floor("tools", P, 10, 4, 6), floor("no_markdown", P, 15, 0, 12),
        floor("factual", P, 10, 0, 10), floor("reasoning", P, 5, 0, 5),
        zero("leak", U, 1, 0.028), zero("raw_call", P, 0, 0.018), zero("empty", P, 0, 0.018),
        rate("tools", U, 100, 34, 0.578, 0.733, 0.60), rate("no_markdown", P, 150, 0, 0.982, 1.0, 0.80),
        latency("ttft[0.5k]", P, 60, 101.0, 96.0, 109.0, 120, "ms"), latency("ttft[4k]", U, 60, 118.4, 109.0, 131.0, 120, "ms"),
        GateResult("decode", "latency", "critical", U, 0, 0, None, None, 25.0, "tokens/s", "the median decode rate of 0 requests is not there; 0 of 100 requests were timed"),
    )  # fmt: skip
    opened = tuple(f"{gate.gate}: {gate.sentence}" for gate in gates if gate.verdict is U)
    return statement(Decision(U, gates, (*CONTROLS[:2], weak, CONTROLS[3]), (f"control {weak.sentence}", *opened)), arms,
                     timings(ttft=118.0, spread=0.25, tail=4)[:4])  # fmt: skip


# ------------------------------------------------------------------------------------------ texts

PROMPTS = ("What's on the shopping list?", "Ask Priya whether she can come on Thursday.", "How far is the moon?",
           "ನಾಳೆ ಮಳೆ ಬರುತ್ತಾ?", "Remind me to water the plants tomorrow at seven in the morning, and on Sunday too.")  # fmt: skip
GOOD = ("Milk, bread, and two lemons.", "I'll ask her now.", "About three hundred and eighty-four thousand kilometres.",
        "ಹೌದು, ನಾಳೆ ಸಂಜೆ ಮಳೆ ಬರಬಹುದು.", "Done. I'll remind you tomorrow at seven, and again on Sunday.")  # fmt: skip
BAD = {
    "leak": (
        "The user is asking for the shopping list. I should look it up with the tool, but I don't have a result yet. "
        "Let me think about what they would want to hear. Wait, actually, the list may be empty.\n\n</think>\n\nMilk and bread."
    ),
    "raw_call": '<tool_call>{"name": "search_memory", "arguments": {"query": "shopping list"}}</tool_call>',
    "tools": 'Sure! I\'d search the web for that:\n\nweb_search(query="weather tomorrow in Mysuru")',
    "no_markdown": "Here's your **shopping list**:\n\n- milk\n- bread\n- 2 lemons\n\nWould you like me to:\n1. add something\n2. read it again?\n",
    "factual": "The capital of Australia is Sydney.",
    "reasoning": "Fourteen.",
}
"""What a model without manners says, by what it does wrong."""


def said(case: str, arm: str) -> PromptAndReply:
    """A prompt and a reply for any case and arm, good ones of the baseline."""
    gate, _, digits = case.rpartition("-")
    number = int(digits)
    bad = BAD.get(gate, BAD["no_markdown"]) * (6 if number % 5 == 2 else 1)
    return PromptAndReply(
        PROMPTS[number % len(PROMPTS)], GOOD[number % len(GOOD)] if arm == "baseline" else bad
    )
