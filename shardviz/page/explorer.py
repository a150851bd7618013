"""The explorer widget: `ExplorerState` in a notebook. Traits carry the content to the page, messages carry edits back.

Each displayed trait has a function that builds it and a set of changes after which it is rebuilt (`shown`).
`opening.explore` makes an explorer.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import traitlets

from shardviz.display import bundle
from shardviz.errors import ShardvizError
from shardviz.explorer.edits import read
from shardviz.explorer.explorer import ExplorerState
from shardviz.explorer.files import session_json
from shardviz.explorer.texts import Stages, codes_of
from shardviz.files import write_whole
from shardviz.judge.report import Report
from shardviz.notation import Spec
from shardviz.notation.bounds import MOST_PASTED
from shardviz.page import door
from shardviz.page.delivered import Delivered
from shardviz.page.inputs import array_groups_view, dimensions_view, shardings_view, tree_view
from shardviz.page.payload import Json, mesh_view, pane, source_view, status_view
from shardviz.page.stills import VIEW, Stills, still_html
from shardviz.page.targets import device_groups_view, machine_view, targets_view
from shardviz.paint import PICTURES, file, text
from shardviz.paint.json import json_of
from shardviz.records.amounts import format_bytes, format_seconds, plural
from shardviz.records.report import values_of
from shardviz.records.why import CollectiveWhy
from shardviz.tracing.rules import patterns_of
from shardviz.view import panes
from shardviz.view.cards import deck_document, difference_pane, search_document, severity_words, tried_presets_document
from shardviz.view.document import Document, document
from shardviz.view.explored import explored, headline_pane
from shardviz.view.most import costs_documents
from shardviz.view.motion import collective_section
from shardviz.view.placement import without_machine
from shardviz.view.rosetta import read_rosetta, value_rosetta
from shardviz.view.simulated import simulated_document
from shardviz.view.source import source_pane
from shardviz.view.timeline import timeline_pane
from shardviz.view.values import found_value
from shardviz.view.verdict import verdict_document

if TYPE_CHECKING:
    from shardviz.ask import Program
    from shardviz.plan.plan import Plan


@dataclass(frozen=True)
class View:
    """How a displayed trait is built.

    Attributes:
        build: the function that builds it.
        after: the changes that rebuild it: parts of the `Snapshot`, traits set by the page, or `seq` for an edit.
        tab: the only tab that fills it; empty for all.
    """

    build: Callable[[Explorer], Any]
    after: set[str]
    tab: str = ""


T = TypeVar("T", bound=traitlets.TraitType)


def shown(build: Callable[[Explorer], Any], after: set[str], tab: str = "", kind: type[T] = traitlets.Dict) -> T:
    """Return a displayed trait with its `View`."""
    return kind().tag(sync=True, view=View(build, after, tab))


_BEING_TRIED = "; what helps is being tried"
_SMALL = (264.0, 160.0)  # size in pixels of the shard map beside the source
_LARGE = (450.0, 420.0)  # size in pixels of the shard map in its own tab


def _cards(explorer: Explorer) -> Json:
    """Return the cards, their points of seconds and bytes, and the largest in words; cards without a time have none."""
    deck = explorer.state.deck
    costs = {card.id: card.results.cost() for card in deck.cards}
    points = [
        {"card": name, "seconds": cost.seconds or cost.lower, "bytes": cost.needs.total, "fits": cost.needs.fits}
        for name, cost in costs.items()
        if cost is not None
    ]
    cost, rows = costs[deck.at], deck_document(deck, explorer.state.now.sharing)
    usable = None if cost is None else cost.needs.usable
    words = {
        "seconds": format_seconds(max((point["seconds"] for point in points), default=0)),
        "bytes": format_bytes(max((point["bytes"] for point in points), default=0)),
        "usable": format_bytes(usable or 0),
    }
    return pane(rows, at=deck.at, against=deck.against, points=points, usable=usable, words=words)


def _sharing(explorer: Explorer) -> Json:
    """Return the shared arrays that other programs shard otherwise, and the costs for the selected one."""
    sharing = explorer.state.now.sharing
    wishes = {"wishes": dict(sharing.wishes)} if sharing.wishes else {}
    conflict = sharing.conflict
    return wishes if conflict is None else pane(document(conflict), of=sharing.selected, **wishes)


def _most(explorer: Explorer) -> Json:
    """Return the number of fixes and their button; in the tab, also the largest costs."""
    tried_fixes = explorer.state.now.tried_fixes
    rows = pane(costs_documents(explorer.state.deck, tried_fixes)[0]) if explorer.tab == "most" else {}
    own = tried_fixes.of == explorer.state.plan
    tried, fixes = own and tried_fixes.fixes is not None and not tried_fixes.busy, len(tried_fixes.items) * own
    helps = ", and what was tried and helps" if fixes else "; nothing that was tried helps" if tried else _BEING_TRIED
    fix = f"Fix ({fixes})" if fixes or tried else "Fix"
    return {**rows, "fixes": fixes, "fix": fix, "said": f"what costs you most{helps}"}


def _lines(explorer: Explorer) -> Json:
    """Return the costs, causes and fixes of the lines that are open in the source."""
    if not explorer.opened:
        return {}
    _, by_line = costs_documents(explorer.state.deck, explorer.state.now.tried_fixes)
    return {at: json_of(by_line[at]) for at in explorer.opened if at in by_line}


def _why(explorer: Explorer) -> Json:
    asked = explorer.state.now.why
    fields = {name: getattr(asked, name) for name in ("line", "name", "axis", "busy", "trouble", "tried")}
    if asked.answer is None:
        return fields
    answer = document(asked.answer)
    if isinstance(asked.answer, CollectiveWhy):
        moves = collective_section(asked.answer.collective, asked.answer.mesh, explorer.state.now.machine.target)
        answer = replace(answer, blocks=(*answer.blocks, moves))
    return pane(answer, **fields)


def _values(explorer: Explorer) -> Json:
    report, changed = explorer.report, explorer.state.changed
    matches, total = panes.found_values(report, changed, explorer.query), len(values_of(report))
    counts = {"found": len(matches), "total": total, "said": panes.found_words(len(matches), total)}
    return pane(panes.values_pane(report, matches, changed), **counts)


def _stages(explorer: Explorer) -> Json:
    state = explorer.state
    state.background.find_stages()  # does nothing if they are being computed
    own = state.now.stages.get(state.plan, Stages())
    waits = "Shardy is being run …" if own.busy else ""
    texts = own.with_reports(state.now.results.reports)
    document, facts = panes.stages_shown(texts, explorer.query, waits=waits, trouble=own.trouble)
    return pane(document, **facts, most=panes.MOST_LINES)


def _rules(explorer: Explorer) -> Json:
    state = explorer.state
    fields = [
        {
            "filter": rule.filter if isinstance(rule.filter, str) else None,
            "spec": str((rule.spec or Spec()).canonical()),
        }
        for rule in state.plan.rules.rules
    ]
    return pane(panes.rules_pane(state.program.rules_table(state.plan)), fields=fields)


def _rosetta(explorer: Explorer) -> Json:
    report, state, text = explorer.report, explorer.state, explorer.reading
    role, value = found_value(report, state.selected)
    about: Json = {} if value is None else {"name": value.name, "label": value.label or value.name, "role": role}
    if text.strip():
        pasted = read_rosetta(report, state.selected, text)
        document = None if pasted.document is None else json_of(pasted.document)
        fields = {"same": pasted.same, "apply": pasted.apply, "error": pasted.error}
        about["read"] = {"text": text[:MOST_PASTED], "answer": json_of(pasted.answer), "document": document, **fields}
    return pane(value_rosetta(report, state.selected, state.remark), **{"read": None, **about})


def _presets(explorer: Explorer) -> Json:
    presets = explorer.state.now.presets
    fields = pane(tried_presets_document(presets, explorer.state.deck)) if presets.open else {}
    share = None if presets.share is None else round(presets.share, 3)
    return {**fields, "share": share, "search": json_of(search_document(presets, explorer.state.deck))}


def _codes(explorer: Explorer) -> Json:
    codes = codes_of(explorer.program, explorer.plan)
    return {"jax": codes.jax, "why": codes.why}


def _code_run(explorer: Explorer) -> Json:
    """Return the run of the plan's code, apart from the code, because it changes each second."""
    run = explorer.state.now.simulated
    return {} if run.of is None else {"document": json_of(simulated_document(run)), "busy": run.busy}


