"""Moves keep, receive and drop what they must, and their collectives, run on NumPy arrays, arrive where they should."""

from __future__ import annotations

import itertools

import jax
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shardviz.errors import MeshError, SpecError
from shardviz.layouts import Layout, Moves, MoveStep, layout
from shardviz.notation import DeviceMesh, Spec
from shardviz.notation.record import Sharding
from shardviz.notation.tiling import Tiling, digits
from shardviz.stablehlo.resharding import moves, moves_between

pytestmark = pytest.mark.long

REDUCE = {"sum": np.add, "max": np.maximum, "min": np.minimum}


def groups(axes, mesh: DeviceMesh) -> list[list[int]]:
    """The places that differ only along `axes`, in the order that these count."""
    counted = digits(axes, mesh)
    found: dict[tuple[int, ...], list[int]] = {}
    rest = mesh.coordinates().copy()
    for axis in axes:
        name, before, size = (axis, 1, mesh.shape[axis]) if isinstance(axis, str) else axis
        column, stride = mesh.names.index(name), mesh.shape[name] // (before * size)
        rest[:, column] -= rest[:, column] // stride % size * stride
    for place in np.argsort(counted, kind="stable").tolist():
        found.setdefault(tuple(rest[place].tolist()), []).append(place)
    return list(found.values())


def run(step: MoveStep, held: list[np.ndarray], here: Layout, there: Layout) -> list[np.ndarray]:
    """One collective on what every device holds: each gets its new tile from those that it is said to talk with."""
    everybody = [list(range(len(held)))]
    if step.axes is None or step.edges or step.kind == "collective-permute":
        return fetch(here, there, held, everybody)
    among = groups(step.axes, there.mesh)
    if step.kind == "slice":
        return fetch(here, there, held, [[place] for place in everybody[0]])
    if step.kind not in ("reduce-scatter", "all-reduce"):
        return fetch(here, there, held, among)
    reduce, result = REDUCE[here.unreduced_kind].reduce, list(held)
    for group in among:
        assert all((here.starts[place] == here.starts[group[0]]).all() for place in group)
        total = reduce([held[place] for place in group])
        for place in group:
            start = here.starts[place]
            result[place] = total[tuple(map(slice, there.starts[place] - start, there.stops[place] - start))]
    return result


def fetch(before: Layout, after: Layout, held: list[np.ndarray], among: list[list[int]]) -> list[np.ndarray]:
    """Every device's new tile, put together from those of its group that hold parts of it, of its own partial sum."""
    result = list(held)
    for group in among:
        for place in group:
            tile = np.full(after.stops[place] - after.starts[place], -1)
            for other in group:
                if before.partial_ids[other] == after.partial_ids[place]:
                    low = np.maximum(before.starts[other], after.starts[place])
                    high = np.maximum(np.minimum(before.stops[other], after.stops[place]), low)
                    ours = map(slice, low - after.starts[place], high - after.starts[place])
                    theirs = map(slice, low - before.starts[other], high - before.starts[other])
                    tile[tuple(ours)] = held[other][tuple(theirs)]
            assert (tile >= 0).all()
            result[place] = tile
    return result


def simulate(way: Moves) -> None:
    """Runs the steps on an array whose parts all differ, and checks where they arrive, and what each step costs."""
    before, after = way.before, way.after
    rng = np.random.default_rng(0)
    parts = rng.integers(0, 1000, (before.partial_sums, *before.shape))
    held = [parts[before.partial_ids[p]][before.index(int(d))] for p, d in enumerate(before.device_ids)]
    here = before
    for step in way.steps:
        there = layout(before.shape, step.after, after.mesh)
        if step.kind in ("slice", "all-gather", "all-to-all", "collective-permute"):
            low, high = np.maximum(here.starts, there.starts), np.minimum(here.stops, there.stops)
            received = int((there.elements - np.prod(np.maximum(high - low, 0), axis=1, dtype=int)).max())
            assert received == step.elements
        held = run(step, held, here, there)
        here = there
    # Which of the partial results are already reduced together: those that have the same place along the axes left.
    together: dict[int, list] = {}
    for i in range(before.partial_sums):
        together.setdefault(int(after.partial_ids[np.flatnonzero(before.partial_ids == i)[0]]), []).append(parts[i])
    reduce = REDUCE[before.unreduced_kind].reduce
    total = {i: reduce(found) for i, found in together.items()}
    for place, device in enumerate(after.device_ids):
        assert np.array_equal(held[place], total[int(after.partial_ids[place])][after.index(int(device))])


