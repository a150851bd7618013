"""An animation as HTML that plays without scripts, and as a filmstrip where styles are taken away.

The CSS number `--now` is the step. A CSS animation or a radio button sets it; CSS arithmetic places the boxes by it.
All texts are in a list, with a frame in characters for each step. Sanitizers that drop styles and inputs keep this
list, which is the filmstrip. It is also shown on paper, and to readers who prefer reduced motion. A sanitizer that
drops a tag keeps its text, so CSS writes the words of the controls.

>>> from shardviz.view.motion import animate
>>> html = motion_html(animate((8, 4), ("x",), (), {"x": 2}).film)
>>> "<script" in html, html.count("listitem"), "prefers-reduced-motion" in html
(False, 2, True)
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from shardviz.paint.outside import shown, uncontrolled
from shardviz.paint.theme import axis_colour, paint_of
from shardviz.view.picture import Film, Rect, Role

_MONO = "font-family:ui-monospace,Menlo,Consolas,monospace;font-size:12px"
_OWN_KEYS = {"data_lm_suppress_shortcuts": "true"}
"""Without this attribute on the element with the focus, JupyterLab uses arrow keys to go from cell to cell."""
_LANDS = 0.22
"""The share of a step before its end at which messages have arrived."""
_SPEEDS = ((0.5, "half speed"), (1, "speed 1"), (2, "double speed"))
_HATCHES = (
    "repeating-linear-gradient(135deg,var(--h) 0 1.5px,transparent 1.5px 6px)",
    "repeating-linear-gradient(45deg,var(--h) 0 1.5px,transparent 1.5px 6px)",
    "repeating-linear-gradient(0deg,var(--h) 0 1.5px,transparent 1.5px 5px)",
    "repeating-linear-gradient(90deg,var(--h) 0 1.5px,transparent 1.5px 5px)",
)

_STYLE = """
@property --now{syntax:"<number>";inherits:true;initial-value:0}
@keyframes mo-play{to{--now:calc(var(--n) + .8)}}
.sv-motion .mo-live{display:block;margin:6px 0}
.sv-motion form{position:relative;--now:0;transition:--now calc(1.2s/var(--v))}
.sv-motion .mo-show{container-type:inline-size;max-width:calc(var(--w)*1px)}
.sv-motion .mo-stage{position:relative;aspect-ratio:var(--w)/var(--t);overflow:hidden;--u:calc(100cqw/var(--w))}
.sv-motion:has(.mo-play:checked) form{transition:none;
animation:mo-play calc((var(--n) + .8)*1.6s/var(--v)) linear 5 forwards}
.sv-motion:has(.mo-stop:checked) form{animation-play-state:paused}
.sv-motion i{position:absolute;box-sizing:border-box;left:calc(var(--x)*var(--u));top:calc(var(--y)*var(--u));
width:calc(var(--a)*var(--u));height:calc(var(--b)*var(--u));font-style:normal}
.sv-motion .mo-map{border:1px solid;opacity:.45}
.sv-motion .mo-id{width:auto;font:600 12px/16px system-ui,sans-serif}
.sv-motion .mo-id::after,.sv-motion .mo-held::after{content:attr(data-t)}
.sv-motion .mo-held{background:#8fa3b8;border:1px solid #5c6f84;color:#111;font:11px/1 ui-monospace,monospace;
display:flex;align-items:center;justify-content:center;overflow:hidden;
opacity:calc(clamp(0,(var(--now) - var(--s))*20 + 1,1)*clamp(0,(var(--e) - var(--now))*20,1))}
.sv-motion .mo-held[data-t]::after{white-space:nowrap;text-shadow:0 0 2px #fff,0 0 2px #fff,0 0 3px #fff,0 0 4px #fff}
.sv-motion .mo-fly{--p:clamp(0,(var(--now) - var(--s) + .95)*1.43,1);border:1.5px solid #111;
opacity:calc(clamp(0,(var(--now) - var(--s) + .97)*40,1)*clamp(0,(var(--s) - .22 - var(--now))*40,1));
transform:translate(calc(var(--p)*var(--dx)*var(--u)),calc(var(--p)*var(--dy)*var(--u)));z-index:2;
box-shadow:0 1px 4px #0006}
.sv-motion .mo-bar{display:flex!important;padding-right:140px;min-height:24px;
flex-wrap:wrap;gap:4px 14px;align-items:center;margin:6px 0}
.sv-motion .mo-bar label,.sv-motion .mo-step{cursor:pointer}
.sv-motion .mo-bar label::after{content:attr(data-t);margin-left:4px}
.sv-motion .mo-go{display:none;position:absolute;top:0;border:1px solid;border-radius:4px;padding:0 8px;
font-weight:400;line-height:22px}
.sv-motion .mo-go::after{content:attr(data-t)}.sv-motion .mo-on{right:0}.sv-motion .mo-off{right:70px}
.sv-motion .mo-list{margin:4px 0;max-height:16em;overflow-y:auto}
.sv-motion .mo-li,.sv-motion .mo-count b{
--on:calc(clamp(0,(var(--now) - var(--s))*20 + 20,1)*clamp(0,(var(--s) - var(--now))*20 + 1,1))}
.sv-motion .mo-li{padding:2px 4px 2px 8px;
border-left:4px solid color-mix(in srgb,currentColor calc(var(--on)*100%),transparent);
background:color-mix(in srgb,currentColor calc(var(--on)*12%),transparent)}
.sv-motion .mo-count{display:grid;font-size:15px;margin:2px 0 6px 4px}
.sv-motion .mo-count b{grid-area:1/1;opacity:var(--on)}.sv-motion .mo-count b::after{content:attr(data-t)}
.sv-motion .mo-step input{display:inline-block!important;margin-right:6px}
.sv-motion .mo-frame{display:none}
.sv-motion .mo-key{display:none}
.sv-motion :focus-visible{outline:2px solid #4da6db;outline-offset:1px}
@media(prefers-reduced-motion:reduce){
.sv-motion form{animation:none!important;transition:none}.sv-motion .mo-fly{display:none}
.sv-motion .mo-bar label,.sv-motion .mo-go{display:none!important}
.sv-motion .mo-list{max-height:none}.sv-motion .mo-frame,.sv-motion .mo-key{display:block}
.sv-motion:has(.mo-play:checked) form{--now:var(--n)}}
@media print{
.sv-motion .mo-live{display:none}.sv-motion .mo-list{max-height:none;overflow:visible}
.sv-motion input,.sv-motion .mo-bar{display:none!important}.sv-motion .mo-frame,.sv-motion .mo-key{display:block}}
"""


Node = tuple[str, dict[str, str], "list[Node | str]"]
"""An element: its tag, its attributes, and what is in it."""


def motion_html(film: Film) -> str:
    """Return an animation as one `<div>`: it plays where styles are kept, and is a filmstrip where they are not."""
    return "".join(_html(motion_tree(film)))


def motion_tree(film: Film) -> Node:
    """Return the elements of an animation, for HTML and for the explorer's page."""
    last = len(film.captions) - 1
    words = shown(f"{film.title}. {film.captions[0]} {film.captions[-1]}")
    drawn = _node("div", "mo-stage", *_drawn(film), role="img", aria_label=words)
    counts = (_node("b", "", style=f"--s:{n}", data_t=count) for n, count in enumerate(film.counts))
    count = _node("div", "mo-count", *counts, aria_hidden="true")
    live = _node("div", "mo-live", count, _node("div", "mo-show", drawn))
    over = ("messages travel over ", *(_chip(name, place) for place, name in film.axes.items()))
    return _node(
        "div",
        "sv-motion",
        _node("style", "", _rules(last)),
        *([_node("div", "", *over, style="padding:2px 0")] if film.axes else []),
        _node("form", "", _bar(), live, _node("div", "mo-list", *_steps(film), role="list"), aria_label=film.title),
        _node("div", "mo-key", film.legend, style=_MONO),
        style=f"--n:{last};--w:{film.width:.0f};--t:{film.height:.0f};--v:1",
    )


def _node(tag: str, look: str, *inside: Node | str, **attributes: str) -> Node:
    named = {name.replace("_", "-"): value for name, value in attributes.items()}
    return tag, {**({"class": look} if look else {}), **named}, list(inside)


def _html(node: Node | str) -> Iterator[str]:
    """Yield the HTML of an element. Texts and attributes are escaped."""
    if isinstance(node, str):
        yield escape(shown(node))
        return
    tag, attributes, inside = node
    yield f"<{tag}"
    for name, value in attributes.items():
        yield " checked" if name == "defaultChecked" else f' {name}="{escape(uncontrolled(value))}"'
    yield ">"
    if tag == "style":
        yield from inside  # type: ignore[misc]
    elif tag == "pre":
        yield escape(uncontrolled(str(inside[0])))
    else:
        for each in inside:
            yield from _html(each)
    if tag != "input":
        yield f"</{tag}>"


def _rules(last: int) -> str:
    """Return the style: a rule for each step that can be chosen."""
    rules = [_STYLE.strip().replace("\n", "")]
    for n in range(last + 1):
        chosen = f".sv-motion:has(.mo-{n}:checked)"
        rules.append(f"{chosen} form{{--now:{n}}}{chosen} .mo-to{n + 1},{chosen} .mo-back{n - 1}{{display:block}}")
    rules.append(".sv-motion:has(.mo-play:checked) .mo-to0{display:block}")
    for n, (speed, _) in enumerate(_SPEEDS):
        rules.append(f".sv-motion:has(.mo-v{n}:checked) form{{--v:{speed}}}")
    return "".join(rules)


def _bar() -> Node:
    """Return the controls, whose words CSS writes."""
    play = _control("radio", "at", "mo-play", "play", chosen=True)
    stop = _control("checkbox", "", "mo-stop", "pause")
    speeds = (_control("radio", "v", f"mo-v{n}", word, chosen=speed == 1) for n, (speed, word) in enumerate(_SPEEDS))
    return _node("div", "mo-bar", play, stop, *speeds, style="display:none")


def _control(kind: str, name: str, look: str, word: str, *, chosen: bool = False) -> Node:
    more = {"defaultChecked": "true"} if chosen else {}
    control = _node("input", look, type=kind, name=name, aria_label=word, **_OWN_KEYS, **more)
    return _node("label", "", control, data_t=word)


def _steps(film: Film) -> Iterator[Node]:
    """Yield the list: a sentence and a frame for each step, which a radio button chooses."""
    for n, (caption, frame) in enumerate(zip(film.captions, film.frames, strict=True)):
        choose = _node("input", f"mo-{n}", type="radio", name="at", style="display:none", **_OWN_KEYS)
        on = _node("b", f"mo-go mo-on mo-to{n}", data_t="step ▸")
        back = _node("b", f"mo-go mo-off mo-back{n}", data_t="◂ back")
        step = _node("label", "mo-step", choose, on, back, f"{n}. {caption}")
        strip = _node("pre", "mo-frame", frame, style=f"{_MONO};line-height:1.15;margin:2px 0 8px 0")
        yield _node("div", "mo-li", step, strip, style=f"--s:{n}", role="listitem")


def _drawn(film: Film) -> Iterator[Node]:
    for device, (x, y, wide, high) in film.tiles.items():
        yield _node("i", "mo-id", style=_at((x, y - 17, 20, 16)), data_t=str(device))
        yield _node("i", "mo-map", style=_at((x, y, wide, high)))
    for patch in film.patches:
        came = patch.role is not None and patch.since > 0
        ends = f"--s:{patch.since - _LANDS * came:g};--e:{patch.until or 999}"
        look = "" if patch.role is None else f";{_look(patch.role)}"
        label = {"data_t": patch.label} if patch.label else {}
        for rect in patch.rects:
            yield _node("i", "mo-held", style=f"{_at(rect)};{ends}{look}", **label)
    for flight in film.flights:
        (dx, dy), look = flight.way, _look(flight.role)
        for rect in flight.rects:
            yield _node("i", "mo-fly", style=f"{_at(rect)};--s:{flight.step};--dx:{dx:g};--dy:{dy:g};{look}")


def _at(rect: Rect) -> str:
    return ";".join(f"--{name}:{round(value, 1):g}" for name, value in zip("xyab", rect, strict=True))


def _look(role: Role) -> str:
    """Return the colour and the hatch of a mesh axis."""
    place = role if isinstance(role, int) else 7
    hatch = _HATCHES[place % len(_HATCHES)]
    return f"--h:#fff9;background:{hatch},{paint_of(role, False)}"


def _chip(name: str, role: int) -> Node:
    colour = axis_colour(role)
    look = f"background:{colour.light};color:{colour.ink};border-radius:4px;padding:0 5px;margin-right:4px"
    return _node("span", "", name, style=look)
