"""The widget without a browser: what it sends, what it takes, what it shows where no kernel is."""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from shardviz.errors import ShardvizError
from shardviz.explorer.changes import choices
from shardviz.explorer.explorer import ExplorerState
from shardviz.page.explorer import VIEWS, Explorer
from shardviz.plan.plan import Plan
from shardviz.records import Value
from shardviz.view.document import plain
from shardviz.view.panes import shard_map_pane
from tests.page.documents import card, cells, kpi, rows, said, table
from tests.page.page import PARTS, say

W1 = "params['w1']"


@pytest.fixture
def explorer(program, plan):
    return Explorer(ExplorerState(program, plan, debounce=0.01))


@pytest.fixture
def sent(explorer):
    """The names of the traits that were set to something new, in order."""
    names = []
    explorer.observe(lambda change: names.append(change["name"]), list(PARTS))
    return names


def test_all_that_is_sent_is_json(explorer):
    for part in PARTS:
        assert json.loads(json.dumps(getattr(explorer, part))) == getattr(explorer, part)


def test_an_edit_changes_the_page_and_says_which_edit_it_was(explorer, sent):
    say(explorer, op="set_dim", name=W1, dimension=0, axes=["data"])
    kind = explorer.shardings["kinds"][explorer.shardings["at"][1]]
    assert kind["dims"] == [["data"], ["model"]] and kind["shard"] == [32, 256] and kind["changed"]
    assert explorer.status["seq"] == 1 and explorer.status["level"] == "propagated"
    shown = {"shardings", "cards", "problems", "head", "status", "shards"}
    assert set(sent) == shown, "the rest is not sent: no line of the source says anything else"


def test_an_answer_is_one_message_with_what_differs_and_the_number_of_its_edit(program, plan, monkeypatch):
    explorer, sent = Explorer(ExplorerState(program, plan, debounce=60)), []
    comm = SimpleNamespace(comm_id="1", kernel=True, on_msg=id, send=lambda data, buffers: sent.append(data))
    explorer.state.pin("kept")
    monkeypatch.setattr(explorer, "comm", comm)
    for seq, edit in enumerate(
        (
            {"op": "set_dim", "name": W1, "dimension": 0, "axes": ["data"]},
            {"op": "undo"},
            {"op": "redo"},
            {"op": "open_card", "card": "baseline"},
            {"op": "add_axis", "name": "pipe", "size": 2},
            {"op": "resize_axis", "name": "data", "size": 3},
        ),
        start=7,
    ):
        before = {name: getattr(explorer, name) for name in VIEWS}
        explorer._on_message(explorer, {"edit": edit, "seq": seq}, [])
        (content,) = sent
        differs = {name: now for name, old in before.items() if (now := getattr(explorer, name)) != old}
        assert content["method"] == "update" and content["state"] == differs and differs["status"]["seq"] == seq, edit
        sent.clear()
    assert explorer.status["error"]["place"] == "mesh", "the last was refused"
    assert [axis["name"] for axis in explorer.mesh["axes"]] == ["data", "model", "pipe"]


@pytest.mark.parametrize("bad", [{"name": "x", "dimension": 0}, {"dimension": 0, "axes": []}])
def test_an_incomplete_edit_is_refused(explorer, bad):
    before = explorer.plan
    say(explorer, op="set_dim", **bad)
    assert "missing required field" in explorer.status["error"]["message"] and explorer.plan == before
    assert explorer.status["seq"] == 1, "it was answered"


def test_a_refused_edit_sends_the_status_only(explorer, sent):
    say(explorer, op="resize_axis", name="data", size=3)
    assert set(sent) == {"status"}
    assert explorer.status["error"]["place"] == "mesh" and explorer.status["error"]["argument"] == "x"


def test_a_value_that_no_partition_spec_says_is_drawn_all_the_same(explorer):
    texts = ("{devices=[8,1]0,3,1,2,4,7,5,6}", "{maximal device=5}", "{manual}", "{unknown}")
    values = [
        Value(name=f"v.{i}", shape=(64, 8), dtype="float32", spec=None, sharding={"hlo": text})
        for i, text in enumerate(texts)
    ]
    report = replace(explorer.report, intermediates=tuple(values))
    content: list[Any] = [shard_map_pane(report, v.name) for v in values]
    odd, one, manual, unknown = content
    starts = {place: int(said.split("[")[1].split(":")[0]) for place, said in cells(odd).items()}
    assert sorted(starts, key=lambda place: starts[place]) == [0, 3, 1, 2, 4, 7, 5, 6]
    assert odd.title[1].kind == "code"
    assert list(cells(one)) == [5] and manual.blocks[0].of.notes[-1].startswith("manual")
    assert plain(unknown.blocks[0].pieces) == "hlo: {unknown}"


