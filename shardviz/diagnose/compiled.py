"""Rules about a compile: what its compiler complained of, and whether the program fits.

| rule | what it says |
|---|---|
| `involuntary-rematerialisation` | the partitioner gave up and gathered a whole array on every device |
| `does-not-fit` | the program needs more memory than a device of the target has |
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from shardviz.compiler import Computation, HloShape, Instruction, Module, cut
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
"""What the partitioner calls an array that it only tries out, to see which way to shard a product costs less."""
_PARAMETER = re.compile(r"parameter\((\d{1,6})\)")


def compiler_warnings(
    stderr: str, before: Module | None = None, mesh: DeviceMesh | None = None, arguments: Sequence[str] = ()
) -> tuple[Finding, ...]:
    """What the compiler complained of on its standard error, in the words of XLA's `spmd_partitioner.cc`; the module
    before partitioning has the operation's source line and the whole array's size."""
    findings: dict[tuple[str, ...], Finding] = {}
    for match in _GIVEN_UP.finditer(stderr):
        if match["name"].startswith(_TRIED):
            continue
        value = _made(match["name"], match["rest"], before)
        findings.setdefault(
            (match["name"], match["before"], match["after"]), _given_up(match, value, before, mesh, arguments)
        )
    return tuple(findings.values())


def _given_up(
    match: re.Match[str],
    made: tuple[Computation, Instruction] | None,
    module: Module | None,
    mesh: DeviceMesh | None,
    arguments: Sequence[str],
) -> Finding:
    """One warning as a finding: which array, from which sharding to which, and its line."""
    name, shape, source = match["name"], None, None
    if made is not None and module is not None:
        shape = made[1].shape
        source = module.source(made[1]) or _reader(made, module)
        maker = _maker(made)
        number = maker.parameter_number if made[0] is module.entry else None
        name = arguments[number] if number is not None and number < len(arguments) else maker.name
    whole = shape if isinstance(shape, HloShape) else None
    cuts = [
        _spec_of(match[side], whole.dims, mesh) if whole is not None and mesh is not None else None
        for side in ("before", "after")
    ]
    one, other = (match[side] if cut is None else str(cut) for side, cut in zip(("before", "after"), cuts, strict=True))
    where = at_line(source)
    size = f", {format_bytes(whole.nbytes)}," if whole is not None else ""
    called = "" if source is None else assigned(source.file, source.line)
    what = name if name in arguments else f"{called or 'An array'}{where}"
    held = f"{whole.dtype}{list(whole.dims)}" if whole is not None else match["shape"].split("{")[0]
    before, after = cuts
    mends: list[Suggestion] = []
    if before is not None and after is not None and whole is not None and mesh is not None:
        if name in arguments:
            mends.append(Suggestion(kind="argument", target=name, spec=after))
        else:
            mends += (
                Suggestion(kind="constrain", target=name, spec=spec, source=source, called=called or "what is made")
                for spec in between(before, after, whole.dims, mesh)
            )
    return Finding(
        f"{_RULE}:{name}",
        "warning",
        f"{what} is gathered whole{size} on every device, then sharded again: the compiler found no cheaper way "
        f"from {one} to {other}.",
        why=f"{held} is produced in one sharding and needed in another that shares no dimension with it (the "
        "compiler's warning: involuntary full rematerialization); a constraint that both sides can meet, or one "
        "between the two, avoids it",
        source=source,
        value=name,
        axes=tuple(dict.fromkeys(a for cut in cuts if cut is not None for a in cut.axes)),
        numbers={} if whole is None else {"bytes": float(whole.nbytes)},
        mends=tuple(mends),
    )


def with_seconds(found: Sequence[Finding], case: Case) -> tuple[Finding, ...]:
    """Findings of arrays gathered whole with what the gathering moves, and how long it takes where that is known.

    The last gather of each is the one that gives as many bytes as the array has; those before it, of the same thing at
    the same line, lead there.
    """
    gathers = [c for c in case.report.collectives if c.kind == "all-gather" and c.origin == "partitioner"]
    taken: set[int] = set()
    told = []
    for finding in found:
        size = finding.numbers.get("bytes")
        whole = [c for c in gathers if c.result_bytes == size and id(c) not in taken]
        whole = [c for c in whole if _moves(c, finding)] or (whole if len(whole) == 1 else [])
        if finding.rule != _RULE or not whole:
            told.append(finding)
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
        text = f"{finding.text} This communicates {moved_words(case.moved(chain))}."
        told.append(replace(finding, text=text, numbers={**finding.numbers, **more}))
    return tuple(told)


def _moves(c: Collective, finding: Finding) -> bool:
    """Whether a gather is plainly one of what a finding is about: it moves that, or stands at that line."""
    short = lambda name: name.partition(".")[0].replace("dot_general", "dot")  # noqa: E731
    return short(c.operand) == short(finding.value) or c.source == finding.source


def _made(name: str, rest: str, module: Module | None) -> tuple[Computation, Instruction] | None:
    """The instruction that a warning names, which has another name there if it is a parameter: that has its number."""
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


def _maker(made: tuple[Computation, Instruction]) -> Instruction:
    """What a constraint, which is a copy, copies."""
    computation, instruction = made
    while instruction.opcode == "copy" and instruction.operands:
        instruction = computation.by_name[instruction.operands[0]]
    return instruction


def _reader(made: tuple[Computation, Instruction], module: Module) -> Frame | None:
    """The line of the first operation that reads a parameter."""
    computation, instruction = made
    users = computation.users.get(instruction.name, ())
    return next((frame for user in users if (frame := module.source(user)) is not None), None)


def _spec_of(text: str, shape: tuple[int, ...], mesh: DeviceMesh) -> Spec | None:
    try:
        return cut(text, shape, mesh)[0]
    except ShardvizError:
        return None


def does_not_fit(memory: Memory, target: str) -> tuple[Finding, ...]:
    """An error with the numbers and the heaviest values, for a plan that does not fit."""
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
    """What would help a program that needs `over` bytes too much on one device, the nearest first."""
    ways = []
    fresh = memory.outputs - memory.aliased
    if fresh > 0.05 * memory.takes and memory.aliased < memory.arguments:
        ways.append(
            f"donate the arguments that the step replaces (donate_argnums), which saves up to {format_bytes(fresh)}"
        )
    # what XLA stacks for the backward pass it writes by dynamic_update_slice
    stacked = [a for a in memory.alive_at_peak if a.kind == "temporary" and "dynamic_update_slice" in a.name_stack]
    seen = sum(a.bytes for a in stacked)
    if seen:
        ways.append(
            f"keep less for the backward pass ({format_bytes(seen)} are stacked over a loop's iterations): a smaller "
            "batch, jax.checkpoint with a stricter policy, or a constraint that shards what is kept along another mesh "
            "axis"
        )
    elif memory.temporaries > memory.arguments:
        ways.append("a smaller batch, or a constraint that shards the largest temporaries along another mesh axis")
    if memory.hbm and memory.arguments > 0.25 * memory.hbm:
        ways.append(f"shard the arguments along more mesh axes (they alone are {format_bytes(memory.arguments)})")
    ways.append(f"more devices, or chips with more memory ({format_bytes(over)} a device are missing)")
    return ways


def _alive(value: Alive) -> str:
    where = f", {value.source.short}" if value.source else ""
    shape = f" {value.dtype}{list(value.shape)}" if value.dtype else ""
    return f"{value.kind} {value.name}{shape} {format_bytes(value.bytes)}{where}"
