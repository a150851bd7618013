"""Functions edited by hand: a module's own source with a line changed, as its author would change it."""

from __future__ import annotations

import importlib.util
import inspect
import linecache
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
