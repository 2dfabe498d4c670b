"""Engines that differ are no replicas of one model: the error names each difference."""

from pathlib import Path
from typing import Any

import pytest

from app.config.config import ConfigError, parse

MODELS = Path(__file__).parents[3] / "models"
WEIGHTS, OTHERS = str(MODELS / "annie-nano-q4_k_m"), str(MODELS / "annie-nano-f16")
FAR = {"dialect": "vllm", "driver": "url", "url": "http://one:9", "artefact": WEIGHTS}
NONE = {key: value for key, value in FAR.items() if key != "artefact"}
OURS = {"dialect": "llama-server", "driver": "embedded", "args": ["--ctx-size", "4096"], "artefact": WEIGHTS}


def replicas(first: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {"engines": {"one": first, "two": other}, "models": {"annie": {"live": ["one", "two"]}}}


def test_a_list_of_engines_of_one_artefact_is_live(tmp_path: Path) -> None:
    config = parse(replicas(FAR, {**FAR, "url": "http://two:9"}), tmp_path)
    assert config.models["annie"].live == ("one", "two")
    assert config.models["annie"].engines == ("one", "two")


UNLIKE: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "a key": (FAR, {**FAR, "numerics": {"scheme": "W4A4"}}, r"'two' is no replica of 'one': they differ in numerics; one report"),
    "more keys": (FAR, OURS, r"'two' is no replica of 'one': they differ in dialect, driver, args;"),
    "weights": (FAR, {**FAR, "artefact": OTHERS}, r"'two' is no replica of 'one': they differ in artefact;"),
    "no artefact": (NONE, {**NONE, "url": "http://two:9"}, r"'one' has no artefact, so that its weights cannot be compared"),
}  # fmt: skip


@pytest.mark.parametrize("first, other, why", UNLIKE.values(), ids=UNLIKE.keys())
def test_what_is_no_replica_is_refused_by_name(
    tmp_path: Path, first: dict[str, Any], other: dict[str, Any], why: str
) -> None:
    with pytest.raises(ConfigError, match=rf"^models.annie.live: {why}") as refused:
        parse(replicas(first, other), tmp_path)
    assert "\n" not in str(refused.value)
