"""Whatever is given, the answer is a sharding that is right by the definition, or a `ShardvizError`."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.errors import ShardvizError
from shardviz.notation import DeviceMesh, Spec
from tests.notation.cases import TABLE, tile_table

MESH = DeviceMesh.of({"a": 2, "b": 4})


@pytest.mark.parametrize(
    "given_", [3, 2.5, object(), {"a": 2}, {1}, P, int, [1], (("a", 2),), b"\xff\xff", "", "\0", Spec((5,)), True]
)
def test_what_is_no_sharding(given_):
    with pytest.raises(ShardvizError):
        sv.sharding(given_, MESH)


GARBAGE = [
    "", "{", "P(", "[", "#sdy.sharding<", "{devices=[", "{mesh[", "A[", "type: OTHER ", "named_sharding {", "sharding=",
    "goo.gle/debugstr ", "NamedSharding(mesh=", "NamedSharding(mesh=Mesh('a': 2), spec=", "{{", "('a',",
]  # fmt: skip


@settings(max_examples=500, deadline=None)
@given(st.text(max_size=60), st.sampled_from(GARBAGE))
def test_garbage(text, start):
    try:
        found = sv.sharding(start + text, MESH, 2)
    except ShardvizError:
        return
    assert found.tiling() if not (found.unknown or found.maximal is not None) else True


@settings(max_examples=500, deadline=None)
@given(st.data())
def test_damaged_text(data):
    """A character more, less or other is refused by name, or is another sharding that is right by the definition."""
    text, rank, _ = data.draw(st.sampled_from(TABLE))
    at = data.draw(st.integers(0, len(text)))
    new = data.draw(st.sampled_from(["", *"{}[]()<>'\",:=?x0198 ·_T\\"]))
    try:
        found = sv.sharding(text[:at] + new + text[at + data.draw(st.integers(0, 1)) :], MESH, rank)
    except ShardvizError:
        return
    if found.spec is not None:
        assert found.places().tolist() == tile_table(found.spec, found.mesh.shape)


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=40))
def test_damaged_bytes(data):
    try:
        found = sv.sharding(data, MESH, 2)
    except ShardvizError:
        return
    assert found.rank == 2
