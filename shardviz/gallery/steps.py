"""Small steps of one device that people run: serving, images, sequences, an optimizer alone, and plain products.

They are there to be measured (`measured`): each is what dominates some program, with little around it.

>>> step = STEPS["product 4096 bfloat16"]()
>>> [str(each.dtype) for each in step.args]
['bfloat16', 'bfloat16']
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp

from shardviz.gallery.decoders import MODELS, Decoder, Shape, decoder_of
from shardviz.gallery.example import Example
from shardviz.gallery.llama import rms_norm, rotary
from shardviz.gallery.mlp import mlp
from shardviz.gallery.moe import moe
from shardviz.gallery.resnet import resnet

_MODEL = "llama3.1-8b"


def _step(fn: Callable[..., Any], args: tuple[Any, ...], **options: Any) -> Example:
    """A step of one device; `options` are for `sv.trace`."""
    return Example(fn, args, {"fsdp": 1}, options=options)


def alone(example: Example) -> Example:
    """An example on one device, where no spec says anything."""
    return replace(example, in_specs=None, out_specs=None)


def _array(*shape: int, dtype: Any = jnp.bfloat16) -> Any:
    return jax.ShapeDtypeStruct(shape, dtype)


def product(rows: int, inner: int, columns: int, dtype: Any = jnp.bfloat16, precision: str | None = None) -> Example:
    """One matrix product."""
    fn = lambda a, b: jnp.matmul(a, b, precision=precision)  # noqa: E731
    return _step(fn, (_array(rows, inner, dtype=dtype), _array(inner, columns, dtype=dtype)))


def _convolved(x: Any, w: Any) -> Any:
    return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def convolution(batch: int, size: int, features: int) -> Example:
    """A 3 x 3 convolution of images of so many features into as many, and its gradients, in bfloat16."""

    def fn(x: Any, w: Any, g: Any) -> Any:
        y, back = jax.vjp(_convolved, x, w)
        return y, back(g)

    images = _array(batch, size, size, features)
    return _step(fn, (images, _array(3, 3, features, features), images))


def products(count: int, side: int) -> Example:
    """A chain of small square products."""
    fn = lambda x, ws: jax.lax.scan(lambda x, w: (x @ w, None), x, ws)[0]  # noqa: E731
    return _step(fn, (_array(side, side), _array(count, side, side)))


def adam(parameters: int = 2**29, arrays: int = 16, dtype: Any = jnp.float32) -> Example:
    """AdamW alone."""

    def update(params: Any, first: Any, second: Any, grads: Any) -> tuple[Any, Any, Any]:
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, grads)
        second = jax.tree.map(lambda n, g: 0.95 * n + 0.05 * g * g, second, grads)
        step = lambda p, m, n: p - 3e-5 * (m / (jnp.sqrt(n) + 1e-8) + 0.1 * p)  # noqa: E731
        return jax.tree.map(step, params, first, second), first, second

    tree = [_array(parameters // arrays // 4096, 4096, dtype=dtype) for _ in range(arrays)]
    return _step(update, (tree, tree, tree, tree), donate_argnums=(0, 1, 2))


def norms(rows: int = 32768, features: int = 8192) -> Example:
    """Layer norm, GELU, a softmax and a sum: nothing but reductions and elementwise work."""

    def fn(x: Any, scale: Any, bias: Any) -> Any:
        wide = x.astype(jnp.float32)
        wide = wide - wide.mean(-1, keepdims=True)
        wide = wide * jax.lax.rsqrt(jnp.square(wide).mean(-1, keepdims=True) + 1e-6)
        h = jax.nn.gelu((wide * scale + bias).astype(x.dtype))
        return jax.nn.softmax(h.astype(jnp.float32), axis=-1).astype(x.dtype) + x

    return _step(fn, (_array(rows, features), _array(features), _array(features)))


def prefill(batch: int = 2, sequence: int = 4096, layers: int = 8) -> Example:
    """A Llama's forward pass over prompts in bfloat16, attention by cuDNN, logits of the last tokens."""
    train = decoder_of(_MODEL, layers=layers, batch=batch, sequence=sequence, mesh="fsdp=1", attention="cudnn",
                       weights=jnp.bfloat16)  # fmt: skip
    decoder: Decoder = train.fn.__self__  # pyright: ignore[reportFunctionMemberAccess]

    def fn(params: Any, tokens: Any) -> Any:
        return (decoder.hidden(params, tokens)[:, -1] @ params["logits"]).astype(jnp.float32)

    return Example(fn, (train.args[0], train.args[-1]), train.mesh, kernels=train.kernels)


