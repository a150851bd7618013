"""The explorer of a dry run: a strip with its programs in their order, and the explorer of the one that is open."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anywidget
import ipywidgets
import traitlets

from shardviz.page.explorer import Explorer
from shardviz.records.amounts import format_bytes, format_seconds, plural
from shardviz.records.runs import RunProgram, RunRecord
from shardviz.runs import Run, RunStep
from shardviz.view.run import is_large

_STATIC = Path(__file__).with_name("static") / "run"
_MOST_MOVES = 3


class Strip(anywidget.AnyWidget):
    """The programs of a run, each with what its calls take and what a device needs meanwhile, and what the run moves;
    `at` is the open one."""

    _esm = _STATIC / "strip.js"
    _css = _STATIC / "strip.css"
    blocks = traitlets.List().tag(sync=True)
    limit = traitlets.Float(0.0).tag(sync=True)
    limit_words = traitlets.Unicode().tag(sync=True)
    moves = traitlets.List().tag(sync=True)
    at = traitlets.Int().tag(sync=True)


class RunExplorer(ipywidgets.VBox):
    """The programs of a run, and the `Explorer` of one of them.

    Attributes:
        run: the run.
        explorer: the explorer that is open.
    """

    def __init__(self, run: Run, step: RunStep, make: Callable[[RunStep], Explorer]):
        self.run, self._make = run, make
        self._explorers: dict[int, Explorer] = {}
        at = run.steps.index(step)
        blocks, limit = blocks_of(run)
        words = f"{format_bytes(run.record.usable)} a device" if limit and run.record.usable else ""
        self.strip = Strip(blocks=blocks, limit=limit, limit_words=words, moves=moves_of(run.record), at=at)
        super().__init__()
        self.strip.observe(lambda change: self.choose(change["new"]), "at")
        self.choose(at)

    @property
    def explorer(self) -> Explorer:
        return self._explorers[self.strip.at]

    def choose(self, program: int | str) -> None:
        """Open a program by its name or its place in the run.

        Raises:
            ShardvizError: if there is no such program, or it is not one that shardviz can explore.
        """
        step = self.run[program]
        at = self.run.steps.index(step)
        if at not in self._explorers:
            self._explorers[at] = self._make(step)
        self.strip.at = at
        self.children = (self.strip, self._explorers[at])

    def close(self) -> None:
        """Close every explorer that was opened."""
        for explorer in self._explorers.values():
            explorer.close()
        self.strip.close()
        super().close()

    def __repr__(self) -> str:
        return self.run.text()

    def _repr_mimebundle_(self, **options: Any) -> Any:
        return {**(super()._repr_mimebundle_(**options) or {}), "text/plain": self.run.text()}


def blocks_of(run: Run) -> tuple[list[dict[str, Any]], float]:
    """Return each program as a block of the strip, and where the machine's limit is, as a share of the highest bar."""
    record = run.record
    needs = [_most(record, number) for number in range(len(record.programs))]
    top = max([record.usable or 0.0, *needs, 1.0])
    total = sum((p.seconds or 0.0) * p.calls for p in record.programs)
    blocks = []
    for step, needed in zip(run.steps, needs, strict=True):
        program = step.record
        took = (program.seconds or 0.0) * program.calls
        blocks.append(
            {
                "name": program.name,
                "label": label_of(program),
                "tip": step.why_not or _tip(program, needed),
                "share": round(100 * took / total, 3) if total else 1.0,
                "height": needed / top,
                "over": record.usable is not None and needed > record.usable,
                "opens": step.program is not None,
            }
        )
    return blocks, (record.usable or 0.0) / top


def moves_of(record: RunRecord) -> list[dict[str, str]]:
    """Return the largest transfers, each as a few words with a tip."""
    large = sorted(filter(is_large, record.transfers), key=lambda t: -t.nbytes)
    moves = []
    for each in large[:_MOST_MOVES]:
        took = "" if each.seconds is None else f", {format_seconds(each.seconds)}"
        where = f" at {each.source.short}" if each.source else ""
        over = "" if each.seconds is None else f"; over PCIe: {format_bytes(each.device_bytes)} on one device"
        tip = f"{each.kind}{where}: {plural(each.count, 'array')}, {each.before} → {each.after}{over}"
        moves.append(
            {"text": f"{_end(each.before)} → {_end(each.after)}: {format_bytes(each.nbytes)}{took}", "tip": tip}
        )
    if more := large[_MOST_MOVES:]:
        moves.append({"text": f"{len(more)} more: {format_bytes(sum(t.nbytes for t in more))}", "tip": ""})
    return moves


def _end(place: str) -> str:
    """Return the spec of a place, without its mesh."""
    return place.partition(" on ")[0]


def label_of(program: RunProgram) -> str:
    """Return `3 × 1.35 s`, or how many calls where their time is not known."""
    if program.seconds is None:
        return plural(program.calls, "call")
    return f"{program.calls:,} × {format_seconds(program.seconds)}"


def _tip(program: RunProgram, needed: float) -> str:
    line = f" at {program.source.short}" if program.source else ""
    where = f"{program.name}{line}: {label_of(program)} on {plural(program.devices, 'device')}"
    return f"{where}; a device needs {format_bytes(needed)} meanwhile (level propagated)"


def _most(record: RunRecord, number: int) -> float:
    return max((record.needs_at(call) for call in record.calls if call.program == number), default=0.0)
