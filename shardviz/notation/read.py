"""Any sharding, in whatever notation, as one record: the public `sv.sharding`.

>>> mesh = "data=2,model=4"
>>> for written in (("data", None), "P('data', None)", "[data, ·]", "A[I_data, J]", "{devices=[2,1,4]<=[8] \
last_tile_dim_replicate}", "{mesh['data'=2,'model'=4], [{'data'}, {}]}", '#sdy.sharding<@mesh, [{"data"}, {}]>'):
...     print(sharding(written, mesh))
[data, ·]
[data, ·]
[data, ·]
[data, ·]
[data, ·]
[data, ·]
[data, ·]

Text is known by its first characters, objects of JAX by what they have and not by their class, so that nothing of JAX
is imported for them.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from shardviz.errors import MeshError, ParseError, SpecError, excerpt
from shardviz.notation import hlo, pmap, proto, pspec, sdy, short
from shardviz.notation.bounds import MOST_CHARACTERS, MOST_VALUES, MOST_WRITTEN, check_size
from shardviz.notation.mesh import DeviceMesh, read_jax_mesh
from shardviz.notation.record import Sharding, each_once
from shardviz.notation.scan import Scanner, unescaped
from shardviz.notation.spec import Spec

_MEMORY = re.compile(r", memory_kind=[\w-]++")
_ATTRIBUTE = re.compile(r"\{?\s*(?:sdy\.|mhlo\.)?sharding\s*=\s*(?=[\"{#<\[])")
"""In front of a sharding where it is copied from a program: `sharding={...}`, `{sdy.sharding = #sdy.sharding<...>}`."""


def sharding(anything: Any, mesh: Any = None, rank: int | None = None) -> Sharding:
    """Reads a sharding in any notation.

    Args:
        anything: a PartitionSpec or a tuple such as `("data", None)`; text of a PartitionSpec, of HLO (V1, V2, V3) or
            of Shardy, the short `[data, ·]`, the scaling book's `A[I_data, J]`; an `OpSharding`, its serialized bytes,
            what it prints, or an `HloSharding`; Shardy's attributes, and the `SdyArray` that JAX makes them of; any
            `jax.sharding.Sharding`, and whatever has one (`jax.Array`); a `notation.pmap.ShardingSpec`; a `Sharding`
            record.
        mesh: a mesh in any form that `DeviceMesh.of` reads. May be left out where the sharding says it itself; a record
            or a `NamedSharding` is then said over this mesh by the names of its axes.
        rank: the array's number of dimensions; dimensions that are not named are not cut.

    Returns:
        The record.

    Raises:
        ParseError: for text or bytes that are no sharding.
        SpecError: for a sharding that does not fit the mesh or the rank.
        MeshError: if there is no mesh, or `mesh` is none.
    """
    if rank is not None and (isinstance(rank, bool) or not isinstance(rank, int) or rank < 0):
        raise SpecError(f"sharding: rank must be a whole number of dimensions, 0 or more, not {rank!r}")
    found = _read(anything, None if mesh is None else DeviceMesh.of(mesh), rank)
    return found if rank is None else found.with_rank(rank)


def shardings(anything: Any, mesh: Any = None) -> tuple[Sharding, ...]:
    """Reads the shardings of a tuple of arrays, as HLO and Shardy write them for values with several parts.

    Args:
        anything: a tuple's HLO sharding (`{{replicated}, {devices=[8]<=[8]}}`), `OpSharding` (an object, its bytes or
            what it prints) or `HloSharding`; a `#sdy.sharding_per_value<[...]>`; or one array's, in any form that
            `sharding` reads.
        mesh: as for `sharding`.

    Returns:
        A record for each array.

    Raises:
        ShardvizError: as `sharding` does.

    >>> [str(cut) for cut in shardings("{{devices=[2,4]<=[8]}, {devices=[8]<=[8]}}", "data=2,model=4")]
    ['[data, model]', '[data model]']
    """
    over = None if mesh is None else DeviceMesh.of(mesh)
    text = _checked(anything) if isinstance(anything, str) else str(anything) if hasattr(anything, "context") else ""
    if text.startswith("{"):
        texts = hlo.split_tuple(text, MOST_VALUES)
        if texts == (text,):
            return (_read_text(text, over, None),)
        return each_once(texts, texts, lambda each: hlo.read(each, over))
    if text.startswith(("#sdy", "sdy.")):
        found = sdy.read_values(text, over)
        return (sdy.read(text, over),) if found is None else found
    message = proto.from_text(text) if proto.looks_like(text) else _message(anything)
    if message is None:
        return (_read(anything, over, None),)
    elements = proto.elements(message)
    if elements is None:
        return (proto.read(message, over),)
    return each_once(elements, [str(element) for element in elements], lambda each: proto.read(each, over))


def _checked(text: str) -> str:
    check_size(text, MOST_CHARACTERS, "sharding", "characters")
    return text.strip()


def _read(given: Any, mesh: DeviceMesh | None, rank: int | None) -> Sharding:
    if isinstance(given, Sharding):
        return given if mesh is None or mesh == given.mesh else given.over(mesh)
    if isinstance(given, str):
        return _read_text(given, mesh, rank)
    if isinstance(given, pmap.ShardingSpec):
        return given.to_sharding(mesh)
    if isinstance(given, Spec):  # its entries may be of any type
        sets = (Spec.of((axes,)).axes for axes in (given.unreduced, given.reduced))
        given = Spec(Spec.of(given.dims).dims, *sets, unreduced_kind=given.unreduced_kind)
    if given is None or isinstance(given, Spec | tuple | list) or pspec.is_pspec(given):
        return pspec.from_entries(given, _needed(mesh, given), rank)
    return _from_object(given, mesh, rank)


def _read_text(text: str, mesh: DeviceMesh | None, rank: int | None) -> Sharding:
    plain = _checked(text)
    if found := _ATTRIBUTE.match(plain):
        plain = plain[found.end() :].removesuffix("}" if plain.startswith("{") else "").strip()
        if plain[:1] == plain[-1:] == '"':
            plain = unescaped(plain[1:-1])
    if plain.startswith("{"):
        return hlo.read(plain, mesh, rank)
    if proto.looks_like(plain):
        return proto.read(proto.from_text(plain), mesh, rank)
    if plain.startswith(("#sdy", "sdy.", "<")) or (plain.startswith("[") and "{" in plain):
        return sdy.read(plain, mesh, rank)
    if pmap.looks_like(plain):
        return pmap.parse(plain).to_sharding(mesh)
    if plain.startswith("NamedSharding("):
        return _printed(plain, mesh, rank)
    return _written_by_people(plain, _needed(mesh, text), rank)


def _written_by_people(plain: str, mesh: DeviceMesh, rank: int | None) -> Sharding:
    check_size(plain, MOST_WRITTEN, "sharding text", "characters")
    if plain.startswith("["):
        return short.read(plain, mesh)
    if pspec.looks_like(plain):
        return pspec.read(plain, mesh, rank)
    if (found := short.read_book(plain, mesh)) is not None:
        return found
    raise ParseError(
        f"sharding {excerpt(plain)!r}: expected P('data', None), [data, ·], A[I_data, J], HLO text in braces such as "
        '{devices=[2,4]<=[8]}, or #sdy.sharding<@mesh, [{"data"}, {}]>'
    )


def _printed(text: str, mesh: DeviceMesh | None, rank: int | None) -> Sharding:
    """What a `NamedSharding` prints. The mesh in it has no order of devices: a mesh that is given is taken instead."""
    it = Scanner(text, "sharding")
    it.need("NamedSharding(")
    it.need("mesh=")
    own = read_jax_mesh(it)
    it.need(",")
    it.need("spec=")
    if not pspec.begins(it):
        it.fail("a PartitionSpec, then at most memory_kind")
    if mesh is not None and (mesh.names, mesh.sizes) != (own.names, own.sizes) and own.names:
        raise SpecError(f"{it.given}: it is over the mesh {own}, not {mesh}; leave out the mesh, or give that one")
    if mesh is not None:  # its order of devices, with the types that were printed
        own = replace(mesh, types=own.types or mesh.types)
    result = pspec.read_call(it, own, rank)
    it.takes(_MEMORY)
    it.need(")")
    it.end()
    return result


def _needed(mesh: DeviceMesh | None, given: Any) -> DeviceMesh:
    if mesh is None:
        raise MeshError(
            f"{excerpt(str(given))}: the sizes of its axes are a mesh's; give one, such as mesh='data=8,model=4'"
        )
    return mesh


def _message(given: Any) -> proto.Message | None:
    """A serialized `OpSharding`, an `OpSharding` or an `HloSharding` as a message; None for what is none of these."""
    if hasattr(given, "tile_assignment_devices"):
        given = given.to_proto() if hasattr(given, "to_proto") else given
        given = given.SerializeToString()
    return proto.from_bytes(bytes(given)) if isinstance(given, bytes | bytearray | memoryview) else None


def _from_object(given: Any, mesh: DeviceMesh | None, rank: int | None) -> Sharding:
    """A JAX object, by what it has; the order of its devices is its own mesh's, where it says one."""
    if (message := _message(given)) is not None:
        return proto.read(message, mesh, rank)
    if hasattr(given, "dim_shardings") and hasattr(given, "mesh_shape"):  # SdyArray
        return sdy.from_jax(given, mesh, rank)
    if hasattr(given, "context") and str(given).startswith("#sdy.sharding"):  # an attribute of MLIR
        return sdy.read(str(given), mesh, rank)
    if (hasattr(given, "spec") and hasattr(given, "mesh")) or hasattr(given, "device_set"):
        return _from_jax_sharding(given, mesh, rank)
    inner = getattr(given, "sharding", None)
    shape = getattr(given, "shape", None)
    if inner is not None and isinstance(shape, tuple) and not isinstance(given, type):
        return _read(inner, mesh, len(shape) if rank is None else rank).with_rank(len(shape))
    raise SpecError(
        f"sharding: expected a PartitionSpec, text such as '[data, ·]' or '{{devices=[2,4]<=[8]}}', an OpSharding or a "
        f"jax Sharding, not {type(given).__name__}"
    )


