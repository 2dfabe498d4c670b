"""The gated delta rule in chunks, with a backward pass written by hand.

The rule (Gated DeltaNet, arXiv 2412.06464). A head has a state S [dk, dv]; a token t has a query, a key, a value, a log of
a decay g <= 0 and a rate beta:

  S <- exp(g_t) S;   S <- S + beta_t k_t (v_t - S^T k_t)^T;   o_t = S^T q_t

Within a chunk of `CHUNK` tokens the steps are solved at once (the WY form, arXiv 2406.06484). With b the cumulated g of a
chunk, D[i, j] = exp(b_i - b_j) on and below the diagonal, and S the state before the chunk:

  A = strictly lower part of beta_i (k_i . k_j) D[i, j],    T = (I + A)^-1
  U = T (beta v),   W = T (beta exp(b) k),   V' = U - W S       the values that are really written
  O = (exp(b) q) S + P V',   P = (q_i . k_j) D[i, j]
  S' = exp(b_C) S + R^T V' = exp(b_C) S + R^T U - (R^T W) S,    R = exp(b_C - b_i) k

Everything but the last line is a batched product over all chunks. The last line is sequential, with one product of [dk, dk]
and [dk, dv] a chunk. The gradient of the states is the same recurrence backwards, with the transposed matrices:

  G = exp(b_C) G' + E - (R^T W)^T G',    E = (exp(b) q)^T dO - W^T P^T dO

With X = T^T dV', the gradient of A is the strictly lower part of -X V'^T, that of `beta v` is X, and that of
`beta exp(b) k` is -X S^T; the others follow by the product rule. T is built by inverting diagonal blocks of doubled size
each time, which is as stable as substitution (a product of powers of A is not: they can grow to 1e18).

Arithmetic is in float32, on a GPU with TF32 products except for T; for float64 inputs it is in float64.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

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


class _States(NamedTuple):
    """What the forward pass knows of every chunk. t: [.., groups, CHUNK, CHUNK]. w: [.., groups, CHUNK, dk]. change: R^T W,
    [.., groups, dk, dk]. states: before every chunk and after the last, [chunks + 1, rows * value heads, dk, dv]. written:
    V', [.., groups, CHUNK, dv]."""

    t: Tensor
    w: Tensor
    change: Tensor
    states: Tensor
    written: Tensor


