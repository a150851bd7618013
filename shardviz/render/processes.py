"""What each process (host) of several holds, in text and HTML, and how the global and the local views go together.

>>> from shardviz.layouts import by_process, layout
>>> cut = layout((8, 6), ("data", "model"), {"data": 4, "model": 2})
>>> print(processes_text(by_process(cut, [0, 0, 0, 0, 1, 1, 1, 1]), 100))
2 processes
process  devices  holds       local data  part
      0  0-3      [0:4, 0:6]  [4, 6]      0 of 2 along dimension 0
      1  4-7      [4:8, 0:6]  [4, 6]      1 of 2 along dimension 0
global view: jax.Array of [8, 6], in every process; from its local data each process makes it with
jax.make_array_from_process_local_data(sharding, local_data), and x.addressable_shards are its own
local view: the old pjit took [4, 6] from each process, its own part, and gave as much back
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from shardviz.errors import MeshError
from shardviz.layouts import Layout, ProcessLayout, by_process
from shardviz.paint.columns import clip, columns, wrap
from shardviz.records.amounts import format_shape, plural
from shardviz.render.chips import QUIET, cell, table
from shardviz.view.ranges import device_ranges

MOST_PROCESSES = 16
"""Rows; of more processes the first are shown."""


def read_processes(cut: Layout, processes: int | Sequence[int] | Mapping[int, int] | None) -> ProcessLayout | None:
    """What each process holds; None where there is one, or nothing says which devices belong together.

    Args:
        cut: what each device holds.
        processes: how many devices each process has, counted by device id; or the process of each device, as
            `by_process` takes it; or None for what the mesh itself says.

    Raises:
        MeshError: if the devices do not divide into processes of this many, or a device has no process.
    """
    if processes is None and not cut.mesh.process_ids:
        return None
    given: Any = processes
    if isinstance(processes, int | np.integer):
        count = len(cut.device_ids)
        if isinstance(processes, bool) or processes < 1 or count % processes:
            raise MeshError(
                f"processes={processes}: the {plural(count, 'device')} of the mesh {cut.mesh} do not divide into "
                "processes of that many; give a number that divides them, or the process of each device"
            )
        given = np.argsort(np.argsort(cut.device_ids)) // processes
    hosts = by_process(cut, given)
    return hosts if len(hosts.processes) > 1 else None


def rows(hosts: ProcessLayout) -> list[tuple[str, str, str, str, str]]:
    """(process, devices, what it holds, shape of its local data, which part of the array), of the first processes."""
    made = []
    for row, process in enumerate(hosts.processes[:MOST_PROCESSES].tolist()):
        box = ", ".join(f"{a}:{b}" for a, b in zip(hosts.starts[row].tolist(), hosts.stops[row].tolist(), strict=True))
        holds = f"[{box}]" if hosts.elements[row] or not hosts.layout.shape else "nothing"
        if not hosts.contiguous[row]:
            holds = f"{plural(int(hosts.elements[row]), 'element')} in {holds}, with gaps"
        local = format_shape(hosts.local_shapes[row].tolist())
        made.append((str(process), clip(device_ranges(hosts.devices(process)), 40), holds, local, _part(hosts, row)))
    return made


def _part(hosts: ProcessLayout, row: int) -> str:
    """Which part of the array a process holds: `0 of 2 along dimension 0`, `all`, or along what it is irregular."""
    texts = []
    for dimension, count in enumerate(hosts.counts):
        if count is None:
            texts.append(f"irregular along dimension {dimension}")
        elif count > 1:
            texts.append(f"{hosts.parts[row, dimension]} of {count} along dimension {dimension}")
    return "; ".join(texts) or "all"


def remarks(hosts: ProcessLayout) -> list[str]:
    """The global view, JAX's of today, and the local one, the old pjit's, of this array."""
    shape = format_shape(hosts.layout.shape)
    if not hosts.layout.divides:
        return [
            f"no process can make this array of {shape}: JAX refuses a cut that does not divide, as the old pjit did"
        ]
    which = [str(d) for d, count in enumerate(hosts.counts) if count is None]
    more = ""
    if which:
        more = f", global_shape={tuple(hosts.layout.shape)}"
    text = (
        f"global view: jax.Array of {shape}, in every process; from its local data each process makes it with "
        f"jax.make_array_from_process_local_data(sharding, local_data{more}), and x.addressable_shards are its own"
    )
    if which:
        noun = "dimension" if len(which) == 1 else "dimensions"
        text += f"; the global shape does not follow from the local one along {noun} {', '.join(which)}"
    shapes = {hosts.pjit_shape(int(process)) for process in hosts.processes}
    lines = [text]
    if None not in shapes and len(shapes) == 1:
        local = next(iter(shapes))
        own = "its own part" if local != hosts.layout.shape else "the whole, the same from all"
        lines.append(
            f"local view: the old pjit took {format_shape(local)} from each process, {own}, and gave as much back"
        )
    elif not hosts.boxes.all():
        lines.append("local view: the old pjit refused this, as a process's devices make no box of the mesh")
    elif None in shapes:
        lines.append("local view: the old pjit knew PartitionSpecs of whole axes only, and refused this")
    else:
        lines.append("local view: the old pjit took from each process a part of another shape, and gave as much back")
    return lines


def _more(hosts: ProcessLayout) -> str:
    count = len(hosts.processes) - MOST_PROCESSES
    return f"and {count:,} more process{'es' if count > 1 else ''}" if count > 0 else ""


HEADS = ("process", "devices", "holds", "local data", "part")


def processes_text(hosts: ProcessLayout, width: int = 80) -> str:
    """What each process holds, in plain text: a table, then the global and the local view.

    Args:
        hosts: what each process holds.
        width: the most columns in a line.
    """
    body = rows(hosts)
    lines = columns([HEADS, *body], right=(0,))
    if max(map(len, lines)) > width:
        lines = []
        for process, devices, holds, local, part in body:
            text = f"process {process}: devices {devices}; holds {holds}; local data {local}; part {part}"
            lines += wrap(text, width, "  ")
    found = [f"{len(hosts.processes)} processes", *lines, *filter(None, [_more(hosts)])]
    return "\n".join([*found, *(line for remark in remarks(hosts) for line in wrap(remark, width))])


def processes_html(hosts: ProcessLayout) -> str:
    """What each process holds, in HTML: a table, then the global and the local view."""
    body = [
        (cell(process, right=True), cell(devices), cell(holds), cell(local), cell(part, wrap=True))
        for process, devices, holds, local, part in rows(hosts)
    ]
    said = "".join(f"<div>{escape(text)}</div>" for text in filter(None, [_more(hosts), *remarks(hosts)]))
    title = f"{len(hosts.processes)} processes"
    return f'{table((">process", *HEADS[1:]), body, caption=title)}<div style="font-size:12px;{QUIET}">{said}</div>'
