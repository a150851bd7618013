"""How long it takes to read the partitioner's text of an 80-layer scanned train step."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from shardviz.compiler import parse
from shardviz.notation import DeviceMesh

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
