"""XLA's `OpSharding` message: its bytes, and what `print` shows of it, read with no JAX and no protobuf.

>>> mesh = DeviceMesh.of({"data": 2, "model": 4})
>>> shown = '''type: OTHER
... tile_assignment_dimensions: 2
... tile_assignment_dimensions: 4
... iota_reshape_dims: 8
... iota_transpose_perm: 0
... '''
>>> cut = read(from_text(shown), mesh)
>>> print("".join(piece if isinstance(piece, str) else piece.piece for piece in write(cut)))
type: OTHER tile_assignment_dimensions: [2, 4] iota_reshape_dims: [8] iota_transpose_perm: [0]
>>> read(from_bytes(bytes.fromhex("08031a0202044a0108520100")), mesh) == cut
True

The fields are those of `OpSharding` and `NamedShardingProto` in XLA's `xla_data.proto`; the formats are protobuf's own.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

from shardviz.errors import ParseError, SpecError
from shardviz.notation.bounds import (
    MOST_AXES,
    MOST_CHARACTERS,
    MOST_DEVICES,
    MOST_DIMENSIONS,
    MOST_FIELDS,
    check_size,
)
from shardviz.notation.hlo import (
    REDUCTION,
    TYPE_WORDS,
    check_tiled,
    copies_words,
    devices_words,
    groups_words,
    in_a_word,
    in_numbers,
    needed,
    of_kind,
    on_places,
    reshape_words,
    tiles_words,
    transpose_words,
    write_v1,
    write_v2,
)
from shardviz.notation.letters import Letter, Piece, text_of
from shardviz.notation.mesh import DeviceMesh
from shardviz.notation.named import WrittenDimension, build
from shardviz.notation.record import Sharding
from shardviz.notation.scan import Scanner, iota, iota_of
from shardviz.notation.spec import Axis, partial_kind
from shardviz.notation.tiling import Tiling

Message = dict[str, list[Any]]
"""A message: field → its values, which are numbers, text or messages."""

TYPES = ("replicated", "maximal", "tuple", "other", "manual", "unknown", "unreduced")
_TYPE = {word.upper(): number for number, word in enumerate(TYPES)}
_BOOL = {"true": 1, "false": 0}
_REDUCTIONS = {"SUM": 0, "MAX": 1, "MIN": 2}
_Kind = type | dict[str, int] | str
_MESSAGES: dict[str, dict[str, tuple[int, _Kind]]] = {  # message → field → its number and kind
    "OpSharding": {
        "type": (1, _TYPE),
        "tile_assignment_dimensions": (3, int),
        "tile_assignment_devices": (4, int),
        "tuple_shardings": (5, "OpSharding"),
        "replicate_on_last_tile_dim": (6, _BOOL),
        "metadata": (7, "OpMetadata"),
        "last_tile_dims": (8, _TYPE),
        "iota_reshape_dims": (9, int),
        "iota_transpose_perm": (10, int),
        "is_shard_group": (11, _BOOL),  # shard groups tie arrays together, and cut none
        "shard_group_id": (12, int),
        "shard_group_type": (13, {"AS": 0, "LIKE": 1}),
        "named_sharding": (14, "named_sharding"),
    },
    "OpMetadata": {"op_type": (1, str), "op_name": (2, str)},  # its other fields are passed over
    "named_sharding": {
        "mesh": (2, "mesh"),
        "dim_shardings": (3, "dim_shardings"),
        "replicated_axes": (4, "axes"),
        "unreduced_axes": (5, "axes"),
        "metadata": (6, "OpMetadata"),
        "manual_axes": (7, "axes"),
        "reduction_op": (8, _REDUCTIONS),
    },
    "mesh": {"axes": (1, "mesh.axes"), "device_ids": (2, int), "iota_transform": (3, "iota_transform")},
    "mesh.axes": {"name": (1, str), "size": (2, int)},
    "iota_transform": {"reshape_dims": (1, int), "transpose_perm": (2, int)},
    "dim_shardings": {"axes": (1, "axes"), "is_closed": (2, _BOOL)},
    "axes": {"mesh_axis_index": (1, int), "sub_axis_info": (2, "sub_axis_info")},
    "sub_axis_info": {"pre_size": (1, int), "size": (2, int)},
}
_SINGLE = {"type", "replicate_on_last_tile_dim", "is_shard_group", "shard_group_id", "shard_group_type", "reduction_op"}
_SINGLE |= {"size", "is_closed", "mesh_axis_index", "pre_size"}
_DEEPEST = 8
_SEPARATORS = re.compile(r"[,;\s]++")
_ESCAPE = re.compile(rb"\\(?:([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|(.))", re.DOTALL)
_DEBUG = re.compile(r"\s*+goo\.gle/debug\w*+")  # protobuf puts this in front, so that nobody relies on the rest
_FIRST = re.compile(rf"(?:{'|'.join(_MESSAGES['OpSharding'])})\s*+[:{{<\[]")


# From bytes


def from_bytes(data: bytes) -> Message:
    """A serialized `OpSharding`; a `ParseError` for other bytes, and for a field that is not known here, so that what
    it says is not known."""
    check_size(data, MOST_CHARACTERS, "OpSharding", "bytes")
    return _from_bytes(data, "OpSharding", 0, itertools.count())


def _from_bytes(data: bytes, message: str, depth: int, counter: Iterator[int]) -> Message:
    if depth > _DEEPEST:
        raise ParseError(f"OpSharding: messages more than {_DEEPEST} deep")
    by_number = {number: (name, kind) for name, (number, kind) in _MESSAGES[message].items()}
    parsed: Message = {}
    numbers: dict[str, list[int | bytes]] = {}
    for number, value in fields(data):
        if next(counter) >= MOST_FIELDS:
            raise ParseError(f"OpSharding: more than {MOST_FIELDS} fields")
        if number not in by_number:
            if message == "OpMetadata":
                continue
            raise ParseError(
                f"OpSharding: field {number} of {message} is none that is known here, so what it says cannot be told"
            )
        name, kind = by_number[number]
        if isinstance(kind, str) and isinstance(value, bytes):
            parsed.setdefault(name, []).append(_from_bytes(value, kind, depth + 1, counter))
        elif kind is str and isinstance(value, bytes):
            parsed.setdefault(name, []).append(value.decode("utf-8", "replace"))
        elif isinstance(kind, str) or kind is str or (isinstance(value, bytes) and name in _SINGLE):
            raise ParseError(f"OpSharding: {name} of {message} is of another kind")
        elif isinstance(value, bytes) and value[-1:] > b"\x7f":
            raise ParseError("OpSharding: the bytes end within a number")
        else:
            numbers.setdefault(name, []).append(value)
    return parsed | {name: _joined(parts) for name, parts in numbers.items()}


def _joined(parts: Sequence[int | bytes]) -> list[int]:
    """The numbers of a field that stands several times, singly or as packed lists; lists side by side at once."""
    values: list[int] = []
    for _, group in itertools.groupby(parts, type):
        some = [*group]
        singles = [part for part in some if isinstance(part, int)]
        values += singles or _varints(b"".join(part for part in some if isinstance(part, bytes)))
    return values


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a serialized message, number and value, in their order; a `ParseError` where the bytes are none."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield number, value
        elif wire == 2:
            length, at = _varint(data, at)
            if at + length > len(data):
                raise ParseError(f"OpSharding: field {number} is longer than the message")
            yield number, data[at : at + length]
            at += length
        else:
            raise ParseError(f"OpSharding: these bytes are no such message (wire type {wire} in field {number})")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ParseError("OpSharding: the bytes end within a number, or it is longer than 64 bits")
        value |= (data[at] & 127) << shift
        at += 1
        if not data[at - 1] & 128:
            break
        shift += 7
    if value >= 1 << 63:
        raise ParseError("OpSharding: a negative number")
    return value, at


def _varints(data: bytes) -> list[int]:
    """The numbers of a packed list."""
    values: list[int] = []
    at = 0
    while at < len(data):
        value, at = _varint(data, at)
        values.append(value)
        check_size(values, MOST_DEVICES, "OpSharding", "numbers")
    return values


# From text


def looks_like(text: str) -> bool:
    """Whether text is meant as a printed `OpSharding`."""
    return _DEBUG.match(text) is not None or _FIRST.match(text) is not None


def from_text(text: str) -> Message:
    """A printed `OpSharding`; a `ParseError` for other text."""
    prefix = _DEBUG.match(text)
    it = Scanner(text[prefix.end() if prefix else 0 :], "OpSharding text")
    message = _read_message(it, "OpSharding", "", 0, itertools.count())
    it.end()
    return message


def _read_message(it: Scanner, message: str, close: str, depth: int, counter: Iterator[int]) -> Message:
    if depth > _DEEPEST:
        it.fail(f"messages at most {_DEEPEST} deep")
    kinds, parsed = _MESSAGES[message], Message()
    it.takes(_SEPARATORS)
    while not it.take(close) if close else it.at < len(it.text):
        if next(counter) >= MOST_FIELDS:
            it.fail(f"at most {MOST_FIELDS} fields")
        name = it.word()
        if name not in kinds and message == "OpMetadata":
            it.take(":")
            it.balanced() if it.sees("{") else it.scalar()
            it.takes(_SEPARATORS)
            continue
        if name not in kinds:
            it.refuse(f"a field of {message} ({', '.join(kinds)})")
        kind = kinds[name][1]
        colon = it.take(":")
        values = parsed.setdefault(name, [])
        if kind is int and it.sees("["):
            values.extend(it.integers())
        elif it.take("["):
            values.extend(it.listed(lambda kind=kind: _read_value(it, kind, depth, True, counter), "]", MOST_FIELDS))
        else:
            values.append(_read_value(it, kind, depth, colon, counter))
        it.takes(_SEPARATORS)
    return parsed


def _read_value(it: Scanner, kind: _Kind, depth: int, colon: bool, counter: Iterator[int]) -> Any:
    if isinstance(kind, str):
        close = "}" if it.take("{") else ">"
        if close == ">":
            it.need("<")
        return _read_message(it, kind, close, depth + 1, counter)
    if not colon:
        it.fail("':'")
    if kind is int:
        return it.integer()
    text = it.scalar()
    if isinstance(kind, dict):
        if text.isascii() and text.isdecimal() and len(text) < 3:
            return int(text)
        if text not in kind:
            it.refuse(", ".join(kind))
        return kind[text]
    if text[0] not in "'\"":
        it.refuse("text in quotes")
    return _ESCAPE.sub(_unescaped, text[1:-1].encode()).decode("utf-8", "replace")


def _unescaped(escape: re.Match[bytes]) -> bytes:
    if escape[1]:
        return bytes([int(escape[1], 8) & 255])
    return (
        bytes([int(escape[2], 16)]) if escape[2] else {b"n": b"\n", b"t": b"\t", b"r": b"\r"}.get(escape[3], escape[3])
    )


# What a message says


def _last(message: Message, name: str) -> int:
    return message.get(name, [0])[-1]


def read(message: Message, mesh: DeviceMesh | None, rank: int | None = None) -> Sharding:
    """The record of an `OpSharding`, in a mesh, or over one axis `devices`. A `ParseError` where its fields contradict
    each other, a `SpecError` for a tuple's or what does not fit the mesh, a `MeshError` where nothing says a mesh."""
    kind = _last(message, "type")
    if not 0 <= kind < len(TYPES):
        raise ParseError(f"OpSharding: type {kind} is none of 0 to {len(TYPES) - 1}, {', '.join(TYPES)}")
    if "tuple_shardings" in message or TYPES[kind] == "tuple":
        raise SpecError("OpSharding: this is a tuple's; pick one of its tuple_shardings, for one array at a time")
    if "named_sharding" in message:
        return _read_named(message["named_sharding"][-1], mesh, rank)
    return _read_plain(message, kind, mesh, rank).with_kind(_partial_kind(message))


