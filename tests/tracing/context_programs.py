"""Functions that do one thing or another by the mesh that stands around their call, as libraries do."""

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.interpreters import pxla
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

SHAPE = (16, 16)
SPECS = (P("data"), P(None, "model"))
RULES = (("batch", "data"), ("embed", None))
PLACES = {"none": (), "with": ("with",), "set_mesh": ("set_mesh",), "both": ("with", "set_mesh")}


def bare(x, w):
    return jax.lax.with_sharding_constraint(x @ w, P()) * 2


def named(x, w):
    return x @ w


def t5x_like(x, w):
    """t5x's `global_mesh_defined` looks at what `with mesh:` fills."""
    h = x @ w
    if pxla.thread_resources.env.physical_mesh.devices.shape != ():
        h = jax.lax.with_sharding_constraint(h, P("data"))
    return h * 2


def own_sharding(x, w):
    """Makes its sharding of the mesh that it finds."""
    h, mesh = x @ w, pxla.thread_resources.env.physical_mesh
    return h * 2 if mesh.empty else jax.lax.with_sharding_constraint(h, NamedSharding(mesh, P("data"))) * 2


def abstract(x, w):
    h = x @ w
    if not jax.sharding.get_abstract_mesh().empty:
        h = jax.lax.with_sharding_constraint(h, P("data"))
    return h * 2


def logical(x, w):
    return nn.with_logical_constraint(x @ w, ("batch", "embed"), rules=RULES) * 2


def by_rules(x, w):
    return nn.with_logical_constraint(x @ w, ("batch", "embed")) * 2


class Block(nn.Module):
    @nn.compact
    def __call__(self, x):
        h = nn.Dense(16, kernel_init=nn.with_logical_partitioning(nn.initializers.ones, ("embed", "batch")))(x)
        return nn.with_logical_constraint(jnp.tanh(h), ("batch", "embed"))


def module(x, w):
    return Block().apply({"params": {"Dense_0": {"kernel": w, "bias": jnp.zeros(16)}}}, x)


def checkpointed(x, w):
    return jax.checkpoint(lambda x: jax.lax.scan(lambda c, _: (abstract(c, w), None), x, None, length=2)[0])(x)


NAMES = ("bare", "named", "t5x_like", "own_sharding", "abstract", "logical", "by_rules", "module", "checkpointed")
