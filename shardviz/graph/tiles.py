"""How much more of a convolution's images a TPU stores: it lays their batch and their features in tiles of 8 x 128."""

from __future__ import annotations

from collections.abc import Sequence

_ROWS, _LANES = 8, 128


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
