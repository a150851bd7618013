"""Rules about a compile: the compiler's warnings, and whether the program fits.

| rule | meaning |
|---|---|
| `involuntary-rematerialisation` | the partitioner gathered a whole array on every device as a last resort |
| `does-not-fit` | the program needs more memory than a device of the target has |
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from shardviz.compiler import Computation, HloShape, Instruction, Module, spec_and_shard
from shardviz.diagnose.case import Case, at_line, moved_words, noted
from shardviz.diagnose.specs import between
from shardviz.errors import ShardvizError
from shardviz.notation import DeviceMesh, Spec
from shardviz.records import Alive, Collective, Finding, Frame, Memory, Suggestion
from shardviz.records.amounts import format_bytes
from shardviz.records.source import assigned

_GIVEN_UP = re.compile(
    r"Involuntary full rematerialization\. The compiler (?:cannot|was not able to) go from sharding "
    r"(?P<before>.+?) to (?P<after>.+?) "
    r"(?:efficiently|without doing a full rematerialization of the tensor)?\s*for HLO operation:? "
    r"%?(?P<name>[\w.\-]+) = (?P<shape>\S+) (?P<rest>[^\n]{0,600})"
)
_RULE = "involuntary-rematerialisation"
_TRIED = "fake_parameter"
"""Name of an array that the partitioner only uses to compare shardings of a product."""
_PARAMETER = re.compile(r"parameter\((\d{1,6})\)")


def compiler_warnings(
    stderr: str, before: Module | None = None, mesh: DeviceMesh | None = None, arguments: Sequence[str] = ()
) -> tuple[Finding, ...]:
    """Return findings for the warnings of XLA's `spmd_partitioner.cc` on standard error.

    `before` is the module before partitioning; it has the operation's source line and the array's full size.
    """
    findings: dict[tuple[str, ...], Finding] = {}
    for match in _GIVEN_UP.finditer(stderr):
        if match["name"].startswith(_TRIED):
            continue
        value = _instruction(match["name"], match["rest"], before)
        findings.setdefault(
            (match["name"], match["before"], match["after"]), _given_up(match, value, before, mesh, arguments)
        )
    return tuple(findings.values())


def _given_up(
    match: re.Match[str],
    place: tuple[Computation, Instruction] | None,
    module: Module | None,
    mesh: DeviceMesh | None,
    arguments: Sequence[str],
) -> Finding:
    """Return a finding for one warning: the array, both shardings and the line."""
    name, shape, source = match["name"], None, None
    if place is not None and module is not None:
        shape = place[1].shape
        source = module.source(place[1]) or _reader(place, module)
        maker = _maker(place)
        number = maker.parameter_number if place[0] is module.entry else None
        name = arguments[number] if number is not None and number < len(arguments) else maker.name
    whole = shape if isinstance(shape, HloShape) else None
    specs = [
        _spec_of(match[side], whole.dims, mesh) if whole is not None and mesh is not None else None
        for side in ("before", "after")
    ]
    sides = zip(("before", "after"), specs, strict=True)
    one, other = (match[side] if spec is None else str(spec) for side, spec in sides)
    where = at_line(source)
    size = f", {format_bytes(whole.nbytes)}," if whole is not None else ""
    called = "" if source is None else assigned(source.file, source.line, source.columns)
    what = name if name in arguments else f"{called or 'An array'}{where}"
    array = f"{whole.dtype}{list(whole.dims)}" if whole is not None else match["shape"].split("{")[0]
    before, after = specs
    suggestions: list[Suggestion] = []
    if before is not None and after is not None and whole is not None and mesh is not None:
        if name in arguments:
            suggestions.append(Suggestion(kind="argument", target=name, spec=after))
        else:
            suggestions += (
                Suggestion(kind="constrain", target=name, spec=spec, source=source, called=called or "the value")
                for spec in between(before, after, whole.dims, mesh)
            )
    return Finding(
        f"{_RULE}:{name}",
        "warning",
        f"{what} is gathered whole{size} on every device, then sharded again: the compiler found no cheaper way "
        f"from {one} to {other}.",
        why=f"{array} is produced in one sharding and needed in another that shares no dimension with it (the "
        "compiler's warning: involuntary full rematerialization); a constraint that both sides can meet, or one "
        "between the two, avoids it",
        source=source,
        value=name,
        axes=tuple(dict.fromkeys(a for spec in specs if spec is not None for a in spec.axes)),
        numbers={} if whole is None else {"bytes": float(whole.nbytes)},
        suggestions=tuple(suggestions),
    )


def with_seconds(findings: Sequence[Finding], case: Case) -> tuple[Finding, ...]:
    """Add to the findings about gathered arrays the bytes, and if known the seconds, of their all-gathers.

    An array's last all-gather yields the array's full size; earlier ones of the same operand and line belong to it.
    """
    gathers = [c for c in case.report.collectives if c.kind == "all-gather" and c.origin == "partitioner"]
    taken: set[int] = set()
    timed = []
    for finding in findings:
        size = finding.numbers.get("bytes")
        whole = [c for c in gathers if c.result_bytes == size and id(c) not in taken]
        whole = [c for c in whole if _moves(c, finding)] or (whole if len(whole) == 1 else [])
        if finding.rule != _RULE or not whole:
            timed.append(finding)
            continue
        last = whole[0]
        chain = [
            c
            for c in gathers
            if id(c) not in taken
            and (c.source, c.operand, c.phase) == (last.source, last.operand, last.phase)
            and (c is last or c.result_bytes < last.result_bytes)
        ]
        taken |= {id(c) for c in chain}
        numbers = case.moved(chain)
        more = {"moved_bytes": numbers.pop("bytes"), **numbers}
        moved = moved_words(case.moved(chain), case.what_inside(last))
        text = f"{finding.text} This communicates {moved}."
        timed.append(replace(finding, text=text, numbers={**finding.numbers, **more}))
    return tuple(timed)


def _moves(c: Collective, finding: Finding) -> bool:
    """Whether a gather belongs to a finding: it has the same operand or the same line."""

    def short(name):
        return name.partition(".")[0].replace("dot_general", "dot")

    return short(c.operand) == short(finding.value) or c.source == finding.source


def _instruction(name: str, rest: str, module: Module | None) -> tuple[Computation, Instruction] | None:
    """Return the instruction that a warning names. Parameters have another name there and are found by their
    number."""
    if module is None:
        return None
    number = _PARAMETER.match(rest)
    if number is not None:
        entry = module.entry
        parameter = entry.parameters.get(int(number[1]))
        return (entry, parameter) if parameter is not None and f'op_name="{parameter.op_name}"' in rest else None
    for computation in module.computations.values():
        if (instruction := computation.by_name.get(name)) is not None:
            return computation, instruction
    return None


def _maker(place: tuple[Computation, Instruction]) -> Instruction:
    """Return the instruction whose result a constraint copies."""
    computation, instruction = place
    while instruction.opcode == "copy" and instruction.operands:
        instruction = computation.by_name[instruction.operands[0]]
    return instruction


def _reader(place: tuple[Computation, Instruction], module: Module) -> Frame | None:
    computation, instruction = place
    users = computation.users.get(instruction.name, ())
    return next((frame for user in users if (frame := module.source(user)) is not None), None)


def _spec_of(text: str, shape: tuple[int, ...], mesh: DeviceMesh) -> Spec | None:
    try:
        return spec_and_shard(text, shape, mesh)[0]
    except ShardvizError:
        return None


def does_not_fit(memory: Memory, target: str) -> tuple[Finding, ...]:
    """Return an error with the sizes and the largest values if a plan does not fit."""
    if memory.fits is not False or memory.hbm is None:
        return ()
    over = memory.takes - memory.hbm
    parts = [
        f"it does not fit: each device of {target} needs {format_bytes(memory.takes)} and can use "
        f"{format_bytes(memory.hbm)}, {format_bytes(over)} too much "
        f"({memory.takes / memory.hbm:.1f} times what it has). Arguments take {format_bytes(memory.arguments)}, "
        f"temporaries {format_bytes(memory.temporaries)}, outputs that reuse no argument's memory "
        f"{format_bytes(memory.outputs - memory.aliased)}."
    ]
    heaviest = memory.alive_at_peak[:3]
    if heaviest:
        parts.append(f"The largest at the peak: {'; '.join(map(_alive, heaviest))}.")
    parts.append(f"What would help: {'; '.join(_helps(memory, over))}.")
    source = next((a.source for a in heaviest if a.source), None)
    return noted("does-not-fit", " ".join(parts), "error", source=source)


def _helps(memory: Memory, over: int) -> list[str]:
    """Return changes that help a program that exceeds a device's memory by `over` bytes, the easiest first."""
    changes = []
    fresh = memory.outputs - memory.aliased
    if fresh > 0.05 * memory.takes and memory.aliased < memory.arguments:
        changes.append(
            f"donate the arguments that the step replaces (donate_argnums), which saves up to {format_bytes(fresh)}"
        )
    # XLA stacks activations for the backward pass with dynamic_update_slice
    stacked = [a for a in memory.alive_at_peak if a.kind == "temporary" and "dynamic_update_slice" in a.name_stack]
    seen = sum(a.bytes for a in stacked)
    if seen:
        changes.append(
            f"keep less for the backward pass ({format_bytes(seen)} are stacked over a loop's iterations): a smaller "
            "batch, jax.checkpoint with a stricter policy, or a constraint that shards what is kept along another mesh "
            "axis"
        )
    elif memory.temporaries > memory.arguments:
        changes.append("a smaller batch, or a constraint that shards the largest temporaries along another mesh axis")
    if memory.hbm and memory.arguments > 0.25 * memory.hbm:
        changes.append(f"shard the arguments along more mesh axes (they alone are {format_bytes(memory.arguments)})")
    changes.append(f"more devices, or chips with more memory ({format_bytes(over)} a device are missing)")
    return changes


def _alive(value: Alive) -> str:
    where = f", {value.source.short}" if value.source else ""
    shape = f" {value.dtype}{list(value.shape)}" if value.dtype else ""
    return f"{value.kind} {value.name}{shape} {format_bytes(value.bytes)}{where}"
