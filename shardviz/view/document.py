"""A Document: the content about a subject as plain data. A builder creates it once; each painter renders one medium.

A document consists of blocks (sections, paragraphs, tables, folds, figures), and a block of pieces: words, mesh axes,
specs, amounts, bars and source lines. Every piece has a plain text, so that all media show the same words.

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
from typing import Any, Generic, Literal, TypeVar

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
    """A few words, or a small element with its own look.

    Attributes:
        text: its plain text, for terminals, diffs and screen readers.
        kind: `words`; `term`, a glossary word, explained by its tip; `code`, in monospace; `axes`, mesh axes as chips;
            `mesh`, mesh axes with sizes; `spec`, a spec in brackets; `bar`; `line`, a source place with the line's
            text; `ask`, words shown only on media that answer clicks.
        value: for `axes` the tuple of axes, for `mesh` its (name, size) pairs, for `spec` the `Spec`, for `bar` its
            `Part`s, for `line` the source line, for `code` its stretches: (text, letter number, axis).
        strong, quiet: more, or less, important than its surroundings.
        tone: `good`, `warn` or `bad`, a colour on the page that the words repeat.
        tip: more words, shown on hovering.
        selects: what a click selects, such as `("value", "params['w']")` or `("line", "model.py:20")`.
        whole: whether it is a text to copy, never shortened or altered.
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
    """A stretch of a bar.

    Its share of the longest bar is 0 to 1. Its role is `axes`, `work` (a device's compute), `moved` (bytes sent) or
    `room` (free). Mesh axes, if any, give its colour.
    """

    share: float
    axes: tuple[Axis, ...] | None = None
    tip: str = ""
    role: Literal["axes", "work", "moved", "room"] = "axes"


@dataclass(frozen=True)
class Column:
    """A table column; `right` aligns numbers right, `wrap` allows several lines."""

    title: str
    right: bool = False
    wrap: bool = False

    @property
    def tip(self) -> str:
        """The glossary's meaning of the head, if any."""
        return GLOSSARY.get(self.title, "")


@dataclass(frozen=True, kw_only=True)
class Row:
    """A table row with a cell per column.

    `detail` is shown below it (see `Table.folds`), a click `selects`, and `marked` rows have changed or are selected.
    """

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
        caption: the subject of the table; may be empty.
        first: rows that plain text shows; a painter counts the rest.
        most: rows that HTML and the page show.
        noun: the word for a row, for `… and 5 more lines`.
        hidden: number of rows that no medium shows.
        folds: where details are folded: `never`; on the `page`, where a click opens them; `always`, so that only
            interactive media show them.
        name: its name for tests and scripts on the page.
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
    """A sentence or two, or `label: a fact`; `quiet` if less important than its surroundings; `name` as in `Table`."""

    pieces: tuple[Piece, ...]
    label: str = ""
    quiet: bool = False
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading with its blocks.

    Attributes:
        title: the heading.
        lead: words after the heading and a colon; may be empty.
        blocks: the content.
        fold: None: always shown; `open` or `closed`: can be folded in media that support it.
        brief: whether plain text shows only the heading and the lead; nothing without a lead.
        name: as in `Table`.
    """

    title: str
    lead: tuple[Piece, ...] = ()
    blocks: tuple[Block, ...] = ()
    fold: Literal["open", "closed"] | None = None
    brief: bool = False
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class SideBySide:
    """Blocks side by side if there is room, else one below the other."""

    blocks: tuple[Block, ...]


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A `Picture`, or a `Listing` of lines to copy; plain text omits it if `brief`; `name` as in `Table`."""

    of: Any
    caption: str = ""
    brief: bool = False
    name: str = ""


@dataclass(frozen=True)
class Listing:
    """Verbatim lines of a program to copy, in a `Figure`."""

    text: str


Block = Paragraph | Table | Section | SideBySide | Figure


@dataclass(frozen=True, kw_only=True)
class Document:
    """The content about a subject: a title, lines below it (`lead`) and blocks. Mesh axes are coloured by their
    position in `mesh`."""

    title: Inline = ()
    blocks: tuple[Block, ...] = ()
    mesh: DeviceMesh | None = None
    lead: tuple[Inline, ...] = ()

    @classmethod
    def of(
        cls, *blocks: Blocks, title: Inline = (), lead: tuple[Inline, ...] = (), mesh: DeviceMesh | None = None
    ) -> Document:
        """Return a document of blocks; blocks that are None are omitted."""
        return cls(title=title, blocks=listed(*blocks), mesh=mesh, lead=lead)


@singledispatch
def document(subject: Any) -> Document:
    """Return the Document of a subject: a report, a cost, a comparison, ... Builders register here. Raises
    ShardvizError if there is none."""
    raise ShardvizError(f"shardviz cannot show a {type(subject).__name__}")


@document.register
def _itself(subject: Document) -> Document:
    return subject


