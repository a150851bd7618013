"""The small pieces of HTML that every table here is made of.

Only tags, attributes and inline styles that JupyterLab's sanitizer keeps in untrusted notebooks are used, and without
any style (GitHub) the text alone still says everything. Text colours are inherited, so that light and dark pages both
work; a chip brings its own background and ink.

>>> spec_html(Spec.of(("data", None)), {"data": 8}).count("<span")
2
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from shardviz.notation import Axis, DeviceMesh, Spec, axis_name
from shardviz.notation.spec import axis_text
from shardviz.paint.theme import MUTED, AxisColour, axis_colours, ink_for
from shardviz.records.collectives import axes_words

_SANS_FACE = "font-family:system-ui,sans-serif"
SANS = f"{_SANS_FACE};font-size:13px;line-height:1.4"
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
    style = f"background-color:{colour.light};color:{colour.ink};border-radius:3px;padding:1px 5px;font-weight:600"
    return f'<span style="{style}">{escape(axis_text(axis) if text is None else text)}</span>'


def mesh_html(mesh: Any) -> str:
    """The axes of a mesh as chips with their sizes, `data=8`; empty for a mesh with no axes."""
    mesh = DeviceMesh.of(mesh)
    colours = axis_colours(mesh)
    return mono(" ".join(chip(name, colours, f"{name}={size}") for name, size in mesh.shape.items()))


def axes_html(axes: tuple[Axis, ...] | None, mesh: Any) -> str:
    """The axes of a collective as chips; groups that are no product of axes, and groups of one, are said in words."""
    if not axes:
        return f'<span style="{QUIET}">{axes_words(axes)}</span>'
    colours = axis_colours(mesh)
    return mono(" ".join(chip(axis, colours) for axis in axes))


def spec_html(spec: Spec | None, mesh: Any) -> str:
    """A spec in brackets, every axis a chip, `·` for a dimension that is not cut; None is said in words."""
    if spec is None:
        return f'<span style="{QUIET}">not a PartitionSpec</span>'
    colours = axis_colours(mesh)
    text = "[" + ", ".join(" ".join(chip(a, colours) for a in dim) or "·" for dim in spec.dims) + "]"
    if spec.unreduced:
        text += " sum over " + " ".join(chip(a, colours) for a in spec.unreduced)
    return mono(text)


def mono(html: str) -> str:
    """HTML in monospace, on one line."""
    return html and f'<span style="{MONO};white-space:nowrap">{html}</span>'


def code(text: str) -> str:
    """Plain text in monospace, escaped."""
    return mono(escape(text))


def cell(content: str, *, right: bool = False, quiet: bool = False, wrap: bool = False, title: str = "") -> str:
    """A table cell, in monospace as its table is.

    Args:
        content: HTML, escaped already.
        right: a number, set flush right.
        quiet: less important.
        wrap: words, which may take several lines and are set in sans serif.
        title: plain text shown when hovering.
    """
    style = f"padding:3px 8px;text-align:{'right' if right else 'left'}"
    style += (f";{_SANS_FACE}" if wrap else ";white-space:nowrap") + (f";{QUIET}" if quiet else "")
    hover = f' title="{escape(title)}"' if title else ""
    return f'<td{_ALIGN if right else ""} style="{style}"{hover}>{content}</td>'


def head(text: str, *, right: bool = False) -> str:
    """The head of a column, in plain text."""
    side = "right" if right else "left"
    style = (
        f"padding:3px 8px;text-align:{side};white-space:nowrap;font-weight:600;{QUIET};font-family:system-ui,sans-serif"
    )
    return f'<th scope="col"{_ALIGN if right else ""} style="{style}">{escape(text)}</th>'


_ALIGN = ' align="right"'


def table(heads: Iterable[str], rows: Iterable[Sequence[str]], *, caption: str = "") -> str:
    """A table in monospace (so that figures line up) with a hairline under each row.

    Args:
        heads: the columns' heads in plain text; a column of numbers has `>` before it.
        rows: cells as `cell` makes them.
        caption: plain text above the table.
    """
    line = f'<tr style="background-color:transparent;border-bottom:{HAIRLINE}">'
    top = "".join(head(text.removeprefix(">"), right=text.startswith(">")) for text in heads)
    body = "".join(f"{line}{''.join(row)}</tr>" for row in rows)
    title = ""
    if caption:
        style = f"caption-side:top;text-align:left;font-weight:600;padding:4px 8px;{SANS}"
        title = f'<caption style="{style}">{escape(caption)}</caption>'
    return (
        f'<table style="border-collapse:collapse;border:0;margin:4px 0 12px 0;{MONO};line-height:1.4">{title}'
        f"<thead>{line}{top}</tr></thead><tbody>{body}</tbody></table>"
    )
