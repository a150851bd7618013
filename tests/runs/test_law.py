"""The law of the dry run: it dispatches what a real run dispatches, with the same results and the same live bytes."""

from __future__ import annotations

import json

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
    assert dry == real
    assert dry, "nothing was dispatched to several devices"
