"""Rules about arguments' shardings beside their siblings', parameters' and uses. `findings.BRIEFS` describes each."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from shardviz.diagnose.case import Case, also_moved, and_others, moved_words, nbytes, quoted_axes, severity, total_bytes
from shardviz.diagnose.policy import GRAVE, MOSTLY, SLIGHT
from shardviz.diagnose.specs import divides, free, moved_off, over_all, recut, steps_along, suggest_specs
from shardviz.layouts import itemsize
from shardviz.notation import Spec
from shardviz.notation.spec import axis_name
from shardviz.records import Finding, Suggestion, Value
from shardviz.records.amounts import format_bytes, plural
from shardviz.records.groups import grouped
from shardviz.records.paths import common_path, segments

_T = TypeVar("_T")


def less_sharded(case: Case) -> Iterator[Finding]:
    """Find arguments that are replicated along axes that shard most bytes of their tree, one finding per tree."""
    least, mesh = SLIGHT * case.argument_bytes, case.report.mesh
    for rows in _unlike_siblings(case):
        axes = dict.fromkeys(axis for row in rows for axis in row.more_axes)
        many = math.prod(mesh.shape[axis] for axis in axes)
        where = f"on the {plural(many, 'device')} along {{axes}}"
        if len({row.more_axes for row in rows}) > 1:
            where = "along {axes}, or along one of them"
        yield _recut(
            case,
            "less-sharded",
            rows,
            f"{{what}} replicated {where}, {{size}} on each; sharded along {{axes}}, {{less}}.",
            "most arrays beside {them} are sharded along {axes}, and {leave} that out",
            size=float(many),
        )
    for v, left in _less_than_tree(case):
        most = nbytes(v) * (1 - 1 / math.prod(mesh.shape[axis] for axis in left))
        divided = most < least or v.spec is None or over_all(v, left, mesh) is not None
        if not divided and (finding := _not_divided(case, v, left[0], most)) is not None:
            yield finding


def _once(rows: Callable[[Case], Iterable[_T]]) -> Callable[[Case], list[_T]]:
    """Return a function of a case that is computed once."""
    return lambda case: case.once(rows, lambda: list(rows(case)))


@_once
def _less_than_tree(case: Case) -> Iterator[tuple[Value, list[str]]]:
    """Yield arguments, and the axes that shard most bytes of their tree but not the argument.

    An optimizer's state is a separate tree, because ZeRO shards it alone.
    """
    mesh, otherwise = case.report.mesh, {row.value.name for row in _unlike(case)}
    trees = grouped(((segments(v.name)[0], v.optimizer), v) for v in case.arguments)
    for values in trees.values():
        sizes = {v.name: math.prod(v.shape) * itemsize(v.dtype) for v in values}
        total = sum(sizes.values())
        sharded = {axis: sum(sizes[v.name] for v in values if not free(v, axis)) for axis in mesh.shape}
        for v in values:
            beside = total - sizes[v.name]
            left = [a for a in mesh.names if sharded[a] and sharded[a] >= MOSTLY * beside and free(v, a)]
            if left and v.name not in otherwise:
                yield v, left


@_once
def _unlike_siblings(case: Case) -> Iterator[list[_Recut]]:
    """Yield the arguments that should be sharded like most of their tree, grouped by tree."""
    trees: dict[str, list[_Recut]] = defaultdict(list)
    for v, left in _less_than_tree(case):
        start = recut(v, v.read, case.report.mesh) if v.read is not None and _can_be(case, v, v.read) else v
        spec = over_all(start, [axis for axis in left if free(start, axis)], case.report.mesh) or start.spec
        if spec is not None and v.spec is not None and spec != v.spec:
            trees[segments(v.name)[0]].append(_Recut(v, spec))
    for rows in trees.values():
        largest = max(nbytes(row.value) for row in rows)
        rows = [row for row in rows if nbytes(row.value) >= GRAVE * largest]
        if _saved(case, *rows) >= max(SLIGHT * case.argument_bytes, 1.0):
            yield rows


def _can_be(case: Case, v: Value, spec: Spec) -> bool:
    """Return whether an argument can have a spec, and no loop steps along the sharded dimension."""
    return divides(v, spec, case.report.mesh) and not (v.scanned and any(spec.dims[:1]))


class _Recut(NamedTuple):
    """An argument, its better spec, and the parameter that has this spec."""

    value: Value
    spec: Spec
    parameter: Value | None = None

    @property
    def more_axes(self) -> tuple[str, ...]:
        own = self.value.spec
        return tuple(axis_name(a) for a in self.spec.axes if own is None or a not in own.axes)


def _saved(case: Case, *rows: _Recut) -> float:
    """Return the bytes per device that the better specs save; negative if they take more."""
    return sum(nbytes(v) - case.shard_bytes(v.shape, v.dtype, spec) for v, spec, _ in rows)


def _recut(
    case: Case, rule: str, rows: Sequence[_Recut], text: str, why: str, grave: bool = False, **numbers: float
) -> Finding:
    """Return one finding and one change for all arguments; the texts are formatted with words about them. `grave` makes
    it a warning regardless of the bytes saved."""
    first, out_specs = max(rows, key=lambda row: nbytes(row.value)), case.report.plan.out_specs
    one, rest, saved = first.value, [row for row in rows if row is not first], _saved(case, *rows)
    many = f"{len(rows)} arrays of {common_path([row.value.name for row in rows])}"
    specs = list(dict.fromkeys(str(row.spec) for row in rows))
    theirs = f"the spec {specs[0]}" if len(specs) == 1 else f"their specs, such as {specs[0]}"
    theirs = "the specs of their parameters" if first.parameter is not None else theirs
    size, axes = total_bytes(row.value for row in rows), tuple(dict.fromkeys(a for row in rows for a in row.more_axes))
    words = {
        "what": f"{many} ({one.name}, ...) are" if rest else f"{one.name} is",
        "them": "them" if rest else "it",
        "leave": "their specs leave" if rest else "its spec leaves",
        "size": format_bytes(size),
        "better": format_bytes(size - saved),
        "less": f"{'they' if rest else 'it'} would take {format_bytes(saved)} less on each",
        "axes": quoted_axes(axes),
        "one": one.name,
        "now": one.spec,
        "spec": first.spec,
        "parameter": first.parameter and first.parameter.name,
    }
    suggestion = Suggestion(
        kind="argument",
        target=one.name,
        spec=first.spec,
        specs=tuple((row.value.name, row.spec) for row in rest),
        out_specs=tuple((v.becomes, spec) for v, spec, _ in rows if out_specs.get(v.becomes) is not None),
        text=f"give {many} {theirs}" if rest else "",
    )
    return Finding(
        f"{rule}:{one.name}",
        severity(grave or case.heavy(saved)),
        text.format(**words),
        why=why.format(**words),
        value=one.name,
        axes=axes or (() if one.spec is None else one.spec.axes),
        numbers={"bytes": size, "saved_bytes": max(0.0, saved), "arrays": float(len(rows)), **numbers},
        suggestions=(suggestion,) if grave or saved > 0 else (),
    )


def _not_divided(case: Case, v: Value, axis: str, saved: float) -> Finding | None:
    """Return a finding that no dimension of an array divides by an axis; None if the array is too small."""
    size = case.report.mesh.shape[axis]
    if not v.shape or max(v.shape) < size:
        return None
    was, dimension = max((n, d) for d, n in enumerate(v.shape))
    unit = was // max(1, (v.shard_shape or v.shape)[dimension]) * size
    better = -(-was // unit) * unit
    return Finding(
        f"not-divided:{v.name}",
        severity(case.heavy(saved)),
        f"{v.name} is replicated on the {plural(size, 'device')} along {axis!r}, {format_bytes(v.bytes_per_device)} on "
        f"each, since no dimension of {list(v.shape)} divides by {size}; dimension {dimension} would with {better:,} "
        f"instead of {was:,} ({(better - was) / was:.1%} more).",
        why="JAX shards an array into equal parts only",
        value=v.name,
        axes=(axis,),
        numbers={"bytes": nbytes(v), "saved_bytes": saved, "size": float(better)},
        suggestions=(Suggestion(kind="pad", target=v.name, dimension=dimension, size=better),),
    )


def unlike_parameter(case: Case) -> Iterator[Finding]:
    """Find optimizer state that takes more bytes than its parameters or is sharded along other dimensions, as one
    finding."""
    rows = [row for row in _unlike(case) if _saved(case, row) >= 0]  # ZeRO shards the state further
    if not rows:
        return
    as_now = "as {now}, but its parameter {parameter} as {spec}"
    held = "{size} on each device against {better}"
    text = f"{{what}} sharded unlike their parameters, {held}: {{one}} {as_now}."
    shapes = {row.value.shape for row in rows}
    shapes |= {shape[1:] for shape in shapes} | {(1, *shape[1:]) for shape in shapes}  # a slice of a stack
    resharded = (c for c in case.report.collectives if c.kind in ("all-to-all", "collective-permute"))
    moves = case.moved(c for c in resharded if c.phase in ("backward", "update") and c.array in shapes)
    yield _recut(
        case,
        "unlike-parameter",
        rows,
        (text if len(rows) > 1 else f"{{what}} sharded {as_now}: {held}.")
        + (f" This communicates {moved_words(moves)}." if moves["bytes"] else ""),
        "an optimizer combines the two element by element, so each step reshards one of them",
        grave=not _saved(case, *rows),
        **also_moved(moves),
    )


@_once
def _unlike(case: Case) -> list[_Recut]:
    """Return the optimizer state sharded unlike its parameters, if it takes a hundredth of all arguments' bytes."""
    parameters: dict[tuple[Any, ...], Value] = {}  # shape and an end of the path → the first such parameter
    for v in case.arguments:
        for end in () if v.optimizer else _ends(v):
            parameters.setdefault(end, v)
    rows = []
    for v in (v for v in case.arguments if v.optimizer and v.spec is not None):
        p = next((parameters[end] for end in _ends(v) if end in parameters), None)  # the longest end that both have
        if p is not None and p.spec is not None and v.spec is not None and not v.spec.same_as(p.spec, case.report.mesh):
            rows.append(_Recut(v, p.spec, p))
    size = sum(max(nbytes(row.value), nbytes(row.parameter or row.value)) for row in rows)
    return rows if size >= SLIGHT * case.argument_bytes else []


