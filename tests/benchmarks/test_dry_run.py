"""What a dry run costs: JAX traces each program in it once, as in a real run; the rest is shardviz's own time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("flax", reason="no flax: pip install 'shardviz[flax]'")

SCRIPT = Path(__file__).with_name("nnx_44b.py")
RUN = f"""
import json, math, resource, time
import psutil
from shardviz.cli.dry import recorded
from shardviz.runs import dry
spent, answer = [], dry._Recorder.run
def timed(self, *arguments):
    start = time.perf_counter()
    try:
        return answer(self, *arguments)
    finally:
        spent.append(time.perf_counter() - start)
dry._Recorder.run = timed
run, code = recorded([{str(SCRIPT)!r}], "tpu v5p:4x4x4", None, 3)
seconds = time.time() - psutil.Process().create_time()
memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
start = time.perf_counter()
step = run["train_step"].record
estimates = time.perf_counter() - start
size = sum(math.prod(a.shape) for a in step.arguments if a.name.startswith("model"))
print(json.dumps([run.ended, step.calls, step.seconds, size, memory, seconds, sum(spent), estimates]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is measured as Linux counts it")
def test_a_dry_run_takes_little_more_than_imports_and_tracing():
    done = subprocess.run([sys.executable, "-c", RUN], capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr[-2000:]
    ended, calls, step, size, memory, seconds, mine, estimates = json.loads(done.stdout.splitlines()[-1])
    ratio, with_estimates = seconds / (seconds - mine), (seconds + estimates) / (seconds - mine)
    words = f"{size / 1e9:.1f} billion parameters: {memory / 1e6:.0f} MB, {seconds:.1f} s, {ratio:.2f} x JAX's own"
    print(f"{words}; {with_estimates:.2f} x with what a step takes, {step:.2f} s")
    assert (ended, calls) == ("steady", 3) and size > 43e9
    assert memory < 1e9
    assert ratio < 1.4 and with_estimates < 1.7
