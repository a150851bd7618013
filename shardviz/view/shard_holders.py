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

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardviz.layouts import Layout
from shardviz.notation import DeviceMesh
from shardviz.records.collectives import axes_words
from shardviz.view.picture import Grid, Key, Labels, Lines, Picture, Rects, Shape, shortened
from shardviz.view.ranges import device_ranges
from shardviz.view.scene import Scene, coarsen, copies_along, group_along

STEPS = 8
"""Colours of the ramp, the roles `held0` to `held7`."""
MOST_BOXES = 600
"""Boxes of which more are not drawn: slices are merged until they are fewer."""
MOST_DEVICES = 8192
_WIDE, _HIGH, _LEFT, _TOP = 380.0, 330.0, 26.0, 22.0
_LETTER, _LINE = 5.8, 11.0  # pixels of a label's letters
_BOXES, _OVER, _PICKED = 1, 2, 5  # layers


@dataclass(frozen=True)
class Box:
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
    if len(sizes) > 1:
        return mesh.size // sizes[-1], sizes[-1]
    across = next(n for n in range(math.isqrt(2 * mesh.size), 0, -1) if mesh.size % n == 0)
    return mesh.size // across, across


def boxes(scene: Scene) -> list[Box]:
    """The devices of a scene in boxes of neighbours that hold the same cell; those that hold nothing are in none."""
    mesh = scene.mesh
    rows, columns = grid_of(mesh)
    places = np.full(int(mesh.ids().max()) + 1, -1)
    places[mesh.ids()] = np.arange(mesh.size)
    holds = np.full(mesh.size, -1)
    cells = scene.devices.reshape(scene.cells, -1)
    holds[places[cells]] = np.arange(scene.cells)[:, None]
    held = holds.reshape(rows, columns)
    found: list[Box] = []
    growing: dict[tuple[int, int, int], Box] = {}  # by first column, columns and cell: boxes that end at the last row
    for r in range(rows):
        ends = [*(np.flatnonzero(np.diff(held[r])) + 1).tolist(), columns]
        now = {}
        for c, end in zip([0, *ends], ends, strict=False):
            cell = int(held[r, c])
            if cell < 0:
                continue
            above = growing.pop((c, end - c, cell), None)
            box = (
                Box((r, c), (1, end - c), cell) if above is None else Box(above.at, (above.size[0] + 1, end - c), cell)
            )
            now[c, end - c, cell] = box
        found += growing.values()
        growing = now
    return sorted((*found, *growing.values()), key=lambda box: box.at)


def step_of(cell: int, cells: int) -> int:
    """The colour of a slice among so many: the first has the first, the last the last."""
    return cell * (STEPS - 1) // max(cells - 1, 1)


def tinted(drawn: Picture) -> Picture:
    """A shard map whose cells have the colours of what they hold."""
    first, cells = 0, sum(len(grid.cells) for grid in drawn.grids)
    shapes: list[Shape] = []
    for shape in drawn.shapes:
        if isinstance(shape, Grid):
            own = range(first, first := first + len(shape.cells))
            shape = dataclasses.replace(shape, fill=tuple(f"held{step_of(cell, cells)}" for cell in own))
        shapes.append(shape)
    return dataclasses.replace(drawn, shapes=tuple(shapes))


def holders_picture(fine: Scene, device: int = -1) -> Picture | None:
    """The devices of a mesh in the colours of what they hold.

    Args:
        fine: the array's scene, one cell a slice.
        device: the place in the mesh of a device that is picked, whose groups are outlined; below 0 for none.

    Returns:
        The picture; None where one device holds all, or where the slices lie too scattered to be drawn.
    """
    cut, mesh = fine.layout, fine.mesh
    if cut.maximal or mesh.size > MOST_DEVICES:
        return None
    scene, most = fine, 1024
    while len(found := boxes(scene)) > MOST_BOXES:
        if most == 1:
            return None
        most //= 2
        scene = coarsen(fine, rows=most, columns=most, panels=most)
    rows, columns = grid_of(mesh)
    wide, high = _WIDE / columns, max(2.0, min(_HIGH / rows, 3 * _LINE, _WIDE / columns))
    shapes: list[Shape] = []
    ids, labels = mesh.ids(), [_number(scene, box.cell) for box in found]
    fits = all(
        (len(label) + 0.6) * _LETTER <= box.size[1] * wide and box.size[0] * high >= _LINE
        for box, label in zip(found, labels, strict=True)
    )
    for step in range(STEPS):
        some = [n for n, box in enumerate(found) if step_of(box.cell, scene.cells) == step]
        if some:
            shapes.append(
                _rects(scene, [found[n] for n in some], (wide, high), ids, [labels[n] for n in some] if fits else [])
            )
    odd = [box for box in found if box.cell % 2]
    if odd and not fits:
        shapes.append(Rects(**_corners(odd, wide, high), hatch=0, layer=_OVER))
    shapes += _sides(mesh, rows, columns, high)
    if 0 <= device < mesh.size:
        shapes += _outlines(cut, device, columns, wide, high)
    title = "The devices, by what they hold"
    keys = [Key(text=_slice(scene, cell), fill=f"held{step_of(cell, scene.cells)}") for cell in (0, scene.cells - 1)]
    return Picture(
        width=_LEFT + _WIDE,
        height=_TOP + rows * high + 1,
        shapes=tuple(shapes),
        title=title,
        alt=f"{title}: {_said(scene, found)}.",
        axes=mesh.names,
        keys=tuple(keys) if scene.cells > 1 else (),
        notes=("strokes lie over every other slice",) if odd and not fits else (),
    )


