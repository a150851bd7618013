"""XLA's serialized `OpSharding` message, read into HLO text without JAX or protobuf.

>>> from shardviz.notation import DeviceMesh, hlo
>>> mesh = DeviceMesh.of({"data": 2, "model": 4})
>>> hlo_text(bytes.fromhex("08031a0202044a0108520100"))
'{devices=[2,4]<=[8]T(0)}'
>>> print(text_of(write(hlo.read(_, mesh))))
type: OTHER tile_assignment_dimensions: [2, 4] iota_reshape_dims: [8] iota_transpose_perm: [0]

The fields are those of `OpSharding` in XLA's `xla_data.proto`; the format is protobuf's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from shardviz.errors import ParseError, SpecError
from shardviz.notation import hlo
from shardviz.notation.bounds import MOST_CHARACTERS, MOST_DEVICES, MOST_DIMENSIONS, MOST_FIELDS, check_size
from shardviz.notation.letters import Letter, Piece, listed, text_of
from shardviz.notation.record import Sharding
from shardviz.notation.scan import iota_of, iota_text
from shardviz.notation.spec import partial_kind

TYPES = ("replicated", "maximal", "tuple", "other", "manual", "unknown", "unreduced")
_NUMBERS = {  # field → name, and whether it is a list; shard groups (11 to 13) do not affect how an array is sharded
    1: ("type", False),
    3: ("tile_assignment_dimensions", True),
    4: ("tile_assignment_devices", True),
    6: ("replicate_on_last_tile_dim", False),
    8: ("last_tile_dims", True),
    9: ("iota_reshape_dims", True),
    10: ("iota_transpose_perm", True),
    11: ("is_shard_group", False),
    12: ("shard_group_id", False),
    13: ("shard_group_type", False),
}
_TUPLE, _METADATA, _NAMED = 5, 7, 14
_OP_TYPE, _OP_NAME = 1, 2  # fields of the metadata


def hlo_text(data: bytes) -> str:
    """Return the HLO text of a serialized `OpSharding`. Raises ParseError for other bytes, contradictory fields or an
    unknown field, SpecError for a tuple's sharding or a sharding of named axes."""
    check_size(data, MOST_CHARACTERS, "OpSharding", "bytes")
    numbers: dict[str, list[int]] = {name: [] for name, _ in _NUMBERS.values()}
    partial = ""
    for count, (number, value) in enumerate(fields(data)):
        if count == MOST_FIELDS:
            raise ParseError(f"OpSharding: more than {MOST_FIELDS} fields")
        if number == _TUPLE:
            raise SpecError("OpSharding: expected one array's sharding, not a tuple's; pick one of its tuple_shardings")
        if number == _NAMED:
            raise SpecError("OpSharding: it names the axes of its own mesh; give str(HloSharding.from_proto(it))")
        if number == _METADATA and isinstance(value, bytes):
            partial = _partial_kind(value) or partial
            continue
        name, is_list = _NUMBERS.get(number, ("", False))
        if not name:
            raise ParseError(f"OpSharding: unknown field {number}; the file may need a newer shardviz")
        if isinstance(value, bytes) and not is_list:
            raise ParseError(f"OpSharding: {name} has the wrong wire type")
        most = MOST_DEVICES if name == "tile_assignment_devices" else MOST_DIMENSIONS
        numbers[name] += _varints(value, name, most) if isinstance(value, bytes) else [value]
        if is_list:
            check_size(numbers[name], most, "OpSharding", name)
    return f"{{{_body(numbers)}{partial}}}"


def _body(numbers: dict[str, list[int]]) -> str:
    kind, devices = (numbers["type"] or [0])[-1], ",".join(map(str, numbers["tile_assignment_devices"]))
    if not kind < len(TYPES):
        raise ParseError(f"OpSharding: type {kind} is unknown; expected 0 to {len(TYPES) - 1}, {', '.join(TYPES)}")
    if TYPES[kind] != "other":
        return TYPES[kind] + (f" device={devices}" if TYPES[kind] == "maximal" else "")
    text = f"devices=[{','.join(map(str, numbers['tile_assignment_dimensions']))}]{devices}"
    if reshape := numbers["iota_reshape_dims"]:
        if devices:
            raise ParseError("OpSharding: expected tile_assignment_devices or iota_reshape_dims, not both")
        text += f"<={iota_text(reshape, numbers['iota_transpose_perm'] or range(len(reshape)))}"
    kinds = [TYPES[k] if k < len(TYPES) else str(k) for k in numbers["last_tile_dims"]]
    if (numbers["replicate_on_last_tile_dim"] or [0])[-1]:
        if kinds:
            raise ParseError("OpSharding: expected replicate_on_last_tile_dim or last_tile_dims, not both")
        return f"{text} last_tile_dim_replicate"
    return f"{text} last_tile_dims={{{', '.join(kinds)}}}" if kinds else text


