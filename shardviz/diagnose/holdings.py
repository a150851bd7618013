"""Rules about what each device holds and could share with others.

| rule | what it says |
|---|---|
| `less-cut` | arguments lie whole along an axis that cuts most of what stands beside them |
| `unlike-parameter` | an optimizer's state is cut otherwise than its parameters |
| `read-in-slices` | arguments lie whole along an axis, and each device reads only its own slice of them |
| `kept-whole` | what is kept for the backward pass lies whole along an axis that could cut it |
| `whole-activation` | what is made inside lies whole along the axes that cut the batch |
| `padded` | a dimension of what is made inside does not divide by its cut, so that devices hold padding |
| `result-whole` | a result that the program makes cut comes out whole, since its dimension does not divide |
| `whole-batch` | every device gets the whole batch |
| `not-divided` | an argument cannot be cut over an axis since no dimension divides; the size that would |
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from shardviz.costs.batch import inputs_of
from shardviz.diagnose.case import Case, and_others, at_line, axes_said, moved_words, nbytes, severity, total_bytes
from shardviz.diagnose.specs import divides, first_cut_further, free, further, over_all, recut
from shardviz.layouts import itemsize
from shardviz.layouts.uneven import shard_shape
from shardviz.notation import Axis, Spec
from shardviz.notation.spec import axis_name, axis_size
from shardviz.records import Finding, Frame, Suggestion, Value
from shardviz.records.amounts import format_bytes, plural
from shardviz.records.collectives import axes_words
from shardviz.records.paths import common_path, segments
from shardviz.records.phases import phase

_SHARE = 0.05
_KEPT = 0.1


def less_cut(case: Case) -> Iterator[Finding]:
    """Arguments that lie whole along axes over which most bytes of their tree are cut, those of a tree as one finding.

    A warning where cutting them saves a twentieth of all arguments' bytes and a hundredth of the machine's; nothing
    where it saves less than a hundredth of the arguments'.
    """
    yield from (_less(case, rows) for rows in _unlike_siblings(case))
    least, mesh = 0.01 * case.argument_bytes, case.report.mesh
    for v, left in _uncut(case):
        most = nbytes(v) * (1 - 1 / math.prod(mesh.shape[axis] for axis in left))
        uneven = v.spec is not None and over_all(v, left, mesh) is None
        if uneven and most >= least and (finding := _not_divided(case, v, left[0], most)) is not None:
            yield finding


def _uncut(case: Case) -> Iterator[tuple[Value, list[str]]]:
    """Arguments, and the axes over which most bytes of their tree are cut and they are not."""
    mesh, otherwise = case.report.mesh, {row.value.name for row in _unlike(case)}
    for values in _trees(case.report.held):
        sizes = {v.name: math.prod(v.shape) * itemsize(v.dtype) for v in values}
        total = sum(sizes.values())
        cut = {axis: sum(sizes[v.name] for v in values if not free(v, axis)) for axis in mesh.shape}
        for v in values:
            beside = total - sizes[v.name]
            left = [a for a, n in mesh.shape.items() if n > 1 and free(v, a) and cut[a] >= 0.5 * beside and cut[a]]
            if left and v.name not in otherwise:
                yield v, left


def _unlike_siblings(case: Case) -> list[list[_Recut]]:
    """The arguments that had better be cut as most of their tree, in the slices that the program reads where it reads
    slices; by trees."""
    return case.once("siblings", lambda: list(_trees_of_siblings(case)))


def _trees_of_siblings(case: Case) -> Iterator[list[_Recut]]:
    trees: dict[str, list[_Recut]] = defaultdict(list)
    for v, left in _uncut(case):
        start = recut(v, v.read, case.report.mesh) if v.read is not None and _can_be(case, v, v.read) else v
        spec = over_all(start, [axis for axis in left if free(start, axis)], case.report.mesh) or start.spec
        if spec is not None and v.spec is not None and spec != v.spec:
            trees[segments(v.name)[0]].append(_Recut(v, spec))
    for rows in trees.values():
        largest = max(nbytes(row.value) for row in rows)
        rows = [row for row in rows if nbytes(row.value) >= _SHARE * largest]
        if sum(_saved(case, row) for row in rows) >= max(0.01 * case.argument_bytes, 1.0):
            yield rows


def _can_be(case: Case, v: Value, spec: Spec) -> bool:
    """Whether an argument can have a spec, and no loop steps along what it cuts."""
    return divides(v, spec, case.report.mesh) and not (v.scanned and spec.dims[0])


class _Recut(NamedTuple):
    """An argument, the spec that it had better have, and the parameter that has it."""

    value: Value
    spec: Spec
    parameter: Value | None = None


def _saved(case: Case, row: _Recut) -> float:
    """Bytes that the other spec saves on each device; negative where it takes more."""
    shard = shard_shape(row.value.shape, row.spec, case.report.mesh)
    return nbytes(row.value) - math.prod(shard) * itemsize(row.value.dtype)


def _less(case: Case, rows: Sequence[_Recut]) -> Finding:
    many = lambda axes: math.prod(case.report.mesh.shape[axis] for axis in axes)  # noqa: E731
    axes = _more_axes(rows)
    where = f"on the {plural(many(axes), 'device')} along {axes_said(axes)}"
    if len({_more_axes([row]) for row in rows}) > 1:
        where = f"along {axes_said(axes)}, or along one of them"
    return _found(
        case,
        "less-cut",
        rows,
        f"{{what}} replicated {where}, {{bytes}} on each; sharded along {axes_said(axes)}, "
        "{they} would take {saved} less on each.",
        why=f"most arrays beside {'it' if len(rows) == 1 else 'them'} are sharded along {axes_said(axes)}, and "
        f"{'its spec leaves' if len(rows) == 1 else 'their specs leave'} that out",
        size=float(many(axes)),
    )


def _more_axes(rows: Iterable[_Recut]) -> tuple[str, ...]:
    """The axes by which the other specs cut, and those of now do not."""
    news = [axis_name(a) for v, spec, _ in rows for a in spec.axes if v.spec is None or a not in v.spec.axes]
    return tuple(dict.fromkeys(news))


def _found(case: Case, rule: str, rows: Sequence[_Recut], text: str, *, why: str, **numbers: float) -> Finding:
    """One finding about arguments that had better be cut otherwise, and one change that cuts them all so.

    Args:
        case: the report.
        rule: the rule.
        rows: the arguments.
        text: with `{what}`, `{bytes}`, `{they}` and `{saved}` to be filled in.
        why: the reason.
        numbers: besides `bytes`, `saved_bytes` and `arrays`.
    """
    first = max(rows, key=lambda row: nbytes(row.value))
    rest = [row for row in rows if row is not first]
    saved, total = sum(_saved(case, row) for row in rows), total_bytes(row.value for row in rows)
    one, tree = first.value.name, common_path([row.value.name for row in rows])
    what = f"{one} is" if not rest else f"{len(rows)} arrays of {tree} ({one}, ...) are"
    pinned = [(v.becomes, spec) for v, spec, _ in rows if case.report.plan.out_specs.get(v.becomes) is not None]
    mend = Suggestion(
        kind="argument",
        target=one,
        spec=first.spec,
        specs=tuple((row.value.name, row.spec) for row in rest),
        out_specs=tuple(pinned),
        text=f"give {len(rows)} arrays of {tree} {_specs_said(rows)}" if rest else "",
    )
    axes = (a for v, spec, _ in rows for a in (*(v.spec.axes if v.spec is not None else ()), *spec.axes))
    return Finding(
        f"{rule}:{one}",
        severity(case.heavy(saved)),
        text.format(what=what, bytes=format_bytes(total), saved=format_bytes(saved), they="they" if rest else "it"),
        why=why,
        value=one,
        axes=tuple(dict.fromkeys(axes)) if rule == "unlike-parameter" else _more_axes(rows),
        numbers={"bytes": total, "saved_bytes": max(0.0, saved), "arrays": float(len(rows)), **numbers},
        mends=(mend,) if saved > 0 else (),
    )


def _specs_said(rows: Sequence[_Recut]) -> str:
    if all(row.parameter is not None for row in rows):
        return "the specs of their parameters"
    specs = list(dict.fromkeys(str(row.spec) for row in rows))
    return f"the spec {specs[0]}" if len(specs) == 1 else f"their specs, such as {specs[0]}"


def _not_divided(case: Case, v: Value, axis: str, saved: float) -> Finding | None:
    """That no dimension of an array divides by an axis; None for one that is too small for it."""
    size = case.report.mesh.shape[axis]
    if not v.shape or max(v.shape) < size:
        return None
    dimension = max(range(len(v.shape)), key=lambda d: (v.shape[d], d))
    shard = v.shard_shape or v.shape
    unit = v.shape[dimension] // max(1, shard[dimension]) * size
    better = -(-v.shape[dimension] // unit) * unit
    more = better - v.shape[dimension]
    return Finding(
        f"not-divided:{v.name}",
        severity(case.heavy(saved)),
        f"{v.name} is replicated on the {plural(size, 'device')} along {axis!r}, {format_bytes(v.bytes_per_device)} on "
        f"each, since no dimension of {list(v.shape)} divides by {size}; dimension {dimension} would with {better:,} "
        f"instead of {v.shape[dimension]:,} ({more / v.shape[dimension]:.1%} more).",
        why="JAX shards an array into equal parts only",
        value=v.name,
        axes=(axis,),
        numbers={"bytes": nbytes(v), "saved_bytes": saved, "size": float(better)},
        mends=(Suggestion(kind="pad", target=v.name, dimension=dimension, size=better),),
    )


def whole_batch(case: Case) -> Iterator[Finding]:
    """A note of what a step takes in anew (token ids, samples) that lies whole on every device."""
    mesh = case.report.mesh
    for v in inputs_of(case.report):
        if v.spec is None or v.spec.axes or v.manual or not v.shape:
            continue
        tries = ((axis, first_cut_further(v, axis, mesh)) for axis, size in mesh.shape.items() if size > 1)
        axis, mend = next((found for found in tries if found[1] is not None), ("", None))
        if mend is None:
            continue
        yield Finding(
            f"whole-batch:{v.name}",
            "note",
            f"The batch {v.name} is replicated on every device, {format_bytes(v.bytes_per_device)}; no axis "
            f"shards its {v.shape[0]:,} entries.",
            why="only the weights then divide the work; sharded along an axis, each group of devices works on its own "
            "part of the batch",
            value=v.name,
            axes=(axis,),
            numbers={"bytes": nbytes(v)},
            mends=(mend,),
        )


def whole_activation(case: Case) -> Iterator[Finding]:
    """What the forward pass makes of the whole batch on every device, though the batch comes in cut.

    One finding for each batch, with the largest such array, if that is a twentieth of what a device holds, or more.
    """
    report = case.report
    held = case.argument_bytes + report.residual_bytes
    inputs = {
        v.shape[0]: v.spec.dims[0] for v in inputs_of(report) if v.shape and v.spec is not None and v.spec.dims[0]
    }
    if not inputs:
        return
    forward = any(phase(v.name_stack) == "forward" for v in report.intermediates)
    wanted = "forward" if forward else "update"  # a program without a backward pass is all of one
    made = [v for v in report.intermediates if v.shape and v.spec is not None and v.source is not None and not v.manual]
    made = [v for v in made if phase(v.name_stack) == wanted]
    for size, axes in inputs.items():
        names = {axis_name(a) for a in axes}
        of_batch = [v for v in made if v.shape[0] == size and not names & _first(v)]
        whole = [v for v in of_batch if all(free(v, name) for name in names)]
        v = max(whole, key=lambda v: (nbytes(v), bool(v.label)), default=None)
        if v is None or nbytes(v) < max(_SHARE * held, 2**20):
            continue
        many = math.prod(axis_size(a, report.mesh) for a in axes)
        taken = nbytes(v)
        saved = taken * (1 - 1 / many)
        first = next(each for each in of_batch if "float" in each.dtype or each is v)
        lines = {each.source for each in whole if nbytes(each) >= 2**20} - {v.source}
        others = f", and so are arrays of {plural(len(lines), 'other line')}" if lines else ""
        where = at_line(v.source)
        yield Finding(
            f"whole-activation:{v.source.short if v.source else v.name}",
            "warning",
            f"{v.label or 'An activation'}{where} is replicated along {axes_said(axes)}, "
            f"along which the batch is sharded{others}: {format_bytes(taken)} on each of the "
            f"{plural(many, 'device')}; sharded too, it would take {format_bytes(saved)} less on each.",
            why="a constraint asks for it, an operation cannot run along a sharded batch, or the other operand uses "
            "the same axes for another dimension; each device works on the whole batch there",
            source=v.source,
            value=v.name,
            axes=axes,
            numbers={"bytes": taken, "saved_bytes": saved, "size": float(many)},
            mends=tuple(dict.fromkeys(case.held(each, _by_batch(each.spec, axes), each.source) for each in (first, v))),
        )


def _first(v: Value) -> set[str]:
    """The axes that cut the first dimension."""
    return {axis_name(a) for a in v.spec.dims[0]} if v.spec is not None and v.spec.dims else set()


def _by_batch(spec: Spec | None, axes: tuple[Axis, ...]) -> Spec:
    """The spec with these axes on the first dimension and on no other."""
    names = {axis_name(a) for a in axes}
    dims = () if spec is None else spec.dims
    kept = [tuple(a for a in dim if axis_name(a) not in names) for dim in dims]
    return Spec(((*kept[0], *axes), *kept[1:]) if kept else (axes,))


def padded(case: Case) -> Iterator[Finding]:
    """Dimensions of what is made inside that do not divide by what cuts them, each size and cut once.

    A warning where a tenth or more of a large array is padding; nothing where that is less than a hundredth.
    """
    report, mesh = case.report, case.report.mesh
    held = case.argument_bytes + report.residual_bytes
    found: dict[tuple[int, tuple[Axis, ...]], list[tuple[float, int, Value]]] = defaultdict(list)
    for v in report.intermediates:
        if v.spec is None or v.manual or not v.shape or nbytes(v) < 0.01 * held:
            continue
        for d, (size, dim) in enumerate(zip(v.shape, v.spec.dims, strict=False)):
            ways = math.prod(axis_size(a, mesh) for a in dim)
            if size % ways and size >= 1:
                waste = 1 - size / (-(-size // ways) * ways)
                found[size, dim].append((nbytes(v) * waste, d, v))
    for (size, dim), rows in found.items():
        wasted, d, v = max(rows, key=lambda row: row[0])
        ways = math.prod(axis_size(a, mesh) for a in dim)
        better = -(-size // ways) * ways
        share = 1 - size / better
        if share < 0.01:
            continue
        at = next(((a.name, i) for a in report.held for i, n in enumerate(a.shape) if n == size), None)
        pad = () if at is None else (Suggestion(kind="pad", target=at[0], dimension=at[1], size=better),)
        code = Suggestion(kind="code", source=v.source, text=f"make it {better:,} long, or {size // ways * ways:,}")
        others = and_others(rows)
        where = at_line(v.source)
        yield Finding(
            f"padded:{size}:{axes_words(dim)}",
            severity(share >= 0.1 and nbytes(v) >= _SHARE * held),
            f"Dimension {d} of {v.label or 'an intermediate'}{where}{others}, {size:,} long, is sharded {ways} ways "
            f"along {axes_said(dim)}, which do not divide it: {share:.1%} of each such array is padding, "
            f"{format_bytes(wasted)} of {format_bytes(v.bytes_per_device)} on each device; {better:,} would divide.",
            why="all shards have the same shape, so the last ones hold padding, and take as long as the others",
            source=v.source,
            value=v.name,
            axes=dim,
            numbers={"bytes": nbytes(v), "wasted_bytes": wasted, "size": float(better)},
            mends=pad or ((code,) if size >= ways else ()),
        )


def result_whole(case: Case) -> Iterator[Finding]:
    """Results that are made cut, with padding, and gathered at the end, as JAX gives out equal parts only."""
    mesh = case.report.mesh
    for c in case.report.collectives:
        if c.kind != "all-gather" or "return" not in c.read_by:
            continue
        if c.array is None or c.before is None or c.after is None:
            continue
        for d, (size, was, now) in enumerate(zip(c.array, c.before.dims, c.after.dims, strict=False)):
            ways = math.prod(axis_size(a, mesh) for a in was)
            if was == now or size % ways == 0:
                continue
            better = -(-size // ways) * ways
            named = [v for v in case.report.outputs if v.shape == c.array and v.dtype == c.dtype]
            v = named[0] if len(named) == 1 else None
            numbers = case.moved((c,)) | {"held_bytes": case.left(c), "size": float(better)}
            yield Finding(
                f"result-whole:{v.name if v is not None else case.place(c)}",
                severity(case.heavy(case.left(c))),
                f"{v.name if v is not None else 'A result'}, {list(c.array)}, comes out replicated on the "
                f"{plural(ways, 'device')} along {axes_said(was)}, {format_bytes(case.left(c))} on each, since "
                f"{size:,} does not divide by {ways}; {better:,} would.",
                why="it is computed sharded, with padding, but JAX returns equal shards only and gathers it silently: "
                f"{moved_words(numbers)}",
                source=c.source,
                value=v.name if v is not None else "",
                axes=was,
                numbers=numbers,
                mends=(Suggestion(kind="code", source=c.source, text=f"make dimension {d} {better:,} long"),),
            )


def _trees(values: tuple[Value, ...]) -> list[list[Value]]:
    """Arguments by the argument of the function that they are in; only those of several arrays."""
    found: dict[str, list[Value]] = defaultdict(list)
    for v in values:
        found[segments(v.name)[0]].append(v)
    return [group for group in found.values() if len(group) > 1]


def unlike_parameter(case: Case) -> Iterator[Finding]:
    """An optimizer's state that is cut otherwise than its parameters: one finding of what holds more than they, and a
    note of what holds less."""
    rows = _unlike(case)
    for held_more in (True, False):
        some = [row for row in rows if (_saved(case, row) > 0) is held_more]
        if not some:
            continue
        first = max(some, key=lambda row: nbytes(row.value))
        own, parameter = first.value, first.parameter
        assert parameter is not None
        as_now = f"as {own.spec}, but its parameter {parameter.name} as {parameter.spec}"
        text = (
            f"{own.name} is sharded {as_now}: {{bytes}} on each device against "
            f"{format_bytes(parameter.bytes_per_device)}."
        )
        if len(some) > 1:
            saved = sum(_saved(case, row) for row in some)
            text = (
                f"{{what}} sharded unlike their parameters, {{bytes}} on each device against "
                f"{format_bytes(total_bytes(row.value for row in some) - saved)}: {own.name} {as_now}."
            )
        yield _found(
            case,
            "unlike-parameter",
            some,
            text,
            why="an optimizer combines the two element by element, so each step reshards one of them; ZeRO does so "
            "on purpose, with the optimizer's state sharded further",
        )


def _unlike(case: Case) -> list[_Recut]:
    """The arrays of an optimizer's state that are cut otherwise than their parameters, where that is a hundredth of all
    arguments' bytes."""
    return case.once("unlike", lambda: _unlike_parameters(case))


