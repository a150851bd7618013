"""Functions that a learner writes by hand: one device's part of a program, run on simulated devices and scored.

The function runs in its own process, with a limit on time. Par is the puzzle's own solution, measured in the same way:
bytes on the links, steps, and the largest array. `written.toml` has the puzzles.
"""

from __future__ import annotations

import base64
import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any

import jax
import numpy as np

from shardviz import processes
from shardviz.caching import cached_property
from shardviz.compat.export_files import load
from shardviz.compiler.collectives import parse_pairs
from shardviz.errors import CompileMemoryLimit, CompileTimeout, ShardvizError
from shardviz.judge.report import Report
from shardviz.lessons import running
from shardviz.lessons.asked import FREE, NEAR, PAR, Question, Starred
from shardviz.lessons.schedules import Schedule
from shardviz.notation import DeviceMesh
from shardviz.plan.plan import Plan
from shardviz.records import Collective
from shardviz.records.amounts import format_bytes, format_number
from shardviz.study.workers import packed

_MEMORY = 6e9


@dataclass(frozen=True, kw_only=True)
class FunctionCost:
    """The costs of a partitioned program: the bytes that a device puts on the links (a permute's count once per hop),
    the rounds of transfers, and the bytes of the largest array. For a schedule, its turns and the microbatches kept."""

    sent: float
    steps: float
    largest: float
    report: Report | None = None
    schedule: Schedule | None = None

    def words(self) -> dict[str, tuple[float, str]]:
        """Return a verb for each cost → the amount and its text, such as `sends` → (8.0, "8 B")."""
        if self.schedule is not None:
            held = f"{format_number(self.largest)} microbatches at once on a stage"
            return {"takes": (self.steps, f"{format_number(self.steps)} turns"), "keeps": (self.largest, held)}
        return {
            "sends": (self.sent, format_bytes(self.sent)),
            "takes": (self.steps, f"{format_number(self.steps)} steps"),
            "holds": (self.largest, f"{format_bytes(self.largest)} in one array"),
        }


@dataclass(frozen=True, kw_only=True, repr=False)
class Try(Starred):
    """A scored function; `tries` is 0 for the function to complete.

    Attributes:
        puzzle: the puzzle.
        left: number of wrong tries after which the solution is shown.
        problem: the first problem, one sentence; empty if the function is right.
        mine, par: the costs; None if the function is wrong.
        hint: the next hint; empty if none is needed.
        solution: the code of a solution, after the third wrong try; else empty.
        printed: what the function printed.
    """

    puzzle: Written
    left: int = 0
    problem: str = ""
    mine: FunctionCost | None = None
    par: FunctionCost | None = None
    hint: str = ""
    solution: str = ""
    printed: str = ""

    @property
    def of_par(self) -> dict[str, float]:
        """Its costs as multiples of par's, by the verbs of `FunctionCost.words`; empty if the function is wrong."""
        if self.mine is None or self.par is None:
            return {}
        par = self.par.words()
        return {verb: amount / max(par[verb][0], 1e-9) for verb, (amount, _) in self.mine.words().items()}

    @property
    def worst(self) -> float:
        return max(self.of_par.values(), default=float("inf"))

    @property
    def solved(self) -> bool:
        """Whether it is right, and at most a quarter above par."""
        return self.worst <= NEAR

    @property
    def sentence(self) -> str:
        """The problem; or the cost that exceeds par most; or that par is reached."""
        if self.problem or self.mine is None or self.par is None:
            return self.problem
        right, who = ("The order is valid", "it") if self.mine.schedule else ("The values are right", "a device")
        verb, times = max(self.of_par.items(), key=lambda each: each[1])
        mine, par = (costs.words()[verb][1] for costs in (self.mine, self.par))
        if times <= PAR:
            return f"{right}, and par is reached."
        return f"{right}, but {who} {verb} {mine}: {times:.2f} x par ({par})."


