"""The Document of a dry run: its programs, whether it fits, its transfers, and its differences from a real run.

>>> from shardviz.records.runs import RunCall, RunProgram, RunRecord
>>> step = RunProgram(name="step", source=None, calls=2, devices=8, mesh=None, arguments=(), results=())
>>> calls = (RunCall(program=0, live_bytes=1_000_000, argument_bytes=0),) * 2
>>> RunRecord(devices=8, programs=(step,), calls=calls, ended="the script ended")
dry run on 8 devices: 1 program, 2 calls; the script ended
1.00 MB alive on a device at most, during call 1 (step), with what the program needs
<BLANKLINE>
Programs
  program  calls  devices  arguments  results  line
  step         2        8        0 B      0 B  no source line
  Bytes are those of a device.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from shardviz.judge.processes import ProcessComparison, ProcessDifference
from shardviz.judge.runs import ProgramChange, RunComparison
from shardviz.records.amounts import format_bytes, format_rate, format_seconds, plural
from shardviz.records.groups import grouped
from shardviz.records.runs import RULED_OUT, RunArray, RunProgram, RunRecord, RunRule, Transfer
from shardviz.records.values import SourceText
from shardviz.view import document as doc
from shardviz.view.report import findings_section

_MOST_ARRAYS, _FIRST_PROGRAMS, _SMALL, _MOST_TEXT = 60, 12, 100_000, 300


@doc.document.register
def of_run(run: RunRecord) -> doc.Document:
    """Return a row for each program, largest first, with its arrays below; then the transfers, by bytes, and notes."""
    on = f"{run.target}, {plural(run.devices, 'device')}" if run.target else plural(run.devices, "device")
    of = "" if run.process is None else f" as process {run.process[0]} of {run.process[1]}"
    head = f"dry run on {on}{of}: {plural(len(run.programs), 'program')}, {plural(len(run.calls), 'call')}; {run.ended}"
    notes = (doc.paragraph(note.text, doc.line(note.source)) for note in run.notes)
    return doc.Document.of(
        doc.paragraph(doc.code(run.command)) if run.command else None,
        _peak(run),
        doc.paragraph(f"held by {held}") if (held := held_text(run)) else None,
        findings_section(run.findings),
        _programs(run) if run.programs else None,
        _transfers(run) if run.transfers else None,
        _rules(run) if run.rules else None,
        doc.section("Otherwise than in a real run", *notes) if run.notes else None,
        title=doc.words(head, strong=True),
        mesh=next((program.mesh for program in run.programs if program.mesh is not None), None),
    )


def _peak(run: RunRecord, label: str = "") -> doc.Paragraph:
    """Return the most memory that a device needs, the call that needs it, and whether that fits."""
    if (peak := run.peak) is None:
        none = "No program was recorded: none is on several devices, nor are its arrays larger than the bound."
        return doc.paragraph(none, label=label)
    needed, program = run.needs_at(peak), run.programs[peak.program]
    amount = doc.words(format_bytes(needed), strong=True)
    call = f"call {run.calls.index(peak) + 1} ({program.name})"
    during = f"alive on a device at most, during {call}, with what the program needs"
    if run.usable is None:
        return doc.paragraph(amount, during, label=label)
    fits = needed <= run.usable
    verdict = doc.words(doc.fits_word(fits), tone="good" if fits else "bad", strong=True)
    return doc.paragraph(amount, f"of {format_bytes(run.usable)} {during}:", verdict, "(level propagated)", label=label)


def held_text(run: RunRecord) -> str:
    """Return what holds the memory at the peak, but for parts below a thousandth of it; empty if that is not known."""
    least = sum(each.nbytes for each in run.held) / 1000
    return ", ".join(f"{each.kind} {format_bytes(each.nbytes)}" for each in run.held if each.nbytes >= least)


def _programs(run: RunRecord) -> doc.Section:
    timed = any(program.seconds is not None for program in run.programs)
    ordered = sorted(run.programs, key=lambda p: (p.devices == 1, -(p.seconds or 0), -p.bytes_per_device))
    rows = doc.Rows(ordered, folds="always", first=_FIRST_PROGRAMS, noun="program").table(
        ("program", lambda p: doc.words(p.name, strong=True)),
        (doc.right("calls"), lambda p: f"{p.calls:,}"),
        (doc.right("devices"), lambda p: doc.mesh_axes(p.mesh) if p.mesh is not None else doc.words(str(p.devices))),
        (doc.right("one call"), lambda p: doc.seconds(p.seconds)) if timed else None,
        (doc.right("arguments"), lambda p: doc.nbytes(sum(a.bytes_per_device for a in p.arguments))),
        (doc.right("results"), lambda p: doc.nbytes(sum(a.bytes_per_device for a in p.results))),
        ("line", lambda p: doc.line(p.source)),
        detail=_arrays,
    )
    level = "; seconds are of level propagated" if timed else ""
    return doc.section("Programs", rows, *doc.notes(f"Bytes are those of a device{level}."))


def _arrays(program: RunProgram) -> Iterator[doc.Block]:
    named = [("donated" if a.donated else "argument", a) for a in program.arguments]
    named += [("result", a) for a in program.results]
    yield doc.Rows(sorted(named, key=lambda each: -each[1].bytes_per_device)[:_MOST_ARRAYS], noun="array").table(
        ("", lambda each: doc.words(each[0], quiet=True)),
        ("array", lambda each: doc.words(each[1].name)),
        ("type", lambda each: _type_text(each[1])),
        ("spec", lambda each: doc.code(each[1].spec)),
        (doc.right("bytes"), lambda each: doc.nbytes(each[1].bytes_per_device)),
    )


def is_large(transfer: Transfer) -> bool:
    """Return whether the arrays of a transfer have more than a few bytes each, unlike a loss that is printed."""
    return transfer.nbytes / transfer.count >= _SMALL


def _transfers(run: RunRecord) -> doc.Section:
    """Return the transfers, most bytes first. Transfers of a few bytes, such as a printed loss, share one line."""
    large = [t for t in run.transfers if is_large(t)]
    few = [t for t in run.transfers if not is_large(t)]
    timed = next((t for t in large if t.seconds), None)
    rows = doc.Rows(sorted(large, key=lambda t: -t.nbytes), first=_FIRST_PROGRAMS, noun="transfer").table(
        ("moved", lambda t: t.kind),
        (doc.right("arrays"), lambda t: f"{t.count:,}"),
        (doc.right("bytes"), lambda t: doc.nbytes(t.nbytes)),
        (doc.right("PCIe"), lambda t: doc.seconds(t.seconds)) if timed else None,
        ("from", lambda t: t.before),
        ("to", lambda t: t.after),
        ("line", lambda t: doc.line(t.source)),
    )
    total = f"{plural(sum(t.count for t in few), 'array')}, {format_bytes(sum(t.nbytes for t in few))} in all"
    rate = ""
    if timed:
        rate = f" PCIe: the bytes of one device at {format_rate(timed.device_bytes / (timed.seconds or 1))}."
    sentences = doc.notes(
        f"Bytes are of the full arrays.{rate}" if large else "",
        f"Arrays of less than {format_bytes(_SMALL)}: {total}." if few else "",
    )
    return doc.section("Transfers", rows if large else None, *sentences)


def _rules(run: RunRecord) -> doc.Section:
    """Return a row for each resolution of one of flax's logical axis names."""

    def why(rules: Sequence[RunRule]) -> doc.Piece:
        return doc.words(rules[0].why, tone="" if rules[0].why == RULED_OUT else "bad")

    outcomes = grouped(((rule.name, rule.axes, rule.why), rule) for rule in run.rules).values()
    rows = doc.Rows(outcomes, first=_FIRST_PROGRAMS, noun="name").table(
        ("name", lambda rules: doc.words(rules[0].name, strong=True)),
        ("mesh axes", lambda rules: doc.axes(rules[0].axes) if rules[0].axes else doc.words("none", quiet=True)),
        ("shards nothing, because", why),
        (doc.right("lines"), lambda rules: f"{len(rules):,}"),
        ("first line", lambda rules: doc.line(rules[0].source)),
    )
    return doc.section("Logical axis names", rows)


