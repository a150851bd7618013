"""Arguments and outputs as JSON for the page: trees, shardings, twins and logical dimensions.

Trees and twins do not change while a program is explored and are sent once. Shardings change with every edit. Few
shardings differ, so each distinct one is sent once, and each array sends only its number. An edit of 5,000 arrays takes
some kilobytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from shardviz.explorer.arrays import arrays_of, layers_of, tree, twins_in
from shardviz.explorer.changes import choices
from shardviz.explorer.explorer import ExplorerState
from shardviz.explorer.logical import Axes, DimensionSharding, dimension_shardings
from shardviz.notation import Spec
from shardviz.notation.spec import axis_text
from shardviz.page.payload import Json
from shardviz.paint.json import axes_json, piece_json
from shardviz.records import Value
from shardviz.records.amounts import format_bytes, plural
from shardviz.records.groups import grouped
from shardviz.records.paths import short_name
from shardviz.view.document import Piece, words

_LISTED = 24  # maximum number of deviating arrays that a tip lists
_NAMED = 2  # maximum number of deviating shardings with their arrays named
_LITTLE = 0.01  # deviating arrays below this share of the bytes, such as a norm's scale, are not emphasised


def tree_view(values: Sequence[Value], deepest: int) -> Json:
    """Return the rows of a tree: `[depth, segment, label]` of a branch, with a layer group's number if it is a layer,
    and `[depth, segment, label, shape, dtype, donated]` of an array. `deepest` is as for `layers_of`."""
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
            name = short_name(value.name)  # with its index, because `w[0]` differs from `momentum[0]`
            rows.append([branch.depth, branch.segment, name, list(value.shape), value.dtype, value.donated])
            place += 1
    return {"rows": rows, "leaves": len(values)}


def shardings_view(state: ExplorerState, what: str) -> Json:
    """Return the shardings of the arguments or outputs: the distinct `kinds`, each array's index `at` into them, and
    each branch's bytes `sums`."""
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
    """Return for each mesh axis 1 (may be added), a reason, or [reason] if the axis may be moved here or fits only some
    arrays."""
    return [1 if c.legal else [c.reason] if c.move else c.reason for c in options]


def array_groups_view(state: ExplorerState) -> Json:
    """Return each array's twin group (below 0 for none), and each dimension's logical dimension (empty for none)."""
    report, dimensions = state.report, state.logical.found
    group = twins_in(report, dimensions).group
    names = {tuple(member): each.name for each in dimensions or () for member in each.members}

    def of(role: str, values: Sequence[Value]) -> Json:
        message: Json = {"twins": [group.get((role, v.name), -1) for v in values]}
        if dimensions is not None:
            message["dimensions"] = [[names.get((role, v.name, d), "") for d in range(len(v.shape))] for v in values]
        return message

    return {"inputs": of("argument", report.arguments), "outputs": of("output", report.outputs)}


def dimensions_view(state: ExplorerState) -> Json:
    """Return the logical dimensions, or why there are none yet."""
    logical = state.logical
    rows = () if logical.found is None else dimension_shardings(logical.found, state.bound, state.report.arguments)
    now = "found" if logical.found is not None else "busy" if logical.busy else "failed" if logical.trouble else ""
    share = f" {logical.share:.0%}" if logical.share else ""
    messages = {
        "busy": f"looking for the dimensions that arrays share …{share}",
        "failed": f"no dimensions: {logical.trouble}",
    }
    return {"state": now, "message": messages.get(now, ""), "rows": [_row(row) for row in rows]}


def _row(row: DimensionSharding) -> Json:
    each = row.dimension
    count = len({m.path for m in each.arguments})
    return {
        "name": each.name,
        "size": " / ".join(f"{size}" for size in each.sizes[:3]) + (" / …" if len(each.sizes) > 3 else ""),
        "axes": axes_json(row.axes) or [],
        "said": f"{', '.join(row.arrays)}" if len(row.arrays) <= 4 else plural(count, "array"),
        "arrays": plural(count, "array") + ": " + ", ".join(row.arrays),
        "otherwise": _listed([f"{m.path}: {_way(axes)}" for m, axes in row.otherwise.items()]),
        "but": [piece_json(piece) for piece in _but(row)],
        "grave": row.share >= _LITTLE,
        "choices": _codes(row.choices),
        "several": [f"{path} has it {len(dims)} times" for path, dims in each.conflicts.items()],
    }


def _listed(lines: list[str]) -> list[str]:
    """Return the first lines, and the number of the others."""
    return lines if len(lines) <= _LISTED else [*lines[:_LISTED], f"and {len(lines) - _LISTED} more"]


def _way(axes: Axes) -> str:
    return " and ".join(map(axis_text, axes)) or "not sharded"


def _but(row: DimensionSharding) -> list[Piece]:
    """Return words on the arrays sharded differently, grouped by sharding; only the first groups name arrays."""
    alike = grouped((_way(axes), member) for member, axes in row.otherwise.items())
    pieces, shardings = [words("but")], [*alike.items()]
    for n, (way, members) in enumerate(shardings[:_NAMED], 1):
        names = ", ".join(dict.fromkeys(short_name(m.path) for m in members))
        end = ";" if n < len(shardings) else ""
        pieces += [words(names, selects=("value", members[0].path)), words(f": {way}{end}")]
    return [*pieces, words(f"{len(shardings) - _NAMED} more")] if len(shardings) > _NAMED else pieces
