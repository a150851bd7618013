"""One sharding in every notation, side by side, with the meaning of each part, or why a notation cannot express it.

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
from shardviz.view import document as doc
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
"""The notations' names, and where users meet them."""

MOST_CHARACTERS = 320
"""Maximum number of characters shown of a sharding; longer texts (device lists) say how much is omitted."""

MOST_ON_PAGE = 20_000
"""The maximum on the explorer's page, where the text can be copied."""

_MOST_PIECE, _LONGEST = 60, 200
_MOST_MARKED = 4000  # characters of a text whose pieces are marked on the page


@dataclass(frozen=True, eq=False, repr=False)
class ShownRosetta(Displayed):
    """A sharding in every notation, as a displayed table."""

    _width: ClassVar[int | None] = 80

    sharding: Sharding

    @cached_property
    def rows(self) -> tuple[Said, ...]:
        """A `notation.NotationRow` for each notation."""
        return tuple(notation.rosetta(self.sharding))


def rosetta(anything: Any, mesh: Any = None, rank: int | None = None) -> ShownRosetta:
    """Show a sharding in every notation, with the meaning of each part, or why a notation cannot express it.

    Args:
        anything: a sharding in any notation that `shardviz.sharding` reads, or an object with a sharding: a
            `jax.Array`, a `jax.ShapeDtypeStruct`, or a value of a report (with `report.mesh`).
        mesh: a mesh in any form that `DeviceMesh.of` reads; None if the sharding has its own.
        rank: the array's number of dimensions, if the sharding does not determine it.

    Raises:
        ShardvizError: as `shardviz.sharding`.

    Examples:
        >>> import shardviz as sv
        >>> print(sv.rosetta(("data", None), {"data": 4}).text(72).splitlines()[3])
        PartitionSpec        P('data', None)
    """
    return ShownRosetta(sharding_of(anything, mesh) if isinstance(anything, Value) else sharding(anything, mesh, rank))


def sharding_of(value: Value, mesh: Any) -> Sharding:
    """Return the sharding of a report's value on the report's mesh. Raises SpecError if it is unknown."""
    if value.manual:
        mesh = DeviceMesh.of(mesh)
        return Sharding.from_spec(value.spec or Spec(), mesh, len(value.shape), manual=value.manual)
    text = value.spec if value.spec is not None else value.sharding.get("hlo") or value.sharding.get("sdy")
    if text is None:
        raise SpecError(f"{value.name}: the report does not say how it is sharded", argument=value.name)
    return sharding(text, mesh, len(value.shape))


@doc.document.register
def rosetta_document(shown: ShownRosetta, most: int = MOST_CHARACTERS) -> doc.Document:
    """Return the sharding, and a row per notation with its parts."""
    subject, mesh = shown.sharding, shown.sharding.mesh
    where = "the mesh" if mesh.names else "one device" if mesh.size == 1 else "a mesh with no axes"
    over = (doc.mesh_axes(mesh),) if mesh.names else ()
    rows = doc.Rows(shown.rows, most=48, folds="never", name="rosetta").table(
        ("notation", lambda each: doc.words(NAMES[each.notation][0], strong=True, tip=NAMES[each.notation][1])),
        (doc.wrapped("the sharding in it"), lambda each: _written(each, most, mesh.names)),
        detail=_letters,
        selects=lambda each: ("rosetta", each.notation),
    )
    title = (_title_piece(subject), doc.words(f"on {where}"), *over, doc.words(", in every notation"))
    return doc.Document(title=title, blocks=(rows,), mesh=mesh)


def _title_piece(subject: Sharding) -> doc.Piece:
    plain = subject.spec is None or subject.manual or any(subject.open) or subject.reduced
    text = doc.shorten(str(subject), _LONGEST)
    return doc.code(text, tip=str(subject)) if plain else doc.Piece(text=text, kind="spec", value=subject.spec)


def _written(each: Said, most: int, names: Sequence[str]) -> doc.Inline:
    """Return the sharding in a notation, shortened to `most` characters, or why it cannot be expressed."""
    if each.text is None:
        return doc.words("not possible:", strong=True, quiet=True), doc.words(each.why, quiet=True)
    omitted = len(each.text) - most
    rest = f"… and {omitted:,} more characters; sv.sharding(…).to({each.notation!r}) gives all of it"
    marks = _marks(each, names) if len(each.text) <= min(most, _MOST_MARKED) else None
    shown = doc.Piece(text=each.text[:most], kind="code", whole=True, value=marks)
    return doc.pieces(shown, doc.words(rest, quiet=True) if omitted > 0 else None)


def _marks(each: Said, names: Sequence[str]) -> tuple[tuple[str, int, str], ...]:
    """Return the stretches of the text, each with its letter's number (below 0 for none) and its axis."""
    place = {letter: n for n, letter in enumerate(each.letters)}
    return tuple(
        (piece, -1, "") if isinstance(piece, str) else (piece.piece, place[piece], _axis_of(piece.piece, each, names))
        for piece in each.pieces
    )


def _axis_of(piece: str, each: Said, names: Sequence[str]) -> str:
    """Return the axis if a part only names an axis: 'data', "data", data, I_data, or a sub-axis."""
    bare = re.sub(r":\(\d+\)\d+$", "", piece)
    bare = bare[1:-1] if bare[:1] in ("'", '"') and bare[-1:] == bare[:1] else bare
    bare = bare[2:] if each.notation == "book" and bare[:1].isupper() and bare[1:2] == "_" else bare
    return bare if bare in names else ""


