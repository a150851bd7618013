"""A learner's function run on simulated devices, in a process of its own, and compared with the unsharded function.

`run` is called by `processes.Trial`. It writes its stage (`tracing`, `running`, ...) to standard error, so that the
kernel knows what did not end. A problem is returned as one sentence.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from typing import Any

from shardviz._jax.jaxprs import every_equation, sub_jaxprs
from shardviz.errors import excerpt

STAGE = "shardviz stage: "
CROSSED = "a collective that not all devices call"
"""The stage of a program in which a device may wait for ever: a branch or a loop contains a collective."""
_COLLECTIVES = ("all_gather", "psum", "psum_scatter", "all_to_all", "ppermute", "pmax", "pmin", "ragged_all_to_all")
"""The functions of `jax.lax` that a learner writes."""
_SAME = {
    "psum_invariant": "psum",
    "psum2": "psum",
    "reduce_scatter": "psum_scatter",
    "all_gather_invariant": "all_gather",
}
"""A jaxpr's name of a collective → that of its function, if it is another one."""
_ADVICE = {
    "boolean conversion of traced": " In place of `if` use `jnp.where`, which has both cases.",
    "Slice entries must be static": " Reshape the array, so that one index is enough.",
    "unbound axis name": " The axes are those of the picture.",
}
"""Part of JAX's message → what to do about it."""


class Problem(Exception):
    """The first problem of a learner's function, as a sentence."""


def run(data: bytes, *, puzzle: Mapping[str, Any]) -> bytes:
    """Run a pickled function as a puzzle asks, and return JSON.

    The JSON has `problem`, one sentence; or, for a schedule, `orders`; or `mine` and `par`. Each of these two has a
    `jax.export` file as text, and the bytes of the largest array on a device.
    """
    try:
        with contextlib.redirect_stdout(sys.stderr):  # what the function prints, in order with the stages
            if sizes := puzzle.get("schedule"):
                answer: dict[str, Any] = {"orders": _orders(_learners(data), sizes)}
            else:
                answer = _checked(data, puzzle)
    except Problem as problem:
        answer = {"problem": str(problem)}
    return json.dumps(answer).encode()


def _stage(name: str) -> None:
    os.write(2, f"\n{STAGE}{name}\n".encode())


def _learners(data: bytes) -> Any:
    import cloudpickle

    _stage("reading")
    return cloudpickle.loads(data)


def defined(code: str) -> Any:
    """Return the last function that a text defines."""
    import jax
    import jax.numpy as jnp

    names: dict[str, Any] = {"jax": jax, "jnp": jnp, "__name__": "__main__"}
    exec(compile(code, "<puzzle>", "exec"), names)
    return list(names.values())[-1]


def _orders(f: Any, sizes: Mapping[str, int]) -> list[list[str]]:
    _stage("tracing")
    orders = [_called(f, stage, *sizes.values()) for stage in range(sizes["stages"])]
    for stage, order in enumerate(orders):
        if not isinstance(order, list | tuple) or not all(isinstance(work, str) for work in order):
            got = excerpt(repr(order))
            raise Problem(f"Stage {stage}: the function returns {got}, expected a list such as ['F0', 'B0'].")
    return orders


def _checked(data: bytes, puzzle: Mapping[str, Any]) -> dict[str, Any]:
    import jax
    import numpy as np
    from jax.sharding import NamedSharding, PartitionSpec

    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", 8)
    names, sizes = tuple(puzzle["mesh"]), tuple(puzzle["mesh"].values())
    mesh = jax.make_mesh(sizes, names, axis_types=(jax.sharding.AxisType.Auto,) * len(sizes))

    def shardings(side: str) -> list[Any]:
        specs = (PartitionSpec(*(axis or None for axis in each["spec"])) for each in puzzle[side])
        return [NamedSharding(mesh, spec) for spec in specs]

    def sharded(f: Any) -> Any:
        """Return the function on all devices; results get a leading dimension for the devices, so that each is
        compared."""

        def each(*shards):
            return jax.tree.map(lambda y: jax.numpy.asarray(y)[None], f(*shards))

        specs = tuple(sharding.spec for sharding in shardings("arguments"))
        return jax.jit(jax.shard_map(each, mesh=mesh, in_specs=specs, out_specs=PartitionSpec(names), check_vma=False))

    random = np.random.default_rng(0)
    inputs = [_input(random, each) for each in puzzle["arguments"]]
    expected, wanted = defined(puzzle["goal"])(*inputs), []
    results = expected if isinstance(expected, tuple) else (expected,)
    for array, sharding in zip(map(np.asarray, results), shardings("results"), strict=True):
        places = sharding.devices_indices_map(array.shape)
        wanted.append(np.stack([array[places[device]] for device in mesh.devices.flat]))
    arguments = zip(inputs, shardings("arguments"), strict=True)
    shapes = [jax.ShapeDtypeStruct(i.shape, i.dtype, sharding=sharding) for i, sharding in arguments]

    learners, par = _learners(data), sharded(defined(puzzle["answer"]))
    mine = sharded(lambda *shards: _called(learners, *shards))
    _stage("tracing")
    try:
        traced = mine.trace(*shapes)
    except Problem:
        raise
    except Exception as error:  # the learner's function may raise anything
        raise Problem(f"The function's result cannot be used: {_first_line(error)}") from error
    _same_shapes(jax.tree.leaves(traced.out_info), wanted)
    if forbidden := sorted(_kinds(_open(traced)) & set(puzzle.get("forbidden", ()))):
        also = " (as `pmean` does)" if forbidden[0] == "psum" else ""
        raise Problem(f"The function calls `{forbidden[0]}`{also}, which this puzzle forbids.")
    _stage(CROSSED if _crossed(_open(traced)) else "running")
    try:
        results = jax.block_until_ready(mine(*map(jax.device_put, inputs, shardings("arguments"))))
    except Exception as error:  # the learner's function may raise anything
        raise Problem(f"The program ends with an error while it runs: {_first_line(error)}") from error
    _same_values(jax.tree.leaves(results), wanted, [each.get("name", "result") for each in puzzle["results"]])
    _stage("reading")
    return {
        who: {"export": _export(f, shapes), "largest": _largest(_open(f.trace(*shapes)))}
        for who, f in (("mine", mine), ("par", par))
    }


