"""More programs and plans with one fault each, over Flax, Equinox and plain JAX; no shardviz in it."""

from __future__ import annotations

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import PartitionSpec as P

from tests.raw import array
from tests.study.bad_plans import (
    BATCH,
    BF16,
    DE,
    DM,
    FSDP,
    INT32,
    LANGUAGE,
    WHOLE,
    X8,
    Bad,
    held,
    layers,
    like,
    loss,
    mlp,
    of_language,
)


class Block(nnx.Module):
    def __init__(self, d: int, heads: int, rngs: nnx.Rngs):
        make = partial(nnx.Linear, use_bias=False, dtype=BF16, param_dtype=BF16, rngs=rngs)
        self.q, self.k, self.v, self.o = (make(d, d) for _ in range(4))
        self.up, self.down, self.heads = make(d, 4 * d), make(4 * d, d), heads

    def __call__(self, x):
        q, k, v = (f(x).reshape(*x.shape[:2], self.heads, -1) for f in (self.q, self.k, self.v))
        weights = jax.nn.softmax(jnp.einsum("bqhk,bshk->bhqs", q, k))
        x = x + self.o(jnp.einsum("bhqs,bshk->bqhk", weights, v).reshape(x.shape))
        return x + self.down(jax.nn.gelu(self.up(x)))


class Decoder(nnx.Module):
    def __init__(self, d: int, heads: int, n: int, rngs: nnx.Rngs):
        self.layers = nnx.List([Block(d, heads, rngs) for _ in range(n)])

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


GRAPHDEF, DECODER = nnx.split(nnx.eval_shape(lambda: Decoder(4096, 32, 2, nnx.Rngs(0))))


def decoder(state, x):
    return nnx.merge(GRAPHDEF, state)(x)


def of_decoder(**specs):
    return jax.tree.map_with_path(lambda path, _: next(s for n, s in specs.items() if f"'{n}'" in str(path)), DECODER)


COLUMNS = {name: P(None, "model") for name in ("q", "k", "v", "up")}


def heads_for_rows(exchange, x):
    """From rows to heads in a shard_map: each device takes its heads of all rows."""

    @partial(jax.shard_map, in_specs=P(None, "model"), out_specs=P(None, None, "model"), check_vma=False)
    def step(x):
        if exchange:
            own = jax.lax.all_to_all(x, "model", 2, 1, tiled=True)
        else:
            heads = x.shape[2] // jax.lax.axis_size("model")
            every = jax.lax.all_gather(x, "model", axis=1, tiled=True)
            own = jax.lax.dynamic_slice_in_dim(every, jax.lax.axis_index("model") * heads, heads, 2)
        return jax.nn.softmax(jnp.einsum("bqhk,bshk->bhqs", own, own).sum(-1)).swapaxes(1, 2)[..., None] * own

    return step(x)


def distilled(student, teacher, x):
    """A step of distillation; the teacher is larger."""
    target = jax.lax.stop_gradient(mlp(teacher, x))
    return jax.tree.map(lambda p, g: p - 0.1 * g, student, jax.grad(loss)(student, x, target))


def actor_critic(actor, critic, seen, done):
    """A step of a policy and of its critic, each on its own observations."""
    value = mlp(critic, seen).mean(-1, keepdims=True)
    new = jax.tree.map(lambda p, g: p - 0.1 * g, actor, jax.grad(loss)(actor, done, jnp.tanh(done)))
    old = jax.tree.map(lambda p, g: p - 0.1 * g, critic, jax.grad(loss)(critic, seen, jax.lax.stop_gradient(value)))
    return new, old


def dispatched(spec, params, x):
    """Experts, each of which takes its tokens by a mask, as in GShard."""
    gates = jax.nn.softmax((x @ params["router"]).astype(jnp.float32))
    expert = jnp.argmax(gates, -1)
    capacity = x.shape[1] // gates.shape[-1]
    place = jnp.cumsum(jax.nn.one_hot(expert, gates.shape[-1], dtype=INT32), 1) - 1
    mask = jax.nn.one_hot(expert, gates.shape[-1], dtype=BF16)[..., None]
    mask = (
        mask
        * jax.nn.one_hot(jnp.take_along_axis(place, expert[..., None], -1)[..., 0], capacity, dtype=BF16)[:, :, None]
    )
    sent = held(jnp.einsum("gsec,gsd->egcd", mask, x), spec)
    hidden = jax.nn.gelu(jnp.einsum("egcd,edf->egcf", sent, params["in"]))
    back = held(jnp.einsum("egcf,efd->egcd", hidden, params["out"]), spec)
    return x + jnp.einsum("gsec,egcd->gsd", mask, back)


