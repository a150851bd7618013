"""FLOPs of calls whose products HLO does not show: Pallas kernels, cuDNN's attention, cuBLAS, LAPACK and cuSOLVER.

A call is identified by its target, the shapes of its operands and results, and its `backend_config`:

| call | FLOPs |
|---|---|
| a Pallas kernel | its cost estimate (`pallas_call(..., cost_estimate=...)`), which XLA's own analysis uses too |
| a Pallas kernel without estimate | the matrix products of its body in each step of its grid, see `_jax.kernels` |
| `__cudnn$fmha...` | attention's two products; backward five: scores again, and a gradient for each factor |
| `__cudnn$conv...` | the convolution, including the window's products with padding |
| `__op$block_scaled_dot`, `__cublas$...`, `__onednn$matmul` | the product |
| `potrf`, `getrf`, `geqrf`, `orgqr`, `ormqr`, `trsm` | LAPACK Working Note 41; 4 x as many for complex numbers |
| calls that move, mark or compare | 0 |
| others: kernels with hidden or data-dependent products, eigenvalues | unknown, unless the user states them |

>>> call_flops("lapack_spotrf_ffi", [Array((512, 512), "float32")], [Array((512, 512), "float32")])
44739242.666666664
>>> call_flops("lapack_ssyevd_ffi", [Array((512, 512), "float32")], [Array((512, 512), "float32")]) is None
True
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from shardviz.records.counting import dot_flops
from shardviz.records.values import Frame


class Array(NamedTuple):
    """An operand or a result of a call: its shape on one device, and its element type."""

    dims: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Estimate:
    """A Pallas kernel's FLOPs, from its cost estimate, or else from its grid and body. It has the kernel's name, the
    user's innermost line that calls it, the shapes of its operands and results, the FLOPs of one run, and whether these
    are an upper bound."""

    name: str
    source: Frame | None
    operands: tuple[tuple[int, ...], ...]
    results: tuple[tuple[int, ...], ...]
    flops: float
    at_most: bool = False


@dataclass(frozen=True)
class KernelFacts:
    """FLOPs of calls from outside their text, for one run on one device. `stated` has the user's numbers, by kernel
    name or target. `estimates` has the kernels' own, which the calls of some platforms lack."""

    stated: Mapping[str, float] = field(default_factory=dict)
    estimates: tuple[Estimate, ...] = ()

    def flops(
        self,
        name: str,
        target: str,
        operands: Sequence[Array],
        results: Sequence[Array],
        config: str,
        source: Frame | None,
    ) -> float | None:
        """Return the FLOPs of one run of a call on one device; None if unknown. Arguments are `call_flops`'s."""
        for key in (name, target):
            if key in self.stated:
                return float(self.stated[key])
        counted = call_flops(target, operands, results, config)
        if counted is not None or target not in KERNELS:
            return counted
        ins, outs = (tuple(array.dims for array in arrays) for arrays in (operands, results))
        matches = [e for e in self.estimates if (e.source, e.results) == (source, outs)]
        matches = [e for e in matches if e.name == name] or matches
        matches = [e for e in matches if e.operands == ins] or matches  # such as masks of local and of global layers
        flops = {e.flops for e in matches}
        return flops.pop() if len(flops) == 1 else None


KERNELS = frozenset(
    ("tpu_custom_call", "__gpu$xla.gpu.triton", "triton_kernel_call", "mosaic_gpu", "mosaic_gpu_v2", "xla.gpu.triton")
)
"""Targets of calls of Pallas (and other hand-written) kernels."""

Kernel = Literal["", "attention", "convolution"]
"""Kernels whose products a GPU's library computes at their own rate; empty for any other."""

ATTENTION = "__cudnn$fmha"
"""The beginning of the targets of cuDNN's attention."""

_NAMES = re.compile(r"(?:^|/)(?:\w+\()*([^/()]+)\)*/pallas_call$")
_NO_NAMES = ("shard_map", "eval_jaxpr:")
_STATED = re.compile(r'cost_estimate\\?"\s*:\s*\{[^}]*?\bflops\\?"\s*:\s*\\?"?(-?\d+)')


def kernel_name(target: str, name_stack: str) -> str:
    """Return a kernel's name for people: its name in JAX's name stack; for other calls, the target.

    >>> kernel_name("tpu_custom_call", "jit(step)/shard_map/jit(flash_attention)/pallas_call")
    'flash_attention'
    >>> kernel_name("lapack_ssyevd_ffi", "jit(step)/eigh")
    'lapack_ssyevd_ffi'
    """
    match = _NAMES.search(name_stack) if target in KERNELS else None
    return match[1] if match and match[1] not in _NO_NAMES else target


def factor_dtype(operands: Sequence[Array], results: Sequence[Array]) -> str:
    """Return the element type that a call computes in: its largest float operand's, or else its first result's."""
    floats = [a for a in operands if "float" in a.dtype or "complex" in a.dtype]
    largest = max(floats, key=lambda a: math.prod(a.dims), default=None)
    return largest.dtype if largest else results[0].dtype if results else ""


