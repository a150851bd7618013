"""Rules about the program itself, under any plan.

| rule | what it says |
|---|---|
| `own-partitioning` | an operation says in Python how it is partitioned, which is not asked |
| `unreduced-sum` | a shard_map gives back one device's part of a sum for the whole |
| `not-the-same` | a shard_map's result is said to be the same on devices whose own it is |
| `mesh-asked` | a line does another thing where no mesh stands around the call, or one stands elsewhere |
| `constraint-without-effect` | the plan constrains a value that no result needs |
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence

from shardviz import _jax
from shardviz.diagnose.case import at_line, by_hand, quoted_axes
from shardviz.program.contexts import MeshAsked
from shardviz.program.variance import Unreplicated
from shardviz.records import Finding, Frame

_MOST_SPECS = 3


def mesh_asked(asked: Iterable[MeshAsked]) -> tuple[Finding, ...]:
    """One warning for each line whose constraints, or other operations, depend on the mesh around the call."""
    return tuple(Finding("mesh-asked", "warning", _message(line), source=line.source) for line in asked)


def own_partitioning(operations: Iterable[tuple[str, Frame | None]]) -> tuple[Finding, ...]:
    """One warning for each line whose operation has a partitioning of its own, which is not asked here."""
    return tuple(
        Finding(
            "own-partitioning",
            "warning",
            f"{name}{f' at {source.short}' if source else ''} says in Python how it is partitioned; its partition "
            "function is not called here, so it is explored as what it computes, partitioned as any other code: "
            "collectives, FLOPs and shardings there may differ from the run's",
            source=source,
        )
        for name, source in dict.fromkeys(operations)
    )


def not_the_same(results: Iterable[Unreplicated]) -> tuple[Finding, ...]:
    """Results of `shard_map`s with `check_vma=False` that are said to be the same along axes and may not be; a note
    where a permutation between devices is part of them, which may have made them the same."""
    return tuple(map(_not_the_same, results))


def _not_the_same(result: Unreplicated) -> Finding:
    axes, many = quoted_axes(result.axes), math.prod(result.sizes)
    where = at_line(result.source)
    if result.moved:
        text = (
            f"A result of a shard_map{where} is declared replicated on the {many} devices along {axes}, between which "
            "values are passed around: whether it is the same on all of them is not known here."
        )
    elif result.summed:
        text = (
            f"A sum{where} is never reduced over {quoted_axes(result.summed)}: each of the {many} devices along {axes} "
            "holds a partial sum, and the shard_map returns one device's as the whole."
        )
    else:
        text = (
            f"A result of a shard_map{where} is declared replicated on the {many} devices along {axes}, but is "
            "computed from values that differ between them: one device's is returned as the whole."
        )
    why = (
        f"result {result.number} has no {axes} in its out_specs, and with check_vma=False JAX does not check "
        "that it is the same there"
    )
    if result.moved:
        why += "; values passed around between devices may have made it so, as when each device has seen all shards"
    names = ", ".join(map(repr, result.axes))
    rule = "unreduced-sum" if result.summed and not result.moved else "not-the-same"
    named = names if len(result.axes) == 1 else f"({names})"
    return Finding(
        f"{rule}:{result.source.short if result.source else result.number}",
        "note" if result.moved else "warning",
        text,
        why=why,
        source=result.source,
        axes=result.axes,
        numbers={"bytes": result.nbytes, "size": float(many)},
        mends=()
        if result.moved
        else (
            by_hand(result.source, f"jax.lax.psum(..., {named}) before it is returned"),
            by_hand(result.source, f"{axes} in its out_specs, if each device's own is wanted"),
        ),
    )


def _message(line: MeshAsked) -> str:
    where = line.source.short if line.source else "a line"
    specs = ", ".join(map(str, line.specs[:_MOST_SPECS])) + (", ..." if len(line.specs) > _MOST_SPECS else "")
    does = f"asks for {specs}" if specs else "makes other operations"
    nothing = "does nothing" if specs else "makes others"
    how = _words(line.places)
    if line.explored == _jax.PLACES:
        return f"{where} {does} only with a mesh around the call ({how}), and is explored so; without one it {nothing}"
    around = f"under {_words(line.explored)} alone" if line.explored else "here, as no mesh stands around this call"
    fix = "" if line.explored else ", or explore it so by giving mesh="
    return f"{where} {nothing} {around}; it {does} under {how}, so call the function there{fix}"


def _words(places: Collection[str]) -> str:
    names = {_jax.SET_MESH: "'with jax.set_mesh(mesh):'", _jax.WITH_MESH: "'with mesh:'"}
    return " or ".join(names[place] for place in sorted(places))


def without_effect(idle: Sequence[tuple[str, Frame]]) -> tuple[Finding, ...]:
    """A note for each constraint of the plan on a value that no result needs."""
    return tuple(
        Finding(
            f"constraint-without-effect:{name}@{source.short}",
            "note",
            f"the plan constrains {name}, which no result needs: JAX drops it from the program, so the constraint "
            "changes nothing",
            source=source,
        )
        for name, source in idle
    )
