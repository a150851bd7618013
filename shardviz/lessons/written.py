"""Functions that a learner writes by hand: one device's part of a program, run on simulated devices and scored.

    puzzle = sv.lessons.write("all-gather")      # what each device has, what it must have, and what is forbidden
    puzzle.answer(all_gather)                    # a `Try`: the first problem and a hint, or stars against par
    puzzle.reveal(give_up=True)                  # a solution; afterwards there are no stars

The function runs in its own process, with a limit on time. Par is the puzzle's own solution, measured in the same way:
bytes on the links, steps, and the largest array. `written.toml` has the puzzles.
"""

from __future__ import annotations

import base64
import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
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
    """A program's costs, or a schedule's.

    Attributes:
        sent: bytes that a device puts on the links; a permute's bytes count once per hop.
        steps: rounds of transfers, one after the other; a schedule's turns.
        largest: bytes of the largest array on a device; for a schedule, microbatches.
        report: the partitioned program.
        schedule: the schedule.
    """

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
    def times_par(self) -> float:
        """The largest of its costs as a multiple of par's; infinite if the function is wrong."""
        return max(self.of_par.values(), default=float("inf"))

    @property
    def stars(self) -> int:
        """3: par; 2: at most a quarter above; 1: right, and above; 0: wrong, or the solution was shown before."""
        return 0 if self.problem else self.stars_at(self.times_par, 1)

    @property
    def solved(self) -> bool:
        """Whether it is right, and at most a quarter above par."""
        return not self.problem and self.times_par <= NEAR

    @property
    def sentence(self) -> str:
        """The problem; or the cost that exceeds par most; or that par is reached."""
        if self.problem or self.mine is None or self.par is None:
            return self.problem
        times = self.of_par
        verb = max(times, key=lambda verb: times[verb])
        right = "The order is valid" if self.mine.schedule else "The values are right"
        if times[verb] <= PAR:
            return f"{right}, and par is reached."
        who = "it" if self.mine.schedule else "a device"
        return (
            f"{right}, but {who} {verb} {self.mine.words()[verb][1]}: {times[verb]:.2f} x par "
            f"({self.par.words()[verb][1]})."
        )


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
    result: Try | None = field(default=None, init=False)

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
            raise ShardvizError(
                f"answer: the function cannot be sent to its own process ({error}); use only what it "
                "defines itself, and imported modules"
            ) from error
        trial = processes.Trial("shardviz.lessons.running:run", data, {"puzzle": dict(self.about)})
        job = processes.tried(trial, self.limit, _MEMORY)
        stages = re.findall(rf"^{running.STAGE}(.*)$", job.stderr, re.MULTILINE)
        printed = re.sub(rf"^\n?{running.STAGE}.*\n|^[EFIW]\d{{4}} .*\n", "", job.stderr, flags=re.MULTILINE)
        problem, mine, par = _failed(job.exception(), stages[-1] if stages else "", self.limit), None, None
        if not problem:
            assert job.answer is not None
            answer = json.loads(job.answer)
            problem = answer.get("problem", "")
            if "orders" in answer:
                problem, mine, par = self._scheduled(answer["orders"])
            elif not problem:
                mine, par = (self._measured(**answer[whose]) for whose in ("mine", "par"))
        return self._tried(problem, mine, par, printed.strip())

    def _is_start(self, function: Any) -> bool:
        """Whether the function is the one to complete, unchanged; trying it does not count."""
        mine, start = getattr(function, "__code__", None), running.defined(self.about["start"]).__code__
        return mine is not None and (mine.co_code, mine.co_names) == (start.co_code, start.co_names)

    def drawn(self) -> str:
        """Return the schedule of the function to complete as text; empty if the puzzle is no schedule."""
        if not (sizes := self.about.get("schedule")):
            return ""
        start = running.defined(self.about["start"])
        return Schedule.of([start(stage, **sizes) for stage in range(sizes["stages"])], **sizes).drawn

    def _tried(self, problem: str, mine: FunctionCost | None, par: FunctionCost | None, printed: str) -> Try:
        attempt = Try(puzzle=self, problem=problem, mine=mine, par=par, helped=self.helped, printed=printed)
        shown, hints = self.count(attempt.solved), self.about["hints"]
        attempt = replace(attempt, tries=self.tries, left=FREE - self.wrong)
        if not attempt.solved:
            hint = hints[min(self.wrong, len(hints)) - 1]
            attempt = replace(attempt, hint=hint, solution=self.about["answer"] if shown else "")
        self.result = max(filter(None, (self.result, attempt)), key=lambda each: (each.stars, -each.times_par))
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

    def _scheduled(self, orders: list[list[str]]) -> tuple[str, FunctionCost | None, FunctionCost | None]:
        sizes, right, both = self.about["schedule"], running.defined(self.about["answer"]), []
        for order in (orders, [right(stage, **sizes) for stage in range(sizes["stages"])]):
            schedule = Schedule.of(order, **sizes)
            if schedule.problem:
                return schedule.problem, None, None
            both.append(FunctionCost(sent=0, steps=schedule.turns, largest=schedule.kept, schedule=schedule))
        return "", both[0], both[1]

    def _measured(self, export: str, largest: float) -> FunctionCost:
        exported = jax.export.deserialize(bytearray(base64.b64decode(export)))
        report = load(exported).program().partition(Plan(self.about["mesh"]))
        costs = [(c, c.count or 1, *_transfers(c, self.mesh)) for c in report.collectives]
        return FunctionCost(
            sent=sum(count * sent for _, count, sent, _ in costs),
            steps=sum(count * steps for _, count, _, steps in costs),
            largest=largest,
            report=report,
        )


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


def _failed(error: BaseException | None, stage: str, limit: float) -> str:
    """Return the sentence for a process that ended without an answer, or was stopped; empty without an error."""
    if error is None:
        return ""
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
