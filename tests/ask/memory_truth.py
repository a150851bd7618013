"""What raw JAX says of programs with arrays on the host and arguments that nothing uses. Run in a process of its own.

python memory_truth.py tpu v5e:2x4 0,1,...    JSON: program -> the numbers of memory_analysis()
python memory_truth.py lowered                JSON: program -> memory kinds of arguments, of results, annotations

The numbers are the ids of the devices in the order of the mesh.
"""

import json
import os
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

SIDE = 8192
ARRAY = jax.ShapeDtypeStruct((SIDE, SIDE), jnp.float32)


def momentum(w, m, g):
    """The optimizer's state is held on the host, and the program never says so."""
    m = 0.9 * m + g
    return w - 0.1 * m, m


def ignores(w, m, g):
    """The state is given and not used."""
    return w - 0.1 * g


# function, which arguments and which results lie on the host, what is donated
PROGRAMS = {
    "on the host": (momentum, (1,), (1,), ()),
    "on the device": (momentum, (), (), ()),
    "donated": (momentum, (1,), (1,), (0, 1)),
    "only the result": (momentum, (), (1,), (0,)),
    "unused": (ignores, (), (), ()),
    "unused on the host": (ignores, (1,), (), ()),
    "unused and donated": (ignores, (), (), (0, 1)),
}


def counted(text):
    """Memory kinds of the main function's arguments and results, and the placements, in a module's text."""
    main = next(line for line in text.splitlines() if "@main(" in line)
    given, _, results = main.partition(") -> ")
    kinds = lambda part: re.findall(r'mhlo.memory_kind = "(\w+)"', part)
    placed = re.findall(r'_xla_buffer_placement = "(\w+)"', text)
    return [kinds(given), kinds(results), sorted(placed)]


def lowered(mesh, name):
    fn, ins, outs, donated = PROGRAMS[name]
    at = lambda host: NamedSharding(mesh, P("data"), memory_kind="pinned_host" if host else "device")
    count = len(jax.eval_shape(fn, ARRAY, ARRAY, ARRAY)) if fn is momentum else 1
    results = tuple(at(i in outs) for i in range(count))
    wrapped = jax.jit(
        fn,
        in_shardings=tuple(at(i in ins) for i in range(3)),
        out_shardings=results if count > 1 else results[0],
        donate_argnums=donated,
    )
    return wrapped.lower(ARRAY, ARRAY, ARRAY)


def tpu(topology, ids):
    from jax.experimental import topologies

    from shardviz.processes.job import TPU_ENVIRONMENT

    os.environ.update(TPU_ENVIRONMENT)
    devices = {d.id: d for d in topologies.get_topology_desc(platform="tpu", topology_name=topology).devices}
    mesh = Mesh(np.array([devices[i] for i in ids]), ("data",), axis_types=(AxisType.Auto,))
    found = {}
    for name in PROGRAMS:
        stats = lowered(mesh, name).compile().memory_analysis()
        names = [n for n in dir(stats) if not n.startswith("_") and isinstance(getattr(stats, n), int)]
        found[name] = {n: getattr(stats, n) for n in names}
    return found


if __name__ == "__main__":
    if sys.argv[1] == "tpu":
        answer = tpu(sys.argv[2], [int(i) for i in sys.argv[3].split(",")])
    else:
        jax.config.update("jax_num_cpu_devices", 8)
        mesh = Mesh(np.array(jax.devices()), ("data",), axis_types=(AxisType.Auto,))
        answer = {}
        for name in PROGRAMS:
            program = lowered(mesh, name)
            stats = program.compile().memory_analysis()
            sizes = {n: getattr(stats, f"{n}_size_in_bytes") for n in ("argument", "output", "alias", "temp")}
            answer[name] = [*counted(program.as_text()), sizes]
    print(json.dumps(answer))
