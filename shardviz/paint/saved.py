"""The contents of a file for a subject, by the ending of the file's name.

>>> from shardviz.view.document import Document, words
>>> file(Document(title=words("step")), "step.md")
'## step\\n'
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shardviz.display import Displayed
from shardviz.errors import ShardvizError
from shardviz.paint.json import json_of
from shardviz.paint.markdown import markdown_of
from shardviz.paint.page import page_of
from shardviz.paint.svg import svg_of
from shardviz.paint.text import text_of
from shardviz.view.subjects import document, picture

TEXTS: dict[str, Callable[[Any], str]] = {
    ".html": lambda subject: page_of(document(subject), "made by shardviz; a static copy"),
    ".md": lambda subject: markdown_of(document(subject)) + "\n",
    ".txt": lambda subject: (
        (subject.text() if isinstance(subject, Displayed) else text_of(document(subject), 100)) + "\n"
    ),
    ".json": lambda subject: (
        (  # the subject's own JSON if it has one, which `from_json` reads; otherwise its Document
            subject.to_json(indent=1)
            if hasattr(subject, "to_json")
            else json.dumps({"shardviz_document": 1, **json_of(document(subject))}, indent=1)
        )
        + "\n"
    ),
}
"""Ending → the complete text of a subject."""

PICTURES = (".svg", ".png", ".pdf")


def file(subject: Any, path: Any, *, dark: bool = False) -> str | bytes:
    """Return the contents of a file with this name; `dark` is for pictures. Raises ShardvizError for another ending,
    and for a picture of a subject that has none."""
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
