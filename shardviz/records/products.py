"""A matrix product, and how it is cut: its sizes on one device, and the devices that repeat each other's work."""

from __future__ import annotations

from dataclasses import dataclass

from shardviz.notation import Axis
from shardviz.records.values import Frame

Sizes = tuple[int, int, int, int]
"""Of a product: how many (batch), rows (m), what is summed over (k), columns (n)."""


@dataclass(frozen=True, kw_only=True)
class Product:
    """A matrix product of the program, as one device does it.

    Attributes:
        value: the name of the intermediate that it makes; empty where that has no row of its own.
        source: the line.
        phase: as `Collective.phase`.
        dtype: in which its factors are multiplied.
        count: how often it runs in a step; None where not known.
        whole, shard: its sizes, all devices together and on one.
        flops: FLOPs of one run on one device.
        repeated: the mesh axes along which all devices do the same product.
        left_axes, right_axes: the axes that cut what is summed over in either factor, as it comes, before it is brought
            into the cut that the product needs, and that cut nothing of the other factor.
    """

    value: str
    source: Frame | None
    phase: str
    dtype: str
    count: int | None
    whole: Sizes
    shard: Sizes
    flops: float
    repeated: tuple[Axis, ...] = ()
    left_axes: tuple[Axis, ...] = ()
    right_axes: tuple[Axis, ...] = ()

    @property
    def step_flops(self) -> float:
        """FLOPs on one device in a step; of one run where the count is not known."""
        return self.flops * (self.count or 1)
