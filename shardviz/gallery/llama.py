"""A Llama-3-shaped language model's train step: scanned, rematerialised layers, forward, backward and optimizer.

The layers' weights are stacked: one scan runs all layers, and the program stays small at any depth. Grouped-query
attention, rotary positions, RMS norms, gated feed-forward (Dubey et al., 2024, "The Llama 3 Herd of Models", table 3).
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from shardviz.errors import ShardvizError
from shardviz.gallery.example import Example, fitted, mesh_of

SIZES = {
    "8b": {"layers": 32, "d_model": 4096, "d_ff": 14336, "heads": 32, "kv_heads": 8},
    "70b": {"layers": 80, "d_model": 8192, "d_ff": 28672, "heads": 64, "kv_heads": 8},
}
VOCABULARY, HEAD_DIM = 128256, 128


def rms_norm(x: Any, scale: Any) -> Any:
    """Scale every token's features to unit root mean square."""
    variance = jnp.mean(jnp.square(x.astype(jnp.float32)), axis=-1, keepdims=True)
    return (x * jax.lax.rsqrt(variance + 1e-5)).astype(x.dtype) * scale


def rotary(x: Any, theta: float = 500000.0) -> Any:
    """Rotate pairs of features by an angle that grows with the position."""
    half = x.shape[-1] // 2
    frequency = theta ** (-jnp.arange(half, dtype=jnp.float32) / half)
    angle = jnp.arange(x.shape[1], dtype=jnp.float32)[:, None, None] * frequency
    cos, sin = jnp.cos(angle).astype(x.dtype), jnp.sin(angle).astype(x.dtype)
    a, b = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def attention(q: Any, k: Any, v: Any) -> Any:
    """Apply causal attention; a key-value head serves a group of query heads."""
    batch, length, heads, dim = q.shape
    groups = heads // k.shape[2]
    q = q.reshape(batch, length, k.shape[2], groups, dim)
    scores = jnp.einsum("btkgd,bskd->bkgts", q, k) / math.sqrt(dim)
    causal = jnp.tril(jnp.ones((length, length), bool))
    scores = jnp.where(causal, scores.astype(jnp.float32), -1e30)
    weights = jax.nn.softmax(scores, axis=-1).astype(q.dtype)
    return jnp.einsum("bkgts,bskd->btkgd", weights, v).reshape(batch, length, heads, dim)


def block(x: Any, p: dict[str, Any]) -> Any:
    """Apply one layer: attention and a gated feed-forward block, each added to the residual stream."""
    h = rms_norm(x, p["ln1"])
    q = rotary(jnp.einsum("btd,dhk->bthk", h, p["wq"]))
    k = rotary(jnp.einsum("btd,dhk->bthk", h, p["wk"]))
    v = jnp.einsum("btd,dhk->bthk", h, p["wv"])
    a = attention(q, k, v)
    x = x + jnp.einsum("bthk,hkd->btd", a, p["wo"])
    h = rms_norm(x, p["ln2"])
    g = jax.nn.silu(h @ p["w1"]) * (h @ p["w3"])
    x = x + g @ p["w2"]
    return jax.lax.with_sharding_constraint(x, P("data"))


def forward(params: dict[str, Any], tokens: Any, *, unroll: bool = False) -> Any:
    """Return logits for every token; with `unroll` the layers are written out, without a loop."""
    x = params["emb"][tokens]
    x = jax.lax.with_sharding_constraint(x, P("data"))
    body = jax.checkpoint(block)
    x, _ = jax.lax.scan(lambda x, p: (body(x, p), None), x, params["layers"], unroll=unroll)
    x = rms_norm(x, params["ln"])
    return jnp.einsum("btd,dv->btv", x, params["out"])


def loss_fn(params: dict[str, Any], tokens: Any, *, unroll: bool = False) -> Any:
    """Return the mean cross-entropy of each next token."""
    logits = forward(params, tokens, unroll=unroll).astype(jnp.float32)
    targets = jnp.roll(tokens, -1, axis=1)
    correct = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - correct)


def train_step(params: dict[str, Any], momentum: dict[str, Any], tokens: Any, *, unroll: bool = False) -> Any:
    """Take one step of gradient descent with momentum; return new parameters, new momentum and the loss."""
    loss, grads = jax.value_and_grad(loss_fn)(params, tokens, unroll=unroll)
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g.astype(m.dtype), momentum, grads)
    params = jax.tree.map(lambda p, m: p - (1e-3 * m).astype(p.dtype), params, momentum)
    return params, momentum, loss


