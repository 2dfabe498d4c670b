"""Whether a machine has what a job takes, and what to change if it has not."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quantizer.plan.machine import GIB, NAMED, GpuMemory, HostMemory, Machine, parse_gpu
from quantizer.plan.memory import HELD, PADDING, DataSize
from quantizer.plan.resources import gguf_shortage, plan
from quantizer.recipes.recipe import (
    Recipe,
    Train,
    load_recipe,
    shipped_recipes,
)
from tests.quantizer.plan.test_against_measurements import shape

SPARK, H200 = NAMED["spark"], NAMED["h200"]
LEAN = Train(optimizer="adamw_8bit", recompute=True)


def of(train: Train | None = None, **more: Any) -> Recipe:
    return Recipe("mine", train=train, **more)


def peak(recipe: Recipe, model: str = "9B") -> int:
    return plan(shape(model), recipe, H200).peak_device


# ------------------------------------------------------------------------------------------------ whether it fits


def test_training_all_weights_of_a_9b_fits_a_spark_in_few_bytes_only() -> None:
    exact, lean = (plan(shape("9B"), of(train), SPARK) for train in (Train(recompute=True), LEAN))

    assert (exact.fits, lean.fits) == (False, True)
    assert exact.short.keys() == {"memory"}


def test_where_memory_is_one_device_and_host_are_one_sum() -> None:
    made = plan(shape("9B"), of(LEAN), SPARK)

    assert made.needed.keys() == {"memory", "disk"}
    assert made.needed["memory"] > made.peak_device + min(phase.on_host for phase in made.phases)
    assert made.available["memory"] == SPARK.host.available - SPARK.host.floor  # type: ignore[union-attr]


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


@given(
    st.integers(1, 64),
    st.booleans(),
    st.sampled_from(["adamw", "adamw_8bit", "adamw_4bit"]),
    st.sampled_from(["ce", "kl"]),
)
def test_more_tokens_never_take_less(thousands: int, recompute: bool, optimizer: Any, loss: Any) -> None:
    def at(tokens: int) -> int:
        train = Train(
            recompute=recompute, optimizer=optimizer, loss=loss, batch_tokens=tokens, micro_tokens=tokens
        )
        return peak(of(train))

    assert at(1024 * thousands) <= at(1024 * (thousands + 1))


def test_two_processes_share_what_is_trained() -> None:
    one, two = (
        plan(shape("27B"), of(Train(recompute=True)), replace(H200, processes=count)).peak_device
        for count in (1, 2)
    )
    assert 0.45 * one < two < 0.65 * one


def test_quantizing_takes_a_layer_and_the_hidden_states() -> None:
    some, more = DataSize(512, 160_000), DataSize(512, 320_000)
    nine, twentyseven = (plan(shape(name), of(), H200, some).peak_device for name in ("9B", "27B"))

    assert nine < 8 * GIB and twentyseven < 1.6 * nine
    assert plan(shape("9B"), of(), H200, more).peak_device - nine == pytest.approx(
        160_000 * PADDING * HELD * 8192, rel=0.01
    )


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


# --------------------------------------------------------------------------------------------------- the file


def test_a_gguf_that_does_not_fit_says_so() -> None:
    poor = Machine(None, HostMemory(8 * GIB, 2 * GIB, GIB), disk=2 * GIB)  # a GiB is never too much
    why = gguf_shortage(shape("9B"), "q4_k_m", poor)

    assert why.startswith("needs 5.1 GiB of disk, and 2.0 GiB can be taken")
    assert gguf_shortage(shape("9B"), "q4_k_m", SPARK) == ""
