"""The results of a jaxpr that can be computed from small arrays alone.

A step counter, a cache position and a PRNG key are computed from a few small arrays, whatever else the program does.
The jaxpr is walked twice by the same rules: once for the arguments that each result depends on, and, if a result is
requested, once to compute it on one device. In both walks a value is None if it is large, if JAX alone cannot compute
it, or if it depends on such a value.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax._src import core
from jax.sharding import AbstractMesh

from shardviz._jax.contexts import under
from shardviz._jax.jaxprs import scan_carried, scan_constants

LARGEST = 1 << 20
"""Bytes of the largest array, an argument or one on the way, from which a result is computed."""

_FEW = 2

_CALLS = {"jit", "pjit", "closed_call", "checkpoint", "remat2", "custom_jvp_call", "custom_vjp_call"}
_SAME = {"sharding_constraint", "reshard", "mesh_cast", "layout_constraint", "optimization_barrier", "device_put"}
_SAME |= {"pvary", "pcast"}
"""Primitives that change where values are, and no value."""
_REFUSED = {"pallas_call", "custom_partitioning", "ffi_call", "pure_callback", "rng_bit_generator"}
_REFUSED |= {"dot_general", "ragged_dot_general", "conv_general_dilated"}
"""Primitives of code outside of JAX; of random bits that differ between platforms; and a model's
own, which take long where nothing is large."""


class Known:
    """The results of a program that depend on small values only.

    Attributes:
        needs: for each such result, by position, the positions of the arguments that it depends on.
    """

    def __init__(self, closed: Any):
        self._closed = closed
        arguments = [1 << place if _is_small(v.aval) else None for place, v in enumerate(closed.jaxpr.invars)]
        masks = enumerate(_Needs().results(closed, arguments))
        self.needs = {at: _places(mask) for at, mask in masks if mask is not None}

    def value(self, place: int, arguments: Sequence[np.ndarray]) -> np.ndarray | None:
        """Return the value of a result from the values of the arguments that it needs; None if this JAX cannot compute
        it on a CPU. PRNG keys are passed and returned as their bits."""
        try:
            with under(AbstractMesh((), ()), ()), jax.transfer_guard("allow"), jax.debug_nans(False):
                return np.array(self._compute(place)(*arguments))
        except Exception:  # noqa: BLE001  # somebody else's primitive may raise whatever it likes
            return None

    @functools.cache  # noqa: B019  # for as long as its program
    def _compute(self, place: int) -> Callable[..., Any]:
        jaxpr = self._closed.jaxpr

        def compute(*values: Any) -> Any:
            every: list[Any] = [None] * len(jaxpr.invars)
            for at, value in zip(self.needs[place], values, strict=True):
                dtype = jaxpr.invars[at].aval.dtype
                every[at] = jax.random.wrap_key_data(value, impl=dtype._impl) if _is_key(dtype) else value
            wanted = [at == place for at in range(len(jaxpr.outvars))]
            result = _array(_Values().results(self._closed, every, wanted)[place])
            return jax.random.key_data(result) if _is_key(result.dtype) else result

        # few equations are each compiled once for all programs
        wanted = [at == place for at in range(len(jaxpr.outvars))]
        return compute if sum(1 for _ in _live(jaxpr, wanted)) <= _FEW else jax.jit(compute)


def _places(mask: int) -> tuple[int, ...]:
    return tuple(place for place in range(mask.bit_length()) if mask >> place & 1)


def _is_key(dtype: Any) -> bool:
    return jnp.issubdtype(dtype, jax.dtypes.extended)


def _is_small(aval: Any) -> bool:
    return hasattr(aval, "shape") and math.prod(aval.shape) * aval.dtype.itemsize <= LARGEST


def _array(value: Any) -> Any:
    return value if isinstance(value, jax.Array) else jnp.asarray(value)


def _is_refused(equation: Any) -> bool:
    name = equation.primitive.name
    if name in _REFUSED or equation.effects or not all(_is_small(v.aval) for v in equation.outvars):
        return True
    named = equation.params.get("axis_name") or equation.params.get("axes") or ()
    if isinstance(named, str) or any(isinstance(axis, str) for axis in named):
        return True  # what devices have to tell each other
    dtypes = (str(getattr(v.aval, "dtype", "")) for v in equation.invars)
    return name.startswith("random_") and any("rbg>" in each for each in dtypes)


class _Walk:
    """A walk over a jaxpr. Unknown values and results that are not needed are None."""

    def literal(self, value: Any) -> Any:
        raise NotImplementedError

    def plain(self, equation: Any, values: Sequence[Any]) -> Sequence[Any]:
        """Return the results of an equation whose operands are all known."""
        raise NotImplementedError

    def scan(self, params: Any, consts: Sequence[Any], carry: Sequence[Any], xs: Sequence[Any]) -> Sequence[Any]:
        raise NotImplementedError

    def until(self, params: Any, test: Sequence[Any], consts: Sequence[Any], carry: Sequence[Any]) -> Sequence[Any]:
        """Return the results of a `while` from the constants of its condition, those of its body, and the carry."""
        raise NotImplementedError

    def branch(self, params: Any, index: Any, values: Sequence[Any]) -> Sequence[Any]:
        """Return the results of a `cond` whose index is known."""
        raise NotImplementedError

    def results(self, closed: Any, values: Sequence[Any], wanted: Sequence[bool] | None = None) -> list[Any]:
        """Return the results of a jaxpr, closed or not, for its arguments' values."""
        jaxpr, held = getattr(closed, "jaxpr", closed), getattr(closed, "consts", ())
        env = dict(zip(jaxpr.invars, values, strict=True))
        env.update((v, None if isinstance(c, jax.Array) else self.literal(c)) for v, c in zip(jaxpr.constvars, held))  # noqa: B905  # an open jaxpr holds none
        for equation, live in _live(jaxpr, wanted):
            operands = [self._read(env, v) for v in equation.invars]
            if not operands or any(operand is not None for operand in operands):
                env.update(zip(equation.outvars, self._equation(equation, operands, live), strict=True))
        ends = [self._read(env, v) for v in jaxpr.outvars]
        return ends if wanted is None else [end if want else None for end, want in zip(ends, wanted, strict=True)]

    def _read(self, env: dict[Any, Any], atom: Any) -> Any:
        return self.literal(atom.val) if isinstance(atom, core.Literal) else env.get(atom)

    def _equation(self, equation: Any, values: list[Any], live: Sequence[bool] | None) -> Sequence[Any]:
        name, params = equation.primitive.name, equation.params
        if name in _CALLS:
            return self.results(params["jaxpr"] if "jaxpr" in params else params["call_jaxpr"], values, live)
        if name == "shard_map":  # what is replicated is the same on each device
            inside = [None if any(spec) else value for value, spec in zip(values, params["in_specs"], strict=True)]
            outside = zip(self.results(params["jaxpr"], inside, live), params["out_specs"], strict=True)
            results = [None if any(spec) else value for value, spec in outside]
        elif name == "scan":
            first = scan_constants(params)
            after = first + scan_carried(params)
            results = self.scan(params, values[:first], values[first:after], values[after:])
        elif name == "while":
            first = params["cond_nconsts"]
            after = first + params["body_nconsts"]
            results = self.until(params, values[:first], values[first:after], values[after:])
        elif name == "cond" and values[0] is not None:
            results = self.branch(params, values[0], values[1:])
        elif name in _SAME:
            results = values
        elif name == "cond" or _is_refused(equation) or any(value is None for value in values):
            results = [None] * len(equation.outvars)
        else:
            results = self.plain(equation, values)
        return [r if _is_small(v.aval) else None for r, v in zip(results, equation.outvars, strict=True)]


