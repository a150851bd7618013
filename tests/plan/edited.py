"""Functions edited by hand: a module's own source with a line changed, as its author would change it."""

from __future__ import annotations

import importlib.util
import inspect
import linecache
import re
import sys
from pathlib import Path
from types import ModuleType

from shardviz.judge.report import Report


def edited(module: ModuleType, folder: Path, *changes: tuple[str, str]) -> ModuleType:
    """The module with each first text in its source, which must stand there once, replaced by the second."""
    source = inspect.getsource(module)
    for before, after in changes:
        assert source.count(before) == 1, before
        source = source.replace(before, after)
    return module_of(source, folder / f"edited_{module.__name__.rpartition('.')[2]}_{abs(hash(changes))}.py")


def module_of(source: str, path: Path) -> ModuleType:
    """A module with this source, in this file."""
    path.write_text(source)
    linecache.checkcache(str(path))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = made
    spec.loader.exec_module(made)
    return made


def as_told(code: str, source: str) -> str:
    """A source with the constraints in it that a plan's code says to write: after lines, and in place of texts."""
    lines, behind = source.splitlines(), list[tuple[int, str]]()
    notes = re.findall(r"^#   (.+)$", code, re.MULTILINE)
    where = re.compile(r"\S+?(?::|, in line )(\d+)(?:: (.+) in place of (.+)|, in place of (.+?): (.+))")
    told = [match for note in notes if (match := where.fullmatch(note))]
    changes = [(int(m[1]), *((m[3], m[2]) if m[3] else (m[4], m[5]))) for m in told]
    for number, before, after in sorted(changes, key=lambda change: -len(change[1])):  # the outer ones first
        line = lines[number - 1]
        before = next(text for text in (before, before.replace("'", '"')) if text in line)
        lines[number - 1] = line.replace(before, after)
    for note in notes:
        if match := re.fullmatch(r"\S+, after line (\d+): (.+)", note):
            behind.append((int(match[1]), match[2]))
    for number, text in sorted(behind, reverse=True):
        start = next(n for n in range(number, 0, -1) if lines[n - 1].strip().startswith(f"{text.split(' = ')[0]} = "))
        lines.insert(number, lines[start - 1][: -len(lines[start - 1].lstrip())] + text)
    return "\n".join(lines) + "\n"


def said(report: Report) -> dict[str, object]:
    """All that a report says, but for the numbers of lines, which an edit moves, and names, which are numbered."""
    values = sorted((v.op, v.name_stack, v.shape, v.dtype, str(v.spec), v.count or 0) for v in report.intermediates)
    moved = sorted(
        (c.kind, str(c.axes), c.dtype, c.shape, c.operand_bytes, c.result_bytes, c.count or 0, c.phase, c.origin)
        for c in report.collectives
    )
    kept = sorted((r.kind, r.value.shape, str(r.value.spec)) for r in report.residuals)
    assert report.cost is not None
    return {
        "values": values,
        "collectives": moved,
        "residuals": kept,
        "outputs": [(v.name, str(v.spec)) for v in report.outputs],
        "flops": report.cost.dot_flops,
        "memory": report.memory and report.memory.peak,
    }
