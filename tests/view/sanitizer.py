"""What JupyterLab 4's sanitizer leaves in an untrusted notebook, as far as shardviz uses it, as a checker.

The rules are those of `packages/apputils/src/sanitizer.ts`: tags, attributes and style properties that are not listed
are dropped, and so is a property whose value has another form (`var()`, `calc()`, `inherit`, `currentColor`, `hsl()`).
"""

from __future__ import annotations

import re
from html.parser import HTMLParser

TAGS = {
    *("b", "bdi", "br", "caption", "code", "details", "div", "em", "i", "img", "pre", "small", "span", "strong"),
    *("summary", "table", "tbody", "td", "th", "thead", "tr"),
}
ANYWHERE = {"style", "title"}
ATTRIBUTES = {
    "details": {"open"},
    "div": {"align"},
    "img": {"alt", "height", "src", "width"},
    "table": {"align", "border", "cellpadding", "cellspacing", "summary", "width"},
    "td": {"align", "colspan", "rowspan", "scope", "valign", "width"},
    "th": {"align", "colspan", "rowspan", "scope", "valign", "width"},
    "tr": {"align", "valign"},
}
VOID = {"br", "img"}
INLINE = {"b", "bdi", "code", "em", "i", "small", "span", "strong"}

LENGTH = r"(0|[+-]?\d*\.?\d+(px|em|rem|pt|%))"
COLOUR = r"(#[0-9a-f]+|rgba?\(\s*\d{1,3}\s*(,\s*\d{1,3}\s*){2}(,\s*(0|1|0\.\d+)\s*)?\)|transparent|white|black)"
STYLES = {
    "background": COLOUR,
    "background-color": COLOUR,
    "background-image": r"url\(data:image/png;base64,[\w+/=]+\)(,url\(data:image/png;base64,[\w+/=]+\))*",
    "background-position": r"(left|right) (top|bottom)(,(left|right) (top|bottom))*",
    "background-repeat": "no-repeat",
    "background-size": rf"{LENGTH} {LENGTH}(,{LENGTH} {LENGTH})*",
    "border": rf"(({LENGTH}|none|solid|dashed|dotted|{COLOUR})\s*){{1,3}}",
    "border-bottom": rf"(({LENGTH}|none|solid|dashed|dotted|{COLOUR})\s*){{1,3}}",
    "border-collapse": "collapse|separate",
    "border-left": rf"(({LENGTH}|none|solid|dashed|dotted|{COLOUR})\s*){{1,3}}",
    "border-radius": rf"({LENGTH}\s*){{1,4}}",
    "border-spacing": LENGTH,
    "border-top": rf"(({LENGTH}|none|solid|dashed|dotted|{COLOUR})\s*){{1,3}}",
    "box-shadow": rf"({LENGTH}\s+){{2}}({LENGTH}\s+)?{COLOUR}(,({LENGTH}\s+){{2}}({LENGTH}\s+)?{COLOUR})*",
    "caption-side": "top|bottom",
    "color": COLOUR,
    "display": "inline|block|inline-block|flex|grid",
    "font-family": r"([a-z-]+)(,\s*[a-z-]+)*",
    "font-size": LENGTH,
    "font-weight": "normal|bold|[1-9]00",
    "grid-auto-rows": LENGTH,
    "grid-template-columns": rf"repeat\(\d+,{LENGTH}\)",
    "left": LENGTH,
    "line-height": r"normal|\d+(\.\d+)?",
    "margin": rf"(({LENGTH}|auto)\s*){{1,4}}",
    "max-width": rf"{LENGTH}|none|auto",
    "min-width": rf"{LENGTH}|auto",
    "opacity": r"0(\.\d+)?|1(\.0+)?",
    "overflow-x": "visible|hidden|scroll|auto",
    "padding": rf"({LENGTH}\s*){{1,4}}",
    "position": "relative|absolute",
    "text-align": "left|right|center|justify",
    "top": LENGTH,
    "vertical-align": "baseline|top|middle|bottom",
    "white-space": "normal|pre|nowrap|pre-wrap|pre-line",
    "width": rf"{LENGTH}|auto",
}


class _Checker(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.faults: list[str] = []
        self.open: list[str] = []
        self.text: list[str] = []
        self.titles: list[str] = []
        self.images: list[dict[str, str]] = []

    def handle_starttag(self, tag, attrs):
        if tag not in TAGS:
            self.faults.append(f"<{tag}>")
        for name, value in attrs:
            if name not in ANYWHERE | ATTRIBUTES.get(tag, set()):
                self.faults.append(f"<{tag} {name}>")
            if name == "style":
                self.faults += style_faults(value)
            if name == "title":
                self.titles.append(value)
            if name == "src" and not value.startswith("data:image/png;base64,"):
                self.faults.append(f"src={value[:30]}")
        if tag == "img":
            self.images.append(dict(attrs))
        if tag not in INLINE:
            self.text.append(" ")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}> closes nothing")

    def handle_data(self, data):
        self.text.append(data)


def style_faults(style: str) -> list[str]:
    """The declarations of an inline style that would be dropped."""
    found = []
    for declaration in filter(None, re.split(r";(?![^(]*\))", style)):
        name, _, value = declaration.partition(":")
        if name not in STYLES or not re.fullmatch(STYLES[name], value, re.IGNORECASE):
            found.append(declaration)
    return found


def read(html: str) -> _Checker:
    """Parses HTML and fails if anything of it would be lost, or a tag is left open."""
    checker = _Checker()
    checker.feed(html)
    checker.close()
    assert not checker.faults, checker.faults[:10]
    assert not checker.open, checker.open
    return checker


def words(html: str) -> str:
    """What is left to read without any style."""
    return " ".join("".join(read(html).text).split())
