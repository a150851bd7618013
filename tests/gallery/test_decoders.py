"""Decoders as published recipes train them: their sizes, what they compute, and where their values lie."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shardviz as sv
from shardviz.compiler import parse
from shardviz.compiler.schedule import schedule_of
from shardviz.errors import ShardvizError
from shardviz.gallery.decoders import MODELS, REMAT, Decoder, Shape

PUBLISHED = {
    "llama2-7b": 6.74e9,
    "llama2-70b": 69.0e9,
    "llama3.1-8b": 8.03e9,
    "llama3.1-70b": 70.6e9,
    "llama3.1-405b": 405.9e9,
    "mistral-7b": 7.24e9,
    "mixtral-8x7b": 46.7e9,
    "mixtral-8x22b": 140.6e9,
    "gpt3-175b": 174.6e9,
}
SMALL = Shape(d_model=16, layers=2, heads=4, kv_heads=2, d_ff=24, vocabulary=50, head_dim=8)


@pytest.mark.parametrize("model", PUBLISHED)
def test_parameters_are_as_many_as_published(model):
    assert MODELS[model].parameters == pytest.approx(PUBLISHED[model], rel=1e-3)


def normed(x, scale):
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * scale


def rotated(x):
    half = x.shape[-1] // 2
    angle = np.arange(x.shape[1])[:, None, None] * 500000.0 ** (-np.arange(half) / half)
    turned = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * angle)
    return np.concatenate([turned.real, turned.imag], axis=-1)


def silu(x):
    return x / (1 + np.exp(-x))


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def attended(shape, q, k, v):
    out = np.zeros_like(q)
    for b, t, h in np.ndindex(q.shape[:3]):
        group = h // (shape.heads // shape.kv_heads)
        scores = np.exp(k[b, : t + 1, group] @ q[b, t, h] / np.sqrt(shape.head_dim))
        out[b, t, h] = scores / scores.sum() @ v[b, : t + 1, group]
    return out


def mixed(shape, h, p, places):
    """Token by token, in order: an expert that is full drops who comes."""
    out = np.zeros_like(h)
    for b, sequence in enumerate(h):
        taken = dict.fromkeys(range(shape.experts), 0)
        for t, x in enumerate(sequence):
            chance = np.exp(x @ p["router"])
            best = np.argsort(-chance)[: shape.top]
            for e in best:
                taken[e] += 1
                if taken[e] <= places:
                    inner = silu(x @ p["gate"][e]) * (x @ p["up"][e])
                    out[b, t] += chance[e] / chance[best].sum() * (inner @ p["down"][e])
    return out


def reference(shape, params, tokens, places):
    """The loss, in plain NumPy."""
    x = params["embedding"][tokens]
    if shape.positions:
        x = x + params["positions"][: tokens.shape[1]]
    for n in range(shape.layers):
        p = {name: w[n] for name, w in params["layers"].items()}
        if shape.fused:
            p |= dict(zip(("query", "key", "value"), p["qkv"].swapaxes(0, 1), strict=True))
            p |= dict(zip(("gate", "up"), p["gate_up"].swapaxes(0, 1), strict=True))
        h = normed(x, p["norm1"])
        q, k, v = (np.einsum("btd,dhk->bthk", h, p[name]) for name in ("query", "key", "value"))
        q, k = (q, k) if shape.positions else (rotated(q), rotated(k))
        x = x + np.einsum("bthk,hkd->btd", attended(shape, q, k, v), p["out"])
        h = h if shape.parallel else normed(x, p["norm2"])
        if shape.experts:
            x = x + mixed(shape, h, p, places)
        else:
            x = x + (silu(h @ p["gate"]) * (h @ p["up"]) if shape.gated else gelu(h @ p["up"])) @ p["down"]
    logits = normed(x, params["norm"]) @ (params["embedding"].T if shape.tied else params["logits"])
    chance = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    return -np.log(np.take_along_axis(chance, np.roll(tokens, -1, 1)[..., None], -1)).mean()


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        (SMALL, {}),
        (SMALL, {"vocabulary_tiles": 3, "one_hot": True, "keep": REMAT["minimal"]}),
        (dataclasses.replace(SMALL, gated=False, positions=12, tied=True), {}),
        (dataclasses.replace(SMALL, experts=4), {"capacity": 1.0}),
        (dataclasses.replace(SMALL, kv_heads=4, parallel=True, fused=True), {}),
    ],
    ids=["grouped heads", "tiled", "learned positions", "experts", "parallel, fused"],
)
def test_the_loss_is_what_numpy_says(shape, options):
    random = np.random.default_rng(0)
    draw = lambda dims: random.normal(size=dims) / np.sqrt(dims[-2] if len(dims) > 1 else 1)
    params = {name: draw(dims) for name, (dims, _) in shape.ends.items()}
    params["layers"] = {name: draw((shape.layers, *dims)) for name, (dims, _) in shape.weights.items()}
    tokens = random.integers(0, shape.vocabulary, (2, 12))
    decoder = Decoder(shape=shape, mesh={"fsdp": 1}, sequences=2, sequence=12, weights=jnp.float64, **options)
    with jax.enable_x64(True), jax.set_mesh(jax.make_mesh((1,), ("fsdp",), axis_types=(jax.sharding.AxisType.Auto,))):
        loss = decoder.loss(jax.tree.map(jnp.asarray, params), jnp.asarray(tokens))
    places = decoder.places if shape.experts else 0
    assert float(loss) == pytest.approx(reference(shape, params, tokens, places), rel=1e-5)


@pytest.mark.long
@pytest.mark.parametrize(
    "settings",
    [
        {"model": "llama3.1-8b", "mesh": "fsdp=2,tensor=2,context=2", "batch": 0.5},
        {"model": "llama2-7b", "remat": "minimal_flash", "vocabulary_tiles": 4, "one_hot": True},
        {"model": "gpt-5b", "remat": "save_dot_with_context_except_mlp", "mesh": "data=2,fsdp=2"},
        {"model": "mixtral-8x7b", "mesh": "fsdp=2,expert=2"},
        {"model": "maxtext-16b"},
        {"model": "llama2-7b", "attention": "cudnn", "remat": "minimal_flash"},
        {"model": "llama3.1-8b", "attention": "splash", "blocks": 128, "mesh": "fsdp=2,tensor=2"},
        {"model": "llama3.1-8b", "attention": "splash", "blocks": 128, "fused_backward": False, "mesh": "fsdp=2"},
    ],
    ids=lambda settings: ", ".join(map(str, settings.values())),
)
def test_a_step_does_what_paper_says(settings):
    example = sv.gallery.decoder_of(**{"layers": 2, "sequence": 256, "mesh": "fsdp=4"} | settings)
    report = example.program.partition(example.plan)
    assert report.cost is not None and report.cost.opaque == ()
    assert report.cost.dot_flops * report.mesh.size == pytest.approx(example.flops, rel=1e-5)


@pytest.mark.tpu
def test_what_is_offloaded_lies_on_the_host():
    """Forward each layer sends the named values there, backward it fetches them."""
    names = {"decoder_layer_input": 4096, "query_proj": 32 * 128, "key_proj": 8 * 128}
    example = sv.gallery.decoder_of("llama3.1-8b", mesh="fsdp=4", sequence=1024, layers=4, offload=tuple(names))
    text = example.program.compile(example.plan, "tpu v6e:2x2").stages["optimized"]
    moved = {True: 0.0, False: 0.0}

    def add(entries, times):
        for entry in entries:
            add(entry.body, times * (entry.trips or 1))
            moved[entry.to_host] += times * entry.host_bytes

    add(schedule_of(parse(text)), 1)
    for there in (True, False):
        assert moved[there] == pytest.approx(4 * 1024 * sum(names.values()) * 2, rel=0.01)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": "llama"}, "model 'llama': decoder_of has 'llama2-7b'"),
        ({"remat": "most"}, "policy 'most': decoder_of has 'full'"),
        ({"offload": ("h",)}, "name of a kept value 'h'"),
        ({"mesh": "model=4"}, "mesh axis 'model'"),
        ({"attention": "flash"}, "attention 'flash'"),
        ({"batch": 0.3}, "both must divide"),
    ],
)
def test_what_it_does_not_have_is_named(settings, message):
    with pytest.raises(ShardvizError, match=message):
        sv.gallery.decoder_of(**settings)
