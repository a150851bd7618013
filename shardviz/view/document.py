"""A Document: what there is to say of a subject, as plain data. A builder makes it once; each painter is one medium.

A document is made of blocks (sections, paragraphs, tables, folds, figures), a block of pieces: words, and what has a
look of its own, such as mesh axes, specs, amounts, bars and source lines. Every piece carries its plain text, so that a
medium that can do no more prints that, and all media say the same in the same words.

>>> cells = row(axes(("data",)), nbytes(33_554_432))
>>> moved = Table(columns=(Column("over"), Column("moved", right=True)), rows=(cells,))
>>> moved.rows[0].cells[1].text
'33.6 MB'
>>> document = Document(title=words("step", strong=True), blocks=(moved,), mesh=("data", "model"))
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any, Literal, TypeVar

from shardviz.errors import ShardvizError
from shardviz.notation import Axis, DeviceMesh, Spec
from shardviz.notation.spec import axis_text
from shardviz.records import Frame, Value
from shardviz.records.amounts import format_bytes, format_seconds, format_shape
from shardviz.records.collectives import axes_words
from shardviz.records.sums import NO_SOURCE
from shardviz.records.values import SourceText
from shardviz.view.glossary import GLOSSARY

Kind = Literal["words", "term", "code", "axes", "mesh", "spec", "bar", "line", "ask"]
_LONGEST_LINE = 72
T = TypeVar("T")
_CLOSING = (",", ";", ":", ".", ")")


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A few words, or something small with a look of its own.

    Attributes:
        text: it in plain text; what terminals, diffs and screen readers get.
        kind: `words`; `term`, a word of the glossary, which its tip explains; `code`, in monospace; `axes`, mesh axes
            as chips; `mesh`, those of a mesh with their sizes; `spec`, a spec in brackets; `bar`; `line`, a place in
            the source with the line's text behind it; `ask`, words that are there only where a click is answered.
        value: of `axes` the tuple of axes, of `mesh` its (name, size) pairs, of `spec` the `Spec`, of `bar` its
            `Part`s, of `line` the source line, of `code` its stretches: the text of each, a letter's number, an axis.
        strong, quiet: more, or less, important than what is around it.
        tone: `good`, `warn` or `bad`, a colour on the page; the words say it too.
        tip: more words, shown on hovering.
        selects: what a click on it selects, such as `("value", "params['w']")` or `("line", "model.py:20")`.
        whole: it is never clipped, nor are characters replaced in it: a text to be copied.
    """

    text: str
    kind: Kind = "words"
    value: Any = None
    strong: bool = False
    quiet: bool = False
    tone: Literal["", "good", "warn", "bad"] = ""
    tip: str = ""
    selects: tuple[str, str] | None = None
    whole: bool = False


Inline = Piece | tuple[Piece, ...]


@dataclass(frozen=True, kw_only=True)
class Part:
    """A stretch of a bar: its share of the longest bar beside it, 0 to 1; the mesh axes whose colour it has, if
    any; its role: `axes`, `work` (what one device does), `moved` (what it sends) or `room` (what is left)."""

    share: float
    axes: tuple[Axis, ...] | None = None
    tip: str = ""
    role: Literal["axes", "work", "moved", "room"] = "axes"


@dataclass(frozen=True)
class Column:
    """A column of a table; `right`: numbers, set flush right; `wrap`: words that may take several lines."""

    title: str
    right: bool = False
    wrap: bool = False

    @property
    def tip(self) -> str:
        """What the head means, where the glossary has it."""
        return GLOSSARY.get(self.title, "")


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of a table, a cell each column; `detail` stands below it (see `Table.folds`), a click `selects`, and
    `marked` is what has changed or is looked at."""

    cells: tuple[Inline, ...]
    detail: tuple[Block, ...] = ()
    selects: tuple[str, str] | None = None
    marked: bool = False


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of cells.

    Attributes:
        columns: the columns.
        rows: all rows that a medium may show.
        caption: what it is a table of; may be empty.
        first: rows that plain text shows; a painter says how many more there are.
        most: rows that HTML and the page show.
        noun: what a row is, for `… and 5 more lines`.
        hidden: rows that exist and are in no medium.
        folds: whether the rows' details are folded away: `never`; on the `page`, where a click opens them; `always`, so
            that they are shown only where a person can open them.
        name: what tests and scripts find it by on the page.
    """

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    caption: str = ""
    first: int = 48
    most: int = 48
    noun: str = "row"
    hidden: int = 0
    folds: Literal["never", "page", "always"] = "page"
    name: str = ""

    def __post_init__(self) -> None:
        wrong = next((r for r in self.rows if len(r.cells) != len(self.columns)), None)
        if wrong is not None:
            raise ShardvizError(f"a row of {len(wrong.cells)} cells in a table of {len(self.columns)} columns: {wrong}")


