"""Tries what is offered for programs of many kinds, and writes what the levels say of it, one beside the other.

    python docs/promised_and_compiled.py          # everything again, some 30 minutes
    python docs/promised_and_compiled.py 8 64     # on so many chips alone

For each program on each machine it takes the presets, the best plan that a search finds in 20 seconds, and the first
three fixes of each finding about one preset, has XLA's partitioner and the TPU's compiler read them too, and
writes `docs/promised_and_compiled.md`. It needs the extra `tpu`. Nothing is run on a device. Run it from the project's
root.
"""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import shardviz as sv
from shardviz.costs.footprint import footprint
from shardviz.costs.machine import machine_of
from shardviz.costs.step import fits
from shardviz.records.amounts import format_bytes, format_seconds
from shardviz.records.report import ASKED
from tests.programs import AXES, MACHINES, gallery_on, programs_on

PAGE = Path(__file__).with_suffix(".md")


@dataclass(frozen=True)
class Promise:
    """What was offered, and what the levels say of it.

    Attributes:
        program, chips, name: what it is of.
        seconds: level → the step.
        memory: bytes on one device: as estimated of the propagated and of the partitioned program, and by the compiler.
    """

    program: str
    chips: int
    name: str
    seconds: dict[str, float]
    memory: tuple[float, float, float]

    def off(self, level: str) -> float:
        """The step at a level by that of the compiled program."""
        return self.seconds[level] / self.seconds["compiled"]


@dataclass(frozen=True)
class Fixed:
    """What a fix was offered to save of a step, and what it saves of the compiled one.

    Attributes:
        program, chips, preset, action: what it is of, and what it changes.
        level, offered: the level at which it was tried, and the seconds that it said.
        saved, step: seconds that it saves of the compiled step, and that step.
    """

    program: str
    chips: int
    preset: str
    action: str
    level: str
    offered: float
    saved: float
    step: float


FOUND, _SEARCHED = "found by search", 20
FIXED = "fsdp"
"""The preset whose findings are fixed; the first where a program has none of this name."""


def fixed(name: str, program: sv.Program, chips: int, presets: dict[str, sv.Plan]) -> Iterator[Fixed]:
    """The first three fixes of each finding about a preset, as the partitioner has it."""
    target, _ = MACHINES[chips]
    preset = FIXED if FIXED in presets else next(iter(presets))
    step = step_of(program, presets[preset], target)
    tried = Counter[str]()
    for fix in sv.fixes(program, program.partition(presets[preset], target)).fixes:
        finding = fix.finding.id if fix.finding else ""
        tried[finding] += 1
        if tried[finding] > 3:
            continue
        saved = step - step_of(program, fix.plan, target)
        row = Fixed(name, chips, preset, fix.action, fix.level, fix.seconds or 0.0, saved, step)
        print(row, flush=True)
        yield row


def step_of(program: sv.Program, plan: sv.Plan, target: str) -> float:
    """Seconds of the compiled step."""
    return sv.cost(program.compile(plan, target), target).step.seconds


def presets_of(name: str, program: sv.Program, chips: int) -> dict[str, sv.Plan]:
    """The presets that are offered for a program, by name."""
    target, mesh = MACHINES[chips]
    presets = program.presets(dict(zip(AXES.get(name, mesh), mesh.values(), strict=True)), target=target)
    return {row.name: presets[row.name] for row in presets.rows if row.report is not None}


def promises(name: str, program: sv.Program, chips: int, plans: dict[str, sv.Plan]) -> Iterator[Promise]:
    """What is offered for a program: the presets, and the best that a search finds."""
    target, _ = MACHINES[chips]
    best = sv.search(program, target, seconds=_SEARCHED).best
    if best is not None:
        plans = plans | {FOUND: best.plan}
    for offered, plan in plans.items():
        try:
            reports = [program.propagate(plan, target), program.partition(plan, target), program.compile(plan, target)]
        except sv.errors.CompileError as error:
            print(name, chips, offered, str(error).splitlines()[0], flush=True)
            continue
        costs = [sv.cost(report, target) for report in reports]
        promise = Promise(
            program=name,
            chips=chips,
            name=offered,
            seconds={report.level: cost.step.seconds for report, cost in zip(reports, costs, strict=True)},
            memory=(
                *(footprint(report, machine_of(target)).needed for report in reports[:2]),
                sum(costs[-1].needs.parts.values()),
            ),
        )
        print(promise, flush=True)
        yield promise


def summary(rows: list[Promise], level: str) -> str:
    """How far a level's steps are from the compiled ones."""
    off = np.abs(np.array([row.off(level) for row in rows]) - 1)
    cells = [np.median(off), np.mean(off <= 0.25), off.max(), np.mean([*savings(rows, level)])]
    return f"| {level} | {' | '.join(f'{100 * cell:.0f} %' for cell in cells)} |"


def savings(rows: list[Promise], level: str) -> Iterator[bool]:
    """Whether a level says which of two plans of a program is quicker, where their compiled steps differ by a tenth."""
    for one, other in itertools.combinations(rows, 2):
        steps = [row.seconds["compiled"] for row in (one, other)]
        if (one.program, one.chips) == (other.program, other.chips) and min(steps) < 0.9 * max(steps):
            yield (one.seconds[level] < other.seconds[level]) == (steps[0] < steps[1])


