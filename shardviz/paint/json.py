"""Documents as JSON: what the page renders (`static/document.js`), and what other programs read.

A piece is a string where it is nothing but words, else an object of what it has: `k` its kind, `t` its text, `v` its
value, `b` strong, `q` quiet, `tone`, `tip`, `sel` what it selects. An axis is a name or `[name, before, size]`.

>>> from shardviz.view.document import axes, words
>>> piece_json(words("all")), piece_json(axes(("data",)))
('all', {'t': 'data', 'k': 'axes', 'v': ['data']})
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from shardviz.notation import Axis, Spec
from shardviz.paint.outside import steerless, told
from shardviz.view.document import Beside, Block, Document, Inline, Listing, Paragraph, Piece, Row, Section, Table

Json = dict[str, Any]


def json_of(document: Document) -> Json:
    """A document as plain JSON; the page knows the mesh's colours itself."""
    data: Json = {"blocks": blocks_json(document.blocks)}
    if document.title:
        data["title"] = _inline(document.title)
    if document.lead:
        data["lead"] = [_inline(line) for line in document.lead]
    return data


def blocks_json(blocks: Iterable[Block]) -> list[Json]:
    """Blocks, each an object with its `block`."""
    return [_block(block) for block in blocks]


def _block(block: Block) -> Json:
    if isinstance(block, Paragraph):
        return _given(
            block="p", pieces=_inline(block.pieces), label=told(block.label), quiet=block.quiet, name=block.name
        )
    if isinstance(block, Table):
        return _table(block)
    if isinstance(block, Section):
        return _given(
            block="section",
            title=told(block.title),
            lead=_inline(block.lead),
            blocks=blocks_json(block.blocks),
            fold=block.fold,
            name=block.name,
        )
    if isinstance(block, Beside):
        return {"block": "beside", "blocks": blocks_json(block.blocks)}
    drawn = {"lines": steerless(block.of.text)} if isinstance(block.of, Listing) else block.of.to_json()
    return _given(block="figure", caption=block.caption, of=drawn, name=block.name)


def _table(table: Table) -> Json:
    shown = table.rows[: table.most]
    return _given(
        block="table",
        columns=[_given(title=told(c.title), right=c.right, wrap=c.wrap, tip=c.tip) for c in table.columns],
        rows=[_row(row) for row in shown],
        caption=told(table.caption),
        more=len(table.rows) - len(shown) + table.hidden,
        noun=table.noun,
        name=table.name,
        folds=table.folds != "never",
    )


def _row(row: Row) -> Json:
    return _given(
        cells=[_inline(cell) for cell in row.cells],
        detail=blocks_json(row.detail),
        sel=list(row.selects or ()),
        marked=row.marked,
    )


def _inline(inline: Inline) -> Any:
    """One piece by itself, several as a list."""
    return piece_json(inline) if isinstance(inline, Piece) else [piece_json(piece) for piece in inline]


def piece_json(piece: Piece) -> Any:
    """A piece: its words alone where it is nothing else."""
    text = piece.text if piece.whole else told(piece.text)
    data = _given(
        t=text,
        k="" if piece.kind in ("words", "ask") else piece.kind,
        b=piece.strong,
        q=piece.quiet,
        tone=piece.tone,
        tip=piece.tip or (steerless(piece.text) if len(text) < len(piece.text) else ""),
        sel=list(piece.selects or ()),
    )
    value = _VALUES.get(piece.kind, lambda _: None)(piece.value)
    if value is not None:
        data["v"] = value
    return text if data.keys() <= {"t"} else data


def axis_json(axis: Axis) -> Any:
    """A name, or `[name, before, size]` for a part of an axis."""
    return axis if isinstance(axis, str) else list(axis)


def axes_json(axes: Iterable[Axis] | None) -> list[Any] | None:
    """Several axes; None where a collective's groups are no product of axes."""
    return None if axes is None else [axis_json(axis) for axis in axes]


def spec_json(spec: Spec) -> Json:
    """A spec by dimension, with the axes that it is a sum over."""
    kind = "" if spec.unreduced_kind == "sum" else spec.unreduced_kind
    return _given(dims=[axes_json(dim) for dim in spec.dims], sum=axes_json(spec.unreduced), kind=kind)


_VALUES = {
    "axes": axes_json,
    "mesh": lambda sizes: [list(pair) for pair in sizes],
    "spec": spec_json,
    "bar": lambda parts: [
        {"share": round(part.share, 5)}
        | _given(axes=axes_json(part.axes), tip=part.tip, role="" if part.role == "axes" else part.role)
        for part in parts
    ],
    "line": lambda text: text or None,
    "code": lambda marks: marks and [list(mark) for mark in marks],
}


def _given(**fields: Any) -> Json:
    """The fields that say something."""
    return {name: value for name, value in fields.items() if value not in (None, "", False, 0, [])}