def test_selection_goes_both_ways(explorer):
    explorer.selected = "x"
    assert explorer.state.selected == "x" and explorer.shards["name"] == "x"
    explorer.state.selected = "dot.1"
    assert explorer.selected == "dot.1" and explorer.shards["document"]["title"][0]["t"] == "h"
    explorer.selected = "nothing of this name"
    assert "does not occur" in said(table(explorer.shards["document"]["blocks"], "nothing-selected")["pieces"])


def test_menus_agree_with_the_state(explorer):
    say(explorer, op="add_axis", name="odd", size=3)
    specs, mesh = explorer.state.bound.in_specs, explorer.state.plan.mesh
    for value, kind in zip(explorer.report.arguments, explorer.shardings["at"], strict=True):
        for dimension, menu in enumerate(explorer.shardings["kinds"][kind]["choices"]):
            for choice, code in zip(choices(value.shape, specs[value.name], mesh, dimension), menu, strict=True):
                assert (code == 1) == choice.legal
                assert code == 1 or choice.reason == (code[0] if choice.move else code)


def names(explorer):
    return [row["sel"][1] for row in table(explorer.values["document"]["blocks"], "values-table").get("rows", [])]


def test_the_collectives_come_with_the_partitioned_report(explorer, program):
    explorer.tab = "collectives"
    assert explorer.collectives["total"] == 0
    plan, job = program.jobs[0]
    job.on_report(program.partitioned(plan))
    (moved,) = rows(explorer.collectives, "collectives-table")
    assert moved[0].startswith("all-reduce") and moved[1] == "data"
    (line,) = table(explorer.collectives["document"]["blocks"], "By source line")["rows"]
    assert line["cells"][0]["v"] == "return h @ params['w2']"
    assert kpi(explorer, "communication").startswith("data ")
    assert kpi(explorer, "memory per device").endswith("of arguments")
    job.answer(program.compiled(plan))
    (memory,) = card(explorer, "memory per device")
    assert memory.endswith("of arguments")
    assert explorer.status["level"] == "compiled"


def test_the_filter_is_answered_by_the_kernel(explorer):
    explorer.tab = "values"
    explorer.query = {"text": "dot_general"}
    assert names(explorer) == ["dot.0", "dot.1", "dot.2"]
    explorer.query = {"text": "model"}
    assert set(names(explorer)) >= {W1, "params['w2']"}
    explorer.query = {"line": "model.py:2"}
    assert explorer.values["found"] == 3 and explorer.values["total"] == 7
    explorer.query = {"sort": "bytes"}
    assert names(explorer)[0] in (W1, "params['w2']")
    say(explorer, op="set_dim", name=W1, dimension=0, axes=["data"])
    explorer.query = {"changed": True}
    assert names(explorer) == [W1]
    assert table(explorer.values["document"]["blocks"], "values-table")["rows"][0]["marked"]


def test_long_lists_are_cut(make_program, plan):
    program = make_program({f"p['{i}']": (64, 64) for i in range(1000)})
    explorer = Explorer(ExplorerState(program, Plan(plan.mesh)))
    assert explorer.values == {}, "nobody looks at it"
    explorer.tab = "values"
    assert len(names(explorer)) == 200 and explorer.values["total"] == 1004
    assert explorer.values["said"] == "showing 200 of 1,004"
    assert len(explorer.inputs["rows"]) == 1001, "no row is left out"
    assert sum(len(json.dumps(getattr(explorer, part))) for part in PARTS) < 250_000


def test_bundles(explorer):
    bundle = explorer._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html", "application/vnd.jupyter.widget-view+json"}
    assert bundle["text/plain"] == repr(explorer) == explorer.summary()
    assert "<script" not in bundle["text/html"] and "step" in bundle["text/html"]
    assert set(explorer._repr_mimebundle_(include=["text/plain"])) == {"text/plain"}
    assert set(explorer._repr_mimebundle_(exclude=["text/html"])) == set(bundle) - {"text/html"}


def test_state_options_are_refused_if_unknown(program, plan):
    with pytest.raises(ShardvizError):
        ExplorerState(program, plan, level="nowhere")
    unknown: dict[str, Any] = {"speed": 1}
    with pytest.raises(TypeError, match="speed"):
        ExplorerState(program, plan, **unknown)


