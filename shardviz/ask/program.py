"""The Program: a function traced, and asked about under one plan after another.

Tracing and lowering happen once for each set of mesh axis names; a change of plan edits the lowered module.
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
    """A function with abstract arguments, to be explored under plans. Made by `sv.trace`.

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
            TraceError: if the function needs a mesh to be traced and has met no plan yet.
        """
        return self._lowerings.latest.arguments

    @property
    def traces(self) -> int:
        """How often the function was traced in this process, for this program and those made of it.

        Each trace calls the function, unless JAX has kept the same one. The first plan on a mesh with other axis names
        makes one (on Explicit axes, or with a `shard_map` inside, also one with other sizes), the first constraint on a
        value inside two, another value one. Presets, fixes and a search try plans, which makes some of these.
        """
        return self._call.tally.traces

    @property
    def constraints(self) -> tuple[Constraint, ...]:
        """Every `with_sharding_constraint` inside: the shape and spec that it asks for, and its line.

        Raises:
            TraceError: as `arguments`.
        """
        return self._lowerings.latest.constraints

    @of_plan
    def outputs(self, plan: Plan) -> tuple[Argument, ...]:
        """Every array of the result: tree path, shape, dtype."""
        return self._lowerings.traced(plan).outputs

    def with_flops(self, flops: Mapping[str, float]) -> Program:
        """The same program, with FLOPs told of kernels and library calls that say none themselves.

        Args:
            flops: name → FLOPs of one run on one device. The name is the one that the warning `unknown-flops` has: a
                Pallas kernel's (its `name`, or the function around it), or a call's target, such as
                `lapack_ssyevd_ffi`. A number that is told goes before any that is known otherwise.

        Raises:
            ShardvizError: for a number that is not 0 or more.
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
        """A plan, with what the function brings along where nothing is given.

        Args:
            mesh: a mesh in any form that `sv.mesh` takes. None for the function's own: that of its `in_shardings`, of
                its arguments' shardings, of the call site (`jax.set_mesh`, `with mesh:`), or of the first
                `shard_map` or sharding constraint inside it.
            in_specs, out_specs: as for `Plan`; None for the function's own, see `Plan`.
            target: a machine whose `default_mesh` is taken where no mesh is given and the function brings none.

        Raises:
            MeshError: if there is no mesh.
            TargetError: if there is no such machine, or the target is a chip alone and no mesh says how many.
        """
        if mesh is None:
            first = self._lowerings.first
            mesh = self._call.brings.mesh or (first and first.mesh)
            waits = self._lowerings.waits
            if mesh is not None and waits is not None and needs_mesh(waits):
                self._lowerings.traced(Plan(mesh, in_specs, out_specs))  # which says what else is wrong
                raise TraceError(
                    f"{waits}\nThe mesh of its shardings does not stand around this call: call it under "
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
        """The plan, found to fit: a full-rank spec for every argument and every output (None: the compiler's choice).

        Raises:
            SpecError: if a spec breaks one of pjit's rules; the message names the argument, the numbers and a way out.
            TraceError: if the function cannot be traced on the plan's mesh.
        """
        program, plan = planned(self, plan)
        return program._lowerings.bind(plan)

    @of_plan
    def _undivided(self, plan: Plan) -> tuple[Undivided, ...]:
        """The dimensions of arguments and outputs that do not divide by what a plan shards them by; else as `bind`."""
        return undivided(plan, self._call, self._lowerings.traced(plan))

    @of_plan
    def rules_table(self, plan: Plan) -> RulesTable:
        """For each of a plan's rules which arguments its filter catches and which it wins, and what no rule catches;
        where its spec does not fit one, the row says why."""
        return rules_table(plan, self._call, self._lowerings.known(plan.mesh))

    def presets(self, mesh: Any = None, target: str | Machine | None = None, *, level: str = "propagated") -> Presets:
        """Plans to begin with, from the logical dimensions: data parallel, ZeRO-2 and -3, tensor, expert parallel, ...

        Args:
            mesh: a mesh in any form that `sv.mesh` takes; None for the one that the program was traced on. The first
                axes are for data, the last for what lies between the layers' products.
            target: a machine that each is timed on, so that the one with the shortest step comes first.
            level: `partitioned` to have the partitioner confirm the first before it is first, which takes a compile or
                more; without that the order is predicted.

        Returns:
            Name → plan, each propagated; shown as a table with what each shards and costs. One whose sentence its plan
            does not keep is not offered; its row says why.

        Raises:
            MeshError: if there is no mesh, or the target has another number of devices.
            TraceError, TargetError: as `dimensions`, and `sv.cost`.
        """
        return tried(self, self._untried_presets(mesh, target), target, level)

    def _untried_presets(self, mesh: Any = None, target: str | Machine | None = None) -> Iterator[Preset]:
        """The presets as they are made, one after the other, with no report; of some there are several of one name."""
        on = self.plan(mesh, target=target).mesh
        arguments = self._lowerings.traced(Plan(on)).arguments
        return presets_of(on, arguments, self.dimensions, roles(self._lowerings.lowered))

    @of_plan
    def propagate(self, plan: Plan, target: str | Machine = "cpu", *, timeout: float = LONGEST) -> Report:
        """What Shardy makes of the plan: level `propagated`, in the kernel, in tens of milliseconds.

        Args:
            plan: mesh and specs.
            target: the machine for which JAX lowers the program; few operations have another lowering for another
                platform.
            timeout: seconds that it may take. One of Shardy's passes, which are C++, is not interrupted.

        The first time, Shardy is tried on the program in a process of its own, so that it cannot take the kernel along.

        Raises:
            SpecError, TraceError: as `bind`; TraceError too for an operation that JAX cannot lower.
            TargetError, MeshError: if there is no such machine, or it has another number of devices than the mesh.
            CompileError: if Shardy does not survive the program; CompileTimeout if it takes longer than `timeout`.
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
        with limited(timeout, f"propagating {self.name}"), collection_paused():
            propagated = shardy.propagate(lowered, bound, self._flops)
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
        """Why a value is sharded as it is, or why a collective is there: tried, by propagating with something changed.

            program.why(plan, "h", axis="model")
            program.why(plan, report.collectives[3])

        Args:
            plan: mesh and specs.
            of: a value (its name, tree path, variable, or a line such as `model.py:20`; or a `Value` of the plan's
                propagated report), or a `Collective` of that report, or of another level's, for which that on the same
                line, of the same kind and axes answers.
            axis: the mesh axis to explain, which may be missing from the value; None for all axes of the mesh.
            target: a machine that what is compared is timed on.
            pause: called before each run of Shardy with how many there were; what it raises ends the question.

        Returns:
            A `Why`, or a `CollectiveWhy`: causes, chain, contest; they show themselves as text and HTML.

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
                return report_of(self._call, bound, lowered, shardy.propagate(lowered, bound, self._flops, make))

            self._asked = plan, Questions(lowered, self.bind(plan), report, reported)
        return self._asked[1]

    def _lowered(self, plan: Plan, target: LowerFor) -> Lowered:
        return self._lowerings.lower(plan, target, anywhere=target is CPU)

    @of_plan
    def partition(self, plan: Plan, target: str = "cpu", *, options: Any = (), timeout: float | None = None) -> Report:
        """What XLA's partitioner makes of the plan: level `partitioned`, in the compile server.

        Args:
            plan: mesh and specs; at most 2048 simulated devices.
            target: the machine whose compiler partitions it; see `compile`. Where nothing here can compile for it,
                simulated devices stand in, and a diagnostic says so.
            options: compiler options besides the plan's own, as `Plan.with_options` takes them.
            timeout: seconds that the compile may take.

        Raises:
            SpecError, TraceError: as `bind`.
            CompileError: if the compile crashed, took too long or too much, or was refused.
        """
        return self._answer(plan, "partitioned", target=target, options=options, timeout=timeout)

    @of_plan
    def compile(self, plan: Plan, target: str = "cpu", *, options: Any = (), timeout: float | None = None) -> Report:
        """The target's optimised program and memory plan: level `compiled`.

        Machine code, most of a compile, is not waited for. That a program does not fit into the target's memory is an
        answer: `report.memory.fits` is False then, and a diagnostic says by how much.

        Args:
            plan: mesh and specs; the mesh has as many devices as the target.
            target: `cpu`, or a machine that need not be there: `tpu v5p:4x4x4`, `tpu v5e:4x4*2` (two slices),
                `gpu h100:2x8` (hosts x GPUs), `v5p` (as many as the mesh has devices), `v5p-64` (a cloud's name); or
                `attached`, the devices that JAX sees in this process.
            options: compiler options besides the plan's own, as `Plan.with_options` takes them:
                `{"xla_tpu_scoped_vmem_limit_kib": 98304}`, or `"host-offload"`, a set of `sv.gallery.option_sets`.
            timeout: as `partition`.

        Raises:
            SpecError, TraceError: as `bind`.
            TargetError: if there is no such chip or topology.
            MeshError: if the mesh and the target differ in their number of devices.
            CompileError: as `partition`; CompileRefused with the command to install where nothing here can compile for
                the target, and with the compiler's own words where it does not take an option.
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
        """Starts a compile and returns at once.

        Args:
            plan: mesh and specs.
            level: `partitioned` or `compiled`: when nothing more is wanted.
            target: the machine to compile for; see `compile`. Where nothing here can, level `partitioned` is made on
                simulated devices.
            options: as `compile`.
            timeout: seconds that it may take.
            memory_limit: bytes that its process may use.
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
        except BaseException:
            future.stop()
            raise
        return future

    def _answer(self, plan: Plan, level: str, **asked: Any) -> Report:
        """Starts a compile and waits for its report; who interrupts that stops the compile."""
        future = self.submit(plan, level, **asked)
        try:
            return future.result()
        finally:
            future.stop()

    def _reading(self, plan: Plan, level: str, target: str) -> CompileReading:
        """What is to be compiled, and reads what comes of it."""
        bound = self.bind(plan)
        resolved = resolve_target(target, bound.mesh)
        simulated = resolved.topology is None and level == "partitioned"
        lower_for = CPU if simulated else resolved.lowered_for  # simulated devices are CPUs
        lowered = self._lowerings.lower(plan, lower_for, anywhere=simulated)
        propagate = functools.partial(self._propagate, plan, target=lower_for)
        return CompileReading(self._call, bound, lowered, resolved=resolved, propagate=propagate, flops=self._flops)

    def texts(self, plan: Plan) -> dict[str, str]:
        """The program before XLA: `jaxpr`, if it was traced here, without the plan's constraints; `stablehlo` under the
        plan, and `shardy`, what Shardy makes of that. Raises as `propagate`."""
        return {stage.name: "".join(f"{line.text}\n" for line in stage.lines) for stage in self.stages(plan)}

    @of_plan
    def stages(self, plan: Plan) -> Iterator[Stage]:
        """The same texts line by line, each line with the source line that it comes from. Raises as `propagate`."""
        bound, lowered = self.bind(plan), self._lowered(plan, CPU)
        if not lowered.rehearsed:
            shardy.rehearse(lowered, bound)
        yield from stages_of(self._lowerings.traced(plan.unconstrain()), lowered, bound)

    @of_plan
    def plan_code(self, plan: Plan) -> str:
        """Python that rebuilds the plan."""
        traced = self._lowerings.traced(plan)
        return plan_code(plan, self.bind(plan), traced, ruled_arguments(plan, self._call, traced))

    @of_plan
    def code(self, plan: Plan) -> str:
        """Python that runs the plan with JAX alone: the mesh, the shardings, `jax.jit`, and what to write inside.

        State that the compiler would give back sharded otherwise is told to come back as it went in, so that the next
        step does not compile once more.

        Raises:
            SpecError: if a spec shards along a part of a mesh axis, which no PartitionSpec says.
        """
        bound, kept = self.bind(plan), dict[str, Spec | None]()
        with contextlib.suppress(ShardvizError):  # Shardy may not survive the program
            kept = {new: bound.in_specs[name] for name, new in resharded_state(self, plan).items()}
        free = {new: spec for new, spec in kept.items() if bound.out_specs[new] is None}
        bound = replace(bound, out_specs={**bound.out_specs, **free})
        return jax_code(bound, self._lowerings.traced(plan), self._call)


def _arrived(call: Call, mesh: Any, flops: Mapping[str, float], variant: Variant) -> Program:
    """A program that was sent from another process."""
    program = Program(call, mesh)
    program._flops = flops
    return of_variant(program, variant)


def named_axes(program: Program) -> tuple[str, ...]:
    """The mesh axes that a program itself names, in its constraints and in its `shard_map`s: every mesh that it runs on
    has them. Raises TraceError as `Program.arguments`, of a function whose axes cannot be told."""
    traced = program._lowerings.shapes
    names = [axis_name(a) for c in traced.constraints for a in c.spec.axes]
    return tuple(dict.fromkeys((*names, *(traced.mesh.names if traced.mesh and traced.sized else ()))))


def state_of(program: Program) -> dict[str, str]:
    """Argument → the result that a search shards as it: its new value, its gradient, or what alone has its shape."""
    arguments, outputs = arrays(program)
    pairs = dict(roles(program._lowerings.lowered).becomes)
    for alone in (False, True):
        left = [a for a in arguments if a.name not in pairs]
        pairs |= new_values(left, [o for o in outputs if o.name not in pairs.values()], alone=alone)
    return pairs


@of_plan
def resharded_state(program: Program, plan: Plan) -> dict[str, str]:
    """Argument → the result that is its new value, where Shardy gives it back sharded otherwise: a second step then
    compiles once more. Raises SpecError, TraceError, CompileError as `Program.propagate`."""
    report, becomes = program.propagate(plan), roles(program._lowerings.lowered).becomes
    ins, outs = ({v.name: v.spec for v in values} for values in (report.arguments, report.outputs))
    return {name: becomes[name] for name in resharded(becomes, ins, outs)}


def is_differentiated(program: Program) -> bool:
    """Whether the program has a backward pass."""
    return roles(program._lowerings.lowered).differentiated


def update_arguments(program: Program) -> frozenset[str]:
    """The arguments that only the update uses: an optimizer's state. Empty where there is no backward pass."""
    return roles(program._lowerings.lowered).optimizer


def arrays(program: Program, plan: Plan | None = None) -> tuple[tuple[Argument, ...], tuple[Argument, ...]]:
    """Every array of the arguments, and of the result, as they are under a plan's mesh; without one, under any."""
    if plan is None and not program._lowerings.is_traced:
        names = named_axes(program) or ("_",)
        plan = Plan(DeviceMesh(names, (1,) * len(names)))
    lowerings = program._lowerings if plan is None else of_variant(program, plan.variant)._lowerings
    traced = lowerings.latest if plan is None else lowerings.traced(plan)
    return traced.arguments, traced.outputs


def own_plan(program: Program) -> Plan | None:
    """The plan that the function's own shardings, or those of its arguments, make on the mesh that is known of; None
    where they say nothing of any argument, or there is no mesh yet."""
    brings, lowerings = program._call.brings, program._lowerings
    mesh = brings.mesh or lowerings.mesh or (lowerings.first and lowerings.first.mesh)
    says = any(spec is not None for spec in brings.in_specs)
    return Plan(mesh) if says and mesh is not None and lowerings.waits is None else None


@of_plan
def sketch(program: Program, plan: Plan, target: LowerFor = CPU) -> Report:
    """What costs of a plan, and nothing else, a search's `propagate`: a report of level `propagated` with arguments,
    outputs, collectives, FLOPs and the schedule alone. Raises as `Program.propagate`."""
    bound = program.bind(plan)
    lowered = program._lowered(plan, target)
    with limited(LONGEST, f"propagating {program.name}"):
        return sketch_of(program._call, bound, lowered, shardy.propagate(lowered, bound, program._flops, brief=True))


@of_plan
def result_specs(program: Program, plan: Plan, target: LowerFor = CPU) -> tuple[Spec, ...]:
    """How Shardy shards a plan's results, which takes less than a report. Raises as `Program.propagate`."""
    bound = program.bind(plan)
    with limited(LONGEST, f"propagating {program.name}"):
        return shardy.result_specs(program._lowered(plan, target), bound)
