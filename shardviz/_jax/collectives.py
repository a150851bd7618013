"""Rewrites of a jaxpr that move fewer bytes, for collectives of a `shard_map` and constraints in loops. The results are
equal up to rounding.

| before | after |
|---|---|
| `all_gather`, then elementwise operations and a cast to a narrower type | these first, then `all_gather` |
| `all_gather`, then a sum over the gathered dimension | that sum, then `psum` |
| `all_gather`, then each device's own slice of another dimension | `all_to_all` |
| `psum`, then each device's own slice | `psum_scatter` |
| `psum`, then a scale and a cast to a narrower type | these first, then `psum`, which adds in the narrower type |
| `all_gather`, or a constraint, in a loop of an array that is the same in each run | the same before the loop |

Tried with JAX 0.10.2 and 0.12.0.
"""

from __future__ import annotations

import importlib
import operator
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np
from jax._src import core as jax_core
from jax._src.lax import parallel

from shardviz._jax.jaxprs import ClosedJaxpr, rewritten, scan_constants

_PASSES = frozenset(("pvary", "pcast"))
_GATHERS = frozenset(("all_gather", "sharding_constraint"))
_PSUMS = frozenset(("psum", "psum2", "psum_invariant"))
_ELEMENTWISE = frozenset(("mul", "div", "add", "sub", "neg", "convert_element_type", "max", "min"))
_LINEAR = frozenset(("mul", "div", "neg", "convert_element_type"))
_SCALARS: Mapping[str, Callable[..., Any]] = {
    "mul": operator.mul,
    "add": operator.add,
    "sub": operator.sub,
    "lt": operator.lt,
    "select_n": lambda which, *cases: cases[int(which)],
    "convert_element_type": lambda x: x,
    **dict.fromkeys(_PASSES, lambda x: x),
}
"""Operation that may compute a slice's start → the same operation on numbers."""


def better_collectives(closed: Any, wanted: Callable[[Any], bool]) -> tuple[Any, list[str]]:
    """Return a closed jaxpr with the collectives and constraints of wanted lines (given their source info) written
    otherwise, and for each what to write."""
    words: list[str] = []
    changed: dict[tuple[int, Any], tuple[Any, Any]] = {}  # several equations may share a jaxpr, which stays one

    def body(item: Any, specs: tuple[Any, ...]) -> Any:
        key = id(item), specs
        if key not in changed:
            eqns, done = _Body(_open(item), wanted, specs).rewritten()
            changed[key] = item, _with(item, _open(item).replace(eqns=eqns)) if done else item
            words.extend(done)
        return changed[key][1]

    def equation(e: Any, _: None, inside: Callable[[Any, Any], Any]) -> Any:
        specs = tuple(e.params["in_specs"]) if e.primitive.name == "shard_map" else ()
        params = {name: inside(each, None) for name, each in e.params.items()}
        for name, each in e.params.items():
            if isinstance(each, ClosedJaxpr | jax_core.Jaxpr):
                params[name] = body(params[name], specs)
        return e if all(params[name] is each for name, each in e.params.items()) else e.replace(params=params)

    return body(rewritten(closed, None, equation), ()), words


def _open(item: Any) -> Any:
    return item if isinstance(item, jax_core.Jaxpr) else item.jaxpr  # in the newest JAX a closed one is a jaxpr too


def _with(item: Any, jaxpr: Any) -> Any:
    return jaxpr if isinstance(item, jax_core.Jaxpr) else item.replace(jaxpr=jaxpr)


