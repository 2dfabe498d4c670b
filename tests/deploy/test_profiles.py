"""Profiles: each shipped one is an engine's table that loads once its image is pinned, and that the doctor finds no fault with."""

from pathlib import Path

import pytest

from deploy.doctor.evidence import EngineFacts, Evidence, Gpu, HostFacts
from deploy.doctor.examine import examine
from deploy.engine.dialects import DIALECTS
from deploy.engine.spec import EngineSpec
from tests.deploy.profiles import NAMES, profile

PIN = "@sha256:" + "0" * 64


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_profile_becomes_an_engine_without_unknown_or_unsafe_flags(name: str) -> None:
    table = profile(name)
    args = tuple(table.pop("args", ()))
    if "image" in table:
        table["image"] += PIN
    if "artefact" in table:
        table["artefact"] = Path(table["artefact"])
    spec = EngineSpec(name=name, args=args, **table)
    assert DIALECTS[spec.dialect].odd_flag(args) is None
    assert not {"--trust-remote-code", "--enable-sleep-mode"} & set(args)


@pytest.mark.parametrize("name", [name for name in NAMES if profile(name)["driver"] == "docker"])
def test_what_is_recommended_has_no_fault_that_a_flag_could_have_and_the_notes_recipes_do(name: str) -> None:
    table = profile(name)
    engine = EngineFacts(
        dialect=table["dialect"], driver="docker", image=f"{table['image']}{PIN}", args=tuple(table["args"])
    )
    spark = HostFacts(architecture="aarch64", gpus=(Gpu(name="NVIDIA GB10", capability="12.1"),))
    found = examine(Evidence(host=spark, engines={"it": engine}))
    wrong = {f.id for f in found if f.engine and f.state in ("fail", "warn")}
    expected = {
        "notes-vllm-nvfp4-9b": {"image.nightly", "engine.graphs"},
        "vllm-nvfp4-9b-eager": {"engine.graphs"},
    }
    assert wrong == expected.get(name, set())
