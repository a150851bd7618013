"""The Program: a function traced once, and asked about under one plan after another.

Tracing and lowering happen once for each set of mesh axis names; a change of plan edits the lowered module.
"""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections.abc import Sequence
from typing import Any

from shardviz import diagnose, hlo
from shardviz.analysis import rows, ruling, transforms
from shardviz.analysis.annotate import annotated
from shardviz.analysis.as_run import compiled_facts
from shardviz.analysis.future import OnReport, ReportFuture
from shardviz.analysis.ruling import RulesTable
from shardviz.analysis.targeting import Aim, aim
from shardviz.errors import CompileError, CompileRefused, MeshError, ShardvizError, SpecError, TraceError
from shardviz.notation import DeviceMesh, Spec, check_spec
from shardviz.program import exporting, server
from shardviz.program import propagate as shardy
from shardviz.program.adapters import Call
from shardviz.program.code import plan_code
from shardviz.program.explicit import explicit_axes, in_types
from shardviz.program.lower import CPU, Lowered, LowerFor, edited_bytecode, lower
from shardviz.program.plan import Plan, expand, is_spec
from shardviz.program.residuals import residuals
from shardviz.program.server.job import MAX_CPU_DEVICES
from shardviz.program.signature import CallSignature
from shardviz.program.trace import (
    Argument,
    Constraint,
    Signature,
    Traced,
    check_constraints,
    needs_mesh,
    signature,
    trace,
)
from shardviz.records import Cost, Diagnostic, PlanRecord
from shardviz.report import Report

