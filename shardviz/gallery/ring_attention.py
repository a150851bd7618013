"""Attention over a sequence that is too long for one device: keys and values go round a ring of devices.

Each device keeps the queries of its own part of the sequence. In each of as many steps as there are devices it
attends to its current keys and values, and sends them to its neighbour with `ppermute`. A running maximum
and sum make the softmax exact (Liu et al., 2023, "Ring Attention with Blockwise Transformers"). The report shows
one `collective-permute` of keys and one of values over `seq` in each iteration of the loop, with operands of one
device's part, and no all-gather of the sequence.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from shardviz.errors import ShardvizError
from shardviz.gallery.example import Example, fitted, mesh_over


def ring_attention(q: Any, k: Any, v: Any, *, axis: str = "seq") -> Any:
    """Apply causal attention of one device's queries to the full sequence, inside a `shard_map` over `axis`.

    Args:
        q, k, v: this device's part: batch x length x heads x features.
        axis: the mesh axis that shards the sequence.

    Returns:
        This device's part of the result, with the shape of `q`.
    """
    size, here = jax.lax.axis_size(axis), jax.lax.axis_index(axis)
    length, dim = q.shape[1], q.shape[3]
    neighbours = [(i, (i + 1) % size) for i in range(size)]
    mine = here * length + jnp.arange(length)

    def turn(carry: Any, step: Any) -> tuple[Any, None]:
        k, v, best, total, out = carry
        theirs = ((here - step) % size) * length + jnp.arange(length)
        scores = jnp.einsum("bthd,bshd->bhts", q, k).astype(jnp.float32) / math.sqrt(dim)
        scores = jnp.where(mine[:, None] >= theirs[None, :], scores, -1e30)
        top = jnp.maximum(best, scores.max(axis=-1))
        weight, fade = jnp.exp(scores - top[..., None]), jnp.exp(best - top)
        total = total * fade + weight.sum(axis=-1)
        out = out * fade[..., None] + jnp.einsum("bhts,bshd->bhtd", weight, v.astype(jnp.float32))
        k, v = (jax.lax.ppermute(a, axis, neighbours) for a in (k, v))
        return (k, v, top, total, out), None

    start = jnp.full_like(q.transpose(0, 2, 1, 3)[..., 0], -1e30, jnp.float32)  # varies over the same axes as q
    zero = jnp.zeros_like(q.transpose(0, 2, 1, 3), jnp.float32)
    begin = (k, v, start, zero[..., 0], zero)
    (_, _, _, total, out), _ = jax.lax.scan(jax.checkpoint(turn), begin, jnp.arange(size))
    return (out / total[..., None]).transpose(0, 2, 1, 3).astype(q.dtype)


def attention_layer(p: dict[str, Any], x: Any) -> Any:
    """Apply projections, which the compiler shards, around the ring, which is written by hand."""
    q, k, v = (jnp.einsum("btd,dhk->bthk", x, p[name]) for name in ("wq", "wk", "wv"))
    ring = jax.shard_map(ring_attention, in_specs=P("data", "seq"), out_specs=P("data", "seq"))
    return jnp.einsum("bthk,hkd->btd", ring(q, k, v), p["wo"])


def loss_fn(params: dict[str, Any], x: Any, y: Any) -> Any:
    """Return the mean squared error of the layer added to its input."""
    return jnp.mean((x + attention_layer(params, x) - y).astype(jnp.float32) ** 2)


def train_step(params: dict[str, Any], x: Any, y: Any) -> tuple[Any, Any]:
    """Take one step of gradient descent; return the new parameters and the loss."""
    loss, grads = jax.value_and_grad(loss_fn)(params, x, y)
    return jax.tree.map(lambda p, g: p - (1e-3 * g).astype(p.dtype), params, grads), loss


def step_flops(batch: int, length: int, d: int) -> tuple[float, float]:
    """Return the FLOPs of a step's matrix products, and those that the model needs.

    With `t = batch x length` tokens and `d = heads x head_dim`:

        model_flops = 24 t d^2 + 12 t length d        6 x parameters x tokens, and three times attention's two products
        flops       = 18 t d^2 + 14 t length d

    `flops` lacks the gradients of three projections' inputs, since the batch needs none, and includes the scores
    again, which the backward pass recomputes. Every block of the sequence meets every other block, also the blocks that
    the causal mask hides.
    """
    weights, attention = 2.0 * batch * length * d * d, 2.0 * batch * length * length * d
    return 9 * weights + 7 * attention, 12 * weights + 6 * attention


def ring(
    *,
    batch: int = 4,
    length: int = 131072,
    heads: int = 32,
    head_dim: int = 128,
    dtype: Any = jnp.bfloat16,
    mesh: Any = None,
) -> Example:
    """Return a train step of one attention layer on sequences sharded over the mesh axis `seq`.

    Args:
        batch: sequences in a step.
        length: tokens in a sequence.
        heads, head_dim: attention heads, and features of each.
        dtype: element type of everything.
        mesh: a mesh with axes `data` and `seq`; `data=2,seq=8` if not given.

    Returns:
        The `Example`; its projections are also sharded over `data`, as in FSDP.

    Raises:
        ShardvizError: if the mesh has other axes, or does not divide the batch or the length.
    """
    mesh = mesh_over(mesh, {"data": 2, "seq": 8}, "ring")
    if batch % mesh["data"] or length % mesh["seq"]:
        raise ShardvizError(
            f"ring: {batch} sequences over data={mesh['data']} and {length} tokens over seq={mesh['seq']}: "
            "both must divide"
        )
    d = heads * head_dim
    params = {name: jax.ShapeDtypeStruct((d, heads, head_dim), dtype) for name in ("wq", "wk", "wv")}
    params["wo"] = jax.ShapeDtypeStruct((heads, head_dim, d), dtype)
    specs = {name: fitted(p.shape, P("data"), mesh) for name, p in params.items()}
    x = jax.ShapeDtypeStruct((batch, length, d), dtype)
    rows = P("data", "seq")
    return Example(
        train_step,
        (params, x, x),
        mesh,
        (specs, rows, rows),
        (specs, None),
        {"donate_argnums": 0},
        4 * d * d,
        batch * length,
        *step_flops(batch, length, d),
    )
