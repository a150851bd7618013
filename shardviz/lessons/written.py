"""Functions that a learner writes by hand: one device's part of a program, run on simulated devices and scored.

The function runs in its own process, with a limit on time. If its results are right, it is measured as the puzzle's own
solution is, which is par: bytes on the links, steps, and the largest array. `written.toml` has the puzzles.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np

from shardviz import processes
from shardviz._jax.jaxprs import largest_array
from shardviz.ask.calls import trace
from shardviz.caching import cached_property
from shardviz.costs.collective import ring_transfers
from shardviz.costs.pipelining import drawn, most_kept, scheduled
from shardviz.errors import CompileMemoryLimit, CompileTimeout, ShardvizError
from shardviz.judge.report import Report
from shardviz.layouts import layout
from shardviz.lessons import running
from shardviz.lessons.questions import WORDS, GradedAnswer, Question, cost_row, table_of
from shardviz.notation import DeviceMesh
from shardviz.plan.plan import Plan
from shardviz.records.amounts import format_bytes
from shardviz.records.groups import grouped
from shardviz.study.workers import packed
from shardviz.tracing.meshes import abstract_mesh
from shardviz.view import document as doc
from shardviz.view.collectives import kinds_table
from shardviz.view.shard_map import map_blocks
from shardviz.view.show import Shown

_MEMORY = 6e9


@dataclass(frozen=True, kw_only=True, repr=False)
class Try(GradedAnswer):
    """A scored function.

    Attributes:
        costs: its costs, by the names in `words.toml`; empty if it is wrong.
        report: its partitioned program, if it is right and no schedule.
        schedule: its schedule as text; else empty.
        printed: the text that it printed.
    """

    costs: Mapping[str, float] = field(default_factory=dict)
    report: Report | None = None
    schedule: str = ""
    printed: str = ""


@dataclass(eq=False, repr=False)
class Written(Question):
    """A puzzle whose answer is a function that the learner writes.

    Args:
        name: the puzzle's name, such as `all-gather`.

    Attributes:
        about: its entry in `written.toml`.
        start, solution: the code that is given, and that of a solution.
        limit: seconds after which the function's process is ended.

    Raises:
        ShardvizError: if there is no such puzzle.

    Examples:
        >>> import shardviz as sv
        >>> puzzle = sv.lessons.write("all-gather")
        >>> puzzle.title
        'An all-gather out of permutes'
    """

    name: str
    about: Mapping[str, Any] = field(init=False)
    limit: float = field(default=20.0, init=False)

    ask = "write"

    def __post_init__(self) -> None:
        puzzles = table_of("written")
        if self.name not in puzzles:
            have = ", ".join(map(repr, puzzles))
            raise ShardvizError(f"write({self.name!r}): there is no such puzzle; there are {have}")
        self.about = puzzles[self.name]
        lines = self.about["code"].splitlines()
        self.start, self.solution = ("\n".join(line[1:] for line in lines if line[0] in (" ", sign)) for sign in "-+")
        self.title, self.mesh = self.about["title"], DeviceMesh.of(self.about["mesh"])
        self.right = "The order is valid" if "schedule" in self.about else "The values are right"
        self.example = "`puzzle.answer(the_function)`"

    @cached_property
    def par(self) -> Mapping[str, float]:
        """The costs of the puzzle's own solution."""
        return self._measured(running.defined(self.solution), self.grid(self.solution))["costs"]

    def answer(self, function: Any) -> Try:
        """Run a function on the simulated devices, compare it with the unsharded one, and measure it.

        Args:
            function: one device's part: it takes that device's shards, and may call the collectives of `jax.lax`.

        Raises:
            ShardvizError: if `function` is not a function, or cannot be sent to another process.
        """
        if not callable(function):
            raise ShardvizError(f"answer({type(function).__name__}): expected a function; define it with `def`")
        mine, start = getattr(function, "__code__", None), running.defined(self.start).__code__
        if mine is not None and (mine.co_code, mine.co_names) == (start.co_code, start.co_names):
            return Try(question=self, problem=WORDS["ended"]["start"])
        try:
            data = packed(function)
        except Exception as error:  # an object's own __reduce__ may raise anything
            why = f"({error}); use only what it defines itself, and imported modules"
            raise ShardvizError(f"answer: the function cannot be sent to its own process {why}") from error
        task = {"puzzle": dict(self.about), "advice": WORDS["advice"]}
        job = processes.tried(processes.Trial("shardviz.lessons.running:run", data, task), self.limit, _MEMORY)
        stages = re.findall(rf"^{running.STAGE}(.*)$", job.stderr, re.MULTILINE)
        printed = re.sub(rf"^\n?{running.STAGE}.*\n|^[EFIW]\d{{4}} .*\n", "", job.stderr, flags=re.MULTILINE).strip()
        made: dict[str, Any] = {"printed": printed}
        if (error := job.exception()) is not None:
            problem = _failed(error, stages[-1] if stages else "", self.limit)
        elif not (problem := (ran := json.loads(job.answer or b""))["problem"]):
            made |= self._measured(function, ran["grid"])
            problem = self._forbidden(made["report"]) if "report" in made else ""
        costs = {} if problem else made["costs"]
        rows = tuple(cost_row(name, amount, self.par[name]) for name, amount in costs.items())
        tried, hints = Try(question=self, rows=rows, problem=problem, **made), self.about["hints"].splitlines()
        hint = hints[min(self.wrong, len(hints) - 1)]
        return self.counted(replace(tried, ideas=() if tried.share == 1 else (hint,)))

    def shown(self) -> str:
        """Return the code of a solution."""
        return self.solution

    def above(self) -> Iterator[doc.Block]:
        """Yield the task: what each device has and must have, the function to complete, and what is forbidden."""
        yield doc.paragraph(*doc.with_code(self.about["task"]))
        alike = grouped(
            ((side, tuple(each["shape"]), tuple(axis or None for axis in each["spec"])), each["name"])
            for side in ("arguments", "results")
            for each in self.about.get(side, ())
            if each.get("drawn", True)
        )
        heads = {"arguments": "Each device has: ", "results": "Each device must have: "}
        maps = [
            doc.section(heads[side] + ", ".join(names), *map_blocks(Shown(layout(shape, spec, self.mesh)), 320))
            for (side, shape, spec), names in alike.items()
        ]
        yield from (doc.SideBySide(blocks=tuple(maps[i : i + 2])) for i in range(0, len(maps), 2))
        if grid := self.grid(self.start):
            yield doc.Figure(of=doc.Listing(drawn(grid)), caption="GPipe")
        start = doc.Figure(of=doc.Listing(self.start))
        yield doc.section("The function to complete", start, fold="closed", name="start")
        forbidden = ", ".join(f"jax.lax.{name}" for name in self.about.get("forbidden", ()))
        yield from doc.notes(forbidden and f"Forbidden: {forbidden}.")

    def below(self, answer: Try) -> Iterator[doc.Block]:
        """Yield what the function printed, its schedule or what it sends, and the solution if it is shown."""
        if answer.printed:
            yield doc.Figure(of=doc.Listing(answer.printed), caption="printed")
        if answer.shown and answer.share < 1:
            yield doc.Figure(of=doc.Listing(self.solution), caption="A solution")
        if answer.schedule:
            yield doc.Figure(of=doc.Listing(answer.schedule), caption="yours")
        if answer.report is not None:
            sent = answer.report.collectives
            far = any(c.kind == "collective-permute" for c in sent)
            notes = doc.notes("On the links, a permute over 3 links counts three times." if far else "")
            yield doc.section("The partitioned program", kinds_table(sent, timed=False), notes)

    def grid(self, code: str) -> list[list[str]]:
        """Return the schedule of a function, by its code; empty if the puzzle is no schedule."""
        sizes, function = self.about.get("schedule"), running.defined(code)
        return scheduled([function(n, **sizes) for n in range(sizes["stages"])], sizes["micro"]) if sizes else []

    def _measured(self, function: Any, grid: list[list[str]]) -> dict[str, Any]:
        """Return the costs of a right function, and its schedule or its partitioned program."""
        if grid:
            return {"costs": {"turns": len(grid[0]), "kept": most_kept(grid)}, "schedule": drawn(grid)}
        arrays = [jax.ShapeDtypeStruct(each.shape, each.dtype) for each in running.inputs_of(self.about)]
        on_devices = running.sharded(function, self.about, abstract_mesh(self.mesh))
        with contextlib.redirect_stdout(io.StringIO()):  # its own process has printed already
            largest = largest_array(on_devices.trace(*arrays).jaxpr)
            report = trace(on_devices, *arrays).partition(Plan(self.mesh, running.specs_of(self.about, "arguments")))
        moved = [(c.count or 1) * np.array(ring_transfers(c, self.mesh)) for c in report.collectives]
        sent, steps = sum(moved, np.zeros(2)).tolist()
        return {"costs": {"sent": sent, "steps": steps, "largest": largest}, "report": report}

    def _forbidden(self, report: Report) -> str:
        """Return the sentence for a forbidden collective; empty if there is none."""
        names = {WORDS["functions"].get(c.kind, "") for c in report.collectives} & {*self.about["forbidden"]}
        also = " (as `pmean` does)" if "psum" in names else ""
        return f"The function calls `{max(names)}`{also}, which this puzzle forbids." if names else ""


write = Written


def _failed(error: BaseException, stage: str, limit: float) -> str:
    """Return the sentence for a process that ended without an answer, or was stopped."""
    late, ended = WORDS["late"], WORDS["ended"]
    if isinstance(error, CompileTimeout):
        return late.get(stage, late["reading"]).format(limit=limit)
    why = "memory" if isinstance(error, CompileMemoryLimit) else "running" if stage.startswith("running") else "other"
    return ended[why].format(memory=format_bytes(_MEMORY), error=error)
