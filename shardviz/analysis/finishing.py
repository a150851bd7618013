"""What only a finished compile tells: machine code's size, XLA's own analyses, and how collectives go."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping

from shardviz import diagnose, hlo
from shardviz.records import Cost, Stated
from shardviz.report import Report

CODE = "generated_code_size_in_bytes"


def finished(report: Report, stated: str, final: str) -> Report:
    """A compiled report with what its finished executable says.

    Args:
        report: of level `compiled`.
        stated: JSON of `memory` and `cost`, as `_jax.finished_numbers` has them.
        final: the executable's program.
    """
    facts = json.loads(stated)
    memory, cost = report.memory, report.cost or Cost(0.0)
    if memory is not None and facts["memory"]:
        memory = dataclasses.replace(memory, stated=facts["memory"], code=code_size(facts["memory"]))
    stated_by_cost = stated_cost(facts["cost"])
    lacks = {
        "how large the machine code is": memory is None or memory.code is None,
        "what memory_analysis() would": not facts["memory"],
        "what cost_analysis() would": stated_by_cost is None,
    }
    words = hlo.algorithms(hlo.parse(final))
    runs = tuple(
        dataclasses.replace(run, algorithm=words.get(run.collective.name, run.algorithm))
        for run in report.target_collectives
    )
    return dataclasses.replace(
        report,
        memory=memory,
        cost=dataclasses.replace(cost, stated=stated_by_cost),
        target_collectives=runs,
        stages={**report.stages, "finished": final},
        diagnostics=diagnose.not_stated(report.target, [what for what, lacks_it in lacks.items() if lacks_it])
        + report.diagnostics,
    )


def unfinished(report: Report, why: BaseException) -> Report:
    """A compiled report that stands, though its compile did not come to an end."""
    return dataclasses.replace(report, diagnostics=diagnose.not_finished(str(why)) + report.diagnostics)


def code_size(memory: Mapping[str, int]) -> int | None:
    """Bytes of machine code, of the numbers of `memory_analysis()`; a compiler that does not know says 0."""
    return memory.get(CODE) or None


def stated_cost(cost: Mapping[str, float] | None) -> Stated | None:
    """The record of `cost_analysis()`'s numbers; None where there are none."""
    if not cost:
        return None
    seconds = cost.get("optimal_seconds", -1.0)
    return Stated(
        cost.get("flops"),
        cost.get("bytes accessed"),
        cost.get("transcendentals"),
        seconds if seconds >= 0 else None,
    )
