"""A ResNet trained by `jax.pmap`, the form of data parallelism before `jit` took meshes.

Parameters, momentum and batch statistics have a leading axis with one copy per device; images have one with one batch
per device. Gradients and statistics are averaged by hand with `pmean` over `pmap`'s axis (He et al., 2015,
"Deep Residual Learning"; bottleneck blocks with the stride in the 3 x 3 convolution). The report shows every weight on
every device, `Unstacked` in pmap's notation. In today's notation, it is `P('batch')` on a leading axis with one entry
per device. It shows one all-reduce over `batch` for each weight's gradient.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from shardviz.errors import ShardvizError
from shardviz.gallery.example import Example, mesh_over

BLOCKS = {14: (1, 1, 1, 1), 26: (2, 2, 2, 2), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}
"""Depth → bottleneck blocks in each of the four stages."""


def convolve(x: Any, kernel: Any, stride: int = 1) -> Any:
    """Apply a 2-D convolution, images x height x width x channels, padded to keep the size."""
    return jax.lax.conv_general_dilated(x, kernel, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def at_least_f32(dtype: Any) -> Any:
    """Return the type of statistics and logits: float32, or `dtype` if it is wider."""
    return jnp.promote_types(dtype, jnp.float32)


def normalise(x: Any, p: dict[str, Any]) -> tuple[Any, Any]:
    """Normalise over all devices' images; return the result, and its mean and variance."""
    precise = x.astype(at_least_f32(x.dtype))
    mean = jax.lax.pmean(precise.mean((0, 1, 2)), "batch")
    variance = jax.lax.pmean(jnp.square(precise).mean((0, 1, 2)), "batch") - jnp.square(mean)
    scaled = (precise - mean) * jax.lax.rsqrt(variance + 1e-5) * p["scale"] + p["bias"]
    return scaled.astype(x.dtype), {"mean": mean, "variance": variance}


def bottleneck(x: Any, p: dict[str, Any], stride: int) -> tuple[Any, dict[str, Any]]:
    """Apply 1 x 1, 3 x 3 and 1 x 1 convolutions, each normalised, and add the input."""
    seen = {}
    h, seen["n1"] = normalise(convolve(x, p["c1"]), p["n1"])
    h, seen["n2"] = normalise(convolve(jax.nn.relu(h), p["c2"], stride), p["n2"])
    h, seen["n3"] = normalise(convolve(jax.nn.relu(h), p["c3"]), p["n3"])
    if "c0" in p:
        x, seen["n0"] = normalise(convolve(x, p["c0"], stride), p["n0"])
    return jax.nn.relu(x + h), seen


def forward(params: dict[str, Any], images: Any) -> tuple[Any, dict[str, Any]]:
    """Return logits for every image, and every normalisation's statistics."""
    seen: dict[str, Any] = {}
    x, seen["n0"] = normalise(convolve(images, params["c0"], 2), params["n0"])
    x = jax.lax.reduce_window(jax.nn.relu(x), -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
    for s, stage in enumerate(params["stages"]):
        for b, p in enumerate(stage):
            x, seen[f"{s}.{b}"] = bottleneck(x, p, 2 if b == 0 and s > 0 else 1)
    return x.mean((1, 2)).astype(at_least_f32(x.dtype)) @ params["out"], seen


def loss_fn(params: dict[str, Any], images: Any, labels: Any) -> tuple[Any, dict[str, Any]]:
    """Return the mean cross-entropy of this device's images, and the statistics."""
    logits, seen = forward(params, images)
    correct = jnp.take_along_axis(logits, labels[:, None], axis=-1)[:, 0]
    return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - correct), seen


def train_step(state: dict[str, Any], images: Any, labels: Any) -> tuple[dict[str, Any], Any]:
    """Take one device's step, inside a `pmap` over `batch`; return the new state and the loss over all devices."""
    (loss, seen), grads = jax.value_and_grad(loss_fn, has_aux=True)(state["params"], images, labels)
    grads = jax.lax.pmean(grads, "batch")
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, state["momentum"], grads)
    params = jax.tree.map(lambda p, m: p - 0.1 * m, state["params"], momentum)
    statistics = jax.tree.map(lambda old, new: 0.9 * old + 0.1 * new, state["statistics"], seen)
    state = {"params": params, "momentum": momentum, "statistics": statistics}
    return state, jax.lax.pmean(loss, "batch")


