"""A flax.nnx trainer that hands its weights to a sampler: run dry, then really on 8 simulated devices with the code of
`sv.reshard`; a program of its own, which ends with 0 if equal bytes arrive and the sampler computes the same."""

from __future__ import annotations

import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import shardviz as sv


class Model(nnx.Module):
    def __init__(self, rngs):
        self.up, self.down = nnx.Linear(32, 64, rngs=rngs), nnx.Linear(64, 32, rngs=rngs)

    def __call__(self, x):
        return self.down(nnx.relu(self.up(x)))


def placed(state, mesh, kernel):
    spec = lambda x: NamedSharding(mesh, kernel if x.ndim == 2 else P())
    return jax.tree.map(lambda x: jax.device_put(x, spec(x)), state)


def loss(model, x):
    return jnp.mean((model(x) - x) ** 2)


@nnx.jit
def step(model, x):
    grads = nnx.grad(loss)(model, x)
    nnx.update(model, jax.tree.map(lambda p, g: p - 0.1 * g, nnx.state(model), nnx.state(grads)))


def trained():
    model = Model(nnx.Rngs(0))
    nnx.update(model, placed(nnx.state(model), Mesh(np.array(jax.devices()), ("fsdp",)), P("fsdp")))
    for _ in range(2):
        step(model, jnp.ones((8, 32)))
    return model


if __name__ == "__main__":
    serve = Mesh(np.array(jax.devices()[::-1]).reshape(2, 4), ("replica", "tensor"))
    with sv.dry_run(small=0) as run:
        model = trained()
        state = nnx.state(model)
        specs = jax.tree.map(lambda x: P(None, "tensor") if x.ndim == 2 else P(), state)
        moved = sv.reshard(state, None, specs, to_mesh=serve)
    assert len(run.programs) and not moved.nowhere
    model = trained()
    wanted, x = jax.tree.map(np.asarray, nnx.state(model)), jnp.ones((4, 32))
    for way in moved.ways:
        space: dict = {}
        exec(moved.code(way), space)
        old = jax.tree.map(lambda x: jax.device_put(np.asarray(x), x.sharding), nnx.state(model))
        new = space["reshard"](old, serve.devices.flat)
        jax.tree.map(np.testing.assert_array_equal, jax.tree.map(np.asarray, new), wanted)
        sampler = Model(nnx.Rngs(1))
        nnx.update(sampler, new)
        np.testing.assert_allclose(np.asarray(sampler(x)), np.asarray(model(x)), rtol=1e-5, atol=1e-6)
    print(len(moved.ways), "ways,", moved.moved_bytes, "bytes")
