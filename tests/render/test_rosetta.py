"""The table of notations, in text and HTML."""

from __future__ import annotations

import pytest

from shardviz.errors import ShardvizError
from shardviz.notation import NOTATIONS, rosetta
from shardviz.notation.sharding import sharding
from shardviz.render import show_rosetta
from shardviz.render.rosetta import NAMES
from tests.render.sanitizer import read, words

MESH = "data=2,model=4"


def test_every_notation_has_a_name():
    assert set(NAMES) == set(NOTATIONS)


@pytest.mark.parametrize("given", ["P('data', None)", "{maximal device=3}", "{devices=[8,1]0,3,1,2,4,7,5,6}", "P()"])
def test_every_notation_is_said_or_its_lack_is(given):
    shown = show_rosetta(given, MESH, 2)
    text, page = " ".join(shown.text(400).split()), words(shown.html())
    for row in rosetta(sharding(given, MESH, 2)):
        wanted = row.text if row.text is not None else f"not possible: {row.why}"
        for place in (text, page):
            assert NAMES[row.notation] in place
            assert " ".join(wanted.split()) in place


def test_the_pieces_are_explained():
    text = show_rosetta("P('data', None)", MESH).text()
    assert "    None             a dimension that is not cut" in text
    assert "<=[8]" in text


@pytest.mark.parametrize("width", [30, 60, 80])
def test_no_line_is_wider_than_asked_for(width):
    text = show_rosetta("P(('data', 'model'), None)", MESH).text(width)
    assert max(map(len, text.splitlines())) <= width


def test_long_device_lists_are_cut_short():
    shown = show_rosetta(("a",), "a=2048")
    assert len(shown.html()) < 20_000 and "…" in shown.text()


def test_text_from_outside_is_escaped():
    read(show_rosetta(("<b>x",), {"<b>x": 2}).html())


def test_what_is_no_sharding_is_refused():
    with pytest.raises(ShardvizError):
        show_rosetta("{devices=[", MESH)
