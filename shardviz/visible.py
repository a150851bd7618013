"""The base of what shows itself: text in a terminal, HTML in a notebook, and only what is asked for is made.

>>> class Word(Visible):
...     def text(self, width=80):
...         return "word"[:width]
...     def html(self):
...         return "<b>word</b>"
>>> Word()
word
>>> Word()._repr_mimebundle_(exclude=["text/plain"])
{'text/html': '<b>word</b>'}

It stands low in the house because plain data stand low that a person may want to look at. Their painters stand above;
`text` and `html` import them when somebody looks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping


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
