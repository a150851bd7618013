"""The failures of a check: each has the name of a rule, numbers and a source line.

| rule | fails if |
|---|---|
| `golden` | the report differs from its golden file |
| `forbid:TEXT` | there is such a collective |
| `max-step-time`, `max-memory` | a budget is exceeded, or the level cannot decide |
| `gathered:ARGUMENT` | more of an argument is gathered or sent than at the base |
| `new:FINDING` | there is a warning or error that the base does not have |
| `base` | the base has the step, but it cannot be imported or traced there |
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from shardviz.caching import cached_property
from shardviz.cli.answers import step_data
from shardviz.cli.base import Broken
from shardviz.cli.bounds import bounds
from shardviz.cli.naming import collectives_of
from shardviz.cli.schemas import CheckData, CheckedStep, Failure
from shardviz.cli.steps import LoadedStep
from shardviz.costs.step_cost import StepCost, memory_parts
from shardviz.errors import ContractError, ShardvizError
from shardviz.judge.changes import SourceLine
from shardviz.judge.comparison import Comparison, ComparisonData, compare_reports
from shardviz.judge.report import Report
from shardviz.records import Collective, Finding
from shardviz.records.amounts import format_bytes, format_change, format_seconds, plural
from shardviz.records.collectives import axes_words
from shardviz.records.groups import grouped
from shardviz.records.limits import amount_of
from shardviz.view.document import Block, Document, Section, paragraph, section, words

_MORE = 1.01
"""An argument counts as sent more if its bytes grow by at least this factor."""


@dataclass(frozen=True, kw_only=True)
class StepCheck:
    """A step to check.

    Attributes:
        cost: the step's cost; None if the machine has no known speed.
        base: the report of another revision, or why there is none; None if no base was requested.
        folder: the folder of golden files.
        update: whether to rewrite the golden files.
        accept: the rules that may fail.
    """

    step: LoadedStep
    report: Report
    cost: StepCost | None
    base: Report | str | None
    folder: str
    update: bool = False
    accept: Sequence[str] = ()

    def checked(self) -> CheckedStep:
        every = list(self._failures())
        whole = {rule for rule in self.accept if not rule.endswith("*")}
        begins = tuple(rule[:-1] for rule in self.accept if rule.endswith("*"))
        accepted = [f for f in every if f.rule in whole or f.rule.startswith(begins)]
        failures = [f for f in every if f not in accepted]
        difference = self._comparison
        return CheckedStep(
            name=self.step.name,
            program=self.report.program,
            level=self.report.level,
            target=self.step.target,
            ok=not failures,
            failures=failures,
            accepted=accepted,
            step=step_data(self.cost),
            base=step_data(self._base_cost),
            comparison=difference and msgspec.convert(json.loads(difference.to_json()), ComparisonData),
            note=self.base if isinstance(self.base, str) and not isinstance(self.base, Broken) else "",
        )

    @cached_property
    def _base_cost(self) -> StepCost | None:
        return self.step.cost(self.base) if isinstance(self.base, Report) else None

    @cached_property
    def _comparison(self) -> Comparison | None:
        if not isinstance(self.base, Report):
            return None
        target = None if self.cost is None else self.step.target
        return compare_reports(("base", self.base), ("now", self.report), target=target)

    def _failures(self) -> Iterator[Failure]:
        settings = self.step.settings
        if settings.golden:
            yield from self._golden(Path(self.folder) / settings.golden)
        for text in settings.forbid:
            yield from self._forbidden(text)
        if settings.max_step_time:
            yield from self._time(settings.max_step_time)
        if settings.max_memory:
            yield from self._memory(settings.max_memory)
        if isinstance(self.base, Broken):
            yield Failure(rule="base", text=f"the base has this step, but no report of it can be made: {self.base}")
        if isinstance(self.base, Report):
            yield from self._gathered(self.base)
            yield from self._new(self.base)

    def _golden(self, file: Path) -> Iterator[Failure]:
        if (limits := bounds()) is not None:
            limits.check_file("--golden", file)
        try:
            self.report.check_golden(file, tolerance=self.step.settings.tolerance, update=self.update)
        except ContractError as error:
            yield Failure(rule="golden", text=str(error).replace("update=True (pytest --update-goldens)", "--update"))

    def _forbidden(self, text: str) -> Iterator[Failure]:
        wanted = collectives_of(text, argument="--forbid")
        try:
            which = self.report.collectives.where(**wanted)
        except ShardvizError as error:
            raise ShardvizError(f"--forbid {text!r}: {error}") from error
        if which:
            most = max(which, key=lambda c: c.assumed_bytes)
            many = f"there {'is' if len(which) == 1 else 'are'} {plural(len(which), 'such collective')}"
            yield Failure(rule=f"forbid:{text}", text=f"{many}:\n{which.listed()}", line=_line(most))

    def _time(self, limit: str) -> Iterator[Failure]:
        if self.cost is None:
            raise ShardvizError(
                "--max-step-time: a step's time needs a machine; give --target, such as 'tpu v5p:4x4x4'"
            )
        if limit.startswith("+"):
            before, now = self._of_base("max-step-time", limit), self.cost.seconds
            yield from self._grown("max-step-time", limit, before and before.seconds, now=now, form=format_seconds)
        else:
            yield from self._required("max-step-time", step_time=f"<= {limit}")

    def _memory(self, limit: str) -> Iterator[Failure]:
        if limit.startswith("+"):
            self._of_base("max-memory", limit)
            was = sum(memory_parts(self.base).values()) if isinstance(self.base, Report) else None
            now, level = sum(memory_parts(self.report).values()), f", by level {self.report.level}"
            yield from self._grown("max-memory", limit, was, now=now, form=format_bytes, more=level)
        elif limit.endswith("%"):
            if self.cost is None:
                raise ShardvizError(
                    f"--max-memory {limit}: this limit is relative to a machine; give --target, such as 'tpu v5p:4x4x4'"
                )
            needs, share = self.cost.needs, amount_of(limit, "", "--max-memory")
            of = f"{needs.text} of {format_bytes(needs.usable)}"
            text = ""
            if needs.usable is None:
                text = f"the memory of a device of {self.step.target} is not known"
            elif needs.total > share * needs.usable:
                text = f"{of}, {needs.total / needs.usable:.1%}"
            elif not needs.complete:
                text = f"not known at level {self.report.level} ({of}, no plan); --level compiled tells"
            if text:
                yield Failure(rule="max-memory", text=f"{limit}: {text}")
        else:
            yield from self._required("max-memory", memory=f"<= {limit}")

    def _grown(
        self,
        rule: str,
        limit: str,
        was: float | None,
        *,
        now: float | None,
        form: Callable[[float], str],
        more: str = "",
    ) -> Iterator[Failure]:
        """Yield a failure if a number exceeds the base's by more than a share such as `+5%`, or is unknown."""
        share = amount_of(limit[1:], "", f"--{rule}")
        if was is None or now is None:
            why = f"level {self.report.level} counts no FLOPs"
            if was is None and isinstance(self.base, str):
                why = f"the base has no report: {self.base}"
            yield Failure(rule=rule, text=f"{limit}: not known, because {why}")
        elif now > was * (1 + share):
            change = f"{form(was)} → {form(now)} ({format_change(now / was)})"
            yield Failure(rule=rule, text=f"{limit}: {change}{more}")

    def _required(self, rule: str, **wanted: Any) -> Iterator[Failure]:
        try:
            self.report.require(**wanted, target=self.step.target)
        except ContractError as error:
            yield Failure(rule=rule, text=str(error).partition("\n")[2].strip())
        except ShardvizError as error:
            raise ShardvizError(f"--{rule}: {error}") from error

    def _of_base(self, option: str, limit: str) -> StepCost | None:
        if self.base is None:
            raise ShardvizError(
                f"--{option} {limit}: this limit is relative to a base; give --base, such as --base main"
            )
        return self._base_cost

    def _gathered(self, base: Report) -> Iterator[Failure]:
        """Yield a failure for each argument of which more bytes are sent between devices than at the base."""
        before, now = _sent(base), _sent(self.report)
        for name, sent in sorted(now.items(), key=lambda item: -_bytes(item[1])):
            was, moved = _bytes(before.get(name, ())), _bytes(sent)
            if moved <= was * _MORE:
                continue
            places = {SourceLine.of(c.source, base.source) for c in before.get(name, ())}
            new = [c for c in sent if SourceLine.of(c.source, self.report.source) not in places] or sent
            most = max(new, key=lambda c: _bytes([c]))
            kind = "gathered" if most.kind == "all-gather" or "windowed" in most.facts else f"sent ({most.kind})"
            before_that = f"{format_bytes(was)} before" if was else "none before"
            amount = f"{format_bytes(moved)} of it on each device in a step, {before_that}"
            head = f"{name} is {kind} over {axes_words(most.axes)}: {amount}"
            where = f"{most.lines_text}  {most.source.text_in(self.report.source)}" if most.source else ""
            yield Failure(rule=f"gathered:{name}", text=f"{head}\n{where}".rstrip(), line=_line(most))

    def _new(self, base: Report) -> Iterator[Failure]:
        """Yield a failure for each warning or error that the base does not have."""
        old = {_meaning(f, base) for f in base.findings} | {f.id for f in base.findings}
        for finding in self.report.findings:
            if finding.severity == "note" or {finding.id, _meaning(finding, self.report)} & old:
                continue
            text = f"{finding.severity}: {finding.text}"
            yield Failure(rule=f"new:{finding.id}", text=text, line=_line(finding))


