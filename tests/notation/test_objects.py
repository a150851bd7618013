"""What JAX, XLA and Shardy hold shardings in and print them as: messages, their text, attributes, tuples of them."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.extend.mlir.dialects import sdy as _sdy  # noqa: F401  the dialect's attributes
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxlib._hlo import HloSharding

import shardviz as sv
from shardviz._jax import mlir_context
from shardviz.errors import ShardvizError, SpecError
from shardviz.notation import DeviceMesh
from tests.notation.cases import shardings as random_shardings

MESH = DeviceMesh.of({"a": 2, "b": 4})
MANY = settings(max_examples=150)


def xla(text):
    return HloSharding.from_string(text)


SUBGROUPS = [
    kinds
    for count in (1, 2, 3)
    for kinds in itertools.product(("replicated", "manual", "unreduced"), repeat=count)
    if len(set(kinds)) == len(kinds)
]


@pytest.mark.parametrize("kinds", SUBGROUPS, ids=" ".join)
@pytest.mark.parametrize("devices", ["<=[24]", "<=[2,3,4]T(2,0,1)", "<=[4,6]T(1,0)"])
def test_every_combination_of_subgroups(kinds, devices):
    """In text, message and bytes, and as XLA itself writes each again."""
    sizes = {1: (6,), 2: (2, 3), 3: (3, 1, 2)}[len(kinds)]
    mesh = DeviceMesh.of({"x": 2, "y": 3, "z": 4})
    text = f"{{devices=[1,4,{','.join(map(str, sizes))}]{devices} last_tile_dims={{{', '.join(kinds)}}}}}"
    theirs = xla(text)
    cut = sv.sharding(text, mesh, 2)
    message = theirs.to_proto()
    for given_ in (str(theirs), theirs, message, message.SerializeToString()):
        assert sv.sharding(given_, mesh, 2).same_as(cut)  # XLA has the subgroups in an order of its own
    assert cut.kind == "other" and cut.tiles == (1, 4)
    again = sv.sharding(xla(cut.to("hlo-v1")), mesh, 2)
    assert again.same_as(cut)


KINDS = [
    ("{replicated}", "replicated"),
    ("{manual}", "manual"),
    ("{unreduced}", "unreduced"),
    ("{unknown}", "unknown"),
    ("{maximal device=3}", "maximal"),
    ("{devices=[2,4]<=[8]}", "other"),
    ("{devices=[1,1,8]<=[8] last_tile_dims={unreduced}}", "unreduced"),
    ("{devices=[1,1,8]<=[8] last_tile_dim_replicate}", "replicated"),
    ("{devices=[1,1,4,2]<=[8] last_tile_dims={manual, unreduced}}", "other"),
]


@pytest.mark.parametrize(("text", "kind"), KINDS)
def test_kind_is_the_type_in_xlas_message(text, kind):
    cut = sv.sharding(text, MESH, 2)
    assert cut.kind == kind
    if "devices=[1,1,8]" not in text:  # where XLA keeps the tiles as they were written
        assert xla(text).to_proto().type.name.lower() == kind
        assert cut.to("proto").type.name.lower() == kind
    assert sv.sharding(cut.to("hlo-v2"), MESH, 2).kind == kind


def test_unknown_reads_writes_and_says_that_no_layout_is_known():
    theirs = HloSharding.unknown()
    for given_ in ("{unknown}", theirs, theirs.to_proto()):
        cut = sv.sharding(given_, MESH, 2)
        assert (cut.kind, cut.unknown, cut.spec, str(cut)) == ("unknown", True, None, "unknown")
        assert cut.to("hlo-v1") == cut.to("hlo-v2") == "{unknown}"
        assert cut.to("proto").SerializeToString() == theirs.to_proto().SerializeToString()
        assert cut.same_as(sv.sharding(theirs, MESH, 2)) and not cut.same_as(sv.sharding("{replicated}", MESH, 2))
        for ask in (cut.places, lambda cut=cut: sv.layout((8, 8), cut)):
            with pytest.raises(SpecError, match="the compiler did not state which device holds what"):
                ask()


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ("084c", "type 76 is unknown; expected 0 to 6"),
        ("7801", "unknown field 15"),
        ("08031a01084a0108520103", "expected an order of the iota's 1 dimensions"),
        ("08031a0108220800010203040506074a0108520100", ", not both"),
        ("08031a0108300142010022080001020304050607", ", not both"),
        ("08031a010842016322080001020304050607", "expected a word at position 44"),
        ("08031a01044a0104520100", "over 4 devices"),
        ("0a0103", "type has the wrong wire type"),
        ("72020a00", "it names the axes of its own mesh"),
    ],
)
def test_messages_that_are_refused(message, why):
    with pytest.raises(ShardvizError) as caught:
        sv.sharding(bytes.fromhex(message), MESH, 1)
    assert why in str(caught.value)


def test_tuples_are_refused():
    """In XLA's text, bytes and objects: one array's sharding is read at a time."""
    several = xla("{{devices=[2,4]<=[8]}, {replicated}}")
    message = several.to_proto()
    for each in (str(several), several, message, message.SerializeToString(), "{{replicated}}"):
        with pytest.raises(SpecError, match=r"a tuple's; pick one"):
            sv.sharding(each, MESH)
    for text in ("{{{replicated}}, {manual}}", "{{replicated}", "{{replicated} {manual}}", "{{replicated},}x"):
        with pytest.raises(ShardvizError):
            sv.sharding(text, MESH)


@MANY
@given(st.one_of(random_shardings(unreduced=True), random_shardings(open=True)))
def test_what_jax_makes_of_a_named_sharding_for_shardy(cut):
    """`SdyArray`, and the attribute that it builds, which has its mesh in it."""
    kinds = (AxisType.Explicit if cut.unreduced else AxisType.Auto,) * len(cut.mesh.sizes)
    mesh = AbstractMesh(cut.mesh.sizes, cut.mesh.names, axis_types=kinds)
    try:
        spec = cut.to("pspec")
    except SpecError:
        return  # a dimension with axes that is open: JAX has no word for it
    theirs = NamedSharding(mesh, spec)._to_sdy_sharding(cut.rank)
    with mlir_context():
        attribute = theirs.build({})
        for given_ in (theirs, attribute, str(attribute)):
            for over in (None, cut.mesh):
                found = sv.sharding(given_, over, cut.rank)
                assert found.same_as(cut) and found.open == cut.open and found.unreduced == cut.unreduced


def test_an_empty_mesh_is_copies_everywhere():
    theirs = NamedSharding(AbstractMesh((), ()), P())._to_sdy_sharding(2)
    for given_ in (theirs, "#sdy.sharding<mesh<[]>, [{}, {}]>", "{mesh[], [{}, {}]}", "{mesh[], replicated}"):
        assert str(sv.sharding(given_, MESH, 2)) == "[·, ·]"


def test_partial_maxima_are_read_wherever_they_are_said():
    """JAX 0.12 and its Shardy and XLA have them, and minima, too."""
    texts = [
        '{devices=[2,4]<=[8] last_tile_dims={unreduced} metadata={op_type="sdy::reduction_op" op_name="MAX"}}',
        '#sdy.sharding<@mesh, [{"a"}], unreduced=max{"b"}>',
        "{mesh['a'=2,'b'=4], [{'a'}], unreduced=max{'b'}}",
        "P('a', unreduced={'b'}, unreduced_kind=max)",
        "P('a', unreduced={'b'}, unreduced_kind=jax.sharding.UnreducedKind.max)",
    ]
    given_ = list(texts)
    kinds = getattr(__import__("jax").sharding, "UnreducedKind", None)
    if kinds is not None:
        mesh = AbstractMesh((2, 4), ("a", "b"), axis_types=(AxisType.Explicit,) * 2)
        spec = P("a", unreduced={"b"}, unreduced_kind=kinds.max)
        theirs = NamedSharding(mesh, spec)
        hlo = theirs._to_xla_hlo_sharding(1)
        given_ += [xla(texts[0]), xla(texts[0]).to_proto(), xla(texts[2])]
        given_ += [spec, theirs, hlo, hlo.to_proto(), theirs._to_sdy_sharding(1)]
        assert sv.sharding(texts[0], MESH, 1).to("pspec") == spec
        assert sv.layout((8,), spec, MESH).unreduced_kind == "max"
        assert str(sv.sharding(xla("{mesh['a'=2,'b'=4], unreduced=min}"), MESH, 1)) == "[·] min over a b"
    else:
        with pytest.raises(SpecError, match=r"partial sums only; JAX 0\.12 has partial maxima and minima too"):
            sv.sharding(texts[0], MESH, 1).to("pspec")
    for each in given_:
        assert str(sv.sharding(each, MESH, 1)) == "[a] max over b"
    for text in texts:
        for kind in ("sum", "min"):
            said = text.replace("MAX", kind.upper()).replace("max", kind).replace("=sum{", "={")
            assert str(sv.sharding(said, MESH, 1)) == f"[a] {kind} over b"
        with pytest.raises(SpecError, match="expected one of sum, max, min"):
            sv.sharding(text.replace("MAX", "MUL").replace("max", "mul"), MESH, 1)
    assert str(sv.sharding("{mesh['a'=2,'b'=4], unreduced=max}", MESH, 1)) == "[·] max over a b"


def test_partial_maxima_move_by_maxima_and_never_become_minima():
    maxima, minima, scattered = (
        sv.sharding(text, MESH, 1)
        for text in (
            "P(unreduced={'b'}, unreduced_kind=max)",
            "P(unreduced={'b'}, unreduced_kind=min)",
            "P('a', unreduced={'b'}, unreduced_kind=max)",
        )
    )
    (step,) = sv.moves((8,), maxima, "[b]", MESH).steps
    assert str(step).startswith(
        "reduce-scatter over b: dimension 0 is reduced and sharded; P(None, unreduced={'b'}, unred"
    )
    (step,) = sv.moves((8,), maxima, scattered, MESH).steps
    assert step.kind == "slice" and step.after.unreduced_kind == "max"
    with pytest.raises(SpecError, match="partial results of a max cannot become those of a min"):
        sv.moves((8,), maxima, minima, MESH)
    assert not maxima.same_as(minima) and maxima.same_as(maxima)