@st.composite
def resharding(draw, partial: bool = True):
    """A shape, a mesh and two specs: parts of axes, partial sums, uneven sizes."""
    sizes = draw(st.lists(st.sampled_from([2, 3, 4]), min_size=1, max_size=3))
    mesh = DeviceMesh(tuple(f"a{i}" for i in range(len(sizes))), tuple(sizes))
    rank = draw(st.integers(1, 3))
    atoms = [
        atom
        for i, whole in enumerate(sizes)
        for atom in ([(f"a{i}", 1, 2), (f"a{i}", 2, 2)] if whole == 4 else [f"a{i}"])
    ]

    def dims(allowed) -> tuple[tuple, ...]:
        found: list[list] = [[] for _ in range(rank)]
        for atom in draw(st.permutations(allowed)) if allowed else []:
            where = draw(st.sampled_from([None, *range(rank)]))
            if where is not None:
                found[where].append(atom)
        return tuple(map(tuple, found))

    some = st.lists(st.sampled_from(atoms), unique=True, max_size=2)
    summed = draw(some) if partial else []
    left = [atom for atom in summed if draw(st.integers(0, 3)) == 0]
    kind = draw(st.sampled_from(["sum", "max", "min"])) if partial else "sum"
    before = Spec(dims([a for a in atoms if a not in summed]), tuple(summed), unreduced_kind=kind)
    after = Spec(dims([a for a in atoms if a not in left]), tuple(left), unreduced_kind=kind)
    if draw(st.booleans()):
        shape = tuple(draw(st.sampled_from([12, 24])) * 6 for _ in range(rank)) if rank < 3 else (24, 24, 24)
    else:
        shape = tuple(draw(st.integers(1, 9)) for _ in range(rank))
    return shape, mesh, before, after


LAST_PERMUTE = (
    (24, 24, 24),
    DeviceMesh(("a0", "a1", "a2"), (3, 4, 4)),
    Spec(((("a1", 2, 2), ("a2", 2, 2)), ("a0",), ())),
    Spec((("a0", ("a1", 2, 2)), (("a2", 2, 2),), ())),
)
"""A change for which Shardy's pass leaves out the last step."""


@settings(max_examples=400)
@example(LAST_PERMUTE)
@given(resharding())
def test_the_steps_arrive(case):
    shape, mesh, before, after = case
    simulate(moves(shape, before, after, mesh))


@st.composite
def between_meshes(draw):
    """A shape, two shardings over meshes of the same devices, and both over a finer mesh that says either."""
    sizes = draw(st.lists(st.sampled_from([2, 3, 4]), min_size=2, max_size=4))
    fine = DeviceMesh(tuple(f"f{i}" for i in range(len(sizes))), tuple(sizes))
    rank = draw(st.integers(1, 3))
    owners = [draw(st.sampled_from(["a", "b", "ab"])) for _ in sizes[1:]]
    ends = []
    for letter in "ab":  # each axis of either mesh is some neighbouring axes of the finer one
        breaks = [0, *(i for i, owner in enumerate(owners, 1) if letter in owner), len(sizes)]
        axes = {f"{letter}{i}": fine.names[i:j] for i, j in itertools.pairwise(breaks)}
        mesh = {name: int(np.prod([fine.shape[f] for f in parts])) for name, parts in axes.items()}
        dims: list[list[str]] = [[] for _ in range(rank)]
        for name in draw(st.permutations(list(axes))):
            if (where := draw(st.sampled_from([None, *range(rank)]))) is not None:
                dims[where].append(name)
        finely = tuple(tuple(f for name in names for f in axes[name]) for names in dims)
        ends.append((DeviceMesh.of(mesh), Spec(tuple(map(tuple, dims))), Spec(finely)))
    shape = tuple(draw(st.sampled_from([fine.size, 7, 24])) for _ in range(rank))
    return shape, fine, *ends


