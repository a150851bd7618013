"""Programs and plans with one fault each, and what an expert would write in its place; no shardviz in it.

The faults are ordinary ones: of a plan, of a constraint in the function, of a collective in a `shard_map`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen
from jax.sharding import PartitionSpec as P

from tests.raw import array

MACHINE = "tpu v5e:2x4"
BF16, INT8, INT32 = jnp.bfloat16, jnp.int8, jnp.int32
held = jax.lax.with_sharding_constraint


@dataclass(frozen=True)
class Bad:
    """A function under a plan that has a fault, and what an expert would write.

    Attributes:
        fn, args: the function and its arguments.
        mesh, specs, out: the faulty plan.
        cause: a regular expression of what a row that names the cause says.
        better: the expert's function; None for the same one.
        good, good_out: the expert's plan; None for the same specs.
        memory: whether the fault costs memory, so that the arguments' bytes count, too.
        ordinary: whether it is one of the ten ordinary faults.
    """

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    mesh: dict[str, int]
    specs: Any
    cause: str
    _: KW_ONLY
    out: Any = None
    better: Callable[..., Any] | None = None
    good: Any = None
    good_out: Any = None
    memory: bool = False
    ordinary: bool = False
    donated: tuple[int, ...] = ()


# A perceptron, and its training.


def mlp(params, x):
    for w in params:
        x = x + jax.nn.gelu(x @ w["up"]) @ w["down"]
    return x


def loss(params, x, y):
    return jnp.mean((mlp(params, x) - y).astype(jnp.float32) ** 2)


def sgd(params, x, y):
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params, x, y))


def layers(n=2, d=4096, ff=16384, dtype=BF16):
    return [{"up": array(d, ff, dtype=dtype), "down": array(ff, d, dtype=dtype)} for _ in range(n)]


def like(up, down, n=2):
    return [{"up": up, "down": down}] * n


def accumulated(params, xs, ys):
    """Gradients of microbatches, added up."""

    def add(total, batch):
        return jax.tree.map(jnp.add, total, jax.grad(loss)(params, *batch)), None

    total, _ = jax.lax.scan(add, jax.tree.map(jnp.zeros_like, params), (xs, ys))
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, total)


def accumulated_once(params, xs, ys):
    @partial(jax.shard_map, in_specs=(P(), P(None, "data"), P(None, "data")), out_specs=P(), check_vma=False)
    def total(params, xs, ys):
        new = accumulated(params, xs, ys)
        return jax.tree.map(lambda p, n: jax.lax.pmean(p - n, "data"), params, new)

    return jax.tree.map(lambda p, g: p - g, params, total(params, xs, ys))


def soft_experts(params, x):
    """A dense layer, then a soft mixture of experts: each expert takes weighted means of the tokens."""
    x = x + jax.nn.gelu(x @ params["up"]) @ params["down"]
    scores = jnp.einsum("btd,des->btes", x, params["slots"])
    slots = jnp.einsum("btd,btes->besd", x, jax.nn.softmax(scores, 1))
    out = jnp.einsum("besf,efd->besd", jax.nn.gelu(jnp.einsum("besd,edf->besf", slots, params["in"])), params["out"])
    return jnp.einsum("besd,btes->btd", out, jax.nn.softmax(scores, -1))


def of_experts(d=2048, ff=8192, e=8):
    dense = {"up": array(d, ff, dtype=BF16), "down": array(ff, d, dtype=BF16), "slots": array(d, e, 64, dtype=BF16)}
    return {**dense, "in": array(e, d, ff, dtype=BF16), "out": array(e, ff, d, dtype=BF16)}, array(
        8, 1024, d, dtype=BF16
    )


EXPERTS = {"up": P(), "down": P(), "slots": P(None, "expert"), "in": P("expert"), "out": P("expert")}


def held_batch(spec, params, x, y):
    return sgd(params, held(x, spec), y)


def held_layers(spec, params, x, y):
    """A train step that gathers its weights and holds its batch, as trainers with FSDP do."""

    def loss(params):
        h = x
        for w in params:
            up, down = (held(w[name], P()) for name in ("up", "down"))
            h = held(h + jax.nn.gelu(h @ up) @ down, spec)
        return jnp.mean((h - y).astype(jnp.float32) ** 2)

    return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params))


def cast_after(params, gains, x):
    """Weights in float32 that are gathered, scaled and cast."""
    for w, gain in zip(params, gains, strict=True):
        up, down = ((held(w[name], P()) * gain).astype(BF16) for name in ("up", "down"))
        x = x + jax.nn.gelu(x @ up) @ down
    return x


def cast_before(params, gains, x):
    for w, gain in zip(params, gains, strict=True):
        up, down = (held((w[name] * gain).astype(BF16), P()) for name in ("up", "down"))
        x = x + jax.nn.gelu(x @ up) @ down
    return x


def cast_in_map(after, params, gains, x):
    """The same, in a shard_map that gathers its weights itself."""

    def whole(w, gain):
        if after:
            return (jax.lax.all_gather(w, "fsdp", tiled=True) * gain).astype(BF16)
        return jax.lax.all_gather((w * gain).astype(BF16), "fsdp", tiled=True)

    @partial(jax.shard_map, in_specs=(like(P("fsdp"), P("fsdp")), P(), P("fsdp")), out_specs=P("fsdp"))
    def step(params, gains, x):
        for w, gain in zip(params, gains, strict=True):
            x = x + jax.nn.gelu(x @ whole(w["up"], gain)) @ whole(w["down"], gain)
        return x

    return step(params, gains, x)


def language(params, tokens):
    x = params["embed"][tokens]
    x = x + jax.nn.gelu(x @ params["up"]) @ params["down"]
    return jax.nn.logsumexp((x @ params["head"]).astype(jnp.float32), -1)


def of_language(d=2048, v=131072):
    weights = {"embed": array(v, d, dtype=BF16), "head": array(d, v, dtype=BF16)}
    weights |= {"up": array(d, 4 * d, dtype=BF16), "down": array(4 * d, d, dtype=BF16)}
    return weights, array(2, 4096, dtype=INT32)


LANGUAGE = {"embed": P(None, "model"), "head": P(None, "model"), "up": P(None, "model"), "down": P("model")}


def summed_in_map(scatter, w, x):
    """A layer whose result each device of `model` takes its own rows of."""

    @partial(jax.shard_map, in_specs=(P("model"), P("data", "model")), out_specs=P(("data", "model")), check_vma=False)
    def step(w, x):
        part = jax.nn.gelu(x @ w)
        if scatter:
            return jax.lax.psum_scatter(part, "model", tiled=True)
        rows = part.shape[0] // jax.lax.axis_size("model")
        return jax.lax.dynamic_slice_in_dim(jax.lax.psum(part, "model"), jax.lax.axis_index("model") * rows, rows)

    return step(w, x)


def gathered_in_loop(hoisted, w, x):
    """A recurrence in a shard_map that gathers its weight in each step."""

    @partial(jax.shard_map, in_specs=(P("data"), P("data")), out_specs=P("data"), check_vma=False)
    def step(w, x):
        whole = lambda: jax.lax.all_gather(w, "data", tiled=True)
        before = whole() if hoisted else None
        return jax.lax.scan(lambda h, _: (jnp.tanh(h @ (before if hoisted else whole())), None), x, None, length=16)[0]

    return step(w, x)


def summed_over_devices(psum, x):
    """The mean of all rows, which each device gathers the others' sums for."""

    @partial(jax.shard_map, in_specs=P("data"), out_specs=P(), check_vma=False)
    def step(x):
        own = jnp.tanh(x).sum(0)
        return (jax.lax.psum(own, "data") if psum else jax.lax.all_gather(own, "data").sum(0)) / x.shape[0]

    return step(x)


