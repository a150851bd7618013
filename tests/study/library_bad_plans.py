"""Programs of Flax's, Equinox's and Optax's own layers under plans with one fault each; no shardviz in it.

The other plans here are of loops, pipelines and transforms written by hand.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from flax import linen, nnx
from jax.sharding import PartitionSpec as P

from tests.raw import array
from tests.study.bad_plans import BATCH, BF16, DE, DM, FSDP, INIT, INT32, WHOLE, X8, XS, Bad, held, layers, loss
from tests.study.more_bad_plans import SWITCH, SWITCH_SPECS, dispatched

KEY = jax.random.key(0)
NARROW = partial(jax.tree.map, lambda a: array(*a.shape, dtype=BF16) if a.dtype == jnp.float32 else a)
"""Arrays in bfloat16 in place of float32."""


class Adapted(nnx.Module):
    def __init__(self, d: int, ff: int, rngs: nnx.Rngs):
        make = partial(nnx.LoRALinear, lora_rank=64, use_bias=False, dtype=BF16, param_dtype=BF16, rngs=rngs)
        self.up, self.down = make(d, ff), make(ff, d)

    def __call__(self, x):
        return x + self.down(jax.nn.gelu(self.up(x)))


LORA, ADAPTERS, BASE = nnx.split(nnx.eval_shape(lambda: Adapted(4096, 16384, nnx.Rngs(0))), nnx.LoRAParam, ...)
ADAPTERS, BASE = (jax.tree.map(lambda a: array(64, *a.shape, dtype=BF16), state) for state in (ADAPTERS, BASE))


def adapt(adapters, base, x, y):
    """A step of the adapters of layers in a loop; the layers themselves stay."""

    def of(adapters):
        layer = jax.checkpoint(lambda h, each: (nnx.merge(LORA, *each)(h), None))
        return jnp.mean((jax.lax.scan(layer, x, (adapters, base))[0] - y).astype(jnp.float32) ** 2)

    return jax.tree.map(lambda p, g: p - 0.1 * g, adapters, jax.grad(of)(adapters))


def gathered_per_microbatch(before, params, xs, ys):
    """Gradients of microbatches, added up; the weights are gathered in each, or before all."""
    whole = partial(jax.tree.map, lambda w: held(w, P()))
    used = whole(params) if before else params

    def add(total, batch):
        grads = jax.grad(lambda p: loss(p if before else whole(p), *batch))(used)
        return jax.tree.map(jnp.add, total, grads), None

    total, _ = jax.lax.scan(add, jax.tree.map(jnp.zeros_like, params), (xs, ys))
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, total)


def gru() -> linen.RNN:
    return linen.RNN(linen.GRUCell(1024, dtype=BF16, param_dtype=BF16, recurrent_kernel_init=INIT))


BOTH_WAYS = linen.Bidirectional(gru(), gru())
SPOKEN = array(64, 512, 1024, dtype=BF16)
BOTH_WAYS_WEIGHTS = jax.eval_shape(BOTH_WAYS.init, KEY, SPOKEN)


def arrays_of(make, *args):
    """The arrays of a module of Equinox, and the rest of it."""
    return eqx.partition(eqx.filter_eval_shape(make, *args, key=KEY), lambda a: isinstance(a, jax.ShapeDtypeStruct))


HEADS, OF_HEADS = arrays_of(eqx.nn.MultiheadAttention, 16, 2048)
HEADS = NARROW(HEADS)


def attend(weights, x):
    attention = eqx.combine(weights, OF_HEADS)
    return x + jax.vmap(lambda row: attention(row, row, row))(x)


class Denoiser(linen.Module):
    channels: int = 256

    @linen.compact
    def __call__(self, x, t):
        time = linen.Dense(self.channels, dtype=BF16, param_dtype=BF16)(t)
        for _ in range(3):
            h = linen.GroupNorm(32, dtype=BF16, param_dtype=BF16)(x)
            h = linen.Conv(self.channels, (3, 3), dtype=BF16, param_dtype=BF16)(jax.nn.silu(h))
            h = linen.Conv(self.channels, (3, 3), dtype=BF16, param_dtype=BF16)(jax.nn.silu(h + time[:, None, None]))
            x = x + h
        return x


NOISY, TIMES = array(64, 64, 64, 256, dtype=BF16), array(64, 512, dtype=BF16)
DENOISER = jax.eval_shape(Denoiser().init, KEY, NOISY, TIMES)


def denoised(params, x, t, noise):
    def of(params):
        return jnp.mean((Denoiser().apply(params, x, t) - noise).astype(jnp.float32) ** 2)

    return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(of)(params))


def kernels(spec, tree):
    """A spec for the kernels of convolutions; the rest is replicated."""
    return jax.tree.map(lambda a: spec if a.ndim == 4 else P(), tree)


class Encoder(linen.Module):
    @linen.compact
    def __call__(self, x):
        make = partial(linen.Dense, use_bias=False, dtype=BF16, param_dtype=BF16)
        attention = linen.MultiHeadDotProductAttention(16, dtype=BF16, param_dtype=BF16, use_bias=False)
        x = x + attention(linen.LayerNorm(dtype=BF16, param_dtype=BF16)(x))
        h = linen.LayerNorm(dtype=BF16, param_dtype=BF16)(x)
        return x + make(2048, name="down")(jax.nn.gelu(make(8192, name="up")(h)))


PATCHES = array(2, 4096, 2048, dtype=BF16)
ENCODER = jax.eval_shape(Encoder().init, KEY, PATCHES)


def of_encoder(heads, out):
    named = {"query": heads, "key": heads, "value": heads, "out": out, "up": P(None, "model"), "down": P("model")}
    return jax.tree.map_with_path(
        lambda path, _: next((spec for name, spec in named.items() if f"'{name}'" in str(path)), P()), ENCODER
    )


CACHED = linen.MultiHeadDotProductAttention(32, dtype=BF16, param_dtype=BF16, use_bias=False, decode=True)
CACHE = jax.eval_shape(CACHED.init, KEY, array(32, 4096, 4096, dtype=BF16))


def decoded(params, cache, x):
    """A step of decoding with Flax's own cache."""
    return CACHED.apply({"params": params, "cache": cache}, x, mutable="cache")


