"""A program's images, and how much more of them a TPU stores: it lays their batch and their features in tiles of
8 x 128."""

from __future__ import annotations

from collections.abc import Sequence

from shardviz.graph.operations import Dims

_ROWS, _LANES = 8, 128


class Images:
    """What convolutions take and give, with any features; of the same shape, other arrays are images too."""

    def __init__(self) -> None:
        self._noted: set[tuple[Dims, Dims]] = set()  # dims as of `image_padding`, shape without the features
        self._padding: dict[Dims, float] = {}

    def __bool__(self) -> bool:
        return bool(self._noted)

    def note(self, shape: Dims, dims: Dims) -> None:
        """Notes an image, and the one without its spatial dimensions of 1."""
        around = _around(shape, dims)
        kept = [place for place, size in enumerate(around) if size != 1 or place not in dims[2:]]
        alike = tuple(kept.index(place) for place in dims if place in kept), tuple(around[place] for place in kept)
        if not {(dims, around), alike} <= self._noted:
            self._noted |= {(dims, around), alike}
            self._padding.clear()

    def padding(self, shape: Dims) -> float:
        """`image_padding` of an array; 0 where no image that was noted has its shape, with or without dimensions of 1.

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
    """A shape without the features, whose place is the second of `dims`."""
    return (*shape[: dims[1]], 0, *shape[dims[1] + 1 :])


def image_padding(shard: Sequence[int], dims: Sequence[int]) -> float:
    """The share by which a TPU stores more of an image of this shape on one device, as its tiles are not full; `dims`
    are the places of batch, features and the spatial dimensions.

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


def _tiled(rows: int, lanes: int) -> int:
    """Elements of whole tiles; fewer than eight rows take tiles of four, two or one."""
    height = min(_ROWS, 1 << (rows - 1).bit_length()) if rows else 1
    return -(-rows // height) * height * -(-lanes // _LANES) * _LANES
