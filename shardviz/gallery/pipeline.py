"""A pipeline over stages: layers are on different devices, and microbatches move through them.

Each device of the mesh axis `stage` has some of the layers. In every iteration of a loop all devices work, each on
another microbatch, and send their result to the next with `ppermute`. After (microbatches + stages - 1)
iterations the last stage has processed all microbatches (Huang et al., 2018, "GPipe"). A stage without input works for
nothing, which is the bubble: (stages - 1) of (microbatches + stages - 1) iterations. The report shows one
`collective-permute` over `stage` per iteration, of one microbatch's activations, and no collective on weights except
the gradients' reduction over `data`.
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


def block(x: Any, p: dict[str, Any]) -> Any:
    """Apply a gated feed-forward layer with a residual."""
    scale = jax.lax.rsqrt(jnp.mean(jnp.square(x.astype(jnp.float32)), axis=-1, keepdims=True) + 1e-5)
    h = (x * scale).astype(x.dtype)
    return x + (jax.nn.silu(h @ p["gate"]) * (h @ p["up"])) @ p["down"]


def stage_forward(layers: dict[str, Any], x: Any) -> Any:
    """Apply all layers of one stage to one microbatch; the backward pass rematerialises activations."""
    return jax.lax.scan(lambda x, p: (jax.checkpoint(block)(x, p), None), x, layers)[0]


def pipeline_forward(layers: dict[str, Any], x: Any) -> Any:
    """Compute one device's part of the pipeline, inside a `shard_map` over `stage`.

    Args:
        layers: the weights of this device's stage: layers x ...
        x: all microbatches: microbatches x examples x features; only the first stage reads them.

    Returns:
        The results of the last stage on its device, with the shape of `x`; zeros on the other devices.
    """
    stages, stage = jax.lax.axis_size("stage"), jax.lax.axis_index("stage")
    count = x.shape[0]
    onward = [(i, i + 1) for i in range(stages - 1)]
    # `varying` gives each device along `data` its own gradient, which is reduced once, not in every iteration
    layers = jax.tree.map(lambda w: jax.lax.pcast(w, ("data",), to="varying"), layers)
    x = jax.lax.pcast(x, ("stage",), to="varying")

    def turn(state: Any, t: Any) -> tuple[Any, Any]:
        fresh = jax.lax.dynamic_index_in_dim(x, jnp.minimum(t, count - 1), keepdims=False)
        out = stage_forward(layers, jnp.where(stage == 0, fresh, state))
        return jax.lax.ppermute(out, "stage", onward), out

    _, outs = jax.lax.scan(turn, jnp.zeros_like(x[0]), jnp.arange(count + stages - 1))
    return jnp.where(stage == stages - 1, outs[stages - 1 :], 0)


def loss_fn(params: dict[str, Any], x: Any, y: Any) -> Any:
    """Return the mean squared error of the last stage's results."""

    @partial(jax.shard_map, in_specs=(P("stage"), P(None, "data"), P(None, "data")), out_specs=P())
    def local(layers: dict[str, Any], x: Any, y: Any) -> Any:
        out = pipeline_forward(layers, x)
        last = jax.lax.axis_index("stage") == jax.lax.axis_size("stage") - 1
        loss = jnp.where(last, jnp.mean((out - y).astype(jnp.float32) ** 2), 0.0)
        return jax.lax.pmean(jax.lax.psum(loss, "stage"), "data")

    return local(params, x, y)


def train_step(params: dict[str, Any], x: Any, y: Any) -> tuple[Any, Any]:
    """Take one step of gradient descent; return the new parameters and the loss."""
    loss, grads = jax.value_and_grad(loss_fn)(params, x, y)
    return jax.tree.map(lambda p, g: p - (1e-3 * g).astype(p.dtype), params, grads), loss


def step_flops(
    *, layers: int, d_model: int, d_ff: int, microbatches: int, batch: int, stages: int
) -> tuple[float, float]:
    """Return the FLOPs of a step's matrix products, and those that the model needs.

        product     = 2 batch d_model d_ff layers       one of every layer's three products, on the full batch
        model_flops = 9 product                         6 x parameters x batch: forward, and twice that for gradients
        flops       = 11 product (microbatches + stages - 1) / microbatches

    Two of the three products are rematerialised for the backward pass; no gradient needs the result of the third.
    Every stage works in every iteration, in the bubble's iterations for nothing.
    """
    product = 2.0 * batch * d_model * d_ff * layers
    return 11 * product * (microbatches + stages - 1) / microbatches, 9 * product


def pipeline(
    *,
    layers: int = 32,
    d_model: int = 4096,
    d_ff: int = 14336,
    microbatches: int = 16,
    batch: int = 8192,
    dtype: Any = jnp.bfloat16,
    mesh: Any = None,
) -> Example:
    """Return a train step of gated feed-forward layers in a pipeline over `stage`, replicated over `data`.

    Args:
        layers: layers in all; a multiple of the number of stages.
        d_model, d_ff: features between and inside the layers.
        microbatches: parts of the batch, which run one after the other.
        batch: examples in a step.
        dtype: element type of everything.
        mesh: a mesh with axes `data` and `stage`; `stage=8,data=4` if not given.

    Raises:
        ShardvizError: if the mesh has other axes, or does not divide the layers or a microbatch.
    """
    mesh = mesh_over(mesh, {"stage": 8, "data": 4}, "pipeline")
    if layers % mesh["stage"] or batch % (microbatches * mesh["data"]):
        raise ShardvizError(
            f"pipeline: {layers} layers over stage={mesh['stage']} and {batch} examples over {microbatches} "
            f"microbatches x data={mesh['data']}: both must divide"
        )
    shapes = {"gate": (layers, d_model, d_ff), "up": (layers, d_model, d_ff), "down": (layers, d_ff, d_model)}
    params = {name: jax.ShapeDtypeStruct(shape, dtype) for name, shape in shapes.items()}
    specs = {name: P("stage") for name in shapes}
    x = jax.ShapeDtypeStruct((microbatches, batch // microbatches, d_model), dtype)
    rows = P(None, "data")
    return Example(
        train_step,
        (params, x, x),
        mesh,
        (specs, rows, rows),
        (specs, None),
        {"donate_argnums": 0},
        sum(math.prod(shape) for shape in shapes.values()),
        batch,
        *step_flops(
            layers=layers, d_model=d_model, d_ff=d_ff, microbatches=microbatches, batch=batch, stages=mesh["stage"]
        ),
    )
