"""What JAX and XLA alone say of the lessons' exercises: `python lessons.py FOLDER` writes it; no shardviz is in it.

The functions are those of the notebooks and of the gallery. Shapes, specs and meshes are written down here once more.
"""

import ast
import itertools
import json
import math
import os
import sys
from pathlib import Path

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
ONE_MODEL = {"up": (8, 4096, 16384), "down": (8, 16384, 4096)}


def tree(leaf):
    return dict.fromkeys(ONE_MODEL, leaf)


def adam(weights, state, x):
    """Specs of lesson 4's step: weights, both means, the batch; and of what it gives back."""
    return (weights, state, state, x), (weights, state, state, None)


def questions(P):
    """Name → notebook, function, arguments as (dtype, shape), mesh, specs in and out, trips of its loops."""
    bf16 = lambda *shape: ("bfloat16", shape)
    f32 = lambda *shape: ("float32", shape)
    grid, flat = {"X": 4, "Y": 4}, {"data": 16}
    two = bf16(8192, 4096), bf16(4096, 16384)
    weights, means = ({k: array(*s) for k, s in ONE_MODEL.items()} for array in (bf16, f32))
    state = weights, means, means, bf16(65536, 4096)
    data = tree(P(None, "data"))
    tensor = {"up": P(None, None, "model"), "down": P(None, "model")}
    product, step = ("03_a_matrix_product_four_ways", "product"), ("04_one_model", "step")
    turn, predict = ("02_where_the_bytes_lie", "turn"), ("05_why", "predict")
    layers = {"w1": f32(1024, 4096), "w2": f32(4096, 1024)}, f32(256, 1024)
    begin = ("00_start_here", "step", ([f32(1024, 4096), f32(4096, 1024)], f32(8192, 1024)), {"data": 8})
    return {
        "way 2": (*product, two, grid, (P("X", "Y"), P()), None, 1),
        "way 3": (*product, two, grid, (P("X", "Y"), P("Y")), None, 1),
        "way 4": (*product, two, grid, (P(("X", "Y")), P(None, "Y")), None, 1),
        "conflict": (
            *(*predict, layers, {"data": 2, "model": 4}),
            *(({"w1": P("data", "model"), "w2": P("model")}, P("data")), None, 1),
        ),
        "only w1": (
            *(*predict, layers, {"data": 2, "model": 4}),
            *(({"w1": P(None, "model"), "w2": P()}, P("data")), None, 1),
        ),
        "sum": (
            *(*product, (f32(512, 1024), f32(1024, 256)), {"data": 4, "model": 2}),
            *((P("data", "model"), P("model")), None, 1),
        ),
        "transpose": (*turn, (f32(1024, 512),), {"data": 4, "model": 2}, (P("data", "model"),), None, 1),
        "without pmean": (
            *("11_from_pmap", "today", (f32(1024, 1024), f32(256, 1024)), {"batch": 8}),
            *((P(), P("batch")), None, 1),
        ),
        "FSDP": (*step, state, flat, *adam(data, data, P("data")), 8),
        "ZeRO": (*step, state, flat, *adam(tree(P()), data, P("data")), 8),
        "tensor": (*step, state, {"model": 16}, *adam(tensor, tensor, P()), 8),
        "whole": (*begin, (P(), P("data")), None, 1),
        "sharded": (*begin, (P("data"), P("data")), (P("data"), None), 1),
    }  # fmt: skip


TWO_MESHES = {"data=16": {"data": 16, "model": 1}, "model=8": {"data": 2, "model": 8}}
"""Lesson 10: the meshes of one step."""

STAGES = 4, 16
"""Lesson 7: the pipelines of one step, on 16 devices."""


def of_the_gallery():
    """Ring attention, and four layers of Llama 3 8B: the gallery gives functions, abstract arguments and specs."""
    from shardviz import gallery

    llamas = {name: gallery.llama("8b", batch=32, layers=4, mesh=mesh) for name, mesh in TWO_MESHES.items()}
    examples = {"ring": gallery.ring()} | llamas
    return {name: (e.fn, e.args, e.mesh, e.in_specs, e.out_specs) for name, e in examples.items()}


