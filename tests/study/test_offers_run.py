"""What is offered runs as it says: JAX gives one device's numbers, compiles once, and the shardings stay."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.study.offers_run import OWN, SMALL
from tests.truth import UNOPTIMIZED

pytestmark = pytest.mark.long


@pytest.mark.parametrize("name", [*SMALL, OWN])
def test_the_code_of_what_is_offered_computes_the_same_and_compiles_once(name, monkeypatch):
    for variable, value in {**UNOPTIMIZED, "JAX_PLATFORMS": "cpu"}.items():
        monkeypatch.setenv(variable, value)
    command = [sys.executable, "-m", "tests.study.offers_run", name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr[-3000:]
    ranked = json.loads(done.stdout)[name]
    others = set() if name == OWN else {"tensor parallel", "search"}
    assert {"fsdp", "donate"} | others < set(ranked) and any("constrain" in finalist for finalist in ranked)
    own = [finalist for finalist in ranked if finalist.startswith("drop the constraint") or " in place of " in finalist]
    assert bool(own) is (name == OWN), own
    for finalist, outcome in ranked.items():
        assert outcome["off"] < 1e-4, (finalist, outcome)
        assert outcome["compiles"] == 1 and outcome["same"], (finalist, outcome)
        assert outcome["donates"] == (finalist == "donate"), (finalist, outcome)
