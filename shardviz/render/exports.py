"""What an export is, in text and HTML: its arguments and results, what it was made for, and what it needs to run."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from shardviz.paint.columns import clip, columns
from shardviz.program.exports import ExportedArray, ExportRecord
from shardviz.records.amounts import format_bytes
from shardviz.render.chips import QUIET, SANS, cell, mesh_html, spec_html, table
from shardviz.render.values import MAX_NAME

_MOST_TREE = 400


def facts(record: ExportRecord) -> list[tuple[str, str]]:
    """(what, in words) of everything in an export but its arrays and its mesh.

    Args:
        record: what the export is.
    """
    low, high = record.supported
    reads = "" if record.is_supported else f"; this JAX reads {low} to {high}, so it cannot run here"
    meaning = f": {record.meaning}" if record.meaning else ""
    found = [
        ("devices", f"{record.devices:,}"),
        ("platforms", ", ".join(record.platforms) or "none"),
        ("convention", f"calling convention {record.version}{meaning}{reads}"),
    ]
    if record.symbols:
        rules = f"; {', '.join(record.constraints)}" if record.constraints else ""
        found.append(("symbols", f"{', '.join(record.symbols)}{rules}"))
    for call in record.custom_calls:
        times = f" ({call.count} times)" if call.count > 1 else ""
        promise = "JAX keeps its meaning" if call.stable else "no promise that it keeps its meaning"
        switched = "" if call.stable or not call.allowed else "; the check was switched off for it"
        found.append(("custom call", f"{call.target}{times}: {promise}{switched}"))
    if not record.custom_calls:
        found.append(("custom calls", "none: the file defines all that it does"))
    for kind, effects in (("ordered", record.ordered_effects), ("unordered", record.unordered_effects)):
        if effects:
            found.append((f"{kind} effects", ", ".join(effects)))
    found.append(("derivative", _derivative(record.vjp_order)))
    if record.disabled_checks:
        found.append(("checks off", ", ".join(record.disabled_checks)))
    size = "" if record.file_bytes is None else f" in a file of {format_bytes(record.file_bytes)}"
    found.append(("size", f"{format_bytes(record.module_bytes)} of StableHLO{size}"))
    return found


def _derivative(order: int | None) -> str:
    if order is None:
        return "made when asked for, as this export still has its function"
    if order == 0:
        return "none inside; jax.grad of it fails"
    return f"the VJP is inside, to order {order}"


def export_text(record: ExportRecord, source: str = "") -> str:
    """An export in plain text, at most what its names need in width.

    Args:
        record: what the export is.
        source: where it came from, in words.
    """
    where = f"  ({source})" if source else ""
    mesh = f"the mesh {record.mesh}" if record.mesh is not None else "no mesh"
    lines = [f"{record.name}  exported by jax.export{where}", f"on {mesh}", ""]
    lines += [*_arrays("Arguments", record.arguments), "", *_arrays("Results", record.results), ""]
    lines += columns([(f"  {what}", said) for what, said in facts(record)])
    return "\n".join(map(_plain, lines))


def _plain(text: str) -> str:
    """The text without what would steer a terminal: a file's names may be anything."""
    return "".join(c if c.isprintable() else "�" for c in text)


def _arrays(title: str, arrays: Sequence[ExportedArray]) -> list[str]:
    count = f"{title}: {len(arrays)}"
    if not arrays:
        return [count]
    rows = [("  name", "type and shape", "spec")]
    rows += [(f"  {clip(a.name, MAX_NAME)}", f"{a.dtype} [{', '.join(a.shape)}]", _cut(a)) for a in arrays]
    return [count, *columns(rows)]


def _cut(array: ExportedArray) -> str:
    if not array.kept:
        return "not used"
    if array.spec is not None:
        return str(array.spec.canonical())
    return clip(array.sharding, 60) or "not said"


def export_html(record: ExportRecord, source: str = "") -> str:
    """An export in HTML that survives JupyterLab's sanitizer; every name from the file is escaped.

    Args:
        record: what the export is.
        source: where it came from, in words.
    """
    where = f' <span style="{QUIET}">{escape(source)}</span>' if source else ""
    mesh = f"on the mesh {mesh_html(record.mesh)}" if record.mesh is not None else "on no mesh"
    head = f'<div style="padding:4px 0"><b>{escape(record.name)}</b> exported by jax.export{where}<br>{mesh}</div>'
    body = _table(record, "Arguments", record.arguments) + _table(record, "Results", record.results)
    rows = [(cell(f"<b>{escape(what)}</b>"), cell(escape(said), wrap=True)) for what, said in facts(record)]
    tree = clip(record.in_tree, _MOST_TREE)
    rows.append((cell("<b>arguments' tree</b>"), cell(escape(tree), quiet=True)))
    return f'<div style="{SANS};overflow-x:auto">{head}{body}{table(("what", "in this file"), rows)}</div>'


def _table(record: ExportRecord, title: str, arrays: Sequence[ExportedArray]) -> str:
    rows = []
    for array in arrays:
        if array.spec is not None and array.kept and record.mesh is not None:
            cut = spec_html(array.spec, record.mesh)
        else:
            cut = f'<span style="{QUIET}">{escape(_cut(array))}</span>'
        shape = f"{escape(array.dtype)} [{escape(', '.join(array.shape))}]"
        rows.append((cell(escape(clip(array.name, MAX_NAME)), title=array.name), cell(shape), cell(cut)))
    return table(("name", "type and shape", "spec"), rows, caption=f"{title}: {len(arrays)}")
