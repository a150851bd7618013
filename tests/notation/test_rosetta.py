"""The table of one sharding in all notations."""

import pytest
from hypothesis import given, settings

import shardviz as sv
from shardviz.notation import NOTATIONS, rosetta
from tests.notation.cases import shardings


@settings(max_examples=150, deadline=None)
@given(shardings(parts=True, unreduced=True, manual=True, open=True, priorities=True, replicated=True))
def test_a_row_has_text_that_is_read_back_or_says_why_not(cut):
    rows = rosetta(cut)
    assert tuple(row.notation for row in rows) == NOTATIONS
    for row in rows:
        assert (row.text is None) == bool(row.why)
        if row.text is None:
            with pytest.raises(sv.SpecError):
                cut.to(row.notation)
            continue
        at = [row.text.index(letter.piece) for letter in row.letters]
        assert all(letter.meaning and "{" not in letter.meaning for letter in row.letters) and len(at) == len(
            row.letters
        )
        if row.notation not in ("proto", "pmap", "pspec"):
            assert sv.sharding(row.text, cut.mesh, cut.rank).same_as(cut)
        if row.notation == "pspec" and not cut.manual:
            assert sv.sharding(row.text, cut.mesh, cut.rank).same_as(cut)
        if cut.rank:
            assert row.letters or row.notation == "proto"


@pytest.mark.parametrize("text", ["{maximal device=3}", "{unknown}", "{devices=[8]0,3,1,2,4,5,6,7}", "{manual}"])
def test_what_no_spec_says(text):
    rows = {row.notation: row for row in rosetta(sv.sharding(text, "a=2,b=4", 1))}
    assert rows["hlo-v1"].text == text and rows["hlo-v1"].letters
    assert rows["proto"].text is not None and rows["pspec"].text is None


def test_letters():
    row = {r.notation: r for r in rosetta(sv.sharding("[a, b:(1)2 ?] sum over b:(2)2", "a=2,b=4"))}["sdy"]
    assert [(letter.piece, letter.meaning) for letter in row.letters] == [
        ("@mesh", "the mesh, by its name in the module"),
        ('"a"', "the mesh axis a cuts this dimension; of several the first is the major one"),
        ('"b":(1)2', "a part of axis b, of size 2, 1 parts of it standing before it"),
        ("?", "the compiler may cut this dimension further"),
        ('unreduced={"b":(2)2}', 'over "b":(2)2 the devices hold partial sums, still to be added'),
    ]
