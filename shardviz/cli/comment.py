"""`shardviz comment`: the effect of a change on a project's steps, as Markdown for a pull request.

Changes beyond a threshold are listed, largest first; a fold has the complete comparison. The output is empty if no
change exceeds the threshold.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from shardviz.cli.base import base_of
from shardviz.cli.frame import Answer
from shardviz.cli.schemas import Changed, CommentData, StepChange
from shardviz.cli.steps import each_program, project, step_of, wanted
from shardviz.errors import ShardvizError, TargetError
from shardviz.judge.comparison import compare_reports
from shardviz.paint.markdown import markdown_of
from shardviz.records.findings import SEVERITIES
from shardviz.view.comparison import amount_text
from shardviz.view.document import Document, code, document, line, paragraph, words

_BETTER_WORSE = {
    "step": ("faster", "slower"),
    "peak": ("needs less memory", "needs more memory"),
    "arguments": ("holds less", "holds more"),
    "operand bytes": ("communicates less", "communicates more"),
    "FLOPs": ("computes less", "computes more"),
}
"""Amount of a comparison → the words for less of it and for more of it, most important amount first."""
MARK = "<!-- shardviz -->"
"""The mark by which a bot finds its earlier comment."""
_MOST_ROWS = 5
_Pair = tuple[str, Any, Any, str | None]
"""A step's name, its two reports, and the machine that both are timed on."""


def comment(names: tuple[str, ...], base: str, threshold: str, **options: Any) -> Answer:
    least = _share(threshold)
    changes = [change for pair in _pairs(names, base, options) if (change := changed(*pair, threshold=least))]
    text = "\n\n".join((MARK, *(markdown for _, markdown in changes))) if changes else ""
    return Answer(text, record=CommentData(steps=tuple(change for change, _ in changes), markdown=text))


def _share(text: str) -> float:
    try:
        share = float(text.removesuffix("%")) / 100
    except ValueError:
        share = -1.0
    if not (text.endswith("%") and share >= 0):
        raise ShardvizError(f"--threshold {text!r}: expected a share such as 1%")
    return share


def _pairs(names: Sequence[str], base: str, options: Mapping[str, Any]) -> Iterator[_Pair]:
    """Yield each step's name, its report at the base (or why there is none), its report now, and the machine."""
    of = project()
    steps = each_program(wanted(names, options, of), of)
    with base_of(base, steps, options) as before:
        for name, settings in steps.items():
            step = step_of(name, settings, of)
            after = step.report()
            yield name, before.report(name), after, None if step.cost(after) is None else step.target


def changed(
    name: str, before: Any, after: Any, target: str | None = None, *, threshold: float
) -> tuple[StepChange, str] | None:
    """Return the changes of a step by at least `threshold` of the base's number, and their Markdown; None if there are
    none. Both reports are timed on `target`, or each on its own. `before` may be the reason why there is no report."""
    if isinstance(before, str):
        text = paragraph(words(before.splitlines()[0]), label="the base has no report to compare with")
        document_of = Document(title=(words("shardviz:"), code(name)), blocks=(text,))
        return StepChange(step=name, problem=before), markdown_of(document_of)
    comparison = compare_reports({"base": before, "head": after}, target=target)
    judged = [amount for what in _BETTER_WORSE for amount in comparison.amounts if amount.name == what]
    amounts = tuple(amount for amount in judged if _beyond(amount, threshold))
    least = threshold * max(comparison.amount("operand bytes").before or 0, 1)
    collectives = tuple(change for change in comparison.collectives if abs(change.bytes) > least)
    old, now = (_findings(report, target) for report in (before, after))
    gone, new = ([f for key, f in one.items() if key not in other] for one, other in ((old, now), (now, old)))
    if not (amounts or collectives or gone or new):
        return None
    brief = dataclasses.replace(comparison, amounts=amounts, collectives=collectives[:_MOST_ROWS], values=())
    blocks = [
        *(
            paragraph(words(finding.text), line(finding.source, of.source), label=label)
            for label, some, of in (("new", new, after), ("gone", gone, before))
            for finding in some
        ),
        *document(brief).blocks,
    ]
    title = (words("shardviz:"), code(name), words(_headline(amounts)))
    whole = markdown_of(document(comparison))
    fold = f"<details><summary>everything that differs</summary>\n\n{whole}\n\n</details>"
    change = StepChange(
        step=name,
        amounts=tuple(Changed(name=a.name, unit=a.unit, base=a.before, head=a.after) for a in amounts),
        new=tuple(finding.text for finding in new),
        gone=tuple(finding.text for finding in gone),
        collectives=len(collectives),
    )
    return change, "\n\n".join((markdown_of(Document(title=title, blocks=tuple(blocks))), fold))


def _findings(report: Any, target: str | None) -> dict[str, Any]:
    """Return id → finding of the errors and warnings, with seconds if the machine has a known speed."""
    try:
        findings = report.findings_on(target or report.target)
    except TargetError:
        findings = report.findings
    return {f.id: f for f in findings if f.severity in SEVERITIES[:2]}


def _beyond(amount: Any, threshold: float) -> bool:
    """Return whether a number differs by at least `threshold` of the base's, or is known for one side only."""
    if amount.difference is None:
        return amount.before is not amount.after
    return amount.difference != 0 and abs(amount.difference) >= threshold * amount.before


def _headline(amounts: Sequence[Any]) -> str:
    """`slower, 5.10 s → 6.00 s; needs less memory, 80.0 GB → 60.0 GB`."""
    changes = [
        f"{_BETTER_WORSE[a.name][a.difference > 0]}, {amount_text(a.before, a.unit)} → {amount_text(a.after, a.unit)}"
        for a in amounts
        if a.difference is not None
    ]
    return "; ".join(changes[:2]) or "other findings"
