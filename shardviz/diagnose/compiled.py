"""Rules about a compile: what its compiler complained of, whether the program fits, and whether it came to its end.

| rule | what it says |
|---|---|
| `involuntary-rematerialisation` | the partitioner gave up and gathered a whole array on every device |
| `does-not-fit` | the program needs more memory than a device of the target has |
| `not-finished` | the compile did not come to its end |
| `not-stated` | it did, and its compiler does not say everything |
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from shardviz.compiler import Module
from shardviz.records import Alive, Diagnostic, Frame, Memory
from shardviz.records.amounts import format_bytes

_GIVEN_UP = re.compile(
    r"Involuntary full rematerialization\. The compiler (?:cannot|was not able to) go from sharding "
    r"(?P<before>.+?) to (?P<after>.+?) "
    r"(?:efficiently|without doing a full rematerialization of the tensor)?\s*for HLO operation:? "
    r"%?(?P<name>[\w.\-]+) = (?P<shape>\S+)"
)


def compiler_warnings(stderr: str, before: Module | None = None) -> tuple[Diagnostic, ...]:
    """What the compiler complained of on its standard error, in the words of XLA's `spmd_partitioner.cc`.

    Args:
        stderr: all that it wrote.
        before: the module before partitioning, to find the operation's source line.
    """
    found = {}
    for match in _GIVEN_UP.finditer(stderr):
        name, shape = match["name"], match["shape"].split("{")[0]
        found[name] = Diagnostic(
            "involuntary-rematerialisation",
            "warning",
            f"the partitioner could not go from sharding {match['before']} to {match['after']} for {shape}, gathered "
            "all of it on every device and cut it again; a sharding constraint that both sides can meet avoids this",
            source=_line(name, before),
            value=name,
        )
    return tuple(found.values())


def _line(name: str, module: Module | None) -> Frame | None:
    if module is None:
        return None
    for computation in module.computations.values():
        instruction = computation.by_name.get(name)
        if instruction is not None:
            return module.source(instruction)
    return None


def does_not_fit(memory: Memory, target: str) -> tuple[Diagnostic, ...]:
    """An error with the numbers, the heaviest values and what would help, for a plan that does not fit.

    Args:
        memory: the memory plan.
        target: the machine's text.
    """
    if memory.fits is not False or memory.hbm is None:
        return ()
    over = memory.takes - memory.hbm
    parts = [
        f"it does not fit: each device of {target} needs {format_bytes(memory.takes)} and can use "
        f"{format_bytes(memory.hbm)}, so it is {format_bytes(over)} too much "
        f"({memory.takes / memory.hbm:.1f} times what there is). Arguments take {format_bytes(memory.arguments)}, "
        f"temporaries {format_bytes(memory.temporaries)}, outputs that are not in place of an argument "
        f"{format_bytes(memory.outputs - memory.aliased)}."
    ]
    heaviest = memory.alive_at_peak[:3]
    if heaviest:
        parts.append(f"The heaviest at the peak: {'; '.join(map(_alive, heaviest))}.")
    parts.append(f"What would help: {'; '.join(what_helps(memory, over))}.")
    return (Diagnostic("does-not-fit", "error", " ".join(parts), next((a.source for a in heaviest if a.source), None)),)


def what_helps(memory: Memory, over: int, kept: float = 0.0) -> list[str]:
    """What would help a program that does not fit, the nearest first.

    Args:
        memory: its memory plan.
        over: bytes that are too much on one device.
        kept: bytes that the traced program keeps for the backward pass, where that is known.
    """
    found = []
    fresh = memory.outputs - memory.aliased
    if fresh > 0.05 * memory.takes and memory.aliased < memory.arguments:
        found.append(f"donate the arguments that the step replaces (donate_argnums), up to {format_bytes(fresh)}")
    # what XLA stacks for the backward pass it writes by dynamic_update_slice
    stacked = [a for a in memory.alive_at_peak if a.kind == "temporary" and "dynamic_update_slice" in a.name_stack]
    seen = sum(a.bytes for a in stacked)
    if seen or kept > 0.05 * memory.takes:
        what = (
            f"{format_bytes(seen)} are stacked over a loop's iterations"
            if seen > kept
            else f"{format_bytes(kept)} of it"
        )
        found.append(
            f"keep less for the backward pass ({what}): a smaller batch, jax.checkpoint with a stricter policy, or a "
            "constraint that cuts what is kept over another mesh axis"
        )
    elif memory.temporaries > memory.arguments:
        found.append("a smaller batch, or a constraint that cuts the heaviest temporaries over another mesh axis")
    if memory.hbm and memory.arguments > 0.25 * memory.hbm:
        found.append(f"cut the arguments over more mesh axes (they alone are {format_bytes(memory.arguments)})")
    found.append(f"more devices, or chips with more memory ({format_bytes(over)} a device are missing)")
    return found


def _alive(value: Alive) -> str:
    where = f", {value.source.short}" if value.source else ""
    shape = f" {value.dtype}{list(value.shape)}" if value.dtype else ""
    return f"{value.kind} {value.name}{shape} {format_bytes(value.bytes)}{where}"


def not_finished(why: str) -> tuple[Diagnostic, ...]:
    """A warning that says why there is no machine code.

    Args:
        why: what ended the compile.
    """
    text = (
        "the optimised program and its memory plan are as the compiler made them, but the compile did not end, so code "
        f"size, the algorithms of collectives and XLA's own analyses are not known: {why}"
    )
    return (Diagnostic("not-finished", "warning", text),)


def not_stated(target: str, what: Sequence[str]) -> tuple[Diagnostic, ...]:
    """A note of what a compiler does not say of a finished program.

    Args:
        target: the machine's text.
        what: what it does not say, in words.
    """
    if not what:
        return ()
    text = f"the compile for {target} came to its end; its compiler does not say {', nor '.join(what)}"
    return (Diagnostic("not-stated", "info", text),)