_Key = tuple[tuple[str, ...], tuple[str, ...], tuple[int, ...] | bool, tuple[Spec, ...]]
_MOST_TRACES = 32


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
        self._traced_on: dict[_Key | None, DeviceMesh] = {}
        self._sized = False
        self._signature: Traced | Signature | None = None
        self._lowered: dict[tuple[_Key, LowerFor], Lowered] = {}
        self._bound: tuple[Plan, PlanRecord] | None = None
        self._propagated: tuple[Plan, LowerFor, Report] | None = None
        self._calls: list[CallSignature] = [] if call.signature is None else [call.signature]
        self._origin: tuple[Program, transforms.Transformed] | None = None
        self._waits: ShardvizError | None = None
        self._mesh = mesh = call.brings.mesh if mesh is None else DeviceMesh.of(mesh)
        try:
            if mesh is None:
                self._trace(None)
            else:
                self._traced(Plan(mesh))
        except ShardvizError as error:
            # with Explicit axes another spec may be all that is wanted, so that a plan is what the error belongs to
            if mesh is not None and not explicit_axes(mesh):
                raise
            if mesh is None and not (isinstance(error, TraceError) and needs_mesh(error)):
                raise
            self._waits = error

    def __repr__(self) -> str:
        if not self._traces:
            return f"Program {self.name}: not traced yet, it needs a plan's mesh"
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
                f"{self.name} is traced when a plan says over which mesh: call program.bind(plan), or give mesh= to "
                f"sv.explore or sv.analyze. Without a mesh, {self._waits}"
            ) from self._waits
        return next(reversed(self._traces.values())).arguments

    def outputs(self, plan: Plan) -> tuple[Argument, ...]:
        """Every array of the result: tree path, shape, dtype."""
        return self._traced(plan).outputs

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

    @property
    def calls(self) -> tuple[CallSignature, ...]:
        """The signatures of the calls that were asked about: that of `sv.trace`, then every `call`'s, in order."""
        return tuple(self._calls)

    def call(self, *args: Any, **kwargs: Any) -> CallSignature:
        """Records in `calls` what `jax.jit` would know a call with these arguments by; nothing runs.

        Args:
            args, kwargs: as for the function itself, under the mesh and the settings that hold for the call.

        Raises:
            TraceError: if an argument is no array and not static, or a static one cannot be hashed.
        """
        signature = self._call.signed(args, kwargs)
        self._calls.append(signature)
        return signature

    @property
    def constraints(self) -> tuple[Constraint, ...]:
        """Every `with_sharding_constraint` inside: the shape and spec that it asks for, and its line.

        Raises:
            TraceError: as `arguments`.
        """
        return self._any_trace().constraints

    def grad(self, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Program:
        """The program of the gradient, as `jax.grad` gives it, with the plan that this one brings.

        Of flax.nnx objects the gradient is by their `nnx.Param`s, as `nnx.grad` has it. What the function changes in
        them comes out too, here as of every transform, as `updated.` and the variable's path.

        Args:
            argnums: the positional arguments to differentiate by.
            has_aux: the function returns (scalar, anything else).

        Raises:
            TraceError: if the result is no real scalar, or an argument is static, not floating point, or of flax.nnx
                and without an `nnx.Param`.
        """
        return self._derived(transforms.grad(self._call, argnums, has_aux))

    def value_and_grad(self, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Program:
        """The program of the value and its gradient; arguments and errors as `grad`."""
        return self._derived(transforms.grad(self._call, argnums, has_aux, value=True))

    def vjp(self) -> Program:
        """The program of (outputs, gradients by every positional argument), with one argument more, `cotangents`.

        The cotangents have the result's tree, with None for what is not floating point; so have the gradients.

        Raises:
            TraceError: as `arguments`, or if the function cannot be transformed.
        """
        return self._derived(transforms.vjp(self._call, self._any_trace()))

    def jvp(self) -> Program:
        """The program of (outputs, their tangents), with one argument more, `tangents`: a tuple, one for each argument.

        What is not floating point has None in place of a tangent.

        Raises:
            TraceError: as `arguments`, or if the function cannot be transformed.
        """
        return self._derived(transforms.jvp(self._call, self._any_trace()))

    def vmap(
        self,
        in_axes: Any = 0,
        out_axes: Any = 0,
        *,
        axis_size: int,
        spmd_axis_name: str | Sequence[str] | None = None,
    ) -> Program:
        """The program mapped over a new dimension, as `jax.vmap` maps it; this program's arguments are one example's.

        Args:
            in_axes: where each argument gets the dimension: an int, or a pytree prefix of the positional arguments
                with None for what is not mapped. Keyword arguments get it in front.
            out_axes: the same for the result.
            axis_size: the size of the new dimension.
            spmd_axis_name: the mesh axis or axes that cut the new dimension, inside sharding constraints too; None
                leaves it to the compiler.

        Raises:
            TraceError: as `arguments`, or if `in_axes`, `out_axes` or `axis_size` do not fit.
            SpecError: if an axis of `spmd_axis_name` cuts an argument already.
        """
        return self._derived(
            transforms.vmap(self._call, self._any_trace(), in_axes, out_axes, axis_size, spmd_axis_name)
        )

    def plan_from(self, plan: Plan) -> Plan:
        """The plan for a transformed program that follows from one for the program that it was made from.

        Arguments keep their specs, a cotangent takes its output's and a tangent its primal's, a mapped array has the
        new dimension's axes put in; gradients are the compiler's choice.

        Args:
            plan: a plan for the original.

        Raises:
            ShardvizError: if this program is no transformed one.
            SpecError, TraceError: as `bind` of the original.
        """
        if self._origin is None:
            raise ShardvizError(f"{self.name} was not made by grad, value_and_grad, vjp, jvp or vmap; use its own plan")
        origin, transformed = self._origin
        bound, of = origin.bind(plan), origin._traced(plan)
        known = self._any_trace() if self._traces else self._known(plan.mesh)
        edits = transforms.carried_ins(bound, of, transformed, [a.name for a in known.arguments])
        traced = self._any_trace() if self._traces else self._traced(Plan(plan.mesh, edits=edits))
        outs = transforms.carried_outs(bound, of, transformed, traced)
        return Plan(plan.mesh, edits=edits, out_edits=outs)

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
            SpecError, TraceError: as `bind`; TraceError too for an operation that JAX cannot lower.
            CompileError: if Shardy does not survive the program.
        """
        return self._propagate(plan, texts=texts)

    def _propagate(self, plan: Plan, *, texts: bool = False, target: LowerFor = CPU) -> Report:
        last = self._propagated
        if last is not None and last[:2] == (plan, target) and (last[2].stages or not texts):
            return last[2]
        bound = self.bind(plan)
        lowered = self._lower(plan, target)
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
            diagnostics=_notes(lowered.traced)
            + diagnose.unknown_loops(found.unknown_loops)
            + diagnose.reshards_left(found.reshards_left),
            source=rows.source(found.intermediates, found.collectives),
            stages=self.texts(plan) | {"shardy": shardy.text_of(found, lowered)} if texts else {},
            timings=found.seconds,
            versions=rows.versions(),
            residuals=residuals(found, lowered, bound),
        )
        report = annotated(report, self._call)
        self._propagated = plan, target, report  # the partitioner's report is compared with it a moment later
        return report

    def partition(
        self, plan: Plan, target: str = "cpu", *, timeout: float | None = None, memory_limit: float | None = None
    ) -> Report:
        """What XLA's partitioner makes of the plan: level `partitioned`, in the compile server.

        Args:
            plan: mesh and specs; at most 2048 simulated devices.
            target: the machine whose compiler partitions it; see `compile`. Where nothing here can compile for it,
                simulated devices stand in, and a diagnostic says so.
            timeout: seconds that the compile may take.
            memory_limit: bytes that the compiler's process may use.

        Raises:
            SpecError, TraceError: as `bind`.
            CompileError: if the compile crashed, took too long or too much, or was refused.
        """
        return _answer(self.submit(plan, "partitioned", target=target, timeout=timeout, memory_limit=memory_limit))

    def compile(
        self, plan: Plan, target: str = "cpu", *, timeout: float | None = None, memory_limit: float | None = None
    ) -> Report:
        """The target's optimised program and memory plan: level `compiled`.

        That a program does not fit into the target's memory is an answer: `report.memory.fits` is False then, and a
        diagnostic says by how much.

        Args:
            plan: mesh and specs; the mesh has as many devices as the target.
            target: `cpu`, or a machine that need not be there: `tpu v5p:4x4x4`, `tpu v5e:4x4*2` (two slices),
                `gpu h100:2x8` (hosts x GPUs); or `attached`, the devices that JAX sees in this process.
            timeout, memory_limit: as `partition`.

        Raises:
            SpecError, TraceError: as `bind`.
            TargetError: for a chip or a topology that there is not.
            MeshError: if the mesh has not as many devices as the target.
            CompileError: as `partition`; CompileRefused with the command to install where nothing here can compile for
                the target.
        """
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
            target: the machine to compile for; see `compile`. Where nothing here can, level `partitioned` is made on
                simulated devices.
            timeout: seconds that it may take.
            memory_limit: bytes that its process may use.
            on_report: called with the report of each level that is reached, on another thread.

        Returns:
            A future of the last level's report; see `ReportFuture` for its states.

        Raises:
            SpecError, TraceError: as `bind`.
            ShardvizError: for a level or target that there is not, or a mesh of another size than the target.
        """
        if level not in server.MILESTONES:
            raise ShardvizError(f"level {level!r}: a compile reaches one of {', '.join(map(repr, server.MILESTONES))}")
        bound = self.bind(plan)
        aimed = aim(target, bound.mesh)
        lowered = self._lower(plan, aimed.lowered_for)
        future = ReportFuture(on_report)
        if aimed.lack and level == "compiled":
            future.set_exception(CompileRefused(aimed.lack))
            return future
        if why := _not_compilable(bound.mesh, simulated=aimed.topology is None):
            future.set_exception(CompileRefused(f"{why}; level 'propagated' works all the same"))
            return future
        chosen = tuple(bound.out_specs[o.name] is None for o in lowered.traced.outputs)
        code = edited_bytecode(lowered, bound)
        request = server.Request(code, bound.mesh.size, chosen, level, topology=aimed.topology)
        reading = _Reading(self, plan, bound, lowered, aimed)

        def reached(job: server.Job, milestone: str, texts: dict[str, str]) -> None:
            future.deliver(milestone, lambda: reading.report(milestone, texts, job))

        future.job = server.submit(request, timeout=timeout, memory_limit=memory_limit, on_milestone=reached)
        future.job.add_done_callback(lambda job: future.finish(job.exception() or _last(future, level)))
        return future

    def texts(self, plan: Plan) -> dict[str, str]:
        """The program before any compiler: its `jaxpr`, if it was traced here, and `stablehlo` under the plan."""
        bound, lowered = self.bind(plan), self._lower(plan)
        jaxpr = {} if lowered.traced.closed is None else {"jaxpr": str(lowered.traced.closed)}
        return jaxpr | {"stablehlo": shardy.stablehlo_text(lowered, bound)}

    def code(self, plan: Plan) -> str:
        """Python that rebuilds the plan."""
        traced = self._traced(plan)
        return plan_code(plan, self.bind(plan), traced, ruling.ruled(plan, self._call, traced))

    def export(
        self,
        plan: Plan,
        path: str | os.PathLike[str] | None = None,
        platforms: Sequence[str] = ("cpu",),
        vjp_order: int = 0,
    ) -> bytes:
        """The program under the plan as a file of `jax.export`: mesh, specs, names and source lines go into it.

        No devices of the mesh are needed. What is donated is not written down: whoever calls the file says so. A
        flax.nnx object becomes a dictionary of its arrays, and what is changed in it a second result, a tuple.

        Args:
            plan: mesh and specs; an output without a spec is left to the compiler that the file meets.
            path: the file to write; None for the bytes alone.
            platforms: for which platforms, some of `cpu`, `tpu`, `cuda`, `rocm`.
            vjp_order: how many orders of the derivative to put in.

        Returns:
            The file's bytes, which `sv.load` reads.

        Raises:
            SpecError, TraceError: as `bind`; TraceError too where JAX cannot export it, for a type of pytree that
                `jax.export` was not told how to write (with the lines that tell it), or for a program that was lowered
                or exported before.
            ShardvizError: for a platform that there is not, or a path that cannot be written.
        """
        exported = exporting.export(self._traced(plan), self.bind(plan), platforms)
        return exporting.write(exported, path, vjp_order)

    def rules_table(self, plan: Plan) -> RulesTable:
        """For each of a plan's rules which arguments its filter catches and which it wins, and what no rule catches.

        The table shows itself as text and HTML. A rule whose spec does not fit an array is no error here: the row says
        which, and why.
        """
        known = self._known(plan.mesh)
        return ruling.table(plan, self._in_specs(plan, known), self._call, known)

    def _bind(self, plan: Plan) -> PlanRecord:
        traced, mesh = self._traced(plan), plan.mesh
        ins = self._ins(plan, traced)
        out_specs = self._call.brings.out_specs if plan.out_specs is None else plan.out_specs
        specs = expand("out_specs", out_specs, traced.out_tree) + [None] * len(traced.updates)
        outs = {o.name: s for o, s in zip(traced.outputs, specs, strict=True)}
        if out_specs is None and traced.out_specs:
            outs = {o.name: s for o, s in zip(traced.outputs, traced.out_specs, strict=True)}
        if len(explicit_axes(mesh)) == len(mesh.names):
            types = zip(traced.outputs, traced.out_types, strict=False)
            outs |= {o.name: kind for o, kind in types if outs[o.name] is None}
        outs |= {u.output: ins[u.argument] for u in traced.updates if u.follows and u.argument}
        _override(outs, plan.out_edits, "output")
        for output in traced.outputs:
            spec = outs[output.name]
            outs[output.name] = None if spec is None else _checked(output, spec, mesh)
        check_constraints(traced, mesh)
        return PlanRecord(mesh, ins, outs)

    def _ins(self, plan: Plan, known: Traced | Signature) -> dict[str, Spec]:
        """A full-rank spec for every argument."""
        given = ruling.resolved(plan, self._in_specs(plan, known), self._call, known)
        ins = dict(zip((a.name for a in known.arguments), given, strict=True))
        _override(ins, plan.edits, "argument")
        return {a.name: self._fitting(plan, known, a, ins[a.name] or Spec()) for a in known.arguments}

    def _fitting(self, plan: Plan, known: Traced | Signature, argument: Argument, spec: Spec) -> Spec:
        try:
            return _checked(argument, spec, plan.mesh)
        except SpecError as error:
            whose = ruling.whose(plan, argument.name, self._call, known)
            if not whose and plan.in_specs is None and argument.name not in dict(plan.edits):
                whose = self._call.brings.whence if self._call.brings.in_specs else ""
            raise ruling.blamed(error, whose) if whose else error from None

    def _in_specs(self, plan: Plan, known: Traced | Signature) -> list[Any]:
        """A spec, rules or None for each array among the arguments: the plan's, or those that the function brings."""
        own = list(self._call.brings.in_specs or known.in_specs) or [None] * len(known.arguments)
        if plan.in_specs is None:
            return own
        positional, _ = known.in_tree
        prefix = plan.in_specs
        if len(positional) == 1 and not isinstance(prefix, tuple) and not is_spec(prefix):
            prefix = (prefix,)
        given = expand("in_specs", prefix, positional)
        return given + own[len(given) :]

    def _derived(self, transformed: transforms.Transformed) -> Program:
        made = Program(transformed.call, self._mesh)
        made._origin = self, transformed
        return made

    def _any_trace(self) -> Traced:
        self.arguments  # noqa: B018  # raises where there is none
        return next(reversed(self._traces.values()))

    def _traced(self, plan: Plan) -> Traced:
        """The program traced on a plan's mesh, and where that has Explicit axes, with its specs in the types."""
        if not explicit_axes(plan.mesh):
            return self._trace(plan.mesh)
        return self._trace(plan.mesh, in_types(self._ins(plan, self._known(plan.mesh)), plan.mesh))

    def _known(self, mesh: DeviceMesh) -> Traced | Signature:
        """What is known of the arguments before their specs are: from any trace, on Auto axes if on no others."""
        with self._lock:
            if self._signature is None and self._traces:
                self._signature = next(iter(self._traces.values()))
            if self._signature is None:
                try:
                    self._signature = self._trace(dataclasses.replace(mesh, types=()))
                except TraceError:
                    self._signature = signature(self._call)
            return self._signature

    def _trace(self, mesh: DeviceMesh | None, types: tuple[Spec, ...] = ()) -> Traced:
        with self._lock:
            key = self._key(mesh, types)
            if key not in self._traces:
                traced = trace(self._call, mesh, types)
                self._mesh = mesh or self._mesh
                self._sized = self._sized or traced.sized
                key = self._key(mesh, types)
                self._traces[key] = traced
                if mesh is not None:
                    self._traced_on[key] = mesh
                for old in [k for k in self._traces if k is not None][:-_MOST_TRACES]:
                    del self._traces[old]
                    self._traced_on.pop(old, None)
                    self._lowered = {key: one for key, one in self._lowered.items() if key[0] != old}
            return self._traces[key]

    def _lower(self, plan: Plan, target: LowerFor = CPU) -> Lowered:
        with self._lock:
            traced = self._traced(plan)
            key = self._key(plan.mesh, traced.types)
            assert key is not None  # a plan has a mesh
            if (key, target) not in self._lowered:
                # on the mesh of the trace, whose equations remember it; `edited` puts the plan's in its place
                self._lowered[key, target] = lower(traced, self._traced_on.get(key, plan.mesh), target)
            return self._lowered[key, target]

    def _key(self, mesh: DeviceMesh | None, types: tuple[Spec, ...] = ()) -> _Key | None:
        """What of a plan a trace depends on: its mesh's sizes only where shapes of single devices are in the program,
        or shardings in its types.
        """
        if mesh is None:
            return None
        sized = self._sized or bool(explicit_axes(mesh))
        return mesh.names, mesh.types, mesh.sizes if sized else mesh.size == 1, types


class _Reading:
    """Turns the compiler's texts into reports; what the first level found serves the second."""

    def __init__(self, program: Program, plan: Plan, bound: PlanRecord, lowered: Lowered, aimed: Aim):
        self.program, self.plan, self.bound, self.lowered, self.aimed = program, plan, bound, lowered, aimed
        self.first: Report | None = None

    def report(self, milestone: str, texts: dict[str, str], job: server.Job) -> Report:
        return self.partitioned(texts, job) if milestone == "partitioned" else self.compiled(texts, job)

    def partitioned(self, texts: dict[str, str], job: server.Job) -> Report:
        waited = job.elapsed
        start = time.perf_counter()
        before, after = self.modules = hlo.parse(texts["before"]), hlo.parse(texts["partitioned"])
        traced, mesh = self.lowered.traced, self.bound.mesh
        names = [a.name for a in traced.arguments]
        found = hlo.collectives(after, mesh, before, arguments=names)
        outputs = rows.compiled_outputs(traced.outputs, before, mesh)
        self.lowered.rehearsed = True  # the compiler ran Shardy on it
        foretold = self.program._propagate(self.plan, target=self.aimed.lowered_for)
        intermediates = rows.typed(rows.labelled(hlo.values(before, mesh)), foretold.intermediates)
        flops, unknown = hlo.dot_flops(after)
        self.first = Report(
            "partitioned",
            self.program.name,
            self.bound,
            rows.arguments(traced.arguments, self.bound),
            outputs,
            intermediates,
            found,
            target=self.aimed.text,
            cost=Cost(flops, unknown),
            diagnostics=diagnose.compiler_warnings(job.stderr, before)
            + _notes(traced)
            + diagnose.unknown_loops(unknown)
            + diagnose.levels_differ((foretold.outputs, foretold.collectives), (outputs, found), mesh)
            + diagnose.simulated(self.aimed.lack),
            source=rows.source(intermediates, found),
            stages={"before": texts["before"], "partitioned": texts["partitioned"]},
            timings={"partition": waited, "read": time.perf_counter() - start},
            versions=rows.versions(),
            residuals=foretold.residuals,
        )
        self.first = annotated(self.first, self.program._call)
        return self.first

    def compiled(self, texts: dict[str, str], job: server.Job) -> Report:
        assert self.first is not None
        waited = job.elapsed
        names = [a.name for a in self.lowered.traced.arguments]
        found = compiled_facts(texts, self.aimed, self.bound.mesh, self.first.collectives, *self.modules, names)
        return rows.replaced(
            self.first,
            level="compiled",
            memory=found.memory,
            target_collectives=found.collectives,
            diagnostics=found.diagnostics + self.first.diagnostics,
            source=rows.source(self.first.intermediates, (*self.first.collectives, *found.memory.alive_at_peak)),
            stages={**self.first.stages, "optimized": texts["optimized"]},
            timings={**self.first.timings, "compile": waited},
        )


def _answer(future: ReportFuture) -> Report:
    """Waits for a report; who interrupts the waiting stops the compile."""
    try:
        return future.result()
    finally:
        future.stop()


def _last(future: ReportFuture, level: str) -> Report | CompileError:
    return future.reports.get(level) or CompileError(f"the compile ended without reaching level {level!r}")


def _not_compilable(mesh: DeviceMesh, *, simulated: bool = True) -> str:
    """Why XLA cannot be given a mesh, on simulated CPU devices or others; empty if it can."""
    if simulated and mesh.size > MAX_CPU_DEVICES:
        return f"the mesh {mesh} has {mesh.size} devices and XLA's CPU compiler simulates at most {MAX_CPU_DEVICES}"
    for name in mesh.names:
        if marks := sorted({c for c in name if c in "'\"\\,=[]{}" or not c.isprintable()}):
            return (
                f"mesh axis {name!r} has {', '.join(map(repr, marks))} in its name, which the compiler's texts use for "
                "other things, so rename the axis"
            )
    return ""


def _notes(traced: Traced) -> tuple[Diagnostic, ...]:
    """What is to be said of the program whatever the specs."""
    return diagnose.callbacks_left_out(c.source for c in traced.callbacks)


def _checked(argument: Argument, spec: Spec, mesh: DeviceMesh) -> Spec:
    check_spec(argument.name, argument.shape, spec, mesh)
    return Spec.of(spec, len(argument.shape))


def _override(specs: dict[str, Spec | None], edits: tuple[tuple[str, Spec | None], ...], what: str) -> None:
    for name, spec in edits:
        if name not in specs:
            near = [n for n in specs if n.split("[")[-1] == name.split("[")[-1]][:5] or list(specs)[:5]
            raise SpecError(f"the program has no {what} {name}; it has {', '.join(near)}", argument=name)
        specs[name] = spec