def _live(jaxpr: Any, wanted: Sequence[bool] | None) -> Iterator[tuple[Any, Sequence[bool] | None]]:
    """Yield the equations that the requested results need, each with which of its own results are needed."""
    if wanted is None:
        yield from ((equation, None) for equation in jaxpr.eqns)
        return
    needed = {v for v, want in zip(jaxpr.outvars, wanted, strict=True) if want and not isinstance(v, core.Literal)}
    kept = []
    for equation in reversed(jaxpr.eqns):
        live = [v in needed for v in equation.outvars]
        if any(live):
            kept.append((equation, live))
            needed.update(v for v in equation.invars if not isinstance(v, core.Literal))
    yield from reversed(kept)


_Mask = int | None


class _Needs(_Walk):
    """The walk in which a value is the set of the arguments that it depends on, as bits."""

    def __init__(self) -> None:
        self._inside: dict[Any, list[_Mask]] = {}

    def literal(self, value: Any) -> _Mask:
        return 0

    def plain(self, equation: Any, values: Sequence[Any]) -> Sequence[Any]:
        return [functools.reduce(int.__or__, values, 0)] * len(equation.outvars)

    def scan(self, params: Any, consts: Sequence[Any], carry: Sequence[Any], xs: Sequence[Any]) -> Sequence[Any]:
        carry, results = self._settled(lambda carry: self.results(params["jaxpr"], [*consts, *carry, *xs]), carry)
        return [*carry, *results[len(carry) :]]

    def until(self, params: Any, test: Sequence[Any], consts: Sequence[Any], carry: Sequence[Any]) -> Sequence[Any]:
        carry, _ = self._settled(lambda carry: self.results(params["body_jaxpr"], [*consts, *carry]), carry)
        (end,) = self.results(params["cond_jaxpr"], [*test, *carry])
        return [_both(each, end) for each in carry]

    def branch(self, params: Any, index: Any, values: Sequence[Any]) -> Sequence[Any]:
        each = zip(*(self.results(branch, values) for branch in params["branches"]), strict=True)
        return [functools.reduce(_both, masks, index) for masks in each]

    def results(self, closed: Any, values: Sequence[Any], wanted: Sequence[bool] | None = None) -> list[Any]:
        jaxpr = getattr(closed, "jaxpr", closed)
        key = id(jaxpr), tuple(value is None for value in values)
        if key not in self._inside:  # layers share jaxprs
            own = [None if value is None else 1 << place for place, value in enumerate(values)]
            self._inside[key] = super().results(closed, own)
        return [
            None if mask is None else functools.reduce(int.__or__, (values[place] for place in _places(mask)), 0)
            for mask in self._inside[key]
        ]

    @staticmethod
    def _settled(body: Callable[[list[_Mask]], list[_Mask]], carry: Sequence[_Mask]) -> tuple[list[_Mask], list[_Mask]]:
        """Run a loop's body until the carry is the same after a run; that carry, and the results of the last run."""
        before: list[_Mask] = list(carry)
        while True:
            results = body(before)
            after = [_both(one, other) for one, other in zip(before, results, strict=False)]
            if after == before:
                return after, results
            before = after


