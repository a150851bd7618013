"""The error of predicted step times against measured ones: the factors around `step.seconds`.

For each kind of chip and each schedule, `accuracy.toml` has the factors between published step times of decoders and
their predictions; the script of `docs/predicted_and_measured.md` writes both. GPUs of one host and of several have
separate factors, because the prediction lacks costs that grow with the number of hosts. `COMPILED` has the error of a
level against a TPU's compiler on other kinds of programs.

>>> accuracy_of("tpu", "compiled").low < 1 < accuracy_of("tpu", "compiled").high
True
>>> accuracy_of("gpu", "compiled", hosts=2).high > accuracy_of("gpu", "compiled").high
True
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

STEP_ERROR = 0.04
"""The share of a step below which no level but the target's compiler tells whether a change saves any: the fixes tried
in `docs/promised_and_compiled.py` that made the compiled step longer promised less, one of them 3.2 %."""

COMPILED = {"propagated": (0.88, 1.69), "partitioned": (0.87, 1.24)}
"""Level → between which factors the compiled steps of nine of ten plans in `docs/promised_and_compiled.md` lie."""
_PLANS = 277


@dataclass(frozen=True)
class Accuracy:
    """How far the published steps of one kind of chip were from the predictions at one level.

    Attributes:
        kind: of chip, `tpu` or `gpu`.
        level: of the report.
        low, high: the 10th and 90th percentile of measured seconds by predicted ones; the least and the most where
            there are fewer than ten rows, or on several hosts.
        median: of the same.
        error: the median distance from 1.
        rows: whose these are.
        hosts: of GPUs, where these rows ran: `one host` or `several hosts`; empty for TPUs.
    """

    kind: str
    level: str
    low: float
    high: float
    median: float
    error: float
    rows: tuple[str, ...]
    hosts: str = ""

    @property
    def band(self) -> tuple[float, float]:
        """The factors around a predicted step: those of measured steps, or of compiled plans where these are wider."""
        least, most = COMPILED.get(self.level, (1.0, 1.0)) if self.kind == "tpu" else (1.0, 1.0)
        return (min(self.low, least), max(self.high, most)) if self.low <= 1.0 <= self.high else (self.low, self.high)

    def __str__(self) -> str:
        where = f" on {self.hosts}" if self.hosts else ""
        why = f"; {HOSTS}" if self.hosts == SEVERAL else ""
        ratios = f"{self.low:.2f} to {self.high:.2f} times what was predicted"
        rests = f"{len(self.rows)} published steps{where} took {ratios}"
        if self.band == (self.low, self.high):
            return f"{rests}{why}"
        least, most = COMPILED[self.level]
        return f"{rests}; compiled, nine of ten of {_PLANS} plans of other programs {least:.2f} to {most:.2f} times"


ONE, SEVERAL = "one host", "several hosts"
HOSTS = "what grows with the hosts is not in the prediction: the wait for the slowest, NCCL between hosts, launches"
"""Why a step on several hosts of GPUs takes longer than predicted."""


def accuracy_of(kind: str, level: str, hosts: int = 1) -> Accuracy | None:
    """Return the accuracy for a kind of chip (`tpu`, `gpu`), a level and a number of hosts; None if no published step
    was compared."""
    return _accuracies().get((kind, level, hosts_of(kind, hosts)))


def hosts_of(kind: str, hosts: int) -> str:
    """Return the `Accuracy.hosts` that applies to a machine."""
    return "" if kind != "gpu" else ONE if hosts == 1 else SEVERAL


@functools.cache
def _accuracies() -> Mapping[tuple[str, str, str], Accuracy]:
    text = (files("shardviz.costs") / "accuracy.toml").read_text("utf-8")
    entries = (Accuracy(**entry | {"rows": tuple(entry["rows"])}) for entry in tomllib.loads(text)["accuracy"])
    return {(each.kind, each.level, each.hosts): each for each in entries}
