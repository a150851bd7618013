"""Raw JAX on 8 simulated devices: each program of `partitioned_programs` after XLA's partitioner, and where it ends.

Run as `python partitioned_truth.py FOLDER`; no shardviz in it.
"""

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))


def one(name, folder):
    import jax
    import numpy as np
    import partitioned_programs as programs
    from jax.sharding import NamedSharding

    fn, shapes, specs = programs.PROGRAMS[name]
    mesh = jax.make_mesh((2, 4), ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    shardings = tuple(NamedSharding(mesh, spec) for spec in specs)
    dump = folder / "dump"
    options = {"xla_dump_to": str(dump), "xla_dump_hlo_pass_re": "spmd-partitioning"}
    compiled = jax.jit(fn, in_shardings=shardings).lower(*shapes).compile(compiler_options=options)
    random = np.random.default_rng(0)
    compiled(*(jax.device_put(random.normal(size=a.shape).astype(a.dtype), s) for a, s in zip(shapes, shardings)))  # noqa: B905
    entries = lambda spec: [[] if e is None else [e] if isinstance(e, str) else list(e) for e in spec]  # noqa: E731
    outputs = [entries(s.spec) for s in jax.tree.leaves(compiled.output_shardings)]
    (folder / f"{name}.json").write_text(json.dumps(outputs))
    snapshot = next(f for f in dump.glob("*jit_*.txt") if "after_spmd-partitioning" in f.name)
    (folder / f"{name}.txt").write_text(snapshot.read_text())
    for file in dump.iterdir():
        file.unlink()


if __name__ == "__main__":
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
    os.environ["JAX_PLATFORMS"] = "cpu"
    import partitioned_programs

    for name in partitioned_programs.PROGRAMS:
        one(name, Path(sys.argv[1]))
