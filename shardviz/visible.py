"""The base of what shows itself: text in a terminal, HTML in a notebook, and only what is asked for is made.

Plain data stand low in the house, and what paints them stands high. So nothing here imports a painter: the package's
`__init__`, the top of the house, says where they are (`painters`); they are loaded when an object is first displayed.

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

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Protocol


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


_where: list[Callable[[], Any]] = []
"""How to get at the painters' module, once the top of the house has said so."""


def provide(find: Callable[[], Any]) -> None:
    """Says how to get at the painters, a module with the functions of `Painters`. The package's `__init__` does so."""
    _where[:] = [find]


def painters() -> Painters:
    """The painters, loaded when first asked for."""
    (find,) = _where
    return find()


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

    def __repr__(self) -> str:
        return self.text()

    def _repr_mimebundle_(
        self, include: Iterable[str] | None = None, exclude: Iterable[str] | None = None
    ) -> dict[str, str]:
        return bundle({"text/plain": self.text, "text/html": self.html}, include, exclude)


def bundle(
    makers: Mapping[str, Callable[[], str]], include: Iterable[str] | None, exclude: Iterable[str] | None
) -> dict[str, str]:
    """The representations that are wanted, as IPython's display protocol has it.

    Args:
        makers: MIME type → what makes it.
        include: the types that are wanted; None for all.
        exclude: the types that are not wanted.
    """
    wanted = set(makers) if include is None else set(include)
    wanted -= set(exclude or ())
    return {kind: make() for kind, make in makers.items() if kind in wanted}
