"""MIME bundles for `_repr_mimebundle_`: only what is asked for is made.

>>> bundle({"text/plain": lambda: "a", "text/html": lambda: "<b>a</b>"}, None, ["text/html"])
{'text/plain': 'a'}
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from shardviz.render.html import report_html
from shardviz.render.text import report_text
from shardviz.report import Report


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


def mimebundle(
    report: Report, include: Iterable[str] | None = None, exclude: Iterable[str] | None = None
) -> dict[str, str]:
    """A report as `text/plain` and `text/html`.

    Args:
        report: what to show.
        include: the MIME types that are wanted; None for all.
        exclude: the MIME types that are not wanted.
    """
    return bundle(
        {"text/plain": lambda: report_text(report), "text/html": lambda: report_html(report)}, include, exclude
    )
