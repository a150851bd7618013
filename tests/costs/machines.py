"""Machines, meshes on them, and devices that look like JAX's, for the tests of the cost model."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from hypothesis import strategies as st

from shardviz.costs.machine import Machine
from shardviz.notation import DeviceMesh

TARGETS = (
    *("tpu v2:2x2", "tpu v3:4x4", "tpu v4:2x2x2", "tpu v4:4x4x8", "tpu v5e:4x4", "tpu v5e:8x4", "tpu v5e:8x16"),
    *("tpu v5e:4x4*2", "tpu v5p:2x4x4", "tpu v5p:4x4x4*4", "tpu v6e:16x16", "tpu tpu7x:2x2x2", "tpu tpu7x:4x4x4"),
    *("gpu a100:4x8", "gpu h100:1x8", "gpu h100:32x8", "gpu b200:2x4", "gpu gb200:2x72", "gpu gb200:36x4"),
)
KINDS = ("all-gather", "reduce-scatter", "all-reduce", "all-to-all", "ragged-all-to-all", "collective-permute")


@dataclass(frozen=True)
class Device:
    """What `mesh_utils` reads of a JAX device."""

    id: int
    coords: tuple[int, ...]
    core_on_chip: int
    process_index: int
    slice_index: int
    device_kind: str
    platform: str


def jax_devices(machine: Machine) -> list[Device]:
    """A machine's devices, in its order; the id is the place in it."""
    columns = zip(machine.coords().tolist(), machine.processes(), machine.slices(), strict=True)
    kind, platform = machine.chip.device_kind, machine.chip.kind
    return [
        Device(i, tuple(at[:3]), at[3], int(process), int(of), kind, platform)
        for i, (at, process, of) in enumerate(columns)
    ]


def factorings(size: int, count: int) -> Iterator[tuple[int, ...]]:
    """Every way to write a size as a product of so many whole numbers, in order."""
    if count == 1:
        yield (size,)
        return
    for n in range(1, size + 1):
        if size % n == 0:
            yield from ((n, *rest) for rest in factorings(size // n, count - 1))


@st.composite
def placed(draw: st.DrawFn) -> tuple[Machine, DeviceMesh, tuple[str, ...]]:
    """A machine, a mesh of one to three axes that fits it, and some of its axes, in any order."""
    machine = Machine.of(draw(st.sampled_from(TARGETS)))
    options = list(factorings(machine.size, draw(st.integers(1, 3))))
    slices = machine.num_slices
    options = [sizes for sizes in options if slices == 1 or sizes[0] % slices == 0]
    sizes = draw(st.sampled_from(options or [(machine.size,)]))
    mesh = DeviceMesh(tuple("abc"[: len(sizes)]), sizes)
    axes = draw(st.permutations(mesh.names))
    chosen = tuple(axes[: draw(st.integers(1, len(axes)))])
    assert math.prod(sizes) == machine.size
    return machine, mesh, chosen
