"""XLA's `OpSharding` message, read and written from its bytes, so that no JAX is needed for it.

>>> mesh = DeviceMesh.of({"data": 2, "model": 4})
>>> from shardviz.notation.spec import Spec
>>> data = encode(Sharding.from_spec(Spec.of(("data", None)), mesh))
>>> data.hex(), str(decode(data, mesh))
('08031a0302010430014a0108520100', '[data, ·]')

The fields are those of `message OpSharding` in XLA's `xla_data.proto`; numbers are packed varints.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from shardviz.errors import ParseError, SpecError
from shardviz.notation.hlo_text import over, short, with_known_rank
from shardviz.notation.mesh import DeviceMesh
from shardviz.notation.named import MOST_DEVICES, build
from shardviz.notation.record import Sharding
from shardviz.notation.spec import Axis
from shardviz.notation.tiling import Tiling, iota_of

TYPES = ("replicated", "maximal", "tuple", "other", "manual", "unknown", "unreduced")
_TYPE, _DIMS, _DEVICES, _TUPLE, _COPIES = 1, 3, 4, 5, 6
_LAST, _RESHAPE, _TRANSPOSE, _NAMED = 8, 9, 10, 14
_AXIS_LISTS = {4: "replicated", 5: "unreduced", 7: "manual"}
_IGNORED = (7, 11, 12, 13)  # metadata, and shard groups, which tie arrays together but cut none
_LISTS = (_DIMS, _DEVICES, _LAST, _RESHAPE, _TRANSPOSE)


def decode(data: bytes, mesh: DeviceMesh | None, rank: int | None = None) -> Sharding:
    """Reads a serialized `OpSharding`.

    Args:
        data: the message's bytes.
        mesh: the mesh to say it in; None for one axis `devices`.
        rank: the array's rank, where known.

    Raises:
        ParseError: if it is no such message.
        SpecError: if it is a tuple's, or does not fit the mesh.
        MeshError: if it says no mesh and none is given.
    """
    lists: dict[int, list[int]] = {number: [] for number in _LISTS}
    kind = copies = 0
    for number, value in _fields(data):
        if number in _LISTS:
            lists[number].extend([value] if isinstance(value, int) else _varints(value))
        elif number == _TYPE and isinstance(value, int):
            kind = value
        elif number == _COPIES and isinstance(value, int):
            copies = value
        elif number == _NAMED and isinstance(value, bytes):
            return _named(value, mesh, rank)
        elif number == _TUPLE:
            raise SpecError("OpSharding: this is a tuple's; pick one of its tuple_shardings, for one array at a time")
        elif number not in _IGNORED:
            raise ParseError(f"OpSharding: field {number} is none that is known here, so what it says cannot be told")
    if not 0 <= kind < len(TYPES):
        raise ParseError(f"OpSharding: type {kind} is none of 0 to {len(TYPES) - 1}, {', '.join(TYPES)}")
    word = TYPES[kind]
    if word == "tuple":
        raise SpecError("OpSharding: this is a tuple's; pick one of its tuple_shardings, for one array at a time")
    if word == "maximal":
        if len(lists[_DEVICES]) != 1:
            raise ParseError(f"OpSharding: MAXIMAL has one device, not {len(lists[_DEVICES])}")
        device = lists[_DEVICES][0]
        return Sharding.on_one(device, over(mesh, device + 1) if device < MOST_DEVICES else over(mesh, 1), rank)
    if word != "other":
        return short(word, mesh, rank, f"OpSharding of type {word.upper()}")
    return _tiled(lists, bool(copies), mesh)


def _tiled(lists: dict[int, list[int]], copies: bool, mesh: DeviceMesh | None) -> Sharding:
    dims = tuple(lists[_DIMS])
    if len(dims) > 32 or math.prod(dims) > MOST_DEVICES or 0 in dims:
        raise ParseError(f"OpSharding: tile_assignment_dimensions {dims[:33]} are not of 1 to {MOST_DEVICES} tiles")
    devices = tuple(lists[_DEVICES])
    if lists[_RESHAPE]:
        if devices:
            raise ParseError("OpSharding: tile_assignment_devices and iota_reshape_dims are given, of which one is")
        devices = _iota(lists[_RESHAPE], lists[_TRANSPOSE])
    kinds = tuple(TYPES[k] if 0 <= k < len(TYPES) else str(k) for k in lists[_LAST])
    if copies:
        if kinds:
            raise ParseError("OpSharding: replicate_on_last_tile_dim and last_tile_dims are given, of which one is")
        kinds = ("replicated",)
    return Sharding.from_tiling(Tiling(dims, kinds, devices), over(mesh, len(devices)))


def _iota(reshape: list[int], order: list[int]) -> tuple[int, ...]:
    order = order or list(range(len(reshape)))
    sound = len(reshape) <= 32 and sorted(order) == list(range(len(reshape))) and math.prod(reshape) <= MOST_DEVICES
    if not sound or 0 in reshape:
        raise ParseError(
            f"OpSharding: iota_reshape_dims {reshape[:33]} with iota_transpose_perm {order[:33]} make no devices"
        )
    return tuple(np.arange(math.prod(reshape)).reshape(reshape).transpose(order).ravel().tolist())


def _named(data: bytes, mesh: DeviceMesh | None, rank: int | None) -> Sharding:
    """A V3 sharding: its own mesh (2), dimensions (3), and the lists of axes."""
    theirs: tuple[DeviceMesh, tuple[int, ...]] = DeviceMesh((), ()), ()
    parts: list[tuple[int, bytes]] = []
    for number, value in _fields(data):
        if not isinstance(value, bytes):
            raise ParseError(f"OpSharding: field {number} of its named sharding is no message")
        if number == 2:
            theirs = _mesh(value)
        elif number in (3, *_AXIS_LISTS):
            parts.append((number, value))
        elif number != 6:  # metadata
            raise ParseError(f"OpSharding: field {number} of its named sharding is none that is known here")
    own, devices = theirs
    dims: list[tuple[tuple[Axis, ...], bool, int | None]] = []
    lists: dict[str, tuple[Axis, ...]] = {}
    for number, value in parts:
        if number == 3:
            axes = tuple(_axis(v, own) for n, v in _fields(value) if n == 1 and isinstance(v, bytes))
            dims.append((axes, not any(n == 2 and v == 1 for n, v in _fields(value)), None))
        else:
            kind = _AXIS_LISTS[number]
            lists[kind] = (*lists.get(kind, ()), _axis(value, own))
    return with_known_rank(build(own, devices, dims, lists, mesh), rank)


def _mesh(data: bytes) -> tuple[DeviceMesh, tuple[int, ...]]:
    names: list[str] = []
    sizes: list[int] = []
    devices: list[int] = []
    for number, value in _fields(data):
        if number == 2:
            devices.extend([value] if isinstance(value, int) else _varints(value))
        elif number == 3 and isinstance(value, bytes):
            packed = {n: list(_varints(v)) for n, v in _fields(value) if isinstance(v, bytes)}
            devices.extend(_iota(packed.get(1, []), packed.get(2, [])))
        elif number == 1 and isinstance(value, bytes):
            axis = dict(_fields(value))
            name, size = axis.get(1, b""), axis.get(2, 0)
            if not isinstance(name, bytes) or not isinstance(size, int):
                raise ParseError("OpSharding: an axis of its mesh has a name and a size")
            names.append(name.decode("utf-8", "replace"))
            sizes.append(size)
        else:
            raise ParseError(f"OpSharding: field {number} of its mesh is none that is known here")
    if math.prod(sizes) > MOST_DEVICES:
        raise ParseError(f"OpSharding: its mesh has more than {MOST_DEVICES} devices")
    return DeviceMesh(tuple(names), tuple(sizes)), tuple(devices)


def _axis(data: bytes, mesh: DeviceMesh) -> Axis:
    """An axis by its number in the mesh (1), and its part (2): the product of the sizes before it, and its size."""
    fields = dict(_fields(data))
    number, part = fields.get(1, 0), fields.get(2)
    if not isinstance(number, int) or number >= len(mesh.names) or isinstance(part, int):
        raise ParseError(f"OpSharding: an axis reference is no number of the {len(mesh.names)} axes of its mesh")
    name = mesh.names[number]
    if part is None:
        return name
    sizes = dict(_fields(part))
    before, size = sizes.get(1, 0), sizes.get(2, 0)
    if isinstance(before, bytes) or isinstance(size, bytes):
        raise ParseError("OpSharding: a part of an axis has two numbers")
    return name, before, size


def encode(cut: Sharding) -> bytes:
    """A record as a serialized `OpSharding`, its devices as an iota where they are one.

    Raises:
        SpecError: where the message has no field for it.
    """
    if cut.unknown:
        return _number(_TYPE, TYPES.index("unknown"))
    if cut.maximal is not None:
        return _number(_TYPE, TYPES.index("maximal")) + _packed(_DEVICES, [cut.maximal])
    tiling = cut.tiling()
    if all(n == 1 for n in tiling.tiles) and len(tiling.kinds) <= 1:
        kind = tiling.kinds[0] if tiling.kinds else "replicated"
        return _number(_TYPE, TYPES.index(kind)) if kind != "replicated" else b""
    data = _number(_TYPE, TYPES.index("other")) + _packed(_DIMS, tiling.dims)
    iota = iota_of(tiling.devices)
    if iota is None:
        data += _packed(_DEVICES, tiling.devices)
    if tiling.kinds == ("replicated",):
        data += _number(_COPIES, 1)
    else:
        data += _packed(_LAST, [TYPES.index(kind) for kind in tiling.kinds])
    if iota is not None:
        data += _packed(_RESHAPE, iota[0]) + _packed(_TRANSPOSE, iota[1])
    return data


_NAMES = {
    _TYPE: "type",
    _DIMS: "tile_assignment_dimensions",
    _DEVICES: "tile_assignment_devices",
    _COPIES: "replicate_on_last_tile_dim",
    _LAST: "last_tile_dims",
    _RESHAPE: "iota_reshape_dims",
    _TRANSPOSE: "iota_transpose_perm",
}


def text_of(data: bytes) -> str:
    """A serialized `OpSharding` of an array's tiles as text, on one line."""
    fields = {number: [value] if isinstance(value, int) else list(_varints(value)) for number, value in _fields(data)}
    fields.setdefault(_TYPE, [0])
    parts = []
    for number in sorted(fields):
        values: list[int] | list[str] = fields[number]
        if number in (_TYPE, _LAST):
            values = [TYPES[v].upper() for v in fields[number]]
        if number == _COPIES:
            values = ["true"]
        listed = f"[{', '.join(map(str, values))}]" if number in _LISTS else str(values[0])
        parts.append(f"{_NAMES[number]}: {listed}")
    return " ".join(parts)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ParseError("OpSharding: the bytes end within a number, or it is longer than 64 bits")
        value |= (data[at] & 127) << shift
        at += 1
        if not data[at - 1] & 128:
            return (value if value < 1 << 63 else -1), at
        shift += 7


def _varints(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        value, at = _varint(data, at)
        if value < 0:
            raise ParseError("OpSharding: a negative number")
        yield value


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = _varint(data, at)
            if value < 0:
                raise ParseError("OpSharding: a negative number")
            yield number, value
        elif wire == 2:
            length, at = _varint(data, at)
            if length < 0 or at + length > len(data):
                raise ParseError(f"OpSharding: field {number} is longer than the message")
            yield number, data[at : at + length]
            at += length
        else:
            raise ParseError(f"OpSharding: these bytes are no such message (wire type {wire} in field {number})")


def _encoded(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _number(field: int, value: int) -> bytes:
    return _encoded(field << 3) + _encoded(value)


def _packed(field: int, values: Sequence[int]) -> bytes:
    data = b"".join(_encoded(v) for v in values)
    return _encoded(field << 3 | 2) + _encoded(len(data)) + data if data else b""
