"""Two texts of one program: what is new, gone and changed, whatever the values are numbered."""

import random

import pytest

from shardviz.study.line_changes import changes, operation, unnumbered

OLD = ["%0 = a.sine %x : f32", "%1 = a.cosine %x : f32", "%2 = a.add %0, %1 : f32", "return %2"]


def kinds(old, new):
    return [(c.kind, c.text) for c in changes(old, new) if c.kind != "same"]


def test_numbers_of_values_are_no_difference():
    new = [
        "%0 = a.sine %x : f32",
        "%1 = a.copy %0 : f32",
        "%2 = a.cosine %x : f32",
        "%3 = a.add %0, %2 : f32",
        "return %3",
    ]
    assert kinds(OLD, new) == [("new", "%1 = a.copy %0 : f32")]
    assert kinds(new, OLD) == [("gone", "%1 = a.copy %0 : f32")]


def test_what_is_new_in_a_line_is_marked():
    new = [*OLD[:2], "%2 = a.add %0, %1 {cut = 3} : f32", OLD[3]]
    (change,) = [c for c in changes(OLD, new) if c.kind != "same"]
    assert change.kind == "other" and change.was == OLD[2] and change.marked is not None
    assert change.text[slice(*change.marked)].strip() == "{cut = 3}"


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ('  %6 = "stablehlo.gather"(%0, %5) <{a = 1}> : f32', "stablehlo.gather"),
        ("    %10:2 = stablehlo.while(%a = %b) : f32", "stablehlo.while"),
        ("  %r.1 = f32[8]{0} all-reduce(%x.2), replica_groups={}", "all-reduce"),
        ("  ROOT %t = (f32[8]{0}, s32[]) tuple(%a, %b)", "tuple"),
        ("    return %2", "return"),
    ],
)
def test_the_operation_of_a_line(line, what):
    assert operation(line) == what


def text(draw):
    count = draw.randrange(14)
    return [f"%{n} = op.{draw.choice('abcd')} %{draw.randrange(9)} {draw.choice(['', '{c}'])}" for n in range(count)]


def test_both_texts_can_be_read_off_it():
    draw = random.Random(3)
    for _ in range(60):
        old, new = text(draw), text(draw)
        found = changes(old, new)
        assert [c.text for c in found if c.kind != "gone"] == new
        before = [c.was or c.text for c in found if c.kind != "new"]
        assert [unnumbered(line) for line in before] == [unnumbered(line) for line in old]
