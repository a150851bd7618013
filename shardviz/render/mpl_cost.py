"""What a step costs on a machine, drawn with matplotlib: where the time goes, and what the memory holds."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes

from shardviz.costs.step_cost import StepCost
from shardviz.errors import ShardvizError
from shardviz.notation import axis_name
from shardviz.paint.columns import wrap
from shardviz.paint.mpl import draw
from shardviz.paint.theme import MUTED, axis_colours
from shardviz.records.amounts import format_bytes, format_seconds
from shardviz.render.cost_words import headline, memory_words, time_rows
from shardviz.render.mpl_look import EM, Look, figure
from shardviz.render.mpl_roofline import roofline_axes
from shardviz.render.mpl_traffic import traffic_axes
from shardviz.render.mpl_work import work_axes
from shardviz.view.cost_pictures import machine_figure

MOST_ROWS = 8


def cost_axes(cost: StepCost, ax: Axes | None = None, kind: str = "step", *, dark: bool = False) -> Axes:
    """A picture of a step's cost.

    Args:
        cost: what `cost_of` gives.
        ax: where to draw; a new figure's Axes if None.
        kind: `step`, `roofline`, `memory`, `traffic`, `machine` or `work`.
        dark: colours for a dark page.

    Returns:
        The Axes; its label says the picture in words.

    Raises:
        ShardvizError: for another kind.
    """
    painters = {
        "step": step_axes,
        "roofline": roofline_axes,
        "memory": memory_axes,
        "traffic": traffic_axes,
        "machine": lambda cost, ax, dark: draw(machine_figure(cost), ax, dark=dark),
        "work": work_axes,
    }
    if kind not in painters:
        raise ShardvizError(f"plot(kind={kind!r}): kind is {', '.join(map(repr, painters))}")
    return painters[kind](cost, ax, dark=dark)


def step_axes(cost: StepCost, ax: Axes | None = None, *, dark: bool = False) -> Axes:
    """The seconds of compute, HBM traffic and each mesh axis' communication, with the bounds of the step as lines."""
    look, colours = Look(dark), axis_colours(cost.mesh)
    moved = [m for m in cost.by("axes") if m.seconds]
    shown, rest = moved[:MOST_ROWS], moved[MOST_ROWS:]
    base = time_rows(cost)[:2]
    rows: list[tuple[str, float, str, Any]] = []
    for name, seconds, _ in base:
        least = name == "HBM traffic" and not cost.hbm_exact
        text = ("at least " if least else "") + format_seconds(seconds)
        rows.append((name, seconds or 0.0, text, None))
    for m in shown:
        rows.append((f"over {m.label}", m.seconds, format_seconds(m.seconds), m))
    if rest:
        seconds = sum(m.seconds for m in rest)
        rows.append((f"over {len(rest)} more", seconds, format_seconds(seconds), None))
    most = (cost.upper or cost.step.upper) or 1.0
    count = len(rows) + 1
    if ax is None:
        left = 0.3 + max(len(name) for name, *_ in (*rows, ("one after the other",))) * 9 * EM
        up = 0.36 * count
        axes = figure(look, left + 5.6 + 1.1, up + 1.7, (left, 0.62, 5.6, up))
    else:
        axes = ax
    beside = {"va": "center", "ha": "left", "color": look.ink, "fontsize": 9, "annotation_clip": False}
    for place, (_, seconds, text, m) in enumerate(rows):
        _bar(axes, look, colours, place, 0.0, seconds / most, m)
        axes.annotate(text, (seconds / most, place), (5, 0), "data", "offset points", **beside)
    begin = max(cost.step.compute, cost.step.memory) / most
    last = len(rows)
    _bar(axes, look, colours, last, 0.0, begin, None)
    for m in moved:
        _bar(axes, look, colours, last, begin, m.seconds / most, m)
        begin += m.seconds / most
    whole = format_seconds(cost.upper) if cost.upper is not None else f"at least {format_seconds(cost.step.upper)}"
    axes.annotate(whole, (begin, last), (5, 0), "data", "offset points", **beside)
    _bounds(axes, look, cost, most, last)
    names = [name for name, *_ in rows] + ["one after the other"]
    axes.set_yticks(range(count), names, color=look.ink, fontsize=9, parse_math=False)
    axes.set_ylim(count - 0.4, -0.75)
    axes.set_xlim(0, 1.0)
    _plain(axes)
    pad = 32 if _close(cost, most) else 20
    axes.set_title(_head(cost, "step time"), loc="left", color=look.ink, fontsize=11, pad=pad, parse_math=False)
    text = "\n".join(wrap(headline(cost), 96))
    axes.set_xlabel(text, loc="left", color=look.quiet, fontsize=8.5, parse_math=False)
    axes.set_label("Step time: " + "; ".join(f"{name} {text}" for name, _, text, _ in rows) + f". {headline(cost)}.")
    return axes


