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


def document(subject: Any) -> Document:
    """Return the Document of a subject. Raises ShardvizError if it has no builder."""
    return _built(built, subject)


def picture(subject: Any) -> Picture:
    """Return the Picture of a subject. Raises ShardvizError if it has none."""
    return _built(drawn, subject)


def _built(builders: Any, subject: Any) -> Any:
    if builders.dispatch(type(subject)) is builders.dispatch(object):  # none of the builders above
        from shardviz.view import cards, explored, plans, program, simulated  # noqa: F401
    return builders(subject)
