"""The links of a torus one by one, against counts and against the messages that `routes` counts."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardviz.costs.machine import Machine
from shardviz.costs.routes import link_load, torus_links
from tests.costs.machines import TARGETS

TPUS = [target for target in TARGETS if target.startswith("tpu")]


def apart(machine: Machine, one, other) -> list[int]:
    """Steps between two chips along each axis, the shorter way where it wraps."""
    found = []
    for a, b, size, wraps in zip(one, other, machine.shape, machine.wrap, strict=True):
        far = abs(a - b)
        found.append(min(far, size - far) if wraps else far)
    return found


@pytest.mark.parametrize("target", TPUS)
def test_there_are_as_many_links_as_a_torus_has(target: str):
    machine = Machine.of(target)
    chips = math.prod(machine.shape) * machine.num_slices
    wanted = sum(
        chips if wraps else chips // size * (size - 1)
        for size, wraps in zip(machine.shape, machine.wrap, strict=True)
        if size > 1
    )
    links = torus_links(machine)
    assert len(links) == len(set(links)) == wanted
    for link in links:
        far = apart(machine, link.one, link.other)
        assert far[link.axis] == sum(far) == 1
        assert link.wraps == (link.other[link.axis] < link.one[link.axis])


def test_gpus_have_no_torus():
    assert torus_links(Machine.of("gpu h100:2x8")) == []


@settings(max_examples=100)
@given(st.sampled_from(TPUS), st.data())
def test_a_message_passes_no_more_links_than_it_must(target: str, data: st.DataObject):
    machine = Machine.of(target)
    count = machine.size // machine.num_slices
    one, other = (data.draw(st.integers(0, count - 1)) for _ in range(2))
    ends = [tuple(machine.coords()[d, :3].tolist()) for d in (one, other)]
    steps = sum(apart(machine, *ends))
    assert link_load(machine, np.array([one]), np.array([other]))[1] == steps
