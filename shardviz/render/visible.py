"""The base of all that `show` gives back: text in a terminal, HTML in a notebook.

>>> class Word(Visible):
...     def text(self, width=80):
...         return "word"[:width]
>>> Word()
word
"""

from __future__ import annotations

from collections.abc import Iterable

from shardviz.render.mime import bundle


class Visible:
    """Anything with `text(width)` and `html()`, as notebooks and terminals want it."""

    def text(self, width: int = 80) -> str:
        """It in plain text, at most `width` columns wide."""
        raise NotImplementedError

    def html(self) -> str:
        """It in HTML that survives JupyterLab's sanitizer."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return self.text()

    def _repr_mimebundle_(
        self, include: Iterable[str] | None = None, exclude: Iterable[str] | None = None
    ) -> dict[str, str]:
        return bundle({"text/plain": self.text, "text/html": self.html}, include, exclude)
