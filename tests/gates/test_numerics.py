"""What computed two engines' answers, compared part by part."""

from dataclasses import replace

import pytest

from gates.contracts.errors import ReportError
from gates.contracts.numerics import PARTS, Numerics, Part, differences
from gates.policy.policy import NumericsRule
from gates.report import checks
from gates.report.statement import Statement
from tests.gates.report import examples

HOPPER = Numerics(kernel="MarlinNvFp4LinearKernel", scheme="W4A16", kv_cache="auto", gpu="NVIDIA H200")
SPARK = Numerics(
    kernel="FlashInferCutlassNvFp4LinearKernel", scheme="W4A4", kv_cache="auto", gpu="NVIDIA GB10"
)


@pytest.mark.parametrize(
    "found, parts",
    [
        (HOPPER, ()),
        (Numerics(), ()),
        (SPARK, ("kernel", "scheme", "gpu")),
        (replace(HOPPER, scheme="W4A4"), ("scheme",)),
        (replace(HOPPER, kv_cache="fp8"), ("kv_cache",)),
        (replace(HOPPER, gpu="none"), ("gpu",)),
        (replace(SPARK, kernel=None, scheme=None), ("gpu",)),
    ],
)
def test_the_parts_that_differ_are_named_and_what_is_not_known_is_none(
    found: Numerics, parts: tuple[Part, ...]
) -> None:
    assert tuple(it.part for it in differences(HOPPER, found)) == parts
    assert tuple(it.part for it in differences(found, HOPPER)) == parts


# ----------------------------------------------------------------------------- at the door

GOOD = examples.passing()
MADE = replace(GOOD, candidate=replace(GOOD.candidate, numerics=HOPPER))
OLD = GOOD


@pytest.mark.parametrize(
    "stated, found, rule, runs",
    [
        (MADE, HOPPER, NumericsRule(), True),
        (MADE, HOPPER, NumericsRule(required=True), True),
        (MADE, SPARK, NumericsRule(may_differ=("scheme", "gpu")), True),
        (MADE, Numerics(), NumericsRule(), True),
        (MADE, Numerics(), NumericsRule(required=True), False),  # before a start nothing has been logged
        (MADE, Numerics(), NumericsRule(may_differ=PARTS, required=True), True),
        (OLD, SPARK, NumericsRule(), True),
    ],
)
def test_a_report_opens_the_door(stated: Statement, found: Numerics, rule: NumericsRule, runs: bool) -> None:
    checks.numerics(stated, found, "spark", rule, runs=runs)


@pytest.mark.parametrize(
    "stated, found, rule, runs, said",
    [
        (MADE, SPARK, NumericsRule(), True, "quantization scheme was W4A16 in the report and is W4A4 here"),
        (MADE, SPARK, NumericsRule(may_differ=("kernel", "gpu")), True, 'may_differ = ["scheme"]'),
        (MADE, replace(HOPPER, kv_cache="fp8"), NumericsRule(), False, "KV cache was auto"),
        (MADE, Numerics(), NumericsRule(required=True), True, "is not known here"),
        (OLD, SPARK, NumericsRule(required=True), False, "does not say what computed its answers"),
    ],
)
def test_a_report_of_other_numerics_is_refused_with_what_to_do(
    stated: Statement, found: Numerics, rule: NumericsRule, runs: bool, said: str
) -> None:
    with pytest.raises(ReportError) as refused:
        checks.numerics(stated, found, "spark", rule, runs=runs)
    assert refused.value.code == "mismatch_numerics"
    line = str(refused.value)
    assert said in line and "\n" not in line
    assert f"manners gate run --candidate spark --baseline {GOOD.baseline.engine.name}" in line
