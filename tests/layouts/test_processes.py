"""What each process addresses, and the shape of its own data, are what JAX's own functions say."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from shardviz.errors import MeshError
from shardviz.layouts import layout
from tests.layouts.conftest import Answers, given


def test_local_shapes_and_parts_are_jaxs(jax_answers: Answers):
    """`num_addressable_indices` and `get_process_index_and_count`, which `make_array_from_process_local_data` asks."""
    answers, at, uneven = jax_answers.counts.reshape(-1, 2), 0, 0
    for case in jax_answers.cases["hosts"]:
        cut = layout(*given(case), case["processes"])
        for process in cut.processes:
            theirs = answers[at : at + len(cut.shape)]
            at += len(cut.shape)
            local = cut.local(process)
            assert local.shape == tuple(theirs[:, 0].tolist()), case
            assert [-1 if part is None else part[1] for part in local.parts] == theirs[:, 1].tolist(), case
            uneven += None in local.parts
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
    local = layout((8, 8), spec, {"a": 2, "b": 2, "c": 2}, np.arange(8) // 2).local(0)
    assert tuple(part and part[1] for part in local.parts) == counts
    assert tuple(n * c for n, c in zip(local.shape, counts, strict=True)) == (8, 8)


class _Device:
    """As much of a device as a JAX mesh asks for."""

    platform = device_kind = "cpu"

    def __init__(self, number: int, process_index: int):
        self.id, self.process_index = number, process_index


def jax_mesh(case) -> jax.sharding.Mesh:
    """A mesh of devices of several processes, which are not there."""
    devices = [_Device(d, p) for d, p in zip(case["devices"], case["processes"], strict=True)]
    return jax.sharding.Mesh(np.array(devices).reshape(case["sizes"]), case["names"])


def test_a_mesh_of_devices_says_which_process_addresses_what(jax_answers: Answers):
    """`addressable_devices_indices_map`, as each process would be told it by JAX."""
    for case in jax_answers.cases["hosts"][:100]:
        shape, spec, _ = given(case)
        sharding = NamedSharding(jax_mesh(case), PartitionSpec(*spec.dims))
        cut, theirs = layout(shape, sharding), sharding.devices_indices_map(shape)
        for process in cut.processes:
            mine = {d.id: index for d, index in theirs.items() if d.process_index == process}
            local = cut.local(process)
            assert set(local.device_ids) == set(mine)
            for device, index in mine.items():
                bounds = [part.indices(size)[:2] for part, size in zip(index, shape, strict=True)]
                assert [(part.start, part.stop) for part in cut.index(device)] == bounds


def test_host_local_arrays_have_the_shape_of_jaxs_local_mesh(jax_answers: Answers):
    """As `multihost_utils` counts it, where a process's devices are a box of the mesh."""
    mesh_lib = pytest.importorskip("jax._src.mesh")
    taken = 0
    for case in jax_answers.cases["hosts"]:
        shape, spec, mesh = given(case)
        cut, whole = layout(shape, spec, mesh, case["processes"]), jax_mesh(case)
        for process in cut.processes:
            try:
                local = mesh_lib._get_local_mesh(whole, process).shape
            except ValueError:  # the devices are no box
                continue
            along = lambda mesh, axes: int(np.prod([mesh[axis] for axis in axes], dtype=int))
            sizes = zip(shape, spec.dims, strict=True)
            wanted = tuple(n // along(whole.shape, axes) * along(local, axes) for n, axes in sizes)
            assert cut.local(process).shape == wanted, case
            taken += 1
    assert taken > 100


def test_processes_in_a_checkerboard_are_not_uniform():
    """From the docstring of `num_addressable_indices`: hosts 1221 / 1221 / 0000."""
    cut = layout((3, 4), ("x", "y"), {"x": 3, "y": 4}, [1, 2, 2, 1, 1, 2, 2, 1, 0, 0, 0, 0])
    locals_ = [cut.local(process) for process in cut.processes]
    assert [local.shape for local in locals_] == [(1, 4), (2, 2), (2, 2)]
    assert all(local.parts == (None, None) for local in locals_)
    assert [local.contiguous for local in locals_] == [True, False, True]


def test_local_data_put_together_make_the_array(jax_answers: Answers):
    for case in jax_answers.cases["hosts"][:150]:
        cut = layout(*given(case), case["processes"])
        array = np.arange(np.prod(cut.shape, dtype=int)).reshape(cut.shape)
        for process in cut.processes:
            local = cut.local(process)
            data, mine = np.full(local.shape, -1), np.zeros(cut.shape, bool)
            for device, part in local.slices.items():
                data[part] = array[cut.index(device)]
                mine[cut.index(device)] = True
            for device, part in local.slices.items():
                assert np.array_equal(data[part], array[cut.index(device)])
            assert mine[local.index].sum() == mine.sum() and local.contiguous == mine[local.index].all()


def test_one_process_holds_all():
    cut = layout((8, 4), ("x",), {"x": 4, "y": 2})
    assert cut.processes == (0,) and cut.local(0).shape == (8, 4) and cut.local(0).parts == ((0, 1), (0, 1))


def test_an_uneven_dimension_ends_where_the_array_does():
    cut = layout((17,), ("x",), {"x": 8}, np.arange(8) // 2)
    assert [cut.local(process).shape for process in cut.processes] == [(6,), (6,), (5,), (0,)]


@pytest.mark.parametrize("processes", [[0, 1], [0.5] * 4])
def test_numbers_that_are_no_processes_are_refused(processes):
    with pytest.raises(MeshError, match="processes: "):
        layout((8,), ("x",), {"x": 4}, processes)


def test_an_unknown_process_is_named():
    with pytest.raises(KeyError, match="no process 3; there are 0"):
        layout((8,), ("x",), {"x": 4}).local(3)
