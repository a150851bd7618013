"""A subject is told once: plain text, HTML, Markdown and JSON have the same cells, in the same words."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz import paint
from shardviz.costs.orders import orders
from shardviz.costs.step_cost import cost_of
from shardviz.explorer.explorer import ExplorerState
from shardviz.notation import DeviceMesh
from shardviz.notation.spec import axis_text
from shardviz.paint.columns import text_width
from shardviz.view.document import (
    Block,
    Column,
    Document,
    Paragraph,
    Piece,
    Rows,
    Section,
    SideBySide,
    Table,
    paragraph,
    plain,
    row,
    term,
    words,
)
from shardviz.view.glossary import GLOSSARY, markdown
from shardviz.view.panes import (
    collectives_pane,
    cost_pane,
    found_values,
    memory_pane,
    problems_pane,
    rules_pane,
    shard_map_pane,
    values_pane,
)
from shardviz.view.placement import device_pane, machine_pane, orders_pane
from shardviz.view.rosetta import read_rosetta, value_rosetta
from shardviz.view.source import source_pane
from shardviz.view.subjects import document
from tests.view.sample import HOSTILE
from tests.view.sample import report as sample
from tests.view.sanitizer import read

TARGET = "tpu v5p:4x2x1"
RULES = (("*['w1']*", ("data", "model")), ("*w*", (None, "data")), ("*nothing*", ()), ("x", ()))
SUBJECTS = (
    *("report", "cost", "values", "collectives", "cost pane", "problems", "summary", "cards", "memory", "source"),
    *("rules", "rules pane", "notations", "notations pane", "what was read", "shard map"),
    *("placement", "machine pane", "orders pane", "device", "device pane"),
)


MESH = jax.sharding.AbstractMesh((4, 2), ("data", "model"))


def leaf(shape, *spec):
    return jax.ShapeDtypeStruct(shape, "float32", sharding=jax.sharding.NamedSharding(MESH, P(*spec)))


def program():
    return sv.trace(lambda x, n: x * n, leaf((8, 4)), 3, static_argnums=1)


def timeline():
    product = sv.trace(lambda x, w: x @ w, leaf((64, 64), "data"), leaf((64, 64), None, "model"))
    return sv.timeline(product.propagate(product.plan()), "tpu v5e:2x4")


OTHERS = {
    "a map": lambda: sv.show((17, 8), ("data",), "data=8", dtype="float32"),
    "a change": lambda: sv.show((64, 64), ("data", None), MESH, after=("model", "data"), dtype="bfloat16"),
    "a tree": lambda: sv.show({"w": leaf((64, 64), "data"), "b": leaf((64,)), "lr": 0.1}),
    "notations": lambda: sv.rosetta("P('data', None)", "data=2,model=4"),
    "rules": lambda: program().rules_table(sv.Plan(MESH, rules=[("x", P("data")), ("*", None)])),
    "a report": sample,
    "a timeline": timeline,
    "a comparison": lambda: sv.compare(sample(), replace(sample(), collectives=())),
    "an export": lambda: sv.load(jax.export.export(jax.jit(lambda x: x * 2))(leaf((8, 4), "data"))),
}


@pytest.fixture(scope="module")
def documents() -> dict[str, Document]:
    """A partitioned report of a real program, its cost, and the page's panes of both."""
    example = sv.gallery.mlp(mesh="data=4,model=2")
    report = example.program.partition(example.plan)
    cost = cost_of(report, TARGET)
    state = ExplorerState(example.program, example.plan, level="partitioned", target=TARGET, debounce=0.01)
    state.wait("partitioned", timeout=120)
    state.stop()
    state.add_card("fsdp", example.program.presets(example.plan.mesh)["fsdp"])
    rules = example.program.rules_table(sv.Plan("data=4,model=2", rules=RULES))
    weight = next(v for v in report.arguments if v.spec is not None and v.spec.axes and len(v.shape) == 2)
    return {
        "summary": document(state),
        "cards": document(state.deck),
        "memory": memory_pane(state.now),
        "source": source_pane(replace(report, collectives=cost.partitioned), cost),
        "rules": document(rules),
        "rules pane": rules_pane(rules),
        "notations": document(sv.rosetta(weight, report.mesh)),
        "notations pane": value_rosetta(report, weight.name),
        "what was read": read_rosetta(report, weight.name, "{devices=[2,4]<=[8]}").answer,
        "shard map": shard_map_pane(report, weight.name),
        "placement": document(cost.placement),
        "machine pane": machine_pane(cost),
        "orders pane": orders_pane(cost, orders(cost)),
        "device": document(cost.placement.device(5)),
        "device pane": device_pane(cost, 5, report, weight.name),
        "report": document(report),
        "cost": document(cost),
        "values": values_pane(report, found_values(report, (), {}), ()),
        "collectives": collectives_pane(replace(report, collectives=cost.partitioned), cost, {}),
        "cost pane": cost_pane(cost),
        "problems": problems_pane(report),
    }


