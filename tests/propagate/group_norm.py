"""Two residual blocks with group norm, whose variances are one function called eight times, and its gradient.

Run as `python group_norm.py 0,1,2,3,4,5,6,7`: raw JAX compiles it for eight chips of TPU v5p that need not be there, in
the order of their ids, and prints as JSON the optimised program and the bytes of its temporaries.
"""

import json
import math
import re
import sys
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

MESH = {"data": 2, "model": 4}
SHAPE, GROUPS = (16, 128, 128, 256), 32
SPECS = ([{"a": P(), "b": P()}] * 2, P("data", "model"))


def group_norm(x):
    n, h, w, c = x.shape
    grouped = x.reshape(n, h, w, GROUPS, c // GROUPS).astype(jnp.float32)
    mean = grouped.mean((1, 2, 4), keepdims=True)
    return ((grouped - mean) * lax.rsqrt(jnp.var(grouped, (1, 2, 4), keepdims=True) + 1e-5)).reshape(x.shape)


def conv(x, kernel):
    return lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def loss(params, x):
    for block in params:
        h = conv(jax.nn.silu(group_norm(x)).astype(x.dtype), block["a"])
        x = x + conv(jax.nn.silu(group_norm(h)).astype(x.dtype), block["b"])
    return (x.astype(jnp.float32) ** 2).mean()


step = jax.value_and_grad(loss)


def arguments():
    kernel = jax.ShapeDtypeStruct((3, 3, SHAPE[-1], SHAPE[-1]), jnp.bfloat16)
    return [{"a": kernel, "b": kernel}] * 2, jax.ShapeDtypeStruct(SHAPE, jnp.bfloat16)


def compiled(ids):
    devices = {d.id: d for d in topologies.get_topology_desc(platform="tpu", topology_name="v5p:2x2x2").devices}
    mesh = Mesh(np.array([devices[i] for i in ids]).reshape(tuple(MESH.values())), tuple(MESH))
    placed = jax.tree.map(lambda s: NamedSharding(mesh, s), SPECS, is_leaf=lambda s: isinstance(s, P))
    return jax.jit(step, in_shardings=placed).lower(*arguments()).compile()


def bytes_of(shapes):
    found = re.findall(r"(f32|bf16)\[([\d,]*)\]", shapes)
    return sum({"f32": 4, "bf16": 2}[dtype] * math.prod(map(int, filter(None, d.split(",")))) for dtype, d in found)


def all_reduces(text):
    """Operand bytes → how many, in an optimised program's text."""
    return Counter(map(bytes_of, re.findall(r"= (\(.*?\)|\S+) all-reduce(?:-start)?\(", text)))


if __name__ == "__main__":
    made = compiled([int(i) for i in sys.argv[1].split(",")])
    said = {"text": made.as_text(), "temporaries": made.memory_analysis().temp_size_in_bytes}
    print(json.dumps(said))
