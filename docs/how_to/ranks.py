"""A training script for several processes with a mistake: only one process calls a program that is on all devices."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

jax.distributed.initialize()
mesh = jax.make_mesh((jax.device_count(),), ("data",), axis_types=(AxisType.Auto,))
rows = NamedSharding(mesh, P("data"))


def loss(w, x):
    return jnp.mean((x @ w) ** 2)


@jax.jit
def step(w, x):
    return w - 0.01 * jax.grad(loss)(w, x)


@jax.jit
def evaluate(w, x):
    return loss(w, x)


w = jax.device_put(np.ones((1024, 1024), np.float32), NamedSharding(mesh, P()))
for number in range(4):
    batch = np.ones((64, 1024), np.float32)  # the rows of this process
    x = jax.make_array_from_process_local_data(rows, batch)
    w = step(w, x)
    if number % 2 == 1 and jax.process_index() == 0:
        print(evaluate(w, x))
