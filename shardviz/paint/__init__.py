"""One painter a medium: text, HTML, Markdown, JSON, SVG, PNG, matplotlib. They know media, not subjects.

A subject (a report, a cost, a comparison) is told once, by its builder in `shardviz.view`; here it is painted.
"""

from __future__ import annotations

from typing import Any

from shardviz.display import paints
from shardviz.paint.html import html_of
from shardviz.paint.json import Json, json_of
from shardviz.paint.markdown import markdown_of
from shardviz.paint.saved import file
from shardviz.paint.svg import svg_of
from shardviz.paint.text import text_of
from shardviz.view.subjects import document, picture

__all__ = ["file", "html", "json", "markdown", "plot", "svg", "text"]

paints("file")(file)


@paints("text")
def text(subject: Any, width: int | None = None) -> str:
    """A subject in plain text, at most `width` columns wide; None: tables are as wide as they need."""
    return text_of(document(subject), width)


@paints("html")
def html(subject: Any) -> str:
    """A subject in HTML that survives JupyterLab's sanitizer and GitHub."""
    return html_of(document(subject))


@paints("markdown")
def markdown(subject: Any) -> str:
    """A subject in Markdown."""
    return markdown_of(document(subject))


def json(subject: Any) -> Json:
    """A subject as the page renders it."""
    return json_of(document(subject))


def svg(subject: Any, *, dark: bool | None = None) -> str:
    """A subject's picture as a standalone SVG file; it follows the page's theme."""
    return svg_of(picture(subject), dark=dark)


@paints("plot")
def plot(subject: Any, ax: Any = None, *, dark: bool = False) -> Any:
    """A subject's picture, drawn with matplotlib (loaded only then) on these Axes or on those of a new figure, which it
    returns."""
    from shardviz.paint.mpl import draw

    return draw(picture(subject), ax, dark=dark)
