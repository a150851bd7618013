"""A program that needs no JAX: `y = x @ w1 @ w2`, with a compiler whose answers the test gives by hand."""

from __future__ import annotations

import contextlib
import math
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, replace
from typing import Any

import pytest

from shardviz.ask.presets import Preset
from shardviz.compiler.targets import Targets, TargetStatus
from shardviz.errors import CompileStopped, SpecError
from shardviz.judge.report import Report
from shardviz.notation import Spec, axis_name, check_spec
from shardviz.plan.bind import Undivided
from shardviz.plan.plan import Plan
from shardviz.propagate.dimensions import Dimensions, Member
from shardviz.records import Finding, Frame, Memory
from shardviz.records.report import PlanRecord
from shardviz.records.stages import Stage, StageLine
from tests.collectives import collective, report_of
from tests.view.sample import value

W1 = "params['w1']"
SHAPES = {"x": (64, 128), "params['w1']": (128, 512), "params['w2']": (512, 128)}
SOURCE = {"model.py": {1: "def step(params, x):", 2: "    h = x @ params['w1']", 3: "    return h @ params['w2']"}}


@dataclass(frozen=True)
class Argument:
    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    donated: bool = False


def _entry(spec: Spec, dimension: int) -> Any:
    return spec.dims[dimension] if dimension < len(spec.dims) else ()


class FakeFuture(Future):
    """A compile that answers when the test says so."""

    def __init__(self, on_report: Any):
        super().__init__()
        self.on_report, self.stopped, self.elapsed = on_report, False, 0.0

    def answer(self, report: Report) -> None:
        """Ends with a report, unless it was stopped in this very moment."""
        with contextlib.suppress(InvalidStateError):
            self.set_result(report)

    def stop(self) -> None:
        self.stopped = True
        with contextlib.suppress(InvalidStateError):
            self.set_exception(CompileStopped("the compile was stopped"))


