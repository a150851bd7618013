"""The roofline as the page gets it: lines, marks, ticks and labels in a picture's own pixels."""

from __future__ import annotations

import math

from shardviz.costs.step_cost import StepCost
from shardviz.notation import axis_name
from shardviz.records.amounts import format_flops, format_number
from shardviz.render.roofline_scene import Roof, Roofline, roofline_of
from shardviz.widgets.payload import Json

WIDE, HIGH = 520, 290
_LEFT, _RIGHT, _TOP, _BOTTOM = 78, 20, 20, 34


def roofline_json(cost: StepCost) -> Json:
    """The roofs of a step with its marks."""
    found = roofline_of(cost)
    roofs = [_roof(found, roof) for roof in found.roofs]
    _label(roofs)
    return {
        "width": WIDE,
        "height": HIGH,
        "box": [_LEFT, _TOP, WIDE - _RIGHT, HIGH - _BOTTOM],
        "text": found.text,
        "rate": found.rate,
        "rest": found.left_out,
        "x": [[round(_x(found, n), 1), format_number(n)] for n in _decades(*found.x)],
        "y": [[round(_y(found, n), 1), f"{format_flops(n)}/s"] for n in _decades(*found.y)],
        "peak": round(_y(found, found.peak), 1),
        "roofs": roofs,
    }


def _decades(low: float, high: float) -> list[float]:
    """Powers of ten, at most seven of them."""
    first, last = math.ceil(math.log10(low)), math.floor(math.log10(high))
    return [10.0**n for n in range(first, last + 1, max(1, -(-(last - first + 1) // 7)))]


def _x(found: Roofline, intensity: float) -> float:
    low, high = map(math.log10, found.x)
    return _LEFT + (math.log10(intensity) - low) / (high - low) * (WIDE - _LEFT - _RIGHT)


def _y(found: Roofline, rate: float) -> float:
    low, high = map(math.log10, found.y)
    return HIGH - _BOTTOM - (math.log10(rate) - low) / (high - low) * (HIGH - _TOP - _BOTTOM)


def _label(roofs: list[Json]) -> None:
    """Puts each roof's name beside its slope, those with the shortest slopes first, none at another's height."""
    taken: list[float] = []
    for roof in sorted(roofs, key=lambda r: r["line"][0][1]):
        (x0, y0), (x1, y1), _ = roof["line"]
        heights = [y1 + 14 + 4 * n for n in range(max(1, int((y0 - y1 - 18) / 4)))]
        y = next((h for h in heights if all(abs(h - t) >= 17 for t in taken)), heights[len(heights) // 2])
        taken.append(y)
        part = (y0 - y) / ((y0 - y1) or 1.0)
        roof["label"] = [round(x0 + (x1 - x0) * min(max(part, 0.0), 1.0), 1), round(y, 1)]


def _roof(found: Roofline, roof: Roof) -> Json:
    knee = roof.knee
    low = max(found.x[0], found.y[0] / knee.bytes_per_s)  # where the line comes into the picture
    points = [(low, knee.attainable(low)), (knee.intensity, found.peak), (found.x[1], found.peak)]
    line = [[round(_x(found, x), 1), round(_y(found, y), 1)] for x, y in points]
    view: Json = {
        "name": knee.name,
        "axis": None if roof.axis is None else axis_name(roof.axis),
        "line": line,
        "title": roof.title,
        "verdict": roof.verdict,
        "formula": knee.formula,
    }
    if roof.intensity is not None and roof.attained is not None:
        view["mark"] = [round(_x(found, roof.intensity), 1), round(_y(found, roof.attained), 1)]
        view["reaches"] = f"at most {format_flops(roof.attained)}/s by this roof"
    return view