def decode(batch: int = 32, context: int = 4096, layers: int = 8) -> Example:
    """A token more for each of many sequences, with keys and values kept of all tokens before, in bfloat16."""
    shape = MODELS[_MODEL]
    groups = shape.heads // shape.kv_heads

    def layer(x: Any, p: Any, kept: Any, at: Any) -> tuple[Any, Any]:
        h = rms_norm(x, p["norm1"])
        q, k, v = (jnp.einsum("btd,dhk->bthk", h, p[name]) for name in ("query", "key", "value"))
        q, k = rotary(q), rotary(k)
        new = {"key": k, "value": v}
        kept = {name: jax.lax.dynamic_update_slice(kept[name], new[name], (0, at, 0, 0)) for name in kept}
        q = q.reshape(batch, shape.kv_heads, groups, shape.head_dim)
        scores = jnp.einsum("bkgd,bskd->bkgs", q, kept["key"]).astype(jnp.float32) / math.sqrt(shape.head_dim)
        weights = jax.nn.softmax(jnp.where(jnp.arange(context) <= at, scores, -1e30), axis=-1).astype(q.dtype)
        a = jnp.einsum("bkgs,bskd->bkgd", weights, kept["value"]).reshape(batch, 1, shape.heads, shape.head_dim)
        x = x + jnp.einsum("bthk,hkd->btd", a, p["out"])
        h = rms_norm(x, p["norm2"])
        return x + (jax.nn.silu(h @ p["gate"]) * (h @ p["up"])) @ p["down"], kept

    def fn(params: Any, cache: Any, tokens: Any, at: Any) -> tuple[Any, Any]:
        x, cache = params["embedding"][tokens][:, None], list(cache)
        for i, p in enumerate(params["layers"]):
            x, cache[i] = layer(x, p, cache[i], at)
        return cache, jnp.argmax(rms_norm(x[:, 0], params["norm"]) @ params["logits"], axis=-1).astype(jnp.int32)

    one = {name: _array(*dims) for name, (dims, _) in shape.weights.items()}
    params = {name: _array(*dims) for name, (dims, _) in shape.ends.items()} | {"layers": [one] * layers}
    kept = {name: _array(batch, context, shape.kv_heads, shape.head_dim) for name in ("key", "value")}
    ints = partial(_array, dtype=jnp.int32)
    return _step(fn, (params, [kept] * layers, ints(batch), ints()), donate_argnums=1)


def unet(batch: int = 16, size: int = 128, channels: tuple[int, ...] = (128, 256, 512)) -> Example:
    """A U-Net's train step as diffusion models have them, in bfloat16: group norms, SiLU, 3 x 3 convolutions."""
    weights: dict[str, Any] = {}

    def conv(name: str, into: int, wide: int, side: int = 3) -> None:
        weights[name] = _array(side, side, into, wide)

    conv("in", 4, channels[0])
    for i, (narrow, wide) in enumerate(pairwise((channels[0], *channels))):
        for name, first, last in ((f"down{i}", narrow, wide), (f"up{i}", 2 * wide, narrow)):
            conv(f"{name}.a", first, last)
            conv(f"{name}.b", last, last)
            conv(f"{name}.skip", first, last, 1)
    conv("out", channels[0], 4)

    def normed(x: Any) -> Any:
        groups = x.reshape(*x.shape[:3], 32, -1).astype(jnp.float32)
        mean = groups.mean((1, 2, 4), keepdims=True)
        scale = jax.lax.rsqrt(jnp.square(groups - mean).mean((1, 2, 4), keepdims=True) + 1e-5)
        return jax.nn.silu(((groups - mean) * scale).reshape(x.shape).astype(x.dtype))

    def residual(p: Any, name: str, x: Any) -> Any:
        h = _convolved(normed(_convolved(normed(x), p[f"{name}.a"])), p[f"{name}.b"])
        return h + _convolved(x, p[f"{name}.skip"])

    def loss(p: Any, x: Any, noise: Any) -> Any:
        h, skips = _convolved(x, p["in"]), []
        for i in range(len(channels)):
            skips.append(residual(p, f"down{i}", h))
            h = skips[-1][:, ::2, ::2]
        for i in reversed(range(len(channels))):
            h = jax.image.resize(h, (*skips[i].shape[:3], h.shape[-1]), "nearest")
            h = residual(p, f"up{i}", jnp.concatenate([h, skips[i]], axis=-1))
        return jnp.mean(jnp.square((_convolved(normed(h), p["out"]) - noise).astype(jnp.float32)))

    def train_step(p: Any, x: Any, noise: Any) -> tuple[Any, Any]:
        value, grads = jax.value_and_grad(loss)(p, x, noise)
        return jax.tree.map(lambda w, g: w - (1e-4 * g).astype(w.dtype), p, grads), value

    x = _array(batch, size, size, 4)
    return _step(train_step, (weights, x, x), donate_argnums=0)