def _read_plain(message: Message, kind: int, mesh: DeviceMesh | None, rank: int | None) -> Sharding:
    devices = tuple(message.get("tile_assignment_devices", ()))
    if TYPES[kind] == "maximal":
        if len(devices) != 1:
            raise ParseError(f"OpSharding: MAXIMAL has one device, not {len(devices)}")
        mesh = mesh or DeviceMesh(("devices",), (min(devices[0] + 1, MOST_DEVICES),))
        return Sharding.on_one(mesh.places_of(devices)[0], mesh, rank)
    if TYPES[kind] != "other":
        return in_a_word(TYPES[kind], needed(mesh, f"OpSharding of type {TYPES[kind].upper()}"), rank)
    return on_places(_read_tiles(message, devices), mesh)


def _read_tiles(message: Message, devices: tuple[int, ...]) -> Tiling:
    dims = tuple(message.get("tile_assignment_dimensions", ()))
    check_size(dims, MOST_DIMENSIONS, "OpSharding", "tile_assignment_dimensions")
    if math.prod(dims) > MOST_DEVICES or 0 in dims:
        raise ParseError(f"OpSharding: tile_assignment_dimensions {dims} are not of 1 to {MOST_DEVICES} tiles")
    if "iota_reshape_dims" in message:
        if devices:
            raise ParseError("OpSharding: tile_assignment_devices and iota_reshape_dims are given, of which one is")
        devices = _iota(message["iota_reshape_dims"], message.get("iota_transpose_perm", []))
    check_size(message.get("last_tile_dims", ()), MOST_DIMENSIONS, "OpSharding", "last_tile_dims")
    kinds = tuple(TYPES[k] if k < len(TYPES) else str(k) for k in message.get("last_tile_dims", ()))
    if _last(message, "replicate_on_last_tile_dim"):
        if kinds:
            raise ParseError("OpSharding: replicate_on_last_tile_dim and last_tile_dims are given, of which one is")
        kinds = ("replicated",)
    return Tiling(dims, kinds, devices)


