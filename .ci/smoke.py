"""Tries an installed shardviz, from any folder but a checkout's: its files are there, and it explores a function.

`python .ci/smoke.py` prints a line of what was tried on which Python and JAX: a row of docs/tried_on.md.
"""

import importlib.metadata
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")


import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

import shardviz as sv

package = Path(sv.__file__).parent
distribution = importlib.metadata.distribution("shardviz")
assert not (package.parent / "pyproject.toml").exists(), f"this is a checkout: {package}"
assert distribution.version == sv.__version__, (distribution.version, sv.__version__)

# What a wheel may forget.
for needed in ("py.typed", "__init__.pyi", "page/static/explorer.js", "page/static/explorer.css", "costs/chips.toml"):
    assert (package / needed).is_file(), f"the wheel lacks {needed}"
assert len(list(package.glob("notebooks/*.ipynb"))) >= 7, "the wheel lacks notebooks"
assert any(str(file).endswith("licenses/LICENSE") for file in distribution.files or ()), "the wheel lacks its licence"

# Every public name can be loaded, with what the wheel itself asks for and no more.
for name in sv.__all__:
    getattr(sv, name)


def step(w, x):
    return jax.grad(lambda w: jnp.mean(jnp.tanh(x @ w) ** 2))(w)


array = jax.ShapeDtypeStruct((1024, 1024), jnp.float32)
mesh = sv.mesh(data=2, model=4)
program = sv.trace(step, array, array)
plan = sv.Plan(mesh, in_specs=(P(None, "model"), P("data")))
kinds = [c.kind for c in program.partition(plan).collectives]
assert kinds == ["all-reduce"], kinds
report = program.compile(plan)
assert report.level == "compiled" and sv.cost(report, "tpu v5e:2x4").seconds > 0
explorer = sv.explore(step, array, array, mesh=mesh, in_specs=plan.in_specs)
explorer.close()
form = sv.lessons.exercise(program, plan, ask="collectives").widget()
assert {"application/vnd.jupyter.widget-view+json", "text/plain"} == set(form._repr_mimebundle_()[0])
form.close()

with tempfile.TemporaryDirectory() as folder:
    report.save(Path(folder) / "report.html")
    assert "all-reduce" in (Path(folder) / "report.html").read_text()
    command = Path(sys.executable).with_name("shardviz")
    said = subprocess.run([command, "--version"], cwd=folder, capture_output=True, text=True, check=True).stdout
    assert said == f"shardviz {sv.__version__}\n", said
    subprocess.run([command, "doctor"], cwd=folder, capture_output=True, check=True)

system = f"{platform.system()} {platform.machine()}"
versions = [sv.__version__, platform.python_version(), jax.__version__, importlib.metadata.version("jaxlib"), system]
print("|", " | ".join(versions), "|")
