"""A step of MaxText's own `train_compile`, run dry and compiled by shardviz, against what MaxText itself compiles."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import shardviz as sv
from tests.ask.counting import KINDS
from tests.truth import answers_of

SCRIPT = Path(__file__).with_name("maxtext_truth.py")


pytestmark = [pytest.mark.long, pytest.mark.tpu, pytest.mark.maxtext]


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


def test_llama_on_64_chips_needs_the_bytes_that_maxtext_compiles(tmp_path):
    """MaxText's own `train_compile` takes minutes for it. Its numbers: libtpu 0.0.50.1, docs/how_to/maxtext.md."""
    answers_of(SCRIPT, "llama", tmp_path)
    memory = sv.Report.from_json((tmp_path / "report.json").read_text()).memory
    assert memory is not None
    assert (memory.arguments, memory.outputs) == (1_508_995_072, 1_508_837_120)
    assert memory.peak == pytest.approx(9_197_840_640, rel=0.03)
    assert memory.needed == pytest.approx(9_219_025_184, rel=0.03)


def _instructions(text: str) -> list[str]:
    """The lines of HLO, without source lines and the values of constants, which a dump may leave out."""
    lines = re.findall(r"^\s+(?:ROOT )?%.*$", text, re.MULTILINE)
    return [re.sub(r"(?:metadata=\{|stack_frame_id=|constant\().*", "", line) for line in lines]