@dataclass(frozen=True, kw_only=True)
class Paragraph:
    """A sentence or two, or `label: a fact`; `quiet` if less important than what is around it; `name` is as
    `Table.name`."""

    pieces: tuple[Piece, ...]
    label: str = ""
    quiet: bool = False
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading with what belongs to it.

    Attributes:
        title: the heading.
        lead: what the heading itself has to say, behind a colon; may be empty.
        blocks: what belongs to it.
        fold: None: always shown; `open` or `closed`: can be folded away where the medium can.
        brief: plain text shows the heading and the lead alone; nothing where there is no lead.
        name: as `Table.name`.
    """

    title: str
    lead: tuple[Piece, ...] = ()
    blocks: tuple[Block, ...] = ()
    fold: Literal["open", "closed"] | None = None
    brief: bool = False
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class Beside:
    """Blocks side by side where there is room, else one below the other."""

    blocks: tuple[Block, ...]


@dataclass(frozen=True, kw_only=True)
class Figure:
    """Something drawn, a `Picture`, or lines to be copied, a `Listing`; plain text leaves it out if `brief`; `name` is
    as `Table.name`."""

    of: Any
    caption: str = ""
    brief: bool = False
    name: str = ""


@dataclass(frozen=True)
class Listing:
    """Lines of a program as they stand, to be copied; a `Figure` has it."""

    text: str


Block = Paragraph | Table | Section | Beside | Figure


@dataclass(frozen=True, kw_only=True)
class Document:
    """What there is to say of a subject: a title, lines below it (`lead`), blocks. The axes of the mesh have their
    colours by their place in it."""

    title: Inline = ()
    blocks: tuple[Block, ...] = ()
    mesh: DeviceMesh | None = None
    lead: tuple[Inline, ...] = ()

    @classmethod
    def of(
        cls, *blocks: Blocks, title: Inline = (), lead: tuple[Inline, ...] = (), mesh: DeviceMesh | None = None
    ) -> Document:
        """A document of blocks, of which those that are None are left out."""
        return cls(title=title, blocks=listed(*blocks), mesh=mesh, lead=lead)


@singledispatch
def document(subject: Any) -> Document:
    """What there is to say of a subject: a report, a cost, a comparison, ... Each builder registers its own here; a
    `ShardvizError` for what nobody has a builder for."""
    raise ShardvizError(f"shardviz cannot show a {type(subject).__name__}")


@document.register
def _itself(subject: Document) -> Document:
    return subject


def words(
    text: str, *, strong: bool = False, quiet: bool = False, tone: Any = "", tip: str = "", selects: Any = None
) -> Piece:
    return Piece(text=text, strong=strong, quiet=quiet, tone=tone, tip=tip, selects=selects)


def why(name: str, *, tip: str = "") -> Piece:
    """A question to the explorer: why a value is sharded so, or why a collective is there."""
    return Piece(text="why?", kind="ask", tip=tip, selects=("why", name))


def term(word: str, *, strong: bool = False) -> Piece:
    """A word, which says what it means where the glossary has it."""
    return Piece(text=word, kind="term" if word in GLOSSARY else "words", strong=strong, tip=GLOSSARY.get(word, ""))


def code(text: str, *, strong: bool = False, quiet: bool = False, tip: str = "", selects: Any = None) -> Piece:
    """Text in monospace: a name, a shape, a target."""
    return Piece(text=text, kind="code", strong=strong, quiet=quiet, tip=tip, selects=selects)


def axes(over: tuple[Axis, ...] | None, *, tip: str = "") -> Piece:
    """The mesh axes that a collective spans; None where its groups are no product of axes."""
    return Piece(text=axes_words(over), kind="axes", value=over, tip=tip, quiet=not over)


def mesh_axes(mesh: DeviceMesh) -> Piece:
    """A mesh: its axes with their sizes."""
    return Piece(text=str(mesh) or "no mesh axes", kind="mesh", value=tuple(mesh.shape.items()))


def spec(cut: Spec | None, *, tip: str = "") -> Piece:
    """A spec; None where no PartitionSpec says how the array is sharded."""
    if cut is None:
        return words("no PartitionSpec", quiet=True, tip=tip)
    return Piece(text=str(cut.canonical()), kind="spec", value=cut, tip=tip or str(cut))


def value_spec(value: Value, *, asks: bool = False) -> tuple[Piece, ...]:
    """How a value is sharded: its spec, per device inside a `shard_map`, or HLO's text; with `asks` a click asks
    why."""
    if value.manual:
        own = f"per device over {', '.join(map(axis_text, value.manual))}"
        return (words(own if value.spec is None else f"{own}; {value.spec.canonical()}"),)
    if value.spec is not None:
        fixed = (words("fixed by type", quiet=True),) if value.fixed is not None else ()
        return (replace(spec(value.spec), selects=("why", value.name) if asks else None), *fixed)
    return (code(shorten(next(iter(value.sharding.values()), "not known"), 40), quiet=True),)


def nbytes(amount: float | None, *, strong: bool = False, tip: str = "") -> Piece:
    return words(format_bytes(amount), strong=strong, tip=tip)


def seconds(amount: float | None, *, strong: bool = False, tip: str = "") -> Piece:
    return words(format_seconds(amount), strong=strong, tip=tip)


def signed_text(amount: float, form: Callable[[float], str]) -> str:
    """`+1.30 GB`, `−0.21 s`."""
    return f"{'−' if amount < 0 else '+'}{form(abs(amount))}"


def difference(amount: float, form: Callable[[float], str], *, worse: Any = "bad", **more: Any) -> Piece:
    """A difference, in the colour of `worse` where it is more; `more` as of `words`."""
    return words(signed_text(amount, form), tone=worse if amount > 0 else "good", **more)


def shape(sizes: Sequence[int] | None, *, dtype: str = "", tip: str = "") -> Piece:
    """A shape, with its element type in front where that is given."""
    return code(f"{dtype} {format_shape(sizes)}".strip(), tip=tip)


def bar(parts: Iterable[Part]) -> Piece:
    """A bar of one or more stretches."""
    return Piece(text="", kind="bar", value=tuple(parts))


def line(frame: Frame | None, lines: SourceText | None = None, *, tip: str = "") -> Piece:
    """A place in the person's source, with the text of the line where that is known from `lines`; the whole line is its
    tip where it is too long."""
    if frame is None:
        return words(NO_SOURCE, quiet=True, tip=tip)
    text = frame.text_in(lines or {})
    if len(text) > _LONGEST_LINE:
        tip = tip or text
    return Piece(
        text=frame.short,
        kind="line",
        value=shorten(text, _LONGEST_LINE),
        quiet=True,
        tip=tip,
        selects=("line", frame.short),
    )


def moved(kind: str, over: tuple[Axis, ...] | None, frame: Frame | None, tip: str = "") -> Piece:
    """A kind of collective; where it is hovered, the same collective is highlighted everywhere."""
    at = "" if frame is None else frame.short
    piece = replace(term(kind, strong=True), selects=("moved", f"{kind} {axes_words(over)} {at}"))
    return replace(piece, tip=tip) if tip else piece


Cell = Inline | str
"""What stands in a cell; plain words may be a string."""
Blocks = Block | Iterable[Block] | None
"""A block, several, or none."""


def pieces(*cells: Cell | Iterable[Piece] | None) -> tuple[Piece, ...]:
    """Pieces one after the other; a string is words, None is nothing."""
    parts = (words(cell) if isinstance(cell, str) else cell for cell in cells if cell is not None)
    return tuple(piece for part in parts for piece in ((part,) if isinstance(part, Piece) else part))


def listed(*blocks: Blocks) -> tuple[Block, ...]:
    """Blocks one below the other; None is nothing."""
    return tuple(b for some in blocks if some is not None for b in ((some,) if isinstance(some, Block) else some))


def row(*cells: Cell | Iterable[Piece], detail: Iterable[Block] = (), selects: Any = None, marked: bool = False) -> Row:
    inlines = (words(cell) if isinstance(cell, str) else cell for cell in cells)
    together = tuple(cell if isinstance(cell, Piece) else tuple(cell) for cell in inlines)
    return Row(cells=together, detail=tuple(detail), selects=selects, marked=marked)


def right(title: str = "") -> Column:
    """A column of numbers."""
    return Column(title, right=True)


def wrapped(title: str = "") -> Column:
    """A column of words that may take several lines."""
    return Column(title, wrap=True)


def table(
    records: Iterable[T],
    *columns: tuple[str | Column, Callable[[T], Cell | Iterable[Piece]]] | None,
    most: int | None = None,
    first: int | None = None,
    kept: int | None = None,
    detail: Callable[[T], Iterable[Block]] = lambda record: (),
    selects: Callable[[T], Any] = lambda record: None,
    marked: Callable[[T], bool] = lambda record: False,
    **more: Any,
) -> Table:
    """A row for each record; each column has its head, and what it says of a record; None is a column that is left out.

    >>> both = table([("w", 512)], ("name", lambda r: r[0]), (right("per device"), lambda r: nbytes(r[1])))
    >>> [plain(cell) for cell in both.rows[0].cells]
    ['w', '512 B']

    `most` and `first` are as of `Table` (None: all, and as many as `most`); only so many records as `kept` have rows,
    the others are counted. `detail`, `selects` and `marked` are as of `Row`, for each record; `more` as of `Table`.
    """
    every, shown = list(records), [column for column in columns if column is not None]
    rows = tuple(
        row(*(cell(it) for _, cell in shown), detail=detail(it), selects=selects(it), marked=marked(it))
        for it in every[:kept]
    )
    most = len(rows) if most is None else most
    return Table(
        columns=tuple(Column(head) if isinstance(head, str) else head for head, _ in shown),
        rows=rows,
        first=most if first is None else first,
        most=most,
        hidden=len(every) - len(rows),
        **more,
    )


def section(title: str, *blocks: Blocks, lead: Cell = (), **more: Any) -> Section:
    """A heading, what it has to say, and what belongs to it; `more` is as of `Section`."""
    return Section(title=title, lead=pieces(lead or None), blocks=listed(*blocks), **more)


def paragraph(*cells: Cell | None, label: str = "", quiet: bool = False, name: str = "") -> Paragraph:
    """A paragraph of pieces and plain strings."""
    return Paragraph(pieces=pieces(*cells), label=label, quiet=quiet, name=name)


def notes(*texts: str) -> tuple[Paragraph, ...]:
    """A quiet paragraph for each text that is not empty."""
    return tuple(paragraph(text, quiet=True) for text in texts if text)


def shorten(text: str, most: int) -> str:
    """The text on one line of at most so many characters, its end replaced by `…` where it is longer."""
    text = " ".join(text.split())
    return text if len(text) <= most else text[: max(0, most - 1)] + "…"


def device_ranges(devices: Iterable[int]) -> str:
    """Device numbers, ascending, as short as they can be said exactly.

    >>> device_ranges([0, 1, 2, 3, 16, 17]), device_ranges(range(0, 64, 8)), device_ranges([3])
    ('0-3,16-17', '0,8,…,56', '3')
    """
    runs: list[list[int]] = []
    for device in sorted(devices):
        if runs and device == runs[-1][1] + 1:
            runs[-1][1] = device
        else:
            runs.append([device, device])
    texts = [f"{a}" if a == b else f"{a}-{b}" for a, b in runs]
    steps = {(later[0] - run[0], later[1] - run[1]) for run, later in itertools.pairwise(runs)}
    if len(runs) > 3 and len(steps) == 1 and len(set(steps.pop())) == 1:
        return f"{texts[0]},{texts[1]},…,{texts[-1]}"
    return ",".join(texts)


def plain(inline: Inline) -> str:
    """Pieces in plain text, a space between them."""
    pieces = (inline,) if isinstance(inline, Piece) else inline
    return joined(pieces, list(map(_plain, pieces)))


def _plain(piece: Piece) -> str:
    if piece.kind == "line" and piece.value:
        return f"{piece.text} {piece.value}".strip()
    return "" if piece.kind == "ask" else piece.text


def joined(pieces: Sequence[Piece], texts: Sequence[str]) -> str:
    """What a painter made of each piece, with a space between them but before a comma, a colon or the like."""
    text = ""
    for piece, part in zip(pieces, texts, strict=True):
        text += (" " if text and part and not piece.text.startswith(_CLOSING) else "") + part
    return text
