"""The table of one sharding in all notations."""

import re

import pytest
from hypothesis import given, settings

import shardviz as sv
from shardviz.notation import NOTATIONS, rosetta
from tests.notation.cases import shardings


@settings(max_examples=150)
@given(shardings(parts=True, unreduced=True, manual=True, open=True, priorities=True, replicated=True))
def test_a_row_has_text_and_letters_for_all_of_it_or_says_why_not(cut):
    rows = rosetta(cut)
    assert tuple(row.notation for row in rows) == NOTATIONS
    for row in rows:
        assert (row.text is None) == bool(row.why)
        if row.text is None:
            with pytest.raises(sv.errors.SpecError):
                cut.to(row.notation)
            continue
        at = [row.text.index(letter.piece) for letter in row.letters]
        assert all(letter.meaning and "{" not in letter.meaning for letter in row.letters) and len(at) == len(
            row.letters
        )
        if cut.rank:
            assert row.letters or row.notation == "proto"
        rest = row.text  # what the pieces do not cover is punctuation, and the name of the notation
        for letter in sorted(row.letters, key=lambda letter: -len(letter.piece)):
            rest = rest.replace(letter.piece, "")
        rest = re.sub(r"#sdy.sharding|ShardingSpec|^P(?=\()", "", rest)
        assert not re.search(r"[^\s()\[\]{}<>,:]", rest), (row.text, rest)


@pytest.mark.parametrize("text", ["{maximal device=3}", "{unknown}", "{devices=[8]0,3,1,2,4,5,6,7}", "{manual}"])
def test_what_no_spec_says(text):
    rows = {row.notation: row for row in rosetta(sv.sharding(text, "a=2,b=4", 1))}
    assert rows["hlo-v1"].text == text and rows["hlo-v1"].letters
    assert rows["proto"].text is not None and rows["pspec"].text is None


LETTERS = [  # sharding, mesh, notation, each piece and its meaning
    ("[a, b:(1)2 ?] sum over b:(2)2", "a=2,b=4", "sdy", [
        ("@mesh", "the mesh, by its name in the module; here a=2,b=4"),
        ('"a"', "mesh axis a shards dimension 0 in 2"),
        ('"b":(1)2',
         "a part of mesh axis b (its 4 devices counted as 2 x 2, the first) shards dimension 1 in 2"),
        ("?", "the compiler may shard this dimension further"),
        ('unreduced={"b":(2)2}', "over b:(2)2 the devices hold partial sums, still to be added"),
    ]),
    ("[b a, ·]", "a=2,b=4", "hlo-v3", [
        ("mesh['a'=2,'b'=4]", "the mesh: axis a of 2, axis b of 4, the last counting fastest"),
        ("'b'", "mesh axis b shards dimension 0 in 4"),
        ("'a'", "mesh axis a shards each of these 4 pieces of dimension 0 again, in 2"),
        ("{}", "a dimension that is not sharded"),
    ]),
    ("[b, ·]", "a=2,b=4", "hlo-v2", [
        ("devices=[4,1,2]",
         "tiles along each dimension: 4, 1; the number behind them, 2, counts devices that share a tile"),
        ("<=[2,4]", "the devices 0 to 7, row by row in a table of 2 x 4"),
        ("T(1,0)", "and read with the table's dimensions in the order 1, 0: 0, 4, 1, 5, 2, 6, ..."),
        ("last_tile_dim_replicate", "each tile is on 2 devices, as copies"),
    ]),
    ("[b] manual a", "a=2,b=4,c=3", "proto", [
        ("type: OTHER", "the array is sharded into tiles, as the other fields say"),
        ("tile_assignment_dimensions: [4, 3, 2]",
         "tiles along each dimension: 4; the numbers behind them, 3, 2, count devices that share a tile"),
        ("last_tile_dims: [REPLICATED, MANUAL]",
         "the devices that share a tile: groups of 3 devices hold copies, and groups of 2 devices are the program's "
         "own business, as in a shard_map"),
        ("iota_reshape_dims: [2, 12]", "the devices 0 to 23, row by row in a table of 2 x 12"),
        ("iota_transpose_perm: [1, 0]",
         "and read with the table's dimensions in the order 1, 0: 0, 12, 1, 13, 2, 14, ..."),
    ]),
    ("[·, b a]", "a=2,b=4,c=3", "pmap", [
        ("NoSharding()", "a dimension that is not sharded"),
        ("Chunked(4,2)", "dimension 1 is sharded in 4, each piece again in 2: sharded axes 0 to 1"),
        ("ShardedAxis(axis=1)", "a mesh axis of 2 devices, which takes up sharded axis 1"),
        ("ShardedAxis(axis=0)", "a mesh axis of 4 devices, which takes up sharded axis 0"),
        ("Replicated(replicas=3)", "a mesh axis along which 3 devices hold copies"),
    ]),
    ("[a b, ·] sum over c", "a=2,b=4,c=3", "book", [
        ("A", "the array, of whatever name"),
        ("I_ab", "dimension 0: mesh axis a shards dimension 0 in 2; mesh axis b shards each of these 2 pieces of "
         "dimension 0 again, in 4"),
        ("J", "dimension 1, which is not sharded"),
        ("{U_c}", "over c the devices hold partial sums, still to be added"),
    ]),
    ('<[{?}p1, {"a"}]>', "a=2", "sdy", [
        ("@mesh", "the mesh, by its name in the module; here a=2"),
        ("?", "the compiler may shard this dimension further"),
        ("p1", "priority 1 of this dimension: Shardy heeds 0 first, then 1, and so on"),
        ('"a"', "mesh axis a shards dimension 1 in 2"),
    ]),
    ("P()", "a=2", "pspec", [("P()", "no dimension is named, so none is sharded: every device holds the full array")]),
    ("[] sum over a", "a=2", "short", [
        ("[]", "no dimension is named, so none is sharded"),
        ("sum over a", "over a the devices hold partial sums, still to be added"),
    ]),
    ("{maximal device=1}", "a=2 devices=[7,5]", "hlo-v1", [
        ("maximal device=1", "the full array is on device 1, a place in the mesh's order"),
    ]),
    ("{maximal device=1}", "a=2", "sdy", [
        ("mesh<[], device_ids=[1]>, []", "a mesh of one device: the full array is on device 1"),
    ]),
    ("{unknown}", "a=2", "proto", [("type: UNKNOWN", "the compiler did not state its sharding")]),
]  # fmt: skip


@pytest.mark.parametrize(("given_", "mesh", "notation", "letters"), LETTERS)
def test_letters(given_, mesh, notation, letters):
    """What each piece means in this very text."""
    row = {r.notation: r for r in rosetta(sv.sharding(given_, mesh))}[notation]
    assert [(letter.piece, letter.meaning) for letter in row.letters] == letters
