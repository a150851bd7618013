"""An `OpSharding` message as text: what `print(op_sharding)` shows, read; and the same on one line, written.

>>> from shardviz.notation.mesh import DeviceMesh
>>> from shardviz.notation.proto import decode
>>> shown = '''type: OTHER
... tile_assignment_dimensions: 2
... tile_assignment_dimensions: 4
... iota_reshape_dims: 8
... iota_transpose_perm: 0
... '''
>>> str(decode(message_of(shown), DeviceMesh.of("data=2,model=4"))), text_of(message_of(shown))
('[data, model]', 'type: OTHER tile_assignment_dimensions: [2, 4] iota_reshape_dims: [8] iota_transpose_perm: [0]')

The fields are those of `OpSharding` and `NamedShardingProto` in XLA's `xla_data.proto`, the format is protobuf's own.
"""

from __future__ import annotations

import re

from shardviz.notation.proto import REDUCTIONS, TYPES, field_bytes, fields, varints
from shardviz.notation.scan import Scanner

_TYPE = {word.upper(): number for number, word in enumerate(TYPES)}
_BOOL = {"true": 1, "false": 0}
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
        "is_shard_group": (11, _BOOL),
        "shard_group_id": (12, int),
        "shard_group_type": (13, {"AS": 0, "LIKE": 1}),
        "named_sharding": (14, "named_sharding"),
    },
    "OpMetadata": {"op_type": (1, str), "op_name": (2, str)},
    "named_sharding": {
        "mesh": (2, "mesh"),
        "dim_shardings": (3, "dim_shardings"),
        "replicated_axes": (4, "axes"),
        "unreduced_axes": (5, "axes"),
        "metadata": (6, "OpMetadata"),
        "manual_axes": (7, "axes"),
        "reduction_op": (8, {word: number for number, word in enumerate(REDUCTIONS)}),
    },
    "mesh": {"axes": (1, "mesh.axes"), "device_ids": (2, int), "iota_transform": (3, "iota_transform")},
    "mesh.axes": {"name": (1, str), "size": (2, int)},
    "iota_transform": {"reshape_dims": (1, int), "transpose_perm": (2, int)},
    "dim_shardings": {"axes": (1, "axes"), "is_closed": (2, _BOOL)},
    "axes": {"mesh_axis_index": (1, int), "sub_axis_info": (2, "sub_axis_info")},
    "sub_axis_info": {"pre_size": (1, int), "size": (2, int)},
}
_ESCAPE = re.compile(rb"\\(?:([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|(.))", re.DOTALL)
_DEBUG = re.compile(r"\s*goo\.gle/debug\w*")  # protobuf puts this in front, so that nobody relies on the rest
_FIRST = re.compile(rf"(?:{'|'.join(_MESSAGES['OpSharding'])})\s*[:{{<\[]")


def is_message(text: str) -> bool:
    """Whether text looks like a printed `OpSharding`."""
    found = _DEBUG.match(text)
    return found is not None or _FIRST.match(text) is not None


def message_of(text: str) -> bytes:
    """A printed `OpSharding`, serialized.

    Raises:
        ParseError: if it is none.
    """
    found = _DEBUG.match(text)
    it = Scanner(text[found.end() if found else 0 :], "OpSharding text")
    data = _message(it, "OpSharding", "", 0)
    it.end()
    return data


def _message(it: Scanner, message: str, close: str, depth: int) -> bytes:
    if depth > 8:
        it.fail("messages at most 8 deep")
    known, data = _MESSAGES[message], b""
    while not it.take(close) if close else it.at < len(it.text):
        if it.take(",") or it.take(";"):
            continue
        name = it.word()
        if name not in known and message == "OpMetadata":
            it.take(":")
            it.balanced() if it.sees("{") else it.scalar()
            continue
        if name not in known:
            it.refuse(f"a field of {message} ({', '.join(known)})")
        number, kind = known[name]
        colon = it.take(":")
        if it.take("["):
            for value in it.listed(lambda kind=kind: _value(it, kind, depth, True), "]"):
                data += field_bytes(number, value)
        else:
            data += field_bytes(number, _value(it, kind, depth, colon))
    return data


def _value(it: Scanner, kind: _Kind, depth: int, colon: bool) -> int | bytes:
    if isinstance(kind, str):
        if it.take("{"):
            return _message(it, kind, "}", depth + 1)
        it.need("<")
        return _message(it, kind, ">", depth + 1)
    if not colon:
        it.fail("':'")
    if kind is int:
        return it.integer()
    if isinstance(kind, dict):
        word = it.scalar()
        if word.isascii() and word.isdecimal() and len(word) < 3:
            return int(word)
        if word not in kind:
            it.refuse(", ".join(kind))
        return kind[word]
    text = it.scalar()
    if text[0] not in "'\"":
        it.refuse("text in quotes")
    return _ESCAPE.sub(_unescaped, text[1:-1].encode())


def _unescaped(found: re.Match[bytes]) -> bytes:
    if found[1]:
        return bytes([int(found[1], 8) & 255])
    return bytes([int(found[2], 16)]) if found[2] else {b"n": b"\n", b"t": b"\t", b"r": b"\r"}.get(found[3], found[3])


_WORDS = {number: (name, kind) for name, (number, kind) in _MESSAGES["OpSharding"].items()}


def text_of(data: bytes) -> str:
    """A serialized `OpSharding` of an array's tiles as text, on one line, which `message_of` reads back."""
    found: dict[int, list[int]] = {}
    for number, value in fields(data):
        found.setdefault(number, []).extend([value] if isinstance(value, int) else varints(value))
    found.setdefault(1, [0])
    parts = []
    for number in sorted(found):
        name, kind = _WORDS[number]
        words = {value: word for word, value in kind.items()} if isinstance(kind, dict) else {}
        values = [str(words.get(value, value)) for value in found[number]]
        parts.append(f"{name}: {values[0] if name in _SINGLE else '[' + ', '.join(values) + ']'}")
    return " ".join(parts)


_SINGLE = ("type", "replicate_on_last_tile_dim")
