"""The verbs that ask about a step: `report`, `why`, `fixes`, `search`, `sweep`, `timeline`."""

from __future__ import annotations

import ast
import sys
from collections.abc import Sequence
from typing import Any

import click

from shardviz.cli.answers import ReportAnswer, report_document, search_data, sweep_data
from shardviz.cli.bounds import bounds
from shardviz.cli.frame import Answer, progress, quiet
from shardviz.cli.judging import read_report
from shardviz.cli.naming import collectives_of, resolve
from shardviz.cli.steps import LoadedStep, importable, load, number_or_name, project
from shardviz.costs.timeline import timeline_of
from shardviz.errors import ShardvizError
from shardviz.notation.read import sharding
from shardviz.records.amounts import format_seconds, plural
from shardviz.records.collectives import KINDS, axes_words
from shardviz.study import fixes as fix
from shardviz.study import search as look
from shardviz.study import sweep as ask


def report(function: str | None, full: bool, **options: Any) -> Answer:
    if function is not None and function.endswith(".json"):
        if flags := [f"--{name.replace('_', '-')}" for name, value in options.items() if value not in (None, ())]:
            raise ShardvizError(
                f"{', '.join(flags)}: {function} is a finished report or run, which takes no such option; name a step"
            )
        return Answer(read_report("STEP", function)[0])
    step = load(function, **options)
    step_report = step.report()
    cost = step.cost(step_report)
    whole = report_document(step_report, cost)
    brief = whole if full else report_document(step_report, cost, brief=True)
    return Answer(brief, record=ReportAnswer(step_report, cost), whole=whole)


def why(words: Sequence[str], axis: str | None, **options: Any) -> Answer:
    if len(words) > 2:
        raise click.UsageError(f"expected [STEP] VALUE, not {len(words)} words; put VALUE in quotes")
    step = load(words[0] if len(words) == 2 else None, **options)
    wanted: Any = words[-1]
    if wanted.split(" ")[0] in KINDS:
        kept = step.program.propagate(step.plan).collectives
        which = kept.where(**collectives_of(wanted, argument="VALUE"))
        if not which:
            has = ", ".join(sorted({f"{c.kind} over {axes_words(c.axes)}" for c in kept}))
            raise ShardvizError(
                f"VALUE {wanted!r}: there is no such collective at level propagated; there are {has or 'none'}"
            )
        wanted = max(which, key=lambda c: c.assumed_bytes)
    progress(f"propagating {step.program.name} with something changed")
    return Answer(step.program.why(step.plan, wanted, axis=axis, target=None if step.target == "cpu" else step.target))


def fixes(function: str | None, findings: int | None, seconds: float | None, **options: Any) -> Answer:
    step = load(function, **options)
    step_report = step.report()
    progress("trying changes")
    asked = {"findings": findings, "seconds": seconds}
    more: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    return Answer(fix(step.program, step_report, step.target, plan=step.plan, **more))


def search(function: str | None, seconds: float, keep_mesh: bool, pins: tuple[str, ...], **options: Any) -> Answer:
    step = load(function, **options | {"level": options["level"] or "compiled"})
    if step.target == "cpu":
        raise ShardvizError(
            "--target: a search needs a machine with a known speed; give one, such as --target 'tpu v5p:4x4x4'"
        )
    fixed = dict(_pin(pin, step) for pin in pins)
    limits: dict[str, Any] = {"seconds": seconds, "mesh": step.plan.mesh if keep_mesh else None, "pins": fixed}
    states = look(step.program, step.target, plan=step.plan, level=step.settings.level, stream=True, **limits)
    state, best = None, None
    try:
        for state in states:
            if state.best is not None and state.best is not best:
                best = state.best
                progress(f"{state.seconds:.0f} s: {format_seconds(best.seconds)}, {best.text}")
    except KeyboardInterrupt:
        states.stop()
    if state is None:
        raise click.Abort
    return Answer(state, record=search_data(state, step.program))


def _pin(text: str, step: LoadedStep) -> tuple[str, Any]:
    """Return what a search keeps fixed: an argument's spec, a mesh axis's size, or the axes that shard a logical
    dimension."""
    name, sign, value = text.rpartition("=") if "P(" not in text else text.partition("=")
    if not sign:
        raise ShardvizError(f"--pin {text!r}: expected NAME=VALUE, such as \"tokens=P('data')\" or model=8")
    if "(" in value:
        return name, sharding(value, step.plan.mesh).to("pspec")
    size = number_or_name(value)
    if isinstance(size, int):
        return name, size
    return name, None if value in ("", "None") else tuple(value.split(","))


def sweep(
    function: str, *, over: tuple[str, ...], mesh: str | None, target: str | None, level: str, tokens: float | None
) -> Answer:
    importable(project())
    make = resolve("MAKE", function, call=False)
    grid: dict[str, list[Any]] = {}
    for name, values in map(_values, over):
        if name in grid:
            raise ShardvizError(f"--over {name}: it is given twice; put all its values behind one")
        grid[name] = values
        if name == "options" and (limits := bounds()) is not None:
            for value in values:
                limits.check_options("--over options", value)
    bar = sys.stderr.isatty() and not quiet()
    answers = ask(make, grid, mesh=mesh, target=target, level=level, tokens=tokens, progress=bar)
    if answers.rows and not answers.left and all(row.trouble for row in answers.rows):
        raise ShardvizError(
            f"none of the {plural(len(answers.rows), 'point')} has an answer; the first: {answers.rows[0].trouble}"
        )
    return Answer(answers, record=sweep_data(answers))


def _values(text: str) -> tuple[str, list[Any]]:
    """Return `batch=8,16` as a name and its values. A value is a Python literal if it can be read as one, otherwise
    text."""
    name, sign, values = text.partition("=")
    if not sign or not name.strip() or not values.strip():
        raise ShardvizError(f"--over {text!r}: expected NAME=A,B,... such as batch=8,16,32")

    def value(word: str) -> Any:
        try:
            return ast.literal_eval(word)
        except (SyntaxError, ValueError, RecursionError, MemoryError):  # thousands of dashes, say
            return word

    return name.strip(), [value(word.strip()) for word in values.split("|" if "|" in values else ",")]


def timeline(function: str | None, **options: Any) -> Answer:
    step = load(function, **options)
    return Answer(timeline_of(step.report(), step.target))
