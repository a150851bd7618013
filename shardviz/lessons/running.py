"""A learner's function run on simulated devices, in a process of its own, and compared with the unsharded function.

`run` is called by `processes.Trial`. It writes its stage (`tracing`, `running`, ...) to standard error, so that the
kernel knows what did not end. A problem is a `ShardvizError` of one sentence.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import traceback
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from shardviz._jax.jaxprs import has_branched_collective
from shardviz.costs.pipelining import scheduled
from shardviz.errors import ShardvizError, excerpt

STAGE = "shardviz stage: "


def run(data: bytes, *, puzzle: Mapping[str, Any], advice: Mapping[str, str]) -> bytes:
    """Run a pickled function as a puzzle asks, and return JSON: the `problem`, which is empty if the results are right;
    and the `grid` of a schedule. `advice` is part of JAX's message → what to do about it."""
    import cloudpickle

    grid, problem = [], ""
    try:
        with contextlib.redirect_stdout(sys.stderr):  # what the function prints, in order with the stages
            _stage("reading")
            learners = cloudpickle.loads(data)
            if sizes := puzzle.get("schedule"):
                _stage("tracing")
                orders = [_called(learners, advice, stage, *sizes.values()) for stage in range(sizes["stages"])]
                grid = scheduled(orders, sizes["micro"])
            else:
                _check(learners, puzzle, advice)
    except ShardvizError as found:
        problem = str(found)
    return json.dumps({"problem": problem, "grid": grid}).encode()


def _stage(name: str) -> None:
    os.write(2, f"\n{STAGE}{name}\n".encode())


def defined(code: str) -> Any:
    """Return the last function that a text defines."""
    names: dict[str, Any] = {"jax": jax, "jnp": jnp, "__name__": "__main__"}
    exec(compile(code, "<puzzle>", "exec"), names)
    return list(names.values())[-1]


def sharded(f: Any, puzzle: Mapping[str, Any], mesh: Any) -> Any:
    """Return a function on all devices of a mesh, jitted. Its results get a leading dimension for the devices, so that
    the result of each device is compared."""

    def each(*shards: Any) -> Any:
        return jax.tree.map(lambda y: jnp.asarray(y)[None], f(*shards))

    ins, outs = specs_of(puzzle, "arguments"), PartitionSpec(mesh.axis_names)
    return jax.jit(jax.shard_map(each, mesh=mesh, in_specs=ins, out_specs=outs, check_vma=False))


def specs_of(puzzle: Mapping[str, Any], side: str) -> tuple[PartitionSpec, ...]:
    """Return the specs of a puzzle's `arguments` or `results`."""
    return tuple(PartitionSpec(*(axis or None for axis in each["spec"])) for each in puzzle[side])


def inputs_of(puzzle: Mapping[str, Any]) -> list[np.ndarray]:
    """Return the arguments: whole numbers below `below`, or whole numbers as floats, whose sums are exact."""
    random = np.random.default_rng(0)
    return [
        random.integers(0, each["below"], each["shape"], "int32")
        if "below" in each
        else random.integers(-4, 5, each["shape"]).astype("float32") / np.float32(each.get("over", 1))
        for each in puzzle["arguments"]
    ]


