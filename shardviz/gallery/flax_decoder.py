"""A decoder transformer in flax.nnx with an optax optimizer; its variables carry the specs.

Requires the extra `flax`; `shardviz.gallery.decoder` imports this module only when it is called.

Each kernel is created with `nnx.with_partitioning`, so that the model states the mesh axes that shard it, and
the optimizer's moments have the same axes. The activations are constrained to be sharded along the batch, which needs
a mesh context (`with jax.set_mesh(mesh):`): without the constraint, a step takes several times as long. The report
shows the collectives of a hand-written FSDP and tensor parallel step, and the first and second moments,
which are two thirds of the arguments' bytes, sharded like their weights.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax.sharding import PartitionSpec as P

AXES = {"in": ("data", "model"), "out": ("model", "data"), "vocabulary": ("model", "data")}


def _init(axes: tuple[str, ...]) -> Any:
    return nnx.with_partitioning(nnx.initializers.variance_scaling(1.0, "fan_in", "truncated_normal"), axes)


def by_batch(x: Any) -> Any:
    """Constrain activations to be sharded along the batch; the weights' axes would shard their features."""
    return jax.lax.with_sharding_constraint(x, P("data"))


class Attention(nnx.Module):
    """Causal self-attention with as many key-value heads as query heads."""

    def __init__(self, d_model: int, heads: int, *, dtype: Any, rngs: nnx.Rngs):
        self.heads = heads
        line = {"use_bias": False, "dtype": dtype, "param_dtype": jnp.float32, "rngs": rngs}
        self.query, self.key, self.value = (
            nnx.Linear(d_model, d_model, kernel_init=_init(AXES["in"]), **line) for _ in range(3)
        )
        self.out = nnx.Linear(d_model, d_model, kernel_init=_init(AXES["out"]), **line)

    def __call__(self, x: Any) -> Any:
        batch, length, d = x.shape
        q, k, v = (f(x).reshape(batch, length, self.heads, -1) for f in (self.query, self.key, self.value))
        scores = jnp.einsum("bthd,bshd->bhts", q, k).astype(jnp.float32) / math.sqrt(d // self.heads)
        weights = jax.nn.softmax(jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e30))
        mixed = jnp.einsum("bhts,bshd->bthd", weights.astype(v.dtype), v)
        return self.out(mixed.reshape(batch, length, d))


class FlaxBlock(nnx.Module):
    """Attention and a feed-forward block, each normalised and added to the residual stream."""

    def __init__(self, d_model: int, d_ff: int, heads: int, *, dtype: Any, rngs: nnx.Rngs):
        line = {"use_bias": False, "dtype": dtype, "param_dtype": jnp.float32, "rngs": rngs}
        self.norm1 = nnx.RMSNorm(d_model, dtype=dtype, rngs=rngs)
        self.attention = Attention(d_model, heads, dtype=dtype, rngs=rngs)
        self.norm2 = nnx.RMSNorm(d_model, dtype=dtype, rngs=rngs)
        self.up = nnx.Linear(d_model, d_ff, kernel_init=_init(AXES["in"]), **line)
        self.down = nnx.Linear(d_ff, d_model, kernel_init=_init(AXES["out"]), **line)

    def __call__(self, x: Any) -> Any:
        x = x + self.attention(self.norm1(x))
        return x + self.down(jax.nn.gelu(self.up(self.norm2(x))))


class FlaxDecoder(nnx.Module):
    """Embedding, blocks, and logits."""

    def __init__(
        self, vocabulary: int, layers: int, d_model: int, d_ff: int, heads: int, *, dtype: Any, rngs: nnx.Rngs
    ):
        self.embed = nnx.Embed(vocabulary, d_model, embedding_init=_init(AXES["vocabulary"]), dtype=dtype, rngs=rngs)
        self.blocks = nnx.List([FlaxBlock(d_model, d_ff, heads, dtype=dtype, rngs=rngs) for _ in range(layers)])
        self.norm = nnx.RMSNorm(d_model, dtype=dtype, rngs=rngs)

    def __call__(self, tokens: Any) -> Any:
        x = by_batch(self.embed(tokens))
        for block in self.blocks:
            x = by_batch(block(x))
        return self.embed.attend(self.norm(x))


def loss_fn(model: FlaxDecoder, tokens: Any) -> Any:
    """Return the mean cross-entropy of each next token."""
    logits = model(tokens).astype(jnp.float32)
    targets = jnp.roll(tokens, -1, axis=1)
    return optax.softmax_cross_entropy_with_integer_labels(logits, targets).mean()


def train_step(model: FlaxDecoder, optimizer: nnx.Optimizer, tokens: Any) -> Any:
    """Take one step of Adam, which updates model and optimizer in place; return the loss."""
    loss, grads = nnx.value_and_grad(loss_fn)(model, tokens)
    optimizer.update(model, grads)
    return loss


def abstract(**sizes: Any) -> tuple[FlaxDecoder, nnx.Optimizer]:
    """Return the model and its optimizer with shapes in place of arrays."""

    def make() -> tuple[FlaxDecoder, nnx.Optimizer]:
        model = FlaxDecoder(**sizes, rngs=nnx.Rngs(0))
        return model, nnx.Optimizer(model, optax.adamw(1e-3), wrt=nnx.Param)

    with nnx.use_eager_sharding(False):  # otherwise flax requires a mesh with devices to create a variable
        return nnx.eval_shape(make)


def count(model: FlaxDecoder) -> int:
    """Return the number of trainable parameters."""
    return sum(math.prod(p.shape) for p in jax.tree.leaves(nnx.state(model, nnx.Param)))
