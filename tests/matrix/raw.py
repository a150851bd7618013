"""Raw JAX's answers about every case, in a process with 64 simulated devices: `python raw.py FOLDER`.

For each it writes the partitioner's snapshot, the output shardings that the compiled object knows and, on few enough
devices to be quick, how far the result of running it is from that of one device.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=64"
os.environ["JAX_PLATFORMS"] = "cpu"
sys.path.insert(0, str(Path(__file__).parents[2]))

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from tests.matrix.cases import DEVICES, KINDS, MODES, Case

RUN_UP_TO = 8


def entries(spec):
    return [[] if e is None else [e] if isinstance(e, str) else list(e) for e in spec]


def arrays(args):
    leaves, tree = jax.tree.flatten(args)
    random = np.random.default_rng(0)
    return jax.tree.unflatten(tree, [random.standard_normal(a.shape).astype(a.dtype) for a in leaves])


def error(case: Case, result):
    expected = jax.tree.leaves(case.reference(*arrays(case.args)))
    found = jax.tree.leaves(result)
    return max(float(np.abs(np.asarray(a) - np.asarray(b)).max()) for a, b in zip(found, expected, strict=True))


def wrapped(kind: str, case: Case, devices: int):
    """(what to lower and to call, its arguments, the context to do it in)."""
    args = arrays(case.args)
    if kind == "pmap":
        mapped = jax.pmap(case.fn.__wrapped__, axis_name="batch", in_axes=(None, 0), devices=jax.devices()[:devices])
        return mapped, args, contextlib.nullcontext()
    grid = np.array(jax.devices()[:devices]).reshape(tuple(case.mesh.values()))
    mesh = Mesh(grid, tuple(case.mesh), axis_types=(AxisType[case.types],) * len(case.mesh))
    named = lambda specs: jax.tree.map(  # noqa: E731
        lambda spec: NamedSharding(mesh, spec), specs, is_leaf=lambda s: isinstance(s, PartitionSpec)
    )
    options = {} if case.types == "Explicit" else {"in_shardings": named(case.in_specs)}
    options |= {} if case.out_specs is None else {"out_shardings": named(case.out_specs)}
    return jax.jit(case.fn, **options), jax.device_put(args, named(case.in_specs)), jax.set_mesh(mesh)


def answer(kind: str, case: Case, devices: int, folder: Path, name: str):
    fn, args, context = wrapped(kind, case, devices)
    with context:
        if kind == "exported":
            (folder / f"{name}.bin").write_bytes(jax.export.export(fn)(*args).serialize())
            fn = jax.jit(jax.export.deserialize((folder / f"{name}.bin").read_bytes()).call)
        options = {"xla_dump_to": str(folder / name), "xla_dump_hlo_pass_re": "spmd-partitioning"}
        compiled = fn.lower(*args).compile(options)
        result = fn(*args) if devices <= RUN_UP_TO else None
    snapshot = next(f for f in (folder / name).glob("*.txt") if "after_spmd-partitioning" in f.name)
    (folder / f"{name}.partitioned.txt").write_text(snapshot.read_text())
    specs = [entries(s.spec) for s in jax.tree.leaves(compiled.output_shardings)]
    facts = {"output_specs": specs, "error": None if result is None else error(case, result)}
    (folder / f"{name}.json").write_text(json.dumps(facts))


if __name__ == "__main__":
    for kind, make in KINDS.items():
        for mode in MODES:
            for devices in DEVICES:
                answer(kind, make(mode, devices), devices, Path(sys.argv[1]), f"{kind}-{mode}-{devices}")
