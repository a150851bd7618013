"""One sharding in every notation, and what each letter of it means.

>>> from shardviz.notation.sharding import sharding
>>> for row in rosetta(sharding("P('data', None)", "data=2,model=4")):
...     print(f"{row.notation:8}{row.text or row.why}")
pspec   P('data', None)
short   [data, ·]
hlo-v1  {devices=[2,1,4]0,1,2,3,4,5,6,7 last_tile_dim_replicate}
hlo-v2  {devices=[2,1,4]<=[8] last_tile_dim_replicate}
hlo-v3  {mesh['data'=2,'model'=4], [{'data'}, {}]}
proto   type: OTHER tile_assignment_dimensions: [2, 1, 4] replicate_on_last_tile_dim: true iota_reshape_dims: [8] \
iota_transpose_perm: [0]
sdy     #sdy.sharding<@mesh, [{"data"}, {}]>
pmap    ShardingSpec((Chunked(chunks=(2,)), NoSharding()), (ShardedAxis(axis=0), Replicated(replicas=4)))
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from shardviz.errors import SpecError
from shardviz.notation.proto import text_of
from shardviz.notation.record import NOTATIONS, Sharding
from shardviz.notation.write import proto_bytes, pspec_text


@dataclass(frozen=True)
class Letter:
    """A piece of a notation's text and its meaning.

    Attributes:
        piece: the piece, as it stands in the text.
        meaning: what it means, in words.
    """

    piece: str
    meaning: str


@dataclass(frozen=True)
class Row:
    """A sharding in one notation.

    Attributes:
        notation: one of `NOTATIONS`.
        text: what it is there; None where the notation cannot express it.
        why: where it cannot, why; otherwise empty.
        letters: what the pieces of the text mean, in the order in which they stand in it.
    """

    notation: str
    text: str | None
    why: str = ""
    letters: tuple[Letter, ...] = ()


def rosetta(cut: Sharding) -> tuple[Row, ...]:
    """A sharding in every notation.

    Args:
        cut: the record, from `sharding`.

    Returns:
        A row for each of `NOTATIONS`, in that order.
    """
    rows = []
    for notation in NOTATIONS:
        try:
            text = _text(cut, notation)
        except SpecError as error:
            rows.append(Row(notation, None, str(error)))
        else:
            rows.append(Row(notation, text, "", _letters(text, notation)))
    return tuple(rows)


def _text(cut: Sharding, notation: str) -> str:
    if notation == "pspec":
        if cut.unknown:
            raise SpecError("unknown sharding: the compiler did not say it, and pspec has no word for that")
        return pspec_text(cut)
    if notation == "proto":
        return text_of(proto_bytes(cut))
    return str(cut.to(notation))


_WORDS = {  # notation → (what to look for, what it means; {0} is the piece, {1}, {2} are its groups)
    "pspec": (
        (r"P\.UNCONSTRAINED", "the compiler may cut this dimension as it likes"),
        (r"unreduced=\{(.*?)\}", "over {1} the devices hold partial sums, still to be added"),
        (r"(?<!un)reduced=\{(.*?)\}", "over {1} the value is reduced already; its gradient is a partial sum"),
        (r"None", "a dimension that is not cut"),
        (r"'([^']+)'", "the mesh axis {1} cuts this dimension; of several in brackets the first is the major one"),
    ),
    "short": (
        (r"sum over (.*?)(?= manual| reduced|$)", "over {1} the devices hold partial sums, still to be added"),
        (r"manual (.*?)(?= reduced|$)", "over {1} the program itself says what each device does"),
        (r"reduced (.*)$", "over {1} the value is reduced already; its gradient is a partial sum"),
        (r"·", "a dimension that is not cut"),
        (r"\?", "the compiler may cut this dimension further"),
        (r"([^\s\[\],?·:]+):\((\d+)\)(\d+)", "a part of axis {1}, of size {3}, {2} parts of it standing before it"),
        (r"[^\s\[\],?·]+", "the mesh axis {0} cuts this dimension; of several the first is the major one"),
    ),
    "hlo": (
        (r"replicated\}$", "every device holds a copy"),
        (r"maximal device=(\d+)", "the whole array is on device {1}"),
        (r"unknown", "the compiler did not say how it is cut"),
        (r"devices=\[([\d,]+)\]", "the number of tiles along each dimension, then the size of each subgroup: {1}"),
        (r"<=\[([\d,]+)\]T\(([\d,]+)\)", "the devices: 0, 1, 2, ... in the shape {1}, its dimensions in the order {2}"),
        (r"<=\[([\d,]+)\]", "the devices in their order: 0, 1, 2, ... {1} of them"),
        (r"(?<=\])\d+(?:,\d+)*", "the device of each tile, the last dimension fastest"),
        (r"last_tile_dim_replicate", "the last number is no dimension: so many devices hold copies of each tile"),
        (r"last_tile_dims=\{(.*?)\}", "the last numbers are no dimensions: groups of devices that are {1}"),
        (r"manual(?=\})", "the program itself says what each device does"),
        (r"unreduced(?=\})", "every device holds a partial sum, still to be added"),
    ),
    "named": (
        (r"mesh\[(.*?)\]", "the mesh's axes and sizes"),
        (r"@\w+", "the mesh, by its name in the module"),
        (r"mesh<\[\], device_ids=\[(\d+)\]>", "the whole array is on device {1}"),
        (r"device_ids=\(.*?\)", "the devices in the mesh's order"),
        (r"replicated=\{(.*?)\}", "over {1} the devices are to hold copies"),
        (r"unreduced=\{(.*?)\}", "over {1} the devices hold partial sums, still to be added"),
        (r"manual=\{(.*?)\}", "over {1} the program itself says what each device does"),
        (r"\{\}", "a dimension that is not cut"),
        (r"\?", "the compiler may cut this dimension further"),
        (r"(?<=\})p(\d+)", "priority {1}: 0 is heeded first"),
        (r"['\"]([^'\"]+)['\"]:\((\d+)\)(\d+)", "a part of axis {1}, of size {3}, {2} parts of it standing before it"),
        (r"['\"]([^'\"]+)['\"]", "the mesh axis {1} cuts this dimension; of several the first is the major one"),
    ),
    "proto": (
        (r"type: (\w+)", "what sort of sharding it is: {1}"),
        (r"tile_assignment_dimensions: \[.*?\]", "the number of tiles along each dimension, then of each subgroup"),
        (r"tile_assignment_devices: \[.*?\]", "the device of each tile, the last dimension fastest"),
        (r"replicate_on_last_tile_dim: true", "the last number is no dimension: so many devices hold copies"),
        (r"last_tile_dims: \[(.*?)\]", "the last numbers are no dimensions: groups of devices that are {1}"),
        (r"iota_reshape_dims: \[(.*?)\]", "the devices are 0, 1, 2, ... in this shape"),
        (r"iota_transpose_perm: \[(.*?)\]", "with its dimensions in this order"),
    ),
    "pmap": (
        (r"NoSharding\(\)", "a dimension that is not cut"),
        (r"Chunked\(chunks=\((.*?),?\)\)", "a dimension cut into so many chunks, and these again: {1}"),
        (r"Unstacked\(size=(\d+)\)", "a dimension of which each device holds one of {1}"),
        (r"ShardedAxis\(axis=(\d+)\)", "a mesh axis along which the devices count through the cut number {1}"),
        (r"Replicated\(replicas=(\d+)\)", "a mesh axis along which {1} devices hold copies"),
    ),
}
_FAMILY = {"hlo-v1": "hlo", "hlo-v2": "hlo", "hlo-v3": "named", "sdy": "named"}


def _letters(text: str, notation: str) -> tuple[Letter, ...]:
    """The pieces in the order of the text, each once; what an earlier rule has taken is not read again."""
    taken = [False] * len(text)
    found: list[tuple[int, Letter]] = []
    for pattern, meaning in _WORDS[_FAMILY.get(notation, notation)]:
        for match in re.finditer(pattern, text):
            if any(taken[match.start() : match.end()]):
                continue
            taken[match.start() : match.end()] = [True] * (match.end() - match.start())
            groups = (group.strip() for group in match.groups() if group is not None)
            found.append((match.start(), Letter(match[0], meaning.format(match[0], *groups))))
    return tuple(dict.fromkeys(letter for _, letter in sorted(found, key=lambda f: f[0])))
