"""The kernel for a panel of columns: what torch computes column by column, to the bit, on a GPU or in Triton's interpreter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
torch = pytest.importorskip("torch", reason=INSTALL)
pytest.importorskip("transformers", reason=INSTALL)

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import quantizer.ptq  # noqa: E402
from quantizer.core.cost import Cost, default_device  # noqa: E402
from quantizer.core.errors import SourceError  # noqa: E402
from quantizer.layers.attach import attach, make_plan  # noqa: E402
from quantizer.layers.linear import nvfp4_layers  # noqa: E402
from quantizer.nvfp4 import blocks, grid  # noqa: E402
from quantizer.ptq import feedback, scales  # noqa: E402
from quantizer.ptq.calibrate import InputStats, gram  # noqa: E402
from quantizer.recipes.recipe import Layers  # noqa: E402
from tests.quantizer import tiny  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]
DEVICE = default_device()
INFINITY = float("inf")


@pytest.fixture(scope="module")
def kernel() -> Any:
    pytest.importorskip("triton", reason="needs Triton: pip install triton")
    from quantizer.ptq import panel_kernel

    return panel_kernel


# ------------------------------------------------------------------------------------------------ the rounding's table


@given(st.floats(-9, 9, width=32))
def test_the_table_of_borders_is_the_rounding(x: float) -> None:
    beside = torch.tensor([x, *grid.BORDERS])
    numbers = torch.cat([beside, beside.nextafter(torch.tensor(9.0)), beside.nextafter(torch.tensor(-9.0))])
    place = torch.bucketize(numbers, torch.tensor(grid.BORDERS))
    assert torch.equal(torch.tensor(grid.VALUES)[place], grid.nearest(numbers))


# ------------------------------------------------------------------------------------------------ kernel and torch


def panel(seed: int, rows: int, columns: int, kind: str) -> tuple[Any, Any, Any, Any]:
    """left, whole, steps and a part of a larger factor."""
    generator = torch.Generator().manual_seed(seed)
    whole, change = (torch.randn(columns, rows, generator=generator) for _ in range(2))
    steps = torch.rand(columns, rows, generator=generator) + 0.05
    upper = torch.randn(columns + 7, columns + 7, generator=generator)[5:-2, 3:-4].contiguous().triu()
    wide = torch.zeros(columns, columns + 9)
    wide[:, 4:-5] = 0.3 * upper
    if kind == "ties":
        steps = torch.exp2(torch.randint(-3, 3, steps.shape, generator=generator).float())
        whole = steps * torch.randint(-28, 29, steps.shape, generator=generator) / 4
        change.zero_()
        wide[:, 4:-5] = torch.randint(-1, 2, upper.shape, generator=generator).float().triu()
    if kind == "dead":  # columns of zeros, and columns whose errors go nowhere
        whole[::3] = change[::3] = 0
        wide[1::4] = 0
    if kind == "extremes":
        steps = torch.exp2(torch.randint(-126, 100, steps.shape, generator=generator).float())
        whole = steps * torch.exp2(torch.randint(-20, 20, steps.shape, generator=generator).float())
        change, wide = whole * change, wide * 1e-6
    return tuple(one.to(DEVICE) for one in (whole + change, whole, steps, wide[:, 4:-5]))  # type: ignore[return-value]


@settings(max_examples=12, deadline=None)
@given(
    st.integers(0, 2**31),
    st.sampled_from([1, 5, 31, 32, 33, 70]),
    st.sampled_from([1, 2, 16, 48]),
    st.sampled_from(["random", "ties", "dead", "extremes"]),
)
def test_the_kernel_rounds_as_torch_does_to_the_bit(
    kernel: Any, seed: int, rows: int, columns: int, kind: str
) -> None:
    left, whole, steps, upper = panel(seed, rows, columns, kind)
    made, wanted = torch.full_like(left, INFINITY), torch.empty_like(left)
    before = left.clone()
    with np.errstate(all="ignore"):  # the interpreter's quotients overflow as a GPU's do
        error = kernel.round_panel(left, whole, steps, upper, made)
    assert torch.equal(left, before)
    assert torch.equal(feedback.round_panel(left, whole, steps, upper, wanted), error)
    assert torch.equal(made, wanted) and torch.isfinite(made).all()


def test_a_panel_of_all_columns_agrees(kernel: Any) -> None:
    assert feedback.agrees(kernel.round_panel, torch.device(DEVICE))


def test_a_weight_comes_out_the_same(kernel: Any) -> None:
    """Two panels, the second one narrower, and rows that fill no tile."""
    generator = torch.Generator().manual_seed(1)
    weight, inputs = torch.randn(19, 176, generator=generator), torch.randn(300, 176, generator=generator)
    inputs[:, :20] = inputs[:, 20:40]
    weight, inputs = weight.to(DEVICE), inputs.to(DEVICE)
    second = blocks.tensor_scale(weight.abs().amax())
    step = blocks.step(scales.sweep(weight, second), second)
    factor = feedback.factor_of(gram(inputs), 0.03)
    found = feedback.fed_back(weight, step, factor, kernel.round_panel)
    assert torch.equal(found, feedback.fed_back(weight, step, factor, feedback.round_panel))


COMPILE = """
import json, subprocess, sys, tempfile, triton
from pathlib import Path
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from quantizer.ptq import panel_kernel as panel