def _both(one: _Mask, other: _Mask) -> _Mask:
    return None if one is None or other is None else one | other


class _Values(_Walk):
    """The walk that computes the values, under a trace."""

    def literal(self, value: Any) -> Any:
        return value

    def plain(self, equation: Any, values: Sequence[Any]) -> Sequence[Any]:
        params = {k: None if k in ("sharding", "out_sharding") else v for k, v in equation.params.items()}
        results = equation.primitive.bind(*values, **params)
        return results if equation.primitive.multiple_results else [results]

    def scan(self, params: Any, consts: Sequence[Any], carry: Sequence[Any], xs: Sequence[Any]) -> Sequence[Any]:
        masks = _Needs().scan(params, _marked(consts), _marked(carry), _marked(xs))
        outer = params["jaxpr"].out_avals
        stacked = [
            place >= len(carry) and math.prod((params["length"], *a.shape)) * a.dtype.itemsize > LARGEST
            for place, a in enumerate(outer)
        ]
        keep = [mask is not None and not large for mask, large in zip(masks, stacked, strict=True)]

        def body(state: list[Any], rows: list[Any]) -> tuple[list[Any], list[Any]]:
            every = [*consts, *_spread(keep[: len(carry)], state), *_spread([x is not None for x in xs], rows)]
            results = _kept(keep, self.results(params["jaxpr"], every, keep))
            return results[: len(state)], results[len(state) :]

        rows = [_array(x) for x in xs if x is not None]
        length, backwards = params["length"], params["reverse"]
        state, ys = jax.lax.scan(body, _kept(keep, carry), rows, length=length, reverse=backwards)
        return _spread(keep, [*state, *ys])

    def until(self, params: Any, test: Sequence[Any], consts: Sequence[Any], carry: Sequence[Any]) -> Sequence[Any]:
        keep = [mask is not None for mask in _Needs().until(params, _marked(test), _marked(consts), _marked(carry))]
        if not any(keep):
            return _spread(keep, [])

        def goes_on(state: list[Any]) -> Any:
            return self.results(params["cond_jaxpr"], [*test, *_spread(keep, state)])[0]

        def body(state: list[Any]) -> list[Any]:
            return _kept(keep, self.results(params["body_jaxpr"], [*consts, *_spread(keep, state)], keep))

        return _spread(keep, jax.lax.while_loop(goes_on, body, _kept(keep, carry)))

    def branch(self, params: Any, index: Any, values: Sequence[Any]) -> Sequence[Any]:
        keep = [mask is not None for mask in _Needs().branch(params, 0, _marked(values))]
        branches = [
            lambda branch=branch: _kept(keep, self.results(branch, values, keep)) for branch in params["branches"]
        ]
        return _spread(keep, jax.lax.switch(index, branches))


def _marked(values: Sequence[Any]) -> list[_Mask]:
    return [None if value is None else 0 for value in values]


def _kept(keep: Sequence[bool], values: Sequence[Any]) -> list[Any]:
    return [_array(value) for value, kept in zip(values, keep, strict=False) if kept]


def _spread(keep: Sequence[bool], values: Sequence[Any]) -> list[Any]:
    rest = iter(values)
    return [next(rest) if kept else None for kept in keep]