@torch.compiler.disable
def chunk_gated_delta_rule(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    g: Tensor,
    beta: Tensor,
    *,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    keep: bool = False,
    compiled: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Outputs of all tokens [rows, tokens, value heads, dv], and the last state if it is asked for; arguments as transformers'.

    query, key: [rows, tokens, key heads, dk]. value: [rows, tokens, value heads, dv]. g, beta: [rows, tokens, value heads].
    initial_state: [rows, value heads, dk, dv]. keep: keep the chunks' states for the backward pass (some 40 times the bytes of the
    value). compiled: elementwise work by torch.compile. Raises ValueError if the value heads are no multiple of the key heads.
    """
    if value.shape[2] % key.shape[2]:
        raise ValueError(f"{value.shape[2]} value heads cannot share {key.shape[2]} key heads evenly")
    rule: Any = _Rule  # torch leaves `apply` without annotations
    options = (use_qk_l2norm_in_kernel, keep, compiled)
    with torch.autocast(query.device.type, enabled=False):
        out, last = rule.apply(query, key, value, g, beta, initial_state, options)
    return out, last if output_final_state else None


class _Rule(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        g: Tensor,
        beta: Tensor,
        initial: Tensor | None,
        options: tuple[bool, bool, bool],
    ) -> tuple[Tensor, Tensor]:
        ctx.options, ctx.set_materialize_grads = options, ctx.set_materialize_grads(False)
        norm, keep, compiled = options
        ready = _piece(_prepare, compiled)(query, key, value, g, beta, norm)
        with _fast_products(query):
            states, out = _run(ready, _first(initial, key, value, ready), compiled)
        ctx.save_for_backward(query, key, value, g, beta, initial, *((*ready, *states) if keep else ()))
        last = states.states[-1].unflatten(0, (len(key), -1)).clone()
        return _piece(_merge, compiled)(out, value).to(query.dtype), last

    @staticmethod
    def backward(ctx: Any, to_out: Tensor | None, to_last: Tensor | None) -> tuple[Tensor | None, ...]:
        query, key, value, g, beta, initial, *kept = ctx.saved_tensors
        norm, keep, compiled = ctx.options
        inputs = (query, key, value, g, beta)
        if to_out is None:
            to_out = torch.zeros_like(value)
        ready = _Inputs(*kept[:5]) if keep else _piece(_prepare, compiled)(*inputs, norm)
        with _fast_products(query):
            start = _first(initial, key, value, ready)
            states = _States(*kept[5:]) if keep else _run(ready, start, compiled, out=False)[0]
            to_written, to_states, to_out = _piece(_enter, compiled)(ready, states.w, to_out)
            start = _first(to_last, key, value, ready)
            after = _scan(start, ready.b, states.change.mT, to_states, backward=True)
            before, later = (_by_chunk(x, ready) for x in (states.states[:-1], after[1:]))
            parts = _piece(_gradients, compiled)(
                ready, states.t, states.written, before, later, to_written, to_out
            )
        found = _piece(_leave, compiled)(parts, inputs, norm)
        first = None if initial is None else after[0].view_as(initial).to(initial.dtype)
        return *found, first, None


# --------------------------------------------------------------------------------------------- in and out


def _prepare(query: Tensor, key: Tensor, value: Tensor, g: Tensor, beta: Tensor, norm: bool) -> _Inputs:
    """The inputs by chunk. Padding has rate 0 and decay 0, so it moves no state."""
    dtype = _dtype(query)
    heads, groups = key.shape[2], value.shape[2] // key.shape[2]
    q, k = (_normalized(x.to(dtype), norm)[0] for x in (query, key))
    q = _chunks(q * key.shape[-1] ** -0.5, heads, 1)
    rates = (_chunks(x.to(dtype)[..., None], heads, groups).squeeze(-1) for x in (g, beta))
    decay, rate = rates
    return _Inputs(
        q, _chunks(k, heads, 1), _chunks(value.to(dtype), heads, groups), decay.cumsum(-1), rate.contiguous()
    )


def _dtype(x: Tensor) -> torch.dtype:
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def _normalized(x: Tensor, norm: bool) -> tuple[Tensor, Tensor | None]:
    """Vectors of length 1, and what they were multiplied by."""
    if not norm:
        return x, None
    inverse = torch.rsqrt((x * x).sum(-1, keepdim=True) + EPS)
    return x * inverse, inverse


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


def _first(state: Tensor | None, key: Tensor, value: Tensor, ready: _Inputs) -> Tensor:
    """A state that is given, or zeros: [rows * value heads, dk, dv], in the type of the arithmetic."""
    if state is not None:
        return state.to(ready.v.dtype).flatten(0, 1)
    return ready.v.new_zeros(len(value) * value.shape[2], key.shape[3], value.shape[3])


def _by_chunk(states: Tensor, ready: _Inputs) -> Tensor:
    """[chunks, rows * value heads, dk, dv] to [.., groups, dk, dv], without a copy."""
    return states.reshape(-1, ready.v.shape[1], *states.shape[-2:])


# --------------------------------------------------------------------------------------------- forward


def _run(ready: _Inputs, start: Tensor, compiled: bool, out: bool = True) -> tuple[_States, Tensor]:
    """The states of all chunks, and the outputs by chunk, which are empty if they are not asked for."""
    a = _piece(_system, compiled)(ready)
    with _exact_products(a):
        t = _piece(_inverse, compiled)(a)
    w, u, change, add = _piece(_transitions, compiled)(ready, t)
    states = _scan(start, ready.b, change, add)
    written, result = _piece(_outputs, compiled)(ready, u, w, _by_chunk(states[:-1], ready), out)
    return _States(t, w, change, states, written), result


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


def _scan(start: Tensor, b: Tensor, change: Tensor, add: Tensor, backward: bool = False) -> Tensor:
    """All states of S_next = exp(b_C) S + add - change S, the first one included: [chunks + 1, rows * value heads, dk, dv];
    backward from the last chunk to the first."""
    heads = len(start)
    last = b[..., -1].exp().view(-1, heads, 1, 1)
    change, add = (x.reshape(-1, heads, *x.shape[-2:]) for x in (change, add))
    states = add.new_empty(len(add) + 1, *start.shape)
    each, adds, changes, lasts = states.unbind(), add.unbind(), change.unbind(), last.unbind()
    each[-1 if backward else 0].copy_(start)
    for chunk in reversed(range(len(adds))) if backward else range(len(adds)):
        old, new = (each[chunk + 1], each[chunk]) if backward else (each[chunk], each[chunk + 1])
        torch.addcmul(adds[chunk], old, lasts[chunk], out=new)
        new.baddbmm_(changes[chunk], old, alpha=-1)
    return states


def _outputs(ready: _Inputs, u: Tensor, w: Tensor, states: Tensor, out: bool) -> tuple[Tensor, Tensor]:
    """V', and O if it is asked for."""
    written = u - w @ states
    if not out:
        return written, written[:0]
    p = (ready.q @ ready.k.mT) * _decay(ready.b)
    return written, (ready.b.exp()[..., None] * ready.q) @ states + p @ written