def memory_axes(cost: StepCost, ax: Axes | None = None, *, dark: bool = False) -> Axes:
    """What one device's memory holds, as one bar, and the line of what it has."""
    look, needs = Look(dark), cost.needs
    whole = max(needs.total, needs.usable or 0.0) or 1.0
    fills = ("#56B4E9", "#E69F00", "#CC79A7", MUTED) if not dark else ("#8ACDF4", "#F5BE4A", "#E3A3C6", "#B5B5B5")
    hatches = ("", "///", "...", "xxx")
    axes = figure(look, 7.6, 2.0, (0.3, 0.85, 6.9, 0.42)) if ax is None else ax
    begin, x = 0.0, 0.0
    for (what, size), fill, hatch in zip(needs.parts.items(), fills, hatches, strict=False):
        face = {"color": fill, "edgecolor": look.hatch, "linewidth": 0, "hatch": hatch}
        axes.barh(0, size / whole, 0.9, begin, **face)
        axes.barh(0.98, 0.022, 0.36, x, clip_on=False, **face)
        words = f"{what} {format_bytes(size)}"
        note = {"color": look.ink, "fontsize": 8.5, "va": "center", "annotation_clip": False}
        axes.annotate(words, (x + 0.03, 0.98), **note)
        x += 0.055 + len(words) * 8.5 * EM * 0.92 / 6.9
        begin += size / whole
    if not needs.complete and begin < 1:
        axes.barh(0, 1 - begin, 0.9, begin, fill=False, edgecolor=look.line, linewidth=1, linestyle=(0, (3, 3)))
        if 1 - begin > 0.35:
            what = "what is made in between: not known"
            axes.text((1 + begin) / 2, 0, what, ha="center", va="center", color=look.quiet, fontsize=8.5)
    if needs.usable is not None:
        at = needs.usable / whole
        axes.plot([at, at], [-0.75, 0.45], color=look.ink, linewidth=2, clip_on=False)
        chip, side = cost.machine.chip, "right" if at > 0.4 else "left"
        per = "" if chip.devices_per_chip == 1 else " a device"
        name = f"{chip.name}{per}: {format_bytes(needs.usable)} usable"
        note = {"ha": side, "va": "bottom", "fontsize": 9, "color": look.ink, "annotation_clip": False}
        axes.annotate(name, (at, -0.75), (0, 3), "data", "offset points", **note)
    axes.set_xlim(0, 1.0)
    axes.set_ylim(0.5, -0.5)
    axes.set_yticks([])
    _plain(axes)
    pad = 22 if needs.usable is not None else 8
    axes.set_title(
        _head(cost, "memory on a device"), loc="left", color=look.ink, fontsize=11, pad=pad, parse_math=False
    )
    text = "\n".join(wrap(memory_words(needs), 100))
    axes.set_xlabel(text, loc="left", color=look.quiet, fontsize=8.5, labelpad=26, parse_math=False)
    parts = ", ".join(f"{what} {format_bytes(size)}" for what, size in needs.parts.items())
    axes.set_label(f"Memory on a device: {parts}. {memory_words(needs)}.")
    return axes


def _bar(axes: Axes, look: Look, colours: Any, place: float, begin: float, across: float, moved: Any) -> None:
    """A bar in the colour and hatch of the first mesh axis, grey for what belongs to none."""
    first = moved.key[0] if moved is not None and moved.key else None
    colour = colours.get(axis_name(first)) if first is not None else None
    fill = look.fill(colour) if colour else look.quiet
    hatch = colour.hatch if colour else None
    axes.barh(place, across, 0.62, begin, color=fill, edgecolor=look.hatch, linewidth=0, hatch=hatch)


def _bounds(axes: Axes, look: Look, cost: StepCost, most: float, last: int) -> None:
    low = cost.lower / most
    note = {"va": "bottom", "fontsize": 8.5, "color": look.ink, "annotation_clip": False}
    axes.plot([low, low], [-0.75, last - 0.45], color=look.ink, linewidth=1, linestyle=(0, (1, 2)), clip_on=False)
    word = "at least" if cost.upper is None else "all overlaps"
    text, side = f"{word}: {format_seconds(cost.lower)}", "right" if low > 0.35 else "left"
    up = 14 if _close(cost, most) else 2
    axes.annotate(text, (low, -0.75), (-2 if side == "right" else 2, up), "data", "offset points", ha=side, **note)
    if cost.upper is not None:
        high = cost.upper / most
        axes.plot([high, high], [-0.75, last + 0.5], color=look.ink, linewidth=1, linestyle=(0, (4, 2)), clip_on=False)
        text = f"nothing overlaps: {format_seconds(cost.upper)}"
        axes.annotate(text, (high, -0.75), (2, 2), "data", "offset points", ha="right", **note)


def _close(cost: StepCost, most: float) -> bool:
    """Whether the two bounds are so near that their words need a line each."""
    return cost.upper is not None and cost.lower / most > 0.68


def _head(cost: StepCost, what: str) -> str:
    return f"{cost.program} on {cost.machine.text}: {what}"


def _plain(axes: Axes) -> None:
    axes.set_xticks([])
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_facecolor("none")
