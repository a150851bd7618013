"""Every subject that can be told: importing this registers their builders.

Builders of what needs JAX are loaded with the first such subject, so that a shard map in NumPy loads no JAX.
"""

from __future__ import annotations

from typing import Any

from shardviz.view import cost_pictures, cost_table, layouts, report, rosetta, shard_map_picture, shown, step_cost
from shardviz.view.document import Document
from shardviz.view.document import document as built
from shardviz.view.picture import picture

__all__ = [
    "Document",
    "cost_pictures",
    "cost_table",
    "document",
    "layouts",
    "picture",
    "report",
    "rosetta",
    "shard_map_picture",
    "shown",
    "step_cost",
]

_NEED_JAX = ("program", "compat", "session")
"""Rooms whose objects have their builders in `view.program` and `view.summary`."""


def document(subject: Any) -> Document:
    """What there is to say of a subject.

    Raises:
        ShardvizError: for an object that nobody has a builder for.
    """
    _, _, inside = type(subject).__module__.partition("shardviz.")
    if inside.partition(".")[0] in _NEED_JAX:
        from shardviz.view import program, summary  # noqa: F401
    return built(subject)
