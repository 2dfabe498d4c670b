"""The chunked delta rule beside transformers' own, forward and backward, in float64 and in BF16."""

import inspect
from typing import Any

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
torch = pytest.importorskip("torch", reason=INSTALL)
pytest.importorskip("transformers", reason=INSTALL)

from transformers.models.qwen3_5 import modeling_qwen3_5  # noqa: E402

from quantizer.layers.delta_rule import CHUNK, chunk_gated_delta_rule  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]


def plain(name: str = "torch_chunk_gated_delta_rule", dtype: str = "float64") -> Any:
    """Transformers' own function, in another type than its float32."""
    function = inspect.unwrap(getattr(modeling_qwen3_5, name))
    source = inspect.getsource(function).replace("torch.float32", f"torch.{dtype}")
    scope = dict(vars(modeling_qwen3_5))
    exec(source[source.index("def ") :], scope)
    return lambda **given: scope[function.__name__](**given, use_qk_l2norm_in_kernel=True)[0]


def inputs(
    tokens: int,
    heads: int = 2,
    groups: int = 2,
    rows: int = 2,
    width: tuple[int, int] = (8, 6),
    dtype: Any = None,
) -> dict[str, Any]:
    """Random ones: decays from nothing to all, rates from 0 to 1."""
    generator = torch.Generator().manual_seed(tokens)

    def normal(*shape: int) -> Any:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    made = {
        "query": normal(rows, tokens, heads, width[0]),
        "key": normal(rows, tokens, heads, width[0]),
        "value": normal(rows, tokens, heads * groups, width[1]),
        "g": -normal(rows, tokens, heads * groups).exp() * 0.3,
        "beta": normal(rows, tokens, heads * groups).sigmoid(),
    }
    return {name: tensor.to(dtype or torch.float64) for name, tensor in made.items()}


def outcome(rule: Any, given: dict[str, Any], **options: Any) -> dict[str, Any]:
    """Outputs, and the gradients of a random weighting of them."""
    given = {name: tensor.detach().clone().requires_grad_() for name, tensor in given.items()}
    out = rule(**given, **options)
    generator = torch.Generator().manual_seed(1)
    (out.double() * torch.randn(out.shape, generator=generator, dtype=torch.float64)).sum().backward()
    return {"out": out.detach(), **{name: tensor.grad for name, tensor in given.items()}}


def off(found: Any, wanted: Any) -> float:
    """Relative distance."""
    return float((found.double() - wanted.double()).norm() / wanted.double().norm())


@pytest.mark.parametrize("keep", [False, True], ids=["computed again", "kept"])
@pytest.mark.parametrize(
    "shape",
    [
        {"tokens": 2 * CHUNK},
        {"tokens": 3 * CHUNK + 17},
        {"tokens": 2},
        {"tokens": CHUNK - 1, "heads": 1, "groups": 3},
        {"tokens": CHUNK + 1, "heads": 3, "groups": 1, "rows": 1},
    ],
    ids=str,
)
def test_values_and_gradients_are_transformers_own(shape: dict[str, Any], keep: bool) -> None:
    given = inputs(**shape)
    found, wanted = outcome(chunk_gated_delta_rule, given, keep=keep), outcome(plain(), given)

    assert {name: off(found[name], wanted[name]) < 1e-8 for name in wanted} == dict.fromkeys(wanted, True)
