"""How long it takes to read the partitioner's text of an 80-layer scanned train step, and groups of 4096 devices."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from shardviz.compiler import collectives, count_bytes, count_flops, parse, values
from shardviz.notation import DeviceMesh
from shardviz.notation.groups import axes_of, parse_groups
from shardviz.notation.hlo import read_spec

MESH = DeviceMesh.of({"data": 2, "model": 4})


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hlo")
    script = Path(__file__).parents[1] / "compiler" / "programs.py"
    environment = {key: value for key, value in os.environ.items() if key not in ("XLA_FLAGS", "JAX_PLATFORMS")}
    subprocess.run(
        [sys.executable, str(script), str(folder), "llama"], env=environment, capture_output=True, check=True
    )
    walked = json.loads((folder / "facts.json").read_text())["llama"]["walked"]
    return {stage: Path(walked[stage]["file"]).read_text() for stage in ("before", "after", "optimized")}


def test_parse(benchmark, texts):
    module = benchmark(parse, texts["after"])
    assert sum(1 for _ in module) > 500
    assert benchmark.stats is None or benchmark.stats.stats.median < 0.015


def test_parse_and_collectives(benchmark, texts):
    def read():
        return collectives(parse(texts["after"]), MESH, parse(texts["before"]))

    assert len(benchmark(read)) > 30


def test_values(benchmark, texts):
    rows = benchmark(lambda: values(parse(texts["before"]), MESH))
    assert len(rows) > 200


def test_flops(benchmark, texts):
    assert benchmark(lambda: count_flops(parse(texts["after"]))).dot_flops > 1e9


def test_bytes(benchmark, texts):
    assert benchmark(lambda: count_bytes(parse(texts["optimized"]))).bytes > 1e9


LARGE = DeviceMesh.of({"a": 16, "b": 16, "c": 16})


@pytest.mark.parametrize("text", ["[256,16]<=[16,16,16]T(0,2,1)", "mesh['a'=16,'b'=16,'c'=16] {'b'}"])
def test_groups_of_4096_devices(benchmark, text):
    def read():
        parse_groups.cache_clear()
        return axes_of(parse_groups(text, 4096), LARGE)

    assert benchmark(read) == ("b",)


def test_sharding_of_4096_devices(benchmark):
    def read():
        read_spec.cache_clear()
        return read_spec("{devices=[16,256]<=[16,256]T(1,0)}", LARGE, 2)

    assert len(benchmark(read).dims) == 2
