"""A painter for each medium: text, HTML, Markdown, JSON, SVG, PNG, matplotlib. Painters know media, not subjects.

A builder in `shardviz.view` turns a subject (a report, a cost, a comparison) into a Document; painters paint Documents.
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
    """Return a subject as plain text, at most `width` columns wide; None: tables are as wide as they need."""
    return text_of(document(subject), width)


@paints("html")
def html(subject: Any) -> str:
    """Return a subject as HTML that survives JupyterLab's sanitizer and GitHub."""
    return html_of(document(subject))


@paints("markdown")
def markdown(subject: Any) -> str:
    """Return a subject as Markdown."""
    return markdown_of(document(subject))


def json(subject: Any) -> Json:
    """Return a subject as JSON for the page."""
    return json_of(document(subject))


def svg(subject: Any, *, dark: bool | None = None) -> str:
    """Return a subject's picture as a standalone SVG file; by default its colours follow the page's theme."""
    return svg_of(picture(subject), dark=dark)


@paints("plot")
def plot(subject: Any, ax: Any = None, *, dark: bool = False) -> Any:
    """Draw a subject's picture with matplotlib on these Axes, or on a new figure's; return the Axes."""
    from shardviz.paint.mpl import draw

    return draw(picture(subject), ax, dark=dark)
