"""The explorer in a few lines of text, the same on every run: for tests, diffs, terminals and screen readers."""

from __future__ import annotations

from shardviz.records.amounts import format_bytes, plural
from shardviz.records.sums import sum_collectives, total_of
from shardviz.session.explorer import ExplorerState
from shardviz.view.step_cost import headline, memory_words


def summary(state: ExplorerState) -> str:
    """The plan and the headline numbers; no timings, so that two runs can be compared word for word."""
    report = state.report
    mesh = str(report.mesh) or "a mesh with no axes"
    lines = [f"{report.program} on {mesh} ({plural(report.mesh.size, 'device')}), {report.level}"]
    width = min(40, max((len(v.name) for v in report.arguments), default=0))
    for value in report.arguments:
        spec = str(value.spec.canonical()) if value.spec is not None else "no PartitionSpec"
        lines.append(f"  {value.name:<{width}}  {spec}  {format_bytes(value.bytes_per_device)}")
    whole = total_of(report.collectives)
    runs = f", {whole.runs_text} runs a step" if whole.operations else ""
    lines.append(plural(whole.operations, "collective") + runs)
    for total in sum_collectives(report.collectives, "axes"):
        lines.append(f"  over {total.label}: {total.bytes_text} per device")
    if report.memory is not None:
        memory = report.memory
        lines.append(
            f"memory per device, {memory.target} plan: {format_bytes(memory.set_aside)} set aside "
            f"(arguments {format_bytes(memory.arguments)}, temporaries {format_bytes(memory.temporaries)}, "
            f"outputs not aliased {format_bytes(memory.outputs - memory.aliased)}); "
            f"alive at once, at most: {format_bytes(memory.peak)}"
        )
    if state.cost is not None:
        lines.append(f"step on {state.target}: {headline(state.cost)}")
        lines.append(f"memory on {state.target}: {memory_words(state.cost.needs)}")
    if state.cost_error:
        lines.append(f"no cost on {state.target}: {state.cost_error}")
    problems = [d for d in report.diagnostics if d.severity != "info"]
    if problems:
        lines.append(f"{plural(len(problems), 'problem')}: " + ", ".join(sorted({d.rule for d in problems})))
    if state.failure:
        lines.append(f"{state.failure['kind']}: {state.failure['message'].splitlines()[0]}")
    if state.error:
        lines.append(f"refused: {state.error['message'].splitlines()[0]}")
    return "\n".join(lines)