def of_cache(spec):
    return jax.tree.map(lambda a: spec if a.ndim == 4 else P(), CACHE["cache"])


def own_rows_updated(scatter, params, state, x, y):
    """ZeRO by hand: each device updates its rows of the weights, then all are gathered."""

    def rows(a):
        count = a.shape[0] // jax.lax.axis_size("data")
        return jax.lax.dynamic_slice_in_dim(a, jax.lax.axis_index("data") * count, count)

    @partial(jax.shard_map, in_specs=(P(), *(P("data"),) * 3), out_specs=(P(), P("data")), check_vma=False)
    def step(params, state, x, y):
        grads = jax.grad(loss)(params, x, y)
        if scatter:
            own = jax.tree.map(lambda g: jax.lax.psum_scatter(g, "data", tiled=True), grads)
        else:
            own = jax.tree.map(rows, jax.tree.map(lambda g: jax.lax.psum(g, "data"), grads))
        state = jax.tree.map(lambda m, g: 0.9 * m + g, state, own)
        new = jax.tree.map(lambda p, m: rows(p) - 0.1 * m, params, state)
        return jax.tree.map(lambda p: jax.lax.all_gather(p, "data", tiled=True), new), state

    return step(params, state, x, y)


ADAMW = optax.adamw(1e-3)
MOMENTS = jax.eval_shape(ADAMW.init, layers())


def adamw(params, state, x, y):
    updates, state = ADAMW.update(jax.grad(loss)(params, x, y), state, params)
    return optax.apply_updates(params, updates), state


def of_moments(params, other):
    return optax.tree.map_params(ADAMW, lambda _, spec: spec, MOMENTS, other, transform_non_params=lambda _: P())


CROSSED = [{"up": P(None, "fsdp"), "down": P(None, "fsdp")}] * 2

GRU = NARROW(eqx.filter_eval_shape(eqx.nn.GRUCell, 1024, 1024, key=KEY))


def stepped(spec, cell, xs):
    """Equinox's cell in a loop over time, with a constraint on its state."""

    def step(h, x):
        h = jax.vmap(cell)(x, h)
        return (h if spec is None else held(h, spec)), None

    return jax.lax.scan(step, jnp.zeros_like(xs[0]), xs)[0]


class Logical(linen.Module):
    """A layer whose constraints name logical axes, as in MaxText."""

    @linen.compact
    def __call__(self, x):
        make = partial(linen.DenseGeneral, use_bias=False, dtype=BF16, param_dtype=BF16)
        rows = ("batch", "length", "heads", "kv")
        hold = linen.with_logical_constraint
        x = hold(x, ("batch", "length", "embed"))
        q, k, v = (hold(make((16, 128), name=name)(x), rows) for name in ("query", "key", "value"))
        mixed = hold(linen.dot_product_attention(q, k, v), rows)
        x = hold(x + make(2048, axis=(-2, -1), name="out")(mixed), ("batch", "length", "embed"))
        h = hold(jax.nn.gelu(make(8192, name="up")(x)), ("batch", "length", "mlp"))
        return hold(x + make(2048, name="down")(h), ("batch", "length", "embed"))


