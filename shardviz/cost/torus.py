"""The links of a machine's torus, one by one: which chips they join, and which of them a message passes.

>>> from shardviz.cost.machine import Machine
>>> v5e = Machine.of("tpu v5e:4x2")
>>> links = torus_links(v5e)
>>> len(links), links[0]
(10, Link(one=(0, 0, 0), other=(1, 0, 0), axis=0, slice=0, wraps=False))
>>> way(v5e, (3, 0, 0), (0, 1, 0))
[(3, 0, 0), (2, 0, 0), (1, 0, 0), (0, 0, 0), (0, 1, 0)]
>>> way(Machine.of("tpu v4:4x4x4"), (3, 0, 0), (0, 1, 0))
[(3, 0, 0), (0, 0, 0), (0, 1, 0)]
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from shardviz.cost.machine import Machine

Chip = tuple[int, int, int]


@dataclass(frozen=True)
class Link:
    """A link between two chips of a slice.

    Attributes:
        one, other: the chips' x, y, z; `other` is the next along the axis.
        axis: 0, 1 or 2 for x, y, z.
        slice: the slice.
        wraps: it joins the last chip along the axis to the first.
    """

    one: Chip
    other: Chip
    axis: int
    slice: int
    wraps: bool


def torus_links(machine: Machine) -> list[Link]:
    """Every link of every slice; none for a machine of GPUs.

    An axis of two chips that wraps around has two links between them; the second is given as one that wraps.
    """
    if machine.chip.kind != "tpu":
        return []
    found = []
    for part in range(machine.num_slices):
        for z, y, x in itertools.product(*(range(n) for n in reversed(machine.shape))):
            at = (x, y, z)
            for axis, (size, wraps) in enumerate(zip(machine.shape, machine.wrap, strict=True)):
                last = at[axis] == size - 1
                if size > 1 and (wraps or not last):
                    found.append(Link(at, _stepped(at, axis, 1, size), axis, part, last))
    return found


def way(machine: Machine, one: Chip, other: Chip) -> list[Chip]:
    """The chips that a message in a slice passes, both ends among them: along x, then y, then z, the shorter way."""
    found = [one]
    for axis, (size, wraps) in enumerate(zip(machine.shape, machine.wrap, strict=True)):
        ahead = other[axis] - one[axis]
        if wraps and abs(ahead) * 2 > size:
            ahead -= size if ahead > 0 else -size
        for _ in range(abs(ahead)):
            found.append(_stepped(found[-1], axis, 1 if ahead > 0 else -1, size))
    return found


def _stepped(at: Chip, axis: int, step: int, size: int) -> Chip:
    moved = list(at)
    moved[axis] = (moved[axis] + step) % size
    return moved[0], moved[1], moved[2]