def _partial_kind(metadata: bytes) -> str:
    """Return the HLO text of the reduction of partial results, which newer XLA has in the metadata; empty without."""
    texts = {number: value.decode("utf-8", "replace") for number, value in fields(metadata) if isinstance(value, bytes)}
    if texts.get(_OP_TYPE) != hlo.REDUCTION:
        return ""
    kind = partial_kind(texts.get(_OP_NAME, ""), "OpSharding")
    return f' metadata={{op_type="{hlo.REDUCTION}" op_name="{kind.upper()}"}}'


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the number and value of each field of a serialized message; raise ParseError for other bytes."""
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
            raise ParseError(f"OpSharding: these bytes are not an OpSharding (wire type {wire} in field {number})")


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


def _varints(data: bytes, name: str, most: int) -> list[int]:
    """Read a packed list of at most `most` numbers."""
    values: list[int] = []
    at = 0
    while at < len(data):
        value, at = _varint(data, at)
        values.append(value)
        check_size(values, most, "OpSharding", name)
    return values


def write(sharding: Sharding) -> Iterator[Piece]:
    """Write the message as protobuf prints it, on one line, with the devices as an iota if possible."""
    hlo.check_tiled(sharding, "OpSharding")
    letters = [Letter(f"type: {sharding.kind.upper()}", hlo.of_kind(hlo.TYPE_WORDS[sharding.kind], sharding))]
    if sharding.unreduced_kind != "sum":
        metadata = f'op_type: "{hlo.REDUCTION}" op_name: "{sharding.unreduced_kind.upper()}"'
        words = f"partial results are to be reduced by their {sharding.unreduced_kind}"
        letters.append(Letter(f"metadata {{ {metadata} }}", words))
    if sharding.maximal is not None:
        number = sharding.mesh.numbers()[sharding.maximal]
        letters.append(Letter(f"tile_assignment_devices: [{number}]", "the device that holds it"))
    letters += _tiles(sharding) if sharding.kind == "other" else ()
    return listed(([letter] for letter in letters), "", " ")


def _tiles(sharding: Sharding) -> Iterator[Letter]:
    tiling = hlo.in_numbers(sharding)
    count = iota_of(tiling.devices)
    yield _numbers("tile_assignment_dimensions", tiling.dims, hlo.of_kind(hlo.tiles_words(tiling), sharding))
    if count is None:
        yield _numbers("tile_assignment_devices", tiling.devices, hlo.devices_words(sharding))
    if tiling.kinds == ("replicated",):
        yield Letter("replicate_on_last_tile_dim: true", hlo.copies_words(tiling))
    elif tiling.kinds:
        kinds = f"last_tile_dims: [{', '.join(map(str.upper, tiling.kinds))}]"
        yield Letter(kinds, hlo.of_kind(hlo.groups_words(tiling), sharding))
    if count is not None:
        yield _numbers("iota_reshape_dims", count[0], hlo.reshape_words(sharding, count[0]))
        yield _numbers("iota_transpose_perm", count[1], hlo.transpose_words(*count))


def _numbers(name: str, values: Sequence[int], words: str) -> Letter:
    return Letter(f"{name}: [{', '.join(map(str, values))}]", words)


def make(sharding: Sharding) -> Any:
    """Return the record as JAX's `OpSharding` object, which XLA parses from HLO text."""
    hlo.check_tiled(sharding, "OpSharding")
    counted = sharding.kind != "other" or iota_of(hlo.in_numbers(sharding).devices) is not None
    from shardviz import _jax

    return _jax.op_sharding(text_of(hlo.write_v2(sharding) if counted else hlo.write_v1(sharding)))
