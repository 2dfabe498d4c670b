"""Whether a machine has what a job takes, and what to change if it has not."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
pytest.importorskip("torch", reason=INSTALL)

from quantizer.plan.machine import GIB, NAMED, GpuMemory, read_gpu  # noqa: E402
from quantizer.plan.memory import DataSize  # noqa: E402
from quantizer.plan.resources import plan  # noqa: E402
from quantizer.recipes.recipe import (  # noqa: E402
    Recipe,
    Train,
    load_recipe,
    shipped_recipes,
)
from tests.quantizer.plan.test_against_measurements import shape  # noqa: E402

pytestmark = pytest.mark.torch

SPARK, H200 = NAMED["spark"], NAMED["h200"]
LEAN = Train(optimizer="adamw_8bit", recompute=True)


def of(train: Train | None = None, **more: Any) -> Recipe:
    return Recipe("mine", train=train, **more)


# ------------------------------------------------------------------------------------------------ whether it fits


def test_a_full_disk_is_told_with_the_numbers() -> None:
    made = plan(shape("9B"), of(LEAN), replace(H200, disk=20 * GIB))

    assert made.fits is False and made.short.keys() == {"disk"}
    assert "GiB of disk, and 20.0 GiB can be taken; free some of the disk" in made.why


def test_what_is_advised_takes_less_and_can_be_set() -> None:
    recipe = load_recipe("qat")
    made = plan(shape("9B"), recipe, SPARK)
    changes = [word for word in made.advice.partition(", or ")[0].split() if "=" in word]

    assert changes[:2] == ["train.recompute=true", "train.optimizer=adamw_8bit"]
    assert (made.fits, plan(shape("9B"), load_recipe("qat", changes), SPARK).fits) == (False, True)


# ------------------------------------------------------------------------------------------------- formulas


@pytest.mark.parametrize("name", shipped_recipes())
def test_every_shipped_recipe_has_a_plan(name: str) -> None:
    recipe = load_recipe(name)
    made = plan(shape("9B"), recipe, SPARK, DataSize(430, 137_600))

    assert made.peak_device > 2 * GIB
    assert made.as_json()["disk_bytes"] > 0


def test_two_processes_share_what_is_trained() -> None:
    one, two = (
        plan(shape("27B"), of(Train(recompute=True)), replace(H200, processes=count)).peak_device
        for count in (1, 2)
    )
    assert 0.45 * one < two < 0.65 * one


# ----------------------------------------------------------------------------------------------- the machine


@pytest.mark.parametrize(
    "device, name, integrated, gpu",
    [
        ("cuda", "NVIDIA H200", 0, GpuMemory("NVIDIA H200", 30 + 1, 20 + 1)),
        ("cuda:3", "NVIDIA H200", 0, GpuMemory("NVIDIA H200", 30 + 3, 20 + 3)),
        ("cuda", "NVIDIA GB10", 0, GpuMemory("NVIDIA GB10")),
        ("cuda", "Orin", 1, GpuMemory("Orin")),
    ],
)
def test_a_process_reads_its_own_gpu(
    device: str, name: str, integrated: int, gpu: GpuMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = SimpleNamespace(name=name, is_integrated=integrated)
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda index: found)
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda index: (20 + index, 30 + index))
    assert read_gpu(device) == gpu