@dataclass(eq=False, repr=False)
class Written(Question):
    """A puzzle whose answer is a function; made by `sv.lessons.write`.

    Attributes:
        name: the puzzle's name.
        about: its entry in `written.toml`.
        limit: seconds after which the function's process is ended.
        result: the best `Try` so far; None before the first.
    """

    name: str
    about: Mapping[str, Any]
    limit: float = 20.0

    ask = "write"

    @property
    def title(self) -> str:
        """The puzzle's title."""
        return self.about["title"]

    @cached_property
    def mesh(self) -> DeviceMesh:
        """The mesh of simulated devices."""
        return DeviceMesh.of(self.about["mesh"])

    def answer(self, function: Any) -> Try:
        """Run a function on the simulated devices, compare it with the unsharded one, and measure it.

        Args:
            function: one device's part: it takes that device's shards, and may call the collectives of `jax.lax`.

        Raises:
            ShardvizError: if `function` is not a function, or cannot be sent to another process.
        """
        if not callable(function):
            raise ShardvizError(f"answer({type(function).__name__}): expected a function; define it with `def`")
        if self._is_start(function):
            words = "This is the function as it was given: write what its comments say, and run the cell again."
            return Try(puzzle=self, problem=words)
        try:
            data = packed(function)
        except Exception as error:  # an object's own __reduce__ may raise anything
            words = f"({error}); use only what it defines itself, and imported modules"
            raise ShardvizError(f"answer: the function cannot be sent to its own process {words}") from error
        trial = processes.Trial("shardviz.lessons.running:run", data, {"puzzle": dict(self.about)})
        job = processes.tried(trial, self.limit, _MEMORY)
        stages = re.findall(rf"^{running.STAGE}(.*)$", job.stderr, re.MULTILINE)
        printed = re.sub(rf"^\n?{running.STAGE}.*\n|^[EFIW]\d{{4}} .*\n", "", job.stderr, flags=re.MULTILINE)
        if (error := job.exception()) is not None:
            answer = {"problem": _failed(error, stages[-1] if stages else "", self.limit)}
        elif "orders" in (answer := json.loads(job.answer or b"")):
            answer = self._scheduled(answer["orders"])
        elif "problem" not in answer:
            answer = {whose: self._measured(**measured) for whose, measured in answer.items()}
        return self._tried(printed=printed.strip(), **answer)

    def _is_start(self, function: Any) -> bool:
        """Return whether the function is the one to complete, unchanged; trying it does not count."""
        mine, start = getattr(function, "__code__", None), running.defined(self.about["start"]).__code__
        return mine is not None and (mine.co_code, mine.co_names) == (start.co_code, start.co_names)

    def drawn(self) -> str:
        """Return the schedule of the function to complete as text; empty if the puzzle is no schedule."""
        return self._schedule("start").drawn if "schedule" in self.about else ""

    def _schedule(self, part: str) -> Schedule:
        sizes, function = self.about["schedule"], running.defined(self.about[part])
        return Schedule.of([function(stage, **sizes) for stage in range(sizes["stages"])], **sizes)

    def _tried(self, **about: Any) -> Try:
        attempt = Try(puzzle=self, tries=self.tries + 1, helped=self.helped, **about)
        shown, hints = self.count(attempt.solved), self.about["hints"]
        if not attempt.solved:
            hint, solution = hints[min(self.wrong, len(hints)) - 1], self.about["answer"] if shown else ""
            attempt = replace(attempt, hint=hint, solution=solution, left=FREE - self.wrong)
        self.keep(attempt)
        return attempt

    def reveal(self, *, give_up: bool = False) -> str:
        """Return the code of a solution.

        Args:
            give_up: show it before the third wrong try; functions tried later get no stars.

        Raises:
            ShardvizError: if there are fewer than three wrong tries, none is right, and `give_up` is False.
        """
        self.give(self.result is not None and self.result.solved, give_up)
        return self.about["answer"]

    def _scheduled(self, orders: list[list[str]]) -> dict[str, Any]:
        mine, par = Schedule.of(orders, **self.about["schedule"]), self._schedule("answer")
        if mine.problem:
            return {"problem": mine.problem}
        costs = (FunctionCost(sent=0, steps=each.turns, largest=each.kept, schedule=each) for each in (mine, par))
        return dict(zip(("mine", "par"), costs, strict=True))

    def _measured(self, export: str, largest: float) -> FunctionCost:
        exported = jax.export.deserialize(bytearray(base64.b64decode(export)))
        report = load(exported).program().partition(Plan(self.about["mesh"]))
        costs = [(c.count or 1) * np.array(_transfers(c, self.mesh)) for c in report.collectives]
        sent, steps = sum(costs, np.zeros(2)).tolist()
        return FunctionCost(sent=sent, steps=steps, largest=largest, report=report)


def _transfers(c: Collective, mesh: DeviceMesh) -> tuple[float, float]:
    """Return the bytes that a device puts on the links in a run, and the number of steps, on rings of the mesh's axes.

    A permute's bytes count once for each hop. Other collectives go round their ring.
    """
    if c.kind == "collective-permute":
        coords = np.stack(np.unravel_index(parse_pairs(c.groups), mesh.sizes), axis=-1)
        ahead = np.abs(coords[:, 1] - coords[:, 0])
        hops = np.minimum(ahead, np.array(mesh.sizes) - ahead).sum(axis=1)
        return c.operand_bytes * float(hops.sum()) / mesh.size, float(hops.max(initial=0))
    others = (c.group_size or mesh.size) - 1
    return c.sent_bytes, float(2 * others if c.kind == "all-reduce" else others)


def _failed(error: BaseException, stage: str, limit: float) -> str:
    """Return the sentence for a process that ended without an answer, or was stopped."""
    if isinstance(error, CompileTimeout):
        return {
            "tracing": f"The function did not end within {limit:g} s: a Python loop in it never ends.",
            "running": f"The program did not end within {limit:g} s: a loop in it never ends.",
            running.CROSSED: f"The program did not end within {limit:g} s. A branch or a loop contains a collective. "
            "Either the loop never ends, or only some devices call the collective and wait for the others (deadlock).",
        }.get(stage, f"The check did not end within {limit:g} s; the machine may be busy: try again.")
    if isinstance(error, CompileMemoryLimit):
        return f"The function used more than {format_bytes(_MEMORY)} of memory."
    if stage in ("running", running.CROSSED):
        return f"The program's process ended while it ran: {error}"
    return f"The function could not be checked: {error}"


def write(name: str) -> Written:
    """Make a puzzle whose answer is a function that the learner writes.

    Args:
        name: the puzzle's name, such as `all-gather`.

    Raises:
        ShardvizError: if there is no such puzzle.

    Examples:
        >>> import shardviz as sv
        >>> puzzle = sv.lessons.write("all-gather")
        >>> puzzle.title
        'An all-gather out of permutes'
    """
    puzzles = tomllib.loads((files("shardviz.lessons") / "written.toml").read_text(encoding="utf-8"))
    if name not in puzzles:
        raise ShardvizError(f"write({name!r}): there is no such puzzle; there are {', '.join(map(repr, puzzles))}")
    return Written(name, puzzles[name])
