"""What a dry run recorded: the programs in their order, each with its `Program` and `Plan`; transfers; live memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from shardviz.ask import Program
from shardviz.display import Displayed
from shardviz.errors import ShardvizError
from shardviz.plan.plan import Plan
from shardviz.records.runs import RunCall, RunNote, RunProgram, RunRecord, Transfer


@dataclass(frozen=True, eq=False)
class RunStep:
    """A program of a run.

    Attributes:
        name: the function's name.
        record: its arguments, results and calls, as plain data.
        program, plan: what shardviz explores, on one device on the mesh `device=1`; None if shardviz cannot read it.
        why_not: why there is no program.
        target: the run's machine, where the program is on all of it; else empty.
    """

    name: str
    record: RunProgram
    program: Program | None = None
    plan: Plan | None = None
    why_not: str = ""
    target: str = ""


@dataclass(eq=False, repr=False)
class Run(Displayed):
    """A script or a notebook cell that ran with nothing computed. Made by `sv.dry_run`.

    Attributes:
        record: all that is plain data, see `RunRecord`.
        steps: the programs in the order of their first calls.

    Examples:
        >>> import jax, jax.numpy as jnp, shardviz as sv
        >>> with sv.dry_run() as run:
        ...     total = jax.jit(lambda x: x.sum())(jnp.zeros((100_000, 10_000)))
        >>> [step.name for step in run.steps][-1]
        '<lambda>'
    """

    record: RunRecord
    steps: tuple[RunStep, ...] = field(default=())

    def __getitem__(self, name: str | int) -> RunStep:
        """Return a program by its name or its place in the run; of several of one name the largest.

        Raises:
            ShardvizError: if there is no program of the name.
        """
        if isinstance(name, int):
            return self.steps[name]
        named = [step for step in self.steps if step.name == name]
        if not named:
            names = ", ".join(dict.fromkeys(step.name for step in self.steps)) or "none"
            raise ShardvizError(f"run[{name!r}]: no program of the run has this name; it has {names}")
        return max(named, key=lambda step: step.record.bytes_per_device)

    @property
    def longest(self) -> RunStep:
        """The program whose calls take longest, as far as that is known, else the largest; one of a single device only
        where no other is there.

        Raises:
            ShardvizError: if there is none that shardviz can read.
        """
        there = [step for step in self.steps if step.program is not None]
        if not there:
            raise ShardvizError("this run has no program that shardviz can read")
        took = lambda step: (step.record.seconds or 0) * step.record.calls  # noqa: E731
        return max(there, key=lambda step: (step.record.devices > 1, took(step), step.record.bytes_per_device))

    def __iter__(self) -> Iterator[RunStep]:
        return iter(self.steps)

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def programs(self) -> tuple[RunProgram, ...]:
        return self.record.programs

    @property
    def transfers(self) -> tuple[Transfer, ...]:
        return self.record.transfers

    @property
    def calls(self) -> tuple[RunCall, ...]:
        return self.record.calls

    @property
    def notes(self) -> tuple[RunNote, ...]:
        return self.record.notes

    def to_json(self, indent: int | None = None) -> str:
        """Return the record as JSON; `RunRecord.from_json` reads it."""
        return self.record.to_json(indent)
