"""Jaxprs walked: what is inside a traced program, and where each part is from."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Set
from typing import Any

import jax
from jax import core
from jax.extend import core as jex_core
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec


def names_of(traced: Any) -> tuple[tuple[str | None, ...], tuple[str | None, ...]]:
    """The tree paths of a trace's flat arguments and results, as `jax.jit` names them; None for no name."""
    info = traced.jaxpr.jaxpr.debug_info
    return tuple(info.arg_names or ()), tuple(info.result_paths or ())


def sub_jaxprs(params: dict[str, Any]) -> Iterator[Any]:
    """The jaxprs (not closed) in an equation's parameters."""
    for item in _items(params):
        if isinstance(item, jex_core.ClosedJaxpr | jex_core.Jaxpr):
            yield getattr(item, "jaxpr", item)


def _items(params: dict[str, Any]) -> Iterator[Any]:
    """An equation's parameters, tuples and lists taken apart."""
    for value in params.values():
        yield from value if isinstance(value, tuple | list) else (value,)


def every_equation(jaxpr: Any) -> Iterator[Any]:
    """Every equation of a jaxpr, each before those of the jaxprs inside it."""
    for equation in jaxpr.eqns:
        yield equation
        for inner in sub_jaxprs(equation.params):
            yield from every_equation(inner)


def constraints(jaxpr: Any) -> Iterator[tuple[tuple[int, ...], PartitionSpec, Any]]:
    """Every `with_sharding_constraint` of a jaxpr and those inside it: shape, spec, and the equation's source info."""
    for equation in every_equation(jaxpr):
        sharding = equation.params["sharding"] if equation.primitive.name == "sharding_constraint" else None
        if isinstance(sharding, NamedSharding):
            yield equation.invars[0].aval.shape, sharding.spec, equation.source_info


def scanned(jaxpr: Any) -> set[int]:
    """The places of a jaxpr's arguments of which a scan, in it or inside, takes one slice in each run."""
    at: dict[Any, int] = {v: place for place, v in enumerate(jaxpr.invars)}
    sliced_places: set[int] = set()
    for equation in jaxpr.eqns:
        places = [None if isinstance(v, jex_core.Literal) else at.get(v) for v in equation.invars]
        for inner in sub_jaxprs(equation.params):
            if len(inner.invars) == len(places):
                own = scanned(inner)
                for place, (outer_place, var, outer) in enumerate(
                    zip(places, inner.invars, equation.invars, strict=True)
                ):
                    sliced = equation.primitive.name == "scan" and len(var.aval.shape) < len(outer.aval.shape)
                    if outer_place is not None and (sliced or place in own):
                        sliced_places.add(outer_place)
        if equation.primitive.name == "convert_element_type" and places[0] is not None:
            at[equation.outvars[0]] = places[0]
    return sliced_places


_DEBUG = ("debug_callback", "debug_print")
_CALLBACKS = ("pure_callback", "io_callback", "python_callback")


def callbacks(jaxpr: Any) -> Iterator[tuple[str, bool, Any]]:
    """Every equation that calls Python while the program runs: its name, whether it only reports, its source info."""
    for equation in every_equation(jaxpr):
        name = equation.primitive.name
        if name in _CALLBACKS or name in _DEBUG:
            yield name, name in _DEBUG and not equation.outvars, equation.source_info


def kernel_estimates(jaxpr: Any) -> Iterator[tuple[float, tuple[tuple[int, ...], ...], Any]]:
    """Every Pallas kernel whose FLOPs its author or its body's products tell, its result shapes, its source info."""
    for equation in every_equation(jaxpr):
        if equation.primitive.name == "pallas_call":
            stated = equation.params.get("cost_estimate")
            flops = _kernel_products(equation) if stated is None else float(stated.flops)
            if flops is not None:
                yield flops, tuple(tuple(v.aval.shape) for v in equation.outvars), equation.source_info


def _kernel_products(equation: Any) -> float | None:
    """FLOPs of a kernel's matrix products; None where there are none to see, or their number depends on data."""
    grid = equation.params["grid_mapping"].grid
    once = _products(equation.params["jaxpr"])
    return math.prod(grid) * once if once and all(isinstance(size, int) for size in grid) else None


def _products(jaxpr: Any) -> float | None:
    """FLOPs of a jaxpr's matrix products, loops counted; None where they depend on data."""
    total = 0.0
    for equation in jaxpr.eqns:
        name, params = equation.primitive.name, equation.params
        inside = [_products(inner) for inner in sub_jaxprs(params)]
        if None in inside or name in ("conv_general_dilated", "ragged_dot_general"):
            return None
        flops = [each for each in inside if each]
        if name == "dot_general":
            (contracted, _), _ = params["dimension_numbers"]
            left = equation.invars[0].aval.shape
            total += 2.0 * math.prod(equation.outvars[0].aval.shape) * math.prod(left[d] for d in contracted)
        elif name == "scan":
            total += params["length"] * sum(flops)
        elif flops and (name == "while" or (name == "cond" and len(set(inside)) > 1)):
            return None
        else:
            total += flops[0] if flops and name == "cond" else sum(flops)
    return total


