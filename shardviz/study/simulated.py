"""A plan's code run on at most 8 simulated devices with small arrays, and compared with the result of one device.

`small_run` prepares it: the mesh with 2 devices along each axis, the arrays as small as their function takes, and the
code of `program.code` for these. `run`, called by `processes.Trial`, runs the code in its own process, once on the mesh
and once on one device, with the same random arrays. Only there is the person's function run.
"""

from __future__ import annotations

import contextlib
import json
import math
import sys
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import numpy as np

from shardviz import processes
from shardviz.ask.derived import of_variant
from shardviz.ask.program import Program, arrays
from shardviz.errors import ShardvizError
from shardviz.layouts import itemsize
from shardviz.notation import DeviceMesh
from shardviz.plan.jax_code import flat_code, function_name
from shardviz.plan.plan import Plan
from shardviz.records.amounts import format_bytes
from shardviz.study.workers import packed
from shardviz.tracing.call import Call

DEVICES = 8
SECONDS, MEMORY = 120.0, 6e9
"""Limits of the process: seconds and bytes."""
_MOST_BYTES = 64e6  # of all arguments and results together
_SMALL = 16  # the length that longer dimensions get: divisible by 8 devices
_MODULES = ("nnx", "state")
"""Kinds of programs whose arguments contain modules. Their arrays are passed in a flat list."""
_WHY_NOT = {
    "pmap": "a pmapped function has no result of one device: its mapped dimension is as long as the devices are many. "
    "Compare it with jax.vmap(function, axis_name=...) of the same arguments",
    "equinox": "a module of equinox cannot be sent to its own process. Trace a function of the module's arrays: "
    "arrays, rest = eqx.partition(module, eqx.is_array), and eqx.combine(arrays, rest) in the function",
    "exported": "an exported program has fixed shapes and a fixed number of devices, so it runs neither small nor on "
    "one device. Trace the function itself",
    "recorded": "a dry run keeps the traced program and not its function, so its arrays stay as large as the script's. "
    "Trace the function itself",
}
COMMAND = f"JAX_PLATFORMS=cpu JAX_NUM_CPU_DEVICES={DEVICES} python plan.py"


