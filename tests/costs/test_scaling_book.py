"""The worked numbers of *How to Scale Your Model* (https://jax-ml.github.io/scaling-book/), chapter and question named.

Where the book reckons with other constants than `chips.toml`, the test says which.
"""

from __future__ import annotations

import dataclasses
import math

import pytest

from shardviz.costs.chips import chip
from shardviz.costs.collective import collective_seconds
from shardviz.costs.machine import Machine
from shardviz.costs.step import fits, roofline, step_time

DAY = 24 * 3600


def close(value: float) -> object:
    """Within 5 % of the book's number."""
    return pytest.approx(value, rel=0.05)


def us(kind: str, nbytes: float, axes: object, mesh: str, target: object, **options: bool) -> float:
    return collective_seconds(kind, nbytes, axes, mesh, target, **options).seconds * 1e6  # type: ignore[arg-type]


def knee(mesh: str, target: object, name: str, dtype: str = "bfloat16") -> float:
    return next(k.intensity for k in roofline(mesh, target, dtype=dtype) if k.name == name)  # type: ignore[arg-type]


class TestPart2HowToThinkAboutTPUs:
    def test_question_1_bounding_llm_latency(self):
        step = step_time("tpu v4:2x4x4", flops=0, hbm_bytes=2 * 200e9 / 32)
        assert step.memory == close(12.5e9 / 1.23e12)
        assert step.bound == "memory"

    def test_question_2_whole_pods(self):
        v5e, v5p = Machine.of("tpu v5e:16x16"), Machine.of("tpu v5p:16x20x28")
        assert (v5e.num_chips, v5p.num_chips, v5p.hosts) == (256, 8960, 2240)
        assert v5e.num_chips * chip("v5e").flops("bfloat16") == close(5.1e16)
        assert v5p.num_chips * chip("v5p").flops("bfloat16") == close(4e18)
        assert v5e.num_chips * chip("v5e").hbm_bytes / 2**40 == close(4)

    def test_question_4_general_matmul_latency(self):
        def bound(b: int) -> str:
            weights, activations, out = 16384 * 4096, 4096 * b, 16384 * b
            flops = {"int8": 2 * 4096 * 16384 * b}
            return step_time("tpu v5e:1x1", flops=flops, hbm_bytes=weights + activations + out).bound

        first = next(b for b in range(1, 1000) if bound(b) == "compute")
        assert first == close(271)

    def test_question_5_first_byte_of_a_message_across_a_4x4(self):
        half = dataclasses.replace(chip("v5e"), hop_seconds=0.5e-6)
        # each sends to the next along both axes, so the last to the first: 3 + 3 hops
        time = collective_seconds("collective-permute", 16.0, ("X", "Y"), "X=4,Y=4", Machine(half, (4, 4)))
        assert (time.seconds, time.bound) == (pytest.approx(3e-6), "latency")

    def test_question_6_all_gather_over_a_4x4(self):
        fast = Machine(dataclasses.replace(chip("v5e"), ici_link_bytes_per_s=5e10), (4, 4))
        assert us("all-gather", 16e9, ("X", "Y"), "X=4,Y=4", fast) == close(150e3)
        assert step_time(fast, flops=0, hbm_bytes=16e9).memory == close(19e-3)


