"""Raw JAX on 64 simulated devices: each program of `manual_programs` compiled, and run beside one device.

Run as `python manual_truth.py FOLDER`; no shardviz in it.
"""

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))


def one(name, which, devices, folder):
    import jax
    import manual_programs as programs
    import numpy as np
    from jax.sharding import Mesh, NamedSharding

    places = np.array(jax.devices()[:devices]).reshape(programs.MESHES[devices])
    mesh = Mesh(places, ("data", "model"), axis_types=programs.types(name))
    shardings = tuple(NamedSharding(mesh, spec) for spec in programs.SPECS[name])
    random = np.random.default_rng(0)
    arrays = [random.normal(size=s).astype(np.float32) / 8 for s in programs.SHAPES[name]]
    placed = [jax.device_put(a, s) for a, s in zip(arrays, shardings, strict=True)]
    dump = folder / "dump"
    with jax.set_mesh(mesh):
        compiled = (
            jax.jit(programs.function(name, which))
            .lower(*placed)
            .compile(compiler_options={"xla_dump_to": str(dump), "xla_dump_hlo_pass_re": "spmd-partitioning"})
        )
        results = jax.tree.leaves(compiled(*placed))
    plain = programs.single(name, devices)
    if which == "grad":
        forward, count = plain, tuple(range(len(arrays)))
        plain = jax.grad(lambda *args: (forward(*args) ** 2).sum(), argnums=count)
    expected = jax.tree.leaves(plain(*arrays))
    entries = lambda spec: [[] if e is None else [e] if isinstance(e, str) else list(e) for e in spec]  # noqa: E731
    facts = {
        "output_specs": [entries(s.spec) for s in jax.tree.leaves(compiled.output_shardings)],
        "error": max(
            float(np.abs(np.asarray(a) - np.asarray(b)).max() / np.abs(np.asarray(b)).max())
            for a, b in zip(results, expected, strict=True)
        ),
    }
    kept = f"{name}.{which}@{devices}"
    (folder / f"{kept}.json").write_text(json.dumps(facts))
    snapshot = next(f for f in dump.glob("*jit_*.txt") if "after_spmd-partitioning" in f.name)
    (folder / f"{kept}.partitioned.txt").write_text(snapshot.read_text())
    for file in dump.iterdir():
        file.unlink()


if __name__ == "__main__":
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=64"
    os.environ["JAX_PLATFORMS"] = "cpu"
    import manual_programs

    for name in manual_programs.NAMES:
        for which in manual_programs.PASSES:
            for devices in manual_programs.MESHES:
                one(name, which, devices, Path(sys.argv[1]))
