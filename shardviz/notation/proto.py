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
from shardviz.notation.spec import Axis, only_sums
from shardviz.notation.tiling import Tiling, iota_of

TYPES = ("replicated", "maximal", "tuple", "other", "manual", "unknown", "unreduced")
_TYPE, _DIMS, _DEVICES, _TUPLE, _COPIES = 1, 3, 4, 5, 6
_LAST, _RESHAPE, _TRANSPOSE, _NAMED = 8, 9, 10, 14
REDUCTIONS = ("SUM", "MAX", "MIN")
_REDUCTION = 8
_AXIS_LISTS = {4: "replicated", 5: "unreduced", 7: "manual"}
_METADATA = 7
_IGNORED = (11, 12, 13)  # shard groups, which tie arrays together but cut none
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
    named = None
    for number, value in fields(data):
        if number in _LISTS:
            lists[number].extend([value] if isinstance(value, int) else varints(value))
        elif number == _TYPE and isinstance(value, int):
            kind = value
        elif number == _COPIES and isinstance(value, int):
            copies = value
        elif number == _METADATA and isinstance(value, bytes):
            _only_sums(value)
        elif number == _NAMED and isinstance(value, bytes):
            named = value
        elif number != _TUPLE and number not in _IGNORED:
            raise ParseError(f"OpSharding: field {number} is none that is known here, so what it says cannot be told")
    if not 0 <= kind < len(TYPES):
        raise ParseError(f"OpSharding: type {kind} is none of 0 to {len(TYPES) - 1}, {', '.join(TYPES)}")
    if parts(data) is not None:
        raise SpecError(
            "OpSharding: this is a tuple's; pick one of its tuple_shardings, for one array at a time, or read them all "
            "with notation.shardings"
        )
    if named is not None:
        return _named(named, mesh, rank)
    word = TYPES[kind]
    if word == "maximal":
        if len(lists[_DEVICES]) != 1:
            raise ParseError(f"OpSharding: MAXIMAL has one device, not {len(lists[_DEVICES])}")
        device = lists[_DEVICES][0]
        return Sharding.on_one(device, over(mesh, device + 1) if device < MOST_DEVICES else over(mesh, 1), rank)
    if word != "other":
        return short(word, mesh, rank, f"OpSharding of type {word.upper()}")
    return _tiled(lists, bool(copies), mesh)


def parts(data: bytes) -> tuple[bytes, ...] | None:
    """The shardings in a tuple's `OpSharding`, serialized; None for the sharding of one array.

    Raises:
        ParseError: if the bytes are no message.
    """
    found = [(number, value) for number, value in fields(data) if number in (_TYPE, _TUPLE)]
    if all(number != _TUPLE for number, _ in found) and (_TYPE, TYPES.index("tuple")) not in found:
        return None
    return tuple(value for number, value in found if number == _TUPLE and isinstance(value, bytes))


def encode_parts(shardings: Sequence[bytes]) -> bytes:
    """The `OpSharding` of a tuple of arrays, from each one's."""
    return field_bytes(_TYPE, TYPES.index("tuple")) + b"".join(field_bytes(_TUPLE, data) for data in shardings)


def _only_sums(metadata: bytes) -> None:
    """Raises for partial results of a kind other than sums, which newer XLA says in the metadata."""
    found = dict(fields(metadata))
    kind = found.get(2, b"")
    if found.get(1) == b"sdy::reduction_op" and kind != b"SUM":
        name = kind.decode("utf-8", "replace") if isinstance(kind, bytes) else str(kind)
        only_sums(name, "OpSharding")


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
    """A V3 sharding: its own mesh (2), dimensions (3), metadata (6), how partial results are reduced (8), axes."""
    theirs: tuple[DeviceMesh, tuple[int, ...]] = DeviceMesh((), ()), ()
    found: list[tuple[int, bytes]] = []
    for number, value in fields(data):
        if number == _REDUCTION and isinstance(value, int):
            only_sums(REDUCTIONS[value] if value < len(REDUCTIONS) else str(value), "OpSharding")
            continue
        if not isinstance(value, bytes):
            raise ParseError(f"OpSharding: field {number} of its named sharding is no message")
        if number == 2:
            theirs = _mesh(value)
        elif number in (3, *_AXIS_LISTS):
            found.append((number, value))
        elif number == 6:
            _only_sums(value)
        else:
            raise ParseError(f"OpSharding: field {number} of its named sharding is none that is known here")
    own, devices = theirs
    dims: list[tuple[tuple[Axis, ...], bool, int | None]] = []
    lists: dict[str, tuple[Axis, ...]] = {}
    for number, value in found:
        if number == 3:
            axes = tuple(_axis(v, own) for n, v in fields(value) if n == 1 and isinstance(v, bytes))
            dims.append((axes, not any(n == 2 and v == 1 for n, v in fields(value)), None))
        else:
            kind = _AXIS_LISTS[number]
            lists[kind] = (*lists.get(kind, ()), _axis(value, own))
    return with_known_rank(build(own, devices, dims, lists, mesh), rank)


