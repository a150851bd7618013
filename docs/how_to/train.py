"""A training script as people write them: it builds its mesh and its arrays on devices, and loops."""

import functools
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

layers = int(sys.argv[1]) if len(sys.argv) > 1 else 8
mesh = jax.make_mesh((jax.device_count() // 4, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
shardings = {"up": NamedSharding(mesh, P(None, "data", "model")), "down": NamedSharding(mesh, P(None, "model", "data"))}


@functools.partial(jax.jit, out_shardings=shardings)
def init(key):
    shape = layers, 8192, 32768
    return {"up": jax.random.normal(key, shape, jnp.bfloat16), "down": jnp.zeros((layers, 32768, 8192), jnp.bfloat16)}


def loss(params, x):
    def layer(x, w):
        return x + jax.nn.gelu(x @ w["up"]) @ w["down"], None

    y, _ = jax.lax.scan(jax.checkpoint(layer), x, params)
    return jnp.mean(y.astype(jnp.float32) ** 2)


@functools.partial(jax.jit, donate_argnums=0)
def train_step(params, x):
    value, grads = jax.value_and_grad(loss)(params, x)
    return jax.tree.map(lambda p, g: p - 0.01 * g, params, grads), value


params = init(jax.random.key(0))
for step in range(1000):
    x = jax.device_put(np.zeros((64 * 1024, 8192), jnp.bfloat16), NamedSharding(mesh, P("data")))
    params, value = train_step(params, x)
    print(f"step {step}: loss {value}")
