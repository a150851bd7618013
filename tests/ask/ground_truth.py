"""The other side of the truth tests: raw `jax.jit(...).lower().compile()` with real (simulated) devices,
no shardviz in it.

Run as `python ground_truth.py FOLDER`: for each program and mesh it writes the partitioner's snapshots and the facts
that the compiled object knows, as JSON. It takes only functions and abstract arguments from the gallery.
"""

import json
import os
import sys
from pathlib import Path

MESHES = {
    "data=1,model=8": ("mlp",),
    "data=2,model=4": ("mlp", "llama-70b"),
    "data=8,model=8": ("mlp", "llama-70b"),
    "data=4,model=16": ("mlp", "llama-8b"),
}
"""What is compiled on which mesh: the two llamas differ in numbers alone."""


def example(name, mesh):
    from shardviz import gallery

    return gallery.mlp(mesh=mesh) if name == "mlp" else gallery.llama(name.removeprefix("llama-"), mesh=mesh)


def entries(spec):
    return [[] if e is None else [e] if isinstance(e, str) else list(e) for e in spec]


def compile_one(example, text, folder):
    import jax
    import numpy as np
    from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

    sizes = {name: int(size) for name, size in (axis.split("=") for axis in text.split(","))}
    devices = np.array(jax.devices()[: int(np.prod(list(sizes.values())))]).reshape(tuple(sizes.values()))
    mesh = Mesh(devices, tuple(sizes), axis_types=(AxisType.Auto,) * len(sizes))
    is_spec = lambda s: s is None or isinstance(s, PartitionSpec)
    shardings = lambda tree: jax.tree.map(
        lambda s: None if s is None else NamedSharding(mesh, s), tree, is_leaf=is_spec
    )
    jitted = jax.jit(
        example.fn,
        in_shardings=shardings(example.in_specs),
        out_shardings=shardings(example.out_specs),
        **example.options,
    )
    with jax.set_mesh(mesh):
        dumps = {"xla_dump_to": str(folder), "xla_dump_hlo_pass_re": "spmd-partitioning"}
        dumps |= {"xla_dump_hlo_as_text": True, "xla_dump_hlo_as_proto": True}
        compiled = jitted.lower(*example.args).compile(compiler_options=dumps)
    snapshot = next(f for f in folder.glob("*.txt") if "after_spmd-partitioning" in f.name)
    optimized = next(f for f in folder.glob("*after_optimizations.txt"))
    memory, cost = compiled.memory_analysis(), compiled.cost_analysis()
    names = [n for n in dir(memory) if not n.startswith("_") and isinstance(getattr(memory, n), int)]
    facts = {
        "output_specs": [entries(s.spec) for s in jax.tree.leaves(compiled.output_shardings)],
        "memory": {name: getattr(memory, name) for name in names},
        "cost": {key: cost[key] for key in ("flops", "bytes accessed", "transcendentals") if key in cost},
    }
    kept = folder.parent
    (kept / f"{folder.name}.json").write_text(json.dumps(facts))
    (kept / f"{folder.name}.partitioned.txt").write_text(snapshot.read_text())
    (kept / f"{folder.name}.optimized.txt").write_text(optimized.read_text())
    (kept / f"{folder.name}.hlo.pb").write_bytes(next(folder.glob("*after_optimizations.hlo.pb")).read_bytes())
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()


if __name__ == "__main__":
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=64"
    os.environ["JAX_PLATFORMS"] = "cpu"
    for mesh, names in MESHES.items():
        for name in names:
            folder = Path(sys.argv[1]) / f"{name}@{mesh}"
            folder.mkdir()
            compile_one(example(name, mesh), mesh, folder)
