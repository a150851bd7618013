"""One small network as every kind of JAX callable, forward and backward: functions and shapes, no shardviz in them.

`dense` is the network on one device, in plain JAX: what every kind must compute.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

BATCH, IN, HIDDEN, OUT = 64, 32, 64, 32
DEVICES = (2, 8, 64)
MODES = ("forward", "grad")
WEIGHTS = {"w1": P("data", "model"), "w2": P("model", "data")}
SHAPES = {"w1": (IN, HIDDEN), "w2": (HIDDEN, OUT)}


def array(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def params() -> dict[str, jax.ShapeDtypeStruct]:
    return {name: array(*shape) for name, shape in SHAPES.items()}


def forward(params: Any, x: Any) -> Any:
    return jnp.tanh(x @ params["w1"]) @ params["w2"]


def loss(params: Any, x: Any, forward: Callable[..., Any] = forward) -> Any:
    return jnp.mean(forward(params, x) ** 2)


def dense(mode: str) -> Callable[..., Any]:
    return forward if mode == "forward" else jax.grad(loss)


@dataclass(frozen=True)
class Case:
    """A kind of callable on so many devices.

    Attributes:
        fn: the function, not yet wrapped by `jax.jit` unless the kind is about that.
        args: abstract arguments.
        mesh: axis name → size.
        in_specs: specs of the arguments, as `jax.jit` takes them; None where the function itself says.
        out_specs: specs of the result; None where the compiler chooses.
        types: the axes' type.
        trips: how often every loop inside runs.
        reference: the same on one device, of the same arguments.
    """

    fn: Any
    args: tuple[Any, ...]
    mesh: dict[str, int]
    in_specs: Any
    reference: Callable[..., Any]
    types: str = "Auto"
    trips: int = 1
    out_specs: Any = None


def grid(devices: int) -> dict[str, int]:
    return {"data": devices // 2, "model": 2}


def plain(mode: str, devices: int) -> Case:
    return Case(dense(mode), (params(), array(BATCH, IN)), grid(devices), (WEIGHTS, P("data")), dense(mode))


def pjit(mode: str, devices: int) -> Case:
    return replace(plain(mode, devices), out_specs=P("data") if mode == "forward" else WEIGHTS)


def explicit(mode: str, devices: int) -> Case:
    """Shardings in the types: a contraction over a cut dimension must say what comes out of it."""

    def forward(params: Any, x: Any) -> Any:
        gathered = jax.sharding.reshard(params["w1"], P(None, "model"))
        h = jnp.tanh(x @ gathered)
        return jnp.einsum("bh,ho->bo", h, jax.sharding.reshard(params["w2"], P("model", None)), out_sharding=P("data"))

    fn = forward if mode == "forward" else jax.grad(partial(loss, forward=forward))
    return Case(fn, (params(), array(BATCH, IN)), grid(devices), (WEIGHTS, P("data")), dense(mode), "Explicit")


def shard_map(mode: str, devices: int) -> Case:
    """Collectives by hand: weights gathered over `data`, products reduced over `model`, and a ring for its own sake."""

    def body(params: Any, x: Any) -> Any:
        w1 = jax.lax.all_gather(params["w1"], "data", axis=0, tiled=True)
        w2 = jax.lax.all_gather(params["w2"], "data", axis=1, tiled=True)
        size = jax.lax.axis_size("model")
        around = [(i, (i + 1) % size) for i in range(size)]
        h, _ = jax.lax.scan(lambda h, _: (jax.lax.ppermute(h, "model", around), None), x @ w1, None, length=2)
        return jax.lax.psum(jnp.tanh(h) @ w2, "model")

    mapped = jax.shard_map(body, in_specs=(WEIGHTS, P("data")), out_specs=P("data"))
    fn = mapped if mode == "forward" else jax.grad(partial(loss, forward=mapped))
    return Case(fn, (params(), array(BATCH, IN)), grid(devices), (WEIGHTS, P("data")), dense(mode), trips=2)


def pmap(mode: str, devices: int) -> Case:
    """Data parallelism as it was: a copy of the weights and a part of the batch on each device."""

    def step(params: Any, x: Any) -> Any:
        if mode == "forward":
            return forward(params, x)
        return jax.lax.pmean(jax.grad(loss)(params, x), "batch")

    def reference(params: Any, x: Any) -> Any:
        return jax.vmap(step, in_axes=(None, 0), axis_name="batch")(params, x)

    mesh = {"batch": devices}
    return Case(
        jax.pmap(step, axis_name="batch", in_axes=(None, 0)), (params(), array(devices, 4, IN)), mesh, None, reference
    )


KINDS: dict[str, Callable[[str, int], Case]] = {
    "jit": plain,
    "pjit": pjit,
    "exported": plain,
    "explicit": explicit,
    "shard_map": shard_map,
    "pmap": pmap,
}
