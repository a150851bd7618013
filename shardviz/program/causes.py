"""Where a mesh axis on a value comes from: found by taking it away at its sources, and propagating again.

A source is where the axis is written down: a dimension of an argument's or output's spec, or of a constraint. Which
could matter says the graph: those that the value hangs together with over dimensions that carry the axis. Which do
matter is tried. All of them gone, the value must lose the axis; then as few of them are kept as taken away suffice:

* one: it is *needed*. Where it does not bring the axis by itself, others are, *only together* with it;
* several: each brings the axis though the others are gone, so that the value is cut by *one of several*.

What a shard_map's specs say is taken away around it (`Perturbed.changed`): inside, the shapes follow from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from shardviz.program.links import Cut, Key, Links, manual_place
from shardviz.program.perturb import Perturbed
from shardviz.records.why import Cause, Source

MOST_RUNS = 24
_REACHED = 4


@dataclass(frozen=True)
class Found:
    """The causes of an axis.

    Attributes:
        causes: the causes, the nearest first.
        at: which dimension of which value each source stands at, of those that the value hangs together with.
        notes: what was not tried, and why.
    """

    causes: tuple[Cause, ...]
    at: dict[tuple[Any, ...], Cut]
    notes: tuple[str, ...] = ()


def causes(trial: Perturbed, key: Key, dim: int, axis: str, most: int = MOST_RUNS) -> Found:
    """Where an axis comes from that cuts a dimension of a value.

    To be called with the trial entered.

    Args:
        trial: the program under its plan.
        key: the value.
        dim: the dimension.
        axis: the mesh axis.
        most: how often Shardy may be run.
    """
    until = trial.runs + most
    sources = trial.sources(axis)
    base = trial.base
    at = near(base, Cut(base.nodes[key], dim), axis, sources)
    by_key = {s.key: s for s in sources}
    free = [by_key[k] for k in at]

    def lost(gone: Iterable[Source]) -> bool:
        return not trial.holds(key, dim, axis, tuple(gone))

    if len(free) > 1 and lost(free[:1]):  # most often the nearest is all
        return _needed(trial, key, dim, axis, free, at, until)
    for _ in range(_REACHED):
        if lost(free):
            break
        links = trial.links(free)  # what was kept away before has come in
        more = near(links, Cut(links.nodes[key], dim), axis, sources)
        new = [by_key[k] for k in more if by_key[k] not in free]
        if not new:
            break
        free += new
    if not lost(free):
        if not lost(sources):
            every = tuple(Cause(source=s, verdict="not tried") for s in free)
            return Found(every, at, ("the axis stays without every source",))
        free = list(sources)
    keep, untried = _fewest(free, lost, trial, until)
    if len(keep) == 1:
        return _needed(trial, key, dim, axis, [keep[0], *(s for s in free if s is not keep[0])], at, until)
    alone = {}
    for source in keep:
        others = [s for s in free if s is not source]
        if len(keep) == len(free) and source not in untried:
            alone[source.key] = True  # it was what was tried
        elif trial.runs < until:
            alone[source.key] = not lost(others)
    made = [
        Cause(source=s, verdict="not tried" if s in untried else "one of several", enough=alone.get(s.key))
        for s in keep
    ]
    return Found(tuple(made), at, _untried(untried))


def _untried(sources: Sequence[Source]) -> tuple[str, ...]:
    if not sources:
        return ()
    return (
        f"{len(sources)} farther sources were taken away together with the others and not tried by themselves: "
        "that would take long",
    )


def _needed(
    trial: Perturbed, key: Key, dim: int, axis: str, free: Sequence[Source], at: dict[Any, Cut], until: int
) -> Found:
    """The first of the sources is needed; whether it needs others is found out."""
    first, rest = free[0], list(free[1:])

    def lost(gone: Iterable[Source]) -> bool:
        return not trial.holds(key, dim, axis, tuple(gone))

    if not rest or not lost(rest):
        return Found((Cause(source=first, verdict="needed", enough=True),), at)
    # with the first alone it is lost: which of the others must stay?
    stay = list(rest)
    for source in reversed(rest):
        if trial.runs >= until:
            break
        tried = [s for s in stay if s is not source]
        if not lost([s for s in rest if s not in tried]):
            stay = tried
    made = [Cause(source=first, verdict="needed", enough=False)]
    made += [Cause(source=s, verdict="needed" if lost([s]) else "only together", enough=False) for s in stay]
    return Found(tuple(made), at)


def _fewest(free: Sequence[Source], lost: Any, trial: Perturbed, until: int) -> tuple[list[Source], list[Source]]:
    """As few sources as, taken away, take the axis away; and those of them that were not tried by themselves.

    The farthest are spared first, many at once where that goes.
    """
    keep = list(free)
    tried: list[Source] = []
    half = len(keep) // 2
    while half > 1 and trial.runs < until:  # a needed one among many redundant ones is found by halves
        nearer = keep[:half]
        if not lost(nearer):
            break
        keep, half = nearer, half // 2
    for source in list(keep):
        if trial.runs >= until:
            break
        rest = [s for s in keep if s is not source]
        if rest and lost(rest):
            keep = rest
        else:
            tried.append(source)
    return keep, [s for s in keep if s not in tried]


def near(links: Links, target: Cut, axis: str, sources: Iterable[Source]) -> dict[tuple[Any, ...], Cut]:
    """The sources that a value hangs together with over dimensions that carry the axis, the nearest first.

    Returns:
        The source's key → the dimension at which it stands.
    """
    wanted = {(s.role, place, s.dimension, s.axis): s.key for s in sources for place in s.places}
    found: dict[tuple[Any, ...], Cut] = {}

    def ends(cut: Cut) -> bool:  # what is said of an array holds; nothing comes through it
        here = [wanted[standing] for standing in _standing(links, cut, axis) if standing in wanted]
        for key in here:
            found.setdefault(key, cut)
        return bool(here)

    links.reach(target, lambda cut: links.carries(cut, axis), ends)
    return found


def _standing(links: Links, cut: Cut, axis: str) -> list[tuple[Any, ...]]:
    """What sources may stand at a dimension: role, place, dimension, axis."""
    key = links.keys[cut.node]
    if key.kind in ("argument", "output"):
        return [(key.kind, key.place, cut.dim, axis)]
    found = []
    if key.kind == "result":
        found = [(role, key.tag, cut.dim, axis) for role in ("constraint", "type")]
    manual = [step for step in links.touching(cut.node) if step.kind == "manual"]
    return found + [("shard_map", manual_place(links.number(s), s.place), cut.dim, axis) for s in manual]
