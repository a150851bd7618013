"""Rules about results and the arguments that they replace: their shardings and donation.

`brief.BRIEFS` describes each in a sentence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from shardviz.diagnose.case import Case, and_others, moved_words, nbytes, quoted_axes, severity, total_bytes
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
from shardviz.records.paths import common_path, segments
from shardviz.records.values import BESIDE, IN_PLACE
from shardviz.stablehlo.donations import Shard, donations


def pairs(case: Case, gradients: bool = False) -> list[tuple[Value, Value]]:
    """Return (argument, new value) for results of the same place, shape and element type.

    With `gradients`, return (argument, gradient). The first argument pairs with the first result if several match.
    """
    return case.once(("pairs", gradients), lambda: _pairs(case, gradients))


def _pairs(case: Case, gradients: bool) -> list[tuple[Value, Value]]:
    arguments = {v.name: v for v in case.report.arguments}
    outputs = {v.name: v for v in case.report.outputs if v.gradient == gradients}
    if not gradients:
        return [(a, outputs[a.becomes]) for a in case.report.arguments if a.becomes in outputs]
    by_result: dict[str, tuple[Value, Value]] = {}
    for (path, _), at in case.family.at.items() if outputs else ():
        results = [outputs[n] for what, n in at if what == "output" and n in outputs]
        own = [arguments[n] for what, n in at if what == "argument" and "".join(segments(n)[1:]) == path]
        for argument, result in zip(own, results, strict=False):
            if argument.dtype == result.dtype:
                by_result.setdefault(result.name, (argument, result))
    return list(by_result.values())


def comes_back_otherwise(case: Case) -> Iterator[Finding]:
    """Find results with another sharding than the argument that they replace, as one finding."""
    wrong = _otherwise(case)
    if not wrong:
        return
    size, many = total_bytes(result for _, result in wrong), len(wrong)
    argument, result = max(wrong, key=lambda pair: nbytes(pair[1]))
    asked = case.report.plan.out_specs.get(result.name) is not None
    tree = common_path([a.name for a, _ in wrong])
    all_of_tree = f"{plural(many, 'array')} of {tree} come back sharded otherwise: " if many > 1 else ""
    numbers = {"bytes": size, "results": float(many)}
    moves = case.moved(_moved_out(case, [r for _, r in wrong]))
    if "seconds" in moves and moves["runs"]:
        numbers |= {name: moves[name] for name in ("seconds", "share")}
    moved = f" To return {'them' if many > 1 else 'it'} so moves {moved_words(moves)}." if moves["runs"] else ""
    if donated := total_bytes(a for a, r in wrong if a.donated and a.shard_shape != r.shard_shape):
        moved += f" Their donation, {format_bytes(donated)}, is not used." if many > 1 else " Its donation is not used."
    yield Finding(
        f"comes-back-otherwise:{result.name}",
        severity(size >= SLIGHT * case.argument_bytes and not _fixed_elsewhere(case, wrong)),
        f"The step compiles twice: {all_of_tree}{argument.name} goes in as {argument.spec} and comes out as "
        f"{result.spec}, {format_bytes(size)} a device.{moved}",
        why=("the plan asks for the result so" if asked else "the plan gives the result no spec, so the compiler chose")
        + "; jax.jit compiles the second call again for the new sharding, and refuses the array where in_shardings "
        "say the old one",
        value=result.name,
        axes=tuple(dict.fromkeys((*argument.spec.axes, *result.spec.axes))) if argument.spec and result.spec else (),
        numbers=numbers,
        suggestions=(
            *_as_returned(case, wrong),
            *_as_arguments(wrong, f"ask for {many} results as their arguments (out_shardings as in_shardings)"),
        ),
    )


def _as_arguments(rows: Sequence[tuple[Value, Value]], text: str) -> tuple[Suggestion, ...]:
    """Suggest their arguments' specs for results, the largest first; `text` describes several."""
    largest = max(rows, key=lambda pair: nbytes(pair[1]))
    rows = (largest, *(pair for pair in rows if pair is not largest))
    return suggest_specs("output", [(r.name, a.spec) for a, r in rows if a.spec is not None], text)