class _Body:
    """The equations of a jaxpr; `specs` are its parameters' specs, if known."""

    def __init__(self, jaxpr: Any, wanted: Callable[[Any], bool], specs: tuple[Any, ...]):
        self.eqns, self.wanted = list(jaxpr.eqns), wanted
        self.specs = dict(zip(jaxpr.invars, specs, strict=True)) if specs else {}
        self.makers = {v: e for e in self.eqns for v in e.outvars}
        reads = [(v, e) for e in self.eqns for v in e.invars if not isinstance(v, jax_core.Literal)]
        self.readers = dict(reads)
        self.uses = Counter(v for v, _ in reads)
        self.uses.update(v for v in jaxpr.outvars if not isinstance(v, jax_core.Literal))

    def rewritten(self) -> tuple[list[Any], list[str]]:
        """Return the equations with each requested collective rewritten where possible, and the text to write for
        each."""
        new: dict[int, list[Any]] = {}
        words: list[str] = []
        for e in self.eqns:
            name = e.primitive.name
            if name != "scan" and not self.wanted(e.source_info):
                continue
            for write, what in _WRITE.get("psum" if name in _PSUMS else name, ()):
                changed = write(self, e)
                if changed and not changed.keys() & new.keys():
                    new |= changed
                    words.append(what)
                    break
        return [each for e in self.eqns for each in new.get(id(e), [e])], words

    def _next(self, v: Any) -> Any:
        """Return the only equation that reads a value; None if there are several, or if the value is a result."""
        return self.readers.get(v) if self.uses[v] == 1 else None

    def _chain(self, e: Any, names: frozenset[str]) -> Iterator[Any]:
        """Yield the equations that follow, as long as each alone reads the previous one and is one of `names`."""
        while (e := self._next(e.outvars[0])) is not None and e.primitive.name in names:
            yield e

    def narrowed(self, gather: Any) -> dict[int, list[Any]] | None:
        """Return new equations that move elementwise operations before the collective that gathers or sums their
        operand, up to a cast to a narrower type."""
        sums = gather.primitive.name in _PSUMS
        if len(gather.outvars) != 1:
            return None
        chain, value = list[Any](), gather.outvars[0]
        names = _names(gather.params["axes" if sums else "axis_name"])
        for e in self._chain(gather, (_LINEAR if sums else _ELEMENTWISE) | _PASSES):
            divides = sums and e.primitive.name == "div" and e.invars[0] is not value
            if divides or not all(v is value or (not v.aval.shape and self._is_same(v, names)) for v in e.invars):
                break
            chain.append(e)
            value = e.outvars[0]
            if (
                e.primitive.name == "convert_element_type"
                and value.aval.dtype.itemsize < gather.outvars[0].aval.dtype.itemsize
            ):
                return self._moved(gather, chain)
        return None

    def _is_same(self, v: Any, names: tuple[Any, ...]) -> bool:
        """Return whether a value is known to be the same on all devices along mesh axes."""
        if isinstance(v, jax_core.Literal):
            return True
        if v in self.specs:
            return not any(set(names) & set(_names(entry)) for entry in self.specs[v] if entry is not None)
        e = self.makers.get(v)
        return (
            e is not None
            and e.primitive.name in _ELEMENTWISE | _PASSES
            and all(self._is_same(operand, names) for operand in e.invars)
        )

    def _moved(self, gather: Any, chain: list[Any]) -> dict[int, list[Any]]:
        was, now = gather.outvars[0], gather.invars[0]
        before = list[Any]()
        for e in chain:
            out = _like(now, e.outvars[0].aval.dtype)
            params = e.params
            if "sharding" in params:
                params = params | {"sharding": None}
            before.append(e.replace(invars=[now if v is was else v for v in e.invars], outvars=[out], params=params))
            was, now = e.outvars[0], out
        *between, last = chain
        end = [*before, gather.replace(invars=[now], outvars=[last.outvars[0]])]
        return {id(gather): [], **{id(e): [] for e in between}, id(last): end}

    def summed(self, gather: Any) -> dict[int, list[Any]] | None:
        """Return new equations that replace a sum over the gathered dimension by each device's own sum, followed by a
        sum over the devices."""
        reduce, params = self._next(gather.outvars[0]), gather.params
        if reduce is None or reduce.primitive.name != "reduce_sum" or params.get("axis_index_groups") is not None:
            return None
        axes, at = tuple(reduce.params["axes"]), params["all_gather_dimension"]
        if at not in axes:
            return None
        value, own = gather.invars[0], list[Any]()
        remaining = axes if params["tiled"] else tuple(a - (a > at) for a in axes if a != at)
        if remaining:
            summed = _like(reduce.outvars[0], value.aval.dtype)
            own = [reduce.replace(invars=[value], outvars=[summed], params=reduce.params | {"axes": remaining})]
            value = summed
        sums = {"axes": _names(params["axis_name"]), "axis_index_groups": None}
        end = gather.replace(primitive=parallel.psum_p, params=sums, invars=[value], outvars=[reduce.outvars[0]])
        return {id(gather): [], id(reduce): [*own, end]}

    def scattered(self, psum: Any) -> dict[int, list[Any]] | None:
        """Return new equations with a `psum_scatter` for a `psum` whose result each device slices, or None."""
        names = psum.params["axes"]
        if (own := self._own_slice(psum, names)) is None:
            return None
        d, size, unused, last = own
        params = {"axis_name": names, "scatter_dimension": d, "axis_index_groups": None}
        params |= {"axis_size": size, "tiled": True}
        new = psum.replace(primitive=parallel.reduce_scatter_p, params=params, outvars=last.outvars)
        return {**unused, id(last): [new]}

    def exchanged(self, gather: Any) -> dict[int, list[Any]] | None:
        """Return new equations with an `all_to_all` for an `all_gather` whose result each device slices along another
        dimension; None if none fits."""
        names, at = _names(gather.params["axis_name"]), gather.params["all_gather_dimension"]
        own = self._own_slice(gather, names) if gather.params["tiled"] else None
        if own is None or own[0] == at:
            return None
        d, _, unused, last = own
        params = {"axis_name": names, "split_axis": d, "concat_axis": at, "axis_index_groups": None, "tiled": True}
        return {
            **unused,
            id(last): [gather.replace(primitive=parallel.all_to_all_p, params=params, outvars=last.outvars)],
        }

    def _own_slice(self, e: Any, names: tuple[Any, ...]) -> tuple[int, int, dict[int, list[Any]], Any] | None:
        """Return the slice of a collective's result that each device takes by its own index along the mesh axis: the
        dimension, the number of slices, the equations that become unused, and the slice; None for other slices."""
        if len(e.outvars) != 1 or len(names) != 1 or e.params.get("axis_index_groups"):
            return None
        whole, unused = e.outvars[0].aval.shape, {id(e): list[Any]()}
        while (e := self._next(e.outvars[0])) is not None and e.primitive.name in _PASSES:
            unused[id(e)] = []
        if e is None or e.primitive.name != "dynamic_slice":
            return None
        part = e.outvars[0].aval.shape
        sharded = [d for d, (n, m) in enumerate(zip(whole, part, strict=True)) if n != m]
        if len(sharded) != 1:
            return None
        (d,), starts = sharded, e.invars[1:]
        size = whole[d] // part[d]
        own = all(self._start(starts[d], i, names[0]) == i * part[d] for i in range(size))
        if not own or any(self._start(s, 0, names[0]) != 0 for k, s in enumerate(starts) if k != d):
            return None
        return d, size, unused, e

    def _start(self, v: Any, index: int, name: Any) -> Any:
        """Return a scalar's value on the device at an index of a mesh axis; None if it depends on something else."""
        if isinstance(v, jax_core.Literal):
            return v.val
        e = self.makers.get(v)
        if e is None:
            return None
        if e.primitive.name == "axis_index":
            return index if _names(e.params["axis_name"]) == (name,) else None
        operands = [self._start(operand, index, name) for operand in e.invars]
        compute = _SCALARS.get(e.primitive.name)
        return None if compute is None or None in operands else compute(*operands)

    def hoisted(self, scan: Any) -> dict[int, list[Any]] | None:
        """Return a loop whose gathers and constraints of loop invariants are done before it."""
        closed, consts = scan.params["jaxpr"], scan_constants(scan.params)
        body = _open(closed)
        same = dict(zip(body.invars[:consts], scan.invars[:consts], strict=True))
        gathers = [
            e for e in body.eqns if e.primitive.name in _GATHERS and e.invars[0] in same and self.wanted(e.source_info)
        ]
        if not gathers:
            return None
        inner = [gather.outvars[0] for gather in gathers]
        outer = [type(v)(v.aval) for v in inner]
        before = [
            gather.replace(invars=[same[gather.invars[0]]], outvars=[v])
            for gather, v in zip(gathers, outer, strict=True)
        ]
        hoisted = set(map(id, gathers))
        eqns, names = [e for e in body.eqns if id(e) not in hoisted], body.debug_info.with_unknown_names()
        new = body.replace(invars=[*inner, *body.invars], eqns=eqns, debug_info=names)
        params = scan.params | {"jaxpr": _with(closed, new)}
        if "num_consts" in params:
            params["num_consts"] = consts + len(inner)
        else:
            flattree: Any = importlib.import_module("jax._src.flattree")  # of the newest JAX
            kept, carried, stepped = params["ft_in"].unpack()
            params["ft_in"] = flattree.pack(((flattree.nones(len(inner)), kept), carried, stepped))
        changed = scan.replace(params=params, invars=[*outer, *scan.invars])
        return {id(scan): [*before, changed]}


_WRITE: Mapping[str, tuple[tuple[Callable[[_Body, Any], dict[int, list[Any]] | None], str], ...]] = {
    "all_gather": (
        (_Body.narrowed, "cast before the all_gather"),
        (_Body.summed, "jax.lax.psum in place of all_gather and sum"),
        (_Body.exchanged, "jax.lax.all_to_all(..., tiled=True) in place of all_gather and slice"),
    ),
    "psum": (
        (_Body.scattered, "jax.lax.psum_scatter(..., tiled=True) in place of psum and slice"),
        (_Body.narrowed, "cast before the psum"),
    ),
    "scan": ((_Body.hoisted, "gather before the loop"),),
}
"""Operation → the possible rewrites, each with the text to write."""


def _names(axes: Any) -> tuple[Any, ...]:
    return axes if isinstance(axes, tuple) else (axes,)


def _like(v: Any, dtype: np.dtype) -> Any:
    return type(v)(v.aval.update(dtype=jax.dtypes.canonicalize_dtype(dtype)))