def _check(learners: Any, puzzle: Mapping[str, Any], advice: Mapping[str, str]) -> None:
    """Compare a function's results on each device with the unsharded function's; raise the first problem."""
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", 8)
    names, sizes = tuple(puzzle["mesh"]), tuple(puzzle["mesh"].values())
    mesh = jax.make_mesh(sizes, names, axis_types=(jax.sharding.AxisType.Auto,) * len(sizes))
    inputs, wanted = inputs_of(puzzle), []
    names_of_inputs = {each["name"]: array for each, array in zip(puzzle["arguments"], inputs, strict=True)}
    expected = jax.tree.leaves(eval(puzzle["goal"], {"jax": jax, "jnp": jnp, **names_of_inputs}))
    for array, spec in zip(map(np.asarray, expected), specs_of(puzzle, "results"), strict=True):
        places = NamedSharding(mesh, spec).devices_indices_map(array.shape)
        wanted.append(np.stack([array[places[device]] for device in mesh.devices.flat]))
    mine = sharded(lambda *shards: _called(learners, advice, *shards), puzzle, mesh)
    _stage("tracing")
    try:
        traced = mine.trace(*inputs)
    except ShardvizError:
        raise
    except Exception as error:  # the learner's function may raise anything
        raise ShardvizError(f"The function's result cannot be used: {_first_line(error)}") from error
    _same_shapes(jax.tree.leaves(traced.out_info), wanted)
    _stage("running branched collectives" if has_branched_collective(traced.jaxpr) else "running")
    try:
        outcome = jax.block_until_ready(mine(*inputs))
    except Exception as error:  # the learner's function may raise anything
        raise ShardvizError(f"The program ends with an error while it runs: {_first_line(error)}") from error
    _same_values(jax.tree.leaves(outcome), wanted, [each.get("name", "result") for each in puzzle["results"]])


def _called(f: Any, advice: Mapping[str, str], *arguments: Any) -> Any:
    """Call the learner's function; an error becomes a sentence with the line of the function."""
    try:
        return f(*arguments)
    except RecursionError as error:
        raise ShardvizError("The function calls itself without end (RecursionError).") from error
    except Exception as error:  # the learner's function may raise anything
        code, where = getattr(f, "__code__", None), "The function"
        file, first = ("", 0) if code is None else (code.co_filename, code.co_firstlineno)
        for frame in traceback.extract_tb(error.__traceback__):
            line = (frame.lineno or 0) - first + 1
            if frame.filename == file and line > 0:
                where = f"Line {line} of the function"
        if "ellipsis" in str(error):
            raise ShardvizError(f"{where} still has `...` where your code goes.") from error
        add = next((f" {text}" for part, text in advice.items() if part in str(error)), "")
        raise ShardvizError(f"{where} raises {type(error).__name__}: {_first_line(error)}{add}") from error
    except SystemExit as error:
        raise ShardvizError("The function ends its process (SystemExit): let it return its result.") from error


def _same_shapes(results: list[Any], wanted: list[np.ndarray]) -> None:
    if len(results) != len(wanted):
        what = f"{len(results)} array{'s' * (len(results) > 1)}" if results else "nothing"
        missing = "" if results else " Is the `return` missing?"
        raise ShardvizError(f"The function returns {what}, expected {len(wanted)}.{missing}")
    for number, (result, right) in enumerate(zip(results, wanted, strict=True)):
        which = "The result" if len(wanted) == 1 else f"Result {number}"
        shape, expected = list(result.shape[1:]), list(right.shape[1:])
        if shape != expected:
            raise ShardvizError(f"{which} has the shape {shape} on each device, expected {expected}.")
        if result.dtype != jax.dtypes.canonicalize_dtype(right.dtype):
            raise ShardvizError(f"{which} is {result.dtype}, expected {right.dtype}.")


def _same_values(results: list[Any], wanted: list[np.ndarray], names: list[str]) -> None:
    for name, result, right in zip(names, map(np.asarray, results), wanted, strict=True):
        apart = np.argwhere(~np.isclose(result, right, rtol=1e-3, atol=1e-4))
        if len(apart):
            first, *at = apart[0].tolist()
            devices, place = len(set(apart[:, 0].tolist())), tuple(apart[0])
            raise ShardvizError(
                f'The result "{name}" has wrong values on {devices} of {len(right)} devices. Device {first} '
                f"first differs at {at}: {float(result[place]):.4g}, expected {float(right[place]):.4g}."
            )


def _first_line(error: Exception) -> str:
    return excerpt((str(error).strip() or type(error).__name__).splitlines()[0])
