"""The public `sv.sharding`, which reads any notation into one record, and `rosetta`, which writes every notation.

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

Text is recognized by its first characters, JAX objects by their attributes rather than their class, so that JAX is not
imported.

`rosetta` writes a record in every notation, with the meaning of each letter:

>>> rows = sharding("P('data', None)", mesh)
>>> for row in rosetta(rows):
...     print(f"{row.notation:8}{row.text or row.why}")
pspec   P('data', None)
short   [data, ·]
book    A[I_data, J]
hlo-v1  {devices=[2,1,4]0,1,2,3,4,5,6,7 last_tile_dim_replicate}
hlo-v2  {devices=[2,1,4]<=[8] last_tile_dim_replicate}
hlo-v3  {mesh['data'=2,'model'=4], [{'data'}, {}]}
proto   type: OTHER tile_assignment_dimensions: [2, 1, 4] replicate_on_last_tile_dim: true iota_reshape_dims: [8] \
iota_transpose_perm: [0]
sdy     #sdy.sharding<@mesh, [{"data"}, {}]>
pmap    ShardingSpec((Chunked(2), NoSharding()), (ShardedAxis(axis=0), Replicated(replicas=4)))
>>> for letter in rosetta(sharding("[model, ·]", rows.mesh))[4].letters:
...     print(letter.piece, "=", letter.meaning)
devices=[4,1,2] = tiles along each dimension: 4, 1; the number behind them, 2, counts devices that share a tile
<=[2,4] = the devices 0 to 7, row by row in a table of 2 x 4
T(1,0) = and read with the table's dimensions in the order 1, 0: 0, 4, 1, 5, 2, 6, ...
last_tile_dim_replicate = each tile is on 2 devices, as copies
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from shardviz.errors import MeshError, ParseError, SpecError, excerpt
from shardviz.notation import hlo, pmap, proto, pspec, sdy, short
from shardviz.notation.bounds import MOST_CHARACTERS, MOST_WRITTEN, check_size
from shardviz.notation.letters import Letter, Piece, letters_of, text_of
from shardviz.notation.mesh import DeviceMesh, read_jax_mesh
from shardviz.notation.record import NOTATIONS, WRITERS, Sharding
from shardviz.notation.scan import Scanner, unescaped
from shardviz.notation.spec import Spec

_ATTRIBUTE = re.compile(r"\{?\s*(?:sdy\.|mhlo\.)?sharding\s*=\s*(?=[\"{#<\[])")
"""The prefix of a sharding copied from a program: `sharding={...}`, `{sdy.sharding = #sdy.sharding<...>}`."""


def sharding(anything: Any, mesh: Any = None, rank: int | None = None) -> Sharding:
    """Read a sharding in any notation.

    Args:
        anything: a PartitionSpec or a tuple such as `("data", None)`; text of a PartitionSpec, of HLO (V1, V2, V3) or
            of Shardy, the short `[data, ·]`, the scaling book's `A[I_data, J]`; an `OpSharding`, its serialized bytes,
            or an `HloSharding`; Shardy's attributes, and JAX's `SdyArray`; any `jax.sharding.Sharding`, or an object
            that has one (`jax.Array`); a `notation.pmap.ShardingSpec`; a `Sharding` record.
        mesh: a mesh in any form that `DeviceMesh.of` reads. Not needed if the sharding contains its mesh; a record or a
            `NamedSharding` is then mapped to this mesh by axis names.
        rank: the array's number of dimensions; dimensions that are not named are not sharded.

    Returns:
        The record.

    Raises:
        ParseError: for text or bytes that are not a sharding.
        SpecError: for a sharding that does not fit the mesh or the rank.
        MeshError: if there is no mesh, or `mesh` does not describe one.

    Examples:
        >>> import shardviz as sv
        >>> sv.sharding("{devices=[4,1,2]<=[8] last_tile_dim_replicate}", "data=4,model=2").to("pspec")
        P('data', None)
    """
    if rank is not None and (isinstance(rank, bool) or not isinstance(rank, int) or rank < 0):
        raise SpecError(f"sharding: rank must be a whole number of dimensions, 0 or more, not {rank!r}")
    record = _read(anything, None if mesh is None else DeviceMesh.of(mesh), rank)
    return record if rank is None else record.with_rank(rank)


def _read(value: Any, mesh: DeviceMesh | None, rank: int | None) -> Sharding:
    if isinstance(value, Sharding):
        return value if mesh is None or mesh == value.mesh else value.over(mesh)
    if isinstance(value, str):
        return _read_text(value, mesh, rank)
    if isinstance(value, pmap.ShardingSpec):
        return value.to_sharding(mesh)
    if isinstance(value, Spec):  # its entries may be of any type
        sets = (Spec.of((axes,)).axes for axes in (value.unreduced, value.reduced))
        value = Spec(Spec.of(value.dims).dims, *sets, unreduced_kind=value.unreduced_kind)
    if value is None or isinstance(value, Spec | tuple | list) or pspec.is_pspec(value):
        return pspec.from_entries(value, _needed(mesh, value), rank)
    return _from_object(value, mesh, rank)


def _read_text(text: str, mesh: DeviceMesh | None, rank: int | None) -> Sharding:
    check_size(text, MOST_CHARACTERS, "sharding", "characters")
    plain = text.strip()
    if attribute := _ATTRIBUTE.match(plain):
        plain = plain[attribute.end() :].removesuffix("}" if plain.startswith("{") else "").strip()
        if plain[:1] == plain[-1:] == '"':
            plain = unescaped(plain[1:-1])
    if plain.startswith("{"):
        return hlo.read(plain, mesh, rank)
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
    if (sharding := short.read_book(plain, mesh)) is not None:
        return sharding
    raise ParseError(
        f"sharding {excerpt(plain)!r}: expected P('data', None), [data, ·], A[I_data, J], HLO text in braces such as "
        '{devices=[2,4]<=[8]}, or #sdy.sharding<@mesh, [{"data"}, {}]>'
    )


def _printed(text: str, mesh: DeviceMesh | None, rank: int | None) -> Sharding:
    """Read the text of a printed `NamedSharding`. It lacks the device order, so a `mesh` argument takes precedence."""
    scan = Scanner(text, "sharding")
    scan.need("NamedSharding(")
    scan.need("mesh=")
    own = read_jax_mesh(scan)
    scan.need(",")
    scan.need("spec=")
    spec, memory, _ = scan.text[scan.at :].rpartition(", memory_kind=")
    spec = spec if memory else scan.text[scan.at :].removesuffix(")")
    if not scan.text.endswith(")") or not pspec.looks_like(spec):
        scan.fail("a PartitionSpec, then at most memory_kind, and ')'")
    if mesh is not None and (mesh.names, mesh.sizes) != (own.names, own.sizes) and own.names:
        raise SpecError(f"{scan.subject}: it is over the mesh {own}, not {mesh}; leave out the mesh, or give that one")
    if mesh is not None:  # the device order of `mesh`, with the printed axis types
        own = replace(mesh, types=own.types or mesh.types)
    return pspec.read(spec.strip(), own, rank)


def _needed(mesh: DeviceMesh | None, value: Any) -> DeviceMesh:
    if mesh is None:
        raise MeshError(f"{excerpt(str(value))}: its axes have no sizes; give a mesh, such as mesh='data=8,model=4'")
    return mesh


def _hlo_text(value: Any) -> str | None:
    """Return the HLO text of a serialized `OpSharding`, an `OpSharding` or an `HloSharding`; None for other objects."""
    if hasattr(value, "tile_assignment_devices"):
        if hasattr(value, "to_proto"):  # an HloSharding, whose text lacks the reduction of partial results in tiles
            if str(value).startswith("{mesh["):
                return str(value)
            value = value.to_proto()
        value = value.SerializeToString()
    return proto.hlo_text(bytes(value)) if isinstance(value, bytes | bytearray | memoryview) else None


def _from_object(value: Any, mesh: DeviceMesh | None, rank: int | None) -> Sharding:
    """Read a JAX object, recognized by its attributes; its own mesh determines the device order, if it has one."""
    if (text := _hlo_text(value)) is not None:
        return hlo.read(text, mesh, rank)
    if hasattr(value, "dim_shardings") and hasattr(value, "mesh_shape"):  # SdyArray
        return sdy.from_jax(value, mesh, rank)
    if hasattr(value, "context") and str(value).startswith("#sdy.sharding"):  # an attribute of MLIR
        return sdy.read(str(value), mesh, rank)
    if (hasattr(value, "spec") and hasattr(value, "mesh")) or hasattr(value, "device_set"):
        return _from_jax_sharding(value, mesh, rank)
    inner = getattr(value, "sharding", None)
    shape = getattr(value, "shape", None)
    if inner is not None and isinstance(shape, tuple) and not isinstance(value, type):
        return _read(inner, mesh, len(shape) if rank is None else rank).with_rank(len(shape))
    raise SpecError(
        f"sharding: expected a PartitionSpec, text such as '[data, ·]' or '{{devices=[2,4]<=[8]}}', an OpSharding or a "
        f"jax Sharding, not {type(value).__name__}"
    )


def _from_jax_sharding(jax_sharding: Any, mesh: DeviceMesh | None, rank: int | None) -> Sharding:
    if hasattr(jax_sharding, "spec") and hasattr(jax_sharding, "mesh"):  # NamedSharding
        own = DeviceMesh.of(jax_sharding.mesh)
        if mesh is not None and not own.names:
            return pspec.from_entries(jax_sharding.spec, mesh, rank)
        sharding = pspec.from_entries(jax_sharding.spec, own, rank)
        same_axes = mesh is None or (mesh.names, mesh.sizes) == (own.names, own.sizes)
        return sharding if mesh is None or (same_axes and own.device_ids) else sharding.over(mesh)
    from shardviz import _jax

    ids = _jax.device_ids(jax_sharding)
    if len(ids) == 1:  # SingleDeviceSharding
        if mesh is None:
            return Sharding.from_spec(Spec(), DeviceMesh((), (), (), ids), rank)
        where = mesh.ids().tolist()
        if ids[0] not in where:
            raise SpecError(f"{jax_sharding}: the mesh {mesh} has no device {ids[0]}")
        return Sharding.on_one(where.index(ids[0]), mesh, rank)
    text = _jax.hlo_sharding_of(jax_sharding, rank)
    if text is None:
        raise SpecError(f"{type(jax_sharding).__name__}: it has neither a spec nor an HLO sharding")
    own = DeviceMesh(("devices",), (len(ids),), (), ids)
    sharding = hlo.read(text, own, rank)
    if mesh is None:
        return sharding
    order = {device: place for place, device in enumerate(mesh.ids().tolist())}
    if set(ids) != set(order):
        raise SpecError(f"{jax_sharding}: its devices are not those of the mesh {mesh}")
    return sharding.onto(mesh, tuple(order[device] for device in ids))


@dataclass(frozen=True)
class Notation:
    """A writer of text in pieces with meanings, and a constructor of the notation's object if it has one. Both raise
    SpecError if the notation cannot express a record. `knows_unknown` is whether the notation can write a sharding that
    the compiler did not state."""

    write: Callable[[Sharding], Iterable[Piece]]
    make: Callable[[Sharding], Any] | None = None
    knows_unknown: bool = False


_TABLE = {
    "pspec": Notation(pspec.write, pspec.make),
    "short": Notation(short.write),
    "book": Notation(short.write_book),
    "hlo-v1": Notation(hlo.write_v1, knows_unknown=True),
    "hlo-v2": Notation(hlo.write_v2, knows_unknown=True),
    "hlo-v3": Notation(hlo.write_v3, knows_unknown=True),
    "proto": Notation(proto.write, proto.make, knows_unknown=True),
    "sdy": Notation(sdy.write),
    "pmap": Notation(pmap.write, pmap.from_sharding),
}


@dataclass(frozen=True)
class NotationRow:
    """A sharding in one of `NOTATIONS`: the text, its pieces and their meanings; or None, and why it has no text."""

    notation: str
    text: str | None
    why: str = ""
    letters: tuple[Letter, ...] = ()
    pieces: tuple[Piece, ...] = field(default=(), repr=False)


def rosetta(sharding: Sharding) -> tuple[NotationRow, ...]:
    """Write a sharding in every notation: a row for each of `NOTATIONS`, in that order."""
    rows = []
    for notation in NOTATIONS:
        try:
            pieces = _pieces(notation, sharding)
        except SpecError as error:
            rows.append(NotationRow(notation, None, str(error)))
        else:
            rows.append(NotationRow(notation, text_of(pieces), "", letters_of(pieces), tuple(pieces)))
    return tuple(rows)


def _pieces(notation: str, sharding: Sharding) -> list[Piece]:
    _check_known(notation, sharding)
    return list(_TABLE[notation].write(sharding))


def _object_or_text(notation: str, sharding: Sharding) -> Any:
    make = _TABLE[notation].make
    if make is None:
        return text_of(_pieces(notation, sharding))
    _check_known(notation, sharding)
    return make(sharding)


def _check_known(notation: str, sharding: Sharding) -> None:
    if sharding.unknown and not _TABLE[notation].knows_unknown:
        raise SpecError(f"unknown sharding: the compiler did not state it, and {notation} cannot write that")


WRITERS.update({notation: partial(_object_or_text, notation) for notation in NOTATIONS})
