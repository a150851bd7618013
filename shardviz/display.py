"""The base of objects that show themselves as text in a terminal and as HTML in a notebook.

Plain data are low in the house, and painters high. So nothing here imports a painter: painters register themselves by
type (`paints`), and the package's `__init__`, the top of the house, names the modules of painters (`painted_in`). A
module is imported when it is first needed. This is the only upward dependency in the house.

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
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from shardviz.files import write_whole

_painters: dict[tuple[str, type], Callable[..., Any]] = {}
"""(Medium, type of subject) → painter; `object` is any subject."""
_rooms: list[str] = []
"""The modules that register painters; each is imported only if no imported module paints a subject."""

F = TypeVar("F", bound=Callable[..., Any])


def painted_in(*modules: str) -> None:
    """Name the modules that register painters; only the package's `__init__` calls this."""
    _rooms.extend(modules)


def paints(medium: str, kind: type = object) -> Callable[[F], F]:
    """Register the painter of a medium (`text`, `html`, `markdown`, `plot`, `file`, `form`) for a type of subject."""

    def register(painter: F) -> F:
        _painters[medium, kind] = painter
        return painter

    return register


def paint(medium: str, subject: Any, *args: Any, **kwargs: Any) -> Any:
    """Call the painter of a medium for a subject, found by the subject's type.

    Raises:
        TypeError: if none is registered.
    """
    for module in (None, *_rooms):
        if module is not None:
            importlib.import_module(module)
        for kind in type(subject).__mro__:
            if (medium, kind) in _painters:
                return _painters[medium, kind](subject, *args, **kwargs)
    raise TypeError(f"a {type(subject).__name__} cannot be shown as {medium}")


class Displayed:
    """A subject with painters, which are found by its type."""

    _width: ClassVar[int | None] = None
    """The default columns of its text; None: 100 for sentences, and as wide as needed for tables."""

    def text(self, width: int | None = None) -> str:
        """Return the object as plain text, at most `width` columns wide."""
        return paint("text", self, self._width if width is None else width)

    def html(self) -> str:
        """Return the object as HTML that survives JupyterLab's sanitizer and GitHub."""
        return paint("html", self)

    def markdown(self) -> str:
        """Return the object as Markdown, for an issue or a pull request."""
        return paint("markdown", self)

    def save(self, path: str | os.PathLike[str], *, dark: bool = False) -> Path:
        """Write the object to a file, in the format of its name's ending; an existing file is replaced atomically.

        Args:
            path: the file. `.html` is one self-contained page without scripts, light and dark; `.md`, `.txt` and
                `.json` (`to_json` if it exists, otherwise the Document as data) are texts; `.svg`, `.png` and `.pdf`
                are its picture.
            dark: draw a picture for a dark page; an `.svg` follows the page by itself.

        Returns:
            The path.

        Raises:
            ShardvizError: for another ending, a picture of an object that has none, and a file that cannot be written.
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
    """Return the requested representations, by IPython's display protocol.

    Args:
        makers: MIME type → a function that makes the representation.
        include: the requested types; None for all.
        exclude: the types to leave out.
    """
    wanted = set(makers) if include is None else set(include)
    wanted -= set(exclude or ())
    return {kind: make() for kind, make in makers.items() if kind in wanted}


def shell() -> Any:
    """Return the IPython shell of a Jupyter kernel; None without a kernel."""
    ipython = sys.modules.get("IPython")
    interactive = None if ipython is None else ipython.get_ipython()
    return interactive if hasattr(interactive, "kernel") else None


def is_watched() -> bool:
    """Whether the running cell was sent by a front end that draws.

    JupyterLab, Notebook and VS Code send metadata with a cell; nbconvert, nbval, papermill and Voila send none. Colab's
    kernel only serves Colab's page.
    """
    if shell() is not None and "google.colab" in sys.modules:
        return True
    try:
        return bool(shell().kernel.get_parent("shell")["metadata"])
    except (AttributeError, KeyError, TypeError):  # no kernel, or a kernel without metadata
        return False
