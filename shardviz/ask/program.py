"""The Program: a traced function, of which each plan is asked.

Tracing and lowering happen once for each set of mesh axis names; another plan only edits the lowered module.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from shardviz.ask import submitting
from shardviz.ask.derived import Derivable, of_plan, of_variant, planned
from shardviz.ask.limited import LONGEST, limited
from shardviz.ask.presets import Preset, Presets, presets_of, tried
from shardviz.ask.propagated import report_of, sketch_of
from shardviz.ask.reading import CompileReading
from shardviz.ask.submitting import OnReport, ReportFuture
from shardviz.ask.targeting import resolve_target
from shardviz.ask.why import Questions
from shardviz.caching import collection_paused
from shardviz.costs.machine import Machine, machine_of
from shardviz.costs.step_cost import timed
from shardviz.errors import MeshError, ShardvizError, TraceError
from shardviz.judge.report import Report
from shardviz.notation import DeviceMesh, Spec
from shardviz.notation.spec import axis_name
from shardviz.plan.bind import RulesTable, Undivided, ruled_arguments, rules_table, undivided
from shardviz.plan.jax_code import jax_code
from shardviz.plan.lowerings import Lowerings
from shardviz.plan.plan import Plan
from shardviz.plan.plan_code import plan_code
from shardviz.propagate import propagate as shardy
from shardviz.propagate.lines import stages_of
from shardviz.propagate.lower import CPU, Lowered, LowerFor
from shardviz.propagate.roles import new_values, resharded, roles
from shardviz.records import PlanRecord, Variant
from shardviz.records.stages import Stage
from shardviz.records.why import CollectiveWhy, Why
from shardviz.tracing.call import Call
from shardviz.tracing.trace import Argument, Constraint, needs_mesh


class Program(Derivable):
    """A function with abstract arguments, to explore under plans; `sv.trace` makes it.

    Attributes:
        name: the function's name.

    Examples:
        >>> import jax, shardviz as sv
        >>> program = sv.trace(lambda x: x @ x.T, jax.ShapeDtypeStruct((512, 1024), "float32"))
        >>> program.arguments[0].name, program.arguments[0].shape
        ('x', (512, 1024))
    """

    def __init__(self, call: Call, mesh: Any = None, *, like: Program | None = None):
        self.name = call.name
        self._call = call
        self._mesh = mesh
        lowerings = None if like is None else like._lowerings
        self._lowerings = Lowerings(call, None if mesh is None else DeviceMesh.of(mesh), lowerings)
        self._propagated: tuple[Plan, LowerFor, Report] | None = None
        self._flops: Mapping[str, float] = {}
        self._asked: tuple[Plan, Questions] | None = None
        self._variants: dict[Variant, Any] = {}

    def __reduce__(self) -> Any:
        root = self if self._root is None else self._root
        # it is traced anew where it arrives
        return _arrived, (root._call, root._mesh, dict(root._flops), self._variant)

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
            TraceError: if the function needs a mesh to be traced and has had no plan yet.
        """
        return self._lowerings.latest.arguments

    @property
    def traces(self) -> int:
        """The number of traces of the function in this process, for this program and those derived from it.

        Each trace calls the function, unless JAX has the trace in its cache. The first plan on a mesh with other axis
        names causes a trace (on Explicit axes, or with a `shard_map` inside, other sizes do too), the first constraint
        on an intermediate two, another constrained intermediate one. Presets, fixes and a search try plans, and so
        cause traces.
        """
        return self._call.tally.traces

    @property
    def constraints(self) -> tuple[Constraint, ...]:
        """Every `with_sharding_constraint` inside: its shape, its spec, and its line.

        Raises:
            TraceError: as `arguments`.
        """
        return self._lowerings.latest.constraints

    @of_plan
    def outputs(self, plan: Plan) -> tuple[Argument, ...]:
        """Return every array of the result: tree path, shape, dtype."""
        return self._lowerings.traced(plan).outputs

    def with_flops(self, flops: Mapping[str, float]) -> Program:
        """Return the program with the FLOPs of kernels and library calls that do not state them.

        Args:
            flops: name → FLOPs of one run on one device. The names are those of the warning `unknown-flops`: a Pallas
                kernel's (its `name`, or the function around it), or a call's target, such as `lapack_ssyevd_ffi`. These
                numbers override all others.

        Raises:
            ShardvizError: for a number below 0.
        """
        for name, count in flops.items():
            if not isinstance(count, int | float) or not count >= 0:
                raise ShardvizError(f"flops[{name!r}]: expected the FLOPs of one run, 0 or more, not {count!r}")
        program: Any = object.__new__(type(self))
        program.__dict__ |= self.__dict__  # `copy.copy` would trace it anew
        program._propagated, program._asked, program._variants = None, None, {}
        program._root = None if self._root is None else self._root.with_flops(flops)
        program._flops = {**self._flops, **flops}
        return program

    def plan(
        self, mesh: Any = None, in_specs: Any = None, out_specs: Any = None, target: str | Machine | None = None
    ) -> Plan:
        """Return a plan; the function's own mesh and specs replace arguments that are not given.

        Args:
            mesh: a mesh in any form that `sv.mesh` takes. None for the function's own: that of its `in_shardings`, of
                its arguments' shardings, of the call site (`jax.set_mesh`, `with mesh:`), or of the first
                `shard_map` or sharding constraint inside it.
            in_specs, out_specs: as for `Plan`; None for the function's own, see `Plan`.
            target: a machine whose `default_mesh` is used if no mesh is given and the function has none.

        Raises:
            MeshError: if there is no mesh.
            TargetError: for an unknown machine, and for a chip without a number when there is no mesh.
        """
        if mesh is None:
            first = self._lowerings.first
            mesh = self._call.brings.mesh or (first and first.mesh)
            waits = self._lowerings.waits
            if mesh is not None and waits is not None and needs_mesh(waits):
                self._lowerings.traced(Plan(mesh, in_specs, out_specs))  # which says what else is wrong
                raise TraceError(
                    f"{waits}\nThe mesh of its shardings is not set around this call: call it under "
                    "`with jax.set_mesh(mesh):`, or give mesh="
                ) from waits
        if mesh is None and target is not None:
            mesh = machine_of(target).default_mesh or None
        if mesh is None:
            raise MeshError(
                f"{self.name}: no mesh is given, and neither its shardings nor its arguments have one; give one, such "
                "as mesh={'data': 8}, or a target with a topology, such as target='tpu v5e:4x4'"
            )
        return Plan(mesh, in_specs, out_specs)

    def bind(self, plan: Plan) -> PlanRecord:
        """Return the plan with a full-rank spec for every argument and every output (None: the compiler's choice),
        checked.

        Raises:
            SpecError: if a spec breaks one of pjit's rules; the message names the argument and the numbers, and
                suggests a fix.
            TraceError: if the function cannot be traced on the plan's mesh.
        """
        program, plan = planned(self, plan)
        return program._lowerings.bind(plan)

    @of_plan
    def _undivided(self, plan: Plan) -> tuple[Undivided, ...]:
        """Return the dimensions of arguments and outputs that their plan's axes do not divide; otherwise as `bind`."""
        return undivided(plan, self._call, self._lowerings.traced(plan))

    @of_plan
    def rules_table(self, plan: Plan) -> RulesTable:
        """Return for each of a plan's rules the arguments that it matches and those that it wins, or why its spec does
        not fit one; and the arguments that no rule matches."""
        return rules_table(plan, self._call, self._lowerings.known(plan.mesh))

    def presets(self, mesh: Any = None, target: str | Machine | None = None, *, level: str = "propagated") -> Presets:
        """Return starting plans made from the logical dimensions: data parallel, ZeRO-2 and -3, tensor, expert
        parallel, ...

        Args:
            mesh: a mesh in any form that `sv.mesh` takes; None for the mesh of the trace. The first axes shard data,
                the last one the dimensions between the layers' products.
            target: a machine to time each preset on; the one with the shortest step comes first.
            level: `partitioned` if the partitioner must confirm the first preset, which takes at least one compile;
                otherwise the order is predicted.

        Returns:
            Name → plan, each propagated; displayed as a table with each preset's shardings and cost. A preset that
            breaks its description is not offered; its row says why.

        Raises:
            MeshError: if there is no mesh, or the target has another number of devices.
            TraceError, TargetError: as `dimensions`, and `sv.cost`.
        """
        return tried(self, self._untried_presets(mesh, target), target, level)

    def _untried_presets(self, mesh: Any = None, target: str | Machine | None = None) -> Iterator[Preset]:
        """Yield the presets without reports; several may have the same name."""
        on = self.plan(mesh, target=target).mesh
        arguments = self._lowerings.traced(Plan(on)).arguments
        return presets_of(on, arguments, self.dimensions, roles(self._lowerings.lowered))

    @of_plan
    def propagate(self, plan: Plan, target: str | Machine = "cpu", *, timeout: float = LONGEST) -> Report:
        """Return Shardy's propagation of a plan: level `propagated`, in the kernel, in tens of milliseconds.

        Args:
            plan: mesh and specs.
            target: the machine that JAX lowers the program for; few operations are lowered differently for another
                platform.
            timeout: time limit in seconds. A running pass of Shardy, which is C++, is not interrupted.

        The first time, Shardy runs on the program in a separate process, so that a crash does not end the kernel.

        Raises:
            SpecError, TraceError: as `bind`; TraceError too for an operation that JAX cannot lower.
            TargetError, MeshError: if there is no such machine, or it has another number of devices than the mesh.
            CompileError: if Shardy crashes on the program; CompileTimeout if it takes longer than `timeout`.
        """
        if target == "cpu":
            return self._propagate(plan, timeout=timeout)
        resolved = resolve_target(target, self.bind(plan).mesh)
        report = self._propagate(plan, target=resolved.lowered_for, timeout=timeout)
        return timed(replace(report, target=resolved.text))

    def _propagate(self, plan: Plan, *, target: LowerFor = CPU, timeout: float = LONGEST) -> Report:
        last = self._propagated
        if last is not None and last[:2] == (plan, target):
            return last[2]
        bound = self.bind(plan)
        lowered = self._lowered(plan, target)
        with (
            limited(timeout, f"propagating {self.name}"),
            collection_paused(),
            shardy.propagate(lowered, bound, self._flops) as propagated,
        ):
            report = report_of(self._call, bound, lowered, propagated, target=target)
        self._propagated = plan, target, report  # the partitioner's report is compared with it a moment later
        return report

    @of_plan
    def why(
        self,
        plan: Plan,
        of: Any,
        *,
        axis: str | None = None,
        target: str | Machine | None = None,
        pause: Callable[[int], None] | None = None,
    ) -> Why | CollectiveWhy:
        """Explain why a value is sharded as it is, or why a collective exists, by propagating with something changed.

            program.why(plan, "h", axis="model")
            program.why(plan, report.collectives[3])

        Args:
            plan: mesh and specs.
            of: a value (its name, tree path, variable, or a line such as `model.py:20`; or a `Value` of the plan's
                propagated report), or a `Collective` of that report. A collective of another level is replaced by the
                one on the same line, of the same kind and over the same axes.
            axis: the mesh axis to explain, which may be missing from the value; None for all axes of the mesh.
            target: a machine to time the compared plans on.
            pause: called before each run of Shardy with the number of runs so far; an exception ends the question.

        Returns:
            A `Why`, or a `CollectiveWhy`: causes, chain, contest; displayed as text and HTML.

        Raises:
            ShardvizError: if there is no such value, axis or collective in the plan's propagated report.
            SpecError, TraceError, CompileError, TargetError: as `propagate`, and `sv.cost`.
        """
        return self._asking(plan).why(of, axis, target, pause)

    def _asking(self, plan: Plan) -> Questions:
        if self._asked is None or self._asked[0] != plan:
            report = self.propagate(plan)
            lowered = self._lowerings.lower(plan, CPU, anywhere=True).apart()

            def reported(bound: PlanRecord, make: Callable[[], Any]) -> Report:
                with shardy.propagate(lowered, bound, self._flops, make) as propagated:
                    return report_of(self._call, bound, lowered, propagated)

            self._asked = plan, Questions(lowered, self.bind(plan), report, reported)
        return self._asked[1]

    def _lowered(self, plan: Plan, target: LowerFor) -> Lowered:
        return self._lowerings.lower(plan, target, anywhere=target is CPU)

    @of_plan
    def partition(self, plan: Plan, target: str = "cpu", *, options: Any = (), timeout: float | None = None) -> Report:
        """Return the result of XLA's partitioner for a plan: level `partitioned`, computed in the compile server.

        Args:
            plan: mesh and specs; at most 2048 simulated devices.
            target: the machine whose compiler partitions it; see `compile`. If this installation cannot compile for it,
                simulated devices replace it, and a diagnostic says so.
            options: compiler options besides the plan's own, as `Plan.with_options` takes them.
            timeout: time limit of the compile in seconds.

        Raises:
            SpecError, TraceError: as `bind`.
            CompileError: if the compile crashed, exceeded its time or memory limit, or was refused.
        """
        return self._answer(plan, "partitioned", target=target, options=options, timeout=timeout)

    @of_plan
    def compile(self, plan: Plan, target: str = "cpu", *, options: Any = (), timeout: float | None = None) -> Report:
        """Return the target's optimised program and memory plan: level `compiled`.

        The report does not wait for machine code, which is most of a compile. A program that does not fit into the
        target's memory still gets a report: `report.memory.fits` is False, and a diagnostic has the excess.

        Args:
            plan: mesh and specs; the mesh has as many devices as the target.
            target: `cpu`, or a machine that need not exist here: `tpu v5p:4x4x4`, `tpu v5e:4x4*2` (two slices), `gpu
                h100:2x8` (hosts x GPUs), `v5p` (as many chips as the mesh has devices), `v5p-64` (a cloud's name); or
                `attached`, the devices that JAX sees in this process.
            options: compiler options besides the plan's own, as `Plan.with_options` takes them:
                `{"xla_tpu_scoped_vmem_limit_kib": 98304}`, or `"host-offload"`, a set of `sv.gallery.option_sets`.
            timeout: as `partition`.

        Raises:
            SpecError, TraceError: as `bind`.
            TargetError: if there is no such chip or topology.
            MeshError: if the mesh and the target differ in their number of devices.
            CompileError: as `partition`; CompileRefused if this installation cannot compile for the target, with the
                command that fixes it, and if the compiler refuses an option, with its own words.
        """
        return self._answer(plan, "compiled", target=target, options=options, timeout=timeout)

    @of_plan
    def submit(
        self,
        plan: Plan,
        level: str = "partitioned",
        *,
        target: str = "cpu",
        options: Any = (),
        timeout: float | None = None,
        memory_limit: float | None = None,
        on_report: OnReport | None = None,
    ) -> ReportFuture:
        """Start a compile and return at once.

        Args:
            plan: mesh and specs.
            level: the last requested level, `partitioned` or `compiled`.
            target: the machine to compile for; see `compile`. If this installation cannot compile for it, level
                `partitioned` uses simulated devices.
            options: as `compile`.
            timeout: time limit in seconds.
            memory_limit: memory limit of its process in bytes.
            on_report: called with the report of each level that is reached, on another thread.

        Returns:
            A future of the last level's report; see `ReportFuture` for its states.

        Raises:
            SpecError, TraceError: as `bind`.
            ShardvizError: if there is no such level or target, or if the mesh and the target differ in size.
        """
        future = ReportFuture(on_report)
        try:
            submitting.check_level(level)
            future.begin(self._reading(plan.with_options(options), level, target), level, timeout, memory_limit)
        except BaseException:  # a Ctrl-C too must stop the compile
            future.stop()
            raise
        return future

    def _answer(self, plan: Plan, level: str, **asked: Any) -> Report:
        """Start a compile and wait for its report. An interrupt cancels the compile and says how far it was."""
        future = self.submit(plan, level, **asked)
        try:
            return future.result()
        except KeyboardInterrupt as interrupt:
            interrupt.add_note(f"The compile was {future.state} after {future.elapsed:.1f} s.")
            raise
        finally:
            future.stop()

    def _reading(self, plan: Plan, level: str, target: str) -> CompileReading:
        """Return what is to be compiled, and how its outcome is read."""
        bound = self.bind(plan)
        resolved = resolve_target(target, bound.mesh)
        simulated = resolved.topology is None and level == "partitioned"
        lower_for = CPU if simulated else resolved.lowered_for  # simulated devices are CPUs
        lowered = self._lowerings.lower(plan, lower_for, anywhere=simulated)
        propagate = functools.partial(self._propagate, plan, target=lower_for)
        return CompileReading(self._call, bound, lowered, resolved=resolved, propagate=propagate, flops=self._flops)

    def texts(self, plan: Plan) -> dict[str, str]:
        """Return the program's texts before XLA: `jaxpr`, if it was traced here, without the plan's constraints;
        `stablehlo` under the plan; `shardy`, after Shardy's passes. Raises as `propagate`."""
        return {stage.name: "".join(f"{line.text}\n" for line in stage.lines) for stage in self.stages(plan)}

    @of_plan
    def stages(self, plan: Plan) -> Iterator[Stage]:
        """Return the same texts line by line, each line with its source line. Raises as `propagate`."""
        bound, lowered = self.bind(plan), self._lowered(plan, CPU)
        if not lowered.rehearsed:
            shardy.rehearse(lowered, bound)
        yield from stages_of(self._lowerings.traced(plan.unconstrain()), lowered, bound)

    @of_plan
    def plan_code(self, plan: Plan) -> str:
        """Return Python code that rebuilds the plan."""
        traced = self._lowerings.traced(plan)
        return plan_code(plan, self.bind(plan), traced, ruled_arguments(plan, self._call, traced))

    @of_plan
    def code(self, plan: Plan) -> str:
        """Return Python code that runs the plan with JAX alone: the mesh, the shardings, `jax.jit`, and what to write
        inside.

        State that the compiler would return with another sharding is constrained to its input sharding, so that the
        next step does not compile again.

        Raises:
            SpecError: if a spec shards along a part of a mesh axis, which no PartitionSpec expresses.
        """
        bound, kept = self.bind(plan), dict[str, Spec | None]()
        with contextlib.suppress(ShardvizError):  # Shardy may not survive the program
            kept = {new: bound.in_specs[name] for name, new in resharded_state(self, plan).items()}
        free = {new: spec for new, spec in kept.items() if bound.out_specs[new] is None}
        bound = replace(bound, out_specs={**bound.out_specs, **free})
        return jax_code(bound, self._lowerings.traced(plan), self._call)


