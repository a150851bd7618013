"""Jaxprs walked: what is inside a traced program, and where each part is from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
from jax.extend import core as jex_core
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec


def names_of(traced: Any) -> tuple[tuple[str | None, ...], tuple[str | None, ...]]:
    """The tree paths of a trace's arguments and results, as `jax.jit` itself names them in its messages.

    Args:
        traced: what `jax.jit(f).trace(...)` returns.

    Returns:
        One name or None a flat argument, and one or None a flat result.
    """
    info = traced.jaxpr.jaxpr.debug_info
    return tuple(info.arg_names or ()), tuple(info.result_paths or ())


def sub_jaxprs(params: dict[str, Any]) -> Iterator[Any]:
    """The jaxprs (not closed) in an equation's parameters."""
    for value in params.values():
        for item in value if isinstance(value, tuple | list) else (value,):
            if isinstance(item, jex_core.ClosedJaxpr):
                yield item.jaxpr
            elif isinstance(item, jex_core.Jaxpr):
                yield item


def constraints(jaxpr: Any) -> Iterator[tuple[tuple[int, ...], PartitionSpec, Any]]:
    """Every `with_sharding_constraint` of a jaxpr and those inside it: shape, spec, and the equation's source info."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "sharding_constraint":
            sharding = equation.params["sharding"]
            if isinstance(sharding, NamedSharding):
                yield equation.invars[0].aval.shape, sharding.spec, equation.source_info
        for inner in sub_jaxprs(equation.params):
            yield from constraints(inner)


_DEBUG = ("debug_callback", "debug_print")


_CALLBACKS = ("pure_callback", "io_callback", "python_callback")


def callbacks(jaxpr: Any) -> Iterator[tuple[str, bool, Any]]:
    """Every equation that calls Python while the program runs: its name, whether it only reports, its source info."""
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        if name in _CALLBACKS or name in _DEBUG:
            yield name, name in _DEBUG and not equation.outvars, equation.source_info
        for inner in sub_jaxprs(equation.params):
            yield from callbacks(inner)


def meshes(jaxpr: Any) -> Iterator[Any]:
    """Every mesh that an equation names: of a `shard_map`, a constraint, or a nested jit's shardings."""
    for equation in jaxpr.eqns:
        for value in equation.params.values():
            for item in value if isinstance(value, tuple | list) else (value,):
                mesh = item.mesh if isinstance(item, NamedSharding) else item
                if isinstance(mesh, Mesh | AbstractMesh) and mesh.axis_names:
                    yield mesh
        for inner in sub_jaxprs(equation.params):
            yield from meshes(inner)


def has_shard_map(jaxpr: Any) -> bool:
    """Whether there is a `shard_map` in a jaxpr or in those inside it."""
    return any(
        equation.primitive.name == "shard_map" or any(map(has_shard_map, sub_jaxprs(equation.params)))
        for equation in jaxpr.eqns
    )


def name_stacks(jaxpr: Any) -> Iterator[str]:
    """JAX's name stack of every equation, those inside nested jaxprs included."""
    for equation in jaxpr.eqns:
        yield str(equation.source_info.name_stack)
        for inner in sub_jaxprs(equation.params):
            yield from name_stacks(inner)


def checkpoint_names(jaxpr: Any) -> Iterator[tuple[str, tuple[int, ...], str, tuple[Any, Any]]]:
    """Every `checkpoint_name` of a jaxpr and those inside it: the name, shape, dtype, and the frames of the equation
    that makes the value and of the naming itself.
    """
    made = {id(v): e for e in jaxpr.eqns for v in e.outvars}
    for equation in jaxpr.eqns:
        if equation.primitive.name == "name":
            aval = equation.outvars[0].aval
            maker = made.get(id(equation.invars[0]), equation)
            frames = user_frame(maker.source_info), user_frame(equation.source_info)
            yield equation.params["name"], tuple(aval.shape), str(aval.dtype), frames
        for inner in sub_jaxprs(equation.params):
            yield from checkpoint_names(inner)


def offloaded(jaxpr: Any) -> Iterator[tuple[tuple[str, int, str], tuple[int, ...], str]]:
    """Every value that a jaxpr, or one inside it, puts into the host's memory: its maker's frame, shape and dtype."""
    made = {id(v): e for e in jaxpr.eqns for v in e.outvars}
    for equation in jaxpr.eqns:
        if equation.primitive.name == "device_put":
            for var, place in zip(equation.invars, equation.params["devices"], strict=True):
                maker = made.get(id(var))
                while maker is not None and maker.primitive.name in ("name", "reduce_precision"):
                    maker = made.get(id(maker.invars[0]))
                frame = None if maker is None else user_frame(maker.source_info)
                kind = getattr(place, "memory_kind", None)
                if frame is not None and (place == jax.memory.Space.Host or kind in ("pinned_host", "unpinned_host")):
                    yield frame, tuple(var.aval.shape), str(var.aval.dtype)
        for inner in sub_jaxprs(equation.params):
            yield from offloaded(inner)