def meshes(jaxpr: Any) -> Iterator[Any]:
    """Every mesh that an equation names: of a `shard_map`, a constraint, or a nested jit's shardings."""
    for equation in every_equation(jaxpr):
        for item in _items(equation.params):
            mesh = item.mesh if isinstance(item, NamedSharding) else item
            if isinstance(mesh, Mesh | AbstractMesh) and mesh.axis_names:
                yield mesh


def equations(jaxpr: Any, around: tuple[Any, ...] = ()) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """The primitive of every equation, inside too; its source info and those around it, from the innermost outwards."""
    for equation in jaxpr.eqns:
        infos = (equation.source_info, *around)
        yield equation.primitive.name, infos
        for inner in sub_jaxprs(equation.params):
            yield from equations(inner, infos)


def checkpoint_names(jaxpr: Any) -> Iterator[tuple[str, tuple[int, ...], str, tuple[Any, Any]]]:
    """Every `checkpoint_name` inside: name, shape, dtype, the frames of the value's maker and of the naming."""
    maker = _makers(jaxpr)
    for equation in every_equation(jaxpr):
        if equation.primitive.name == "name":
            aval, makers = equation.outvars[0].aval, (maker.get(id(equation.invars[0]), equation), equation)
            frames = user_frame(makers[0].source_info), user_frame(makers[1].source_info)
            yield equation.params["name"], tuple(aval.shape), str(aval.dtype), frames


def _makers(jaxpr: Any) -> dict[int, Any]:
    """The equation that makes each variable, by the variable's id."""
    return {id(variable): equation for equation in every_equation(jaxpr) for variable in equation.outvars}


def offloaded(jaxpr: Any) -> Iterator[tuple[tuple[str, int, str], tuple[int, ...], str]]:
    """Every value that a jaxpr, or one inside it, puts into the host's memory: its maker's frame, shape and dtype."""
    makers, host = _makers(jaxpr), ("pinned_host", "unpinned_host")
    for equation in every_equation(jaxpr):
        if equation.primitive.name == "device_put":
            for var, place in zip(equation.invars, equation.params["devices"], strict=True):
                maker = makers.get(id(var))
                while maker is not None and maker.primitive.name in ("name", "reduce_precision"):
                    maker = makers.get(id(maker.invars[0]))
                frame = None if maker is None else user_frame(maker.source_info)
                on_host = place == jax.memory.Space.Host or getattr(place, "memory_kind", None) in host
                if frame is not None and on_host:
                    yield frame, tuple(var.aval.shape), str(var.aval.dtype)


def constants(closed: Any) -> Iterator[tuple[tuple[int, ...], str, Any]]:
    """Every array that a closed jaxpr holds, once: shape, dtype, its first reader's source info or None."""
    seen: set[int] = set()
    waiting = [closed]
    while waiting:
        holder = waiting.pop()
        first: dict[int, Any] = {}
        for equation in holder.jaxpr.eqns:
            for var in equation.invars:
                first.setdefault(id(var), equation.source_info)
            waiting += [part for part in _items(equation.params) if isinstance(part, jex_core.ClosedJaxpr)]
        for var, held in zip(holder.jaxpr.constvars, holder.consts, strict=True):
            if id(held) not in seen and getattr(held, "shape", None):
                seen.add(id(held))
                yield tuple(held.shape), str(held.dtype), first.get(id(var))


def leaked(traced: Any) -> Iterator[tuple[str, Any]]:
    """The values of other traces that a trace holds, which JAX lowers in none: type, and the maker's source info."""
    for held in getattr(traced, "_consts", ()):
        if isinstance(held, core.Tracer):
            yield held.aval.str_short(), getattr(held, "_line_info", None)


def memory_kinds(avals: Iterable[Any]) -> tuple[str, ...]:
    """The memory that each abstract value is in."""
    host = jax.memory.Space.Host
    return tuple("pinned_host" if getattr(aval, "memory_space", None) == host else "device" for aval in avals)


def user_frame(source_info: Any) -> tuple[str, int, str] | None:
    """File, line and function of the person's innermost frame, from an equation's source info."""
    return next(user_frames(source_info), None)


def user_frames(source_info: Any) -> Iterator[tuple[str, int, str]]:
    """File, line and function of every frame that is not JAX's own, from the innermost outwards."""
    from jax._src import source_info_util

    for frame in source_info_util.user_frames(getattr(source_info, "traceback", None)):
        yield frame.file_name, frame.start_line, frame.function_name


