"""JAX's own pmap, compiled and run with simulated devices; no shardviz in it.

Run as `python pmap_truth.py FOLDER`: for each example and size it writes the partitioner's snapshot, the lowered text,
and facts as JSON: the outputs' shardings, and how far the result is from that of one device.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

if __name__ == "__main__":
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=64"
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    import numpy as np

    sys.path.insert(0, str(Path(__file__).parent))
    import pmap_examples as pmaps

    for n in pmaps.SIZES:
        for name in pmaps.examples(n):
            folder, key = Path(sys.argv[1]), f"{name}@{n}"
            fn, args, kwargs = pmaps.pmapped(name, n)
            lowered = fn.lower(*args, **kwargs)
            (folder / f"{key}.stablehlo.txt").write_text(lowered.as_text())
            with tempfile.TemporaryDirectory() as dumps:
                options = {"xla_dump_to": dumps, "xla_dump_hlo_pass_re": "spmd-partitioning"}
                lowered.compile(compiler_options=options)
                text = next(Path(dumps).glob("*after_spmd-partitioning*.txt")).read_text()
            (folder / f"{key}.partitioned.txt").write_text(text)
            expected = jax.tree.leaves(pmaps.on_one_device(name, n))
            found = jax.tree.leaves(fn(*args, **kwargs))
            facts = [
                {
                    "spec": [[] if e is None else [e] for e in out.sharding.spec],
                    "shape": out.shape,
                    "shard": out.sharding.shard_shape(out.shape),
                    "apart": float(np.max(np.abs(np.asarray(out) - np.asarray(one)) / (1e-3 + np.abs(one)))),
                }
                for out, one in zip(found, expected, strict=True)
            ]
            (folder / f"{key}.json").write_text(json.dumps(facts))
