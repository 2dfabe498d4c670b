"""The gated delta rule in chunks (Gated DeltaNet, arXiv 2412.06464).

A head has a state S [dk, dv]; a token t has a query, a key, a value, a log of a decay g <= 0 and a rate beta:

  S <- exp(g_t) S;   S <- S + beta_t k_t (v_t - S^T k_t)^T;   o_t = S^T q_t

Within a chunk of `CHUNK` tokens the steps are solved at once (the WY form, arXiv 2406.06484). With b the cumulated g of a
chunk, D[i, j] = exp(b_i - b_j) on and below the diagonal, and S the state before the chunk:

  A = strictly lower part of beta_i (k_i . k_j) D[i, j],    T = (I + A)^-1
  U = T (beta v),   W = T (beta exp(b) k),   V' = U - W S       the values that are really written
  O = (exp(b) q) S + P V',   P = (q_i . k_j) D[i, j]
  S' = exp(b_C) S + R^T V' = exp(b_C) S + R^T U - (R^T W) S,    R = exp(b_C - b_i) k

Everything but the last line is a batched product over all chunks. T is built by inverting diagonal blocks of doubled size
each time, which is as stable as substitution (a product of powers of A is not: they can grow to 1e18).

Arithmetic is in float32, on a GPU with TF32 products in the forward pass except for T; for float64 inputs it is in float64.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

CHUNK: Final = 64
"""Tokens in a chunk; a power of two."""
SMALL: Final = 16
"""Rows of a block whose inverse is computed in one piece."""
EPS: Final = 1e-6
"""Of the normalization of queries and keys, as in transformers and flash-linear-attention."""


class _Inputs(NamedTuple):
    """By chunk, in float32 or float64. The first dimension is chunks * rows * key heads, the second the value heads of a key head.

    q, k: [.., 1, CHUNK, dk], normalized, q scaled. v: [.., groups, CHUNK, dv]. b, beta: [.., groups, CHUNK].
    """

    q: Tensor
    k: Tensor
    v: Tensor
    b: Tensor
    beta: Tensor


@torch.compiler.disable
def chunk_gated_delta_rule(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    g: Tensor,
    beta: Tensor,
    *,
    keep: bool = False,
    compiled: bool = False,
) -> Tensor:
    """Outputs of all tokens [rows, tokens, value heads, dv]; queries and keys are normalized here.

    query, key: [rows, tokens, key heads, dk]. value: [rows, tokens, value heads, dv]. g, beta: [rows, tokens, value heads].
    keep: keep what the backward pass needs (some 40 times the bytes of the value) instead of computing it again. compiled:
    elementwise work by torch.compile. Raises ValueError if the value heads are no multiple of the key heads.
    """
    if value.shape[2] % key.shape[2]:
        raise ValueError(f"{value.shape[2]} value heads cannot share {key.shape[2]} key heads evenly")
    inputs = (query, key, value, g, beta)
    if keep or not torch.is_grad_enabled():
        return _rule(*inputs, compiled)
    out: Tensor = checkpoint(_rule, *inputs, compiled, use_reentrant=False)
    return out


def _rule(query: Tensor, key: Tensor, value: Tensor, g: Tensor, beta: Tensor, compiled: bool) -> Tensor:
    ready = _piece(_prepare, compiled)(query, key, value, g, beta)
    with _products(query, "high"):  # TF32: the inputs have 8 bits, and TF32's products 11
        a = _piece(_system, compiled)(ready)
        with _products(query, "highest"):  # errors of an inverse grow with the condition of its matrix
            t = _piece(_inverse, compiled)(a)
        w, u, change, add = _piece(_transitions, compiled)(ready, t)
        states = _scan(ready, change, add, len(value) * value.shape[2])
        out = _piece(_outputs, compiled)(ready, u, w, states)
    return _piece(_merge, compiled)(out, value).to(query.dtype)  # type: ignore[no-any-return]


# --------------------------------------------------------------------------------------------- in and out


def _prepare(query: Tensor, key: Tensor, value: Tensor, g: Tensor, beta: Tensor) -> _Inputs:
    """The inputs by chunk. Padding has rate 0 and decay 0, so it moves no state."""
    dtype = torch.float64 if query.dtype == torch.float64 else torch.float32
    heads, groups = key.shape[2], value.shape[2] // key.shape[2]
    q, k = (_normalized(x.to(dtype)) for x in (query, key))
    q = _chunks(q * key.shape[-1] ** -0.5, heads, 1)
    decay, rate = (_chunks(x.to(dtype)[..., None], heads, groups).squeeze(-1) for x in (g, beta))
    return _Inputs(
        q, _chunks(k, heads, 1), _chunks(value.to(dtype), heads, groups), decay.cumsum(-1), rate.contiguous()
    )


def _normalized(x: Tensor) -> Tensor:
    """Vectors of length 1."""
    return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + EPS)


def _chunks(x: Tensor, heads: int, groups: int) -> Tensor:
    """[rows, tokens, heads * groups, d] to [chunks * rows * heads, groups, CHUNK, d], padded with zeros."""
    rows, tokens, _, width = x.shape
    x = F.pad(x, (0, 0, 0, 0, 0, -tokens % CHUNK))
    x = x.reshape(rows, -1, CHUNK, heads, groups, width).permute(1, 0, 3, 4, 2, 5)
    return x.contiguous().flatten(0, 2)


def _merge(x: Tensor, like: Tensor) -> Tensor:
    """[chunks * rows * heads, groups, CHUNK, d] to [rows, tokens, heads * groups, d], tokens and rows those of `like`."""
    rows, tokens = like.shape[:2]
    chunks = -(-tokens // CHUNK)
    x = x.view(chunks, rows, len(x) // (chunks * rows), *x.shape[1:]).permute(1, 0, 4, 2, 3, 5)
    return x.flatten(3, 4).flatten(1, 2)[:, :tokens]


# --------------------------------------------------------------------------------------------- the rule


def _system(ready: _Inputs) -> Tensor:
    """A: [.., CHUNK, CHUNK]."""
    a = (ready.k @ ready.k.mT) * _decay(ready.b) * ready.beta[..., None]
    return a.tril(-1)


def _decay(b: Tensor) -> Tensor:
    """D: [.., CHUNK] to [.., CHUNK, CHUNK]. What lies above the diagonal could overflow, so it is left out before exp."""
    place = torch.arange(CHUNK, device=b.device)
    return torch.where(place[:, None] >= place, b[..., :, None] - b[..., None, :], -torch.inf).exp()


def _inverse(a: Tensor) -> Tensor:
    """(I + A)^-1 for strictly lower matrices [.., CHUNK, CHUNK], by diagonal blocks of doubled size each time.

    From the inverses T1 and T2 of two neighbours, what is missing for the block of both is -T2 A21 T1.
    """
    shape, a = a.shape, a.flatten(0, -3)
    small = _diagonal(a, SMALL).flatten(0, 1)
    place = torch.arange(SMALL, device=a.device)
    t = torch.eye(SMALL, dtype=a.dtype, device=a.device) - _below(small, place, 1)
    size = 2
    while size < SMALL:
        t = torch.baddbmm(t, t @ _below(small, place, size), t, alpha=-1)
        size *= 2
    t = t.unflatten(0, (len(a), -1))
    while size < CHUNK:
        first, second = t[:, 0::2], t[:, 1::2]
        corner = -(second @ _diagonal(a, 2 * size)[..., size:, :size] @ first)
        upper = torch.cat([first, torch.zeros_like(first)], -1)
        t = torch.cat([upper, torch.cat([corner, second], -1)], -2)
        size *= 2
    return t.view(shape)


def _diagonal(a: Tensor, size: int) -> Tensor:
    """The diagonal blocks: [n, CHUNK, CHUNK] to [n, CHUNK / size, size, size]."""
    blocks = a.unflatten(-1, (-1, size)).unflatten(-3, (-1, size))
    return blocks.diagonal(dim1=-4, dim2=-2).movedim(-1, -3)


def _below(a: Tensor, place: Tensor, size: int) -> Tensor:
    """Of two neighbouring diagonal blocks, what is left of the second and below the first; zero elsewhere."""
    block = place // size
    wanted = (block[:, None] % 2 == 1) & (block == block[:, None] - 1)
    return torch.where(wanted, a, 0)


def _transitions(ready: _Inputs, t: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """W, U, R^T W and R^T U: [.., CHUNK, dk], [.., CHUNK, dv], [.., dk, dk], [.., dk, dv]."""
    b, rate = ready.b[..., None], ready.beta[..., None]
    w = t @ (rate * b.exp() * ready.k)
    u = t @ (rate * ready.v)
    rest = ((b[..., -1:, :] - b).exp() * ready.k).mT
    return w, u, rest @ w, rest @ u


def _scan(ready: _Inputs, change: Tensor, add: Tensor, heads: int) -> Tensor:
    """The state before every chunk, S_next = exp(b_C) S + add - change S from zero on: [.., groups, dk, dv]. heads: rows
    times value heads."""
    last = ready.b[..., -1].exp().view(-1, heads, 1, 1)
    by_chunk = (x.reshape(-1, heads, *x.shape[-2:]).unbind() for x in (last, change, add))
    states = [add.new_zeros(heads, *add.shape[-2:])]
    for shrink, changed, added in list(zip(*by_chunk, strict=True))[:-1]:
        states.append(torch.baddbmm(added + shrink * states[-1], changed, states[-1], alpha=-1))
    return torch.stack(states).reshape(-1, ready.v.shape[1], *add.shape[-2:])


def _outputs(ready: _Inputs, u: Tensor, w: Tensor, states: Tensor) -> Tensor:
    """O by chunk."""
    p = (ready.q @ ready.k.mT) * _decay(ready.b)
    return (ready.b.exp()[..., None] * ready.q) @ states + p @ (u - w @ states)


# --------------------------------------------------------------------------------------------- how it is computed

_compiled: dict[Callable[..., Any], Callable[..., Any]] = {}


def _piece(function: Callable[..., Any], compiled: bool) -> Callable[..., Any]:
    """The function, or what torch.compile makes of it."""
    if not compiled:
        return function
    if function not in _compiled:
        _compiled[function] = torch.compile(function)
    return _compiled[function]


@contextmanager
def _products(like: Tensor, precision: str) -> Iterator[None]:
    """A `with` block in which a GPU's float32 products have this precision."""
    before = torch.get_float32_matmul_precision()
    if like.device.type == "cuda":
        torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        if like.device.type == "cuda":
            torch.set_float32_matmul_precision(before)
