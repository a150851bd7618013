"""Lines of source, wherever the person's file is: every level names the same file as Python does, and the text is there
where it can be read. Where it cannot, reports and explorers show the lines all the same."""

import os

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.view.source import source_pane

SOURCE = """
import jax
import jax.numpy as jnp

def f(x, w):
    with jax.named_scope("café"):
        h = jnp.sin(x)
    return h @ w
"""
ODD = ["josé", "日本", "🙂", "a b", 'a"b', "a'b", "a\\b", "a\\101", "C3\\A9", "a\nb", "a\tb", "a\u2028b", "\x01"]
SHAPE = jax.ShapeDtypeStruct((8, 8), "float32")
SPECS = {"in_specs": (P(None, "a"), P("a"))}


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such names")
@pytest.mark.parametrize("folder", ODD, ids=ascii)
def test_every_level_names_the_file_as_python_does(folder, tmp_path):
    file = tmp_path / folder / "model.py"
    file.parent.mkdir()
    file.write_text(SOURCE, encoding="utf-8")
    space = {}
    exec(compile(SOURCE, str(file), "exec"), space)
    program, plan = sv.trace(space["f"], SHAPE, SHAPE), sv.Plan("a=2", **SPECS)
    for ask in (program.propagate, program.partition, program.compile):
        report = ask(plan)
        rows = [*report.intermediates, *report.collectives]
        assert {row.source.file for row in rows if row.source} == set(report.source) == {str(file)}, report.level
        assert any("caf\u00e9" in row.name_stack for row in rows), report.level
        assert report.source[str(file)][8] == "    return h @ w"
        assert "h @ w" in repr(source_pane(report))


def test_lines_whose_text_is_gone_are_shown_with_what_is_known_of_them():
    space = {"jnp": jnp}
    exec(compile("def f(x, w):\n    return jnp.sin(x) @ w\n", "/gone.py", "exec"), space)
    explorer = sv.explore(space["f"], SHAPE, SHAPE, mesh="a=2", **SPECS)
    assert "f a=2 · 2 devices" in explorer._repr_mimebundle_()["text/plain"]
    pane = repr(source_pane(explorer.report))
    assert "no source text" in pane and "all-reduce" in pane and "gone.py:2" in pane
