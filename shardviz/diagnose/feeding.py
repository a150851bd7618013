"""Rules about results and the arguments that they replace. `findings.BRIEFS` describes each in a sentence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from shardviz.diagnose.case import Case, also_moved, and_others, moved_words, nbytes, quoted_axes, severity, total_bytes
from shardviz.diagnose.policy import GRAVE, LARGE, SLIGHT, SMALL_BYTES
from shardviz.diagnose.siblings import better_specs
from shardviz.diagnose.specs import divides, suggest_specs
from shardviz.foresee.tiles import laid_for_rows
from shardviz.layouts import itemsize
from shardviz.notation import Spec
from shardviz.notation.spec import axis_name
from shardviz.records import Collective, Finding, Suggestion, Value
from shardviz.records.amounts import format_bytes, format_seconds, plural
from shardviz.records.groups import grouped
from shardviz.records.paths import Family, common_path, segments
from shardviz.records.values import BESIDE, IN_PLACE


def pairs(case: Case) -> list[tuple[Value, Value]]:
    """Return (argument, its new value)."""
    outputs = {v.name: v for v in case.report.outputs if not v.gradient}
    return [(a, outputs[a.becomes]) for a in case.report.arguments if a.becomes in outputs]


def comes_back_otherwise(case: Case) -> Iterator[Finding]:
    """Find results with another sharding than the argument that they replace, as one finding."""
    mesh, both = case.report.mesh, ((a, r, a.spec, r.spec) for a, r in pairs(case))
    wrong = [(a, r, s, t) for a, r, s, t in both if s is not None and t is not None and not s.same_as(t, mesh)]
    if not wrong:
        return
    wrong.sort(key=lambda row: -nbytes(row[1]))
    argument, result, given, returned = wrong[0]
    size, many, better = total_bytes(r for _, r, *_ in wrong), len(wrong), better_specs(case)
    elsewhere = all(a.name in better and better[a.name].same_as(t, mesh) for a, _, _, t in wrong)
    tree = common_path([a.name for a, *_ in wrong])
    all_of_tree = f"{plural(many, 'array')} of {tree} come back sharded otherwise: " if many > 1 else ""
    moves = case.moved(_moved_out(case, [r for _, r, *_ in wrong]))
    moved = f" Resharding {'them' if many > 1 else 'it'} communicates {moved_words(moves)}." if moves["runs"] else ""
    if donated := total_bytes(a for a, r, *_ in wrong if a.donated and a.shard_shape != r.shard_shape):
        moved += f" Their donation, {format_bytes(donated)}, is not used." if many > 1 else " Its donation is not used."
    asked = case.report.plan.out_specs.get(result.name) is not None
    ins = [(a.name, t) for a, r, _, t in wrong if nbytes(r) <= nbytes(a) and divides(a, t, mesh)]
    outs = f"ask for {many} results as their arguments (out_shardings as in_shardings)"
    yield Finding(
        f"comes-back-otherwise:{result.name}",
        severity(size >= SLIGHT * case.argument_bytes and not elsewhere),
        f"The step compiles twice: {all_of_tree}{argument.name} goes in as {given} and comes out as {returned}, "
        f"{format_bytes(size)} on each device.{moved}",
        why=("the plan asks for that spec" if asked else "the plan gives the result no spec, so the compiler chose one")
        + "; jax.jit compiles the second call again for the new sharding, and refuses the array where in_shardings "
        "say the old one",
        value=result.name,
        axes=tuple(dict.fromkeys((*given.axes, *returned.axes))),
        numbers={"bytes": size, "results": float(many)} | (also_moved(moves) if moves["runs"] else {}),
        suggestions=(
            *suggest_specs("argument", ins, f"give {plural(len(ins), 'argument')} the specs of their new values"),
            *suggest_specs("output", [(r.name, s) for _, r, s, _ in wrong], outs),
        ),
    )


def _moved_out(case: Case, results: Iterable[Value]) -> list[Collective]:
    """Return the collectives that bring results into the sharding that the plan asks for."""
    last = [c for c in case.report.collectives if c.kind != "all-reduce" and ("return" in c.read_by or not c.source)]
    moved = []
    for v in results:
        own = (c for c in last if v.computed is not None and c.result_bytes == nbytes(v) and c.dtype == v.dtype)
        if (c := next(own, None)) is not None:
            moved.append(c)
            last.remove(c)
    return moved


def gathered_results(case: Case) -> Iterator[Finding]:
    """Find results that the plan asks for replicated although the program computes them sharded, as one finding."""
    state = {v.becomes for v in case.report.arguments}  # follow their argument; ZeRO gathers parameters on purpose
    out_specs = case.report.plan.out_specs

    def names(spec):
        return set(map(axis_name, spec.axes))

    of_parameters = _of_parameters(case)
    gathered = [
        (v, better, part)
        for v in case.report.outputs
        if (better := of_parameters.get(v.name, v.computed)) is not None and v.name not in state
        if (asked := out_specs.get(v.name)) is not None
        if (part := case.shard_bytes(v.shape, v.dtype, better)) < nbytes(v) and names(better) - names(asked)
    ]
    if not gathered:
        return
    gathered.sort(key=lambda row: -nbytes(row[0]))
    v, spec, _ = gathered[0]
    total, parts = total_bytes(v for v, *_ in gathered), sum(part for *_, part in gathered)
    moves = case.moved(_moved_out(case, [v for v, *_ in gathered]))
    axes = tuple(a for a in spec.axes if v.spec is None or axis_name(a) not in names(v.spec))
    even = [(r.name, s) for r, s, _ in gathered if divides(r, s, case.report.mesh)]
    of = v.name + and_others(gathered, "other result")
    moved = f" This communicates {moved_words(moves, of)}." if moves["runs"] else ""
    computes = "its parameter is sharded as" if v.name in of_parameters else "the program computes it as"
    yield Finding(
        f"result-gathered:{v.name}",
        severity(case.heavy(total - parts) or (moves["runs"] and case.grave(moves))),
        f"The plan asks for {of} as {v.spec}, and {computes} {spec}: "
        f"it is gathered over {quoted_axes(axes)}, {format_bytes(total)} on each device where "
        f"{format_bytes(parts)} would do.{moved}",
        why="out_specs ask for the whole result on each device; returned as it is computed, it moves nothing",
        value=v.name,
        axes=axes,
        numbers={"bytes": total, "saved_bytes": total - parts, "results": float(len(gathered)), **also_moved(moves)},
        suggestions=suggest_specs("output", even, f"ask for {len(even)} results as the program computes them"),
    )


def _of_parameters(case: Case) -> dict[str, Spec]:
    """Return gradient → the spec of its parameter, which an optimizer combines with it element by element."""
    gradients = {v.name for v in case.report.outputs if v.gradient}
    specs: dict[str, Spec] = {}
    for (path, _), at in Family.of(case.report).at.items() if gradients else ():
        own = (n for what, n in at if what == "argument" and "".join(segments(n)[1:]) == path)
        if (name := next(own, None)) is not None and (spec := case.report.value(name).spec) is not None:
            specs |= {n: spec for what, n in at if what == "output" and n in gradients}
    return specs


def donated(case: Case) -> Iterator[Finding]:
    """Find arguments that could be donated, and donated ones whose new value a loop fills while it reads the old."""
    report = case.report
    alike = [a for a, r in pairs(case) if a.shard_shape == r.shard_shape and not (a.unused or a.on_host)]
    least = max(LARGE * case.argument_bytes, SMALL_BYTES)
    beside = [a for a in alike if a.donated and a.renewal == BESIDE]
    if total_bytes(beside) >= least:
        heaviest, numbers = max(beside, key=nbytes), _copying(case, beside)
        its = "its" if len(beside) == 1 else "their"
        yield Finding(
            f"donation-copied:{heaviest.name}",
            severity(numbers.get("share", 0.0) >= GRAVE),
            f"{_copied_words(beside, numbers)} when the loop that fills {its} new value is done; {its} donation saves "
            "nothing.",
            why="the loop still reads slices of the old value while it fills the new one, like a scan with the old "
            "value as xs and the new one as ys; the new value has its own memory until it is copied over the old one",
            source=next((entry.source for entry in reversed(report.schedule) if entry.name == "copy"), None),
            value=heaviest.name,
            numbers={"bytes": total_bytes(beside), **numbers},
        )
    kept = [a for a in alike if not a.donated and a.renewal != BESIDE]
    size = total_bytes(kept)
    if report.memory is not None:
        size = min(size, float(report.memory.outputs - report.memory.aliased))
    if size >= least:
        heaviest, copies = max(kept, key=nbytes), [v for v in kept if v.renewal == IN_PLACE]
        numbers = {"bytes": size, "arguments": float(len(kept))} | (_copying(case, copies) if copies else {})
        first = f" {_copied_words(copies, numbers)} before parts of it are written." if copies else ""
        yield Finding(
            f"not-donated:{heaviest.name}",
            severity(numbers.get("share", 0.0) >= GRAVE),
            f"{heaviest.name}{and_others(kept)} could be donated, which saves at most {format_bytes(size)} on each "
            f"device: a result of the same path and shape takes new memory.{first}",
            why="without donation, the old and the new array are in memory at the same time. The peak may fall by "
            "less than their size; the fix states by how much. Do not donate an array that you read afterwards",
            value=heaviest.name,
            numbers=numbers,
            suggestions=tuple(Suggestion(kind="donate", target=v.name) for v in kept),
        )


def laid_otherwise(case: Case) -> Iterator[Finding]:
    """Find arguments that a TPU copies at each call: rows are read, and they are stored otherwise (`foresee.tiles`)."""
    cost = case.cost
    if cost is None or cost.timed is None or cost.machine.chip.kind != "tpu":
        return
    works = ((task, task.entry) for task in cost.timed.tasks if task.entry is not None and task.kind == "work")
    copies = ((task, entry) for task, entry in works if entry.name.startswith("copy"))
    by_bytes = grouped((round(entry.moved(0.0, tiles=True)), task) for task, entry in copies)
    shards = grouped(((tuple(v.shard_shape), v.dtype), v) for v in case.arguments if v.shard_shape is not None)
    for (shape, dtype), (value, *_) in shards.items():
        size = sum(laid_for_rows(shape, itemsize(dtype)) or ()) * itemsize(dtype)
        tasks = by_bytes.get(round(size), ()) if size else ()
        numbers = {"arrays": float(len(tasks)), **case.timed(sum(task.hbm for task in tasks))}
        if not tasks or numbers["share"] < SLIGHT:
            continue
        yield Finding(
            f"laid-otherwise:{value.name}",
            severity(numbers["share"] >= GRAVE),
            f"A TPU copies {value.name}{and_others(tasks)} at each call: {format_bytes(len(tasks) * size)} read and "
            f"written on each device, {format_seconds(numbers['seconds'])}.",
            why=f"a row of {shape[-1]:,} elements on a device fills its tiles of 128 only in part, so a TPU stores the "
            "array along another dimension; the step reads rows. No copy is made if a row has a multiple of 128 "
            "elements on a device, or if in_shardings gives the array "
            f"Format(Layout({(*range(len(shape)),)}), sharding) of jax.experimental.layout",
            source=next((task.entry.source for task in tasks if task.entry and task.entry.source), None),
            value=value.name,
            numbers=numbers,
        )


def _copying(case: Case, copies: Sequence[Value]) -> dict[str, float]:
    """Return the bytes read and written to copy arrays, and on a machine the seconds and their share of the step."""
    moved = 2 * total_bytes(copies)
    if case.cost is None or not (width := case.cost.machine.chip.hbm_bytes_per_s):
        return {"copied_bytes": moved}
    chip = case.cost.machine.chip
    seconds = moved / (width / chip.devices_per_chip * (chip.hbm_share or 1.0))
    return {"copied_bytes": moved, **case.timed(seconds)}


def _copied_words(copies: Sequence[Value], numbers: Mapping[str, float]) -> str:
    """Return `cache is copied (1.07 GB read and written, 504 µs, 6.1 % of the step)`."""
    many = "is" if len(copies) == 1 else "are"
    text = f"{max(copies, key=nbytes).name}{and_others(copies)} {many} copied"
    timed = f", {format_seconds(numbers['seconds'])}, {numbers['share']:.1%} of the step" if "share" in numbers else ""
    return f"{text} ({format_bytes(numbers['copied_bytes'])} read and written{timed})"
