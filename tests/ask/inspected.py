"""Functions whose variables are asked about, and what JAX says of them: raw `jax.jit` on eight simulated devices.

Run as a script it prints for each case variable → spec, by `jax.debug.inspect_array_sharding`, as JSON; and `collectives`,
how many of each kind the partitioner made. No shardviz is in it.
"""

import json
import os
import re
import sys
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

MESH = {"data": 4, "model": 2}
DIMS = ("NHWC", "HWIO", "NHWC")


def no(name, value):
    """What is done with each variable when nothing is asked."""


def library(x, w, see=no):
    """What functions of jax.numpy and jax.nn make."""
    h = x @ w
    see("h", h)
    act = jax.nn.relu(h)
    see("act", act)
    z = jnp.sum(h, 0)
    see("z", z)
    gated = jax.nn.silu(h)
    see("gated", gated)
    running = jnp.cumsum(h, 1)
    see("running", running)
    padded = jnp.pad(h, ((0, 0), (0, 2)))
    see("padded", padded)
    ordered = jnp.sort(h, 1)
    see("ordered", ordered)
    taken = jnp.take(h, jnp.array([1, 2, 3]), axis=0)
    see("taken", taken)
    clipped = jnp.clip(h, 0, 1)
    see("clipped", clipped)
    spread = jnp.std(h, 0)
    see("spread", spread)
    rolled = jnp.roll(h, 1, axis=1)
    see("rolled", rolled)
    return act, z, gated, running, padded, ordered, taken, clipped, spread, rolled


def convolutions(x, k, k2, see=no):
    """The second computes its result otherwise than it is cut."""
    e = jax.lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=DIMS)
    see("e", e)
    g = jax.nn.relu(e)
    see("g", g)
    o = jax.lax.conv_general_dilated(g, k2, (1, 1), "SAME", dimension_numbers=DIMS)
    see("o", o)
    return jnp.sin(o)


def square(x, see=no):
    """A product that could be cut along either factor."""
    y = x @ x
    see("y", y)
    return y + 1.0


def largest(x, see=no):
    best = jnp.argmax(x, 1)
    see("best", best)
    return best


IMAGES = ((8, 16, 16, 8), (3, 3, 8, 32), (3, 3, 32, 16))
CASES = {
    "library": (library, ((16, 32), (32, 64)), (P("data"), P(None, "model"))),
    "library, whole": (library, ((16, 32), (32, 64)), (P(), P())),
    "convolutions": (convolutions, IMAGES, (P(None, "data"), *[P(None, None, "data", "model")] * 2)),
    "square": (square, ((16, 16),), (P("data", "model"),)),
    "argmax": (largest, ((16, 64),), (P(None, "data"),)),
}


def main():
    import numpy as np
    from jax.sharding import Mesh, NamedSharding

    mesh = Mesh(np.array(jax.devices()).reshape(tuple(MESH.values())), tuple(MESH))
    answers = {}
    for case, (function, shapes, specs) in CASES.items():
        seen = answers[case] = {}

        def see(name, value, seen=seen):
            def keep(sharding):
                entries = (*sharding.spec, *[None] * (value.ndim - len(sharding.spec)))
                seen[name] = [[] if e is None else [e] if isinstance(e, str) else list(e) for e in entries]

            jax.debug.inspect_array_sharding(value, callback=keep)

        arguments = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
        shardings = tuple(NamedSharding(mesh, spec) for spec in specs)
        jax.jit(lambda *args, f=function, see=see: f(*args, see), in_shardings=shardings).lower(*arguments).compile()
        with tempfile.TemporaryDirectory() as folder:
            dumps = {"xla_dump_to": folder, "xla_dump_hlo_pass_re": "spmd-partitioning", "xla_dump_hlo_as_text": True}
            jax.jit(function, in_shardings=shardings).lower(*arguments).compile(compiler_options=dumps)
            text = next(f for f in Path(folder).glob("*.txt") if "after_spmd-partitioning" in f.name).read_text()
        kinds = re.findall(r" (all-reduce|all-gather|all-to-all|collective-permute)\(", text)
        seen["collectives"] = {kind: kinds.count(kind) for kind in sorted(set(kinds))}
    print(json.dumps(answers))


if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    sys.exit(main())
