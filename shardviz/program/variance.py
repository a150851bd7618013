"""What differs from device to device inside a `shard_map`, and results that are said not to.

With `check_vma=False` JAX takes it on trust that a result whose `out_specs` leaves out a mesh axis is the same on every
device along it. Here each value of the body is followed: along which axes it may differ, and along which it is a sum of
which every device holds its own part only.

    x: P(None, 'model')    w: P('model')    y = x @ w       y differs along 'model': each device's own part of a sum
                                            psum(y, 'model')                      the same on all again

What a permutation brings round a ring may be the same on all devices in the end, which this does not see: such results
are marked.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from jax.extend import core as jex_core

from shardviz import _jax
from shardviz.notation import Spec
from shardviz.notation.spec import axis_name
from shardviz.program.trace import Traced, first_frame
from shardviz.records import Frame

_Dims = tuple[frozenset[str], ...]
_NONE: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Unreplicated:
    """A result of a `shard_map` that is said to be the same along mesh axes and may not be."""

    axes: tuple[str, ...]
    summed: tuple[str, ...]  # axes along which it is a sum of which each device holds its own part
    moved: bool  # a permutation between devices is part of it, which may make it the same after all
    source: Frame | None  # the line of the sum, or of what makes the result
    number: int  # which result it is
    shape: tuple[int, ...]  # of one device, as are its bytes
    nbytes: float
    sizes: tuple[int, ...]  # how many devices each axis has


@dataclass(frozen=True)
class _Varying:
    """What is known of a value: the axes along which it may differ, those over which it is a partial sum (and the sum's
    line), the axes that cut each of its dimensions where that is known, and the axes that it was moved along.
    """

    axes: frozenset[str] = _NONE
    sums: tuple[tuple[str, Frame | None], ...] = ()
    dims: _Dims | None = None
    moved: frozenset[str] = _NONE
    source: Frame | None = field(default=None, compare=False)


@lru_cache(maxsize=8)
def unreplicated(traced: Traced) -> tuple[Unreplicated, ...]:
    """All such results of a traced program's `shard_map`s that are not checked by JAX."""
    return () if traced.closed is None else tuple(_walk(traced.closed.jaxpr, ()))


def _walk(jaxpr: Any, around: tuple[Any, ...]) -> Iterator[Unreplicated]:
    for equation in jaxpr.eqns:
        infos = (equation.source_info, *around)
        if equation.primitive.name == "shard_map" and not equation.params["check_vma"]:
            yield from _results(equation, infos)
        for inner in _jax.sub_jaxprs(equation.params):
            yield from _walk(inner, infos)


def _results(equation: Any, infos: tuple[Any, ...]) -> Iterator[Unreplicated]:
    mesh, params = equation.params["mesh"].shape, equation.params
    manual = {a for a in params["newly_manual_axes"] if mesh[a] > 1}
    body = params["jaxpr"]
    arguments = [_given(v, spec, manual) for v, spec in zip(body.invars, params["in_specs"], strict=True)]
    reading = _Body(infos)
    results = zip(body.outvars, reading.run(body, arguments), params["out_specs"], strict=True)
    for number, (var, value, spec) in enumerate(results):
        claimed = manual - {axis_name(a) for a in Spec.of(spec).axes}
        differing = value.axes & claimed
        for wrong in filter(None, (sorted(differing - value.moved), sorted(differing & value.moved))):
            summed = {axis: line for axis, line in value.sums if axis in wrong}
            shape = tuple(var.aval.shape)
            line = next(iter(summed.values())) if summed else value.source
            yield Unreplicated(
                axes=tuple(wrong),
                summed=tuple(summed),
                moved=wrong[0] in value.moved,
                source=line or first_frame(infos),
                number=number,
                shape=shape,
                nbytes=float(math.prod(shape) * var.aval.dtype.itemsize),
                sizes=tuple(mesh[a] for a in wrong),
            )


