"""Which device gets how many bytes of which, as a matrix; along each mesh axis where there are too many devices."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle

from shardviz.costs.step_cost import StepCost
from shardviz.paint.theme import axis_colours
from shardviz.records.amounts import format_bytes
from shardviz.render.mpl_look import Look, figure, room_of
from shardviz.render.traffic_scene import MOST_DEVICES, strengths, tables_of

_SIDE, _GAP = 4.4, 0.9
_HATCHED = 32
"""Devices up to which cells have their axis' hatch."""


def traffic_axes(cost: StepCost, ax: Axes | None = None, *, dark: bool = False) -> Axes:
    """Bytes from each device to each other in a step; row sends, column receives, in mesh order.

    A cell has the colour of the mesh axis along which the two differ; its strength is the logarithm of the bytes. Above
    64 devices there is a matrix for each mesh axis in place of one.
    """
    look, colours = Look(dark), axis_colours(cost.mesh)
    tables = [(t.title, t.values, t.axis) for t in tables_of(cost)]
    inks = [(look.fill(colours[name]), colours[name].hatch) for name in cost.mesh.names]
    whole = len(tables) * (_SIDE + _GAP) - _GAP
    new = (look, max(whole + 1.3, 7.2), _SIDE + 2.2, (0.65, 1.1, whole, _SIDE))
    axes = figure(*new) if ax is None else ax
    room = room_of(axes)
    scale = min(1.0, room[0] / whole, room[1] / _SIDE)
    said = []
    for number, (title, table, which) in enumerate(tables):
        left = number * (_SIDE + _GAP)
        said.append(_matrix(axes, look, inks, (left, title), table, which, scale))
    axes.set_xlim(0, max(whole, room[0] / scale if ax is None else whole))
    axes.set_ylim(_SIDE, 0)
    axes.set_axis_off()
    axes.set_title(
        f"{cost.program} on {cost.machine.text}: traffic in a step",
        loc="left",
        color=look.ink,
        fontsize=11,
        pad=46,
        parse_math=False,
    )
    named = [n for n, s in cost.mesh.shape.items() if s > 1]
    x = 0.0
    for name in named:
        axes.add_patch(
            Rectangle(
                (x, _SIDE + 0.34),
                0.16,
                0.16,
                fc=look.fill(colours[name]),
                ec=look.hatch,
                hatch=colours[name].hatch,
                lw=0,
                clip_on=False,
            )
        )
        axes.text(x + 0.22, _SIDE + 0.42, name, color=look.ink, fontsize=9, va="center", parse_math=False)
        x += 0.45 + 0.085 * len(name)
    if cost.mesh.size <= MOST_DEVICES and len(named) > 1:
        axes.add_patch(Rectangle((x, _SIDE + 0.34), 0.16, 0.16, fc=look.quiet, ec="none", clip_on=False))
        axes.text(x + 0.22, _SIDE + 0.42, "several axes", color=look.ink, fontsize=9, va="center")
    for line, text in enumerate(
        (
            "row sends, column receives, whatever way it goes",
            "the stronger, the more bytes: the lightest a ten-thousandth of the most, or less",
        )
    ):
        axes.text(0, _SIDE + 0.68 + 0.19 * line, text, color=look.quiet, fontsize=8.5, va="center")
    axes.set_label("Traffic in a step. " + " ".join(said))
    return axes


def _matrix(
    axes: Axes,
    look: Look,
    inks: list[tuple[str, str]],
    head: tuple[float, str],
    table: np.ndarray,
    which: np.ndarray,
    scale: float,
) -> str:
    left, title = head
    size = len(table)
    side = _SIDE / size
    axes.add_patch(Rectangle((left, 0), _SIDE, _SIDE, fc=look.tile, ec=look.line, lw=0.8))
    rows, columns = np.nonzero(table)
    values = table[rows, columns]
    most, least = (float(values.max()), float(values.min())) if len(values) else (0.0, 0.0)
    page = np.array(to_rgb(look.tile))
    edge = look.page if size <= _HATCHED else "none"
    for axis in range(-1, len(inks)):
        ink, hatch = (look.quiet, None) if axis < 0 else inks[axis]
        cells = [(i, j, float(table[i, j])) for i, j in zip(rows, columns, strict=True) if which[i, j] == axis]
        if not cells:
            continue
        ink = np.array(to_rgb(ink))
        strong = strengths(np.array([value for *_, value in cells]), most)
        boxes = [Rectangle((left + j * side, i * side), side, side) for i, j, _ in cells]
        fills = [tuple(page + (ink - page) * strength) for strength in strong]
        axes.add_collection(PatchCollection(boxes, facecolors=fills, edgecolors=edge, linewidths=0.6))
        if hatch and size <= _HATCHED:  # the axis once more, without colour
            lines = PatchCollection(boxes, facecolors="none", edgecolors=[look.hatch], linewidths=0, hatch=hatch)
            axes.add_collection(lines)
    step = max(1, 2 ** math.ceil(math.log2(size / 16))) if size > 16 else 1
    for at in range(0, size, step):
        middle = (at + 0.5) * side
        note = {"color": look.quiet, "fontsize": 8 * min(1.0, 0.6 + 0.4 * scale)}
        axes.text(left - 0.08, middle, str(at), ha="right", va="center", **note)
        axes.text(left + middle, -0.06, str(at), ha="center", va="bottom", **note)
    between = (
        f"{format_bytes(least)} to {format_bytes(most)}"
        if format_bytes(least) != format_bytes(most)
        else format_bytes(most)
    )
    text = f"{title}: {between} a cell" if len(values) else f"{title}: nothing moves"
    axes.text(left, -0.32, text, color=look.ink, fontsize=9, va="bottom", parse_math=False)
    out = float(table.sum(axis=1).max()) if len(values) else 0.0
    return f"{text}; a device sends {format_bytes(out)} at most."