@doc.document.register
def of_runs(comparison: RunComparison) -> doc.Document:
    """Return a row for each program that differs, with its differing arrays below."""
    runs = comparison.before, comparison.after
    named = list(zip(comparison.names, runs, strict=True))
    changed = [each for each in comparison.programs if not each.same]
    alike = len(comparison.programs) - len(changed)
    rows = doc.Rows(changed, first=_FIRST_PROGRAMS, noun="program").table(
        ("program", lambda c: doc.words(c.name, strong=True)),
        (doc.right("calls"), lambda c: _both(c, lambda p: f"{p.calls:,}")),
        (doc.right("devices"), _devices),
        (doc.right("one call"), lambda c: _both(c, lambda p: "" if p.seconds is None else format_seconds(p.seconds))),
        (doc.right("arguments and results"), lambda c: _both(c, lambda p: format_bytes(p.bytes_per_device))),
        (doc.right("arrays that differ"), lambda c: f"{len(c.arrays):,}"),
    )
    same = f"{plural(alike, 'program')} {'is' if alike == 1 else 'are'} the same." if alike else ""
    return doc.Document.of(
        *(_peak(run, name) for name, run in named),
        doc.section("Programs that differ", rows) if changed else None,
        *(doc.section(f"Arrays of {c.name} that differ", _changed_arrays(c)) for c in changed if c.arrays),
        *doc.notes(same, "Bytes are those of a device; seconds are of level propagated." if changed else ""),
        title=doc.words(f"dry runs compared: {' and '.join(comparison.names)}", strong=True),
        mesh=next((p.mesh for run in runs for p in run.programs if p.mesh is not None), None),
    )


