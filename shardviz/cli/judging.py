"""The verbs that judge: `compare` compares two reports; `check` tests steps against goldens, budgets and a revision."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from shardviz.cli.base import base_of
from shardviz.cli.bounds import bounds
from shardviz.cli.checked import StepCheck, check_document, refuse_unknown_axes
from shardviz.cli.frame import DONE, FAILED, Answer
from shardviz.cli.schemas import CheckData
from shardviz.cli.steps import each_program, project, step_of, wanted
from shardviz.errors import ShardvizError
from shardviz.files import read_whole
from shardviz.judge import compare as difference
from shardviz.judge.processes import ProcessComparison
from shardviz.judge.report import Report
from shardviz.records.runs import RunRecord


def read_report(option: str, path: str) -> tuple[Any, str | None]:
    """Return the report or dry run in a file, and the machine of its step if `shardviz report` wrote the file."""
    if (limits := bounds()) is not None:
        limits.check_file(option, path)
    try:
        text = read_whole(path).decode(errors="replace")
        if (run := run_of(text)) is not None:
            return run, None
        return Report.from_json(text), (json.loads(text).get("step") or {}).get("target")
    except ShardvizError as error:
        raise ShardvizError(
            f"{option}: {error}; `shardviz report STEP --out {path}` and `shardviz run --out {path}` write one"
        ) from error


def run_of(text: str) -> RunRecord | None:
    """Return the dry run in JSON text; None for other text. Raises ShardvizError for a damaged run."""
    return RunRecord.from_json(text) if '"shardviz_run":' in text[:40] else None


def compare(old: str, new: str, target: str | None, exit_code: bool) -> Answer:
    (before, machine), (after, other) = read_report("OLD", old), read_report("NEW", new)
    if target is None and machine == other:
        target = machine
    comparison = difference((_name(old, "old"), before), (_name(new, "new"), after), target=target)
    fails = exit_code or isinstance(comparison, ProcessComparison)  # whose job would hang
    return Answer(comparison, code=FAILED if fails and not comparison.same else DONE)


def _name(path: str, word: str) -> str:
    return word if Path(path).stem in ("old", "new", "report") else Path(path).stem


def check(names: tuple[str, ...], base: str | None, update: bool, accept: tuple[str, ...], **options: Any) -> Answer:
    of = project()
    steps = wanted(names, options, of)
    for name, settings in steps.items():
        if not (base or settings.golden or settings.forbid or settings.max_step_time or settings.max_memory):
            raise ShardvizError(
                f"{name}: there is nothing to check; give --max-step-time, --max-memory, --forbid, --golden or --base, "
                "or set them in pyproject.toml"
            )
    steps = each_program(steps, of)
    with base_of(base, steps, options) if base else contextlib.nullcontext() as before:
        cases = []
        for name, settings in steps.items():
            step = step_of(name, settings, of)
            report = step.report()
            more = {"cost": step.cost(report), "base": before.report(name) if before else None}
            cases.append(StepCheck(step=step, report=report, folder=of.folder, update=update, accept=accept, **more))
    refuse_unknown_axes(cases)  # before a golden is written
    checked = [case.checked() for case in cases]
    result = CheckData(ok=all(each.ok for each in checked), against=before.name if before else "", steps=checked)
    return Answer(check_document(result), record=result, code=DONE if result.ok else FAILED)
