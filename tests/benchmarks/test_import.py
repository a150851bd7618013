"""What `import shardviz` costs on top of `import jax`."""

from __future__ import annotations

import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import time
start = time.perf_counter()
import jax
between = time.perf_counter()
import shardviz
print(between - start, time.perf_counter() - between)
"""


def test_import_costs_at_most_150_ms_more_than_import_jax():
    def once() -> tuple[float, float]:
        done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, cwd=ROOT, check=True)
        jax, ours = map(float, done.stdout.split())
        return jax, ours

    once()  # writes the byte code
    runs = [once() for _ in range(3)]
    jax, ours = (statistics.median(run[i] for run in runs) for i in (0, 1))
    print(f"import jax {jax * 1e3:.0f} ms, import shardviz {ours * 1e3:.1f} ms more")
    assert ours <= 0.150
