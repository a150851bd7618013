"""Findings: what a person should look at, the gravest first: a sentence, its place, its cause, and what to try."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from shardviz.records import Finding, Findings, Suggestion
from shardviz.records.amounts import format_bytes, format_flops, format_number, format_seconds, plural
from shardviz.records.paths import segments
from shardviz.view.document import (
    Block,
    Column,
    Document,
    Paragraph,
    Piece,
    Section,
    Table,
    axes,
    code,
    document,
    line,
    paragraph,
    row,
    words,
)

MARKS = {"error": "✗", "warning": "⚠", "note": "ℹ"}
TONES = {"error": "bad", "warning": "warn"}
_MOST_TRIED = 3
_UNITS = {"seconds": format_seconds, "bytes": format_bytes, "flops": format_flops}


@document.register
def findings_document(found: Findings) -> Document:
    """All of them."""
    if not found:
        return Document(title=words("Nothing to look at at this level.", quiet=True))
    return Document(
        title=(words("What to look at", strong=True), words(counted(found), quiet=True)),
        blocks=(findings_table(found),),
    )


@document.register
def finding_document(finding: Finding) -> Document:
    """One, with all its numbers."""
    title = (_severity(finding), words(finding.text, strong=True))
    blocks: list[Block] = [*_detail(finding, most=len(finding.mends))]
    if finding.numbers:
        rows = tuple(row(words(_called(name)), words(_amount(name, n))) for name, n in finding.numbers.items())
        blocks.append(Table(columns=(Column(""), Column("", right=True)), rows=rows, caption="in numbers"))
    where = _where(finding, ())
    return Document(title=title, lead=((code(finding.rule, quiet=True), *where),), blocks=tuple(blocks))


def findings_section(found: Sequence[Finding], values: Collection[str] = ()) -> Section:
    """What a person should look at, below a heading that counts it."""
    return Section(title="What to look at", lead=(words(counted(found)),), blocks=(findings_table(found, values),))


def counted(found: Iterable[Finding]) -> str:
    """`1 error, 2 warnings, 6 notes`."""
    severities = [finding.severity for finding in found]
    return ", ".join(plural(severities.count(s), s) for s in ("error", "warning", "note") if s in severities)


def findings_table(found: Sequence[Finding], values: Collection[str] = ()) -> Table:
    """A row for each: severity, where, and what; below it why, and what to try.

    Args:
        found: the findings, in the order in which they are shown.
        values: the names of values that can be selected.
    """
    heads = (Column("severity"), Column("where"), Column("what", wrap=True))
    rows = tuple(
        row(_severity(f), _where(f, values), words(" ".join(f.text.split())), detail=_detail(f)) for f in found
    )
    return Table(columns=heads, rows=rows, first=len(rows), most=len(rows), noun="finding", name="findings")


def _severity(finding: Finding) -> Piece:
    mark = MARKS.get(finding.severity, "")
    return words(f"{mark} {finding.severity}".strip(), tone=TONES.get(finding.severity, ""), tip=finding.rule)


def _where(finding: Finding, values: Collection[str]) -> tuple[Piece, ...]:
    """The value, the axes and the line that it is about, as far as it is about any."""
    value = finding.value
    found = [words(value, selects=("value", value) if value in values else None)] if value else []
    found += [axes(finding.axes)] if finding.axes else []
    found += [line(finding.source)] if finding.source else []
    return tuple(found) or (words(""),)


def _detail(finding: Finding, most: int = _MOST_TRIED) -> tuple[Paragraph, ...]:
    found = [paragraph(" ".join(finding.why.split()), label="why")] if finding.why else []
    if tries := _tries(finding.mends):
        left = len(tries) - most
        also = f"; and {plural(left, 'other')}" if left > 0 else ""
        found.append(paragraph("; ".join(tries[:most]) + also, label="to try"))
    return tuple(found)


def _tries(mends: Sequence[Suggestion]) -> list[str]:
    """Each in words; arrays of one argument to be donated are one, since a whole argument is donated."""
    of = Counter(segments(mend.target)[0] for mend in mends if mend.kind == "donate")
    said = dict.fromkeys(
        f"donate {head} ({plural(of[head], 'array')} of it)"
        if mend.kind == "donate" and of[head := segments(mend.target)[0]] > 1
        else mend.words
        for mend in mends
    )
    return list(said)


def _called(name: str) -> str:
    return name.replace("_", " ")


def _amount(name: str, number: float) -> str:
    if name.startswith("share"):
        return f"{number:.2%}"
    form = next((form for unit, form in _UNITS.items() if name.endswith(unit)), None)
    return form(number) if form is not None else f"{number:,.0f}" if number == int(number) else format_number(number)
