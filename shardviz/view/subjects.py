"""The builders of all subjects: importing this module registers them.

Builders that need JAX are imported with the first subject that needs them, so that a NumPy shard map imports no JAX.
"""

from __future__ import annotations

from typing import Any

from shardviz.view import (  # noqa: F401
    checkpoint,
    comparison,
    layouts,
    motion,
    placement,
    report,
    reshard,
    rosetta,
    run,
    shard_map,
    timeline,
    together,
    tree,
    why,
)
from shardviz.view.document import Document
from shardviz.view.document import document as built
from shardviz.view.picture import Picture
from shardviz.view.picture import picture as drawn

_BELOW = ("stablehlo", "tracing", "propagate", "plan", "causes", "compat", "ask")
_NEED_JAX = (*_BELOW, "explorer", "study", "lessons", "runs")
"""Rooms whose objects have their builders in `view.program` and `view.explored`."""


def document(subject: Any) -> Document:
    """Return the Document of a subject. Raises ShardvizError if it has no builder."""
    _load(subject)
    return built(subject)


def picture(subject: Any) -> Picture:
    """Return the Picture of a subject. Raises ShardvizError if it has none."""
    _load(subject)
    return drawn(subject)


def _load(subject: Any) -> None:
    _, _, inside = type(subject).__module__.partition("shardviz.")
    if inside.partition(".")[0] in _NEED_JAX:
        from shardviz.view import cards, exercise, explored, plans, program, simulated  # noqa: F401
