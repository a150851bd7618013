"""A record in each notation, or why that notation cannot say it.

>>> from shardviz.notation.sharding import sharding
>>> cut = sharding("{devices=[4,2]<=[8]}", "data=2,model=4")
>>> cut.to("hlo-v3")
"{mesh['data'=2,'model'=4], [{'data', 'model':(1)2}, {'model':(2)2}]}"
>>> cut.to("pspec")
Traceback (most recent call last):
    ...
shardviz.errors.SpecError: [data model:(1)2, model:(2)2]: a PartitionSpec has whole axes only, and 'model:(1)2' is a \
part; on a mesh where 'model' is two or more axes it can be said
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shardviz.errors import SpecError
from shardviz.notation import pmap
from shardviz.notation.proto import encode, encode_parts
from shardviz.notation.record import NOTATIONS, Sharding
from shardviz.notation.sdy_text import write_sdy
from shardviz.notation.short_text import readings
from shardviz.notation.spec import Axis, axis_text


def to(cut: Sharding, notation: str) -> Any:
    """The record in a notation of `NOTATIONS`.

    Raises:
        SpecError: where the notation cannot express it, or there is no such notation.
    """
    if notation not in _WRITERS:
        raise SpecError(f"notation {notation!r}: expected one of {', '.join(NOTATIONS)}")
    if cut.unknown and notation in ("pspec", "short", "book", "sdy", "pmap"):
        raise SpecError(f"unknown sharding: the compiler did not say it, and {notation} has no word for that")
    return _WRITERS[notation](cut)


def pspec_text(cut: Sharding) -> str:
    """The text of a PartitionSpec: `P('data', None)`.

    Raises:
        SpecError: where no PartitionSpec says it.
    """
    entries, unreduced, reduced = pspec_parts(cut)
    parts = ["P.UNCONSTRAINED" if entry is ... else repr(entry) for entry in entries]
    for key, axes in (("unreduced", unreduced), ("reduced", reduced)):
        parts += [f"{key}={{{', '.join(map(repr, axes))}}}"] if axes else []
    return f"P({', '.join(parts)})"


def pspec_parts(cut: Sharding) -> tuple[tuple[Any, ...], tuple[str, ...], tuple[str, ...]]:
    """What a PartitionSpec is made of: entries (`...` for UNCONSTRAINED), unreduced axes, reduced axes."""
    if cut.spec is None:
        raise SpecError(f"{cut}: no PartitionSpec says it: {cut.why}")
    if any(p is not None for p in cut.priorities):
        raise SpecError(f"{cut}: a PartitionSpec has no priorities, which Shardy has")
    if any(cut.open) and cut.replicated:
        names = " ".join(map(axis_text, cut.replicated))
        raise SpecError(f"{cut}: a PartitionSpec cannot keep {names} out of the dimensions that it leaves open")
    wanted = set(cut.mesh.manual)
    if {axis_text(a) for a in cut.manual} != wanted:
        names = " ".join(map(axis_text, cut.manual)) or "none"
        raise SpecError(
            f"{cut}: a PartitionSpec has no manual axes, the types of the mesh's axes have; here {names} would have "
            f"to be Manual in the mesh, where {' '.join(sorted(wanted)) or 'none'} is"
        )
    entries: list[Any] = []
    for dim, is_open in zip(cut.spec.dims, cut.open, strict=True):
        if dim and is_open:
            raise SpecError(
                f"{cut}: a PartitionSpec leaves a dimension open (P.UNCONSTRAINED) or names its axes, not both, and "
                f"this one names {' '.join(map(axis_text, dim))}"
            )
        names = _whole(dim, cut)
        entries.append(... if is_open else None if not names else names[0] if len(names) == 1 else names)
    return tuple(entries), _whole(cut.unreduced, cut), _whole(cut.reduced, cut)


def _whole(axes: tuple[Axis, ...], cut: Sharding) -> tuple[str, ...]:
    for axis in axes:
        if not isinstance(axis, str):
            raise SpecError(
                f"{cut}: a PartitionSpec has whole axes only, and {axis_text(axis)!r} is a part; on a mesh where "
                f"{axis[0]!r} is two or more axes it can be said"
            )
    return tuple(str(axis) for axis in axes)


def _pspec(cut: Sharding) -> Any:
    parts = pspec_parts(cut)
    from shardviz import _jax

    return _jax.partition_spec(*parts)


def _short(cut: Sharding) -> str:
    if cut.spec is None:
        raise SpecError(f"{cut}: the short form names mesh axes, and {cut.why}")
    if any(p is not None for p in cut.priorities):
        raise SpecError(f"{cut}: the short form has no priorities, which Shardy has")
    if any(cut.open) and cut.replicated:
        raise SpecError(f"{cut}: the short form has no explicitly replicated axes, which Shardy has")
    strange = [n for n in cut.mesh.names if any(c.isspace() or c in "[]{}()<>,:?\"'" for c in n) or n in "·-_*."]
    if strange:
        raise SpecError(f"the short form cannot hold the axis name {strange[0]!r}")
    return str(cut)


def _book(cut: Sharding) -> str:
    """`A[I_X, J]`; several axes run together where each is one letter, as the book has it, else stand in braces."""
    if cut.spec is None:
        raise SpecError(f"{cut}: the scaling book's form names mesh axes, and {cut.why}")
    for given, what in (
        (any(cut.open), "open dimensions"),
        (any(p is not None for p in cut.priorities), "priorities"),
        (cut.manual, "manual axes"),
        (cut.reduced, "reduced axes"),
        (cut.replicated, "explicitly replicated axes"),
    ):
        if given:
            raise SpecError(f"{cut}: the scaling book's form has no {what}")
    dims = [
        (_BOOK_LETTERS[i] if i < len(_BOOK_LETTERS) else f"I{i}") + (f"_{_subscript(dim, cut)}" if dim else "")
        for i, dim in enumerate(cut.spec.dims)
    ]
    return f"A[{', '.join(dims)}]" + (f" {{U_{_subscript(cut.unreduced, cut)}}}" if cut.unreduced else "")


_BOOK_LETTERS = "IJKLMNOPQRST"


def _subscript(axes: tuple[Axis, ...], cut: Sharding) -> str:
    for axis in axes:
        if not isinstance(axis, str):
            raise SpecError(f"{cut}: the scaling book's form has whole axes only, and {axis_text(axis)!r} is a part")
        if any(c.isspace() or c in "[]{}," for c in axis):
            raise SpecError(f"the scaling book's form cannot hold the axis name {axis!r}")
    names = [str(axis) for axis in axes]
    run = "".join(names)
    alone = len(names) == 1 or (
        all(len(n) == 1 for n in names) and run not in cut.mesh.names and len(readings(run, cut.mesh.names)) == 1
    )
    return run if alone else f"{{{','.join(names)}}}"


def _tiled(cut: Sharding, name: str) -> None:
    """Raises where a tile assignment cannot say it."""
    if any(cut.open):
        raise SpecError(f"{cut}: {name} has no open dimensions; Shardy and HLO V3 have")
    if any(p is not None for p in cut.priorities):
        raise SpecError(f"{cut}: {name} has no priorities, which only Shardy has")
    if cut.reduced:
        raise SpecError(f"{cut}: {name} has no reduced axes; JAX's types have")


def _v1(cut: Sharding) -> str:
    _tiled(cut, "HLO V1")
    return _word(cut) or cut.tiling().v1()


def _v2(cut: Sharding) -> str:
    _tiled(cut, "HLO V2")
    return _word(cut) or cut.tiling().v2()


def _word(cut: Sharding) -> str | None:
    """The shardings that HLO says in a word."""
    kind = cut.kind
    if kind == "maximal":
        return f"{{maximal device={cut.maximal}}}"
    return None if kind == "other" else f"{{{kind}}}"


def _v3(cut: Sharding) -> str:
    if any(p is not None for p in cut.priorities):
        raise SpecError(f"{cut}: HLO V3 has no priorities, which only Shardy has")
    if cut.reduced:
        raise SpecError(f"{cut}: HLO V3 has no reduced axes; JAX's types have")
    if cut.unknown or cut.maximal is not None:
        what = "it is unknown" if cut.unknown else cut.why
        raise SpecError(f"{cut}: HLO V3 names mesh axes, and {what}; hlo-v2 has a word for it")
    if cut.spec is None:
        return _v3_listed(cut)
    axes = ",".join(f"{_quote(n)}={s}" for n, s in zip(cut.mesh.names, cut.mesh.sizes, strict=True))
    dims = []
    for dim, is_open in zip(cut.spec.dims, cut.open, strict=True):
        dims.append("{" + ", ".join([*map(_v3_axis, dim), *(["?"] if is_open else [])]) + "}")
    lists = "".join(
        f", {kind}={{{', '.join(map(_v3_axis, found))}}}"
        for kind in ("replicated", "unreduced", "manual")
        if (found := getattr(cut, kind))
    )
    return f"{{mesh[{axes}], [{', '.join(dims)}]{lists}}}"


def _v3_listed(cut: Sharding) -> str:
    """V3 over a mesh of its own, one axis for each dimension of the tile assignment."""
    tiling = cut.tiling()
    axes = ",".join(f"'axis_{i}'={n}" for i, n in enumerate(tiling.dims))
    count = len(tiling.tiles)
    dims = ", ".join(
        "{" + ", ".join(([f"'axis_{i}'"] if tiling.dims[i] > 1 else []) + (["?"] if cut.open[i] else [])) + "}"
        for i in range(count)
    )
    lists = ""
    for kind in ("unreduced", "manual"):
        names = [f"'axis_{i}'" for i, k in enumerate(tiling.kinds, count) if k == kind]
        lists += f", {kind}={{{', '.join(names)}}}" if names else ""
    return f"{{mesh[{axes}], device_ids=({','.join(map(str, tiling.devices))}), [{dims}]{lists}}}"


def _quote(name: str) -> str:
    if any(c in name for c in "'\\\n"):
        raise SpecError(f"axis {name!r}: HLO V3 puts names in single quotes, so it can hold no quote and no backslash")
    return f"'{name}'"


def _v3_axis(axis: Axis) -> str:
    return _quote(axis) if isinstance(axis, str) else f"{_quote(axis[0])}:({axis[1]}){axis[2]}"


def proto_bytes(cut: Sharding) -> bytes:
    """The record as a serialized `OpSharding`.

    Raises:
        SpecError: where the message has no field for it.
    """
    _tiled(cut, "OpSharding")
    return encode(cut)


def _proto(cut: Sharding) -> Any:
    data = proto_bytes(cut)
    from shardviz import _jax

    return _jax.op_sharding(data)


_WRITERS: dict[str, Callable[[Sharding], Any]] = {
    "pspec": _pspec,
    "short": _short,
    "book": _book,
    "hlo-v1": _v1,
    "hlo-v2": _v2,
    "hlo-v3": _v3,
    "proto": _proto,
    "sdy": write_sdy,
    "pmap": pmap.from_sharding,
}


def together(cuts: Sequence[Sharding], notation: str) -> Any:
    """The sharding of a tuple; `sharding.together` says what is taken and what is raised."""
    if notation == "proto":
        data = encode_parts([proto_bytes(cut) for cut in cuts])
        from shardviz import _jax

        return _jax.op_sharding(data)
    if notation in ("hlo-v1", "hlo-v2", "hlo-v3"):
        return f"{{{', '.join(to(cut, notation) for cut in cuts)}}}"
    if notation == "sdy":
        inside = ", ".join(to(cut, notation).removeprefix("#sdy.sharding") for cut in cuts)
        return f"#sdy.sharding_per_value<[{inside}]>"
    raise SpecError(f"notation {notation!r}: only hlo-v1, hlo-v2, hlo-v3, proto and sdy say several shardings in one")