def _iota(reshape: list[int], order: list[int]) -> tuple[int, ...]:
    try:
        return tuple(iota(reshape, order).tolist())
    except ParseError as error:
        raise ParseError(f"OpSharding: iota_reshape_dims and iota_transpose_perm make no devices: {error}") from None


def _partial_kind(message: Message) -> str:
    """What reduces partial results, which newer XLA says in the metadata or in a field of its own."""
    kind = "sum"
    for metadata in message.get("metadata", []):
        if metadata.get("op_type", [""])[-1] == REDUCTION:
            kind = partial_kind(metadata.get("op_name", [""])[-1], "OpSharding")
    for number in message.get("reduction_op", []):
        kind = partial_kind(dict(enumerate(_REDUCTIONS)).get(number, str(number)), "OpSharding")
    return kind


def _read_named(named: Message, mesh: DeviceMesh | None, rank: int | None) -> Sharding:
    """A V3 sharding, with a mesh of its own."""
    theirs = named.get("mesh", [Message()])[-1]
    check_size(theirs.get("axes", ()), MOST_AXES, "OpSharding: its mesh", "axes")
    sizes = [(axis.get("name", [""])[-1], _last(axis, "size")) for axis in theirs.get("axes", [])]
    if math.prod(size for _, size in sizes) > MOST_DEVICES:
        raise ParseError(f"OpSharding: its mesh has more than {MOST_DEVICES} devices")
    own = DeviceMesh(tuple(name for name, _ in sizes), tuple(size for _, size in sizes))
    devices = tuple(theirs.get("device_ids", ()))
    for count in theirs.get("iota_transform", []):
        devices += _iota(count.get("reshape_dims", []), count.get("transpose_perm", []))
        check_size(devices, MOST_DEVICES, "OpSharding: its mesh", "devices")

    def axes(message: Message, name: str) -> tuple[Axis, ...]:
        return tuple(_read_axis(axis, own) for axis in message.get(name, []))

    dims = [WrittenDimension(axes(dim, "axes"), not _last(dim, "is_closed")) for dim in named.get("dim_shardings", [])]
    lists = {kind: axes(named, f"{kind}_axes") for kind in ("replicated", "unreduced", "manual")}
    return build(own, devices, dims, lists | {"kind": _partial_kind(named)}, mesh, rank)