def step_flops(
    *, layers: int, d_model: int, d_ff: int, heads: int, kv_heads: int, batch: int, length: int
) -> tuple[float, float]:
    """Return the FLOPs of a step's matrix products, and those that the model needs.

    With `t = batch x length` tokens and heads of `k = 128` features, one forward pass has:

        weights   = 2 t d_model (2 heads k + 2 kv_heads k + 3 d_ff)      per layer
        attention = 4 t length heads k                                   per layer: scores, and values weighted by them
        logits    = 2 t d_model vocabulary

        model_flops = 3 (layers (weights + attention) + logits)          forward, gradients of weights and of inputs
        flops       = model_flops + layers (weights + attention - 2 t d_model d_ff)

    `model_flops` is 6 x parameters x tokens without the embedding, which is a look-up, plus attention (Chowdhery et
    al., 2022, "PaLM", appendix B). Attention counts in full, since masked scores are computed too. `flops` adds each
    layer's rematerialised forward pass, except its last product, which no gradient needs.
    """
    t, wide = batch * length, HEAD_DIM * heads
    weights = 2.0 * t * d_model * (2 * wide + 2 * HEAD_DIM * kv_heads + 3 * d_ff)
    attention = 4.0 * t * length * wide
    needed = 3 * (layers * (weights + attention) + 2.0 * t * d_model * VOCABULARY)
    return needed + layers * (weights + attention - 2.0 * t * d_model * d_ff), needed


def llama(
    size: str = "8b",
    *,
    batch: int = 64,
    length: int = 4096,
    layers: int | None = None,
    dtype: Any = jnp.bfloat16,
    unroll: bool = False,
    mesh: Any = None,
) -> Example:
    """Return a Llama-3-shaped train step with FSDP over `data` and tensor parallelism over `model`.

    Args:
        size: `"8b"` or `"70b"`.
        batch: sequences in a step.
        length: tokens in a sequence.
        layers: use this many layers instead of the published number.
        dtype: element type of parameters, activations and momentum.
        unroll: write the layers out one after the other instead of scanning over them.
        mesh: the mesh to plan for, `data=8,model=8` if not given; axes that do not divide a dimension are left out,
            such as `model=16` for the 8 key-value heads.

    Raises:
        ShardvizError: for a size that is not in the gallery.
    """
    if size not in SIZES:
        raise ShardvizError(f"size {size!r}: the gallery has {', '.join(map(repr, SIZES))}")
    shape = SIZES[size] | ({} if layers is None else {"layers": layers})
    n, d, f, heads, kv = (shape[name] for name in ("layers", "d_model", "d_ff", "heads", "kv_heads"))
    table: dict[str, tuple[tuple[int, ...], P]] = {
        "ln1": ((n, d), P()),
        "wq": ((n, d, heads, HEAD_DIM), P(None, "data", "model")),
        "wk": ((n, d, kv, HEAD_DIM), P(None, "data", "model")),
        "wv": ((n, d, kv, HEAD_DIM), P(None, "data", "model")),
        "wo": ((n, heads, HEAD_DIM, d), P(None, "model", None, "data")),
        "ln2": ((n, d), P()),
        "w1": ((n, d, f), P(None, "data", "model")),
        "w3": ((n, d, f), P(None, "data", "model")),
        "w2": ((n, f, d), P(None, "model", "data")),
    }
    top = {
        "emb": ((VOCABULARY, d), P("model", "data")),
        "ln": ((d,), P()),
        "out": ((d, VOCABULARY), P("data", "model")),
    }
    arrays = {k: jax.ShapeDtypeStruct(s, dtype) for k, (s, _) in top.items()}
    arrays["layers"] = {k: jax.ShapeDtypeStruct(s, dtype) for k, (s, _) in table.items()}  # type: ignore[assignment]
    mesh = mesh_of(mesh, {"data": 8, "model": 8})
    specs: dict[str, Any] = {k: fitted(s, spec, mesh) for k, (s, spec) in top.items()}
    specs["layers"] = {k: fitted(s, spec, mesh) for k, (s, spec) in table.items()}
    tokens = jax.ShapeDtypeStruct((batch, length), jnp.int32)
    return Example(
        partial(train_step, unroll=True) if unroll else train_step,
        (arrays, arrays, tokens),
        mesh,
        (specs, specs, fitted(tokens.shape, P("data"), mesh)),
        (specs, specs, None),
        {"donate_argnums": (0, 1)},
        sum(math.prod(s) for s, _ in (*table.values(), *top.values())),
        batch * length,
        *step_flops(**shape, batch=batch, length=length),
    )