def _unlike_parameters(case: Case) -> list[_Recut]:
    pairs = ((v, p) for v, p in _with_parameters(case) if v.spec is not None and p.spec is not None)
    pairs = [(v, p) for v, p in pairs if not v.spec.same_as(p.spec, case.report.mesh)]
    largest = max((max(nbytes(v), nbytes(p)) for v, p in pairs), default=0.0)
    pairs = [(v, p) for v, p in pairs if max(nbytes(v), nbytes(p)) >= 0.01 * largest]
    if sum(max(nbytes(v), nbytes(p)) for v, p in pairs) < 0.01 * case.argument_bytes:
        return []
    return [_Recut(v, p.spec, p) for v, p in pairs]


def _with_parameters(case: Case) -> Iterator[tuple[Value, Value]]:
    """(Array of an optimizer's state, its parameter): of one shape, and of the longest common end of their paths.

    Where the program takes no derivative, nothing tells the two apart but the order of the arguments: the parameter is
    first.
    """
    values = {v.name: v for v in case.report.held}
    if any(v.optimizer for v in values.values()):
        used = [(segments(v.name), v) for v in values.values() if not v.optimizer]
        for v in values.values():
            ours = segments(v.name)
            alike = [(_common_end(ours, path), p) for path, p in used if p.shape == v.shape] if v.optimizer else []
            end, parameter = max(alike, key=lambda pair: pair[0], default=(0, v))
            if end:
                yield v, parameter
        return
    for (path, _), at in case.family.at.items():
        alike = [values[name] for what, name in at if what == "argument" and name in values]
        first = next((v for v in alike if "".join(segments(v.name)[1:]) == path), None)
        yield from ((v, first) for v in alike if first is not None and v is not first)


