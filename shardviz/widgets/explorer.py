"""The explorer: `ExplorerState` as a notebook widget. What the page shows are traits; what a person does are `edits`.

`VIEWS` says of every trait that the page shows what builds it, and after which changes it is built again.
`opening.explore` makes an explorer.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import anywidget
import traitlets

from shardviz.errors import ShardvizError
from shardviz.paint import html, text
from shardviz.records.report import Report
from shardviz.session.explorer import ExplorerState
from shardviz.view.panes import (
    collectives_pane,
    cost_pane,
    found_values,
    found_words,
    memory_pane,
    problems_pane,
    values_pane,
)
from shardviz.widgets import bundle
from shardviz.widgets.headline import head_view
from shardviz.widgets.machines import company_view, machine_view
from shardviz.widgets.notations import rosetta_view
from shardviz.widgets.pages import shards_view, source_view
from shardviz.widgets.payload import Json, inputs_view, mesh_view, outputs_view, pane, severities, status_view
from shardviz.widgets.ruling import rules_view
from shardviz.widgets.targets import targets_view

if TYPE_CHECKING:
    from shardviz.program.plan import Plan
    from shardviz.session import Program


@dataclass(frozen=True)
class View:
    """A trait that the page shows.

    Attributes:
        build: makes it.
        after: the changes after which it is made again: names of the `Snapshot`'s parts, of traits that the page sets,
            and `seq` where an edit was done.
        tab: the tab that it is for, while another is open it is empty; none: it is always there.
    """

    build: Callable[[Explorer], Any]
    after: set[str]
    tab: str = ""


class Explorer(anywidget.AnyWidget):
    """An interactive view of a program under a plan; see `opening.explore`.

    Attributes:
        state: the `ExplorerState` under it, which can be driven from Python: the page follows.
        device: the device that was picked, by its place in the mesh; below 0 for none. May be set.
        comm_id: the number of its comm, by which the page asks whether a kernel is still behind it.
    """

    _esm = traitlets.Unicode().tag(sync=True)
    _css = traitlets.Unicode().tag(sync=True)

    # What the page shows.
    mesh = traitlets.Dict().tag(sync=True)
    plan_code = traitlets.Unicode().tag(sync=True)
    rules = traitlets.Dict().tag(sync=True)
    targets = traitlets.Dict().tag(sync=True)
    inputs = traitlets.Dict().tag(sync=True)
    outputs = traitlets.Dict().tag(sync=True)
    head = traitlets.Dict().tag(sync=True)
    source = traitlets.Dict().tag(sync=True)
    problems = traitlets.Dict().tag(sync=True)
    values = traitlets.Dict().tag(sync=True)
    collectives = traitlets.Dict().tag(sync=True)
    shards = traitlets.Dict().tag(sync=True)
    rosetta = traitlets.Dict().tag(sync=True)
    memory = traitlets.Dict().tag(sync=True)
    costs = traitlets.Dict().tag(sync=True)
    machine = traitlets.Dict().tag(sync=True)
    company = traitlets.Dict().tag(sync=True)
    status = traitlets.Dict().tag(sync=True)
    comm_id = traitlets.Unicode().tag(sync=True)

    # What the page sets.
    selected = traitlets.Unicode().tag(sync=True)
    selected_at = traitlets.Unicode().tag(sync=True)
    query = traitlets.Dict().tag(sync=True)
    reading = traitlets.Unicode().tag(sync=True)
    tab = traitlets.Unicode("source").tag(sync=True)
    device = traitlets.Int(-1).tag(sync=True)
    edits = traitlets.List().tag(sync=True)

    def __init__(self, state: ExplorerState):
        self.state = state
        self._seq = 0
        super().__init__(_esm=bundle.module(), _css=bundle.styles())
        self.comm_id = self.model_id or ""
        self._draw({change for view in VIEWS.values() for change in view.after})
        state.subscribe(self._draw)
        self.observe(lambda change: self._draw({change["name"]}), ["query", "reading", "tab", "device"])
        self.observe(self._on_selected, "selected")
        self.observe(self._on_edits, "edits")

    @property
    def program(self) -> Program:
        """The traced program."""
        return self.state.program

    @property
    def plan(self) -> Plan:
        """The plan as it is now."""
        return self.state.plan

    @property
    def report(self) -> Report:
        """What is known about the plan so far; see its `level`."""
        return self.state.report

    def code(self) -> str:
        """The Python that rebuilds the plan."""
        return self.program.code(self.plan)

    def stop(self) -> None:
        """Stops the compile that is running."""
        self.state.stop()

    def wait(self, level: str = "compiled", timeout: float = 60.0) -> Report:
        """Blocks until the report has `level`, and returns it. See `ExplorerState.wait`."""
        return self.state.wait(level, timeout)

    def summary(self) -> str:
        """The plan and the headline numbers as text that is the same on every run."""
        return text(self.state)

    def __repr__(self) -> str:
        return self.summary()

    def _repr_mimebundle_(
        self, include: Iterable[str] | None = None, exclude: Iterable[str] | None = None, **_: Any
    ) -> Any:
        # a page that no kernel serves shows the HTML
        data: dict[str, Any] = {"text/plain": self.summary(), "text/html": html(self.report)}
        if self._view_name is not None:
            data["application/vnd.jupyter.widget-view+json"] = {
                "version_major": 2,
                "version_minor": 0,
                "model_id": self.model_id,
            }
        keep = lambda kind: (not include or kind in include) and kind not in (exclude or ())  # noqa: E731
        return {kind: item for kind, item in data.items() if keep(kind)}

    # From the state to the page: only what changed is sent, for a trait that is set to an equal value sends nothing.

    def _draw(self, changed: Set[str]) -> None:
        """Makes every trait again that depends on what has changed."""
        with self.hold_sync():
            if changed & {"answers", "cost"}:
                cost = self.state.cost
                self._timed = self.report if cost is None else replace(self.report, collectives=cost.partitioned)
            for name, view in VIEWS.items():
                if changed & view.after or (view.tab and "tab" in changed):
                    setattr(self, name, view.build(self) if view.tab in ("", self.tab) else {})

    # From the page to the state.

    def _on_edits(self, change: Any) -> None:
        """Does what was not done yet. The page repeats an edit until `status` has its number, so that none is lost
        while the kernel is busy: then only the newest value of a trait is sent."""
        for edit in change["new"]:
            if edit["seq"] > self._seq:
                self._seq = edit["seq"]
                with self.hold_sync():
                    try:
                        self._do(edit)
                    finally:
                        self._draw({"seq"})

    def _do(self, edit: dict[str, Any]) -> None:
        operation = edit.get("op")
        if operation in EDITS:
            method = getattr(self.state, operation)
            method(**{name: edit[name] for name in inspect.signature(method).parameters if name in edit})
        else:
            unknown = ShardvizError(f"the page asked for {operation!r}, which this version has not")
            self.state.refuse(unknown, "internal")

    def _on_selected(self, change: Any) -> None:
        """The page says at which level it saw the name: a newer report may have come meanwhile."""
        if change["new"] != self.state.selected:
            level, self.selected_at = self.selected_at, ""
            self.state.select(change["new"], level)
            self.selected = self.state.selected


# The tabs that are Documents.


def _values(explorer: Explorer) -> Json:
    report, changed = explorer.report, explorer.state.changed
    found = found_values(report, changed, explorer.query)
    total = len(report.arguments) + len(report.outputs) + len(report.intermediates)
    said = found_words(len(found), total)
    return pane(values_pane(report, found, changed), found=len(found), total=total, said=said)


def _collectives(explorer: Explorer) -> Json:
    report = explorer._timed
    return pane(collectives_pane(report, explorer.state.cost, explorer.query), total=len(report.collectives))


def _memory(explorer: Explorer) -> Json:
    return pane(memory_pane(explorer.state), finishable=explorer.state.finishable)


def _costs(explorer: Explorer) -> Json:
    return pane(cost_pane(explorer.state.cost, explorer.state.cost_error))


def _problems(explorer: Explorer) -> Json:
    problems, notes = severities(explorer.report)
    return pane(problems_pane(explorer.report), problems=problems, notes=notes)


VIEWS = {
    "mesh": View(lambda e: mesh_view(e.state), {"mesh"}),
    "plan_code": View(lambda e: e.code(), {"plan"}),
    "rules": View(lambda e: rules_view(e.state), {"plan"}, tab="rules"),
    "targets": View(lambda e: targets_view(e.state), {"mesh", "machine"}),
    "inputs": View(lambda e: inputs_view(e.state), {"answers"}),
    "outputs": View(lambda e: outputs_view(e.state), {"answers"}),
    "head": View(lambda e: head_view(e.state), {"answers", "machine", "cost"}),
    "source": View(lambda e: source_view(e._timed, e.state.cost), {"answers", "cost"}),
    "problems": View(_problems, {"answers"}),
    "values": View(_values, {"answers", "query"}, tab="values"),
    "collectives": View(_collectives, {"answers", "cost", "query"}, tab="collectives"),
    "selected": View(lambda e: e.state.selected, {"selection"}),
    "shards": View(lambda e: shards_view(e.report, e.state.selected, e.state.remark), {"answers", "selection"}),
    "rosetta": View(
        lambda e: rosetta_view(e.report, e.state.selected, e.reading),
        {"answers", "selection", "reading"},
        tab="rosetta",
    ),
    "memory": View(_memory, {"answers", "machine", "cost"}, tab="memory"),
    "costs": View(_costs, {"answers", "machine", "cost"}, tab="cost"),
    "machine": View(lambda e: machine_view(e.state), {"machine", "cost"}, tab="machine"),
    "company": View(
        lambda e: company_view(e.state, e.device), {"answers", "cost", "selection", "device"}, tab="machine"
    ),
    "status": View(
        lambda e: status_view(e.state, e._seq, e.state.now.progress.seconds),
        {"answers", "progress", "history", "error", "seq"},
    ),
}
"""Every trait that the page shows, in the order in which they are made."""

EDITS = (
    *("set_spec", "set_dim", "move_axis", "set_out_spec", "set_out_dim", "move_out_axis"),
    *("add_axis", "remove_axis", "rename_axis", "resize_axis", "set_target", "set_order", "exchange_axes"),
    *("add_rule", "set_rule", "move_rule", "remove_rule"),
    *("undo", "redo", "stop", "recompile", "finish"),
)
"""What the page may ask for: methods of the state. An edit has their arguments by name."""
