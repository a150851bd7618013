"""Specs that transforms have changed: pjit's SpecSync, derived again from its definition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.notation.parsed import ParsedSpec, Sync


def test_once_out_of_sync_always_out_of_sync():
    spec = ParsedSpec.of(("x", None)).insert(1, ("y",))
    assert spec.sync is Sync.OUT_OF_SYNC and str(spec) == "P('x', 'y', None) (made from P('x', None))"
    assert spec.insert(0).sync is Sync.OUT_OF_SYNC and spec.permute((2, 1, 0)).sync is Sync.OUT_OF_SYNC
    assert str(ParsedSpec.of(("x",)).insert(3)) == "P('x', None, None, None) (moved from P('x'))"


@given(st.permutations(range(4)))
def test_permuting_is_transposing(order):
    """The tiles of a transposed array are the transposed tiles."""
    spec = ParsedSpec.of(("x", ("y", "z"), None))
    mesh = {"x": 2, "y": 3, "z": 2}
    before = sv.sharding(spec.spec, mesh, 4).places()
    after = sv.sharding(spec.permute(order).spec, mesh, 4).places()
    assert np.array_equal(after, before[:, list(order)])


# pjit, ParsedPartitionSpec.insert_axis_partitions: where the new dimension goes, what cuts it → partitions, sync
INSERTED = [
    (("x", None), 0, (), (None, "x", None), Sync.DIM_PERMUTE),
    (("x", None), 1, (), ("x", None, None), Sync.DIM_PERMUTE),
    (("x",), 3, (), ("x", None, None, None), Sync.DIM_PERMUTE),
    (("x", None), 0, ("y",), ("y", "x", None), Sync.OUT_OF_SYNC),
    ((), 0, ("y", "z"), (("y", "z"),), Sync.OUT_OF_SYNC),
    (None, 1, (), (None, None), Sync.DIM_PERMUTE),
    (P("x", P.UNCONSTRAINED), 1, (), ("x", None, ...), Sync.DIM_PERMUTE),
    (P(P.UNCONSTRAINED), 0, ("x",), ("x", ...), Sync.OUT_OF_SYNC),
]


@pytest.mark.parametrize(("written", "at", "axes", "entries", "sync"), INSERTED)
def test_insertion(written, at, axes, entries, sync):
    spec = ParsedSpec.of(written, unconstrained=True)
    found = spec.insert(at, axes)
    assert (found.entries(), found.sync) == (entries, sync)
    assert found.written == spec.spec and found.as_written(Sync.OUT_OF_SYNC) == spec.entries()
    with pytest.raises(sv.errors.SpecError, match="no longer what was written"):
        found.as_written()
    if sync is Sync.DIM_PERMUTE:
        assert found.as_written(Sync.DIM_PERMUTE) == spec.entries()


def test_what_was_written_is_said_as_it_was_written():
    assert ParsedSpec.of(("x", None)).as_written() == ("x", None)
    assert ParsedSpec.of(None).as_written() == () == ParsedSpec.of(None).entries()
    opened = ParsedSpec.of(P("x", P.UNCONSTRAINED), unconstrained=True)
    assert opened.entries() == ("x", ...) and opened.permute((1, 0)).entries() == (..., "x")
    assert str(opened.insert(0)) == "P(None, 'x', P.UNCONSTRAINED) (moved from P('x', P.UNCONSTRAINED))"
    with pytest.raises(sv.errors.SpecError, match="which only a sharding constraint"):
        ParsedSpec.of(P("x", P.UNCONSTRAINED))


def test_the_canonical_form_is_one_for_all_that_mean_the_same():
    """pjit, CanonicalizedParsedPartitionSpec: trailing dimensions that are not cut make no difference; open ones do."""
    forms = [ParsedSpec.of(s).canonical() for s in (("x",), ("x", None), (("x",), None, None), P("x", None))]
    assert len({form.spec for form in forms}) == 1 and forms[0].entries() == ("x",)
    opened = ParsedSpec.of(P("x", P.UNCONSTRAINED, None), unconstrained=True).canonical()
    assert opened.entries() == ("x", ...) and opened != forms[0]
    assert ParsedSpec.of((None, None)).canonical().entries() == ()


@pytest.mark.parametrize("given_", [3, "x", ("x", 3), object()])
def test_what_is_no_spec(given_):
    with pytest.raises(sv.errors.SpecError):
        ParsedSpec.of(given_)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.insert(0, ("x",)), "'x' cuts it already"),
        (lambda s: s.insert(-1), "0 or more"),
        (lambda s: s.permute((0,)), "no order of its 2 dimensions"),
        (lambda s: s.permute((1, 1)), "no order"),
    ],
)
def test_refusals(change, message):
    with pytest.raises(sv.errors.SpecError, match=message):
        change(ParsedSpec.of(("x", None)))