def beside_the_best(rows: list[Promise]) -> Iterator[tuple[float, float, float]]:
    """For each program on each machine by how much the compiled step of what is offered is longer: of the first preset
    by the partitioner's word, and of what the search found, than that of the quickest preset that fits; and of the
    first by the partitioner's word than of the first by Shardy's."""
    for chips, program in dict.fromkeys((row.chips, row.program) for row in rows):
        here = [row for row in rows if (row.chips, row.program) == (chips, program)]
        presets, searched = ([row for row in here if (row.name == FOUND) == is_one] for is_one in (False, True))
        likely = [[row for row in presets if fits(row.memory[n], MACHINES[chips][0]).fits] or presets for n in range(3)]
        first, second = (min(likely[n], key=lambda row: row.seconds[level]) for n, level in enumerate(ASKED[:2]))
        took = lambda row: row.seconds["compiled"]
        if searched:  # else nothing fits
            best = min(map(took, likely[2]))
            yield took(second) / best - 1, took(searched[0]) / best - 1, took(second) / took(first) - 1


def page(rows: list[Promise], fixes: list[Fixed]) -> str:
    """The page."""
    fit = [[fits(needed, MACHINES[row.chips][0]).fits for needed in row.memory] for row in rows]
    small = np.array([row.memory for row, (*_, compiled) in zip(rows, fit, strict=True) if compiled])
    off = np.abs(small[:, :2] / small[:, 2:] - 1)
    median, near = 100 * np.median(off, 0), 100 * np.mean(off <= 0.25, 0)
    told = np.mean([estimated == compiled for estimated, _, compiled in fit])
    quicker = [fix for fix in fixes if fix.offered > 0.01 * fix.step and fix.level != "compiled"]
    shorter = sum(fix.saved > 0 for fix in quicker)
    missed = np.median([abs(fix.offered - fix.saved) / fix.step for fix in quicker])
    presets = 100 * np.array([*beside_the_best(rows)])
    best, worst, moved = np.sum(presets <= 0.5, 0), presets.max(0), np.sum(np.abs(presets[:, 2]) > 0.1)
    lines = [
        "# Promised and compiled",
        "",
        f"What shardviz offers for programs of many kinds (the presets, and what a search of {_SEARCHED} s finds), and",
        "what the levels say of one step of it. `propagated` is what is shown at once, marked *predicted*;",
        "`partitioned` is what an offer is confirmed by before it stands first; `compiled` is the TPU's own compiler.",
        "Each number is a walk of that level's schedule; nothing was run on a device.",
        "[Programs of others](strangers.md#estimated-and-compiled) has programs that no rule was made from.",
        "`python docs/promised_and_compiled.py` writes this page.",
        "",
        f"{len(rows)} plans. How far a level's step is from the compiled one, and how often it says which of two plans",
        "is quicker, where their compiled steps differ by a tenth:",
        "",
        "| level | median | within 25 % | most | quicker one of two right |",
        "|---|---|---|---|---|",
        summary(rows, "propagated"),
        summary(rows, "partitioned"),
        "",
        f"Whether a plan fits is told right by the estimate of its memory for {100 * told:.0f} % of them. For the",
        f"{len(small)} that fit the estimate of the propagated program is off by {median[0]:.0f} % in the median, and",
        f"within 25 % for {near[0]:.0f} %; that of the partitioned one by {median[1]:.0f} %, and for {near[1]:.0f} %.",
        "Where a plan does not fit, a compiler computes arrays again.",
        "",
        f"Of {len(presets)} programs and machines the first preset by the partitioner is the quickest that fits,",
        f"compiled, {best[0]} times, and its step at most {worst[0]:.0f} % longer. What the search finds is as quick",
        f"as that or quicker {best[1]} times, its step at most {worst[1]:.0f} % longer, or up to",
        f"{-presets[:, 1].min():.0f} % shorter.",
        f"The partitioner puts another preset first than `propagated` does {moved} times: its",
        f"compiled step is up to {-presets[:, 2].min():.0f} % shorter, and at most {worst[2]:.0f} % longer.",
        "",
        f"Of the first three fixes of each finding about the preset `{FIXED}` of each program, {len(fixes)} in all,",
        f"{len(quicker)} save a hundredth of the step and more by the partitioner's word: {shorter} of them make the",
        f"compiled step shorter. What they save of it is off by {100 * missed:.1f} % of the step in the median.",
        "",
    ]
    levels = ("propagated", "partitioned", "compiled")
    head = ("program", "plan", *levels, "partitioned / compiled", *(f"memory, {level}" for level in levels))
    for chips in dict.fromkeys(row.chips for row in rows):
        lines += [f"## {chips} chips, {MACHINES[chips][0]}", "", f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
        for row in (row for row in rows if row.chips == chips):
            cells = [row.program, row.name, *map(format_seconds, row.seconds.values())]
            cells += [f"{row.off('partitioned'):.2f}", *map(format_bytes, row.memory)]
            lines.append(f"| {' | '.join(cells)} |")
        lines += ["", "| program | fix | tried at | saves, as offered | saves, compiled | of |"]
        lines += ["|---|---|---|---|---|---|"]
        for fix in (fix for fix in fixes if fix.chips == chips):
            seconds = map(format_seconds, (fix.offered, fix.saved, fix.step))
            lines.append(f"| {' | '.join((fix.program, f'`{fix.action}`', fix.level, *seconds))} |")
        lines.append("")
    return "\n".join(lines)


def main(words: list[str]) -> None:
    """Tries everything on the machines that the words name, or on all, and writes the page."""
    rows, fixes = list[Promise](), list[Fixed]()
    for chips in map(int, words or MACHINES):
        for name, make in (programs_on(chips) | gallery_on(chips)).items():
            program = make()
            presets = presets_of(name, program, chips)
            rows += promises(name, program, chips, presets)
            fixes += fixed(name, program, chips, presets)
    PAGE.write_text(page(rows, fixes), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