@dataclass(frozen=True)
class Cell:
    """A cell of a table, a paragraph, a heading's lead.

    Attributes:
        pieces: what it says.
        in_text, in_html: whether plain text, and HTML, must have it; the page must.
        nested: whether it belongs to a row.
    """

    pieces: tuple[Piece, ...]
    in_text: bool = True
    in_html: bool = True
    nested: bool = False


def cells(blocks: Iterable[Block], in_text: bool = True, in_html: bool = True, nested: bool = False) -> Iterator[Cell]:
    """The cells of all tables, those in a row's detail too, paragraphs, and what stands behind a heading."""
    for block in blocks:
        if isinstance(block, Paragraph):
            yield Cell(block.pieces, in_text, in_html, nested)
        elif isinstance(block, Section):
            yield Cell(block.lead, in_text, in_html, nested)
            yield from cells(block.blocks, in_text and not block.brief, in_html, nested)
        elif isinstance(block, SideBySide):
            yield from cells(block.blocks, in_text, in_html, nested)
        elif isinstance(block, Table):
            for number, found in enumerate(block.rows[: block.most]):
                short = in_text and number < block.first
                for cell in found.cells:
                    yield Cell((cell,) if isinstance(cell, Piece) else cell, short, in_html, nested)
                shown = block.folds != "always"
                yield from cells(found.detail, short and shown, in_html and shown, nested=True)


def sent_cells(blocks: list) -> Iterator[list[str]]:
    """The same of the page's JSON: the texts of each cell's pieces."""

    def texts(cell):
        return [
            part if isinstance(part, str) else part.get("t", "")
            for part in (cell if isinstance(cell, list) else [cell])
        ]

    for block in blocks:
        if block["block"] in ("p", "section"):
            yield texts(block.get("pieces" if block["block"] == "p" else "lead", []))
        for found in block.get("rows", []):
            yield from map(texts, found["cells"])
            yield from sent_cells(found.get("detail", []))
        yield from sent_cells(block.get("blocks", []))


def in_markup(piece: Piece) -> list[str]:
    """The words of a piece that HTML has, which sets axes and specs as chips; a question is for the page alone."""
    if piece.kind == "ask":
        return []
    if piece.kind in ("axes", "spec") and piece.value:
        axes = piece.value if piece.kind == "axes" else [axis for dim in piece.value.dims for axis in dim]
        return [axis_text(axis) for axis in axes]
    if piece.kind == "mesh":
        return [f"{name}={size}" for name, size in piece.value]
    return [piece.text, str(piece.value or "")] if piece.kind == "line" else [piece.text]


def squeezed(text: str) -> str:
    return "".join(text.split())


def unmarked(text: str) -> str:
    """Without what Markdown marks and escapes."""
    return re.sub(r"[\\`*]", "", squeezed(text))


