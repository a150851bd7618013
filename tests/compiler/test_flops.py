"""FLOPs of matrix products against those that the programs must do, and of convolutions against XLA's analysis."""

import json
from pathlib import Path

import pytest

from shardviz.compiler import count_flops, parse
from shardviz.errors import ParseError
from tests.truth import answers_of


def dot_flops(module):
    """FLOPs of all products, and how many loops' trip counts are not known."""
    counted = count_flops(module)
    return counted.dot_flops, counted.unknown_loops


@pytest.fixture(scope="module")
def convolutions():
    return json.loads(answers_of(Path(__file__).with_name("convolution_truth.py")))


@pytest.mark.long
def test_convolutions_are_what_xlas_analysis_says(convolutions):
    """Strides, padding below zero, dilation, groups, any order of dimensions; forward and both gradients."""
    wrong = [case for case in convolutions if dot_flops(parse(case["text"])) != (case["flops"], 0)]
    assert not wrong, wrong[0]
    assert all(case["text"].count(" convolution(") == 1 for case in convolutions)
    assert sum(case["flops"] > 0 for case in convolutions) > 90


@pytest.mark.long
def test_every_real_product_of_ones_adds_one(convolutions):
    run = [case for case in convolutions if "ones" in case]
    assert len(run) == 32
    wrong = [case for case in run if dot_flops(parse(case["text"]))[0] != case["ones"]]
    assert not wrong, wrong[0]


PRODUCT = """HloModule m
ENTRY %main (a: f32[2,8,8,3], b: f32[3,3,3,4]) -> f32[2,8,8,4] {{
  %a = f32[2,8,8,3]{{3,2,1,0}} parameter(0)
  %b = f32[3,3,3,4]{{3,2,1,0}} parameter(1)
  ROOT %c = {}
}}"""


@pytest.mark.parametrize("reversal", ["", " rhs_reversal=1x1"])
def test_a_reversed_window_meets_as_much(reversal):
    window = f"window={{size=3x3 pad=1_1x1_1{reversal}}}, dim_labels=b01f_01io->b01f"
    text = PRODUCT.format(f"f32[2,8,8,4]{{3,2,1,0}} convolution(%a, %b), {window}")
    assert dot_flops(parse(text)) == (2 * 2 * 3 * 4 * 22 * 22, 0)


@pytest.mark.parametrize(
    ("instruction", "message"),
    [
        ("convolution(%a, %b), window={size=3x3}, dim_labels=b0f_0io->b0f", "'b0f_0io->b0f' do not fit the shapes"),
        ("convolution(%a, %b), window={size=3x3}, dim_labels=what", "'what' do not fit the shapes"),
        ("convolution(%a, %b), window={size=3x3 stride=2}, dim_labels=b01f_01io->b01f", "do not fit each other"),
        ("convolution(%a, %b), window={size=3x3}, dim_labels=b01f_23io->b01f", "do not fit each other"),
        ("convolution(%a, %b), window={size=3x3}", "has no 'dim_labels'"),
        ("convolution(%a), window={size=3x3}, dim_labels=b01f_01io->b01f", "operand 1 is missing"),
        ("dot(%a, %b), lhs_contracting_dims={7}, rhs_contracting_dims={0}", "contracts dimensions"),
    ],
)
def test_what_does_not_fit_together_is_said(instruction, message):
    with pytest.raises(ParseError, match=message):
        dot_flops(parse(PRODUCT.format(f"f32[2,8,8,4]{{3,2,1,0}} {instruction}")))
