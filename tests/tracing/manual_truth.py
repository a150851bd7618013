"""Raw JAX on 64 simulated devices: each program of `manual_programs` compiled, and run beside one device.

Run as `python manual_truth.py FOLDER`; no shardviz in it.
"""

import json
import sys
from pathlib import Path

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding

from tests.raw import apart, compiled, entries
from tests.tracing import manual_programs as programs


def one(name, which, devices, folder):
    places = np.array(jax.devices()[:devices]).reshape(programs.MESHES[devices])
    mesh = Mesh(places, ("data", "model"), axis_types=programs.types(name))
    random = np.random.default_rng(0)
    arrays = [random.normal(size=s).astype(np.float32) / 8 for s in programs.SHAPES[name]]
    placed = [jax.device_put(a, NamedSharding(mesh, s)) for a, s in zip(arrays, programs.SPECS[name], strict=True)]
    with jax.set_mesh(mesh):
        made, text = compiled(jax.jit(programs.function(name, which)).lower(*placed))
        results = made(*placed)
    plain = forward = programs.single(name, devices)
    if which == "grad":
        plain = jax.grad(lambda *args: (forward(*args) ** 2).sum(), argnums=tuple(range(len(arrays))))
    specs = [entries(s) for s in jax.tree.leaves(made.output_shardings)]
    facts = {"output_specs": specs, "error": apart(results, plain(*arrays))}
    (folder / f"{name}.{which}@{devices}.json").write_text(json.dumps(facts))
    (folder / f"{name}.{which}@{devices}.partitioned.txt").write_text(text)


if __name__ == "__main__":
    for name in programs.NAMES:
        for which in programs.PASSES:
            for devices in programs.MESHES:
                one(name, which, devices, Path(sys.argv[1]))
