"""Published step times, and step times measured on one GPU, each with its program.

    for row in (*published().values(), *measured().values()):
        row.program.compile(row.plan, row.target), row.seconds

`published.toml` has the published rows, `predicted.json` a timeline's predictions for them. `measured.json` has the
times and predictions of the programs of `steps` on a GPU. `docs/measure_on_a_gpu.py` writes the GPU's times,
`docs/predicted_and_measured.py` the predictions, which readers without a compiler can show.

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
from shardviz.costs.accuracy import SEVERAL, Accuracy, hosts_of
from shardviz.costs.machine import machine_of
from shardviz.gallery.decoders import decoder_of
from shardviz.gallery.example import Example
from shardviz.gallery.steps import STEPS
from shardviz.plan.plan import Plan
from shardviz.records.report import ASKED


@dataclass(frozen=True, kw_only=True, eq=False)
class _Timed:
    """A step that was timed on a target.

    Attributes:
        key: the row's name.
        target: the target.
        gives: the constant of a chip that was derived from this row, so that the row cannot test the method.
        aside: whether the row was added after the method was changed, except for the last values of two constants.
        fixed: the error of the method that this row revealed and that was then corrected; only its `foretold` times
            test the method.
        predicted: level → the seconds of the timeline when the table was last written.
    """

    key: str
    target: str
    gives: str = ""
    aside: bool = False
    fixed: str = ""
    predicted: Mapping[str, float]

    @property
    def kind(self) -> str:
        """The kind of chip: `tpu` or `gpu`."""
        return self.target.split()[0]


@dataclass(frozen=True, kw_only=True, eq=False)
class Published(_Timed):
    """A published step.

    Attributes:
        model: the argument of `decoder_of`.
        settings: the other arguments of `decoder_of`.
        options: the recipe's compiler options: flags, and names of `sv.gallery.option_sets`.
        printed: the published seconds; 0 if a throughput was published.
        tflops: the published throughput, TFLOP/s per device.
        source: the place of publication.
        differs: the known differences between the program and the published run; empty if none are known.
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
        """The traced step."""
        return self.example.program

    @property
    def plan(self) -> Plan:
        """The plan, with the recipe's compiler options."""
        return self.example.plan.with_options(self.options)

    @property
    def seconds(self) -> float:
        """The measured seconds per step."""
        if self.printed:
            return self.printed
        return self.example.model_flops / machine_of(self.target).size / (self.tflops * 1e12)


def accuracies(rows: Iterable[Published | Measured]) -> list[Accuracy]:
    """Compare predicted with measured seconds, by kind of chip, hosts and level.

    Rows that give a constant or revealed an error are left out.
    """
    groups: dict[tuple[str, str], list[Published | Measured]] = {}
    for row in (row for row in rows if not row.gives and not row.fixed):
        groups.setdefault((row.kind, hosts_of(row.kind, machine_of(row.target).hosts)), []).append(row)
    accuracies = []
    for ((kind, hosts), group), level in itertools.product(groups.items(), ASKED):
        ratios = {row.key: row.seconds / row.predicted[level] for row in group if level in row.predicted}
        if not ratios:
            continue
        few = len(ratios) < 10 or hosts == SEVERAL
        low, median, high = np.percentile(list(ratios.values()), (0, 50, 100) if few else (10, 50, 90))
        error = np.median([abs(1 / ratio - 1) for ratio in ratios.values()])
        numbers = {"low": low, "high": high, "median": median, "error": error}
        numbers = {name: round(float(number), 3) for name, number in numbers.items()}
        accuracies.append(Accuracy(kind=kind, level=level, rows=tuple(ratios), hosts=hosts, **numbers))
    return accuracies


@functools.cache
def published() -> dict[str, Published]:
    """Return the table of published steps: key → row."""
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
    """Return the published steps that are not in the table: key → reason."""
    return tomllib.loads(_text("published.toml"))["left_out"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Measured(_Timed):
    """A measured step; its `key` is one of `STEPS`.

    Attributes:
        seconds: the median over several spans of many steps, of each span's seconds per step.
        least, most: the seconds per step of the shortest and the longest span.
        steps: the number of timed steps.
        peak_bytes: the allocator's peak after the step, arguments included, on the device that the file's `peaks` name.
        foretold: level → the seconds that were predicted before the measurement; empty without a prediction.
    """

    seconds: float
    least: float
    most: float
    steps: int
    peak_bytes: int
    foretold: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def step(self) -> Example:
        """The measured step."""
        return STEPS[self.key]()

    @property
    def program(self) -> Program:
        """The step, traced."""
        return self.step.program

    @property
    def plan(self) -> Plan:
        """The step's plan."""
        return self.step.plan


@functools.cache
def measured() -> dict[str, Measured]:
    """Return the table of measured steps, key → row, without rows that are not measured yet."""
    table = stored()
    rows = {key: row for key, row in table["rows"].items() if "seconds" in row}
    return {key: Measured(key=key, target=table["target"], **row) for key, row in rows.items()}


@functools.cache
def stored() -> dict[str, Any]:
    """Return the file's contents: `date`, `device`, `driver`, `jax`, `target`, `peaks` (of memory) and `rows`."""
    return json.loads(_text("measured.json"))


def _text(name: str) -> str:
    return resources.files("shardviz.gallery").joinpath(name).read_text(encoding="utf-8")