def user_frame(source_info: Any) -> tuple[str, int, str] | None:
    """File, line and function of the person's innermost frame, from an equation's source info."""
    from jax._src import source_info_util

    frame = source_info_util.user_frame(source_info.traceback)
    return None if frame is None else (frame.file_name, frame.start_line, frame.function_name)


def on_mesh(closed: Any, mesh: AbstractMesh) -> Any:
    """The closed jaxpr with `mesh` in place of every mesh in its constraints, `shard_map`s and nested shardings.

    A constraint that closes over a concrete mesh keeps that mesh in its equation, and lowering then refuses any other.
    Axes are matched by name; the caller has checked that `mesh` has them. Their types are those of `mesh`, but for the
    axes of the `shard_map`s around, which are Manual. `jax.debug` callbacks, which give no value, are left out, as they
    need devices to be lowered for.
    """

    def value(item: Any, here: AbstractMesh) -> Any:
        if isinstance(item, NamedSharding):
            return NamedSharding(here, item.spec)
        if isinstance(item, Mesh | AbstractMesh):
            return here if item.axis_names else item
        if isinstance(item, jex_core.ClosedJaxpr):
            return item.replace(jaxpr=inside(item.jaxpr, here))
        if isinstance(item, jex_core.Jaxpr):
            return inside(item, here)
        if type(item) in (tuple, list):
            return type(item)(value(i, here) for i in item)
        return item

    def equation(e: Any, here: AbstractMesh) -> Any:
        below = here
        if e.primitive.name == "shard_map":
            below = here.update_axis_types(dict.fromkeys(e.params["newly_manual_axes"], AxisType.Manual))
        bodies = (jex_core.ClosedJaxpr, jex_core.Jaxpr)
        return e.replace(params={k: value(v, below if isinstance(v, bodies) else here) for k, v in e.params.items()})

    def inside(jaxpr: Any, here: AbstractMesh) -> Any:
        kept = (e for e in jaxpr.eqns if not (e.primitive.name in _DEBUG and not e.outvars))
        return jaxpr.replace(eqns=[equation(e, here) for e in kept])

    return value(closed, mesh)


@dataclass(frozen=True)
class ShardMapped:
    """A `shard_map` that takes a program's own arguments, seen from outside.

    Attributes:
        in_specs: for each argument of the program its spec there, or None.
        out_specs: for each result of the program, or None where it comes from elsewhere.
    """

    in_specs: tuple[PartitionSpec | None, ...]
    out_specs: tuple[PartitionSpec | None, ...]


def outermost_shard_map(jaxpr: Any) -> ShardMapped | None:
    """The specs that `shard_map`s give to a program's arguments and results that they take and give directly.

    Of one that leaves some mesh axes Auto, the results' specs say only a part, which is none to fix them by.
    """
    ins: dict[Any, PartitionSpec] = {}
    outs: dict[Any, PartitionSpec] = {}
    for equation in jaxpr.eqns:
        if equation.primitive.name == "shard_map":
            ins |= {v: s for v, s in zip(equation.invars, equation.params["in_specs"], strict=True) if _is_var(v)}
            if set(equation.params["newly_manual_axes"]) == set(equation.params["mesh"].axis_names):
                outs |= dict(zip(equation.outvars, equation.params["out_specs"], strict=True))
        elif equation.primitive.name in ("jit", "pjit"):
            inner = outermost_shard_map(equation.params["jaxpr"].jaxpr)
            if inner is not None:
                pairs = zip(equation.invars, inner.in_specs, strict=True)
                ins |= {v: s for v, s in pairs if s is not None and _is_var(v)}
                outs |= {v: s for v, s in zip(equation.outvars, inner.out_specs, strict=True) if s is not None}
    found_in = tuple(ins.get(v) for v in jaxpr.invars)
    found_out = tuple(outs.get(v) if _is_var(v) else None for v in jaxpr.outvars)
    return ShardMapped(found_in, found_out) if any(s is not None for s in (*found_in, *found_out)) else None


def _is_var(atom: Any) -> bool:
    return not isinstance(atom, jex_core.Literal)


def type_specs(jaxpr: Any) -> tuple[PartitionSpec, ...]:
    """The spec in each result's type."""
    return tuple(atom.aval.sharding.spec for atom in jaxpr.outvars)


def in_types(traced: Any) -> bool:
    """Whether a `jax.stages.Traced` has shardings in the types of its arguments, over Explicit mesh axes."""
    return any(
        getattr(getattr(aval, "sharding", None), "mesh", None) is not None
        and jax.sharding.AxisType.Explicit in (aval.sharding.mesh.axis_types or ())
        for aval in traced.jaxpr.in_avals
    )