def _devices(change: ProgramChange) -> str:
    """Return the meshes of both runs; the order of their devices only if they differ in nothing else."""
    text = _both(change, lambda p: str(p.mesh.shown if p.mesh else p.devices))
    ordered = _both(change, lambda p: p.mesh.text if p.mesh else str(p.devices))
    return ordered if "→" in ordered and "→" not in text else text


def _both(change: ProgramChange, text: Callable[[RunProgram], str]) -> str:
    """Return `1 → 3`, or one text if both are equal; a dash if a run lacks the program."""
    return doc.before_after(*("–" if p is None else text(p) for p in (change.before, change.after)))


def _changed_arrays(change: ProgramChange) -> doc.Table:
    def size(array):
        return array.bytes_per_device if array else 0

    ordered = sorted(change.arrays, key=lambda each: -abs(size(each[2]) - size(each[1])))
    return doc.Rows(ordered[:_MOST_ARRAYS], noun="array").table(
        ("array", lambda each: doc.words(each[0])),
        ("before", lambda each: _array_words(each[1], each[2])),
        ("after", lambda each: _array_words(each[2], each[1])),
        (doc.right("per device"), lambda each: doc.difference(size(each[2]) - size(each[1]), format_bytes)),
    )


def _array_words(array: RunArray | None, other: RunArray | None) -> doc.Inline:
    """Return an array's spec, after its type and shape if the other's differ."""
    if array is None:
        return doc.words("none", quiet=True)
    same = other is not None and (array.shape, array.dtype) == (other.shape, other.dtype)
    donated = "donated" if array.donated else None
    return doc.pieces(None if same else _type_text(array), doc.code(array.spec or "no spec"), donated)


def _type_text(array: RunArray) -> str:
    return f"{array.dtype}[{','.join(map(str, array.shape))}]"


@doc.document.register
def of_processes(comparison: ProcessComparison) -> doc.Document:
    """Return the first difference of each process from the first process, with both sides."""
    first, count = comparison.processes[0], comparison.count
    ends = dict(zip(comparison.processes, comparison.ended, strict=True))
    apart = {n for each in comparison.differences for n in each.processes} | {n for n in ends if ends[n] != ends[first]}
    failed = ends[first] not in ("the script ended", "steady")
    text = f"{len(ends)} of {count} processes run the same programs in the same order"
    if apart:
        verb = "does" if len(apart) == 1 else "do"
        text = f"{_processes(apart)} of {count} {verb} not run as process {first} does"
    elif failed:
        text += ", and fail"
    elif "steady" in comparison.ended:
        text += ", as far as they ran"
    counts = f"{plural(comparison.programs, 'program')} on several processes, {plural(comparison.calls, 'call')}"
    return doc.Document.of(
        doc.paragraph(doc.words(f"process {first}: {counts}")),
        *(_process_difference(each, first, comparison.source) for each in comparison.differences),
        doc.paragraph(f"process {first} ended: {ends[first]}") if failed else None,
        *(doc.paragraph(f"process {n} ended otherwise: {end}") for n, end in ends.items() if end != ends[first]),
        *doc.notes(
            "A job whose processes call different programs hangs or fails. Programs on one process's own devices are "
            "not compared.",
            "The runs ended after steps that brought nothing new; --steps 0 runs the script to its end."
            if "steady" in comparison.ended
            else "",
        ),
        title=doc.words(text, strong=True, tone="bad" if apart or failed else "good"),
    )


def _processes(numbers: Collection[int]) -> str:
    return f"{'process' if len(numbers) == 1 else 'processes'} {doc.device_ranges(sorted(numbers))}"


def _process_difference(difference: ProcessDifference, first: int, source: SourceText) -> doc.Block:
    called, _ = difference.sides
    elsewhere = any(side.called != side.source for side in difference.sides)
    where = "" if difference.what == "program" else f" of {called.program}"
    rows = doc.Rows(difference.sides).table(
        ("process", lambda side: str(first) if side is called else doc.device_ranges(difference.processes)),
        ("line", lambda side: doc.line(side.source, source)),
        (doc.wrapped(f"{difference.what}{where}"), lambda side: doc.code(doc.shorten(side.text, _MOST_TEXT))),
        ("called from", lambda side: doc.line(side.called)) if elsewhere else None,
    )
    head = f"{_processes(difference.processes)}: call {difference.call} differs in its {difference.what}"
    return doc.section(head, rows)
