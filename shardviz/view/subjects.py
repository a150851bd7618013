"""Every subject that can be told: importing this registers their builders.

Builders of what needs JAX are loaded with the first such subject, so that a shard map in NumPy loads no JAX.
"""

from __future__ import annotations

from typing import Any

from shardviz.view import (  # noqa: F401
    comparison,
    layouts,
    placement,
    report,
    rosetta,
    shard_map,
    timeline,
    why,
)
from shardviz.view.document import Document
from shardviz.view.document import document as built
from shardviz.view.picture import Picture
from shardviz.view.picture import picture as drawn

_NEED_JAX = ("program", "compat", "ask", "explorer", "study")
"""Rooms whose objects have their builders in `view.program` and `view.explored`."""


def document(subject: Any) -> Document:
    """The Document of a subject; a `ShardvizError` where it has no builder."""
    _load(subject)
    return built(subject)


def picture(subject: Any) -> Picture:
    """The Picture of a subject; a `ShardvizError` where it has none."""
    _load(subject)
    return drawn(subject)


def _load(subject: Any) -> None:
    _, _, inside = type(subject).__module__.partition("shardviz.")
    if inside.partition(".")[0] in _NEED_JAX:
        from shardviz.view import cards, exercise, explored, plans, program  # noqa: F401
