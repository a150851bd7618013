"""What JAX and XLA alone say of the lessons' exercises: `python lessons.py FOLDER` writes it; no shardviz is in it.

The functions are those of the notebooks. Shapes, specs and meshes are written down here once more.
"""

import ast
import contextlib
import io
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
    bf16 = lambda *shape: ("bfloat16", shape)  # noqa: E731
    f32 = lambda *shape: ("float32", shape)  # noqa: E731
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


def of_the_gallery():
    """Ring attention, and four layers of Llama 3 8B: the gallery gives functions, abstract arguments and specs."""
    from shardviz import gallery

    llamas = {name: gallery.llama("8b", batch=32, layers=4, mesh=mesh) for name, mesh in TWO_MESHES.items()}
    examples = {"ring": gallery.ring()} | llamas
    return {name: (e.fn, e.args, e.mesh, e.in_specs, e.out_specs) for name, e in examples.items()}


def kept():
    """What JAX says that a device with 4,096 of lesson 4's tokens keeps for the backward pass."""
    import jax
    import jax.ad_checkpoint
    import jax.numpy as jnp

    forward = functions("04_one_model")["forward"]
    weights = {name: jax.ShapeDtypeStruct(shape, "bfloat16") for name, shape in ONE_MODEL.items()}
    loss = lambda w, x: jnp.mean(forward(w, x).astype("float32") ** 2)  # noqa: E731
    with contextlib.redirect_stdout(io.StringIO()) as text:
        jax.ad_checkpoint.print_saved_residuals(loss, weights, jax.ShapeDtypeStruct((65536 // 16, 4096), "bfloat16"))
    return text.getvalue()


def functions(notebook):
    """The functions that a notebook defines, by name, with the numbers that they need, without what names shardviz."""
    import jax
    import jax.numpy as jnp

    space = {"jax": jax, "jnp": jnp}
    cells = json.loads((NOTEBOOKS / f"{notebook}.ipynb").read_text())["cells"]
    for cell in cells:
        if cell["cell_type"] == "code":
            for node in ast.parse("".join(line for line in cell["source"] if line[0] != "%")).body:
                if isinstance(node, ast.FunctionDef) and "sv." not in (source := ast.unparse(node)):
                    exec(source, space)
    return space


def answer(fn, arguments, sizes, ins, outs, folder):
    """The text of XLA's program behind its partitioner, and the specs of the results, one a line."""
    import jax
    import numpy as np
    from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

    devices = np.array(jax.devices()[: math.prod(sizes.values())]).reshape(tuple(sizes.values()))
    mesh = Mesh(devices, tuple(sizes), axis_types=(AxisType.Auto,) * len(sizes))
    is_spec = lambda s: s is None or isinstance(s, PartitionSpec)  # noqa: E731
    put = lambda specs: jax.tree.map(lambda s: s and NamedSharding(mesh, s), specs, is_leaf=is_spec)  # noqa: E731
    is_array = lambda a: isinstance(a, tuple) and isinstance(a[0], str)  # noqa: E731
    abstract = lambda a: jax.ShapeDtypeStruct(a[1], a[0]) if is_array(a) else a  # noqa: E731
    arrays = jax.tree.map(abstract, arguments, is_leaf=is_array)
    options = {} if outs is None else {"out_shardings": put(outs)}
    with jax.set_mesh(mesh):
        lowered = jax.jit(fn, in_shardings=put(ins), **options).lower(*arrays)
        compiled = lowered.compile({"xla_dump_to": str(folder), "xla_dump_hlo_pass_re": "spmd-partitioning"})
    text = next(f for f in folder.glob("*.txt") if "after_spmd-partitioning" in f.name).read_text()
    return text, "\n".join(repr(tuple(sharding.spec)) for sharding in jax.tree.leaves(compiled.output_shardings))


if __name__ == "__main__":
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=16"
    os.environ["JAX_PLATFORMS"] = "cpu"
    from jax.sharding import PartitionSpec

    asked = {
        name: (functions(notebook)[function], *rest[:-1])
        for name, (notebook, function, *rest) in questions(PartitionSpec).items()
    }
    (Path(sys.argv[1]) / "kept.txt").write_text(kept())
    for name, (fn, arguments, sizes, ins, outs) in (asked | of_the_gallery()).items():
        folder = Path(sys.argv[1]) / name.replace(" ", "_")
        folder.mkdir()
        text, specs = answer(fn, arguments, sizes, ins, outs, folder)
        folder.with_suffix(".txt").write_text(text)
        folder.with_suffix(".specs").write_text(specs)
