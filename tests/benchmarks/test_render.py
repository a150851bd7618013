"""What a shard map costs, and the bounds that it must keep."""

from __future__ import annotations

import pytest

from shardviz.layout import layout
from shardviz.render import report_html, report_text, shard_map_html, shard_map_text
from tests.render.sample import report

CASES = {
    "8 devices": ((8192, 4096), ("data", "model"), "data=4,model=2", 0.003),
    "64 devices": ((8192, 4096), ("data", "model"), "data=8,model=8", 0.020),
    "512 devices": ((8192, 4096), ("data", "model"), "data=32,model=16", 0.020),
    "2048 devices": ((8192, 4096), ("data", "model"), "data=64,model=32", 0.020),
    "2048 devices in panels": ((16, 16, 16), ("a", "b", "c"), "a=8,b=16,c=16", 0.020),
    "2048 devices in a line": ((8192,), (("data", "model"),), "data=64,model=32", 0.020),
    "2048 devices, copies": ((8192, 4096), ("model", None), "data=64,model=32", 0.020),
}


@pytest.mark.parametrize(("shape", "spec", "mesh", "seconds"), CASES.values(), ids=list(CASES))
def test_html_shard_map(benchmark, shape, spec, mesh, seconds):
    html = benchmark(lambda: shard_map_html(layout(shape, spec, mesh)))
    assert len(html) <= 150_000
    assert benchmark.stats.stats.median <= seconds


def test_text_shard_map_of_2048_devices(benchmark):
    benchmark(lambda: shard_map_text(layout(*CASES["2048 devices"][:3])))
    assert benchmark.stats.stats.median <= 0.020


@pytest.mark.parametrize("paint", [report_text, report_html])
def test_report(benchmark, paint):
    benchmark(paint, report())
