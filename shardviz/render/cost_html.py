"""What a step costs on a machine, in HTML: tables and bars of blocks, which read without any style too."""

from __future__ import annotations

from dataclasses import replace
from html import escape

import numpy as np

from shardviz.costs.step_cost import StepCost
from shardviz.costs.traffic import axis_traffic, traffic
from shardviz.notation import axis_name
from shardviz.paint.theme import MUTED, AxisColour, axis_colours
from shardviz.records import Frame
from shardviz.records.amounts import format_bytes, format_flops, format_seconds, plural
from shardviz.records.sums import CollectiveTotal
from shardviz.render.chips import QUIET, SANS, axes_html, cell, chip, mesh_html, mono, table
from shardviz.render.collectives import source_html
from shardviz.render.cost_text import BAR, bar
from shardviz.render.cost_words import (
    as_run_words,
    busy_words,
    from_rows,
    headline,
    level_words,
    longest,
    memory_words,
    mfu_words,
    moved_phases_words,
    moved_words,
    phases_words,
    placed_words,
    run_words,
    time_rows,
    tokens_words,
    where,
)
from shardviz.render.machine_scene import Panel, axis_between, panels
from shardviz.render.work import why_words, work_html

MOST_ROWS, MOST_LINES, MOST_CHIPS, MOST_MATRIX = 40, 10, 64, 16
_PARTS = {"compute": "#5B6770", "HBM traffic": "#5B6770", "communication": MUTED}
_ROOM = "rgba(128,128,128,0.25)"


def step_cost_html(cost: StepCost) -> str:
    """What a step costs, as HTML that survives JupyterLab's sanitizer and GitHub.

    Args:
        cost: what `cost_of` gives.

    Returns:
        One `<div>`: headline, times, memory, the mesh on the machine, collectives with their formulas, lines, traffic,
        and where each number is from. Every text from outside is escaped.
    """
    axes = mesh_html(cost.mesh)
    where = f"{f'mesh {axes}, ' if axes else ''}{escape(level_words(cost))}"
    parts = [
        f'<div style="font-size:15px;padding:4px 0"><b>{escape(cost.program)}</b> on {escape(str(cost.machine))}</div>',
        f'<div style="padding:2px 0 6px 0">{where}</div>',
        _line("Step", headline(cost)),
        _times(cost),
        *(_quiet(text) for text in _sentences(cost) if text),
        _line("Memory on each device", memory_words(cost.needs)),
        _memory(cost),
        _line("Mesh on the machine", placed_words(cost)),
        _paths(cost),
        _chips(cost),
    ]
    if cost.collectives:
        parts += [_lines(cost), _collectives(cost), _traffic(cost)]
    parts.append(_work(cost))
    rows = [(cell(escape(what)), cell(escape(text), wrap=True)) for what, text in from_rows(cost)]
    parts.append(_folded("Where the numbers are from", table(("number", "from"), rows)))
    return f'<div style="{SANS};overflow-x:auto">{"".join(parts)}</div>'


def _sentences(cost: StepCost) -> tuple[str, ...]:
    words = (phases_words, moved_phases_words, busy_words, mfu_words, tokens_words, as_run_words)
    return tuple(each(cost) for each in words)


def _work(cost: StepCost) -> str:
    """FLOPs and HBM traffic by phase, line and module, and why `cost_analysis()` says less."""
    if cost.counted is None or not cost.counted.work:
        return ""
    own = cost.counted.hbm_bytes == cost.hbm_bytes
    counted = cost.counted if own else replace(cost.counted, hbm_bytes=None, once_hbm_bytes=None)
    content = _quiet(why_words(counted, "HBM")) + work_html(counted, "HBM", cost.line)
    return _folded(f"{format_flops(counted.flops)} on each device: by phase, line and module", content)


def _line(title: str, text: str) -> str:
    return f'<div style="padding:8px 0 2px 0"><b>{escape(title)}</b>: {escape(text)}</div>'


def _quiet(text: str) -> str:
    return f'<div style="{QUIET};padding:0 8px">{escape(text)}</div>'


def _folded(title: str, content: str, *, opened: bool = False) -> str:
    head = f'<details{" open" if opened else ""} style="padding:4px 0"><summary><b>{escape(title)}</b></summary>'
    return f"{head}{content}</details>"


