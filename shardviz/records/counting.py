"""Arithmetic of products, shared by the readers of HLO and StableHLO.

A matrix product and a convolution count 2 for every product of two numbers:

>>> dot_flops(output=(4, 2), contracted=(8,))
128.0

A convolution counts only products of two existing numbers, not products with padding or with the holes of a
dilated input. A window of 3 on 8 pixels, padded to keep the size, is beyond the edge 2 times:

>>> Window(8, 8, kernel=3, low=1).products
22
>>> convolution_flops(batch=1, input_features=16, output_features=32, windows=[Window(8, 8, kernel=3, low=1)])
22528.0

XLA's `HloCostAnalysis::GetConvolutionFlops` counts in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple


def dot_flops(output: Iterable[int], contracted: Iterable[int]) -> float:
    """Return the FLOPs of a matrix product: 2 x output size (including batch) x size of the contracted dimensions."""
    return 2.0 * math.prod(output) * math.prod(contracted)


def ragged_dot_flops(left: Sequence[int], right: Sequence[int], met: Iterable[int]) -> float:
    """Return the FLOPs of a ragged matrix product (`lax.ragged_dot`): 2 for each product of two numbers.

    `left` and `right` are the factors' sizes. `met` are the right factor's dimensions that are contracted, batch, or
    groups. Each row of the ragged dimension meets one group's part of the other factor, so the number of groups is not
    a factor. Rows beyond the sum of the group sizes count too, since the sizes are data.

    >>> ragged_dot_flops((4096, 1024), (8, 1024, 512), met=[0, 1]) == 2 * 4096 * 1024 * 512
    True
    """
    met = set(met)
    return 2.0 * math.prod(left) * math.prod(size for d, size in enumerate(right) if d not in met)


class Window(NamedTuple):
    """The movement of a convolution's window along one spatial dimension.

    Output element `o` sums, over the kernel's elements `k`, the products with the dilated input's element
    `o x stride - low + k x kernel_dilation`, which is input element `i` if it equals `i x input_dilation`. A
    reversed window has the same pairs in another order. The output's size includes the effect of the high padding.

    Attributes:
        input, output, kernel: sizes along the dimension, as stored: without padding, without holes.
        stride: the step from one output element to the next (`window_strides`).
        low: padding before the first input element; negative if elements are left out.
        input_dilation: the step from one input element to the next (`lhs_dilation`, `base_dilation`): 1 for no holes.
        kernel_dilation: the step from one kernel element to the next (`rhs_dilation`, `window_dilation`).
    """

    input: int
    output: int
    kernel: int
    stride: int = 1
    low: int = 0
    input_dilation: int = 1
    kernel_dilation: int = 1

    @property
    def products(self) -> int:
        """The pairs of an output and a kernel element that meet an element of the input."""
        return _products(self)


def convolution_flops(
    *,
    batch: int,
    input_features: int,
    output_features: int,
    windows: Iterable[Window],
    feature_group_count: int = 1,
    batch_group_count: int = 1,
) -> float:
    """Return the FLOPs of a convolution with a window for each spatial dimension.

        2 x batch / batch groups x input features / feature groups x output features x products along each dimension

    Features are of all groups together; group counts are as in HLO, StableHLO and `conv_general_dilated`. Without
    windows it is a matrix product.
    """
    each = (batch // batch_group_count) * (input_features // feature_group_count) * output_features
    return 2.0 * each * math.prod(window.products for window in windows)


@lru_cache(maxsize=4096)
def _products(window: Window) -> int:
    # loops over the shorter of kernel and output; the matching elements of the longer one follow by arithmetic
    size, output, kernel, stride, low, holes, dilation = window
    many, step, few, other = (output, stride, kernel, dilation)
    if output < kernel:
        many, step, few, other = (kernel, dilation, output, stride)
    last = (size - 1) * holes
    common = math.gcd(step, holes)
    period = holes // common
    inverse = pow(step // common, -1, period)
    total = 0
    for j in range(few if size > 0 else 0):
        shift = low - j * other  # need 0 <= i x step - shift <= last, a multiple of `holes`
        if shift % common:
            continue
        begin = max(0, -(-shift // step))
        end = min(many - 1, (shift + last) // step)
        first = shift // common * inverse % period
        begin += (first - begin) % period
        if begin <= end:
            total += (end - begin) // period + 1
    return total