SWITCH = {"router": array(2048, 8, dtype=BF16), "in": array(8, 2048, 8192, dtype=BF16)}
SWITCH |= {"out": array(8, 8192, 2048, dtype=BF16)}
SWITCH_SPECS = {"router": P(), "in": P("expert"), "out": P("expert")}


def prefill(w, x):
    """Attention over a prompt; its keys and values are the cache."""
    q, k, v = (jnp.einsum("bsd,dhk->bshk", x, w[n]) for n in "qkv")
    q = q.reshape(*k.shape[:3], -1, k.shape[3])
    mixed = jnp.einsum("bhgqs,bshk->bqhgk", jax.nn.softmax(jnp.einsum("bqhgk,bshk->bhgqs", q, k)), v)
    return x + jnp.einsum("bshk,hkd->bsd", mixed.reshape(*mixed.shape[:2], -1, mixed.shape[-1]), w["o"]), (k, v)


GROUPED = {n: array(4096, h, 128, dtype=BF16) for n, h in (("q", 32), ("k", 8), ("v", 8))}
GROUPED |= {"o": array(32, 128, 4096, dtype=BF16)}
GROUPED_SPECS = {"q": P(None, "model"), "k": P(None, "model"), "v": P(None, "model"), "o": P("model")}


def clipped(gather, params, x, y):
    """A step whose gradients are clipped by their norm, for which someone gathers them."""
    grads = jax.grad(loss)(params, x, y)
    grads = jax.tree.map(lambda g: held(g, P()), grads) if gather else grads
    norm = jnp.sqrt(sum(jnp.sum(jnp.square(g.astype(jnp.float32))) for g in jax.tree.leaves(grads)))
    return jax.tree.map(lambda p, g: p - (0.1 * jnp.minimum(1, 1 / norm)).astype(p.dtype) * g, params, grads)


def trained_members(members, x, y):
    """Members of an ensemble, trained on the same batch."""
    return eqx.filter_vmap(lambda w: jax.tree.map(lambda p, g: p - 0.1 * g, [w], jax.grad(loss)([w], x, y)))(members)


MEMBERS = {"up": array(8, 2048, 8192, dtype=BF16), "down": array(8, 8192, 2048, dtype=BF16)}
NARROW = array(4096, 2048, dtype=BF16)


def contrastive(images, texts, x, t):
    """A loss of image and text towers, as in CLIP."""
    a, b = mlp(images, x), mlp(texts, t)
    logits = (a @ b.T).astype(jnp.float32)
    return jnp.mean(jax.nn.logsumexp(logits, 1) + jax.nn.logsumexp(logits, 0) - 2 * jnp.diagonal(logits))


def generated(spec, params, token):
    """Sixteen steps of greedy decoding, without a cache."""

    def step(token, _):
        x = params["embed"][token]
        x = x + jax.nn.gelu(x @ params["up"]) @ params["down"]
        logits = x @ params["head"]
        logits = logits if spec is None else held(logits, spec)
        token = jnp.argmax(logits.astype(jnp.float32), -1).astype(INT32)
        return token, token

    return jax.lax.scan(step, token, None, length=16)[1]


def wide_sum(narrow, w, x):
    """A tensor-parallel product whose partial sums are added in float32, then cast."""

    @partial(jax.shard_map, in_specs=(P("model"), P("data", "model")), out_specs=P("data"), check_vma=False)
    def step(w, x):
        part = jnp.dot(x, w, preferred_element_type=jnp.float32)
        if narrow:
            return jax.nn.gelu(jax.lax.psum(part.astype(BF16), "model"))
        return jax.nn.gelu(jax.lax.psum(part, "model").astype(BF16))

    return step(w, x)


def served(whole, params, x):
    """A token through layers whose weights training gathers, by a constraint that stayed."""
    for w in params:
        up, down = ((held(w[n], P()) if whole else w[n]) for n in ("up", "down"))
        x = x + jax.nn.gelu(x @ up) @ down
    return x


