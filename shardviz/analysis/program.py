"""The Program: a function traced once, and asked about under one plan after another.

Tracing and lowering happen once for each set of mesh axis names; a change of plan edits the lowered module.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from typing import Any

from shardviz import diagnose, hlo
from shardviz.analysis import rows
from shardviz.analysis.future import OnReport, ReportFuture
from shardviz.errors import CompileError, CompileRefused, MeshError, ShardvizError, SpecError, TraceError
from shardviz.notation import DeviceMesh, Spec, check_spec
from shardviz.program import propagate as shardy
from shardviz.program import server
from shardviz.program.adapters import Call
from shardviz.program.code import plan_code
from shardviz.program.lower import Lowered, edited_bytecode, lower
from shardviz.program.plan import Plan, expand, is_spec
from shardviz.program.server.job import MAX_CPU_DEVICES
from shardviz.program.trace import Argument, Traced, check_constraints, needs_mesh, trace
from shardviz.records import Cost, Diagnostic, PlanRecord
from shardviz.report import Report

_Key = tuple[tuple[str, ...], tuple[str, ...], tuple[int, ...] | bool]


class Program:
    """A function with abstract arguments, to be explored under plans. Made by `sv.trace`.

    Attributes:
        name: the function's name.
    """

    def __init__(self, call: Call, mesh: Any = None):
        self.name = call.name
        self._call = call
        self._lock = threading.RLock()
        self._traces: dict[_Key | None, Traced] = {}
        self._sized = False
        self._lowered: dict[_Key, Lowered] = {}
        self._bound: tuple[Plan, PlanRecord] | None = None
        self._propagated: tuple[Plan, Report] | None = None
        mesh = call.brings.mesh if mesh is None else DeviceMesh.of(mesh)
        try:
            self._trace(mesh)
        except TraceError as error:
            if mesh is not None or not needs_mesh(error):
                raise

    def __repr__(self) -> str:
        if not self._traces:
            return f"Program {self.name}: not traced yet, its sharding constraints need a plan's mesh"
        lines = [f"Program {self.name}: {len(self.arguments)} arguments"]
        width = max((len(a.name) for a in self.arguments), default=0)
        for a in self.arguments:
            shape = ", ".join(map(str, a.shape))
            lines.append(f"  {a.name:<{width}}  {a.dtype}[{shape}]" + ("  donated" if a.donated else ""))
        return "\n".join(lines)

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """Every array among the arguments: tree path, shape, dtype, whether it is donated.

        Raises:
            TraceError: if the function needs a mesh to be traced and has met no plan yet.
        """
        if not self._traces:
            raise TraceError(
                f"{self.name} has sharding constraints by bare PartitionSpecs, so it is traced when a plan says which "
                "mesh; call program.bind(plan), or give mesh= to sv.explore or sv.analyze"
            )
        return next(reversed(self._traces.values())).arguments

    def outputs(self, plan: Plan) -> tuple[Argument, ...]:
        """Every array of the result: tree path, shape, dtype."""
        return self._trace(plan.mesh).outputs

    def plan(self, mesh: Any = None, in_specs: Any = None, out_specs: Any = None) -> Plan:
        """A plan, with what the function brings along where nothing is given.

        Args:
            mesh: a mesh in any form that `sv.mesh` takes. None for the function's own: that of its `in_shardings`, of
                its arguments' shardings, of the call site (`jax.set_mesh`, `with mesh:`), or of the first
                `shard_map` or sharding constraint inside it.
            in_specs, out_specs: as for `Plan`; None for the function's own, see `Plan`.

        Raises:
            MeshError: if no mesh is given and the function brings none.
        """
        if mesh is None:
            mesh = self._call.brings.mesh
        if mesh is None and self._traces:
            mesh = next(iter(self._traces.values())).mesh
        if mesh is None:
            raise MeshError(
                f"{self.name}: no mesh is given, and neither its shardings nor its arguments have one; give one, such "
                "as mesh={'data': 8}"
            )
        return Plan(mesh, in_specs, out_specs)

    def bind(self, plan: Plan) -> PlanRecord:
        """The plan, found to fit: a full-rank spec for every argument and every output (None: the compiler's choice).

        Raises:
            SpecError: if a spec breaks one of pjit's rules; the message names the argument, the numbers and a way out.
            TraceError: if the function cannot be traced on the plan's mesh.
        """
        with self._lock:
            if self._bound is not None and self._bound[0] == plan:
                return self._bound[1]
            bound = self._bind(plan)
            self._bound = plan, bound
            return bound

    def propagate(self, plan: Plan, *, texts: bool = False) -> Report:
        """What Shardy makes of the plan: level `propagated`, in the kernel, in tens of milliseconds.

        Args:
            plan: mesh and specs.
            texts: put the program's texts into `report.stages`, which takes some more milliseconds.

        The first time, Shardy is tried on the program in a process of its own, so that it cannot take the kernel along.

        Raises:
            SpecError, TraceError: as `bind`.
            CompileError: if Shardy does not survive the program.
        """
        last = self._propagated
        if last is not None and last[0] == plan and (last[1].stages or not texts):
            return last[1]
        bound = self.bind(plan)
        lowered = self._lower(plan.mesh)
        if not lowered.rehearsed:
            shardy.rehearse(lowered, bound)
            lowered.rehearsed = True
        found = shardy.propagate(lowered, bound)
        outputs = rows.outputs(lowered.traced.outputs, found.outputs, bound.mesh)
        report = Report(
            "propagated",
            self.name,
            bound,
            rows.arguments(lowered.traced.arguments, bound),
            outputs,
            rows.labelled(found.intermediates),
            found.collectives,
            diagnostics=_notes(lowered.traced, plan.mesh)
            + diagnose.unknown_loops(found.unknown_loops)
            + diagnose.reshards_left(found.reshards_left),
            source=rows.source(found.intermediates, found.collectives),
            stages=self.texts(plan) | {"shardy": shardy.text_of(found, lowered)} if texts else {},
            timings=found.seconds,
            versions=rows.versions(),
        )
        self._propagated = plan, report  # the partitioner's report is compared with it a moment later
        return report

    def partition(self, plan: Plan, *, timeout: float | None = None, memory_limit: float | None = None) -> Report:
        """What XLA's partitioner makes of the plan: level `partitioned`, in the compile server.

        Args:
            plan: mesh and specs; at most 2048 devices.
            timeout: seconds that the compile may take.
            memory_limit: bytes that the compiler's process may use.

        Raises:
            SpecError, TraceError: as `bind`.
            CompileError: if the compile crashed, took too long or too much, or was refused.
        """
        return _answer(self.submit(plan, "partitioned", timeout=timeout, memory_limit=memory_limit))

    def compile(
        self, plan: Plan, target: str = "cpu", *, timeout: float | None = None, memory_limit: float | None = None
    ) -> Report:
        """The target's optimised program and memory plan: level `compiled`. Arguments and errors as `partition`."""
        return _answer(self.submit(plan, "compiled", target=target, timeout=timeout, memory_limit=memory_limit))

    def submit(
        self,
        plan: Plan,
        level: str = "partitioned",
        *,
        target: str = "cpu",
        timeout: float | None = None,
        memory_limit: float | None = None,
        on_report: OnReport | None = None,
    ) -> ReportFuture:
        """Starts a compile and returns at once.

        Args:
            plan: mesh and specs.
            level: `partitioned` or `compiled`: when nothing more is wanted.
            target: the machine to compile for.
            timeout: seconds that it may take.
            memory_limit: bytes that its process may use.
            on_report: called with the report of each level that is reached, on another thread.

        Returns:
            A future of the last level's report; see `ReportFuture` for its states.

        Raises:
            SpecError, TraceError: as `bind`.
            ShardvizError: for a level or target that there is not.
        """
        if level not in server.MILESTONES:
            raise ShardvizError(f"level {level!r}: a compile reaches one of {', '.join(map(repr, server.MILESTONES))}")
        if target != "cpu":
            raise ShardvizError(f"target {target!r}: this version compiles for 'cpu' only")
        bound = self.bind(plan)
        lowered = self._lower(plan.mesh)
        future = ReportFuture(on_report)
        if why := _not_compilable(bound.mesh):
            future.set_exception(CompileRefused(f"{why}; level 'propagated' works all the same"))
            return future
        chosen = tuple(bound.out_specs[o.name] is None for o in lowered.traced.outputs)
        request = server.Request(edited_bytecode(lowered, bound), bound.mesh.size, chosen, level)
        reading = _Reading(self, plan, bound, lowered)

        def reached(job: server.Job, milestone: str, texts: dict[str, str]) -> None:
            future.deliver(milestone, lambda: reading.report(milestone, texts, job))

        future.job = server.submit(request, timeout=timeout, memory_limit=memory_limit, on_milestone=reached)
        future.job.add_done_callback(lambda job: future.finish(job.exception() or _last(future, level)))
        return future

    def texts(self, plan: Plan) -> dict[str, str]:
        """The program before any compiler: its `jaxpr`, and `stablehlo` with the plan's shardings."""
        bound, lowered = self.bind(plan), self._lower(plan.mesh)
        return {"jaxpr": str(lowered.traced.closed), "stablehlo": shardy.stablehlo_text(lowered, bound)}

    def code(self, plan: Plan) -> str:
        """Python that rebuilds the plan."""
        return plan_code(plan, self.bind(plan), self._trace(plan.mesh))

    def _bind(self, plan: Plan) -> PlanRecord:
        traced, mesh = self._trace(plan.mesh), _auto(plan.mesh)
        brings = self._call.brings
        ins = dict(zip((a.name for a in traced.arguments), self._in_specs(plan, traced), strict=True))
        out_specs = brings.out_specs if plan.out_specs is None else plan.out_specs
        outs = {o.name: s for o, s in zip(traced.outputs, expand("out_specs", out_specs, traced.out_tree), strict=True)}
        _override(ins, plan.edits, "argument")
        _override(outs, plan.out_edits, "output")
        for argument in traced.arguments:
            ins[argument.name] = _checked(argument, ins[argument.name] or Spec(), mesh)
        for output in traced.outputs:
            spec = outs[output.name]
            outs[output.name] = None if spec is None else _checked(output, spec, mesh)
        check_constraints(traced, mesh)
        return PlanRecord(mesh, {k: v for k, v in ins.items() if v is not None}, outs)

    def _in_specs(self, plan: Plan, traced: Traced) -> list[Spec | None]:
        """A spec or None for each array among the arguments: the plan's, or those that the function brings."""
        own = list(self._call.brings.in_specs) or [None] * len(traced.arguments)
        if plan.in_specs is None:
            return own
        positional, _ = traced.in_tree
        prefix = plan.in_specs
        if len(positional) == 1 and not isinstance(prefix, tuple) and not is_spec(prefix):
            prefix = (prefix,)
        given = expand("in_specs", prefix, positional)
        return given + own[len(given) :]

    def _trace(self, mesh: DeviceMesh | None) -> Traced:
        mesh = None if mesh is None else _auto(mesh)
        with self._lock:
            key = self._key(mesh)
            if key not in self._traces:
                traced = trace(self._call, mesh)
                self._sized = self._sized or traced.sized
                key = self._key(mesh)
                self._traces[key] = traced
            return self._traces[key]

    def _lower(self, mesh: DeviceMesh) -> Lowered:
        mesh = _auto(mesh)
        with self._lock:
            traced = self._trace(mesh)
            key = self._key(mesh)
            if key not in self._lowered:
                self._lowered[key] = lower(traced, mesh)
            return self._lowered[key]

    def _key(self, mesh: DeviceMesh | None) -> _Key | None:
        """What of a mesh a trace depends on: its sizes only where shapes of single devices are in the program."""
        if mesh is None:
            return None
        return mesh.names, mesh.types, mesh.sizes if self._sized else mesh.size == 1


class _Reading:
    """Turns the compiler's texts into reports; what the first level found serves the second."""

    def __init__(self, program: Program, plan: Plan, bound: PlanRecord, lowered: Lowered):
        self.program, self.plan, self.bound, self.lowered = program, plan, bound, lowered
        self.first: Report | None = None

    def report(self, milestone: str, texts: dict[str, str], job: server.Job) -> Report:
        return self.partitioned(texts, job) if milestone == "partitioned" else self.compiled(texts, job)

    def partitioned(self, texts: dict[str, str], job: server.Job) -> Report:
        waited = job.elapsed
        start = time.perf_counter()
        before, after = hlo.parse(texts["before"]), hlo.parse(texts["partitioned"])
        traced, mesh = self.lowered.traced, self.bound.mesh
        names = [a.name for a in traced.arguments]
        found = hlo.collectives(after, mesh, before, arguments=names)
        outputs = rows.compiled_outputs(traced.outputs, before, mesh)
        intermediates = rows.labelled(hlo.values(before, mesh))
        flops, unknown = hlo.dot_flops(after)
        self.lowered.rehearsed = True  # the compiler ran Shardy on it
        foretold = self.program.propagate(self.plan)
        self.first = Report(
            "partitioned",
            self.program.name,
            self.bound,
            rows.arguments(traced.arguments, self.bound),
            outputs,
            intermediates,
            found,
            cost=Cost(flops, unknown),
            diagnostics=diagnose.compiler_warnings(job.stderr, before)
            + _notes(traced, self.plan.mesh)
            + diagnose.unknown_loops(unknown)
            + diagnose.levels_differ((foretold.outputs, foretold.collectives), (outputs, found), mesh),
            source=rows.source(intermediates, found),
            stages={"before": texts["before"], "partitioned": texts["partitioned"]},
            timings={"partition": waited, "read": time.perf_counter() - start},
            versions=rows.versions(),
        )
        return self.first

    def compiled(self, texts: dict[str, str], job: server.Job) -> Report:
        assert self.first is not None
        return rows.replaced(
            self.first,
            level="compiled",
            memory=hlo.memory(texts["buffers"], texts["live_ranges"]),
            stages={**self.first.stages, "optimized": texts["optimized"]},
            timings={**self.first.timings, "compile": job.elapsed},
        )


def _answer(future: ReportFuture) -> Report:
    """Waits for a report; who interrupts the waiting stops the compile."""
    try:
        return future.result()
    finally:
        future.stop()


def _last(future: ReportFuture, level: str) -> Report | CompileError:
    return future.reports.get(level) or CompileError(f"the compile ended without reaching level {level!r}")


def _not_compilable(mesh: DeviceMesh) -> str:
    """Why XLA's CPU compiler cannot be given a mesh; empty if it can."""
    if mesh.size > MAX_CPU_DEVICES:
        return f"the mesh {mesh} has {mesh.size} devices and XLA's CPU compiler simulates at most {MAX_CPU_DEVICES}"
    for name in mesh.names:
        if marks := sorted({c for c in name if c in "'\"\\,=[]{}" or not c.isprintable()}):
            return (
                f"mesh axis {name!r} has {', '.join(map(repr, marks))} in its name, which the compiler's texts use for "
                "other things, so rename the axis"
            )
    return ""


def _auto(mesh: DeviceMesh) -> DeviceMesh:
    """The mesh with all its axes Auto."""
    return mesh if set(mesh.types) <= {"Auto"} else dataclasses.replace(mesh, types=())


def _notes(traced: Traced, mesh: DeviceMesh) -> tuple[Diagnostic, ...]:
    """What is to be said of the program whatever the specs."""
    return diagnose.axis_types(mesh) + diagnose.callbacks_left_out(c.source for c in traced.callbacks)


def _checked(argument: Argument, spec: Spec, mesh: DeviceMesh) -> Spec:
    check_spec(argument.name, argument.shape, spec, mesh)
    return Spec.of(spec, len(argument.shape))


def _override(specs: dict[str, Spec | None], edits: tuple[tuple[str, Spec | None], ...], what: str) -> None:
    for name, spec in edits:
        if name not in specs:
            near = [n for n in specs if n.split("[")[-1] == name.split("[")[-1]][:5] or list(specs)[:5]
            raise SpecError(f"the program has no {what} {name}; it has {', '.join(near)}", argument=name)
        specs[name] = spec
