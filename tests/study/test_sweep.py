"""Sweeps: a row a point, failures among them; the front is a front; any executor gives the same."""

import dataclasses
import os
import signal
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.errors import ShardvizError
from shardviz.study.sweep import Sweep, SweepRow
from shardviz.study.workers import Workers
from tests.view.sample import report as sample

MESH = {"data": 8, "model": 8}
TARGET = "tpu v5p:4x4x4"


def step(w, x):
    return jnp.sum(jnp.tanh(x @ w) ** 2)


def make(batch, width=1024):
    if batch == 13:
        raise RuntimeError("an unlucky number")
    args = [jax.ShapeDtypeStruct(shape, "bfloat16") for shape in ((width, width), (batch, width))]
    return jax.value_and_grad(step), args, {"in_specs": (P(None, "model"), P("data"))}


OVER = {"batch": [64, 12, 13, 256], "width": [1024, 2048]}


def swept(**more):
    return sv.sweep(make, OVER, mesh=MESH, target=TARGET, progress=False, **more)


def test_every_point_is_a_row_and_failures_too():
    found = swept()
    assert [dict(r.point) for r in found.rows] == [
        {"batch": b, "width": w} for b in OVER["batch"] for w in OVER["width"]
    ]
    assert [r.label for r in found.failed] == [f"batch={b}, width={w}" for b in (12, 13) for w in (1024, 2048)]
    assert "not divisible" in found.row(batch=12, width=1024).trouble
    assert found.row(batch=13, width=1024).trouble == "RuntimeError: an unlucky number"
    alone = sv.trace(*make(64)[:1], *make(64)[1])
    report = alone.propagate(alone.plan(MESH, (P(None, "model"), P("data"))))
    row = found.row(batch=64, width=1024)
    assert row.report.collectives == report.collectives and row.time == sv.cost(report, TARGET).seconds
    text = found.text()
    assert "an unlucky number" in text and text.count("★") == 1


rows = st.builds(
    lambda seconds, memory, fits: (seconds, memory, fits),
    *(st.integers(1, 9), st.integers(1, 9), st.sampled_from([True, False, None])),
)


class Cost:
    """As much of a `StepCost` as a front needs."""

    def __init__(self, seconds, memory, fits):
        self.seconds, self.tokens_per_s = seconds, None
        self.needs = type("Needs", (), {"total": memory, "fits": fits})()


@given(st.lists(rows, max_size=8))
def test_the_front_is_what_nothing_beats(numbers):
    made = tuple(SweepRow(point={"n": n}, report=sample(), cost=Cost(*row)) for n, row in enumerate(numbers))
    found = Sweep(over={"n": tuple(range(len(made)))}, level="propagated", rows=made)
    may = [r for r in made if r.fits is not False]

    def beaten(r):
        return any(
            (o.time <= r.time and o.memory <= r.memory) and (o.time, o.memory) != (r.time, r.memory) for o in may
        )

    best = {(r.time, r.memory) for r in may if not beaten(r)}
    assert {(r.time, r.memory) for r in found.pareto} == best and len(found.pareto) == len(best)
    if may:
        assert found.best is not None and found.best.time == min(r.time for r in may)


def test_any_executor_gives_the_same():
    here = swept()
    with ThreadPoolExecutor(2) as threads:
        assert without_seconds(swept(executor=threads)) == without_seconds(here)

    class Client:
        def get_executor(self):
            return ThreadPoolExecutor(1)

    assert without_seconds(swept(executor=Client())) == without_seconds(here)
    with pytest.raises(ShardvizError, match="executor=int"):
        swept(executor=3)


def without_seconds(found):
    plain = lambda r: dataclasses.replace(r.report, timings={}, stages={}) if r.report else None
    return [(dict(r.point), plain(r), r.trouble) for r in found.rows]


@pytest.mark.long
def test_a_process_that_dies_takes_no_point_along(tmp_path):
    def deadly(batch, often):
        if batch == 64 and (often or not (tmp_path / "died").exists()):
            (tmp_path / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return make(batch)

    over = {"batch": [64, 128], "often": [False, True]}
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:  # which does nothing more once one has died
        found = sv.sweep(deadly, over, mesh=MESH, target=TARGET, executor=pool, progress=False)
    assert len(found.rows) == 4 and not found.left
    assert [r.label for r in found.failed] == ["batch=64, often=True"] and "SIGKILL" in found.failed[0].trouble


def test_a_point_that_exits_is_a_row_here_and_in_a_worker():
    def exits(batch):
        sys.exit(0) if batch == 1 else None
        return make(batch)

    with Workers(1) as own:
        for executor in (None, own):
            found = sv.sweep(
                exits, over={"batch": [1, 64]}, mesh=MESH, target=TARGET, executor=executor, progress=False
            )
            assert [row.trouble for row in found.rows] == ["SystemExit: 0", ""], executor


def test_an_interrupt_keeps_what_is_there_and_a_sweep_goes_on():
    asked = []

    def slow(batch):
        asked.append(batch)
        if len(asked) == 2:
            raise KeyboardInterrupt
        return make(batch)

    found = sv.sweep(slow, {"batch": [64, 128, 256]}, mesh=MESH, progress=False)
    assert (
        [r.point["batch"] for r in found.rows] == [64] and found.left == 2 and "2 points not evaluated" in found.text()
    )
    on = sv.sweep(slow, {"batch": [64, 128, 256]}, mesh=MESH, progress=False, previous=found)
    assert [r.point["batch"] for r in on.rows] == [64, 128, 256] and asked == [64, 128, 128, 256]
    assert on.rows[0] is found.rows[0] and not on.left


def test_meshes_and_machines_are_points_too():
    found = sv.sweep(
        lambda: make(64),
        {"mesh": [{"data": 8, "model": 8}, {"data": 4, "model": 4}], "target": ["tpu v5p:4x4x4", "tpu v5e:4x4"]},
        progress=False,
    )
    assert [r.cost is not None for r in found.rows] == [True, False, False, True]
    assert all("devices" in r.trouble for r in (found.rows[1], found.rows[2]))
    assert "data=4,model=4" in found.text()


def test_what_cannot_be_swept_is_refused():
    with pytest.raises(ShardvizError, match="give names"):
        sv.sweep(make, {}, mesh=MESH)
    with pytest.raises(ShardvizError, match="level is"):
        swept(level="notation")
    found = sv.sweep(lambda n: n, {"n": [1]}, progress=False)
    assert "expected a program" in found.rows[0].trouble


def test_what_was_answered_is_kept_only_for_the_same_question():
    def of(functions, previous=None, target=TARGET):
        return sv.sweep(
            lambda act: (lambda x: act(x).sum(), (jax.ShapeDtypeStruct((64,), "float32"),), {"in_specs": P("data")}),
            {"act": functions}, mesh=MESH, target=target, previous=previous, progress=False,
        )  # fmt: skip

    ones, others = [lambda x: x], [lambda x: jnp.tanh(x @ x) * x]  # two functions, both called <lambda>
    first = of(ones)
    assert of(ones, first).rows[0].report is first.rows[0].report
    assert of(others, first).rows[0].report is not first.rows[0].report
    with pytest.raises(ShardvizError, match=r"expected a sweep with .*, not with .*v5p:4x4x4"):
        of(ones, first, target="tpu v5p:8x8x8")
