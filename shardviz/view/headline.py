"""Above the cards: the program on its mesh, and what the last edit changed. And in brief what a device holds."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from shardviz.costs.step_cost import memory_parts
from shardviz.explorer.files import Looked
from shardviz.records.amounts import format_bytes, format_flops, plural
from shardviz.view.cards import memory_pieces
from shardviz.view.document import Document, Paragraph, paragraph, words
from shardviz.view.report import CPU_CAUTION, CPU_DETAIL, fit_text
from shardviz.view.step_cost import parts_table


def headline_pane(state: Looked) -> Document:
    """The program, its mesh and machine, and how many values the last edit has changed."""
    report = state.report
    on = (words(str(report.mesh), quiet=True), words("·", quiet=True)) if report.mesh.names else ()
    where = [words(plural(report.mesh.size, "device"), quiet=True)]
    where += [words("·", quiet=True), words(state.target, quiet=True)] if state.target != "cpu" else []
    title = (words(report.program, strong=True), *on, *where)
    return Document(title=title, blocks=tuple(_changed(state)), mesh=report.mesh)


def _changed(state: Looked) -> Iterator[Paragraph]:
    if state.changed:
        said = f"{len(state.changed):,} of {len(state.report.values):,} values"
        link = words(said, tip="show these values", selects=("changed", ""))
        yield paragraph(link, label="last edit changed", quiet=True, name="kpi-changed")


def memory_brief(state: Looked) -> Document:
    """The parts of a device's memory, whether they fit, and what it computes, in a few lines."""
    report, plan = state.report, state.report.memory
    blocks = []
    simulated = plan is not None and plan.target == "cpu" and state.cost is None
    if simulated:
        blocks.append(paragraph(*memory_pieces(state.deck.now.known), name="memory-arguments"))
        choose = words("choose a machine", tip="under the mesh", selects=("choose", "target"))
        blocks.append(paragraph(choose, words("to see whether it fits", quiet=True), name="memory-choose"))
    elif plan is not None:
        table = parts_table(memory_parts(report), None, whole="in all")
        blocks.append(dataclasses.replace(table, name="memory-table"))
    if plan is not None and (fits := fit_text(plan)):
        tone = "bad" if plan.fits is False else ""
        blocks.append(paragraph(words(fits, tone=tone, selects=("tab", "memory")), name="memory-room"))
    elif state.cost is not None:
        pieces = memory_pieces(state.deck.now.known)
        blocks.append(paragraph(*pieces, label=state.cost.machine.text, name="memory-room"))
        blocks.append(paragraph("more is known once it is compiled", quiet=True, name="memory-more"))
    elif plan is None:
        blocks.append(paragraph("known once the program is compiled", quiet=True))
    if plan is not None and not simulated:
        peak = words(
            f"alive at once, at most: {format_bytes(plan.peak)}",
            tip="the most that is in use at any one moment, by the live ranges of all values",
        )
        blocks.append(paragraph(peak, quiet=True, name="memory-peak"))
    if plan is not None and plan.target == "cpu":
        said = f"The CPU compiler's plan is {format_bytes(plan.set_aside)}. {CPU_CAUTION}" if simulated else CPU_CAUTION
        blocks.append(paragraph(words(said, tip=CPU_DETAIL), quiet=True, name="memory-caution"))
    if report.cost is not None:
        done = f"matrix products: {report.cost.at_least}{format_flops(report.cost.dot_flops)} per device and step"
        blocks.append(paragraph(done, quiet=True))
    return Document(blocks=tuple(blocks), mesh=report.mesh)
