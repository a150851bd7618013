"""Contracts on a report's numbers, for the tests of a sharded model; a failure lists each broken contract.

    report.require(fits=True, step_time="<= 5.5 s", sharded="params >= 0.9")

Nothing is run: a report of any level works, and the level `propagated` needs no compiler. A contract about a number
that the level does not know is broken, and the message names the level that knows it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from shardviz.costs.machine import Machine
from shardviz.costs.step_cost import cost_of, memory_parts
from shardviz.errors import ContractError, ShardvizError
from shardviz.layouts import itemsize
from shardviz.notation import DeviceMesh
from shardviz.notation.spec import axis_name
from shardviz.records import Value
from shardviz.records.amounts import format_bytes, format_seconds, plural
from shardviz.records.collectives import Collectives, where_text
from shardviz.records.limits import Limit, limit_of
from shardviz.records.report import ReportRecord


def forbid(report: ReportRecord, kind: str | Sequence[str] | None = None, **where: Any) -> None:
    """Raise ContractError if there is such a collective; the message has the source line of each.

        report.forbid("all-gather", inside="loop", origin="partitioner", larger_than="100 MB")

    Args:
        kind, where: the arguments of `report.collectives.where`.

    Raises:
        ContractError: if there is such a collective; it is an AssertionError too.
        ShardvizError: for an unknown kind, place or origin.
    """
    forbidden = report.collectives.where(kind, **where)
    if forbidden:
        collectives = plural(len(forbidden), "collective")
        raise ContractError(
            f"{_heading(report)}: forbid({where_text(kind, where)}) found {collectives}:\n{forbidden.listed()}"
        )


def require(
    report: ReportRecord,
    *,
    fits: bool | None = None,
    step_time: str | float | None = None,
    memory: str | float | None = None,
    moved: str | float | None = None,
    sharded: str | Sequence[str] | None = None,
    target: str | Machine | None = None,
) -> None:
    """Raise ContractError with all requirements that the report does not meet.

        report.require(fits=True, step_time="<= 5.5 s", sharded="params >= 0.9")

    A requirement that the report's level cannot decide is not met: a lower bound of memory that fits decides nothing.

    Args:
        fits: whether the program fits into the target's memory.
        step_time: a bound of the modelled step, `<= 5.5 s` or `>= 1 s`, for `sv.cost(report).step.seconds`.
        memory: a bound of the program's memory on one device, `<= 90 GB`.
        moved: a bound of the operand bytes of collectives on one device in a step, `<= 300 GB`.
        sharded: `params >= 0.9`: a bound of the share of the argument bytes under a name that are in arrays with at
            least one sharded dimension; or several such bounds.
        target: the machine for `fits` and `step_time`; the report's own if not given.

    Raises:
        ContractError: if a requirement is not met; it is an AssertionError too.
        ShardvizError: for a bound that cannot be read, or a name of no argument.
        TargetError, MeshError: as for `sv.cost`.
    """
    broken: list[str] = []
    if fits is not None:
        broken += _fits(report, fits, target)
    if step_time is not None:
        broken += _step_time(report, limit_of(step_time, "s", "step_time"), target)
    if memory is not None:
        limit = limit_of(memory, "B", "memory")
        parts = memory_parts(report)
        total, least = sum(parts.values()), report.memory is None
        if not limit.holds(total):
            listed = ", ".join(f"{what} {format_bytes(size)}" for what, size in parts.items())
            more = "at least " if least else ""
            broken.append(f"memory {limit.text}: {more}{format_bytes(total)} on a device ({listed})")
        elif least and limit.is_upper:
            broken.append(
                f"memory {limit.text}: not known at level {report.level}, of which {format_bytes(total)} is a lower "
                "bound; compile for the target"
            )
    if moved is not None:
        broken += _moved(report, limit_of(moved, "B", "moved"))
    for wanted in (sharded,) if isinstance(sharded, str) else sharded or ():
        broken += _sharded(report, wanted)
    if broken:
        raise ContractError(f"{_heading(report)} is not as required:\n" + "\n".join(f"  {line}" for line in broken))


def _heading(report: ReportRecord) -> str:
    return f"{report.program} at level {report.level} for {report.target}"


def _fits(report: ReportRecord, wanted: bool, target: str | Machine | None) -> list[str]:
    needs = cost_of(report, target or report.target).needs
    fits = needs.fits if needs.sure else None  # an estimate neither keeps nor breaks a contract
    if fits is wanted:
        return []
    room = f"{needs.text} of {format_bytes(needs.usable)}"
    if fits is None:
        return [f"fits={wanted}: not known at level {report.level} ({room}, no plan); compile for the target"]
    return [f"fits={wanted}: it {'fits' if fits else 'does not fit'}, {room}"]


def _step_time(report: ReportRecord, limit: Limit, target: str | Machine | None) -> list[str]:
    """Return the failure of the bound on the step's seconds; empty if the bound holds."""
    cost = cost_of(report, target or report.target)
    number = cost.seconds
    if number is None:
        return [f"step_time {limit.text}: not known at level {report.level}, which counts no FLOPs"]
    counted = report.cost
    if limit.is_upper and counted is not None and (counted.opaque or counted.unknown_loops):
        kernels = ", ".join(counted.opaque)
        why = f"the FLOPs of {kernels} are not known (give flops=)" if kernels else "a loop's trip count is not known"
        return [f"step_time {limit.text}: not known, because {why}"]
    if cost.unknown:
        return [f"step_time {limit.text}: {plural(len(cost.unknown), 'collective')} of unknown time"]
    if limit.holds(number):
        return []
    parts = (
        f"compute {format_seconds(cost.step.compute)}, HBM {format_seconds(cost.step.memory)}, "
        f"communication {format_seconds(cost.step.communication)}"
    )
    worst = "".join(f"; over {t.label} {format_seconds(t.seconds)}" for t in cost.by("axes")[:3] if t.seconds)
    return [f"step_time {limit.text}: {format_seconds(number)} on {cost.machine.text} ({parts}{worst})"]