def _mesh(data: bytes) -> tuple[DeviceMesh, tuple[int, ...]]:
    names: list[str] = []
    sizes: list[int] = []
    devices: list[int] = []
    for number, value in fields(data):
        if number == 2:
            devices.extend([value] if isinstance(value, int) else varints(value))
        elif number == 3 and isinstance(value, bytes):
            packed = {n: list(varints(v)) for n, v in fields(value) if isinstance(v, bytes)}
            devices.extend(_iota(packed.get(1, []), packed.get(2, [])))
        elif number == 1 and isinstance(value, bytes):
            axis = dict(fields(value))
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
    found = dict(fields(data))
    number, part = found.get(1, 0), found.get(2)
    if not isinstance(number, int) or number >= len(mesh.names) or isinstance(part, int):
        raise ParseError(f"OpSharding: an axis reference is no number of the {len(mesh.names)} axes of its mesh")
    name = mesh.names[number]
    if part is None:
        return name
    sizes = dict(fields(part))
    before, size = sizes.get(1, 0), sizes.get(2, 0)
    if isinstance(before, bytes) or isinstance(size, bytes):
        raise ParseError("OpSharding: a part of an axis has two numbers")
    return name, before, size


def encode(cut: Sharding) -> bytes:
    """A record as a serialized `OpSharding`, its devices as an iota where they are one.

    Raises:
        SpecError: where the message has no field for it.
    """
    if cut.kind == "replicated":
        return b""
    if cut.maximal is not None:
        return field_bytes(_TYPE, TYPES.index("maximal")) + _packed(_DEVICES, [cut.maximal])
    if cut.kind != "other":
        return field_bytes(_TYPE, TYPES.index(cut.kind))
    tiling = cut.tiling()
    data = field_bytes(_TYPE, TYPES.index("other")) + _packed(_DIMS, tiling.dims)
    iota = iota_of(tiling.devices)
    if iota is None:
        data += _packed(_DEVICES, tiling.devices)
    if tiling.kinds == ("replicated",):
        data += field_bytes(_COPIES, 1)
    else:
        data += _packed(_LAST, [TYPES.index(kind) for kind in tiling.kinds])
    if iota is not None:
        data += _packed(_RESHAPE, iota[0]) + _packed(_TRANSPOSE, iota[1])
    return data


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


def varints(data: bytes) -> Iterator[int]:
    """The numbers of a packed field."""
    at = 0
    while at < len(data):
        value, at = _varint(data, at)
        if value < 0:
            raise ParseError("OpSharding: a negative number")
        yield value


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a serialized message, in their order: number and value.

    Raises:
        ParseError: if the bytes are no message.
    """
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


def field_bytes(field: int, value: int | bytes) -> bytes:
    """A field of a message, serialized: a number, or the bytes of text or of a message."""
    if isinstance(value, int):
        return _encoded(field << 3) + _encoded(value)
    return _encoded(field << 3 | 2) + _encoded(len(value)) + value


def _packed(field: int, values: Sequence[int]) -> bytes:
    data = b"".join(_encoded(v) for v in values)
    return _encoded(field << 3 | 2) + _encoded(len(data)) + data if data else b""
