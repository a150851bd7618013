"""Functions that a learner writes by hand: one device's part of a program, run on simulated devices and scored.

The function runs in its own process, with a limit on time. If its results are right, it is measured as the puzzle's own
solution is, which is par: bytes on the links, steps, and the largest array. `written.toml` has the puzzles.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any

import jax
import numpy as np

from shardviz import processes
from shardviz._jax.jaxprs import every_equation, sub_jaxprs
from shardviz.ask.calls import trace
from shardviz.caching import cached_property
from shardviz.compiler.collectives import parse_pairs
from shardviz.errors import CompileMemoryLimit, CompileTimeout, ShardvizError
from shardviz.judge.report import Report
from shardviz.layouts import layout
from shardviz.lessons import running
from shardviz.lessons.questions import Answer, Question, Row, cost_row, with_code
from shardviz.notation import DeviceMesh
from shardviz.plan.plan import Plan
from shardviz.records import Collective
from shardviz.records.amounts import format_bytes, format_number
from shardviz.records.groups import grouped
from shardviz.study.workers import packed
from shardviz.tracing.meshes import abstract_mesh
from shardviz.view import document as doc
from shardviz.view.shard_map import map_blocks
from shardviz.view.show import Shown

_MEMORY = 6e9
_COSTS = {
    "sent": ("a device sends", format_bytes, ""),
    "steps": ("a device takes", format_number, " steps"),
    "largest": ("a device holds", format_bytes, " in one array"),
    "turns": ("it takes", format_number, " turns"),
    "kept": ("it keeps", format_number, " microbatches at once on a stage"),
}
"""A cost → the subject and verb of its sentence, and its amount as text."""
_FORBIDDEN = {
    "all-reduce": "psum",
    "all-gather": "all_gather",
    "reduce-scatter": "psum_scatter",
    "all-to-all": "all_to_all",
    "collective-permute": "ppermute",
}
"""A collective → the function of `jax.lax` that `forbidden` names."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The costs of a right function, by the names of `_COSTS`, with its partitioned program or its schedule."""

    costs: Mapping[str, float]
    report: Report | None = None
    schedule: str = ""


@dataclass(frozen=True, kw_only=True, repr=False)
class Try(Answer):
    """A scored function.

    Attributes:
        mine: its costs; None if it is wrong.
        printed: what the function printed.
    """

    mine: Measured | None = None
    printed: str = ""

    @property
    def solution(self) -> str:
        """The code of a solution, if it is shown; else empty."""
        return self.question.about["answer"] if self.shown and not self.solved else ""


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
    def right(self) -> str:
        return "The order is valid" if "schedule" in self.about else "The values are right"

    @cached_property
    def mesh(self) -> DeviceMesh:
        return DeviceMesh.of(self.about["mesh"])

    @cached_property
    def par(self) -> Measured:
        """The costs of the puzzle's own solution."""
        function = running.defined(self.about["answer"])
        return self._measured(function, self._grid("answer"))

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
            return Try(question=self, problem=words)
        try:
            data = packed(function)
        except Exception as error:  # an object's own __reduce__ may raise anything
            words = f"({error}); use only what it defines itself, and imported modules"
            raise ShardvizError(f"answer: the function cannot be sent to its own process {words}") from error
        trial = processes.Trial("shardviz.lessons.running:run", data, {"puzzle": dict(self.about)})
        job = processes.tried(trial, self.limit, _MEMORY)
        stages = re.findall(rf"^{running.STAGE}(.*)$", job.stderr, re.MULTILINE)
        printed = re.sub(rf"^\n?{running.STAGE}.*\n|^[EFIW]\d{{4}} .*\n", "", job.stderr, flags=re.MULTILINE).strip()
        if (error := job.exception()) is not None:
            problem, mine = _failed(error, stages[-1] if stages else "", self.limit), None
        else:
            told = json.loads(job.answer or b"")
            mine = None if told["problem"] else self._measured(function, told["grid"])
            problem = told["problem"] or self._forbidden(mine)
        rows = () if problem or mine is None else tuple(self._rows(mine))
        tried = Try(question=self, problem=problem, rows=rows, mine=mine, printed=printed)
        if not tried.solved:
            hints = self.about["hints"]
            tried = replace(tried, ideas=(hints[min(self.wrong, len(hints) - 1)],))
        return self.counted(tried)

    def reveal(self, *, give_up: bool = False) -> str:
        """Return the code of a solution.

        Args:
            give_up: show it before the third wrong try; functions tried later get no stars.

        Raises:
            ShardvizError: if there are fewer than three wrong tries, none is right, and `give_up` is False.
        """
        self.give(give_up)
        return self.about["answer"]

    def below(self, answer: Try) -> Iterator[doc.Block]:
        """Yield what the function printed, its schedule or what it sends, and the solution if it is shown."""
        if answer.printed:
            yield doc.Figure(of=doc.Listing(answer.printed), caption="printed")
        if answer.solution:
            yield doc.Figure(of=doc.Listing(answer.solution.strip()), caption="A solution")
        if answer.mine is not None and answer.mine.schedule:
            yield doc.Figure(of=doc.Listing(answer.mine.schedule), caption="yours")
        if answer.mine is not None and answer.mine.report is not None:
            alike = grouped(((c.kind, c.axes, c.operand_bytes), c) for c in answer.mine.report.collectives)
            sent = doc.Rows(alike.items(), most=10, noun="collective").table(
                ("each device sends", lambda each: doc.code(each[0][0])),
                ("over", lambda each: doc.axes(each[0][1])),
                (doc.right("runs"), lambda each: str(sum(c.count or 1 for c in each[1]))),
                (doc.right("each of"), lambda each: doc.nbytes(each[0][2])),
            )
            far = any(kind == "collective-permute" for kind, *_ in alike)
            notes = doc.notes("On the links, a permute over 3 links counts three times." if far else "")
            yield doc.section("The partitioned program", sent, notes)

    def _is_start(self, function: Any) -> bool:
        """Return whether the function is the one to complete, unchanged; trying it does not count."""
        mine, start = getattr(function, "__code__", None), running.defined(self.about["start"]).__code__
        return mine is not None and (mine.co_code, mine.co_names) == (start.co_code, start.co_names)

    def _grid(self, part: str) -> list[list[str]]:
        """Return the schedule of a function of the puzzle; empty if the puzzle has none."""
        sizes = self.about.get("schedule")
        return running.scheduled(running.defined(self.about[part]), **sizes) if sizes else []

    def _measured(self, function: Any, grid: list[list[str]]) -> Measured:
        """Return the costs of a right function: those of its schedule, or of its partitioned program."""
        if grid:
            costs = {"turns": len(grid[0]), "kept": running.most_kept(grid)}
            return Measured(costs=costs, schedule=running.drawn(grid))
        mesh = abstract_mesh(self.mesh)
        arrays = [jax.ShapeDtypeStruct(each.shape, each.dtype) for each in running.inputs_of(self.about)]
        on_devices = running.sharded(function, self.about, mesh)
        with contextlib.redirect_stdout(io.StringIO()):  # its process has printed it
            largest = _largest(on_devices.trace(*arrays).jaxpr)
            report = trace(on_devices, *arrays).partition(Plan(self.mesh, running.specs_of(self.about, "arguments")))
        moved = [(c.count or 1) * np.array(_transfers(c, self.mesh)) for c in report.collectives]
        sent, steps = sum(moved, np.zeros(2)).tolist()
        return Measured(costs={"sent": sent, "steps": steps, "largest": largest}, report=report)

    def _forbidden(self, mine: Measured | None) -> str:
        """Return the sentence for a forbidden collective in a right function; empty if it has none."""
        kinds = [c.kind for c in mine.report.collectives] if mine and mine.report else []
        for name in sorted({_FORBIDDEN.get(kind, "") for kind in kinds} & {*self.about.get("forbidden", ())}):
            also = " (as `pmean` does)" if name == "psum" else ""
            return f"The function calls `{name}`{also}, which this puzzle forbids."
        return ""

    def _rows(self, mine: Measured) -> Iterator[Row]:
        for name, amount in mine.costs.items():
            what, text, unit = _COSTS[name]
            yield cost_row(what, amount, self.par.costs[name], lambda amount, text=text, unit=unit: text(amount) + unit)