def _fixed_elsewhere(case: Case, wrong: Sequence[tuple[Value, Value]]) -> bool:
    """Whether other findings already suggest for each argument the spec of its new value, so that this is not another
    fault."""
    better, mesh = better_specs(case), case.report.mesh
    return all(a.name in better and r.spec is not None and better[a.name].same_as(r.spec, mesh) for a, r in wrong)


def _as_returned(case: Case, wrong: Sequence[tuple[Value, Value]]) -> Iterator[Suggestion]:
    """Suggest for arguments the specs of their new values, unless these take more memory."""
    better = [(a, r) for a, r in wrong if nbytes(r) <= nbytes(a) and divides(a, r.spec or Spec(), case.report.mesh)]
    specs = [(a.name, r.spec) for a, r in sorted(better, key=lambda pair: -nbytes(pair[0])) if r.spec is not None]
    yield from suggest_specs("argument", specs, f"give {plural(len(specs), 'argument')} the specs of their new values")


def _otherwise(case: Case, gradients: bool = False) -> list[tuple[Value, Value]]:
    mesh = case.report.mesh
    return [
        (a, r)
        for a, r in pairs(case, gradients)
        if a.spec is not None and r.spec is not None and not a.spec.same_as(r.spec, mesh)
    ]


def _moved_out(case: Case, results: Iterable[Value]) -> list[Collective]:
    """Return the collectives that bring results into the sharding that the plan asks for."""
    last = [c for c in case.report.collectives if c.kind != "all-reduce" and ("return" in c.read_by or not c.source)]
    moved = []
    for v in results:
        if v.computed is not None:
            own = next((c for c in last if c.result_bytes == nbytes(v) and c.dtype == v.dtype), None)
            moved += [own] if own is not None else []
            last = [c for c in last if c is not own]
    return moved


def gathered_results(case: Case) -> Iterator[Finding]:
    """Find results that the plan asks for replicated although the program computes them sharded, as one finding.

    Results that replace an argument are excluded: they follow the argument's sharding (ZeRO gathers parameters on
    purpose).
    """
    mesh, state = case.report.mesh, {v.becomes for v in case.report.arguments}

    def names(spec):
        return set(map(axis_name, spec.axes))

    gathered: list[tuple[Value, Spec, float]] = []
    for v in case.report.outputs:
        asked, computed = case.report.plan.out_specs.get(v.name), v.computed
        if asked is not None and computed is not None and not (v.gradient or v.name in state):
            part = case.shard_bytes(v.shape, v.dtype, computed)
            if part < nbytes(v) and names(computed) - names(asked):
                gathered.append((v, computed, part))
    if not gathered:
        return
    gathered.sort(key=lambda row: -nbytes(row[0]))
    v, spec, _ = gathered[0]
    total, parts = total_bytes(v for v, *_ in gathered), sum(part for *_, part in gathered)
    moves = case.moved(_moved_out(case, [v for v, *_ in gathered]))
    numbers = {"bytes": total, "saved_bytes": total - parts, "results": float(len(gathered))}
    numbers |= {"moved_bytes": moves["bytes"]} | {n: moves[n] for n in ("seconds", "share") if n in moves}
    others = and_others(gathered, "other result")
    axes = tuple(a for a in spec.axes if v.spec is None or axis_name(a) not in names(v.spec))
    even = [(r.name, s) for r, s, _ in gathered if divides(r, s, mesh)]
    yield Finding(
        f"result-gathered:{v.name}",
        severity(case.heavy(total - parts) or (moves["runs"] and case.grave(moves))),
        f"The plan asks for {v.name}{others} as {v.spec}, and the program computes it as {spec}: it is gathered over "
        f"{quoted_axes(axes)}, {format_bytes(total)} on each device where {format_bytes(parts)} would do"
        + (f". This communicates {moved_words(moves, v.name + others)}." if moves["runs"] else "."),
        why="out_specs ask for the whole result on each device; returned as it is computed, it moves nothing",
        value=v.name,
        axes=axes,
        numbers=numbers,
        suggestions=suggest_specs("output", even, f"ask for {len(even)} results as the program computes them"),
    )