def refuse_unknown_axes(cases: Sequence[StepCheck]) -> None:
    """Raise ShardvizError if `--forbid` names an axis that no step has: such a rule is a typing error and could never
    fail."""
    names = list(dict.fromkeys(axis for case in cases for axis in case.report.mesh.names))
    for case in cases:
        for text in case.step.settings.forbid:
            axes = collectives_of(text, argument="--forbid").get("axes", "")
            for axis in filter(None, map(str.strip, axes.split(","))):
                if axis not in names:
                    raise ShardvizError(
                        f"--forbid {text!r}: no mesh has an axis {axis!r}; there are {', '.join(names)}"
                    )


def _sent(report: Report) -> dict[str, list[Collective]]:
    """Return argument → the collectives that move it. Sums are omitted, because they gather nothing."""
    names, sums = {v.name for v in report.arguments}, ("all-reduce", "reduce-scatter")
    return grouped((c.operand, c) for c in report.collectives if c.operand in names and c.kind not in sums)


def _bytes(sent: Sequence[Collective]) -> float:
    """Return the bytes on a device in a step, before or after the collective, whichever is larger."""
    return sum(max(c.operand_bytes, c.result_bytes) * (1 if c.count is None else c.count) for c in sent)


def _line(subject: Collective | Finding) -> str:
    return subject.source.short if subject.source else ""


