"""Any Picture as a standalone SVG file, whose colours follow the page's theme.

>>> from shardviz.view.picture import Picture, Rects
>>> bar = Rects(x=(0,), y=(0,), wide=40, high=10, fill=0, tip="{}", tip_parts=(("a & b",),))
>>> text = svg_of(Picture(width=40, height=10, shapes=(bar,), title="a bar", axes=("data",)))
>>> "<title>a &amp; b</title>" in text, ".f-0{fill:#0072B2}" in text, "prefers-color-scheme:dark" in text
(True, True, True)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from html import escape
from typing import Any

from shardviz.paint.legend import HEAD, PAD, with_words
from shardviz.paint.outside import shown, uncontrolled
from shardviz.paint.theme import ink_on, paint_of
from shardviz.view.picture import DASHES, HATCHES, SIZES, Drawn, Labels, LegendKey, Lines, Picture, Rects, Role, pixels

_FONTS = "font-family:system-ui,sans-serif;dominant-baseline:central"


def svg_of(picture: Picture, *, dark: bool | None = None) -> str:
    """Return a Picture with its title, legend and notes as an SVG file; `dark=None` follows the reader's theme."""
    roles = _roles([picture])
    style = _FIXED + _rules(roles, lambda paint: paint(bool(dark)))
    if dark is None:
        style += f"@media(prefers-color-scheme:dark){{{_rules(roles, lambda paint: paint(True))}}}"
    ground = '<rect class="f-ground" width="100%" height="100%"/>'
    before = f"<style>{style}</style><defs>{_patterns([picture])}</defs>{ground}"
    return _drawn(picture, before, ' xmlns="http://www.w3.org/2000/svg"')


def inline_of(picture: Picture) -> str:
    """Return a Picture for a page that contains `page_style` and `page_hatches` of all its Pictures."""
    return _drawn(picture, "", "")


def page_style(pictures: Sequence[Picture]) -> str:
    """Return the style of a page's Pictures, following its `color-scheme` (light in browsers before 2024)."""
    roles = _roles(pictures)
    either = _rules(roles, lambda paint: f"light-dark({paint(False)},{paint(True)})")
    return _FIXED + _rules(roles, lambda paint: paint(False)) + either


def page_hatches(pictures: Sequence[Picture]) -> str:
    """Return the hatches of a page's Pictures, in an empty drawing, which must not be hidden."""
    hidden = 'width="0" height="0" style="position:absolute" aria-hidden="true"'
    patterns = _patterns(pictures)
    return f"<svg {hidden}><defs>{patterns}</defs></svg>" if patterns else ""


def _drawn(picture: Picture, before: str, namespace: str) -> str:
    shapes, (wide, high) = with_words(picture)
    body = "".join(part for shape in shapes for part in _shape(shape))
    title = "".join(_labels(Labels(at=((PAD, PAD + 8),), texts=(picture.title,), size="head")))
    across, down = f"{wide + 2 * PAD:.0f}", f"{high + 2 * PAD + HEAD:.0f}"
    size = f'width="{across}" height="{down}" viewBox="0 0 {across} {down}"'
    head = f'<svg{namespace} {size} role="img" aria-label="{escape(uncontrolled(picture.alt or picture.title))}">'
    return f'{head}{before}{title}<g transform="translate({PAD:g},{PAD + HEAD:g})">{body}</g></svg>'


def _roles(pictures: Iterable[Picture]) -> list[Role]:
    roles: dict[Role, None] = dict.fromkeys(("ink", "quiet", "line", "ground"))
    for each in (each for picture in pictures for each in (*picture.ordered, *picture.keys)):
        for name in ("fill", "stroke", "ink"):
            role = getattr(each, name, None)
            if role is not None:
                roles[role] = None
    return list(roles)


_FIXED = f"text{{{_FONTS}}}.none{{fill:none}}.h{{stroke:{paint_of('ground', False)};stroke-opacity:.5}}"


def _rules(roles: Iterable[Role], colour: Callable[[Callable[[bool], str]], str]) -> str:
    """Return the CSS classes of roles; `colour` combines a role's light (False) and dark (True) colour."""
    rules = []
    for role in roles:
        paint, ink = (colour(partial(role_colour, role)) for role_colour in (paint_of, ink_on))
        name = _word(role)
        rules.append(f".f-{name}{{fill:{paint}}}.s-{name}{{stroke:{paint}}}")
        rules.append(f".i-{name}{{fill:{paint}}}.o-{name}{{fill:{ink}}}")
    return "".join(rules)


