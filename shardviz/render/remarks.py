"""What JAX does with a cut that does not divide, in a sentence: the map above it is what XLA would do, which pads.

>>> from shardviz.layouts import layout
>>> words = uneven_words(layout((17, 4), ("data", None), {"data": 8}), "float32")
>>> for sentence in words.split(". "):
...     print(sentence)
JAX refuses this of an argument, as dimension 0 is 17 and does not divide by 8 (16 or 24 would)
Of a result it quietly makes P(None, None): 272 B on each device instead of 48 B, 1.90 kB of copies in all.
"""

from __future__ import annotations

from typing import Any

from shardviz.layouts import Layout, silent_copies, uneven
from shardviz.records.amounts import format_bytes, plural


def uneven_words(layout: Layout, dtype: Any = None) -> str:
    """What JAX does with a cut that does not divide; empty where it divides, or no PartitionSpec says it.

    Args:
        layout: the cut.
        dtype: the element type, for bytes; None for elements.
    """
    dimensions = uneven(layout)
    if not dimensions or layout.spec is None:
        return ""
    causes = []
    for it in dimensions:
        sizes = f"{it.smaller} or {it.larger}" if it.smaller else f"{it.larger}"
        causes.append(f"dimension {it.dimension} is {it.size} and does not divide by {it.ways} ({sizes} would)")
    text = f"JAX refuses this of an argument, as {' and '.join(causes)}."
    copies = silent_copies(layout.shape, layout.spec, layout.mesh, dtype or "int8")
    if copies is None or layout.manual:
        return text

    def size(count: float) -> str:
        return plural(round(count), "element") if dtype is None else format_bytes(count)

    made, asked = size(copies.made_bytes_per_device), size(copies.asked_bytes_per_device)
    text += f" Of a result it quietly makes {copies.made.spec}: {made} on each device instead of {asked}, "
    text += f"{size(copies.wasted_bytes)} of copies in all"
    return text + ("; JAX 0.12 stops with an IndivisibleError instead." if copies.breaks else ".")