def _arrived(call: Call, mesh: Any, flops: Mapping[str, float], variant: Variant) -> Program:
    """Return a program that was sent from another process."""
    program = Program(call, mesh)
    program._flops = flops
    return of_variant(program, variant)


def named_axes(program: Program) -> tuple[str, ...]:
    """Return the mesh axes that a program names in its constraints and `shard_map`s; every mesh that it runs on must
    have them. Raises TraceError as `Program.arguments` if they cannot be known."""
    traced = program._lowerings.shapes
    names = [axis_name(a) for c in traced.constraints for a in c.spec.axes]
    return tuple(dict.fromkeys((*names, *(traced.mesh.names if traced.mesh and traced.sized else ()))))


def state_of(program: Program) -> dict[str, str]:
    """Return argument → the result that a search shards equally: its new value, its gradient, or the only one of its
    shape."""
    arguments, outputs = arrays(program)
    pairs = dict(roles(program._lowerings.lowered).becomes)
    for alone in (False, True):
        unpaired = [a for a in arguments if a.name not in pairs]
        pairs |= new_values(unpaired, [o for o in outputs if o.name not in pairs.values()], alone=alone)
    return pairs


@of_plan
def resharded_state(program: Program, plan: Plan) -> dict[str, str]:
    """Return argument → the result that is its new value, if Shardy returns it with another sharding. A second step
    then compiles again. Raises SpecError, TraceError, CompileError as `Program.propagate`."""
    report, becomes = program.propagate(plan), roles(program._lowerings.lowered).becomes
    ins, outs = ({v.name: v.spec for v in values} for values in (report.arguments, report.outputs))
    return {name: becomes[name] for name in resharded(becomes, ins, outs)}


