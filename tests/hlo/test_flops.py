"""FLOPs of matrix products against those that the programs must do."""

import pytest

from shardviz.hlo import dot_flops


def test_train_step(all_compiled):
    """Forward, recomputed forward and twice that for the backward pass, over all layers, on one of eight devices."""
    layers, width, hidden, batch, tokens, vocabulary = 80, 256, 512, 8, 64, 1024
    each = 2 * batch * tokens
    weights = each * (4 * width * width + 3 * width * hidden)
    attention = 2 * each * tokens * width  # scores and their weighted sum
    logits = 3 * each * width * vocabulary
    unused = each * width * hidden  # the layer's last product is not needed again: its result is no residual
    total = layers * (4 * (weights + attention) - unused) + logits
    flops, unknown = dot_flops(all_compiled["llama"].after)
    assert unknown == 0
    assert flops == pytest.approx(total / 8, rel=0.02)


def test_unpartitioned_is_the_mesh_times_one_device(all_compiled):
    """Where the products are cut evenly, every device does its share."""
    for name in ("mlp_float32", "mlp_bfloat16"):
        program = all_compiled[name]
        assert dot_flops(program.before)[0] == 8 * dot_flops(program.after)[0]


@pytest.mark.parametrize(("name", "flops", "unknown"), [
    ("nested", 75 * 2 * 16 * 64 * 64, 0),
    ("while_down", 12 * 2 * 16 * 64 * 64, 0),
    ("while_dynamic", 2 * 16 * 64 * 64, 1),
    ("convolution", 2 * 8 * 32 * 32 * 32 * 16 * 9, 0),
])  # fmt: skip
def test_whole_programs(all_compiled, name, flops, unknown):
    assert dot_flops(all_compiled[name].before) == (flops, unknown)
