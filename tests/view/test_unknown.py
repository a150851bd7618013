"""Where nobody has said yet how an array is sharded, who decides is said, and no copy on every device is drawn."""

import pytest

from shardviz.errors import SpecError
from shardviz.notation.read import sharding
from shardviz.records import Value
from shardviz.view.show import show
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
def test_it_is_said_who_decides(given):
    with pytest.raises(SpecError, match=r"show\((y|\[8, 6\])\): its sharding is not known yet: .*(decide|decided)"):
        show(*given)


def traced(spec, types, what):
    """What `show` makes of a traced value, within a function."""
    seen = []

    def step(x):
        try:
            seen.append(show(what(x)))
        except SpecError as error:
            seen.append(str(error))
        return x

    mesh = jax.sharding.AbstractMesh((2, 2), ("a", "b"), axis_types=types)
    aval = jax.ShapeDtypeStruct((8, 8), "float32", sharding=jax.sharding.NamedSharding(mesh, spec))
    jax.jit(step).trace(aval)
    return seen[0]


@pytest.mark.parametrize("what", [lambda x: x, jax.typeof], ids=["the value", "its type"])
def test_a_traced_value_says_no_more_than_its_type_knows(what):
    assert "the Auto axes a, b" in traced(P("a"), (AUTO, AUTO), what)
    partly = traced(P("a"), (EXPLICIT, AUTO), what)
    assert partly.layout.spec.dims == (("a",), ()) and partly.layout.open == (True, True)
    assert "open: the compiler may shard dimensions 0, 1 further than is drawn" in partly.text()
    known = traced(P("a"), (EXPLICIT, EXPLICIT), what)
    assert known.layout.open == () and "open" not in known.text()


def test_outside_a_mesh_a_traced_value_is_on_no_device_yet():
    with pytest.raises(SpecError, match="no mesh is set"):
        jax.jit(lambda x: show(x) or x).trace(jax.ShapeDtypeStruct((8,), "float32"))


def test_an_open_dimension_is_drawn_as_far_as_it_is_said():
    shown = show((8, 6), '#sdy.sharding<@mesh, [{"data"}, {?}]>', "data=4")
    for text in (shown.text(), words(shown.html())):
        assert "open: the compiler may shard dimension 1 further than is drawn" in text
    assert show((8, 6), ("data", None), "data=4").layout.open == ()


def test_in_a_tree_it_is_left_out_and_asked_for_it_says_who_decides():
    mesh = jax.sharding.AbstractMesh((4,), ("data",))
    cut = jax.ShapeDtypeStruct((8,), "int8", sharding=jax.sharding.NamedSharding(mesh, P("data")))
    tree = {"a": jax.ShapeDtypeStruct((8,), "int8"), "b": cut}
    assert show(tree).left_out == ("['a']",)
    with pytest.raises(SpecError, match=r"show\(\['a'\]\): its sharding is not known yet: it is a shape and a type"):
        show(tree, leaf="['a']")


def test_what_moves_from_or_to_it_is_not_known():
    for before, after in (("{unknown}", ()), (("a",), "{unknown}")):
        with pytest.raises(SpecError, match="its sharding is not known yet"):
            show((8,), before, "a=2", after=after)