def call_flops(target: str, operands: Sequence[Array], results: Sequence[Array], config: str = "") -> float | None:
    """Return the FLOPs of one run of a call, by its `custom_call_target`, arrays and `backend_config`. A call that
    computes nothing has 0. Return None if the FLOPs are unknown."""
    if target in _NOTHING or target.startswith(_NOTHING_BEGINS):
        return 0.0
    if target in KERNELS:
        stated = _STATED.search(config)
        return float(stated[1]) if stated and int(stated[1]) >= 0 else None
    routine = _ROUTINE.fullmatch(target)
    name = routine[1] if routine else _TPU_ROUTINES.get(target, "")
    if name in _ROUTINES:
        complex_ = 4.0 if operands and "complex" in operands[0].dtype else 1.0
        return _guarded(lambda: complex_ * _routine(_ROUTINES[name], operands))
    if target.startswith(ATTENTION):
        return _guarded(lambda: _attention(target, operands, config))
    if target in CONVOLUTIONS:
        return _guarded(lambda: _convolution(*CONVOLUTIONS[target](operands, results)))
    if target == "__op$block_scaled_dot":
        return _guarded(lambda: dot_flops(results[0].dims, operands[0].dims[-1:]))
    if target.startswith(("__cublas$gemm", "__cublas$lt$matmul", "__onednn$matmul")):
        contracted = _dimensions(config, "lhs_contracting_dimensions")
        dims = contracted or [len(operands[0].dims) - 1]
        return _guarded(lambda: dot_flops(results[0].dims, (operands[0].dims[d] for d in dims)))
    return None


def _guarded(count: Callable[[], float]) -> float | None:
    """Return `count()`, or None for a call whose shapes are not of its kind."""
    try:
        return count()
    except (IndexError, ValueError):
        return None


def _attention(target: str, operands: Sequence[Array], config: str) -> float:
    """Return the FLOPs of one fused attention: scores = Q K, and scores V; masked scores count too."""
    queries, _, values = (o.dims for o in operands[:3])
    scores = _dimensions(config, "intermediate_tensor_shape.*?dimensions")
    if len(scores) != 4:
        raise ValueError(config)
    pairs, backward = math.prod(scores), "Backward" in target
    return 2.0 * pairs * (queries[-1] * (3 if backward else 1) + values[-1] * (2 if backward else 1))


CONVOLUTIONS: Mapping[str, Callable[[Sequence[Array], Sequence[Array]], tuple[Array, Array]]] = {
    **dict.fromkeys(
        ("__cudnn$convForward", "__cudnn$convForwardGraph", "__cudnn$convBiasActivationForward"),
        lambda ins, outs: (ins[1], outs[0]),
    ),
    "__cudnn$convBackwardInput": lambda ins, _: (ins[1], ins[0]),
    "__cudnn$convBackwardFilter": lambda ins, outs: (outs[0], ins[1]),
}
"""Target → kernel and output of the convolution; a convolution's gradients have as many FLOPs."""


def _convolution(kernel: Array, output: Array) -> float:
    # cuDNN's kernels have their output features first
    if not len(kernel.dims) == len(output.dims) > 2 or kernel.dims[0] not in output.dims:
        raise ValueError(kernel)
    return 2.0 * math.prod(output.dims) * math.prod(kernel.dims[1:])


def _dimensions(config: str, name: str) -> list[int]:
    match = re.search(rf'{name}\\?"\s*:\s*\[([^\]]*)\]', config)
    return [int(n) for n in re.findall(r"\d+", match[1])] if match else []


def _routine(name: str, operands: Sequence[Array]) -> float:
    """Return the FLOPs of a routine on a batch of real m x n matrices, with k reflectors or the shorter side."""
    if name == "trsm":
        return float(operands[0].dims[-1] * math.prod(operands[1].dims))
    *batch, m, n = operands[2 if name == "ormqr" else 0].dims
    k = operands[1].dims[-1] if name in ("orgqr", "ormqr") else min(m, n)
    count = math.prod(batch)
    return {
        "potrf": count * n**3 / 3,
        "getrf": 2.0 * count * (m * n * k - (m + n) * k**2 / 2 + k**3 / 3),
        "geqrf": 2.0 * count * k**2 * (max(m, n) - k / 3),
        "orgqr": count * (4 * m * n * k - 2 * (m + n) * k**2 + 4 * k**3 / 3),
        "ormqr": count * (4.0 * m * n * k - 2.0 * (n if operands[0].dims[-2] == m else m) * k**2),
    }[name]


_ROUTINES = {name: name for name in ("potrf", "getrf", "geqrf", "orgqr", "ormqr", "trsm")}
_ROUTINES |= {"ungqr": "orgqr", "unmqr": "ormqr"}
_ROUTINE = re.compile(r"(?:lapack_[sdcz]|blas_[sdcz]|cusolver_|cublas_|hipsolver_|hipblas_)(\w+?)(?:_batched)?_ffi")
_TPU_ROUTINES = {
    "Cholesky": "potrf",
    "LuRealDecompositionBlock": "getrf",
    "LuDecompositionBlock": "getrf",
    "QrDecompositionBlock": "geqrf",
    "__cublas$triangularSolve": "trsm",
}
_NOTHING = frozenset(
    ("Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "LayoutConstraint", "AllocateBuffer", "ConcatBitcast",
     "AssumeGatherIndicesInBound", "GatherScatterIndicesBitpacked", "AsyncCollectiveStart", "AsyncCollectiveDone",
     "MoveToHost", "MoveToDevice", "PinToDevice", "PinToDeviceSram", "Pin", "Unpin", "annotate_device_placement",
     "shape_assertion", "SliceToDynamic", "PadToStatic", "TopK", "__gpu$TopK", "mhlo.topk", "ApproxTopK",
     "PartialReduce", "cu_lu_pivots_to_permutation", "hip_lu_pivots_to_permutation", "CreateBuffer",
     "cu_threefry2x32_ffi", "hip_threefry2x32_ffi", "RngBitGenerator", "ragged_all_to_all", "GlobalToLocalShape",
     "LocalToGlobalShape", "SliceId", "PrepareAsyncCallStart", "PrepareAsyncCallDone")
)  # fmt: skip
"""Targets that move, mark, compare, or draw random bits."""
_NOTHING_BEGINS = ("xla.sdy.", "X64", "xla.megascale.", "inspect_", "__cub$", "sdy.")
