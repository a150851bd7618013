"""Tracing for a mesh without devices: JAX gets the plan's mesh where it looks for devices."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import threading
from collections.abc import Collection, Iterator
from typing import Any
from unittest import mock

import jax
from jax.sharding import AbstractMesh

from shardviz._jax.contexts import PLACES, under

here = threading.local()


@contextlib.contextmanager
def tracing_on(mesh: AbstractMesh | None, places: Collection[str] = PLACES) -> Iterator[None]:
    """Trace functions for `mesh` inside the context. The mesh needs no devices and is set in `places`; see `contexts`.
    Two cases that `under` does not cover are patched: a nested `jax.jit` with bare PartitionSpecs, and a `shard_map`
    with its own mesh."""
    if mesh is None:
        _patch_pmap()
        with thread_value("meshless", True):
            yield
        return
    _patch()
    with thread_value("mesh", mesh), under(mesh, places):
        yield


@functools.lru_cache(maxsize=1)
def _patch() -> None:
    """Make JAX use the plan's mesh on threads that are inside `tracing_on`; other threads are unaffected."""
    from jax._src import mesh as mesh_lib
    from jax._src import pjit

    theirs = pjit.get_ctx_mesh

    def get_ctx_mesh(use_resource_env: bool) -> Any:
        mesh = getattr(here, "mesh", None)
        if mesh is None:
            return theirs(use_resource_env)
        placed = use_resource_env and not mesh_lib.thread_resources.env.physical_mesh.empty
        inside = jax.sharding.get_abstract_mesh()
        return inside if not inside.empty else mesh if placed else mesh_lib.empty_abstract_mesh

    pjit.get_ctx_mesh = get_ctx_mesh
    leave_out_frames()
    _patch_evaluation()
    _patch_shard_map()
    _patch_pmap()


@functools.lru_cache(maxsize=1)
def leave_out_frames() -> None:
    """Make JAX omit this room's frames from lines and tracebacks, as it omits its own."""
    from jax._src import source_info_util, traceback_util

    for module in (source_info_util, traceback_util):
        module.register_exclusion(os.path.dirname(__file__))


def _patch_evaluation() -> None:
    """Make code under `jax.ensure_compile_time_eval()` run without the traced mesh, which has no devices."""
    from jax._src import config, core
    from jax._src import mesh as mesh_lib

    theirs, none = core.EvalTrace.process_primitive, mesh_lib.empty_abstract_mesh

    def process_primitive(self: Any, primitive: Any, args: Any, params: Any, /) -> Any:
        if getattr(here, "mesh", None) is None or not config.eager_constant_folding.value:
            return theirs(self, primitive, args, params)
        with thread_value("mesh", None), under(none, ()):
            return theirs(self, primitive, args, params | {"ctx_mesh": none} if "ctx_mesh" in params else params)

    core.EvalTrace.process_primitive = process_primitive


class StandIn:
    """The plan's mesh inside a user's `shard_map`, with a reference to the mesh that it replaces.

    `jax.shard_map` reuses its checked mesh and axis names in later calls, so the replacement must lead back to the
    user's own mesh.
    """

    def __init__(self, mesh: Any, own: Any, own_axes: frozenset[Any]):
        self.mesh, self.own, self.own_axes = mesh, own, own_axes

    def __getattr__(self, name: str) -> Any:
        return getattr(self.mesh, name)


def target_mesh() -> AbstractMesh:
    """Return the mesh that is traced for, with the axes Manual that an enclosing `shard_map` made Manual."""
    inside = jax.sharding.get_abstract_mesh()
    return here.mesh if inside.empty else inside


