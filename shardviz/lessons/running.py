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

STAGE = "shardviz stage: "
CROSSED = "a collective that not all devices call"
"""The stage of a program in which a device may wait for ever: a branch or a loop contains a collective."""


class Problem(Exception):
    """The first problem of a learner's function, as a sentence."""


def run(data: bytes, *, puzzle: Mapping[str, Any]) -> bytes:
    """Run a pickled function as a puzzle asks, and return JSON.

    The JSON has `problem`, one sentence; or, for a schedule, `orders`; or `mine` and `par`. Each of these two has a
    `jax.export` file as text, and the bytes of the largest array on a device.
    """
    try:
        with contextlib.redirect_stdout(sys.stderr):  # what the function prints, in order with the stages
            if puzzle.get("schedule"):
                answer: dict[str, Any] = {"orders": _orders(_learners(data), puzzle["schedule"])}
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
    orders = []
    for stage in range(sizes["stages"]):
        order = _called(f, stage, *sizes.values())
        if not isinstance(order, list | tuple) or not all(isinstance(work, str) for work in order):
            raise Problem(f"Stage {stage}: the function returns {_short(order)}, expected a list such as ['F0', 'B0'].")
        orders.append(list(order))
    return orders


def _checked(data: bytes, puzzle: Mapping[str, Any]) -> dict[str, Any]:
    import jax
    import numpy as np
    from jax.sharding import NamedSharding, PartitionSpec

    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", 8)
    names, sizes = tuple(puzzle["mesh"]), tuple(puzzle["mesh"].values())
    mesh = jax.make_mesh(sizes, names, axis_types=(jax.sharding.AxisType.Auto,) * len(sizes))
    specs, results_specs = (
        tuple(PartitionSpec(*(axis or None for axis in each["spec"])) for each in puzzle[side])
        for side in ("arguments", "results")
    )
    random = np.random.default_rng(0)
    inputs = [_input(random, each) for each in puzzle["arguments"]]
    learners, by_reference = _learners(data), defined(puzzle["answer"])

    def sharded(f: Any) -> Any:
        """Return the function on all devices; results get a leading dimension for the devices, so that each is
        compared."""

        def each(*shards):
            return jax.tree.map(lambda y: jax.numpy.asarray(y)[None], f(*shards))

        return jax.jit(jax.shard_map(each, mesh=mesh, in_specs=specs, out_specs=PartitionSpec(names), check_vma=False))

    expected = defined(puzzle["goal"])(*inputs)
    expected = list(map(np.asarray, expected if isinstance(expected, tuple) else (expected,)))
    wanted = []
    for array, spec in zip(expected, results_specs, strict=True):
        places = NamedSharding(mesh, spec).devices_indices_map(array.shape)
        wanted.append([array[places[device]] for device in mesh.devices.flat])

    _stage("tracing")
    mine = sharded(lambda *shards: _called(learners, *shards))
    shapes = [
        jax.ShapeDtypeStruct(i.shape, i.dtype, sharding=NamedSharding(mesh, s))
        for i, s in zip(inputs, specs, strict=True)
    ]
    traced = _traced(mine, shapes)
    _shapes(traced.out_info, wanted)
    jaxpr = traced.jaxpr
    if forbidden := sorted(_kinds(jaxpr) & set(puzzle.get("forbidden", ()))):
        also = " (as `pmean` does)" if forbidden[0] == "psum" else ""
        raise Problem(f"The function calls `{forbidden[0]}`{also}, which this puzzle forbids.")
    _stage(CROSSED if _crossed(jaxpr) else "running")
    try:
        results = jax.tree.leaves(
            jax.block_until_ready(mine(*map(jax.device_put, inputs, [s.sharding for s in shapes])))
        )
    except Exception as error:  # the learner's function may raise anything
        raise Problem(f"The program ends with an error while it runs: {_first_line(error)}") from error
    _values(results, wanted, [each.get("name", "result") for each in puzzle["results"]])
    _stage("reading")
    answer = _traced(sharded(by_reference), shapes).jaxpr
    return {
        "mine": {"export": _export(mine, shapes), "largest": _largest(jaxpr)},
        "par": {"export": _export(sharded(by_reference), shapes), "largest": _largest(answer)},
    }


def _input(random: Any, each: Mapping[str, Any]) -> Any:
    """Return an argument's values: whole numbers below `below`, or whole numbers as floats, whose sums are exact."""
    if "below" in each:
        return random.integers(0, each["below"], each["shape"], "int32")
    return random.integers(-4, 5, each["shape"]).astype("float32") / each.get("over", 1)


def _called(f: Any, *arguments: Any, **more: Any) -> Any:
    """Call the learner's function; an error becomes a `Problem` with the line of the function."""
    try:
        return f(*arguments, **more)
    except RecursionError as error:
        raise Problem("The function calls itself without end (RecursionError).") from error
    except Exception as error:  # the learner's function may raise anything
        code = getattr(f, "__code__", None)
        lines = [
            frame.lineno - code.co_firstlineno + 1
            for frame in traceback.extract_tb(error.__traceback__)
            if code is not None and frame.filename == code.co_filename and (frame.lineno or 0) >= code.co_firstlineno
        ]
        where = f"Line {lines[-1]} of the function" if lines else "The function"
        if "ellipsis" in str(error):
            raise Problem(f"{where} still has `...` where your code goes.") from error
        advice = next((words for part, words in _ADVICE.items() if part in str(error)), "")
        raise Problem(f"{where} raises {type(error).__name__}: {_first_line(error)}{advice}") from error
    except SystemExit as error:
        raise Problem("The function ends its process (SystemExit): let it return its result.") from error


