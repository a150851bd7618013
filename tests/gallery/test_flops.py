"""FLOPs of the gallery's models: what the partitioned programs do, and what arithmetic on paper says that they do."""

import importlib
import math

import jax
import pytest

import shardviz as sv
from shardviz.compiler import count_flops, parse

pytestmark = pytest.mark.long


def dot_flops(module):
    """FLOPs of all products, and how many loops' trip counts are not known."""
    counted = count_flops(module)
    return counted.dot_flops, counted.unknown_loops


LOOPED = {
    "llama": lambda **how: sv.gallery.llama("8b", batch=8, length=128, layers=3, mesh="data=2,model=4", **how),
    "ring": lambda: sv.gallery.ring(mesh={"data": 2, "seq": 4}, length=1024, heads=4),
    "pipeline": lambda: sv.gallery.pipeline(
        mesh={"data": 2, "stage": 4}, layers=8, microbatches=4, batch=256, d_model=64, d_ff=256
    ),
}
STRAIGHT = {
    "mlp": lambda: sv.gallery.mlp(),
    "moe": lambda: sv.gallery.moe(mesh={"data": 2, "expert": 4}, tokens=1024, experts=16, d_model=128, d_ff=256),
    "moe, more places than experts": lambda: sv.gallery.moe(
        mesh={"data": 2, "expert": 4}, tokens=2048, experts=8, d_model=128, d_ff=256
    ),
    "gpt_2021": lambda: sv.gallery.gpt_2021(layers=2, batch=8, length=64, vocabulary=1024),
    "decoder": lambda: sv.gallery.decoder(layers=2, batch=8, length=128),
    "resnet": lambda: sv.gallery.resnet(14, batch=2, size=64),
    "resnet, odd sizes": lambda: sv.gallery.resnet(14, batch=1, size=75, classes=10),
}
MODELS = {
    **STRAIGHT,
    **LOOPED,
    "llama, unrolled": lambda: LOOPED["llama"](unroll=True),
    "llama 70b": lambda: sv.gallery.llama("70b"),
    "llama 70b on 512": lambda: sv.gallery.llama("70b", mesh="data=64,model=8"),
    "llama 70b, 2 layers, unrolled": lambda: sv.gallery.llama("70b", layers=2, unroll=True),
}


def made(make):
    """The example, or a skip where it needs flax and there is none."""
    if make is STRAIGHT["decoder"]:
        pytest.importorskip("flax")
    return make()


def flops_of(report):
    """FLOPs of all devices together."""
    assert report.cost.unknown_loops == 0
    return report.cost.dot_flops * report.mesh.size


@pytest.mark.parametrize("name", MODELS)
def test_a_step_does_what_paper_says(name):
    example = made(MODELS[name])
    assert flops_of(example.program.partition(example.plan)) == pytest.approx(example.flops, rel=1e-9)


def test_what_is_unrolled_has_no_loop_and_costs_the_same():
    looped, unrolled = (
        example.program.partition(example.plan) for example in (LOOPED["llama"](), LOOPED["llama"](unroll=True))
    )
    loops = [" while(" in report.stages["partitioned"] for report in (looped, unrolled)]
    assert loops == [True, False]
    assert flops_of(unrolled) == pytest.approx(flops_of(looped), rel=1e-9)
    assert unrolled.program == looped.program == "train_step"


@pytest.mark.tpu
@pytest.mark.parametrize("name", ["llama", "llama, unrolled", "gpt_2021", "mlp"])
def test_a_tpu_does_what_paper_says(name):
    """Its compiler writes every product as a convolution, attention's batch of heads as a window with holes."""
    example = MODELS[name]()
    text = example.program.compile(example.plan, target="tpu v5e:2x4").stages["optimized"]
    assert " dot(" not in text
    assert " convolution(" in text
    each, unknown = dot_flops(parse(text))
    assert unknown == 0
    assert each * 8 == pytest.approx(example.flops, rel=1e-9)


@pytest.mark.parametrize(
    ("mesh", "copies"),
    [("x=8", 8), ("data=3,model=4", 3), ("data=2,model=3", 3)],
    ids=["axes that it does not name", "data does not divide", "model does not divide"],
)
def test_what_no_axis_cuts_every_device_does(mesh, copies):
    example = sv.gallery.mlp(mesh=mesh)
    assert flops_of(example.program.partition(example.plan)) == copies * example.flops


