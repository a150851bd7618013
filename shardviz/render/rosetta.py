"""One sharding in every notation, side by side: what `notation.rosetta` finds, in text and HTML.

>>> shown = show_rosetta("P('data', None)", "data=2,model=4")
>>> print(shown.text(width=72).split(chr(10) * 2)[0])
PartitionSpec        P('data', None)
    'data'           the mesh axis data cuts this dimension; of several
                     in brackets the first is the major one
    None             a dimension that is not cut
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from html import escape
from typing import Any

from shardviz.notation import Row, rosetta
from shardviz.notation.sharding import Sharding, sharding
from shardviz.render.chips import MONO, QUIET, SANS, cell, table
from shardviz.render.format import clip
from shardviz.render.shown import Visible

NAMES = {
    "pspec": "PartitionSpec",
    "short": "short",
    "hlo-v1": "HLO V1, device list",
    "hlo-v2": "HLO V2, iota",
    "hlo-v3": "HLO V3, named",
    "proto": "OpSharding",
    "sdy": "Shardy",
    "pmap": "pmap's ShardingSpec",
}
"""What people call the notations."""

MOST_CHARACTERS = 320
"""Characters of a sharding's text; longer ones (device lists) end in `…`."""

_INDENT = 21


class ShownRosetta(Visible):
    """A sharding in every notation, as a table that shows itself.

    Attributes:
        sharding: the record.
        rows: a `notation.Row` for each notation.
    """

    def __init__(self, sharding: Sharding):
        self.sharding = sharding
        self.rows = rosetta(sharding)

    def text(self, width: int = 80) -> str:
        """The table in plain text, at most `width` characters wide."""
        return rosetta_text(self.rows, width)

    def html(self) -> str:
        """The table in HTML that survives JupyterLab's sanitizer."""
        return f'<div style="{SANS};overflow-x:auto">{rosetta_html(self.rows)}</div>'


def show_rosetta(anything: Any, mesh: Any = None, rank: int | None = None) -> ShownRosetta:
    """A sharding in every notation, with what each letter means and, where a notation cannot say it, why.

    Args:
        anything: a sharding in any notation that `shardviz.sharding` reads.
        mesh: a mesh in any form that `DeviceMesh.of` reads; None where the sharding brings its own.
        rank: the array's number of dimensions, where the sharding does not say it.

    Raises:
        ShardvizError: as `shardviz.sharding` does.
    """
    return ShownRosetta(sharding(anything, mesh, rank))


def rosetta_text(rows: Sequence[Row], width: int = 80) -> str:
    """The table in plain text: each notation's name and text, then its pieces and what they mean.

    Args:
        rows: from `notation.rosetta`.
        width: the most characters in a line.
    """
    blocks = []
    for row in rows:
        name = NAMES.get(row.notation, row.notation)
        lines = _two(
            name, clip(row.text, MOST_CHARACTERS) if row.text is not None else f"not possible: {row.why}", width
        )
        for letter in row.letters:
            lines += _two(f"    {clip(letter.piece, min(60, width - 4))}", letter.meaning, width)
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def _two(left: str, right: str, width: int) -> list[str]:
    """Two columns, the right one wrapped; the right one below where the page is narrow."""
    indent = _INDENT if width >= 2 * _INDENT else 6
    lines = textwrap.wrap(right, width - indent) or [""]
    if len(left) > indent - 2:
        return [left, *(" " * indent + t for t in lines)]
    return [f"{left:<{indent}}{lines[0]}", *(" " * indent + t for t in lines[1:])]


def rosetta_html(rows: Sequence[Row]) -> str:
    """The table in HTML; a notation that cannot say the sharding says why.

    Args:
        rows: from `notation.rosetta`.
    """
    body = []
    for row in rows:
        if row.text is None:
            said = f'<span style="{QUIET}"><b>not possible</b>: {escape(row.why)}</span>'
        else:
            said = f'<code style="{MONO};background-color:transparent">{escape(clip(row.text, MOST_CHARACTERS))}</code>'
        bold = f"{MONO};background-color:transparent;font-weight:600"
        meanings = "<br>".join(
            f'<code style="{bold}">{escape(clip(letter.piece, 60))}</code> {escape(letter.meaning)}'
            for letter in row.letters
        )
        name = escape(NAMES.get(row.notation, row.notation))
        body.append((cell(f"<b>{name}</b>"), cell(said, wrap=True), cell(meanings, wrap=True, quiet=True)))
    return table(("notation", "the sharding in it", "what the pieces mean"), body)
