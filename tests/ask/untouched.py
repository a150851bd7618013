"""A kernel that has a program compiled for a target, to its end, and then looks at itself.

python untouched.py "tpu v5e:2x2"     what of the target and of JAX's backends is in this process, as JSON
"""

import json
import os
import sys
from pathlib import Path

os.environ.pop("JAX_PLATFORMS", None)  # a person's kernel has none
sys.path.insert(0, str(Path(__file__).parents[2]))
environment = dict(os.environ)

import jax  # noqa: E402 - JAX_PLATFORMS is to be away before
import jax.numpy as jnp  # noqa: E402
from jax._src import xla_bridge  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

import shardviz as sv  # noqa: E402

WORDS = ("libtpu", "cuda", "nvidia", "ptxas")


def loaded():
    """The target's libraries and modules that are in this process."""
    maps = Path("/proc/self/maps").read_text()
    libraries = {line.rsplit("/", 1)[-1] for line in maps.splitlines() if any(word in line for word in WORDS)}
    return libraries | {name for name in sys.modules if any(word in name for word in WORDS)}


if __name__ == "__main__":
    before = loaded()  # JAX itself imports what it finds of CUDA's kernels
    array = jax.ShapeDtypeStruct((512, 512), jnp.bfloat16)
    plan = sv.Plan("data=4", (P("data"), P()))
    report = sv.trace(lambda x, w: x @ w, array, array).compile(plan, target=sys.argv[1])
    found = {
        "planned": report.memory.arguments > 0,
        "environment": dict(os.environ) == environment,
        "backends": xla_bridge.backends_are_initialized(),
        "loaded": sorted(loaded() - before),
    }
    print(json.dumps(found))
