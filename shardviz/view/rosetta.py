"""One sharding in every notation, side by side, with what each piece means and, where one cannot say it, why.

>>> shown = rosetta("{devices=[2,1,4]<=[8] last_tile_dim_replicate}", "data=2,model=4")
>>> for line in shown.text(72).splitlines()[:4]:
...     print(line)
[data, ·] on the mesh data=2,model=4, in every notation
<BLANKLINE>
notation             the sharding in it
PartitionSpec        P('data', None)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from shardviz import notation
from shardviz.caching import cached_property
from shardviz.display import Displayed
from shardviz.errors import ShardvizError, SpecError
from shardviz.judge.report import Report
from shardviz.layouts import Layout, layout
from shardviz.notation import DeviceMesh, Spec, check_spec
from shardviz.notation import NotationRow as Said
from shardviz.notation.bounds import MOST_PASTED, check_size
from shardviz.notation.read import Sharding, sharding
from shardviz.notation.spec import KINDS
from shardviz.records import Value
from shardviz.records.amounts import format_bytes, format_shape, plural
from shardviz.view.document import (
    Block,
    Document,
    Inline,
    Piece,
    code,
    document,
    mesh_axes,
    paragraph,
    shape,
    shorten,
    table,
    words,
    wrapped,
)
from shardviz.view.values import found_value

NAMES = {
    "pspec": ("PartitionSpec", "in JAX programs"),
    "short": ("short", "in shardviz"),
    "book": ("the scaling book's", "in the scaling book"),
    "hlo-v1": ("HLO V1, device list", "in XLA's dumps, any device order"),
    "hlo-v2": ("HLO V2, iota", "in XLA's dumps"),
    "hlo-v3": ("HLO V3, named", "in the newest XLA's dumps"),
    "proto": ("OpSharding", "in serialised programs"),
    "sdy": ("Shardy", "in lowered StableHLO"),
    "pmap": ("pmap's ShardingSpec", "in old pmap programs"),
}
"""What people call the notations, and where they meet them."""

MOST_CHARACTERS = 320
"""Characters of a sharding's text that are shown; longer ones (device lists) say how much is left."""

MOST_ON_PAGE = 20_000
"""The same on the explorer's page, where it can be copied."""

_MOST_PIECE, _LONGEST = 60, 200
_MOST_MARKED = 4000  # characters of a text whose pieces are marked on the page


@dataclass(frozen=True, eq=False, repr=False)
class ShownRosetta(Displayed):
    """A sharding in every notation, as a table that shows itself."""

    _width: ClassVar[int | None] = 80

    sharding: Sharding

    @cached_property
    def rows(self) -> tuple[Said, ...]:
        """A `notation.NotationRow` for each notation."""
        return tuple(notation.rosetta(self.sharding))


def rosetta(anything: Any, mesh: Any = None, rank: int | None = None) -> ShownRosetta:
    """A sharding in every notation, with what each letter means and, where a notation cannot say it, why.

    Args:
        anything: a sharding in any notation that `shardviz.sharding` reads, or whatever has one: a `jax.Array`, a
            `jax.ShapeDtypeStruct`, a value of a report (whose mesh is `report.mesh`).
        mesh: a mesh in any form that `DeviceMesh.of` reads; None where the sharding brings its own.
        rank: the array's number of dimensions, where the sharding does not say it.

    Raises:
        ShardvizError: as `shardviz.sharding` does.

    Examples:
        >>> import shardviz as sv
        >>> print(sv.rosetta(("data", None), {"data": 4}).text(72).splitlines()[3])
        PartitionSpec        P('data', None)
    """
    return ShownRosetta(sharding_of(anything, mesh) if isinstance(anything, Value) else sharding(anything, mesh, rank))


def sharding_of(value: Value, mesh: Any) -> Sharding:
    """How a value of a report is sharded on the report's mesh; a `SpecError` where the report does not say."""
    if value.manual:
        mesh = DeviceMesh.of(mesh)
        return Sharding.from_spec(value.spec or Spec(), mesh, len(value.shape), manual=value.manual)
    text = value.spec if value.spec is not None else value.sharding.get("hlo") or value.sharding.get("sdy")
    if text is None:
        raise SpecError(f"{value.name}: the report does not say how it is sharded", argument=value.name)
    return sharding(text, mesh, len(value.shape))


