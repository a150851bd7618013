"""Reading what a person types, and taking tree paths apart."""

from __future__ import annotations

import pytest

from shardviz.errors import SpecError
from shardviz.notation import DeviceMesh, Spec
from shardviz.session import edits
from shardviz.session.explorer import ExplorerState


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("P('data', None)", ("data", None)),
        ("PartitionSpec('data')", ("data",)),
        ("jax.sharding.P(None)", (None,)),
        ("('data', ('model', 'x'))", ("data", ("model", "x"))),
        ("P(data, (model, x))", ("data", ("model", "x"))),
        ("data, None", ("data", None)),
        ("P()", ()),
        ("()", ()),
        ("['data']", ("data",)),
        ("'data'", ("data",)),
        ("  P( 'data' ,)  ", ("data",)),
    ],
)
def test_a_spec_is_read_as_people_type_it(text, spec):
    assert edits.parse_spec(text, "x") == Spec.of(spec)


@pytest.mark.parametrize("text", ["", "  ", "None"])
def test_nothing_is_no_spec(text):
    assert edits.parse_spec(text, "x") is None


@pytest.mark.parametrize(
    "text",
    [
        "P(",
        "P('data'",
        "P(1)",
        "P(data=1)",
        "Q('data')",
        "__import__('os').system('true')",
        "P(open('f'))",
        "P(*'ab')",
        "lambda: 0",
        "P((('a',),))",
        "\x00",
        "(" * 500,
        "P('a' 'b' + 'c')",
    ],
)
def test_whatever_else_is_typed_is_answered_with_a_message(text):
    with pytest.raises(SpecError, match=r"Type for example P\('data', None\)") as caught:
        edits.parse_spec(text, "x")
    assert caught.value.argument == "x" and len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "name",
    [
        "x",
        "params['a']['b']",
        "params['it\\'s']",
        'params["a]"]',
        "params['[0]']",
        "a.b.c[0].d",
        "p[<flat index 0>]",
        "",
        "params['<img src=x onerror=alert(1)>']",
        "].",
        "[",
        "p['a.b']['c']",
    ],
)
def test_a_path_is_the_sum_of_its_segments(name):
    assert "".join(edits.segments(name)) == name
    assert all(edits.label(s) for s in edits.segments(name))


def test_a_tree_has_each_leaf_once_in_order():
    leaves = ["p['a']['x']", "p['a']['y']", "p['b']", "q", "p['c']"]
    rows = edits.tree(leaves)
    assert [r.path for r in rows if not r.leaves] == leaves
    assert [(r.label, r.depth, r.leaves) for r in rows if r.leaves] == [("p", 0, 4), ("a", 1, 2), ("p", 0, 4)]


def test_a_part_of_an_axis_counts_as_its_axis():
    mesh, spec = DeviceMesh.of({"data": 8, "model": 2}), Spec(((("data", 1, 2),), ()))
    offered = edits.choices((8, 8), spec, mesh, 1)
    assert [(c.axis, c.legal) for c in offered] == [("data", False), ("model", True)]


def test_twins(make_program, plan):
    shapes = {"params['w']": (8, 8), "params['b']": (8,), "momentum['w']": (8, 8), "momentum['b']": (8,), "w": (8, 8)}
    state = ExplorerState(make_program(shapes), type(plan)(plan.mesh), level="propagated")
    assert state.twins("params['w']") == (("argument", "momentum['w']"),)
    assert state.twins("w") == ()
    assert state.set_dim("params['w']", 0, ["data"], twins=True)
    assert state.bound.in_specs["momentum['w']"] == Spec.of(("data", None)) != state.bound.in_specs["w"]
    assert state.set_dim("params['w']", 0, [])
    assert state.twins("params['w']") == (), "they are no longer alike"
