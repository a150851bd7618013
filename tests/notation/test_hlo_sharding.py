"""HLO shardings read back: against JAX's own writing of specs, and XLA's own translation between its notations."""

import itertools
import re

import numpy as np
import pytest
from hypothesis import given
from jaxlib._hlo import HloSharding

from shardviz.errors import ParseError, SpecError
from shardviz.notation import DeviceMesh, Spec
from shardviz.notation.hlo import read_spec, split_tuple, tile_counts
from shardviz.notation.read import sharding
from shardviz.notation.tiling import axes_along, digits, places
from tests.notation.cases import TABLE, shardings

MESH = DeviceMesh.of({"a": 2, "b": 4})

SPOKEN = re.compile(r"\{ ?(devices|mesh|replicated|manual|maximal|unreduced|unknown)")
HLO = [(text, rank) for text, rank, _ in TABLE if SPOKEN.match(text)]


@pytest.mark.parametrize(("text", "rank"), HLO)
def test_a_spec_is_that_of_the_sharding_where_one_says_it(text, rank):
    cut = sharding(text, MESH, rank)
    if cut.spec is None or cut.manual:
        with pytest.raises(SpecError):
            read_spec(text, MESH, cut.rank)
    else:
        assert read_spec(text, MESH, cut.rank) == cut.spec and tile_counts(text, cut.rank) == cut.tiles


REFUSED = [
    ("{manual}", 1, "manual, as inside a shard_map"),
    ("{mesh['a'=2,'b'=4], manual}", 1, "manual, as inside a shard_map"),
    ("{mesh['a'=2,'b'=4], [{'a'}, {}], manual={'b'}}", 2, "manual over some axes"),
    ("{devices=[2,1,4]<=[8] last_tile_dims={manual}}", 2, "manual over some axes"),
    ("{maximal device=3}", 1, "on one device"),
    ("{unknown}", 1, "not known"),
    ("{devices=[8]0,3,1,2,4,5,6,7}", 1, "tiles of dimension 0 run along no axes of the mesh a=2,b=4"),
]


@pytest.mark.parametrize(("text", "rank", "why"), REFUSED)
def test_what_no_spec_says_is_refused_and_why(text, rank, why):
    with pytest.raises(SpecError, match=why):
        read_spec(text, MESH, rank)


@pytest.mark.parametrize("text", ["replicated", "{nonsense}", "{devices=[2,2]<=[8]}", "{devices=8}"])
def test_what_is_no_sharding_is_refused(text):
    with pytest.raises(ParseError, match="HLO sharding"):
        read_spec(text, MESH, 2)


def test_tuples():
    parts = ("{replicated}", "{devices=[2,4]<=[8]}", "{mesh['a'=2,'b'=4], [{'a'}, {}], unreduced={'b'}}")
    assert split_tuple("{" + ", /*index=1*/".join(parts) + "}") == parts
    assert split_tuple(parts[2]) == (parts[2],)
    assert split_tuple("{}") == ()


def test_tiled_and_named_agree_on_every_cut_of_a_matrix():
    """Every way to put parts of axes on two dimensions, in XLA's own translation from names to tiles."""
    parts = {"a": ["'a'"], "b": ["'b'", "'b':(1)2", "'b':(2)2"]}
    for order in (["a", "b"], ["b", "a"]):
        for first, second in itertools.product(*(parts[name] for name in order)):
            for dims in ([f"{first}, {second}", ""], [first, second], ["", f"{first}, {second}"], [first, ""]):
                text = f"{{mesh['a'=2,'b'=4], [{{{dims[0]}}}, {{{dims[1]}}}]}}"
                tiled = str(HloSharding.from_string(text).v3_to_v2_sharding())
                assert read_spec(text, MESH, 2) == read_spec(tiled, MESH, 2), (text, tiled)


@given(shardings())
def test_counting_along_axes(cut):
    """`places` and `axes_along` are each other's reverse, and `digits` counts 0, 1, 2, ... over the places."""
    mesh = cut.mesh
    for axes in cut.spec.dims:
        found = places(axes, mesh)
        assert np.array_equal(digits(axes, mesh)[found], np.arange(len(found)))
        again = axes_along(found, mesh)
        assert again is not None
        assert Spec((again,)).same_as(Spec((axes,)), mesh)


def test_a_single_device_is_what_maximal_is():
    """Where V1 says `maximal device=3`, V3 says `single_device[device_id=3]`, in 2025 `maximal_mesh[device_id=3]`."""
    older = sharding("{maximal device=3}", "x=4", 2)
    for text in ("{single_device[device_id=3]}", "{maximal_mesh[device_id=3]}"):
        newer = sharding(text, "x=4", 2)
        assert newer.same_as(older) and newer.to("hlo-v1") == older.to("hlo-v1") == "{maximal device=3}"
    assert sharding(str(HloSharding.from_string("{maximal device=3}")), "x=4", 2).same_as(older)
    with pytest.raises(ParseError, match="expected 'device_id='"):
        sharding("{single_device[3]}", "x=4")


def test_v3_counts_its_devices_as_xla_does_where_that_is_shorter():
    text = "{mesh['x'=16,'y'=4], device_ids=([4,16]T(1,0)), [{'x'}, {}]}"
    assert sharding(text).to("hlo-v3") == text
    listed = "{mesh['x'=16,'y'=4], device_ids=(" + ",".join(map(str, np.arange(64).reshape(4, 16).T.ravel())) + ")"
    assert sharding(f"{listed}, [{{'x'}}, {{}}]}}").to("hlo-v3") == text
