"""`manners quantize risk`: a larger change survives better."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
torch = pytest.importorskip("torch", reason=INSTALL)

from app.__main__ import main  # noqa: E402
from tests.quantizer.checkpoints import save_source, weights  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]


def tuned(strength: float) -> dict[str, Any]:
    """The weights after a fine-tune, whose change is so many times the weights' size."""
    generator = torch.Generator().manual_seed(5)
    return {
        name: (old.float() + 0.05 * strength * torch.randn(old.shape, generator=generator)).to(torch.bfloat16)
        for name, old in weights().items()
    }


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return save_source(tmp_path / "base", weights())


def told(base: Path, source: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    code = main(
        ["quantize", "risk", "--base", str(base), "--source", str(source), "--device", "cpu", "--json"]
    )
    assert code == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_a_smaller_change_is_at_a_higher_risk(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = []
    for strength in (0.001, 0.02, 1.0):
        source = save_source(tmp_path / f"{strength}", tuned(strength))
        found.append(told(base, source, capsys))
    for name in ("cosine", "delta_to_step"):
        figures = [one["whole"][name] for one in found]
        assert figures == sorted(set(figures))
    assert told(base, base, capsys)["whole"]["moved"] == 0


Q_PROJ = "model.layers.0.self_attn.q_proj.weight"
Change = Callable[[dict[str, Any]], dict[str, Any]]
WITH_NAN: Change = lambda t: t | {Q_PROJ: t[Q_PROJ] * float("nan")}  # noqa: E731
BAD: dict[str, tuple[Change, Change, str]] = {
    "a layer that the base lacks": (lambda t: {n: x for n, x in t.items() if n != Q_PROJ}, dict, f"has no {Q_PROJ}"),
    "another shape": (lambda t: t | {Q_PROJ: t[Q_PROJ][:16].clone()}, dict, "in the base and"),
    "a base with a NaN": (WITH_NAN, dict, "holds NaN or infinity"),
    "a quantized base": (lambda t: t | {Q_PROJ: t[Q_PROJ].to(torch.uint8)}, dict, "is U8; give the model before"),
    "a fine-tune with a NaN": (dict, WITH_NAN, f"{Q_PROJ} holds NaN or infinity"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_compared_is_one_line(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    *spoil, said = BAD[case]
    base, source = (save_source(tmp_path / f"{i}", change(weights())) for i, change in enumerate(spoil))

    assert main(["quantize", "risk", "--base", str(base), "--source", str(source), "--device", "cpu"]) == 66
    assert said in capsys.readouterr().err
