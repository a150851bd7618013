"""The law of the dry run: it dispatches what a real run dispatches, with the same results and the same live bytes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runs.scripts_on_8 import SCRIPTS

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def both():
    """Script → (the programs of its dry run, those of its real run on 8 devices of the CPU)."""
    command = [sys.executable, "-m", "tests.runs.scripts_on_8"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_dry_run_dispatches_what_a_real_run_does(name, both):
    dry, real = both[name]
    assert dry == real
    assert dry, "nothing was dispatched to several devices"