def _read_axis(message: Message, mesh: DeviceMesh) -> Axis:
    """An axis by its number in the mesh, and its part: the product of the sizes before it, and its size."""
    number = _last(message, "mesh_axis_index")
    if number >= len(mesh.names):
        raise ParseError(f"OpSharding: an axis reference is no number of the {len(mesh.names)} axes of its mesh")
    name, parts = mesh.names[number], message.get("sub_axis_info")
    return name if parts is None else (name, _last(parts[-1], "pre_size"), _last(parts[-1], "size"))


# Writing


def message_of(cut: Sharding) -> Message:
    """A record as an `OpSharding`, its devices as an iota where they are one."""
    check_tiled(cut, "OpSharding")
    kind = cut.kind
    message: Message = {"type": [TYPES.index(kind)]}
    if cut.unreduced_kind != "sum":
        message["metadata"] = [{"op_type": [REDUCTION], "op_name": [cut.unreduced_kind.upper()]}]
    if cut.maximal is not None:
        message["tile_assignment_devices"] = [int(cut.mesh.numbers()[cut.maximal])]
    if kind != "other":
        return message
    tiling = in_numbers(cut)
    count = iota_of(tiling.devices)
    message["tile_assignment_dimensions"] = list(tiling.dims)
    if count is None:
        message["tile_assignment_devices"] = list(tiling.devices)
    if tiling.kinds == ("replicated",):
        message["replicate_on_last_tile_dim"] = [1]
    elif tiling.kinds:
        message["last_tile_dims"] = [TYPES.index(kind) for kind in tiling.kinds]
    if count is not None:
        message["iota_reshape_dims"], message["iota_transpose_perm"] = map(list, count)
    return message