@pytest.mark.parametrize("seed", range(3))
def test_whatever_happens_the_page_shows_what_would_be_built_anew(program, plan, compilers, seed):
    """So no view misses a change that it depends on."""
    explorer, draw = Explorer(ExplorerState(program, plan, debounce=60, target="tpu v5e:2x4")), random.Random(seed)
    state = explorer.state

    def answer(level):
        state.loop.hurry()
        if state.busy:
            plan, job = program.jobs[-1]
            report = replace(getattr(program, level)(plan), target=program.asked[-1][1])
            job.on_report(report) if level == "partitioned" else job.answer(report)

    steps = [
        lambda: state.set_dim("x", draw.randrange(2), draw.choice([[], ["data"], ["model"]])),
        lambda: state.set_dim("result", 0, draw.choice([[], ["data"]]), output=True),
        lambda: state.set_target(draw.choice(["cpu", "v5p", "gpu h100", "v5e"])),
        lambda: state.resize_axis("data", draw.choice([2, 4, 8])),
        lambda: state.add_axis("odd", 3),
        lambda: state.remove_axis("odd"),
        lambda: state.set_order(draw.choice(["row-major", "mesh_utils"])),
        state.undo,
        state.redo,
        state.stop,
        state.recompile,
        lambda: answer("partitioned"),
        lambda: answer("compiled"),
        lambda: state.select(draw.choice(["x", "dot.1", "result"])),
        lambda: explorer.set_trait("selected", draw.choice(["x", "dot.2", ""])),
        lambda: explorer.set_trait(
            "tab", draw.choice(["source", "values", "collectives", "memory", "cost", "machine", "rosetta"])
        ),
        lambda: explorer.set_trait("device", draw.randrange(-1, 4)),
        lambda: explorer.set_trait("query", draw.choice([{}, {"text": "dot"}, {"line": "model.py:3"}])),
        lambda: explorer.set_trait("reading", draw.choice(["", "P('data')"])),
    ]
    for _ in range(60):
        draw.choice(steps)()
        for name, view in VIEWS.items():
            shown = view.build(explorer) if view.tab in ("", explorer.tab) else {}
            assert getattr(explorer, name) == shown, name


def test_the_summary_of_a_mesh_without_axes(explorer):
    assert explorer.state.remove_axis("data") and explorer.state.remove_axis("model")
    assert explorer.summary().startswith("step 1 device\n")


def test_close_ends_the_compile_and_the_background(program, plan, monkeypatch):
    explorer = Explorer(ExplorerState(program, plan))
    ended = []

    def fixes(*_):
        try:
            while True:
                yield None
        finally:
            ended.append("fixes")

    monkeypatch.setattr("shardviz.explorer.background.fixes", fixes)

    async def live():
        explorer.state.try_fixes()
        await asyncio.sleep(0.1)
        assert explorer.state.busy and not ended
        explorer.close()
        assert ended == ["fixes"] and not explorer.state.background.chores
        assert explorer.state.status == "stopped" and all(job.stopped for _, job in program.jobs)
        explorer.close()

    asyncio.run(live())


def test_where_the_last_view_is_closed_nothing_is_tried_unasked(program, plan, monkeypatch):
    explorer = Explorer(ExplorerState(program, plan, level="propagated"))
    begun, ended = [], []

    def fixer(*_):
        begun.append(1)
        try:
            while True:
                yield None
        finally:
            ended.append(1)

    monkeypatch.setattr("shardviz.explorer.background.fixes", fixer)
    monkeypatch.setattr("shardviz.explorer.background._IDLE", 0.0)

    async def live():
        async def counts():
            await asyncio.sleep(0.1)
            return len(begun), len(ended)

        explorer._on_message(explorer, {"seen": True}, [])
        explorer.state.try_fixes()
        assert await counts() == (1, 0)
        explorer._on_message(explorer, {"seen": False}, [])
        assert explorer.state.background.rests and await counts() == (1, 1)
        explorer.state.set_spec("x", None)
        assert await counts() == (1, 1)
        explorer._on_message(explorer, {"seen": True}, [])
        assert not explorer.state.background.rests and await counts() == (2, 1)
        explorer._on_message(explorer, {"seen": False}, [])
        assert await counts() == (2, 2)
        say(explorer, op="set_dim", name="x", dimension=0, axes=["model"])  # from a page that says nothing of itself
        assert await counts() == (3, 2)
        explorer._on_message(explorer, {"seen": False}, [])
        return await counts()

    assert asyncio.run(live()) == (3, 3)