def _ends(v: Value) -> Iterator[tuple[Any, ...]]:
    """Yield an array's shape with each end of its path, the longest first."""
    path = segments(v.name)
    return ((v.shape, path[start:]) for start in range(len(path)))


def read_in_slices(case: Case) -> Iterator[Finding]:
    """Find arguments of which each device reads only a slice, one finding per tree. Examples are a KV cache whose heads
    are sharded in use, and a weight between sharded weights."""

    def tree(row: _Recut) -> str:
        root, *inside = segments(row.value.name)
        return root if inside else str(row.spec)  # single arrays are grouped by their better spec

    for rows in grouped((tree(row), row) for row in _in_slices(case)).values():
        yield _recut(
            case,
            "read-in-slices",
            rows,
            "{what} replicated along {axes}, {size} on each device, and each device reads only its own slice; sharded "
            "as the program reads {them}, {spec}, {less}.",
            "what the program computes there is sharded along {axes}, so each device takes a slice and keeps the rest "
            "for nothing",
        )


def _in_slices(case: Case) -> Iterator[_Recut]:
    siblings = {row.value.name for rows in _unlike_siblings(case) for row in rows}
    otherwise = siblings | {row.value.name for row in _unlike(case)}
    for v in case.arguments:
        if v.read is None or v.spec is None or v.name in otherwise or not _can_be(case, v, v.read):
            continue
        row = _Recut(v, v.read)
        if _saved(case, row) >= SLIGHT * case.argument_bytes:
            yield row