def _timeline(explorer: Explorer) -> Json:
    """Return the timelines of the open card and of the card it is compared with; empty while they are computed."""
    state = explorer.state
    state.background.find_timelines()  # does nothing if they are being computed
    timelines, trouble = state.now.timelines.items, state.now.timelines.trouble or state.cost_error
    if trouble or state.cost is None:
        return pane(without_machine(trouble, "speed to reckon with", "timeline-why"))
    names = [card.name for card in dict.fromkeys((state.deck.now, state.deck.other))]
    lacks = f"{names[-1]} is not known at level {state.cost.level}" if len(names) > len(timelines) else ""
    shown = dict(zip(names, timelines, strict=False))
    return pane(timeline_pane(shown, explorer.span, lacks), steps=len(shown)) if shown else {}


def _problems(explorer: Explorer) -> Json:
    problems, notes = severity_words(explorer.state.deck.now.results.findings)
    counts = " · ".join(filter(None, (plural(problems, "finding"), notes)))
    fields = pane(panes.problems_pane(explorer.report, explorer.state.cost)) if explorer.tab == "problems" else {}
    return {**fields, "problems": problems, "notes": notes, "said": counts}


def _texts(explorer: Explorer) -> Json:
    """Return the source texts; the facts about their lines are stored for the trait `source`."""
    explorer._lines, texts = source_view(source_pane(explorer._timed, explorer.state.cost))
    return texts


