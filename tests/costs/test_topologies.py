"""Which machines a chip makes of so many devices: laws over every chip and size."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardviz.costs.chips import chips
from shardviz.costs.machine import Machine, grown, natural, sizes_near, topologies
from shardviz.errors import TargetError

NAMES = sorted(name for name, chip in chips().items() if chip.kind != "cpu")
SIZES = st.one_of(st.integers(1, 300), st.sampled_from([512, 1024, 2048, 4096, 6144, 8192, 9216]))


@given(st.sampled_from(NAMES), SIZES)
def test_each_has_so_many_devices_and_is_read_back(name, size):
    found = topologies(name, size)
    assert all(m.size == size and m.chip.name == name and Machine.of(m.text) == m for m in found)
    assert len({m.text for m in found}) == len(found)


@given(st.sampled_from(NAMES), SIZES)
def test_one_slice_goes_before_several_and_cubes_before_rods(name, size):
    found = topologies(name, size)
    if chips()[name].kind == "gpu":
        return
    assert [m.num_slices for m in found] == sorted(m.num_slices for m in found)
    surfaces = [sum(m.topology) for m in found if m.num_slices == 1]
    assert surfaces == sorted(surfaces)


@pytest.mark.parametrize("name", [n for n in NAMES if chips()[n].kind == "tpu"])
def test_no_slice_is_left_out(name):
    """Against every box of up to 64 chips that `Machine` takes."""
    per_chip, axes = chips()[name].devices_per_chip, chips()[name].ici_axes
    for chips_of_slice in (1, 2, 4, 8, 12, 16, 32, 64):
        boxes = {tuple(sorted(box)) for box in _boxes(chips_of_slice, axes) if _is_machine(name, box)}
        found = topologies(name, chips_of_slice * per_chip)
        assert {tuple(sorted(m.topology)) for m in found if m.num_slices == 1} == boxes


def _boxes(size, axes):
    if axes == 1:
        return [(size,)]
    return [(d, *rest) for d in range(1, size + 1) if size % d == 0 for rest in _boxes(size // d, axes - 1)]


def _is_machine(name, box):
    try:
        return bool(Machine.of(f"tpu {name}:{'x'.join(map(str, box))}"))
    except TargetError:
        return False


@pytest.mark.parametrize(
    ("target", "size", "expected"),
    [
        ("tpu v5p:4x4x4", 128, "tpu v5p:4x4x8"),
        ("tpu v5p:4x4x16", 64, "tpu v5p:4x4x4"),
        ("tpu v5e:4x4*2", 64, "tpu v5e:4x8*2"),
        ("tpu v5e:16x16", 512, "tpu v5e:16x16*2"),  # no slice of v5e has 512
        ("tpu v5e:4x4", 96, None),
        ("tpu v5p:4x4x4", 6, None),
        ("tpu tpu7x:2x2x1", 16, "tpu tpu7x:2x2x2"),
        ("gpu h100:32x8", 64, "gpu h100:8x8"),
        ("gpu h100:2x4", 16, "gpu h100:4x4"),  # four GPUs on a host stay four
        ("gpu h100:1x8", 3, "gpu h100:1x3"),
        ("gpu gb200:2x72", 72, "gpu gb200:1x72"),
    ],
)
def test_what_takes_the_place_of_a_machine(target, size, expected):
    found = grown(Machine.of(target), size)
    assert (found and found.text) == expected


@given(st.sampled_from(NAMES), st.integers(1, 400))
def test_sizes_near_are_the_nearest_that_there_are(name, size):
    near = sizes_near(name, size)
    assert all(natural(name, n) is not None for n in near)
    below = [n for n in near if n < size]
    assert not any(natural(name, n) for n in range((below or [0])[0] + 1, size))


def test_devices_are_chips_times_devices_of_a_chip():
    assert topologies("v3", 64)[0].num_chips == 32 and math.prod(topologies("v5p", 64)[0].topology) == 64
    assert topologies("cpu", 8) == () and topologies("v5p", 0) == ()
    assert natural("v5p", 10**9) is None and sizes_near("v5p", 10**9) == (1 << 20,)
    with pytest.raises(TargetError, match="no chip 'v9'"):
        topologies("v9", 4)