def _meaning(finding: Finding, report: Report) -> tuple[object, ...]:
    """Return a finding's rule, axes and place, which stay equal when lines above it are edited."""
    return finding.rule, finding.axes, SourceLine.of(finding.source, report.source) if finding.source else finding.value


def check_document(result: CheckData) -> Document:
    """Return the verdict and a section per step."""
    failed = [step for step in result.steps if not step.ok]
    against = f", against {result.against}" if result.against else ""
    steps = plural(len(result.steps), "step")
    verdict = f"{len(failed)} of {steps} FAILED" if failed else f"{steps} ok"
    return Document(title=words(f"{verdict}{against}", strong=True), blocks=tuple(map(_section, result.steps)))


def _section(step: CheckedStep) -> Section:
    numbers = []
    if step.step is not None:
        was = "" if step.base is None else f" (was {format_seconds(step.base.seconds)})"
        numbers.append(f"step {format_seconds(step.step.seconds)}{was}")
        about = "" if step.step.memory_is_whole else "about "
        of = f" of {format_bytes(step.step.usable_bytes)}" if step.step.usable_bytes else ""
        numbers.append(f"memory {about}{format_bytes(step.step.memory_bytes)}{of}")
    blocks: list[Block] = [paragraph(f"{step.program}, level {step.level}, target {step.target}", quiet=True)]
    blocks += [paragraph(", ".join(numbers))] if numbers else []
    blocks += [paragraph(f"no base to compare with: {step.note}")] if step.note else []
    for failure in step.failures:
        head, *rest = failure.text.split("\n")
        blocks += [paragraph(words(failure.rule, strong=True), words(head))]
        blocks += [paragraph(f"  {line.strip()}") for line in rest]
    blocks += [paragraph(f"accepted: {failure.rule}", quiet=True) for failure in step.accepted]
    return section(f"{step.name}: {'ok' if step.ok else 'FAILED'}", *blocks)
