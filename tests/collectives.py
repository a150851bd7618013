"""A collective, a value or a report in a line, for tests that make them up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardviz.judge.report import Report
from shardviz.notation import DeviceMesh
from shardviz.records import Collective, PlanRecord, Value


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


def held(name: str, dtype: str, shape: tuple[int, ...], nbytes: float, **more: Any) -> Value:
    """An array of which a device holds so many bytes."""
    given = {"spec": None, "shard_shape": shape} | more
    return Value(name=name, dtype=dtype, shape=shape, bytes_per_device=nbytes, **given)


def report_of(mesh: Any, arguments: Sequence[Value] = (), outputs: Sequence[Value] = (), **more: Any) -> Report:
    """A report on a mesh, of level partitioned where no other is said."""
    given = {"level": "partitioned", "program": "f", "plan": PlanRecord(DeviceMesh.of(mesh), {}, {})} | more
    return Report(arguments=tuple(arguments), outputs=tuple(outputs), **given)
