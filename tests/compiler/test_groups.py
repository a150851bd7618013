"""Replica groups: the same groups in every spelling, and axes against groups built another way."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardviz.errors import ParseError
from shardviz.notation import DeviceMesh
from shardviz.notation.groups import axes_of, axes_of_pairs, parse_groups, parse_pairs

MESH = DeviceMesh.of({"data": 2, "model": 4})

SPELLINGS = [  # the same groups in all of a row's spellings, and their axes on data=2,model=4
    (("model",), ["{{0,1,2,3},{4,5,6,7}}", "[2,4]<=[8]", "mesh['data'=2,'model'=4] {'model'}",
                  "mesh['axis_0'=2,'axis_1'=4] {'axis_1'}", "mesh['a'=2,'b'=2,'c'=2] {'b','c'}"]),
    (("data",), ["{{0,4},{1,5},{2,6},{3,7}}", "[4,2]<=[2,4]T(1,0)",
                 "mesh['axis_0'=2,'axis_1'=4,'axis_2'=1] {'axis_0'}", "mesh['a'=8] {'a':(1)2}"]),
    ((("model", 1, 2),), ["{{0,2},{1,3},{4,6},{5,7}}", "[4,2]<=[2,2,2]T(0,2,1)",
                          "mesh['data'=2,'model'=4] {'model':(1)2}",
                          "mesh['axis_0'=4,'axis_1'=2], device_ids=([2,2,2]T(0,2,1)) {'axis_1'}"]),
    ((("model", 2, 2),), ["{{0,1},{2,3},{4,5},{6,7}}", "[4,2]<=[8]", "mesh['data'=2,'model'=4] {'model':(2)2}",
                          "mesh['a'=4,'b'=2], device_ids=(0,1,2,3,4,5,6,7) {'b'}"]),
    (("data", "model"), ["{{0,1,2,3,4,5,6,7}}", "[1,8]<=[8]", "{}", "", "mesh['axis_0'=8] {'axis_0'}"]),
    (("model", "data"), ["{{0,4,1,5,2,6,3,7}}", "[1,8]<=[2,4]T(1,0)", "mesh['data'=2,'model'=4] {'model','data'}"]),
    ((), ["{{0},{1},{2},{3},{4},{5},{6},{7}}", "[8,1]<=[8]", "mesh['data'=2,'model'=4] {}"]),
    (None, ["{{0,1},{2,3,4,5},{6,7}}"]),
    (None, ["{{0,3},{1,2},{4,7},{5,6}}"]),
    (None, ["{{0,1,2,3}}"]),
]  # fmt: skip


@pytest.mark.parametrize(("axes", "texts"), SPELLINGS)
def test_spellings(axes, texts):
    tables = [parse_groups(text, 8) for text in texts]
    for text, table in zip(texts, tables, strict=True):
        assert np.array_equal(table, tables[0]), text
        assert axes_of(table, MESH) == axes


def test_members_in_another_order_span_the_same_axes():
    assert axes_of(np.array([[3, 2, 1, 0], [7, 6, 5, 4]]), MESH) == ("model",)


@pytest.mark.parametrize("text", ["0,1", "<=[8]", "mesh['a'=8]"])
def test_what_is_no_group_is_refused(text):
    with pytest.raises(ParseError, match="replica groups"):
        parse_groups(text, 8)


MESHES = st.sampled_from([(8,), (2, 4), (4, 16), (2, 2, 2), (2, 3, 4), (1, 8), (6, 4), (3, 1, 2)])


@st.composite
def axes_on_a_mesh(draw):
    """A mesh and a choice of its axes, or of parts of them, in any order."""
    mesh = DeviceMesh(tuple("abcd"[: len(sizes)]), sizes) if (sizes := draw(MESHES)) else None
    parts = []
    for name, size in mesh.shape.items():
        cuts = [(b, n) for b, n in itertools.product(range(1, size + 1), repeat=2) if n > 1 and size % (b * n) == 0]
        if cuts and draw(st.booleans()):
            before, n = draw(st.sampled_from(cuts))
            parts.append(name if n == size else (name, before, n))
    return mesh, tuple(draw(st.permutations(parts)))


@given(axes_on_a_mesh())
def test_axes_are_found_again(case):
    """Groups built device by device, from digits of coordinates in plain Python."""
    mesh, axes = case
    groups: dict[tuple, dict[tuple, int]] = {}
    for device, place in enumerate(itertools.product(*map(range, mesh.sizes))):
        digits, rest = {}, []
        for name, size, at in zip(mesh.names, mesh.sizes, place, strict=True):
            part = next((a for a in axes if a == name or a[0] == name), None)
            if part is None:
                rest.append(at)
                continue
            _, before, n = (name, 1, size) if isinstance(part, str) else part
            below = size // (before * n)
            digits[part] = at // below % n
            rest.append((at // (below * n), at % below))
        groups.setdefault(tuple(rest), {})[tuple(digits[a] for a in axes)] = device
    table = np.array([[row[key] for key in sorted(row)] for row in groups.values()])
    found = axes_of(table, mesh)
    assert found is not None
    assert [a for a in found if a in axes or not isinstance(a, str)] == list(found)
    assert merged(found, mesh) == merged(axes, mesh)
    text = "{" + ",".join("{" + ",".join(map(str, row)) + "}" for row in table.tolist()) + "}"
    assert np.array_equal(parse_groups(text, mesh.size), table)


def merged(axes, mesh):
    return [(a, 1, mesh.shape[a]) if isinstance(a, str) else a for a in axes]


@given(st.permutations(range(8)), st.sampled_from([(4, 2), (2, 4), (8, 1), (1, 8)]))
def test_axes_only_where_they_are(order, shape):
    """Whatever the groups: axes are claimed only if the groups of exactly those axes are these groups."""
    groups = np.array(order).reshape(shape)
    axes = axes_of(groups, MESH)
    if axes is None:
        return
    theirs = {
        frozenset(np.flatnonzero([fixed == other for other in fixed_digits(axes)]).tolist())
        for fixed in fixed_digits(axes)
    }
    assert {frozenset(row) for row in groups.tolist()} == theirs


def fixed_digits(axes):
    """For every device, the digits of its coordinates that the axes leave fixed: data, and the two halves of model."""
    free = {part for a in axes for part in PARTS[a]}
    return [
        tuple(
            digit
            for part, digit in zip(("data", "major", "minor"), np.unravel_index(d, (2, 2, 2)), strict=True)
            if part not in free
        )
        for d in range(8)
    ]


PARTS = {"data": {"data"}, "model": {"major", "minor"}, ("model", 1, 2): {"major"}, ("model", 2, 2): {"minor"}}


def test_pairs():
    assert axes_of_pairs(parse_pairs("{{0,4},{4,0},{1,1}}"), MESH) == ("data",)
    assert axes_of_pairs(parse_pairs("{{0,1},{1,2},{2,3},{3,0}}"), MESH) == ("model",)
    assert axes_of_pairs(parse_pairs("{{0,0},{1,2},{2,4}}"), MESH) == ("data", "model")
    assert axes_of_pairs(parse_pairs("{{0,8}}"), MESH) is None
    assert axes_of_pairs(parse_pairs("{}"), MESH) == ()


def test_the_largest_mesh():
    mesh = DeviceMesh.of({"a": 16, "b": 16, "c": 16})
    assert axes_of(parse_groups("[256,16]<=[16,16,16]T(0,2,1)", 4096), mesh) == ("b",)
    assert axes_of(parse_groups("[16,256]<=[16,16,16]T(1,2,0)", 4096), mesh) == ("c", "a")