def _blocks(stretches: list[tuple[float, str]], most: float) -> str:
    """Blocks in several colours, one stretch after the other."""
    found = []
    visible = [each for each in stretches if each[0] * BAR * 16 >= most] or stretches[:1]
    for size, colour in visible:
        text = bar(size, most)
        full = text.rstrip("▏▎▍▌▋▊▉")
        if full:
            found.append(f'<span style="color:{colour};background-color:{colour}">{full}</span>')
        if text[len(full) :]:
            found.append(f'<span style="color:{colour}">{text[len(full) :]}</span>')
    return f'<span style="white-space:nowrap;font-size:11px;line-height:1">{"".join(found)}</span>'


def _colour(axes: object, colours: dict[str, AxisColour]) -> str:
    """The light colour of the first of the axes; grey for none."""
    first = axis_name(axes[0]) if isinstance(axes, tuple) and axes else None
    return colours[first].light if first in colours else MUTED


def _times(cost: StepCost) -> str:
    colours = axis_colours(cost.mesh)
    rows = time_rows(cost)
    moved: list[CollectiveTotal | None] = [None, None, None, *cost.by("axes")]
    most = max((seconds or 0.0 for _, seconds, _ in rows), default=0.0)
    cells = []
    for (name, seconds, text), of in zip(rows, moved, strict=True):
        if of is None:
            label, colour = f"<b>{escape(name)}</b>", _PARTS[name]
        else:
            label, colour = f"over {axes_html(of.axes, cost.mesh)}", _colour(of.axes, colours)
        time = f"<b>{format_seconds(seconds)}</b>" if of is None else format_seconds(seconds)
        cells.append(
            (
                cell(label),
                cell(time, right=True),
                cell(_blocks([(seconds or 0.0, colour)], most)),
                cell(escape(text), wrap=True),
            )
        )
    return table(("", ">in a step", "", "how"), cells)


def _memory(cost: StepCost) -> str:
    needs = cost.needs
    whole = max(needs.usable or 0.0, needs.total)
    rows = [
        (cell(escape(what)), cell(format_bytes(size), right=True), cell(_blocks([(size, MUTED)], whole)))
        for what, size in needs.parts.items()
    ]
    if needs.usable is not None:
        left = needs.usable - needs.total
        word = "to spare" if left >= 0 else "too much"
        rows.append((cell(word), cell(format_bytes(abs(left)), right=True), cell(_blocks([(abs(left), _ROOM)], whole))))
        line = f"<b>{format_bytes(needs.usable)}</b>"
        rows.append((cell("<b>usable</b>"), cell(line, right=True), cell(_blocks([(needs.usable, "#5B6770")], whole))))
    return table(("", ">bytes", ""), rows)


def _paths(cost: StepCost) -> str:
    colours = axis_colours(cost.mesh)
    knees = {k.name: k for k in cost.knees()}
    rows = []
    for path in cost.placement.paths:
        knee = knees.get(path.name)
        width = f"{format_bytes(knee.bytes_per_s)}/s" if knee else ""
        rows.append(
            (
                cell(mono(chip(path.name, colours, f"{path.name}={path.size}"))),
                cell(escape(str(path)), wrap=True),
                cell(width, right=True),
            )
        )
    return table(("axis", "rides on", ">a device gathers along it"), rows)


def _chips(cost: StepCost) -> str:
    """The chips with their places in the mesh; none for machines of very many."""
    if cost.machine.size > MOST_CHIPS or not cost.mesh.names:
        return ""
    shown, _ = panels(cost)
    style = "padding:0 16px 0 0;vertical-align:top;border:0;text-align:left"
    cells = "".join(f'<td style="{style}">{_panel(cost, panel)}</td>' for panel in shown)
    axes = ", ".join(cost.mesh.names)
    words = {"tpu": "x runs to the right, y downwards"}.get(cost.machine.chip.kind, "each row is of one host")
    note = _quiet(f"each chip with its place along {axes}; {words}")
    row = f'<tr style="background-color:transparent">{cells}</tr>'
    grid = f'<table style="border-collapse:collapse;border:0;{SANS}"><tbody>{row}</tbody></table>'
    return _folded("Chips", note + f'<div style="overflow-x:auto">{grid}</div>', opened=cost.machine.size <= 32)


