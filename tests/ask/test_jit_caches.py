"""What the person has compiled stays compiled: no question asked of shardviz makes JAX trace their functions again."""

import json

from tests.truth import answers_of

SCRIPT = """
import json
import jax, jax.numpy as jnp
from jax.sharding import PartitionSpec as P

traces = []

@jax.jit
def theirs(x):
    traces.append(1)
    return jnp.sin(x) * 2

def f(x, w):
    h = jnp.sin(x)
    return (h @ w).sum()

counts = {}
def ask(name, question):
    answer = question()
    theirs(1.0)
    counts[name] = len(traces)
    return answer

S = jax.ShapeDtypeStruct((8, 8), "float32")
ask("before", lambda: None)
sv = ask("import", lambda: __import__("shardviz"))
program = ask("trace", lambda: sv.trace(f, S, S))
plan = sv.Plan("a=2", in_specs=(P(None, "a"), P("a")))
ask("propagate", lambda: program.propagate(plan))
ask("for a TPU", lambda: program.propagate(sv.Plan("a=4"), target="tpu v5e:2x2"))
ask("dimensions", lambda: program.dimensions)
ask("constrain", lambda: program.propagate(plan.constrain("h", P("a"))))
ask("why", lambda: program.why(plan, "h"))
gradient = ask("grad", lambda: sv.trace(jax.grad(f), S, S))
ask("checkpoint", lambda: gradient.propagate(plan.with_variant(checkpoint="dots_saveable")))
ask("partition", lambda: program.partition(plan))
print(json.dumps(counts))
"""


def test_what_a_person_has_compiled_stays_compiled(tmp_path):
    (script := tmp_path / "asks.py").write_text(SCRIPT)
    counts = json.loads(answers_of(script).splitlines()[-1])
    assert set(counts.values()) == {1}, counts
