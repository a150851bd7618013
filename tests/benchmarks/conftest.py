"""A yardstick for what no raw call of JAX, Shardy or XLA can be set against: the same machine in the same run."""

from __future__ import annotations

import statistics
import timeit
import zlib

import numpy as np
import pytest


@pytest.fixture
def yardstick():
    """Gives the seconds that zlib takes, just then, for a megabyte of random hexadecimal digits: some tens of ms."""
    data = np.random.default_rng(0).integers(0, 16, 1 << 20, dtype=np.uint8).tobytes()
    return lambda: statistics.median(timeit.repeat(lambda: zlib.compress(data, 5), number=1, repeat=5))