def parameters(depth: int, classes: int, dtype: Any, channels: int = 64) -> dict[str, Any]:
    """Return the shapes of a ResNet's weights, for one device."""

    def array(*shape):
        return jax.ShapeDtypeStruct(shape, dtype)

    def norm(n):
        return {k: jax.ShapeDtypeStruct((n,), at_least_f32(dtype)) for k in ("scale", "bias")}

    params: dict[str, Any] = {"c0": array(7, 7, 3, channels), "n0": norm(channels), "stages": []}
    wide = channels
    for s, count in enumerate(BLOCKS[depth]):
        stage, thin = [], channels * 2**s
        for b in range(count):
            p = {"c1": array(1, 1, wide, thin), "n1": norm(thin), "c2": array(3, 3, thin, thin), "n2": norm(thin)}
            p |= {"c3": array(1, 1, thin, 4 * thin), "n3": norm(4 * thin)}
            if b == 0:
                p |= {"c0": array(1, 1, wide, 4 * thin), "n0": norm(4 * thin)}
            stage.append(p)
            wide = 4 * thin
        params["stages"].append(stage)
    return params | {"out": jax.ShapeDtypeStruct((wide, classes), at_least_f32(dtype))}


def step_flops(depth: int, classes: int, size: int, images: int, channels: int = 64) -> tuple[float, float]:
    """Return the FLOPs of a step's convolutions and of its last matrix product, and those that the model needs.

    A convolution with a `k x k` kernel has `2 x in x out x overlaps^2` FLOPs per image. `overlaps` counts, along one
    side, the pairs of a kernel entry and a pixel that it multiplies: k per output, less the entries beyond the
    edge. The gradients of its input and of its kernel have the same FLOPs.

        model_flops = 3 x images x forward
        flops       = model_flops - images x the first convolution, since the images need no gradient
    """

    def conv(kernel: int, stride: int, pairs: int) -> float:
        return 2.0 * pairs * overlaps(side, kernel, stride) ** 2

    side, wide = size, channels
    first = forward = conv(7, 2, 3 * wide)
    side = -(-side // 4)  # the strides of the first convolution and of the maximum
    for s, count in enumerate(BLOCKS[depth]):
        thin = channels * 2**s
        for b in range(count):
            stride = 2 if b == 0 and s > 0 else 1
            forward += conv(1, 1, wide * thin) + conv(3, stride, thin * thin)
            if b == 0:
                forward += conv(1, stride, wide * 4 * thin)
            side, wide = -(-side // stride), 4 * thin
            forward += conv(1, 1, thin * wide)
    forward += 2.0 * wide * classes
    return images * (3 * forward - first), images * 3 * forward


def overlaps(size: int, kernel: int, stride: int) -> int:
    """Return the number of pairs of a kernel entry and a pixel that it multiplies, along one side.

    >>> overlaps(8, 3, 1)  # 8 outputs of 3 entries; at each end one entry is beyond the edge
    22
    """
    places = -(-size // stride)
    before = max(0, (places - 1) * stride + kernel - size) // 2
    begins = [place * stride - before for place in range(places)]
    return sum(min(size, begin + kernel) - max(0, begin) for begin in begins)


def resnet(
    depth: int = 50,
    *,
    batch: int = 64,
    size: int = 224,
    classes: int = 1000,
    channels: int = 64,
    dtype: Any = jnp.float32,
    mesh: Any = None,
) -> Example:
    """Return a ResNet's train step under `jax.pmap`.

    Args:
        depth: 14, 26, 50 or 101.
        batch: images on each device.
        size: pixels along an image's side.
        classes: the number of classes.
        channels: of the first convolution; the others have 1 to 32 times as many.
        dtype: element type of images and convolutions.
        mesh: a mesh with the single axis `batch`, one entry per device; `batch=8` if not given.

    Returns:
        The `Example`; its `fn` is the return value of `jax.pmap`.

    Raises:
        ShardvizError: for a depth that is not in the gallery, or a mesh with other axes.
    """
    if depth not in BLOCKS:
        raise ShardvizError(f"resnet(depth={depth!r}): the gallery has {', '.join(map(str, BLOCKS))}")
    mesh = mesh_over(mesh, {"batch": 8}, "resnet")
    params = parameters(depth, classes, dtype, channels)
    images = jax.ShapeDtypeStruct((batch, size, size, 3), dtype)
    labels = jax.ShapeDtypeStruct((batch,), jnp.int32)
    per_device = jax.vmap(forward, axis_name="batch", in_axes=(None, 0))
    seen = jax.eval_shape(per_device, params, _stacked(images, 1))[1]
    statistics = jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape[1:], s.dtype), seen)
    state = {"params": params, "momentum": params, "statistics": statistics}
    devices = mesh["batch"]
    state, images, labels = (jax.tree.map(lambda s: _stacked(s, devices), tree) for tree in (state, images, labels))
    return Example(
        jax.pmap(train_step, axis_name="batch", donate_argnums=0),
        (state, images, labels),
        mesh,
        (P("batch"), P("batch"), P("batch")),
        (P("batch"), P("batch")),
        {},
        sum(math.prod(p.shape) for p in jax.tree.leaves(params)),
        batch * devices,
        *step_flops(depth, classes, size, batch * devices, channels),
    )


def _stacked(array: Any, devices: int) -> Any:
    return jax.ShapeDtypeStruct((devices, *array.shape), array.dtype)
