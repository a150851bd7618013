"""A subject says the same in every medium: whatever stands in its document stands in text, HTML, Markdown and JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator

import jax
import pytest
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz import paint
from shardviz.view.document import Beside, Block, Figure, Paragraph, Piece, Section, Table
from shardviz.view.subjects import document
from tests.view.sample import report
from tests.view.sanitizer import words

MESH = jax.sharding.AbstractMesh((4, 2), ("data", "model"))


def leaf(shape, *spec):
    return jax.ShapeDtypeStruct(shape, "float32", sharding=jax.sharding.NamedSharding(MESH, P(*spec)))


def program():
    made = sv.trace(lambda x, n: x * n, leaf((8, 4)), 3, static_argnums=1)
    made.call(leaf((16, 4)), 4)
    return made


def timeline():
    found = sv.trace(lambda x, w: x @ w, leaf((64, 64), None, "data"), leaf((64, 64), "data"))
    return sv.timeline(found.propagate(found.plan()), "tpu v5e:2x4")


SUBJECTS = {
    "a map": lambda: sv.show((17, 8), ("data",), "data=8", dtype="float32", processes=4),
    "a change": lambda: sv.show((64, 64), ("data", None), MESH, after=("model", "data"), dtype="bfloat16", processes=4),
    "a tree": lambda: sv.show({"w": leaf((64, 64), "data"), "b": leaf((64,)), "lr": 0.1}),
    "an unknown": lambda: sv.show((8, 6), "{unknown}", "data=4"),
    "notations": lambda: sv.rosetta("P('data', None)", "data=2,model=4"),
    "rules": lambda: program().rules_table(sv.Plan(MESH, rules=[("x", P("data")), ("*", None)])),
    "a recompilation": lambda: sv.compat.why_recompiled(*program().calls),
    "a report": report,
    "a timeline": timeline,
    "a comparison": lambda: sv.compare(report(), dataclasses.replace(report(), collectives=())),
    "an export": lambda: sv.load(jax.export.export(jax.jit(lambda x: x * 2))(leaf((8, 4), "data"))),
}


def pieces(blocks: tuple[Block, ...]) -> Iterator[Piece]:
    for block in blocks:
        if isinstance(block, Paragraph):
            yield from block.pieces
        elif isinstance(block, Table):
            for row in block.rows:
                for cell in row.cells:
                    yield from (cell,) if isinstance(cell, Piece) else cell
                yield from () if block.folds == "always" else pieces(row.detail)
        elif isinstance(block, Section):
            yield from () if block.brief else (Piece(text=block.title), *block.lead, *pieces(block.blocks))
        elif isinstance(block, Beside):
            yield from pieces(block.blocks)
        else:
            assert isinstance(block, Figure)


@pytest.mark.parametrize("name", SUBJECTS)
def test_all_media_say_all_of_it(name):
    subject = SUBJECTS[name]()
    told = document(subject)
    text, page, markdown = paint.text(subject, 4000), words(paint.html(subject)), paint.markdown(subject)
    plain = " ".join(text.split())
    unescaped = " ".join(markdown.replace("\\", "").replace("*", "").split())
    sent = json.dumps(paint.json(subject), ensure_ascii=False)
    found = [piece for piece in pieces(told.blocks) if piece.text]
    assert found
    for piece in found:
        said = " ".join(piece.text.split())
        assert said in plain
        assert said.replace("\\", "").replace("*", "") in unescaped
        assert json.dumps(said, ensure_ascii=False)[1:-1] in sent
        if piece.kind != "spec":  # chips in HTML
            assert _spaced(said) in _spaced(page) or said in page
    assert subject.text() == subject.text() and subject.html() == subject.html()


def _spaced(text: str) -> str:
    """With spaces in place of commas: chips of axes stand side by side."""
    return " ".join(text.replace(",", " ").split())


def test_a_file_cannot_steer_the_terminal():
    shown = sv.show((8,), ("a\x1b[2J\u202e",), {"a\x1b[2J\u202e": 2}, dtype="int8")
    assert "\x1b" not in shown.text() and "\u202e" not in shown.text() and "�" in shown.text()
