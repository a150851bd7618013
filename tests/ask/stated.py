"""What a target's compiler states of programs when it has compiled them to the end: `memory_analysis()` and FLOPs.

python stated.py requests      the answers to a pickled list of compile requests, as JSON
"""

import json
import os
import pickle
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from shardviz.ask.submitting import request_of
from shardviz.processes import job
from tests.truth import answers_of


def stated(*asked):
    """For each program, plan and target: the sizes in memory, and with `flops` what the cost analysis counts."""
    requests = [request_of(program._reading(plan, "compiled", target), "compiled") for program, plan, target in asked]
    with tempfile.NamedTemporaryFile() as file:
        file.write(pickle.dumps(requests))
        file.flush()
        return json.loads(answers_of(__file__, file.name).splitlines()[-1])


def answer(request):
    executable = job._compile_for(request.topology, request, dict(request.options))
    stats = executable.get_compiled_memory_stats()
    sizes = {
        name: getattr(stats, name) for name in dir(stats) if name.endswith("_in_bytes") or name.startswith("total")
    }
    return sizes | ({"flops": executable.cost_analysis().get("flops")} if request.topology.platform == "tpu" else {})


if __name__ == "__main__":
    os.environ |= {**job.TPU_ENVIRONMENT, "JAX_PLATFORMS": "cpu", "TPU_LOG_DIR": "disabled"}
    print(json.dumps([answer(request) for request in pickle.loads(Path(sys.argv[1]).read_bytes())]))
