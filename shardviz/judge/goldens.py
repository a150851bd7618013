"""Golden files: the meaning of a report in a small sorted JSON file, and the comparison of another report with it.

A golden file has specs, collectives by kind, axes, element type and text of the source line, FLOPs, and memory. It has
no HLO names, order, line numbers or versions, so it changes only when the program's work changes.

>>> within(105.0, 100.0, "5%"), within(106.0, 100.0, 0.05)
(True, False)
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, TypedDict

import msgspec
from msgspec import Meta

from shardviz.costs.step_cost import memory_parts
from shardviz.errors import ContractError, ShardvizError
from shardviz.files import path_of, read_whole, write_whole
from shardviz.judge.changes import SourceLine
from shardviz.notation.spec import axis_text
from shardviz.records.collectives import Collective
from shardviz.records.limits import amount_of
from shardviz.records.report import ReportRecord

SCHEMA_VERSION = 1
TOLERANCES = ("bytes", "runs", "flops", "memory", "arguments", "outputs", "temporaries", "constants and other", "peak")
"""The names for a tolerance: collectives' operand bytes and runs, FLOPs, and all memory or a part of it."""

Golden = dict[str, Any]


_Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Number = Annotated[float, Meta(ge=0, le=sys.float_info.max)]  # Python's JSON reader accepts infinity and NaN


class _GoldenCollective(TypedDict):
    """Collectives of one meaning in a golden file."""

    kind: str
    axes: str
    dtype: str
    line: str
    runs: _Count | None
    bytes: _Number


class _GoldenFile(TypedDict):
    """The contents of a golden file."""

    shardviz_golden: int
    program: str
    level: str
    target: str
    mesh: dict[str, _Count]
    arguments: dict[str, str]
    outputs: dict[str, str]
    collectives: list[_GoldenCollective]
    flops: _Number | None
    memory: dict[str, _Count]


def golden_of(report: ReportRecord) -> Golden:
    """Return the contents of a golden file for a report, as plain data."""
    groups: dict[tuple[Any, ...], list[Collective]] = {}
    for c in report.collectives:
        axes = ["irregular groups"] if c.axes is None else sorted(map(axis_text, c.axes))
        where = SourceLine.of(c.source, report.source)
        text = where.text if c.source and c.source.text_in(report.source) else where.file
        groups.setdefault((c.kind, ",".join(axes), c.dtype, text), []).append(c)
    memory = {what: int(size) for what, size in memory_parts(report).items()}
    if report.memory is not None:
        memory["peak"] = report.memory.peak
    return {
        "shardviz_golden": SCHEMA_VERSION,
        "program": report.program,
        "level": report.level,
        "target": report.target,
        "mesh": dict(report.mesh.shape),
        "arguments": {v.name: "" if v.spec is None else str(v.spec.canonical()) for v in report.arguments},
        "outputs": {v.name: "" if v.spec is None else str(v.spec.canonical()) for v in report.outputs},
        "collectives": [
            {
                "kind": kind,
                "axes": axes,
                "dtype": dtype,
                "line": text,
                "runs": None if any(c.count is None for c in group) else sum(c.count or 0 for c in group),
                "bytes": sum(c.assumed_bytes for c in group),
            }
            for (kind, axes, dtype, text), group in sorted(groups.items())
        ],
        "flops": None if report.cost is None else report.cost.dot_flops,
        "memory": memory,
    }


