"""Size limits for text from outside: a limit for every reader of a notation, each with its reason.

Text may be untrusted: it is pasted into a page, or read from a file. A reader answers any text within 0.2 seconds and
100 MB, or refuses it by its size. Real programs stay far below these limits.

>>> check_size(list(range(70)), 64, "P(...)", "dimensions")
Traceback (most recent call last):
    ...
shardviz.errors.ParseError: P(...): 70 dimensions; at most 64 are read

An HLO module has no limit, since real modules have megabytes: its readers take time in proportion to its length.
"""

from __future__ import annotations

from collections.abc import Sized

from shardviz.errors import ParseError, ShardvizError

MOST_DEVICES = 1 << 17
"""Devices of a mesh: twice as many as any known program has used. Reading a list of them takes about 0.1 s."""

MOST_AXES = 32
"""Axes of a mesh: NumPy stores a mesh's devices, and had at most 32 dimensions before version 2."""

MOST_DIMENSIONS = 64
"""Dimensions of an array, as in NumPy 2."""

MOST_CELLS = 1 << 21
"""Devices times dimensions (or axes, or members of groups): a table of 16 MB. Readers need two or three tables."""

MOST_NAMED = 256
"""Axes named in one sharding, which are compared in pairs. A mesh of 131,072 devices has at most 17 halves of axes."""

MOST_NAME = 1_000
"""Characters of the name of an axis or a machine."""

MOST_CHARACTERS = 1_000_000
"""Characters, or bytes, of a sharding's text: a list of 131,072 devices has 0.9 million."""

MOST_PASTED = 200_000
"""Characters of text pasted into a page, which the page shows again."""

MOST_WRITTEN = 20_000
"""Characters of a sharding written by hand: a PartitionSpec, `[data, ·]`, `A[I_data, J]`."""

MOST_FIELDS = 1 << 15
"""Fields of a printed or serialized `OpSharding`, which are read one at a time; a packed list is one field."""

MOST_VALUES = 1 << 13
"""Shardings in a tuple's sharding: more than the largest programs have arrays."""

MOST_NESTED = 64
"""Nested tuples in a shape, and nested braces in a sharding."""

MOST_CALLS = 100
"""Nested calls between computations in an HLO module."""

MOST_DIGITS = 18
"""Digits of a whole number: a longer number does not fit into 64 bits."""


def check_size(value: Sized, most: int, what: str, of: str, error: type[ShardvizError] = ParseError) -> None:
    """Raise `error` if `what` has more than `most` elements; `of` names the elements, in the plural."""
    if len(value) > most:
        raise error(f"{what}: {len(value):,} {of}; at most {most:,} are read")