def write(cut: Sharding) -> Iterator[Piece]:
    """The message as it prints, on one line."""
    for i, (name, values) in enumerate(message_of(cut).items()):
        kind = _MESSAGES["OpSharding"][name][1]
        words = {value: word for word, value in kind.items()} if isinstance(kind, dict) else {}
        yield " " if i else ""
        if name == "metadata":
            inside = " ".join(f'{key}: "{value}"' for key, (value,) in values[0].items())
            yield Letter(f"metadata {{ {inside} }}", f"partial results are to be reduced by their {cut.unreduced_kind}")
            continue
        shown = [str(words.get(value, value)) for value in values]
        yield Letter(
            f"{name}: {shown[0] if name in _SINGLE else '[' + ', '.join(shown) + ']'}", _words(cut, name, values)
        )


def _words(cut: Sharding, name: str, values: list[int]) -> str:
    if name == "type":
        return of_kind(TYPE_WORDS[TYPES[values[0]]], cut)
    if name == "tile_assignment_devices":
        return "the device that holds it" if cut.maximal is not None else devices_words(cut)
    if name == "iota_reshape_dims":
        return reshape_words(cut, values)
    if name == "iota_transpose_perm":
        count = iota_of(in_numbers(cut).devices)
        assert count is not None  # the order is written where there is one
        return transpose_words(*count)
    words = {"tile_assignment_dimensions": tiles_words, "last_tile_dims": groups_words}.get(name, copies_words)
    return of_kind(words(cut.tiling()), cut)


def make(cut: Sharding) -> Any:
    """The record as an `OpSharding` object of JAX's, which XLA reads from HLO's text."""
    check_tiled(cut, "OpSharding")
    counted = cut.kind != "other" or iota_of(in_numbers(cut).devices) is not None
    from shardviz import _jax

    return _jax.op_sharding(text_of(write_v2(cut) if counted else write_v1(cut)))
