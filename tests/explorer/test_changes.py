"""Reading what a person types."""

import pytest

from shardviz.errors import SpecError
from shardviz.explorer import changes as edits
from shardviz.notation import DeviceMesh, Spec


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("P(data, (model, x))", ("data", ("model", "x"))),
        ("data, None", ("data", None)),
        ("P()", ()),
        ("'data'", ("data",)),
        ("  P( 'data' ,)  ", ("data",)),
    ],
)
def test_a_spec_is_read_as_people_type_it(text, spec):
    assert edits.parse_spec(text, "x") == Spec.of(spec)


@pytest.mark.parametrize("text", ["", "  ", "None"])
def test_nothing_is_no_spec(text):
    assert edits.parse_spec(text, "x") is None


@pytest.mark.parametrize("text", ["P(", "__import__('os').system('true')", "\x00", "(" * 500])
def test_whatever_else_is_typed_is_answered_with_a_message(text):
    with pytest.raises(SpecError, match=r"Type for example P\('data', None\)") as caught:
        edits.parse_spec(text, "x")
    assert caught.value.argument == "x" and len(str(caught.value)) < 300


def test_a_part_of_an_axis_counts_as_its_axis():
    mesh, spec = DeviceMesh.of({"data": 8, "model": 2}), Spec(((("data", 1, 2),), ()))
    offered = edits.choices((8, 8), spec, mesh, 1)
    assert [(c.axis, c.legal) for c in offered] == [("data", False), ("model", True)]