def missing(made: Document, text: str, markup: str, data: dict, markdown: str) -> list[tuple[str, str]]:
    """(medium, cell) of what a medium does not have in the Document's words."""
    markdown = unmarked(markdown)
    text, markup = squeezed(text), squeezed(html.unescape(re.sub(r"<[^>]*>", " ", markup)))
    titles = [(line,) if isinstance(line, Piece) else line for line in (made.title, *made.lead)]
    wanted = list(cells(made.blocks))
    sent = list(sent_cells(data["blocks"]))
    found = [("json", str(got)) for cell, got in zip(wanted, sent, strict=True) if [p.text for p in cell.pieces] != got]
    for cell in (*wanted, *map(Cell, titles)):
        if cell.in_text and squeezed(plain(cell.pieces)) not in text:
            found.append(("text", plain(cell.pieces)))
        bare = [piece for piece in cell.pieces if cell.in_html and piece.kind not in ("bar", "ask")]
        found += [("markdown", piece.text) for piece in bare if unmarked(piece.text) not in markdown]
        said = [said for piece in cell.pieces if cell.in_html for said in in_markup(piece)]
        found += [("html", part) for part in said if squeezed(part) not in markup]
    return found


@pytest.mark.parametrize("subject", SUBJECTS)
def test_all_media_have_the_same_cells(documents, subject):
    made = documents[subject]
    assert made.title or len(list(cells(made.blocks))) > 1
    assert missing(made, paint.text(made), paint.html(made), paint.json(made), paint.markdown(made)) == []
    read(paint.html(made))  # the sanitizer takes nothing away


@pytest.mark.parametrize("subject", OTHERS)
def test_all_media_have_the_cells_of_what_is_no_pane(subject):
    shown = OTHERS[subject]()
    made = document(shown)
    assert missing(made, paint.text(shown), paint.html(shown), paint.json(shown), paint.markdown(shown)) == []
    assert shown.text() == shown.text() and shown.html() == shown.html()
    read(shown.html())


LONG = "a_very_long_name_of_a_mesh_axis_that_somebody_chose"
WIDE = {
    **OTHERS,
    "2048 devices": lambda: sv.show((8192, 4096, 6), ("data", None, "model"), "data=64,model=32"),
    "a change of 128": lambda: sv.show((64, 64), (("data", "model"),), "data=16,model=8", after=("model", "data")),
    "wide characters": lambda: sv.show((8192, 4096), ("模型並行軸", "データ"), {"模型並行軸": 4, "データ": 2}),
    "a tree of them": lambda: sv.show({"層": np.ones((64, 64)), "b": np.ones(8)}, ("データ",), {"データ": 2}),
    "a long name": lambda: sv.show((64,) * 6, (None, LONG, "b", "c", "d", None), {LONG: 4, "b": 4, "c": 32, "d": 32}),
}


@pytest.mark.parametrize("subject", WIDE)
def test_no_line_is_wider_than_asked_for(subject):
    shown = WIDE[subject]()
    for width in (40, 60, 80, 120):
        assert max(map(text_width, shown.text(width).splitlines())) <= width


EVIL = {HOSTILE: 2, "b": 2}
EVIL_NAMES = DeviceMesh((HOSTILE, f"{HOSTILE}2"), (8, 8))
EVILS = {
    "a report": lambda: sample(EVIL_NAMES, evil=HOSTILE),
    "a cost": lambda: cost_of(sample(EVIL_NAMES, evil=HOSTILE), "tpu v5p:4x4x4"),
    "a map": lambda: sv.show((8, 8), (HOSTILE, "b"), EVIL),
    "a change": lambda: sv.show((8, 8), (HOSTILE, "b"), EVIL, after=("b", HOSTILE)),
    "a tree": lambda: sv.show({HOSTILE: np.zeros((8, 8))}, (HOSTILE,), EVIL),
    "notations": lambda: sv.rosetta((HOSTILE,), EVIL),
}


@pytest.mark.parametrize("subject", EVILS)
def test_names_are_escaped(subject):
    """An unescaped tag would be one too many, or have an attribute that is not allowed."""
    page = EVILS[subject]().html()
    assert "<img" not in page and not read(page).images and HOSTILE in " ".join(read(page).text)
    assert page.count(html.escape("<img src=x onerror=alert(1)>")) > (20 if subject == "a report" else 0)