def check_golden(
    report: ReportRecord,
    path: str | os.PathLike[str],
    *,
    tolerance: Mapping[str, str | float] | None = None,
    update: bool = False,
) -> None:
    """Raise ContractError if the report differs from a golden file; with `update`, write the file instead.

    A golden file is small sorted JSON: specs, collectives (by kind, mesh axes, element type and text of the
    source line), FLOPs and memory. It has no line numbers, names or versions of a compiler, so it stays valid for
    another version of JAX unless the meaning changes.

    Args:
        path: the file's path.
        tolerance: for each of `bytes` and `runs` of collectives, `flops`, `memory` (all of it) or a part such as
            `temporaries`, the share by which it may differ (`0.05` or `5%`). Nothing may differ by default.
        update: write the file instead; with the pytest plugin, `request.config.getoption("--update-goldens")`.

    Raises:
        ContractError: if the report differs, or there is no file; it is an AssertionError too.
        ShardvizError: if the file is not a golden file, or a tolerance has an unknown name.
    """
    file = path_of(path)
    unknown = sorted(set(tolerance or ()) - set(TOLERANCES))
    if unknown:
        raise ShardvizError(f"tolerance: unknown name {unknown[0]!r}; expected {', '.join(map(repr, TOLERANCES))}")
    now = golden_of(report)
    if update:
        text = json.dumps(now, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
        write_whole(file, text.encode(errors="backslashreplace"), folders=True)  # a lone surrogate becomes an escape
        return
    changes = list(differences(_read(file), now, tolerance or {}))
    if changes:
        lines = "\n".join(f"  {line}" for line in changes[:40])
        more = f"\n  … and {len(changes) - 40:,} more" if len(changes) > 40 else ""
        raise ContractError(
            f"{report.program} differs from its golden file {file.name} ({len(changes)}):\n{lines}{more}\n"
            "If the change is intended, rewrite the file with update=True (pytest --update-goldens)"
        )


def _read(file: Path) -> Golden:
    if not os.path.lexists(file):
        raise ContractError(f"there is no golden file {file}; write it with update=True (pytest --update-goldens)")
    try:
        golden = json.loads(read_whole(file))
    except (ValueError, RecursionError) as error:  # not JSON, a number with thousands of digits, lists nested too deep
        raise ShardvizError(f"golden file {file.name} cannot be read: {error}") from error
    version = golden.get("shardviz_golden") if isinstance(golden, dict) else None
    if version != SCHEMA_VERSION:
        raise ShardvizError(f"{file.name} is not a golden file of version {SCHEMA_VERSION} (it has {version!r})")
    try:
        return msgspec.to_builtins(msgspec.convert(golden, _GoldenFile))
    except (msgspec.ValidationError, UnicodeError) as error:  # UnicodeError: a lone surrogate in place of a number
        raise ShardvizError(f"golden file {file.name} is damaged: {error}; write it anew with update=True") from error


def differences(golden: Golden, now: Golden, tolerance: Mapping[str, str | float]) -> Iterator[str]:
    """Yield each difference of a report (`now`) from a golden, as a line of text; `tolerance` is `check_golden`'s."""
    for what in ("program", "level", "target", "mesh"):
        if golden[what] != now[what]:
            yield f"{what}: {_shown(golden[what])} → {_shown(now[what])}"
    for role in ("arguments", "outputs"):
        was, is_now = golden[role], now[role]
        for name in sorted({*was, *is_now}):
            if was.get(name) != is_now.get(name):
                yield f"{role[:-1]} {name}: {was.get(name, 'none')} → {is_now.get(name, 'none')}"
    yield from _collectives(golden["collectives"], now["collectives"], tolerance)
    if not within(now["flops"], golden["flops"], tolerance.get("flops", 0.0)):
        yield f"FLOPs: {_shown(golden['flops'])} → {_shown(now['flops'])}"
    was = golden["memory"]
    for part in sorted({*was, *now["memory"]}):
        allowed = tolerance.get(part, tolerance.get("memory", 0.0))
        before, after = was.get(part, 0), now["memory"].get(part, 0)
        if not within(after, before, allowed):
            yield f"memory, {part}: {_shown(before)} → {_shown(after)} bytes"


def _collectives(golden: list[Any], now: list[Any], tolerance: Mapping[str, str | float]) -> Iterator[str]:
    def by_meaning(rows: list[Any]) -> dict[tuple[str, ...], Any]:
        return {tuple(str(row.get(key)) for key in ("kind", "axes", "dtype", "line")): row for row in rows}

    olds, news = by_meaning(golden), by_meaning(now)
    for key in sorted({*olds, *news}):
        kind, axes, dtype, line = key
        what = f"{kind} over {axes or 'no axis'} of {dtype}, {line or 'no source line'}"
        sides = [("vanished", olds.get(key)), ("appeared", news.get(key))]
        single = [(word, row) for word, row in sides if row is not None]
        if len(single) == 1:
            word, row = single[0]
            yield f"{word}: {what}; runs {row.get('runs')}, {_shown(row.get('bytes'))} bytes"
        else:
            for number in ("runs", "bytes"):
                before, after = olds[key].get(number), news[key][number]
                if not within(after, before, tolerance.get(number, 0.0)):
                    yield f"{number} of {what}: {_shown(before)} → {_shown(after)}"


def within(now: float | None, golden: float | None, allowed: str | float) -> bool:
    """Return whether a number equals the golden's number, or is within a share of it: `0.05` or `5%`."""
    share = amount_of(allowed, "", "tolerance")
    if not isinstance(now, int | float) or not isinstance(golden, int | float):
        return now is None and golden is None
    return abs(now - golden) <= share * abs(golden)


def _shown(what: Any) -> str:
    return f"{what:,.0f}" if isinstance(what, int | float) and not isinstance(what, bool) else str(what)
