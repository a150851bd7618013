"""Small steps on one device: serving, images, sequences, an optimizer alone, and plain products.

They exist to be measured (`measured`): each isolates the dominant work of some program.

>>> step = STEPS["product 4096 bfloat16"]()
>>> [str(each.dtype) for each in step.args]
['bfloat16', 'bfloat16']
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp

from shardviz.gallery.decoders import MODELS, TABLE, Decoder, decoder_of
from shardviz.gallery.example import Example
from shardviz.gallery.llama import rms_norm, rotary
from shardviz.gallery.mlp import mlp
from shardviz.gallery.moe import moe
from shardviz.gallery.resnet import resnet

_MODEL = "llama3.1-8b"


def _step(fn: Callable[..., Any], args: tuple[Any, ...], **options: Any) -> Example:
    """Return a step on one device; `options` are for `sv.trace`."""
    return Example(fn, args, {"fsdp": 1}, options=options)


def alone(example: Example) -> Example:
    """Return an example without specs, for one device."""
    return replace(example, in_specs=None, out_specs=None)


def _array(*shape: int, dtype: Any = jnp.bfloat16) -> Any:
    return jax.ShapeDtypeStruct(shape, dtype)


def product(rows: int, inner: int, columns: int, dtype: Any = jnp.bfloat16, precision: str | None = None) -> Example:
    """Return one matrix product."""

    def fn(a, b):
        return jnp.matmul(a, b, precision=precision)

    return _step(fn, (_array(rows, inner, dtype=dtype), _array(inner, columns, dtype=dtype)))


def _convolved(x: Any, w: Any) -> Any:
    return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def convolution(batch: int, size: int, features: int) -> Example:
    """Return a 3 x 3 convolution with `features` input and output features, and its gradients, in bfloat16."""

    def fn(x: Any, w: Any, g: Any) -> Any:
        y, back = jax.vjp(_convolved, x, w)
        return y, back(g)

    images = _array(batch, size, size, features)
    return _step(fn, (images, _array(3, 3, features, features), images))


def products(count: int, side: int) -> Example:
    """Return a chain of small square products."""

    def fn(x, ws):
        return jax.lax.scan(lambda x, w: (x @ w, None), x, ws)[0]

    return _step(fn, (_array(side, side), _array(count, side, side)))


def adam(parameters: int = 2**29, arrays: int = 16, dtype: Any = jnp.float32) -> Example:
    """Return AdamW alone."""

    def update(params: Any, first: Any, second: Any, grads: Any) -> tuple[Any, Any, Any]:
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, grads)
        second = jax.tree.map(lambda n, g: 0.95 * n + 0.05 * g * g, second, grads)

        def step(p, m, n):
            return p - 3e-5 * (m / (jnp.sqrt(n) + 1e-8) + 0.1 * p)

        return jax.tree.map(step, params, first, second), first, second

    tree = [_array(parameters // arrays // 4096, 4096, dtype=dtype) for _ in range(arrays)]
    return _step(update, (tree, tree, tree, tree), donate_argnums=(0, 1, 2))


def norms(rows: int = 32768, features: int = 8192) -> Example:
    """Return layer norm, GELU, a softmax and a sum: only reductions and elementwise work."""

    def fn(x: Any, scale: Any, bias: Any) -> Any:
        wide = x.astype(jnp.float32)
        wide = wide - wide.mean(-1, keepdims=True)
        wide = wide * jax.lax.rsqrt(jnp.square(wide).mean(-1, keepdims=True) + 1e-6)
        h = jax.nn.gelu((wide * scale + bias).astype(x.dtype))
        return jax.nn.softmax(h.astype(jnp.float32), axis=-1).astype(x.dtype) + x

    return _step(fn, (_array(rows, features), _array(features), _array(features)))


def prefill(batch: int = 2, sequence: int = 4096, layers: int = 8) -> Example:
    """Return a Llama's forward pass over prompts in bfloat16: cuDNN attention, logits of the last tokens."""
    train = decoder_of(_MODEL, layers=layers, batch=batch, sequence=sequence, mesh="fsdp=1", attention="cudnn",
                       weights=jnp.bfloat16)  # fmt: skip
    decoder: Decoder = train.fn.__self__  # pyright: ignore[reportFunctionMemberAccess]

    def fn(params: Any, tokens: Any) -> Any:
        return (decoder.hidden(params, tokens)[:, -1] @ params["logits"]).astype(jnp.float32)

    return Example(fn, (train.args[0], train.args[-1]), train.mesh, kernels=train.kernels)


