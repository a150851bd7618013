"""Step times that others measured and published, each with the program that is to take that time.

    for row in published().values():
        row.program.compile(row.plan, row.target), row.seconds

The table is `published.toml`; what this method predicts for each row is kept in `predicted.json`, which
`docs/predicted_and_measured.py` writes, so that it can be shown where no compiler is at hand.

>>> row = published()["B16"]
>>> row.model, row.target, round(row.seconds, 1), row.source.split(":")[0]
('maxtext-32b', 'tpu v5e:16x16', 12.1, 'maxtext')
"""

from __future__ import annotations

import functools
import itertools
import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

import jax.numpy as jnp
import numpy as np

from shardviz.ask import Program
from shardviz.costs.accuracy import Accuracy
from shardviz.costs.machine import machine_of
from shardviz.gallery.decoders import decoder_of
from shardviz.gallery.example import Example
from shardviz.kept import cached_property
from shardviz.program.plan import Plan
from shardviz.records.report import ASKED


@dataclass(frozen=True, kw_only=True, eq=False)
class Published:
    """A published step.

    Attributes:
        key: its name in the table.
        model: of `decoder_of`.
        target: the machine that it ran on.
        settings: the other arguments of `decoder_of`.
        options: the recipe's compiler options: flags, and names of `sv.option_sets`.
        printed: the seconds that are printed; 0 where a throughput is.
        tflops: the throughput that is printed, TFLOP/s of a device.
        source: where it is printed.
        differs: what the program does not have of what ran; empty where nothing is known.
        gives: a constant of a chip that comes from this row, which so is no judge of the method; empty for others.
        aside: it came after the method's first trials.
        predicted: level → the seconds that a timeline said when the table was last made.
    """

    key: str
    model: str
    target: str
    settings: Mapping[str, Any]
    options: tuple[str, ...] = ()
    printed: float = 0.0
    tflops: float = 0.0
    source: str
    differs: str = ""
    gives: str = ""
    aside: bool = False
    predicted: Mapping[str, float]

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


def _text(name: str) -> str:
    return resources.files("shardviz.gallery").joinpath(name).read_text(encoding="utf-8")
