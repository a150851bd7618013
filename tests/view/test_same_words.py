"""A subject is told once: plain text, HTML and the page's JSON have the same cells, in the same words."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import pytest

import shardviz as sv
from shardviz import paint
from shardviz.costs.step_cost import cost_of
from shardviz.notation.spec import axis_text
from shardviz.view.document import Beside, Block, Column, Document, Piece, Section, Table, document, plain, row, words
from shardviz.view.panes import collectives_pane, cost_pane, found_values, problems_pane, values_pane

TARGET = "tpu v5p:4x2x1"
SUBJECTS = ("report", "cost", "values", "collectives", "cost pane", "problems")


@pytest.fixture(scope="module")
def told() -> dict[str, Document]:
    """A partitioned report of a real program, its cost, and the page's panes of both."""
    example = sv.gallery.mlp(mesh="data=4,model=2")
    report = example.program.partition(example.plan)
    cost = cost_of(report, TARGET)
    return {
        "report": document(report),
        "cost": document(cost),
        "values": values_pane(report, found_values(report, (), {}), ()),
        "collectives": collectives_pane(replace(report, collectives=cost.partitioned), cost, {}),
        "cost pane": cost_pane(cost),
        "problems": problems_pane(report),
    }


@dataclass(frozen=True)
class Cell:
    """A cell of a table, whether plain text must have it (HTML and the page must), and whether in a row's detail."""

    pieces: tuple[Piece, ...]
    in_text: bool
    nested: bool


def cells(blocks: Iterable[Block], in_text: bool = True, nested: bool = False) -> Iterator[Cell]:
    """The cells of all tables, those in a row's detail too."""
    for block in blocks:
        if isinstance(block, Section):
            yield from cells(block.blocks, in_text and not block.brief, nested)
        elif isinstance(block, Beside):
            yield from cells(block.blocks, in_text, nested)
        elif isinstance(block, Table):
            for number, found in enumerate(block.rows[: block.most]):
                short = in_text and number < block.first
                for cell in found.cells:
                    yield Cell((cell,) if isinstance(cell, Piece) else cell, short, nested)
                yield from cells(found.detail, short and not block.opens, nested=True)


def sent_cells(blocks: list) -> Iterator[list[str]]:
    """The same of the page's JSON: the texts of each cell's pieces."""
    for block in blocks:
        for found in block.get("rows", []):
            for cell in found["cells"]:
                parts = cell if isinstance(cell, list) else [cell]
                yield [part if isinstance(part, str) else part.get("t", "") for part in parts]
            yield from sent_cells(found.get("detail", []))
        yield from sent_cells(block.get("blocks", []))


def in_markup(piece: Piece) -> list[str]:
    """The words of a piece that HTML has, which sets axes and specs as chips."""
    if piece.kind in ("axes", "spec") and piece.value:
        axes = piece.value if piece.kind == "axes" else [axis for dim in piece.value.dims for axis in dim]
        return [axis_text(axis) for axis in axes]
    return [piece.text, str(piece.value or "")] if piece.kind == "line" else [piece.text]


def squeezed(text: str) -> str:
    return "".join(text.split())


def missing(made: Document, text: str, markup: str, data: dict) -> list[tuple[str, str]]:
    """(medium, cell) of what a medium does not have in the Document's words."""
    text, markup = squeezed(text), squeezed(html.unescape(re.sub(r"<[^>]*>", " ", markup)))
    wanted = list(cells(made.blocks))
    sent = list(sent_cells(data["blocks"]))
    found = [("json", str(got)) for cell, got in zip(wanted, sent, strict=True) if [p.text for p in cell.pieces] != got]
    for cell in wanted:
        if cell.in_text and squeezed(plain(cell.pieces)) not in text:
            found.append(("text", plain(cell.pieces)))
        said = [said for piece in cell.pieces for said in in_markup(piece)]
        found += [("html", part) for part in said if squeezed(part) not in markup]
    return found


@pytest.mark.parametrize("subject", SUBJECTS)
def test_all_media_have_the_same_cells(told, subject):
    made = told[subject]
    assert len(list(cells(made.blocks))) > 3
    assert missing(made, paint.text(made), paint.html(made), paint.json(made)) == []


@pytest.mark.parametrize(("pane", "subject"), [("values", "report"), ("cost pane", "cost"), ("problems", "report")])
def test_a_panes_numbers_are_those_of_its_subject(told, pane, subject):
    """Times, bytes and FLOPs on the page are a report's and a cost's own, rounded alike."""
    amount = re.compile(r"[\d.,]+ (?:[kMGTP]?B|[nµm]?s|[kMGTP]?FLOP)\b")
    shown = " ".join(plain(cell.pieces) for cell in cells(told[pane].blocks) if not cell.nested)
    said = paint.html(told[subject])
    numbers = set(amount.findall(shown))
    assert numbers or pane == "problems"
    assert {number for number in numbers if number not in said} == set()


def test_another_word_in_any_medium_is_found():
    table = Table(columns=(Column("name"), Column("per device")), rows=(row(words("w"), words("33.6 MB")),))
    made = Document(blocks=(table,))
    other = Document(blocks=(replace(table, rows=(row(words("w"), words("33.55 MB")),)),))
    text, markup, data = paint.text(made), paint.html(made), paint.json(made)
    assert missing(made, text, markup, data) == []
    assert missing(made, paint.text(other), markup, data) == [("text", "33.6 MB")]
    assert missing(made, text, paint.html(other), data) == [("html", "33.6 MB")]
    assert missing(made, text, markup, paint.json(other)) == [("json", "['33.55 MB']")]