def is_differentiated(program: Program) -> bool:
    """Return whether the program has a backward pass."""
    return roles(program._lowerings.lowered).differentiated


def update_arguments(program: Program) -> frozenset[str]:
    """Return the arguments that only the update uses, an optimizer's state; empty without a backward pass."""
    return roles(program._lowerings.lowered).optimizer


def arrays(program: Program, plan: Plan | None = None) -> tuple[tuple[Argument, ...], tuple[Argument, ...]]:
    """Return the arrays of the arguments and of the result under a plan's mesh; without a plan under any mesh."""
    if plan is None and not program._lowerings.is_traced:
        names = named_axes(program) or ("_",)
        plan = Plan(DeviceMesh(names, (1,) * len(names)))
    lowerings = program._lowerings if plan is None else of_variant(program, plan.variant)._lowerings
    traced = lowerings.latest if plan is None else lowerings.traced(plan)
    return traced.arguments, traced.outputs


def own_plan(program: Program) -> Plan | None:
    """Return the plan that the function's or its arguments' own shardings make on the known mesh; None if they
    determine no argument, or no mesh is known yet."""
    brings, lowerings = program._call.brings, program._lowerings
    mesh = brings.mesh or lowerings.mesh or (lowerings.first and lowerings.first.mesh)
    says = any(spec is not None for spec in brings.in_specs)
    return Plan(mesh) if says and mesh is not None and lowerings.waits is None else None


@of_plan
def sketch(program: Program, plan: Plan, target: LowerFor = CPU) -> Report:
    """Return a report of level `propagated` with only what a cost needs: arguments, outputs, collectives, FLOPs and the
    schedule. A search uses it in place of `propagate`. Raises as `Program.propagate`."""
    bound = program.bind(plan)
    lowered = program._lowered(plan, target)
    with limited(LONGEST, f"propagating {program.name}"):
        return sketch_of(program._call, bound, lowered, shardy.propagate(lowered, bound, program._flops, brief=True))


@of_plan
def result_specs(program: Program, plan: Plan, target: LowerFor = CPU) -> tuple[Spec, ...]:
    """Return how Shardy shards a plan's results, which is faster than a report. Raises as `Program.propagate`."""
    bound = program.bind(plan)
    with limited(LONGEST, f"propagating {program.name}"):
        return shardy.result_specs(program._lowered(plan, target), bound)
