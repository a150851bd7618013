"""How long it takes to say what weights cost that move between two machines."""

import functools
import os
import subprocess
import sys
import time
from pathlib import Path

from jax.sharding import PartitionSpec as P

import shardviz as sv
from tests import raw

ROOT = Path(__file__).resolve().parents[2]
FIRST = """
import time
import jax
import shardviz
from tests.benchmarks.test_reshard import moved
begun = time.process_time()
told = moved().text()
print(time.process_time() - begun)
"""


array = functools.partial(raw.array, dtype="bfloat16")


def moved():
    """Return how llama 70B gets from a trainer on 256 chips to a sampler on 64 others: 723 arrays."""
    sizes = {"q": (8192, 8192), "kv": (8192, 2048), "o": (8192, 8192), "up": (8192, 57344), "down": (28672, 8192)}
    layer = {name: array(*shape) for name, shape in sizes.items()} | {f"norm{n}": array(8192) for n in range(4)}
    specs = {name: P("tensor") if name in ("o", "down") else P(None, "tensor") for name in sizes}
    tree = {"layers": [layer] * 80, "emb": array(128256, 8192), "head": array(8192, 128256), "norm": array(8192)}
    after = {
        "layers": [specs | {f"norm{n}": P() for n in range(4)}] * 80,
        "emb": P("tensor"),
        "head": P(None, "tensor"),
        "norm": P(),
    }
    meshes = {"mesh": {"fsdp": 256}, "to_mesh": {"replica": 8, "tensor": 8}}
    return sv.reshard(tree, P("fsdp"), after, **meshes, target="tpu v5p:4x8x8", to_target="tpu v5p:4x4x4")


def test_llama_70b_on_256_chips_to_64_others_takes_a_third_of_a_second():
    """Of CPU time, the best of three."""
    took = []
    for _ in range(3):
        begun = time.process_time()
        known = moved()
        took.append(time.process_time() - begun)
    assert min(took) < 0.35 and len(known.leaves) == 723 and known.ways[0].seconds


def test_the_first_answer_of_a_process_takes_a_second():
    """Of CPU time after `import shardviz`, the answer's text included; the best of three, which find the byte code."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    took = []
    for _ in range(4):
        done = subprocess.run(
            [sys.executable, "-c", FIRST], capture_output=True, text=True, cwd=ROOT, env=env, check=True
        )
        took.append(float(done.stdout))
    print(f"first answers of a process: {', '.join(f'{each * 1e3:.0f} ms' for each in took)} of CPU time")
    assert min(took[1:]) < 1
