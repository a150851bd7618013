"""The Llama 3 engine of jax-llm-examples, run dry with four lengths of prompts; ends with 0 if the parts of the budget
are the memory plans of the compiler. Arguments: the folder `llama3` of a clone, and a target."""

from __future__ import annotations

import os
import sys

os.environ["JAX_PLATFORMS"] = "cpu"
sys.path.insert(0, sys.argv[1])

import jax
import numpy as np
from jax.sharding import AxisType
from llama3_jax import model as llama

import shardviz as sv

LENGTHS = 64, 128, 256, 512


def main(target: str) -> None:
    with sv.dry_run(target, small=0) as run:
        mesh = jax.make_mesh((1, 4, 2), ("x", "y", "z"), axis_types=(AxisType.Explicit,) * 3)
        config = llama.Config(
            embed=1024,
            ffw_size=4096,
            q_heads=16,
            kv_heads=8,
            num_layers=4,
            head_dim=128,
            vocab_size=32768,
            max_seq_len=1024,
            causal=True,
            use_prefill_attn_kernel=False,
            use_decode_attn_kernel=False,
            mesh=mesh,
        )
        with jax.sharding.set_mesh(mesh):
            weights = llama.Weights.init(jax.random.key(0), config)
            for length in LENGTHS:
                cache = llama.KVCache.init(jax.random.key(1), config, 4)
                tokens, _, cache = llama.prefill(np.ones((4, length), np.int32), weights, cache, config)
                llama.decode_step(tokens[:, :1], weights, cache, config)
    steps = [n for n, step in enumerate(run) if step.record.name in ("forward", "decode_step")]
    together = run.together(*steps)
    budget = together.memory("cache", level="compiled")
    assert len(budget.programs) == len(LENGTHS) + 1
    for each in budget.programs:
        side = together[each.program]
        plan = side.program.compile(side.plan, target).memory
        assert each.own == plan.takes, (each.program, each.own, plan.takes)
        assert each.held + each.batch + each.padding == plan.arguments
        assert each.temporaries == plan.temporaries
    assert budget.most.total == max(each.total for each in budget.programs)
    assert {each.kind for each in budget.held} == {"weights", "cache"} and budget.cache.most > 4
    print(budget.text())


if __name__ == "__main__":
    main(sys.argv[2])