def _largest(jaxpr: Any) -> float:
    """Return the bytes of the largest array that a device computes, without temporaries of functions such as
    `jnp.roll`, which are jitted by themselves."""

    def sizes(inner: Any) -> Iterator[int]:
        for equation in inner.eqns:
            arrays = (v.aval for v in equation.outvars if hasattr(v.aval, "dtype"))
            yield from (a.size * a.dtype.itemsize for a in arrays)
            for each in sub_jaxprs(equation.params) if equation.primitive.name not in ("jit", "pjit") else ():
                yield from sizes(each)

    maps = (e for e in every_equation(getattr(jaxpr, "jaxpr", jaxpr)) if e.primitive.name == "shard_map")
    return float(max((size for e in maps for inner in sub_jaxprs(e.params) for size in sizes(inner)), default=0))


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
            "running": f"The program did not end within {limit:g} s: a loop in it never ends, or a branch or a loop "
            "contains a collective, and only some devices call the collective and wait for the others (deadlock).",
        }.get(stage, f"The check did not end within {limit:g} s; the machine may be busy: try again.")
    if isinstance(error, CompileMemoryLimit):
        return f"The function used more than {format_bytes(_MEMORY)} of memory."
    if stage == "running":
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
    return Written(name, puzzles[name], title=puzzles[name]["title"])


@doc.document.register
def written_document(puzzle: Written) -> doc.Document:
    """Return the task: what each device has, what it must have, what is forbidden, and the function to complete."""
    about, mesh = puzzle.about, puzzle.mesh
    alike = grouped(
        ((side, tuple(each["shape"]), tuple(axis or None for axis in each["spec"])), each["name"])
        for side in ("arguments", "results")
        for each in about.get(side, ())
        if each.get("drawn", True)
    )
    heads = {"arguments": "Each device has: ", "results": "Each device must have: "}
    maps = [
        doc.section(heads[side] + ", ".join(names), *map_blocks(Shown(layout(shape, spec, mesh)), 320))
        for (side, shape, spec), names in alike.items()
    ]
    forbidden = ", ".join(f"jax.lax.{name}" for name in about.get("forbidden", ()))
    start = doc.Figure(of=doc.Listing(about["start"].strip()))
    return doc.Document.of(
        doc.paragraph(*with_code(about["task"])),
        [doc.SideBySide(blocks=tuple(maps[i : i + 2])) for i in range(0, len(maps), 2)],
        doc.Figure(of=doc.Listing(running.drawn(grid)), caption="GPipe") if (grid := puzzle._grid("start")) else None,
        doc.section("The function to complete", start, fold="closed", name="start"),
        doc.notes(forbidden and f"Forbidden: {forbidden}."),
        doc.paragraph("in Python:  ", doc.code("puzzle.answer(the_function)")),
        title=doc.words(puzzle.title, strong=True),
        lead=(doc.mesh_axes(mesh),),
        mesh=mesh,
    )
