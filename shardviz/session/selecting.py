"""The one value that is looked at, and how it stays the same value when a report of another level comes.

Arguments and outputs have the same name everywhere. An intermediate has not: the propagated report's `add.0` is another
value than the partitioned report's `add.0`. So what a person chose is remembered with the report that it was chosen in,
and looked up in every new report by `counterpart`.
"""

from __future__ import annotations

from typing import Any

import traitlets

from shardviz.records import Value
from shardviz.records.report import Report
from shardviz.session.counterpart import counterpart
from shardviz.session.following import Following


class Selecting(Following):
    """What follows from a plan, with one value of it selected. Made like `Following`.

    Attributes:
        selected: the name of the value that is looked at, everywhere; may be set. When a report of another level comes,
            it becomes an intermediate's name there, or empty where the report has no such value.
        remark: what is to be said of how the selection came to its present name; empty where there is no doubt.
    """

    selected = traitlets.Unicode("")
    remark = traitlets.Unicode("")

    _chosen: tuple[Value, Report] | None = None
    _carrying = False

    def select(self, name: str, level: str = "") -> None:
        """Selects a value.

        Args:
            name: its name.
            level: the level at which it has this name, where that may not be the report's own: a page may show an older
                report than the newest when it is clicked. Empty for the report's own.
        """
        seen = self._known.get(level, self.report)
        if seen is not self.report and (chosen := _intermediate(seen, name)) is not None:
            self._chosen = (chosen, seen)
            self._carry(self.report)
        else:
            self.selected = name

    @traitlets.observe("selected")
    def _on_selected(self, change: Any) -> None:
        if not self._carrying:
            found = _intermediate(self.report, change["new"])
            self._chosen = None if found is None else (found, self.report)
            self.remark = ""

    @traitlets.observe("report")
    def _on_report(self, change: Any) -> None:
        self._carry(change["new"])

    def _carry(self, report: Report) -> None:
        """Finds in a report what was chosen: always from what the person chose, so that no error adds to another."""
        if self._chosen is None:
            return
        value, before = self._chosen
        names = (before.level == "propagated") == (report.level == "propagated")
        match = counterpart(value, before.intermediates, report.intermediates, names=names)
        line = f" of {value.source.short}" if value.source else ""
        what = f"{value.label or value.name} ({value.op or 'value'}{line}), selected at the {before.level} level,"
        remark = ""
        if match is None:
            remark = (
                f"{what} is not found at the {report.level} level: the compiler has put it into another value, or "
                "names no line for it. Select another one"
            )
        elif match.differ:
            remark = (
                f"{what} is one of {match.alike} here that are alike in line, operation and shape but not in "
                f"sharding; this is number {match.place} of them, by their order"
            )
        self._carrying = True
        try:
            self.selected = "" if match is None else match.name
        finally:
            self._carrying = False
        self.remark = remark


def _intermediate(report: Report, name: str) -> Value | None:
    """The intermediate of this name, unless an argument or output has it."""
    if any(v.name == name for v in (*report.arguments, *report.outputs)):
        return None
    return next((v for v in report.intermediates if v.name == name), None)
