"""A training script of 44 billion parameters in flax.nnx, for 64 devices, its layers unrolled: run dry and timed."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

LAYERS, WIDTH = 54, 8192
mesh = jax.make_mesh((16, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)


def linear(a, b, spec, rngs):
    init = nnx.with_partitioning(nnx.initializers.lecun_normal(), spec)
    return nnx.Linear(a, b, use_bias=False, rngs=rngs, kernel_init=init, param_dtype=jnp.bfloat16)


class Layer(nnx.Module):
    def __init__(self, rngs):
        self.norm1, self.norm2 = nnx.RMSNorm(WIDTH, rngs=rngs), nnx.RMSNorm(WIDTH, rngs=rngs)
        self.q, self.k, self.v = (linear(WIDTH, WIDTH, ("data", "model"), rngs) for _ in range(3))
        self.o = linear(WIDTH, WIDTH, ("model", "data"), rngs)
        self.up, self.down = (
            linear(WIDTH, 4 * WIDTH, ("data", "model"), rngs),
            linear(4 * WIDTH, WIDTH, ("model", "data"), rngs),
        )

    def __call__(self, x):
        h = self.norm1(x)
        q, k, v = (f(h).reshape(*x.shape[:2], 64, 128) for f in (self.q, self.k, self.v))
        x = x + self.o(jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(x.shape))
        return x + self.down(jax.nn.silu(self.up(self.norm2(x))))


class Model(nnx.Module):
    def __init__(self, rngs):
        self.embed = nnx.Embed(32768, WIDTH, rngs=rngs, param_dtype=jnp.bfloat16)
        self.layers = nnx.List([Layer(rngs) for _ in range(LAYERS)])

    def __call__(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.embed.attend(x)


with jax.set_mesh(mesh):

    @nnx.jit
    def create():
        model = Model(nnx.Rngs(0))
        state = nnx.state(model)
        nnx.update(model, jax.lax.with_sharding_constraint(state, nnx.get_partition_spec(state)))
        return model, nnx.Optimizer(model, optax.adamw(1e-3), wrt=nnx.Param)

    @nnx.jit(donate_argnums=(0, 1))
    def train_step(model, optimizer, tokens):
        def loss(model):
            logits = model(tokens)
            return optax.softmax_cross_entropy_with_integer_labels(
                logits[:, :-1].astype(jnp.float32), tokens[:, 1:]
            ).mean()

        value, grads = nnx.value_and_grad(loss)(model)
        optimizer.update(model, grads)
        return value

    model, optimizer = create()
    for _ in range(1000):
        tokens = jax.device_put(np.zeros((64, 4096), np.int32), NamedSharding(mesh, P("data")))
        value = train_step(model, optimizer, tokens)
