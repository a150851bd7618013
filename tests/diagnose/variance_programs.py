"""Bodies of shard_maps over `data=2,model=4`; run as `python variance_programs.py`, what truly differs between devices.

No shardviz in it. A line of JSON: for each body the axes along which devices hold different results.
"""

import json
import os

if __name__ == "__main__":
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

CUT = (P("data", "model"), P("model"))
SHAPES = (8, 16), (16, 4)


def unsummed(x, w):
    return jnp.tanh(x @ w)  # the sum


def summed(x, w):
    return jax.lax.psum(x @ w, "model")


def scattered(x, w):
    y = jax.lax.psum_scatter(x @ w, "model", scatter_dimension=1, tiled=True)
    return jax.lax.all_gather(y, "model", axis=1, tiled=True)


def of_index(x, w):
    return jnp.zeros((4,)) + jax.lax.axis_index("model")


def reduced_locally(x, w):
    return jnp.sum(x, axis=1)


def reduced_everywhere(x, w):
    return jax.lax.pmean(jnp.sum(x, axis=1), "model")


def largest(x, w):
    return jax.lax.pmax(jnp.max(x), ("data", "model"))


def looped(x, w):
    def body(carry, _):
        return carry + jnp.sum(x), None

    return jax.lax.scan(body, jnp.zeros(()), None, length=3)[0]


def looped_and_summed(x, w):
    return jax.lax.psum(looped(x, w), ("data", "model"))


def until(x, w):
    return jax.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] + jnp.sum(x)), (0, 0.0))[1]


def as_often_as_its_index(x, w):
    last = jax.lax.axis_index("model")
    return jax.lax.while_loop(lambda c: c < last, lambda c: c + 1, 0) * jnp.ones(())


def stacked(x, w):
    return jax.lax.scan(lambda c, row: (c, jnp.sum(row)), 0.0, jnp.ones((4, 3)))[1]


def branched(x, w):
    return jax.lax.cond(jax.lax.axis_index("model") == 0, lambda: jnp.ones((2,)), lambda: jnp.zeros((2,)))


def in_function(x, w):
    return jax.jit(lambda a: jax.nn.relu(a) * 2)(x @ w)


def ring(x, w):
    y = total = x @ w
    for _ in range(3):
        y = jax.lax.ppermute(y, "model", [(i, (i + 1) % 4) for i in range(4)])
        total = total + y
    return total


BODIES = {
    body.__name__: body
    for body in (
        *(unsummed, summed, scattered, of_index, reduced_locally, reduced_everywhere, largest),
        *(looped, looped_and_summed, until, as_often_as_its_index, stacked, branched, in_function, ring),
    )
}


def differing(body) -> list[str]:
    """The axes along which devices hold different results, by running it and looking at every device's own."""
    mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "model"))
    random = np.random.default_rng(0)
    arrays = [random.normal(size=shape).astype(np.float32) for shape in SHAPES]
    own = jax.shard_map(
        lambda *args: body(*args)[None, None], mesh=mesh, in_specs=CUT, out_specs=P("data", "model"), check_vma=False
    )
    found = np.asarray(jax.jit(own)(*arrays))
    return [
        a for i, a in enumerate(("data", "model")) if not np.allclose(found, np.take(found, [0], axis=i), atol=1e-5)
    ]


if __name__ == "__main__":
    print(json.dumps({name: differing(body) for name, body in BODIES.items()}))