def _from_jax_sharding(given: Any, mesh: DeviceMesh | None, rank: int | None) -> Sharding:
    if hasattr(given, "spec") and hasattr(given, "mesh"):  # NamedSharding
        own = DeviceMesh.of(given.mesh)
        if mesh is not None and not own.names:
            return pspec.from_entries(given.spec, mesh, rank)
        found = pspec.from_entries(given.spec, own, rank)
        alike = mesh is None or (mesh.names, mesh.sizes) == (own.names, own.sizes)
        return found if mesh is None or (alike and own.device_ids) else found.over(mesh)
    from shardviz import _jax

    ids = _jax.device_ids(given)
    if len(ids) == 1:  # SingleDeviceSharding
        if mesh is None:
            return Sharding.from_spec(Spec(), DeviceMesh((), (), (), ids), rank)
        where = mesh.ids().tolist()
        if ids[0] not in where:
            raise SpecError(f"{given}: the mesh {mesh} has no device {ids[0]}")
        return Sharding.on_one(where.index(ids[0]), mesh, rank)
    text = _jax.hlo_sharding_of(given, rank)
    if text is None:
        raise SpecError(f"{type(given).__name__}: it has neither a spec nor an HLO sharding")
    own = DeviceMesh(("devices",), (len(ids),), (), ids)
    found = hlo.read(text, own, rank)
    if mesh is None:
        return found
    order = {device: place for place, device in enumerate(mesh.ids().tolist())}
    if set(ids) != set(order):
        raise SpecError(f"{given}: its devices are not those of the mesh {mesh}")
    return found.onto(mesh, tuple(order[device] for device in ids))
