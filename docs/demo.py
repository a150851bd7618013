"""Records the explorer of one step, and writes it as a page that runs without a kernel.

    python docs/demo.py [FILE]        # from the project's root, some minutes; FILE is demo.html

The live engine is driven along its edits: an axis dropped on a dimension or taken off it, presets, fixes, sizes of the
mesh, two machines. Each state that is reached is recorded with all that the page shows of it, and so is each edit that
leads from one recorded state to another. In the page `docs/site/demo.js` answers from the record. States are equal if
plan and machine are: a state has the cards of the shortest way to it. It marks no changes, since many ways lead to it.
"""

from __future__ import annotations

import base64
import hashlib
import heapq
import html
import json
import re
import sys
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import shardviz as sv
from shardviz.costs.machine import machine_of
from shardviz.errors import ShardvizError
from shardviz.explorer.apply import plan_after
from shardviz.explorer.edits import PlanEdit, read
from shardviz.explorer.machine_choice import MachineChoice
from shardviz.explorer.snapshot import Snapshot
from shardviz.page import bundle
from shardviz.page.explorer import VIEWS, Explorer
from shardviz.page.payload import pane
from shardviz.paint.json import json_of
from shardviz.plan.plan import Plan
from shardviz.view.document import Document, paragraph
from shardviz.view.most import costs_documents

ROOT = Path(__file__).parents[1]
SITE = Path(__file__).parent / "site"
LEVEL = "partitioned"
TARGETS = ("tpu v5e:8x8", "gpu h100:8x8")
MESHES = {(8, 8): 0.6, (8, 4): 0.2, (16, 4): 0.2}
"""Sizes of the axes `data` and `model` → their share of the states."""
STATES = 220
FIXED = 6
PATIENCE = 300.0
"""Seconds that a state may take: a machine that builds the site may do other things besides."""
TABS = ("timeline", "memory", "collectives", "shards", "machine", "most", "problems", "cost", "difference", "values")
TABS += ("rules", "code", "source")
OF_SELECTION = ("shards", "constraints")
"""Traits that show the selected array, an argument."""
OF_DECK = ("cards", "difference", "timeline", "presets", "most", "lines")
"""Traits that also depend on the other cards, which are those of the shortest way to a state."""
_NUMBER = re.compile(r'\{"\$":\d+\}')
NOT_RECORDED = "This tab is not in the recording."

Edit = dict[str, Any]


@dataclass
class State:
    """A recorded state.

    Attributes:
        path: the edits that lead to it from the first state.
        now: the engine's snapshot, presets included.
        cost: how far away it is; near states are recorded first.
        edits: each recorded edit as JSON → the number of the state that it leads to.
        shown: each trait's value, as `Pool` encodes it.
    """

    path: tuple[Edit, ...]
    now: Snapshot
    cost: float
    edits: dict[str, int] = field(default_factory=dict)
    shown: dict[str, Any] = field(default_factory=dict)


class Pool:
    """JSON values that stand once, however many states have them.

    >>> pool = Pool()
    >>> pool.of({"a": [1, "a text of many states, " * 4]})
    {'a': [1, {'$': 0}]}
    """

    LEAST = 80  # characters of a value that is worth a number

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._places: dict[str, int] = {}

    def of(self, value: Any) -> Any:
        """Return a value with `{"$": n}` for each part that stands in `values`."""
        if isinstance(value, dict):
            value = {key: self.of(part) for key, part in value.items()}
        elif isinstance(value, list | tuple):
            value = [self.of(part) for part in value]
        elif not isinstance(value, str):
            return value
        text = key_of(value)
        if len(text) < self.LEAST:
            return value
        if text not in self._places:
            self._places[text] = len(self.values)
            self.values.append(value)
        return {"$": self._places[text]}

    def sorted(self, states: Any) -> tuple[list[Any], Any]:
        """Return the values with similar ones side by side, which halves their size when they are packed, and `states`
        with the numbers that they then have."""
        order = sorted(range(len(self.values)), key=lambda n: _NUMBER.sub("$", key_of(self.values[n])))
        places = {old: new for new, old in enumerate(order)}

        def renumbered(value: Any) -> Any:
            if isinstance(value, list):
                return [renumbered(part) for part in value]
            if not isinstance(value, dict):
                return value
            return {"$": places[value["$"]]} if "$" in value else {key: renumbered(value[key]) for key in value}

        return [renumbered(self.values[n]) for n in order], renumbered(states)


