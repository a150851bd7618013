"""Rules about results and the arguments that they belong to: how they are cut, and whether they take their memory.

| rule | what it says |
|---|---|
| `comes-back-otherwise` | a result comes out cut otherwise than the argument whose place it takes |
| `gradient-unlike` | a gradient is cut otherwise than its parameter, and is moved before it is used |
| `not-donated` | a result takes new memory though the argument whose place it takes is not needed any more |
| `donation-unused` | an argument is donated, and no result can take its memory |
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from shardviz.diagnose.case import Case, and_others, moved_words, nbytes, severity, total_bytes
from shardviz.notation import Spec
from shardviz.notation.spec import axis_size
from shardviz.program.donations import Shard, donations
from shardviz.records import Collective, Finding, Frame, Suggestion, Value
from shardviz.records.amounts import format_bytes, plural
from shardviz.records.paths import segments


def pairs(case: Case, gradients: bool = False) -> list[tuple[Value, Value]]:
    """(Argument, result) of the same place, shape and element type, the first with the first where there are several.

    Args:
        case: the report.
        gradients: those that are the argument's gradient, in place of its new value.
    """
    return case.once(("pairs", gradients), lambda: _pairs(case, gradients))


def _pairs(case: Case, gradients: bool) -> list[tuple[Value, Value]]:
    arguments = {v.name: v for v in case.report.arguments}
    outputs = {v.name: v for v in case.report.outputs if v.gradient == gradients}
    found: list[tuple[Value, Value]] = []
    if not outputs:
        return found
    taken = set()
    for (path, _), at in case.family.at.items():
        results = [outputs[n] for what, n in at if what == "output" and n in outputs]
        if not results:
            continue
        own = [arguments[n] for what, n in at if what == "argument" and "".join(segments(n)[1:]) == path]
        for argument, result in zip(own, results, strict=False):
            if argument.dtype == result.dtype and result.name not in taken:
                taken.add(result.name)
                found.append((argument, result))
    return found


def comes_back_otherwise(case: Case) -> Iterator[Finding]:
    """Results left to the compiler that come out cut otherwise than the argument whose place they take."""
    report = case.report
    wrong = [
        (argument, result)
        for argument, result in pairs(case)
        if report.plan.out_specs.get(result.name) is None
        and argument.spec is not None
        and result.spec is not None
        and not argument.spec.same_as(result.spec, report.mesh)
    ]
    if not wrong:
        return
    size = total_bytes(result for _, result in wrong)
    argument, result = max(wrong, key=lambda pair: nbytes(pair[1]))
    others = f" (and {plural(len(wrong) - 1, 'other')})" if len(wrong) > 1 else ""
    grave = size >= 0.01 * case.argument_bytes
    yield Finding(
        f"comes-back-otherwise:{result.name}",
        severity(grave),
        f"{argument.name} goes in as {argument.spec} and comes out as {result.spec}{others}, {format_bytes(size)} "
        "a device: the next step reshards it, or compiles again for the new sharding.",
        why="the plan gives the result no spec, so the compiler chose one",
        value=result.name,
        axes=tuple(dict.fromkeys((*argument.spec.axes, *result.spec.axes))) if argument.spec and result.spec else (),
        numbers={"bytes": size, "results": float(len(wrong))},
        mends=tuple(Suggestion(kind="output", target=r.name, spec=a.spec) for a, r in wrong),
    )


def gradients_unlike(case: Case) -> Iterator[Finding]:
    """Gradients that come out cut otherwise than their parameters, or that are moved into their cut inside the step."""
    report = case.report
    for argument, result in pairs(case, gradients=True):
        if argument.spec is None or result.spec is None or argument.spec.same_as(result.spec, report.mesh):
            continue
        one, other = nbytes(argument), nbytes(result)
        if max(one, other) >= 0.01 * case.argument_bytes:
            yield Finding(
                f"gradient-unlike:{result.name}",
                severity(other - one >= 0.05 * case.argument_bytes),
                f"The gradient of {argument.name} comes out as {result.spec}, {format_bytes(other)} on each device, "
                f"but {argument.name} itself is sharded as {argument.spec}, {format_bytes(one)}.",
                why="the optimizer combines parameter and gradient element by element, so one of them is resharded "
                "first; ZeRO does so on purpose, with gradients sharded further",
                value=result.name,
                axes=tuple(dict.fromkeys((*argument.spec.axes, *result.spec.axes))),
                numbers={"bytes": other, "saved_bytes": max(0.0, other - one)},
                mends=(Suggestion(kind="output", target=result.name, spec=argument.spec),) if other >= one else (),
            )
    yield from _moved_gradients(case)


def _moved_gradients(case: Case) -> Iterator[Finding]:
    """Gradients that the backward pass moves into the cut of their parameter, all moves of one at a line together."""
    parameters = {(a.shape, a.spec): a for a, _ in reversed(pairs(case)) if a.spec is not None and a.spec.axes}
    found: dict[tuple[str, Spec, Frame | None], list[Collective]] = defaultdict(list)
    for c in case.report.collectives:
        moved = c.kind in ("all-gather", "all-to-all", "collective-permute") and c.origin == "partitioner"
        if not moved or c.phase != "backward" or case.is_argument(c.operand) or c.made_by not in _DERIVED:
            continue
        if c.array is None or c.before is None or c.after is None:
            continue
        array, before, after = c.array, c.before, c.after
        if len(array) == 2 and c.read_by == ("transpose",):  # for x @ w JAX multiplies the gradient's transpose
            array, before, after = array[::-1], _turned(before), _turned(after)
        if (parameter := parameters.get((array, after))) is not None:
            found[parameter.name, before, c.source].append(c)
    of = {a.name: a for a in parameters.values()}
    for (name, before, source), alike in found.items():
        numbers, parameter = case.moved(alike), of[name]
        if numbers["bytes"] < 0.01 * case.moved_bytes:
            continue
        yield Finding(
            f"gradient-unlike:{case.place(alike[0])}",
            "warning",
            f"A gradient is computed as {before} and resharded to its parameter's spec, {name} {parameter.spec}: "
            f"{moved_words(numbers)}.",
            why="the optimizer combines parameter and gradient element by element, and the matrix product that "
            "computes the gradient is sharded differently",
            source=source,
            value=case.value_name(alike[0]),
            axes=tuple(dict.fromkeys(axis for c in alike for axis in c.axes or ())),
            numbers=numbers,
            mends=tuple(Suggestion(kind="argument", target=n, spec=before) for n in _alike(case, parameter, before)),
        )


def _alike(case: Case, parameter: Value, spec: Spec) -> tuple[str, ...]:
    """The parameter and what belongs to it (an optimizer's state), where they could be cut so; none for a cut by a part
    of an axis, which no PartitionSpec says."""
    whole = all(isinstance(axis, str) for axis in spec.axes)
    divides = all(
        n % math.prod(axis_size(a, case.report.mesh) for a in dim) == 0
        for n, dim in zip(parameter.shape, spec.dims, strict=False)
    )
    if not whole or not divides:
        return ()
    at = next((at for at in case.family.at.values() if ("argument", parameter.name) in at), ())
    shapes = {v.name: v.shape for v in case.report.arguments}
    others = (name for what, name in at if what == "argument" and name != parameter.name)
    return parameter.name, *(name for name in others if shapes.get(name) == parameter.shape)


def _turned(spec: Spec) -> Spec:
    return replace(spec, dims=spec.dims[::-1])


_DERIVED = frozenset(("dot_general", "scatter", "reduce", "convolution", "transpose", "reshape", "add_any", "add"))
"""Operations that end the backward pass of a parameter."""


def donated(case: Case) -> Iterator[Finding]:
    """Donations that cannot be used, and those that could be made."""
    report = case.report
    given = {n: _shard(v, False) for n, v in enumerate(report.arguments) if v.donated and not v.unused}
    results = [_shard(v, report.plan.out_specs.get(v.name) is None) for v in report.outputs] if given else []
    used = donations(given, results, report.mesh.size == 1)
    if any(v.shard_shape is None for v in (*report.arguments, *report.outputs)):
        return  # an array that no spec describes
    idle = [v for n, v in enumerate(report.arguments) if n in given and n not in used]
    if size := total_bytes(idle):
        heaviest = max(idle, key=nbytes)
        others = and_others(idle)
        mends = (Suggestion(kind="output", target=r.name, spec=a.spec) for a, r in pairs(case) if a in idle)
        yield Finding(
            f"donation-unused:{heaviest.name}",
            severity(size >= 0.01 * case.argument_bytes),
            f"{heaviest.name}{others}: donated, but no result can reuse the memory, {format_bytes(size)} on each "
            "device.",
            why="a result reuses a donated argument's memory only if both have the same shard shape, element type and "
            "memory kind",
            value=heaviest.name,
            numbers={"bytes": size, "arguments": float(len(idle))},
            mends=tuple(mends),
        )
    kept = [
        a for a, r in pairs(case) if not (a.donated or a.unused) and a.shard_shape == r.shard_shape and not a.on_host
    ]
    size = total_bytes(kept)
    if size >= 0.1 * case.argument_bytes and size >= 2**20:
        heaviest = max(kept, key=nbytes)
        others = and_others(kept)
        yield Finding(
            f"not-donated:{heaviest.name}",
            "note",
            f"{heaviest.name}{others} could be donated: a result of the same path and shape takes {format_bytes(size)} "
            "of new memory on each device.",
            why="without donation, the old and the new array are in memory at the same time; do not donate an array "
            "that you read afterwards",
            value=heaviest.name,
            numbers={"bytes": size, "arguments": float(len(kept))},
            mends=tuple(Suggestion(kind="donate", target=v.name) for v in kept),
        )


def _shard(v: Value, chosen: bool) -> Shard:
    return Shard(v.shape if chosen else v.shard_shape or v.shape, v.dtype, v.memory_kind, chosen)
