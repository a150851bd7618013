"""Where nobody has said yet how an array is cut, that is drawn, and not a copy on every device."""

from __future__ import annotations

import pytest

from shardviz.errors import SpecError
from shardviz.notation.read import sharding
from shardviz.records import Value
from shardviz.view.show import ShownUnknown, show
from tests.view.sample import MESH
from tests.view.sanitizer import words

jax = pytest.importorskip("jax")
P = jax.sharding.PartitionSpec
AUTO, EXPLICIT = jax.sharding.AxisType.Auto, jax.sharding.AxisType.Explicit

FORMS = {
    "HLO's unknown": ((8, 6), "{unknown}", "data=4"),
    "a record of it": ((8, 6), sharding("{unknown}", "data=4", 2)),
    "Shardy, all open": ((8, 6), "#sdy.sharding<@mesh, [{?}, {?}]>", "data=4"),
    "all unconstrained": ((8, 6), P(P.UNCONSTRAINED, P.UNCONSTRAINED), "data=4"),
    "a shape and a type": (jax.ShapeDtypeStruct((8, 6), "float32"),),
    "a report's value": (Value(name="y", shape=(8, 6), dtype="float32", spec=None), None, MESH),
}


@pytest.mark.parametrize("given", FORMS.values(), ids=list(FORMS))
def test_it_is_a_hatched_box_that_says_who_decides(given):
    shown = show(*given)
    assert isinstance(shown, ShownUnknown)
    for text in (shown.text(), words(shown.html())):
        assert "[8, 6]" in text and "sharding not known yet" in text and "deci" in text
        assert "each slice" not in text and "0-3" not in text
    assert "not known yet │" in shown.text() and "background-image" in shown.html()
    assert max(map(len, shown.text(40).splitlines())) <= 40


def test_the_figure_is_hatched_too():
    pytest.importorskip("matplotlib")
    ax = show((8, 6), "{unknown}", "data=4").plot(dark=True)
    assert [c.get_hatch() for c in ax.collections if c.get_hatch()] == ["///"] and ax.get_label().startswith(
        "A hatched box"
    )
    assert any("partitioner decides" in t.get_text().replace("\n", " ") for t in ax.texts)


def traced(spec, types, what):
    """What `show` makes of a traced value, within a function."""
    seen = []

    def step(x):
        seen.append(show(what(x)))
        return x

    mesh = jax.sharding.AbstractMesh((2, 2), ("a", "b"), axis_types=types)
    aval = jax.ShapeDtypeStruct((8, 8), "float32", sharding=jax.sharding.NamedSharding(mesh, spec))
    jax.jit(step).trace(aval)
    return seen[0]


@pytest.mark.parametrize("what", [lambda x: x, jax.typeof], ids=["the value", "its type"])
def test_a_traced_value_says_no_more_than_its_type_knows(what):
    unknown = traced(P("a"), (AUTO, AUTO), what)
    assert isinstance(unknown, ShownUnknown) and "the Auto axes a, b" in " ".join(unknown.text().split())
    partly = traced(P("a"), (EXPLICIT, AUTO), what)
    assert partly.layout.spec.dims == (("a",), ()) and partly.layout.open == (True, True)
    assert "open: the compiler may shard dimensions 0, 1 further than is drawn" in partly.text()
    known = traced(P("a"), (EXPLICIT, EXPLICIT), what)
    assert known.layout.open == () and "open" not in known.text()


def test_outside_a_mesh_a_traced_value_is_on_no_device_yet():
    seen = []
    jax.jit(lambda x: seen.append(show(x)) or x).trace(jax.ShapeDtypeStruct((8,), "float32"))
    assert "no mesh is set" in seen[0].text()


def test_an_open_dimension_is_drawn_as_far_as_it_is_said():
    shown = show((8, 6), '#sdy.sharding<@mesh, [{"data"}, {?}]>', "data=4")
    for text in (shown.text(), words(shown.html())):
        assert "open: the compiler may shard dimension 1 further than is drawn" in text
    assert show((8, 6), ("data", None), "data=4").layout.open == ()


def test_in_a_tree_it_is_left_out_and_can_be_chosen():
    mesh = jax.sharding.AbstractMesh((4,), ("data",))
    cut = jax.ShapeDtypeStruct((8,), "int8", sharding=jax.sharding.NamedSharding(mesh, P("data")))
    tree = {"a": jax.ShapeDtypeStruct((8,), "int8"), "b": cut}
    assert show(tree).left_out == ("['a']",)
    assert "sharding not known yet" in show(tree, leaf="['a']").text()


def test_what_moves_from_or_to_it_is_not_known():
    with pytest.raises(SpecError, match=r"the resharding is not known, because before the change"):
        show((8,), "{unknown}", "a=2", after=())
    with pytest.raises(SpecError, match=r"the resharding is not known, because after the change"):
        show((8,), ("a",), "a=2", after="{unknown}")