def words(
    text: str, *, strong: bool = False, quiet: bool = False, tone: Any = "", tip: str = "", selects: Any = None
) -> Piece:
    return Piece(text=text, strong=strong, quiet=quiet, tone=tone, tip=tip, selects=selects)


def why(name: str, *, tip: str = "") -> Piece:
    """Return a question to the explorer: why a value is sharded as it is, or why a collective exists."""
    return Piece(text="why?", kind="ask", tip=tip, selects=("why", name))


def term(word: str, *, strong: bool = False) -> Piece:
    """Return a word with the glossary's meaning, if any."""
    return Piece(text=word, kind="term" if word in GLOSSARY else "words", strong=strong, tip=GLOSSARY.get(word, ""))


def code(text: str, *, strong: bool = False, quiet: bool = False, tip: str = "", selects: Any = None) -> Piece:
    """Return text in monospace: a name, a shape, a target."""
    return Piece(text=text, kind="code", strong=strong, quiet=quiet, tip=tip, selects=selects)


def axes(over: tuple[Axis, ...] | None, *, tip: str = "") -> Piece:
    """Return the mesh axes that a collective spans; None if its groups are no product of axes."""
    return Piece(text=axes_words(over), kind="axes", value=over, tip=tip, quiet=not over)


def mesh_axes(mesh: DeviceMesh) -> Piece:
    """Return a mesh: its axes with their sizes, without those in `folded_axes`."""
    return Piece(text=str(mesh.shown) or "no mesh axes", kind="mesh", value=tuple(mesh.shown.shape.items()))


def folded_axes(mesh: DeviceMesh) -> tuple[Inline, ...]:
    """Return a line that names the mesh axes of size 1, which are omitted elsewhere."""
    alone = mesh.folded
    return ((words(f"besides {len(alone)} mesh axes of size 1: {', '.join(alone)}", quiet=True),),) if alone else ()


def spec(of: Spec | None, *, tip: str = "") -> Piece:
    """Return a spec; None stands for a sharding that no PartitionSpec expresses."""
    if of is None:
        return words("no PartitionSpec", quiet=True, tip=tip)
    return Piece(text=str(of.canonical()), kind="spec", value=of, tip=tip or str(of))


