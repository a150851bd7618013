"""The law of the dry run: it dispatches what a real run dispatches, with the same results and the same live bytes."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.runs.scripts_on_8 import SCRIPTS
from tests.truth import UNOPTIMIZED, answers_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def both():
    """Script → (the programs of its dry run, those of its real run on 8 devices of the CPU)."""
    return json.loads(answers_of("-m", "tests.runs.scripts_on_8", **UNOPTIMIZED))


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_dry_run_dispatches_what_a_real_run_does(name, both):
    dry, real = both[name]
    assert [row[:3] for row in dry] == [row[:3] for row in real]
    assert dry, "nothing was dispatched to several devices"


@pytest.mark.parametrize("name", SCRIPTS)
def test_what_a_dry_run_knows_is_what_a_real_run_computes(name, both):
    for (program, *_, known), (*_, values) in zip(*both[name], strict=True):
        for number, (one, other) in enumerate(zip(known, values, strict=True)):
            assert one is None or np.allclose(one, other, rtol=1e-5, equal_nan=True), (program, number)


def test_a_dry_run_knows_counters_keys_and_schedules_but_no_loss(both):
    known = [(name, values) for name, _, _, values in both["a_state_that_counts"][0]]
    (name, last), doubled = known[3], known[-1][1]
    of_state, of_metrics = [True] * 4, [False, True, True, True, True, False, True, False, False]
    assert (name, [value is not None for value in last]) == ("step", of_state + of_metrics)
    assert (last[1], doubled) == ([5], [[10], None])
    of_shard_map = [values for name, _, _, values in both["a_count_in_a_shard_map"][0] if name == "body"]
    assert [(count, key is not None, *sums) for count, key, *sums in of_shard_map] == [
        ([n], True, None, None) for n in (4, 5, 6)
    ]
    forward = [values for name, _, _, values in both["a_cache_that_is_filled"][0] if name == "forward"]
    assert [position for _, position, _ in forward] == [[5], [6], [7], [8]]
