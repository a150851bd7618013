"""Convolutions of every kind, and how many FLOPs XLA's own analysis says that they are.

`python convolution_truth.py` prints JSON: for each convolution its HLO text, the `flops` of `Lowered.cost_analysis()`,
and, for the first ones, twice the sum of what it makes of ones: each real product adds one.
"""

import json
import os
import random

os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import ConvDimensionNumbers, conv_general_dilated

RUN = 32
"""So many are run, too."""


def permuted(draw, spatial):
    """A tensor's dimensions in any order."""
    return tuple(draw.sample(range(spatial + 2), spatial + 2))


def placed(sizes, spec):
    """Sizes as (batch or out, feature, *spatial), in the order that a spec wants."""
    shape = [0] * len(spec)
    for size, at in zip(sizes, spec, strict=True):
        shape[at] = size
    return tuple(shape)


def drawn(draw):
    """A convolution: its operands' shapes, and its settings."""
    spatial = draw.choice([0, 1, 1, 2, 2, 3])
    groups, batches = draw.choice([(1, 1), (1, 1), (2, 1), (3, 1), (1, 2), (1, 3)])
    pick = lambda low, high: [draw.randint(low, high) for _ in range(spatial)]
    features = draw.randint(1, 3)
    specs = ConvDimensionNumbers(*(permuted(draw, spatial) for _ in range(3)))
    left = placed((draw.randint(1, 3) * batches, features * groups, *pick(1, 9)), specs.lhs_spec)
    kernel = placed((draw.randint(1, 2) * groups * batches, features, *pick(1, 5)), specs.rhs_spec)
    return (left, kernel), {
        "window_strides": pick(1, 3),
        "padding": list(zip(pick(-2, 4), pick(-2, 4), strict=True)),
        "lhs_dilation": pick(1, 3),
        "rhs_dilation": pick(1, 3),
        "dimension_numbers": specs,
        "feature_group_count": groups,
        "batch_group_count": batches,
    }


def functions(settings):
    """The convolution, and the gradients of its operands."""

    def forward(x, w):
        return conv_general_dilated(x, w, **settings)

    def total(x, w):
        return forward(x, w).sum()

    return forward, jax.grad(total, 0), jax.grad(total, 1)


def stated(lowered):
    """The analysis of a program that is one convolution; transposes and reversals around it are no FLOPs."""
    return {"text": lowered.compiler_ir("hlo").as_hlo_text(), "flops": lowered.cost_analysis().get("flops", 0.0)}


def large():
    """Convolutions of real models, forward and backward: a first layer, a strided, a depthwise and a dilated one."""
    same = {"padding": "SAME", "dimension_numbers": ("NHWC", "HWIO", "NHWC")}
    yield ((8, 224, 224, 3), (7, 7, 3, 64)), {"window_strides": (2, 2), **same}
    yield ((8, 56, 56, 128), (3, 3, 128, 128)), {"window_strides": (2, 2), **same}
    yield ((8, 28, 28, 96), (5, 5, 1, 192)), {"window_strides": (1, 1), "feature_group_count": 96, **same}
    yield ((2, 65, 65, 32), (3, 3, 32, 32)), {"window_strides": (1, 1), "rhs_dilation": (12, 12), **same}


def cases():
    draw = random.Random(0)
    made = 0
    while made < 96:
        shapes, settings = drawn(draw)
        arrays = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
        try:
            result = jax.eval_shape(functions(settings)[0], *arrays)
        except ValueError:  # padded by less than nothing
            continue
        if not result.size:
            continue
        which = made % 3
        made += 1
        yield functions(settings)[which], arrays, which == 0 and made <= 3 * RUN
    for shapes, settings in large():
        arrays = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
        yield from ((f, arrays, False) for f in functions(settings))


if __name__ == "__main__":
    found = []
    for f, arrays, run in cases():
        case = stated(jax.jit(f).lower(*arrays))
        if run:
            case["ones"] = 2 * float(np.asarray(f(*(jnp.ones(a.shape) for a in arrays)), np.float64).sum())
        found.append(case)
    print(json.dumps(found))