def value_spec(value: Value, *, asks: bool = False) -> tuple[Piece, ...]:
    """Return a value's sharding: its spec, per device inside a `shard_map`, or HLO's text; with `asks` a click asks
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
    """Return `+1.30 GB`, `−0.21 s`."""
    return f"{'−' if amount < 0 else '+'}{form(abs(amount))}"


def before_after(*texts: str) -> str:
    """Return `1 → 3`, or one text if the texts are equal."""
    return " → ".join(dict.fromkeys(texts))


def fits_word(fits: bool | None) -> str:
    """Return `fits` or `does not fit`; empty for None."""
    return "" if fits is None else "fits" if fits else "does not fit"


def difference(amount: float, form: Callable[[float], str], *, worse: Any = "bad", **more: Any) -> Piece:
    """Return a difference, coloured as `worse` if positive; `more` as for `words`."""
    return words(signed_text(amount, form), tone=worse if amount > 0 else "good", **more)


def shape(sizes: Sequence[int] | None, *, dtype: str = "", tip: str = "") -> Piece:
    """Return a shape, after its element type if given."""
    return code(f"{dtype} {format_shape(sizes)}".strip(), tip=tip)


def bar(parts: Iterable[Part]) -> Piece:
    return Piece(text="", kind="bar", value=tuple(parts))


def line(frame: Frame | None, lines: SourceText | None = None, *, tip: str = "") -> Piece:
    """Return a source place with its text from `lines`, if known; a shortened text has the full line as its tip."""
    if frame is None:
        return words(NO_SOURCE, quiet=True, tip=tip)
    text, short = frame.text_in(lines or {}), frame.short
    if len(text) > _LONGEST_LINE:
        tip = tip or text
    shown = shorten(text, _LONGEST_LINE)
    return Piece(text=short, kind="line", value=shown, quiet=True, tip=tip, selects=("line", short))


def moved(kind: str, over: tuple[Axis, ...] | None, frame: Frame | None, tip: str = "") -> Piece:
    """Return a kind of collective; hovering highlights the same collective everywhere."""
    at = "" if frame is None else frame.short
    piece = replace(term(kind, strong=True), selects=("moved", f"{kind} {axes_words(over)} {at}"))
    return replace(piece, tip=tip) if tip else piece


Cell = Inline | str
"""The content of a cell; a string is plain words."""
Blocks = Block | Iterable[Block] | None
"""A block, several, or none."""


def pieces(*cells: Cell | Iterable[Piece] | None) -> tuple[Piece, ...]:
    """Return the pieces in sequence; a string is words, None is nothing."""
    parts = (words(cell) if isinstance(cell, str) else cell for cell in cells if cell is not None)
    return tuple(piece for part in parts for piece in ((part,) if isinstance(part, Piece) else part))


def listed(*blocks: Blocks) -> tuple[Block, ...]:
    """Return the blocks in sequence; None is nothing."""
    return tuple(b for some in blocks if some is not None for b in ((some,) if isinstance(some, Block) else some))


def row(*cells: Cell | Iterable[Piece], detail: Iterable[Block] = (), selects: Any = None, marked: bool = False) -> Row:
    inlines = (words(cell) if isinstance(cell, str) else cell for cell in cells)
    together = tuple(cell if isinstance(cell, Piece) else tuple(cell) for cell in inlines)
    return Row(cells=together, detail=tuple(detail), selects=selects, marked=marked)


def right(title: str = "") -> Column:
    """Return a column of numbers."""
    return Column(title, right=True)


def wrapped(title: str = "") -> Column:
    """Return a column of words that may take several lines."""
    return Column(title, wrap=True)


class Rows(Generic[T]):
    """Records to show as the rows of a table.

    >>> arrays = Rows([("w", 512)], noun="array")
    >>> both = arrays.table(("name", lambda r: r[0]), (right("bytes"), lambda r: nbytes(r[1])))
    >>> [plain(cell) for cell in both.rows[0].cells]
    ['w', '512 B']

    `most` and `first` are as in `Table` (None: all, and as many as `most`). Only `kept` records have rows, the others
    are counted. `settings` are other fields of `Table`.
    """

    def __init__(
        self,
        records: Iterable[T],
        *,
        most: int | None = None,
        first: int | None = None,
        kept: int | None = None,
        **settings: Any,
    ):
        every = list(records)
        self._records = every[:kept]
        most = len(self._records) if most is None else most
        limits = {"most": most, "first": most if first is None else first, "hidden": len(every) - len(self._records)}
        self._settings: dict[str, Any] = limits | settings

    def table(
        self,
        *columns: tuple[str | Column, Callable[[T], Cell | Iterable[Piece]]] | None,
        detail: Callable[[T], Iterable[Block]] = lambda record: (),
        selects: Callable[[T], Any] = lambda record: None,
        marked: Callable[[T], bool] = lambda record: False,
    ) -> Table:
        """Return a row per record. A column is (head, function of a record); None omits a column. The other functions
        return the fields of `Row` for a record."""
        shown = [column for column in columns if column is not None]
        rows = tuple(
            row(*(cell(it) for _, cell in shown), detail=detail(it), selects=selects(it), marked=marked(it))
            for it in self._records
        )
        heads = tuple(Column(head) if isinstance(head, str) else head for head, _ in shown)
        return Table(columns=heads, rows=rows, **self._settings)


def section(title: str, *blocks: Blocks, lead: Cell = (), **more: Any) -> Section:
    """Return a heading with its lead and blocks; `more` as for `Section`."""
    return Section(title=title, lead=pieces(lead or None), blocks=listed(*blocks), **more)


def paragraph(*cells: Cell | None, label: str = "", quiet: bool = False, name: str = "") -> Paragraph:
    """Return a paragraph of pieces and strings."""
    return Paragraph(pieces=pieces(*cells), label=label, quiet=quiet, name=name)


def with_code(text: str, *, strong: bool = False) -> list[Piece]:
    """Return the pieces of a sentence whose code stands between backticks."""
    parts = enumerate(text.split("`"))
    return [code(part) if place % 2 else words(part.strip(), strong=strong) for place, part in parts if part]


def notes(*texts: str) -> tuple[Paragraph, ...]:
    """Return a quiet paragraph for each nonempty text."""
    return tuple(paragraph(text, quiet=True) for text in texts if text)


def shorten(text: str, most: int) -> str:
    """Return the text on one line of at most `most` characters; a longer text ends in `…`."""
    text = " ".join(text.split())
    return text if len(text) <= most else text[: max(0, most - 1)] + "…"


def device_ranges(devices: Iterable[int]) -> str:
    """Return ascending device numbers in their shortest exact form.

    >>> device_ranges([0, 1, 2, 3, 16, 17]), device_ranges(range(0, 64, 8)), device_ranges([3])
    ('0-3,16-17', '0,8,…,56', '3')
    """
    if isinstance(devices, (list, tuple)) and len(devices) == 1:  # as in most cells
        return str(devices[0])
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
    """Return pieces as plain text, separated by spaces."""
    pieces = (inline,) if isinstance(inline, Piece) else inline
    return joined(pieces, list(map(_plain, pieces)))


def _plain(piece: Piece) -> str:
    if piece.kind == "line" and piece.value:
        return f"{piece.text} {piece.value}".strip()
    return "" if piece.kind == "ask" else piece.text


def joined(pieces: Sequence[Piece], texts: Sequence[str]) -> str:
    """Join the texts that a painter made of pieces, with spaces except before a comma, a colon or the like."""
    text = ""
    for piece, part in zip(pieces, texts, strict=True):
        text += (" " if text and part and not piece.text.startswith(_CLOSING) else "") + part
    return text