def better_specs(case: Case) -> dict[str, Spec]:
    """Return argument → the spec that these rules suggest."""
    rows = (*_unlike(case), *itertools.chain.from_iterable(_unlike_siblings(case)), *_in_slices(case))
    return {row.value.name: row.spec for row in rows}


def stepped_along(case: Case) -> Iterator[Finding]:
    """Find arguments sharded along the dimension that a loop steps along, one finding per set of axes."""
    stepped = [(v, v.spec) for v in case.arguments if steps_along(v) and v.spec is not None]
    for axes, values in grouped((tuple(map(axis_name, spec.dims[0])), v) for v, spec in stepped).items():
        size, first = total_bytes(values), max(values, key=nbytes)
        recut_to = [(v.name, spec) for v in values if (spec := moved_off(v, axes, case.report.mesh)) is not None]
        text = f"shard another dimension of {plural(len(recut_to), 'array')} along {quoted_axes(axes)}"
        yield Finding(
            f"steps-along:{first.name}",
            severity(size >= GRAVE * case.argument_bytes),
            f"A loop steps along the first dimension of {first.name}{and_others(values)}, which is sharded along "
            f"{quoted_axes(axes)}: each run needs a slice that only some devices have. Together the slices take "
            f"{format_bytes(size)} on each device.",
            why="every device needs every slice, so each slice is communicated; with another dimension sharded, each "
            "device has its shard of every slice",
            value=first.name,
            axes=axes,
            numbers={"bytes": size, "arrays": float(len(values))},
            suggestions=suggest_specs("argument", recut_to, text),
        )
