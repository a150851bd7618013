"""What a dry run costs, beside JAX's own tracing of the same programs and the imports: in seconds of a processor, which
other work on the machine changes least."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("flax", reason="no flax: pip install 'shardviz[flax]'")

SCRIPT = Path(__file__).with_name("nnx_44b.py")
TRACED = f"""
import pathlib, time
import jax
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 64)
script = pathlib.Path({str(SCRIPT)!r})
code = script.read_text().replace("= create()", "= nnx.eval_shape(create)").replace("range(1000)", "range(1)")
exec(compile(code.replace("= train_step(", "= nnx.eval_shape(train_step, "), script, "exec"))
print(time.process_time())
"""
RUN = f"""
import json, math, resource, time
import psutil
from shardviz.cli.dry import recorded
def spent():
    servers = [child.cpu_times() for child in psutil.Process().children()]  # Shardy runs in their children
    return time.process_time() + sum(times.children_user + times.children_system for times in servers)
run, code = recorded([{str(SCRIPT)!r}], "tpu v5p:4x4x4", None, 3)
seconds = spent()
memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
step = run["train_step"].record
estimates = spent() - seconds
size = sum(math.prod(a.shape) for a in step.arguments if a.name.startswith("model"))
print(json.dumps([run.ended, step.calls, step.seconds, size, memory, seconds, estimates]))
"""


def printed(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()[-1]


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is measured as Linux counts it")
def test_a_dry_run_takes_little_more_than_imports_and_tracing():
    traced = float(printed(TRACED))
    ended, calls, step, size, memory, seconds, estimates = json.loads(printed(RUN))
    ratio, with_estimates = seconds / traced, (seconds + estimates) / traced
    words = f"{size / 1e9:.1f} billion parameters: {memory / 1e6:.0f} MB, {seconds:.1f} s, {ratio:.2f} x JAX's own"
    print(f"{words}; {with_estimates:.2f} x with what a step takes, {step:.2f} s")
    assert (ended, calls) == ("steady", 3) and size > 43e9
    assert memory < 1e9
    assert ratio < 1.3 and with_estimates < 1.7