def rewritten(
    item: Any,
    here: Any,
    equation: Callable[[Any, Any, Callable[[Any, Any], Any]], Any],
    other: Callable[[Any, Any], Any] = lambda item, here: item,
    effects: Set[Any] = frozenset(),
) -> Any:
    """A jaxpr (closed or not) with its equations changed, also inside it. `equation` gives the new equation, or None
    for none, from the old one, `here` and what changes a parameter of it; `other` changes what is no jaxpr; `effects`
    are gone. A jaxpr that several equations share stays one, and what does not change stays itself: JAX lowers a
    function called twice to one since both calls hold the same jaxpr."""
    jaxprs: dict[tuple[int, Any], Any] = {}

    def inside(item: Any, here: Any) -> Any:
        if isinstance(item, jex_core.ClosedJaxpr | jex_core.Jaxpr):
            key = id(item), here
            if key not in jaxprs:
                jaxprs[key] = jaxpr(item, here)
            return jaxprs[key]
        if type(item) in (tuple, list):
            items = type(item)(inside(each, here) for each in item)
            return item if all(map(operator.is_, item, items)) else items
        return other(item, here)

    def jaxpr(of: Any, here: Any) -> Any:
        if not isinstance(of, jex_core.Jaxpr):  # in the newest JAX a closed one is a jaxpr too
            body = inside(of.jaxpr, here)
            return of if body is of.jaxpr else of.replace(jaxpr=body)
        eqns = [e for e in (equation(e, here, inside) for e in of.eqns) if e is not None]
        same = len(eqns) == len(of.eqns) and all(map(operator.is_, of.eqns, eqns))
        return of if same else of.replace(eqns=eqns, effects=of.effects - effects)

    return inside(item, here)


def on_mesh(closed: Any, mesh: AbstractMesh) -> Any:
    """The closed jaxpr with `mesh`, which has all axes, in place of every mesh in constraints, `shard_map`s and nested
    jits. Axis types are those of `mesh`, but for axes that a `shard_map` around makes Manual, and where the trace gave
    `mesh` other types itself, as `auto_axes` does. `jax.debug` callbacks, which need devices to be lowered for, are
    left out."""
    from jax._src import debugging

    reports = {debugging.debug_effect, debugging.ordered_debug_effect}

    def other(item: Any, here: AbstractMesh) -> Any:
        if isinstance(item, NamedSharding):
            of = axes_of(item.mesh, here)
            return item if of is item.mesh else NamedSharding(of, item.spec, memory_kind=item.memory_kind)
        return axes_of(item, here) if isinstance(item, Mesh | AbstractMesh) else item

    def axes_of(own: Any, here: AbstractMesh) -> Any:
        if not own.axis_names or not isinstance(own, AbstractMesh) or own.axis_names != here.axis_names:
            return here if own.axis_names else own
        return own if own.axis_sizes == here.axis_sizes else here.update(axis_types=own.axis_types)

    def equation(e: Any, here: AbstractMesh, inside: Callable[[Any, Any], Any]) -> Any:
        if e.primitive.name in _DEBUG and not e.outvars:
            return None
        below = here
        if e.primitive.name == "shard_map":
            below = here.update_axis_types(dict.fromkeys(e.params["newly_manual_axes"], AxisType.Manual))
        bodies = (jex_core.ClosedJaxpr, jex_core.Jaxpr)
        params = {k: inside(v, below if isinstance(v, bodies) else here) for k, v in e.params.items()}
        same = all(params[k] is v for k, v in e.params.items())
        return e if same else e.replace(params=params, effects=e.effects - reports)

    return rewritten(closed, mesh, equation, other, reports)


Specs = tuple[PartitionSpec | None, ...]


def outermost_shard_map(jaxpr: Any) -> tuple[Specs, Specs]:
    """For each argument and result the spec of a `shard_map` that takes or gives it directly, or None. Of one that
    leaves some mesh axes Auto, the results' specs say only a part, which is none to fix them by."""
    ins: dict[Any, PartitionSpec] = {}
    outs: dict[Any, PartitionSpec] = {}
    for equation in jaxpr.eqns:
        if equation.primitive.name == "shard_map":
            ins |= {v: s for v, s in zip(equation.invars, equation.params["in_specs"], strict=True) if _is_var(v)}
            if set(equation.params["newly_manual_axes"]) == set(equation.params["mesh"].axis_names):
                outs |= dict(zip(equation.outvars, equation.params["out_specs"], strict=True))
        elif equation.primitive.name in ("jit", "pjit"):
            inner_ins, inner_outs = outermost_shard_map(equation.params["jaxpr"].jaxpr)
            pairs = zip(equation.invars, inner_ins, strict=True)
            ins |= {v: s for v, s in pairs if s is not None and _is_var(v)}
            outs |= {v: s for v, s in zip(equation.outvars, inner_outs, strict=True) if s is not None}
    return tuple(ins.get(v) for v in jaxpr.invars), tuple(outs.get(v) if _is_var(v) else None for v in jaxpr.outvars)


def _is_var(atom: Any) -> bool:
    return not isinstance(atom, jex_core.Literal)