@settings(max_examples=200)
@given(between_meshes())
def test_between_meshes_of_the_same_devices_moves_what_one_mesh_would(case):
    """The first sharding is on another mesh; a finer mesh, whose axes say both shardings, has the same steps."""
    shape, fine, (here, before, finely), (there, after, too) = case
    way = moves_between(layout(shape, before, here), layout(shape, after, there))
    simulate(way)
    by_hand(way)
    one = moves(shape, finely, too, fine)
    assert [(s.kind, s.elements) for s in way.steps] == [(s.kind, s.elements) for s in one.steps]


def test_8_by_8_devices_to_64_is_an_all_to_all_and_2_by_3_to_3_by_2_a_gather():
    """As XLA's partitioner does: the last is its "involuntary full rematerialization"."""
    square, line = layout((1024, 2048), ("x", "y"), "x=8,y=8"), layout((1024, 2048), ("d",), "d=64")
    (step,) = moves_between(square, line).steps
    assert (step.kind, step.axes, step.elements) == ("all-to-all", (("d", 8, 8),), 7 * 4096)
    way = moves_between(layout((12, 12), ("x", "y"), "x=2,y=3"), layout((12, 12), ("a", "b"), "a=3,b=2"))
    assert [s.kind for s in way.steps] == ["all-gather", "slice"] and way.elements == 144 - 24
    by_hand(way)


@settings(max_examples=200)
@given(resharding(partial=False))
def test_elements_are_conserved_and_counted_as_by_hand(case):
    shape, mesh, before, after = case
    by_hand(moves(shape, before, after, mesh))


def by_hand(way: Moves) -> None:
    """Counts element by element what every device has and needs."""
    shape = way.before.shape
    for place, device in enumerate(way.device_ids.tolist()):
        old, new = np.zeros(shape, bool), np.zeros(shape, bool)
        old[way.before.index(device)] = True
        new[way.after.index(device)] = True
        assert way.keep[place] == (old & new).sum()
        assert way.receive[place] == (new & ~old).sum()
        assert way.drop[place] == (old & ~new).sum()
    assert way.elements >= way.receive.max()
    assert way.free or any(step.kind != "slice" for step in way.steps)


MESH = {"data": 4, "model": 2, "x": 2}
KNOWN = [
    (("data",), (None, "data"), ["all-to-all"]),
    (("data",), (), ["all-gather"]),
    ((), ("data", "model"), ["slice"]),
    (("model",), ("x",), ["collective-permute"]),
    (("model", "x"), ("x", "model"), ["collective-permute"]),
    (("model",), (("x", "model"),), ["slice", "collective-permute"]),
    ((("data", "model"),), (None, "model"), ["all-to-all", "all-gather"]),
    (Spec(((), ()), ("data",)), ("data",), ["reduce-scatter"]),
    (Spec(((), ()), ("data",)), (), ["all-reduce"]),
    (Spec((("model",), ()), ("data",)), (None, "data"), ["reduce-scatter", "all-gather"]),
    (("data", "model"), ("data", "model"), []),
]


@pytest.mark.parametrize(("before", "after", "kinds"), KNOWN, ids=[f"{a} to {b}" for a, b, _ in KNOWN])
def test_the_collective_that_people_know(before, after, kinds):
    way = moves((16, 16), before, after, MESH)
    assert [step.kind for step in way.steps] == kinds
    simulate(way)


