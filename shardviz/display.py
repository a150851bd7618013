"""The base of what shows itself: text in a terminal, HTML in a notebook, and only what is asked for is made.

Plain data stand low in the house, and what paints them stands high. So nothing here imports a painter: painters
register themselves by type (`paints`), and the package's `__init__`, the top of the house, says in which modules
(`painted_in`); one is imported when it is first needed. This is the one way up in the house.

>>> class Word(Displayed):
...     def text(self, width=80):
...         return "word"[:width]
...     def html(self):
...         return "<b>word</b>"
>>> Word()
word
>>> Word()._repr_mimebundle_(exclude=["text/plain"])
{'text/html': '<b>word</b>'}
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from shardviz.files import write_whole

_painters: dict[tuple[str, type], Callable[..., Any]] = {}
"""(Medium, type of subject) → what paints it; `object` for every subject."""
_rooms: list[str] = []
"""The modules that register painters, each imported when nothing that was imported before paints a subject."""

F = TypeVar("F", bound=Callable[..., Any])


def painted_in(*modules: str) -> None:
    """Says which modules register painters. The package's `__init__`, the top of the house, does."""
    _rooms.extend(modules)


def paints(medium: str, kind: type = object) -> Callable[[F], F]:
    """Registers the painter of a medium (`text`, `html`, `markdown`, `plot`, `file`, `form`) for a type of subject."""

    def register(painter: F) -> F:
        _painters[medium, kind] = painter
        return painter

    return register


def paint(medium: str, subject: Any, *args: Any, **kwargs: Any) -> Any:
    """What the painter of a medium makes of a subject; it is found by the subject's type.

    Raises:
        TypeError: if none is registered.
    """
    for module in (None, *_rooms):
        if module is not None:
            importlib.import_module(module)
        for kind in type(subject).__mro__:
            if (medium, kind) in _painters:
                return _painters[medium, kind](subject, *args, **kwargs)
    raise TypeError(f"nothing shows a {type(subject).__name__} as {medium}")


class Displayed:
    """Anything that a person may look at: painters know how by its type."""

    _width: ClassVar[int | None] = None
    """Columns of its text where none are asked for; None: sentences of 100, and tables as wide as they need."""

    def text(self, width: int | None = None) -> str:
        """It in plain text, at most `width` columns wide."""
        return paint("text", self, self._width if width is None else width)

    def html(self) -> str:
        """It in HTML that survives JupyterLab's sanitizer and GitHub."""
        return paint("html", self)

    def markdown(self) -> str:
        """It in Markdown, for an issue or a pull request."""
        return paint("markdown", self)

    def save(self, path: str | os.PathLike[str], *, dark: bool = False) -> Path:
        """Writes it to a file of the kind that its name ends in; a file that is there is replaced, whole or not at all.

        Args:
            path: the file. `.html` is one page with nothing outside it: no script, no network, light and dark; `.md`,
                `.txt` and `.json` (`to_json` where there is one, else what is said, as data) are texts; `.svg`, `.png`
                and `.pdf` its picture.
            dark: a picture for a dark page; an `.svg` follows the page by itself.

        Returns:
            The path.

        Raises:
            ShardvizError: for another ending, for what has no picture, and where the file cannot be written.
        """
        return write_whole(path, paint("file", self, path, dark=dark))

    def __repr__(self) -> str:
        return self.text()

    def _repr_mimebundle_(
        self, include: Iterable[str] | None = None, exclude: Iterable[str] | None = None
    ) -> dict[str, str]:
        return bundle({"text/plain": self.text, "text/html": self.html}, include, exclude)


def bundle(
    makers: Mapping[str, Callable[[], Any]], include: Iterable[str] | None, exclude: Iterable[str] | None
) -> dict[str, Any]:
    """The representations that are wanted, as IPython's display protocol has it.

    Args:
        makers: MIME type → what makes it.
        include: the types that are wanted; None for all.
        exclude: the types that are not wanted.
    """
    wanted = set(makers) if include is None else set(include)
    wanted -= set(exclude or ())
    return {kind: make() for kind, make in makers.items() if kind in wanted}
