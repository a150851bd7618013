"""What tests of truth share: answers asked of a process without shardviz in it, and a report put into their terms."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from shardviz.judge.report import Report
from shardviz.notation.spec import axis_name

UNOPTIMIZED = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
"""Has LLVM spend no time on what is compiled for CPUs: neither HLO nor the memory plan depends on it."""


ROOT = Path(__file__).parents[1]


def answers_of(script: str | Path, *arguments: object, devices: int = 0, **environment: str) -> str:
    """What a script, or `"-c", code`, prints in an interpreter of its own, with so many simulated devices if a number
    is given; fails with what it said if it fails.
    """
    if devices:
        environment["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices}"
    done = subprocess.run(
        [sys.executable, str(script), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=600,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def filled_once(factory: pytest.TempPathFactory, script: Path, devices: int = 0) -> Path:
    """A folder that a script fills, once for all processes of a run of the tests: `python script FOLDER`, with so many
    simulated devices if a number is given."""
    base = factory.getbasetemp()
    run = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = run / f"{script.parent.name}_{script.stem}"
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the others wait
        if not (folder / "filled").exists():
            folder.mkdir()
            answers_of(script, folder, devices=devices, **UNOPTIMIZED)
            (folder / "filled").touch()
    return folder


def counted(report: Report) -> Counter:
    """A report's collectives as `counting.count` has those of a text:
    (kind, axes, dtype, operand bytes, result bytes, runs) → how many.
    """
    found = Counter()
    for c in report.collectives:
        axes = frozenset(axis_name(a) for a in c.axes)
        found[c.kind, axes, c.dtype, c.operand_bytes, c.result_bytes, c.count] += 1
    return found
