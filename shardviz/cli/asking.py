"""The verbs that ask about a step: `report`, `why`, `mends`, `search`, `sweep`, `timeline`."""

from __future__ import annotations

from typing import Any

import click

from shardviz.cli.frame import Answer, verb
from shardviz.cli.steps import STEP, load

_BRIEF = ("What to look at", "Collectives", "Memory")
"""The sections of a report that are printed; a file has all."""


@verb(
    "report",
    *STEP,
    click.option("--full", is_flag=True, help="Print all that a file would have."),
    examples="""
shardviz report llama-70b --target "tpu v5p:4x4x4"
shardviz report model:train_step --args model:arguments --mesh data=8,model=8
shardviz report train --level compiled --out report.html --out report.json
shardviz report train --json | jq '.collectives[] | {kind, count, source}'
""",
)
def report(function: str | None, full: bool, **given: Any) -> Answer:
    """Say what a step communicates, what it costs, whether it fits, and what to look at.

    STEP is module:function, file.py:function, a step of pyproject.toml, or a name of the gallery.
    """
    from shardviz.cli.reports import ReportAnswer, report_document

    step = load(function, **given)
    found = step.report()
    cost = step.cost(found)
    whole = report_document(found, cost)
    brief = whole if full else report_document(found, cost, only=_BRIEF)
    return Answer(brief, record=ReportAnswer(found, cost), whole=whole)