def key_of(value: Any) -> str:
    """Return JSON as JavaScript writes it, so that the page finds an edit by it."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def as_json(value: Any) -> Any:
    """Return a value as the page gets it."""
    return json.loads(key_of(value))


def opened() -> Explorer:
    """Return the explorer of the step at its first state."""
    mesh = dict(zip(("data", "model"), next(iter(MESHES)), strict=True))
    explorer = sv.explore(sv.gallery.llama("8b", mesh=mesh), target=TARGETS[0], level=LEVEL, timeout=PATIENCE)
    explorer.wait(LEVEL, PATIENCE)
    explorer.comm = None  # nobody is told of each trait, which takes longer than to build it
    explorer.wants = "dimensions"
    say(explorer, op="try_presets")
    return explorer


def say(explorer: Explorer, **edit: Any) -> None:
    """Have an explorer answer an edit as its page's next one, and wait for the level."""
    explorer._on_message(explorer, {"edit": edit, "seq": explorer.status["seq"] + 1}, [])
    if explorer.state.error is not None:
        raise ShardvizError(f"{edit} was refused: {explorer.state.error['message']}")
    explorer.wait(LEVEL, PATIENCE)


def follow(explorer: Explorer, path: tuple[Edit, ...]) -> None:
    """Have an explorer answer edits; a fix is tried before it is taken, presets before one is."""
    for edit in path:
        before = {"take_fix": "try_fixes", "take_preset": "try_presets"}.get(edit["op"])
        if before:
            say(explorer, op=before)
        say(explorer, **edit)


def restore(explorer: Explorer, now: Snapshot) -> None:
    explorer.state.put(**{each.name: getattr(now, each.name) for each in fields(now)})


