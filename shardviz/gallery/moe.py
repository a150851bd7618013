"""A mixture of experts with expert parallelism: tokens travel to the devices of their experts and back.

Every device routes its own tokens, packs them by expert into buffers of a fixed capacity, and exchanges the buffers
with `all_to_all` over the mesh axis `expert`. Each device runs its own experts; a second `all_to_all` returns the
results. The exchange is written by hand in a `shard_map` (Lepikhin et al., 2020, "GShard"; Fedus et al.,
2021, "Switch Transformers"). The report shows two `all-to-all` over `expert` forward and one backward with the same
bytes (the tokens need no gradient). It also shows the experts' gradients reduced over `data` alone, since devices
along `expert` have different experts.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from shardviz.errors import ShardvizError
from shardviz.gallery.example import Example, mesh_over

AUXILIARY = 0.01
"""Weight of the loss that keeps the experts equally busy."""


def route(logits: Any, top: int, capacity: int) -> tuple[Any, Any]:
    """Assign each token to places of its experts.

    Args:
        logits: the router's opinion, tokens x experts.
        top: experts for a token.
        capacity: places that an expert has for this device's tokens; tokens beyond the capacity are dropped.

    Returns:
        One-hot places, tokens x experts x capacity, and these places weighted by the router's probability.
    """
    tokens, experts = logits.shape
    probability = jax.nn.softmax(logits.astype(jnp.float32), axis=-1)
    weight, expert = jax.lax.top_k(probability, top)
    weight = weight / weight.sum(axis=-1, keepdims=True)
    chosen = jax.nn.one_hot(expert, experts, dtype=jnp.int32)  # tokens x top x experts
    order = jnp.cumsum(chosen.transpose(1, 0, 2).reshape(top * tokens, experts), axis=0) - 1
    order = (order.reshape(top, tokens, experts).transpose(1, 0, 2) * chosen).sum(axis=-1)  # tokens x top
    place = jax.nn.one_hot(order, capacity, dtype=jnp.float32)  # a place past the capacity is all zeros
    places = jnp.einsum("nke,nkc->nec", chosen.astype(jnp.float32), place)
    weighted = jnp.einsum("nk,nke,nkc->nec", weight, chosen.astype(jnp.float32), place)
    return places, weighted


def capacity_of(tokens: int, experts: int, top: int, factor: float) -> int:
    """Return the number of places that every expert has for the tokens of one device."""
    return min(tokens, math.ceil(factor * top * tokens / experts))


def experts_forward(p: dict[str, Any], x: Any) -> Any:
    """Apply every expert's feed-forward block to its own tokens: experts x places x features."""
    hidden = jax.nn.silu(jnp.einsum("ecd,edf->ecf", x, p["gate"])) * jnp.einsum("ecd,edf->ecf", x, p["up"])
    return jnp.einsum("ecf,efd->ecd", hidden, p["down"])


def moe_layer(p: dict[str, Any], x: Any, *, top: int, factor: float) -> tuple[Any, Any]:
    """Compute one device's part of the layer, inside a `shard_map` over `data` and `expert`.

    Args:
        p: the router for all experts, and the weights of this device's experts.
        x: this device's tokens, tokens x features.
        top: experts for a token.
        factor: an expert's places as a multiple of its tokens when all experts have equally many.

    Returns:
        The result for this device's tokens, and the load imbalance of its experts (1 is the least).
    """
    tokens, experts = x.shape[0], p["router"].shape[1]
    capacity = capacity_of(tokens, experts, top, factor)
    logits = x @ p["router"]
    places, weighted = route(logits, top, capacity)
    buffers = jnp.einsum("nd,nec->ecd", x, places.astype(x.dtype))
    buffers = jax.lax.all_to_all(buffers, "expert", split_axis=0, concat_axis=1, tiled=True)
    buffers = experts_forward(p, buffers)
    buffers = jax.lax.all_to_all(buffers, "expert", split_axis=1, concat_axis=0, tiled=True)
    y = jnp.einsum("ecd,nec->nd", buffers, weighted.astype(x.dtype))
    share = places.sum(axis=(0, 2)) / (tokens * top)
    belief = jax.nn.softmax(logits.astype(jnp.float32), axis=-1).mean(axis=0)
    return y, experts * jnp.sum(share * belief)


