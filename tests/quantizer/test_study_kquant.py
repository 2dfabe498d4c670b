"""Q4_K_M in torch beside ggml's own."""

from typing import Any

import numpy as np
import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
torch = pytest.importorskip("torch", reason=INSTALL)
gguf = pytest.importorskip("gguf", reason=INSTALL)
pytest.importorskip("xllamacpp", reason=INSTALL)

from gguf import GGMLQuantizationType as Type  # noqa: E402

from quantizer.experiments.study import kquant  # noqa: E402
from quantizer.gguf import ggml  # noqa: E402


def _ggml(weight: Any, kind: Type) -> Any:
    return torch.from_numpy(np.array(gguf.quants.dequantize(ggml.quantize(weight.numpy(), kind), kind)))


@pytest.mark.parametrize("kind", [Type.Q4_K, Type.Q6_K, Type.Q5_0, Type.Q8_0])
def test_a_matrix_is_rounded_as_ggml_rounds_it(kind: Type) -> None:
    torch.manual_seed(1)
    weight = torch.randn(64, 768) * 0.03
    weight[3, :256] = 0
    ours, theirs = kquant.rounded(weight, kind), _ggml(weight, kind)
    assert (ours - theirs).abs().gt(1e-6).float().mean() < 0.02  # ties of the search
    errors = [float((one - weight).square().sum()) for one in (ours, theirs)]
    assert errors[0] == pytest.approx(errors[1], rel=2e-3)