def _letters(each: Said) -> tuple[doc.Block, ...]:
    place = {letter: n for n, letter in enumerate(each.letters)}
    pieces = doc.Rows(each.letters, most=48, name=f"letters-{each.notation}").table(
        ("", lambda letter: doc.code(doc.shorten(letter.piece, _MOST_PIECE), strong=True)),
        (doc.wrapped(), lambda letter: letter.meaning),
        selects=lambda letter: ("letter", f"{each.notation} {place[letter]}"),
    )
    return (pieces,) if pieces.rows else ()


def value_rosetta(report: Report, name: str, remark: str = "") -> doc.Document:
    """Return a value's sharding in every notation, or why there is none; `remark` says which value it is."""
    value = found_value(report, name)[1]
    if value is None:
        none = remark or "Select a value to see its sharding in every notation, or paste one above."
        return doc.Document(blocks=(doc.paragraph(none, quiet=True),))
    what = (doc.code(value.label or value.name, strong=True), doc.shape(value.shape, dtype=value.dtype))
    try:
        shown = rosetta_document(ShownRosetta(sharding_of(value, report.mesh)), MOST_ON_PAGE)
    except ShardvizError as error:
        return doc.Document(title=what, blocks=(doc.paragraph(str(error), quiet=True),))
    title = (shown.title,) if isinstance(shown.title, doc.Piece) else shown.title
    return replace(shown, title=(*what, *title), lead=(doc.words(remark, quiet=True),) if remark else ())


@dataclass(frozen=True, kw_only=True)
class PastedSharding:
    """A pasted sharding.

    Attributes:
        answer: its meaning on the mesh, a device's part of the value, and whether the value has it; or why it cannot
            have it.
        document: the sharding in every notation.
        apply: the PartitionSpec that gives it to the value.
        error: why the text cannot be read.
    """

    answer: doc.Document
    document: doc.Document | None = None
    same: bool = False
    apply: str = ""
    error: str = ""


def read_rosetta(report: Report, name: str, text: str) -> PastedSharding:
    """Read a pasted sharding in any notation on the report's mesh, for the value with this name."""
    role, value = found_value(report, name)
    try:
        check_size(text, MOST_PASTED, "this text", "characters")
        subject = sharding(text, report.mesh)
    except ShardvizError as error:
        return PastedSharding(answer=doc.Document(), error=str(error))
    name, holds, same, apply = "", "", False, ""
    why = "select an argument or an output to apply it to"
    if value is not None:
        name = value.label or value.name
        try:
            subject = subject.with_rank(len(value.shape))
            holds = _holds(layout(value.shape, subject, report.mesh), value)
            with suppress(ShardvizError):  # nothing says how it is sharded
                same = subject.same_as(sharding_of(value, report.mesh))
            apply = "" if same else _spec_for(subject, role, value)
        except ShardvizError as error:
            why = str(error)
    what = doc.code(name, strong=True)
    on = doc.words(f"on {report.mesh.shown}" if report.mesh.names else "on a mesh with no axes", quiet=True)
    holds_words = (doc.words("·", quiet=True), what, doc.words(f": {holds}", quiet=True)) if holds else ()
    has = doc.words("✓", tone="good"), what, doc.words("has this sharding", tone="good")
    answer = doc.Document.of(
        doc.paragraph(_title_piece(subject), on, holds_words, name="read-is"),
        doc.paragraph(has, name="read-same") if same else None,
        None if same or apply else doc.paragraph(f"It cannot be applied: {why}.", quiet=True, name="read-cannot"),
        mesh=report.mesh,
    )
    title = (doc.words("What was read,", strong=True), doc.words("in every notation"))
    shown = replace(rosetta_document(ShownRosetta(subject), MOST_ON_PAGE), title=title)
    return PastedSharding(answer=answer, document=shown, same=same, apply=apply)


def _holds(subject: Layout, value: Value) -> str:
    each, size = format_shape(subject.shard_shape), format_bytes(subject.bytes_per_device(value.dtype))
    if not subject.holds.all():
        return f"{size} on {plural(int(subject.holds.sum()), 'device')}, nothing on the others"
    parts = (
        f"shard {each}, {size} per device",
        f"{subject.replicas} copies" if subject.replicas > 1 else "",
        f"{subject.partial_sums} partial {KINDS[subject.unreduced_kind]}" if subject.partial_sums > 1 else "",
        "manual, so each device's own" if subject.manual_count > 1 else "",
        "padded, because a dimension is not divisible" if subject.padding.any() else "",
    )
    return ", ".join(filter(None, parts))


def _spec_for(subject: Sharding, role: str, value: Value) -> str:
    written = next(each for each in notation.rosetta(subject) if each.notation == "pspec")
    if written.text is None:
        raise SpecError(written.why)
    if role == "intermediate":
        raise SpecError(
            f"{value.label or value.name} is an intermediate, whose sharding follows from the arguments'; select an "
            "argument or an output to apply this to"
        )
    if any(subject.open):
        raise SpecError("it leaves a dimension to the compiler, which an argument's or output's spec cannot")
    if subject.unreduced or subject.reduced or subject.spec is None:
        raise SpecError(f"{subject}: an {role} cannot be given partial sums here")
    check_spec(value.name, value.shape, subject.spec, subject.mesh)
    return written.text
