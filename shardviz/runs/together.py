"""Several programs that share arrays: the cost of each under one assignment of the shared arrays.

    together = sv.together(train=(train, plan), decode=(decode, plan), target="tpu v5p:4x4x4")

Each program keeps its own plan. An assignment of the shared arrays edits these plans: the specs of the arguments that
are shared, and of the outputs that are their new values (donated arguments have such outputs).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shardviz.ask.calls import program_and_plan
from shardviz.ask.program import arrays
from shardviz.ask.targeting import resolve_target
from shardviz.costs.machine import Machine, machine_of
from shardviz.display import Displayed
from shardviz.errors import MeshError, ShardvizError
from shardviz.plan.plan import Plan
from shardviz.propagate.roles import new_values
from shardviz.records.amounts import plural
from shardviz.records.budget import Budget
from shardviz.records.together import TogetherSearchRecord
from shardviz.runs.budget import budget_of
from shardviz.runs.joint import joint_search
from shardviz.runs.sets import ProgramSet, SetMember, check_calls
from shardviz.runs.shared import Arrays, SharedGroup, shared_arrays


def together(
    programs: Mapping[str, Any] | None = None,
    /,
    *,
    shared: Any = None,
    target: str | Machine | None = None,
    calls: Mapping[str, float] | None = None,
    **named: Any,
) -> Together:
    """Compute the costs of several programs that share arrays, such as a train and a decode step with the same weights.

    Nothing is compiled: every number is at level `propagated`, but for `.memory(level="compiled")` and `.search`.

    Args:
        programs, named: name → a program and its plan, each as `sv.explore` takes it: `(program, plan)`, a `Program`,
            an example of the gallery, or `(function, arguments, keywords)`.
        shared: the shared arrays by tree path; a path stands for all arrays below it. For two programs: `{"params":
            "weights"}`, path in the first → path in the second. For any number: a list of `{program: path}`, or of
            paths that all programs have. A path may be an output's (`result[1]`) that another program reads. If None:
            arguments in trees with equal paths, shapes and types. Then arguments and outputs whose last keys, shape
            and type are equal, and occur once in each program.
        target: the machine, such as `tpu v5p:4x4x4`, for seconds and whether it fits.
        calls: program → how often it is called in an hour.

    Returns:
        A `Together`, which shows itself.

    Raises:
        ShardvizError: for fewer than two programs, paths that do not exist, shapes that differ, or if nothing is
            shared.
        MeshError: if the programs' meshes have different devices.
        SpecError, TraceError, TargetError: as `Program.propagate` and `sv.cost`.

    Examples:
        >>> import jax, shardviz as sv
        >>> from jax.sharding import PartitionSpec as P
        >>> w, x = (jax.ShapeDtypeStruct(shape, "bfloat16") for shape in ((8192, 8192), (64, 8192)))
        >>> program = sv.trace(lambda params, x: x @ params["w"], {"w": w}, x)
        >>> fsdp = sv.Plan({"data": 8}, in_specs=({"w": P("data")}, P("data")))
        >>> rows = sv.Plan({"data": 8}, in_specs=({"w": P(None, "data")}, None))
        >>> both = sv.together(evaluate=(program, fsdp), decode=(program, rows), target="tpu v5e:2x4")
        >>> [(each.names, [wish.spec for wish in each.wishes]) for each in both.record.conflicts]
        [(("params['w']",), ["P('data')", "P(None, 'data')"])]
    """
    subjects, calls = {**(programs or {}), **named}, calls or {}
    if len(subjects) < 2:
        raise ShardvizError(
            f"together: {plural(len(subjects), 'program')}; give two or more by name, train=(program, plan), "
            "decode=(program, plan)"
        )
    check_calls("calls", calls, list(subjects))
    sides = []
    for name, subject in subjects.items():
        try:
            program, plan = program_and_plan(subject, target=None if target is None else str(target))
        except ShardvizError as error:
            raise type(error)(f"together({name}=...): {error}") from error
        sides.append(SetMember(name, program, plan, calls.get(name)))
    return together_of(sides, shared, target)


def together_of(sides: list[SetMember], shared: Any = None, target: str | Machine | None = None) -> Together:
    """Return the set of programs; raise as `together`."""
    first = sides[0]
    for side in sides[1:]:
        if set(side.plan.mesh.ids().tolist()) != set(first.plan.mesh.ids().tolist()):
            raise MeshError(
                f"together: {first.name}'s mesh {first.plan.mesh} and {side.name}'s {side.plan.mesh} have different "
                "devices, so they share no arrays; give plans on meshes of the same devices, or ask sv.reshard what "
                "moving the arrays costs"
            )
    machine = None if target in (None, "cpu") else machine_of(target, first.plan.mesh.size)
    if machine is not None:
        resolve_target(machine, first.plan.mesh)
    if not (shared and isinstance(shared, tuple) and all(isinstance(each, SharedGroup) for each in shared)):
        all_arrays = []
        for side in sides:
            arguments, outputs = arrays(side.program, side.plan)
            donated = [array for array in arguments if array.donated]
            all_arrays.append(Arrays(side.name, arguments, outputs, new_values(donated, outputs)))
        shared = shared_arrays(all_arrays, shared)
    return Together(tuple(sides), shared, machine)


@dataclass(frozen=True, eq=False, repr=False)
class Together(ProgramSet):
    """Several programs that share arrays. Made by `sv.together`, or by `run.together()`; see `ProgramSet`.

    Attributes:
        sides: the programs, each with its own plan.
        shared: the arrays that they share.
        machine: the target; None if not known.
    """

    def memory(
        self,
        cache: str | Sequence[str] = (),
        dimension: int = 0,
        unit: str = "sequence",
        *,
        level: str = "propagated",
        batches: int = 1,
        timeout: float | None = None,
    ) -> Budget:
        """Return one memory budget for the set: every shared array once, and the temporaries of the largest program.

        Args:
            cache: the tree path of the KV cache in the programs, or several; a path stands for all arrays below it.
            dimension: the dimension of the cache's arrays that counts sequences, or pages.
            unit: the noun for one of them, `sequence` or `page`.
            level: `propagated`, an estimate, or `compiled`: each program's memory plan by the target's compiler.
            batches: the number of a program's batches on the devices: 2 if the next one is loaded during a call.
            timeout: seconds that each compile may take.

        Returns:
            The budget in bytes of one device, which shows itself.

        Raises:
            ShardvizError: for a path that no program has, a dimension that a cache does not have, or another level.
            CompileError, TargetError: as `Program.compile`.
        """
        return budget_of(self, cache, dimension, unit, level, batches, timeout)

    def search(
        self,
        weights: Mapping[str, float] | None = None,
        *,
        seconds: float = 30.0,
        most: int | None = None,
        mesh: Any = None,
        level: str = "compiled",
    ) -> TogetherSearch:
        """Search for one assignment of the shared arrays, and the rest of each program's plan, on one mesh.

        The best plans have the smallest weighted sum of the programs' seconds. The search starts with the best plan of
        each program alone, imposed on the others, so that its answer is never worse than these. The best sets of plans
        are confirmed at `level`, whose seconds and memory decide.

        Args:
            weights: program → calls, such as an hour's: `{"train": 1, "decode": 1000}`; a program that is left out
                counts 0. None for the known calls, or 1 of each.
            seconds: the time limit. Confirming the first set of plans may exceed it.
            most: the maximum number of candidates of each search, which makes the answer reproducible.
            mesh: the only mesh to use. If None, every factorisation of the machine's devices into up to three axes.
            level: `propagated`, `partitioned` or `compiled` (by the target's own compiler; where it is not installed,
                `partitioned`).

        Returns:
            The result: `.together` is the set with the best plans, `.record` the comparison.

        Raises:
            ShardvizError: without a target, for weights that are not numbers of programs, or if nothing can be scored
                or confirmed.
            TargetError, MeshError: if the machine has no known speed, or the mesh another number of devices.
        """
        plans, record = joint_search(self, weights or {}, seconds, most, mesh, level)
        sides = tuple(replace(side, plan=plans[side.name], calls=record.weights[side.name]) for side in self.sides)
        return TogetherSearch(replace(self, sides=sides), record)


@dataclass(frozen=True, eq=False, repr=False)
class TogetherSearch(Displayed):
    """The result of a search for the plans of several programs.

    Attributes:
        together: the programs with the best plans.
        record: what the plans cost, and what they are compared with, as plain data.
    """

    together: Together
    record: TogetherSearchRecord

    @property
    def plans(self) -> dict[str, Plan]:
        """Program → its best plan."""
        return {side.name: side.plan for side in self.together.sides}

    def to_json(self, indent: int | None = None) -> str:
        """Return the record as JSON; `TogetherSearchRecord.from_json` reads it."""
        return self.record.to_json(indent)