def quantised(first, params, x):
    """Weights in int8 that are gathered as bfloat16, or `first`."""
    for w in params:
        up, down = ((held(q, P()) if first else q).astype(BF16) * s for q, s in (w["up"], w["down"]))
        up, down = (up, down) if first else (held(up, P()), held(down, P()))
        x = x + jax.nn.gelu(x @ up) @ down
    return x


def of_int8(n=2, d=4096, ff=16384):
    up, down = array(d, ff, dtype=INT8), array(ff, d, dtype=INT8)
    return [{"up": (up, array(ff, dtype=BF16)), "down": (down, array(d, dtype=BF16))} for _ in range(n)]


def attention(spec, params, x):
    """An attention layer with a constraint on its heads."""
    hold = (lambda a: a) if spec is None else (lambda a: held(a, spec))
    q, k, v = (hold(jnp.einsum("bsd,dhk->bshk", x, params[name])) for name in "qkv")
    mixed = jnp.einsum("bhqs,bshk->bqhk", jax.nn.softmax(jnp.einsum("bqhk,bshk->bhqs", q, k)), v)
    return x + jnp.einsum("bshk,hkd->bsd", mixed, params["o"])


def of_attention(d=4096, h=32, s=4096, b=2):
    heads = {name: array(d, h, d // h, dtype=BF16) for name in "qkv"}
    return {**heads, "o": array(h, d // h, d, dtype=BF16)}, array(b, s, d, dtype=BF16)


HEADS = {"q": P(None, "model"), "k": P(None, "model"), "v": P(None, "model"), "o": P("model")}


def adam(params, state, x, y):
    grads = jax.grad(loss)(params, x, y)
    mu = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["mu"], grads)
    nu = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g * g, state["nu"], grads)
    return jax.tree.map(lambda p, m, n: p - 0.1 * m * jax.lax.rsqrt(n + 1e-3), params, mu, nu), {"mu": mu, "nu": nu}


def scanned(spec, params, x):
    """Layers in a loop, with a constraint on what goes from one to the next."""

    def layer(x, w):
        x = x + jax.nn.gelu(x @ w["up"]) @ w["down"]
        return (x if spec is None else held(x, spec)), None

    return jax.lax.scan(layer, x, params)[0]


def ensemble(params, x):
    """Members that each see the whole batch."""
    return jax.vmap(lambda w: jnp.tanh(jnp.tanh(x @ w["up"]) @ w["down"]))(params)


def cross_entropy(spec, head, x, labels):
    logits = (x @ head).astype(jnp.float32)
    logits = logits if spec is None else held(logits, spec)
    return jnp.mean(jax.nn.logsumexp(logits, -1) - jnp.take_along_axis(logits, labels[:, None], 1)[:, 0])


def decode(cache, w, x, i):
    """A step of decoding: a new row in the cache, and attention over it."""
    q, row = (jnp.einsum("bd,dhk->bhk", x, w[n]) for n in ("q", "kv"))
    cache = jax.lax.dynamic_update_slice(cache, row[:, None], (0, i, 0, 0))
    weights = jax.nn.softmax(jnp.einsum("bhk,bshk->bhs", q, cache))
    return x + jnp.einsum("bhk,hkd->bd", jnp.einsum("bhs,bshk->bhk", weights, cache), w["o"]), cache


def of_decode(d=4096, h=32, s=8192, b=32):
    w = {
        "q": array(d, h, d // h, dtype=BF16),
        "kv": array(d, h, d // h, dtype=BF16),
        "o": array(h, d // h, d, dtype=BF16),
    }
    return array(b, s, h, d // h, dtype=BF16), w, array(b, d, dtype=BF16), array(dtype=INT32)


DECODE = {"q": P(None, "model"), "kv": P(None, "model"), "o": P("model")}


def ragged(w, x, sizes):
    """Tokens sorted by their expert, each multiplied by its expert's weight."""
    return jax.nn.gelu(jax.lax.ragged_dot(x, w["in"], sizes))


def predictions(params, x, y):
    out = mlp(params, x)
    return jnp.mean((out - y).astype(jnp.float32) ** 2), out


DM, DF, DE = {"data": 2, "model": 4}, {"data": 2, "fsdp": 4}, {"data": 2, "expert": 4}
X = array(2, 4096, 4096, dtype=BF16)
X8 = array(8, 2048, 4096, dtype=BF16)
XS = array(8, 8, 1024, 4096, dtype=BF16)
ROWS = array(4096, 4096, dtype=BF16)
GAINS = [array()] * 2
STACK = {"up": array(8, 4096, 16384, dtype=BF16), "down": array(8, 16384, 4096, dtype=BF16)}
TENSOR, FSDP = like(P(None, "model"), P("model")), like(P("fsdp"), P("fsdp"))
WHOLE, BATCH = like(P(), P()), P("data")
BOTH = P(("data", "fsdp"))
INIT = linen.initializers.lecun_normal()  # the default one takes no bfloat16
LSTM = linen.RNN(linen.OptimizedLSTMCell(2048, dtype=BF16, param_dtype=BF16, recurrent_kernel_init=INIT))
LSTM_WEIGHTS = jax.eval_shape(LSTM.init, jax.random.key(0), array(64, 256, 2048, dtype=BF16))
LABELS, HEAD = array(4096, dtype=INT32), array(4096, 131072, dtype=BF16)

BAD: dict[str, Bad] = {
    "gradients summed in each microbatch": Bad(
        accumulated,
        (layers(), XS, XS),
        {"data": 8},
        (WHOLE, P(None, "data"), P(None, "data")),
        r"in each of 8 runs of a loop.*only the total",
        better=accumulated_once,
        out=WHOLE,
        ordinary=True,
    ),
    "batch not along expert": Bad(
        soft_experts,
        of_experts(),
        DE,
        (EXPERTS, P("data")),
        r"(repeat.*'?expert|(b|batch).* along .*expert)",
        good=(EXPERTS, P(("data", "expert"))),
        ordinary=True,
    ),
    "batch not along fsdp": Bad(
        sgd,
        (layers(dtype=jnp.float32), X8, X8),
        DF,
        (FSDP, BATCH, BATCH),
        r"(repeat.*'?fsdp|batch.* along .*fsdp|batch .*fsdp)",
        good=(FSDP, BOTH, BOTH),
        ordinary=True,
    ),
    "batch not along fsdp, and held so": Bad(
        partial(held_layers, BATCH),
        (layers(), X8, X8),
        DF,
        (FSDP, BATCH, BATCH),
        r"(repeat.*'?fsdp|batch.* along .*fsdp|constrain)",
        better=partial(held_layers, BOTH),
        good=(FSDP, BOTH, BOTH),
        ordinary=True,
    ),
    "batch held otherwise than it comes": Bad(
        partial(held_batch, BATCH),
        (layers(), X8, X8),
        DF,
        (FSDP, BOTH, BOTH),
        r"constrain.* P\('data'\)",
        better=partial(held_batch, BOTH),
        ordinary=True,
    ),
    "float32 gathered, then cast": Bad(
        cast_after,
        (layers(dtype=jnp.float32), GAINS, X8),
        {"fsdp": 8},
        (FSDP, P(), P("fsdp")),
        r"cast before",
        better=cast_before,
        ordinary=True,
    ),
    "float32 gathered in a shard_map, then cast": Bad(
        partial(cast_in_map, True),
        (layers(dtype=jnp.float32), GAINS, X8),
        {"fsdp": 8},
        (FSDP, P(), P("fsdp")),
        r"cast before",
        better=partial(cast_in_map, False),
        ordinary=True,
    ),
    "table along its rows": Bad(
        language,
        of_language(),
        DM,
        ({**LANGUAGE, "embed": P("data")}, BATCH),
        r"params\['embed'\]",
        good=(LANGUAGE, BATCH),
        ordinary=True,
    ),
    "psum where psum_scatter would do": Bad(
        partial(summed_in_map, False),
        (array(4096, 8192, dtype=BF16), ROWS),
        DM,
        (P("model"), P("data", "model")),
        r"psum_scatter",
        better=partial(summed_in_map, True),
        ordinary=True,
    ),
    "large partial sums": Bad(
        mlp,
        (layers(), X),
        DM,
        (like(P("model"), P(None, "model")), BATCH),
        r"sum over a dimension that 'model' shards",
        good=(TENSOR, BATCH),
        ordinary=True,
    ),
    "int8 dequantised before it is gathered": Bad(
        partial(quantised, False),
        (of_int8(), X8),
        {"fsdp": 8},
        ([{"up": (P("fsdp"), P()), "down": (P("fsdp"), P())}] * 2, P("fsdp")),
        r"narrower type|cast after",
        better=partial(quantised, True),
        ordinary=True,
    ),
    "a constraint that gathers the heads": Bad(
        partial(attention, P("data", None, None, None)),
        of_attention(),
        DM,
        (HEADS, BATCH),
        r"constraint P\('data'",
        better=partial(attention, None),
        ordinary=True,
    ),
    "a constraint that replicates the batch": Bad(
        partial(scanned, P(None, "model")),
        (STACK, X),
        DM,
        ({"up": P(None, None, "model"), "down": P(None, "model")}, BATCH),
        r"constrain.*P\(None, 'model'\)",
        better=partial(scanned, P("data")),
        ordinary=True,
    ),
    "replicated optimizer": Bad(
        adam,
        (layers(), {"mu": layers(), "nu": layers()}, X8, X8),
        {"fsdp": 8},
        (FSDP, {"mu": WHOLE, "nu": WHOLE}, P("fsdp"), P("fsdp")),
        r"unlike the(ir)? parameters|specs of their parameters",
        good=(FSDP, {"mu": FSDP, "nu": FSDP}, P("fsdp"), P("fsdp")),
        memory=True,
        ordinary=True,
        donated=(0, 1),
    ),
    # others
    "weight gathered in each step of a loop in a shard_map": Bad(
        partial(gathered_in_loop, False),
        (array(8192, 8192, dtype=BF16), array(1024, 8192, dtype=BF16)),
        {"data": 8},
        (P("data"), P("data")),
        r"runs of a loop|before the loop",
        better=partial(gathered_in_loop, True),
    ),
    "gathered in a shard_map, then summed": Bad(
        partial(summed_over_devices, False),
        (array(64, 8192, 4096),),
        {"data": 8},
        (P("data"),),
        r"psum in place",
        better=partial(summed_over_devices, True),
    ),
    "recurrent weights along fsdp": Bad(
        LSTM.apply,
        (LSTM_WEIGHTS, array(64, 256, 2048, dtype=BF16)),
        {"fsdp": 8},
        (jax.tree.map(lambda a: P("fsdp") if a.ndim == 2 else P(), LSTM_WEIGHTS), P("fsdp")),
        r"runs of a loop|along fsdp, and nothing else",
        good=(jax.tree.map(lambda _: P(), LSTM_WEIGHTS), P("fsdp")),
    ),
    "members not sharded": Bad(
        ensemble,
        (
            {"up": array(8, 2048, 8192, dtype=BF16), "down": array(8, 8192, 2048, dtype=BF16)},
            array(4096, 2048, dtype=BF16),
        ),
        DM,
        ({"up": P(), "down": P()}, BATCH),
        r"axis 'model'|'model' repeat",
        good=({"up": P("model"), "down": P("model")}, BATCH),
    ),
    "logits gathered for the loss": Bad(
        partial(cross_entropy, BATCH),
        (HEAD, ROWS, LABELS),
        DM,
        (P(None, "model"), BATCH, BATCH),
        r"constraint P\('data'",
        better=partial(cross_entropy, None),
    ),
    "logits replicated as a result": Bad(
        predictions,
        (layers(), X8, X8),
        {"data": 8},
        (WHOLE, BATCH, BATCH),
        r"asks? for",
        out=(P(), P()),
        good_out=(P(), BATCH),
    ),
    "cache along its length": Bad(
        decode,
        of_decode(),
        DM,
        (P("data", "model"), DECODE, BATCH, P()),
        r"\bcache\b.*model",
        good=(P("data", None, "model"), DECODE, BATCH, P()),
        out=None,
    ),
    "cache without its heads": Bad(
        decode,
        of_decode(),
        DM,
        (P("data"), DECODE, BATCH, P()),
        r"\bcache\b.*model",
        good=(P("data", None, "model"), DECODE, BATCH, P()),
        memory=True,
    ),
    "sequence along the tensor axis": Bad(
        partial(attention, None),
        of_attention(),
        DM,
        (HEADS, P("data", "model")),
        r"sequence|dimension h |batch along .* in x|\bx the spec",
        good=(dict.fromkeys(HEADS, P()), P("data", "model")),
    ),
    "layers along fsdp": Bad(
        partial(scanned, None),
        (STACK, X8),
        {"fsdp": 8},
        ({"up": P("fsdp"), "down": P("fsdp")}, P("fsdp")),
        r"loop steps along",
        good=({"up": P(None, "fsdp"), "down": P(None, "fsdp")}, P("fsdp")),
    ),
    "stacked weights crossed": Bad(
        partial(scanned, None),
        (STACK, X),
        DM,
        ({"up": P(None, None, "model"), "down": P(None, None, "model")}, BATCH),
        r"params\['down'\]",
        good=({"up": P(None, None, "model"), "down": P(None, "model")}, BATCH),
    ),
    "tokens not along data in a ragged product": Bad(
        ragged,
        ({"in": array(8, 4096, 8192, dtype=BF16)}, ROWS, array(8, dtype=INT32)),
        DM,
        ({"in": P(None, None, "model")}, P(), P()),
        r"axis 'data'",
        good=({"in": P(None, None, ("model", "data"))}, P(), P()),
    ),
}
