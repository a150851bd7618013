"""Why the gallery's pipeline and flax decoder move what they move: each collective has an answer, and a right one."""

import pytest

from shardviz import gallery


def test_what_a_pipeline_moves_its_author_has_written():
    example = gallery.pipeline(layers=8, microbatches=4, batch=256, mesh={"stage": 4, "data": 2})
    report = example.program.propagate(example.plan)
    assert {c.axes for c in report.collectives} == {("stage",), ("data",)}
    for collective in report.collectives:
        text = example.program.why(example.plan, collective).text()
        assert f"the program itself says {collective.kind} there, inside a shard_map" in text


def test_a_decoder_gathers_a_kernel_for_the_batch_takes_its_axis():
    pytest.importorskip("flax")
    example = gallery.decoder(layers=1, batch=8, length=128)
    program, plan = example.program, example.plan
    report = program.propagate(plan)
    kernel = "model.blocks[0].attention.query.kernel"
    gathers = [c for c in report.collectives if (c.kind, c.axes, c.phase) == ("all-gather", ("data",), "forward")]
    answers = [program.why(plan, c) for c in gathers[:3]]
    (why,) = [a for a in answers if kernel in {s.source.name for s in a.causes}]
    assert "takes a part of" in why.text()
    assert "data is taken by dimension 0" in why.text()
    scores = program.why(plan, "scores", axis="data")
    assert {c.source.role for c in scores.causes} == {"constraint"}  # what holds the activations cut by the batch
    assert all(c.source.source.file.endswith("flax_decoder.py") for c in scores.causes)
