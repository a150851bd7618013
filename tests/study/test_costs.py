"""Several plans or machines in one table: the numbers are the costs', the best are the best, and bad rows are named."""

from __future__ import annotations

import dataclasses

import pytest

from shardviz.costs.step_cost import cost_of
from shardviz.errors import MeshError, ShardvizError, TargetError
from shardviz.judge.report import Report
from shardviz.paint.columns import text_width
from shardviz.records import Cost, Memory, Value
from shardviz.records.amounts import format_seconds
from shardviz.study import cost_table
from tests.collectives import collective, held, report_of
from tests.view.sanitizer import words

TARGETS = ("tpu v5p:4x4x4", "tpu v5e:8x8", "gpu h100:8x8")


def report(nbytes: float = 1e8, mesh: str = "data=8,model=8", **more) -> Report:
    gather = collective("all-gather", ("model",), nbytes, 8 * nbytes, 80, dtype="bfloat16", name="all-gather.1")
    w = held("w", "bfloat16", (64,), 1e9)
    memory = Memory(arguments=10**9, outputs=10**9, aliased=10**9, temporaries=4 * 10**9, peak=4 * 10**9)
    given = {"collectives": (gather,), "cost": Cost(dot_flops=1e13), "memory": memory} | more
    return report_of(mesh, (w,), (w,), **given)


def test_rows_are_the_costs_on_each_machine():
    table = cost_table(report(), targets=TARGETS, tokens=1e6, model_flops=5e14)
    assert list(table.costs) == list(TARGETS)
    for target in TARGETS:
        alone = cost_of(report(), target, tokens=1e6, model_flops=5e14)
        assert table.costs[target] == alone
        assert table.value(target, "seconds") == alone.seconds
        assert table.value(target, "bytes") == 80 * 1e8 and table.value(target, "runs") == 80


def test_the_best_of_each_column():
    table = cost_table({"much": report(2e8), "little": report(1e8)}, targets="tpu v5p:4x4x4", model_flops=5e14)
    assert table.best("bytes") == table.best("seconds") == table.best("mfu") == {"little"}
    assert table.best("runs") == table.best("memory") == frozenset()  # the same in both
    for column in ("bytes", "seconds"):
        values = {name: table.value(name, column) for name in table.costs}
        assert all(values[name] == min(values.values()) for name in table.best(column))  # type: ignore[type-var]
    lines = table.text(160).splitlines()
    assert [line.split()[0] for line in lines if "★" in line] == ["little"]
    said = words(table.html())
    assert said.count("★") == said.count("★ ") > 2


def test_levels_are_not_ranked_against_each_other():
    propagated = dataclasses.replace(report(5e7), level="propagated", cost=None)
    table = cost_table([("a", propagated), ("b", report())], targets="tpu v5p:4x4x4")
    assert table.levels == ("propagated", "partitioned")
    assert not any(table.best(column) for column in ("bytes", "seconds", "memory"))
    assert "no best is marked" in " ".join(table.text().split()) and "≥" in table.text(160)
    assert table.value("a", "seconds") is None


@pytest.mark.parametrize("width", [40, 60, 100, 160])
def test_text_keeps_its_width_and_every_number(width):
    table = cost_table(report(), targets=TARGETS, tokens=1e6, model_flops=5e14)
    text = table.text(width)
    assert max(map(text_width, text.splitlines())) <= width
    for cost in table.costs.values():
        assert format_seconds(cost.seconds) in text
    assert text == cost_table(report(), targets=TARGETS, tokens=1e6, model_flops=5e14).text(width)


def test_names_from_outside_are_escaped():
    evil = "<img src=x onerror=alert(1)>"
    html = cost_table({evil: report(), "b": report(2e8)}, targets="tpu v5p:4x4x4").html()
    assert "<img" not in html and evil in words(html)


def test_several_reports_on_several_machines():
    table = cost_table({"a": report(), "b": report(2e8)}, targets=TARGETS[:2])
    assert list(table.costs) == [f"{name} on {target}" for name in "ab" for target in TARGETS[:2]]
    own = cost_of(report(), "gpu h100:8x8")
    assert cost_table([("own", own), ("a", report())], targets="tpu v5e:8x8").costs["own"] is own


def test_bad_rows_are_named():
    with pytest.raises(MeshError, match=r"row 'b': the mesh data=4,model=8 has 32 devices"):
        cost_table({"a": report(), "b": report(mesh="data=4,model=8")}, targets="tpu v5p:4x4x4")
    with pytest.raises(TargetError, match=r"row 'a': .*simulated devices"):
        cost_table({"a": report()})
    with pytest.raises(ShardvizError, match=r"row 'a': expected a Report or a StepCost, not int"):
        cost_table({"a": 3})
    with pytest.raises(ShardvizError, match=r"two rows are called 'tpu v5e:8x8'"):
        cost_table(report(), targets=["tpu v5e:8x8", "v5e:8x8"])
    with pytest.raises(ShardvizError, match=r"nothing to compare"):
        cost_table([])
    with pytest.raises(ShardvizError, match=r"expected a Report, or \(name, Report or StepCost\) pairs"):
        cost_table([report()])  # type: ignore[list-item]
    with pytest.raises(ShardvizError, match=r"there is no column 'speed'; there are bytes, runs"):
        cost_table(report(), targets=TARGETS).best("speed")


def test_the_head_says_what_is_counted():
    labels = Value(name="labels", shape=(64,), dtype="int32", spec=None, shard_shape=(8,), bytes_per_device=32.0)
    ids = dataclasses.replace(labels, name="tokens", shape=(64, 128))
    rows = {v.name: dataclasses.replace(report(), arguments=(v,)) for v in (labels, ids)}
    target = "tpu v5p:4x4x4"
    assert "tokens or samples/s, chip" in cost_table(rows, targets=target).text(200)
    assert "  samples/s, chip" in cost_table({"a": rows["labels"]}, targets=target).text(200)
    assert "or samples" not in cost_table(rows, targets=target, tokens=10).text(200)
    assert "/s, chip" not in cost_table(rows, targets=target, tokens=False).text(200)
