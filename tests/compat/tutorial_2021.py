"""A train step as tutorials of 2021 wrote it: a mesh of two axes, `with mesh:`, axis resources, momentum.

But for where `pjit`, `PartitionSpec` and `with_sharding_constraint` are imported from, nothing is of today.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import with_sharding_constraint
from jax.sharding import PartitionSpec as P

from shardviz.compat.pjit import pjit

D_IN, D_HIDDEN, D_OUT, BATCH = 16, 64, 8, 32

param_spec = {
    "dense1": {"kernel": P(None, "model"), "bias": P("model")},
    "dense2": {"kernel": P("model", None), "bias": None},
}
state_spec = {"params": param_spec, "velocity": param_spec, "step": None}
batch_spec = (P("data", None), P("data", None))


def init(seed):
    k1, k2 = jax.random.split(jax.random.PRNGKey(seed))
    params = {
        "dense1": {"kernel": jax.random.normal(k1, (D_IN, D_HIDDEN)) / 4.0, "bias": jnp.zeros(D_HIDDEN)},
        "dense2": {"kernel": jax.random.normal(k2, (D_HIDDEN, D_OUT)) / 8.0, "bias": jnp.zeros(D_OUT)},
    }
    return {"params": params, "velocity": jax.tree_util.tree_map(jnp.zeros_like, params), "step": jnp.zeros((), int)}


def predict(params, x):
    h = jax.nn.relu(jnp.dot(x, params["dense1"]["kernel"]) + params["dense1"]["bias"])
    h = with_sharding_constraint(h, P("data", "model"))
    return jnp.dot(h, params["dense2"]["kernel"]) + params["dense2"]["bias"]


def loss_fn(params, batch):
    x, y = batch
    return jnp.mean((predict(params, x) - y) ** 2)


def train_step(state, batch, learning_rate):
    loss, grads = jax.value_and_grad(loss_fn)(state["params"], batch)
    velocity = jax.tree_util.tree_map(lambda v, g: 0.9 * v + g, state["velocity"], grads)
    params = jax.tree_util.tree_map(lambda p, v: p - learning_rate * v, state["params"], velocity)
    return {"params": params, "velocity": velocity, "step": state["step"] + 1}, loss


p_train_step = pjit(
    train_step,
    in_axis_resources=(state_spec, batch_spec),
    out_axis_resources=(state_spec, None),
    static_argnums=(2,),
    donate_argnums=(0,),
)


def batch():
    x = np.zeros((BATCH, D_IN), np.float32)
    return x, np.sin(x[:, :D_OUT])
