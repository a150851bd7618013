"""Amounts with units, as formulas show them.

>>> seconds_text(5.6e-4), bytes_text(33554432), rate_text(4.5e10), count_text(4.59e14)
('560 µs', '33.55 MB', '45 GB/s', '459 T')
"""

from __future__ import annotations

import math

_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def _scaled(value: float) -> tuple[float, str]:
    for scale, prefix in _PREFIXES:
        if abs(value) >= scale * 0.99995:
            return value / scale, prefix
    return value, ""


def _four(value: float) -> str:
    """Four significant digits, without an exponent."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    digits = max(0, 3 - math.floor(math.log10(abs(value))))
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def count_text(value: float) -> str:
    """`459 T`: plain numbers."""
    scaled, prefix = _scaled(value)
    return f"{_four(scaled)} {prefix}".rstrip()


def many_text(count: int, what: str) -> str:
    """`1 hop`, `3 hops`."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def flops_text(value: float) -> str:
    """`459 TFLOP`; a rate is that with `/s` behind it."""
    scaled, prefix = _scaled(value)
    return f"{_four(scaled)} {prefix}FLOP"


def bytes_text(value: float) -> str:
    """`33.55 MB`: decimal units."""
    scaled, prefix = _scaled(value)
    return f"{_four(scaled)} {prefix}B"


def rate_text(value: float) -> str:
    """`45 GB/s`."""
    return f"{bytes_text(value)}/s"


def seconds_text(value: float) -> str:
    """`560 µs`, `1.2 ms`, `3.4 s`."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")):
        if abs(value) >= scale * 0.99995:
            return f"{_four(value / scale)} {unit}"
    return f"{_four(value / 1e-9)} ns"