def _moved(report: ReportRecord, limit: Limit) -> list[str]:
    total = sum(c.assumed_bytes for c in report.collectives)
    unknown = sum(c.count is None for c in report.collectives)
    if unknown and limit.is_upper:
        return [f"moved {limit.text}: {plural(unknown, 'collective')} of unknown count"]
    if limit.holds(total):
        return []
    most = Collectives(sorted(report.collectives, key=lambda c: -c.assumed_bytes)[:3], report.source).listed()
    return [f"moved {limit.text}: {format_bytes(total)} of operands on a device in a step, most by\n{most}"]


def _sharded(report: ReportRecord, wanted: str) -> list[str]:
    """Return the failure of `params >= 0.9`, a bound of the share of bytes in sharded arrays; empty if it holds."""
    end = next((place for place, letter in enumerate(wanted) if letter in "<>="), len(wanted))
    name, limit = wanted[:end].strip(), limit_of(wanted[end:] or ">= 1", "", "sharded")
    arrays = [v for v in report.arguments if under(v.name, name)]
    if not arrays:
        have = ", ".join(sorted({re.split(r"[\[.]", v.name, maxsplit=1)[0] for v in report.arguments})[:8])
        raise ShardvizError(f"sharded={wanted!r}: no argument is named {name!r} or is under it; there are {have}")
    sizes = {v.name: math.prod(v.shape) * itemsize(v.dtype) for v in arrays}
    replicated = [v for v in arrays if not _is_sharded(v, report.mesh)]
    total = sum(sizes.values())
    share = 1.0 if not total else 1.0 - sum(sizes[v.name] for v in replicated) / total
    if limit.holds(share):
        return []
    most = sorted(replicated, key=lambda v: -sizes[v.name])[:4]
    listed = ", ".join(f"{v.name} {format_bytes(sizes[v.name])}" for v in most)
    return [f"sharded {wanted.strip()}: {share:.4g} of {format_bytes(total)}; replicated on every device: {listed}"]


def _is_sharded(value: Value, mesh: DeviceMesh) -> bool:
    if value.spec is None:
        return value.shard_shape is not None and tuple(value.shard_shape) != tuple(value.shape)
    return any(mesh.shape.get(axis_name(a), 1) > 1 for a in value.spec.axes)


def under(path: str, name: str) -> bool:
    """Return whether a tree path equals a name or is under it: `params['w']` is under `params`, and under ``."""
    return not name or path == name or (path.startswith(name) and path[len(name)] in "[.")
