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
from shardviz.cli.dry import recorded
from shardviz.runs import dry
spent, new = [], dry._Recorder._new
def timed(self, *arguments):
    start = time.process_time()
    try:
        return new(self, *arguments)
    finally:
        spent.append(time.process_time() - start)
dry._Recorder._new = timed
run, code = recorded([{str(SCRIPT)!r}], "tpu v5p:4x4x4", None, 3)
step = run["train_step"].record
size = sum(math.prod(a.shape) for a in step.arguments if a.name.startswith("model"))
used = resource.getrusage(resource.RUSAGE_SELF)
mine = used.ru_utime + used.ru_stime
print(json.dumps([run.record.ended, step.calls, size, used.ru_maxrss * 1024, mine, sum(spent)]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is measured as Linux counts it")
def test_a_dry_run_takes_little_more_than_imports_and_tracing():
    done = subprocess.run([sys.executable, "-c", RUN], capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr[-2000:]
    ended, calls, size, memory, seconds, mine = json.loads(done.stdout.splitlines()[-1])
    ratio = seconds / (seconds - mine)
    print(f"{size / 1e9:.1f} billion parameters: {memory / 1e6:.0f} MB, {seconds:.1f} s, {ratio:.2f} x JAX's own")
    assert (ended, calls) == ("steady", 3) and size > 43e9
    assert memory < 1e9
    assert ratio < 2.2