def gradients_unlike(case: Case) -> Iterator[Finding]:
    """Find gradients that are larger per device than their parameters or sharded along other dimensions, as one
    finding."""
    least = SLIGHT * case.argument_bytes
    rows = [(a, r) for a, r in _otherwise(case, gradients=True) if nbytes(r) >= max(least, nbytes(a))]
    if not rows:
        return
    argument, result = max(rows, key=lambda pair: nbytes(pair[1]))
    one, other = (total_bytes(side) for side in zip(*rows, strict=True))
    yield Finding(
        f"gradient-unlike:{result.name}",
        severity(other - one >= GRAVE * case.argument_bytes),
        f"The gradient of {argument.name}{and_others(rows)} comes out as {result.spec}, {format_bytes(other)} on "
        f"each device, but {argument.name} itself is sharded as {argument.spec}, {format_bytes(one)}.",
        why="the optimizer combines parameter and gradient element by element, so one of them is resharded first",
        value=result.name,
        axes=tuple(dict.fromkeys((*(argument.spec or Spec()).axes, *(result.spec or Spec()).axes))),
        numbers={"bytes": other, "saved_bytes": max(0.0, other - one)},
        suggestions=_as_arguments(rows, f"ask for {len(rows)} gradients as their parameters are sharded"),
    )


def donated(case: Case) -> Iterator[Finding]:
    """Find donations that have no effect, and arguments that could be donated."""
    report = case.report
    shards = {n: _shard(v, False) for n, v in enumerate(report.arguments) if v.donated and not v.unused}
    results = [_shard(v, report.plan.out_specs.get(v.name) is None) for v in report.outputs] if shards else []
    used = donations(shards, results, report.mesh.size == 1)
    if any(v.shard_shape is None for v in (*report.arguments, *report.outputs)):
        return  # an array that no spec describes
    idle = [v for n, v in enumerate(report.arguments) if n in shards and n not in used]
    if len(idle) <= sum(a.donated for a, _ in _otherwise(case)):
        idle = []  # `comes-back-otherwise` says so
    if size := total_bytes(idle):
        heaviest = max(idle, key=nbytes)
        others = and_others(idle)
        suggestions = (Suggestion(kind="output", target=r.name, spec=a.spec) for a, r in pairs(case) if a in idle)
        yield Finding(
            f"donation-unused:{heaviest.name}",
            severity(size >= SLIGHT * case.argument_bytes),
            f"{heaviest.name}{others}: donated, but no result can reuse the memory, {format_bytes(size)} on each "
            "device.",
            why="a result reuses a donated argument's memory only if both have the same shard shape, element type and "
            "memory kind",
            value=heaviest.name,
            numbers={"bytes": size, "arguments": float(len(idle))},
            suggestions=tuple(suggestions),
        )
    alike = [a for a, r in pairs(case) if a.shard_shape == r.shard_shape and not (a.unused or a.on_host)]
    yield from _copied_in_the_end(case, [a for a in alike if a.donated and a.renewal == BESIDE])
    kept = [a for a in alike if not a.donated and a.renewal != BESIDE]
    size = total_bytes(kept)
    if report.memory is not None:
        size = min(size, float(report.memory.outputs - report.memory.aliased))
    if size >= LARGE * case.argument_bytes and size >= SMALL_BYTES:
        heaviest = max(kept, key=nbytes)
        others = and_others(kept)
        copies = [v for v in kept if v.renewal == IN_PLACE]
        numbers = {"bytes": size, "arguments": float(len(kept))} | (_copying(case, copies) if copies else {})
        first = f" {_copied_words(copies, numbers)} before parts of it are written." if copies else ""
        yield Finding(
            f"not-donated:{heaviest.name}",
            severity(numbers.get("share", 0.0) >= 0.02),
            f"{heaviest.name}{others} could be donated, which saves at most {format_bytes(size)} on each device: a "
            f"result of the same path and shape takes new memory.{first}",
            why="without donation, the old and the new array are in memory at the same time. The peak may fall by "
            "less than their size; the fix states by how much. Do not donate an array that you read afterwards",
            value=heaviest.name,
            numbers=numbers,
            suggestions=tuple(Suggestion(kind="donate", target=v.name) for v in kept),
        )


