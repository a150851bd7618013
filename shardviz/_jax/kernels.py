"""FLOPs of Pallas kernels: the author's estimate, else the matrix products of the body in each step of the grid.

A body may skip steps of the grid, as causal attention skips blocks that its mask leaves empty. The skipped steps are
computed if they follow from the step's place in the grid and from constants of the program, such as the block masks
that splash attention prefetches. If they depend on data, each step counts the branch with the most FLOPs, which gives
an upper bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax._src import core as jax_core

from shardviz._jax.jaxprs import MOST_EQUATIONS, ClosedJaxpr, every_equation, scan_constants, written_out


class KernelEstimate(NamedTuple):
    """A kernel's name, the FLOPs of one run, whether these are an upper bound, the shapes of its operands and results,
    its source info, and those of the equations around it, innermost first."""

    name: str
    flops: float
    at_most: bool
    operands: tuple[tuple[int, ...], ...]
    results: tuple[tuple[int, ...], ...]
    infos: tuple[Any, ...]


def kernel_estimates(closed: Any) -> Iterator[KernelEstimate]:
    """Return every Pallas kernel of a closed jaxpr whose FLOPs are known, from its author's estimate or from its
    body."""
    has_kernel = any(equation.primitive.name == "pallas_call" for equation in every_equation(closed.jaxpr))
    if has_kernel and written_out(closed.jaxpr) <= MOST_EQUATIONS:  # what is known inside differs from call to call
        yield from _estimates(closed.jaxpr, dict(zip(closed.jaxpr.constvars, closed.consts, strict=True)))


_Known = dict[Any, Any]
"""Variable → its value, for variables that are constants of the program."""

_SAME = frozenset(
    ("sharding_constraint", "reshard", "copy", "device_put", "stop_gradient", "name", "pvary", "optimization_barrier")
)
"""Operations that return their operands unchanged."""


def _estimates(jaxpr: Any, known: _Known, around: tuple[Any, ...] = ()) -> Iterator[KernelEstimate]:
    """Yield the kernels of a jaxpr. The constants among its variables are added to `known`."""
    for equation in jaxpr.eqns:
        infos = (equation.source_info, *around)
        name, values = equation.primitive.name, [_value(v, known) for v in equation.invars]
        if name == "pallas_call":
            stated = equation.params.get("cost_estimate")
            flops, at_most = _counted(equation, values) if stated is None else (float(stated.flops), False)
            if flops is not None:
                ins, outs = (tuple(tuple(v.aval.shape) for v in of) for of in (equation.invars, equation.outvars))
                params = equation.params
                kernel = params["name"] if "name" in params else params["name_and_src_info"].name
                yield KernelEstimate(str(kernel), flops, at_most, ins, outs, infos)
        elif name in _SAME:
            known |= {v: value for v, value in zip(equation.outvars, values, strict=True) if value is not None}
        else:
            for inner, own in _entered(equation, values):
                yield from _estimates(inner, own, infos)
                known |= _results(equation, inner, own)


class _Laid(NamedTuple):
    """An array that a `shard_map` assembles from the same constant on every device, and its spec."""

    value: Any
    spec: Any


def _results(equation: Any, inner: Any, own: _Known) -> _Known:
    """Return the constant results of a jitted function or a `shard_map`, from the constants known inside."""
    values = [_value(v, own) for v in inner.outvars]
    if equation.primitive.name == "shard_map":
        specs = equation.params["out_specs"]
        values = [None if v is None else _Laid(v, spec) for v, spec in zip(values, specs, strict=True)]
    elif equation.primitive.name not in ("jit", "pjit"):
        return {}
    return {v: value for v, value in zip(equation.outvars, values, strict=True) if value is not None}


def _value(atom: Any, known: _Known) -> Any:
    return atom.val if isinstance(atom, jax_core.Literal) else known.get(atom)


def _entered(equation: Any, values: Sequence[Any]) -> Iterator[tuple[Any, _Known]]:
    """Yield the jaxprs in an equation, each with the constants known inside from the values of its operands."""
    name, params = equation.primitive.name, equation.params
    if name == "cond":
        values = values[1:]
    elif name == "scan":  # what is carried changes, and one slice is another's neighbour
        constant = scan_constants(params)
        values = [*values[:constant], *(None,) * (len(values) - constant)]
    elif name == "while":
        values = ()
    elif name == "shard_map":
        pairs = zip(values, params["in_specs"], strict=True)
        values = [(v.value if v.spec == spec else None) if isinstance(v, _Laid) else v for v, spec in pairs]
    for each in _jaxprs(params):
        inner = each.jaxpr if hasattr(each, "consts") else each
        own = dict(zip(inner.constvars, each.consts, strict=True)) if hasattr(each, "consts") else {}
        if len(inner.invars) == len(values):  # inside of a shard_map an array may be one device's slice
            pairs = zip(inner.invars, values, strict=True)
            own |= {v: x for v, x in pairs if x is not None and _shape(x) == _shape(v.aval)}
        yield inner, own


def _jaxprs(params: Mapping[str, Any]) -> Iterator[Any]:
    for value in params.values():
        for item in value if isinstance(value, tuple | list) else (value,):
            if isinstance(item, ClosedJaxpr | jax_core.Jaxpr):
                yield item


def _shape(value: Any) -> tuple[int, ...]:
    return tuple(getattr(value, "shape", ()))


# One kernel.


class _Array(NamedTuple):
    """A whole array in a kernel's scalar memory. Other values of a body are scalars with one number for each step of
    the grid."""

    values: np.ndarray


_Counted = tuple[Any, bool]
"""FLOPs in each step of the grid, in a shape that broadcasts to it, or None; and whether they are an upper bound."""


def _counted(equation: Any, operands: Sequence[Any]) -> tuple[float | None, bool]:
    """Return the FLOPs of a kernel's matrix products over its whole grid, and whether they are an upper bound; None if
    there are no products, or if a loop's length or the grid's size depends on data."""
    mapping = equation.params["grid_mapping"]
    grid = mapping.grid
    if not all(isinstance(size, int) for size in grid):
        return None, False
    jaxpr = equation.params["jaxpr"]
    scalars = operands[mapping.num_dynamic_grid_bounds :][: mapping.num_index_operands]
    known: _Known = {
        ref: _Array(np.asarray(value))
        for ref, value in zip(jaxpr.invars, scalars, strict=False)
        if value is not None and getattr(value, "dtype", None) is not None and np.issubdtype(value.dtype, np.integer)
    }
    own = [d for d in range(len(grid)) if d not in mapping.vmapped_dims]  # those that the body knows of
    places = [np.arange(grid[d]).reshape([-1 if d == other else 1 for other in range(len(grid))]) for d in own]
    flops, at_most = _Body(places)(jaxpr, known)
    if flops is None or not np.any(flops):
        return None, False
    return float(np.sum(flops)) * math.prod(grid) / np.size(flops), at_most


class _Body:
    """A counter of the FLOPs of jaxprs inside a kernel, in each step of its grid; `places` has the steps' indices along
    each dimension."""

    def __init__(self, places: Sequence[np.ndarray]):
        self.places = places

    def __call__(self, jaxpr: Any, known: _Known) -> _Counted:
        """Return the FLOPs of one run of a jaxpr. The values of its variables that can be computed are added to
        `known`."""
        total: np.ndarray | float = 0.0
        bound = False
        for equation in jaxpr.eqns:
            flops, at_most = self._of(equation, known)
            if flops is None:
                return None, False
            total, bound = total + flops, bound or at_most
        return total, bound

    def _of(self, equation: Any, known: _Known) -> _Counted:
        name, params = equation.primitive.name, equation.params
        values = [_value(v, known) for v in equation.invars]
        if name == "dot_general":
            (contracted, _), _ = params["dimension_numbers"]
            factor = equation.invars[0].aval.shape
            return 2.0 * math.prod(equation.outvars[0].aval.shape) * math.prod(factor[d] for d in contracted), False
        if name in ("conv_general_dilated", "ragged_dot_general"):
            return None, False
        inside = []
        for inner, own in _entered(equation, values):
            inside.append(self(inner, own))
            known |= _results(equation, inner, own)
        if inside:
            return self._together(name, params, values, inside)
        if (scalar := self._scalar(equation, values, known)) is not None:
            known[equation.outvars[0]] = scalar
        return 0.0, False

    @staticmethod
    def _together(name: str, params: Mapping[str, Any], values: Sequence[Any], inside: Sequence[_Counted]) -> _Counted:
        """Return the FLOPs of an operation from those of one run of each jaxpr inside it."""
        counts = [flops for flops, _ in inside]
        some = [flops for flops in counts if flops is not None]
        if len(some) < len(counts) or (name == "while" and any(np.any(flops) for flops in some)):
            return None, False
        at_most = any(bound for _, bound in inside)
        if name == "scan":
            return params["length"] * some[0], at_most
        if name != "cond":
            return sum(some), at_most
        which = values[0]
        if which is not None and not isinstance(which, _Array):
            return np.choose(np.asarray(which, np.int64), [np.asarray(flops) for flops in some], mode="clip"), at_most
        most = some[0]
        for flops in some[1:]:
            at_most = at_most or not np.array_equal(most, flops)
            most = np.maximum(most, flops)
        return most, at_most

    def _scalar(self, equation: Any, values: Sequence[Any], known: _Known) -> Any:
        """Return the result of a scalar operation in each step of the grid; None if it depends on data."""
        name, params = equation.primitive.name, equation.params
        if name == "program_id":
            return self.places[params["axis"]]
        if name == "num_programs":
            return np.int64(self.places[params["axis"]].size)
        if name == "get":
            return _element(equation, values[0], known)
        if name in ("swap", "addupdate"):
            known.pop(equation.invars[0], None)
        compute = _SCALARS.get(name)
        if compute is None or equation.outvars[0].aval.shape or any(v is None for v in values):
            return None
        return compute(params, *values)


def _element(equation: Any, array: Any, known: _Known) -> Any:
    """Return the element of an array in scalar memory that a kernel reads at a constant place."""
    if not isinstance(array, _Array):
        return None
    places = jax.tree.unflatten(equation.params["tree"], equation.invars[1:])
    if len(places) != 1 or len(indices := getattr(places[0], "indices", ())) != array.values.ndim:
        return None
    at = [_value(i, known) if isinstance(i, jax_core.Var | jax_core.Literal) else i for i in indices]
    if not all(isinstance(i, int | np.integer | np.ndarray) for i in at):
        return None
    return array.values[tuple(np.clip(i, 0, size - 1) for i, size in zip(at, array.values.shape, strict=True))]


_Compute = Callable[..., Any]


def _plainly(function: Callable[..., Any]) -> _Compute:
    return lambda _, *values: function(*values)


_SCALARS: Mapping[str, _Compute] = {
    **{name: _plainly(getattr(np, of)) for name, of in {
        "add": "add", "sub": "subtract", "mul": "multiply", "max": "maximum", "min": "minimum", "neg": "negative",
        "abs": "abs", "sign": "sign", "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal",
        "gt": "greater", "ge": "greater_equal", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor",
        "not": "invert", "rem": "fmod",
    }.items()},
    "div": _plainly(lambda a, b: np.trunc(np.divide(a, b))),
    "clamp": _plainly(lambda least, x, most: np.clip(x, least, most)),
    "select_n": _plainly(lambda which, *cases: np.choose(np.asarray(which, np.int64), cases)),
    "convert_element_type": lambda params, x: np.asarray(x).astype(params["new_dtype"]),
    "stop_gradient": _plainly(lambda x: x),
}  # fmt: skip
"""Operation → a function that computes a scalar in a kernel from its parameters and operands."""
