"""The left side as the page gets it: the trees of arguments and outputs, how each array is sharded, twins, dimensions.

A tree does not change while its program is explored, so it is sent once, and so are the twins. What changes with every
edit, how the arrays are sharded, is sent apart from it: few arrays of a program are sharded in ways of their own, so
every way is said once, and of each array only its number. So an edit of 5,000 arrays is some kilobytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from shardviz.explorer.arrays import arrays_of, kin, layers_of, tree
from shardviz.explorer.changes import choices
from shardviz.explorer.explorer import ExplorerState
from shardviz.explorer.logical import MOST_AT_ONCE, Axes, Cut, called, cuts
from shardviz.notation import Spec
from shardviz.notation.spec import axis_text
from shardviz.page.payload import Json
from shardviz.paint.json import axes_json, piece_json
from shardviz.program.seeding import Member
from shardviz.records import Value
from shardviz.records.amounts import format_bytes, plural
from shardviz.view.document import Piece, words

_NAMED = 2  # ways in which arrays are sharded otherwise, of which the arrays are named
_LITTLE = 0.01  # of a dimension's bytes: what is less and sharded otherwise, such as a norm's scale, is said quietly


def tree_view(values: Sequence[Value], deepest: int) -> Json:
    """The rows of a tree: `[depth, segment, label]` of a branch, and of one that is a layer which layers it is like; of
    an array `[depth, segment, label, shape, dtype, donated]`. `deepest` is as for `layers_of`."""
    layers, rows = layers_of(arrays_of(values), deepest), []
    place = 0
    path: list[str] = []
    for branch in tree(tuple(v.name for v in values)):
        path[branch.depth :] = [branch.segment]
        if branch.leaves:
            like = layers.get(tuple(path))
            rows.append([branch.depth, branch.segment, branch.label, *([] if like is None else [like])])
        else:
            value = values[place]
            rows.append([branch.depth, branch.segment, branch.label, list(value.shape), value.dtype, value.donated])
            place += 1
    return {"rows": rows, "leaves": len(values)}


def cuts_view(state: ExplorerState, what: str) -> Json:
    """How the arguments or outputs are sharded: `kinds`, each said once; `at`, which it is of each array; `sums`, what
    each branch has."""
    report, bound = state.report, state.bound
    values = report.arguments if what == "argument" else report.outputs
    specs: Mapping[str, Spec | None] = bound.in_specs if what == "argument" else bound.out_specs
    changed = state.changed
    kinds: list[Json] = []
    places: dict[Any, int] = {}
    at: list[int] = []
    for value in values:
        planned = specs.get(value.name)
        spec = value.spec if planned is None else planned
        chosen = planned is None and what == "output"
        key = (value.shape, value.dtype, spec, value.memory_kind, value.unused, chosen, value.name in changed)
        if (place := places.get(key)) is None:
            place = places[key] = len(kinds)
            kinds.append(_kind(value, spec, chosen, value.name in changed, state))
        at.append(place)
    sums: list[str] = []
    for branch in tree(tuple(v.name for v in values)):
        sizes = [values[i].bytes_per_device for i in branch.inside]
        total = None if None in sizes else sum(size for size in sizes if size is not None)
        sums += [format_bytes(total)] if sizes else []
    return {"kinds": kinds, "at": at, "sums": sums}


def _kind(value: Value, spec: Spec | None, chosen: bool, changed: bool, state: ExplorerState) -> Json:
    full = Spec.of(spec, len(value.shape))
    mesh = state.plan.mesh
    kind: Json = {
        "dims": None if spec is None else [axes_json(dim) or [] for dim in full.dims],
        "text": str((spec or Spec()).canonical()),
        "bytes": format_bytes(value.bytes_per_device),
        "size": value.bytes_per_device or 0,
        "memory": value.memory_kind,
        "choices": [_codes(choices(value.shape, full, mesh, d)) for d in range(len(value.shape))],
    }
    if value.shard_shape is not None:
        kind["shard"] = list(value.shard_shape)
    flags = {"chosen": chosen, "changed": changed, "unused": value.unused}
    return kind | {name: True for name, flag in flags.items() if flag}


def _codes(options: Iterable[Any]) -> list[Any]:
    """By axis of the mesh: 1 (may be added), a reason, or [reason] where it may be moved here, or not everywhere."""
    return [1 if c.legal else [c.reason] if c.move else c.reason for c in options]


def kin_view(state: ExplorerState) -> Json:
    """The number of each array's group of twins, below 0 for none; and the places of its dimensions among the rows of
    `dimensions_view`, below 0 for none."""
    report, dimensions = state.report, state.logical.found
    group = kin(report, dimensions).group
    rows = sorted((each for each in dimensions or () if each.arguments), key=lambda each: each.stacked)
    place = {tuple(member): n for n, each in enumerate(rows) for member in each.members}

    def of(role: str, values: Sequence[Value]) -> Json:
        told: Json = {"groups": [group.get((role, v.name), -1) for v in values]}
        if dimensions is not None:
            told["dimensions"] = [[place.get((role, v.name, d), -1) for d in range(len(v.shape))] for v in values]
        return told

    return {"inputs": of("argument", report.arguments), "outputs": of("output", report.outputs)}


def dimensions_view(state: ExplorerState) -> Json:
    """The logical dimensions: what shards each, which arrays disagree, what may be added; or why there are none yet."""
    logical = state.logical
    rows = () if logical.found is None else cuts(logical.found, state.bound, state.report.arguments)
    now = "found" if logical.found is not None else "busy" if logical.busy else "failed" if logical.trouble else ""
    unasked = len(state.report.arguments) <= MOST_AT_ONCE
    told = {
        "busy": "looking for the dimensions that arrays share …",
        "failed": f"no dimensions: {logical.trouble}",
        "": "" if unasked else "which dimensions the arrays share is not known yet: of so many it takes minutes",
    }
    return {
        "state": now,
        "told": told.get(now, ""),
        "asks": not (now or unasked),
        "unasked": unasked,
        "rows": [_row(cut) for cut in rows],
    }


def _row(cut: Cut) -> Json:
    each = cut.dimension
    count = len({m.path for m in each.arguments})
    return {
        "name": each.name,
        "size": " / ".join(f"{size}" for size in each.sizes[:3]) + (" / …" if len(each.sizes) > 3 else ""),
        "axes": axes_json(cut.axes) or [],
        "said": f"{', '.join(cut.arrays)}" if len(cut.arrays) <= 4 else plural(count, "array"),
        "arrays": plural(count, "array") + ": " + ", ".join(cut.arrays),
        "otherwise": [f"{m.path}: {_way(axes)}" for m, axes in cut.otherwise.items()],
        "but": [piece_json(piece) for piece in _but(cut)],
        "grave": cut.share >= _LITTLE,
        "choices": _codes(cut.choices),
        "several": [f"{path} has it {len(dims)} times" for path, dims in each.conflicts.items()],
    }


def _way(axes: Axes) -> str:
    return " and ".join(map(axis_text, axes)) or "not sharded"


def _but(cut: Cut) -> list[Piece]:
    """The arrays that are sharded otherwise, those that are sharded alike together, each name once; the first few."""
    alike: dict[str, list[Member]] = {}
    for member, axes in cut.otherwise.items():
        alike.setdefault(_way(axes), []).append(member)
    pieces, ways = [words("but")], [*alike.items()]
    for n, (way, members) in enumerate(ways[:_NAMED], 1):
        names = ", ".join(dict.fromkeys(map(called, members)))
        end = ";" if n < len(ways) else ""
        pieces += [words(names, selects=("value", members[0].path)), words(f": {way}{end}")]
    return [*pieces, words(f"{len(ways) - _NAMED} more")] if len(ways) > _NAMED else pieces
