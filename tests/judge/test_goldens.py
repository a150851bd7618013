"""Goldens outlive a JAX upgrade: those here were made with the oldest JAX that we support, and hold with the newest.

`python -m pytest tests/study/test_goldens.py --update-goldens` on the oldest JAX makes them anew. What is not here
differs in meaning: between 0.10 and 0.12 XLA's partitioner came to move the gradient of `llama`'s embedding otherwise,
and JAX came to keep less of `gpt_2021` and `decoder` for their backward passes.
"""

import json
from pathlib import Path

import jax
import pytest

import shardviz as sv
from shardviz.errors import ContractError

GOLDENS = Path(__file__).parent / "goldens"
OLDEST = (0, 11)  # goldens are made below this version of JAX

EXAMPLES = {
    "mlp": sv.gallery.mlp,
    "moe": sv.gallery.moe,
    "ring": sv.gallery.ring,
    "pipeline": sv.gallery.pipeline,
    "llama": lambda: sv.gallery.llama("8b"),
    "gpt_2021": lambda: sv.gallery.gpt_2021(layers=1),
}
LEVELS = [(name, level) for name in EXAMPLES for level in ("propagated", "partitioned")]
TOLERANCE = {"gpt_2021": {"memory": "5%"}}


@pytest.mark.parametrize(("name", "level"), [each for each in LEVELS if each != ("llama", "partitioned")])
def test_a_golden_of_the_oldest_jax_holds(name, level, request, tmp_path):
    update = request.config.getoption("--update-goldens")
    assert not update or jax.__version_info__ < OLDEST, "make them with the oldest JAX"
    example = EXAMPLES[name]()
    ask = example.program.propagate if level == "propagated" else example.program.partition
    report, golden = ask(example.plan), GOLDENS / f"{name}.{level}.json"
    report.check_golden(golden, tolerance=TOLERANCE.get(name), update=update)
    # and it is no golden that everything passes
    if not update:
        other = json.loads(golden.read_text())
        other["collectives"][0]["kind"] = (
            "all-to-all" if other["collectives"][0]["kind"] != "all-to-all" else "all-gather"
        )
        changed = tmp_path / golden.name
        changed.write_text(json.dumps(other))
        with pytest.raises(ContractError, match="vanished"):
            report.check_golden(changed, tolerance={"memory": "5%"})
