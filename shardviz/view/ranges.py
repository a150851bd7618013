"""Device numbers, as short as they can be said exactly.

>>> device_ranges([0, 1, 2, 3, 16, 17]), device_ranges(range(0, 64, 8))
('0-3,16-17', '0,8,…,56')
>>> together([[0, 1], [2, 3]], [[4, 5], [6, 7]])
'0-1 + 2-3 / 4-5 + 6-7'
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

SHORT = 24
"""Characters; partial sums or manual arrays that need more to be told apart are only marked by their sign."""


def together(*arrays: Sequence[Iterable[int]]) -> str:
    """The devices of a cell whose devices do not hold copies.

    Args:
        arrays: for every array that a program keeps apart itself (manual axes), for every partial sum of it the devices
            that hold copies of that sum.

    Returns:
        ` + ` between partial sums and ` / ` between manual arrays; where that is long, the devices of all after a sign.
    """
    text = " / ".join(" + ".join(map(device_ranges, sums)) for sums in arrays)
    if len(text) <= SHORT:
        return text
    sign = "+" * (len(arrays[0]) > 1) + "/" * (len(arrays) > 1)
    return f"{sign} {device_ranges(d for sums in arrays for ids in sums for d in ids)}"


def device_ranges(devices: Iterable[int]) -> str:
    """Device numbers, ascending, as short as they can be said exactly.

    >>> device_ranges([0, 1, 2, 3, 16, 17]), device_ranges(range(0, 64, 8)), device_ranges([3])
    ('0-3,16-17', '0,8,…,56', '3')
    """
    runs: list[list[int]] = []
    for device in sorted(devices):
        if runs and device == runs[-1][1] + 1:
            runs[-1][1] = device
        else:
            runs.append([device, device])
    return _join(runs)


def _join(runs: list[list[int]]) -> str:
    texts = [f"{a}" if a == b else f"{a}-{b}" for a, b in runs]
    if len(runs) > 3:
        steps = {(b[0] - a[0], b[1] - b[0] - (a[1] - a[0])) for a, b in itertools.pairwise(runs)}
        if len(steps) == 1 and next(iter(steps))[1] == 0:
            return f"{texts[0]},{texts[1]},…,{texts[-1]}"
    return ",".join(texts)
