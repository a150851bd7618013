"""What a step spends its time on adds up, what it would lose is walked again, and so is what differs from a plan."""

import dataclasses

import pytest

import shardviz as sv
from shardviz.costs.spending import spendings
from shardviz.costs.step_cost import cost_of
from shardviz.notation import DeviceMesh
from shardviz.records import Collectives, Cost, Frame, Work
from shardviz.records.schedule import Scheduled
from tests.collectives import collective, report_of
from tests.costs.events import simulated

TARGET = "tpu v5p:2x2x2"


@pytest.fixture(scope="module")
def costs():
    program = sv.gallery.mlp(mesh="data=4,model=2").program
    plans = program.presets("data=4,model=2")
    return {name: cost_of(program.propagate(plan), TARGET) for name, plan in plans.items()}


def moved(found):
    return [s for s in found if s.what == "collective"]


def test_what_moves_adds_up_to_the_communication(costs):
    for cost in costs.values():
        found = spendings(cost)
        assert sum(s.seconds for s in moved(found)) == pytest.approx(cost.step.communication)
        (compute,) = [s for s in found if s.what == "compute"]
        assert compute.seconds == pytest.approx(cost.step.compute)
        assert sum(compute.lines.values()) == pytest.approx(cost.step.compute)
        lost = [s.weight for s in found]
        assert lost == sorted(lost, reverse=True), "what the step would lose most of first"


def test_the_differences_add_up_to_that_of_the_communication(costs):
    for one in costs.values():
        for other in costs.values():
            found = spendings(one, other)
            more = sum(s.difference for s in moved(found))
            least = 0.002 * one.seconds * len(moved(spendings(other)))  # what is next to nothing is left out
            assert more == pytest.approx(one.step.communication - other.step.communication, abs=least)
            weights = [s.weight_before if s.gone else s.weight for s in found]
            assert weights == sorted(weights, reverse=True)


def test_against_itself_nothing_is_dearer(costs):
    for cost in costs.values():
        assert [s.difference for s in spendings(cost, cost)] == [0.0] * len(spendings(cost))


def instant(tasks, names):
    """Tasks among which these collectives take no time."""
    for task in tasks:
        if task.kind == "loop":
            yield dataclasses.replace(task, body=tuple(instant(task.body, names)))
        else:
            yield dataclasses.replace(task, seconds=0.0) if task.name in names else task


@pytest.mark.parametrize("target", ["tpu v5e:2x4", "gpu h100:1x8"])
def test_what_a_step_would_lose_is_what_a_simulation_by_events_loses(costs, target):
    """With collectives that take no time: what is hidden is no loss."""
    known = hidden = 0
    for cost in costs.values():
        cost = cost_of(cost.report, target)
        tasks = cost.timed.tasks
        for spent in moved(spendings(cost)):
            if spent.loss is None:
                continue
            names = {c.name for c in spent.collectives}
            shorter = simulated(list(tasks))[0] - simulated(list(instant(tasks, names)))[0]
            assert spent.loss.lost == pytest.approx(shorter, abs=1e-9 * cost.seconds)
            assert 0 <= spent.loss.lost <= spent.loss.busy * (1 + 1e-9)
            assert spent.loss.hidden == pytest.approx(spent.loss.busy - spent.loss.lost, abs=1e-9 * cost.seconds)
            known, hidden = known + 1, hidden + (spent.loss.hidden > 0.1 * spent.loss.busy)
    assert known > 3 and hidden, "something is hidden, or this tests nothing"


def test_hidden_communication_sinks():
    """A gather beside a product that is longer takes more time than a sum that is waited for, and stands behind it."""
    mesh, at = DeviceMesh(("data", "model"), (4, 4)), [Frame("/src/model.py", line) for line in range(3)]
    gather = collective("all-gather", ("data",), 1e8, 4e8, 1, name="g", source=at[1])
    total = collective("all-reduce", ("model",), 1e7, 1e7, 1, name="r", source=at[2])
    schedule = (
        Scheduled(kind="begin", name="g", collective="g", source=at[1]),
        Scheduled(kind="work", name="dot", flops={"bfloat16": 2e13}, source=at[0]),
        Scheduled(kind="end", name="g"),
        Scheduled(kind="begin", name="r", collective="r", source=at[2]),
        Scheduled(kind="end", name="r"),
    )
    work = (Work(phase="forward", source=at[0], module="", dtype="bfloat16", dot_flops=2e13),)
    facts = {"collectives": Collectives((gather, total)), "cost": Cost(dot_flops=2e13, work=work)}
    report = report_of(mesh, level="propagated", schedule=schedule, **facts)
    cost = cost_of(report, "tpu v5e:4x4")
    compute, first, second = spendings(cost)
    assert (compute.what, first.kind, second.kind) == ("compute", "all-reduce", "all-gather")
    assert first.seconds < second.seconds
    assert first.loss.lost == pytest.approx(first.seconds) and first.loss.hidden == pytest.approx(0, abs=1e-12)
    assert second.loss.lost == 0 and second.loss.hidden == second.loss.busy == pytest.approx(second.seconds)
    none = dataclasses.replace(report, schedule=())
    assert [s.loss for s in spendings(cost_of(none, "tpu v5e:4x4"))] == [None] * 3, "nobody knows without a schedule"


@pytest.mark.tpu
def test_of_a_compilers_schedule_what_stands_for_several_is_shared_out():
    """What the target runs for a row: its part of the seconds of what the compiler made of several."""
    example = sv.gallery.mlp(mesh="data=4,model=2")
    report = example.program.compile(example.plan, TARGET)
    cost = cost_of(report, TARGET)
    rows = moved(spendings(cost))
    busy = sum(s.loss.busy for s in rows if s.loss is not None)
    named = {t.collective.name for t in report.target_collectives if t.stands_for}
    run = sum(c.total_seconds or 0.0 for c in cost.collectives if c.name in named)
    assert cost.as_run and busy == pytest.approx(run, abs=0.002 * cost.seconds * len(rows))
