"""Shardings of the partitioner's values, against the layouts that they say."""

from shardviz.compiler import values
from shardviz.layouts import layout


def test_values_fit_their_layout(compiled):
    rows = values(compiled.before, compiled.mesh)
    assert len(rows) == len({row.name for row in rows})
    for row in rows:
        assert row.sharding["hlo"].startswith("{")
        assert row.shard_shape is not None
        if row.spec is None:
            assert "manual" in row.sharding["hlo"]
        else:
            where = layout(row.shape, row.spec, compiled.mesh)
            assert row.shard_shape == where.shard_shape
            assert row.bytes_per_device == where.bytes_per_device(row.dtype)


def test_what_is_trivial_is_left_out(compiled):
    by_name = {i.name: i.opcode for _, i in compiled.before}
    opcodes = {by_name[row.name] for row in values(compiled.before, compiled.mesh)}
    assert not opcodes & {"parameter", "constant", "tuple", "get-tuple-element", "bitcast"}


def test_values_of_a_layer_count_every_layer(all_compiled):
    program = all_compiled["llama"]
    rows = values(program.before, program.mesh)
    products = [row for row in rows if row.op == "dot_general" and "jvp()/while" in row.name_stack]
    assert products
    assert {row.count for row in products} == {80}
    assert {row.source.file.rpartition("/")[2] for row in products} == {"programs.py"}
    assert {row.dtype for row in products} == {"bfloat16"}
