"""A program of a run, planned on another mesh than the run's: the same as the function itself, traced for that mesh."""

from __future__ import annotations

import json
import subprocess
import sys

SCRIPT = """
import json
import jax, jax.numpy as jnp, numpy as np
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 8)
import shardviz as sv
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from shardviz.errors import TraceError
mesh = jax.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
explicit = jax.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Explicit,) * 2)
inside = NamedSharding(mesh, P("data", "model"))
def step(w, x):
    h = jax.lax.with_sharding_constraint(x @ w, inside)
    return w - 0.1 * (x.T @ h), jnp.sum(h)
@jax.jit
@jax.shard_map(mesh=mesh, in_specs=P("data"), out_specs=P())
def mapped(x):
    return jax.lax.psum(x, "data") * x.shape[0]
typed = jax.jit(lambda x: jnp.sin(x).sum(1))
with sv.dry_run() as run:
    put = lambda shape, mesh, *spec: jax.device_put(np.zeros(shape, np.float32), NamedSharding(mesh, P(*spec)))
    w, x = put((1024, 1024), mesh, None, "model"), put((512, 1024), mesh, "data")
    jax.jit(step)(w, x)
    mapped(x)
    with jax.set_mesh(explicit):
        typed(put((512, 1024), explicit, "data", "model"))
def told(report):
    sent = [(c.kind, str(c.axes), c.shape, c.count) for c in report.collectives]
    return [str(v.spec) for v in report.outputs], sent, report.cost.dot_flops, [v.name for v in report.arguments]
asked, result = [jax.ShapeDtypeStruct((1024, 1024), "float32"), jax.ShapeDtypeStruct((512, 1024), "float32")], {}
for level in ("propagate", "partition"):
    for sizes in ("data=4,model=4", "data=16,model=1"):
        plan = sv.Plan(sizes, (P(None, "model"), P("data")))
        own = sv.trace(step, *asked)
        mine, theirs = told(getattr(run["step"].program, level)(plan)), told(getattr(own, level)(plan))
        result[f"{level} {sizes}"] = mine, theirs
for name, on in (("mapped", "data=4,model=4"), (run.steps[-1].name, "data=4:Explicit,model=4:Explicit")):
    try:
        run[name].program.propagate(sv.Plan(on))
    except TraceError as error:
        result[name] = str(error)
print(json.dumps(result))
"""


def test_a_recorded_program_on_another_mesh():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    refused = {name: result.pop(name) for name in list(result) if " " not in name}
    assert len(result) == 4
    for recorded, traced in result.values():
        assert recorded == traced
        assert recorded[1], "nothing is sent"
    assert "on the mesh data=2,model=4. It has shard_map, so" in refused["mapped"]
    assert "It has Explicit axes, so" in refused["<lambda>"] and "run the script again" in refused["<lambda>"]
