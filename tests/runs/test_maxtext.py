"""A step of MaxText's own `train_compile`, run dry and compiled by shardviz, against what MaxText itself compiles."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest

import shardviz as sv
from tests.ask.counting import KINDS
from tests.truth import answers_of

SCRIPT = Path(__file__).with_name("maxtext_truth.py")


@pytest.mark.long
@pytest.mark.skipif(importlib.util.find_spec("maxtext") is None, reason="not installed here: maxtext")
def test_the_compiled_report_is_of_the_program_that_maxtext_compiles(tmp_path):
    printed = answers_of(SCRIPT, "theirs", tmp_path)
    answers_of(SCRIPT, "ours", tmp_path)
    report = sv.Report.from_json((tmp_path / "report.json").read_text())
    theirs, ours = json.loads((tmp_path / "memory.json").read_text()), report.memory
    assert ours is not None
    sizes = {
        "argument_size_in_bytes": ours.arguments,
        "output_size_in_bytes": ours.outputs,
        "alias_size_in_bytes": ours.aliased,
        "peak_memory_in_bytes": ours.peak,
        "total_allocation_bytes": ours.needed,
    }
    assert {name: theirs[name] for name in sizes} == sizes
    assert f"argument_size_in_bytes={ours.arguments}, output_size_in_bytes={ours.outputs}" in printed

    (file,) = tmp_path.glob("*jit_train_step*.after_optimizations.txt")
    names = [run.collective.name for run in report.target_collectives]
    assert sorted(names) == sorted(re.findall(rf"%([\w.-]+) = .* (?:{KINDS})(?:-start)?\(", file.read_text()))
    assert {"all-gather", "all-reduce", "all-to-all"} <= {name.partition(".")[0] for name in names}
    assert _instructions(file.read_text()) == _instructions(report.stages["optimized"])


def _instructions(text: str) -> list[str]:
    """The lines of HLO, without source lines and the values of constants, which a dump may leave out."""
    lines = re.findall(r"^\s+(?:ROOT )?%.*$", text, re.MULTILINE)
    return [re.sub(r"(?:metadata=\{|stack_frame_id=|constant\().*", "", line) for line in lines]
