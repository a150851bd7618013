"""What XLA's own HloCostAnalysis says of the texts of modules: `python cost_truth.py FILE ...` prints it as JSON.

For each file FLOPs and bytes, each loop's body counted once; and what it takes an element of a tuple for.
"""

import json
import os
import sys
from pathlib import Path

os.environ["JAX_PLATFORMS"] = "cpu"

import jax
from jaxlib import _hlo, _jax

PAIR = """HloModule pair

ENTRY %main (a: f32[]) -> (f32[], f32[]) {
  %a = f32[] parameter(0)
  ROOT %pair = (f32[], f32[]) tuple(%a, %a)
}
"""


def counted(text):
    cost = _jax.hlo_module_cost_analysis(jax.devices()[0].client, _hlo.hlo_module_from_text(text))
    return {"flops": cost.get("flops", 0.0), "bytes": cost["bytes accessed"]}


if __name__ == "__main__":
    facts = {file: counted(Path(file).read_text()) for file in sys.argv[1:]}
    print(json.dumps({"files": facts, "pointer": counted(PAIR)["bytes"] / 2}))
