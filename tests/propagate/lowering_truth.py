"""Raw JAX on 64 simulated devices: every program of the gallery lowered by `jax.jit`, under the gallery's plan.

Run as `python lowering_truth.py FOLDER`; it writes a module's text for each. Of shardviz only the functions and the
specs are used.
"""

import sys
from pathlib import Path

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from shardviz import _jax, gallery

NAMES = [name for name in gallery.__all__ if name not in ("Example", "measured", "option_sets", "published")]


def module_text(example):
    call, bound = example.program._call, example.program.bind(example.plan)
    mesh = Mesh(np.array(jax.devices()[: bound.mesh.size]).reshape(bound.mesh.sizes), bound.mesh.names)
    placed = lambda spec: None if spec is None else NamedSharding(mesh, PartitionSpec(*spec.entries()))
    ins, outs = (tuple(map(placed, specs.values())) for specs in (bound.in_specs, bound.out_specs))
    static = call.options.static_places(call.fn, len(call.args))
    left = iter(ins)
    args = [a if i in static else jax.tree.map(lambda _: next(left), a) for i, a in enumerate(call.args)]
    fn = _jax.unwrap_jit(call.fn).fn
    in_shardings = tuple(a for i, a in enumerate(args) if i not in static)
    with jax.set_mesh(mesh):
        result = jax.tree.structure(jax.eval_shape(jax.jit(fn, **call.options.given()), *call.args))
        out_shardings = jax.tree.unflatten(result, outs)
        jitted = jax.jit(fn, in_shardings=in_shardings, out_shardings=out_shardings, **call.options.given())
        return jitted.lower(*call.args).as_text()


if __name__ == "__main__":
    for name in NAMES:
        (Path(sys.argv[1]) / f"{name}.txt").write_text(module_text(getattr(gallery, name)()))