@document.register
def told(shown: ShownRosetta, most: int = MOST_CHARACTERS) -> Document:
    """The sharding, and a row for each notation with its pieces below it."""
    cut, mesh = shown.sharding, shown.sharding.mesh
    where = "the mesh" if mesh.names else "one device" if mesh.size == 1 else "a mesh with no axes"
    over = (mesh_axes(mesh),) if mesh.names else ()
    rows = table(
        shown.rows,
        ("notation", lambda each: words(NAMES[each.notation][0], strong=True, tip=NAMES[each.notation][1])),
        (wrapped("the sharding in it"), lambda each: _written(each, most, mesh.names)),
        detail=_letters,
        selects=lambda each: ("rosetta", each.notation),
        most=48,
        folds="never",
        name="rosetta",
    )
    title = (_cut(cut), words(f"on {where}"), *over, words(", in every notation"))
    return Document(title=title, blocks=(rows,), mesh=mesh)


def _cut(cut: Sharding) -> Piece:
    plain = cut.spec is None or cut.manual or any(cut.open) or cut.reduced
    text = shorten(str(cut), _LONGEST)
    return code(text, tip=str(cut)) if plain else Piece(text=text, kind="spec", value=cut.spec)


def _written(each: Said, most: int, names: Sequence[str]) -> Inline:
    """The sharding in a notation, at most so many characters of it; or why the notation cannot say it."""
    if each.text is None:
        return words("not possible:", strong=True, quiet=True), words(each.why, quiet=True)
    left = len(each.text) - most
    rest = f"… and {left:,} more characters; sv.sharding(…).to({each.notation!r}) gives all of it"
    marks = _marks(each, names) if len(each.text) <= min(most, _MOST_MARKED) else None
    shown = Piece(text=each.text[:most], kind="code", whole=True, value=marks)
    return shown, *([words(rest, quiet=True)] if left > 0 else [])


def _marks(each: Said, names: Sequence[str]) -> tuple[tuple[str, int, str], ...]:
    """The stretches of the text: of each the letter's number, below 0 for none, and the axis that it names."""
    place = {letter: n for n, letter in enumerate(each.letters)}
    return tuple(
        (piece, -1, "") if isinstance(piece, str) else (piece.piece, place[piece], _axis_of(piece.piece, each, names))
        for piece in each.pieces
    )


def _axis_of(piece: str, each: Said, names: Sequence[str]) -> str:
    """The axis that a piece names and nothing else: 'data', "data", data, I_data, or a part of it."""
    bare = re.sub(r":\(\d+\)\d+$", "", piece)
    bare = bare[1:-1] if bare[:1] in ("'", '"') and bare[-1:] == bare[:1] else bare
    bare = bare[2:] if each.notation == "book" and bare[:1].isupper() and bare[1:2] == "_" else bare
    return bare if bare in names else ""


def _letters(each: Said) -> tuple[Block, ...]:
    """What each piece of the text means."""
    place = {letter: n for n, letter in enumerate(each.letters)}
    pieces = table(
        each.letters,
        ("", lambda letter: code(shorten(letter.piece, _MOST_PIECE), strong=True)),
        (wrapped(), lambda letter: letter.meaning),
        selects=lambda letter: ("letter", f"{each.notation} {place[letter]}"),
        most=48,
        name=f"letters-{each.notation}",
    )
    return (pieces,) if pieces.rows else ()


def value_rosetta(report: Report, name: str, remark: str = "") -> Document:
    """A value's sharding in every notation, or why there is none to show; `remark` is about which value it is."""
    value = found_value(report, name)[1]
    if value is None:
        none = remark or "Select a value to see its sharding in every notation, or paste one above."
        return Document(blocks=(paragraph(none, quiet=True),))
    what = (code(value.label or value.name, strong=True), shape(value.shape, dtype=value.dtype))
    try:
        shown = told(ShownRosetta(sharding_of(value, report.mesh)), MOST_ON_PAGE)
    except ShardvizError as error:
        return Document(title=what, blocks=(paragraph(str(error), quiet=True),))
    title = (shown.title,) if isinstance(shown.title, Piece) else shown.title
    return replace(shown, title=(*what, *title), lead=(words(remark, quiet=True),) if remark else ())


