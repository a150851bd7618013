"""FLOPs of library calls, against the loops that they stand for."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardviz.records.counting import dot_flops, ragged_dot_flops
from shardviz.records.kernels import Array, call_flops

SIZES = st.integers(1, 40)


def cholesky(n):
    return sum(2 * j * (n - j) + (n - j) for j in range(n))


def elimination(m, n):
    return sum((m - j - 1) + 2 * (m - j - 1) * (n - j - 1) for j in range(min(m, n)))


def householder(m, n):
    """Each reflector is applied to what is right of it: a product of a vector and a matrix, and an outer product."""
    return sum(4 * (m - j) * (n - j) for j in range(min(m, n)))


@pytest.mark.parametrize("call", ["lapack_{}_ffi", "cusolver_{}_ffi"])
@pytest.mark.parametrize(("routine", "loops", "shape"), [
    ("potrf", cholesky, (400, 400)),
    ("getrf", elimination, (400, 400)),
    ("getrf", elimination, (900, 300)),
    ("getrf", elimination, (300, 900)),
    ("geqrf", householder, (400, 400)),
    ("geqrf", householder, (900, 300)),
    ("geqrf", householder, (300, 900)),
])  # fmt: skip
def test_factorisations_count_as_their_loops_do(call, routine, loops, shape):
    for letter, dtype, times in (("s", "float32", 1), ("d", "float64", 1), ("c", "complex64", 4)):
        name = call.format(letter + routine if "lapack" in call else routine)
        expected = times * 3 * loops(*(shape[:1] if loops is cholesky else shape))
        assert call_flops(name, [Array((3, *shape), dtype)], []) == pytest.approx(expected, rel=0.02)


@given(n=SIZES, many=SIZES, batch=SIZES)
def test_a_triangular_solve_is_a_product_with_half_a_matrix(n, many, batch):
    found = call_flops("lapack_strsm_ffi", [Array((batch, n, n), "float32"), Array((batch, n, many), "float32")], [])
    assert found == batch * many * n**2


@given(sizes=st.lists(SIZES, min_size=1, max_size=6), k=SIZES, n=SIZES)
def test_a_ragged_product_is_the_products_of_its_groups(sizes, k, n):
    m, groups = sum(sizes), len(sizes)
    each = sum(dot_flops((size, n), (k,)) for size in sizes)
    assert ragged_dot_flops((m, k), (groups, k, n), met=[0, 1]) == each
    gradient = sum(dot_flops((k, n), (size,)) for size in sizes)
    assert ragged_dot_flops((m, k), (m, n), met=[0]) == gradient


@given(b=SIZES, heads=SIZES, t=SIZES, s=SIZES, h=SIZES)
def test_fused_attention_is_its_products(b, heads, t, s, h):
    q, k, v = (
        Array((b, heads, t, h), "bfloat16"),
        Array((b, heads, s, h), "bfloat16"),
        Array((b, heads, s, h), "bfloat16"),
    )
    config = (
        f'{{"intermediate_tensor_shape": {{"element_type": "BF16", "dimensions": ["{b}", "{heads}", "{t}", "{s}"]}}}}'
    )
    one = dot_flops((b, heads, t, s), (h,))
    assert call_flops("__cudnn$fmhaSoftmax", [q, k, v], [q], config) == 2 * one
    assert call_flops("__cudnn$fmhaSoftmaxBackward", [q, k, v], [q], config) == 5 * one


@given(b=SIZES, m=SIZES, n=SIZES, k=SIZES)
def test_library_products_are_products(b, m, n, k):
    left, right, out = Array((b, m, k), "float8_e4m3fn"), Array((b, n, k), "float8_e4m3fn"), Array((b, m, n), "float32")
    expected = 2.0 * math.prod((b, m, n, k))
    assert call_flops("__op$block_scaled_dot", [left, right], [out]) == expected
    config = '{"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["2"]}}}'
    for target in ("__cublas$gemm", "__cublas$lt$matmul$f8"):
        assert call_flops(target, [left, right], [out], config) == expected


def test_what_moves_is_nothing_and_what_nobody_knows_is_none():
    some = [Array((8, 8), "float32")]
    assert [call_flops(t, some, some) for t in ("Sharding", "X64Combine", "TopK", "xla.sdy.FuncResultSharding")] == [
        0.0
    ] * 4
    unknown = ("tpu_custom_call", "lapack_ssyevd_ffi", "cusolver_gesvdj_ffi", "my_library_call", "mosaic_gpu_v2")
    assert [call_flops(t, some, some) for t in unknown] == [None] * 5
    assert call_flops("lapack_sgetrf_ffi", [Array((8,), "float32")], []) is None  # no matrix


@pytest.mark.parametrize(
    "target",
    ["convForward", "convForwardGraph", "convBiasActivationForward", "convBackwardInput", "convBackwardFilter"],
)
def test_cudnns_convolutions_and_their_gradients_do_as_much(target):
    shapes = (8, 30, 30, 16), (32, 3, 3, 16), (8, 28, 28, 32)
    images, kernel, out = (Array(dims, "bfloat16") for dims in shapes)
    scratch, bias = Array((4096,), "uint8"), Array((32,), "float32")
    ins, outs = {
        "convBackwardInput": ([out, kernel], [images, scratch]),
        "convBackwardFilter": ([images, out], [kernel, scratch]),
        "convBiasActivationForward": ([images, kernel, bias], [out, scratch]),
    }.get(target, ([images, kernel], [out, scratch]))
    one = 2 * 8 * 28 * 28 * 32 * 3 * 3 * 16  # for each number that comes out, the kernel's sides and input features
    assert call_flops(f"__cudnn${target}", ins, outs) == one
    assert call_flops(f"__cudnn${target}", [scratch] * 2, [scratch]) is None
