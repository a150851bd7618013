"""HLO's text of a sharding in its three generations, as XLA's programs and dumps have it.

>>> mesh = DeviceMesh.of({"data": 2, "model": 4})
>>> for text in ("{devices=[4,1,2]0,4,1,5,2,6,3,7 last_tile_dim_replicate}",            # V1: a list of devices
...              "{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}",              # V2: a transposed iota
...              "{mesh['data'=2,'model'=4], [{'model'}, {}]}"):                        # V3: named axes
...     print(read(text, mesh), read_spec(text, mesh, 2))
[model, ·] P('model', None)
[model, ·] P('model', None)
[model, ·] P('model', None)

A tile assignment (V1, V2) names no axes: they are found from how the devices are laid along each dimension. Device i is
the i-th place of the mesh in row-major order. The formats are those of `HloSharding::ToString`,
`TileAssignment::ToString` and `NamedSharding::ToString` in XLA; they are read strictly.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from shardviz.errors import MeshError, ParseError, SpecError, excerpt
from shardviz.notation.bounds import MOST_DEVICES, MOST_DIMENSIONS, MOST_VALUES
from shardviz.notation.letters import Letter, Piece
from shardviz.notation.mesh import DeviceMesh, read_module_mesh
from shardviz.notation.named import (
    build,
    read_axes,
    read_dimensions,
    read_lists,
    write_dimensions,
    write_lists,
)
from shardviz.notation.record import Sharding
from shardviz.notation.scan import Scanner, iota, iota_of, iota_text, read_iota
from shardviz.notation.spec import Axis, Spec, axes_size, axis_size, partial_kind
from shardviz.notation.tiling import Tiling

WHAT = "HLO sharding"
_FIRST = "replicated, manual, unreduced, unknown, maximal device=..., devices=[...] or mesh[...]"
_WORDS = ("replicated", "manual", "unreduced", "unknown")
_REDUCTION = re.compile(r'op_type="sdy::reduction_op"\s+op_name="(\w*+)"')


_Make = Callable[[DeviceMesh | None, int | None], Sharding]
"""What a text says, to be put on a mesh (None: the text's own) for an array of a rank."""


def read(text: str, mesh: DeviceMesh | None, rank: int | None = None) -> Sharding:
    """The HLO sharding (V1, V2 or V3, in braces) of one array, in a mesh whose i-th place is device i; None takes the
    text's own mesh, or one axis `devices`. A `ParseError` for other text, a `SpecError` for a tuple's or another number
    of devices, a `MeshError` where nothing says a mesh."""
    make, kind = _parse(text)
    return make(mesh, rank).with_kind(kind)


def on_places(tiling: Tiling, mesh: DeviceMesh | None) -> Sharding:
    """The record of a tile assignment as text has it, of devices by their numbers; None for a mesh of one axis."""
    if mesh is None:
        return Sharding.from_tiling(tiling, DeviceMesh(("devices",), (len(tiling.devices),)))
    return Sharding.from_tiling(Tiling(tiling.dims, tiling.kinds, mesh.places_of(tiling.devices)), mesh)


def in_numbers(sharding: Sharding) -> Tiling:
    """The tile assignment that text has: of devices by their numbers. Raises as `Sharding.tiling` does."""
    tiling = sharding.tiling()
    if not sharding.mesh.by_id:
        return tiling
    return Tiling(tiling.dims, tiling.kinds, tuple(sharding.mesh.numbers()[list(tiling.devices)].tolist()))


def split_tuple(text: str, most: int | None = None) -> tuple[str, ...]:
    """The shardings in a tuple's sharding, `{{replicated}, {devices=[2,1]<=[2]}}`, at most so many; of one array's,
    that one. A `ParseError` where it begins as a tuple's and goes on as none."""
    it = Scanner(text, WHAT, most=None)
    if not it.take("{") or not (it.sees("{") or it.sees("}")):
        return (text,)
    texts = it.listed(it.balanced, "}", most)
    it.end()
    return tuple(texts)


def _named(text: str) -> str:
    return f"{WHAT} {excerpt(text)}"


@lru_cache(maxsize=256)
def read_spec(text: str, mesh: DeviceMesh, rank: int) -> Spec:
    """An array's HLO sharding as a spec over a mesh, an entry a dimension; no axes of size 1, parts as (name, sizes
    before, size). A `SpecError` says why no PartitionSpec says it; a `ParseError` where the text is no sharding."""
    try:
        sharding = read(text.strip(), mesh, rank)
    except (ParseError, SpecError) as error:
        if str(error).startswith(WHAT):
            raise
        raise type(error)(f"{_named(text)}: {error}") from error
    if sharding.manual:
        whole = "as inside a shard_map: the shape is one device's"
        if axes_size(sharding.manual, mesh) < mesh.size:
            raise SpecError(f"{_named(text)}: manual over some axes, {whole} along these")
        raise SpecError(f"{_named(text)}: manual, {whole}, and no PartitionSpec says how it is sharded")
    if sharding.spec is None:
        raise SpecError(f"{_named(text)}: {sharding.why}")
    if len(sharding.spec.dims) != rank:
        raise SpecError(f"{_named(text)}: {len(sharding.spec.dims)} dimensions for an array of rank {rank}")
    dims, unreduced = sharding.spec.dims, sharding.spec.unreduced
    larger = [tuple(axis for axis in axes if axis_size(axis, mesh) > 1) for axes in (*dims, unreduced)]
    return Spec(tuple(larger[:-1]), larger[-1], (), sharding.unreduced_kind)


def tile_counts(text: str, rank: int) -> tuple[int, ...] | None:
    """Into how many tiles an HLO sharding shards each dimension, on whatever mesh; None where it is of another rank. A
    `ShardvizError` where it is no sharding of one array."""
    try:
        tiles = _parse(text.strip())[0](None, rank).tiles
    except MeshError:  # a word, which names no mesh
        return (1,) * rank
    return tiles if len(tiles) == rank else None


@lru_cache(maxsize=256)
def _parse(text: str) -> tuple[_Make, str]:
    """What a text says, and what reduces its partial results."""
    it = Scanner(text, WHAT)
    if split_tuple(text, MOST_VALUES) != (text,):
        raise SpecError(
            f"{_named(text)}: this is a tuple's sharding; pick one of its elements, for one array at a time"
        )
    it.need("{")
    kind = "sum"
    if it.sees("mesh"):
        make, kind = _parse_named(it)
    elif it.take("devices="):
        make = _parse_tiles(it)
    else:
        make = _parse_word(it, it.word(_FIRST))
    for _ in range(MOST_DIMENSIONS):
        if it.take("}"):
            break
        if it.take("metadata="):
            if reduction := _REDUCTION.search(it.balanced()):  # newer XLA says there what partial results are
                kind = partial_kind(reduction[1], _named(text))
        elif it.take("shard_as") or it.take("shard_like"):
            it.integer()
        elif not (it.take(",") and it.sees("metadata=")):
            it.fail("'}'")
    else:
        it.fail("'}'")
    it.end()
    return make, kind


def _parse_word(
    it: Scanner, word: str, expected: str = _FIRST, over: tuple[DeviceMesh, tuple[int, ...]] | None = None
) -> _Make:
    """A word, of a mesh of the text's own (and the device at each of its places) if it is `over` one."""
    if word in ("maximal", "single_device", "maximal_mesh"):  # the last two where XLA names the axes of other meshes
        bracketed = word != "maximal"
        if bracketed:
            it.need("[")
        it.need("device_id=" if bracketed else "device=")
        device = it.integer()
        if bracketed:
            it.need("]")
        return _on_one(it.text, device, over and over[0])
    if word not in _WORDS:
        it.refuse(expected)
    if over is None:
        return lambda mesh, rank: in_a_word(word, needed(mesh, it.text), rank)
    theirs, devices = over

    def make(mesh: DeviceMesh | None, rank: int | None) -> Sharding:
        if mesh is not None and theirs.names and mesh.size != theirs.size:
            raise SpecError(f"{_named(it.text)}: it is over {theirs.size} devices, and the mesh {mesh} has {mesh.size}")
        if mesh is None:
            return in_a_word(word, replace(theirs, device_ids=devices, by_id=True), rank)
        if not theirs.names or word in ("replicated", "unknown"):
            return in_a_word(word, mesh, rank)
        return in_a_word(word, theirs, rank).onto(mesh, mesh.places_of(devices or range(theirs.size)))

    return make


def _on_one(text: str, device: int, own: DeviceMesh | None = None) -> _Make:
    def make(mesh: DeviceMesh | None, rank: int | None) -> Sharding:
        mesh = needed(mesh or own, text)
        return Sharding.on_one(mesh.places_of((device,))[0], mesh, rank)

    return make


def _parse_tiles(it: Scanner) -> _Make:
    start = it.at
    dims = it.integers()
    devices = tuple(read_iota(it).tolist()) if it.take("<=") else tuple(it.numbers())
    kinds: tuple[str, ...] = ()
    if it.take("last_tile_dim_replicate"):
        kinds = ("replicated",)
    elif it.take("last_tile_dims={"):
        kinds = tuple(it.listed(it.word, "}", MOST_DIMENSIONS))
    if len(dims) > MOST_DIMENSIONS or math.prod(dims) > MOST_DEVICES:
        it.refuse(f"at most {MOST_DIMENSIONS} dimensions and {MOST_DEVICES} tiles", start)
    tiling = Tiling(dims, kinds, devices)
    return lambda mesh, rank: on_places(tiling, mesh)


def _parse_named(it: Scanner) -> tuple[_Make, str]:
    own, devices = read_module_mesh(it)
    if len(devices) == 1 and not own.names:  # one device holds all
        return _on_one(it.text, devices[0]), "sum"
    it.need(",")
    if it.sees("["):
        dims = read_dimensions(it, priorities=False)
        lists = read_lists(it, ("replicated", "unreduced", "manual"), before="metadata=")
        return lambda mesh, rank: build(own, devices, dims, lists, mesh, rank), lists.get("kind", "sum")
    expected = "dimensions such as [{'a'}, {}], or replicated, manual, unreduced, unknown"
    make, kind = _parse_word(it, word := it.word(), expected, (own, devices)), "sum"
    if word == "unreduced":
        kind = partial_kind(it.word(), _named(it.text)) if it.take("=") else "sum"
        if it.sees("{"):  # XLA names the axes too, where the mesh has others of one device
            read_axes(it)
    return make, kind


def in_a_word(word: str, mesh: DeviceMesh, rank: int | None) -> Sharding:
    """The record of `replicated`, `manual`, `unreduced` or `unknown`, over a whole mesh."""
    if word == "unknown":
        return Sharding.not_known(mesh, rank)
    every = tuple(n for n, s in zip(mesh.names, mesh.sizes, strict=True) if s > 1)
    spec = Spec(((),) * (rank or 0), every if word == "unreduced" else ())
    return Sharding.from_spec(spec, mesh, rank, manual=every if word == "manual" else ())


def needed(mesh: DeviceMesh | None, text: str) -> DeviceMesh:
    """The mesh; a `MeshError` where there is none."""
    if mesh is None:
        raise MeshError(f"{excerpt(text)}: it names no mesh; give one, such as mesh='data=8,model=4'")
    return mesh


def write_v1(sharding: Sharding) -> Iterator[Piece]:
    """V1: every device by its number."""
    check_tiled(sharding, "HLO V1")
    return _written(sharding, None if sharding.kind != "other" else in_numbers(sharding))


def write_v2(sharding: Sharding) -> Iterator[Piece]:
    """V2: the devices as an iota, reshaped and transposed."""
    check_tiled(sharding, "HLO V2")
    if sharding.kind != "other":
        return _written(sharding, None)
    tiling = in_numbers(sharding)
    count = iota_of(tiling.devices)
    if count is None:
        shape = ",".join(map(str, tiling.dims))
        listed = ",".join(map(str, tiling.devices[:8])) + (",..." if len(tiling.devices) > 8 else "")
        raise SpecError(
            f"tile assignment [{shape}]{listed}: the devices are no reshaped and transposed iota, which is all that "
            "HLO V2 can write; hlo-v1 lists them"
        )
    return _written(sharding, tiling, count)


def check_tiled(sharding: Sharding, name: str) -> None:
    """Raises where a tile assignment cannot say it."""
    if any(sharding.open):
        raise SpecError(f"{sharding}: {name} has no open dimensions; Shardy and HLO V3 have")
    _check_named(sharding, name)


def _check_named(sharding: Sharding, name: str) -> None:
    if any(p is not None for p in sharding.priorities):
        raise SpecError(f"{sharding}: {name} has no priorities, which only Shardy has")
    if sharding.reduced:
        raise SpecError(f"{sharding}: {name} has no reduced axes; JAX's types have")


TYPE_WORDS = {
    "replicated": "every device holds a copy",
    "maximal": "one device holds the whole array",
    "manual": "the program itself says what each device does, as in a shard_map",
    "unreduced": "every device holds a partial sum, still to be added",
    "unknown": "the compiler did not say how it is sharded",
    "other": "the array is sharded into tiles, as the other fields say",
}
_GROUP_WORDS = {
    "replicated": "hold copies",
    "manual": "are the program's own business, as in a shard_map",
    "unreduced": "hold partial sums, still to be added",
}


def _written(
    sharding: Sharding, tiling: Tiling | None, count: tuple[Sequence[int], Sequence[int]] | None = None
) -> Iterator[Piece]:
    yield "{"
    if tiling is None:
        if sharding.maximal is None:
            yield Letter(sharding.kind, of_kind(TYPE_WORDS[sharding.kind], sharding))
            yield from _metadata(sharding)
        else:
            place = ", a place in the mesh's order" if _turned(sharding) else ""
            number = int(sharding.mesh.numbers()[sharding.maximal])
            yield Letter(f"maximal device={number}", f"the whole array is on device {number}{place}")
        yield "}"
        return
    yield Letter(f"devices=[{','.join(map(str, tiling.dims))}]", tiles_words(tiling))
    if count is None:
        yield Letter(",".join(map(str, tiling.devices)), devices_words(sharding))
    else:
        reshape, order = count
        yield Letter(f"<=[{','.join(map(str, reshape))}]", reshape_words(sharding, reshape))
        if len(order) > 1:
            yield Letter(f"T({','.join(map(str, order))})", transpose_words(reshape, order))
    if tiling.kinds == ("replicated",):
        yield " "
        yield Letter("last_tile_dim_replicate", copies_words(tiling))
    elif tiling.kinds:
        yield " "
        yield Letter(f"last_tile_dims={{{', '.join(tiling.kinds)}}}", of_kind(groups_words(tiling), sharding))
        yield from _metadata(sharding)
    yield "}"


REDUCTION = "sdy::reduction_op"
"""What XLA's metadata call the kind of partial results, where they are no sums."""


def _metadata(sharding: Sharding) -> Iterator[Piece]:
    if sharding.unreduced_kind != "sum":
        yield " "
        text = f'metadata={{op_type="{REDUCTION}" op_name="{sharding.unreduced_kind.upper()}"}}'
        yield Letter(text, f"the partial results are still to be reduced by their {sharding.unreduced_kind}")


def of_kind(words: str, sharding: Sharding) -> str:
    """Words about partial sums, for the partial results that there are."""
    if sharding.unreduced_kind == "sum":
        return words
    return words.replace("partial sum", f"partial {sharding.unreduced_kind}").replace("to be added", "to be reduced")


def tiles_words(tiling: Tiling) -> str:
    """What the dimensions of a tile assignment mean."""
    first, rest = (list(map(str, n)) for n in (tiling.tiles, tiling.dims[len(tiling.tiles) :]))
    text = f"tiles along each dimension: {', '.join(first)}" if first else "no dimensions"
    if len(rest) == 1:
        return f"{text}; the number behind them, {rest[0]}, counts devices that share a tile"
    return f"{text}; the numbers behind them, {', '.join(rest)}, count devices that share a tile" if rest else text


def _turned(sharding: Sharding) -> bool:
    """Whether text numbers the devices otherwise than by their ids."""
    return bool(sharding.mesh.device_ids) and not sharding.mesh.by_id


def devices_words(sharding: Sharding) -> str:
    """What a list of devices means."""
    turned = "; places in the mesh's order, not the devices' ids" if _turned(sharding) else ""
    return f"the device of each tile, the last number of the tiles counting fastest{turned}"


def reshape_words(sharding: Sharding, reshape: Sequence[int]) -> str:
    """What the shape of an iota means."""
    turned = " (places in the mesh's order, not the devices' ids)" if _turned(sharding) else ""
    count = f"the devices 0 to {math.prod(reshape) - 1}{turned}"
    if len(reshape) == 1:
        return f"{count}, in order"
    return f"{count}, row by row in a table of {' x '.join(map(str, reshape))}"


def transpose_words(reshape: Sequence[int], order: Sequence[int]) -> str:
    """What the transpose of an iota means, with its first numbers."""
    if len(order) == 1:
        return "and read as it stands"
    devices = iota(reshape, order)
    listed = ", ".join(map(str, devices[:6].tolist())) + (", ..." if len(devices) > 6 else "")
    return f"and read with the table's dimensions in the order {', '.join(map(str, order))}: {listed}"


def copies_words(tiling: Tiling) -> str:
    """What the last dimension of a tile assignment means where it counts copies."""
    return f"each tile is on {tiling.dims[-1]} devices, as copies"


def groups_words(tiling: Tiling) -> str:
    """What the subgroups of a tile assignment mean."""
    sizes = zip(tiling.kinds, tiling.dims[len(tiling.tiles) :], strict=True)
    groups = (f"groups of {size} devices {_GROUP_WORDS[kind]}" for kind, size in sizes)
    return f"the devices that share a tile: {', and '.join(groups)}"


def write_v3(sharding: Sharding) -> Iterator[Piece]:
    """V3: axes by their names; of a mesh of its own where no axes of the record's mesh say it."""
    _check_named(sharding, "HLO V3")
    if sharding.unknown or sharding.maximal is not None:
        what = "it is unknown" if sharding.unknown else sharding.why
        raise SpecError(f"{sharding}: HLO V3 names mesh axes, and {what}; hlo-v2 has a word for it")
    mesh, devices = sharding.mesh, sharding.mesh.device_ids if sharding.mesh.by_id else ()
    lists: dict[str, Sequence[Axis]] = {k: getattr(sharding, k) for k in ("replicated", "unreduced", "manual")}
    dims: Sequence[Sequence[Axis]] = sharding.spec.dims if sharding.spec is not None else ()
    if sharding.spec is None:  # an axis for each dimension of the tile assignment
        tiling = in_numbers(sharding)
        mesh, devices = DeviceMesh(tuple(f"axis_{i}" for i in range(len(tiling.dims))), tiling.dims), tiling.devices
        dims = [(name,) if size > 1 else () for name, size in zip(mesh.names, tiling.tiles, strict=False)]
        groups = list(zip(mesh.names[len(dims) :], tiling.kinds, strict=True))
        lists = {kind: [name for name, k in groups if k == kind] for kind in ("unreduced", "manual")}
    yield "{"
    sizes = ",".join(f"{_quote(name)}={size}" for name, size in mesh.shape.items())
    axes = ", ".join(f"axis {name} of {size}" for name, size in mesh.shape.items())
    yield Letter(f"mesh[{sizes}]", f"the mesh: {axes}, the last counting fastest" if axes else "a mesh without axes")
    yield ", "
    if devices:
        listed, count = ",".join(map(str, devices)), iota_of(devices)
        counted = listed if count is None else iota_text(*count)
        yield Letter(f"device_ids=({min(counted, listed, key=len)})", "the devices in the order of that mesh")
        yield ", "
    yield from write_dimensions(sharding, dims, _quote)
    yield from write_lists(lists, sharding.unreduced_kind, _quote)
    yield "}"


def _quote(name: str) -> str:
    if any(c in name for c in "'\\\n"):
        raise SpecError(f"axis {name!r}: HLO V3 puts names in single quotes, so it can hold no quote and no backslash")
    return f"'{name}'"
