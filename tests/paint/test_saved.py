"""What is saved is a whole file of its kind, which needs nothing but itself; what cannot be saved says why."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

import shardviz as sv
from shardviz.errors import ShardvizError
from shardviz.judge.report import Report
from shardviz.paint.page import page_of
from shardviz.view.document import Column, Document, Figure, Section, Table, row, words
from shardviz.view.placement import machine_figure
from shardviz.view.subjects import document
from tests.view.sample import HOSTILE, report


def cost():
    return sv.cost(report(), "tpu v5p:4x4x4")


SUBJECTS = {
    "a report": report,
    "a cost": cost,
    "a comparison": lambda: sv.compare(report(), report()),
    "a map": lambda: sv.show((17, 8), ("data",), "data=8", dtype="float32"),
    "a change": lambda: sv.show((64, 64), ("data", None), {"data": 8}, after=(None, "data"), dtype="int8"),
}
MAGIC = {".png": b"\x89PNG\r\n\x1a\n", ".pdf": b"%PDF-"}


class Tags(HTMLParser):
    """Every tag with its attributes, and the text; each that is opened is closed."""

    VOID = ("meta", "br", "img", "input", "rect", "path", "line", "circle")

    def __init__(self, text: str):
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.opened: list[str] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()
        assert not self.opened

    def handle_starttag(self, tag, attrs):
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"<{tag}> has an attribute twice: {names}"
        self.found.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.opened.append(tag)

    def handle_data(self, data):
        self.text.append(data)

    def handle_startendtag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.opened.pop() == tag


@pytest.mark.parametrize("name", SUBJECTS)
def test_every_kind_of_file(name, tmp_path):
    subject = SUBJECTS[name]()
    pictures = () if name in ("a report", "a comparison") else (".svg", ".png", ".pdf")
    for ending in (".html", ".md", ".txt", ".json", *pictures):
        path = subject.save(tmp_path / f"it{ending}")
        content = path.read_bytes()
        assert content.startswith(MAGIC.get(ending, b"")) and len(content) > 100
        again = subject.save(tmp_path / f"again{ending.upper()}")
        assert again.read_bytes() == content, "the same subject gives the same file"
    assert (tmp_path / "it.md").read_text() == subject.markdown() + "\n"
    assert (tmp_path / "it.txt").read_text() == subject.text() + "\n"
    assert json.loads((tmp_path / "it.json").read_text())
    if pictures:
        assert ElementTree.parse(tmp_path / "it.svg").getroot().tag.endswith("svg")
    assert {path.name.removesuffix(path.suffix) for path in tmp_path.iterdir()} == {"it", "again"}, (
        "nothing is left over"
    )


def test_a_saved_report_is_read_back(tmp_path):
    path = report().save(tmp_path / "report.json")
    assert Report.from_json(path.read_text()) == report()


def test_a_page_says_what_the_notebook_says_and_holds_every_row():
    made, shown = Tags(page_of(document(report()))).text, Tags(report().html()).text
    assert shown and all(text in made for text in shown)
    long = Table(columns=(Column("n"),), rows=tuple(row(words(f"row {n}.")) for n in range(300)), most=10)
    text = page_of(Document(blocks=(long,)))
    assert all(f"row {n}." in text for n in range(300)) and "290 more rows" in text


def test_pictures_are_drawn_in_a_page():
    """Each hatch and each colour that a picture uses is defined once, outside of what is folded away."""
    picture = machine_figure(cost())
    folded = Section(title="a picture", blocks=(Figure(of=picture), Figure(of=picture)), fold="closed")
    text = page_of(Document(title=words("step"), blocks=(folded,)))
    before, _, after = text.partition("<details")
    assert "<svg" in after
    ids = re.findall(r' id="([^"]*)"', text)
    assert len(ids) == len(set(ids)), "an id is there once"
    for name in set(re.findall(r"url\(#(\w+)\)", text)):
        assert f'id="{name}"' in before
    for name in {n for names in re.findall(r' class="([^"]*)"', after) for n in names.split()}:
        assert re.search(rf"\.{name}\b", before), f"class {name} has no style"


def test_a_page_needs_nothing_and_runs_nothing(tmp_path):
    """Whatever the names are: nothing is loaded from elsewhere, there is no script, and no handler."""
    evil = report(evil=HOSTILE)
    found = Document(
        title=words(HOSTILE),
        blocks=(
            *document(evil).blocks,
            Figure(of=machine_figure(sv.cost(evil, "tpu v5p:4x4x4")), caption=HOSTILE),
            Section(title=HOSTILE, lead=(words(HOSTILE, tip=HOSTILE),), blocks=(), fold="open"),
        ),
        mesh=evil.mesh,
    )
    text = page_of(found)
    for tag, attributes in Tags(text).found:
        assert tag not in ("script", "link", "iframe", "object", "embed", "base", "form", "style" if attributes else "")
        for name, value in attributes.items():
            assert not name.startswith("on"), f"<{tag} {name}>"
            if name in ("src", "href"):
                assert str(value).startswith("data:image/png;base64,")
        assert attributes.get("alt") != "1"
    assert "<img src=x" not in text
    assert "default-src 'none'" in text
    assert not re.search(r"url\((?!#|data:image/png)", text)


def test_what_cannot_be_saved_says_why(tmp_path):
    subject = report()
    for name, why in (
        ("report.doc", r"'\.doc' is not a supported kind of file; use one of \.html, \.md"),
        ("report", "no ending is not a supported kind of file"),
        ("missing/report.html", "there is no folder '.*missing'; make it first"),
    ):
        with pytest.raises(ShardvizError, match=why):
            subject.save(tmp_path / name)
    (tmp_path / "folder.md").mkdir()
    with pytest.raises(ShardvizError, match="it is a folder"):
        subject.save(tmp_path / "folder.md")
    with pytest.raises(
        ShardvizError, match=r"save\('notations.svg'\): shardviz cannot draw .* save it as text instead: \.html"
    ):
        sv.rosetta("P('data', None)", "data=2").save("notations.svg")
    assert [path.name for path in tmp_path.iterdir()] == ["folder.md"]
