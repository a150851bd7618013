"""HLO's text of a sharding in its three versions, as in XLA's programs and dumps.

>>> mesh = DeviceMesh.of({"data": 2, "model": 4})
>>> for text in ("{devices=[4,1,2]0,4,1,5,2,6,3,7 last_tile_dim_replicate}",            # V1: a list of devices
...              "{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}",              # V2: a transposed iota
...              "{mesh['data'=2,'model'=4], [{'model'}, {}]}"):                        # V3: named axes
...     print(read(text, mesh), read_spec(text, mesh, 2))
[model, ·] P('model', None)
[model, ·] P('model', None)
[model, ·] P('model', None)

A tile assignment (V1, V2) names no axes: the reader finds axes from the order of the devices along each dimension.
Device i is at position i of the mesh in row-major order. The formats are those of `HloSharding::ToString`,
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
from shardviz.notation.named import build, read_axes, read_dimensions, read_lists, write_dimensions, write_lists
from shardviz.notation.record import Sharding
from shardviz.notation.scan import Scanner, iota, iota_of, iota_text, read_iota
from shardviz.notation.spec import Axis, Spec, axes_size, axis_size, partial_kind
from shardviz.notation.tiling import Tiling

WHAT = "HLO sharding"
_FIRST = "replicated, manual, unreduced, unknown, maximal device=..., devices=[...] or mesh[...]"
_WORDS = ("replicated", "manual", "unreduced", "unknown")
_REDUCTION = re.compile(r'op_type="sdy::reduction_op"\s+op_name="(\w*+)"')


_Make = Callable[[DeviceMesh | None, int | None], Sharding]
"""A parsed text: called with a mesh (None: the text's own mesh) and an array's rank, it returns the record."""


def read(text: str, mesh: DeviceMesh | None, rank: int | None = None) -> Sharding:
    """Read the HLO sharding (V1, V2 or V3, in braces) of one array, in a mesh whose i-th position is device i. With
    `mesh=None`, use the mesh in the text, or a mesh of one axis `devices`. Raises ParseError for other text, SpecError
    for a tuple's sharding or another number of devices, MeshError without a mesh."""
    make, kind = _parse(text)
    return make(mesh, rank).with_kind(kind)


def on_places(tiling: Tiling, mesh: DeviceMesh | None) -> Sharding:
    """Return the record of a text's tile assignment, which numbers devices; with `mesh=None`, over one axis."""
    if mesh is None:
        return Sharding.from_tiling(tiling, DeviceMesh(("devices",), (len(tiling.devices),)))
    return Sharding.from_tiling(Tiling(tiling.dims, tiling.kinds, mesh.places_of(tiling.devices)), mesh)


def in_numbers(sharding: Sharding) -> Tiling:
    """Return the tile assignment with devices as text numbers them. Raises as `Sharding.tiling` does."""
    tiling = sharding.tiling()
    if not sharding.mesh.by_id:
        return tiling
    return Tiling(tiling.dims, tiling.kinds, tuple(sharding.mesh.numbers()[list(tiling.devices)].tolist()))


def split_tuple(text: str, most: int | None = None) -> tuple[str, ...]:
    """Return up to `most` shardings of a tuple's sharding, `{{replicated}, {devices=[2,1]<=[2]}}`. For one array's
    sharding, return this sharding. Raises ParseError for text that only begins as a tuple's sharding."""
    scan = Scanner(text, WHAT, most=None)
    if not scan.take("{") or not (scan.sees("{") or scan.sees("}")):
        return (text,)
    texts = scan.listed(scan.balanced, "}", most)
    scan.end()
    return tuple(texts)


def _named(text: str) -> str:
    return f"{WHAT} {excerpt(text)}"


@lru_cache(maxsize=256)
def read_spec(text: str, mesh: DeviceMesh, rank: int) -> Spec:
    """Read an array's HLO sharding as a spec over a mesh, with an entry per dimension and without axes of size 1.
    Raises SpecError if no PartitionSpec expresses the sharding, ParseError if the text is not a sharding."""
    try:
        sharding = read(text.strip(), mesh, rank)
    except (ParseError, SpecError) as error:
        if str(error).startswith(WHAT):
            raise
        raise type(error)(f"{_named(text)}: {error}") from error
    if sharding.manual:
        shape = "as inside a shard_map: the shape is one device's"
        if axes_size(sharding.manual, mesh) < mesh.size:
            raise SpecError(f"{_named(text)}: manual over some axes, {shape} along these")
        raise SpecError(f"{_named(text)}: manual, {shape}, and no PartitionSpec expresses its sharding")
    if sharding.spec is None:
        raise SpecError(f"{_named(text)}: {sharding.why}")
    if len(sharding.spec.dims) != rank:
        raise SpecError(f"{_named(text)}: {len(sharding.spec.dims)} dimensions for an array of rank {rank}")
    dims, unreduced = sharding.spec.dims, sharding.spec.unreduced
    larger = [tuple(axis for axis in axes if axis_size(axis, mesh) > 1) for axes in (*dims, unreduced)]
    return Spec(tuple(larger[:-1]), larger[-1], (), sharding.unreduced_kind)


def tile_counts(text: str, rank: int) -> tuple[int, ...] | None:
    """Return the number of tiles along each dimension, on any mesh; None if the sharding has another rank. Raises
    ShardvizError if the text is not a sharding of one array."""
    try:
        tiles = _parse(text.strip())[0](None, rank).tiles
    except MeshError:  # `replicated` or another word, which names no mesh
        return (1,) * rank
    return tiles if len(tiles) == rank else None


@lru_cache(maxsize=256)
def _parse(text: str) -> tuple[_Make, str]:
    scan = Scanner(text, WHAT)
    if split_tuple(text, MOST_VALUES) != (text,):
        raise SpecError(f"{_named(text)}: expected one array's sharding, not a tuple's; pick one element of the tuple")
    scan.need("{")
    kind = "sum"
    if scan.sees("mesh"):
        make, kind = _parse_named(scan)
    elif scan.take("devices="):
        make = _parse_tiles(scan)
    else:
        make = _parse_word(scan, scan.word(_FIRST))
    for _ in range(MOST_DIMENSIONS):
        if scan.take("}"):
            break
        if scan.take("metadata="):
            if reduction := _REDUCTION.search(
                scan.balanced()
            ):  # newer XLA writes the reduction of partial results here
                kind = partial_kind(reduction[1], _named(text))
        elif scan.take("shard_as") or scan.take("shard_like"):
            scan.integer()
        elif not (scan.take(",") and scan.sees("metadata=")):
            scan.fail("'}'")
    else:
        scan.fail("'}'")
    scan.end()
    return make, kind


def _parse_word(
    scan: Scanner, word: str, expected: str = _FIRST, over: tuple[DeviceMesh, tuple[int, ...]] | None = None
) -> _Make:
    """Parse `replicated` or another word; `over` is the mesh in the text, and the device at each of its positions."""
    if word in ("maximal", "single_device", "maximal_mesh"):  # the last two occur in V3, which names mesh axes
        bracketed = word != "maximal"
        if bracketed:
            scan.need("[")
        scan.need("device_id=" if bracketed else "device=")
        device = scan.integer()
        if bracketed:
            scan.need("]")
        return _on_one(scan.text, device, over and over[0])
    if word not in _WORDS:
        scan.refuse(expected)
    if over is None:
        return lambda mesh, rank: in_a_word(word, needed(mesh, scan.text), rank)
    text_mesh, devices = over

    def make(mesh: DeviceMesh | None, rank: int | None) -> Sharding:
        if mesh is not None and text_mesh.names and mesh.size != text_mesh.size:
            raise SpecError(
                f"{_named(scan.text)}: it is over {text_mesh.size} devices, the mesh {mesh} has {mesh.size}"
            )
        if mesh is None:
            return in_a_word(word, replace(text_mesh, device_ids=devices, by_id=True), rank)
        if not text_mesh.names or word in ("replicated", "unknown"):
            return in_a_word(word, mesh, rank)
        return in_a_word(word, text_mesh, rank).onto(mesh, mesh.places_of(devices or range(text_mesh.size)))

    return make


def _on_one(text: str, device: int, own: DeviceMesh | None = None) -> _Make:
    def make(mesh: DeviceMesh | None, rank: int | None) -> Sharding:
        mesh = needed(mesh or own, text)
        return Sharding.on_one(mesh.places_of((device,))[0], mesh, rank)

    return make


def _parse_tiles(scan: Scanner) -> _Make:
    start = scan.at
    dims = scan.integers()
    devices = tuple(read_iota(scan).tolist()) if scan.take("<=") else tuple(scan.numbers())
    kinds: tuple[str, ...] = ()
    if scan.take("last_tile_dim_replicate"):
        kinds = ("replicated",)
    elif scan.take("last_tile_dims={"):
        kinds = tuple(scan.listed(scan.word, "}", MOST_DIMENSIONS))
    if len(dims) > MOST_DIMENSIONS or math.prod(dims) > MOST_DEVICES:
        scan.refuse(f"at most {MOST_DIMENSIONS} dimensions and {MOST_DEVICES} tiles", start)
    tiling = Tiling(dims, kinds, devices)
    return lambda mesh, rank: on_places(tiling, mesh)


def _parse_named(scan: Scanner) -> tuple[_Make, str]:
    own, devices = read_module_mesh(scan)
    if len(devices) == 1 and not own.names:  # maximal: the array is on one device
        return _on_one(scan.text, devices[0]), "sum"
    scan.need(",")
    if scan.sees("["):
        dims = read_dimensions(scan, priorities=False)
        lists = read_lists(scan, ("replicated", "unreduced", "manual"), before="metadata=")
        return lambda mesh, rank: build(own, devices, dims, lists, mesh=mesh, rank=rank), lists.get("kind", "sum")
    expected = "dimensions such as [{'a'}, {}], or replicated, manual, unreduced, unknown"
    make, kind = _parse_word(scan, word := scan.word(), expected, (own, devices)), "sum"
    if word == "unreduced":
        kind = partial_kind(scan.word(), _named(scan.text)) if scan.take("=") else "sum"
        if scan.sees("{"):  # XLA names the axes if the mesh also has axes of one device
            read_axes(scan)
    return make, kind


def in_a_word(word: str, mesh: DeviceMesh, rank: int | None) -> Sharding:
    """Return the record of `replicated`, `manual`, `unreduced` or `unknown`, over all axes of a mesh."""
    if word == "unknown":
        return Sharding.not_known(mesh, rank)
    every = tuple(n for n, s in zip(mesh.names, mesh.sizes, strict=True) if s > 1)
    spec = Spec(((),) * (rank or 0), every if word == "unreduced" else ())
    return Sharding.from_spec(spec, mesh, rank, manual=every if word == "manual" else ())


def needed(mesh: DeviceMesh | None, text: str) -> DeviceMesh:
    """Return the mesh; raise MeshError for None."""
    if mesh is None:
        raise MeshError(f"{excerpt(text)}: it names no mesh; give one, such as mesh='data=8,model=4'")
    return mesh


def write_v1(sharding: Sharding) -> Iterator[Piece]:
    """Write V1, which lists every device by its number."""
    check_tiled(sharding, "HLO V1")
    return _written(sharding, None if sharding.kind != "other" else in_numbers(sharding))


def write_v2(sharding: Sharding) -> Iterator[Piece]:
    """Write V2, which has the devices as an iota, reshaped and transposed."""
    check_tiled(sharding, "HLO V2")
    if sharding.kind != "other":
        return _written(sharding, None)
    tiling = in_numbers(sharding)
    count = iota_of(tiling.devices)
    if count is None:
        shape = ",".join(map(str, tiling.dims))
        listed = ",".join(map(str, tiling.devices[:8])) + (",..." if len(tiling.devices) > 8 else "")
        raise SpecError(
            f"tile assignment [{shape}]{listed}: HLO V2 writes the devices as a reshaped and transposed iota, which "
            "cannot express this order; use hlo-v1, which lists them"
        )
    return _written(sharding, tiling, count)


def check_tiled(sharding: Sharding, name: str) -> None:
    """Raise SpecError if a tile assignment cannot express the sharding."""
    if any(sharding.open):
        raise SpecError(f"{sharding}: {name} has no open dimensions; Shardy and HLO V3 have them")
    _check_named(sharding, name)


def _check_named(sharding: Sharding, name: str) -> None:
    if any(p is not None for p in sharding.priorities):
        raise SpecError(f"{sharding}: {name} has no priorities; only Shardy has them")
    if sharding.reduced:
        raise SpecError(f"{sharding}: {name} has no reduced axes; JAX's types have them")


TYPE_WORDS = {
    "replicated": "every device holds a copy",
    "maximal": "one device holds the whole array",
    "manual": "the program itself says what each device does, as in a shard_map",
    "unreduced": "every device holds a partial sum, still to be added",
    "unknown": "the compiler did not state its sharding",
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
            place = ", a place in the mesh's order" if _by_position(sharding) else ""
            number = int(sharding.mesh.numbers()[sharding.maximal])
            yield Letter(f"maximal device={number}", f"the full array is on device {number}{place}")
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
"""The `op_type` in XLA's metadata whose `op_name` is the reduction of partial results, unless it is a sum."""


def _metadata(sharding: Sharding) -> Iterator[Piece]:
    if sharding.unreduced_kind != "sum":
        yield " "
        text = f'metadata={{op_type="{REDUCTION}" op_name="{sharding.unreduced_kind.upper()}"}}'
        yield Letter(text, f"the partial results are still to be reduced by their {sharding.unreduced_kind}")


def of_kind(words: str, sharding: Sharding) -> str:
    """Adapt words about partial sums to the reduction of this sharding's partial results."""
    if sharding.unreduced_kind == "sum":
        return words
    return words.replace("partial sum", f"partial {sharding.unreduced_kind}").replace("to be added", "to be reduced")


def tiles_words(tiling: Tiling) -> str:
    """Return the meaning of a tile assignment's dimensions."""
    first, rest = (list(map(str, n)) for n in (tiling.tiles, tiling.dims[len(tiling.tiles) :]))
    text = f"tiles along each dimension: {', '.join(first)}" if first else "no dimensions"
    if len(rest) == 1:
        return f"{text}; the number behind them, {rest[0]}, counts devices that share a tile"
    return f"{text}; the numbers behind them, {', '.join(rest)}, count devices that share a tile" if rest else text


def _by_position(sharding: Sharding) -> bool:
    """Return whether text numbers the devices by position although the mesh has other device ids."""
    return bool(sharding.mesh.device_ids) and not sharding.mesh.by_id


def devices_words(sharding: Sharding) -> str:
    """Return the meaning of a list of devices."""
    by_position = "; places in the mesh's order, not the devices' ids" if _by_position(sharding) else ""
    return f"the device of each tile, the last number of the tiles counting fastest{by_position}"


def reshape_words(sharding: Sharding, reshape: Sequence[int]) -> str:
    """Return the meaning of an iota's shape."""
    by_position = " (places in the mesh's order, not the devices' ids)" if _by_position(sharding) else ""
    count = f"the devices 0 to {math.prod(reshape) - 1}{by_position}"
    if len(reshape) == 1:
        return f"{count}, in order"
    return f"{count}, row by row in a table of {' x '.join(map(str, reshape))}"


def transpose_words(reshape: Sequence[int], order: Sequence[int]) -> str:
    """Return the meaning of an iota's transpose, with its first numbers."""
    if len(order) == 1:
        return "and read as it stands"
    devices = iota(reshape, order)
    listed = ", ".join(map(str, devices[:6].tolist())) + (", ..." if len(devices) > 6 else "")
    return f"and read with the table's dimensions in the order {', '.join(map(str, order))}: {listed}"


def copies_words(tiling: Tiling) -> str:
    """Return the meaning of a tile assignment's last dimension if it counts copies."""
    return f"each tile is on {tiling.dims[-1]} devices, as copies"


def groups_words(tiling: Tiling) -> str:
    """Return the meaning of a tile assignment's subgroups."""
    sizes = zip(tiling.kinds, tiling.dims[len(tiling.tiles) :], strict=True)
    groups = (f"groups of {size} devices {_GROUP_WORDS[kind]}" for kind, size in sizes)
    return f"the devices that share a tile: {', and '.join(groups)}"


def write_v3(sharding: Sharding) -> Iterator[Piece]:
    """Write V3, which names axes; a sharding along no axes of its mesh gets a mesh of its own."""
    _check_named(sharding, "HLO V3")
    if sharding.unknown or sharding.maximal is not None:
        what = "it is unknown" if sharding.unknown else sharding.why
        raise SpecError(f"{sharding}: HLO V3 names mesh axes, and {what}; use hlo-v2")
    mesh, devices = sharding.mesh, sharding.mesh.device_ids if sharding.mesh.by_id else ()
    lists: dict[str, Sequence[Axis]] = {k: getattr(sharding, k) for k in ("replicated", "unreduced", "manual")}
    dims: Sequence[Sequence[Axis]] = sharding.spec.dims if sharding.spec is not None else ()
    if sharding.spec is None:  # use one axis for each dimension of the tile assignment
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
        raise SpecError(f"axis {name!r}: HLO V3 quotes names in '...', so a name cannot contain a quote or a backslash")
    return f"'{name}'"
