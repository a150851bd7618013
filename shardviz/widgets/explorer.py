"""The explorer: `ExplorerState` as a notebook widget. What the page shows are traits; what a person does are `edits`.

`opening.explore` makes one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import anywidget
import traitlets

from shardviz.errors import ShardvizError
from shardviz.records.report import Report
from shardviz.session.explorer import ExplorerState
from shardviz.session.rule_edits import rules_view
from shardviz.widgets import bundle
from shardviz.widgets.costs import cost_view
from shardviz.widgets.fitting import memory_view
from shardviz.widgets.headline import head_view
from shardviz.widgets.machines import company_view, machine_view
from shardviz.widgets.notations import rosetta_view
from shardviz.widgets.pages import shards_view, source_view
from shardviz.widgets.payload import inputs_view, mesh_view, outputs_view, problems_view, status_view
from shardviz.widgets.tables import collectives_view, values_view
from shardviz.widgets.targets import targets_view
from shardviz.widgets.timing import timed

if TYPE_CHECKING:
    from shardviz.program.plan import Plan
    from shardviz.session import Program

_EDITS: dict[str, tuple[str, ...]] = {
    "set_spec": ("name", "spec", "twins"),
    "set_dim": ("name", "dimension", "axes", "twins"),
    "move_axis": ("name", "axis", "dimension", "place", "twins"),
    "set_out_spec": ("name", "spec"),
    "set_out_dim": ("name", "dimension", "axes"),
    "move_out_axis": ("name", "axis", "dimension", "place"),
    "add_axis": ("name", "size"),
    "remove_axis": ("name",),
    "add_rule": ("pattern", "spec"),
    "set_rule": ("place", "pattern", "spec"),
    "move_rule": ("place", "to"),
    "remove_rule": ("place",),
    "rename_axis": ("old", "new"),
    "resize_axis": ("name", "size"),
    "set_target": ("target",),
    "set_order": ("order",),
    "exchange_axes": ("one", "other"),
    "undo": (),
    "redo": (),
    "stop": (),
    "recompile": (),
    "finish": (),
}
"""What the page may ask for: the state's methods, with their arguments by name."""

_MACHINE = ("target", "target_remark", "lack", "cost", "cost_error")
"""What the state says of the machine."""


