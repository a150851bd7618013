"""Measures the steps of `shardviz.gallery.steps` on the first GPU of this machine.

    python docs/measure_on_a_gpu.py measured.json               # all
    python docs/measure_on_a_gpu.py measured.json adam decode   # these

It writes, after each step, `date`, `device`, `driver`, `jax`, `target` and `rows` (step → seconds and their spread), as
`shardviz/gallery/measured.json` has them, and beside it each compiled program's text, `measured.json.adam.hlo.gz`.
Data are random: a GPU multiplies zeros faster. Steps run one behind the other, what is donated goes from one to the
next; a span of them lasts 0.15 s or more, and its seconds by their number count. `peak_bytes` is of a process that
loads the compiled step and runs it once: compiling tries kernels, which takes memory too.
"""

from __future__ import annotations

import datetime
import gzip
import json
import math
import os
import pickle
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import serialize_executable

from shardviz.costs.machine import attached
from shardviz.gallery.example import Example
from shardviz.gallery.steps import STEPS

_SPANS, _SPAN = 11, 0.15


def drawn(place: int, array: Any) -> Any:
    """Hashed numbers, small ones: quick to make, and as good as random ones to a multiplier."""
    x = jax.lax.iota(jnp.uint32, math.prod(array.shape)) + jnp.uint32(7919 * place)
    for shift, times in ((16, 0x7FEB352D), (15, 0x846CA68B), (16, 1)):
        x = (x ^ (x >> shift)) * jnp.uint32(times)
    if jnp.issubdtype(array.dtype, jnp.integer):
        return (x % 100).astype(array.dtype).reshape(array.shape)
    return ((x.astype(jnp.float32) * 2.0**-32 - 0.5) * 0.07).astype(array.dtype).reshape(array.shape)


def compiled(step: Example) -> Any:
    """The step for this machine's first device."""
    axes = tuple(step.mesh)
    mesh = jax.make_mesh((1,) * len(axes), axes, axis_types=(jax.sharding.AxisType.Auto,) * len(axes))
    with jax.set_mesh(mesh):
        made: Any = step.fn if hasattr(step.fn, "lower") else jax.jit(step.fn, **step.options)
        return made.lower(*step.args).compile()


def timed(step: Example, run: Any, spans: int = _SPANS, span: float = _SPAN) -> dict[str, float]:
    """How long a step takes: `seconds`, the median span's; `least`, `most`; `steps`, how many were timed."""
    leaves, tree = jax.tree.flatten(step.args)
    make = jax.jit(drawn, static_argnums=(0, 1))
    args = list(jax.tree.unflatten(tree, [make(place, array) for place, array in enumerate(leaves)]))
    args = list(jax.device_put(tuple(args), run.input_shardings[0]))
    infos = enumerate(run.args_info[0])
    donated = tuple(place for place, arg in infos if any(each.donated for each in jax.tree.leaves(arg)))
    if donated == (0, 1, 2):  # an optimizer's second moments are no less than 0
        args[2] = jax.tree.map(jnp.square, args[2])

    def go(times: int) -> float:
        begin, out = time.perf_counter(), None
        for _ in range(times):
            out = run(*args)
            for place, arg in enumerate(donated):
                args[arg] = out[place] if isinstance(out, tuple) else out
        jax.block_until_ready(out)
        return (time.perf_counter() - begin) / times

    go(3)
    times = max(1, math.ceil(span / go(1)))
    each = [go(times) for _ in range(spans)]
    numbers = {"seconds": float(np.median(each)), "least": min(each), "most": max(each)}
    return {name: float(f"{value:.4g}") for name, value in numbers.items()} | {"steps": times * spans}


def peak_bytes(name: str, run: Any) -> int:
    """The most that is allocated on the device where nothing but a step runs, its arguments included."""
    with tempfile.NamedTemporaryFile(suffix=".step") as file:
        file.write(pickle.dumps(serialize_executable.serialize(run)))
        file.flush()
        alone = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        asked = [sys.executable, __file__, "--peak", file.name, name]
        return int(subprocess.run(asked, capture_output=True, text=True, check=True, env=alone).stdout)


def run_alone(file: Path, name: str) -> int:
    """Runs a stored step once; what `peak_bytes` is about."""
    run, device = serialize_executable.deserialize_and_load(*pickle.loads(file.read_bytes())), jax.devices()[0]
    args = jax.tree.map(lambda array: np.zeros(array.shape, array.dtype), STEPS[name]().args)
    jax.block_until_ready(run(*jax.device_put(args, run.input_shardings[0])))
    return device.memory_stats()["peak_bytes_in_use"]


def main(file: Path, names: list[str]) -> None:
    """Measures the steps of these names."""
    device = jax.devices()[0]
    asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    driver = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()[0]
    table = {"date": str(datetime.date.today()), "device": device.device_kind, "driver": driver, "jax": jax.__version__}
    table |= {"target": attached(), "rows": {}, "peaks": {name: table[name] for name in ("date", "device", "jax")}}
    for name in names:
        step = STEPS[name]()
        run = compiled(step)
        table["rows"][name] = timed(step, run) | {"peak_bytes": peak_bytes(name, run), "predicted": {}}
        file.write_text(json.dumps(table, indent=1), encoding="utf-8")
        place = file.with_name(f"{file.name}.{name.replace(' ', '_').replace(',', '')}.hlo.gz")
        place.write_bytes(gzip.compress(run.as_text().encode()))
        print(name, table["rows"][name], flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "--peak":
        print(run_alone(Path(sys.argv[2]), sys.argv[3]))
        sys.exit()
    main(Path(sys.argv[1]), sys.argv[2:] or list(STEPS))
