"""A plan's code run on simulated devices, in words: the sizes, the results compared, and the command for a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator

from shardviz.records.amounts import format_number, plural
from shardviz.study.simulated import COMMAND, SECONDS, SameResult, Simulated
from shardviz.view import document as doc

_MOST = 12
_UNIT = "the largest difference by the largest value, in units of jnp.finfo(dtype).eps"


@doc.document.register
def simulated_document(run: Simulated) -> doc.Document:
    """Return the progress, or the results with the largest difference first."""
    title = doc.words(_verdict(run), strong=True, tone="warn" if run.trouble or _apart(run) else "")
    return doc.Document(title=title, blocks=tuple(_blocks(run)), mesh=None if run.run is None else run.run.mesh)


def _verdict(run: Simulated) -> str:
    if run.busy and run.run is None:
        return "making the arrays small …"
    if run.busy:
        return f"running in its own process … {run.seconds:.0f} s of at most {SECONDS:.0f}"
    if run.trouble:
        return f"Not run: {run.trouble}" if run.run is None else f"No result: {run.trouble}"
    assert run.run is not None
    on = f"{plural(run.run.mesh.size, 'simulated device')} as on one"
    if wrong := _apart(run):
        return f"{plural(len(wrong), 'result')} of {len(run.results)} not the same on {on}"
    if not run.results:
        return "The function returns no arrays; it ran without an error"
    most = max(run.results, key=lambda each: each.off)
    return f"All {plural(len(run.results), 'result')} the same on {on}: largest difference {_off(most)}"


def _apart(run: Simulated) -> list[SameResult]:
    return [each for each in run.results if not each.same]


def _off(result: SameResult) -> str:
    if math.isinf(result.off):
        return "not finite on one side only"
    if "float" not in result.dtype:
        return f"{format_number(result.off)} elements"
    return f"{format_number(result.off)} × the rounding of {result.dtype}"


def _blocks(run: Simulated) -> Iterator[doc.Block]:
    if run.run is None:
        return

    def infinite(each: SameResult) -> str:
        return f"{each.infinite:,} elements" if each.infinite else ""

    yield doc.paragraph("mesh", doc.mesh_axes(run.run.mesh), "· arrays have random values")
    yield from doc.notes(*(f"{words[0].upper()}{words[1:]}." for words in run.run.lengths))
    if run.results:
        ordered = sorted(run.results, key=lambda each: -each.off)
        yield doc.Rows(ordered, first=_MOST, most=_MOST, noun="result", name="simulated").table(
            ("result", lambda each: doc.code(each.name or "result")),
            ("type and shape", lambda each: doc.shape(each.shape, dtype=each.dtype)),
            ("difference", lambda each: doc.words(_off(each), tip=_UNIT)),
            ("not finite", infinite) if any(map(infinite, run.results)) else None,
        )
    if not run.busy:
        which = "the code at the top, your modules" if run.run.flat else "this code, your function"
        yield doc.paragraph(f"In a terminal, with {which} and your arrays in plan.py:", doc.code(COMMAND, strong=True))
        yield doc.section("The code that ran", doc.Figure(of=doc.Listing(run.run.code)), fold="closed")
