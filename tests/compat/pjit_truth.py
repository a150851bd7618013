"""2021 code under today's `jax.jit`, partitioned for 8 simulated devices. Run as `python pjit_truth.py FOLDER`."""

import json
import os
import sys
import tempfile
import warnings
from pathlib import Path


def main(folder):
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding
    from jax.sharding import PartitionSpec as P

    import tests.compat.tutorial_2021 as tutorial

    mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("data", "model"))
    named = lambda tree: jax.tree.map(  # noqa: E731
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
    with mesh, tempfile.TemporaryDirectory() as dumps:
        options = {"xla_dump_to": dumps, "xla_dump_hlo_pass_re": "spmd-partitioning"}
        compiled = step.lower(state, batch, 0.05).compile(compiler_options=options)
        text = next(Path(dumps).glob("*train_step*after_spmd-partitioning*.txt")).read_text()
    (folder / "partitioned.txt").write_text(text)
    specs = [[[] if e is None else [e] for e in s.spec] for s in jax.tree.leaves(compiled.output_shardings)]
    (folder / "specs.json").write_text(json.dumps(specs))


if __name__ == "__main__":
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
    os.environ["JAX_PLATFORMS"] = "cpu"
    warnings.filterwarnings("ignore", message=".*`with mesh:`", category=DeprecationWarning)
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    main(Path(sys.argv[1]))