@pytest.mark.parametrize("model", [16, 32])
def test_more_devices_than_key_value_heads_project_them_more_than_once(model):
    """Forward, once more for the recomputed pass, and for both gradients: 8 heads cannot be cut over 16 devices."""
    example = sv.gallery.llama("70b", mesh={"data": 64, "model": model})
    projections = 80 * 2 * (2.0 * example.tokens * 8192 * 8 * 128)
    extra = (model // 8 - 1) * 4 * projections
    assert flops_of(example.program.partition(example.plan)) == pytest.approx(example.flops + extra, rel=1e-9)


def multiplied(example):
    """The parameters that each token is multiplied with: matrices, but no norms and nothing that is looked up in."""
    state = example.args[0]
    leaves = jax.tree_util.tree_leaves_with_path(state["params"] if "mu" in state else state)
    named = [(jax.tree_util.keystr(path), a.shape) for path, a in leaves]
    others = ("'emb'", "'wpe'", "'ln")
    return sum(math.prod(shape) for name, shape in named if len(shape) > 1 and not any(o in name for o in others))


@pytest.mark.parametrize(
    ("make", "attention"),
    [
        (sv.gallery.mlp, 0),
        (sv.gallery.pipeline, 0),
        (sv.gallery.ring, 12 * 131072 * 4096),
        (sv.gallery.gpt_2021, 12 * 12 * 1024 * 768),
        (lambda: sv.gallery.llama("8b"), 12 * 32 * 4096 * 4096),
        (lambda: sv.gallery.llama("70b", length=8192), 12 * 80 * 8192 * 8192),
    ],
    ids=["mlp", "pipeline", "ring", "gpt_2021", "llama 8b", "llama 70b"],
)
def test_the_model_needs_6_x_parameters_x_tokens_and_12_x_layers_x_width_x_length(make, attention):
    """As Chowdhery et al., 2022, "PaLM", appendix B, have it: `attention` is of one token."""
    example = make()
    assert example.model_flops == pytest.approx((6 * multiplied(example) + attention) * example.tokens, rel=1e-12)


def test_the_decoder_needs_6_x_parameters_x_tokens_too():
    pytest.importorskip("flax")
    example = sv.gallery.decoder()
    matrices = example.parameters - (2 * 4 + 1) * 1024
    assert example.model_flops == (6 * matrices + 12 * 4 * 1024 * 1024) * example.tokens


def test_a_token_needs_the_experts_that_it_goes_to():
    example = sv.gallery.moe()
    router, experts = 4096 * 64, 64 * 3 * 4096 * 1408
    assert example.parameters == router + experts
    assert example.model_flops == 6 * (router + experts * 2 // 64) * example.tokens


def test_resnet_50_needs_the_published_products_where_padding_counts(monkeypatch):
    """4.089 thousand million a 224 x 224 image, says torchvision, which takes the padding for pixels."""
    module = importlib.import_module("shardviz.gallery.resnet")
    ours = sv.gallery.resnet(50)
    assert ours.model_flops / 6 / ours.tokens == pytest.approx(4.089e9, rel=0.04)
    monkeypatch.setattr(module, "overlaps", lambda size, kernel, stride: -(-size // stride) * kernel)
    padded = sv.gallery.resnet(50)
    assert padded.model_flops / 6 / padded.tokens == pytest.approx(4.089e9, abs=0.001e9)


@pytest.mark.parametrize(("size", "parameters"), [("8b", 8_030_261_248), ("70b", 70_553_706_496)])
def test_llama_has_the_published_number_of_parameters(size, parameters):
    assert sv.gallery.llama(size).parameters == parameters


def test_the_cost_of_an_example_has_its_utilisation():
    """At best, the share that the model's FLOPs are of those that the chips could do in the step's time."""
    example = sv.gallery.llama("70b", mesh="data=8,model=8")
    cost = sv.cost(
        example.program.partition(example.plan), "tpu v5p:4x4x4", tokens=example.tokens, model_flops=example.model_flops
    )
    assert cost.mfu is not None and 0 < cost.mfu <= example.model_flops / example.flops
    assert cost.mfu == pytest.approx(example.model_flops / (64 * 459e12 * cost.seconds))