LOGICAL = jax.eval_shape(Logical().init, KEY, PATCHES)


def of_logical(tensor, params, x):
    rules = (("batch", "data"), ("length", None), ("heads", tensor), ("kv", None), ("mlp", tensor), ("embed", None))
    with linen.logical_axis_rules(rules):
        return Logical().apply(params, x)


LOGICAL_SPECS = jax.tree.map_with_path(
    lambda path, _: P("model") if "'out'" in str(path) or "'down'" in str(path) else P(None, "model"), LOGICAL
)


class Tied(linen.Module):
    """A model whose table of words is its output layer too."""

    @linen.compact
    def __call__(self, tokens):
        embed = linen.Embed(131072, 2048, dtype=BF16, param_dtype=BF16)
        x = embed(tokens)
        x = x + linen.Dense(2048, dtype=BF16, param_dtype=BF16)(jax.nn.gelu(x))
        return embed.attend(x)


WORDS = array(2, 4096, dtype=INT32)
TIED = jax.eval_shape(Tied().init, KEY, WORDS)


def tied(params, tokens, labels):
    logits = Tied().apply(params, tokens).astype(jnp.float32)
    return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, labels))


def of_tied(spec):
    return jax.tree.map(lambda a: spec if a.shape[0] == 131072 else P(), TIED)


def pipelined(spec, params, xs):
    """A pipeline as in MaxText and Praxis: all stages run at once, and pass their results on."""

    def tick(buffer, x):
        buffer = held(jnp.roll(buffer, 1, 0).at[0].set(x), spec)
        buffer = held(jax.vmap(lambda w, h: h + jax.nn.gelu(h @ w["up"]) @ w["down"])(params, buffer), spec)
        return buffer, buffer[-1]

    return jax.lax.scan(tick, jnp.zeros((4, *xs.shape[1:]), xs.dtype), xs)[1]


STAGES = {"up": array(4, 4096, 16384, dtype=BF16), "down": array(4, 16384, 4096, dtype=BF16)}


def grouped_experts(params, x, sizes):
    """Tokens sorted by their expert, as in a dropless mixture of experts."""
    return jax.lax.ragged_dot(jax.nn.gelu(jax.lax.ragged_dot(x, params["in"], sizes)), params["out"], sizes)


GROUPED = {"in": array(8, 2048, 8192, dtype=BF16), "out": array(8, 8192, 2048, dtype=BF16)}

POLICY, OF_POLICY = arrays_of(eqx.nn.MLP, 64, "scalar", 2048, 3)


def advantages(weights, seen, rewards):
    """A step on the value of what was seen in many environments, of rewards that are summed backwards in time."""

    def value(weights):
        return jax.vmap(jax.vmap(eqx.combine(weights, OF_POLICY)))(seen)

    def back(total, row):
        total = row + 0.99 * total
        return total, total

    _, returns = jax.lax.scan(back, jnp.zeros_like(rewards[0]), rewards, reverse=True)
    grads = jax.grad(lambda w: jnp.mean((value(w) - returns) ** 2))(weights)
    return jax.tree.map(lambda p, g: p - 0.1 * g, weights, grads)


def private(gather, params, x, y):
    """A step whose gradients are clipped for each example, by Optax."""
    grads = jax.vmap(jax.grad(loss), (None, 0, 0))(params, x[:, None], y[:, None])
    grads = jax.tree.map(lambda g: held(g, P()), grads) if gather else grads
    total, _ = optax.per_example_global_norm_clip(grads, 1.0)
    return jax.tree.map(lambda p, g: p - 0.1 * g.astype(p.dtype), params, total)


EXAMPLES = array(64, 128, 1024, dtype=BF16)
SMALL: Any = layers(2, 1024, 2048)