def loss_fn(params: dict[str, Any], x: Any, y: Any, *, top: int, factor: float) -> Any:
    """Return the mean squared error of the layer added to its input, plus the auxiliary loss."""

    @partial(
        jax.shard_map,
        in_specs=(
            {"router": P(), "gate": P("expert"), "up": P("expert"), "down": P("expert")},
            P(("data", "expert")),
            P(("data", "expert")),
        ),
        out_specs=P(),
    )
    def local(p: dict[str, Any], x: Any, y: Any) -> Any:
        out, busy = moe_layer(p, x, top=top, factor=factor)
        loss = jnp.mean((x + out - y).astype(jnp.float32) ** 2) + AUXILIARY * busy
        return jax.lax.pmean(loss, ("data", "expert"))

    return local(params, x, y)


def step_flops(
    *, experts: int, d_model: int, d_ff: int, tokens: int, top: int, factor: float, devices: int
) -> tuple[float, float]:
    """Return the FLOPs of a step's matrix products, and those that the model needs.

    With `places = experts x capacity x devices`, the places of all experts for all devices' tokens, including
    empty places:

        model_flops = 6 tokens (d_model experts + top 3 d_model d_ff)       6 x parameters used by a token x tokens
        flops       = 4 tokens d_model experts                              the router and its gradient
                    + 14 places d_model d_ff                                the experts
                    + 8 places d_model tokens / devices                     to the places and back, as one-hot products
                    + 2 tokens top (3 experts capacity + 2 min(experts, capacity))      the one-hot places themselves

    The experts' 7 products are 3 forward, 3 for the gradients of their weights, and one for the gradient of their
    hidden features: the tokens need no gradient. The last line counts products in the order that `jnp.einsum` chooses.
    """
    here = tokens // devices
    capacity = capacity_of(here, experts, top, factor)
    places = experts * capacity * devices
    flops = 4.0 * tokens * d_model * experts + 14.0 * places * d_model * d_ff + 8.0 * places * d_model * here
    flops += 2.0 * tokens * top * (3 * experts * capacity + 2 * min(experts, capacity))
    return flops, 6.0 * tokens * (d_model * experts + top * 3 * d_model * d_ff)


def moe(
    *,
    experts: int = 64,
    d_model: int = 4096,
    d_ff: int = 1408,
    tokens: int = 131072,
    top: int = 2,
    factor: float = 1.25,
    dtype: Any = jnp.bfloat16,
    mesh: Any = None,
) -> Example:
    """Return a train step of one layer with many small experts, sharded over the mesh axis `expert`.

    Args:
        experts: experts of the layer; a multiple of the axis's size.
        d_model, d_ff: features of a token, and inside an expert.
        tokens: tokens in a step; a multiple of the number of devices.
        top: experts for a token.
        factor: capacity factor; see `moe_layer`.
        dtype: element type of everything.
        mesh: a mesh with axes `data` and `expert`; `expert=8,data=4` if not given.

    Raises:
        ShardvizError: if the mesh has other axes, or does not divide the experts or tokens.
    """
    mesh = mesh_over(mesh, {"expert": 8, "data": 4}, "moe")
    devices = mesh["data"] * mesh["expert"]
    if experts % mesh["expert"] or tokens % devices:
        raise ShardvizError(
            f"moe: {experts} experts over expert={mesh['expert']} and {tokens} tokens over {devices} devices: "
            "both must divide"
        )

    def train_step(params: dict[str, Any], x: Any, y: Any) -> tuple[Any, Any]:
        """Take one step of gradient descent; return the new parameters and the loss."""
        loss, grads = jax.value_and_grad(partial(loss_fn, top=top, factor=factor))(params, x, y)
        return jax.tree.map(lambda p, g: p - (1e-3 * g).astype(p.dtype), params, grads), loss

    shapes = {
        "router": (d_model, experts),
        "gate": (experts, d_model, d_ff),
        "up": (experts, d_model, d_ff),
        "down": (experts, d_ff, d_model),
    }
    params = {name: jax.ShapeDtypeStruct(shape, dtype) for name, shape in shapes.items()}
    specs = {name: P() if name == "router" else P("expert") for name in shapes}
    x = jax.ShapeDtypeStruct((tokens, d_model), dtype)
    rows = P(("data", "expert"))
    return Example(
        train_step,
        (params, x, x),
        mesh,
        (specs, rows, rows),
        (specs, None),
        {"donate_argnums": 0},
        sum(math.prod(shape) for shape in shapes.values()),
        tokens,
        *step_flops(
            experts=experts, d_model=d_model, d_ff=d_ff, tokens=tokens, top=top, factor=factor, devices=devices
        ),
    )