class FakeProgram:
    """What the explorer asks of a program, with counters.

    Attributes:
        jobs: every compile that was submitted: (plan, future), oldest first.
        asked: the level and the target of each.
    """

    name = "step"

    def __init__(self, shapes: dict[str, tuple[int, ...]] | None = None):
        self.shapes = shapes or SHAPES
        self.arguments = tuple(Argument(n, s) for n, s in self.shapes.items())
        self.jobs: list[tuple[Plan, FakeFuture]] = []
        self.asked: list[tuple[str, str]] = []
        self.propagations = 0
        self.broken: BaseException | None = None

    def _settled(self, plan: Plan) -> Plan:
        return plan

    def bind(self, plan: Plan) -> PlanRecord:
        specs = dict(plan.edits)
        for name in specs:
            if name not in self.shapes:
                raise SpecError(f"the program has no argument {name!r}", argument=name)
        full = {n: Spec.of(specs.get(n), len(s)) for n, s in self.shapes.items()}
        for name, spec in full.items():
            check_spec(name, self.shapes[name], spec, plan.mesh)
        out = dict(plan.out_edits)
        if (spec := out.get("result")) is not None:
            check_spec("result", (64, 128), spec, plan.mesh)
        return PlanRecord(plan.mesh, full, {"result": out.get("result")}, options=dict(plan.options))

    @property
    def dimensions(self) -> Any:
        """None that anybody knows of."""
        return Dimensions(())

    def _find_dimensions(self, tell: Any) -> Any:
        return self.dimensions

    def _undivided(self, plan: Plan) -> tuple[Any, ...]:
        """Which dimensions of the arguments do not divide."""
        specs = {n: Spec.of(dict(plan.edits).get(n), len(s)) for n, s in self.shapes.items()}
        return tuple(
            Undivided(Member("argument", name, d), size, specs[name])
            for name, shape in self.shapes.items()
            for d, size in enumerate(shape)
            if size % math.prod(plan.mesh.shape.get(axis_name(a), 1) for a in _entry(specs[name], d))
        )

    def propagate(self, plan: Plan) -> Report:
        self.propagations += 1
        if self.broken is not None:
            raise self.broken
        bound = self.bind(plan)
        mesh = plan.mesh
        names = list(self.shapes)
        arguments = [value(n, self.shapes[n], "float32", bound.in_specs[n], mesh) for n in names]
        hidden = Spec((bound.in_specs[names[0]].dims[0], ())) if len(self.shapes[names[0]]) > 1 else Spec(((), ()))
        line = Frame("model.py", 2, "step")
        made = {"op": "dot_general", "label": "h", "source": line}
        values = tuple(value(f"dot.{i}", (64, 512), "float32", hidden, mesh, **made) for i in range(3))
        out = value("result", (64, 128), "float32", bound.out_specs["result"] or hidden, mesh)
        facts = {"program": self.name, "plan": PlanRecord(mesh, bound.in_specs, bound.out_specs), "source": SOURCE}
        return report_of(mesh, arguments, (out,), level="propagated", intermediates=values, **facts)

    def partitioned(self, plan: Plan) -> Report:
        axes = plan.mesh.names[:1]
        frame = Frame("model.py", 3, "step")
        move = collective("all-reduce", axes, 32768.0, count=4, shape=(64, 128), source=frame, phase="forward")
        found = (Finding("halo", "warning", "Shardy saw no all-reduce", source=frame),)
        return replace(self.propagate(plan), level="partitioned", collectives=(move,), diagnostics=found)

    def compiled(self, plan: Plan) -> Report:
        return replace(
            self.partitioned(plan),
            level="compiled",
            memory=Memory(arguments=1000, outputs=200, aliased=0, temporaries=3000, peak=4000),
        )

    def submit(
        self,
        plan: Plan,
        *,
        level: str = "compiled",
        timeout: float = 60.0,
        memory_limit: int | None = None,
        on_report: Any = None,
        target: Any = "cpu",
    ) -> FakeFuture:
        future = FakeFuture(on_report)
        self.asked.append((level, getattr(target, "text", target)))
        self.jobs.append((plan, future))
        return future

    def plan_code(self, plan: Plan) -> str:
        return f"sv.Plan({str(plan.mesh)!r})"

    code = plan_code

    def stages(self, plan: Plan) -> Any:
        lines = (StageLine("h = dot x w1", "model.py:2"), StageLine("y = dot h w2", "model.py:3"))
        yield Stage(name="jaxpr", title="jaxpr", kind="jaxpr", read=lambda: lines)

    def _untried_presets(self, mesh: Any) -> Any:
        plan = Plan(mesh)
        yield Preset(name="whole", text="nothing is cut", plan=plan)
        yield Preset(name="rows", text="w1 by data", plan=plan.with_spec(W1, ("data",)))
        yield Preset(name="wrong", text="by nothing", plan=plan.with_spec(W1, ("none",)))


@pytest.fixture(name="program")
def a_program() -> FakeProgram:
    """The program."""
    return FakeProgram()


@pytest.fixture(name="make_program")
def programs() -> Any:
    """Makes a program with other arguments: `make_program({"name": shape})`."""
    return FakeProgram


@pytest.fixture(name="plan")
def a_plan() -> Plan:
    """Data parallel over `data`, the hidden dimension over `model`."""
    specs = {"x": ("data", None), "params['w1']": (None, "model"), "params['w2']": ("model", None)}
    return Plan({"data": 4, "model": 2}, edits={name: Spec.of(spec) for name, spec in specs.items()})


@pytest.fixture(name="compilers")
def installed_compilers(monkeypatch):
    """Says which compilers are installed: `compilers(tpu=False)`; all of them, if it is not called."""

    def say(tpu=True, gpu=True):
        lack = ("the package libtpu (0.6 GB) is not installed", "pip install 'shardviz[tpu]'")
        known = Targets(
            TargetStatus(name=name, ready=ready, missing="" if ready else lack[0], install="" if ready else lack[1])
            for name, ready in (("cpu", True), ("tpu", tpu), ("gpu", gpu))
        )
        for module in ("shardviz.ask.targeting", "shardviz.page.targets"):
            monkeypatch.setattr(f"{module}.targets", lambda: known)

    say()
    return say
