"""Rulings on replies that no detector makes: an author's own function, or a judge model. Pure; `gates.run.rulings` asks for them."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from gates.contracts.case import Case, Suite
from gates.contracts.verdict import ControlResult, Outcome, Verdict
from gates.judge.formatting import percent
from gates.stats.binomial import wilson_lower

LEAST_AGREEMENT: Final = 0.8
"""Of a judge's rulings on labelled replies. With less, the report is inconclusive."""


class Ruling(NamedTuple):
    """`lost` if the function failed, or the judge gave no answer."""

    outcome: Outcome
    why: str = ""


Rulings = Mapping[tuple[str, str], Ruling]
"""By the digest of a sample's key, or `label_key`, and the gate."""

UNASKED: Final = Ruling("lost", "was not asked outside of the detectors")


def label_key(case: Case, number: int) -> str:
    """The key of the ruling on a labelled reply, which has no sample whose digest could be the key."""
    return f"label {case.id} {number}"


def needs_ruling(case: Case, gate: str) -> bool:
    """Whether a detector alone cannot judge a reply to this case."""
    return gate == "judge" or (gate == "checks" and "python" in case.expect["checks"])


def judge_agreement(suite: Suite, rulings: Rulings, confidence: float) -> ControlResult | None:
    """How often the judge ruled as a person did; None without labelled replies."""
    labelled = [
        (label["good"], rulings.get((label_key(case, i), "judge"), UNASKED).outcome)
        for case in suite.cases
        for i, label in enumerate(case.expect.get("judge", {}).get("labels", ()))
    ]
    if not (n := len(labelled)):
        return None
    agreed = sum(outcome == ("ok" if good else "bad") for good, outcome in labelled)
    verdict = Verdict.PASS if agreed >= LEAST_AGREEMENT * n else Verdict.INCONCLUSIVE
    least = percent(wilson_lower(agreed, n, confidence), "down")
    return ControlResult(
        "judge", Verdict.PASS, verdict, (),
        f"judge must agree with people on {percent(LEAST_AGREEMENT)} of labelled replies, and did on {agreed} of {n} (at least {least})",
    )  # fmt: skip
