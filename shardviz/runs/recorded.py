"""A program that a script dispatched, as a `Program` with a plan made of the shardings that it had.

The jaxpr is the one that JAX traced for the script, so its source lines are the model's. Nothing is traced again.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from shardviz import _jax
from shardviz._jax import Dispatched
from shardviz.caching import cached_property
from shardviz.notation import DeviceMesh, Spec
from shardviz.notation.hlo import read_spec
from shardviz.records.runs import RunOperation
from shardviz.stablehlo.donations import Shard, donations
from shardviz.stablehlo.module import parse
from shardviz.tracing.call import Brings, Call, Notes
from shardviz.tracing.trees import names_of

ONE_DEVICE = DeviceMesh(("device",), (1,))
"""The mesh of a program on one device."""
_MOST_NUMBERS = 2**26
"""Bytes of the largest array that is written out, as it is in the lowered program."""


@dataclass(frozen=True, eq=False)
class Recording:
    """A jaxpr that JAX has already traced, where a `Call` otherwise has a function to trace."""

    dispatched: Dispatched

    @cached_property
    def names(self) -> tuple[list[str | None], list[str | None]]:
        """The paths of the arguments and results."""
        return names_of(self.dispatched.traced())

    def trace(self, *_: Any, **__: Any) -> Any:
        """Return the script's own trace. Constants of zeros get other numbers: a compiler would simplify equal ones."""
        closed = self.dispatched.closed
        params = dict(self.dispatched.params) | {"jaxpr": closed.replace(consts=list(map(_of_numbers, closed.consts)))}
        return replace(self.dispatched, params=params).traced()


def call_of(dispatched: Dispatched, notes: Notes) -> Call:
    """Return a dispatched program as a `Call` that brings the plan of the run: the shardings of its arguments and of
    its results. Its reports begin with `notes`.

    Raises:
        ShardvizError: if a sharding cannot be read.
    """
    kinds = dispatched.kinds[len(dispatched.constants) :]
    shardings = list(argument_shardings(dispatched))[len(dispatched.constants) :]
    leaves = [jax.ShapeDtypeStruct(k.aval.shape, k.aval.dtype, weak_type=k.aval.weak_type) for k in kinds]
    args, kwargs = jax.tree.unflatten(dispatched.in_tree, leaves)
    mesh = mesh_of(dispatched)
    on = ONE_DEVICE if mesh is None else DeviceMesh.of(mesh)
    results = zip(dispatched.params["out_shardings"], dispatched.closed.out_avals, strict=True)
    outs = [_spec(s, a.ndim, on) for s, a in results]
    brings = Brings(
        on,
        tuple(_spec(s, k.aval.ndim, on) or Spec() for s, k in zip(shardings, kinds, strict=True)),
        jax.tree.unflatten(dispatched.out_tree, outs),
        "the shardings of the run",
    )
    return Call(
        Recording(replace(dispatched, args=())),  # which would keep the script's arrays alive
        args,
        kwargs,
        dispatched.name,
        "recorded",
        brings=brings,
        notes=notes,
        keeps_unused=bool(dispatched.params["keep_unused"]),
    )


def _of_numbers(held: Any) -> Any:
    """Return zeros and ones for an array of zeros, as all large arrays of a dry run are; other arrays unchanged."""
    if not isinstance(held, jax.Array) or held.size < 2 or held.nbytes > _MOST_NUMBERS:
        return held
    if jax.numpy.issubdtype(held.dtype, jax.dtypes.extended) or not held.is_fully_addressable or np.asarray(held).any():
        return held
    return np.resize(np.array([0, 1], held.dtype), held.shape)


def argument_shardings(dispatched: Dispatched) -> Iterator[Any]:
    """Yield the sharding of each flat argument: its own if it is committed, else the one given to `jit`; None if
    neither exists."""
    for kind, asked in zip(dispatched.kinds, dispatched.params["in_shardings"], strict=True):
        own = kind.sharding if kind.sharding is not None and kind.committed else None
        yield own if own is not None else None if _jax.is_unspecified(asked) else asked


def deciding_shardings(dispatched: Dispatched) -> list[Any]:
    """Return the shardings that decide which devices a program runs on: those of its results, and of the arguments that
    the results need."""
    needed = [s for s, used in zip(argument_shardings(dispatched), dispatched.used, strict=True) if used]
    return [s for s in (*needed, *dispatched.params["out_shardings"]) if hasattr(s, "device_set")]


def mesh_of(dispatched: Dispatched) -> Any:
    """Return the mesh of several devices that a program runs on, or None. It comes from the shardings given to `jit`,
    the arguments, the context, or a constraint or `shard_map` inside the program."""
    asked = [s for s, used in zip(dispatched.params["in_shardings"], dispatched.used, strict=True) if used]
    meshes = [s.mesh for s in (*asked, *deciding_shardings(dispatched)) if isinstance(s, NamedSharding)]
    meshes.append(dispatched.params["ctx_mesh"])
    meshes += () if any(map(_is_several, meshes)) else _jax.meshes(dispatched.closed.jaxpr)
    return next(filter(_is_several, meshes), None)