def edits(now: Snapshot, dimensions: list[Any]) -> Iterator[tuple[Edit, Plan, str]]:
    """Yield the edits to record, with the machine and, of edits that name a plan, the plan; the likeliest first."""
    target = now.machine.target
    for each in TARGETS:
        other = MachineChoice.of(machine_of(each), now.plan.mesh).target
        if other != target:
            yield {"op": "set_target", "target": other}, now.plan, other
    sizes = dict(zip(now.plan.mesh.names, now.plan.mesh.sizes, strict=True))
    for other in now.presets.items:
        if other.results is not None:
            yield {"op": "take_preset", "preset": other.name}, other.plan, target
    for fix in now.tried_fixes.items:
        yield {"op": "take_fix", "action": fix.action}, fix.plan, target
    for card in now.deck.cards:
        yield {"op": "open_card", "card": card.id}, card.plan, target
    for name, size in sizes.items():
        for to in (size // 2, size * 2):
            if tuple({**sizes, name: to}.values()) in MESHES:
                yield {"op": "resize_axis", "name": name, "size": to}, now.plan, target
    for row in dimensions:
        axes = row["axes"]
        more = [[*axes, name] for name, why in zip(sizes, row["choices"], strict=True) if not isinstance(why, str)]
        less = [[*axes[:n], *axes[n + 1 :]] for n in range(len(axes))] if len(axes) > 1 else []
        for wanted in (*more, *([[]] if axes else []), *less):
            yield {"op": "shard_dimension", "name": row["name"], "axes": wanted}, now.plan, target


class Recorder:
    """States of an explorer, the nearest first, each on every machine.

    Attributes:
        most: how many states are recorded.
        fixed: in how many of these fixes are tried, which takes seconds in each.
        states: those that are, by their number.
        seconds: how long that took.
    """

    def __init__(self, most: int = STATES, fixed: int = FIXED):
        self.most, self.fixed, self.pool = most, fixed, Pool()
        self.explorer = opened()
        self.states: list[State] = []
        self._numbers: dict[str, int] = {}
        self._dimensions: list[list[Any]] = []
        begun = time.monotonic()
        self._walk()
        self._join()
        self.seconds = time.monotonic() - begun

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        self.explorer.state.close()

    def _walk(self) -> None:
        first = State((), self.explorer.state.now, 0.0)
        count, waiting = 0, [(0.0, 0, first, dict[str, Any](), key_of_state(first.now), first.now.plan.mesh.sizes)]
        left = {mesh: max(1, round(share * self.most / len(TARGETS))) for mesh, share in MESHES.items()}
        while waiting and len(self.states) < self.most:
            cost, _, parent, edit, key, mesh = heapq.heappop(waiting)
            if key in self._numbers or not left[mesh]:
                continue
            state = self._reached(parent, edit, cost) if edit else parent
            left[mesh] -= 1
            self._record(state)
            for target in TARGETS[1:]:
                to = MachineChoice.of(machine_of(target), state.now.plan.mesh).target
                self._record(self._reached(state, {"op": "set_target", "target": to}, cost))
            ranks: Counter[str] = Counter()  # the first drag, the first preset and the first size are equally near
            for each, to, mesh in self._leads(state.now, self._dimensions[self._numbers[key]]):
                if to not in self._numbers and left[mesh] and each["op"] != "set_target":
                    count += 1
                    heapq.heappush(waiting, (cost + 1 + ranks[each["op"]] / 8, count, state, each, to, mesh))
                    ranks[each["op"]] += 1

    def _reached(self, parent: State, edit: Edit, cost: float) -> State:
        restore(self.explorer, parent.now)
        say(self.explorer, **edit)
        say(self.explorer, op="try_presets")
        return State((*parent.path, edit), self.explorer.state.now, cost)

    def _record(self, state: State) -> None:
        if len(self.states) < self.fixed:
            say(self.explorer, op="try_fixes")
        state.now = replace(self.explorer.state.now, changed=frozenset())
        restore(self.explorer, state.now)
        state.shown = self.pool.of(shown(self.explorer))
        self._numbers[key_of_state(state.now)] = len(self.states)
        self.states.append(state)
        self._dimensions.append(self.explorer.dimensions["rows"])

    def _join(self) -> None:
        """Add the edits that lead from one recorded state to another."""
        for state, dimensions in zip(self.states, self._dimensions, strict=True):
            leads = ((edit, self._numbers.get(key)) for edit, key, _ in self._leads(state.now, dimensions))
            state.edits = {key_of(edit): to for edit, to in leads if to is not None and self.states[to] is not state}

    def _leads(self, now: Snapshot, dimensions: list[Any]) -> Iterator[tuple[Edit, str, tuple[int, ...]]]:
        """Yield each edit with the key of the state that it leads to, and the sizes of that state's mesh."""
        program = self.explorer.program
        for edit, plan, target in edits(now, dimensions):
            try:
                asked = read(edit)
                bound = program.bind(plan_after(now, asked, program) if isinstance(asked, PlanEdit) else plan)
                machine = MachineChoice.of(machine_of(target), bound.mesh).target
            except ShardvizError:
                continue  # the page says of it that it was not recorded
            if bound.mesh.sizes in MESHES:
                yield edit, key_of_bound(bound, machine), bound.mesh.sizes

    def record(self) -> dict[str, Any]:
        """Return all that the page needs, as JSON."""
        pool, shown = self.pool.sorted([state.shown for state in self.states])
        states = [{"shown": own, "edits": state.edits} for own, state in zip(shown, self.states, strict=True)]
        return {"pool": pool, "states": states, "ofSelection": OF_SELECTION, "words": words()}


def key_of_state(now: Snapshot) -> str:
    return key_of_bound(now.bound, now.machine.target)


def key_of_bound(bound: Any, target: str) -> str:
    parts = bound.mesh, bound.in_specs, bound.out_specs, bound.in_memory, bound.constraints, bound.variant
    return repr((*parts, dict(bound.options), target))


def shown(explorer: Explorer) -> dict[str, Any]:
    """Return what a state shows: the traits' values, all tabs filled; and by selected array those of `OF_SELECTION`."""
    now, first = explorer.state.now, explorer.selected
    values: dict[str, Any] = {}
    for tab in TABS:
        explorer.tab = tab
        own = [name for name, view in VIEWS.items() if view.tab == tab]
        own += {"most": ["most"], "problems": ["problems"], "code": ["plan_code"]}.get(tab, [])
        values |= {name: getattr(explorer, name) for name in own}
    _, by_line = costs_documents(explorer.state.deck, now.tried_fixes)
    explorer.opened = sorted(by_line)
    values["lines"] = explorer.lines
    explorer.opened = []
    by_name: dict[str, Any] = {}
    explorer.tab = "shards"
    for value in explorer.report.arguments:
        explorer.selected = value.name
        by_name[value.name] = {trait: getattr(explorer, trait) for trait in OF_SELECTION}
    explorer.selected, explorer.tab = first, "source"
    rest = {name: getattr(explorer, name) for name in VIEWS if name not in values and name not in OF_SELECTION}
    none = Document.of(paragraph(NOT_RECORDED, quiet=True))
    notations, stages = pane(none, read=None, name="", label=""), pane(none, name="", names=[], at=0, found=0, most=0)
    values |= rest | {"bySelection": by_name, "rosetta": notations, "stages": stages}
    values["status"] = {**values["status"], "seq": 0, "seconds": "recorded", "undo": 0, "redo": 0}
    if now.tried_fixes.of != now.plan:
        most, none = values["most"], paragraph("What helps was tried for the first plans of this recording only.")
        document = {**most["document"], "blocks": [*json_of(Document.of(none))["blocks"], *most["document"]["blocks"]]}
        said = f"{most['said'].partition(';')[0]}; what helps was not recorded here"
        values["most"] = {**most, "said": said, "document": document}
    presets = explorer.presets
    say(explorer, op="close_presets")
    values["presets"] = [explorer.presets, presets]
    restore(explorer, now)
    return values


# --- The page -------------------------------------------------------------------------------------------------------


def commands() -> tuple[str, str]:
    """Return the README's two commands: one installs, the other opens the lessons."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"<!-- lab-command -->\n```sh\n(.*?)\n```", text, re.DOTALL)
    assert found is not None
    install, _, opens = found[1].rpartition(" && ")
    return install, opens


def words() -> dict[str, str]:
    """Return what the page says of an edit, a look and a file that were not recorded."""
    install, opens = commands()
    live = f"The live explorer answers it. In a clone of the repository: {install}, then {opens}"
    return {
        "edit": f"This edit was not recorded, so nothing has changed. {live}",
        "look": f"This view was not recorded. {live}",
        "file": f"A recording saves no files. {live}",
    }


_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width,initial-scale=1"><meta name="color-scheme" content="light dark">
<title>shardviz without a kernel</title><style>{style}</style></head><body>
<header><b>shardviz without a kernel:</b> {about} Drop an axis on a dimension, take a preset, halve an axis, choose the
GPU.<br>
<span id="said" role="status"></span> To ask anything, in a clone: <code>{install}</code> <code>{opens}</code></header>
<noscript>This page needs JavaScript, and nothing else: no kernel and no network.</noscript>
<div id="app"></div>
<script type="text/plain" id="record">{record}</script>
<script type="module">{script}</script></body></html>
"""
_STYLE = """
:root{color-scheme:light dark}
body{margin:0;background:light-dark(#fff,#111);color:light-dark(#1f2328,#e6e6e6);font:13px/1.5 system-ui,sans-serif}
header{padding:8px 14px;border-bottom:1px solid rgba(128,128,128,.35)}
header code{background:rgba(128,128,128,.15);padding:1px 5px;border-radius:3px;overflow-wrap:anywhere}
#said{font-weight:600}
"""


def page_of(record: dict[str, Any]) -> str:
    """Return the page: it runs its own script by its hash, and loads nothing."""
    about = f"{len(record['states'])} recorded answers about a Llama 3 8B train step."
    packed = base64.b64encode(zlib.compress(key_of(record).encode(), 9)).decode()
    script = f"{bundle.module()}\n{(SITE / 'demo.js').read_text(encoding='utf-8')}".replace(
        "export default", "const page ="
    )
    assert "</script" not in script and "<!--" not in script
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; base-uri 'none'"
    install, opens = map(html.escape, commands())
    style = (_STYLE + bundle.styles()).replace("</", "<\\/")
    return _PAGE.format(
        policy=policy, style=style, about=about, install=install, opens=opens, record=packed, script=script
    )


def demo_page(states: int = STATES) -> str:
    """Return the page of so many states, recorded now; of few states without fixes."""
    with Recorder(states, FIXED * states // STATES) as recorder:
        return page_of(recorder.record())


def main(path: str = "demo.html") -> None:
    with Recorder() as recorder:
        text = page_of(recorder.record())
        Path(path).write_text(text, encoding="utf-8")
        edges = sum(len(state.edits) for state in recorder.states)
        print(f"{path}: {len(recorder.states)} states, {edges} edits, {len(text) / 1e6:.2f} MB", end=", ")
        print(f"recorded in {recorder.seconds:.0f} s")


if __name__ == "__main__":
    main(*sys.argv[1:])
