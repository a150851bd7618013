"""Names from outside in every medium: of any length, with characters that steer, running from right to left."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardviz import paint
from shardviz.notation import DeviceMesh, Spec
from shardviz.paint.outside import LONGEST, LONGEST_WORD, isolated, shown
from shardviz.records import Frame, Value
from shardviz.view.document import (
    Column,
    Document,
    Piece,
    Section,
    Table,
    axes,
    code,
    line,
    mesh_axes,
    paragraph,
    row,
    spec,
    words,
)
from shardviz.view.values import values_table
from tests.view import sanitizer

STEERING = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066\u2067]")
HOSTILE = {
    "long": "n" * 10_000,
    "long with spaces": "layers and " * 1000,
    "override": "weights\u202egnp.exe",
    "unclosed isolate": "w\u2067x",
    "terminal": "w\x1b[2J\x07\x9b31m",
    "hebrew": "\u05de\u05e9\u05e7\u05dc\u05d5\u05ea 12",
    "long hebrew": "\u05de" * 10_000,
}


def a_document(name: str) -> Document:
    """A name in every place of a Document that may hold one."""
    axis = name[:1000]  # a mesh takes no longer ones
    mesh = DeviceMesh((axis, "b"), (2, 2))
    cells = (
        *(words(name), code(name), axes((axis,)), mesh_axes(mesh), spec(Spec.of(((axis,), None)))),
        line(Frame(f"/src/{name}.py", 3), {f"/src/{name}.py": {3: name}}),
    )
    table = Table(
        columns=tuple(Column(name if n else "what") for n in range(6)),
        rows=(row(*cells, detail=(paragraph(name, label=name),)),),
        caption=name,
    )
    value = Value(name=name, shape=(8,), dtype="float32", spec=None, sharding={"hlo": name}, label=name, op=name)
    inner = Section(title=name, lead=(words(name),), blocks=(table, values_table([value]), paragraph(name, label=name)))
    return Document(title=words(name), lead=(code(name),), blocks=(inner,), mesh=mesh)


def strings(data: Any, key: str = "") -> Iterator[str]:
    """What a person reads of the page's JSON: names of what a click selects, and axes, are none of it."""
    if isinstance(data, dict):
        for name, each in data.items():
            yield from () if name in ("sel", "v") else strings(each, name)
    elif isinstance(data, list):
        for each in data:
            yield from strings(each, key)
    elif isinstance(data, str) and key != "tip":
        yield data


def media(made: Document) -> dict[str, list[str]]:
    """What a person reads in each medium, in lines or texts."""
    shown = re.sub(r"<[^>]*>", "\n", paint.html(made))
    return {
        "text": paint.text(made).splitlines(),
        "html": [html.unescape(text) for text in shown.split("\n")],
        "markdown": paint.markdown(made).splitlines(),
        "json": list(strings(paint.json(made))),
    }


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
def test_nothing_steers_and_no_word_is_longer_than_can_be_read(name):
    for medium, texts in media(a_document(name)).items():
        whole = "".join(texts)
        assert whole and whole.count("\u2068") == whole.count("\u2069"), medium
        for text in texts:
            assert not STEERING.search(text), medium
            longest = max(map(len, re.findall(r"[^\s`*\\\[\]|<>{}]+", text)), default=0)
            assert longest <= LONGEST_WORD + 12, medium  # `/src/` and `.py:3` beside the name


@pytest.mark.parametrize("name", [HOSTILE["long"], HOSTILE["long with spaces"], HOSTILE["long hebrew"]])
def test_the_whole_is_in_a_title(name):
    made = Document(blocks=(paragraph(name), Table(columns=(Column("a"),), rows=(row(code(name)),))))
    markup = paint.html(made)
    assert html.unescape(markup).count(f'title="{name}"') == 2
    tips = [part["tip"] for block in paint.json(made)["blocks"] for part in parts(block)]
    assert tips == [name, name]
    sanitizer.read(markup)


def parts(block: dict) -> list[dict]:
    found = block["pieces"] if block["block"] == "p" else block["rows"][0]["cells"]
    return [part for each in found for part in (each if isinstance(each, list) else [each])]


def test_what_runs_from_right_to_left_does_so_by_itself():
    name = HOSTILE["hebrew"]
    made = Document(blocks=(paragraph(words(name), words("8")),))
    assert paint.text(made) == f"\u2068{name}\u2069 8"
    assert f"<bdi>{name}</bdi> 8" in paint.html(made)
    assert paint.markdown(made) == f"\u2068{name}\u2069 8"
    assert "bdi" not in paint.html(Document(blocks=(paragraph("weights", words("8")),)))


def test_a_text_to_be_copied_is_whole():
    text = ",".join(map(str, range(2000)))
    made = Document(blocks=(paragraph(Piece(text=text, kind="code", whole=True)),))
    assert text in paint.markdown(made) and text in html.unescape(paint.html(made))
    assert text in json.dumps(paint.json(made)) and text in "".join(paint.text(made).split())


@given(st.text(max_size=300))
def test_what_is_told_is_short_and_what_is_short_and_plain_is_told_as_it_is(text):
    found = shown(text)
    assert len(found) <= min(len(text), LONGEST) and shown(found) == found
    assert max(map(len, re.split(r"\s+", found))) <= LONGEST_WORD
    if text.isascii() and text.isprintable() and len(text) <= LONGEST_WORD:
        assert found == text == isolated(text)