class TestPart3ShardedMatrices:
    """Question 2 is of v4p 4x4x4 with X=4, Y=4, Z=4; B = 1024, D = 4096, bfloat16."""

    MESH, TARGET, WHOLE = "X=4,Y=4,Z=4", "tpu v4:4x4x4", 2 * 1024 * 4096

    def test_pop_quiz_2_no_wraparound(self):
        time = collective_seconds("all-gather", 2048 * 8192 * 2, "Y", "X=8,Y=4", "tpu v5e:8x4")
        assert time.seconds == close(560e-6)
        assert time.bound == "ICI link"
        assert not time.route.ring

    def test_pop_quiz_2_first_approximation_on_a_ring(self):
        assert us("all-gather", 2048 * 8192 * 2, "Y", "X=8,Y=16", "tpu v5e:8x16", exact=False) == close(377)

    def test_pop_quiz_2_latency_bound(self):
        time = collective_seconds("all-gather", 256 * 256 * 2, "Y", "X=8,Y=4", "tpu v5e:8x4")
        assert time.seconds == close(3e-6)
        assert time.bound == "latency"

    def test_a_buffer_under_45_kb_is_latency_bound(self):
        """A message of 4.5e10 x 1 µs bytes to the next chip."""

        def bound(nbytes: float) -> str:
            return collective_seconds("collective-permute", 16 * nbytes, "Y", "X=8,Y=16", "tpu v5e:8x16").bound

        assert bound(44.9e3 / 8) == "latency"  # round the ring no message passes more than one link
        assert bound(45.1e3) == "ICI link"

    @pytest.mark.parametrize(
        ("axes", "nbytes", "wanted"),
        [("X", WHOLE / 4, 23), ("Y", WHOLE / 4, 23), (("X", "Y"), WHOLE, 46), ("Z", WHOLE / 16, 5.8)],
    )
    def test_question_2_all_gather_latency(self, axes: object, nbytes: float, wanted: float):
        assert us("all-gather", nbytes, axes, self.MESH, self.TARGET, exact=False) == close(wanted)

    def test_question_3_latency_bound_all_gather(self):
        time = collective_seconds("all-gather", 2 * 128, "X", self.MESH, self.TARGET)
        assert time.seconds == close(2e-6)
        assert time.bound == "latency"

    def test_question_4_intensity_of_one_axis_of_v5p(self):
        assert knee("X=8,Y=8,Z=8", "tpu v5p:8x8x8", "X") == close(2550)

    def test_question_10_all_to_all_is_a_quarter_of_an_all_gather_on_a_ring(self):
        gather = us("all-gather", 1e9, "Y", "X=16,Y=16", "tpu v5e:16x16", exact=False)
        assert us("all-to-all", 1e9, "Y", "X=16,Y=16", "tpu v5e:16x16", exact=False) == pytest.approx(gather / 4)


class TestPart5Training:
    def test_data_parallelism_over_one_axis_and_over_three(self):
        one = knee("data=16,Y=16,Z=16", "tpu v5p:16x16x16", "data")
        three = knee("data=4096", "tpu v5p:16x16x16", "data")
        assert (one, three) == (close(2550), close(850))

    def test_a_batch_for_data_parallelism_over_a_whole_pod(self):
        assert 8960 * knee("data=8960", "tpu v5p:16x20x28", "data") == close(7.6e6)

    def test_tensor_parallelism_bound_of_llama_3_70b(self):
        assert 30_000 / knee("X=16,Y=16,Z=16", "tpu v5p:16x16x16", "Y") == close(11.76)

    def test_data_parallel_step_at_the_critical_batch(self):
        """4BLDF/(X C) = 4LDF/W at B/X = 2550: with more the backward pass is bound by compute, with less by links."""

        def bound(per_chip: int) -> str:
            d, f = 8192, 32768
            mesh, target = "data=16,Y=16,Z=16", "tpu v5p:16x16x16"
            time = collective_seconds("all-reduce", 2 * d * f, "data", mesh, target, exact=False)
            step = step_time(target, flops=2 * 2 * 2 * per_chip * d * f)
            return "compute" if step.compute > 2 * time.seconds else "links"  # two matrices, 8BDF FLOPs

        assert (bound(2450), bound(2650)) == ("links", "compute")

    def test_mixed_fsdp_and_tensor_parallelism(self):
        alpha, f, n, b = knee("X=4,Y=4,Z=4", "tpu v5p:4x4x4", "X"), 32768, 64, 48_000
        assert 2 * alpha**2 / f == close(396)
        # the book's X for M_X = 2, M_Y = 1: where FSDP and model parallelism take as long
        assert b / alpha + math.sqrt(max(0.0, (b * f) ** 2 - 2 * alpha**2 * f * b * n)) / (alpha * f) == close(31.7)

    def test_mixed_gathers_take_as_long_as_the_flops_at_the_books_split(self):
        """T_FSDP + T_MP = T_math at X = 31.7, Y = 2.01 of 64 chips, with two axes of the torus for X and one for Y."""
        x, y, d, f, b = 31.7, 2.01, 8192, 32768, 48_000
        width = {k.name: k.bytes_per_s for k in roofline("X=16,Y=4", "tpu v5p:4x4x4")}
        comms = 4 * d * f / (y * width["X"]) + 4 * b * d / (x * width["Y"])
        assert comms == close(4 * b * d * f / (64 * 4.59e14))

    def test_scaling_between_pods(self):
        """Bound by DCN below 76,000 tokens a pod."""
        assert knee("pod=2*1,data=8960", "tpu v5p:16x20x28*2", "pod") == close(76_000)

    def test_llama_3_70b_at_half_the_peak_takes_17_days(self):
        step = step_time("tpu v5p:2x2x1", flops=6.3e24 / 18_823, model_flops=4 * 6.3e24 / 18_823)
        assert step.compute / 0.5 / DAY == close(17)
        assert step.utilisation(17 * DAY) == close(0.5)

    def test_question_3_memory_and_the_least_batch(self):
        optimizer = 10 * 13e9
        assert not fits(optimizer, "tpu v5p:16x16x16").fits
        assert fits((optimizer + 7.86e12) / 4096, "tpu v5p:16x16x16").fits
        assert 4096 * knee("data=4096", "tpu v5p:16x16x16", "data") == close(3.48e6)