def _given(var: Any, spec: Any, manual: set[str]) -> _Varying:
    rank = len(var.aval.shape)
    dims = tuple(frozenset(axis_name(a) for a in dim) & manual for dim in Spec.of(spec, rank).dims)
    return _Varying(axes=frozenset().union(*dims), dims=dims)


class _Body:
    def __init__(self, around: tuple[Any, ...]):
        self.around = around

    def run(self, jaxpr: Any, arguments: Sequence[_Varying]) -> list[_Varying]:
        """What is known of a jaxpr's results, from what is known of its arguments."""
        varying: dict[Any, _Varying] = dict(zip(jaxpr.invars, arguments, strict=True))
        read = lambda atom: _Varying() if isinstance(atom, jex_core.Literal) else varying.get(atom, _Varying())  # noqa: E731
        for equation in jaxpr.eqns:
            line = first_frame((equation.source_info, *self.around))
            results = self._made(equation, [read(atom) for atom in equation.invars], line)
            varying.update((var, replace(v, source=line)) for var, v in zip(equation.outvars, results, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def _made(self, equation: Any, ins: list[_Varying], line: Frame | None) -> list[_Varying]:
        name, params, outs = equation.primitive.name, equation.params, len(equation.outvars)
        axes = _names(params.get("axes", params.get("axis_name", ())))
        grouped = params.get("axis_index_groups") is not None
        if name.startswith(("psum", "pmax", "pmin")) or name in ("all_gather", "all_gather_invariant", "pbroadcast"):
            return [v if grouped else _same(v, axes) for v in ins]
        if name in ("reduce_scatter", "psum_scatter"):
            return [replace(_same(v, axes), axes=v.axes | axes, dims=None) for v in ins]
        if name in ("ppermute", "all_to_all", "ragged_all_to_all"):
            every = _union(ins)
            return [replace(every, axes=every.axes | axes, moved=every.moved | axes, dims=None)] * outs
        if name == "axis_index":
            return [_Varying(axes=axes, dims=())]
        if name in ("pvary", "pcast"):
            return ins
        if name == "scan":
            return self._scan(equation, ins)
        if name == "while":
            return self._while(params, ins)
        if name == "cond":
            branches = [self.run(_open(b), ins[1:]) for b in params["branches"]]
            return [_union([ins[0], *same]) for same in zip(*branches, strict=True)]
        inner = [j for j in _jax.sub_jaxprs(params) if len(j.invars) == len(ins) and len(j.outvars) == outs]
        if len(inner) == 1 and name != "shard_map":
            return self.run(inner[0], ins)
        return [self._one(equation, ins, line)] * outs

    def _one(self, equation: Any, ins: list[_Varying], line: Frame | None) -> _Varying:
        """What is known of the result of an operation without collectives."""
        every = _union(ins)
        dims, summed = _result_dims(equation, ins)
        sums = dict(every.sums) | dict.fromkeys(sorted(summed), line)
        return replace(every, dims=dims, sums=tuple(sums.items()))

    def _scan(self, equation: Any, ins: list[_Varying]) -> list[_Varying]:
        body = _open(equation.params["jaxpr"])  # its last arguments and results are slices of what is scanned
        sliced = sum(len(i.aval.shape) != len(o.aval.shape) for i, o in zip(body.invars, equation.invars, strict=True))
        many = sum(len(i.aval.shape) == len(o.aval.shape) for i, o in zip(body.outvars, equation.outvars, strict=True))
        consts = len(ins) - sliced - many
        over = [replace(v, dims=v.dims[1:] if v.dims else None) for v in ins[consts + many :]]
        carry, outs = ins[consts : consts + many], []
        for _ in range(2 + len(carry)):
            outs = self.run(body, [*ins[:consts], *carry, *over])
            after = [_joined(a, b) for a, b in zip(carry, outs, strict=False)]
            if after == carry:
                break
            carry = after
        return [*carry, *(replace(v, dims=None) for v in outs[many:])]

    def _while(self, params: dict[str, Any], ins: list[_Varying]) -> list[_Varying]:
        tested, fixed = params["cond_nconsts"], params["body_nconsts"]
        carry = ins[tested + fixed :]
        for _ in range(2 + len(carry)):
            outs = self.run(_open(params["body_jaxpr"]), [*ins[tested : tested + fixed], *carry])
            (ends,) = self.run(_open(params["cond_jaxpr"]), [*ins[:tested], *carry])
            after = [replace(_joined(a, b), axes=a.axes | b.axes | ends.axes) for a, b in zip(carry, outs, strict=True)]
            if after == carry:
                break
            carry = after
        return carry


def _result_dims(equation: Any, ins: list[_Varying]) -> tuple[_Dims | None, frozenset[str]]:
    """The axes along which each dimension of a result is sharded, None where not known; and the axes summed over."""
    name, params = equation.primitive.name, equation.params
    operands = [v.dims for v in ins]
    first = operands[0] if operands else None
    if name == "dot_general" and first is not None and (second := operands[1]) is not None:
        (left, right), (batch_left, batch_right) = params["dimension_numbers"]
        summed = frozenset().union(*(first[d] for d in left), *(second[d] for d in right))
        batch = tuple(first[a] | second[b] for a, b in zip(batch_left, batch_right, strict=True))
        return (*batch, *_left(first, (*left, *batch_left)), *_left(second, (*right, *batch_right))), summed
    if name.startswith("reduce_") and "axes" in params and first is not None:
        gone = params["axes"]
        return _left(first, gone), frozenset().union(*(first[d] for d in gone)) if name == "reduce_sum" else _NONE
    if name == "transpose" and first is not None:
        return tuple(first[d] for d in params["permutation"]), _NONE
    if name == "broadcast_in_dim" and first is not None:
        put = dict(zip(params["broadcast_dimensions"], first, strict=True))
        return tuple(put.get(d, _NONE) for d in range(len(params["shape"]))), _NONE
    if all(v.aval.shape == equation.outvars[0].aval.shape for v in equation.invars if v.aval.shape):
        return _together(ins, equation), _NONE
    return None, _NONE


def _names(axes: Any) -> frozenset[str]:
    return frozenset((axes,) if isinstance(axes, str) else (a for a in axes if isinstance(a, str)))


def _same(value: _Varying, axes: frozenset[str]) -> _Varying:
    """A value after a collective that made it the same along these axes."""
    left = tuple(pair for pair in value.sums if pair[0] not in axes)
    return replace(value, axes=value.axes - axes, sums=left, moved=value.moved - axes, dims=None)


def _union(values: Iterable[_Varying]) -> _Varying:
    """What follows for a result from all its operands."""
    several = list(values)
    sums = {axis: line for v in several for axis, line in v.sums}
    axes, moved = (frozenset().union(*(getattr(v, name) for v in several)) for name in ("axes", "moved"))
    return _Varying(axes, tuple(sums.items()), None, moved)


def _joined(one: _Varying, other: _Varying) -> _Varying:
    return replace(_union([one, other]), dims=one.dims if one.dims == other.dims else None)


def _together(ins: list[_Varying], equation: Any) -> _Dims | None:
    rank = len(equation.outvars[0].aval.shape)
    whole = [v for v, atom in zip(ins, equation.invars, strict=True) if len(atom.aval.shape) == rank]
    atoms = zip(ins, equation.invars, strict=True)
    if any(v.dims is None for v, atom in atoms if not isinstance(atom, jex_core.Literal)):
        return None
    return tuple(frozenset().union(*(v.dims[d] for v in whole if v.dims)) for d in range(rank))


def _left(dims: _Dims, gone: Iterable[int]) -> _Dims:
    taken = set(gone)
    return tuple(dim for d, dim in enumerate(dims) if d not in taken)


def _open(jaxpr: Any) -> Any:
    return getattr(jaxpr, "jaxpr", jaxpr)
