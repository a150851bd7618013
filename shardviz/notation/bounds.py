"""How much outside text may ask for: the bounds of every reader of a notation, each with its reason.

Text comes from strangers: it is pasted into a page, or read from a file. Whatever stands in it, a reader answers within
0.2 seconds and 100 MB, or refuses it by its size. Real programs stay far below these bounds.

>>> check_size(list(range(70)), 64, "P(...)", "dimensions")
Traceback (most recent call last):
    ...
shardviz.errors.ParseError: P(...): 70 dimensions; at most 64 are read

A module of HLO has no bound, since real ones have megabytes: what reads it takes time in proportion to its length.
"""

from __future__ import annotations

from collections.abc import Sized

from shardviz.errors import ParseError, ShardvizError

MOST_DEVICES = 1 << 17
"""Devices of a mesh: twice as many as any program is known to have run on. Lists of them take some 0.1 s to read."""

MOST_AXES = 32
"""Axes of a mesh: NumPy, in whose arrays a mesh's devices lie, had 32 dimensions at most before its version 2."""

MOST_DIMENSIONS = 64
"""Dimensions of an array: as many as NumPy has."""

MOST_CELLS = 1 << 21
"""Devices times dimensions (or axes, or members of groups): a table of 16 MB, and readers hold two or three."""

MOST_NAMED = 256
"""Mentions of axes in one sharding: every two of them are compared. A mesh of 131,072 devices has 17 halves at most."""

MOST_NAME = 1_000
"""Characters of an axis's name, or of a machine's."""

MOST_CHARACTERS = 1_000_000
"""Characters, or bytes, of a sharding's text: a list of 131,072 devices takes 0.9 million."""

MOST_PASTED = 200_000
"""Characters that are read of what is pasted into a page, and shown there again."""

MOST_WRITTEN = 20_000
"""Characters of what people write by hand: a PartitionSpec, `[data, ·]`, `A[I_data, J]`."""

MOST_FIELDS = 1 << 15
"""Fields of a printed or serialized `OpSharding`, which are read one by one; a packed list of devices is one field."""

MOST_VALUES = 1 << 13
"""Shardings in a tuple's: more than the arrays of the largest programs. They repeat a few different ones."""

MOST_NESTED = 64
"""Tuples within tuples in a shape, and braces within braces in a sharding."""

MOST_CALLS = 100
"""Computations that call each other, one within the next, in a module of HLO."""

MOST_DIGITS = 18
"""Digits of a whole number: with more it does not fit into 64 bits."""


def check_size(value: Sized, most: int, what: str, of: str, error: type[ShardvizError] = ParseError) -> None:
    """Raises where `what` has more than the `most` that is read; `of` is what is counted, in the plural."""
    if len(value) > most:
        raise error(f"{what}: {len(value):,} {of}; at most {most:,} are read")
