"""One pass over the data: what each layer read, without the padding, and once for those that read the same."""

from typing import Any

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
torch = pytest.importorskip("torch", reason=INSTALL)
pytest.importorskip("transformers", reason=INSTALL)


from quantizer.core.batch import Batch  # noqa: E402
from quantizer.core.decoder import hidden_states  # noqa: E402
from quantizer.core.errors import DataError  # noqa: E402
from quantizer.layers.attach import attach, make_plan  # noqa: E402
from quantizer.layers.linear import nvfp4_layers, unquantized  # noqa: E402
from quantizer.ptq.calibrate import calibrate, observe  # noqa: E402
from quantizer.recipes.recipe import Layers  # noqa: E402
from tests.quantizer import folders, tiny  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]


def quantized(build: Any = tiny.qwen3) -> Any:
    model = build()
    attach(model, make_plan(model, Layers()))
    return model


def inputs_of(model: Any, name: str, batch: Batch) -> Any:
    """What a layer of the unquantized model reads, padding left out."""
    caught = []
    hook = model.get_submodule(name).register_forward_pre_hook(lambda layer, args: caught.append(args[0]))
    with torch.no_grad(), unquantized(model):
        hidden_states(model, batch)
    hook.remove()
    return caught[0][batch.attention].float()


@pytest.mark.parametrize("build", folders.BUILDS)
def test_what_a_layer_read_is_recorded_without_the_padding(build: Any) -> None:
    model, batches = quantized(build), [folders.batch(0, padded=True), folders.batch(1)]
    seen = observe(model, batches, nvfp4_layers(model))
    for name in nvfp4_layers(model):
        x = torch.cat([inputs_of(model, name, batch) for batch in batches])

        assert seen[name].tokens == len(x) == 124
        assert torch.equal(seen[name].amax, x.abs().amax(dim=0))
        torch.testing.assert_close(seen[name].mean, x.abs().mean(dim=0).bfloat16().float(), rtol=0.01, atol=0)
        torch.testing.assert_close(seen[name].gram, x.T @ x, rtol=1e-4, atol=1e-3)


def test_a_model_that_overflows_is_named_by_its_layer() -> None:
    model = quantized()
    with torch.no_grad():
        model.model.layers[0].input_layernorm.weight[3] = float("inf")

    with pytest.raises(DataError, match=r"layers\.0\.self_attn\.q_proj: its input is NaN or infinite"):
        calibrate(model, [folders.batch()])
