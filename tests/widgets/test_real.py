"""The explorer on a real program: traced, propagated, partitioned and compiled."""

from __future__ import annotations

import pytest

from shardviz.errors import ShardvizError, TraceError
from shardviz.gallery import mlp
from shardviz.program.plan import Plan
from shardviz.widgets import explore

W = "params[0]['w']"


@pytest.fixture(scope="module")
def example():
    return mlp((64, 128, 32), batch=64)


@pytest.fixture
def explorer(example):
    return explore(
        example.fn,
        *example.args,
        mesh={"data": 2, "model": 2},
        in_specs=example.in_specs,
        out_specs=example.out_specs,
        **example.options,
    )


def test_one_edit_through_all_levels(explorer):
    assert explorer.report.level == "propagated"
    assert explorer.wait("partitioned", timeout=60).level in ("partitioned", "compiled")
    assert explorer.wait(timeout=60).memory is not None
    before = [(c.kind, c.axes) for c in explorer.report.collectives]
    assert explorer.state.set_dim(W, 0, [])
    assert explorer.report.level == "propagated" and explorer.report.value(W).shape == (64, 128)
    assert explorer.wait(timeout=60).level == "compiled"
    assert explorer.collectives["total"] == len(explorer.report.collectives)
    assert explorer.state.undo()
    explorer.wait(timeout=60)
    assert [(c.kind, c.axes) for c in explorer.report.collectives] == before


def test_the_code_rebuilds_the_plan(explorer):
    explorer.state.set_dim(W, 0, [])
    names: dict[str, object] = {}
    exec(explorer.code(), names)
    bind = explorer.program.bind
    rebuilt = [bind(value) for value in names.values() if isinstance(value, Plan)]
    assert [(b.mesh, b.in_specs, b.out_specs) for b in rebuilt] == [
        (b.mesh, b.in_specs, b.out_specs) for b in [bind(explorer.plan)]
    ]


def test_mesh_edits(explorer):
    assert explorer.state.rename_axis("model", "tp") and explorer.state.resize_axis("tp", 4)
    assert explorer.state.add_axis("pipe", 2) and explorer.state.remove_axis("data")
    assert explorer.report.mesh.shape == {"tp": 4, "pipe": 2}
    assert not explorer.state.resize_axis("tp", 7)
    assert explorer.state.error["argument"].startswith("params[0]") and explorer.state.error["place"] == "mesh"
    assert explorer.wait(timeout=60).mesh.size == 8


def test_stop_and_again(explorer):
    explorer.stop()
    assert explorer.state.status in ("stopped", "compiled")
    explorer.state.recompile()
    assert explorer.wait(timeout=60).level == "compiled"


def test_a_traced_program_is_taken_as_it_is(explorer, example):
    again = explore(explorer.program, plan=explorer.plan, level="propagated")
    assert again.program is explorer.program and again.report.level == "propagated"
    with pytest.raises(TraceError, match="traced already"):
        explore(explorer.program, *example.args, plan=explorer.plan)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "needs a mesh"),
        ({"mesh": {"data": 2}, "plan": object()}, "not both"),
    ],
)
def test_calls_that_cannot_be(explorer, options, words):
    with pytest.raises(ShardvizError, match=words):
        explore(explorer.program, **options)