def laid_otherwise(case: Case) -> Iterator[Finding]:
    """Find arguments that a TPU copies at each call: rows are read, and they are stored otherwise (`foresee.tiles`).

    A copy is known by its bytes, at each level: those of an argument, and of its rows in whole tiles.
    """
    cost = case.cost
    if cost is None or cost.timed is None or cost.machine.chip.kind != "tpu":
        return
    copies = ((task, task.entry) for task in cost.timed.tasks if task.entry is not None and task.kind == "work")
    by_bytes = grouped(
        (round(entry.moved(0.0, tiles=True)), task) for task, entry in copies if entry.name.startswith("copy")
    )
    shards = grouped(((tuple(v.shard_shape), v.dtype), v) for v in case.arguments if v.shard_shape is not None)
    for (shape, dtype), (value, *_) in shards.items():
        size = sum(laid_for_rows(shape, itemsize(dtype)) or ()) * itemsize(dtype)
        tasks = by_bytes.get(round(size), ()) if size else ()
        numbers = {"arrays": float(len(tasks)), "seconds": sum(task.hbm for task in tasks)}
        numbers["share"] = numbers["seconds"] / case.step if case.step else 0.0
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


def _copied_in_the_end(case: Case, copies: Sequence[Value]) -> Iterator[Finding]:
    """Find donated arguments whose new values a loop fills while it still reads the old ones."""
    if total_bytes(copies) < max(LARGE * case.argument_bytes, SMALL_BYTES):
        return
    heaviest, numbers = max(copies, key=nbytes), _copying(case, copies)
    source = next((entry.source for entry in reversed(case.report.schedule) if entry.name == "copy"), None)
    its = "its" if len(copies) == 1 else "their"
    yield Finding(
        f"donation-copied:{heaviest.name}",
        severity(numbers.get("share", 0.0) >= 0.02),
        f"{_copied_words(copies, numbers)} when the loop that fills {its} new value is done; {its} donation saves "
        "nothing.",
        why="the loop still reads slices of the old value while it fills the new one, like a scan with the old value "
        "as xs and the new one as ys; the new value has its own memory until it is copied over the old one",
        source=source,
        value=heaviest.name,
        numbers={"bytes": total_bytes(copies), **numbers},
    )


def _copying(case: Case, copies: Sequence[Value]) -> dict[str, float]:
    """Return the bytes read and written to copy arrays, and on a machine the seconds and their share of the step."""
    moved = 2 * total_bytes(copies)
    if case.cost is None or not (width := case.cost.machine.chip.hbm_bytes_per_s):
        return {"copied_bytes": moved}
    chip = case.cost.machine.chip
    seconds = moved / (width / chip.devices_per_chip * (chip.hbm_share or 1.0))
    return {"copied_bytes": moved, "seconds": seconds, "share": seconds / case.step if case.step else 0.0}


def _copied_words(copies: Sequence[Value], numbers: Mapping[str, float]) -> str:
    """Return `cache is copied (1.07 GB read and written, 504 µs, 6.1 % of the step)`."""
    many = "is" if len(copies) == 1 else "are"
    text = f"{max(copies, key=nbytes).name}{and_others(copies)} {many} copied"
    timed = f", {format_seconds(numbers['seconds'])}, {numbers['share']:.1%} of the step" if "share" in numbers else ""
    return f"{text} ({format_bytes(numbers['copied_bytes'])} read and written{timed})"


def _shard(v: Value, chosen: bool) -> Shard:
    return Shard(v.shape if chosen else v.shard_shape or v.shape, v.dtype, v.memory_kind, chosen)