TALL = array(4096, 4096, dtype=BF16)

MORE: dict[str, Bad] = {
    "rows not sharded along data": Bad(
        decoder,
        (DECODER, array(2, 2048, 4096, dtype=BF16)),
        DM,
        (of_decoder(**COLUMNS, o=P("model"), down=P("model")), P()),
        r"axis 'data'|batch along data in x",
        good=(of_decoder(**COLUMNS, o=P("model"), down=P("model")), BATCH),
    ),
    "gathered in a shard_map, then sliced": Bad(
        partial(heads_for_rows, False),
        (array(4, 4096, 32, 128, dtype=BF16),),
        {"model": 8},
        (P(None, "model"),),
        r"all_to_all|all-to-all",
        better=partial(heads_for_rows, True),
    ),
    "teacher replicated": Bad(
        distilled,
        (layers(1), layers(3), X8),
        DM,
        (like(P(None, "model"), P("model"), 1), like(P(), P(), 3), BATCH),
        r"teacher",
        good=(like(P(None, "model"), P("model"), 1), like(P(None, "model"), P("model"), 3), BATCH),
    ),
    "observations replicated": Bad(
        actor_critic,
        (layers(), layers(), TALL, TALL),
        {"data": 8},
        (WHOLE, WHOLE, P(), BATCH),
        r"'data' repeat|batch along data in seen|seen the spec",
        good=(WHOLE, WHOLE, BATCH, BATCH),
    ),
    "tokens sent to experts held whole": Bad(
        partial(dispatched, P(None, "data")),
        (SWITCH, array(8, 2048, 2048, dtype=BF16)),
        DE,
        (SWITCH_SPECS, P(("data", "expert"))),
        r"constraint P\(None, 'data'\)",
        better=partial(dispatched, P("expert", "data")),
    ),
    "cache left to be gathered": Bad(
        prefill,
        (GROUPED, array(4, 2048, 4096, dtype=BF16)),
        DM,
        (GROUPED_SPECS, BATCH),
        r"asks? for",
        out=(BATCH, (BATCH, BATCH)),
        good_out=(BATCH, (P("data", None, "model"), P("data", None, "model"))),
    ),
    "gradients gathered for their norm": Bad(
        partial(clipped, True),
        (layers(), X8, X8),
        {"fsdp": 8},
        (FSDP, P("fsdp"), P("fsdp")),
        r"constrain.*P\(\)",
        out=FSDP,
        better=partial(clipped, False),
    ),
    "members along the batch's axis": Bad(
        trained_members,
        (MEMBERS, NARROW, NARROW),
        {"model": 4, "data": 2},
        ({"up": P("data"), "down": P("data")}, BATCH, BATCH),
        r"members\['(up|down)'\]|'model' repeat",
        good=({"up": P("model"), "down": P("model")}, BATCH, BATCH),
    ),
    "texts not sharded": Bad(
        contrastive,
        (layers(1), layers(1), TALL, TALL),
        {"data": 8},
        (like(P(), P(), 1), like(P(), P(), 1), BATCH, P()),
        r"'data' repeat|batch along data in t\b|\bt the spec",
        good=(like(P(), P(), 1), like(P(), P(), 1), BATCH, BATCH),
    ),
    "logits held whole in a loop of tokens": Bad(
        partial(generated, P("data")),
        (of_language()[0], array(64, dtype=INT32)),
        DM,
        (LANGUAGE, BATCH),
        r"constrain.*P\('data'\)",
        better=partial(generated, None),
    ),
    "weights replicated, and held so": Bad(  # neither helps without the other
        partial(served, True),
        (layers(), array(1, 4096, dtype=BF16)),
        {"model": 8},
        (WHOLE, P()),
        r"axis 'model'|constraint P\(\).*params",
        better=partial(served, False),
        good=(like(P(None, "model"), P("model")), P()),
    ),
    "summed in float32, then cast": Bad(
        partial(wide_sum, False),
        (array(4096, 8192, dtype=BF16), TALL),
        DM,
        (P("model"), P("data", "model")),
        r"cast before",
        better=partial(wide_sum, True),
    ),
}
