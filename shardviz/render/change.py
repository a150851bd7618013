"""What moves when an array changes its sharding, in text and HTML: the collectives, and each device's share.

>>> from shardviz.layouts.moves import moves
>>> print(moves_text(moves((8, 8), ("data", None), (None, "data"), {"data": 4}), "float32"))
what moves, P('data', None) → P(None, 'data'): 1 collective
1. all-to-all over data: dimension 0 becomes whole, dimension 1 is cut; to
   P(None, 'data'); each device receives at most 48 B (12 elements)
each device keeps 16 B, receives 48 B, drops 48 B
"""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np

from shardviz.layouts import itemsize
from shardviz.layouts.moves import Moves
from shardviz.layouts.reshard import Step
from shardviz.paint.columns import clip, wrap
from shardviz.records.amounts import format_bytes, plural
from shardviz.render.chips import QUIET, axes_html, axes_words, cell, spec_html, table
from shardviz.render.wording import spec_words
from shardviz.view.ranges import device_ranges

MOST_GROUPS = 24
"""Rows of the table of devices; devices with the same counts share a row."""


def headline(way: Moves) -> str:
    """How many collectives it takes: `2 collectives`, `1 slice and no collective`, `nothing`."""
    if not way.steps:
        return "nothing" if way.free else "not said by any steps"
    slices = sum(step.kind == "slice" for step in way.steps)
    count = len(way.steps) - slices
    local = f"{plural(slices, 'slice')} that each device takes of its own" if slices else ""
    if not count:
        return f"no collective, {local}"
    return plural(count, "collective") + (f", {local}" if local else "")


def done(step: Step) -> str:
    """What a step does to the dimensions: `dimension 0 becomes whole, dimension 1 is cut`."""
    head = str(step).split("; ")[0]
    return head.split(": ", 1)[1] if ": " in head else ""


def groups(way: Moves) -> list[tuple[str, int, int, int]]:
    """Rows of (devices, elements kept, received, dropped), the most received first; equal devices share a row.

    Devices are said as ranges, cut short where these are long.
    """
    counts = np.stack([way.keep, way.receive, way.drop], axis=1)
    kinds, inverse = np.unique(counts, axis=0, return_inverse=True)
    inverse = inverse.reshape(-1)
    rows = []
    for kind in np.lexsort((-kinds[:, 2], -kinds[:, 0], -kinds[:, 1])).tolist():
        ids = way.device_ids[inverse == kind]
        kept, received, dropped = kinds[kind].tolist()
        rows.append((clip(device_ranges(ids.tolist()), 60), kept, received, dropped))
    return rows


def amount(elements: int, dtype: Any) -> str:
    """Elements as bytes where the element type is known."""
    return plural(elements, "element") if dtype is None else format_bytes(elements * itemsize(dtype))


def moves_text(way: Moves, dtype: Any = None, width: int = 80) -> str:
    """What moves, in plain text.

    Args:
        way: from `layout.moves`.
        dtype: the element type, for bytes; None for elements.
        width: the most characters in a line.

    Returns:
        Lines joined by newlines: the steps in order, then what devices keep, receive and drop.
    """
    title = f"what moves, {spec_words(way.before)} → {spec_words(way.after)}: {headline(way)}"
    lines = wrap(title, width, "  ")
    for number, step in enumerate(way.steps, 1):
        text = f"{number}. {step.kind}" + (f" over {axes_words(step.axes)}" if step.axes else "")
        text += f": {done(step)}" if done(step) else ""
        text += f"; to {step.after}" if step.after is not None else ""
        text += f"; {_received(step, dtype)}"
        lines += wrap(text, width, "   ")
    rows = groups(way)
    for devices, kept, received, dropped in rows[:MOST_GROUPS]:
        single = len(rows) == 1 or devices.isdecimal()
        who = "each device" if len(rows) == 1 else f"device {devices}" if single else f"devices {devices}"
        verbs = (f"{verb}{'s' * single}" for verb in ("keep", "receive", "drop"))
        counts = zip(verbs, (kept, received, dropped), strict=True)
        what = ", ".join(f"{verb} {amount(n, dtype)}" for verb, n in counts)
        lines += wrap(f"{who} {what}", width, "  ")
    if len(rows) > MOST_GROUPS:
        lines.append(f"and {plural(len(rows) - MOST_GROUPS, 'group')} of devices more")
    return "\n".join(lines)


def _received(step: Step, dtype: Any) -> str:
    if not step.elements:
        return "nothing travels"
    size = f" ({plural(step.elements, 'element')})" if dtype is not None else ""
    return f"each device receives at most {amount(step.elements, dtype)}{size}"


def moves_html(way: Moves, dtype: Any = None) -> str:
    """What moves, in HTML: a table of the steps, and one of the devices.

    Args:
        way: from `layout.moves`.
        dtype: the element type, for bytes; None for elements.
    """
    mesh = way.before.mesh
    title = f"What moves, {spec_words(way.before)} → {spec_words(way.after)}: {headline(way)}"
    parts = [f'<div style="padding:4px 0"><b>{escape(title)}</b></div>']
    steps = []
    for number, step in enumerate(way.steps, 1):
        over = axes_html(step.axes, mesh) if step.axes else f'<span style="{QUIET}">no named axes</span>'
        spec = "" if step.after is None else spec_html(step.after, mesh)
        received = amount(step.elements, dtype) if step.elements else "nothing"
        steps.append(
            (
                cell(str(number), right=True),
                cell(f"<b>{escape(step.kind)}</b>"),
                cell(over),
                cell(escape(done(step)), wrap=True),
                cell(spec, title=str(step.after or "")),
                cell(received, right=True, title=plural(step.elements, "element")),
            )
        )
    if steps:
        parts.append(table((">", "step", "over", "what it does", "spec after it", ">received, at most"), steps))
    rows = groups(way)
    body = [
        (cell(devices), *(cell(amount(n, dtype), right=True, title=plural(n, "element")) for n in counts))
        for devices, *counts in rows[:MOST_GROUPS]
    ]
    parts.append(table(("devices", ">keeps", ">receives", ">drops"), body))
    if len(rows) > MOST_GROUPS:
        more = plural(len(rows) - MOST_GROUPS, "group")
        parts.append(f'<div style="{QUIET}">and {more} of devices more</div>')
    return "".join(parts)