def _input(random: Any, each: Mapping[str, Any]) -> Any:
    """Return an argument's values: whole numbers below `below`, or whole numbers as floats, whose sums are exact."""
    if "below" in each:
        return random.integers(0, each["below"], each["shape"], "int32")
    return random.integers(-4, 5, each["shape"]).astype("float32") / each.get("over", 1)


def _called(f: Any, *arguments: Any) -> Any:
    """Call the learner's function; an error becomes a `Problem` with the line of the function."""
    try:
        return f(*arguments)
    except RecursionError as error:
        raise Problem("The function calls itself without end (RecursionError).") from error
    except Exception as error:  # the learner's function may raise anything
        code, where = getattr(f, "__code__", None), "The function"
        file, first = ("", 0) if code is None else (code.co_filename, code.co_firstlineno)
        for frame in traceback.extract_tb(error.__traceback__):
            line = (frame.lineno or 0) - first + 1
            if frame.filename == file and line > 0:
                where = f"Line {line} of the function"
        if "ellipsis" in str(error):
            raise Problem(f"{where} still has `...` where your code goes.") from error
        advice = next((words for part, words in _ADVICE.items() if part in str(error)), "")
        raise Problem(f"{where} raises {type(error).__name__}: {_first_line(error)}{advice}") from error
    except SystemExit as error:
        raise Problem("The function ends its process (SystemExit): let it return its result.") from error


def _same_shapes(results: list[Any], wanted: list[Any]) -> None:
    import jax

    if len(results) != len(wanted):
        what = f"{len(results)} array{'s' * (len(results) > 1)}" if results else "nothing"
        missing = "" if results else " Is the `return` missing?"
        raise Problem(f"The function returns {what}, expected {len(wanted)}.{missing}")
    for number, (result, right) in enumerate(zip(results, wanted, strict=True)):
        which = "The result" if len(wanted) == 1 else f"Result {number}"
        shape, expected = list(result.shape[1:]), list(right.shape[1:])
        if shape != expected:
            raise Problem(f"{which} has the shape {shape} on each device, expected {expected}.")
        if result.dtype != jax.dtypes.canonicalize_dtype(right.dtype):
            raise Problem(f"{which} is {result.dtype}, expected {right.dtype}.")


def _same_values(results: list[Any], wanted: list[Any], names: list[str]) -> None:
    import numpy as np

    for name, result, right in zip(names, map(np.asarray, results), wanted, strict=True):
        apart = np.argwhere(~np.isclose(result, right, rtol=1e-3, atol=1e-4))
        if len(apart):
            first, *at = apart[0].tolist()
            devices, place = len(set(apart[:, 0].tolist())), tuple(apart[0])
            raise Problem(
                f'The result "{name}" has wrong values on {devices} of {len(right)} devices. Device {first} '
                f"first differs at {at}: {float(result[place]):.4g}, expected {float(right[place]):.4g}."
            )


def _export(f: Any, shapes: Any) -> str:
    import jax

    try:
        return base64.b64encode(jax.export.export(f)(*shapes).serialize()).decode()
    except (ValueError, NotImplementedError) as error:  # jax.export's errors about callbacks and effects
        words = "Take out `jax.debug` and callbacks, so that the program can be measured"
        raise Problem(f"The values are right. {words}: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return excerpt((str(error).strip() or type(error).__name__).splitlines()[0])


def _open(traced: Any) -> Any:
    return getattr(traced.jaxpr, "jaxpr", traced.jaxpr)


def _kinds(jaxpr: Any) -> set[str]:
    """Return the collectives in a jaxpr, by the names of their functions."""
    names = (str(equation.primitive.name) for equation in every_equation(jaxpr))
    return {_SAME.get(name, name) for name in names} & set(_COLLECTIVES)


def _crossed(jaxpr: Any) -> bool:
    """Return whether a branch, or a loop of unknown length, contains a collective."""
    branching = (e for e in every_equation(jaxpr) if e.primitive.name in ("cond", "while"))
    return any(_kinds(inner) for equation in branching for inner in sub_jaxprs(equation.params))


def _largest(jaxpr: Any) -> float:
    """Return the bytes of the largest array that a device computes, without temporaries of functions such as
    `jnp.roll`, which are jitted by themselves."""

    def sizes(inner: Any) -> Iterator[int]:
        for equation in inner.eqns:
            arrays = (v.aval for v in equation.outvars if hasattr(v.aval, "dtype"))
            yield from (a.size * a.dtype.itemsize for a in arrays)
            for each in sub_jaxprs(equation.params) if equation.primitive.name not in ("jit", "pjit") else ():
                yield from sizes(each)

    maps = (e for e in every_equation(jaxpr) if e.primitive.name == "shard_map")
    return float(max((size for e in maps for inner in sub_jaxprs(e.params) for size in sizes(inner)), default=0))