def served(P):
    """Lesson 9: a decoding step on two meshes, and how weights, cache and tokens are sharded."""
    space = functions("09_serving")
    rows, columns = P(None, "model"), P(None, None, "model")
    tensor = {"q": columns, "k": columns, "v": columns, "o": rows, "gate": columns, "up": columns, "down": rows}
    places = {
        "heads over 8": ({"model": 8}, P(None, None, None, "model"), P()),
        "users over 2, heads over 4": ({"data": 2, "model": 4}, P(None, "data", None, "model"), P("data")),
    }
    return {
        name: (
            space["model"],
            space["arguments"](32, 1, 2048),
            sizes,
            (tensor, dict.fromkeys("kv", cache), x, P()),
            None,
        )
        for name, (sizes, cache, x) in places.items()
    }


def losses(P):
    """Name of a lesson → the loss of its exercise, arguments (the first is the weights), mesh and specs."""
    import jax
    import jax.numpy as jnp

    from shardviz import gallery
    from shardviz.gallery.llama import loss_fn

    bf16 = lambda *shape: jax.ShapeDtypeStruct(shape, "bfloat16")
    forward = functions("04_one_model")["forward"]
    sizes = 2048, 8192, 8192, 640
    layers = [{"w": bf16(*pair), "b": bf16(pair[1])} for pair in itertools.pairwise(sizes)]

    def of_one_model(w, x):
        return jnp.mean(forward(w, x).astype("float32") ** 2)

    def of_your_own(params, x, y):
        for layer in params[:-1]:
            x = jax.nn.relu(x @ layer["w"] + layer["b"])
        return jnp.mean((x @ params[-1]["w"] + params[-1]["b"] - y) ** 2)

    llamas = {
        "lesson 1": gallery.llama("70b"),
        "lesson 10": gallery.llama("8b", batch=32, layers=4, mesh=TWO_MESHES["data=16"]),
    }
    all_axes = P(("data", "model"))
    of_layer = {"w": all_axes, "b": all_axes}
    return {
        "lesson 4": (
            *(of_one_model, ({name: bf16(*shape) for name, shape in ONE_MODEL.items()}, bf16(65536, 4096))),
            *({"data": 16}, (tree(P()), P("data"))),
        ),
        "lesson 8": (
            *(of_your_own, (layers, bf16(16384, 2048), bf16(16384, 640)), {"data": 4, "model": 2}),
            ([of_layer | {"w": P(None, ("data", "model"))}, of_layer, of_layer], all_axes, all_axes),
        ),
    } | {
        name: (loss_fn, (e.args[0], e.args[2]), e.mesh, (e.in_specs[0], e.in_specs[2])) for name, e in llamas.items()
    }  # fmt: skip


def kept(fn, arguments, sizes, ins):
    """Bytes that a device keeps for the backward pass: the arrays in what `jax.vjp` gives, as XLA shards them; neither
    those that are arguments, nor constants, which XLA makes again."""
    import jax

    forward = lambda w, *batch: jax.vjp(lambda w: fn(w, *batch), w)
    mesh, put = on_devices(sizes)
    with jax.set_mesh(mesh):
        jaxpr = jax.make_jaxpr(forward)(*arguments).jaxpr
        compiled = jax.jit(forward, in_shardings=put(ins)).lower(*arguments).compile()
    made_by = {variable: eqn.primitive.name for eqn in jaxpr.eqns for variable in eqn.outvars}
    shardings = dict(zip(jaxpr.outvars, jax.tree.leaves(compiled.output_shardings), strict=True))
    return sum(
        v.aval.dtype.itemsize * math.prod(sharding.shard_shape(v.aval.shape))
        for v, sharding in shardings.items()
        if made_by.get(v, "broadcast_in_dim") != "broadcast_in_dim"
    )


