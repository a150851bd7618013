"""Traffic before it is painted: device to device where they are few, else place to place along each mesh axis."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shardviz.costs.step_cost import StepCost
from shardviz.costs.traffic import axis_traffic, traffic

MOST_DEVICES = 64
LEAST = 0.18
"""How strong the lightest cell is, of 1."""
DECADES = 4
"""Powers of ten below the most bytes at which a cell is the lightest."""


@dataclass(frozen=True)
class Table:
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


def tables_of(cost: StepCost) -> list[Table]:
    """One table of devices up to 64 of them, else one for each mesh axis; one of zeros where there is one device."""
    names = list(cost.mesh.names)
    if cost.mesh.size <= MOST_DEVICES:
        places = cost.mesh.coordinates()
        apart = places[:, None, :] != places[None, :, :]
        which = np.where(apart.sum(axis=2) == 1, np.argmax(apart, axis=2) if names else -1, -1)
        return [Table("device to device", traffic(cost), which)]
    tables = [
        Table(f"along {name}, place to place", found, np.full(found.shape, names.index(name)), name)
        for name, found in axis_traffic(cost).items()
    ]
    return tables or [Table("one device", np.zeros((1, 1)), np.full((1, 1), -1))]


def strengths(values: np.ndarray, most: float) -> np.ndarray:
    """How strong each cell of so many bytes is, `LEAST` to 1, by their logarithm."""
    return np.maximum(0.0, 1 - np.log10(most / values) / DECADES) * (1 - LEAST) + LEAST
