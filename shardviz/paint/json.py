"""Documents as JSON for the page (`static/document.js`) and for other programs.

A piece that is only words is a string. Any other piece is an object: `k` its kind, `t` its text, `v` its
value, `b` strong, `q` quiet, `tone`, `tip`, `sel` what it selects. An axis is a name or `[name, before, size]`.

>>> from shardviz.view.document import axes, words
>>> piece_json(words("all")), piece_json(axes(("data",)))
('all', {'t': 'data', 'k': 'axes', 'v': ['data']})
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from shardviz.notation import Axis, Spec
from shardviz.paint.motion import motion_tree
from shardviz.paint.outside import shown, uncontrolled
from shardviz.view.document import Block, Document, Inline, Listing, Paragraph, Piece, Row, Section, SideBySide, Table
from shardviz.view.picture import Film

Json = dict[str, Any]


def json_of(document: Document) -> Json:
    """Return a document as plain JSON, without the mesh's colours, which the page knows."""
    data: Json = {"blocks": blocks_json(document.blocks)}
    if document.title:
        data["title"] = _inline(document.title)
    if document.lead:
        data["lead"] = [_inline(line) for line in document.lead]
    return data


def blocks_json(blocks: Iterable[Block]) -> list[Json]:
    """Return blocks as objects that name their kind in `block`."""
    return [_block(block) for block in blocks]


def _block(block: Block) -> Json:
    if isinstance(block, Paragraph):
        return _nonempty(
            block="p", pieces=_inline(block.pieces), label=shown(block.label), quiet=block.quiet, name=block.name
        )
    if isinstance(block, Table):
        return _table(block)
    if isinstance(block, Section):
        return _nonempty(
            block="section",
            title=shown(block.title),
            lead=_inline(block.lead),
            blocks=blocks_json(block.blocks),
            fold=block.fold,
            name=block.name,
        )
    if isinstance(block, SideBySide):
        return {"block": "beside", "blocks": blocks_json(block.blocks)}
    if isinstance(block.of, Film):
        drawn = {"tree": motion_tree(block.of)}
    else:
        drawn = {"lines": uncontrolled(block.of.text)} if isinstance(block.of, Listing) else block.of.to_json()
    return _nonempty(block="figure", caption=block.caption, of=drawn, name=block.name)


def _table(table: Table) -> Json:
    rows = table.rows[: table.most]
    return _nonempty(
        block="table",
        columns=[_nonempty(title=shown(c.title), right=c.right, wrap=c.wrap, tip=c.tip) for c in table.columns],
        rows=[_row(row) for row in rows],
        caption=shown(table.caption),
        more=len(table.rows) - len(rows) + table.hidden,
        noun=table.noun,
        name=table.name,
        folds=table.folds != "never",
    )


def _row(row: Row) -> Json:
    return _nonempty(
        cells=[_inline(cell) for cell in row.cells],
        detail=blocks_json(row.detail),
        sel=list(row.selects or ()),
        marked=row.marked,
    )


def _inline(inline: Inline) -> Any:
    return piece_json(inline) if isinstance(inline, Piece) else [piece_json(piece) for piece in inline]


def piece_json(piece: Piece) -> Any:
    """Return a piece: only its text if it has nothing else."""
    text = piece.text if piece.whole else shown(piece.text)
    data = _nonempty(
        t=text,
        k="" if piece.kind in ("words", "ask") else piece.kind,
        b=piece.strong,
        q=piece.quiet,
        tone=piece.tone,
        tip=piece.tip or (uncontrolled(piece.text) if len(text) < len(piece.text) else ""),
        sel=list(piece.selects or ()),
    )
    value = _VALUES.get(piece.kind, lambda _: None)(piece.value)
    if value is not None:
        data["v"] = value
    return text if data.keys() <= {"t"} else data


def axes_json(axes: Iterable[Axis] | None) -> list[Any] | None:
    """Return axes by name, a part of an axis as `[name, before, size]`; None if a collective's groups follow no
    axes."""
    return None if axes is None else [axis if isinstance(axis, str) else list(axis) for axis in axes]


def spec_json(spec: Spec) -> Json:
    """Return a spec by dimension, with the axes of its partial results."""
    kind = "" if spec.unreduced_kind == "sum" else spec.unreduced_kind
    return _nonempty(dims=[axes_json(dim) for dim in spec.dims], sum=axes_json(spec.unreduced), kind=kind)


_VALUES = {
    "axes": axes_json,
    "mesh": lambda sizes: [list(pair) for pair in sizes],
    "spec": spec_json,
    "bar": lambda parts: [
        {"share": round(part.share, 5)}
        | _nonempty(axes=axes_json(part.axes), tip=part.tip, role="" if part.role == "axes" else part.role)
        for part in parts
    ],
    "line": lambda text: text or None,
    "code": lambda marks: marks and [list(mark) for mark in marks],
}


def _nonempty(**fields: Any) -> Json:
    return {name: value for name, value in fields.items() if value not in (None, "", False, 0, [])}
