"""Rules about the program itself, under any plan.

| rule | what it says |
|---|---|
| `own-partitioning` | an operation says in Python how it is partitioned, which is not asked |
| `mesh-asked` | a line does another thing where no mesh stands around the call, or one stands elsewhere |
| `constraint-without-effect` | the plan constrains a value that no result needs |
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from shardviz import _jax
from shardviz.program.contexts import MeshAsked
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
