"""A GPT-2-shaped language model as it was sharded in 2021: `pjit`, axis resources, and rules that match names.

The specs are not written next to the weights. A list of rules, each a pattern of names and a PartitionSpec, is matched
against the path of every parameter, as the Megatron-style examples of the time did (Shoeybi et al., 2019,
"Megatron-LM"); the optimizer's state has the parameters' specs. `pjit` is shardviz's own, with the signature and rules
of JAX's former `pjit`; everything else is unchanged. The report shows two all-reduces over `mp` for
each layer forward and four backward: one for the feed-forward block, and one each for queries, keys and values, where
an all-reduce of their sum would do. It shows one over `dp` for each weight's gradient, and weights that are replicated
along `dp`, which FSDP later sharded.
"""

from __future__ import annotations

import math
import re
from typing import Any

import jax
import jax.numpy as jnp
from jax.lax import with_sharding_constraint
from jax.sharding import PartitionSpec as P

from shardviz.compat.pjit import pjit
from shardviz.errors import ShardvizError
from shardviz.gallery.example import Example, mesh_of
from shardviz.gallery.nnx import step_flops

RULES = (
    (("wte", "embedding"), P("mp", None)),
    (("wpe", "embedding"), None),
    (("attn", "(q|k|v)", "kernel"), P(None, "mp")),
    (("attn", "(q|k|v)", "bias"), P("mp")),
    (("attn", "out", "kernel"), P("mp", None)),
    (("mlp", "up", "kernel"), P(None, "mp")),
    (("mlp", "up", "bias"), P("mp")),
    (("mlp", "down", "kernel"), P("mp", None)),
    ((".*", "(bias|scale)"), None),
)
"""Patterns of the last names of a path, and the spec of the matching parameters; the first match applies."""


def spec_of(path: tuple[str, ...]) -> Any:
    """Return the spec of the parameter at a path; raise ShardvizError if no rule matches."""
    for patterns, spec in RULES:
        names = path[-len(patterns) :]
        if len(names) == len(patterns) and all(map(re.fullmatch, patterns, names)):
            return spec
    raise ShardvizError(f"no rule matches {'/'.join(path)}")


