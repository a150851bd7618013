"""Every notation against its definition, against JAX and XLA themselves, and against the others by round trips."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import sdy as _sdy  # noqa: F401  the dialect's attributes
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxlib._hlo import HloSharding

import shardviz as sv
from shardviz._jax import mlir_context
from shardviz.errors import ShardvizError, SpecError
from shardviz.notation import NOTATIONS, DeviceMesh, Sharding, Spec
from shardviz.notation.scan import iota_of
from shardviz.notation.spec import check_spec
from shardviz.notation.tiling import Tiling
from tests.notation.cases import SUMS_ONLY, TABLE, meshes, shardings, tile_table

MESH = DeviceMesh.of({"a": 2, "b": 4})
MANY = settings(max_examples=200)


def read(text, mesh=MESH, rank=None):
    return sv.sharding(text, mesh, rank)


@pytest.mark.parametrize(("text", "rank", "says"), TABLE)
def test_what_each_text_says(text, rank, says):
    assert str(read(text, rank=rank)) == says


REFUSED = [  # text, rank, a part of the message
    ("{{replicated}, {replicated}}", None, "a tuple's; pick one"),
    ("{}", None, "not a tuple's"),
    ("#sdy.sharding_per_value<[<@mesh, []>, <@mesh, []>]>", None, "several values; pick one"),
    ("{devices=[2,4]<=[8]}", 1, "rank 2, and this array's rank is 1"),
    ("P('a', None)", 1, "2 entries for an array of rank 1"),
    ("{devices=[4]<=[4]}", None, "over 4 devices, and the mesh a=2,b=4 has 8"),
    ("{devices=[1000000,1000000]<=[1000000,1000000]}", None, "an iota of 1 to"),
    ("{mesh['a'=2], [{'a'}]}", None, "over 2 devices"),
    ("{maximal device=8}", None, "places 0 to 7"),
    ("{devices=[2,2]<=[8]}", None, "4 tiles for 8 devices"),
    ("{devices=[2]0,0}", None, "each of the devices 0 to 1 once"),
    ("{devices=[8]<=[8]T(1)}", None, "an order of the iota's 1 dimensions"),
    ("{devices=[8]<=[8] last_tile_dims={maximal}}", None, "a subgroup is one of"),
    ("{mesh['a'=2,'b'=4], [{'a'}, {'a'}]}", None, "axis 'a' is used by dimension 0 and by dimension 1"),
    ("{mesh['a'=2,'b'=4], [{'a'}], manual={'a'}}", None, "used by dimension 0 and by manual"),
    ("{mesh['a'=2,'b'=4], [{'c'}]}", None, "no axis 'c'; it has 'a', 'b'"),
    ("{mesh['a'=2,'b'=4], [{'b':(3)2}]}", None, "'b:(3)2' is not a part of the axis 'b' of size 4"),
    ("P('a', 'a')", None, "can be used only once"),
    ("{replicated,}", None, "expected '}'"),
    ("{mesh['x'=12], [{'x':(1)2}, {'x':(3)2}]}", None, "3 is not a multiple of 2"),
    ("P(a)", None, "an entry is None, an axis name or a tuple"),
    ("P('a', foo={'b'})", None, "expected unreduced={...} or reduced={...}"),
    ("[a, ]", None, "an entry is empty"),
    ("[a, ·", None, "expected [data, ·]"),
    ("[c]", None, "no axis 'c'"),
    ("A[I_c]", None, "'c' does not name axes"),
    ("{Replicated}", None, "mesh[...] at position 1, not 'Replicated}'"),
    ("{devices=[2,4]<=[8]T(1,0)}", None, "dimensions, 0 to 0 at position 20, not '(1,0)}'"),
    ("{devices=[2,1,4]<=[8] last_tile_dim_replicate last_tile_dims={manual}}", None, "expected '}'"),
    ("{devices=[1]0}", None, "[1]: it is over 1 device, and the mesh a=2,b=4 has 8"),
    ("{mesh['a'=2,'b'=4], [{'a', 'a'}]}", None, "axis 'a' is used twice by dimension 0"),
    ("{mesh['a'=2,'b'=4], [{'a'}p1]}", None, "expected ',' or ']'"),
    ("{mesh['a'=2,'b'=4], [{'a'}], replicated={'a'}}", None, "by dimension 0 and by replicated"),
    ("{mesh['a'=2,'b'=4], [{'b':(1)2},{'b'}]}", None, "used by dimension 0 and by dimension 1"),
    ("#sdy.sharding<@maximal_mesh_30, []>", None, "places 0 to 7"),
    ("P(a, b)", None, "put the name in quotes, 'a'"),
    ("P(f())", None, "not the expression at position 2"),
    ("{devices=[" + "1," * 70 + "8]<=[8]}", None, "at most"),
    ("{replicated metadata=" + "{" * 200 + "}" * 200 + "}", None, "braces at most"),
    ("('a')", None, "a tuple of one has a comma"),
    ("['a', None]", None, "write names without quotes"),
    ("[? a]", None, "write ? last in its entry"),
    ("NamedSharding(mesh=Mesh('a': 2, axis_types=(Auto,)), spec=P('a',))", None, "over the mesh a=2, not a=2,b=4"),
    ("NamedSharding(mesh=Mesh('a': 2, 'b': 4), spec=3)", None, "a PartitionSpec, then at most memory_kind"),
    ("nonsense", None, "expected P('data', None), [data, ·], A[I_data, J]"),
    ("{nonsense}", None, "expected replicated, manual"),
    ("{replicated", None, "expected '}' at its end"),
    ("{replicated} {", None, "expected the end at position 13"),
    ("#sdy.sharding<@mesh, [{a}]>", None, "a name in quotes"),
    ('#sdy.sharding<@mesh, [{?, "a"}]>', None, "expected '}'"),
]


@pytest.mark.parametrize(("text", "rank", "message"), REFUSED)
def test_what_is_refused_and_why(text, rank, message):
    with pytest.raises(ShardvizError) as caught:
        read(text, rank=rank)
    assert message in str(caught.value)


def test_without_a_mesh_it_is_asked_for_unless_the_text_says_it():
    for text in ("P('a')", "[a]", "{replicated}", '#sdy.sharding<@mesh, [{"a"}]>', "{unknown}"):
        with pytest.raises(sv.errors.MeshError, match="give"):
            sv.sharding(text)
    assert str(sv.sharding("{devices=[2,4]<=[8]}")) == "[devices:(1)2, devices:(2)4]"
    named = sv.sharding("{mesh['x'=4,'y'=2], device_ids=([2,4]T(1,0)), [{'x'}, {'y'}]}")
    assert str(named) == "[x, y]" and named.mesh.device_ids == (0, 4, 1, 5, 2, 6, 3, 7)
    assert str(sv.sharding('#sdy.sharding<mesh<["x"=4]>, [{"x"}]>').mesh) == "x=4"


@MANY
@given(shardings(parts=True, unreduced=True, manual=True))
def test_places_are_as_defined(cut):
    assert cut.places().tolist() == tile_table(cut.spec, cut.mesh.shape)
    tiling = cut.tiling()
    assert tiling.positions()[:, : cut.rank].tolist() == cut.places().tolist()


def what_can_be_said(cut: Sharding) -> dict[str, object]:
    found = {}
    for notation in NOTATIONS:
        try:
            found[notation] = cut.to(notation)
        except SpecError as error:
            assert len(str(error)) > 20
    return found


@MANY
@given(shardings(parts=True, unreduced=True, manual=True, open=True, priorities=True, replicated=True))
def test_all_notations_of_one_sharding_mean_the_same(cut):
    found = what_can_be_said(cut)
    assert found or any(cut.open) or cut.manual
    for notation, written in found.items():
        mesh = cut.mesh
        if notation == "pspec" and cut.manual:
            types = tuple("Manual" if name in cut.manual else "Auto" for name in mesh.names)
            mesh = DeviceMesh(mesh.names, mesh.sizes, types)
        again = sv.sharding(written, mesh, cut.rank)
        assert again.same_as(cut) and cut.same_as(again), (notation, written)
        if notation in ("sdy", "hlo-v3"):
            assert (again.open, again.tiles) == (cut.open, cut.tiles)
            assert set(again.replicated) == set(cut.replicated)
        if notation == "sdy":
            assert again.priorities == cut.priorities


EXPECTED = {  # what a notation can say of these: every one, no exception
    "pspec": {},
    "short": {"parts": True, "unreduced": True, "manual": True, "open": True},
    "book": {"unreduced": True, "sums_only": True},
    "hlo-v1": {"parts": True, "unreduced": True, "manual": True},
    "hlo-v2": {"parts": True, "unreduced": True, "manual": True},
    "hlo-v3": {"parts": True, "unreduced": True, "manual": True, "open": True, "replicated": True},
    "proto": {"parts": True, "unreduced": True, "manual": True},
    "sdy": {"parts": True, "unreduced": True, "open": True, "priorities": True, "replicated": True},
    "pmap": {"parts": True},
}


@pytest.mark.parametrize("notation", NOTATIONS)
def test_a_notation_says_all_that_it_has_words_for(notation):
    @settings(max_examples=60)
    @given(shardings(**EXPECTED[notation]))
    def check(cut):
        assert sv.sharding(cut.to(notation), cut.mesh, cut.rank).same_as(cut)

    check()


@MANY
@given(meshes(permuted=True), st.data())
def test_any_order_of_devices_is_kept(mesh, data):
    """A permuted assignment mostly runs along no axes; it is kept, written and read all the same."""
    order = tuple(data.draw(st.permutations(range(mesh.size))))
    tiles = data.draw(st.sampled_from([d for d in range(1, mesh.size + 1) if mesh.size % d == 0]))
    kind = data.draw(st.sampled_from(["replicated", "unreduced", "manual"]))
    tiling = Tiling((1, tiles, mesh.size // tiles), (kind,), order)
    cut = Sharding.from_tiling(tiling, mesh)
    expected = [[0, order.index(place) // (mesh.size // tiles)] for place in range(mesh.size)]
    assert cut.places().tolist() == expected
    assert bool(cut.why) == (cut.spec is None)
    said = what_can_be_said(cut)
    assert {"hlo-v1", "proto", "hlo-v3"} <= set(said)
    assert ("hlo-v2" in said) == (iota_of(cut.tiling().devices) is not None)
    for notation in ("hlo-v1", "hlo-v2", "hlo-v3", "proto"):
        if notation in said:
            assert sv.sharding(said[notation], mesh, 2).same_as(cut), notation


@MANY
@given(shardings())
def test_what_jax_writes(cut):
    """V2 text and the proto are JAX's own, to the letter; JAX's objects are read."""
    mesh = AbstractMesh(cut.mesh.sizes, cut.mesh.names, axis_types=(AxisType.Auto,) * len(cut.mesh.sizes))
    theirs = NamedSharding(mesh, cut.to("pspec"))
    hlo = theirs._to_xla_hlo_sharding(cut.rank)
    assert sv.sharding(theirs, rank=cut.rank) == cut
    for given_ in (hlo, hlo.to_proto(), hlo.to_proto().SerializeToString(), str(hlo)):
        again = sv.sharding(given_, cut.mesh, cut.rank)
        assert again.same_as(cut) and all(cut.mesh.shape[axis] > 1 for axis in again.spec.axes)
    if any(n > 1 for n in cut.tiles):
        assert cut.to("hlo-v2") == str(hlo)
        assert cut.to("proto").SerializeToString() == hlo.to_proto().SerializeToString()
        assert HloSharding.from_string(cut.to("hlo-v2")) == hlo


@MANY
@given(shardings(parts=True, unreduced=True, manual=True, sums_only=SUMS_ONLY))
def test_xla_reads_what_is_written(cut):
    """XLA's own parser takes the texts, and its translation from V3 to V2 means the same."""
    if cut.mesh.size == 1:
        return  # XLA refuses tiles on one device
    for notation in ("hlo-v1", "hlo-v2", "hlo-v3"):
        theirs = HloSharding.from_string(cut.to(notation))
        if notation == "hlo-v3" and not theirs.is_replicated():
            theirs = theirs.v3_to_v2_sharding()
        if cut.unreduced_kind == "sum":  # XLA's text leaves out the metadata that say another
            assert sv.sharding(str(theirs), cut.mesh, cut.rank).same_as(cut), notation
        message = theirs.to_proto()  # a replicated one of V3 is left as it is: its message names a mesh of its own
        messages = () if notation == "hlo-v3" else (message, message.SerializeToString())
        for given_ in (HloSharding.from_proto(message), *messages):
            assert sv.sharding(given_, cut.mesh, cut.rank).same_as(cut)
    assert sv.sharding(HloSharding.from_string(cut.to("hlo-v3")), cut.mesh, cut.rank).same_as(cut)
    assert sv.sharding(cut.to("proto").SerializeToString(), cut.mesh, cut.rank).same_as(cut)


