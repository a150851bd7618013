"""Numbers with units, values, collectives and their sums."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from shardviz.errors import ShardvizError
from shardviz.notation import Spec
from shardviz.records import Collective, Frame, Value
from shardviz.records.amounts import format_bytes, format_count, format_flops, format_seconds
from shardviz.render import bars_html, collectives_html, collectives_text, totals_by, values_html, values_text
from tests.render.sample import MESH, report
from tests.render.sanitizer import read, words


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 B"),
        (0.5, "0.50 B"),
        (512, "512 B"),
        (999, "999 B"),
        (1000, "1.00 kB"),
        (1024, "1.02 kB"),
        (9_994, "9.99 kB"),
        (9_996, "10.0 kB"),
        (99_960, "100 kB"),
        (999_499, "999 kB"),
        (999_500, "1.00 MB"),
        (2**25, "33.6 MB"),
        (1e12, "1.00 TB"),
        (1e30, "1000000000 ZB"),
        (None, "not known"),
    ],
)
def test_bytes_are_decimal_with_three_significant_digits(nbytes, text):
    assert format_bytes(nbytes) == text


def test_other_numbers():
    assert format_count(None) == "count not known"
    assert format_count(1280) == "1,280"
    assert format_flops(2.5e15) == "2.50 PFLOP"
    seconds = {3: "3.00 s", 0.0104: "10.4 ms", 5.2e-6: "5.20 µs", 0: "0 s", None: "not known"}
    assert {s: format_seconds(s) for s in seconds} == seconds


def move(kind="all-reduce", axes=("data",), nbytes=16.0, count=1, line=None, **more) -> Collective:
    source = None if line is None else Frame("/a/m.py", line, "f")
    return Collective(
        kind=kind,
        axes=axes,
        dtype="float32",
        shape=(4,),
        operand_bytes=nbytes,
        result_bytes=nbytes,
        count=count,
        source=source,
        **more,
    )


def test_sums_are_of_operand_bytes_times_counts():
    moves = [move(count=3), move(kind="all-gather", nbytes=100, count=2), move(axes=("model",), count=10)]
    rows = totals_by(moves, "axes")
    assert [(t.label, t.bytes, t.runs, t.operations, t.kinds) for t in rows] == [
        ("data", 248, 5, 2, ("all-gather", "all-reduce")),
        ("model", 160, 10, 1, ("all-reduce",)),
    ]


def test_the_sums_add_up_whatever_the_key():
    moves = report().collectives
    whole = sum(c.total_bytes or 0 for c in moves)
    for key in ("axes", "source", "kind", "kind_axes", "phase"):
        rows = totals_by(moves, key)
        assert sum(t.bytes for t in rows) == whole
        assert sum(t.operations for t in rows) == len(moves)
        assert sum(t.unknown for t in rows) == 1
        assert all(sum(part.bytes for part in t.parts) == t.bytes for t in rows)
        assert [t.bytes for t in rows] == sorted((t.bytes for t in rows), reverse=True)


def test_a_count_that_is_not_known_is_said_and_never_dropped():
    (row,) = totals_by([move(count=None), move(count=2)], "axes")
    assert (row.bytes, row.unknown, row.unknown_bytes) == (32, 1, 16)
    assert row.bytes_text == "32 B + 16 B × count not known"
    (row,) = totals_by([move(count=None)], "axes")
    assert row.bytes_text == "count not known × 16 B"
    for text in (collectives_text([move(count=None)]), words(collectives_html([move(count=None)], MESH)),
                 words(bars_html([row], MESH))):  # fmt: skip
        assert "count not known" in text


def test_a_branch_is_said():
    (row,) = totals_by([move(conditional=True)], "axes")
    assert row.bytes_text == "at most 16 B"
    assert "at most 16 B" in words(collectives_html([move(conditional=True)], MESH))


def test_a_line_is_one_line_whatever_function_it_is_in():
    moves = [move(line=3), replace(move(), source=Frame("/a/m.py", 3, "g")), move()]
    totals = totals_by(moves, "source")
    assert [(t.label, t.operations) for t in totals] == [("m.py:3", 2), ("no source line", 1)]


def test_time_is_summed_only_where_all_is_known():
    assert totals_by([move(count=2, seconds=3.0), move(seconds=1.0)], "axes")[0].whole_seconds == 7.0
    assert totals_by([move(count=2, seconds=3.0), move()], "axes")[0].whole_seconds is None


def test_another_key_is_refused():
    with pytest.raises(ShardvizError, match=r"cannot be summed by 'size'.*'axes'"):
        totals_by([], "size")


def test_axes_that_are_no_axes_are_said():
    assert [t.label for t in totals_by([move(axes=None), move(axes=()), move(axes=(("data", 2, 4),))], "axes")] == [
        "data:(2)4",
        "irregular groups",
        "no axis",
    ]


def test_values_in_html_have_chips_with_names():
    text = words(values_html(report().arguments, MESH, caption="Arguments"))
    assert "params['wq'] [8192, 4096] bfloat16 [data, model] [1024, 512] 1.05 MB" in text


def test_a_value_with_no_spec_shows_the_sharding_it_has():
    value = Value(name="y", shape=(4,), dtype="float32", spec=None, sharding={"hlo": "{devices=[2,2]<=[4]}"})
    assert "{devices=[2,2]<=[4]}" in values_text([value])
    assert "{devices=[2,2]<=[4]}" in words(values_html([value], MESH))
    assert "not known" in values_text([value])


def test_a_partial_sum_is_said_in_the_spec():
    value = Value(
        name="y", shape=(4,), dtype="float32", spec=Spec(((),), ("data",)), shard_shape=(4,), bytes_per_device=16
    )
    assert "[·] sum over data" in words(values_html([value], MESH))


def test_the_tables_lose_nothing_to_the_sanitizer():
    r = report()
    read(values_html(r.arguments + r.outputs + r.intermediates, MESH))
    read(collectives_html(r.collectives, MESH, line=r.line))
    for key in ("axes", "source", "kind_axes"):
        read(bars_html(totals_by(r.collectives, key), MESH, line=r.line))


def test_bars_are_as_long_as_their_bytes():
    moves = [move(nbytes=1000), move(axes=("model",), nbytes=500), move(axes=None, nbytes=1)]
    html = bars_html(totals_by(moves, "axes"), MESH)
    assert [len(bar) for bar in re.findall("█+", html)] == [24, 12]
    assert "▏" in html, "what is too small for a block still shows"
