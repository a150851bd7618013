"""How a TPU lays arrays in tiles of 8 x 128, and how much more than their elements it stores and moves.

A tile holds parts of two dimensions of an array: one along the tile's rows, one along its lanes. libtpu chooses for an
argument the two dimensions that fill the tiles best. A gather or a kernel reads rows, and wants the last dimension
along the lanes. An argument that is stored otherwise is copied first, as a whole, at each call. What convolutions take
and give is stored with its batch and its features in the tiles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import permutations

from shardviz.graph.operations import Dims, GraphValue, Operation

_ROWS, _LANES = 8, 128


class Images:
    """The operands and results of convolutions, with any number of features. Other arrays of such shapes count as
    images too."""

    def __init__(self) -> None:
        self._noted: set[tuple[Dims, Dims]] = set()  # dims as of `image_padding`, shape without the features
        self._padding: dict[Dims, float] = {}

    def __bool__(self) -> bool:
        return bool(self._noted)

    def note(self, shape: Dims, dims: Dims) -> None:
        """Add an image, and the same without its spatial dimensions of size 1."""
        around = _around(shape, dims)
        kept = [place for place, size in enumerate(around) if size != 1 or place not in dims[2:]]
        alike = tuple(kept.index(place) for place in dims if place in kept), tuple(around[place] for place in kept)
        if not {(dims, around), alike} <= self._noted:
            self._noted |= {(dims, around), alike}
            self._padding.clear()

    def padding(self, shape: Dims) -> float:
        """Return `image_padding` of an array; 0 if no image has its shape, with or without dimensions of size 1.

        >>> images = Images()
        >>> images.note((8, 64, 64, 3), (0, 3, 1, 2))
        >>> images.padding((8, 64, 64, 64)), images.padding((8, 1, 64, 64, 64)), images.padding((8, 32, 32, 64))
        (1.0, 1.0, 0.0)
        """
        if shape not in self._padding:
            alike = (
                image_padding(each, dims)
                for each in (shape, tuple(size for size in shape if size > 1))
                for dims, around in self._noted
                if len(dims) == len(each) and _around(each, dims) == around
            )
            self._padding[shape] = max(alike, default=0.0)
        return self._padding[shape]


def _around(shape: Dims, dims: Dims) -> Dims:
    """Return a shape without its features, whose position is the second of `dims`."""
    return (*shape[: dims[1]], 0, *shape[dims[1] + 1 :])


def image_padding(shard: Sequence[int], dims: Sequence[int]) -> float:
    """Return the share of padding that a TPU stores of an image of this shape on one device, because its tiles are not
    full. `dims` are the positions of batch, features and the spatial dimensions.

    One of batch and features lies along the lanes of a tile, the other along its rows, whichever way is smaller; of
    fewer than eight images the height takes the batch's place. So libtpu 0.0.42 lays what convolutions take and give
    (a test asks it).

    >>> image_padding((8, 64, 64, 64), (0, 3, 1, 2)), image_padding((8, 64, 64, 128), (0, 3, 1, 2))
    (1.0, 0.0)
    """
    batch, features, *spatial = (shard[place] for place in dims)
    if batch < _ROWS and spatial:
        batch = spatial[0]
    elements = batch * features
    return min(_tiled(batch, features), _tiled(features, batch)) / elements - 1 if elements else 0.0


@lru_cache(maxsize=4096)
def laid_for_rows(shape: Dims, itemsize: float) -> tuple[float, float] | None:
    """Return the elements that a TPU stores of an argument, and with its rows along the lanes; None if they lie so. So
    libtpu 0.0.42 and 0.0.50 lay them (a test asks it).

    Args:
        shape: of one device's part.
        itemsize: bytes of an element; of those of less than four bytes, two rows or more lie together.

    >>> laid_for_rows((201_088, 2880), 2)  # 2880 lanes would fill 22.5 tiles, 201,088 fill 1571
    (579133440.0, 592003072.0)
    >>> laid_for_rows((2880, 201_088), 2), laid_for_rows((50_257, 768), 4)
    (None, None)
    """
    if len(shape) < 2 or not all(shape):
        return None
    packed, whole, last = max(1, round(4 / itemsize)), math.prod(shape), len(shape) - 1
    stored = {
        (rows, lanes): whole / (shape[rows] * shape[lanes]) * _tiled(shape[rows], shape[lanes], packed)
        for rows, lanes in permutations(range(len(shape)), 2)
    }
    least, in_rows = min(stored.values()), min(held for (_, lanes), held in stored.items() if lanes == last)
    return None if in_rows == least else (least, in_rows)


def ragged_as_dense(product: Operation, shard_of: Callable[[GraphValue], Dims]) -> tuple[int, int]:
    """Return the groups that each row of a ragged product is multiplied with, and the shortest side of these products;
    (1, 0) where a kernel multiplies each row with its own group.

    libtpu 0.0.42 and 0.0.50 have a kernel for rows in whole eights (a test asks it). Of any others XLA makes products
    of all rows with all groups, of which a mask keeps the right ones.
    """
    if product.kind != "ragged-dot":
        return 1, 0
    rows, columns = shard_of(product.result)[-2:]
    return (1, 0) if rows % _ROWS == 0 else (shard_of(product.array(2))[-1], min(rows, columns))


def _tiled(rows: int, lanes: int, packed: int = 1) -> int:
    """Return the elements of whole tiles. Fewer than eight rows take tiles of four, two or one row, but no fewer than
    `packed`."""
    height = min(_ROWS, max(packed, 1 << (rows - 1).bit_length())) if rows else 1
    return -(-rows // height) * height * -(-lanes // _LANES) * _LANES