OF_LIBRARIES: dict[str, Bad] = {
    "frozen layers replicated beside their adapters": Bad(
        adapt,
        (ADAPTERS, BASE, X8, X8),
        {"fsdp": 8},
        (P(), P(), P("fsdp"), P("fsdp")),
        r"\bbase\b",
        good=(P(), P(None, "fsdp"), P("fsdp"), P("fsdp")),
        memory=True,
    ),
    "weights gathered in each microbatch": Bad(
        partial(gathered_per_microbatch, False),
        (layers(), XS, XS),
        {"fsdp": 8},
        (FSDP, P(None, "fsdp"), P(None, "fsdp")),
        r"each.* of a loop.*(gather|same)|before the loop",
        out=FSDP,
        better=partial(gathered_per_microbatch, True),
    ),
    "time sharded in a recurrence both ways": Bad(
        BOTH_WAYS.apply,
        (BOTH_WAYS_WEIGHTS, SPOKEN),
        DM,
        (P(), P("data", "model")),
        r"steps along|batch along data and model|replicate dimension sequence",
        good=(P(), P(("data", "model"))),
    ),
    "time sharded in attention": Bad(
        attend,
        (HEADS, array(8, 2048, 2048, dtype=BF16)),
        {"data": 8},
        (P(), P(None, "data")),
        r"batch along data in x",
        good=(P(), BATCH),
    ),
    "tokens sent to experts the wrong way": Bad(
        partial(dispatched, P("data", "expert")),
        (SWITCH, array(8, 2048, 2048, dtype=BF16)),
        DE,
        (SWITCH_SPECS, P(("data", "expert"))),
        r"constrain.*P\('data', 'expert'\)",
        better=partial(dispatched, P("expert", "data")),
    ),
    "kernels of a denoiser by their output channels": Bad(
        denoised,
        (DENOISER, NOISY, TIMES, NOISY),
        DM,
        (kernels(P(None, None, None, "model"), DENOISER), BATCH, BATCH, BATCH),
        r"kernel|convolution.*model|batch .*model",
        good=(P(), P(("data", "model")), P(("data", "model")), P(("data", "model"))),
    ),
    "heads sharded along their features": Bad(
        Encoder().apply,
        (ENCODER, PATCHES),
        DM,
        (of_encoder(P(None, None, "model"), P(None, "model")), BATCH),
        r"kernel|query|heads",
        good=(of_encoder(P(None, "model"), P("model")), BATCH),
    ),
    "cache replicated though its batch is sharded": Bad(
        decoded,
        (CACHE["params"], CACHE["cache"], array(32, 1, 4096, dtype=BF16)),
        {"data": 8},
        (P(), P(), BATCH),
        r"cache",
        good=(P(), of_cache(BATCH), BATCH),
        memory=True,
        donated=(1,),
    ),
    "gradients summed by hand, of which each device uses its rows": Bad(
        partial(own_rows_updated, False),
        (layers(), layers(), X8, X8),
        {"data": 8},
        (WHOLE, BATCH, BATCH, BATCH),
        r"psum_scatter",
        better=partial(own_rows_updated, True),
    ),
    "moments sharded across their parameters": Bad(
        adamw,
        (layers(), MOMENTS, X8, X8),
        {"fsdp": 8},
        (FSDP, of_moments(layers(), CROSSED), P("fsdp"), P("fsdp")),
        r"unlike (the|their) param|specs? of their param",
        good=(FSDP, of_moments(layers(), FSDP), P("fsdp"), P("fsdp")),
        donated=(0, 1),
    ),
    "state of a cell sharded by its features in its loop": Bad(
        partial(stepped, P(None, "data")),
        (GRU, array(64, 4096, 1024, dtype=BF16)),
        {"data": 8},
        (P(), P(None, "data")),
        r"constrain",
        better=partial(stepped, None),
    ),
    "logical axes without a rule for the tensor axis": Bad(
        partial(of_logical, None),
        (LOGICAL, PATCHES),
        DM,
        (LOGICAL_SPECS, BATCH),
        r"constrain.*P\('data'",
        better=partial(of_logical, "model"),
    ),
    "tied table sharded along its features": Bad(
        tied,
        (TIED, WORDS, WORDS),
        DM,
        (of_tied(P(None, "model")), BATCH, BATCH),
        r"embedding",
        good=(of_tied(P("model")), BATCH, BATCH),
    ),
    "stages of a pipeline replicated": Bad(
        partial(pipelined, P(None, "data")),
        (STAGES, array(8, 8, 1024, 4096, dtype=BF16)),
        {"data": 2, "stage": 4},
        (P("stage"), P(None, "data")),
        r"constrain.*P\(None, 'data'\)",
        better=partial(pipelined, P("stage", "data")),
    ),
    "experts of a ragged product by expert": Bad(
        grouped_experts,
        (GROUPED, array(8192, 2048, dtype=BF16), array(8, dtype=INT32)),
        {"expert": 8},
        (P("expert"), P(), P()),
        r"params\['(in|out)'\]|ragged",
        good=({"in": P(None, None, "expert"), "out": P(None, "expert")}, P(), P()),
    ),
    "rollouts sharded along time": Bad(
        advantages,
        (POLICY, array(512, 256, 64), array(512, 256)),
        {"data": 8},
        (P(), BATCH, BATCH),
        r"rewards|steps along",
        good=(P(), P(None, "data"), P(None, "data")),
    ),
    "gradients of each example gathered": Bad(
        partial(private, True),
        (SMALL, EXAMPLES, EXAMPLES),
        {"data": 8},
        (WHOLE, BATCH, BATCH),
        r"constrain",
        better=partial(private, False),
    ),
}
