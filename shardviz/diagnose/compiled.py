"""Rules about a compile: the compiler's warnings, and whether the program fits."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import replace

from shardviz.compiler import Computation, HloShape, Instruction, Module, spec_and_shard
from shardviz.diagnose.case import Case, also_moved, at_line, moved_words
from shardviz.diagnose.specs import between
from shardviz.errors import ShardvizError
from shardviz.notation import DeviceMesh, Spec
from shardviz.records import Alive, Collective, Finding, Memory, Suggestion
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
    matches = (match for match in _GIVEN_UP.finditer(stderr) if not match["name"].startswith(_TRIED))
    distinct = {(match["name"], match["before"], match["after"]): match for match in matches}
    return tuple(_given_up(match, before, mesh, arguments) for match in distinct.values())


def _given_up(
    match: re.Match[str], module: Module | None, mesh: DeviceMesh | None, arguments: Sequence[str]
) -> Finding:
    """Return a finding for one warning: the array, both shardings and the line."""
    name, whole, source = match["name"], None, None
    if module is not None and (place := _instruction(name, match["rest"], module)) is not None:
        computation, value = place
        whole = value.shape if isinstance(value.shape, HloShape) else None
        lines = (module.source(each) for each in (value, *computation.users.get(value.name, ())))
        source = next((line for line in lines if line is not None), None)
        while value.opcode == "copy" and value.operands:  # a constraint copies its array
            value = computation.by_name[value.operands[0]]
        number = value.parameter_number if computation is module.entry else None
        name = arguments[number] if number is not None and number < len(arguments) else value.name
    called = "" if source is None else assigned(source.file, source.line, source.columns)
    before, after = (_spec_of(match[side], whole, mesh) for side in ("before", "after"))
    suggestions = ()
    if before is not None and after is not None and name in arguments:
        suggestions = (Suggestion(kind="argument", target=name, spec=after),)
    elif before is not None and after is not None and whole is not None and mesh is not None:
        suggestions = tuple(
            Suggestion(kind="constrain", target=name, spec=spec, source=source, called=called or "the value")
            for spec in between(before, after, whole.dims, mesh)
        )
    size = f", {format_bytes(whole.nbytes)}," if whole is not None else ""
    what = name if name in arguments else f"{called or 'An array'}{at_line(source)}"
    array = f"{whole.dtype}{list(whole.dims)}" if whole is not None else match["shape"].split("{")[0]
    return Finding(
        f"{_RULE}:{name}",
        "warning",
        f"{what} is gathered whole{size} on every device, then sharded again: the compiler found no cheaper way "
        f"from {before or match['before']} to {after or match['after']}.",
        why=f"{array} is produced in one sharding and needed in another that shares no dimension with it (the "
        "compiler's warning: involuntary full rematerialization); a constraint that both sides can meet, or one "
        "between the two, avoids it",
        source=source,
        value=name,
        axes=tuple(dict.fromkeys(a for spec in (before, after) if spec is not None for a in spec.axes)),
        numbers={} if whole is None else {"bytes": float(whole.nbytes)},
        suggestions=suggestions,
    )


def _instruction(name: str, rest: str, module: Module) -> tuple[Computation, Instruction] | None:
    """Return the instruction that a warning names. Parameters have another name there and are found by their
    number."""
    if (number := _PARAMETER.match(rest)) is not None:
        parameter = module.entry.parameters.get(int(number[1]))
        there = parameter is not None and f'op_name="{parameter.op_name}"' in rest
        return (module.entry, parameter) if parameter is not None and there else None
    places = ((computation, computation.by_name.get(name)) for computation in module.computations.values())
    return next(((computation, found) for computation, found in places if found is not None), None)


def _spec_of(text: str, shape: HloShape | None, mesh: DeviceMesh | None) -> Spec | None:
    with contextlib.suppress(ShardvizError):
        return None if shape is None or mesh is None else spec_and_shard(text, shape.dims, mesh)[0]


def with_seconds(findings: Sequence[Finding], case: Case) -> tuple[Finding, ...]:
    """Add to the findings about gathered arrays the bytes, and if known the seconds, of their all-gathers.

    An array's last all-gather yields the array's full size; earlier ones of the same operand and line belong to it.
    """
    gathers = [c for c in case.report.collectives if c.kind == "all-gather" and c.origin == "partitioner"]
    timed = []
    for finding in findings:
        whole = [c for c in gathers if c.result_bytes == finding.numbers.get("bytes")]
        whole = [c for c in whole if _moves(c, finding)] or (whole if len(whole) == 1 else [])
        if finding.rule != _RULE or not whole:
            timed.append(finding)
            continue
        last = whole[0]
        alike = [c for c in gathers if (c.source, c.operand, c.phase) == (last.source, last.operand, last.phase)]
        chain = [c for c in alike if c is last or c.result_bytes < last.result_bytes]
        gathers = [c for c in gathers if all(c is not each for each in chain)]
        moved = case.moved(chain)
        numbers = {**finding.numbers, **also_moved(moved), "runs": moved["runs"]}
        text = f"{finding.text} This communicates {moved_words(moved, case.what_inside(last))}."
        timed.append(replace(finding, text=text, numbers=numbers))
    return tuple(timed)


def _moves(c: Collective, finding: Finding) -> bool:
    """Return whether a gather belongs to a finding: it has the same operand or the same line."""
    short, other = (name.partition(".")[0].replace("dot_general", "dot") for name in (c.operand, finding.value))
    return short == other or c.source == finding.source


def does_not_fit(memory: Memory, target: str) -> tuple[Finding, ...]:
    """Return an error with the sizes and the largest values if a plan does not fit."""
    if memory.fits is not False or memory.hbm is None:
        return ()
    heaviest = memory.alive_at_peak[:3]
    text = (
        f"it does not fit: each device of {target} needs {format_bytes(memory.takes)} and can use "
        f"{format_bytes(memory.hbm)}, {format_bytes(memory.takes - memory.hbm)} too much "
        f"({memory.takes / memory.hbm:.1f} times what it has). Arguments take {format_bytes(memory.arguments)}, "
        f"temporaries {format_bytes(memory.temporaries)}, outputs that reuse no argument's memory "
        f"{format_bytes(memory.outputs - memory.aliased)}."
    )
    largest = f" The largest at the peak: {'; '.join(map(_alive, heaviest))}." if heaviest else ""
    source = next((a.source for a in heaviest if a.source), None)
    return (Finding("does-not-fit", "error", f"{text}{largest} sv.fixes tries what makes room.", source=source),)


def _alive(value: Alive) -> str:
    shape = f" {value.dtype}{list(value.shape)}" if value.dtype else ""
    where = f", {value.source.short}" if value.source else ""
    return f"{value.kind} {value.name}{shape} {format_bytes(value.bytes)}{where}"