def _common_end(one: Sequence[str], other: Sequence[str]) -> int:
    """How many parts of two paths are the same at their ends."""
    pairs = zip(reversed(one), reversed(other), strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def read_in_slices(case: Case) -> Iterator[Finding]:
    """Arguments of which each device holds more than it reads, those of a tree as one finding: a KV cache whose heads
    are sharded where they are used, a weight between weights that are sharded."""
    trees: dict[str, list[_Recut]] = defaultdict(list)
    for row in _in_slices(case):
        trees[segments(row.value.name)[0]].append(row)
    for rows in trees.values():
        axes = axes_said(_more_axes(rows))
        spec = max(rows, key=lambda row: nbytes(row.value)).spec
        yield _found(
            case,
            "read-in-slices",
            rows,
            f"{{what}} replicated along {axes}, {{bytes}} on each device, and each device reads only its own slice; "
            f"sharded as it is read, {spec}, {{they}} would take {{saved}} less on each.",
            why="what the program computes with it is sharded along that axis, so each device takes a slice and keeps "
            "the rest for nothing",
        )


def _in_slices(case: Case) -> Iterator[_Recut]:
    siblings = {row.value.name for rows in _unlike_siblings(case) for row in rows}
    otherwise = siblings | {row.value.name for row in _unlike(case)}
    for v in case.report.held:
        if v.read is None or v.spec is None or v.name in otherwise or not _can_be(case, v, v.read):
            continue
        row = _Recut(v, v.read)
        if _saved(case, row) >= 0.01 * case.argument_bytes:
            yield row


def kept_whole(case: Case) -> Iterator[Finding]:
    """What is kept for the backward pass, a tenth of what a device holds or more, whole along an axis that divides it;
    what one line makes as one finding."""
    report = case.report
    held = case.argument_bytes + report.residual_bytes
    over = case.cost is not None and case.cost.needs.fits is False
    found: dict[tuple[Frame | None, str, Spec | None], list[Value]] = defaultdict(list)
    for residual in report.residuals:
        v = residual.value
        if not residual.takes_memory or nbytes(v) < _KEPT * held or v.spec is None:
            continue
        for axis, size in report.mesh.shape.items():
            spec = further(v, axis, report.mesh) if size > 1 and axis not in v.manual else None
            if spec is not None:
                found[v.source, axis, _inside_spec(spec, len(v.shape) - len(_inside(case, v)))].append(v)
                break
    for (source, axis, inner), values in found.items():
        size, name = report.mesh.shape[axis], made_name(case, values[0])
        called = next((v.label for v in report.intermediates if v.name == name), "") or "the value"
        mend = Suggestion(kind="constrain", target=name, spec=inner, source=source, called=called)
        total = total_bytes(values)
        saved = total * (1 - 1 / size)
        where = f" (line {source.short})" if source else ""
        copy = format_bytes(total) if len(values) == 1 else f"{len(values)} arrays of {format_bytes(total)} together"
        yield Finding(
            f"kept-whole:{values[0].name}:{axis}",
            severity(over),
            f"What the forward pass keeps for the backward pass{where} is replicated on the "
            f"{plural(size, 'device')} along {axis!r}, {copy} on each; sharded along {axis!r}, it would take "
            f"{format_bytes(saved)} less on each.",
            why="nothing that the array is computed from is sharded along the axis; sharded where it is kept, it is "
            "gathered where it is used, which communicates as much once in each pass",
            source=source,
            value=name,
            axes=(axis,),
            numbers={"bytes": total, "saved_bytes": saved, "size": float(size)},
            mends=() if inner is None else (mend,),
        )


def _candidates(case: Case, v: Value) -> list[Value]:
    return [
        other
        for other in case.report.intermediates
        if other.source == v.source
        and phase(other.name_stack) != "backward"
        and other.dtype == v.dtype
        and v.shape[-len(other.shape) :] == other.shape
        and other.shape
    ]


def _inside(case: Case, v: Value) -> tuple[int, ...]:
    """The shape of one slice of what a loop stacks, or the shape itself."""
    found = _candidates(case, v)
    return found[0].shape if found else v.shape


def _inside_spec(spec: Spec, depth: int) -> Spec | None:
    """The spec without the dimensions of the stack; None where those are cut."""
    return None if any(spec.dims[:depth]) else Spec(spec.dims[depth:])


def made_name(case: Case, v: Value) -> str:
    """The name of the intermediate that is kept."""
    found = _candidates(case, v)
    return found[-1].name if found else ""
