"""When buffers are alive, how many bytes at once, and which of them a TPU's compiler keeps out of main memory.

A TPU has a memory of its own beside its units, VMEM, and its compiler fills it twice over. A value that is read from
main memory lies there while it is read, if it has room. And a value that is computed element by element may be made
there and never see main memory, if there is room for all of its life beside what is read meanwhile; the short-lived go
first. What a matrix product or a collective gives is written to main memory. This is what the buffer assignments of
v5p's compiler show (the values of memory space 1), not what somebody states:

>>> product, scores, mask = Buffer(40, 2, 4, used=[4]), Buffer(40, 4, 6, light=True, used=[6]), Buffer(9, 0, 0)
>>> buffers = [product, scores, mask]
>>> most_alive(buffers)
80.0
>>> most_alive(buffers, without=on_chip(buffers, room=100))  # the product is read there, and the scores made
40.0
>>> on_chip(buffers, room=60)  # not beside the product
[]

A value may also lie where an output will be made, one after the other:

>>> in_place_of(buffers, [Buffer(40, 7, 9)]) == [product, mask]  # the scores are made while the product is read
True
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

import numpy as np


@dataclass(eq=False, slots=True)
class Buffer:
    """Memory that a value is held in.

    Attributes:
        size: bytes on one device.
        start, last: when it is made, and when it is used last.
        fixed: it is there all the time, as an argument's is, and is not counted.
        product: a matrix product or a convolution made it.
        light: it was computed element by element.
        used: when it is used.
    """

    size: float
    start: int
    last: int
    fixed: bool = False
    product: bool = False
    light: bool = False
    used: list[int] = field(default_factory=list)


def most_alive(buffers: Iterable[Buffer], without: Collection[Buffer] = ()) -> float:
    """The most bytes of buffers that are alive at one moment."""
    elsewhere = set(without)
    counted = [b for b in buffers if b not in elsewhere]
    events = [(b.start, 0, b.size) for b in counted] + [(b.last, 1, -b.size) for b in counted]
    alive = most = 0.0
    for _, _, size in sorted(events):
        alive += size
        most = max(most, alive)
    return most


def on_chip(buffers: Iterable[Buffer], room: float) -> list[Buffer]:
    """Those of all buffers, the arguments' too, that are made in a chip's own memory and never in main memory."""
    small = [b for b in buffers if 0 < b.size <= room]
    taken = np.zeros(1 + max((max(b.last, *b.used, 0) for b in small), default=0))
    for buffer in small:
        taken[sorted(set(buffer.used))] += buffer.size
    chosen = []
    for buffer in sorted((b for b in small if b.light), key=lambda b: (b.last - b.start, b.size)):
        life = slice(buffer.start, buffer.last + 1)
        around = taken[life].copy()
        around[[t - buffer.start for t in set(buffer.used) if buffer.start <= t <= buffer.last]] -= buffer.size
        if around.size and around.max() + buffer.size <= room:
            taken[life] = around + buffer.size
            chosen.append(buffer)
    return chosen


def in_place_of(buffers: Iterable[Buffer], outputs: Iterable[Buffer]) -> list[Buffer]:
    """Those that lie where an output will be made: the largest first, each in the smallest place that is free then."""
    places = [(place, list[Buffer]()) for place in sorted(outputs, key=lambda place: place.size)]
    chosen = []
    for buffer in sorted(buffers, key=lambda b: -b.size):
        for place, there in places:
            before = place.size >= buffer.size and buffer.last < place.start
            if before and all(buffer.last < b.start or b.last < buffer.start for b in there):
                there.append(buffer)
                chosen.append(buffer)
                break
    return chosen
