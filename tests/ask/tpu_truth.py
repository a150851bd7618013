"""What JAX and libtpu say themselves of a program on a slice that is not there. Run in a process of its own.

python tpu_truth.py v5p:2x2x2 step 0,1,2,3,4,5,6,7    the analyses of the full compile and its heaps' peaks, as JSON
python tpu_truth.py v5e:2x2 large 0,1,2,3             the compiler's refusal

The numbers are the ids of the devices in the order of the mesh.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from tests.heap_traces import heap_peaks


def step(w1, w2, x):
    """A step of gradient descent on a stack of layers."""

    def loss(w1, w2):
        def layer(h, w):
            return jnp.maximum(h @ w[0], 0) @ w[1], None

        h, _ = jax.lax.scan(layer, x, (w1, w2))
        return (h * h).sum()

    g1, g2 = jax.grad(loss, (0, 1))(w1, w2)
    return w1 - 0.1 * g1, w2 - 0.1 * g2


def large(x, w):
    """Its result alone takes half of a v5e's memory, and the product that it is made of the other half."""
    y = x @ w
    return jnp.tanh(y), jnp.cumsum(y, 0)


def wide(x, w):
    """Two large values that are needed at once, and little that is given or comes out."""
    y = x @ w
    return ((y / y.sum()) * y).sum(0)


def rematted(table, w1, w2, x):
    """A step whose layers are computed again in the backward pass; much of its memory lies in gaps."""

    def loss(table, w1, w2):
        @jax.checkpoint
        def layer(h, w):
            return h + jax.nn.gelu(h @ w[0]) @ w[1], None

        h, _ = jax.lax.scan(layer, x, (w1, w2))
        return jax.nn.logsumexp((h @ table.T).astype(jnp.float32), -1).mean()

    gradients = jax.grad(loss, (0, 1, 2))(table, w1, w2)
    return tuple(w - 0.1 * g for w, g in zip((table, w1, w2), gradients, strict=True))


def array(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.bfloat16)


STACKED = P(None, "data", "model"), P(None, "model", "data")
BOTH = ("data", "model")
# function, arguments, specs of arguments and of results, what is donated
PROGRAMS = {
    "step": (
        step,
        (array(6, 512, 2048), array(6, 2048, 512), array(1024, 512)),
        (*STACKED, P("data", None)),
        STACKED,
        (0, 1),
    ),
    "wide": (  # more of main memory than there is VMEM
        wide,
        (array(8192, 128), array(128, 65536)),
        (P("data", None), P(None, "model")),
        P(),
        (),
    ),
    "rematted": (
        rematted,
        (array(32000, 2048), array(8, 2048, 8192), array(8, 8192, 2048), array(160, 2048, 2048)),
        (P(BOTH), P(None, BOTH), P(None, BOTH), P(BOTH)),
        (P(BOTH), P(None, BOTH), P(None, BOTH)),
        (0, 1, 2),
    ),
    "large": (
        large,
        (array(131072, 1024), array(1024, 131072)),
        (P("data", None), P(None, "model")),
        (P("data", "model"), P("data", "model")),
        (),
    ),
}


def main(topology, name, ids):
    os.environ.update(
        TPU_SKIP_MDS_QUERY="1",
        TPU_WORKER_HOSTNAMES="localhost",
        TPU_ACCELERATOR_TYPE="v5p-8",
        ALLOW_MULTIPLE_LIBTPU_LOAD="1",
        TPU_STDERR_LOG_LEVEL="3",
        TPU_LOG_DIR="disabled",
        JAX_PLATFORMS="cpu",
    )
    from jax.experimental import topologies

    fn, args, in_specs, out_specs, donated = PROGRAMS[name]
    found = {d.id: d for d in topologies.get_topology_desc(platform="tpu", topology_name=topology).devices}
    devices = np.array([found[int(i)] for i in ids.split(",")])
    mesh = Mesh(devices.reshape(-1, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    placed = [
        jax.tree.map(lambda spec: NamedSharding(mesh, spec), specs, is_leaf=lambda s: isinstance(s, P))
        for specs in (in_specs, out_specs)
    ]
    jitted = jax.jit(fn, in_shardings=placed[0], out_shardings=placed[1], donate_argnums=donated)
    with tempfile.TemporaryDirectory() as folder:
        dumps = {"xla_dump_to": folder, "xla_dump_hlo_as_text": True, "xla_dump_hlo_as_proto": True}
        try:
            compiled = jitted.lower(*args).compile(compiler_options=dumps)
        except jax.errors.JaxRuntimeError as error:
            print(json.dumps({"refused": str(error)}))
            return
        (proto,) = Path(folder).glob("*after_optimizations.hlo.pb")
        heaps = heap_peaks(proto)
    stats, cost = compiled.memory_analysis(), compiled.cost_analysis()
    names = [n for n in dir(stats) if not n.startswith("_") and isinstance(getattr(stats, n), int)]
    facts = {"memory": {n: getattr(stats, n) for n in names}, "cost": cost, "heaps": heaps}
    print(json.dumps(facts | {"text": compiled.as_text()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
