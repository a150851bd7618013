"""What `show` is given, read into one record: a name, a shape, an element type, a sharding, a mesh, perhaps values.

Nothing here knows JAX's classes: an array is whatever has a `shape` and a `sharding`, and a sharding whatever says its
`spec` and `mesh`, or whatever `layout` reads.

>>> read_one((8, 6), ("data", None), {"data": 2})
Subject(name='', shape=(8, 6), dtype=None, sharding=('data', None), mesh={'data': 2}, values=None)
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardviz.errors import ShardvizError, SpecError
from shardviz.notation.record import Sharding
from shardviz.notation.spec import Spec
from shardviz.records import Value

MOST_VALUES = 256
"""Elements; the values of larger arrays are not fetched."""


@dataclass(frozen=True, eq=False)
class Subject:
    """One array to be drawn.

    Attributes:
        name: what it is called; may be empty.
        shape: its global shape.
        dtype: its element type's name, or None where it is not known.
        sharding: how it is cut, in any notation that `layout` reads.
        mesh: the mesh, in any form that `DeviceMesh.of` reads.
        values: the array's elements where they are few and all within reach, else None.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str | None
    sharding: Any
    mesh: Any
    values: np.ndarray | None = None


def read_one(array_or_shape: Any, spec: Any = None, mesh: Any = None, *, name: str = "") -> Subject:
    """An array, a shape or a report's value as a `Subject`.

    Args:
        array_or_shape: what `show` takes, no pytree of them.
        spec: how it is cut; overrides the array's own.
        mesh: the mesh; overrides the array's own.
        name: what to call it if it has no name of its own.

    Raises:
        SpecError: if no spec is given and a report's value has none.
        ShardvizError: if it has no shape, or no mesh is given and it has none.
    """
    shape, own_name, dtype = _shape_of(array_or_shape)
    name = own_name or name
    sharding, where, lack = unpack(spec) if spec is not None else _own(array_or_shape)
    mesh = where if mesh is None else mesh
    if mesh is None and isinstance(sharding, tuple | list | Spec):
        lack = lack or "a spec alone does not say how many devices its axes have"
    if mesh is None and lack:
        raise ShardvizError(f"show({name or list(shape)}): {lack}; give a mesh, such as mesh={{'data': 8}}")
    if sharding is None and isinstance(array_or_shape, Value):
        raise SpecError(
            f"show({name!r}): no PartitionSpec says how this value is cut; give one, such as spec=('data', None)",
            argument=name,
        )
    return Subject(name, shape, dtype, sharding, mesh, _values(array_or_shape))


def is_array(thing: Any) -> bool:
    """Whether it has a shape of its own."""
    return isinstance(getattr(thing, "shape", None), Iterable)


def is_shape(thing: Any) -> bool:
    """Whether it is a size or a sequence of sizes."""
    sizes = thing if isinstance(thing, tuple | list) else (thing,)
    return all(isinstance(n, np.integer) or (hasattr(n, "__index__") and not _is_more(n)) for n in sizes)


def _is_more(number: Any) -> bool:
    """Whether something that can be an index is no size: a bool, or an array of one element."""
    return isinstance(number, bool) or hasattr(number, "shape")


def unpack(sharding: Any) -> tuple[Any, Any, str]:
    """(how it cuts, the mesh that it is over or None, and what it lacks for want of one), of any sharding.

    A `NamedSharding` is its spec and its mesh; everything else is handed on as it is, for `layout` to read, which knows
    whether it has a mesh of its own.
    """
    if not isinstance(sharding, Sharding) and hasattr(sharding, "spec") and hasattr(sharding, "mesh"):
        return sharding.spec, sharding.mesh, ""
    return sharding, None, ""


def _shape_of(thing: Any) -> tuple[tuple[int, ...], str, str | None]:
    """(shape, name, element type or None)."""
    if is_array(thing):
        dtype = getattr(thing, "dtype", None)
        name = thing.name if isinstance(thing, Value) else ""
        return tuple(thing.shape), name, None if dtype is None else str(getattr(dtype, "name", dtype))
    if is_shape(thing):
        sizes = thing if isinstance(thing, tuple | list) else (thing,)
        return tuple(int(n) for n in sizes), "", None
    raise ShardvizError(
        f"show: expected a shape such as (8192, 4096) or an array with a sharding, not "
        f"{type(thing).__name__} {str(thing)[:60]}"
    )


def _own(array: Any) -> tuple[Any, Any, str]:
    """(the sharding and the mesh that it has itself, or None each, and what it lacks)."""
    if isinstance(array, Value):
        own = array.spec if array.spec is not None else array.sharding.get("hlo") or array.sharding.get("sdy")
        return own, None, "a report's value does not carry its mesh (it is report.mesh)"
    sharding = getattr(array, "sharding", None)
    if sharding is None:
        return None, None, "a shape alone does not say on which devices it lies"
    found, mesh, _ = unpack(sharding)
    own = mesh is not None or isinstance(sharding, Sharding) or hasattr(sharding, "device_set")
    lack = "" if own else f"its sharding is a {type(sharding).__name__}, which has no PartitionSpec and mesh"
    return found, mesh, lack


def _values(array: Any) -> np.ndarray | None:
    """The elements of a small array all of whose shards this process can reach; None for every other thing."""
    if not getattr(array, "is_fully_addressable", False) or math.prod(array.shape) > MOST_VALUES:
        return None
    if array.is_deleted() or not isinstance(array.dtype, np.dtype):  # donated; or random keys, which have no numbers
        return None
    if getattr(getattr(array.sharding, "spec", None), "unreduced", None):
        return None  # the devices hold partial sums: there are no elements yet
    return np.asarray(array)
