"""Raw JAX on eight simulated devices: each function of `context_programs` compiled under each context.

Run as `python context_truth.py`: JSON, name → context → the output's spec, or the error's name. No shardviz in it.
"""

import contextlib
import json
import warnings

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding

from tests.tracing import context_programs as programs


def answer(name, places):
    mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "model"))
    args = [
        jax.ShapeDtypeStruct(programs.SHAPE, jnp.float32, sharding=NamedSharding(mesh, spec)) for spec in programs.SPECS
    ]
    with contextlib.ExitStack() as stack, nn.logical_axis_rules(programs.RULES):
        if "with" in places:
            stack.enter_context(mesh)
        if "set_mesh" in places:
            stack.enter_context(jax.set_mesh(mesh))
        try:
            compiled = jax.jit(getattr(programs, name)).lower(*args).compile()
        except Exception as error:  # noqa: BLE001 - what is raised is the answer
            return type(error).__name__
    spec = tuple(compiled.output_shardings.spec)
    return [[] if e is None else [e] if isinstance(e, str) else list(e) for e in spec + (None,) * (2 - len(spec))]


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # `with mesh:` is deprecated
    every = {name: {c: answer(name, places) for c, places in programs.PLACES.items()} for name in programs.NAMES}
    print(json.dumps(every))
