"""Whatever is given, the answer is a sharding that is right by the definition, or a `ShardvizError`."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.errors import ShardvizError
from shardviz.notation import DeviceMesh, Spec
from shardviz.notation.groups import axes_of, parse_groups
from shardviz.notation.hlo import read_spec, tile_counts
from tests.compiler.test_groups import SPELLINGS
from tests.notation.cases import TABLE, tile_table
from tests.notation.test_mesh import WRITTEN

MESH = DeviceMesh.of({"a": 2, "b": 4})


@pytest.mark.parametrize(
    "given_", [3, 2.5, object(), {"a": 2}, {1}, P, int, [1], (("a", 2),), b"\xff\xff", "", "\0", Spec((5,)), True]
)
def test_what_is_no_sharding(given_):
    with pytest.raises(ShardvizError):
        sv.sharding(given_, MESH)


def as_defined(text):
    found = sv.sharding(text, MESH)
    if found.spec is not None:
        assert found.places().tolist() == tile_table(found.spec, found.mesh.shape)


def of_hlo(text):
    with contextlib.suppress(ShardvizError):
        read_spec(text, MESH, 2)
    tile_counts(text, 2)


def a_mesh(text):
    mesh = DeviceMesh.of(text)
    assert DeviceMesh.of(mesh.text) == mesh


READERS = {  # what reads whole texts, and such texts
    as_defined: [text for text, *_ in TABLE],
    of_hlo: [text for text, *_ in TABLE if text.startswith("{")],
    a_mesh: [text for text, *_ in WRITTEN],
    lambda text: axes_of(parse_groups(text, 8), MESH): [text for _, texts in SPELLINGS for text in texts],
}


@pytest.mark.parametrize("read", READERS, ids=["sharding", "HLO", "mesh", "groups"])
def test_damaged_text(read):
    """A character more, less or other is refused by name, or says something else that is right by the definition."""

    @settings(max_examples=300)
    @given(st.data())
    def check(data):
        text = data.draw(st.sampled_from(READERS[read]))
        at = data.draw(st.integers(0, len(text)))
        new = data.draw(st.sampled_from(["", *"{}[]()<>'\",:;*=?x0198 ·_TdE-\\"]))
        with contextlib.suppress(ShardvizError):
            read(text[:at] + new + text[at + data.draw(st.integers(0, 1)) :])

    check()
