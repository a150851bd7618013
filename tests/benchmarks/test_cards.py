"""Switching plans: what was answered once is there again, at a fraction of what Shardy takes for the same plan."""

from __future__ import annotations

import json

import pytest

import shardviz as sv
from shardviz.explorer.explorer import ExplorerState
from shardviz.page.explorer import Explorer
from tests.benchmarks.timing import seconds

WK = "params['layers']['wk']"
MOST_SENT = 60_000  # bytes from the kernel to the page for one edit


@pytest.fixture(scope="module")
def explorer():
    example = sv.gallery.llama("70b", mesh="data=8,model=8")
    return Explorer(ExplorerState(example.program, example.plan, level="propagated", target="tpu v5p:4x4x4"))


def test_a_card_is_switched_in_less_than_shardy_takes(benchmark, explorer):
    state = explorer.state
    assert state.move_axis(WK, "model", 3)
    other, new = iter(["baseline", "draft"] * 40), iter(range(40))

    def switch():
        assert state.open_card(next(other)) and state.error is None

    def edit():  # always a plan that nobody has seen
        n = next(new)
        assert state.set_dim("tokens", 0, ["data", ("model", 1, 2)] if n % 2 else ["data"], twins=False)
        assert state.set_dim("params['emb']", 1, [] if n % 3 else ["data"])

    switched = seconds(switch, 11)
    propagated = seconds(edit)
    benchmark.extra_info["switch / an edit"] = switched / propagated
    benchmark.extra_info["switch, ms"] = 1e3 * switched
    benchmark.pedantic(switch, rounds=5)
    assert switched < propagated


def test_an_edit_sends_what_changed(benchmark, explorer, monkeypatch):
    sent = []

    def send(self, key=None):
        names = [key] if isinstance(key, str) else sorted(key or ())
        sent.append(sum(len(json.dumps(getattr(self, name))) for name in names))

    monkeypatch.setattr(Explorer, "send_state", send)
    sizes = []
    for axes in (["model"], [], ["model"]):
        sent.clear()
        assert explorer.state.set_dim("params['layers']['wv']", 2, axes)
        sizes.append(sum(sent))
    benchmark.extra_info["bytes, most"] = max(sizes)
    benchmark.pedantic(lambda: explorer.state.undo(), rounds=3)
    assert max(sizes) <= MOST_SENT
