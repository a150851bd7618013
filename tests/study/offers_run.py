"""What is offered for programs with a state, run by JAX for five steps on 8 simulated devices, as its code says.

    python -m tests.study.offers_run

prints as JSON: program → offer → how often it compiles, how far its results are from those of one device (where a step
takes the memory of the one before, the last one's), whether the shardings of the first step's results are those of the
fifth's, and whether memory is donated.
"""

from __future__ import annotations

import inspect
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

import shardviz as sv
import shardviz.gallery.llama
from shardviz.ask.program import arrays
from shardviz.propagate.roles import roles
from shardviz.study.proposing import Proposals
from tests import programs
from tests.plan.edited import as_told, module_of

MESH, MACHINE = {"data": 4, "model": 2}, "tpu v5e:2x4"
SMALL = {"decode": {"length": 16, "vocabulary": 128, "layers": 1}, "vit": {"layers": 1, "side": 16, "batch": 16}}
"""Program → its sizes."""
OWN = "llama"
"""The program whose function has constraints of its own: the gallery's."""
CONSTRAINED = {"decode": ("scores", P("data")), "vit": ("weights", P("data"))}
CONSTRAINED[OWN] = "weights", P("data")
"""Program → a variable of its, and a spec."""
STEPS = 3


def small_llama(module: Any) -> tuple[sv.Program, Callable[..., Any]]:
    """The gallery's train step, of few features."""
    d, ff, heads, kv, hd, words = 32, 64, 8, 4, 8, 64
    layers = {"wq": (d, heads, hd), "wk": (d, kv, hd), "wv": (d, kv, hd), "wo": (heads, hd, d), "ln1": (d,)}
    layers |= {"w1": (d, ff), "w3": (d, ff), "w2": (ff, d), "ln2": (d,)}
    params = {"emb": (words, d), "out": (d, words), "ln": (d,), "layers": {n: (2, *s) for n, s in layers.items()}}
    params = jax.tree.map(lambda s: jax.ShapeDtypeStruct(s, "float32"), params, is_leaf=lambda s: isinstance(s, tuple))
    tokens = jax.ShapeDtypeStruct((16, 16), "int32")
    return sv.trace(module.train_step, params, params, tokens), module.train_step


def traced(module: Any, name: str) -> tuple[sv.Program, Callable[..., Any]]:
    """A program in float32, and its function."""
    if name == OWN:
        return small_llama(module)
    program = getattr(module, name)(**SMALL[name])
    fn = program._call.fn.__wrapped__
    wide = lambda a: jax.ShapeDtypeStruct(a.shape, "float32" if a.dtype == jnp.bfloat16 else a.dtype)
    return sv.trace(fn, *jax.tree.map(wide, program._call.args)), fn


def ranked(program: sv.Program, name: str) -> Iterator[tuple[str, sv.Plan]]:
    """Two presets, one with its state donated, the best that a search finds, what fixes one of the presets, and a
    constraint; where the function has constraints itself, a preset and what is tried of them: to leave one out, or to
    give it another spec."""
    presets = program.presets(MESH)
    yield "fsdp", presets["fsdp"]
    if name == OWN:
        changes = Proposals(program, program.propagate(presets["fsdp"]), None, presets["fsdp"], 5)
        yield from ((change.action, change.plan) for change in changes if change.plan.variant.constraints)
    else:
        yield "tensor parallel", presets["tensor parallel"]
        yield "search", sv.search(program, MACHINE, level="propagated", most=12, seconds=60).best.plan
        plan = presets["tensor parallel"]
        fixes = [m for m in sv.fixes(program, program.propagate(plan), MACHINE, plan=plan) if not m.plan.variant]
        yield from ((m.action, m.plan) for m in fixes[:1])
    donated = roles(program._lowerings.lowered).becomes
    yield "donate", presets["fsdp"].with_variant(donated=tuple(donated))
    value, spec = CONSTRAINED[name]
    yield f"constrain {value}", presets["fsdp"].constrain(value, spec)


def numbers(args: Any) -> Any:
    """Random arrays; token ids, labels and nodes are below 8."""
    random = np.random.default_rng(0)
    integers = lambda a: jnp.asarray(random.integers(0, 8, a.shape), a.dtype)
    floats = lambda a: jnp.asarray(random.normal(0, 0.1, a.shape), a.dtype)
    return jax.tree.map(lambda a: (integers if a.dtype == jnp.int32 else floats)(a), args)


def steps(step: Any, args: Any, feed: dict[int, int]) -> list[list[jax.Array]]:
    """The results of some steps, of which each takes the new state of the one before."""
    leaves, tree = jax.tree.flatten(args)
    results = []
    for _ in range(STEPS):
        flat = jax.block_until_ready(jax.tree.leaves(step(*jax.tree.unflatten(tree, leaves))))
        leaves = [flat[feed[n]] if n in feed else leaf for n, leaf in enumerate(leaves)]
        results.append(flat)
    return results


def written(program: sv.Program, plan: sv.Plan, name: str, folder: Path) -> Callable[..., Any]:
    """The function as the plan's code says to write it."""
    module = sys.modules["shardviz.gallery.llama"] if name == OWN else programs
    text = as_told(program.code(plan), inspect.getsource(module))
    if "PartitionSpec as P\n" not in text:
        text = text.replace("import jax\n", "import jax\nfrom jax.sharding import PartitionSpec as P\n", 1)
    return traced(module_of(text, folder / f"edited_{abs(hash(text))}.py"), name)[1]


def run(name: str, folder: Path) -> dict[str, dict[str, Any]]:
    """What each offer for a program does."""
    program, fn = traced(sys.modules["shardviz.gallery.llama"] if name == OWN else programs, name)
    args = numbers(program._call.args)
    ins, outs = ({a.name: n for n, a in enumerate(some)} for some in arrays(program))
    feed = {ins[old]: outs[new] for old, new in roles(program._lowerings.lowered).becomes.items()}
    with jax.set_mesh(jax.sharding.Mesh(np.array(jax.devices()[:1]).reshape(1, 1), tuple(MESH))):
        alone = steps(jax.jit(fn), args, feed)
    found = {}
    for label, plan in ranked(program, name):
        own = written(program, plan, name, folder) if plan.constraints or plan.variant.constraints else fn
        scope = {program.name: own} | dict(zip(inspect.signature(fn).parameters, args, strict=False))
        exec(program.code(plan).replace(f"from {fn.__module__} import {fn.__name__}\n", ""), scope)
        step = scope["step"]
        with jax.set_mesh(scope["mesh"]):
            placed = jax.device_put(jax.tree.map(jnp.copy, args), step.lower(*args).compile().input_shardings[0])
            results = steps(step, placed, feed)
        held = zip(jax.tree.leaves(results), jax.tree.leaves(alone), strict=True)
        pairs = [(a, b) for a, b in held if not a.is_deleted()]
        off = [np.abs(np.asarray(a) - np.asarray(b)).max() / np.abs(np.asarray(b)).max() for a, b in pairs]
        same = [a.sharding.is_equivalent_to(b.sharding, a.ndim) for a, b in zip(results[0], results[-1], strict=True)]
        donates = any(a.is_deleted() for a in jax.tree.leaves(results[:-1]))
        found[label] = {"compiles": step._cache_size(), "off": float(max(off)), "same": all(same), "donates": donates}
    return found


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 8)
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    with tempfile.TemporaryDirectory() as folder:
        jax.config.update("jax_compilation_cache_dir", folder)  # each step is lowered to see what goes where, then run
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
        print(json.dumps({name: run(name, Path(folder)) for name in sys.argv[1:] or (*SMALL, OWN)}))