def _word(role: Role) -> str:
    return str(role).replace(" ", "-")


def _patterns(pictures: Iterable[Picture]) -> str:
    marked = (each for picture in pictures for each in (*picture.ordered, *picture.keys))
    hatches = {each.hatch for each in marked if isinstance(each, Rects | LegendKey)}
    patterns = []
    for number in sorted(hatch for hatch in hatches if hatch is not None):
        d = HATCHES[number % len(HATCHES)]
        size = 'width="6" height="6" patternUnits="userSpaceOnUse"'
        patterns.append(f'<pattern id="h{number}" {size}><path class="h" d="{d}"/></pattern>')
        patterns.append(f'<pattern id="q{number}" {size}><path class="s-quiet" d="{d}"/></pattern>')
    return "".join(patterns)


def _look(fill: Role | None, stroke: Role | None, **more: Any) -> str:
    """Return the classes of a fill and a stroke, and the attributes that differ from their defaults."""
    classes = "none" if fill is None else f"f-{_word(fill)}"
    classes += "" if stroke is None else f" s-{_word(stroke)}"
    attributes = {name.replace("_", "-"): value for name, value in more.items() if value not in ("", 1.0)}
    return f'class="{classes}"' + "".join(f' {name}="{value}"' for name, value in attributes.items())


def _dash(number: int | None) -> str:
    return " ".join(f"{n:g}" for n in DASHES[number]) if number is not None else ""


def _shape(shape: Drawn) -> Iterable[str]:
    if isinstance(shape, Rects):
        return _rects(shape)
    if isinstance(shape, Lines):
        return _lines(shape)
    return _labels(shape)


def _tip(text: str) -> str:
    return f"<title>{escape(uncontrolled(text))}</title>" if text else ""


def _rects(shape: Rects) -> Iterator[str]:
    tips = shape.tips or [""] * len(shape.x)
    look = _look(shape.fill, shape.stroke, fill_opacity=shape.strength, stroke_dasharray=_dash(shape.dash))
    for number, (x, y, wide, high) in enumerate(shape.boxes):
        box = f'x="{x:g}" y="{y:g}" width="{wide:g}" height="{high:g}"'
        corner = f' rx="{shape.corner:g}"' if shape.corner else ""
        yield f"<rect {box}{corner} {look}>{_tip(tips[number])}</rect>"
        if shape.hatch is not None:
            yield f'<rect {box} fill="url(#{"q" if shape.fill is None else "h"}{shape.hatch})" pointer-events="none"/>'
        if shape.labels and (text := shape.labels[number]):
            ink = "i-ink" if shape.fill is None else f"o-{_word(shape.fill)}"
            size = min(SIZES["small"], 1.5 * wide / len(text), high)
            at = f'x="{x + wide / 2:g}" y="{y + high / 2:g}" text-anchor="middle" font-size="{size:.1f}"'
            if shape.hatch is not None and shape.fill is not None:
                ink += f" s-{_word(shape.fill)}"
                at += ' paint-order="stroke" stroke-width="3"'
            yield f'<text class="{ink}" {at} pointer-events="none">{escape(shown(text))}</text>'


def _lines(shape: Lines) -> Iterator[str]:
    end = "Z" if shape.closed else ""
    d = "".join(f"M{_points(line[:1])}L{_points(line[1:])}{end}" for line in shape.lines)
    more = {"stroke_width": f"{shape.width:g}", "opacity": shape.strength, "stroke_dasharray": _dash(shape.dash)}
    yield f'<path d="{d}" {_look(shape.fill, shape.stroke, **more)}>{_tip(shape.tip)}</path>'


def _points(points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _labels(shape: Labels) -> Iterator[str]:
    look = [f'class="i-{_word(shape.ink)}{" s-ground" if shape.halo else ""}" font-size="{pixels(shape.size):g}"']
    look += [f'text-anchor="{shape.align}"'] if shape.align != "start" else []
    look += ['font-weight="600"'] if shape.bold else []
    look += ['style="font-family:monospace"'] if shape.mono else []
    look += ['paint-order="stroke" stroke-width="3"'] if shape.halo else []
    for (x, y), text in zip(shape.at, shape.texts, strict=True):
        turn = f' transform="rotate(-90 {x:.1f} {y:.1f})"' if shape.turned else ""
        yield f'<text x="{x:.1f}" y="{y:.1f}"{turn} {" ".join(look)}>{escape(shown(text))}</text>'