def _panel(cost: StepCost, panel: Panel) -> str:
    colours, places = axis_colours(cost.mesh), cost.mesh.coordinates()
    rows = []
    for line in panel.places:
        row = []
        for devices in line:
            each = [
                " ".join(chip(n, colours, str(at)) for n, at in zip(cost.mesh.names, places[device], strict=True))
                for device in devices.tolist()
            ]
            row.append(cell(mono(" | ".join(each)), title=" | ".join(f"device {d} of the mesh" for d in devices)))
        rows.append(tuple(row))
    return table((), rows, caption=panel.title)


def _lines(cost: StepCost) -> str:
    colours, totals = axis_colours(cost.mesh), cost.by("source")
    most = max((m.seconds for m in totals), default=0.0)
    rows = []
    for moved in totals[:MOST_LINES]:
        frame = moved.key if isinstance(moved.key, Frame) else None
        times = sorted(((part.seconds, part.axes) for part in moved.parts), key=lambda each: -each[0])
        stretches = [(seconds, _colour(axes, colours)) for seconds, axes in times]
        rows.append(
            (
                cell(f"<b>{format_seconds(moved.seconds)}</b>", right=True),
                cell(_blocks(stretches, most)),
                cell(f"{source_html(frame, cost.line)}<br>{_quiet_span(moved_words(moved))}"),
            )
        )
    more = _quiet(f"… and {plural(len(totals) - MOST_LINES, 'more line')}") if len(totals) > MOST_LINES else ""
    return table((">in a step", "", "line"), rows, caption="Lines whose collectives take longest") + more


def _quiet_span(text: str) -> str:
    return f'<span style="{QUIET}">{escape(text)}</span>'


def _collectives(cost: StepCost) -> str:
    ordered = longest(cost)
    rows = [_row(row, cost) for row in ordered[:MOST_ROWS]]
    heads = (">in a step", ">runs × each", "kind", "over", "formula of one run", "line")
    more = _quiet(f"… and {len(ordered) - MOST_ROWS:,} more") if len(ordered) > MOST_ROWS else ""
    title = f"{plural(len(cost.collectives), 'collective')}, the longest first, with the formula of each"
    return _folded(title, table(heads, rows) + more, opened=len(ordered) <= 16)


def _row(row: CollectiveTotal, cost: StepCost) -> tuple[str, ...]:
    c = row.collectives[0]
    return (
        cell(f"<b>{format_seconds(row.whole_seconds)}</b>", right=True),
        cell(escape(run_words(row)), right=True),
        cell(escape(c.kind), title=", ".join(one.name for one in row.collectives)),
        cell(axes_html(c.axes, cost.mesh), title=c.groups),
        cell(escape(c.formula or ""), wrap=True),
        cell(escape(where(row)), wrap=True, quiet=True),
    )


def _traffic(cost: StepCost) -> str:
    """Device to device where they are few; else along each axis."""
    rows = []
    colours = axis_colours(cost.mesh)
    for name, found in axis_traffic(cost).items():
        out = found.sum(axis=1)
        beside = np.array([found[i, i - 1] + found[i, (i + 1) % len(found)] for i in range(len(found))])
        rows.append(
            (
                cell(mono(chip(name, colours, f"{name}={len(found)}"))),
                cell(format_bytes(float(out.max())), right=True),
                cell(format_bytes(float(beside.max()) if len(found) > 2 else float(out.max())), right=True),
            )
        )
    content = table(("axis", ">a device sends along it", ">to its two neighbours"), rows)
    if cost.mesh.size <= MOST_MATRIX:
        found = traffic(cost)
        most = found.max() or 1.0
        heads = ["from, to", *(f">{i}" for i in range(len(found)))]
        body = []
        for i, line in enumerate(found):
            cells = [cell(f"<b>{i}</b>", right=True)]
            cells += [_heat(float(v), most, _pair_colour(cost, i, j)) for j, v in enumerate(line)]
            body.append(cells)
        content += table(heads, body, caption="Bytes from each device to each other in a step")
    return _folded("Traffic: which device gets how many bytes of which", content)


def _pair_colour(cost: StepCost, one: int, other: int) -> str:
    """The colour of the axis along which two devices differ; grey where they differ along several."""
    axis = axis_between(cost.mesh, one, other)
    return MUTED if axis is None else axis_colours(cost.mesh)[axis].light


def _heat(nbytes: float, most: float, colour: str) -> str:
    if not nbytes:
        return cell(f'<span style="{QUIET}">·</span>', right=True)
    return cell(f"{format_bytes(nbytes)}<br>{_blocks([(nbytes, colour)], most * 3)}", right=True)
