"""Whether a machine has what a job takes, and what to change if it has not."""

from dataclasses import replace
from typing import Any

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
pytest.importorskip("torch", reason=INSTALL)

from quantizer.plan.machine import GIB, NAMED, GpuMemory, parse_gpu  # noqa: E402
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
    "text, gpu",
    [
        ("NVIDIA H200, 143771, 143200\n", GpuMemory("NVIDIA H200", 143771 << 20, 143200 << 20)),
        ("NVIDIA GB10, [N/A], [N/A]\n", GpuMemory("NVIDIA GB10")),
        ("NVIDIA GB10, 124610, 100000\n", GpuMemory("NVIDIA GB10")),
        ("Orin, Not Supported, Not Supported", GpuMemory("Orin")),
        ("", None),
        ("No devices were found", None),
        (", 1, 1", None),
    ],
)
def test_what_nvidia_smi_says_of_a_gpu(text: str, gpu: GpuMemory | None) -> None:
    assert parse_gpu(text) == gpu
