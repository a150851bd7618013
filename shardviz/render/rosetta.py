"""One sharding in every notation, side by side: what `notation.rosetta` finds, in text and HTML.

>>> shown = show_rosetta("{devices=[2,1,4]<=[8] last_tile_dim_replicate}", "data=2,model=4")
>>> for line in shown.text(width=72).splitlines()[:3]:
...     print(line)
[data, ·] on the mesh data=2,model=4, in every notation
<BLANKLINE>
PartitionSpec        P('data', None)
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from html import escape
from typing import Any

from shardviz.errors import SpecError
from shardviz.notation import DeviceMesh, Row, Spec, rosetta
from shardviz.notation.read import Sharding, sharding
from shardviz.paint.columns import clip
from shardviz.records import Value
from shardviz.render.chips import MONO, QUIET, SANS, cell, code, mesh_html, spec_html, table
from shardviz.render.shown import Visible

NAMES = {
    "pspec": "PartitionSpec",
    "short": "short",
    "book": "the scaling book's",
    "hlo-v1": "HLO V1, device list",
    "hlo-v2": "HLO V2, iota",
    "hlo-v3": "HLO V3, named",
    "proto": "OpSharding",
    "sdy": "Shardy",
    "pmap": "pmap's ShardingSpec",
}
"""What people call the notations."""

MET = {
    "pspec": "in JAX programs",
    "short": "in shardviz",
    "book": "in the scaling book",
    "hlo-v1": "in XLA's dumps, any device order",
    "hlo-v2": "in XLA's dumps",
    "hlo-v3": "in the newest XLA's dumps",
    "proto": "in serialised programs",
    "sdy": "in lowered StableHLO",
    "pmap": "in old pmap programs",
}
"""Where people meet them."""

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
        head = f"{self.sharding} on {_where(self.sharding)}, in every notation"
        return "\n".join(textwrap.wrap(head, width)) + "\n\n" + rosetta_text(self.rows, width)

    def html(self) -> str:
        """The table in HTML that survives JupyterLab's sanitizer."""
        mesh = mesh_html(self.sharding.mesh)
        where = f"the mesh {mesh}" if mesh else _where(self.sharding)
        cut = self.sharding
        plain = cut.spec is None or cut.manual or any(cut.open) or cut.reduced
        said = code(str(cut)) if plain else spec_html(cut.spec, cut.mesh)
        head = f'<div style="padding:4px 0">{said} on {where}, in every notation</div>'
        return f'<div style="{SANS};overflow-x:auto">{head}{rosetta_html(self.rows)}</div>'


def _where(cut: Sharding) -> str:
    return f"the mesh {cut.mesh}" if cut.mesh.names else "one device" if cut.mesh.size == 1 else "a mesh with no axes"


def show_rosetta(anything: Any, mesh: Any = None, rank: int | None = None) -> ShownRosetta:
    """A sharding in every notation, with what each letter means and, where a notation cannot say it, why.

    Args:
        anything: a sharding in any notation that `shardviz.sharding` reads, or whatever has one: a `jax.Array`, a
            `jax.ShapeDtypeStruct`, a value of a report (whose mesh is `report.mesh`).
        mesh: a mesh in any form that `DeviceMesh.of` reads; None where the sharding brings its own.
        rank: the array's number of dimensions, where the sharding does not say it.

    Raises:
        ShardvizError: as `shardviz.sharding` does.
    """
    return ShownRosetta(sharding_of(anything, mesh) if isinstance(anything, Value) else sharding(anything, mesh, rank))


def sharding_of(value: Value, mesh: Any) -> Sharding:
    """How a value of a report is cut.

    Args:
        value: the value.
        mesh: the report's mesh.

    Raises:
        MeshError: if `mesh` is none.
        SpecError: where the report does not say how it is cut.
    """
    if value.manual:
        mesh = DeviceMesh.of(mesh)
        return Sharding.from_spec(value.spec or Spec(), mesh, len(value.shape), manual=value.manual)
    said = value.spec if value.spec is not None else value.sharding.get("hlo") or value.sharding.get("sdy")
    if said is None:
        raise SpecError(f"{value.name}: the report does not say how it is cut", argument=value.name)
    return sharding(said, mesh, len(value.shape))


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
    plain = f"{MONO};padding:0;background-color:transparent"
    for row in rows:
        if row.text is None:
            said = f'<span style="{QUIET}"><b>not possible</b>: {escape(row.why)}</span>'
        else:
            said = f'<code style="{plain}">{escape(clip(row.text, MOST_CHARACTERS))}</code>'
        meanings = "<br>".join(
            f'<code style="{plain};font-weight:600">{escape(clip(letter.piece, 60))}</code> {escape(letter.meaning)}'
            for letter in row.letters
        )
        name = escape(NAMES.get(row.notation, row.notation))
        cells = (cell(f"<b>{name}</b>"), cell(said, wrap=True), cell(meanings, wrap=True, quiet=True))
        body.append([c.replace('style="', 'style="vertical-align:top;', 1) for c in cells])
    return table(("notation", "the sharding in it", "what the pieces mean"), body)