def _said(scene: Scene, found: list[Box]) -> str:
    """Who has copies, in words."""
    cut, along = scene.layout, copies_along(scene.layout)
    if scene.cells == 1:
        return f"all {cut.mesh.size:,} hold the whole array"
    what = "one slice" if scene.merged == 1 else f"{scene.merged} neighbouring slices"
    if cut.replicas == 1 or not along:
        return f"those of a box hold {what}, and no two devices the same"
    copies = f"copies along {axes_words(along)}: {cut.replicas} of each slice"
    if len(found) == scene.cells:
        return f"those of a box hold {what}, as {copies}"
    return f"each box holds {what}, and so do others of its colour and number, as {copies}"


def _place(scene: Scene, cell: int) -> tuple[int, int, int]:
    across = scene.rows.cells * scene.columns.cells
    return cell // across, cell % across // scene.columns.cells, cell % scene.columns.cells


def _slice(scene: Scene, cell: int) -> str:
    return scene.index_text(*_place(scene, cell))


def _number(scene: Scene, cell: int) -> str:
    """Which slice a cell is, along each side that is cut: `12`, `3,0-1`."""
    panel, r, c = _place(scene, cell)
    said = []
    for side, at in zip((*scene.depth, scene.rows, scene.columns), (*scene.place(panel), r, c), strict=True):
        if side.ways > 1:
            first, last = at * side.merged, (at + 1) * side.merged - 1
            said.append(str(first) if first == last else f"{first}-{last}")
    return ",".join(said)


def _corners(found: list[Box], wide: float, high: float) -> dict[str, Any]:
    return {
        "x": tuple(_LEFT + box.at[1] * wide for box in found),
        "y": tuple(_TOP + box.at[0] * high for box in found),
        "wide": tuple(box.size[1] * wide for box in found),
        "high": tuple(box.size[0] * high for box in found),
    }


def _rects(scene: Scene, found: list[Box], size: tuple[float, float], ids: np.ndarray, labels: list[str]) -> Rects:
    """Boxes of one colour; a click picks the first device of a box."""
    columns = grid_of(scene.mesh)[1]
    keys = [
        tuple(
            (r * columns + c)
            for r in range(box.at[0], box.at[0] + box.size[0])
            for c in range(box.at[1], box.at[1] + box.size[1])
        )
        for box in found
    ]
    told = tuple(
        (device_ranges([int(ids[place]) for place in places]), _slice(scene, box.cell))
        for box, places in zip(found, keys, strict=True)
    )
    return Rects(
        **_corners(found, *size),
        fill=f"held{step_of(found[0].cell, scene.cells)}",
        stroke="line",
        labels=tuple(labels),
        tip="devices {}: {}",
        told=told,
        select="holder",
        keys=tuple(keys),
        layer=_BOXES,
    )


def _sides(mesh: DeviceMesh, rows: int, columns: int, high: float) -> list[Shape]:
    """The names of the axes, across and down."""
    cut = [f"{name} {size}" for name, size in mesh.shape.items() if size > 1]
    down, across = (" x ".join(cut[:-1]), cut[-1]) if len(cut) > 1 else ("", " ".join(cut))
    found: list[Shape] = []
    for text, at, turned in (
        (across, (_LEFT + _WIDE / 2, 9.0), False),
        (down, (10.0, _TOP + rows * high / 2), True),
    ):
        if text:
            found.append(Labels(at=(at,), texts=(shortened(text, 40),), align="middle", ink="quiet", turned=turned))
    return found


def _outlines(cut: Layout, device: int, columns: int, wide: float, high: float) -> list[Shape]:
    """A device, and those of its group along each axis."""

    def box(place: int) -> tuple[tuple[float, float], ...]:
        r, c = divmod(place, columns)
        x, y = _LEFT + c * wide, _TOP + r * high
        return (x, y), (x + wide, y), (x + wide, y + high), (x, y + high)

    found: list[Shape] = []
    for n, (name, size) in enumerate(cut.mesh.shape.items()):
        if size > 1:
            group = tuple(box(place) for place in group_along(cut, device, n) if place != device)
            found.append(Lines(lines=group, closed=True, stroke=n, dash=None, width=1.4, name=name, layer=_PICKED))
    return [*found, Lines(lines=(box(device),), closed=True, stroke="ink", fill="ink", width=2.4, layer=_PICKED)]