class TestPart12GPUs:
    def test_quiz_1_question_3_matmul_intensity(self):
        assert knee("x=8", "gpu h100:1x8", "HBM", "float16") == close(295)
        assert knee("x=8", "gpu b200:1x8", "HBM", "float16") == close(281)
        assert knee("x=8", "gpu h100:1x8", "HBM", "float8_e4m3fn") == close(590)
        assert knee("x=8", "gpu b200:1x8", "HBM", "float8_e4m3fn") == close(562)

    def test_quiz_1_question_4_matmul_runtime(self):
        def step(b: int) -> object:
            moved = 2 * b * 4096 + 2 * 4096 * 8192 + 2 * b * 8192
            return step_time("gpu b200:1x1", flops=2 * b * 4096 * 8192, hbm_bytes=moved, dtype="float16")

        small, large = step(64), step(512)
        assert (small.bound, large.bound) == ("memory", "compute")  # type: ignore[attr-defined]
        assert (small.lower, large.lower) == (close(8.6e-6), close(15e-6))  # type: ignore[attr-defined]

    def test_quiz_1_question_7_adding_vectors(self):
        assert step_time("gpu h100:1x1", flops=0, hbm_bytes=12 * 2**30).memory == close(3.84e-3)

    def test_quiz_2_question_3_all_gather_in_a_node(self):
        time = collective_seconds("all-gather", 4096 * 65536 * 2, "X", "X=8", "gpu h100:1x8")
        assert time.seconds == close(1.04e-3)
        assert time.bound == "NVLink"

    def test_pop_quiz_1_all_gather_time(self):
        nbytes = 2 * 1024 * 16384
        assert us("all-gather", nbytes, "X", "X=8", "gpu h100:1x8", exact=False) == close(75)
        assert us("all-gather", nbytes, "X", "X=8", "gpu h100:1x8") == close(65)

    def test_pop_quiz_2_all_to_all_time(self):
        b = 2 * 8192 * 8192
        assert us("all-to-all", b, "X", "X=8", "gpu h100:1x8") == close(b * 7 / (450e9 * 64) * 1e6)
        assert us("all-to-all", b, "X", "X=8", "gpu h100:1x8", exact=False) == close(b / (450e9 * 8) * 1e6)

    def test_all_to_all_over_two_nodes_is_more_than_four_times_slower(self):
        b = 1e9
        one = us("all-to-all", b, "X", "X=8", "gpu h100:1x8", exact=False)
        two = us("all-to-all", b, "X", "X=16", "gpu h100:2x8", exact=False)
        assert two == close(b / (2 * 400e9) * 1e6)
        assert two > 4 * one

    def test_cross_node_bandwidth_of_a_scalable_unit(self):
        """413 GB/s at the leaf level, 514 GB/s in the node: the slower counts."""
        time = collective_seconds("all-gather", 1e9, "X", "X=256", "gpu h100:32x8")
        assert 1e9 / time.seconds == close(413e9)
        assert time.bound == "network"
        assert {term.bound: 1e9 / term.seconds for term in time.terms}["NVLink"] == close(514e9)

    @pytest.mark.parametrize("inner", [1, 2, 4, 8, 16, 32, 64])
    def test_pop_quiz_3_sharding_along_two_axes(self, inner: int):
        whole = 2 * 8192 * 32_768
        exact = inner <= 8
        wanted = whole * 31 / (32 * 400e9) if exact else whole / (inner * 50e9)
        got = us("all-gather", whole / inner, "X", f"X={256 // inner},Y={inner}", "gpu h100:32x8", exact=exact)
        assert got == close(wanted * 1e6)

    def test_quiz_4_question_1_all_gather_over_a_scalable_unit(self):
        b, m = 1e9, 32
        assert us("all-gather", b, "X", "X=256", "gpu h100:32x8") == close(b * (m - 1) / (m * 400e9) * 1e6)

    def test_quiz_4_questions_2_and_3_all_reduce_with_sharp(self):
        b = 2 * 8192 * 8192
        assert us("all-reduce", b, "X", "X=8", "gpu h100:1x8", in_network=True) == close(b / 450e9 * 1e6)
        half = us("all-reduce", b / 2, "X", "X=4,Y=2", "gpu h100:1x8", in_network=True)
        assert half == close(b / (2 * 450e9) * 1e6)

    def test_quiz_4_question_5_all_gather_over_two_nodes_is_bound_in_the_node(self):
        time = collective_seconds("all-gather", 1e9, "X", "X=16", "gpu h100:2x8")
        assert 1e9 / time.seconds == close(514e9)
        assert time.bound == "NVLink"
        assert {term.bound: 1e9 / term.seconds for term in time.terms}["network"] == close(800e9)

    def test_data_parallelism_rooflines(self):
        assert knee("data=8", "gpu h100:1x8", "data") == close(2200)
        assert knee("data=256", "gpu h100:32x8", "data") == close(2475)

    def test_quiz_5_question_1_b200_rooflines(self):
        assert knee("data=8", "gpu b200:1x8", "data") == close(2500)
        assert knee("data=256", "gpu b200:32x8", "data") == close(5625)

    def test_appendix_a_gb200_is_bound_in_its_nvlink_domain(self):
        time = collective_seconds("all-gather", 1e10, "data", "data=576", "gpu gb200:8x72", exact=False)
        assert (time.bound, 1e10 / time.seconds) == ("NVLink", close(900e9))

    def test_quiz_5_question_2_llama_3_70b(self):
        needed = (2 + 8) * 70e9
        assert next(n for n in range(1, 100) if fits(needed / n, "gpu h100:1x1").fits) == 9
        step = step_time("gpu h100:512x8", flops=6 * 70e9 * 15e12 / 4096, model_flops=6 * 70e9 * 15e12)
        assert step.compute / 0.45 / DAY == close(40)
        assert not fits(700e9 / 8, "gpu h100:512x8").fits
        # 8-way model parallelism on each of 8 stages: the gather between nodes gets 3200 GB/s of the whole array
        whole = 1e11
        got = collective_seconds("all-gather", whole / 64, "data", "data=64,model=64", "gpu h100:512x8", exact=False)
        assert 990e12 * got.seconds / whole == close(309)