def _patch_shard_map() -> None:
    from jax._src import core, shard_map

    check, bind = shard_map._shmap_checks, shard_map.shard_map_p.bind

    def checked(mesh: Any, axis_names: Any, *rest: Any) -> Any:
        own, own_axes = (mesh.own, mesh.own_axes) if isinstance(mesh, StandIn) else (mesh, frozenset(axis_names))
        if getattr(here, "mesh", None) is None:
            return check(own, own_axes, *rest)
        target, axes = target_mesh(), own_axes
        if own is not None:
            if missing := [name for name in own.axis_names if name not in target.axis_names]:
                if missing == ["_internal_pmap_axis_name"]:
                    raise ValueError(
                        "a nested pmap has no axis_name, so its mesh axis is not known; give it axis_name= "
                        f"{' or '.join(map(repr, target.axis_names))}"
                    )
                raise ValueError(
                    f"shard_map is over a mesh with the axis {missing[0]!r}, which the mesh that it is traced on has "
                    f"not (it has {', '.join(map(repr, target.axis_names)) or 'none'}); add the axis or rename one"
                )
            if not own_axes and len(own.axis_names) < len(target.axis_names):
                ones = {name for name, size in target.shape.items() if size == 1}  # a kernel wants all axes manual
                axes = ones.union(own.axis_names) - core.get_axis_env().explicit_mesh_axis_names
        mesh, axes = check(target, axes, *rest)
        return StandIn(mesh, own, own_axes), axes

    def bound(*args: Any, **params: Any) -> Any:
        mesh = params.get("mesh")
        if isinstance(mesh, StandIn):
            if getattr(here, "mesh", None) is None:  # a trace on another thread has put it there this very moment
                mesh = jax.sharding.get_abstract_mesh() if mesh.own is None else mesh.own
            else:
                mesh = mesh.mesh
        return bind(*args, **(params | {"mesh": mesh}))

    shard_map._shmap_checks = checked
    shard_map.shard_map_p.bind = bound


def refuses_types(error: BaseException) -> bool:
    """Return whether an error is JAX's about the shardings in types."""
    from jax._src import core, named_sharding

    return isinstance(error, core.ShardingTypeError | named_sharding.DuplicateSpecError)


_MISSING_AXIS = re.compile(
    r"Resource axis: (?P<constraint>\S+) of .* is not found in mesh|Unreduced axes (?P<unreduced>\S+) is not found in"
    r"|over a mesh with the axis '(?P<mesh>[^']+)', which the mesh that it is traced on has not"
    r"|_specs\[.* refers to '(?P<spec>[^']+)'|requires axis_names=frozenset\(\{'(?P<axis_names>[^']+)'"
)


def missing_axis(message: str) -> str | None:
    """Return the mesh axis that a function names and the traced mesh lacks; None for other errors."""
    match = _MISSING_AXIS.search(message)
    return None if match is None else next(filter(None, match.groups()))


@contextlib.contextmanager
def thread_value(name: str, value: Any) -> Iterator[None]:
    """Set a value that the patched functions of JAX read on this thread."""
    before = getattr(here, name, None)
    setattr(here, name, value)
    try:
        yield
    finally:
        setattr(here, name, before)


@functools.lru_cache(maxsize=1)
def _patch_pmap() -> None:
    """Make pmap raise at once, on threads inside `tracing_on`, if it cannot run on the traced mesh."""
    from jax._src import pmap

    theirs = pmap._get_mesh_devices

    def get_mesh_devices(*args: Any) -> Any:
        size, mesh, meshless = args[2], getattr(here, "mesh", None), getattr(here, "meshless", False)
        if (mesh is not None or meshless) and jax.sharding.get_abstract_mesh().manual_axes:
            raise ValueError(
                "this calls a pmapped function inside a pmap or shard_map, which JAX no longer has; write one "
                "jax.shard_map over a mesh with an axis for each"
            )
        if mesh is not None and size not in mesh.shape.values():
            sizes = ", ".join(f"{name!r}={n}" for name, n in mesh.shape.items())
            raise ValueError(f"a pmap inside maps a dimension of {size}, and of the mesh ({sizes}) no axis is as long")
        devices = theirs(*args)
        if mesh is None and meshless and len(devices) != size:
            raise ValueError(f"a pmap inside maps a dimension of {size}, which needs a mesh with an axis as long")
        return devices

    pmap._get_mesh_devices = get_mesh_devices


def cudnn_attention(q: Any, k: Any, v: Any) -> Any:
    """Trace JAX's causal attention for a recent cuDNN and an older GPU, neither of which must be installed. The arrays
    are batch x sequence x heads x features."""
    from jax._src.cudnn import fused_attention_stablehlo as fused  # nothing else needs it

    asked = {"check_cudnn_version": lambda: 91000, "check_compute_capability": lambda _: False}
    with mock.patch.multiple(fused, **asked):
        return jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation="cudnn")
