"""A list of devices as a count, reshaped and transposed, as XLA writes it: `[2,4]T(1,0)`.

>>> iota((2, 4), (1, 0)).tolist()
[0, 4, 1, 5, 2, 6, 3, 7]
>>> iota_of(iota((2, 4), (1, 0))), read_iota(Scanner("[2,4]T(1,0)", "devices")).tolist()
(((2, 4), (1, 0)), [0, 4, 1, 5, 2, 6, 3, 7])

HLO's V2 shardings, replica groups and the device orders of meshes all use it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from shardviz.errors import ParseError
from shardviz.notation.bounds import MOST_AXES, MOST_DEVICES
from shardviz.notation.scan import Scanner


def iota(reshape: Sequence[int], transpose: Sequence[int] = ()) -> np.ndarray:
    """0, 1, 2, ... in the shape `reshape`, with its dimensions in the order `transpose`, made flat.

    Raises:
        ParseError: if these make no devices, or too many.
    """
    if wrong := _wrong_shape(reshape) or _wrong_order(reshape, transpose):
        raise ParseError(f"iota {list(reshape[:33])} T {list(transpose[:33])}: expected {wrong}")
    values = np.arange(math.prod(reshape)).reshape(reshape)
    return (values.transpose(transpose) if transpose else values).ravel()


def read_iota(it: Scanner) -> np.ndarray:
    """The devices of `[2,4]T(1,0)`.

    Raises:
        ParseError: if the text goes on with something else.
    """
    start = it.at
    reshape, order = it.integers(), ()
    if wrong := _wrong_shape(reshape):
        it.refuse(wrong, start)
    if it.take("T"):
        start = it.at
        order = it.integers("(", ")")
        if wrong := "an order of dimensions" if not order else _wrong_order(reshape, order):
            it.refuse(wrong, start)
    return iota(reshape, order)


def _wrong_shape(reshape: Sequence[int]) -> str:
    if len(reshape) > MOST_AXES:
        return f"an iota of at most {MOST_AXES} dimensions"
    if not reshape or 0 in reshape or math.prod(reshape) > MOST_DEVICES:
        return f"an iota of 1 to {MOST_DEVICES} devices"
    return ""


def _wrong_order(reshape: Sequence[int], order: Sequence[int]) -> str:
    if not order or sorted(order) == list(range(len(reshape))):
        return ""
    return f"an order of the iota's {len(reshape)} dimensions, 0 to {len(reshape) - 1}"


def iota_of(devices: Sequence[int] | np.ndarray) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The fewest dimensions whose iota, transposed, is this list.

    Returns:
        Reshape and transpose, as `iota` takes them; None where there are none.
    """
    values = np.asarray(devices, np.int64)
    if len(values) == 1:
        return (1,), (0,)
    nest = levels(values)
    if nest is None or values[0] != 0:
        return None
    order = sorted(range(len(nest)), key=lambda i: -nest[i][1])  # by stride, large to small: the reshape
    reshape = tuple(nest[i][0] for i in order)
    transpose = tuple(order.index(i) for i in range(len(nest)))
    made = np.arange(len(values)).reshape(reshape).transpose(transpose).ravel()
    return (reshape, transpose) if np.array_equal(made, values) else None


def iota_text(reshape: Sequence[int], transpose: Sequence[int]) -> str:
    """`[2,4]T(1,0)`."""
    return f"[{','.join(map(str, reshape))}]T({','.join(map(str, transpose))})"


def levels(values: np.ndarray) -> list[tuple[int, int]] | None:
    """(size, stride) pairs, major to minor, whose nested count makes `values` but for a constant; None where none."""
    found: list[tuple[int, int]] = []
    rest = values - values[0]
    while len(rest) > 1:
        stride = int(rest[1])
        if stride <= 0:
            return None
        uneven = np.flatnonzero(rest != np.arange(len(rest)) * stride)
        size = int(uneven[0]) if len(uneven) else len(rest)
        if len(rest) % size:
            return None
        table = rest.reshape(-1, size)
        if not np.array_equal(table, table[:, :1] + np.arange(size) * stride):
            return None
        found.append((size, stride))
        rest = table[:, 0]
    return found[::-1]
