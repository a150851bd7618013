"""2021 code under today's `jax.jit`, partitioned for 8 simulated devices. Run as `python pjit_truth.py FOLDER`."""

import json
import sys
import warnings
from pathlib import Path

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import tests.compat.tutorial_2021 as tutorial
from tests.raw import compiled, entries


def main(folder):
    mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("data", "model"))
    named = lambda tree: jax.tree.map(
        lambda spec: NamedSharding(mesh, P() if spec is None else spec),
        tree,
        is_leaf=lambda s: s is None or isinstance(s, P),
    )
    step = jax.jit(
        tutorial.train_step,
        in_shardings=(named(tutorial.state_spec), named(tutorial.batch_spec)),
        out_shardings=(named(tutorial.state_spec), named(None)),
        static_argnums=2,
        donate_argnums=0,
    )
    state, batch = jax.eval_shape(lambda: tutorial.init(0)), jax.eval_shape(tutorial.batch)
    with mesh:
        made, text = compiled(step.lower(state, batch, 0.05))
    (folder / "partitioned.txt").write_text(text)
    (folder / "specs.json").write_text(json.dumps([entries(s) for s in jax.tree.leaves(made.output_shardings)]))


if __name__ == "__main__":
    warnings.filterwarnings("ignore", message=".*`with mesh:`", category=DeprecationWarning)
    main(Path(sys.argv[1]))
