"""2021 code and the rules of its pjit, run with 8 simulated devices. Run as `python pjit_truth.py FOLDER`."""

import json
import os
import sys
import tempfile
import warnings
from functools import partial
from pathlib import Path


def main(folder):
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding
    from jax.sharding import PartitionSpec as P

    import tests.compat.tutorial_2021 as tutorial
    from shardviz.compat.pjit import FROM_GDA, pjit
    from shardviz.errors import ShardvizError

    facts = {}
    mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("data", "model"))
    single = jax.jit(lambda state, batch: tutorial.train_step(state, batch, 0.05), out_shardings=None)

    def alone():
        losses = []
        with Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("data", "model")):
            state = tutorial.init(0)
            for batch in tutorial.batches(5):
                state, loss = single(state, batch)
                losses.append(float(loss))
        return losses, state

    losses, state = alone()
    tutorial.traces.clear()
    ours, mine = tutorial.train(mesh)
    facts["losses"] = [losses, ours]
    facts["traces"] = len(tutorial.traces)
    facts["apart"] = max(
        float(np.abs(np.asarray(a) - np.asarray(b)).max())
        for a, b in zip(jax.tree.leaves(state), jax.tree.leaves(mine), strict=True)
    )
    facts["specs"] = [[[] if e is None else [e] for e in x.sharding.spec] for x in jax.tree.leaves(mine)]

    with mesh:
        args = tutorial.p_init(0), next(iter(tutorial.batches(1))), 0.05
        with tempfile.TemporaryDirectory() as dumps:
            options = {"xla_dump_to": dumps, "xla_dump_hlo_pass_re": "spmd-partitioning"}
            compiled = tutorial.p_train_step.lower(*args).compile(compiler_options=options)
            text = next(Path(dumps).glob("*train_step*after_spmd-partitioning*.txt")).read_text()
    (folder / "partitioned.txt").write_text(text)
    facts["aliased"] = compiled.memory_analysis().alias_size_in_bytes

    def said(fn, *args, **kwargs):
        try:
            fn(*args, **kwargs)
        except ShardvizError as error:
            return f"{type(error).__name__}: {error}"
        return "nothing"

    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    on_model = jax.device_put(x, NamedSharding(mesh, P("model")))
    double = lambda a: a * 2  # noqa: E731
    inner = pjit(double, P("data"), P("model"))
    other = Mesh(np.array(jax.devices()), ("all",))

    class Model:
        def __init__(self, factor):
            self.factor = factor

        @partial(pjit, in_axis_resources=None, out_axis_resources=None, static_argnums=0)
        def scale(self, a):
            return a * self.factor

    def under_another(a):
        with other:
            return inner(a)

    with mesh:
        facts["from gda"] = str(pjit(double, FROM_GDA, P("data"))(on_model).sharding.spec)
        facts["agreeing"] = str(pjit(double, P("model"), P("data"))(on_model).sharding.spec)
        facts["mismatch"] = said(pjit(double, P("data"), None), on_model)
        facts["from gda without"] = said(pjit(double, FROM_GDA, None), x)
        facts["elsewhere"] = str(inner(jax.device_put(x, jax.devices()[5])).sharding.spec)
        facts["nested"] = np.asarray(pjit(lambda a: inner(a) + 1, P("data"), None)(x)).tolist()
        facts["another mesh inside"] = said(pjit(under_another, None, None), x)
        facts["gradient"] = np.asarray(jax.grad(lambda a: inner(a).sum())(x)).tolist()
        facts["under jit"] = str(jax.jit(inner)(x).sharding.spec)
        given = jax.device_put(x, NamedSharding(mesh, P("data")))
        pjit(double, P("data"), P("data"), donate_argnums=0)(given)
        facts["donated is gone"] = given.is_deleted()
        placed = jax.device_put(x, jax.devices()[3])
        facts["lowered from device 3"] = str(inner.lower(placed).compile().input_shardings[0][0].spec)
        facts["method"] = np.asarray(Model(3.0).scale(np.array([1.0, 2.0], np.float32))).tolist()
        counted = []
        once = pjit(lambda a: counted.append(1) or a + 1, P("data"), P("data"))
        for a in (x, jax.numpy.asarray(x), jax.device_put(x, jax.devices()[3]), once(x)):
            once(a)
        facts["traced"] = len(counted)
    with jax.set_mesh(mesh):
        facts["set_mesh"] = str(inner(x).sharding.spec)
    with other:
        facts["other mesh"] = said(inner, x)
    facts["no mesh"] = said(inner, x)
    (folder / "facts.json").write_text(json.dumps(facts))


if __name__ == "__main__":
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
    os.environ["JAX_PLATFORMS"] = "cpu"
    warnings.filterwarnings("ignore", message=".*`with mesh:`", category=DeprecationWarning)
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    main(Path(sys.argv[1]))