def set_partitions(params: dict[str, Any], path: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the tree of specs for a tree of parameters."""
    return {
        name: set_partitions(value, (*path, name)) if isinstance(value, dict) else spec_of((*path, name))
        for name, value in params.items()
    }


def layer_norm(x: Any, p: dict[str, Any]) -> Any:
    """Normalise each token's features to mean zero and variance one, then scale and shift them."""
    mean = x.mean(axis=-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(x.var(axis=-1, keepdims=True) + 1e-5) * p["scale"] + p["bias"]


def dense(x: Any, p: dict[str, Any]) -> Any:
    """Apply a linear layer."""
    return jnp.dot(x, p["kernel"]) + p["bias"]


def attention(x: Any, p: dict[str, Any], heads: int) -> Any:
    """Apply causal self-attention."""
    batch, length, features = x.shape
    q, k, v = (dense(x, p[name]).reshape(batch, length, heads, features // heads) for name in "qkv")
    scores = jnp.einsum("bthd,bshd->bhts", q, k) / math.sqrt(features // heads)
    scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e10)
    out = jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(scores, axis=-1), v)
    return dense(out.reshape(batch, length, features), p["out"])


def forward(params: dict[str, Any], tokens: Any, heads: int) -> Any:
    """Return logits for every token; the embedding is also the last layer."""
    x = params["wte"]["embedding"][tokens] + params["wpe"]["embedding"][: tokens.shape[1]]
    for p in params["h"].values():
        x = with_sharding_constraint(x, P("dp", None, None))
        x = x + attention(layer_norm(x, p["ln_1"]), p["attn"], heads)
        x = x + dense(jax.nn.gelu(dense(layer_norm(x, p["ln_2"]), p["mlp"]["up"])), p["mlp"]["down"])
    return jnp.dot(layer_norm(x, params["ln_f"]), params["wte"]["embedding"].T)


def loss_fn(params: dict[str, Any], tokens: Any, heads: int) -> Any:
    """Return the mean cross-entropy of each next token."""
    logits = forward(params, tokens, heads)
    targets = jnp.roll(tokens, -1, axis=1)
    correct = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - correct)


def train_step(state: dict[str, Any], tokens: Any, heads: int) -> tuple[dict[str, Any], Any]:
    """Take one step of Adam; return the new state and the loss."""
    loss, grads = jax.value_and_grad(loss_fn)(state["params"], tokens, heads)
    mu = jax.tree_util.tree_map(lambda m, g: 0.9 * m + 0.1 * g, state["mu"], grads)
    nu = jax.tree_util.tree_map(lambda n, g: 0.95 * n + 0.05 * g * g, state["nu"], grads)
    params = jax.tree_util.tree_map(lambda p, m, n: p - 1e-4 * m / (jnp.sqrt(n) + 1e-8), state["params"], mu, nu)
    return {"params": params, "mu": mu, "nu": nu}, loss


def parameters(layers: int, features: int, vocabulary: int, length: int) -> dict[str, Any]:
    """Return the shapes of the model's parameters."""

    def array(*shape):
        return jax.ShapeDtypeStruct(shape, jnp.float32)

    def linear(a, b):
        return {"kernel": array(a, b), "bias": array(b)}

    def norm():
        return {"scale": array(features), "bias": array(features)}

    def block():
        return {
            "ln_1": norm(),
            "attn": {name: linear(features, features) for name in ("q", "k", "v", "out")},
            "ln_2": norm(),
            "mlp": {"up": linear(features, 4 * features), "down": linear(4 * features, features)},
        }

    return {
        "wte": {"embedding": array(vocabulary, features)},
        "wpe": {"embedding": array(length, features)},
        "h": {str(i): block() for i in range(layers)},
        "ln_f": norm(),
    }


def gpt_2021(
    *,
    layers: int = 12,
    features: int = 768,
    heads: int = 12,
    vocabulary: int = 50304,
    batch: int = 64,
    length: int = 1024,
    mesh: Any = None,
) -> Example:
    """Return a GPT-2-shaped train step under `pjit`, over the axes `dp` and `mp` of its time.

    Args:
        layers, features, heads: the model's sizes; GPT-2 small's if not given.
        vocabulary: the number of tokens; GPT-2's 50257, padded so that it divides.
        batch: sequences in a step.
        length: tokens in a sequence.
        mesh: a mesh with axes `dp` and `mp`; `dp=2,mp=4` if not given.

    Returns:
        The `Example`; its `fn` is the return value of `pjit`, and its specs are the arguments of `pjit`.

    Raises:
        ShardvizError: if the mesh has no axis `dp` or `mp`.
    """
    mesh = mesh_of(mesh, {"dp": 2, "mp": 4})
    if missing := {"dp", "mp"} - set(mesh):
        raise ShardvizError(f"gpt_2021(mesh): its rules are over 'dp' and 'mp'; {mesh} has no {', '.join(missing)}")
    params = parameters(layers, features, vocabulary, length)
    specs = set_partitions(params)
    state_spec = {"params": specs, "mu": specs, "nu": specs}
    p_train_step = pjit(
        train_step,
        in_axis_resources=(state_spec, P("dp", None)),
        out_axis_resources=(state_spec, None),
        static_argnums=(2,),
        donate_argnums=(0,),
    )
    tokens = jax.ShapeDtypeStruct((batch, length), jnp.int32)
    return Example(
        p_train_step,
        ({"params": params, "mu": params, "nu": params}, tokens, heads),
        mesh,
        None,
        None,
        {},
        sum(math.prod(p.shape) for p in jax.tree.leaves(params)),
        batch * length,
        *step_flops(
            vocabulary=vocabulary, layers=layers, d_model=features, d_ff=4 * features, batch=batch, length=length
        ),
    )
