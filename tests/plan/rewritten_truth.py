"""Programs with collectives that can, or cannot, be written otherwise, run both ways on 8 devices. Prints, as JSON, for
each its collectives before and after, and the largest difference of the results."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import jax
import jax.numpy as jnp
import numpy as np
from jax._src import core as jax_core
from jax.sharding import PartitionSpec as P

from shardviz import _jax
from shardviz._jax.jaxprs import every_equation

KINDS = ("all_to_all", "psum", "psum_invariant", "psum2", "reduce_scatter", "all_gather", "all_gather_invariant")
LAX = jax.lax


def own_rows(x, whole, axis="d"):
    n = whole.shape[0] // LAX.axis_size(axis)
    return LAX.dynamic_slice_in_dim(whole, LAX.axis_index(axis) * n, n)


def scattered(x):
    return own_rows(x, LAX.psum(jnp.tanh(x), "d"))


def of_a_neighbour(x):
    n = x.shape[0] // 8
    return LAX.dynamic_slice_in_dim(LAX.psum(x, "d"), (LAX.axis_index("d") + 1) % 8 * n, n)


def read_twice(x):
    whole = LAX.psum(x, "d")
    return own_rows(x, whole) + whole.sum()


def exchanged(x):
    return LAX.dynamic_slice_in_dim(LAX.all_gather(x, "d", tiled=True), LAX.axis_index("d"), 1, 1)[:8]


def of_its_own_rows(x):
    return own_rows(x, LAX.all_gather(x, "d", tiled=True))


def of_one_column(x):
    return LAX.dynamic_slice_in_dim(LAX.all_gather(x, "d", tiled=True), LAX.axis_index("d") // 2, 1, 1)[:8]


def summed_wide(x):
    return (LAX.psum(jnp.round(8 * x), "d") * 0.5).astype(jnp.bfloat16).astype(jnp.float32)


def moved_sum(x):
    return (LAX.psum(x, "d") + 1.0).astype(jnp.bfloat16).astype(jnp.float32)


def by_a_sum(x):
    return (1.0 / LAX.psum(jnp.exp(x), "d")).astype(jnp.bfloat16).astype(jnp.float32)


def narrowed(x):
    return (LAX.all_gather(x, "d", tiled=True) * 2.0 + 1.0).astype(jnp.bfloat16).astype(jnp.float32)


def by_device(x):
    scale = (LAX.axis_index("d") + 1).astype(x.dtype)
    return (LAX.all_gather(x, "d", tiled=True) * scale).astype(jnp.bfloat16).astype(jnp.float32)


def by_own_number(x):
    return (LAX.all_gather(x, "d", tiled=True) * x[0, 0]).astype(jnp.bfloat16).astype(jnp.float32)


def by_columns(x):
    return (LAX.all_gather(x, "d", tiled=True) * jnp.arange(8.0)).astype(jnp.bfloat16).astype(jnp.float32)


def summed(x):
    return LAX.all_gather(x.sum(0), "d").sum(0)


def summed_tiled(x):
    return LAX.all_gather(x, "d", tiled=True).sum(0)


def summed_otherwise(x):
    return LAX.all_gather(x, "d", axis=0).sum(1)


def in_a_loop(x):
    def run(h, row):
        return jnp.tanh(h + (LAX.all_gather(x, "d", tiled=True) ** 2).mean(0) + row), h.sum()

    return LAX.scan(run, x[0], jnp.ones((3, 8)))[0]


def of_what_changes(x):
    def run(h, _):
        return jnp.tanh(LAX.all_gather(h, "d", tiled=True)[: h.shape[0]] + h), None

    return LAX.scan(run, x, None, length=3)[0]


def in_a_jit(x):
    return jax.jit(lambda x: own_rows(x, LAX.psum(x, "d")))(x)


def differentiated(x):
    return jax.grad(lambda x: (scattered(x) ** 2).sum())(x)


PROGRAMS = {
    each.__name__: each
    for each in (
        *(scattered, of_a_neighbour, read_twice, narrowed, by_columns, summed, summed_tiled, summed_otherwise),
        *(in_a_loop, of_what_changes, in_a_jit, differentiated, by_device, by_own_number),
        *(exchanged, of_its_own_rows, of_one_column, summed_wide, moved_sum, by_a_sum),
    )
}


def kinds(closed):
    return sorted(e.primitive.name for e in every_equation(closed.jaxpr) if e.primitive.name in KINDS)


def main(devices, check, *names):
    mesh = jax.make_mesh((int(devices),), ("d",))
    x = np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32)
    x = jax.device_put(x, jax.NamedSharding(mesh, P("d")))
    answers = {}
    for name in names:
        mapped = jax.shard_map(
            PROGRAMS[name], mesh=mesh, in_specs=P("d"), out_specs=P("d"), check_vma=check == "checked"
        )
        closed = jax.make_jaxpr(jax.jit(mapped))(x)
        better, words = _jax.better_collectives(closed, lambda _: True)
        was, (new,) = jax.jit(mapped)(x), jax.jit(jax_core.jaxpr_as_fun(better))(x)
        answers[name] = kinds(closed), kinds(better), len(words), float(jnp.abs(was - new).max())
    print(json.dumps(answers))


if __name__ == "__main__":
    main(*sys.argv[1:])
