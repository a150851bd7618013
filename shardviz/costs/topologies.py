"""The machines that one chip makes of so many devices, and which of them takes the place of another.

>>> [machine.text for machine in topologies("v5p", 64)]
['tpu v5p:4x4x4', 'tpu v5p:2x4x4*2', 'tpu v5p:2x2x4*4', 'tpu v5p:2x2x2*8', 'tpu v5p:2x2x1*16']
>>> grown(Machine.of("tpu v5p:4x4x4"), 128).text, grown(Machine.of("gpu h100:8x8"), 128).text
('tpu v5p:4x4x8', 'gpu h100:16x8')
>>> print(grown(Machine.of("tpu v5p:4x4x4"), 6), sizes_near("v5p", 6))
None (4, 8)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

from shardviz.costs.chips import Chip, chip
from shardviz.costs.machine import Machine
from shardviz.errors import TargetError

_FARTHEST = 1 << 16  # devices: how far above a size another one is looked for
_MOST = 1 << 20  # devices: no machine has more
_HOST = 4  # chips: no slice of several is smaller


def topologies(of: str | Chip, size: int) -> tuple[Machine, ...]:
    """Every machine of a chip with so many JAX devices, those of one slice first, the most cube-like before the rest.

    Of TPUs in several slices, each of one host or more, there is one for each number of slices. GPUs come in whole
    NVLink domains first.

    Args:
        of: the chip, or its name.
        size: JAX devices.

    Raises:
        TargetError: if there is no such chip.
    """
    return _topologies(chip(of) if isinstance(of, str) else of, size)


@lru_cache(maxsize=512)
def _topologies(of: Chip, size: int) -> tuple[Machine, ...]:
    if of.kind == "cpu" or not 1 <= size <= _MOST:
        return ()
    if of.kind == "gpu":
        each = (of.domain_size, *(n for n in range(min(size, of.domain_size), 0, -1) if n != of.domain_size))
        return tuple(m for n in each if size % n == 0 and (m := _made(of, (size // n, n))) is not None)
    if size % of.devices_per_chip:
        return ()
    chips, found = size // of.devices_per_chip, []
    for slices in _divisors(chips):
        if slices > 1 and chips // slices < min(_HOST, math.prod(of.host_bounds)):
            break
        same = (m for box in _boxes(chips // slices, of.ici_axes) if (m := _made(of, box, slices)) is not None)
        found += list(same) if slices == 1 else list(same)[:1]
    return tuple(found)


def natural(of: str | Chip, size: int) -> Machine | None:
    """The most cube-like machine of a chip with so many JAX devices; None where there is none.

    It is one slice; several only where one cannot be so large.
    """
    of = chip(of) if isinstance(of, str) else of
    first = next(iter(topologies(of, size)), None)
    return first if first is not None and (first.num_slices == 1 or size > _largest(of)) else None


def grown(machine: Machine, size: int) -> Machine | None:
    """The machine of the same chip with another number of devices; None where there is none.

    It keeps the number of slices, or of GPUs on a host, where it can, and is as cube-like as it can be. There are more
    slices only where one cannot be so large.

    Args:
        machine: the machine.
        size: JAX devices.
    """
    if machine.chip.kind == "gpu":
        alike = (m for m in topologies(machine.chip, size) if m.topology[1] == machine.topology[1])
    else:
        alike = (m for m in topologies(machine.chip, size) if m.num_slices == machine.num_slices)
    return next(alike, None) or natural(machine.chip, size)


def sizes_near(of: str | Chip, size: int) -> tuple[int, ...]:
    """The next numbers of devices below and above one for which there is a `natural` machine; fewer if there is none.

    Args:
        of: the chip, or its name.
        size: JAX devices.
    """
    of = chip(of) if isinstance(of, str) else of
    there = lambda n: (of.kind == "gpu" or n % _HOST == 0 or n < _HOST) and natural(of, n) is not None  # noqa: E731
    below = next((n for n in range(min(size - 1, _MOST), 0, -1) if there(n)), None)
    above = next((n for n in range(size + 1, min(4 * size + 64, size + _FARTHEST, _MOST + 1)) if there(n)), None)
    return tuple(n for n in (below, above) if n is not None)


def _largest(of: Chip) -> int:
    """The devices of the largest slice that is known of."""
    listed = (math.prod(map(int, shape.split("x"))) for shape in of.shapes)
    chips = max(listed, default=of.max_chips or _MOST)
    return chips * of.devices_per_chip


def _made(of: Chip, sizes: tuple[int, ...], slices: int = 1) -> Machine | None:
    if of.cube and not (all(n % of.cube == 0 for n in sizes) or all(of.cube % n == 0 for n in sizes)):
        return None  # most boxes are none, and to say why takes its time
    try:
        return Machine(of, sizes, slices)
    except TargetError:
        return None


def _boxes(chips: int, axes: int) -> list[tuple[int, ...]]:
    """Every box of so many chips, the most cube-like first.

    Sizes are in rising order, but those of 1 stand last: of a plane of chips, z is what it has not.
    """
    found = sorted(_rising(chips, axes, 1), key=lambda box: (sum(box), box))
    return [(*(n for n in box if n > 1), *(n for n in box if n == 1)) for box in found]


def _rising(size: int, factors: int, least: int) -> Iterator[tuple[int, ...]]:
    if factors == 1:
        yield (size,)
        return
    for first in _divisors(size):
        if first >= least and first**factors <= size:
            for rest in _rising(size // first, factors - 1, first):
                yield (first, *rest)


def _divisors(size: int) -> list[int]:
    small = [d for d in range(1, math.isqrt(size) + 1) if size % d == 0]
    return small + [size // d for d in reversed(small) if d * d != size]