def _is_several(mesh: Any) -> bool:
    return isinstance(mesh, Mesh) and mesh.size > 1  # an abstract one has no devices


def replicated(mesh: Any) -> Any:
    """Return the sharding of an array that nobody shards: on a mesh, or on JAX's default device."""
    alone = jax.sharding.SingleDeviceSharding
    return alone(_jax.default_device()) if mesh is None else NamedSharding(mesh, PartitionSpec())


def typed_sharding(mesh: Any, aval: Any) -> NamedSharding | None:
    """Return the sharding that a result's type states, axes of size 1 included; None unless all axes are Explicit. JAX
    does the same (`_concretize_abstract_out_shardings`)."""
    typed = aval.sharding.mesh
    if mesh is None or typed.empty or not typed.are_all_axes_explicit or typed.size != mesh.size:
        return None
    devices = mesh.devices.reshape(typed.axis_sizes)
    return NamedSharding(Mesh(devices, typed.axis_names, axis_types=typed.axis_types), aval.sharding.spec)


def shardy_sharding(mesh: Any, spec: Spec | None, aval: Any) -> NamedSharding | None:
    """Return Shardy's spec of a result as a `NamedSharding`; dimensions that do not divide are replicated."""
    if spec is None or mesh is None:
        return None
    typed = aval.sharding.mesh  # `auto_axes` and `explicit_axes` change the types of the axes in between
    if typed.axis_names == mesh.axis_names and typed.axis_types != mesh.axis_types:
        mesh = Mesh(mesh.devices, mesh.axis_names, axis_types=typed.axis_types)
    sizes, entries = dict(mesh.shape), list[Any]()
    for size, axes in zip(aval.shape, spec.dims, strict=False):
        if any(not isinstance(axis, str) for axis in axes):
            return None
        parts = math.prod(sizes[axis] for axis in axes)
        entries.append(tuple(axes) if axes and size % parts == 0 else None)
    while entries and entries[-1] is None and not typed.explicit_axes:  # as JAX writes what a compiler decides
        entries.pop()
    return NamedSharding(mesh, PartitionSpec(*entries))


def bytes_of(dispatched: Dispatched) -> int:
    """Return the global bytes of a program's arguments and results."""
    avals = [*(k.aval for k in dispatched.kinds), *dispatched.closed.out_avals]
    return sum(math.prod(a.shape) * a.dtype.itemsize for a in avals if hasattr(a, "shape"))


def taken(dispatched: Dispatched, shardings: Sequence[Any]) -> list[Any]:
    """Return the donated arguments whose memory a result takes, as JAX decides it on one device. JAX deletes them."""
    donated = {
        number: Shard(tuple(arg.sharding.shard_shape(arg.shape)), str(arg.dtype))
        for number, (arg, wanted) in enumerate(zip(dispatched.args, dispatched.params["donated_invars"], strict=True))
        if wanted and isinstance(arg, jax.Array)
    }
    rows = zip(dispatched.closed.out_avals, shardings, strict=True)
    shards = [Shard(tuple(s.shard_shape(a.shape)), str(a.dtype)) for a, s in rows]
    pairs = donations(donated, shards, one_device=True)  # the shardings of all results are known
    return [dispatched.args[number] for number, result in pairs.items() if result is not None]


def operations(dispatched: Dispatched, platforms: Sequence[str] | None) -> tuple[RunOperation, ...]:
    """Return a program's StableHLO with its shardings: for each line its text and its source line."""
    rows, line = list[RunOperation](), None
    for text in _jax.lowered_text(dispatched, platforms).splitlines():
        plain, at, location = _NAMED.sub("", text).partition(" loc(")
        line = (parse(f"loc({location}").frame if at else None) or line
        plain = plain.strip()
        if len(plain) > _LONGEST:
            plain = f"{plain[:_LONGEST]} ... {hashlib.sha256(plain.encode()).hexdigest()[:12]}"
        rows.append(RunOperation(plain, line))
    return tuple(rows)


_LONGEST = 2000
_NAMED = re.compile(r' loc\((?:"[^"]*"|unknown)\)')
"""A location without a line."""


def _spec(sharding: Any, rank: int, mesh: DeviceMesh | None) -> Spec | None:
    """Return a sharding as a spec on the program's mesh, also if it has another mesh of the same devices."""
    if _jax.is_unspecified(sharding):
        return None
    if isinstance(sharding, NamedSharding) and (mesh is None or dict(sharding.mesh.shape) == mesh.shape):
        return Spec.of(sharding)
    if sharding.is_fully_replicated or mesh is None:
        return Spec.of(None, rank)
    return read_spec(_jax.hlo_sharding_of(sharding, rank) or "", mesh, rank)