_ADVICE = {
    "boolean conversion of traced": " In place of `if` use `jnp.where`, which has both cases.",
    "Slice entries must be static": " Reshape the array, so that one index is enough.",
    "unbound axis name": " The axes are those of the picture.",
}
"""Part of JAX's message → what to do about it."""


def _traced(f: Any, shapes: Any) -> Any:
    try:
        return f.trace(*shapes)
    except Problem:
        raise
    except Exception as error:  # the learner's function may raise anything
        raise Problem(f"The function's result cannot be used: {_first_line(error)}") from error


def _shapes(info: Any, wanted: list[Any]) -> None:
    import jax

    results = jax.tree.leaves(info)
    if len(results) != len(wanted):
        what = "nothing" if not results else f"{len(results)} array{'s' * (len(results) > 1)}"
        missing = "" if results else " Is the `return` missing?"
        raise Problem(f"The function returns {what}, expected {len(wanted)}.{missing}")
    for number, (result, shards) in enumerate(zip(results, wanted, strict=True)):
        which = "The result" if len(wanted) == 1 else f"Result {number}"
        if result.shape[1:] != shards[0].shape:
            raise Problem(
                f"{which} has the shape {list(result.shape[1:])} on each device, expected {list(shards[0].shape)}."
            )
        if result.dtype != jax.dtypes.canonicalize_dtype(shards[0].dtype):
            raise Problem(f"{which} is {result.dtype}, expected {shards[0].dtype}.")


def _values(results: list[Any], wanted: list[Any], names: list[str]) -> None:
    import numpy as np

    for name, result, shards in zip(names, map(np.asarray, results), wanted, strict=True):
        wrong = [d for d, shard in enumerate(shards) if not np.allclose(result[d], shard, rtol=1e-3, atol=1e-4)]
        if not wrong:
            continue
        first = wrong[0]
        apart = ~np.isclose(result[first], shards[first], rtol=1e-3, atol=1e-4)
        at = tuple(int(i) for i in np.argwhere(apart)[0]) if apart.ndim else ()
        got, right = float(result[first][at]), float(shards[first][at])
        raise Problem(
            f'The result "{name}" has wrong values on {len(wrong)} of {len(shards)} devices. '
            f"Device {first} first differs at {list(at)}: {got:.4g}, expected {right:.4g}."
        )


def _export(f: Any, shapes: Any) -> str:
    import jax

    try:
        return base64.b64encode(jax.export.export(f)(*shapes).serialize()).decode()
    except (ValueError, NotImplementedError) as error:  # jax.export's errors about callbacks and effects
        raise Problem(
            "The values are right. Take out `jax.debug` and callbacks, so that the program can be measured: "
            f"{_first_line(error)}"
        ) from error


def _first_line(error: Exception) -> str:
    return _short(str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__, 200)


def _short(value: Any, most: int = 60) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= most else text[: most - 1] + "…"


# What a jaxpr contains.

_SAME = {
    "psum_invariant": "psum",
    "psum2": "psum",
    "reduce_scatter": "psum_scatter",
    "all_gather_invariant": "all_gather",
}
_COLLECTIVES = ("all_gather", "psum", "psum_scatter", "all_to_all", "ppermute", "pmax", "pmin", "ragged_all_to_all")
"""The functions of `jax.lax` that a learner writes; `_SAME` has the primitives of another name."""


def _inner(equation: Any) -> Iterator[Any]:
    """Yield the jaxprs inside an equation: bodies of loops, branches, calls."""
    for parameter in equation.params.values():
        for each in parameter if isinstance(parameter, list | tuple) else (parameter,):
            each = getattr(each, "jaxpr", each)
            if hasattr(each, "eqns"):
                yield each


def _equations(jaxpr: Any, jitted: bool = True) -> Iterator[Any]:
    """Yield all equations, inner ones too; `jitted` includes those inside functions that are jitted by themselves."""
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        yield equation
        for inner in _inner(equation) if jitted or equation.primitive.name not in ("jit", "pjit") else ():
            yield from _equations(inner, jitted)


def _kinds(jaxpr: Any) -> set[str]:
    names = (str(e.primitive.name) for e in _equations(jaxpr))
    return {_SAME.get(name, name) for name in names} & set(_COLLECTIVES)


def _crossed(jaxpr: Any) -> bool:
    """Whether a branch, or a loop of unknown length, contains a collective."""
    return any(_kinds(inner) for e in _equations(jaxpr) if e.primitive.name in ("cond", "while") for inner in _inner(e))


def _largest(jaxpr: Any) -> float:
    """Return the bytes of the largest array that a device computes, without temporaries of functions such as
    `jnp.roll`."""
    bodies = [inner for e in _equations(jaxpr) if e.primitive.name == "shard_map" for inner in _inner(e)]
    results = [v.aval for body in bodies for e in _equations(body, jitted=False) for v in e.outvars]
    return float(max((a.size * a.dtype.itemsize for a in results if hasattr(a, "dtype")), default=0))