@settings(max_examples=100)
@given(shardings(parts=True, unreduced=True, open=True, priorities=True, replicated=True, sums_only=SUMS_ONLY))
def test_shardy_reads_what_is_written(cut):
    inside = cut.to("sdy").removeprefix("#sdy.sharding")
    with mlir_context():
        one = ir.Attribute.parse(cut.to("sdy"))
        alone, several = (
            str(ir.Attribute.parse(f"#sdy.sharding_per_value<[{', '.join([inside] * n)}]>")) for n in (1, 2)
        )
        for given_ in (one, str(one), alone):
            again = sv.sharding(given_, cut.mesh, cut.rank)
            assert again.same_as(cut) and again.open == cut.open
    with pytest.raises(SpecError, match="several values"):
        sv.sharding(several, cut.mesh)
    shown = [p if d or o or p else None for p, d, o in zip(cut.priorities, cut.spec.dims, cut.open, strict=True)]
    assert [p or None for p in again.priorities] == [p or None for p in shown]


def test_unconstrained_and_unreduced_as_jax_has_them():
    mesh = AbstractMesh((2, 4), ("a", "b"), axis_types=(AxisType.Auto, AxisType.Auto))
    cut = sv.sharding(NamedSharding(mesh, P("a", P.UNCONSTRAINED)))
    assert (cut.open, cut.tiles, str(cut)) == ((False, True), (2, 1), "[a, ?]")
    assert cut.to("pspec") == P("a", P.UNCONSTRAINED)
    mesh = AbstractMesh((2, 4), ("a", "b"), axis_types=(AxisType.Explicit, AxisType.Explicit))
    theirs = NamedSharding(mesh, P("a", unreduced={"b"}))
    cut = sv.sharding(theirs, rank=2)
    assert cut.unreduced == ("b",) and cut.to("hlo-v2") == str(theirs._to_xla_hlo_sharding(2))
    assert cut.to("pspec") == P("a", None, unreduced={"b"})
    assert sv.sharding(P("a", reduced={"b"}), MESH).to("pspec") == P("a", reduced={"b"})
    mesh = AbstractMesh((2, 4), ("a", "b"), axis_types=(AxisType.Auto, AxisType.Manual))
    theirs = NamedSharding(mesh, P("a"))
    cut = sv.sharding(theirs, rank=2)
    assert cut.manual == ("b",) and cut.to("hlo-v2") == str(theirs._to_xla_hlo_sharding(2))
    assert cut.to("pspec") == P("a", None)
    with pytest.raises(SpecError, match="a PartitionSpec cannot name manual axes"):
        read("[a, ·] manual b").to("pspec")