class Explorer(anywidget.AnyWidget):
    """An interactive view of a program under a plan; see `opening.explore`.

    Attributes:
        state: the `ExplorerState` under it, which can be driven from Python: the page follows.
        device: the device that was picked, by its place in the mesh; below 0 for none. May be set.
        comm_id: the number of its comm, by which the page asks whether a kernel is still behind it.
    """

    _esm = traitlets.Unicode().tag(sync=True)
    _css = traitlets.Unicode().tag(sync=True)

    mesh = traitlets.Dict().tag(sync=True)
    inputs = traitlets.Dict().tag(sync=True)
    outputs = traitlets.Dict().tag(sync=True)
    head = traitlets.Dict().tag(sync=True)
    status = traitlets.Dict().tag(sync=True)
    values = traitlets.Dict().tag(sync=True)
    collectives = traitlets.Dict().tag(sync=True)
    source = traitlets.Dict().tag(sync=True)
    problems = traitlets.Dict().tag(sync=True)
    shards = traitlets.Dict().tag(sync=True)
    rosetta = traitlets.Dict().tag(sync=True)
    rules = traitlets.Dict().tag(sync=True)
    costs = traitlets.Dict().tag(sync=True)
    machine = traitlets.Dict().tag(sync=True)
    company = traitlets.Dict().tag(sync=True)
    targets = traitlets.Dict().tag(sync=True)
    memory = traitlets.Dict().tag(sync=True)
    plan_code = traitlets.Unicode().tag(sync=True)
    selected = traitlets.Unicode().tag(sync=True)
    selected_at = traitlets.Unicode().tag(sync=True)
    query = traitlets.Dict().tag(sync=True)
    reading = traitlets.Unicode().tag(sync=True)
    edits = traitlets.List().tag(sync=True)
    tab = traitlets.Unicode("source").tag(sync=True)
    device = traitlets.Int(-1).tag(sync=True)
    comm_id = traitlets.Unicode().tag(sync=True)

    def __init__(self, state: ExplorerState):
        self.state = state
        self._seq = 0
        self._began = time.monotonic()
        self._seconds: float | None = None
        self._drawn: tuple[Any, ...] = ()
        self._timed = state.report
        self._offered: tuple[Any, ...] = ()
        super().__init__(_esm=bundle.module(), _css=bundle.styles())
        self.comm_id = self.model_id or ""
        self.selected = state.selected
        self._draw_plan()
        self._draw_report()
        self._draw_status()
        shown = [
            "plan",
            "report",
            "status",
            "message",
            "busy",
            "error",
            "failure",
            "selected",
            "remark",
            "past",
            "ahead",
            *_MACHINE,
        ]
        state.observe(self._on_state, shown)
        self.observe(self._on_edits, "edits")
        self.observe(self._on_selected, "selected")
        self.observe(self._on_query, "query")
        self.observe(self._on_rosetta, ["tab", "reading"])
        self.observe(self._on_tab, "tab")
        self.observe(self._draw_company, "device")

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
        return self.state.summary()

    def __repr__(self) -> str:
        return self.summary()

    def _repr_mimebundle_(
        self, include: Iterable[str] | None = None, exclude: Iterable[str] | None = None, **_: Any
    ) -> Any:
        from shardviz.render import report_html  # a page that no kernel serves shows this

        data: dict[str, Any] = {"text/plain": self.summary(), "text/html": report_html(self.report)}
        if self._view_name is not None:
            data["application/vnd.jupyter.widget-view+json"] = {
                "version_major": 2,
                "version_minor": 0,
                "model_id": self.model_id,
            }
        keep = lambda kind: (not include or kind in include) and kind not in (exclude or ())  # noqa: E731
        return {kind: item for kind, item in data.items() if keep(kind)}

    # From the state to the page: only what changed is sent, for a trait that is set to an equal value sends nothing.

    def _on_state(self, change: Any) -> None:
        with self.hold_sync():
            if change["name"] in ("plan", "target") or (change["name"] == "busy" and change["new"]):
                self._began, self._seconds = time.monotonic(), None
            if change["name"] == "plan":
                self._draw_plan()
            if change["name"] in ("report", *_MACHINE):
                self._draw_report()
            if change["name"] == "selected":
                self.selected = self.state.selected
            if change["name"] in ("selected", "remark"):
                self._draw_shards()
                self._draw_company()
            self._draw_status()

    def _draw_plan(self) -> None:
        self.mesh = mesh_view(self.state)
        self.plan_code = self.code()
        self._draw_rules()

    def _draw_report(self) -> None:
        """All that follows from the report and the machine, once for each new pair of them."""
        report, state = self.report, self.state
        now = (report, *(getattr(state, name) for name in _MACHINE))
        if all(a is b for a, b in zip(now, self._drawn, strict=False)) and self._drawn:
            return
        self._drawn, self._timed = now, timed(report, state.cost)
        with self.hold_sync():
            self._draw_targets()
            self.inputs = inputs_view(self.state)
            self.outputs = outputs_view(self.state)
            self.head = head_view(self.state)
            self.source = source_view(self._timed, state.cost)
            self.problems = problems_view(self.state)
            self._draw_tables()
            self._draw_shards()
            self._draw_cost()

    def _draw_targets(self) -> None:
        """What may be chosen: it hangs on the mesh and the machine alone, and takes its time."""
        now = (
            self.report.mesh,
            self.state.machine,
            *(getattr(self.state, name) for name in _MACHINE if name != "cost"),
        )
        if now != self._offered:
            self._offered, self.targets = now, targets_view(self.state)

    def _draw_cost(self) -> None:
        """What the machine has to say, as far as somebody looks at it: a view of a tab that is hidden is empty."""
        self.memory = memory_view(self.state) if self.tab == "memory" else {}
        self.costs = cost_view(self.state) if self.tab == "cost" else {}
        self.machine = machine_view(self.state) if self.tab == "machine" else {}
        self._draw_company()

    def _draw_company(self, _: Any = None) -> None:
        """Where the device that was picked is, what it holds and who is in its groups, likewise."""
        self.company = company_view(self.state, self.device) if self.tab == "machine" else {}

    def _draw_tables(self) -> None:
        self.values = values_view(self.report, self.state.changed, self.query)
        self.collectives = collectives_view(self._timed, self.query, self.state.cost)

    def _draw_shards(self) -> None:
        self.shards = shards_view(self.report, self.state.selected, self.state.remark)
        self._draw_rosetta()

    def _draw_rules(self) -> None:
        """What each rule catches, while somebody looks at that."""
        self.rules = rules_view(self.state) if self.tab == "rules" else {}

    def _draw_rosetta(self) -> None:
        """Every notation of the selected value, while somebody looks at that."""
        self.rosetta = rosetta_view(self.report, self.state.selected, self.reading) if self.tab == "rosetta" else {}

    def _draw_status(self) -> None:
        if self.state.busy:
            self._seconds = None
        elif self._seconds is None:
            self._seconds = time.monotonic() - self._began
        self.status = status_view(self.state, self._seq, self._seconds)

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
                        self._draw_status()

    def _do(self, edit: dict[str, Any]) -> None:
        operation = edit.get("op")
        if operation in _EDITS:
            method: Callable[..., Any] = getattr(self.state, operation)
            method(**{key: edit[key] for key in _EDITS[operation] if key in edit})
        else:
            unknown = ShardvizError(f"the page asked for {operation!r}, which this version has not")
            self.state.refuse(unknown, "internal")

    def _on_selected(self, change: Any) -> None:
        """The page says at which level it saw the name: a newer report may have come meanwhile."""
        if change["new"] != self.state.selected:
            level, self.selected_at = self.selected_at, ""
            self.state.select(change["new"], level)
            self.selected = self.state.selected

    def _on_query(self, change: Any) -> None:
        with self.hold_sync():
            self._draw_tables()

    def _on_tab(self, change: Any) -> None:
        with self.hold_sync():
            self._draw_rules()
            self._draw_cost()

    def _on_rosetta(self, change: Any) -> None:
        self._draw_rosetta()
