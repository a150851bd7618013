"""Raw JAX on 8 simulated devices: each program of `partitioned_programs` after XLA's partitioner, and where it ends.

Run as `python partitioned_truth.py FOLDER`; no shardviz in it.
"""

import json
import sys
from pathlib import Path

import jax
import numpy as np
from jax.sharding import NamedSharding

from tests.program import partitioned_programs as programs
from tests.raw import compiled, entries

if __name__ == "__main__":
    mesh = jax.make_mesh((2, 4), ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    random = np.random.default_rng(0)
    for name, (fn, shapes, specs) in programs.PROGRAMS.items():
        shardings = tuple(NamedSharding(mesh, spec) for spec in specs)
        made, text = compiled(jax.jit(fn, in_shardings=shardings).lower(*shapes))
        arrays = [random.normal(size=a.shape).astype(a.dtype) for a in shapes]
        made(*map(jax.device_put, arrays, shardings))
        outputs = [entries(s) for s in jax.tree.leaves(made.output_shardings)]
        (Path(sys.argv[1]) / f"{name}.json").write_text(json.dumps(outputs))
        (Path(sys.argv[1]) / f"{name}.txt").write_text(text)
