"""What each piece of a sharding's text means, in words, for that very sharding.

>>> from shardviz.notation.sharding import sharding
>>> cut = sharding("{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}", "data=2,model=4")
>>> for letter in letters(cut, "hlo-v2", cut.to("hlo-v2")):
...     print(letter.piece, "=", letter.meaning)
devices=[4,1,2] = tiles along each dimension: 4, 1; the number behind them, 2, counts devices that share a tile
<=[2,4] = the devices 0 to 7, row by row in a table of 2 x 4
T(1,0) = and read with the table's dimensions in the order 1, 0: 0, 4, 1, 5, 2, 6, ...
last_tile_dim_replicate = each tile is on 2 devices, as copies
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shardviz.notation.hlo_sharding import iota
from shardviz.notation.pmap import from_sharding
from shardviz.notation.record import Sharding
from shardviz.notation.spec import Axis, axis_name, axis_size

Rule = tuple[str, str | Callable[[re.Match[str]], str]]
"""What to look for, and what it means: words, in which `{1}` is its first group, or a function of the match."""

_UNCUT = "a dimension that is not cut"
_OPEN = "the compiler may cut this dimension further"
_SUM = "over {1} the devices hold partial sums, still to be added"
_MANUAL = (
    "over {1} the program itself says what each device does, as in a shard_map; the shape is one device's along it"
)
_REDUCED = "over {1} the value is reduced already; its gradient is a partial sum"
_KINDS = {
    "replicated": "hold copies",
    "manual": "are the program's own business, as in a shard_map",
    "unreduced": "hold partial sums, still to be added",
}
_TYPES = {
    "REPLICATED": "every device holds a copy",
    "MAXIMAL": "one device holds the whole array",
    "MANUAL": "the program itself says what each device does, as in a shard_map",
    "UNREDUCED": "every device holds a partial sum, still to be added",
    "UNKNOWN": "the compiler did not say how it is cut",
    "OTHER": "the array is cut into tiles, as the other fields say",
}


@dataclass(frozen=True)
class Letter:
    """A piece of a notation's text and its meaning.

    Attributes:
        piece: the piece, as it stands in the text.
        meaning: what it means, in words.
    """

    piece: str
    meaning: str


def letters(cut: Sharding, notation: str, text: str) -> tuple[Letter, ...]:
    """The pieces of a sharding's text, in its order, each once; what an earlier rule has taken is not read again.

    Args:
        cut: the record.
        notation: one of `NOTATIONS`.
        text: the record in that notation.
    """
    taken = [False] * len(text)
    found: list[tuple[int, Letter]] = []
    for pattern, meaning in _RULES[notation](cut):
        for match in re.finditer(pattern, text):
            if any(taken[match.start() : match.end()]):
                continue
            taken[match.start() : match.end()] = [True] * (match.end() - match.start())
            words = meaning if isinstance(meaning, str) else meaning(match)
            if isinstance(meaning, str) and match.groups():
                words = words.replace("{1}", re.sub(r"['\"]", "", match[1]).strip())
            found.append((match.start(), Letter(match[0], words)))
    return tuple(dict.fromkeys(letter for _, letter in sorted(found, key=lambda f: f[0])))


def _none(cut: Sharding) -> str:
    words = "no dimension is named, so none is cut"
    return f"{words}: every device holds the whole array" if cut.kind == "replicated" else words


def _axis(cut: Sharding, axis: Axis) -> str:
    """What an axis does: which dimension it cuts, in how many, and whether other axes have cut it before."""
    where = [(i, dim) for i, dim in enumerate(cut.spec.dims) if axis in dim] if cut.spec else []
    name = axis_name(axis)
    if not where:
        return f"the axis {name} of a mesh of its own"
    dimension, axes = where[0]
    before = axes[: axes.index(axis)]
    size = axis_size(axis, cut.mesh)
    words = f"mesh axis {name}" if isinstance(axis, str) else _part(axis, cut.mesh.shape[name])
    if size == 1:
        return f"{words}, of 1 device, leaves dimension {dimension} as it is"
    if not before:
        return f"{words} cuts dimension {dimension} in {size}"
    tiles = math.prod(axis_size(a, cut.mesh) for a in before)
    return f"{words} cuts each of these {tiles} pieces of dimension {dimension} again, in {size}"


def _part(axis: tuple[str, int, int], whole: int) -> str:
    name, before, size = axis
    counted = [n for n in (before, size, whole // (before * size)) if n > 1]
    which = "second" if before > 1 else "first"
    return f"a part of mesh axis {name} (its {whole} devices counted as {' x '.join(map(str, counted))}, the {which})"


def _parsed(match: re.Match[str]) -> Axis:
    groups = [group for group in match.groups() if group is not None]
    return groups[0] if len(groups) == 1 else (groups[0], int(groups[1]), int(groups[2]))


def _names_axis(cut: Sharding) -> Callable[[re.Match[str]], str]:
    return lambda match: _axis(cut, _parsed(match))


def _pspec(cut: Sharding) -> Sequence[Rule]:
    return (
        (r"P\(\)", _none(cut)),
        (r"P\.UNCONSTRAINED", "the compiler may cut this dimension as it likes"),
        (r"unreduced=\{(.*?)\}", _SUM),
        (r"(?<!un)reduced=\{(.*?)\}", _REDUCED),
        (r"None", _UNCUT),
        (r"'([^']+)'|\"([^\"]+)\"", _names_axis(cut)),
    )


def _short(cut: Sharding) -> Sequence[Rule]:
    return (
        (r"\[\]", _none(cut)),
        (r"(?<=\] )sum over (.*?)(?= manual| reduced|$)", _SUM),
        (r"(?<= )manual (.*?)(?= reduced|$)", _MANUAL),
        (r"(?<= )reduced (.*)$", _REDUCED),
        (r"·", _UNCUT),
        (r"\?", _OPEN),
        (r"([^\s\[\],?·:]+):\((\d+)\)(\d+)", _names_axis(cut)),
        (r"([^\s\[\],?·]+)", _names_axis(cut)),
    )


def _book(cut: Sharding) -> Sequence[Rule]:
    def dimension(match: re.Match[str]) -> str:
        number = _LETTERS.index(match[1]) if match[1] in _LETTERS else int(match[1][1:])
        dims = cut.spec.dims[number] if cut.spec else ()
        what = f"dimension {number}"
        return f"{what}: {'; '.join(_axis(cut, axis) for axis in dims)}" if dims else f"{what}, which is not cut"

    return (
        (r"^A", "the array, of whatever name"),
        (r"\[\]", _none(cut)),
        (r"\{U_\{?(.*?)\}?\}$", _SUM),
        (r"([A-Z]\d*)(?:_\{[^}]*\}|_[^,\]]*)?(?=, |\])", dimension),
    )


_LETTERS = "IJKLMNOPQRST"


def _tiles(cut: Sharding) -> Callable[[re.Match[str]], str]:
    def words(match: re.Match[str]) -> str:
        numbers = [n.strip() for n in match[1].split(",")]
        count = len(cut.tiles) if cut.kind == "other" else len(numbers)
        first, rest = numbers[:count], numbers[count:]
        text = f"tiles along each dimension: {', '.join(first)}" if first else "no dimensions"
        if len(rest) == 1:
            return f"{text}; the number behind them, {rest[0]}, counts devices that share a tile"
        return f"{text}; the numbers behind them, {', '.join(rest)}, count devices that share a tile" if rest else text

    return words


def _subgroups(cut: Sharding, match: re.Match[str]) -> str:
    kinds = [kind.strip().lower() for kind in match[1].split(",")]
    sizes = cut.tiling().dims[len(cut.tiles) :]
    groups = [f"{size} devices {_KINDS[kind]}" for kind, size in zip(kinds, sizes, strict=True)]
    return f"the devices that share a tile: {', and '.join(f'groups of {group}' for group in groups)}"


def _devices(cut: Sharding) -> str:
    turned = "; places in the mesh's order, not the devices' ids" if cut.mesh.device_ids else ""
    return f"the device of each tile, the last number of the tiles counting fastest{turned}"


def _copies(cut: Sharding) -> str:
    return f"each tile is on {cut.tiling().dims[-1] if cut.kind == 'other' else cut.mesh.size} devices, as copies"


def _counted(text: str, transpose: str) -> str:
    """`T(1,0)` behind `[2,4]`: the count that it makes, to its sixth number."""
    shape = re.search(r"(?:<=|iota_reshape_dims: )\[([\d, ]+)\]", text)
    assert shape is not None  # nothing is written with a transpose that has no shape
    order = [int(n) for n in transpose.split(",")]
    if len(order) == 1:
        return "and read as it stands"
    made = iota(tuple(int(n) for n in shape[1].split(",")), tuple(order))
    listed = ", ".join(map(str, made[:6].tolist())) + (", ..." if len(made) > 6 else "")
    return f"and read with the table's dimensions in the order {', '.join(map(str, order))}: {listed}"


def _table(cut: Sharding, match: re.Match[str]) -> str:
    shape = [int(n) for n in match[1].split(",")]
    turned = " (places in the mesh's order, not the devices' ids)" if cut.mesh.device_ids else ""
    count = f"the devices 0 to {math.prod(shape) - 1}{turned}"
    return (
        f"{count}, row by row in a table of {' x '.join(map(str, shape))}" if len(shape) > 1 else f"{count}, in order"
    )


def _hlo(cut: Sharding) -> Sequence[Rule]:
    place = "" if not cut.mesh.device_ids else ", a place in the mesh's order"
    return (
        (r"(?<=^\{)replicated(?=\}$)", "every device holds a copy"),
        (r"(?<=^\{)manual(?=\}$)", _TYPES["MANUAL"]),
        (r"(?<=^\{)unreduced(?=\}$)", _TYPES["UNREDUCED"]),
        (r"(?<=^\{)unknown(?=\}$)", _TYPES["UNKNOWN"]),
        (r"maximal device=(\d+)", f"the whole array is on device {{1}}{place}"),
        (r"devices=\[([\d,]+)\]", _tiles(cut)),
        (r"<=\[([\d,]+)\]", lambda match: _table(cut, match)),
        (r"(?<=\])T\(([\d,]+)\)", lambda match: _counted(match.string, match[1])),
        (r"(?<=\])\d+(?:,\d+)*", _devices(cut)),
        (r"last_tile_dim_replicate", lambda match: _copies(cut)),
        (r"last_tile_dims=\{(.*?)\}", lambda match: _subgroups(cut, match)),
    )


def _mesh_axes(match: re.Match[str]) -> str:
    axes = re.findall(r"['\"]([^'\"]*)['\"]=(\d+)", match[1])
    return "the mesh: " + ", ".join(f"axis {name} of {size}" for name, size in axes) + ", the last counting fastest"


def _named(cut: Sharding) -> Sequence[Rule]:
    return (
        (r"mesh\[(.*?)\]", _mesh_axes),
        (r"@\w+", f"the mesh, by its name in the module; here {str(cut.mesh) or 'without axes'}"),
        (r"mesh<\[\], device_ids=\[(\d+)\]>, \[\]", "a mesh of one device: the whole array is on device {1}"),
        (r"device_ids=\(.*?\)", "the devices in the order of that mesh"),
        (r"replicated=\{(.*?)\}", "over {1} the devices are to hold copies"),
        (r"unreduced=\{(.*?)\}", _SUM),
        (r"manual=\{(.*?)\}", _MANUAL),
        (r"\[\]", _none(cut)),
        (r"\{\}", _UNCUT),
        (r"\?", _OPEN),
        (r"(?<=\})p(\d+)", "priority {1} of this dimension: Shardy heeds 0 first, then 1, and so on"),
        (r"['\"]([^'\"]+)['\"]:\((\d+)\)(\d+)", _names_axis(cut)),
        (r"'([^']+)'|\"([^\"]+)\"", _names_axis(cut)),
    )


def _proto(cut: Sharding) -> Sequence[Rule]:
    return (
        (r"type: (\w+)", lambda match: _TYPES[match[1]]),
        (r"tile_assignment_dimensions: \[(.*?)\]", _tiles(cut)),
        (r"tile_assignment_devices: \[.*?\]", "the device that holds it" if cut.kind == "maximal" else _devices(cut)),
        (r"replicate_on_last_tile_dim: true", lambda match: _copies(cut)),
        (r"last_tile_dims: \[(.*?)\]", lambda match: _subgroups(cut, match)),
        (r"iota_reshape_dims: \[(.*?)\]", lambda match: _table(cut, match)),
        (r"iota_transpose_perm: \[(.*?)\]", lambda match: _counted(match.string, match[1])),
    )


def _pmap(cut: Sharding) -> Sequence[Rule]:
    spec = from_sharding(cut)
    owners = [i for i, dim in enumerate(spec.sharding) for _ in getattr(dim, "chunks", ())]
    numbers = iter(range(len(owners)))

    def chunked(match: re.Match[str]) -> str:
        sizes = [n.strip() for n in match[1].split(",") if n.strip()]
        mine = [next(numbers) for _ in sizes]
        text = f"dimension {owners[mine[0]]} is cut in {sizes[0]}"
        text += "".join(f", each piece again in {n}" for n in sizes[1:])
        return f"{text}: " + (f"cut number {mine[0]}" if len(mine) == 1 else f"cuts number {mine[0]} to {mine[-1]}")

    def sharded(match: re.Match[str]) -> str:
        number = int(match[1])
        return f"a mesh axis of {spec.sharded_axes[number]} devices, which takes up cut number {number}"

    return (
        (r"NoSharding\(\)", _UNCUT),
        (r"Chunked\(chunks=\((.*?),?\)\)", chunked),
        (r"ShardedAxis\(axis=(\d+)\)", sharded),
        (r"Replicated\(replicas=(\d+)\)", "a mesh axis along which {1} devices hold copies"),
    )


_RULES: dict[str, Callable[[Sharding], Sequence[Rule]]] = {
    "pspec": _pspec,
    "short": _short,
    "book": _book,
    "hlo-v1": _hlo,
    "hlo-v2": _hlo,
    "hlo-v3": _named,
    "proto": _proto,
    "sdy": _named,
    "pmap": _pmap,
}