@dataclass(frozen=True, kw_only=True)
class SmallRun:
    """A plan's code with a small mesh and small arrays.

    Attributes:
        mesh: the mesh.
        code: the code that runs.
        lengths: what is shorter than in the program, in words.
        flat: whether its arrays are passed in a list, since the arguments contain modules.
        trial: what its process runs.
    """

    mesh: DeviceMesh
    code: str
    lengths: tuple[str, ...]
    flat: bool
    trial: processes.Trial = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class SameResult:
    """A result on the mesh, compared with that on one device.

    Attributes:
        name: its tree path; empty for the only result.
        dtype: its element type.
        shape: its shape.
        off: the largest difference, divided by the largest value and the type's rounding (`jnp.finfo(dtype).eps`); for
            whole numbers, the number of elements that differ.
        infinite: the number of elements that are not finite, on both.
        same: whether the difference is that of sums in another order: 256 roundings, one of the coarsest result's type
            if that is more, and at most a tenth of the largest value; none for whole numbers.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    off: float
    infinite: int
    same: bool


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """A run as far as it is known.

    Attributes:
        of: the plan; None before the first run.
        busy: whether it runs, since `seconds`.
        run: the code; None while it is prepared, and if it cannot be.
        results: the results, compared.
        trouble: why there are none.
    """

    of: Plan | None = None
    busy: bool = False
    seconds: float = 0.0
    run: SmallRun | None = None
    results: tuple[SameResult, ...] = ()
    trouble: str = ""


def small_run(program: Program, plan: Plan) -> Generator[None, None, SmallRun]:
    """Prepare a run; yields after each trace of the function, and returns a `SmallRun`.

    Raises:
        ShardvizError: if the mesh or the arrays cannot be small, or the program has no code.
    """
    call = program._call
    if call.kind in _WHY_NOT:
        raise ShardvizError(_WHY_NOT[call.kind])
    small = plan.with_mesh(_small_mesh(plan.mesh))
    left, refusal, lengths = _bytes(program, small), "", dict[str, tuple[int, int]]()
    if left > _MOST_BYTES:
        long = [each for each in program.dimensions if each.size > _SMALL and each.arguments]
        members = ((each, each.arguments[0]) for each in sorted(long, key=lambda each: -each.size))
        shorter = {f"{member.path}:{member.dimension}": (each.size, _SMALL) for each, member in members}
        for asked in (shorter, *({at: sizes} for at, sizes in shorter.items())):  # all at once, or one by one
            yield
            try:
                left = _bytes(program, small.with_variant(lengths=lengths | asked))
                lengths |= asked
            except ShardvizError as error:
                at, (size, _) = list(asked.items())[-1]
                refusal = f"{at} stays {size:,}: {str(error).splitlines()[0]}"
            if lengths == shorter:
                break
    if left > _MOST_BYTES:
        raise ShardvizError(
            f"its arguments and results are {format_bytes(left)}, also with its dimensions as short as its function "
            f"takes; at most {format_bytes(_MOST_BYTES)} are run here. "
            f"{refusal or 'Open the explorer with smaller arrays'}"
        )
    small = small.with_variant(lengths=lengths)
    yield
    one = replace(small.mesh, sizes=(1,) * len(small.mesh.sizes))
    varied = of_variant(program, small.variant)._call
    task: dict[str, Any]
    flat = call.kind in _MODULES
    if flat:
        bounds = [program.bind(each) for each in (small, small.with_mesh(one))]
        code, alone = (flat_code(bound, "flat") for bound in bounds)
        task = {"fn": partial(_flat, varied), "name": "flat", "values": [list(varied.arrays)]}
        task["names"] = list(bounds[0].out_specs)
    else:
        code = program.code(small)
        yield
        alone = program.code(small.with_mesh(one))
        by_name = [*varied.dynamic[1], *sorted(set(varied.options.static_argnames) & set(varied.kwargs))]
        values = [*varied.args, *(varied.kwargs[name] for name in by_name)]
        task = {"fn": varied.fn, "name": function_name(varied), "values": values}
    yield
    task["codes"] = code, alone
    try:
        data = packed((sys.path, packed(task)))
    except Exception as error:  # whatever pickling raises
        raise ShardvizError(f"{call.name} cannot be sent to its own process: {error}") from error
    words = tuple(each.words for each in small.variant.lengths)
    trial = processes.Trial(f"{__name__}:run", data)
    return SmallRun(mesh=small.mesh, code=code, lengths=words, flat=flat, trial=trial)


def compared(job: processes.Job) -> tuple[SameResult, ...]:
    """Return the results of an ended job.

    Raises:
        ShardvizError: if the code failed, took too long, or was stopped.
    """
    if (error := job.exception()) is not None:
        raise error
    assert job.answer is not None
    answer = json.loads(job.answer)
    if "problem" in answer:
        raise ShardvizError(answer["problem"])
    return tuple(SameResult(**each | {"shape": tuple(each["shape"])}) for each in answer["results"])


def _small_mesh(mesh: DeviceMesh) -> DeviceMesh:
    """Return the mesh if it has at most 8 devices; else with 2 devices along each axis of several."""
    several = sum(size > 1 for size in mesh.sizes)
    if mesh.size <= DEVICES:
        sizes = mesh.sizes
    elif 2**several <= DEVICES:
        sizes = tuple(min(size, 2) for size in mesh.sizes)
    else:
        raise ShardvizError(
            f"the mesh {mesh} has {several} axes of several devices; {DEVICES} simulated devices take 3, of 2 each"
        )
    return replace(mesh, sizes=sizes, device_ids=(), slice_ids=(), in_order=False, by_id=False)


def _bytes(program: Program, plan: Plan) -> float:
    """Return the bytes of all arguments and results; traces the function. Raises ShardvizError if it cannot be."""
    program.bind(plan)
    return sum(math.prod(each.shape) * itemsize(each.dtype) for some in arrays(program, plan) for each in some)


# In the process.


def _flat(call: Call, arrays: list[Any]) -> list[Any]:
    """Call a function with its arrays; return its results' arrays."""
    args, kwargs = call.filled(arrays)
    return jax.tree.leaves(call.fn(*args, **kwargs))


