"""The plan, which a user edits: a mesh, and a spec for every input and output. Immutable; an edit makes a new one.

>>> from jax.sharding import PartitionSpec as P
>>> plan = Plan({"data": 8, "model": 8}, in_specs=({"w": P("data", "model")}, P("data")))
>>> plan.with_spec("params['w']", P(None, "model")).edits
(("params['w']", Spec(dims=((), ('model',)), unreduced=())),)
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any, NamedTuple, cast

import jax

from shardviz.caching import cached_property
from shardviz.errors import MeshError, ShardvizError, SpecError, excerpt
from shardviz.notation import Axis, DeviceMesh, Spec
from shardviz.notation.spec import axis_name, memory_kind
from shardviz.propagate.dimensions import Dimension, Dimensions, Member
from shardviz.records.options import Option, options_of
from shardviz.records.report import PlanRecord
from shardviz.records.variants import Reconstrained, Variant
from shardviz.tracing.intermediates import Constrain, Intermediate
from shardviz.tracing.prefixes import canonical, is_spec
from shardviz.tracing.rules import Exactly, Rule, Rules

SPEC, MEMORY, UNSHARDED = "spec", "memory", "unsharded"
DIMENSION = "dimension"


class Override(NamedTuple):
    """What a plan says about one array, or about all that a filter matches: an `argument`, an `output`, or all arrays
    with the logical `dimension` of this name; by `Exactly` one tree path (an edit), or any filter (a rule).

    The `part` is their whole `spec`, their `memory`, a dimension by its number, or `unsharded`, which cancels earlier
    overrides of their dimensions. The value is the spec (None: replicated, or the compiler's choice for an output), the
    memory kind, or the axes that shard the dimension.
    """

    role: str
    filter: Any
    part: str | int
    value: Any

    @property
    def is_exact(self) -> bool:
        """Whether it is about one array, or about a logical dimension by its name."""
        return isinstance(self.filter, Exactly)

    @property
    def path(self) -> str:
        """The tree path, or the dimension's name; empty for a rule's filter."""
        return self.filter.path if self.is_exact else ""

    @property
    def is_dim_edit(self) -> bool:
        """Whether it is about a single dimension."""
        return isinstance(self.part, int)


def by_path(plan: Plan, role: str, part: str) -> tuple[tuple[str, Any], ...]:
    """Return the specs or memories (`part`) of single arguments or outputs as (tree path, value) pairs, newest last."""
    rows = (each for each in reversed(plan.overrides) if each.is_exact and (each.role, each.part) == (role, part))
    return tuple((each.path, each.value) for each in rows)


def is_by_name(plan: Plan) -> bool:
    """Return whether a plan shards logical dimensions by name; `Plan._with_members` has the arrays in their place."""
    return any(each.role == DIMENSION for each in plan.overrides)


@dataclass(frozen=True, init=False, eq=False)
class Plan:
    """A mesh with input and output specs.

    Attributes:
        mesh: the device mesh.
        in_specs: specs of the positional arguments, as a pytree prefix of their tuple. None inside it is replicated,
            and a spec for a branch applies to all its leaves. None in place of the tuple means the function's own
            specs: its `in_shardings` or its arguments' shardings; replicated if it has none.
        out_specs: the same for the result; None inside is the compiler's choice.
        overrides: what replaces these specs, the strongest first: edits, newest first, then rules, of which the first
            match counts.
        exhaustive: whether an argument that matches no rule is an error; see `Rules`.
        constraints: constraints on intermediates; see `constrain`.
        variant: changes of the user's program; see `with_variant`.
        options: compiler options by name; see `with_options`.

    An array's memory (`device`, `pinned_host` or `unpinned_host`) is given as in JAX,

        NamedSharding(mesh, P("data"), memory_kind="pinned_host")

    in place of a spec, or by tree path: `plan.with_memory("momentum['w']", "pinned_host")`. The default is the device's
    own memory, and for an output that of the function's result.

    Examples:
        >>> import shardviz as sv
        >>> from jax.sharding import PartitionSpec as P
        >>> plan = sv.Plan({"data": 8, "model": 8}, in_specs=({"w": P("data", "model")}, P("data")))
        >>> print(dict(plan.with_spec("params['w']", P(None, "model")).edits)["params['w']"])
        P(None, 'model')
    """

    mesh: DeviceMesh
    in_specs: Any
    out_specs: Any
    overrides: tuple[Override, ...]
    exhaustive: bool
    constraints: tuple[Constrain, ...]
    variant: Variant
    options: Mapping[str, Option]

    def __init__(
        self,
        mesh: Any,
        in_specs: Any = None,
        out_specs: Any = None,
        *,
        edits: Mapping[str, Any] | tuple[tuple[str, Any], ...] = (),
        out_edits: Mapping[str, Any] | tuple[tuple[str, Any], ...] = (),
        rules: Any = (),
        dim_edits: Mapping[Member, Any] | tuple[tuple[Member, Any], ...] = (),
        constraints: Mapping[Any, Any] | Iterable[Constrain | tuple[Any, Any]] = (),
        variant: Variant | None = None,
        options: Any = (),
    ):
        """Make a plan.

        Args:
            mesh: a mesh in any form that `sv.mesh` takes.
            in_specs: a pytree prefix of the function's positional arguments, as for `jax.jit`'s `in_shardings`.
            out_specs: a pytree prefix of the function's result.
            edits, out_edits: specs by tree path, which override the prefixes.
            rules: specs of arguments by filter, as `sv.Rules` takes them.
            dim_edits: axes by (role, tree path, dimension), as `with_dimension` makes them.
            constraints: specs by intermediate, as `constrain` takes it.
            variant: another plan's variant; `with_variant` makes one.
            options: compiler options, as `with_options` takes them.

        Raises:
            MeshError: if `mesh` is no mesh.
            SpecError: if a leaf is no PartitionSpec.
            ShardvizError: for invalid compiler options.
        """
        ruled = Rules(rules)
        self.__dict__.update(
            mesh=_mesh(mesh),
            in_specs=canonical("in_specs", in_specs),
            out_specs=canonical("out_specs", out_specs),
            overrides=(
                *[Override(m[0], Exactly(m[1]), m[2], tuple(axes)) for m, axes in _pairs(dim_edits)][::-1],
                *reversed(_overrides("argument", SPEC, edits)),
                *reversed(_overrides("output", SPEC, out_edits)),
                *_of_rules(ruled),
            ),
            exhaustive=ruled.exhaustive,
            constraints=_constraints(constraints),
            variant=Variant() if variant is None else variant,
            options=options_of(options),
        )

    @classmethod
    def of_record(cls, bound: PlanRecord, **more: Any) -> Plan:
        """Return the plan of a report, with every spec explicit; `more` is for `Plan`, in place of the record's."""
        outs = {name: spec for name, spec in bound.out_specs.items() if spec is not None}
        own: dict[str, Any] = {
            "edits": dict(bound.in_specs),
            "out_edits": outs,
            "variant": bound.variant,
            "options": bound.options,
        }
        plan = cls(bound.mesh, **(own | more))
        return plan.with_memory(bound.in_memory).with_memory(bound.out_memory, output=True)

    @cached_property
    def edits(self) -> tuple[tuple[str, Spec], ...]:
        """Specs of single arguments by tree path, newest last."""
        return by_path(self, "argument", SPEC)

    @cached_property
    def out_edits(self) -> tuple[tuple[str, Spec | None], ...]:
        """Specs of single outputs by tree path, newest last; None is the compiler's choice."""
        return by_path(self, "output", SPEC)

    @cached_property
    def dim_edits(self) -> tuple[tuple[Member, tuple[Axis, ...]], ...]:
        """The axes that shard one dimension of an array, independently of its other dimensions; see
        `with_dimension`."""
        rows = [each for each in reversed(self._exact) if each.is_dim_edit]
        return tuple((Member(each.role, each.path, int(each.part)), each.value) for each in rows)

    @cached_property
    def rules(self) -> Rules:
        """Specs of arguments by filter."""
        return Rules([Rule(each.filter, each.value) for each in self._ruled], exhaustive=self.exhaustive)

    @cached_property
    def _exact(self) -> tuple[Override, ...]:
        """The overrides of single arrays, and of logical dimensions by name, which precede the rules."""
        return tuple(each for each in self.overrides if each.is_exact)

    @property
    def _ruled(self) -> tuple[Override, ...]:
        return self.overrides[len(self._exact) :]

    @cached_property
    def _key(self) -> Any:
        def flat(tree: Any) -> tuple[list[Any], Any]:
            return jax.tree.flatten(tree, is_leaf=is_spec)  # pyright: ignore - JAX leaves a part of its type out

        (ins, in_tree), (outs, out_tree) = flat(self.in_specs), flat(self.out_specs)
        exact = self._exact if is_by_name(self) else frozenset(self._exact)
        options = frozenset((name, repr(value)) for name, value in self.options.items())  # True is none but equal to 1
        return self.mesh, *ins, in_tree, *outs, out_tree, exact, self.rules, self.constraints, self.variant, options

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Plan) and self._key == other._key)

    def __hash__(self) -> int:
        return hash(self._key)

    def __getstate__(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}  # what it is compared by is made again

    def with_spec(self, name: str | Mapping[str, Any], spec: Any = ..., *, output: bool = False) -> Plan:
        """Return the plan with another spec for an array, or for several.

        Args:
            name: the tree path of an argument; or specs by tree path.
            spec: a PartitionSpec, a NamedSharding, a tuple such as `("data", None)`, or None: replicated, or for an
                output the compiler's choice.
            output: whether the names are of outputs.

        Raises:
            SpecError: for an invalid spec.
            ShardvizError: for a name without a spec. Unknown arrays are reported when the plan is bound to a program.
        """
        return self._over(_overrides(_role(output), SPEC, _each("with_spec", name, spec, "P('data')")))

    def without_spec(self, *names: str, output: bool = False) -> Plan:
        """Return the plan without the edits by `with_spec` and `with_dimension` of these arguments, or outputs, by tree
        path; the rules and `in_specs`, or `out_specs`, apply to them again."""
        if not all(isinstance(name, str) for name in names):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ShardvizError(f"plan.without_spec{excerpt(repr(names))}: expected tree paths, without_spec('x', 'w')")
        role, paths = _role(output), frozenset(names)

        def gone(o: Override) -> bool:
            return o.role == role and o.path in paths and o.part != MEMORY

        plan = self._replace(overrides=tuple(each for each in self.overrides if not gone(each)))
        marks = (Override(role, Exactly(name), UNSHARDED, None) for name in sorted(paths))
        return plan._over(marks) if is_by_name(plan) else plan

    def with_memory(self, name: str | Mapping[str, str], kind: Any = ..., *, output: bool = False) -> Plan:
        """Return the plan with an array, or several, in another memory, where they stay if their spec changes.

        Args:
            name: the tree path of an argument; or memories by tree path.
            kind: `device`, `pinned_host` or `unpinned_host`.
            output: whether the names are of outputs.

        Raises:
            SpecError: for a memory that JAX does not know.
            ShardvizError: for a name without a memory.
        """
        return self._over(_overrides(_role(output), MEMORY, _each("with_memory", name, kind, "'pinned_host'")))

    def _over(self, new: Iterable[Override]) -> Plan:
        """Return the plan with further edits of single arrays; edits that they hide are dropped."""
        top = {each[:3]: each for each in new}
        whole = {each[:2] for each in top.values() if each.part in (SPEC, UNSHARDED)}
        axes_by_array: dict[Any, list[Axis]] = {}
        for each in top.values():
            if each.is_dim_edit:
                axes_by_array.setdefault(each[:2], []).extend(each.value)
        kept: list[Override] = []
        for old in self._exact:
            if old.role != DIMENSION and (old[:3] in top or (old.is_dim_edit and old[:2] in whole)):
                continue
            taken = axes_by_array.get(old[:2]) if old.is_dim_edit and old.role != DIMENSION else None
            kept.append(old._replace(value=_without(old.value, taken)) if taken else old)
        return self._replace(overrides=(*reversed(top.values()), *kept, *self._ruled))

    def with_dimension(self, dimension: Dimension | str, axes: Any, *, prefer: Mapping[str, int] | None = None) -> Plan:
        """Return the plan with a logical dimension sharded along these axes, and no others, in every array that has it.

        Other dimensions of the arrays stay sharded as they are, except that they lose these axes, because an axis
        shards an array only once. Outputs are sharded only if the plan gives them a spec; the others are the compiler's
        choice.

        Args:
            dimension: one of `program.dimensions`, its name, such as `d_ff`, or a member's, such as `w1:1`; names are
                looked up when the plan is bound to a program.
            axes: one mesh axis, several, or None.
            prefer: tree path → the dimension to shard of an array that has the logical dimension several times
                (`dimension.conflicts`); the first if not given.

        Raises:
            SpecError: if the mesh has no such axis.
            ShardvizError: for an invalid dimension, for a preferred dimension that is not a member, and for `prefer`
                with a name. Unknown names are reported when the plan is bound to a program.
        """
        if not isinstance(dimension, Dimension | str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ShardvizError(
                f"with_dimension({excerpt(repr(dimension))}): expected a logical dimension's name, such as 'd_ff', or "
                "one of program.dimensions"
            )
        name = dimension if isinstance(dimension, str) else dimension.name
        wanted = () if axes is None else (axes,) if isinstance(axes, str) else tuple(axes)
        for axis in wanted:
            if axis_name(axis) not in self.mesh.names:
                have = ", ".join(map(repr, self.mesh.names))
                raise SpecError(f"shard {name!r} along {axis!r}: the mesh has no such axis; it has {have}")
        if isinstance(dimension, str):
            if prefer:
                raise ShardvizError(
                    f"with_dimension({name!r}, prefer=...): a name alone does not tell which arrays have it several "
                    f"times; give program.dimensions.named({name!r})"
                )
            return self._over([Override(DIMENSION, Exactly(name), 0, wanted)])
        return self._over(Override(m.role, Exactly(m.path), m.dimension, wanted) for m in dimension.chosen(prefer))

    def constrain(self, what: Any, spec: Any = None, *, line: str = "", text: str = "", function: str = "") -> Plan:
        """Return the plan with a sharding constraint on an intermediate; the function itself is unchanged.

        Every report of the plan is of the function with `jax.lax.with_sharding_constraint` around that value, also in
        the backward pass, in loops and where `jax.checkpoint` recomputes it. `program.code(plan)` has the line to
        write. Another constraint on the same value replaces the first.

        Args:
            what: the variable that it is assigned to (`"h"`), its expression in the source (`'h @ p["w1"]'`), one of a
                report's `intermediates`, or None for the result of the line.
            spec: its sharding there; `P.UNCONSTRAINED` leaves a dimension to the compiler, None replicates.
            line: its line, such as `model.py:64` (`cell:3` in a notebook); required if the name occurs in several
                places.
            text, function: the line's text and function, by which the line is found again after lines were added above
                it.

        Raises:
            SpecError: if `what` names no place, or `spec` is invalid. Unknown values, and specs that do not fit, are
                reported when the plan is bound to a program.
        """
        value = Intermediate.of(what, line, text, function)
        new = Constrain.of(value, spec)
        constraints = tuple(new if old.value == value else old for old in self.constraints)
        return self._replace(constraints=constraints if new in constraints else (*constraints, new))

    def unconstrain(self, what: Any = None, *, line: str = "") -> Plan:
        """Return the plan without a constraint that `constrain` made; without arguments, without all of them.

        Raises:
            SpecError: if the plan has no such constraint; the message lists its constraints.
        """
        if what is None and not line:
            return self._replace(constraints=())
        value = Intermediate.of(what, line)
        kept = tuple(old for old in self.constraints if old.value != value)
        if len(kept) == len(self.constraints):
            kept = tuple(o for o in kept if o.value.name != value.name or (line and o.value.line != line))
        if len(kept) == len(self.constraints):
            have = "; ".join(str(old.value) for old in self.constraints) or "none"
            raise SpecError(f"unconstrain {str(value)!r}: the plan constrains {have}")
        return self._replace(constraints=kept)

    def with_variant(
        self,
        *,
        donated: str | Iterable[str] = (),
        lengths: Mapping[str, tuple[int, int]] = MappingProxyType({}),
        checkpoint: str = "",
        constraints: Mapping[tuple[str, Any], Any] = MappingProxyType({}),
        collectives: str | Iterable[str] = (),
    ) -> Plan:
        """Return the plan for a variant of the user's program, changed in ways that no spec can express.

        Every question about such a plan is answered for the changed program, which is traced anew. Changes of an
        earlier `with_variant` are kept.

            plan.with_variant(donated="state", checkpoint="dots_saveable")
            plan.with_variant(lengths={"emb:0": (50257, 50304)})
            plan.with_variant(constraints={("model.py:64", P("data", None)): None})

        Args:
            donated: further arguments of the function to donate, as in `donate_argnames` of `jax.jit`.
            lengths: an argument's dimension, such as `emb:0` → its length and the new length. The logical dimension
                gets the new length in all arguments; multiples of the old length become multiples of the new one.
            checkpoint: the policy of `jax.checkpoint_policies` for the body of each differentiated loop, and for
                existing checkpoints.
            constraints: the line and the spec of one of the function's own `with_sharding_constraint`s → its new spec;
                None drops it.
            collectives: lines of collectives in a `shard_map` to rewrite so that the result is equal and fewer bytes
                move: `psum_scatter` for a `psum` and a slice, `psum` for an `all_gather` and a sum, an `all_gather`
                after a cast to a narrower type, or before a loop; and lines of constraints on loop invariants to move
                before the loop.

        Raises:
            ShardvizError: for an invalid argument. Changes that a program does not allow are reported when the plan is
                bound to it.
            SpecError: for an invalid spec of a constraint.
        """
        return self._replace(
            variant=self.variant.also(Variant.of(donated, lengths, checkpoint, constraints, collectives))
        )

    def with_options(self, options: Any, *, only: bool = False) -> Plan:
        """Return the plan with more compiler options: XLA's flags, in the form of `jax.jit`'s `compiler_options`.

        Every compile of the plan uses them; level `propagated` does not, because it involves no compiler.

            plan.with_options({"xla_tpu_enable_async_collective_fusion": False})
            plan.with_options("host-offload xla_tpu_scoped_vmem_limit_kib=98304")

        Args:
            options: a mapping of names to bools, numbers or texts; or text with names of `sv.gallery.option_sets`, and
                flags as in XLA_FLAGS and LIBTPU_INIT_ARGS; or several of these. If a name occurs twice, the last value
                is used.
            only: whether these replace the plan's options; `with_options({}, only=True)` removes all.

        Raises:
            ShardvizError: for an invalid option. Options that the compiler refuses are reported when the plan is
                compiled: `CompileRefused`.
        """
        return self._replace(options=options_of(options) if only else {**self.options, **options_of(options)})

    def with_rules(self, rules: Any) -> Plan:
        """Return the plan with other rules: specs of arguments by filter; the first rule that matches an argument wins.

        Rules override `in_specs`; an edit of an argument overrides rules. One rule shards several arguments equally:
        `plan.with_rules([(sv.Rules.path_ends_with("kernel"), P("data", "model"))])`. A spec with more entries than a
        matched array has dimensions is an error when the plan is bound, as in JAX and flax.

        Raises:
            ShardvizError, SpecError: as `sv.Rules`.
        """
        ruled = Rules(rules)
        return self._replace(overrides=(*self._exact, *_of_rules(ruled)), exhaustive=ruled.exhaustive)

    def with_mesh(self, mesh: Any) -> Plan:
        """Return the plan on another mesh, with unchanged specs."""
        return self._replace(mesh=_mesh(mesh))

    def rename_axis(self, old: str, new: str) -> Plan:
        """Return the plan with a mesh axis renamed, in the mesh and in every spec.

        Raises:
            MeshError: if there is no axis `old`, or there already is an axis `new`.
        """
        self._require(old)
        names = tuple(new if name == old else name for name in self.mesh.names)
        mesh = replace(self.mesh, names=names)
        return self._map_axes(lambda axes: tuple(_renamed(a, old, new) for a in axes))._replace(mesh=mesh)

    def without_axis(self, name: str) -> Plan:
        """Return the plan without a mesh axis, which is removed from every spec too.

        Raises:
            MeshError: if there is no such axis.
        """
        self._require(name)
        kept = [i for i, n in enumerate(self.mesh.names) if n != name]
        fields = (tuple(getattr(self.mesh, f)[i] for i in kept) for f in ("names", "sizes", "types"))
        mesh = DeviceMesh(*fields, in_order=self.mesh.in_order)

        def drop(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
            return tuple(a for a in axes if axis_name(a) != name)

        return self._map_axes(drop)._replace(mesh=mesh)

    def _require(self, axis: str) -> None:
        if axis not in self.mesh.names:
            raise MeshError(f"the mesh has no axis {axis!r}; it has {', '.join(map(repr, self.mesh.names)) or 'none'}")

    def _map_axes(self, change: Callable[[tuple[Axis, ...]], tuple[Axis, ...]]) -> Plan:
        def mapped(spec: Any) -> Any:
            if isinstance(spec, Rules):
                return Rules([(r.filter, mapped(r.spec)) for r in spec], exhaustive=spec.exhaustive)

            if spec is None:
                return None
            sums = {"unreduced": change(spec.unreduced), "reduced": change(spec.reduced)}
            return replace(spec, dims=tuple(map(change, spec.dims)), **sums)

        def renamed(each: Reconstrained) -> Reconstrained:
            return replace(each, after=each.after and mapped(Spec(each.after)).dims)

        def tree(specs: Any) -> Any:
            return jax.tree.map(mapped, specs, is_leaf=is_spec)

        def by_part(o: Override) -> Any:
            return mapped(o.value) if o.part == SPEC else change(o.value) if o.is_dim_edit else o.value

        return self._replace(
            in_specs=tree(self.in_specs),
            out_specs=tree(self.out_specs),
            overrides=tuple(each._replace(value=by_part(each)) for each in self.overrides),
            constraints=tuple(replace(each, spec=mapped(each.spec)) for each in self.constraints),
            variant=replace(self.variant, constraints=tuple(map(renamed, self.variant.constraints))),
        )

    def _replace(self, **changes: Any) -> Plan:
        plan = object.__new__(Plan)
        plan.__dict__.update(self.__getstate__() | changes)
        return plan

    def _with_members(self, dimensions: Dimensions) -> Plan:
        """Return the plan in which each logical dimension that it names is resolved to the arrays that have it. Raises
        ShardvizError for an unknown dimension."""
        settled = self._replace(overrides=self._ruled)
        for by_name, each in itertools.groupby(reversed(self._exact), lambda o: o.role == DIMENSION):
            if by_name:
                for one in each:
                    settled = settled.with_dimension(dimensions.named(one.path), one.value)
            else:
                settled = settled._over(each)
        return settled._replace(overrides=tuple(each for each in settled.overrides if each.part != UNSHARDED))


def _without(axes: tuple[Axis, ...], others: Iterable[Axis]) -> tuple[Axis, ...]:
    names = set(map(axis_name, others))
    return tuple(axis for axis in axes if axis_name(axis) not in names)


def with_dim(spec: Spec, dimension: int, axes: tuple[Axis, ...]) -> Spec:
    """Return a full-rank spec with one dimension sharded along these axes, which are removed from all other
    dimensions."""
    dims = [_without(dim, axes) for dim in spec.dims]
    dims[dimension] = axes
    return replace(spec, dims=tuple(dims), unreduced=_without(spec.unreduced, axes))


def _renamed(axis: Axis, old: str, new: str) -> Axis:
    if isinstance(axis, str):
        return new if axis == old else axis
    return (new, *axis[1:]) if axis[0] == old else axis


def _pairs(entries: Any) -> Iterable[Any]:
    return cast("Mapping[Any, Any]", entries).items() if isinstance(entries, Mapping) else entries


def _role(output: bool) -> str:
    return "output" if output else "argument"


def _each(call: str, name: Any, value: Any, example: str) -> Mapping[str, Any]:
    """Return tree path → value, from one array and its value, or from a mapping."""
    both: tuple[Any, Any] = (name, value)
    if isinstance(name, str) and value is not ...:
        return {name: value}
    if isinstance(name, Mapping) and value is ...:
        values = cast("Mapping[Any, Any]", name)
        if all(isinstance(path, str) for path in values):
            return values
    arguments = ", ".join(excerpt(repr(each)) for each in both if each is not ...)
    raise ShardvizError(
        f"plan.{call}({arguments}): expected a tree path and what holds there, {call}('x', {example}), or a mapping of "
        f"these, {call}({{'x': {example}}})"
    )


def _overrides(role: str, part: str, entries: Any) -> list[Override]:
    def read(value: Any, name: str) -> Any:
        if part == MEMORY:
            return memory_kind(value, name)
        return None if value is None and role == "output" else Spec.of(value)

    return [Override(role, Exactly(name), part, read(value, name)) for name, value in dict(_pairs(entries)).items()]


def _of_rules(rules: Rules) -> Iterable[Override]:
    return (Override("argument", rule.filter, SPEC, rule.spec) for rule in rules)


def _mesh(mesh: Any) -> DeviceMesh:
    """Return a plan's mesh from any form; program text numbers devices by their position."""
    return replace(DeviceMesh.of(mesh), by_id=False)


def _constraints(entries: Any) -> tuple[Constrain, ...]:
    def constraint_of(each: Any) -> Constrain:
        return Constrain.of(Intermediate.of(each[0]), each[1])

    return tuple(each if isinstance(each, Constrain) else constraint_of(each) for each in _pairs(entries))
