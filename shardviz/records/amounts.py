"""Numbers for people: bytes, FLOPs, seconds, rates, counts and shapes, each with its unit.

Amounts have three significant digits, so that a size looks the same in a table and in a formula. Prefixes
are decimal (SI): 1 kB is 1000 bytes, 1 MB is 1000 kB.

>>> format_bytes(33_554_432), format_bytes(512), format_bytes(None)
('33.6 MB', '512 B', 'not known')
>>> format_flops(2.5e15), format_rate(4.5e10), format_seconds(5.592e-4), format_number(240.3)
('2.50 PFLOP', '45.0 GB/s', '559 µs', '240')
>>> format_count(1234567), format_shape((8192, 64)), plural(1280, "device")
('1,234,567', '[8192, 64]', '1,280 devices')
>>> format_change(0.9), format_change(1.134), format_change(2.4), format_times(55_123), format_times(0.48)
('−10 %', '+13 %', '2.4 times', '55,000 times', '0.48 times')
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

NOT_KNOWN = "not known"
COUNT_NOT_KNOWN = "count not known"
_PREFIXES = ("", "k", "M", "G", "T", "P", "E", "Z")
_SECONDS = ((1.0, "s"), (1e3, "ms"), (1e6, "µs"), (1e9, "ns"))


def format_bytes(nbytes: float | None) -> str:
    """Format a number of bytes, such as `33.6 MB`, below 1 kB the exact number; `not known` for None."""
    return NOT_KNOWN if nbytes is None else _scaled(nbytes, "B")


def format_rate(bytes_per_s: float | None) -> str:
    """Format bytes per second, such as `45.0 GB/s`; `not known` for None."""
    return NOT_KNOWN if bytes_per_s is None else f"{_scaled(bytes_per_s, 'B')}/s"


def format_flops(flops: float | None) -> str:
    """Format a number of floating-point operations, such as `2.50 PFLOP`; `not known` for None."""
    return NOT_KNOWN if flops is None else _scaled(flops, "FLOP")


def format_number(number: float | None) -> str:
    """Format a number without a unit, such as `2.55 k`; `not known` for None."""
    return NOT_KNOWN if number is None else _scaled(number, "").rstrip()


def format_seconds(seconds: float | None) -> str:
    """Format a time, such as `3.00 s`, `10.4 ms` or `5.20 µs`; `not known` for None."""
    if seconds is None:
        return NOT_KNOWN
    if seconds == 0:
        return "0 s"
    factor, unit = next((each for each in _SECONDS if abs(seconds) * each[0] >= 0.9995), _SECONDS[-1])
    return f"{_digits(seconds * factor)} {unit}"


def format_times(ratio: float) -> str:
    """Format a ratio as `2.4 times` or `55,000 times`."""
    rounded = float(f"{ratio:.{3 if 1 <= ratio < 2 else 2}g}")
    return f"{rounded:,.0f} times" if ratio >= 100 else f"{rounded:g} times"


def format_change(ratio: float) -> str:
    """Format a ratio as a change: `−10 %`, `+13 %`; from 2 on as `2.4 times`."""
    if ratio >= 2:
        return format_times(ratio)
    return f"{'+' if ratio > 1 else '−'}{float(f'{100 * abs(ratio - 1):.2g}'):g} %"


def format_count(count: int | None) -> str:
    """Format a count with thousands separators, such as `1,280`; `count not known` for None."""
    return COUNT_NOT_KNOWN if count is None else f"{count:,}"


def format_shape(shape: Sequence[int] | None) -> str:
    """Format a shape, such as `[8192, 64]`; `not known` for None."""
    return NOT_KNOWN if shape is None else "[" + ", ".join(map(str, shape)) + "]"


def plural(count: int, noun: str) -> str:
    """Format a count with its noun: `1 device`, `8 devices`, `2 processes`, with thousands separators."""
    return f"{count:,} {noun}" + ("" if count == 1 else "es" if noun.endswith(("s", "x")) else "s")


def first_names(names: Iterable[str], most: int) -> str:
    """Join names, at most the first `most`.

    >>> first_names(["a", "b", "c", "d"], 2)
    'a, b and 2 more'
    """
    names = list(names)
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")


def _scaled(number: float, unit: str) -> str:
    power = 0
    while 999.5 <= abs(number) < math.inf and power < len(_PREFIXES) - 1:
        number /= 1000
        power += 1
    exact = power == 0 and float(number).is_integer()
    return f"{number:.0f} {unit}" if exact else f"{_digits(number)} {_PREFIXES[power]}{unit}"


def _digits(number: float) -> str:
    """Format three significant digits without an exponent, two below 1."""
    size = abs(number)
    if 0 < size < 0.995:
        return f"{number:.{1 - math.floor(math.log10(size))}f}"
    return f"{number:.{2 if size < 9.995 else 1 if size < 99.95 else 0}f}"
