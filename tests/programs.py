"""Programs of many kinds, in any size: what people shard beside the gallery's."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import pytest

import shardviz as sv


def without_constraints(program):
    """What `with_variant` takes for a program with every `with_sharding_constraint` inside it left out."""
    return {(c.source.short, c.spec): None for c in program.constraints}


def abstract(*shape, dtype="bfloat16"):
    return jax.ShapeDtypeStruct(shape, dtype)


def decode(layers=2, d=64, ff=256, heads=8, kv=4, hd=8, vocabulary=512, batch=16, length=64):
    """A step of decoding with a KV cache: a scan over stacked layers and their caches."""
    stacked = {"wq": (d, heads, hd), "wk": (d, kv, hd), "wv": (d, kv, hd), "wo": (heads, hd, d), "norm": (d,)}
    stacked |= {"up": (d, ff), "gate": (d, ff), "down": (ff, d)}
    params = {"embed": abstract(vocabulary, d), "head": abstract(d, vocabulary)}
    params["layers"] = {name: abstract(layers, *shape) for name, shape in stacked.items()}
    cache = (abstract(layers, batch, length, kv, hd),) * 2

    def step(params, cache, tokens, position):
        def layer(x, each):
            p, k, v = each
            h = x * jax.lax.rsqrt(jnp.mean(x**2, -1, keepdims=True) + 1e-6) * p["norm"]
            q = jnp.einsum("bd,dhk->bhk", h, p["wq"]).reshape(x.shape[0], kv, heads // kv, hd)
            new = [jnp.einsum("bd,dhk->bhk", h, p[w])[:, None] for w in ("wk", "wv")]
            k, v = (jax.lax.dynamic_update_slice_in_dim(c, n, position, 1) for c, n in zip((k, v), new, strict=True))
            scores = jax.nn.softmax(jnp.einsum("bgrk,btgk->bgrt", q, k), -1)
            out = jnp.einsum("bgrt,btgk->bgrk", scores, v).reshape(x.shape[0], heads, hd)
            x = x + jnp.einsum("bhk,hkd->bd", out, p["wo"])
            return x + (jax.nn.silu(x @ p["gate"]) * (x @ p["up"])) @ p["down"], (k, v)

        x, cache = jax.lax.scan(layer, params["embed"][tokens], (params["layers"], *cache))
        return x @ params["head"], cache

    return sv.trace(step, params, cache, abstract(batch, dtype="int32"), abstract(dtype="int32"))


def trained(loss, params, *data):
    """A step of gradient descent with momentum."""

    def step(params, momentum, *data):
        grads = jax.grad(loss)(params, *data)
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, grads)
        return jax.tree.map(lambda p, m: p - 0.1 * m, params, momentum), momentum

    return sv.trace(step, params, params, *data)


def convolved(x, w, stride=1):
    return jax.lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def _unet(p, image):
    down = jax.nn.relu(convolved(image, p["enter"]))
    low = jax.nn.relu(convolved(down, p["down"], 2))
    resized = jax.image.resize(jax.nn.relu(convolved(low, p["middle"])), down.shape[:3] + low.shape[3:], "nearest")
    return convolved(jnp.concatenate([resized, down], -1), p["leave"])


def _unet_params(narrow, wide):
    channels = {"enter": (3, narrow), "down": (narrow, wide), "middle": (wide, wide), "leave": (narrow + wide, 3)}
    return {name: abstract(3, 3, *sizes) for name, sizes in channels.items()}


def unet(batch=64, side=32, narrow=32, wide=64):
    """A step of training a U-Net: an image down, and up again beside what it was."""

    def loss(p, image, wanted):
        return jnp.mean((_unet(p, image) - wanted) ** 2)

    return trained(loss, _unet_params(narrow, wide), abstract(batch, side, side, 3), abstract(batch, side, side, 3))


def sampler(batch=64, side=32, narrow=32, wide=64, trips=20):
    """A diffusion sampler: a U-Net takes noise off an image, in a loop."""

    def sample(params, image):
        return jax.lax.fori_loop(
            0, trips, lambda _, image: image - (_unet(params, image) * 0.05).astype(image.dtype), image
        )

    return sv.trace(sample, _unet_params(narrow, wide), abstract(batch, side, side, 3))


def attended(p, x, of):
    q, k, v = (jnp.einsum("bsd,dhk->bshk", a, p[w]) for w, a in (("wq", x), ("wk", of), ("wv", of)))
    weights = jax.nn.softmax(jnp.einsum("bshk,bthk->bhst", q, k), -1)
    x = x + jnp.einsum("bhst,bthk,hkd->bsd", weights, v, p["wo"])
    return x + jax.nn.gelu(x @ p["up"]) @ p["down"]


def block(d, heads, of):
    shapes = {"wq": (d, heads, of), "wk": (d, heads, of), "wv": (d, heads, of), "wo": (heads, of, d)}
    return {name: abstract(*s) for name, s in (shapes | {"up": (d, 4 * d), "down": (4 * d, d)}).items()}


def nll(logits, label):
    """The mean negative log likelihood of labels."""
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), label[..., None], -1))


def vit(batch=64, d=64, heads=8, of=8, classes=128, side=32, layers=2):
    """A step of training a vision transformer: patches by a convolution, blocks of attention, a mean over patches."""

    def loss(p, image, label):
        x = convolved(image, p["patch"], 8).reshape(image.shape[0], (side // 8) ** 2, d)
        for each in p["blocks"]:
            x = attended(each, x, x)
        return nll(x.mean(1) @ p["head"], label)

    params = {"patch": abstract(8, 8, 3, d), "blocks": [block(d, heads, of)] * layers, "head": abstract(d, classes)}
    return trained(loss, params, abstract(batch, side, side, 3), abstract(batch, dtype="int32"))


def translator(batch=32, length=16, d=64, heads=8, of=8, vocabulary=512):
    """A step of training an encoder and a decoder, which attends to what the encoder says."""

    def loss(p, source, target):
        x, y = p["embed"][source], p["embed"][target]
        x = attended(p["encoder"], x, x)
        y = attended(p["cross"], attended(p["decoder"], y, y), x)
        return nll(y @ p["embed"].T, target)

    params = {"embed": abstract(vocabulary, d)} | {n: block(d, heads, of) for n in ("encoder", "decoder", "cross")}
    return trained(loss, params, abstract(batch, length, dtype="int32"), abstract(batch, length, dtype="int32"))


def adapted(batch=32, length=64, d=64, heads=8, of=8, rank=8, layers=2):
    """A step of training low-rank adapters (LoRA) of a frozen stack of layers."""

    def layer(x, each):
        p, a = each
        q = jnp.einsum("bsd,dhk->bshk", x, p["wq"]) + jnp.einsum("bsd,dr,rhk->bshk", x, a["down"], a["up"])
        k, v = (jnp.einsum("bsd,dhk->bshk", x, p[w]) for w in ("wk", "wv"))
        weights = jax.nn.softmax(jnp.einsum("bshk,bthk->bhst", q, k), -1)
        x = x + jnp.einsum("bhst,bthk,hkd->bsd", weights, v, p["wo"])
        return x + jax.nn.gelu(x @ p["up"]) @ p["down"], None

    def step(adapters, frozen, x):
        def loss(adapters):
            y, _ = jax.lax.scan(jax.checkpoint(layer), x, (frozen, adapters))
            return jnp.mean(y.astype(jnp.float32) ** 2)

        return jax.tree.map(lambda a, g: a - 0.1 * g, adapters, jax.grad(loss)(adapters))

    frozen = {name: abstract(layers, *a.shape) for name, a in block(d, heads, of).items()}
    adapters = {"down": abstract(layers, d, rank), "up": abstract(layers, rank, heads, of)}
    return sv.trace(step, adapters, frozen, abstract(batch, length, d))


def scanned(batch=32, length=64, d=64, state=16, layers=2):
    """A step of training state-space layers: an associative scan along the sequence."""

    def mixed(p, x):
        gate = jax.nn.sigmoid(x @ p["gate"])[..., None] * jnp.ones(state, x.dtype)
        put = (x @ p["put"])[..., None] * p["spread"]
        join = lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1])
        _, kept = jax.lax.associative_scan(join, (gate, put), axis=1)
        return x + jnp.einsum("bsdn,dn->bsd", kept, p["read"]) @ p["leave"]

    def loss(params, x):
        for p in params:
            x = mixed(p, x)
        return jnp.mean(x.astype(jnp.float32) ** 2)

    shapes = {"gate": (d, d), "put": (d, d), "leave": (d, d), "spread": (d, state), "read": (d, state)}
    return trained(loss, [{name: abstract(*s) for name, s in shapes.items()}] * layers, abstract(batch, length, d))


def graph(nodes=512, edges=4096, d=64, layers=2):
    """A step of training a graph network: messages along edges, summed at the nodes where they arrive."""

    def loss(params, x, senders, receivers, wanted):
        for p in params:
            message = jax.nn.relu(jnp.concatenate([x[senders], x[receivers]], -1) @ p["message"])
            arrived = jax.ops.segment_sum(message, receivers, nodes)
            x = x + jax.nn.relu(jnp.concatenate([x, arrived], -1) @ p["update"])
        return jnp.mean((x - wanted) ** 2)

    params = [{"message": abstract(2 * d, d), "update": abstract(2 * d, d)}] * layers
    ends = abstract(edges, dtype="int32")
    return trained(loss, params, abstract(nodes, d), ends, ends, abstract(nodes, d))


def experts(rows=512, d=64, ff=256, count=8):
    """A mixture of experts of flax.nnx, asked without a gradient."""
    nnx = pytest.importorskip("flax.nnx")

    class Mixture(nnx.Module):
        def __init__(self, rngs):
            make = lambda *s: nnx.Param(jax.random.normal(rngs(), s))
            self.router, self.up, self.down = make(d, count), make(count, d, ff), make(count, ff, d)

        def __call__(self, x):
            routed = jnp.einsum("nd,ne->end", x, jax.nn.softmax(x @ self.router[...]))
            hidden = jnp.tanh(jnp.einsum("end,edf->enf", routed, self.up[...]))
            return jnp.einsum("enf,efd->nd", hidden, self.down[...])

    model = nnx.eval_shape(lambda: Mixture(nnx.Rngs(0)))
    return sv.trace(nnx.jit(lambda model, x: model(x)), model, abstract(rows, d, dtype="float32"))


MACHINES = {
    8: ("tpu v5e:2x4", {"data": 4, "model": 2}),
    64: ("tpu v5p:4x4x4", {"data": 8, "model": 8}),
    512: ("tpu v5p:8x8x8", {"data": 64, "model": 8}),
}
"""Chips → the machine, and the mesh of the presets."""
LLAMA_8B = {"layers": 32, "d": 4096, "ff": 14336, "heads": 32, "kv": 8, "hd": 128}
LLAMA_70B = {"layers": 80, "d": 8192, "ff": 28672, "heads": 64, "kv": 8, "hd": 128}


def programs_on(chips: int) -> dict[str, Callable[[], sv.Program]]:
    """The programs, as large as they are on so many chips."""
    n, shape = chips // 8, LLAMA_8B if chips == 8 else LLAMA_70B
    return {
        "llama": lambda: sv.gallery.llama("8b" if chips == 8 else "70b").program,
        "decode": lambda: decode(**shape, vocabulary=128256, batch=chips, length=4096),
        "mlp": lambda: sv.gallery.mlp().program,
        "experts": lambda: experts(8192 * n, 4096, 14336, 8),
        "vit": lambda: vit(64 * n, 1024, 16, 64, 1024, 256, 4),
        "translator": lambda: translator(16 * n, 512, 1024, 16, 64, 32768),
        "adapted": lambda: adapted(8 * n, 2048, 4096, 32, 128, 16, 16),
        "scanned": lambda: scanned(8 * n, 2048, 1024, 16, 4),
        "graph": lambda: graph(2**15 * n, 2**18 * n, 256, 4),
        "unet": lambda: unet(64 * n, 256, 64, 128),
        "sampler": lambda: sampler(64 * n, 256, 64, 128),
    }


AXES = {"ring": ("data", "seq"), "pipeline": ("data", "stage"), "routed": ("data", "expert")}
"""Of the gallery, programs that name a mesh's axes themselves → these axes."""


def gallery_on(chips: int) -> dict[str, Callable[[], sv.Program]]:
    """The gallery's programs that name their axes, as large as they are on so many chips."""
    n, mesh = chips // 8, MACHINES[chips][1]
    on = {name: dict(zip(axes, mesh.values(), strict=True)) for name, axes in AXES.items()}
    return {
        "ring": lambda: sv.gallery.ring(batch=mesh["data"], length=16384, mesh=on["ring"]).program,
        "pipeline": lambda: sv.gallery.pipeline(batch=4096 * n, mesh=on["pipeline"]).program,
        "routed": lambda: sv.gallery.moe(tokens=16384 * n, mesh=on["routed"]).program,
    }
