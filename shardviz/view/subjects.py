"""Every subject that can be told: importing this registers their builders.

Builders of what needs JAX are loaded with the first such subject, so that a shard map in NumPy loads no JAX.
"""

from __future__ import annotations

from typing import Any

from shardviz.view import cost_table, layouts, report, rosetta, shown, step_cost
from shardviz.view.document import Document
from shardviz.view.document import document as built

__all__ = ["Document", "cost_table", "document", "layouts", "report", "rosetta", "shown", "step_cost"]

_NEED_JAX = ("shardviz.program.", "shardviz.compat.")


def document(subject: Any) -> Document:
    """What there is to say of a subject.

    Raises:
        ShardvizError: for an object that nobody has a builder for.
    """
    if type(subject).__module__.startswith(_NEED_JAX):
        import shardviz.view.program  # noqa: F401
    return built(subject)