@pytest.mark.parametrize("types", [("Auto", "Manual"), ("Manual", "Explicit"), ("Manual", "Manual")])
def test_axes_that_the_mesh_has_as_manual_are_manual_however_the_spec_is_written(types):
    mesh = DeviceMesh(("a", "b"), (2, 4), types)
    free = [name for name, kind in zip("ab", types, strict=True) if kind != "Manual"]
    spec = P(*free)
    theirs = NamedSharding(AbstractMesh((2, 4), ("a", "b"), axis_types=tuple(AxisType[t] for t in types)), spec)
    cuts = [sv.sharding(given_, mesh, 2) for given_ in (spec, tuple(free), str(spec), str(theirs), theirs)]
    assert all(cut == cuts[0] for cut in cuts) and cuts[0].manual == mesh.manual
    assert cuts[0].to("hlo-v2") == str(theirs._to_xla_hlo_sharding(2))
    layouts = [sv.layout((8, 8), given_, mesh) for given_ in (spec, tuple(free), str(spec), cuts[0])]
    assert all(np.array_equal(found.manual_ids, layouts[0].manual_ids) for found in layouts)


def test_the_objects_of_one_device():
    import jax

    device = jax.devices()[0]
    single = sv.sharding(jax.sharding.SingleDeviceSharding(device))
    assert single.mesh.size == 1 and single.mesh.ids().tolist() == [device.id] and single.maximal is None
    assert sv.sharding(jax.numpy.ones((2, 3))).rank == 2
    inside = sv.sharding(jax.sharding.SingleDeviceSharding(device), MESH, 2)
    assert inside.maximal == 0 and inside.places().tolist() == [[0, 0], *[[-1, -1]] * 7]
    assert inside.to("hlo-v2") == "{maximal device=0}"


