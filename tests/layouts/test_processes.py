"""What each process holds, and the shape of its local data, are what JAX's own functions say."""

from __future__ import annotations

import numpy as np
import pytest

from shardviz.errors import MeshError
from shardviz.layouts import by_process, layout
from shardviz.notation import DeviceMesh
from tests.layouts.conftest import Answers, given


def test_local_shapes_are_jaxs(jax_answers: Answers):
    """`num_addressable_indices` and `get_process_index_and_count`, which `make_array_from_process_local_data` asks."""
    answers, at, uneven = jax_answers.counts.reshape(-1, 2), 0, 0
    for case in jax_answers.cases["hosts"]:
        shape, spec, mesh = given(case)
        hosts = by_process(layout(shape, spec, mesh), case["processes"])
        for process in hosts.processes.tolist():
            theirs = answers[at : at + len(shape)]
            at += len(shape)
            assert hosts.local_shape(process) == tuple(theirs[:, 0].tolist()), case
            # JAX gives up on every dimension at once only where all processes see it: the first one's answer is all's.
            assert [-1 if n is None else n for n in hosts.counts] == theirs[:, 1].tolist(), case
        uneven += None in hosts.counts
    assert at == len(answers) and uneven > 20


# From the docstring of JAX's `local_to_global_shape`: mesh a=2, b=2, c=2, two devices a process.
@pytest.mark.parametrize(
    ("spec", "counts"),
    [
        ((None, None), (1, 1)),
        ((("a", "b", "c"), None), (4, 1)),
        ((("a", "b"), None), (4, 1)),
        ((None, ("a", "c")), (1, 2)),
        ((("a", "c"), "b"), (2, 2)),
    ],
)
def test_the_examples_of_jax(spec, counts):
    hosts = by_process(layout((8, 8), spec, {"a": 2, "b": 2, "c": 2}), np.arange(8) // 2)
    assert hosts.counts == counts
    assert tuple(n * c for n, c in zip(hosts.local_shape(0), counts, strict=True)) == (8, 8)


def test_the_local_view_of_the_old_pjit_is_what_jaxs_local_mesh_says(jax_answers: Answers):
    """JAX still has `_get_local_mesh`, and refuses a process whose devices make no box of the mesh."""
    mesh_lib = pytest.importorskip("jax._src.mesh")
    taken = refused = 0
    for case in jax_answers.cases["hosts"]:
        shape, spec, mesh = given(case)
        hosts = by_process(layout(shape, spec, mesh), case["processes"])
        fakes = np.array([_Device(i, p) for i, p in enumerate(case["processes"])])
        whole = mesh_lib.Mesh(fakes.reshape(case["sizes"]), case["names"])
        for process in hosts.processes.tolist():
            try:
                local = mesh_lib._get_local_mesh(whole, process).shape
            except ValueError:
                refused += 1
                assert hosts.pjit_shape(process) is None, case
                continue
            wanted = tuple(
                size // np.prod([whole.shape[str(a)] for a in axes], dtype=int)
                * np.prod([local[str(a)] for a in axes], dtype=int)
                for size, axes in zip(shape, spec.dims, strict=True)
            )  # fmt: skip
            assert hosts.pjit_shape(process) == wanted == hosts.local_shape(process), case
            taken += 1
    assert taken > 100 and refused > 100


class _Device:
    """As much of a device as a JAX mesh asks for."""

    platform = device_kind = "cpu"

    def __init__(self, number: int, process_index: int):
        self.id, self.process_index = number, process_index


def test_processes_in_a_checkerboard_are_not_uniform():
    """From the docstring of `num_addressable_indices`: hosts 1221 / 1221 / 0000."""
    cut = layout((3, 4), ("x", "y"), {"x": 3, "y": 4})
    hosts = by_process(cut, [1, 2, 2, 1, 1, 2, 2, 1, 0, 0, 0, 0])
    assert hosts.local_shapes.tolist() == [[1, 4], [2, 2], [2, 2]]
    assert hosts.counts == (None, None)
    assert hosts.contiguous.tolist() == [True, False, True]


def test_local_data_put_together_make_the_array(jax_answers: Answers):
    for case in jax_answers.cases["hosts"][:150]:
        shape, spec, mesh = given(case)
        cut = layout(shape, spec, mesh)
        hosts = by_process(cut, case["processes"])
        array = np.arange(np.prod(shape, dtype=int)).reshape(shape)
        for i, process in enumerate(hosts.processes.tolist()):
            local, mine = np.full(hosts.local_shape(process), -1), np.zeros(shape, bool)
            for device in hosts.devices(process):
                local[hosts.local_index(device)] = array[cut.index(device)]
                mine[cut.index(device)] = True
            for device in hosts.devices(process):
                assert np.array_equal(local[hosts.local_index(device)], array[cut.index(device)])
            assert hosts.elements[i] == mine.sum()
            box = tuple(slice(a, b) for a, b in zip(hosts.starts[i], hosts.stops[i], strict=True))
            assert mine[box].sum() == mine.sum() and hosts.contiguous[i] == mine[box].all()


def test_one_process_holds_all():
    hosts = by_process(layout((8, 4), ("x",), {"x": 4, "y": 2}))
    assert hosts.local_shape(0) == (8, 4) and hosts.counts == (1, 1) and hosts.contiguous.all()


def test_the_meshs_own_processes_are_taken():
    hosts = by_process(layout((8,), ("x",), DeviceMesh(("x",), (4,), process_ids=(0, 0, 1, 1))))
    assert hosts.processes.tolist() == [0, 1] and hosts.local_shapes.tolist() == [[4], [4]]


def test_processes_by_device_id():
    mesh = DeviceMesh(("x",), (4,), (), (3, 2, 1, 0))
    hosts = by_process(layout((8,), ("x",), mesh), {0: 0, 1: 0, 2: 1, 3: 1})
    assert hosts.devices(1) == (3, 2) and hosts.starts.tolist() == [[4], [0]]
    assert hosts.local_index(0) == (slice(2, 4),)


def test_an_uneven_dimension_ends_where_the_array_does():
    hosts = by_process(layout((17,), ("x",), {"x": 8}), np.arange(8) // 2)
    assert hosts.local_shapes.ravel().tolist() == [6, 6, 5, 0]


@pytest.mark.parametrize("processes", [[0, 1], [0.5] * 4, {0: 0, 1: 0, 2: 0}])
def test_a_device_with_no_process_is_named(processes):
    with pytest.raises(MeshError, match="processes: "):
        by_process(layout((8,), ("x",), {"x": 4}), processes)


def test_an_unknown_process_is_named():
    with pytest.raises(KeyError, match="no process 3"):
        by_process(layout((8,), ("x",), {"x": 4})).local_shape(3)
