"""What `show` is given, read into one record: a name, a shape, an element type, a sharding, a mesh, perhaps values.

Nothing here knows JAX's classes: an array is whatever has a `shape` and a `sharding`, and a sharding whatever says its
`spec` and `mesh`, or whatever `layout` reads.

>>> read_one((8, 6), ("data", None), {"data": 2})
Subject(name='', shape=(8, 6), dtype=None, sharding=('data', None), mesh={'data': 2}, values=None, unknown='')
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shardviz.errors import ShardvizError
from shardviz.layouts.layout import is_plain
from shardviz.notation import DeviceMesh, Spec
from shardviz.notation.read import sharding as read_sharding
from shardviz.notation.record import Sharding
from shardviz.records import Value
from shardviz.render.unknown import A_REPORT, NOBODY_YET, traced, undecided

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
        unknown: where nobody has said yet how it is cut, who decides; else "".
    """

    name: str
    shape: tuple[int, ...]
    dtype: str | None
    sharding: Any
    mesh: Any
    values: np.ndarray | None = None
    unknown: str = ""


def read_one(array_or_shape: Any, spec: Any = None, mesh: Any = None, *, name: str = "") -> Subject:
    """An array, a shape or a report's value as a `Subject`.

    Args:
        array_or_shape: what `show` takes, no pytree of them.
        spec: how it is cut; overrides the array's own.
        mesh: the mesh; overrides the array's own.
        name: what to call it if it has no name of its own.

    Raises:
        ShardvizError: if it has no shape, or no mesh is given and it has none.
        SpecError, ParseError, MeshError: if the sharding cannot be read.
    """
    shape, own_name, dtype = _shape_of(array_or_shape)
    name = own_name or name
    sharding, where, lack, unknown = (*unpack(spec), "") if spec is not None else _own(array_or_shape)
    if unknown and (mesh is None or isinstance(array_or_shape, Value)):
        return Subject(name, shape, dtype, None, where if mesh is None else mesh, unknown=unknown)
    mesh = where if mesh is None else mesh
    if mesh is None and sharding is not None and is_plain(sharding):
        lack = lack or "a spec alone does not say how many devices its axes have"
    if mesh is None and lack:
        raise ShardvizError(f"show({name or list(shape)}): {lack}; give a mesh, such as mesh={{'data': 8}}")
    if spec is None and isinstance(array_or_shape, Value) and array_or_shape.manual:
        sharding = Sharding.from_spec(sharding or Spec(), DeviceMesh.of(mesh), len(shape), manual=array_or_shape.manual)
    if not is_plain(sharding) and not isinstance(sharding, Sharding):
        sharding, mesh = read_sharding(sharding, mesh, len(shape)), None
    if isinstance(sharding, Sharding):
        unknown = undecided(sharding)
        if unknown:
            return Subject(name, shape, dtype, None, sharding.mesh, unknown=unknown)
    return Subject(name, shape, dtype, sharding, mesh, _values(array_or_shape))


def says_sharding(thing: Any) -> bool:
    """Whether it is of a kind that says how it is cut, or that nobody has said so yet: arrays of JAX and their like."""
    return hasattr(thing, "sharding") or hasattr(thing, "aval")


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


def _own(array: Any) -> tuple[Any, Any, str, str]:
    """(the sharding and the mesh that it has itself, or None each, what it lacks, and who decides if nobody has)."""
    if isinstance(array, Value):
        own = array.spec if array.spec is not None else array.sharding.get("hlo") or array.sharding.get("sdy")
        own = (array.spec or Spec()) if array.manual else own
        lack = "a report's value does not carry its mesh; show(report, leaf=...) has it, and so has report.mesh"
        return own, None, lack, "" if own is not None else A_REPORT
    if hasattr(array, "aval") and not hasattr(array, "sharding"):
        array = array.aval  # a traced value
    if type(array).__name__ == "ShapedArray":
        return _of_a_type(array.sharding)
    sharding = getattr(array, "sharding", None)
    if sharding is None:
        return None, None, "a shape alone does not say on which devices it lies", says_sharding(array) * NOBODY_YET
    found, mesh, _ = unpack(sharding)
    own = mesh is not None or isinstance(sharding, Sharding) or hasattr(sharding, "device_set")
    lack = "" if own else f"its sharding is a {type(sharding).__name__}, which has no PartitionSpec and mesh"
    return found, mesh, lack, ""


def _of_a_type(sharding: Any) -> tuple[Any, Any, str, str]:
    """As `_own`, of the type of a traced value, which says what Explicit axes do; along Auto ones all is open."""
    mesh = DeviceMesh.of(sharding.mesh)
    sizes = zip(mesh.names, mesh.sizes, mesh.types, strict=True)
    auto = [name for name, size, kind in sizes if kind == "Auto" and size > 1]
    if not mesh.names or (auto and len(auto) == sum(size > 1 for size in mesh.sizes)):
        return None, mesh if mesh.names else None, "", traced(auto)
    if not auto:
        return sharding.spec, mesh, "", ""
    record = read_sharding(sharding.spec, mesh)
    return replace(record, open=(True,) * len(record.tiles)), None, "", ""


def _values(array: Any) -> np.ndarray | None:
    """The elements of a small array all of whose shards this process can reach; None for every other thing."""
    if not hasattr(array, "sharding"):  # a traced value has no elements yet, and a NumPy array's are no shards
        return None
    if not getattr(array, "is_fully_addressable", False) or math.prod(array.shape) > MOST_VALUES:
        return None
    if array.is_deleted() or not isinstance(array.dtype, np.dtype):  # donated; or random keys, which have no numbers
        return None
    if getattr(getattr(array.sharding, "spec", None), "unreduced", None):
        return None  # the devices hold partial sums: there are no elements yet
    return np.asarray(array)
