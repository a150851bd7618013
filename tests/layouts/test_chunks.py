"""Who writes and reads which chunks of a checkpoint, against a count of single elements."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardviz.errors import ShardvizError, SpecError
from shardviz.layouts import layout
from shardviz.layouts.chunks import reads, stored


@st.composite
def sides(draw):
    """Two layouts of one array on two meshes, each with processes; every dimension divides."""
    rank = draw(st.integers(0, 3))
    ends, factors = [], [1] * rank
    for _ in range(2):
        sizes = draw(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=3))
        mesh = {f"a{i}": size for i, size in enumerate(sizes)}
        dims: list[list[str]] = [[] for _ in range(rank)]
        for axis in draw(st.permutations(list(mesh))):
            if rank and draw(st.booleans()):
                dims[draw(st.integers(0, rank - 1))].append(axis)
        devices = math.prod(sizes)
        processes = draw(st.lists(st.integers(0, 2), min_size=devices, max_size=devices))
        factors = [math.lcm(f, math.prod(mesh[a] for a in axes)) for f, axes in zip(factors, dims, strict=True)]
        ends.append((tuple(map(tuple, dims)), mesh, processes))
    shape = tuple(f * draw(st.integers(1, 3)) for f in factors)
    return [layout(shape, spec, mesh, processes=processes) for spec, mesh, processes in ends]


def boxes(of, start, stop):
    return itertools.product(*(range(a, b) for a, b in zip(start, stop, strict=True))) if len(of.shape) else [()]


@given(sides(), st.booleans(), st.sampled_from([None, 1, 7, 40]))
def test_each_element_is_written_once_and_read_with_its_chunk(ends, replica_parallel, chunk_bytes):
    before, after = ends
    kept = stored(before, 1, replica_parallel=replica_parallel, chunk_bytes=chunk_bytes)
    assert all(w % c == 0 for w, c in zip(kept.write_shape, kept.chunk_shape, strict=True))
    assert chunk_bytes is None or math.prod(kept.chunk_shape) <= chunk_bytes
    times, writer = np.zeros(before.shape, int), np.full(before.shape, -1)
    for row in range(before.mesh.size):  # as each device would write it
        replica, start, stop = before.replica_ids[row], before.starts[row].copy(), before.stops[row].copy()
        if kept.along is not None:
            size = (stop - start)[kept.along] // before.replicas
            start[kept.along] += replica * size
            stop[kept.along] = start[kept.along] + size
        elif replica != 0:
            continue
        box = tuple(map(slice, start, stop))
        times[box] += 1
        writer[box] = before.process_ids[row]
    assert (times == 1).all()
    assert kept.written(3).tolist() == [int((writer == p).sum()) for p in range(3)]
    assert kept.written(3).sum() == math.prod(before.shape)

    chunk = math.prod(kept.chunk_shape)
    expected = np.zeros((3, 3), int)
    for process in range(3):
        rows = np.flatnonzero(after.process_ids == process)
        different = {(tuple(after.starts[r]), tuple(after.stops[r])) for r in rows}
        for start, stop in different:
            touched = {
                tuple(i // c for i, c in zip(at, kept.chunk_shape, strict=True)) for at in boxes(after, start, stop)
            }
            for each in touched:
                first = tuple(i * c for i, c in zip(each, kept.chunk_shape, strict=True))
                expected[process, writer[first]] += chunk
    assert reads(kept, after, 3, 3).tolist() == expected.tolist()


def test_what_is_no_whole_array_is_refused():
    mesh = {"a": 2}
    with pytest.raises(SpecError, match="does not divide"):
        stored(layout((3,), ("a",), mesh), 4)
    with pytest.raises(ShardvizError, match="2 bytes are less than an element of 4"):
        stored(layout((4,), ("a",), mesh), 4, chunk_bytes=2)
