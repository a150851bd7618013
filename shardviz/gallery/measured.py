"""Step times that were measured, by others who published them or on one GPU, each with the program that took that time.

    for row in (*published().values(), *measured().values()):
        row.program.compile(row.plan, row.target), row.seconds

What was published stands in `published.toml`, what a timeline predicts for it in `predicted.json`. What the programs of
`steps` took on a GPU, and what is predicted of them, stands in `measured.json`. `docs/measure_on_a_gpu.py` writes the
times of a GPU, `docs/predicted_and_measured.py` the predictions, to be shown where no compiler is at hand.

>>> row = published()["B16"]
>>> row.model, row.target, round(row.seconds, 1), row.source.split(":")[0]
('maxtext-32b', 'tpu v5e:16x16', 12.1, 'maxtext')
>>> row = measured()["product 8192 bfloat16"]
>>> row.target, f"{2 * 8192**3 / row.seconds / 1e12:.0f} TFLOP/s"
('gpu h100:1x1', '713 TFLOP/s')
"""

from __future__ import annotations

import functools
import itertools
import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

import jax.numpy as jnp
import numpy as np

from shardviz.ask import Program
from shardviz.caching import cached_property
from shardviz.costs.accuracy import Accuracy
from shardviz.costs.machine import machine_of
from shardviz.gallery.decoders import decoder_of
from shardviz.gallery.example import Example
from shardviz.gallery.steps import STEPS
from shardviz.program.plan import Plan
from shardviz.records.report import ASKED


@dataclass(frozen=True, kw_only=True, eq=False)
class _Timed:
    """A step that somebody has timed on a target. `gives` is a constant of a chip that comes from this row, which so is
    no judge of the method; `aside`: it came after the method was mended, all but two constants' last values;
    `predicted`: level → the seconds that a timeline gave when the table was last made."""

    key: str
    target: str
    gives: str = ""
    aside: bool = False
    predicted: Mapping[str, float]


@dataclass(frozen=True, kw_only=True, eq=False)
class Published(_Timed):
    """A published step.

    Attributes:
        model: of `decoder_of`.
        settings: the other arguments of `decoder_of`.
        options: the recipe's compiler options: flags, and names of `sv.gallery.option_sets`.
        printed: the seconds that are printed; 0 where a throughput is.
        tflops: the throughput that is printed, TFLOP/s of a device.
        source: where it is printed.
        differs: what the program does not have of what ran; empty where nothing is known.
    """

    model: str
    settings: Mapping[str, Any]
    options: tuple[str, ...] = ()
    printed: float = 0.0
    tflops: float = 0.0
    source: str
    differs: str = ""

    @cached_property
    def example(self) -> Example:
        """The program with its plan."""
        return decoder_of(self.model, **self.settings)

    @property
    def program(self) -> Program:
        """The step."""
        return self.example.program

    @property
    def plan(self) -> Plan:
        """Its plan, with the recipe's compiler options."""
        return self.example.plan.with_options(self.options)

    @property
    def kind(self) -> str:
        """The kind of chip: `tpu` or `gpu`."""
        return self.target.split()[0]

    @property
    def seconds(self) -> float:
        """What was measured."""
        if self.printed:
            return self.printed
        return self.example.model_flops / machine_of(self.target).size / (self.tflops * 1e12)


def accuracies(rows: Iterable[Published]) -> list[Accuracy]:
    """How far predicted was from measured, by kind of chip and level, without rows that give a constant or levels that
    no row has."""
    accuracies = []
    for kind, level in itertools.product(("tpu", "gpu"), ASKED):
        ratios = {
            row.key: row.seconds / row.predicted[level]
            for row in rows
            if row.kind == kind and level in row.predicted and not row.gives
        }
        if not ratios:
            continue
        low, median, high = np.percentile(list(ratios.values()), (10, 50, 90) if len(ratios) >= 10 else (0, 50, 100))
        error = np.median([abs(1 / ratio - 1) for ratio in ratios.values()])
        numbers = {"low": low, "high": high, "median": median, "error": error}
        accuracies.append(
            Accuracy(kind=kind, level=level, rows=tuple(ratios), **{k: round(float(v), 3) for k, v in numbers.items()})
        )
    return accuracies


@functools.cache
def published() -> dict[str, Published]:
    """The table: key → row."""
    table, predicted = tomllib.loads(_text("published.toml")), json.loads(_text("predicted.json"))
    rows = {key: table["recipes"].get(row.pop("recipe", ""), {}) | row for key, row in table["rows"].items()}
    return {key: _row(key, row, predicted.get(key, {})) for key, row in rows.items()}


def _row(key: str, row: dict[str, Any], predicted: Mapping[str, float]) -> Published:
    own = {"printed": row.pop("seconds", 0.0), "options": tuple(row.pop("options", ()))}
    own |= {
        name: row.pop(name)
        for name in ("model", "target", "tflops", "source", "differs", "gives", "aside")
        if name in row
    }
    row |= {name: jnp.dtype(row[name]).type for name in ("weights", "moments") if name in row}
    return Published(key=key, settings=row, predicted=predicted, **own)


def left_out() -> dict[str, str]:
    """Published steps that are not in the table: key → why."""
    return tomllib.loads(_text("published.toml"))["left_out"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Measured(_Timed):
    """A measured step; its `key` is one of `STEPS`.

    Attributes:
        seconds: the median of several spans of many steps, each span's by their number.
        least, most: of the shortest and the longest span.
        steps: how many were timed.
        peak_bytes: the most that the device's allocator had given out when the step had run, with its arguments; on the
            device that `peaks` of the file names.
        foretold: level → the seconds that were written down before it was measured; empty where none were.
        mended: what it showed to be wrong and was mended then, so that only what was foretold judges; mostly empty.
    """

    seconds: float
    least: float
    most: float
    steps: int
    peak_bytes: int
    foretold: Mapping[str, float] = field(default_factory=dict)
    mended: str = ""

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
    """The file: `date`, `device`, `driver`, `jax`, `target`, of memory `peaks`, and `rows`."""
    return json.loads(_text("measured.json"))


def _text(name: str) -> str:
    return resources.files("shardviz.gallery").joinpath(name).read_text(encoding="utf-8")
