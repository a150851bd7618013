"""The sharding of a `jax.Array` beside its values, when it is the result of a cell after `%load_ext shardviz`.

The values are shown as before: by treescope where it is the default renderer, else by JAX's own `repr`. Values of large
arrays are not fetched from their devices. Where the sharding cannot be shown, the array is shown as before.
"""

from __future__ import annotations

from html import escape
from typing import Any

import jax

from shardviz import _jax
from shardviz.records.amounts import format_bytes, format_shape
from shardviz.view.show import Shown, show

_MOST_BYTES = 1 << 20
"""Bytes of the largest array whose values are fetched."""

_CELL = "padding:0 32px 0 0;border:0;text-align:left;vertical-align:top"


def add(ipython: Any) -> None:
    """Show shardings beside values in this IPython."""
    formatters = ipython.display_formatter.formatters
    for kind in _jax.array_types():
        formatters["text/plain"].for_type(kind, _text)
        formatters["text/html"].for_type(kind, lambda array: _html(array, formatters["text/html"]))


def remove(ipython: Any) -> None:
    """Show arrays as before `add`."""
    for kind in _jax.array_types():
        for medium in ("text/plain", "text/html"):
            ipython.display_formatter.formatters[medium].pop(kind, None)


def _text(array: jax.Array, printer: Any, cycle: bool) -> None:
    lines = _values(array).splitlines()
    if len(printer.stack) == 1:  # the result itself, not an array inside a list
        lines += _sharding(array)
    for number, line in enumerate(lines):
        if number:
            printer.break_()
        printer.text(line)


def _html(array: jax.Array, formatter: Any) -> str | None:
    """Return the values and the sharding side by side; None, so that the text is shown, if there is nothing to add."""
    general = formatter.type_printers.get(object)  # treescope's, where it is the default renderer
    values = None if general is None else general(array)
    try:
        shown = _shown(array)
        sharding = shown.html() if shown is not None else f"<div>{escape(_one_device(array))}</div>"
        if values is None:
            values = f"<pre>{escape(_values(array))}</pre>"
    except Exception:  # noqa: BLE001 - a display must not fail
        return values
    cells = "".join(f'<td style="{_CELL}">{each}</td>' for each in (values, sharding))
    row = f'<tr style="background-color:transparent">{cells}</tr>'
    return f'<table style="border-collapse:collapse;border:0"><tbody>{row}</tbody></table>'


def _sharding(array: jax.Array) -> list[str]:
    try:
        shown = _shown(array)
        return ["", *shown.text().splitlines()] if shown is not None else [_one_device(array)]
    except Exception:  # noqa: BLE001 - a display must not fail
        return []


def _shown(array: jax.Array) -> Shown | None:
    """Return the array's shard map; None on a single device."""
    shown = show(array) if len(array.sharding.device_set) > 1 else None
    return shown if isinstance(shown, Shown) else None


def _one_device(array: jax.Array) -> str:
    (device,) = array.sharding.device_set
    return f"on one device, {device}"


def _values(array: jax.Array) -> str:
    """Return the array's `repr`; of a large array only its type, so that no values are fetched."""
    if array.nbytes <= _MOST_BYTES or not array.is_fully_addressable:
        return repr(array)
    about = f"{array.dtype}{format_shape(array.shape)}, {format_bytes(array.nbytes)}"
    return f"Array({about}: values not fetched)"
