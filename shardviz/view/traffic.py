"""Who sends how many bytes to whom in a step: device to device where they are few, else along each mesh axis."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardviz.costs.step_cost import StepCost
from shardviz.costs.traffic import axis_traffic, traffic
from shardviz.records.amounts import format_bytes
from shardviz.view.picture import Key, Labels, Picture, Rects, Role, Shape, beside, text_wide

MOST_DEVICES = 64
LEAST = 0.18
"""How strong the lightest cell is, of 1."""
DECADES = 4
"""Powers of ten below the most bytes at which a cell is the lightest."""
MOST_CELLS = 64
STEPS = 8
"""Strengths that are told apart."""
SIDE = 288
"""Pixels of a whole table, about."""
HATCHED = 32
"""Rows up to which cells have their axis' hatch."""
WORDS = (
    "the row sends, the column receives; the route is not counted",
    "a darker cell means more bytes; the lightest is a ten-thousandth of the most, or less",
)


@dataclass(frozen=True)
class Exchange:
    """Who sends how many bytes to whom in a step.

    Attributes:
        title: what the rows and columns are.
        values: bytes; row sends, column receives.
        axis: the number of the mesh axis along which the two differ; -1 where along several.
        along: the mesh axis whose places the rows are; None where they are devices.
    """

    title: str
    values: np.ndarray
    axis: np.ndarray
    along: str | None = None


def tables_of(cost: StepCost) -> list[Exchange]:
    """One table of devices up to 64 of them, else one for each mesh axis; one of zeros where there is one device."""
    names = list(cost.mesh.names)
    if cost.mesh.size <= MOST_DEVICES:
        places = cost.mesh.coordinates()
        apart = places[:, None, :] != places[None, :, :]
        which = np.where(apart.sum(axis=2) == 1, np.argmax(apart, axis=2) if names else -1, -1)
        return [Exchange("device to device", traffic(cost), which)]
    tables = [
        Exchange(f"along {name}, place to place", sent, np.full(sent.shape, names.index(name)), name)
        for name, sent in axis_traffic(cost).items()
    ]
    return tables or [Exchange("one device", np.zeros((1, 1)), np.full((1, 1), -1))]


def strengths(values: np.ndarray, most: float) -> np.ndarray:
    """How strong each cell of so many bytes is, `LEAST` to 1, by the logarithm of its bytes."""
    return np.maximum(0.0, 1 - np.log10(most / values) / DECADES) * (1 - LEAST) + LEAST


def merged(values: np.ndarray) -> tuple[np.ndarray, int]:
    """A table of at most 64 rows and columns, each cell the mean of a row's bytes to the columns it stands for."""
    block = next(b for b in range(-(-len(values) // MOST_CELLS), len(values) + 1) if len(values) % b == 0)
    if block == 1:
        return values, 1
    size = len(values) // block
    return values.reshape(size, block, size, block).sum(axis=3).mean(axis=1), block


def traffic_pictures(cost: StepCost) -> list[Picture]:
    """A picture for each table of more than one row; places of long axes are taken together."""
    return [_picture(cost, table) for table in tables_of(cost) if len(table.values) > 1]


def traffic_figure(cost: StepCost) -> Picture:
    """All of them side by side."""
    pictures = traffic_pictures(cost)
    shown = beside([dataclasses.replace(each, title=each.alt) for each in pictures])
    alt = "Traffic in a step. " + (" ".join(f"{each.alt}." for each in pictures) or "One device: no communication.")
    title = f"{cost.program} on {cost.machine.text}: traffic in a step"
    keys = tuple(dict.fromkeys(key for each in pictures for key in each.keys))
    return dataclasses.replace(shown, title=title, alt=alt, axes=cost.mesh.names, keys=keys, notes=WORDS)


def _picture(cost: StepCost, table: Exchange) -> Picture:
    values, block = merged(table.values)
    size = len(values)
    along = table.axis[::block, ::block] if block > 1 else table.axis
    names = [str(i) if block == 1 else f"{i * block}-{(i + 1) * block - 1}" for i in range(size)]
    who = f"{table.along} " if table.along else "device "
    side = max(SIDE // size, 4)
    left, top = 6 + math.ceil(text_wide(max(names, key=len), "small")), 16
    rows, columns = np.indices((size, size))
    strong = np.zeros((size, size), int)
    if values.any():
        strong[values > 0] = np.ceil(strengths(values[values > 0], float(values.max())) * STEPS)
    ends = [f"{who}{name}" for name in names]

    def cells(where: np.ndarray, tip: str, **look: Any) -> Rects:
        """The cells of a mask; the tip has the sender, the receiver, and for those with traffic what and over what."""
        at = list(zip(rows[where].tolist(), columns[where].tolist(), strict=True))
        parts = [(ends[i], ends[j], format_bytes(float(values[i, j])), _over(cost, int(along[i, j]))) for i, j in at]
        return Rects(
            x=tuple(left + j * side for _, j in at),
            y=tuple(top + i * side for i, _ in at),
            wide=side - (size <= HATCHED),
            high=side - (size <= HATCHED),
            tip=tip,
            told=tuple(part[: tip.count("{}")] for part in parts),
            **look,
        )

    shapes: list[Shape] = [Rects(x=(left,), y=(top,), wide=side * size, high=side * size, fill="tile")]
    same = rows == columns
    shapes.append(cells((values == 0) & ~same, "{} sends {} nothing"))
    shapes.append(cells((values == 0) & same, "{}: itself"))
    for axis in np.unique(along[values > 0]).tolist():
        role: Role = "muted" if axis < 0 else axis
        hatch = axis if axis >= 0 and size <= HATCHED else None
        for step in np.unique(strong[(along == axis) & (values > 0)]).tolist():
            mask = (along == axis) & (strong == step) & (values > 0)
            tip = "{} sends {} {} a step, over {}"
            shapes.append(cells(mask, tip, fill=role, strength=step / STEPS, hatch=hatch, layer=1))
    every = range(0, size, 2 ** math.ceil(math.log2(size / 16)) if size > 16 else 1)
    beneath: dict[str, Any] = {"size": "small", "ink": "quiet"}
    shapes.append(
        Labels(
            at=tuple((left - 4, top + (i + 0.5) * side) for i in every),
            texts=tuple(names[i] for i in every),
            align="end",
            **beneath,
        )
    )
    above = every if block == 1 else every[:1]
    shapes.append(
        Labels(
            at=tuple((left + (i + 0.5) * side, top - 8) for i in above),
            texts=tuple(names[i] for i in above),
            align="middle",
            **beneath,
        )
    )
    sent = float(table.values.sum(axis=1).max())
    text = f"a device sends {format_bytes(sent)} at most" if sent else "no communication"
    text += f"; a cell is {block} x {block} places, their sum for one device" if block > 1 else ""
    return Picture(
        width=left + size * side + 4,
        height=top + size * side + 4,
        shapes=tuple(shapes),
        title=table.title,
        alt=f"{table.title}: {text}",
        axes=cost.mesh.names,
        keys=_keys(cost, along[values > 0]),
    )


def _over(cost: StepCost, axis: int) -> str:
    return "several axes at once" if axis < 0 else cost.mesh.names[axis]


def _keys(cost: StepCost, along: np.ndarray) -> tuple[Key, ...]:
    """The axes of the cells."""
    axes = np.unique(along).tolist()
    keys = [
        Key(text=f"{cost.mesh.names[a]}: sender and receiver differ along it", fill=a, hatch=a) for a in axes if a >= 0
    ]
    return (*keys, *([Key(text="sender and receiver differ along several axes", fill="muted")] if -1 in axes else []))
