"""A colour and a hatch for each mesh axis, by its position in the mesh; the hatch distinguishes axes without colour.

The hues are Okabe and Ito's, which people with colour-blindness can tell apart (https://jfly.uni-koeln.de/color/).

>>> colours = axis_colours({"data": 8, "model": 4})
>>> colours["data"].light, colours["model"].light
('#0072B2', '#D55E00')
>>> round(contrast(colours["data"].light, colours["data"].ink), 1)
5.2
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from shardviz.notation import DeviceMesh


@dataclass(frozen=True)
class AxisColour:
    """The appearance of a mesh axis. `light` and `dark` are fills (`#RRGGBB`) for light and dark pages, with contrast
    4.5:1 (WCAG AA) to the text colours `ink` and `dark_ink`. HTML chips use `light` with `ink` on both. `hatch` is
    matplotlib's, for cells without a name."""

    light: str
    dark: str
    ink: str
    dark_ink: str
    hatch: str


_WHITE, _BLACK = "#FFFFFF", "#111111"
_HUES = (
    ("#0072B2", "#4DA6DB"),
    ("#D55E00", "#F28B3C"),
    ("#009E73", "#35C79B"),
    ("#CC79A7", "#E3A3C6"),
    ("#E69F00", "#F5BE4A"),
    ("#56B4E9", "#8ACDF4"),
    ("#F0E442", "#F6EE86"),
    ("#8C8C8C", "#B5B5B5"),
)
_HATCHES = ("///", "\\\\\\", "...", "xxx", "|||", "---", "+++", "ooo")

MUTED = "#8C8C8C"
"""A fill for anything that belongs to no mesh axis."""


def luminance(colour: str) -> float:
    """Return the relative luminance of `#RRGGBB`, 0 to 1, as WCAG 2.2 defines it."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two colours `#RRGGBB`, 1 to 21, as WCAG 2.2 defines it."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def ink_for(fill: str) -> str:
    """Return white if it is readable on `fill` (4.5:1), otherwise near-black."""
    return _WHITE if contrast(fill, _WHITE) >= 4.5 else _BLACK


@cache
def axis_colour(place: int) -> AxisColour:
    """Return the colour of the mesh axis at a position of its mesh."""
    light, dark = _HUES[place % len(_HUES)]
    turn = place // len(_HUES)
    hatch = _HATCHES[(place + turn) % len(_HATCHES)] + (_HATCHES[place % len(_HATCHES)] if turn else "")
    return AxisColour(light, dark, ink_for(light), ink_for(dark), hatch)


ROLES = {
    "ink": ("#1F2328", "#E6E6E6"),
    "quiet": ("#59636E", "#A6ADB5"),
    "line": ("#C3CCD6", "#4A5560"),
    "ground": ("#FFFFFF", "#111111"),
    "tile": ("#EEF2F6", "#1F2933"),
    "shade": ("#D9E0E7", "#323E4A"),
    "muted": (MUTED, "#B5B5B5"),
    "work": ("#59636E", "#A6ADB5"),
    "rematerialised": ("#7A8795", "#8E9BA8"),
}
"""The colours of a Picture's named roles, for a light and a dark page."""

HATCH_INK = ((1.0, 1.0, 1.0, 0.45), (0.07, 0.07, 0.07, 0.45))
"""Red, green, blue and opacity of hatches over a fill, for a light and a dark page."""


def paint_of(role: int | str, dark: bool) -> str:
    """Return the colour of a Picture's role: a mesh axis by its position in the mesh, or a key of `ROLES`."""
    if isinstance(role, int):
        return axis_colour(role).dark if dark else axis_colour(role).light
    return ROLES[role][dark]


def ink_on(role: int | str | None, dark: bool) -> str:
    """Return the colour of text on the fill of a role."""
    return ROLES["ink"][dark] if role is None else ink_for(paint_of(role, dark))


def axis_colours(mesh: Any) -> dict[str, AxisColour]:
    """Return axis name → `AxisColour`, in mesh order. More than eight axes repeat the hues with other hatches."""
    return {name: axis_colour(place) for place, name in enumerate(DeviceMesh.of(mesh).names)}