def _shards(explorer: Explorer) -> Json:
    """Return the small shard map beside the source, and the large one in its tab."""
    state = explorer.state
    value = explorer.report, state.selected, state.remark
    drawn = partial(panes.shard_map_pane, *value, cost=state.cost, device=explorer.device)
    large = json_of(drawn(room=_LARGE)) if explorer.tab == "shards" else None
    return pane(drawn(room=_SMALL), large=large, name=state.selected)


def _constraints(explorer: Explorer) -> Json:
    """Return the value that can be constrained, the plan's constraints, and rule patterns for the selected array."""
    state = explorer.state
    chosen = next((v for v in explorer.report.intermediates if v.name == state.selected), None)
    spec = str((chosen.spec or Spec()).canonical()) if chosen is not None else ""
    value = None if chosen is None else {"name": chosen.name, "label": chosen.label or chosen.name, "spec": spec}
    rows = [
        {"name": c.value.name, "line": c.value.line, "text": str(bound)}
        for c, bound in zip(state.plan.constraints, state.bound.constraints, strict=True)
    ]
    return {"value": value, "rows": rows, "patterns": list(patterns_of(state.selected)) if state.selected else []}


class Explorer(Delivered):
    """An interactive view of a program under a plan; see `opening.explore`.

    Attributes:
        state: the `ExplorerState`, which can be driven from Python: the page follows.
        device: the position of the picked device in the mesh; below 0 for none. May be set.
        comm_id: the id of its comm, which tells the page whether a kernel is still connected.
    """

    # Displayed traits in the order of building. Some hosts set them one by one, so the status, which ends an update,
    # is last.
    mesh = shown(lambda e: mesh_view(e.state), {"mesh"})
    plan_code = shown(lambda e: e.code() if e.tab == "code" else "", {"plan", "tab"}, kind=traitlets.Unicode)
    codes = shown(_codes, {"plan"}, tab="code")
    code_run = shown(_code_run, {"simulated"}, tab="code")
    rules = shown(_rules, {"plan"}, tab="rules")
    targets = shown(lambda e: targets_view(e.state), {"mesh", "machine", "plan"})
    inputs = shown(lambda e: tree_view(e.report.arguments, 1), {"mesh"})
    outputs = shown(lambda e: tree_view(e.report.outputs, 2), {"mesh"})
    array_groups = shown(lambda e: array_groups_view(e.state), {"mesh", "logical"})
    dimensions = shown(lambda e: dimensions_view(e.state), {"plan", "report", "logical"})
    shardings = shown(lambda e: shardings_view(e.state, "argument"), {"plan", "report", "changed"})
    out_shardings = shown(lambda e: shardings_view(e.state, "output"), {"plan", "report", "changed"})
    sharing = shown(_sharing, {"sharing"})
    cards = shown(_cards, {"report", "cost", "deck", "machine", "sharing"})
    presets = shown(_presets, {"presets", "deck"})
    most = shown(_most, {"report", "cost", "deck", "machine", "tried_fixes", "tab"})
    lines = shown(_lines, {"report", "cost", "deck", "machine", "tried_fixes", "opened"}, tab="source")
    why = shown(_why, {"why"})
    head = shown(
        lambda e: pane(headline_pane(e.state.now), verdict=json_of(verdict_document(e.state.now.results))),
        {"report", "machine", "cost"},
    )
    texts = shown(_texts, {"report", "cost"}, tab="source")
    source = shown(lambda e: e._lines, {"report", "cost"}, tab="source")
    problems = shown(_problems, {"report", "cost", "tab"})
    values = shown(_values, {"report", "changed", "query"}, tab="values")
    collectives = shown(
        lambda e: pane(panes.collectives_pane(e._timed, e.state.cost, e.query), total=len(e.report.collectives)),
        {"report", "cost", "query"},
        tab="collectives",
    )
    selected = shown(lambda e: e.state.selected, {"selection"}, kind=traitlets.Unicode)
    shards = shown(_shards, {"report", "selection", "cost", "tab", "device"})
    constraints = shown(_constraints, {"report", "selection", "plan"})
    rosetta = shown(_rosetta, {"report", "selection", "reading"}, tab="rosetta")
    memory = shown(lambda e: pane(panes.memory_pane(e.state.now)), {"report", "machine", "cost"}, tab="memory")
    costs = shown(
        lambda e: pane(panes.cost_pane(e.state.cost, e.state.cost_error)), {"report", "machine", "cost"}, tab="cost"
    )
    difference = shown(lambda e: pane(difference_pane(e.state.deck)), {"report", "cost", "deck"}, tab="difference")
    stages = shown(_stages, {"plan", "report", "stages", "query"}, tab="stages")
    machine = shown(
        lambda e: machine_view(e.state.cost, e.state.cost_error), {"machine", "cost", "report"}, tab="machine"
    )
    device_groups = shown(
        lambda e: device_groups_view(e.state.cost, e.device, e.report, e.state.selected),
        {"report", "cost", "selection", "device"},
        tab="machine",
    )
    timeline = shown(_timeline, {"report", "cost", "machine", "deck", "timelines", "span"}, tab="timeline")
    status = shown(
        lambda e: status_view(e.state, e._seq, e.state.now.progress.seconds),
        {"report", "progress", "history", "error", "seq"},
    )

    comm_id = traitlets.Unicode().tag(sync=True)

    # What the page sets.
    selected_at = traitlets.Unicode().tag(sync=True)
    query = traitlets.Dict().tag(sync=True)
    reading = traitlets.Unicode().tag(sync=True)
    wants = traitlets.Unicode().tag(sync=True)
    tab = traitlets.Unicode("source").tag(sync=True)
    device = traitlets.Int(-1).tag(sync=True)
    span = traitlets.List(traitlets.Float(), [0.0, 1.0]).tag(sync=True)
    opened = traitlets.List(traitlets.Unicode()).tag(sync=True)

    def __init__(self, state: ExplorerState):
        self.state = state
        self._seq = 0
        self._behind = False
        self._lines: Json = {}
        super().__init__()
        self.comm_id = self.model_id or ""
        state.loop.inbox.run(self._begin)
        self._stills = Stills(self, state)
        settings = ["query", "reading", "tab", "device", "opened", "span"]
        self.observe(lambda change: self._draw({change["name"]}), settings)
        self.observe(self._on_wants, "wants")
        self.observe(self._on_selected, "selected")

    def _begin(self) -> None:
        """Build all traits, and subscribe to changes."""
        self._draw({change for view in VIEWS.values() for change in view.after})
        self.state.subscribe(self._draw)
        self.state.background.wake()

    @property
    def program(self) -> Program:
        return self.state.program

    @property
    def plan(self) -> Plan:
        """The current plan."""
        return self.state.plan

    @property
    def report(self) -> Report:
        """The newest report; see its `level`."""
        return self.state.report

    def code(self) -> str:
        """Return the Python that rebuilds the plan."""
        return self.program.plan_code(self.plan)

    def stop(self) -> None:
        """Stop the running compile."""
        self.state.stop()

    def close(self) -> None:
        """Close the explorer, and stop its compile, search and chores."""
        if self.comm is not None:
            self.state.close()
        super().close()

    def wait(self, level: str = "compiled", timeout: float = 60.0) -> Report:
        """Wait until the report has `level`, and return it. See `ExplorerState.wait`."""
        return self.state.wait(level, timeout)

    def summary(self) -> str:
        """Return the plan and the headline numbers as text that is equal on every run."""
        return text(self.state)

    def __repr__(self) -> str:
        return self.summary()

    def save(self, path: str | os.PathLike[str], *, dark: bool = False) -> Path:
        """Write the explorer's content to a file, atomically.

        Args:
            path: the file. `.json` stores the cards, the machine and the selection for `sv.open`. `.html` is a static
                page of all panes without scripts or network access; `.md` and `.txt` are the same as text. `.svg`,
                `.png` and `.pdf` are a picture of the mesh on its machine.
            dark: draw the picture for a dark page.

        Returns:
            The path.

        Raises:
            ShardvizError: for an unknown ending, a picture that does not exist, or a file that cannot be written.
        """
        ending = Path(path).suffix.lower()
        if ending == ".json":
            return write_whole(path, session_json(self.state))
        subject = (self.state.cost or self.report) if ending in PICTURES else self._explored()
        return write_whole(path, file(subject, path, dark=dark))

    def asked(self, what: str) -> dict[str, Any] | None:
        """Answer a page's request: its code, the newest `still`, or a file (`html` or `json`) to download."""
        if what == "still":
            newest = self._stills.newest()
            return None if newest is None else {"still": newest}
        if what not in ("html", "json"):
            return super().asked(what)
        name = re.sub(r"[^\w-]+", "_", self.program.name)[:60].strip("_") or "explorer"
        text, why = "", ""
        try:
            text = session_json(self.state) if what == "json" else str(file(self._explored(), "x.html"))
        except ShardvizError as error:
            why = str(error)
        return {"file": {"name": f"{name}.{what}", "text": text, "why": why}}

    def _explored(self) -> Document:
        codes = {card.name: codes_of(self.program, card.plan) for card in self.state.deck.cards}
        return explored(self.state.now, codes)

    def _repr_mimebundle_(
        self, include: Iterable[str] | None = None, exclude: Iterable[str] | None = None, **_: Any
    ) -> Any:
        kinds: dict[str, Callable[[], Any]] = {"text/plain": self.summary, "text/html": lambda: still_html(self.state)}
        if self._view_name is not None:
            kinds[VIEW] = lambda: {"version_major": 2, "version_minor": 0, "model_id": self.model_id}
        return bundle(kinds, include, exclude)

    def _ipython_display_(self, **_: Any) -> None:
        """Display the explorer, and below it the still for hosts without a live page."""
        self._stills.show()

    # From the state to the page: traitlets sends nothing if a trait is set to an equal value.

    def _draw(self, changed: Set[str]) -> None:
        """Rebuild the traits that depend on the changes; all of them after an interrupted call."""
        behind, self._behind = self._behind, True
        if behind:
            changed = {change for view in VIEWS.values() for change in view.after}
        try:
            with self.hold_sync():
                if changed & {"report", "cost"}:
                    cost = self.state.cost
                    self._timed = self.report if cost is None else replace(self.report, collectives=cost.partitioned)
                for name, view in VIEWS.items():
                    if changed & view.after or (view.tab and "tab" in changed):
                        setattr(self, name, view.build(self) if view.tab in ("", self.tab) else {})
            if behind:
                self.send_state(list(VIEWS))  # traits that were set but not sent before the interrupt
        except Exception:  # building the same traits again would fail again
            self._behind = False
            raise
        self._behind = False

    # From the page to the state.

    def _on_message(self, _: Any, message: Any, __: Any) -> None:
        """Handle a message of the page: an edit, a file request, or whether the page is visible."""
        keys = message.keys() if isinstance(message, dict) else ()
        if keys == {"edit", "seq"}:
            self.state.loop.inbox.run(lambda: self._answer(**message))  # other answers wait until this one is sent
        elif keys == {"seen"}:
            background = self.state.background
            background.wake() if message["seen"] is True else background.rest()
        else:
            super()._on_message(_, message, __)

    def _answer(self, edit: Any, seq: Any) -> None:
        """Apply or refuse an edit; its result and `status.seq` are sent together."""
        with self.hold_sync():
            try:
                self.state.background.wake()  # a view is open
                self._seq = door.number(seq)
                self.state.do(read(edit))
            except ShardvizError as error:
                self.state.refuse(error, "internal")
            finally:
                self._draw({"seq"})

    def set_state(self, sync_data: dict[str, Any]) -> None:
        """Accept the valid values that the page sends, and refuse the others."""
        fits, own = {}, {*Explorer.class_own_traits(), *Delivered.class_own_traits()}
        for name, value in sync_data.items():
            try:
                fits[name] = door.trait(name, value) if name in own else value
            except ShardvizError as error:
                self.state.refuse(error, "internal")
        super().set_state(fits)

    def _on_wants(self, change: Any) -> None:
        if change["new"] == "dimensions":
            self.state.find_dimensions()

    def _on_selected(self, change: Any) -> None:
        """Select a value by its name at the level that the page showed."""
        if change["new"] != self.state.selected:
            level, self.selected_at = self.selected_at, ""
            self.state.select(change["new"], level)
            self.selected = self.state.selected


VIEWS: dict[str, View] = {
    name: trait.metadata["view"]
    for name, trait in vars(Explorer).items()
    if isinstance(trait, traitlets.TraitType) and "view" in trait.metadata
}
"""Every displayed trait, in the order of building."""
