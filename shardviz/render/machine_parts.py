"""What a picture of a machine is made of: tiles, frames, links. `machine_picture` puts them together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shardviz.costs.placement import Placement

MOST_NODES = 1024
WIDE = 600.0


@dataclass(frozen=True)
class Node:
    """What is drawn as one tile: a chip, a GPU, or a block of chips or a host that stands for several.

    Attributes:
        x, y: its middle.
        places: the places of the mesh on it, ascending.
        text: where in the machine it is.
        shade: 0 or 1: other than that of the hosts beside it.
    """

    x: float
    y: float
    places: tuple[int, ...]
    text: str
    shade: int = 0


@dataclass(frozen=True)
class Frame:
    """An outline around tiles: a `plane` or a `slice` of a torus, a `host`, an NVLink `domain`.

    Attributes:
        points: its corners.
        text: what it is; stands at the first corner.
    """

    kind: str
    points: tuple[tuple[float, float], ...]
    text: str


@dataclass(frozen=True)
class Picture:
    """A machine with a mesh on it, before it is painted.

    Attributes:
        width, height: of the whole.
        tile: width and height of a tile.
        nodes: the tiles.
        node_of: the node of each place of the mesh.
        frames: outlines, the outer ones first.
        links: mesh axis that steps along them (None: along no single one) → pairs of nodes; without those that wrap.
        wraps: likewise the links that go round to the other side: (node, to which x, y its stub points); empty where
            there are too many to draw.
        switch: of a node's NVLink domain, the y of the bar that stands for its switch; empty for a torus.
        grain: what a tile is, in words; empty where it is a chip or a GPU.
        lean: how far one step along y goes to the side and down; (0, pitch) where the torus lies flat.
        pitch: how far one step along x goes.
        block: chips of a tile along x, y and z.
    """

    width: float
    height: float
    tile: tuple[float, float]
    nodes: tuple[Node, ...]
    node_of: np.ndarray
    frames: tuple[Frame, ...]
    links: dict[str | None, list[tuple[int, int]]]
    wraps: dict[str | None, list[tuple[int, float, float]]]
    switch: dict[int, float]
    grain: str
    lean: tuple[float, float] = (0.0, 0.0)
    pitch: float = 0.0
    block: tuple[int, int, int] = (1, 1, 1)


def place_of(placed: Placement) -> np.ndarray:
    """The place in the mesh of each device of the machine's list."""
    found = np.empty(placed.mesh.size, int)
    found[np.asarray(placed.order)] = np.arange(placed.mesh.size)
    return found


def box(x: float, y: float, wide: float, high: float) -> tuple[tuple[float, float], ...]:
    """The corners of a rectangle."""
    return (x, y), (x + wide, y), (x + wide, y + high), (x, y + high)
