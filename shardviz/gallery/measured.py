"""Steps that were measured on one GPU, each with the program that took that time.

    for row in measured().values():
        row.program.compile(row.plan, row.target), row.seconds

The programs are those of `steps`; what they took, on which GPU, by which JAX and when is kept in `measured.json`, which
`docs/measure_on_a_gpu.py` writes where there is a GPU, and beside it what a timeline says, which
`docs/predicted_and_measured.py` writes.

>>> row = measured()["product 8192 bfloat16"]
>>> row.target, f"{2 * 8192**3 / row.seconds / 1e12:.0f} TFLOP/s"
('gpu h100:1x1', '713 TFLOP/s')
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from shardviz.ask import Program
from shardviz.gallery.example import Example
from shardviz.gallery.steps import STEPS
from shardviz.kept import cached_property
from shardviz.program.plan import Plan


@dataclass(frozen=True, kw_only=True, eq=False)
class Measured:
    """A measured step.

    Attributes:
        key: of `STEPS`.
        target: the machine that it ran on.
        seconds: the median of several spans of many steps, each span's by their number.
        least, most: of the shortest and the longest span.
        steps: how many were timed.
        gives: a constant of a chip that comes from this row, which so is no judge of the method; empty for others.
        aside: it was measured after the method's mends, all but two constants' last values.
        foretold: level → the seconds that were written down before it was measured; empty where none were.
        mended: what it showed to be wrong and was mended then, so that only what was foretold judges; mostly empty.
        predicted: level → the seconds that a timeline said when the table was last made.
    """

    key: str
    target: str
    seconds: float
    least: float
    most: float
    steps: int
    gives: str = ""
    aside: bool = False
    foretold: Mapping[str, float] = field(default_factory=dict)
    mended: str = ""
    predicted: Mapping[str, float]

    @cached_property
    def step(self) -> Example:
        """What ran."""
        return STEPS[self.key]()

    @property
    def program(self) -> Program:
        """The step, traced."""
        return self.step.program

    @property
    def plan(self) -> Plan:
        """Its plan."""
        return self.step.plan


@functools.cache
def measured() -> dict[str, Measured]:
    """The table: key → row; of what was measured already."""
    table = stored()
    rows = {key: row for key, row in table["rows"].items() if "seconds" in row}
    return {key: Measured(key=key, target=table["target"], **row) for key, row in rows.items()}


@functools.cache
def stored() -> dict[str, Any]:
    """The file: `date`, `device`, `driver`, `jax`, `target` and `rows`."""
    return json.loads(resources.files("shardviz.gallery").joinpath("measured.json").read_text(encoding="utf-8"))
