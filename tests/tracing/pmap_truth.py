"""JAX's own pmap, compiled and run with 64 simulated devices; no shardviz in it.

Run as `python pmap_truth.py FOLDER`: for each example and size it writes the partitioner's snapshot, the lowered text,
and facts as JSON: the outputs' shardings, and how far the result is from that of one device.
"""

import json
import sys
from pathlib import Path

import jax

from tests.raw import apart, compiled, entries
from tests.tracing import pmap_examples as pmaps

if __name__ == "__main__":
    for n in pmaps.SIZES:
        for name in pmaps.examples(n):
            folder, key = Path(sys.argv[1]), f"{name}@{n}"
            fn, args, kwargs = pmaps.pmapped(name, n)
            lowered = fn.lower(*args, **kwargs)
            (folder / f"{key}.stablehlo.txt").write_text(lowered.as_text())
            (folder / f"{key}.partitioned.txt").write_text(compiled(lowered)[1])
            found = jax.tree.leaves(fn(*args, **kwargs))
            outputs = [[entries(o.sharding), o.shape, o.sharding.shard_shape(o.shape)] for o in found]
            facts = {"outputs": outputs, "apart": apart(found, pmaps.on_one_device(name, n))}
            (folder / f"{key}.json").write_text(json.dumps(facts))
