"""The devices of a mesh, each in the colour of the slice that it holds: who has copies is seen at a glance.

A shard map of thousands of devices is drawn in cells that stand for many; which devices hold copies is then written in
them, as numbers. Here every device has its place in the mesh, and neighbours that hold one slice are one box. Slices
have the colours of a ramp, which people with colour-blindness can tell apart, as the map's merged cells have; the
second cue is the slice's number in the box, or strokes over every other slice where there is no room for it.

>>> from shardviz.layouts import layout
>>> from shardviz.view.scene import build_scene
>>> scene = build_scene(layout((64, 8), ("data", None), {"data": 4, "model": 8}))
>>> [(box.at, box.size, box.cell) for box in boxes(scene)]
[((0, 0), (1, 8), 0), ((1, 0), (1, 8), 1), ((2, 0), (1, 8), 2), ((3, 0), (1, 8), 3)]
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shardviz.notation import DeviceMesh
from shardviz.records.collectives import axes_words
from shardviz.view.document import device_ranges
from shardviz.view.picture import Grid, Key, Labels, Lines, Picture, Rects, Shape, shortened
from shardviz.view.scene import Scene, coarsen, copies_along, group_along

STEPS = 8
"""Colours of the ramp, the roles `held0` to `held7`."""
MOST_BOXES = 600
"""Boxes of which more are not drawn: slices are merged until they are fewer."""
MOST_DEVICES = 8192
_WIDE, _HIGH, _LEFT, _TOP = 380.0, 330.0, 26.0, 22.0
_LETTER, _LINE = 5.8, 11.0  # pixels of a label's letters
_BOXES, _OVER, _PICKED = 1, 2, 5  # layers
_TITLE = "Devices by slice"


@dataclass(frozen=True)
class Patch:
    """Neighbouring devices that hold the same.

    Attributes:
        at: row and column of the first device.
        size: rows and columns.
        cell: what they hold, by its place in the scene.
    """

    at: tuple[int, int]
    size: tuple[int, int]
    cell: int


def grid_of(mesh: DeviceMesh) -> tuple[int, int]:
    """Rows and columns in which a mesh's devices stand, in their order: the last axis runs across.

    >>> grid_of(DeviceMesh.of("data=64,model=32")), grid_of(DeviceMesh.of("data=2048"))
    ((64, 32), (32, 64))
    """
    sizes = [n for n in mesh.sizes if n > 1] or [1]
    across = next(n for n in range(math.isqrt(2 * mesh.size), 0, -1) if mesh.size % n == 0)
    across = sizes[-1] if len(sizes) > 1 else across
    return mesh.size // across, across


def boxes(scene: Scene) -> list[Patch]:
    """The devices of a scene in boxes of neighbours that hold the same cell; those that hold nothing are in none."""
    ids = scene.mesh.ids()
    cell_of = np.full(int(ids.max()) + 1, -1)
    cell_of[scene.held.reshape(scene.cells, -1)] = np.arange(scene.cells)[:, None]
    whole: list[Patch] = []
    growing: dict[tuple[int, int, int], Patch] = {}  # by first column, columns and cell: boxes that end at the last row
    for r, row in enumerate(cell_of[ids].reshape(grid_of(scene.mesh)).tolist()):
        below, c = {}, 0
        for cell, same in itertools.groupby(row):
            many = len(list(same))
            key, c = (c, many, cell), c + many
            above = growing.pop(key, Patch((r, key[0]), (0, many), cell))
            below[key] = replace(above, size=(above.size[0] + 1, many))
        whole += growing.values()
        growing = below
    return sorted((box for box in (*whole, *growing.values()) if box.cell >= 0), key=lambda box: box.at)


def step_of(cell: int, cells: int) -> int:
    """The colour of a slice among so many: the first has the first, the last the last."""
    return cell * (STEPS - 1) // max(cells - 1, 1)


def tinted(drawn: Picture) -> Picture:
    """A shard map whose cells have the colours of their slices."""
    cells = sum(len(grid.cells) for grid in drawn.grids)
    fills = iter([f"held{step_of(cell, cells)}" for cell in range(cells)])
    shapes = (
        replace(shape, fill=tuple(itertools.islice(fills, len(shape.cells)))) if isinstance(shape, Grid) else shape
        for shape in drawn.shapes
    )
    return replace(drawn, shapes=tuple(shapes))


def holders_picture(fine: Scene, device: int = -1) -> Picture | None:
    """The devices of a mesh in the colours of what they hold, with the groups of a picked device outlined (its place in
    the mesh; below 0 for none). None where one device holds all, or where the slices are too scattered to be drawn."""
    mesh = fine.mesh
    if fine.layout.maximal or mesh.size > MOST_DEVICES:
        return None
    limits = (2**n for n in range(9, -1, -1))
    scenes = itertools.chain((fine,), (coarsen(fine, rows=n, columns=n, panels=n) for n in limits))
    drawn = ((scene, every) for scene in scenes if len(every := boxes(scene)) <= MOST_BOXES)
    scene, every = next(drawn, (fine, []))
    if not every:
        return None
    rows, columns = grid_of(mesh)
    wide, high = _WIDE / columns, max(2.0, min(_HIGH / rows, 3 * _LINE, _WIDE / columns))
    numbers = {box.cell: _number(scene, box.cell) for box in every}
    fits = all(
        (len(numbers[box.cell]) + 0.6) * _LETTER <= box.size[1] * wide and box.size[0] * high >= _LINE for box in every
    )
    shapes: list[Shape] = []
    for step in range(STEPS):
        if alike := [box for box in every if step_of(box.cell, scene.cells) == step]:
            labels = tuple(numbers[box.cell] for box in alike) if fits else ()
            shapes.append(replace(_rects(scene, alike, (wide, high)), fill=f"held{step}", labels=labels))
    odd = [box for box in every if box.cell % 2 and not fits]
    if odd:
        shapes.append(Rects(**_corners(odd, wide, high), hatch=0, layer=_OVER))
    shapes += _names(mesh, rows * high)
    if 0 <= device < mesh.size:
        shapes += _outlines(scene, device, wide, high)
    ends = dict.fromkeys((0, scene.cells - 1)) if scene.cells > 1 else ()
    return Picture(
        width=_LEFT + _WIDE,
        height=_TOP + rows * high + 1,
        shapes=tuple(shapes),
        title=_TITLE,
        alt=f"{_TITLE}: {_said(scene, len(every))}.",
        axes=mesh.names,
        keys=tuple(Key(text=scene.slices[cell], fill=f"held{step_of(cell, scene.cells)}") for cell in ends),
        notes=("every other slice is hatched",) if odd else (),
    )


def _said(scene: Scene, count: int) -> str:
    """Which devices have copies, in words."""
    cut, along = scene.layout, copies_along(scene.layout)
    if scene.cells == 1:
        return f"all {cut.mesh.size:,} hold the whole array"
    what = "one slice" if scene.merged == 1 else f"{scene.merged} neighbouring slices"
    if cut.replicas == 1 or not along:
        return f"each box holds {what}, and each device its own part"
    copies = f"copies along {axes_words(along)}: {cut.replicas} of each slice"
    if count == scene.cells:
        return f"each box holds {what}: {copies}"
    return f"each box holds {what}, as do others of its colour and number: {copies}"


def _number(scene: Scene, cell: int) -> str:
    """Which slice a cell is, along each side that is cut: `12`, `3,0-1`."""
    at = np.unravel_index(cell, tuple(side.cells for side in scene.sides))
    ends = [(int(n) * side.merged, side.merged - 1) for n, side in zip(at, scene.sides, strict=True) if side.ways > 1]
    return ",".join(f"{first}-{first + more}" if more else str(first) for first, more in ends)


def _corners(some: Sequence[Patch], wide: float, high: float) -> dict[str, Any]:
    return {
        "x": tuple(_LEFT + box.at[1] * wide for box in some),
        "y": tuple(_TOP + box.at[0] * high for box in some),
        "wide": tuple(box.size[1] * wide for box in some),
        "high": tuple(box.size[0] * high for box in some),
    }


def _rects(scene: Scene, some: Sequence[Patch], size: tuple[float, float]) -> Rects:
    """Boxes; a click picks the first device of a box."""
    places = np.arange(scene.mesh.size).reshape(grid_of(scene.mesh))
    held = [places[b.at[0] : b.at[0] + b.size[0], b.at[1] : b.at[1] + b.size[1]].ravel() for b in some]
    parts = [(device_ranges(scene.mesh.ids()[own]), scene.slices[b.cell]) for b, own in zip(some, held, strict=True)]
    keys = tuple(tuple(own.tolist()) for own in held)
    corners, look = _corners(some, *size), {"stroke": "line", "layer": _BOXES}
    return Rects(**corners, **look, tip="devices {}: {}", told=tuple(parts), select="holder", keys=keys)


def _names(mesh: DeviceMesh, high: float) -> Iterator[Labels]:
    """The names of the axes, across and down."""
    *down, across = [f"{name} {size}" for name, size in mesh.shape.items() if size > 1] or [""]
    for text, at, turned in (
        (across, (_LEFT + _WIDE / 2, 9.0), False),
        (" x ".join(down), (10.0, _TOP + high / 2), True),
    ):
        if text:
            yield Labels(at=(at,), texts=(shortened(text, 40),), align="middle", ink="quiet", turned=turned)


def _outlines(scene: Scene, device: int, wide: float, high: float) -> Iterator[Lines]:
    """Outlines of a device's group along each axis, and of the device."""
    columns = grid_of(scene.mesh)[1]

    def box(place: int) -> tuple[tuple[float, float], ...]:
        x, y = _LEFT + place % columns * wide, _TOP + place // columns * high
        return (x, y), (x + wide, y), (x + wide, y + high), (x, y + high)

    for n, (name, size) in enumerate(scene.mesh.shape.items()):
        if size > 1:
            group = tuple(box(place) for place in group_along(scene.layout, device, n) if place != device)
            yield Lines(lines=group, closed=True, stroke=n, width=1.4, name=name, layer=_PICKED)
    yield Lines(lines=(box(device),), closed=True, stroke="ink", fill="ink", width=2.4, layer=_PICKED)
