"""What a file is to hold of a subject, by the ending of its name.

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
    ".html": lambda subject: page_of(document(subject), "made by shardviz; nothing here is live"),
    ".md": lambda subject: markdown_of(document(subject)) + "\n",
    ".txt": lambda subject: (
        (subject.text() if isinstance(subject, Displayed) else text_of(document(subject), 100)) + "\n"
    ),
    ".json": lambda subject: (
        (  # its own data where it has them, which `from_json` reads again; else its Document
            subject.to_json(indent=1)
            if hasattr(subject, "to_json")
            else json.dumps({"shardviz_document": 1, **json_of(document(subject))}, indent=1)
        )
        + "\n"
    ),
}
"""Ending → all that there is to say, as text."""

PICTURES = (".svg", ".png", ".pdf")


def file(subject: Any, path: Any, *, dark: bool = False) -> str | bytes:
    """What a file of this name is to hold, by its ending (a picture may be for a dark page); a `ShardvizError` for
    another ending, and where a picture is asked for of what has none."""
    ending = Path(path).suffix.lower()
    if ending in TEXTS:
        return TEXTS[ending](subject)
    if ending not in PICTURES:
        written = repr(ending) if ending else "no ending"
        raise ShardvizError(
            f"save({str(path)!r}): {written} is no kind of file that is written here; give one of "
            f"{', '.join(TEXTS)}, {', '.join(PICTURES)}"
        )
    try:
        drawn = picture(subject)
    except ShardvizError as error:
        raise ShardvizError(f"save({str(path)!r}): {error}; as text it can be saved: {', '.join(TEXTS)}") from error
    if ending == ".svg":
        return svg_of(drawn, dark=True if dark else None)
    from shardviz.paint import mpl  # matplotlib, imported only where it draws

    return mpl.png_of(drawn, dark=dark) if ending == ".png" else mpl.pdf_of(drawn, dark=dark)
