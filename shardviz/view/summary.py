"""The explorer in a few lines, the same on every run: for tests, diffs, terminals and screen readers."""

from __future__ import annotations

from shardviz.explorer.explorer import ExplorerState
from shardviz.records import Memory
from shardviz.records.amounts import format_bytes, plural
from shardviz.records.sums import sum_collectives, total_of
from shardviz.view import cards  # noqa: F401 - registers its builder
from shardviz.view.document import (
    Block,
    Column,
    Document,
    Section,
    Table,
    axes,
    document,
    nbytes,
    paragraph,
    row,
    shorten,
    value_spec,
    words,
)
from shardviz.view.step_cost import headline, memory_words
from shardviz.view.values import values_headline

_PAIR = (Column(""), Column("", right=True))
_MOST = 400


@document.register
def summary(state: ExplorerState) -> Document:
    """The plan and the headline numbers; no timings, so that two runs can be compared word for word."""
    report = state.report
    mesh = str(report.mesh) or "a mesh with no axes"
    arguments = tuple(
        row(words(shorten(v.name, 40)), value_spec(v), nbytes(v.bytes_per_device)) for v in report.arguments
    )
    table = Table(columns=(_PAIR[0], *_PAIR), rows=arguments, first=_MOST, most=_MOST, noun="argument")
    whole = total_of(report.collectives)
    runs = f", {whole.runs_text} runs a step" if whole.operations else ""
    moved = tuple(row(axes(t.axes), words(t.bytes_text)) for t in sum_collectives(report.collectives, "axes"))
    blocks: list[Block] = [
        Section(title="arguments", lead=(words(values_headline(report.arguments)),), blocks=(table,)),
        Section(
            title="collectives",
            lead=(words(plural(whole.operations, "operation") + runs if whole.operations else "none"),),
            blocks=(Table(columns=_PAIR, rows=moved),) if moved else (),
        ),
    ]
    facts = [("", "")] if report.memory is None else [_plan(report.memory)]
    if state.cost is not None:
        facts.append((f"step on {state.target}", headline(state.cost)))
        facts.append((f"memory on {state.target}", memory_words(state.cost.needs)))
    facts.append((f"no cost on {state.target}", state.cost_error))
    problems = sorted({d.rule for d in report.findings if d.severity != "note"})
    count = sum(d.severity != "note" for d in report.diagnostics)
    facts.append((plural(count, "problem"), ", ".join(problems)))
    if state.failure:
        facts.append((state.failure["kind"], state.failure["message"].splitlines()[0]))
    if state.error:
        facts.append(("refused", state.error["message"].splitlines()[0]))
    blocks += [paragraph(said, label=label) for label, said in facts if said]
    if len(state.deck.cards) > 1:
        blocks.append(Section(title="plans", blocks=document(state.deck).blocks))
    title = words(f"{report.program} on {mesh} ({plural(report.mesh.size, 'device')}), {report.level}")
    return Document(title=title, blocks=tuple(blocks), mesh=report.mesh)


def _plan(memory: Memory) -> tuple[str, str]:
    parts = (
        f"{format_bytes(memory.set_aside)} set aside (arguments {format_bytes(memory.arguments)}, temporaries "
        f"{format_bytes(memory.temporaries)}, outputs not aliased {format_bytes(memory.outputs - memory.aliased)}); "
        f"alive at once, at most: {format_bytes(memory.peak)}"
    )
    return f"memory per device, {memory.target} plan", parts
