"""Why the gallery's flax decoder moves what it moves."""

import pytest

from shardviz import gallery


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
