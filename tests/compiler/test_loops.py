"""Trip counts: found from the loop's arithmetic, against those that XLA's optimiser writes down."""

import re

import pytest

from shardviz.compiler import graph_of, parse
from shardviz.graph import runs, trip_count

TRIPS = {
    "llama": [80, 80], "nested": [3, 5, 5], "while_down": [12], "while_dynamic": [None], "reverse_unrolled": [3],
    "shard_map_grad": [5, 5],
}  # fmt: skip


def trips(module):
    """Of each loop, in the text's order."""
    graph = graph_of(module)
    found = {loop.native.name: trip_count(loop) for loop in graph.operations if loop.kind == "while"}
    return [found[i.name] for _, i in module if i.opcode == "while"]


def runs_of(module):
    return {block.name: run for block, run in runs(graph_of(module)).items()}


@pytest.mark.parametrize("name", TRIPS)
def test_trip_counts(all_compiled, name):
    for module in (all_compiled[name].before, all_compiled[name].after):
        assert trips(module) == TRIPS[name]


def test_known_trip_counts_are_derived_too(compiled):
    module, text = compiled.optimized, compiled.text("optimized")
    known = [int(n) for n in re.findall(r'"known_trip_count":\{"n":"(\d+)"\}', text)]
    assert [n for n in trips(module) if n is not None] == known
    stripped = parse(re.sub(r'"known_trip_count":\{"n":"\d+"\},?', "", text))
    assert all(derived is None or derived in known for derived in trips(stripped))


def test_nested_loops_multiply(all_compiled):
    module = all_compiled["nested"].after
    found = runs_of(module)
    bodies = {found[c.name].times: i for c, i in module if i.opcode == "dot"}
    assert list(bodies) == [75]
    assert found[module.entry.name].count == 1


def test_an_unknown_loop_is_said_to_be_unknown(all_compiled):
    module = all_compiled["while_dynamic"].after
    (loop,) = (op for op in graph_of(module).operations if op.kind == "while")
    body = runs(graph_of(module))[loop.blocks[1]]
    assert (body.count, body.times, body.unknown_loops) == (None, 1, 1)


def test_branches_are_conditional(all_compiled):
    module = all_compiled["cond"].after
    conditional = {name for name, run in runs_of(module).items() if run.conditional}
    assert len(conditional) == 2
    assert module.entry.name not in conditional
