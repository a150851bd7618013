"""pmap's vocabulary against its definition: a mesh whose axes take up the cuts of the dimensions, or hold copies."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardviz as sv
from shardviz.notation.pmap import Chunked, NoSharding, Replicated, ShardedAxis, ShardingSpec, Unstacked, write

WRONG: Any = (3,)
NONE: Any = None
N, C, U, A, R = NoSharding(), lambda *n: Chunked(n), Unstacked, ShardedAxis, Replicated


def s(*bounds):
    return tuple(slice(*b) if isinstance(b, tuple) else b for b in bounds)


# JAX's old tests of pmap's `spec_to_indices` (tests/pmap_test.py, SpecToIndicesTest), derived again by hand.
TABLE = [  # shape, specification, what each device holds
    ((4, 8), ShardingSpec((C(2), N), (A(0),)), [s((0, 2), (0, 8)), s((2, 4), (0, 8))]),
    ((4, 4), ShardingSpec((C(2), C(2)), (A(0), A(1))),
     [s((0, 2), (0, 2)), s((0, 2), (2, 4)), s((2, 4), (0, 2)), s((2, 4), (2, 4))]),
    ((4, 4), ShardingSpec((C(2), C(2)), (A(1), A(0))),
     [s((0, 2), (0, 2)), s((2, 4), (0, 2)), s((0, 2), (2, 4)), s((2, 4), (2, 4))]),
    ((2, 8), ShardingSpec((C(2), N), (A(0), R(3))),
     [s((0, 1), (0, 8))] * 3 + [s((1, 2), (0, 8))] * 3),
    ((2, 8), ShardingSpec((C(2), N), (R(2), A(0))), [s((0, 1), (0, 8)), s((1, 2), (0, 8))] * 2),
    ((4, 8), ShardingSpec((U(4), N), (A(0),)), [s(i, (0, 8)) for i in range(4)]),
    ((4, 4), ShardingSpec((U(4), C(2)), (A(0), A(1))), [s(i, b) for i in range(4) for b in ((0, 2), (2, 4))]),
    ((8,), ShardingSpec((C(2, 2),), (A(1), A(0))), [s((0, 2)), s((4, 6)), s((2, 4)), s((6, 8))]),
    ((2, 2), ShardingSpec((NONE, N), (R(3),)), [s((0, 2), (0, 2))] * 3),
    ((), ShardingSpec((), (R(2),)), [(), ()]),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "spec", "indices"), TABLE, ids=lambda x: str(x)[:60])
def test_indices(shape, spec, indices):
    cut = spec.to_sharding()
    assert cut.rank == len(shape) and cut.mesh.size == len(indices)
    laid = sv.layout(shape, spec)
    one = lambda i: slice(i, i + 1) if isinstance(i, int) else i
    assert [laid.index(n) for n in range(len(indices))] == [tuple(map(one, index)) for index in indices]
    assert sv.sharding(sv.sharding(spec).to("hlo-v1"), cut.mesh, cut.rank).places().tolist() == cut.places().tolist()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ShardingSpec((C(2),), ()), "sharded axes 0 to 0"),
        (lambda: ShardingSpec((N,), (A(0),)), "make no sharded axes"),
        (lambda: ShardingSpec((C(2), C(2)), (A(0), A(0))), "each of them once"),
        (lambda: ShardingSpec(WRONG, ()), "NoSharding, Chunked or Unstacked"),
        (lambda: ShardingSpec((), WRONG), "ShardedAxis or Replicated"),
        (lambda: Chunked((0,)), "1 or more"),
        (lambda: Replicated(0), "1 or more"),
        (lambda: sv.layout((6, 8), ShardingSpec((U(3), N), (A(0),))), "unstacked into 3, but the array's has size 6"),
        (lambda: sv.sharding(ShardingSpec((C(3),), (A(0),)), "x=4"), "over 3 devices"),
        (lambda: sv.sharding("ShardingSpec((ShardedAxis(0),), (Chunked(4),))", "x=4"), "a dimension is NoSharding, C"),
    ],
)
def test_refusals(make, message):
    with pytest.raises(sv.errors.SpecError, match=message):
        make()


@st.composite
def specifications(draw):
    dims, axes = [], []
    for _ in range(draw(st.integers(0, 3))):
        kind = draw(st.sampled_from(["no", "chunked", "unstacked"]))
        sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=2 if kind == "chunked" else 1))
        dims.append(N if kind == "no" else Chunked(tuple(sizes)) if kind == "chunked" else Unstacked(sizes[0]))
        axes += [] if kind == "no" else sizes
    mapping = [A(i) for i in range(len(axes))] + [R(n) for n in draw(st.lists(st.integers(1, 3), max_size=2))]
    return ShardingSpec(tuple(dims), tuple(draw(st.permutations(mapping))))


@settings(max_examples=200)
@given(specifications())
def test_round_trip_and_definition(spec):
    cut = spec.to_sharding()
    assert sv.sharding(str(spec)) == cut == sv.sharding(f"PmapSharding(sharding_spec={spec}, device_ids=[0, 1])")
    again = cut.to("pmap")
    kinds = lambda s: [(type(d), d.size) for d in s.sharding if isinstance(d, Unstacked) and d.size > 1]
    assert kinds(again) == kinds(spec)
    assert again.to_sharding().places().tolist() == cut.places().tolist()
    sizes = [n for d in spec.sharding for n in (d.chunks if isinstance(d, Chunked) else [d.size] if d != N else [])]
    rows = []
    for at in itertools.product(*(range(n) for n in spec.mesh_shape)):
        where = {e.axis: i for e, i in zip(spec.mesh_mapping, at, strict=True) if isinstance(e, ShardedAxis)}
        row, axis = [], 0
        for dim in spec.sharding:
            levels = 0 if dim == N else len(dim.chunks) if isinstance(dim, Chunked) else 1
            tile = 0
            for _ in range(levels):
                tile = tile * sizes[axis] + where[axis]
                axis += 1
            row.append(tile)
        rows.append(row)
    assert rows == cut.places().tolist()
    assert math.prod(spec.mesh_shape) == cut.mesh.size


def test_names_are_as_they_were():
    assert repr(Replicated(2)) == "Replicated(replicas=2)" and repr(ShardedAxis(0)) == "ShardedAxis(axis=0)"
    assert (repr(U(4)), repr(C(4)), repr(C(4, 2))) == ("Unstacked(4)", "Chunked(4)", "Chunked(4,2)")
    assert str(ShardingSpec((C(8), N), (A(0),))) == "ShardingSpec((Chunked(8), NoSharding()), (ShardedAxis(axis=0),))"
    assert str(ShardingSpec((U(8),), (A(0), R(2)))) == (
        "ShardingSpec((Unstacked(8),), (ShardedAxis(axis=0), Replicated(replicas=2)))"
    )
    assert sv.notation.pmap.ShardingSpec is ShardingSpec and C(2) == Chunked((2,)) and NoSharding() == N


@pytest.mark.parametrize(
    "text",
    [
        "ShardingSpec((Chunked(4), NoSharding()), (Replicated(2), ShardedAxis(0)))",
        "ShardingSpec((Chunked([4]), NoSharding(),), (Replicated(replicas=2), ShardedAxis(axis=0),))",
        "ShardingSpec(sharding=(Chunked((4,)), NoSharding()), mesh_mapping=(Replicated(2), ShardedAxis(0)))",
    ],
)
def test_the_text_of_any_time_is_read(text):
    assert str(sv.sharding(text, "a=2,b=4")) == "[b, ·]"


@pytest.mark.parametrize("dims", [(C(4), N), (C(4, 2),), (U(8),), (N, C(2), U(4))])
def test_what_is_written_is_what_is_printed_and_read(dims):
    sizes = [n for d in dims for n in (d.chunks if isinstance(d, Chunked) else [d.size] if d != N else [])]
    spec = ShardingSpec(dims, tuple(A(i) for i in range(len(sizes))))
    pieces = write(sv.sharding(str(spec)))
    assert str(spec) == "".join(p if isinstance(p, str) else p.piece for p in pieces)
    assert sv.sharding(str(spec)) == spec.to_sharding()


@pytest.mark.parametrize(
    "text",
    [
        "ShardingSpec((Chunked(4)), (ShardedAxis(0, 1),))",
        "ShardingSpec((Chunked(4),), (ShardedAxis(0),)) and more",
        "ShardingSpec((Chunked(99999999999),), (ShardedAxis(0),))",
        "ShardingSpec(" + "(" * 10_000,
        "ShardingSpec((" + "NoSharding(), " * 5_000,
    ],
)
def test_other_text_is_refused(text):
    with pytest.raises(sv.errors.ShardvizError, match=r"expected a text such as ShardingSpec\(\(Chunked"):
        sv.sharding(text, "a=4")
