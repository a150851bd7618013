"""What the partitioner confirms of the preset that it puts first is what the target's compiler then says."""

import pytest

import shardviz as sv
from tests.programs import MACHINES, programs_on

FIRST = {
    "llama": "tensor parallel",
    "decode": "data + tensor parallel",
    "mlp": "2-D tensor parallel",
    "experts": "data parallel",
    "vit": "data parallel",
    "translator": "data parallel",
    "adapted": "data parallel",
    "graph": "fsdp + tensor parallel",
    "unet": "data parallel",
    "sampler": "data parallel",
    "scanned": "sequence parallel",
}
"""Program → a preset for 64 chips, the quickest by the partitioner's word (of `scanned` the second, 20 % off)."""


@pytest.mark.tpu
@pytest.mark.long
@pytest.mark.parametrize("name", FIRST)
def test_a_partitioned_step_is_within_a_quarter_of_the_compiled_one(name):
    """Eleven kinds of programs; `docs/promised_and_compiled.md` has all presets on three machines."""
    target, mesh = MACHINES[64]
    program = programs_on(64)[name]()
    plan = program.presets(mesh, target=target)[FIRST[name]]
    partitioned, compiled = (
        sv.cost(ask(plan, target), target).step.seconds for ask in (program.partition, program.compile)
    )
    assert partitioned == pytest.approx(compiled, rel=0.25)