# --------------------------------------------------------------------------------------------- backward


def _enter(ready: _Inputs, w: Tensor, to_out: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """P^T dO, E, and dO by chunk."""
    groups = ready.v.shape[1]
    to_out = _chunks(to_out.to(ready.v.dtype), to_out.shape[2] // groups, groups)
    p = (ready.q @ ready.k.mT) * _decay(ready.b)
    to_written = p.mT @ to_out
    to_states = (ready.b.exp()[..., None] * ready.q).mT @ to_out - w.mT @ to_written
    return to_written, to_states, to_out


def _gradients(
    ready: _Inputs,
    t: Tensor,
    written: Tensor,
    before: Tensor,
    after: Tensor,
    to_written: Tensor,
    to_out: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of q, k, v, g and beta by chunk. before: the state before each chunk; after: the gradient of the one after
    it."""
    q, k, v, b, beta = ready
    decay, grown, rest = _decay(b), b.exp(), (b[..., -1:] - b).exp()
    x = t.mT @ (to_written + (rest[..., None] * k) @ after)
    xs, to_q, to_r = x @ before.mT, to_out @ before.mT, written @ after.mT
    kk, qk = (k @ k.mT) * decay, (q @ k.mT) * decay
    to_a, to_p = -(x @ written.mT).tril(-1), (to_out @ written.mT).tril()

    kxs, krest = (k * xs).sum(-1), rest * (k * to_r).sum(-1)
    to_rate = (x * v).sum(-1) - grown * kxs + (to_a * kk).sum(-1)
    both = beta[..., None] * to_a * kk + to_p * qk
    to_b = both.sum(-1) - both.sum(-2) + grown * ((q * to_q).sum(-1) - beta * kxs) - krest
    last = b[..., -1].exp() * (before * after).sum((-1, -2)) + krest.sum(-1)
    to_b = F.pad(to_b[..., :-1], (0, 1)) + F.pad((to_b[..., -1] + last)[..., None], (CHUNK - 1, 0))
    to_g = to_b.flip(-1).cumsum(-1).flip(-1)

    to_kk = (beta[..., None] * to_a * decay).sum(1, keepdim=True)
    to_qk = (to_p * decay).sum(1, keepdim=True)
    own_k = rest[..., None] * to_r - (beta * grown)[..., None] * xs
    to_k = own_k.sum(1, keepdim=True) + (to_kk + to_kk.mT) @ k + to_qk.mT @ q
    to_q = (grown[..., None] * to_q).sum(1, keepdim=True) + to_qk @ k
    return to_q, to_k, beta[..., None] * x, to_g, to_rate


def _leave(parts: Sequence[Tensor], inputs: Sequence[Tensor], norm: bool) -> tuple[Tensor, ...]:
    """The gradients of the inputs, in their shapes and types."""
    query, key, value, g, beta = inputs
    to_q, to_k, to_v, to_g, to_beta = parts
    to_q = _through_norm(_merge(to_q, query) * key.shape[-1] ** -0.5, query, norm)
    to_k = _through_norm(_merge(to_k, key), key, norm)
    rates = (_merge(part[..., None], value).squeeze(-1) for part in (to_g, to_beta))
    to_g, to_beta = rates
    return (
        to_q,
        to_k,
        _merge(to_v, value).to(value.dtype),
        to_g.to(g.dtype),
        to_beta.to(beta.dtype),
    )


def _through_norm(gradient: Tensor, x: Tensor, norm: bool) -> Tensor:
    """The gradient of a vector from that of the normalized one."""
    unit, inverse = _normalized(x.to(gradient.dtype), norm)
    if inverse is not None:
        gradient = inverse * (gradient - unit * (unit * gradient).sum(-1, keepdim=True))
    return gradient.to(x.dtype)


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


def _fast_products(like: Tensor) -> Any:
    """TF32: the inputs have 8 bits, and TF32's products 11."""
    return _products(like, "high")


def _exact_products(like: Tensor) -> Any:
    """Float32: errors of an inverse grow with the condition of its matrix."""
    return _products(like, "highest")