def product_flops(stages):
    """FLOPs of one device's matrix products in a step of lesson 7's pipeline, each as often as its loops run."""
    import jax

    from shardviz import gallery

    sizes = {"stage": stages, "data": 16 // stages}
    example = gallery.pipeline(mesh=sizes, batch=262144)

    def count(jaxpr):
        total = 0
        for eqn in jaxpr.eqns:
            if eqn.primitive.name == "dot_general":
                contracted = eqn.params["dimension_numbers"][0][0]
                total += 2 * eqn.outvars[0].aval.size * math.prod(eqn.invars[0].aval.shape[d] for d in contracted)
            inner = [getattr(p, "jaxpr", p) for p in eqn.params.values() if hasattr(getattr(p, "jaxpr", p), "eqns")]
            total += eqn.params.get("length", 1) * sum(map(count, inner))
        return total

    with jax.set_mesh(on_devices(sizes)[0]):
        return count(jax.make_jaxpr(example.fn)(*example.args).jaxpr)


def functions(notebook):
    """The functions that a notebook defines, by name, with the numbers that they need, without what names shardviz."""
    import jax
    import jax.numpy as jnp

    space = {"jax": jax, "jnp": jnp}
    cells = json.loads((NOTEBOOKS / f"{notebook}.ipynb").read_text())["cells"]
    for cell in cells:
        if cell["cell_type"] == "code":
            for node in ast.parse("".join(line for line in cell["source"] if line[0] != "%")).body:
                source = ast.unparse(node)
                if "sv." not in source and (isinstance(node, ast.FunctionDef) or names_numbers(node)):
                    exec(source, space)
    return space


def names_numbers(node):
    """Whether a statement is such as `layers, d = 8, 4096`."""
    plain = ast.Name, ast.Constant, ast.Tuple, ast.Store, ast.Load
    parts = [*ast.walk(node)][1:]
    return isinstance(node, ast.Assign) and all(isinstance(part, plain) for part in parts)


def on_devices(sizes):
    """A mesh of simulated devices, and what makes shardings on it of a tree of specs."""
    import jax
    import numpy as np
    from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

    devices = np.array(jax.devices()[: math.prod(sizes.values())]).reshape(tuple(sizes.values()))
    mesh = Mesh(devices, tuple(sizes), axis_types=(AxisType.Auto,) * len(sizes))
    is_spec = lambda s: s is None or isinstance(s, PartitionSpec)
    return mesh, lambda specs: jax.tree.map(lambda s: s and NamedSharding(mesh, s), specs, is_leaf=is_spec)


def answer(fn, arguments, sizes, ins, outs, folder):
    """XLA's program behind its partitioner, the specs of the results, and the bytes of a device's arguments."""
    import jax

    is_array = lambda a: isinstance(a, tuple) and isinstance(a[0], str)
    abstract = lambda a: jax.ShapeDtypeStruct(a[1], a[0]) if is_array(a) else a
    arrays = jax.tree.map(abstract, arguments, is_leaf=is_array)
    mesh, put = on_devices(sizes)
    options = {} if outs is None else {"out_shardings": put(outs)}
    with jax.set_mesh(mesh):
        lowered = jax.jit(fn, in_shardings=put(ins), **options).lower(*arrays)
        compiled = lowered.compile({"xla_dump_to": str(folder), "xla_dump_hlo_pass_re": "spmd-partitioning"})
    return {
        "program": next(f for f in folder.glob("*.txt") if "after_spmd-partitioning" in f.name).read_text(),
        "specs": [repr(tuple(sharding.spec)) for sharding in jax.tree.leaves(compiled.output_shardings)],
        "argument_bytes": compiled.memory_analysis().argument_size_in_bytes,
    }


if __name__ == "__main__":
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=64"
    os.environ["JAX_PLATFORMS"] = "cpu"
    from jax.sharding import PartitionSpec

    asked = {
        name: (functions(notebook)[function], *rest[:-1])
        for name, (notebook, function, *rest) in questions(PartitionSpec).items()
    }
    told = {"kept": {name: kept(*each) for name, each in losses(PartitionSpec).items()}}
    told["product_flops"] = {f"{stages} stages": product_flops(stages) for stages in STAGES}
    for name, question in (asked | of_the_gallery() | served(PartitionSpec)).items():
        folder = Path(sys.argv[1]) / name.replace(" ", "_")
        folder.mkdir()
        told[name] = answer(*question, folder)
    (Path(sys.argv[1]) / "told.json").write_text(json.dumps(told))
