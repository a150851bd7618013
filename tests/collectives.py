"""A collective in a line, for reports that tests make up."""

from __future__ import annotations

from typing import Any

from shardviz.records import Collective


def collective(
    kind: str,
    axes: Any,
    operand_bytes: float,
    result_bytes: float | None = None,
    count: int | None = 1,
    *,
    dtype: str = "float32",
    shape: tuple[int, ...] = (),
    **more: Any,
) -> Collective:
    """What it moves, and how often; as many bytes come out as go in where nothing else is said."""
    sizes = {"operand_bytes": operand_bytes, "result_bytes": operand_bytes if result_bytes is None else result_bytes}
    return Collective(kind=kind, axes=axes, dtype=dtype, shape=shape, count=count, **sizes, **more)
