"""Programs with hand-written collectives or Explicit axes: what raw JAX compiles and what shardviz is asked about.

No shardviz in it. Each takes arrays that divide by 64, on a mesh with the axes `data` and `model`.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

MESHES = {8: (2, 4), 64: (8, 8)}
NAMES = ("psum-matmul", "ring", "dispatch", "partial-auto", "explicit-mlp", "mixed-mlp")
PASSES = ("forward", "grad")
SHAPES = {
    "psum-matmul": ((64, 128), (128, 64)),
    "ring": ((64, 64), (64, 64)),
    "dispatch": ((4096, 8), (64, 8, 8)),
    "partial-auto": ((64, 128), (128, 64), (64, 64)),
    "explicit-mlp": ((64, 64), (64, 128), (128, 64)),
    "mixed-mlp": ((64, 64), (64, 128), (128, 64)),
}
SPECS = {
    "psum-matmul": (P("data", "model"), P("model", None)),
    "ring": (P("data", "model"), P(None, "model")),
    "dispatch": (P(("data", "model")), P("model")),
    "partial-auto": (P("data"), P("model"), P(None, "model")),
    "explicit-mlp": (P("data", None), P(None, "model"), P("model", None)),
    "mixed-mlp": (P("data", None), P(None, "model"), P("model", None)),
}


def types(name):
    """The axis types that a program is written for."""
    return {
        "explicit-mlp": (AxisType.Explicit, AxisType.Explicit),
        "mixed-mlp": (AxisType.Auto, AxisType.Explicit),
    }.get(name, (AxisType.Auto, AxisType.Auto))


def arguments(name):
    return tuple(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in SHAPES[name])


def function(name, which):
    forward = PROGRAMS[name]()
    if which == "forward":
        return forward
    places = tuple(range(len(SHAPES[name])))
    return jax.grad(lambda *args: (forward(*args) ** 2).sum(), argnums=places)


def psum_matmul():
    def body(x, w):
        return lax.psum(x @ w, "model")

    return jax.shard_map(body, in_specs=SPECS["psum-matmul"], out_specs=P("data", None))


def ring():
    """`x @ w.T` with both cut by columns over `model`: blocks go round, one step of a scan for each device."""

    def body(x, w):
        n = lax.axis_size("model")
        me = lax.axis_index("model")
        rows = w.shape[0] // n
        around = [(i, (i + 1) % n) for i in range(n)]

        def step(total, i):
            block = lax.dynamic_slice_in_dim(w, ((me - i - 1) % n) * rows, rows)
            return lax.ppermute(total, "model", around) + x @ block.T, None

        begin = lax.pcast(jnp.zeros((x.shape[0], rows)), ("data", "model"), to="varying")
        return lax.scan(step, begin, jnp.arange(n))[0]

    return jax.shard_map(body, in_specs=SPECS["ring"], out_specs=P("data", "model"))


def dispatch():
    """Every device sends the n-th part of its tokens to the n-th expert's device and gets the results back."""

    def body(x, w):
        n = lax.axis_size("model")
        held = w.shape[0]
        out = lax.all_to_all(x.reshape(n, held, -1, x.shape[-1]), "model", 0, 0)
        out = jnp.einsum("nhtd,hdf->nhtf", out, w)
        return lax.all_to_all(out, "model", 0, 0).reshape(x.shape)

    return jax.shard_map(body, in_specs=SPECS["dispatch"], out_specs=P(("data", "model")))


def partial_auto():
    def body(x, w):
        return lax.psum(x @ w, "model")

    part = jax.shard_map(body, in_specs=(P(None, "model"), P("model")), out_specs=P(), axis_names={"model"})

    def fn(x, w, v):
        return jnp.tanh(part(x, w)) @ v

    return fn


def explicit_mlp():
    def fn(x, w, v):
        return jnp.einsum("ij,jk->ik", jnp.tanh(x @ w), v, out_sharding=P("data", None))

    return fn


def mixed_mlp():
    def fn(x, w, v):
        return jnp.einsum("ij,jk->ik", jnp.tanh(x @ w), v, out_sharding=P(None, None))

    return fn


PROGRAMS = {
    "psum-matmul": psum_matmul,
    "ring": ring,
    "dispatch": dispatch,
    "partial-auto": partial_auto,
    "explicit-mlp": explicit_mlp,
    "mixed-mlp": mixed_mlp,
}


def single(name, devices):
    """The same mathematics on one device, without a mesh."""
    data, model = MESHES[devices]
    if name == "psum-matmul":
        return lambda x, w: x @ w
    if name == "ring":
        return lambda x, w: x @ w.T
    if name == "dispatch":

        def fn(x, w):
            tokens = x.reshape(data * model, 64, -1, x.shape[-1])  # on each device one group for each expert
            return jnp.einsum("ntsd,tdf->ntsf", tokens, w).reshape(x.shape)

        return fn
    if name == "partial-auto":
        return lambda x, w, v: jnp.tanh(x @ w) @ v
    return lambda x, w, v: jnp.tanh(x @ w) @ v
