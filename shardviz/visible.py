"""The base of what shows itself: text in a terminal, HTML in a notebook, and only what is asked for is made.

Plain data stand low in the house, and what paints and judges them stands high. So nothing here imports a painter: the
package's `__init__`, the top of the house, says where they are (`provide`); a room is loaded when it is first asked.

>>> class Word(Visible):
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

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Protocol

from shardviz.files import write_whole


class Painters(Protocol):
    """What can be asked of the painters' room."""

    def text(self, subject: Any, width: int | None = None) -> str:
        """A subject in plain text."""
        ...

    def html(self, subject: Any) -> str:
        """A subject in HTML."""
        ...

    def markdown(self, subject: Any) -> str:
        """A subject in Markdown."""
        ...

    def plot(self, subject: Any, ax: Any = None, kind: str = "", *, dark: bool = False) -> Any:
        """A subject's picture, of the kind where it has several, drawn with matplotlib."""
        ...

    def file(self, subject: Any, path: Any, kind: str = "", *, dark: bool = False) -> str | bytes:
        """What a file of this name is to hold of a subject."""
        ...


_rooms: dict[str, Callable[[], Any]] = {}
"""Room → how to get at it, once the top of the house has said so."""


def provide(**rooms: Callable[[], Any]) -> None:
    """Says how to get at rooms above: `paint`, with the functions of `Painters`, `study`, which judges reports,
    and `diagnose`, which finds what is wrong with them."""
    _rooms.update(rooms)


def above(room: str) -> Any:
    """A room above, loaded when first asked for."""
    return _rooms[room]()


def painters() -> Painters:
    """The painters."""
    return above("paint")


class Visible:
    """Anything that a person may look at: painters know how by its type.

    Attributes:
        width: columns of its text where none are asked for; None: sentences of 100, and tables as wide as they need.
    """

    width: ClassVar[int | None] = None

    def text(self, width: int | None = None) -> str:
        """It in plain text, at most `width` columns wide."""
        return painters().text(self, self.width if width is None else width)

    def html(self) -> str:
        """It in HTML that survives JupyterLab's sanitizer and GitHub."""
        return painters().html(self)

    def markdown(self) -> str:
        """It in Markdown, for an issue or a pull request."""
        return painters().markdown(self)

    def save(self, path: str | os.PathLike[str], kind: str = "", *, dark: bool = False) -> Path:
        """Writes it to a file of the kind that its name ends in; a file that is there is replaced, whole or not at all.

        Args:
            path: the file. `.html` is one page with nothing outside it: no script, no network, light and dark; `.md`,
                `.txt` and `.json` (`to_json` where there is one, else what is said, as data) are texts; `.svg`, `.png`
                and `.pdf` its picture.
            kind: which of its pictures, where it has several, as for `plot`.
            dark: a picture for a dark page; an `.svg` follows the page by itself.

        Returns:
            The path.

        Raises:
            ShardvizError: for another ending, for what has no picture, and where the file cannot be written.
        """
        return write_whole(path, painters().file(self, path, kind, dark=dark))

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
