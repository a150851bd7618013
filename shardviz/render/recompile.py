"""Why a function was compiled again, in HTML."""

from __future__ import annotations

from html import escape

from shardviz.compat.recompile import Recompilation
from shardviz.render.chips import SANS, cell, table

_HEADS = ("where", "what", "first call", "second call", "so it is", "what helps")


def recompilation_html(found: Recompilation) -> str:
    """The verdict and a row a difference, in HTML that survives JupyterLab's sanitizer; texts are escaped."""
    head = f"<div><b>{escape(found.name)}</b>: {escape(found.verdict)}</div>"
    rows = [
        (
            *(cell(escape(text)) for text in (d.where, d.what, d.before, d.after)),
            *(cell(escape(text), wrap=True) for text in (d.consequence, d.advice)),
        )
        for d in found.differences
    ]
    return f'<div style="{SANS};overflow-x:auto">{head}{table(_HEADS, rows) if rows else ""}</div>'