def decode(batch: int = 32, context: int = 4096, layers: int = 8) -> Example:
    """Return one more token for each of many sequences in bfloat16, with a cache of earlier keys and values."""
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
    """Return a diffusion U-Net's train step in bfloat16: group norms, SiLU, 3 x 3 convolutions."""
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
    """Return an LSTM's train step in float32: a scan of small products."""

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
    """Return many short steps of attracting bodies in float32: a scan of very small operations."""

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
    """Return a decoder's work between products, with gradients, in bfloat16: sums, root mean squares and gates."""

    def loss(scales: Any, x: Any, gates: Any) -> Any:
        for scale in scales:
            x = x + rms_norm(x, scale) * jax.nn.silu(gates)
        return jnp.mean(jnp.square(x.astype(jnp.float32)))

    scales = [_array(features)] * layers
    return _step(jax.grad(loss, argnums=(0, 1)), (scales, _array(rows, features), _array(rows, features)))


def vit(images: int = 128, side: int = 224, width: int = 1024, layers: int = 6, heads: int = 16) -> Example:
    """Return a vision transformer's train step, with float32 weights, bfloat16 products and full attention."""
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
    """Return an embedding, bfloat16 logits and their float32 cross-entropy, with gradients of both tables."""

    def loss(p: Any, words: Any, nexts: Any) -> Any:
        logits = (p["in"][words] @ p["out"]).astype(jnp.float32)
        return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - jnp.take_along_axis(logits, nexts[:, None], axis=-1)[:, 0])

    ints = _array(tokens, dtype=jnp.int32)
    return _step(jax.grad(loss), ({"in": _array(words, width), "out": _array(width, words)}, ints, ints))


def messages(nodes: int = 65536, edges: int = 1048576, features: int = 128) -> Example:
    """Return two rounds of a graph network in float32: a product of each edge's ends, summed at its target."""

    def fn(ws: Any, x: Any, begins: Any, ends: Any) -> Any:
        for w in ws:
            sent = jax.nn.relu(jnp.concatenate([x[begins], x[ends]], axis=-1) @ w)
            x = x + jax.ops.segment_sum(sent, ends, nodes)
        return x

    ints, wide = _array(edges, dtype=jnp.int32), partial(_array, dtype=jnp.float32)
    return _step(fn, ([wide(2 * features, features)] * 2, wide(nodes, features), ints, ints))


_PROGRAMS: Mapping[str, Callable[..., Example]] = {
    program.__name__: program
    for program in (
        *(adam, convolution, decode, lstm, messages, mlp, moe, norms, orbit, prefill, product, products, residuals),
        *(resnet, unet, vit, vocabulary),
    )
}


def _step_of(row: Mapping[str, Any]) -> Example:
    """Return the step of a row of `programs.toml`, on one device."""
    settings: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}
    settings |= {name: jnp.dtype(row[name]).type for name in {"dtype", "weights"} & row.keys()}
    if "program" in settings:
        return alone(_PROGRAMS[settings.pop("program")](**settings))
    shape = replace(MODELS[settings.pop("decoder")], **settings.pop("shape", {}))
    return alone(decoder_of(shape, mesh="fsdp=1", **settings))


STEPS: dict[str, Callable[[], Example]] = {name: partial(_step_of, row) for name, row in TABLE["steps"].items()}
"""The steps of `programs.toml`, by name."""
