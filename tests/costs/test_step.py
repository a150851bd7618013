"""A step's bounds, its utilisation, the knees of the roofline, and whether it fits: against arithmetic by hand."""

from __future__ import annotations

import pytest

from shardviz.costs.accuracy import Accuracy
from shardviz.costs.chips import chip
from shardviz.costs.collective import with_seconds
from shardviz.costs.machine import Machine
from shardviz.costs.step import fits, roofline, step_time
from shardviz.errors import ShardvizError, TargetError
from tests.collectives import collective

GATHER = collective("all-gather", ("x",), 1e6, 8e6, 80, dtype="bfloat16", name="all-gather.1")


def test_a_step_by_hand():
    """8 H100: 80 gathers of 8 MB over NVLink, 1e12 FLOPs and 1e10 bytes on each."""
    gather = with_seconds(GATHER, "x=8", "gpu h100:1x8")
    step = step_time("gpu h100:1x8", flops=1e12, hbm_bytes=1e10, collectives=[gather], model_flops=6e12, tokens=1024)
    assert step.compute == pytest.approx(1e12 / 9.9e14)
    assert step.memory == pytest.approx(1e10 / 3.35e12)
    assert step.communication == pytest.approx(80 * 8e6 * 7 / 8 / 4.5e11)
    assert step.lower == step.memory
    assert step.upper == pytest.approx(step.memory + step.communication)
    assert step.bound == "memory"
    assert (step.seconds, step.low, step.high) == (step.upper, None, None), "no schedule was walked"
    assert step.mfu == pytest.approx(6e12 / (step.upper * 8 * 9.9e14))
    assert step.tokens_per_s == pytest.approx(1024 / step.upper)


def test_a_walked_step_is_its_seconds():
    facts = {"flops": 1e12, "hbm_bytes": 1e10, "model_flops": 6e12, "tokens": 1024}
    accuracy = Accuracy("gpu", "compiled", 0.9, 1.2, 1.0, 0.1, ("D1",))
    step = step_time("gpu h100:1x8", **facts, walked=4e-3, accuracy=accuracy)
    assert (step.seconds, step.low, step.high) == (4e-3, pytest.approx(3.6e-3), pytest.approx(4.8e-3))
    assert step.mfu == pytest.approx(6e12 / (4e-3 * 8 * 9.9e14)) and step.tokens_per_s == pytest.approx(1024 / 4e-3)
    shorter = step_time("gpu h100:1x8", **facts, walked=1e-3)
    assert (shorter.seconds, shorter.lower) == (1e-3, 1e-3), "the step is one number, and no bound denies it"


def test_element_types_are_counted_at_their_own_rates():
    step = step_time("tpu v5p:4x4x4", flops={"bfloat16": 4.59e14, "int8": 9.18e14})
    assert step.compute == pytest.approx(2)


def test_a_device_of_two_has_half_a_chip():
    step = step_time("tpu tpu7x:4x4x4", flops=2.307e15, hbm_bytes=7.38e12, model_flops=128 * 2.307e15)
    assert (step.compute, step.memory) == (pytest.approx(2), pytest.approx(2))
    assert step.utilisation(2) == pytest.approx(1)


def test_knees_of_memory_and_of_each_axis():
    knees = {knee.name: knee for knee in roofline("pod=2*1,a=4,b=16,one=1", "tpu v5p:4x4x4*2")}
    of = chip("v5p")
    assert list(knees) == ["HBM", "pod", "a", "b"]
    assert knees["HBM"].intensity == pytest.approx(4.59e14 / 2.8e12)
    assert knees["pod"].bytes_per_s == pytest.approx(of.dcn_bytes_per_s)
    assert knees["a"].bytes_per_s == pytest.approx(2 * of.ici_link_bytes_per_s)
    assert knees["b"].bytes_per_s == pytest.approx(4 * of.ici_link_bytes_per_s)
    assert knees["HBM"].formula == "459 TFLOP/s / 2.80 TB/s = 164 FLOP/B"


@pytest.mark.parametrize("given_", [{"flops": -1.0}, {"flops": 1.0, "hbm_bytes": -1.0}, {"flops": 1.0, "tokens": -1.0}])
def test_numbers_below_nothing_are_refused(given_: dict[str, float]):
    with pytest.raises(ShardvizError, match="expected 0 or more"):
        step_time("gpu h100:1x8", **given_)  # type: ignore[arg-type]


GIB = 2**30


@pytest.mark.parametrize(
    ("target", "usable"),  # "exceeds available HBM (...)" of libtpu 0.0.50
    [
        ("tpu v2:2x2", 7.48),
        ("tpu v3:2x2", 15.48),
        ("tpu v4:2x2x1", 30.75),
        ("tpu v5e:2x2", 15.75),
        ("tpu v5p:2x2x1", 95.73),
        ("tpu v6e:2x2", 31.24),
        ("tpu tpu7x:2x2x1", 94.74),
    ],
)
def test_a_device_has_what_libtpu_gives_it(target: str, usable: float):
    assert fits(0, target).usable / GIB == pytest.approx(usable, abs=0.005)


def test_what_does_not_fit_says_by_how_much():
    fit = fits(2e11, "tpu v5p:4x4x4")
    assert not fit.fits and fit.usable - fit.needed == pytest.approx(95.73 * GIB - 2e11, abs=1e7)


def test_a_gpu_nearly_full_needs_more_than_jax_takes_by_itself():
    assert [fits(needed, "gpu h100:1x8").over_share for needed in (5e10, 8e10)] == [False, True]
    assert "XLA_PYTHON_CLIENT_MEM_FRACTION" in fits(8e10, "gpu h100:1x8").share


def test_memory_that_is_not_known_is_refused():
    with pytest.raises(TargetError, match="'cpu' has no hbm_bytes"):
        fits(1, Machine.of("cpu"))
    with pytest.raises(ShardvizError, match="expected 0 bytes or more"):
        fits(-1, "gpu h100:1x8")


def test_a_rate_that_is_another_types_is_called_so():
    """TPUs have no rate of their own for float32: JAX's default precision multiplies in bfloat16."""

    def said(target: str, dtype: str) -> str:
        return step_time(target, flops={dtype: 1e12}).computing[0].formula

    assert said("tpu v5e:2x2", "float32") == (
        "1.00 TFLOP of float32 / 197 TFLOP/s (the rate of bfloat16 at JAX's default precision; "
        "'high' takes 3 times as long, 'highest' 6)"
    )
    assert said("tpu v3:2x2", "int8").endswith("TFLOP/s (the rate of bfloat16)")
    for target, dtype in (("tpu v5e:2x2", "int8"), ("gpu h100:1x8", "float32"), ("gpu h100:1x8", "float8_e4m3fn")):
        assert said(target, dtype).endswith("FLOP/s"), "its own"
