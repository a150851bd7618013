"""A report as a MIME bundle."""

from __future__ import annotations

from collections.abc import Iterable

from shardviz.records.report import Report
from shardviz.render.html import report_html
from shardviz.render.text import report_text
from shardviz.visible import bundle


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
