"""Numbers with units, values, collectives and their sums."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from shardviz import paint
from shardviz.errors import ShardvizError
from shardviz.notation import Spec
from shardviz.records import Collective, Frame, Value
from shardviz.records.amounts import format_bytes, format_count, format_seconds
from shardviz.records.sums import sum_collectives
from shardviz.view.collectives import collectives_table, sums_table
from shardviz.view.document import Block, Document
from shardviz.view.values import values_table
from tests.collectives import collective
from tests.view.sample import MESH, report
from tests.view.sanitizer import words


def text_of(block: Block) -> str:
    return paint.text(Document(blocks=(block,), mesh=MESH))


def html_of(block: Block) -> str:
    return paint.html(Document(blocks=(block,), mesh=MESH))


SIZES = {
    0: "0 B",
    0.5: "0.50 B",
    512: "512 B",
    999: "999 B",
    1000: "1.00 kB",
    1024: "1.02 kB",
    9_994: "9.99 kB",
    9_996: "10.0 kB",
    99_960: "100 kB",
    999_499: "999 kB",
    999_500: "1.00 MB",
    2**25: "33.6 MB",
    1e12: "1.00 TB",
    1e30: "1000000000 ZB",
    None: "not known",
}


def test_numbers_have_three_significant_digits_and_decimal_units():
    assert {size: format_bytes(size) for size in SIZES} == SIZES
    seconds = {3: "3.00 s", 0.0104: "10.4 ms", 5.2e-6: "5.20 µs", 0: "0 s", None: "not known"}
    assert {s: format_seconds(s) for s in seconds} == seconds
    assert format_count(None) == "count not known"


def move(kind="all-reduce", axes=("data",), nbytes=16.0, count=1, line=None, **more) -> Collective:
    source = None if line is None else Frame("/a/m.py", line, "f")
    return collective(kind, axes, nbytes, count=count, shape=(4,), source=source, **more)


def test_sums_are_of_operand_bytes_times_counts():
    moves = [move(count=3), move(kind="all-gather", nbytes=100, count=2), move(axes=("model",), count=10)]
    rows = sum_collectives(moves, "axes")
    assert [(t.label, t.bytes, t.runs, t.operations, t.kinds) for t in rows] == [
        ("data", 248, 5, 2, ("all-gather", "all-reduce")),
        ("model", 160, 10, 1, ("all-reduce",)),
    ]


def test_the_sums_add_up_whatever_the_key():
    moves = report().collectives
    whole = sum(c.total_bytes or 0 for c in moves)
    for key in ("axes", "source", "kind", "kind_axes", "phase"):
        rows = sum_collectives(moves, key)
        assert sum(t.bytes for t in rows) == whole
        assert sum(t.operations for t in rows) == len(moves)
        assert sum(t.unknown for t in rows) == 1
        assert all(sum(part.bytes for part in t.parts) == t.bytes for t in rows)
        assert [t.bytes for t in rows] == sorted((t.bytes for t in rows), reverse=True)


def test_a_count_that_is_not_known_is_said_and_never_dropped():
    (row,) = sum_collectives([move(count=None), move(count=2)], "axes")
    assert (row.bytes, row.unknown, row.unknown_bytes) == (32, 1, 16)
    assert row.bytes_text == "32 B + 16 B × count not known"
    (row,) = sum_collectives([move(count=None)], "axes")
    assert row.bytes_text == "count not known × 16 B"
    for text in (text_of(collectives_table([move(count=None)])), words(html_of(collectives_table([move(count=None)]))),
                 words(html_of(sums_table([move(count=None)], "axes")))):  # fmt: skip
        assert "count not known" in text


def test_a_branch_is_said():
    (row,) = sum_collectives([move(conditional=True)], "axes")
    assert row.bytes_text == "at most 16 B"
    assert "at most 16 B" in words(html_of(collectives_table([move(conditional=True)])))


def test_a_line_is_one_line_whatever_function_it_is_in():
    moves = [move(line=3), replace(move(), source=Frame("/a/m.py", 3, "g")), move()]
    totals = sum_collectives(moves, "source")
    assert [(t.label, t.operations) for t in totals] == [("m.py:3", 2), ("no source line", 1)]


def test_time_is_summed_only_where_all_is_known():
    assert sum_collectives([move(count=2, seconds=3.0), move(seconds=1.0)], "axes")[0].whole_seconds == 7.0
    assert sum_collectives([move(count=2, seconds=3.0), move()], "axes")[0].whole_seconds is None


def test_another_key_is_refused():
    with pytest.raises(ShardvizError, match=r"cannot be summed by 'size'.*'axes'"):
        sum_collectives([], "size")


def test_axes_that_are_no_axes_are_said():
    assert [
        t.label for t in sum_collectives([move(axes=None), move(axes=()), move(axes=(("data", 2, 4),))], "axes")
    ] == ["data:(2)4", "irregular groups", "no axis"]


def test_a_value_with_no_spec_shows_the_sharding_it_has():
    value = Value(name="y", shape=(4,), dtype="float32", spec=None, sharding={"hlo": "{devices=[2,2]<=[4]}"})
    assert "{devices=[2,2]<=[4]}" in text_of(values_table([value]))
    assert "{devices=[2,2]<=[4]}" in words(html_of(values_table([value])))
    assert "not known" in text_of(values_table([value]))


def test_a_partial_sum_is_said_in_the_spec():
    value = Value(
        name="y", shape=(4,), dtype="float32", spec=Spec(((),), ("data",)), shard_shape=(4,), bytes_per_device=16
    )
    assert "[·] sum over data" in words(html_of(values_table([value])))


def test_bars_are_as_long_as_their_bytes():
    moves = [move(nbytes=1000), move(axes=("model",), nbytes=500), move(axes=None, nbytes=1)]
    html = html_of(sums_table(moves, "axes"))
    assert [len(bar) for bar in re.findall("█+", html)] == [24, 12]
    assert "▏" in html, "what is too small for a block still shows"