sizes = {"COLUMNS": 128, "WIDTH": 128, "ROWS": panel.ROWS}
types = dict.fromkeys(("left", "whole", "steps", "factor", "made", "error"), "*fp32") | dict.fromkeys(("rows", "stride"), "i32")
aligned = {(place,): [["tt.divisibility", 16]] for place in range(len(types))}
source = ASTSource(panel._panel, types | dict.fromkeys(sizes, "constexpr"), sizes, aligned)
found = {}
for capability in (90, 121):
    made = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=panel.OPTIONS)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(made.asm["cubin"])
        file.flush()
        tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
        used = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True).stdout
    found[capability] = [made.asm["ptx"], used]
json.dump(found, sys.stdout)
"""


@pytest.mark.slow  # compiles for two GPUs, in a process in which kernels are not interpreted
def test_the_kernel_compiles_for_hopper_and_for_a_spark(kernel: Any) -> None:
    """Nothing is fused, every division is IEEE's, and registers are enough."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", COMPILE], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found.keys() == {"90", "121"}
    for ptx, used in found.values():
        assert "fma.rn.f32" not in ptx and "div.rn.f32" in ptx and "div.full" not in ptx and ".ftz" not in ptx
        assert "STACK:0" in used and "LOCAL:0" in used


# --------------------------------------------------------------------------------------------------- what is chosen


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A CUDA device with Triton, as far as `best_panel` asks."""
    found = SimpleNamespace(round_panel=lambda *some: None, FAILURES=(RuntimeError,))
    monkeypatch.setattr(quantizer.ptq, "panel_kernel", found, raising=False)
    monkeypatch.setattr(feedback, "find_spec", lambda name: name)
    feedback.best_panel.cache_clear()
    yield found
    feedback.best_panel.cache_clear()


def test_the_kernel_is_for_cuda_with_triton(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feedback, "agrees", lambda panel, device: panel is gpu.round_panel)
    assert feedback.best_panel(torch.device("cpu")) is feedback.round_panel
    assert feedback.best_panel(torch.device("cuda")) is gpu.round_panel
    monkeypatch.setattr(feedback, "find_spec", lambda name: None)
    assert feedback.best_panel(torch.device("cuda", 1)) is feedback.round_panel


def test_a_kernel_that_computes_otherwise_is_not_used(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def rounds_worse(*some: Any) -> Any:
        error = feedback.round_panel(*some)
        some[-1][-1, -1] += 1e-3
        return error

    assert feedback.agrees(feedback.round_panel, torch.device("cpu"))
    assert not feedback.agrees(rounds_worse, torch.device("cpu"))
    monkeypatch.setattr(feedback, "agrees", lambda panel, device: False)
    with pytest.warns(UserWarning, match="Triton computes otherwise here"):
        assert feedback.best_panel(torch.device("cuda")) is feedback.round_panel


def test_a_kernel_that_does_not_compile_is_not_used(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def agrees(*some: Any) -> bool:
        raise RuntimeError("Failed to find C compiler")

    monkeypatch.setattr(feedback, "agrees", agrees)
    with pytest.warns(UserWarning, match="as Triton does not: Failed to find C compiler"):
        assert feedback.best_panel(torch.device("cuda")) is feedback.round_panel


# ------------------------------------------------------------------------------------------------ how much is asked


class Calls(TorchDispatchMode):
    """Counts what is asked of a device."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's own
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func.__name__.split(".")[0])
        return func(*args, **(kwargs or {}))