@pytest.mark.parametrize(
    ("text", "notation", "why"),
    [
        ("{devices=[4,2]<=[8]}", "pspec", "full axes only"),
        ("{devices=[8]0,3,1,2,4,5,6,7}", "pspec", "run along no axes of the mesh a=2,b=4"),
        ("{devices=[8]0,3,1,2,4,5,6,7}", "hlo-v2", "cannot express this order"),
        ("{devices=[8]0,3,1,2,4,5,6,7}", "sdy", "hlo-v1 lists the devices"),
        ("{maximal device=3}", "pspec", "full array is on one device"),
        ("{maximal device=3}", "hlo-v3", "full array is on one device"),
        ("{unknown}", "sdy", "did not state it"),
        ("[a ?]", "pspec", "unconstrained dimension"),
        ("[a ?]", "hlo-v2", "no open dimensions"),
        ("[a] sum over b", "pmap", "no partial sums"),
        ("[a] manual b", "sdy", "sdy.manual_computation"),
        ('<[{"a"}p1]>', "pspec", "no priorities"),
        ('<[{?}], replicated={"b"}>', "pspec", "cannot keep b out"),
        ("[a]", "latin", "expected one of pspec, short, book, hlo-v1"),
    ],
)
def test_why_a_notation_cannot_say_it(text, notation, why):
    with pytest.raises(SpecError, match=why):
        read(text).to(notation)


