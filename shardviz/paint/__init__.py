"""A painter for each medium: text, HTML, Markdown, JSON, SVG, PNG, matplotlib. Painters know media, not subjects.

A builder in `shardviz.view` turns a subject (a report, a cost, a comparison) into a Document; painters paint Documents.
"""

from __future__ import annotations

import json as _json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shardviz.display import Displayed, paints
from shardviz.errors import ShardvizError
from shardviz.paint.html import html_of
from shardviz.paint.json import Json, json_of
from shardviz.paint.markdown import markdown_of
from shardviz.paint.page import page_of
from shardviz.paint.svg import svg_of
from shardviz.paint.text import text_of
from shardviz.view.subjects import document, picture

__all__ = ["file", "html", "json", "markdown", "plot", "svg", "text"]


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


TEXTS: dict[str, Callable[[Any], str]] = {
    ".html": lambda subject: page_of(document(subject), "made by shardviz; a static copy"),
    ".md": lambda subject: markdown(subject) + "\n",
    ".txt": lambda subject: (subject.text() if isinstance(subject, Displayed) else text(subject, 100)) + "\n",
    ".json": lambda subject: _own_json(subject) + "\n",
}
"""Ending → the complete text of a subject."""

PICTURES = (".svg", ".png", ".pdf")


def _own_json(subject: Any) -> str:
    """Return the subject's own JSON, which `from_json` reads; without one, its Document's."""
    if hasattr(subject, "to_json"):
        return subject.to_json(indent=1)
    return _json.dumps({"shardviz_document": 1, **json(subject)}, indent=1)


@paints("file")
def file(subject: Any, path: Any, *, dark: bool = False) -> str | bytes:
    """Return the contents of a file with this name; `dark` is for pictures. Raises ShardvizError for another ending,
    and for a picture of a subject that has none.

    >>> from shardviz.view.document import Document, words
    >>> file(Document(title=words("step")), "step.md")
    '## step\\n'
    """
    ending = Path(path).suffix.lower()
    if ending in TEXTS:
        return TEXTS[ending](subject)
    if ending not in PICTURES:
        written = repr(ending) if ending else "no ending"
        raise ShardvizError(
            f"save({str(path)!r}): {written} is not a supported kind of file; use one of {', '.join(TEXTS)}, "
            f"{', '.join(PICTURES)}"
        )
    try:
        drawn = picture(subject)
    except ShardvizError as error:
        raise ShardvizError(f"save({str(path)!r}): {error}; save it as text instead: {', '.join(TEXTS)}") from error
    if ending == ".svg":
        return svg_of(drawn, dark=True if dark else None)
    from shardviz.paint import mpl  # imports matplotlib, so only when it draws

    return mpl.png_of(drawn, dark=dark) if ending == ".png" else mpl.pdf_of(drawn, dark=dark)