def lstm(steps: int = 256, batch: int = 128, features: int = 1024) -> Example:
    """An LSTM's train step in float32: a scan of small products."""

    def loss(w: Any, x: Any) -> Any:
        def cell(state: Any, x: Any) -> tuple[Any, Any]:
            c, h = state
            i, f, g, o = jnp.split(jnp.concatenate([x, h], axis=-1) @ w["w"] + w["b"], 4, axis=-1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (c, h), h

        zero = jnp.zeros((batch, features), x.dtype)
        return jnp.mean(jnp.square(jax.lax.scan(cell, (zero, zero), x)[1] - x))

    def train_step(w: Any, x: Any) -> tuple[Any, Any]:
        value, grads = jax.value_and_grad(loss)(w, x)
        return jax.tree.map(lambda w, g: w - 1e-2 * g, w, grads), value

    wide = partial(_array, dtype=jnp.float32)
    w = {"w": wide(2 * features, 4 * features), "b": wide(4 * features)}
    return _step(train_step, (w, wide(steps, batch, features)), donate_argnums=0)


def orbit(steps: int = 1000, bodies: int = 256) -> Example:
    """Bodies that attract each other, many short steps in float32: a scan of very small operations."""

    def fn(place: Any, speed: Any) -> Any:
        def move(state: Any, _: Any) -> tuple[Any, None]:
            place, speed = state
            apart = place[None] - place[:, None]
            pull = apart / (jnp.square(apart).sum(-1, keepdims=True) + 1e-2) ** 1.5
            speed = speed + 1e-4 * pull.mean(1)
            return (place + 1e-3 * speed, speed), None

        return jax.lax.scan(move, (place, speed), None, length=steps)[0]

    one = _array(bodies, 3, dtype=jnp.float32)
    return _step(fn, (one, one))


def residuals(rows: int = 65536, features: int = 4096, layers: int = 8) -> Example:
    """What a decoder does between its products, and its gradients, in bfloat16: sums, root mean squares and gates."""

    def loss(scales: Any, x: Any, gates: Any) -> Any:
        for scale in scales:
            x = x + rms_norm(x, scale) * jax.nn.silu(gates)
        return jnp.mean(jnp.square(x.astype(jnp.float32)))

    scales = [_array(features)] * layers
    return _step(jax.grad(loss, argnums=(0, 1)), (scales, _array(rows, features), _array(rows, features)))


def vit(images: int = 128, side: int = 224, width: int = 1024, layers: int = 6, heads: int = 16) -> Example:
    """A vision transformer's train step, weights in float32 and products in bfloat16, attention to all patches."""
    patches, f32 = (side // 14) ** 2, partial(_array, dtype=jnp.float32)
    shapes = {"qkv": (width, 3, heads, width // heads), "out": (heads, width // heads, width)}
    shapes |= {"up": (width, 4 * width), "down": (4 * width, width), "norm1": (2, width), "norm2": (2, width)}
    params = {"patch": f32(14, 14, 3, width), "places": f32(patches, width), "head": f32(width, 1000)}
    params["layers"] = {name: f32(layers, *shape) for name, shape in shapes.items()}

    def normed(x: Any, p: Any) -> Any:
        wide = x.astype(jnp.float32)
        wide = (wide - wide.mean(-1, keepdims=True)) * jax.lax.rsqrt(wide.var(-1, keepdims=True) + 1e-6)
        return (wide * p[0] + p[1]).astype(x.dtype)

    @jax.checkpoint
    def block(x: Any, p: Any) -> tuple[Any, None]:
        w = {name: each.astype(x.dtype) for name, each in p.items()}
        q, k, v = jnp.moveaxis(jnp.einsum("btd,dchk->bthck", normed(x, p["norm1"]), w["qkv"]), 3, 0)
        weights = jax.nn.softmax(jnp.einsum("bthk,bshk->bhts", q, k) / math.sqrt(width // heads), axis=-1)
        x = x + jnp.einsum("bthk,hkd->btd", jnp.einsum("bhts,bshk->bthk", weights, v), w["out"])
        return x + jax.nn.gelu(normed(x, p["norm2"]) @ w["up"]) @ w["down"], None

    def loss(p: Any, x: Any, labels: Any) -> Any:
        numbers = ("NHWC", "HWIO", "NHWC")
        x = jax.lax.conv_general_dilated(x, p["patch"].astype(x.dtype), (14, 14), "VALID", dimension_numbers=numbers)
        x = x.reshape(images, patches, width) + p["places"].astype(x.dtype)
        x, _ = jax.lax.scan(block, x, p["layers"])
        logits = x.mean(1).astype(jnp.float32) @ p["head"]
        return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - jnp.take_along_axis(logits, labels[:, None], axis=-1)[:, 0])

    def train_step(p: Any, x: Any, labels: Any) -> tuple[Any, Any]:
        value, grads = jax.value_and_grad(loss)(p, x, labels)
        return jax.tree.map(lambda w, g: w - 1e-3 * g, p, grads), value

    args = params, _array(images, side, side, 3), _array(images, dtype=jnp.int32)
    return _step(train_step, args, donate_argnums=0)


def vocabulary(tokens: int = 4096, words: int = 256000, width: int = 2048) -> Example:
    """An embedding, logits in bfloat16 and their cross-entropy in float32, with gradients of both tables."""

    def loss(p: Any, words: Any, nexts: Any) -> Any:
        logits = (p["in"][words] @ p["out"]).astype(jnp.float32)
        return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - jnp.take_along_axis(logits, nexts[:, None], axis=-1)[:, 0])

    ints = _array(tokens, dtype=jnp.int32)
    return _step(jax.grad(loss), ({"in": _array(words, width), "out": _array(width, words)}, ints, ints))


def messages(nodes: int = 65536, edges: int = 1048576, features: int = 128) -> Example:
    """Two rounds of a graph network in float32: along each edge a product of its ends, summed where it leads."""

    def fn(ws: Any, x: Any, begins: Any, ends: Any) -> Any:
        for w in ws:
            sent = jax.nn.relu(jnp.concatenate([x[begins], x[ends]], axis=-1) @ w)
            x = x + jax.ops.segment_sum(sent, ends, nodes)
        return x

    ints, wide = _array(edges, dtype=jnp.int32), partial(_array, dtype=jnp.float32)
    return _step(fn, ([wide(2 * features, features)] * 2, wide(nodes, features), ints, ints))


def _decoder(model: str | Shape, **settings: Any) -> Example:
    return alone(decoder_of(model, mesh="fsdp=1", **settings))


_F32 = jnp.float32
STEPS: dict[str, Callable[[], Example]] = {
    "gpt-126m": lambda: _decoder("gpt-126m", batch=4, sequence=2048, remat="minimal"),
    "llama2-7b, 4 layers, cudnn": lambda: _decoder(
        "llama2-7b", layers=4, batch=2, sequence=4096, remat="minimal_flash", attention="cudnn", unroll=True
    ),
    "llama2-7b, 2 layers": lambda: _decoder("llama2-7b", layers=2, batch=2, sequence=4096, remat="full"),
    "llama3.1-8b, 2 layers, cudnn": lambda: _decoder(
        "llama3.1-8b", layers=2, batch=1, sequence=8192, remat="full", attention="cudnn"
    ),
    "gpt-5b, 2 layers": lambda: _decoder("gpt-5b", layers=2, batch=4, sequence=2048, remat="minimal"),
    "mixtral-8x7b, 1 layer": lambda: _decoder("mixtral-8x7b", layers=1, batch=1, sequence=4096, remat="full"),
    "experts": lambda: alone(moe(tokens=4096, experts=16, mesh="data=1,expert=1")),
    "mlp": lambda: alone(mlp(mesh="data=1")),
    "mlp, wide": lambda: alone(mlp((4096, 16384, 16384, 4096), batch=16384, dtype=jnp.bfloat16, mesh="data=1")),
    "resnet-50": lambda: alone(resnet(50, batch=128, dtype=jnp.bfloat16, mesh="batch=1")),
    "u-net": unet,
    "prefill": prefill,
    "decode": decode,
    "lstm": lstm,
    "orbit": orbit,
    "adam": adam,
    "norms": norms,
    "product 8192 bfloat16": lambda: product(8192, 8192, 8192),
    "product 4096 bfloat16": lambda: product(4096, 4096, 4096),
    "product 8192 x 4096 x 14336 bfloat16": lambda: product(8192, 4096, 14336),
    "product 2048 bfloat16": lambda: product(2048, 2048, 2048),
    "product 16 x 8192 x 8192 bfloat16": lambda: product(16, 8192, 8192),
    "convolution of 256 features": lambda: convolution(64, 64, 256),
    "convolution of 512 features": lambda: convolution(64, 32, 512),
    "convolution of 64 features": lambda: convolution(128, 56, 64),
    "product 8192 float32": lambda: product(8192, 8192, 8192, _F32),
    "product 8192 float32, highest": lambda: product(8192, 8192, 8192, _F32, "highest"),
    "64 products 1024 bfloat16": lambda: products(64, 1024),
    # kept aside: measured after the method's mends, all but two constants' last values
    "mistral-7b, 2 layers, cudnn": lambda: _decoder(
        "mistral-7b", layers=2, batch=2, sequence=4096, remat="save_qkv_proj", attention="cudnn", unroll=True
    ),
    "llama3.1-8b, 1 layer": lambda: _decoder("llama3.1-8b", layers=1, batch=2, sequence=4096, remat="save_out_proj"),
    "gpt-126m, cudnn": lambda: _decoder(
        "gpt-126m", batch=16, sequence=2048, remat="minimal_flash", attention="cudnn", unroll=True
    ),
    "gpt-5b, 4 layers": lambda: _decoder("gpt-5b", layers=4, batch=2, sequence=2048, remat="full"),
    "resnet-101, float32": lambda: alone(resnet(101, batch=64, mesh="batch=1")),
    "u-net, wide": lambda: unet(32, 64, (192, 384, 768)),
    "decode, long": lambda: decode(8, 16384, 4),
    "prefill, long": lambda: prefill(1, 16384, 4),
    "lstm, wide": lambda: lstm(128, 1024, 2048),
    "mlp, float32": lambda: alone(mlp((2048, 8192, 8192, 8192, 2048), batch=16384, mesh="data=1")),
    "adam, 256 arrays": lambda: adam(2**28, 256),
    "experts, many": lambda: alone(moe(tokens=8192, experts=64, d_model=2048, mesh="data=1,expert=1")),
    "norms, narrow": lambda: norms(262144, 1024),
    # foretold: what is predicted was written down before it was measured
    "gpt, 1024 wide": lambda: _decoder(
        replace(MODELS["gpt-126m"], d_model=1024, heads=16, kv_heads=16, d_ff=4096, positions=1024),
        layers=6,
        batch=16,
        sequence=1024,
        remat="save_out_proj",
    ),
    "llama, 2048 wide, cudnn": lambda: _decoder(
        replace(MODELS[_MODEL], d_model=2048, heads=16, kv_heads=4, d_ff=5632, vocabulary=32000),
        layers=8,
        batch=4,
        sequence=2048,
        remat="minimal_flash",
        attention="cudnn",
        weights=jnp.bfloat16,
        unroll=True,
    ),
    "mixtral-8x7b, 1 layer, long": lambda: _decoder(
        "mixtral-8x7b", layers=1, batch=1, sequence=8192, remat="minimal", attention="cudnn"
    ),
    "experts, few": lambda: alone(moe(tokens=16384, experts=8, d_model=2048, mesh="data=1,expert=1")),
    "vit": vit,
    "decode, 128 sequences": lambda: decode(128, 2048, 4),
    "decode, 1 sequence": lambda: decode(1, 8192, 8),
    "vocabulary": vocabulary,
    "mlp, narrow, float32": lambda: alone(mlp((512, 2048, 2048, 512), batch=65536, mesh="data=1")),
    "16 products 3072 bfloat16": lambda: products(16, 3072),
    "resnet-26, wide": lambda: alone(resnet(26, batch=64, channels=128, dtype=jnp.bfloat16, mesh="batch=1")),
    "messages": messages,
    "adam, bfloat16": lambda: adam(2**30, 64, jnp.bfloat16),
    "residuals": residuals,
}
"""Name → step."""