@dataclass(frozen=True, kw_only=True)
class PastedSharding:
    """What a pasted text was read as: the answer (what it is on the mesh, what a device then holds of the value,
    whether the value has it, or why it cannot), it in every notation, the PartitionSpec that gives it to the value
    (`apply`), or the error."""

    answer: Document
    document: Document | None = None
    same: bool = False
    apply: str = ""
    error: str = ""


def read_rosetta(report: Report, name: str, text: str) -> PastedSharding:
    """What a text in any notation is on the report's mesh, and what it would do to the value with this name."""
    role, value = found_value(report, name)
    try:
        check_size(text, MOST_PASTED, "this text", "characters")
        cut = sharding(text, report.mesh)
    except ShardvizError as error:
        return PastedSharding(answer=Document(), error=str(error))
    name, holds, same, apply = "", "", False, ""
    why = "select an argument or an output to apply it to"
    if value is not None:
        name = value.label or value.name
        try:
            cut = cut.with_rank(len(value.shape))
            holds = _holds(layout(value.shape, cut, report.mesh), value)
            with suppress(ShardvizError):  # nothing says how it is sharded
                same = cut.same_as(sharding_of(value, report.mesh))
            apply = "" if same else _spec_for(cut, role, value)
        except ShardvizError as error:
            why = str(error)
    what = code(name, strong=True)
    on = words(f"on {report.mesh}" if report.mesh.names else "on a mesh with no axes", quiet=True)
    held = (words("·", quiet=True), what, words(f": {holds}", quiet=True)) if holds else ()
    has = words("✓", tone="good"), what, words("has this sharding", tone="good")
    answer = Document.of(
        paragraph(_cut(cut), on, held, name="read-is"),
        paragraph(has, name="read-same") if same else None,
        None if same or apply else paragraph(f"It cannot be applied: {why}.", quiet=True, name="read-cannot"),
        mesh=report.mesh,
    )
    title = (words("What was read,", strong=True), words("in every notation"))
    shown = replace(told(ShownRosetta(cut), MOST_ON_PAGE), title=title)
    return PastedSharding(answer=answer, document=shown, same=same, apply=apply)


def _holds(cut: Layout, value: Value) -> str:
    """What each device would hold of the value."""
    each, size = format_shape(cut.shard_shape), format_bytes(cut.bytes_per_device(value.dtype))
    if not cut.holds.all():
        return f"{size} on {plural(int(cut.holds.sum()), 'device')}, nothing on the others"
    parts = [f"shard {each}", f"{size} per device"]
    parts += [f"{cut.replicas} copies"] if cut.replicas > 1 else []
    parts += [f"{cut.partial_sums} partial {KINDS[cut.unreduced_kind]}"] if cut.partial_sums > 1 else []
    parts += ["manual, so each device's own"] if cut.manual_ways > 1 else []
    return ", ".join([*parts, *(["padded, because a dimension is not divisible"] if cut.padding.any() else [])])


def _spec_for(cut: Sharding, role: str, value: Value) -> str:
    """The PartitionSpec that gives an argument or output this sharding; raises where none does."""
    written = next(each for each in notation.rosetta(cut) if each.notation == "pspec")
    if written.text is None:
        raise SpecError(written.why)
    if role == "intermediate":
        raise SpecError(
            f"{value.label or value.name} is an intermediate, whose sharding follows from the arguments'; select an "
            "argument or an output to apply this to"
        )
    if any(cut.open):
        raise SpecError("it leaves a dimension to the compiler, which an argument's or output's spec cannot")
    if cut.unreduced or cut.reduced or cut.spec is None:
        raise SpecError(f"{cut}: an {role} cannot be given partial sums here")
    check_spec(value.name, value.shape, cut.spec, cut.mesh)
    return written.text
