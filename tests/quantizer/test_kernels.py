"""Kernels in Triton: what torch computes in many, to the bit where that is said, on a GPU or in Triton's interpreter."""

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

from quantizer.core import kernels  # noqa: E402
from quantizer.core.cost import default_device  # noqa: E402
from quantizer.nvfp4 import grid  # noqa: E402
from quantizer.ptq import feedback  # noqa: E402
from quantizer.ptq.calibrate import gram  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]
DEVICE = default_device()
INFINITY = float("inf")


@pytest.fixture(scope="module")
def kernel() -> Any:
    pytest.importorskip("triton", reason="needs Triton: make .venv/.triton")
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


COMPILE = """
import json, subprocess, sys, tempfile, triton
from pathlib import Path
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from quantizer.ptq import panel_kernel as panel

found = {}


def compile(name, kernel, options, types, sizes):
    aligned = {(place,): [["tt.divisibility", 16]] for place in range(len(types))}
    source = ASTSource(kernel, types | dict.fromkeys(sizes, "constexpr"), sizes, aligned)
    for capability in (90, 121):
        made = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            file.write(made.asm["cubin"])
            file.flush()
            tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
            used = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True).stdout
        found[f"{name} {capability}"] = [made.asm["ptx"], used]


tensors = ("left", "whole", "steps", "factor", "made", "error")
compile("panel", panel._panel, panel.OPTIONS, dict.fromkeys(tensors, "*fp32") | {"rows": "i32", "stride": "i32"},
        {"COLUMNS": 128, "WIDTH": 128, "ROWS": panel.ROWS})
json.dump(found, sys.stdout)
"""


@pytest.mark.slow  # compiles for two GPUs, in a process in which kernels are not interpreted
def test_the_kernels_compile_for_hopper_and_for_a_spark(kernel: Any) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", COMPILE], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found) == 2
    for ptx, used in found.values():
        assert "fma.rn.f32" not in ptx and "div.rn.f32" in ptx and "div.full" not in ptx and ".ftz" not in ptx
        assert "STACK:0" in used and "LOCAL:0" in used


# --------------------------------------------------------------------------------------------------- what is chosen


@pytest.fixture
def triton(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Triton and a module of kernels, as far as `kernels.best` looks."""
    made = SimpleNamespace(round_panel=lambda *some: None)
    monkeypatch.setattr(kernels, "find_spec", lambda name: name)
    monkeypatch.setattr(kernels, "import_module", lambda name: made)
    monkeypatch.setitem(sys.modules, "triton", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "triton.errors", SimpleNamespace(TritonError=KeyError))
    return made


def chosen(agrees: Any, device: str = "cuda") -> Any:
    return kernels.best(torch.device(device), "a.module", "round_panel", feedback.round_panel, agrees)


def test_a_kernel_that_computes_otherwise_is_not_used(triton: Any) -> None:
    def rounds_worse(*some: Any) -> Any:
        error = feedback.round_panel(*some)
        some[-1][-1, -1] += 1e-3
        return error

    assert feedback.agrees(feedback.round_panel, torch.device("cpu"))
    assert not feedback.agrees(rounds_worse, torch.device("cpu"))
    with pytest.warns(UserWarning, match=r"a\.module: .* it computes otherwise here"):
        assert chosen(lambda *some: False) is feedback.round_panel


@pytest.mark.parametrize(
    "error", [RuntimeError("Failed to find C compiler"), KeyError("Failed to find C compiler")]
)
def test_a_kernel_that_does_not_compile_is_not_used(triton: Any, error: Exception) -> None:
    def agrees(*some: Any) -> bool:
        raise error

    with pytest.warns(UserWarning, match="instead of Triton's kernel: .*Failed to find C compiler"):
        assert chosen(agrees) is feedback.round_panel


# ------------------------------------------------------------------------------------------------ how much is asked


class Calls(TorchDispatchMode):
    """Counts what is asked of a device."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's own
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func.__name__.split(".")[0])
        return func(*args, **(kwargs or {}))


# ---------------------------------------------------------------------------------------------------------- the factor


def test_what_is_too_much_for_float32_is_factored_in_float64() -> None:
    generator = torch.Generator().manual_seed(0)
    mixed = torch.randn(1000, 8, generator=generator) @ torch.randn(8, 512, generator=generator)
    with Calls() as calls:
        _, upper = feedback.factor_of(gram(mixed.bfloat16().float()), 1e-6)
    assert calls.names.count("linalg_cholesky_ex") == 2 and torch.isfinite(upper).all()
    with Calls() as calls:
        feedback.factor_of(gram(mixed), 0.03)
    assert calls.names.count("linalg_cholesky_ex") == 1
