"""The arithmetic of matrix products and convolutions, against NumPy arrays in which every product is made."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import sliding_window_view

from shardviz.records.counting import Window, convolution_flops, dot_flops


def ones_with_holes(size, step):
    """`size` ones, with `step - 1` zeros between two of them."""
    found = np.zeros(max(0, (size - 1) * step + 1), int)
    found[::step] = 1
    return found


@st.composite
def windows(draw):
    """A window, and how many of its products NumPy finds."""
    size, kernel = draw(st.integers(0, 12)), draw(st.integers(1, 9))
    stride, holes, kernel_holes = (draw(st.integers(1, 5)) for _ in range(3))
    low, high = (draw(st.integers(-4, 8)) for _ in range(2))
    line = ones_with_holes(size, holes)
    line = np.pad(line, (max(0, low), max(0, high)))[
        max(0, -low) : len(line) + max(0, low) + max(0, high) + min(0, high)
    ]
    taps = ones_with_holes(kernel, kernel_holes)
    places = sliding_window_view(line, len(taps))[::stride] if len(line) >= len(taps) else np.zeros((0, len(taps)), int)
    return Window(size, len(places), kernel, stride, low, holes, kernel_holes), int((places * taps).sum())


@given(windows())
def test_a_window_meets_what_it_meets_in_an_array(case):
    window, products = case
    assert window.products == products


@given(st.lists(windows(), min_size=0, max_size=3), *[st.integers(1, 3)] * 4)
def test_dimensions_groups_and_features_multiply(cases, batch, features, outputs, groups):
    each = 2.0 * batch * features * outputs
    for _, products in cases:
        each *= products
    sizes = {"windows": [window for window, _ in cases], "output_features": outputs}
    of_features = {"batch": batch, "input_features": features * groups, "feature_group_count": groups}
    of_batches = {"batch": batch * groups, "input_features": features, "batch_group_count": groups}
    assert convolution_flops(**sizes, **of_features) == convolution_flops(**sizes, **of_batches) == each


@given(st.lists(st.integers(0, 4), max_size=3), st.lists(st.integers(0, 4), max_size=2))
def test_an_element_of_a_product_is_two_flops_for_each_that_is_summed(output, contracted):
    made = np.ones((*output, *contracted))
    assert dot_flops(output, contracted) == 2 * made.sum()


def test_a_batch_that_is_written_as_a_window_is_counted_once():
    """XLA writes it so: each of the batch meets its own place of the kernel, and holes everywhere else."""
    many = 4096
    assert Window(many, many, many, stride=many - 1, input_dilation=many).products == many
