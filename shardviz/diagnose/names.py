"""Rules about the logical axis names that a run of a script resolves.

| rule | meaning |
|---|---|
| `name-without-rule` | no rule names it: its dimension stays replicated |
| `constraint-without-effect` | its rule shards nothing there, or flax left the constraint out |
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from shardviz.diagnose.case import and_others, at_line, by_hand
from shardviz.records import Finding, Findings
from shardviz.records.amounts import first_names
from shardviz.records.groups import grouped
from shardviz.records.runs import NO_AXIS, NO_MESH, NO_RULE, NO_RULES, SIZE_ONE, TAKEN, RunRule

_IDLE = "constraint-without-effect"
_REASONS = {  # the finding's id, which for a warning about a name ends with it; its severity; what to do
    NO_RULES: (f"{_IDLE}:rules", "warning", "call it under `with flax.linen.logical_axis_rules(rules):`"),
    NO_MESH: (f"{_IDLE}:mesh", "warning", "call it under `with jax.set_mesh(mesh):`, or give it mesh=mesh"),
    NO_RULE: ("name-without-rule:", "warning", "correct its spelling, or add a rule, (name, None) to replicate it"),
    NO_AXIS: (f"{_IDLE}:", "warning", "give the mesh this axis, or let the rule name one that the mesh has"),
    TAKEN: (f"{_IDLE}:taken", "note", "put the rule that should win first, or give one of the names another mesh axis"),
    SIZE_ONE: (f"{_IDLE}:size-1", "note", "give the mesh axis more than one device, if the name is to shard"),
}

_MOST = 6  # names in a sentence


def name_findings(rules: Iterable[RunRule]) -> Findings:
    """Return the findings about names that shard nothing: one for each name that has no rule or no mesh axis, and one
    for all names of each other reason. A name whose rule says None gives none."""
    idle = (r for r in rules if r.why in _REASONS)
    kinds = grouped(((r.why, r.name if _REASONS[r.why][0].endswith(":") else ""), r) for r in idle)
    found = (_finding(why, name, some) for (why, name), some in kinds.items())
    return Findings(sorted(found, key=lambda finding: finding.weight))


def _finding(why: str, name: str, rules: Sequence[RunRule]) -> Finding:
    rule, severity, fix = _REASONS[why]
    names = list(dict.fromkeys(r.name for r in rules))
    lines = list(dict.fromkeys(r.source for r in rules))
    axes = list(dict.fromkeys(axis for r in rules for axis in r.axes))
    one, some = len(names) == 1, first_names(map(repr, names), _MOST)
    reason = f"{why} ({', '.join(axes)})" if axes else why
    return Finding(
        f"{rule}{name}",
        severity,
        f"The logical axis name{'s' * (not one)} {some} shard{'s' * one} nothing{at_line(lines[0])}"
        f"{and_others(lines, 'other line')}: {reason}",
        source=lines[0],
        numbers={"lines": float(len(lines)), "names": float(len(names))},
        suggestions=(by_hand(lines[0], fix),),
    )
