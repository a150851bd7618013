"""The gallery's models compute what they say, and look under a plan as their docstrings say."""

import json
import math
from collections import Counter
from pathlib import Path

import pytest

import shardviz as sv
from tests.truth import answers_of

pytestmark = pytest.mark.long

MODELS = ("ring", "pipeline", "moe", "resnet")


@pytest.fixture(scope="module")
def runs():
    script = Path(__file__).with_name("run_models.py")
    return json.loads(answers_of(script))


@pytest.mark.parametrize("name", MODELS)
def test_eight_devices_compute_what_one_does(runs, name):
    found, expected = runs[name]["losses"]
    assert found == pytest.approx(expected, rel=1e-5)
    assert runs[name]["error"] < 1e-5


def collectives(example):
    report = example.program.partition(example.plan)
    return report, [(c.kind, c.axes, c.count, c.operand_bytes) for c in report.collectives]


def test_experts_exchange_tokens_and_reduce_gradients_over_data_alone():
    example = sv.gallery.moe(mesh={"data": 2, "expert": 4}, tokens=4096)
    report, found = collectives(example)
    tokens, experts, d_model, d_ff = 4096 // 8, 64, 4096, 1408
    buffers = experts * math.ceil(1.25 * 2 * tokens / experts) * d_model * 2
    assert [c for c in found if c[0] == "all-to-all"] == [("all-to-all", ("expert",), 1, buffers)] * 3
    weights = experts // 4 * d_model * d_ff * 2
    assert found.count(("all-reduce", ("data",), 1, weights)) == 3
    assert {c.origin for c in report.collectives if c.kind == "all-to-all"} == {"user"}


def test_keys_and_values_go_round_and_the_sequence_is_never_gathered():
    example = sv.gallery.ring(mesh={"data": 2, "seq": 4}, length=4096)
    _, found = collectives(example)
    part = 4 // 2 * 4096 // 4 * 32 * 128 * 2
    turns = [c for c in found if c[0] == "collective-permute"]
    assert turns == [("collective-permute", ("seq",), 4, part)] * 4  # keys and values, and their gradients
    assert not [c for c in found if c[0] == "all-gather" and "seq" in c[1]]


def test_a_pipeline_hands_on_one_microbatch_a_turn_and_reduces_weights_once():
    example = sv.gallery.pipeline(mesh={"data": 2, "stage": 4}, layers=8, microbatches=4, batch=256)
    _, found = collectives(example)
    microbatch = 256 // 4 // 2 * 4096 * 2
    turns = 4 + 4 - 1
    assert [c for c in found if c[0] == "collective-permute"] == [
        ("collective-permute", ("stage",), turns, microbatch)
    ] * 2
    weights = 8 // 4 * 4096 * 14336 * 2
    assert [c for c in found if c[3] == weights] == [("all-reduce", ("data",), 1, weights)] * 3


def test_megatron_style_rules_reduce_twice_a_layer_forward_and_four_times_backward():
    example = sv.gallery.gpt_2021(layers=2, batch=8, length=128)
    report, _ = collectives(example)
    activations = 8 // 2 * 128 * 768 * 4
    found = Counter(c.phase for c in report.collectives if c.axes == ("mp",) and c.operand_bytes == activations)
    assert found == {"forward": 2 * 2 + 1, "backward": 4 * 2 + 1}  # and one each for the embedding
    assert {c.axes for c in report.collectives} == {("mp",), ("dp",)}
    gpt2_small = 124_439_808  # as published, with 50257 tokens
    assert sv.gallery.gpt_2021().parameters == gpt2_small + (50304 - 50257) * 768


def test_a_rule_that_is_missing_is_said():
    from shardviz.gallery.gpt_2021 import set_partitions

    with pytest.raises(sv.errors.ShardvizError, match="no rule matches h/0/conv/kernel"):
        set_partitions({"h": {"0": {"conv": {"kernel": 1}}}})


def test_the_decoders_moments_are_cut_like_its_weights():
    pytest.importorskip("flax")
    example = sv.gallery.decoder(layers=2, batch=8, length=128)
    report = example.program.partition(example.plan)
    specs = {v.name: str(v.spec) for v in report.arguments}
    for weight in [name for name in specs if name.startswith("model.") and name.endswith("kernel")]:
        moments = [
            name for name in specs if name.startswith("optimizer.") and name.endswith(weight.removeprefix("model."))
        ]
        assert len(moments) == 2 and {specs[name] for name in moments} == {specs[weight]}, weight
    d, f, vocabulary = 1024, 4096, 32768
    assert example.parameters == vocabulary * d + 2 * (4 * d * d + 2 * d * f + 2 * d) + d


def test_resnet_50_has_the_published_number_of_parameters():
    assert sv.gallery.resnet(50).parameters == 25_557_032 - 1000  # torchvision's, whose last layer has a bias


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sv.gallery.moe(mesh={"x": 2}), "'expert' and 'data', not x"),
        (lambda: sv.gallery.moe(mesh={"data": 1, "expert": 7}), "64 experts over expert=7"),
        (lambda: sv.gallery.ring(mesh={"data": 3, "seq": 2}), "4 sequences over data=3"),
        (lambda: sv.gallery.ring(mesh={"seq": 2}), "'data' and 'seq'"),
        (lambda: sv.gallery.pipeline(mesh={"data": 1, "stage": 5}), "32 layers over stage=5"),
        (lambda: sv.gallery.pipeline(mesh="a=2"), "'stage' and 'data'"),
        (lambda: sv.gallery.gpt_2021(mesh={"data": 2}), "its rules are over 'dp' and 'mp'"),
        (lambda: sv.gallery.resnet(18), "the gallery has 14, 26, 50, 101"),
        (lambda: sv.gallery.resnet(mesh={"data": 2}), "'batch', not data"),
    ],
)
def test_what_a_model_cannot_be(make, message):
    with pytest.raises(sv.errors.ShardvizError, match=message):
        make()
