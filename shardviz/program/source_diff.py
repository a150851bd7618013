"""A plan's constraints as the lines that a person would write: in words, and as a diff of their own source.

A variable is constrained in a line of its own behind the statement that assigns it; an expression where it stands.
"""

from __future__ import annotations

import ast
import difflib
import linecache
from collections.abc import Mapping

from shardviz.program.trace import Placed, Traced
from shardviz.records import PlanRecord
from shardviz.records.report import Constrained


def written_lines(bound: PlanRecord, traced: Traced) -> list[str]:
    """For each constraint where to write what: `model.py, behind line 64: h = ...`."""
    return [
        f"{placed.target.frame.short.rpartition(':')[0]}, {where}: {code}"
        for each, placed in _pairs(bound, traced)
        for where, code in [_said(each, placed)]
    ]


def _said(each: Constrained, placed: Placed) -> tuple[str, str]:
    target = placed.target
    code = f"jax.lax.with_sharding_constraint({target.label}, {each.spec_text})"
    time = "" if each.occurrence is None else f"  # only time {each.occurrence} that Python comes here, from 0"
    if _own_line(placed):
        return f"behind line {target.statement.last}", f"{target.variable} = {code}{time}"
    return f"in line {target.line}, in place of {target.label}", f"{code}{time}"


def _pairs(bound: PlanRecord, traced: Traced) -> list[tuple[Constrained, Placed]]:
    known = {(p.target.label, p.target.frame, p.wanted.occurrence): p for p in traced.placed}
    return [(each, known[each.name, each.source, each.occurrence]) for each in bound.constraints]


def edited_sources(bound: PlanRecord, traced: Traced) -> dict[str, str]:
    """File → its text with the plan's constraints written into it.

    One that holds only for one of the times that Python comes to a line is written for all, with a comment that says
    so: only a person can say how to tell the times apart.
    """
    by_file: dict[str, list[tuple[Constrained, Placed]]] = {}
    for each, placed in _pairs(bound, traced):
        by_file.setdefault(placed.target.file, []).append((each, placed))
    return {file: _edited(file, pairs) for file, pairs in by_file.items()}


def source_diff(bound: PlanRecord, traced: Traced) -> str:
    """The same as a unified diff; empty where the plan constrains nothing."""
    found = []
    for file, after in edited_sources(bound, traced).items():
        before = "".join(linecache.getlines(file))
        lines = before.splitlines(keepends=True), after.splitlines(keepends=True)
        found += difflib.unified_diff(*lines, fromfile=file, tofile=file)
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in found)


def _own_line(placed: Placed) -> bool:
    """Whether a variable's statement has its lines for itself, so that another line can follow."""
    target = placed.target
    lines = [line.encode() for line in linecache.getlines(target.file)]
    statement = target.statement
    before = lines[statement.first - 1][: statement.start]
    behind = lines[statement.last - 1][statement.end :].strip()
    return bool(target.variable) and not before.strip() and (not behind or behind.startswith(b"#"))


def _edited(file: str, pairs: list[tuple[Constrained, Placed]]) -> str:
    lines = [line.encode() for line in linecache.getlines(file)]
    if lines and not lines[-1].endswith(b"\n"):
        lines[-1] += b"\n"
    names = _names(b"".join(lines).decode())
    jax_name = names.get("jax") or "jax"
    spec_name = names.get("jax.sharding.PartitionSpec") or "P"
    put: list[tuple[int, int, int, str]] = []  # line, column, what goes first at one place, text
    for each, placed in pairs:
        target, spec = placed.target, each.spec_text
        spec = spec if spec_name == "P" else spec.replace("P(", f"{spec_name}(").replace("P.UN", f"{spec_name}.UN")
        note = "" if each.occurrence is None else f"  # only for time {each.occurrence} that Python comes here, from 0"
        head, tail = f"{jax_name}.lax.with_sharding_constraint(", f", {spec})"
        if _own_line(placed):
            statement = target.statement
            indent = lines[statement.first - 1][: statement.start].decode()
            text = f"{indent}{target.variable} = {head}{target.variable}{tail}{note}\n"
            put.append((statement.last + 1, 0, 0, text))
            continue
        extent = target.expression
        size = (extent.last - extent.first) * 10_000 + extent.end - extent.start
        put.append((extent.last, extent.end, size, tail))
        put.append((extent.first, extent.start, -size, head))
        if note:
            put.append((extent.last, len(lines[extent.last - 1]) - 1, 0, note))
    for number, column, _, text in sorted(put, reverse=True):  # from the end, so that places keep their numbers
        if number > len(lines):
            lines.append(b"")
        line = lines[number - 1]
        lines[number - 1] = line[:column] + text.encode() + line[column:]
    missing = []
    if "jax" not in names:
        missing.append("import jax\n")
    if "jax.sharding.PartitionSpec" not in names:
        missing.append("from jax.sharding import PartitionSpec as P\n")
    at = _behind_imports(b"".join(lines).decode())
    return "".join(line.decode() for line in [*lines[:at], *(m.encode() for m in missing), *lines[at:]])


def _names(text: str) -> Mapping[str, str]:
    """What a file's imports bind: `jax.sharding.PartitionSpec` → `P`, `jax` → `jax`."""
    found: dict[str, str] = {}
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {"jax": "jax", "jax.sharding.PartitionSpec": "P"}  # a cell with IPython's own lines in it
    for node in tree.body:
        if isinstance(node, ast.Import):
            found |= {a.name: a.asname for a in node.names if a.asname}
            found |= {root: root for a in node.names if not a.asname and (root := a.name.partition(".")[0])}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{a.name}": a.asname or a.name for a in node.names}
    return found


def _behind_imports(text: str) -> int:
    """The number of lines up to the end of the file's first imports, or of its docstring."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return 0
    last = 0
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom) or (node is body[0] and isinstance(node, ast.Expr)):
            last = node.end_lineno or last
        else:
            break
    return last
