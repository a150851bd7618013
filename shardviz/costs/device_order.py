"""Which device stands where in a mesh, if nobody says: what JAX's own `mesh_utils` would choose for the machine.

`jax.experimental.mesh_utils.create_device_mesh` gives the last (most talkative) mesh axis the most axes of the torus,
splits an axis of the torus only where it must, and has an order of its own for some small slices. This is that choice
once more, on numbers (as of jax 0.12; a test holds the two together). Several slices are laid out as by
`create_hybrid_device_mesh`.

>>> from shardviz.costs.machine import Machine
>>> device_order(Machine.of("tpu v4:4x4x4"), (16, 4))[:2, :].tolist()       # the last axis goes along x
[[0, 1, 4, 5], [16, 17, 20, 21]]
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from shardviz.costs.machine import Machine
from shardviz.errors import TargetError

# The orders that mesh_utils has for small slices: places in a list of the slice's devices.
_RING_OF_8 = (0, 1, 2, 3, 6, 7, 4, 5)  # v2, v3 (as listed); tpu7x, on each 2x2 of chips
_RING_2x2 = (0, 1, 3, 2)
_RING_V5E_8 = (0, 1, 2, 3, 7, 6, 5, 4)
_RING_V5E_4x4 = (0, 1, 2, 3, 7, 6, 5, 9, 10, 11, 15, 14, 13, 12, 8, 4)
_RING_V5P_2x2x2 = (0, 1, 3, 2, 6, 7, 5, 4)


def device_order(machine: Machine, sizes: Sequence[int], slices: Sequence[int] = ()) -> np.ndarray:
    """The devices in the order that JAX's `mesh_utils` would choose.

    Args:
        machine: the machine.
        sizes: the size of each mesh axis.
        slices: the number of slices (of NVLink domains) along each mesh axis; empty for 1 each.

    Returns:
        Integers of shape `sizes`: places in the machine's list of devices.

    Raises:
        TargetError: if the machine has another number of devices, or of slices.
    """
    sizes, slices = tuple(sizes), tuple(slices) or (1,) * len(sizes)
    if math.prod(sizes) != machine.size:
        raise TargetError(
            f"a mesh of {' x '.join(map(str, sizes)) or 'no axes'} is {math.prod(sizes)} devices, but "
            f"{machine.text} has {machine.size}; make the axes' product {machine.size}, or take another target"
        )
    parts = machine.num_slices if machine.chip.kind == "tpu" else max(1, math.prod(slices))
    if math.prod(slices) != parts:
        raise TargetError(f"the mesh runs through {math.prod(slices)} slices, but {machine.text} has {parts}")
    inner = tuple(size // part for size, part in zip(sizes, slices, strict=True))
    one = machine.size // parts
    block = _slice_order(machine, inner) if machine.chip.kind == "tpu" else np.arange(one).reshape(inner)
    whole = np.arange(parts).reshape(slices)
    # slices are the major part of each axis
    both = whole.reshape([n for s in slices for n in (s, 1)]) * one + block.reshape([n for i in inner for n in (1, i)])
    return both.reshape(sizes)


def _slice_order(machine: Machine, sizes: tuple[int, ...]) -> np.ndarray:
    """Within one slice: a special order where mesh_utils has one, else along the axes of the torus."""
    of, shape, count = machine.chip, machine.shape, math.prod(sizes)
    coords = machine.coords()[:count]
    listed = np.arange(count)
    by_place = np.lexsort((coords[:, 3], coords[:, 0], coords[:, 1], coords[:, 2]))  # x first
    name = of.device_kind
    if name in ("TPU v2", "TPU v3"):
        if count == 8:
            return listed[list(_RING_OF_8)].reshape(sizes)
        if sizes and sizes[-1] == 8:
            return listed.reshape(sizes)[..., list(_RING_OF_8)]
        return listed.reshape(sizes)
    if name in ("TPU v5 lite", "TPU v6 lite"):
        if shape == (2, 2, 1):
            return by_place[list(_RING_2x2)].reshape(sizes)
        if count == 8:
            return by_place[list(_RING_V5E_8)].reshape(sizes)
        if shape == (4, 4, 1) and max(sizes) == count:
            return by_place[list(_RING_V5E_4x4)].reshape(sizes)
    if name == "TPU v5" and shape == (2, 2, 2) and count == 8:
        return by_place[list(_RING_V5P_2x2x2)].reshape(sizes)
    if name == "TPU7x" and count % 8 == 0 and count <= 32 and shape[0] <= 2 and shape[1] <= 2:
        starts = np.arange(0, count, 8)[:, None]
        return listed[(starts + np.array(_RING_OF_8)).ravel()].reshape(sizes)
    torus = np.empty((*shape, of.devices_per_chip), int)
    torus[tuple(coords.T)] = listed
    return _along_torus(torus if of.devices_per_chip > 1 else torus[..., 0], sizes)


def _along_torus(torus: np.ndarray, sizes: tuple[int, ...]) -> np.ndarray:
    """Mesh axes along the axes of the torus, the last mesh axis first; torus axes are split where they must be."""
    taken = _whole_axes(torus.shape, sizes)
    table = _split_axes(torus.shape, sizes) if taken is None else None
    if table is None:
        assert taken is not None
        return torus.transpose([axis for axes in taken for axis in axes]).reshape(sizes)
    # Every torus axis as a row of parts, one for each mesh axis; then the parts of one mesh axis side by side.
    parts = torus.reshape(table.ravel())
    order = np.arange(table.size).reshape(table.shape).T.ravel()
    return parts.transpose(order).reshape(sizes)


def _whole_axes(shape: tuple[int, ...], sizes: tuple[int, ...]) -> list[tuple[int, ...]] | None:
    """For each mesh axis the torus axes that it takes, as many as possible; None where whole axes will not do."""
    free = list(shape)
    taken: list[tuple[int, ...]] = [()] * len(sizes)
    rank = (1, 2, 3, 0)  # a chip's own devices are the best joined, then x, y, z
    for mesh_axis in reversed(range(len(sizes))):
        for many in range(len(shape), 0, -1):
            options = itertools.combinations(range(len(shape)), many)
            if len(shape) == 4:
                options = sorted(options, key=lambda o: (min(rank[a] for a in o), sum(rank[a] for a in o)))
            fitting = (o for o in options if math.prod(free[a] for a in o) == sizes[mesh_axis])
            found = next(fitting, None)
            if found is not None:
                taken[mesh_axis] = found
                for axis in found:
                    free[axis] = 0
                break
        else:
            if sizes[mesh_axis] > 1:
                return None
    return taken


def _split_axes(shape: tuple[int, ...], sizes: tuple[int, ...]) -> np.ndarray:
    """The part of each torus axis that each mesh axis takes: integers, torus axis x mesh axis."""
    table = np.ones((len(shape), len(sizes)), int)
    for mesh_axis in reversed(range(len(sizes))):
        used = table.prod(axis=1)

        def worth(option: tuple[int, ...], used: np.ndarray = used) -> tuple[object, ...]:
            whole = [n for n, of in zip(option, shape, strict=True) if n == of]
            shared = math.prod(n for n, before in zip(option, used, strict=True) if before > 1)
            return math.prod(whole), sum(n > 1 for n in whole), shared, option

        free = [of // n for of, n in zip(shape, used, strict=True)]
        table[:, mesh_axis] = max(_factorings(sizes[mesh_axis], free), key=worth)
    return table


def _factorings(size: int, free: Sequence[int]) -> list[tuple[int, ...]]:
    """Every way to write a size as a product of divisors of the given numbers."""
    if not free:
        return [()] if size == 1 else []
    return [
        (n, *rest)
        for n in range(1, math.gcd(size, free[0]) + 1)
        if size % n == 0 and free[0] % n == 0
        for rest in _factorings(size // n, free[1:])
    ]