def test_a_file_cannot_steer_the_terminal():
    shown = sv.show((8,), ("a\x1b[2J\u202e",), {"a\x1b[2J\u202e": 2}, dtype="int8")
    assert "\x1b" not in shown.text() and "\u202e" not in shown.text() and "�" in shown.text()


PANES = [
    *(("values", "report"), ("cost pane", "cost"), ("problems", "report"), ("shard map", "report")),
    *(("cards", "summary, cost"), ("memory", "summary, report"), ("machine pane", "cost"), ("orders pane", "cost")),
]


@pytest.mark.parametrize(("pane", "subject"), PANES)
def test_a_panes_numbers_are_those_of_its_subject(documents, pane, subject):
    """Times, bytes and FLOPs on the page are a report's and a cost's own, rounded alike."""
    amount = re.compile(r"[\d.,]+ (?:[kMGTP]?B|[nµm]?s|[kMGTP]?FLOP)\b")
    shown = " ".join(plain(cell.pieces) for cell in cells(documents[pane].blocks) if not cell.nested)
    said = "".join(paint.html(documents[name]) for name in subject.split(", "))
    numbers = set(amount.findall(shown))
    assert numbers or pane in ("problems", "shard map")
    assert {number for number in numbers if number not in said} == set()


@pytest.mark.parametrize(
    ("pane", "subject"), [("machine pane", "placement"), ("orders pane", "cost"), ("device", "device pane")]
)
def test_what_is_told_of_a_machine_is_told_of_its_subject(documents, pane, subject):
    """What the page says of the axes is the placement's, of the orders the cost's; a device's is on the page."""
    shown, said = ([plain(cell.pieces) for cell in cells(documents[name].blocks)] for name in (pane, subject))
    assert len(shown) > 2 and set(shown) <= set(said)


@pytest.mark.parametrize(("pane", "subject"), [("rules pane", "rules"), ("notations pane", "notations")])
def test_a_panes_words_are_those_of_its_subject(documents, pane, subject):
    """What a person edits on the page stands in the words of text and HTML."""
    shown, said = ([plain(cell.pieces) for cell in cells(documents[name].blocks)] for name in (pane, subject))
    assert shown == said and len(shown) > 10


def test_another_word_in_any_medium_is_found():
    table = Table(columns=(Column("name"), Column("per device")), rows=(row(words("w"), words("33.6 MB")),))
    made = Document(blocks=(table,))
    other = Document(blocks=(replace(table, rows=(row(words("w"), words("33.55 MB")),)),))
    media = {"text": paint.text, "html": paint.html, "json": paint.json, "markdown": paint.markdown}

    def missed(*wrong: str) -> list[tuple[str, str]]:
        text, markup, data, markdown = (paint(other if name in wrong else made) for name, paint in media.items())
        return missing(made, text, markup, data, markdown)

    assert missed() == []
    for name in ("text", "html", "markdown"):
        assert missed(name) == [(name, "33.6 MB")]
    assert missed("json") == [("json", "['33.55 MB']")]


def test_words_of_the_glossary_say_themselves():
    """In heads and in sentences, with a dotted underline; the docs have the same table."""
    shown = Document(
        blocks=(
            paragraph(term("HBM-bound")),
            Rows([1]).table(("operand bytes", str), ("a plan's name", lambda it: term("x"))),
        )
    )
    page = read(paint.html(shown))
    assert set(page.titles) == {GLOSSARY["HBM-bound"], GLOSSARY["operand bytes"]}
    assert paint.html(shown).count("dotted") == 2
    docs = Path(__file__).parents[2] / "docs" / "glossary.md"
    assert docs.read_text("utf-8").endswith(markdown() + "\n")
    assert all(meaning.endswith((".", "...")) for meaning in GLOSSARY.values())
