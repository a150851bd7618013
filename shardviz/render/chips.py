"""The small pieces of HTML that every table here is made of.

Only tags, attributes and inline styles that JupyterLab's sanitizer keeps in untrusted notebooks are used, and without
any style (GitHub) the text alone still says everything. Text colours are inherited, so that light and dark pages both
work; a chip brings its own background and ink.

>>> spec_html(Spec.of(("data", None)), {"data": 8}).count("<span")
3
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from shardviz.notation import Axis, Spec, axis_name
from shardviz.notation.spec import axis_text
from shardviz.render.theme import MUTED, AxisColour, axis_colours, ink_for

SANS = "font-family:system-ui,sans-serif;font-size:13px;line-height:1.4"
MONO = "font-family:ui-monospace,Menlo,Consolas,monospace;font-size:12px"
HAIRLINE = "1px solid rgba(128,128,128,0.35)"
QUIET = "opacity:0.75"
_UNNAMED = AxisColour(MUTED, "#B5B5B5", ink_for(MUTED), "#111111", "")


def chip(axis: Axis, colours: dict[str, AxisColour], text: str | None = None) -> str:
    """A mesh axis (or a part of one) as a coloured chip with its name in it.

    Args:
        axis: the axis.
        colours: as `theme.axis_colours` gives them; an axis that is not there is grey.
        text: what stands in the chip instead of the axis's name.
    """
    colour = colours.get(axis_name(axis), _UNNAMED)
    return (
        f'<span style="background-color:{colour.light};color:{colour.ink};border-radius:3px;padding:1px 5px;{MONO};'
        f'font-weight:600;white-space:nowrap">{escape(axis_text(axis) if text is None else text)}</span>'
    )


def axes_html(axes: tuple[Axis, ...] | None, mesh: Any) -> str:
    """The axes of a collective as chips; groups that are no product of axes, and groups of one, are said in words."""
    if not axes:
        return f'<span style="{QUIET}">{axes_words(axes)}</span>'
    colours = axis_colours(mesh)
    return " ".join(chip(axis, colours) for axis in axes)


def axes_words(axes: tuple[Axis, ...] | None) -> str:
    """The axes of a collective in plain text: `data, model`, `no axis`, or `irregular groups`."""
    if axes is None:
        return "irregular groups"
    return ", ".join(map(axis_text, axes)) or "no axis"


def spec_html(spec: Spec | None, mesh: Any) -> str:
    """A spec in brackets, every axis a chip, `·` for a dimension that is not cut; `not known` for None."""
    if spec is None:
        return f'<span style="{QUIET}">not a PartitionSpec</span>'
    colours = axis_colours(mesh)
    dims = ", ".join(" ".join(chip(a, colours) for a in dim) or f'<span style="{QUIET}">·</span>' for dim in spec.dims)
    text = f'<span style="{MONO};white-space:nowrap">[{dims}]</span>'
    if spec.unreduced:
        text += " sum over " + " ".join(chip(a, colours) for a in spec.unreduced)
    return text


def code(text: str, extra: str = "") -> str:
    """Text in monospace, escaped."""
    return f'<span style="{MONO}{";" + extra if extra else ""}">{escape(text)}</span>'


def cell(content: str, *, right: bool = False, head: bool = False, quiet: bool = False, title: str = "") -> str:
    """A table cell.

    Args:
        content: HTML, escaped already.
        right: a number, set flush right.
        head: a column's head.
        quiet: less important.
        title: plain text shown when hovering.
    """
    side = "right" if right else "left"
    style = f"padding:3px 12px 3px 0;border:0;border-bottom:{HAIRLINE};text-align:{side};vertical-align:top"
    style += ";font-weight:600;opacity:0.75" if head else f";{QUIET}" if quiet else ""
    style += ";white-space:nowrap" if right or head else ""
    tag = 'th scope="col"' if head else "td"
    hover = f' title="{escape(title)}"' if title else ""
    align = ' align="right"' if right else ""
    return f'<{tag}{align} style="{style}"{hover}>{content}</{tag[:2]}>'


def table(heads: Sequence[tuple[str, bool]], rows: Iterable[Sequence[str]], *, caption: str = "") -> str:
    """A table with a hairline under each row.

    Args:
        heads: (plain text, whether the column holds numbers) for each column.
        rows: cells as `cell` makes them.
        caption: plain text above the table.
    """
    top = "".join(cell(escape(text), head=True, right=right) for text, right in heads)
    body = "".join(f'<tr style="background-color:transparent">{"".join(row)}</tr>' for row in rows)
    title = ""
    if caption:
        style = "caption-side:top;text-align:left;font-weight:600;padding:4px 0"
        title = f'<caption style="{style}">{escape(caption)}</caption>'
    return (
        f'<table style="border-collapse:collapse;border:0;margin:4px 0 12px 0;{SANS}">{title}'
        f'<thead><tr style="background-color:transparent">{top}</tr></thead><tbody>{body}</tbody></table>'
    )