def test_same_as():
    mesh = DeviceMesh.of({"a": 2, "b": 4, "one": 1})
    same = [P("a"), P("a", None), P(("one", "a")), "{devices=[2,4]<=[8] last_tile_dim_replicate}"]
    for x, y in itertools.product(same, same):
        assert sv.sharding(x, mesh).same_as(sv.sharding(y, mesh))
    other = [P("b"), P(None, "a"), P("a", unreduced={"b"}), "[a ?]", "[a] manual b", "{maximal device=0}", "{unknown}"]
    for y in other:
        assert not sv.sharding("P('a')", mesh).same_as(sv.sharding(y, mesh)), y
    # the same devices hold the same rows, whatever the mesh that says it
    turned = DeviceMesh(("b", "a"), (4, 2), (), (0, 4, 1, 5, 2, 6, 3, 7))
    assert sv.sharding(P("a", "b"), turned).same_as(sv.sharding(P("a", "b"), MESH))
    assert not sv.sharding(P("a", "b"), DeviceMesh(("b", "a"), (4, 2))).same_as(sv.sharding(P("a", "b"), MESH))


def test_a_large_mesh():
    mesh = DeviceMesh.of({"x": 128, "y": 128})
    cut = sv.sharding("{devices=[128,1,128]<=[128,128]T(1,0) last_tile_dim_replicate}", mesh)
    assert str(cut) == "[y, ·]" and cut.places().shape == (16384, 2)
    assert Spec.of(P("y", None)) == cut.spec


@pytest.mark.parametrize(
    ("part", "why"), [(("a", 1, 2), "is all of the axis: write 'a'"), (("b", 1, 1), "is of size 1: leave it out")]
)
def test_a_part_of_an_axis_is_less_than_all_of_it_and_cuts(part, why):
    with pytest.raises(SpecError, match=why):
        check_spec("x", (8,), Spec(((part,),)), DeviceMesh.of("a=2,b=4"))
    check_spec("x", (8,), Spec(((("b", 2, 2),),)), DeviceMesh.of("a=2,b=4"))