def run(data: bytes) -> bytes:
    """Run the codes of a task, and return JSON: `results`, or `problem`, a sentence."""
    import cloudpickle

    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", DEVICES)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            paths, packed_task = cloudpickle.loads(data)
            sys.path += [path for path in paths if path not in sys.path]  # for functions of the person's own modules
            task = cloudpickle.loads(packed_task)
            random = np.random.default_rng(0)
            values = jax.tree.map(lambda leaf: _filled(leaf, random), task["values"])
            mesh, alone = (_called(code, task, values) for code in task["codes"])
            coarsest = max((_rounding(leaf.dtype) for _, leaf in mesh), default=0.0)
            results = [_compared(*pair, coarsest) for pair in zip(mesh, alone, strict=True)]
            for name, each in zip(task.get("names", ()), results, strict=False):
                each["name"] = name
            answer: dict[str, Any] = {"results": results}
    except Exception as error:  # noqa: BLE001 - whatever the person's function raises
        lines = str(error).strip().splitlines() or [""]
        answer = {"problem": f"the code raises {type(error).__name__}: {lines[0]}"}
    return json.dumps(answer).encode()


def _filled(leaf: Any, random: np.random.Generator) -> Any:
    """Return small positive numbers, zeros and ones, or keys, for an abstract array; anything else as it is."""
    if not isinstance(leaf, jax.ShapeDtypeStruct):
        return leaf
    if jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.split(jax.random.key(0), leaf.shape) if leaf.shape else jax.random.key(0)
    if jax.numpy.issubdtype(leaf.dtype, np.inexact):
        return np.abs(0.1 * random.standard_normal(leaf.shape)).astype(leaf.dtype)
    return random.integers(0, 2, leaf.shape).astype(leaf.dtype)


def _called(code: str, task: dict[str, Any], values: list[Any]) -> list[tuple[str, Any]]:
    """Run a code, and call its jitted function; return the path and the value of each result."""
    names: dict[str, Any] = {task["name"]: task["fn"], "__name__": "plan"}
    exec(compile(code, "<code of the plan>", "exec"), names)
    with jax.set_mesh(names["mesh"]):
        if "\ndef jitted(" in code:
            step = names["jitted"](*values)
        else:
            step = names["jitted" if "\njitted = " in code else "step"]
        result = jax.block_until_ready(step(*values))
    return [(jax.tree_util.keystr(path), leaf) for path, leaf in jax.tree_util.tree_flatten_with_path(result)[0]]


def _rounding(dtype: Any) -> float:
    """Return the type's rounding; 0 for whole numbers and keys."""
    return float(jax.numpy.finfo(dtype).eps) if jax.numpy.issubdtype(dtype, np.inexact) else 0.0


def _compared(one: tuple[str, Any], other: tuple[str, Any], coarsest: float) -> dict[str, Any]:
    (name, mine), (_, alone) = one, other
    about = {"name": name, "dtype": str(mine.dtype), "shape": list(mine.shape)}
    if jax.numpy.issubdtype(mine.dtype, jax.dtypes.prng_key):
        mine, alone = jax.random.key_data(mine), jax.random.key_data(alone)
    rounding = _rounding(mine.dtype)
    mine, alone = (np.asarray(each).astype(complex if each.dtype.kind == "c" else float) for each in (mine, alone))
    finite = np.isfinite(mine) & np.isfinite(alone)
    apart = np.abs(mine - alone)[finite]
    strange = int((~finite).sum())
    if rounding:
        largest = np.abs(alone[finite]).max(initial=0.0)
        off = float(apart.max(initial=0.0) / (rounding * largest)) if largest else float(bool(apart.any()))
    else:
        off = float((apart != 0).sum())
    if not np.array_equal(mine[~finite], alone[~finite], equal_nan=True):
        off = math.inf
    same = off * rounding <= min(0.1, max(256 * rounding, coarsest)) if rounding else off == 0
    return about | {"off": off, "infinite": strange, "same": same}