def test_a_dimension_that_does_not_divide_has_its_edges_sent_along():
    way = moves((10, 4), ("x",), (("x", "y"),), {"x": 2, "y": 2})
    simulate(way)
    steps = [(step.kind, step.edges, step.elements) for step in way.steps]
    if jax.__version_info__ >= (0, 11):  # its Shardy gathers instead
        assert steps == [("all-gather", False, 20), ("slice", False, 0)]
        return
    assert steps == [("collective-permute", True, 4)]
    assert str(way.steps[0]) == (
        "collective-permute over y: dimension 0 is sharded, with its neighbours' edges; "
        "P('x', None) → P(('x', 'y'), None); 4 elements"
    )


def odd(mesh: DeviceMesh, order: tuple[int, ...]) -> Layout:
    return layout((8, 4), Sharding.from_tiling(Tiling((mesh.size, 1), (), order), mesh))


def test_tile_assignments_without_names():
    mesh = DeviceMesh.of({"x": 4})
    assigned = odd(mesh, (0, 2, 3, 1))
    (step,) = moves_between(layout((8, 4), ("x",), mesh), assigned).steps
    assert (step.kind, step.axes, step.elements) == ("collective-permute", None, 8)
    assert [s.kind for s in moves_between(assigned, layout((8, 4), (), mesh)).steps] == ["all-gather"]
    assert [s.kind for s in moves_between(layout((8, 4), (), mesh), assigned).steps] == ["slice"]
    assert [s.kind for s in moves_between(assigned, layout((8, 4), (None, "x"), mesh)).steps] == ["all-gather", "slice"]
    assert moves_between(assigned, assigned).steps == ()


def test_from_one_device_and_to_one_device():
    mesh = DeviceMesh.of({"x": 4})
    one, two = (layout((8, 4), Sharding.on_one(place, mesh, 2)) for place in (1, 2))
    cut = layout((8, 4), ("x",), mesh)
    out = moves_between(one, cut)
    assert [s.kind for s in out.steps] == ["collective-broadcast", "slice"]
    assert out.receive.tolist() == [8, 0, 8, 8] and out.drop.tolist() == [0, 24, 0, 0]
    back = moves_between(cut, one)
    assert [s.kind for s in back.steps] == ["all-gather", "slice"] and back.receive.tolist() == [0, 24, 0, 0]
    assert [s.kind for s in moves_between(one, two).steps] == ["collective-permute"]
    assert [s.kind for s in moves_between(layout((8, 4), (), mesh), one).steps] == ["slice"]


def test_another_order_of_the_same_devices():
    here, there = DeviceMesh.of({"x": 4}), DeviceMesh(("x",), (4,), (), (3, 2, 1, 0))
    way = moves_between(layout((8,), ("x",), here), layout((8,), ("x",), there))
    assert way.after.index(3) == (slice(0, 2),) and way.after.device_ids.tolist() == [0, 1, 2, 3]
    assert way.receive.tolist() == [2, 2, 2, 2]
    assert [s.kind for s in way.steps] == ["collective-permute"]


def test_the_types_of_the_axes_make_no_difference():
    here, there = DeviceMesh.of({"x": 4}), DeviceMesh(("x",), (4,), ("Explicit",))
    way = moves_between(layout((8,), ("x",), here), layout((8,), (), there))
    assert [(s.kind, s.axes) for s in way.steps] == [("all-gather", ("x",))]


def test_16384_devices_are_counted_at_once():
    way = moves((4096, 4096), (("a", "b"), "c"), ("c", ("b", "a")), {"a": 16, "b": 32, "c": 32})
    assert (way.keep + way.receive == way.after.elements).all() and way.steps


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ((), Spec(((), ()), ("x",)), "not back"),
        (Sharding.from_spec(Spec(((), ())), DeviceMesh.of({"x": 4}), manual=("x",)), (), "manual over different axes"),
    ],
)
def test_ways_that_are_not_are_refused(before, after, words):
    with pytest.raises(SpecError, match=words):
        moves((8, 4), before, after, {"x": 4})


def test_other_devices_are_refused():
    with pytest.raises(MeshError, match="different devices"):
        moves_between(layout((8,), ("x",), {"x": 4}), layout((8,), ("x",), {"x": 8}))