def calls_of_a_round(columns: int) -> list[str]:
    """With a kernel that does nothing."""
    weight, step = torch.randn(8, columns), torch.ones(8, columns // 16)
    factor = feedback.factor_of(torch.eye(columns), 0.03)
    with Calls() as calls:
        feedback.fed_back(weight, step, factor, lambda left, *rest: torch.zeros_like(left))
    return [name for name in calls.names if name not in ("slice", "t", "transpose", "detach")]


def test_the_device_is_asked_a_few_times_a_panel_not_a_column() -> None:
    few, more = len(calls_of_a_round(128)), len(calls_of_a_round(4 * 128))
    assert (more - few) / 3 < 8 and few < 20


def test_layers_that_read_the_same_are_factored_once_and_nothing_is_inverted() -> None:
    model = tiny.qwen3()
    block = model.model.layers[0]
    attach(block, make_plan(block, Layers()))
    scales.set_scales(block, "mse")
    layers, seen = nvfp4_layers(block), dict[str, InputStats]()
    for names in (("q", "k", "v"), ("o",), ("gate", "up"), ("down",)):
        members = [name for name in layers if name.split(".")[-1].split("_")[0] in names]
        x = torch.randn(80, layers[members[0]].in_features)
        seen |= dict.fromkeys(members, InputStats(x[0], x[0], gram(x), 80))
    with Calls() as calls:
        cost = Cost("cpu")
        feedback.round_with_feedback(block, seen, 0.03, cost)
    assert seen.keys() == layers.keys()
    assert [name for name in calls.names if "linalg" in name or "inverse" in name or "solve" in name] == [
        "linalg_cholesky_ex"
    ] * 4
    assert cost.seconds.keys() == {"factor", "feedback"}


# ---------------------------------------------------------------------------------------------------------- the factor


def test_a_factor_is_the_gram_matrix() -> None:
    """To float32, relative to the entries' rows: as near as sums of products in float32 are."""
    x = torch.randn(200, 48, generator=torch.Generator().manual_seed(0)) * torch.logspace(-1, 1, 48)
    order, upper = feedback.factor_of(gram(x), 1e-6)
    wanted, exact = gram(x).double()[order][:, order], upper.double()
    wanted.diagonal().add_(1e-6 * wanted.diagonal().mean())
    inverse = exact.inverse()
    pivots = (inverse @ wanted @ inverse.T).diagonal()
    size = wanted.diagonal().sqrt()
    off = (exact * pivots @ exact.T - wanted) / (size[:, None] * size)
    assert torch.equal(upper, upper.triu()) and (upper.diagonal() == 1).all() and upper.is_contiguous()
    assert off.abs().max() < 2e-6


def test_what_is_too_much_for_float32_is_factored_in_float64() -> None:
    """Inputs that are mixed from eight, with next to no damping."""
    generator = torch.Generator().manual_seed(0)
    mixed = torch.randn(1000, 8, generator=generator) @ torch.randn(8, 512, generator=generator)
    with Calls() as calls:
        _, upper = feedback.factor_of(gram(mixed.bfloat16().float()), 1e-6)
    assert calls.names.count("linalg_cholesky_ex") == 2 and torch.isfinite(upper).all()
    with Calls() as calls:
        feedback.factor_of(gram(mixed), 0.03)
    assert calls.names.count("linalg_cholesky_ex") == 1


def test_inputs_that_are_no_gram_matrix_are_refused() -> None:
    with pytest.raises(SourceError, match=r"do not vary enough for damping = 0\.03; raise it"):
        feedback.factor_of(torch.tensor([[1.0, 9.0], [9.0, 1.0]]), 0.03)
