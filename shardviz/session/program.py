"""The Program: a function traced once, and asked about under one plan after another.

Tracing and lowering happen once for each set of mesh axis names; a change of plan edits the lowered module.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Sequence
from typing import Any

from shardviz import diagnose
from shardviz.errors import MeshError, ShardvizError
from shardviz.notation import DeviceMesh
from shardviz.program import derivatives
from shardviz.program import propagate as shardy
from shardviz.program import transform as transforms
from shardviz.program.bind import RulesTable, ruled_arguments, rules_table
from shardviz.program.call import Call
from shardviz.program.exports import export
from shardviz.program.exports import write as write_export
from shardviz.program.lower import CPU, LowerFor
from shardviz.program.lowerings import Lowerings
from shardviz.program.plan import Plan, plan_code
from shardviz.program.residuals import residuals
from shardviz.program.signature import CallSignature
from shardviz.program.trace import Argument, Constraint
from shardviz.program.vmap import vmap as mapped
from shardviz.records import Cost, PlanRecord
from shardviz.records.report import Report
from shardviz.session import rows, submitting
from shardviz.session.reading import Reading
from shardviz.session.submitting import OnReport, ReportFuture
from shardviz.session.targeting import aim


class Program:
    """A function with abstract arguments, to be explored under plans. Made by `sv.trace`.

    Attributes:
        name: the function's name.
    """

    def __init__(self, call: Call, mesh: Any = None):
        self.name = call.name
        self._call = call
        self._lowerings = Lowerings(call, call.brings.mesh if mesh is None else DeviceMesh.of(mesh))
        self._propagated: tuple[Plan, LowerFor, Report] | None = None
        self._calls: list[CallSignature] = [] if call.signature is None else [call.signature]
        self._origin: tuple[Program, transforms.Transformed] | None = None

    def __repr__(self) -> str:
        if not self._lowerings.is_traced:
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
        return self._lowerings.latest.arguments

    @property
    def constraints(self) -> tuple[Constraint, ...]:
        """Every `with_sharding_constraint` inside: the shape and spec that it asks for, and its line.

        Raises:
            TraceError: as `arguments`.
        """
        return self._lowerings.latest.constraints

    def outputs(self, plan: Plan) -> tuple[Argument, ...]:
        """Every array of the result: tree path, shape, dtype."""
        return self._lowerings.traced(plan).outputs

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
            first = self._lowerings.first
            mesh = self._call.brings.mesh or (first and first.mesh)
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
        return self._lowerings.bind(plan)

    def rules_table(self, plan: Plan) -> RulesTable:
        """For each of a plan's rules which arguments its filter catches and which it wins, and what no rule catches.

        The table shows itself as text and HTML. A rule whose spec does not fit an array is no error here: the row says
        which, and why.
        """
        return rules_table(plan, self._call, self._lowerings.known(plan.mesh))

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
        return self._derived(derivatives.grad(self._call, argnums, has_aux))

    def value_and_grad(self, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Program:
        """The program of the value and its gradient; arguments and errors as `grad`."""
        return self._derived(derivatives.grad(self._call, argnums, has_aux, value=True))

    def vjp(self) -> Program:
        """The program of (outputs, gradients by every positional argument), with one argument more, `cotangents`.

        The cotangents have the result's tree, with None for what is not floating point; so have the gradients.

        Raises:
            TraceError: as `arguments`, or if the function cannot be transformed.
        """
        return self._derived(derivatives.vjp(self._call, self._lowerings.latest))

    def jvp(self) -> Program:
        """The program of (outputs, their tangents), with one argument more, `tangents`: a tuple, one for each argument.

        What is not floating point has None in place of a tangent.

        Raises:
            TraceError: as `arguments`, or if the function cannot be transformed.
        """
        return self._derived(derivatives.jvp(self._call, self._lowerings.latest))

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
        return self._derived(mapped(self._call, self._lowerings.latest, in_axes, out_axes, axis_size, spmd_axis_name))

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
        bound, of, own = origin.bind(plan), origin._lowerings.traced(plan), self._lowerings
        known = own.latest if own.is_traced else own.known(plan.mesh)
        edits = transforms.argument_specs(bound, of, transformed, [a.name for a in known.arguments])
        traced = own.latest if own.is_traced else own.traced(Plan(plan.mesh, edits=edits))
        outs = transforms.output_specs(bound, of, transformed, traced)
        return Plan(plan.mesh, edits=edits, out_edits=outs)

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
        lowered = self._lowerings.lower(plan, target)
        if not lowered.rehearsed:
            shardy.rehearse(lowered, bound)
            lowered.rehearsed = True
        found = shardy.propagate(lowered, bound)
        outputs = rows.outputs(lowered.traced.outputs, found.outputs, bound.mesh)
        report = Report(
            level="propagated",
            program=self.name,
            plan=bound,
            arguments=rows.arguments(lowered.traced.arguments, bound),
            outputs=outputs,
            intermediates=rows.labelled(found.intermediates),
            collectives=found.collectives,
            cost=Cost(
                dot_flops=math.fsum(row.dot_flops for row in found.work),
                unknown_loops=found.unknown_loops,
                work=found.work,
            ),
            diagnostics=rows.notes(lowered.traced)
            + diagnose.unknown_loops(found.unknown_loops)
            + diagnose.reshards_left(found.reshards_left),
            source=rows.source(found.intermediates, (*found.collectives, *found.work)),
            stages=self.texts(plan) | {"shardy": shardy.text_of(found, lowered)} if texts else {},
            timings=found.seconds,
            versions=rows.versions(),
            residuals=residuals(found, lowered, bound),
        )
        report = rows.annotated(report, self._call)
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
        return submitting.answer(
            self.submit(plan, "partitioned", target=target, timeout=timeout, memory_limit=memory_limit)
        )

    def compile(
        self,
        plan: Plan,
        target: str = "cpu",
        *,
        finish: bool = False,
        timeout: float | None = None,
        memory_limit: float | None = None,
    ) -> Report:
        """The target's optimised program and memory plan: level `compiled`.

        Machine code, most of a compile, is not waited for, unless you say `finish=True`: then `report.memory.code` and
        `.stated`, `report.cost.stated` and the collectives' `algorithm` have what the finished program says of itself.

        That a program does not fit into the target's memory is an answer: `report.memory.fits` is False then, and a
        diagnostic says by how much.

        Args:
            plan: mesh and specs; the mesh has as many devices as the target.
            target: `cpu`, or a machine that need not be there: `tpu v5p:4x4x4`, `tpu v5e:4x4*2` (two slices),
                `gpu h100:2x8` (hosts x GPUs); or `attached`, the devices that JAX sees in this process.
            finish: let the compile go on to its end. A program that does not fit is not finished; where a compile
                fails after the memory plan is there, the report stands and a diagnostic says why.
            timeout, memory_limit: as `partition`.

        Raises:
            SpecError, TraceError: as `bind`.
            TargetError: if there is no such chip or topology.
            MeshError: if the mesh and the target differ in their number of devices.
            CompileError: as `partition`; CompileRefused with the command to install where nothing here can compile for
                the target.
        """
        future = self.submit(plan, "compiled", target=target, finish=finish, timeout=timeout, memory_limit=memory_limit)
        return submitting.answer(future)

    def submit(
        self,
        plan: Plan,
        level: str = "partitioned",
        *,
        target: str = "cpu",
        finish: bool = False,
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
            finish: as `compile`, at level `compiled`.
            timeout: seconds that it may take.
            memory_limit: bytes that its process may use.
            on_report: called with the report of each level that is reached, and once more with that of the finished
                compile if it was asked for, on another thread.

        Returns:
            A future of the last level's report; see `ReportFuture` for its states.

        Raises:
            SpecError, TraceError: as `bind`.
            ShardvizError: if there is no such level or target, or if the mesh and the target differ in size.
        """
        until = submitting.last_milestone(level, finish)
        bound = self.bind(plan)
        aimed = aim(target, bound.mesh)
        lowered = self._lowerings.lower(plan, aimed.lowered_for)
        propagate = functools.partial(self._propagate, plan, target=aimed.lowered_for)
        reading = Reading(self._call, bound, lowered, aimed, propagate)
        return submitting.submit(reading, until, timeout, memory_limit, on_report)

    def texts(self, plan: Plan) -> dict[str, str]:
        """The program before any compiler: its `jaxpr`, if it was traced here, and `stablehlo` under the plan."""
        bound, lowered = self.bind(plan), self._lowerings.lower(plan)
        jaxpr = {} if lowered.traced.closed is None else {"jaxpr": str(lowered.traced.closed)}
        return jaxpr | {"stablehlo": shardy.stablehlo_text(lowered, bound)}

    def code(self, plan: Plan) -> str:
        """Python that rebuilds the plan."""
        traced = self._lowerings.traced(plan)
        return plan_code(plan, self.bind(plan), traced, ruled_arguments(plan, self._call, traced))

    def export(
        self,
        plan: Plan,
        path: str | os.PathLike[str] | None = None,
        platforms: Sequence[str] = ("cpu",),
        vjp_order: int = 0,
    ) -> bytes:
        """The program under the plan as a file of `jax.export`: mesh, specs, names and source lines go into it.

        No devices of the mesh are needed. Donation is not written down: the caller of the file chooses it. A
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
            ShardvizError: for an unknown platform, or a path that cannot be written.
        """
        exported = export(self._lowerings.traced(plan), self.bind(plan), platforms)
        return write_export(exported, path, vjp_order)

    def _derived(self, transformed: transforms.Transformed) -> Program:
        made = Program(transformed.call, self._lowerings.mesh)
        made._origin = self, transformed
        return made
