"""The plan: what a person edits. A mesh, and a spec for every input and output. Immutable; an edit makes a new one.

>>> from jax.sharding import PartitionSpec as P
>>> plan = Plan({"data": 8, "model": 8}, in_specs=({"w": P("data", "model")}, P("data")))
>>> plan.with_spec("params['w']", P(None, "model")).edits
(("params['w']", Spec(dims=((), ('model',)), unreduced=())),)
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any, NamedTuple

import jax

from shardviz.errors import MeshError, ShardvizError, SpecError, excerpt
from shardviz.kept import cached_property
from shardviz.notation import Axis, DeviceMesh, Spec
from shardviz.notation.spec import axis_name, memory_kind
from shardviz.program.dimensions import Dimension, Dimensions, Member
from shardviz.program.intermediates import Constrain, Intermediate
from shardviz.program.rules import Exactly, Rule, Rules
from shardviz.program.trees import spec_tree, spread
from shardviz.records.options import Option, options_of
from shardviz.records.variants import Reconstrained, Variant

SPEC, MEMORY, UNCUT = "spec", "memory", "uncut"
DIMENSION = "dimension"


class Override(NamedTuple):
    """What a plan says of one array, or of all that a filter catches: of an `argument`, an `output`, or of all arrays
    that have the logical `dimension` of this name; by `Exactly` one tree path (an edit), or any filter (a rule).

    The `part` is their whole `spec`, the `memory` that they lie in, a dimension by its number, or `uncut`: that what
    cuts their dimensions further down does not hold. The value is the spec (None: replicated, or of an output the
    compiler's choice), the memory kind, or the axes that cut the dimension."""

    role: str
    filter: Any
    part: str | int
    value: Any

    @property
    def path(self) -> str:
        """The tree path, or the dimension's name, that it is said of alone; empty for a rule's filter."""
        return self.filter.path if isinstance(self.filter, Exactly) else ""

    @property
    def is_cut(self) -> bool:
        """Whether it says how one dimension is sharded."""
        return isinstance(self.part, int)


def is_spec(leaf: Any) -> bool:
    """Whether a node of a tree of specs is a spec, rules, or None, rather than a branch."""
    return leaf is None or isinstance(leaf, Spec | Rules | jax.sharding.PartitionSpec | jax.sharding.Sharding)


def _of_kind(role: str, part: str) -> cached_property[tuple[tuple[str, Any], ...]]:
    """A plan's overrides of one kind, as (tree path, value) pairs, the newest last."""
    return cached_property(
        lambda plan: tuple((o.path, o.value) for o in reversed(plan.exact) if o.role == role and o.part == part)
    )


@dataclass(frozen=True, init=False, eq=False)
class Plan:
    """A mesh with input and output specs.

    Attributes:
        mesh: the device mesh.
        in_specs: specs for the positional arguments, a pytree prefix of the tuple of them: None inside it is
            replicated, a spec for a branch holds for all its leaves. None for the whole means what the function brings:
            its `in_shardings` or its arguments' own shardings; replicated where it brings none.
        out_specs: the same for the result; None inside is the compiler's choice.
        overrides: what goes before these, the strongest first: a person's edits, the newest on top, then the rules, of
            which the first that catches an array counts.
        exhaustive: whether an argument that no rule catches is an error; see `Rules`.
        constraints: values inside the function, and how they are to be sharded there; see `constrain`.
        variant: what the program has otherwise than the person's own; see `with_variant`.
        options: compiler options by name; see `with_options`.

    The overrides by their kinds: `edits` and `out_edits`, (tree path, spec) pairs; `rules`; `memory` and `out_memory`,
    (tree path, memory kind) pairs, which stay where a spec is changed; `cuts`, (member of a logical dimension, axes)
    pairs, the axes that cut one dimension of an array, whatever cuts its others.

    Where an array lies (`device`, `pinned_host` or `unpinned_host`) is said as JAX says it,

        NamedSharding(mesh, P("data"), memory_kind="pinned_host")

    in place of a spec, or by tree path: `Plan(..., memory={"momentum['w']": "pinned_host"})`. Nothing said is the
    device's own memory, and for an output that of what the function returns.

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
        memory: Mapping[str, str] | tuple[tuple[str, str], ...] = (),
        out_memory: Mapping[str, str] | tuple[tuple[str, str], ...] = (),
        cuts: Mapping[Member, Any] | tuple[tuple[Member, Any], ...] = (),
        constraints: Mapping[Any, Any] | Iterable[Constrain | tuple[Any, Any]] = (),
        variant: Variant | None = None,
        options: Any = (),
    ):
        """A plan.

        Args:
            mesh: a mesh in any form that `sv.mesh` takes.
            in_specs: a pytree prefix of the function's positional arguments, as for `jax.jit`'s `in_shardings`.
            out_specs: a pytree prefix of the function's result.
            edits, out_edits: specs by tree path, which go before the prefixes.
            rules: specs of arguments by filter, as `sv.Rules` takes them.
            memory, out_memory: memory kinds by tree path, which go before those of NamedShardings among the specs.
            cuts: axes by (role, tree path, dimension), as `with_dimension` makes them.
            constraints: specs by what `constrain` takes for a value inside the function.
            variant: what the program has otherwise; nothing if not given.
            options: compiler options, as `with_options` takes them.

        Raises:
            MeshError: if `mesh` is no mesh.
            SpecError: if a leaf is no PartitionSpec, or a memory kind is none that JAX knows.
            ShardvizError: for compiler options that cannot be.
        """
        by_rule = Rules(rules)
        self.__dict__.update(
            mesh=_mesh(mesh),
            in_specs=_canonical("in_specs", in_specs),
            out_specs=_canonical("out_specs", out_specs),
            overrides=(
                *[Override(m[0], Exactly(m[1]), m[2], tuple(axes)) for m, axes in _pairs(cuts)][::-1],
                *reversed(_by_path("argument", MEMORY, memory)),
                *reversed(_by_path("output", MEMORY, out_memory)),
                *reversed(_by_path("argument", SPEC, edits)),
                *reversed(_by_path("output", SPEC, out_edits)),
                *_ruled(by_rule),
            ),
            exhaustive=by_rule.exhaustive,
            constraints=_constraints(constraints),
            variant=Variant() if variant is None else variant,
            options=options_of(options),
        )

    edits = _of_kind("argument", SPEC)
    out_edits = _of_kind("output", SPEC)
    memory = _of_kind("argument", MEMORY)
    out_memory = _of_kind("output", MEMORY)

    @cached_property
    def exact(self) -> tuple[Override, ...]:
        """The overrides of single arrays, and of logical dimensions by name."""
        return tuple(each for each in self.overrides if isinstance(each.filter, Exactly))

    @cached_property
    def rules(self) -> Rules:
        """Specs of arguments by filter."""
        return Rules([Rule(each.filter, each.value) for each in self._ruled], exhaustive=self.exhaustive)

    @property
    def _ruled(self) -> tuple[Override, ...]:
        return self.overrides[len(self.exact) :]

    @cached_property
    def cuts(self) -> tuple[tuple[Member, tuple[Axis, ...]], ...]:
        """The axes that cut one dimension of an array, whatever cuts its others."""
        return tuple((Member(o.role, o.path, o.part), o.value) for o in reversed(self.exact) if isinstance(o.part, int))

    @cached_property
    def _key(self) -> Any:
        flat = lambda tree: jax.tree.flatten(tree, is_leaf=is_spec)  # noqa: E731
        (ins, in_tree), (outs, out_tree) = flat(self.in_specs), flat(self.out_specs)
        exact = self.exact if self.by_name else frozenset(self.exact)
        options = frozenset((name, repr(value)) for name, value in self.options.items())  # True is none but equal to 1
        return self.mesh, *ins, in_tree, *outs, out_tree, exact, self.rules, self.constraints, self.variant, options

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Plan) and self._key == other._key)

    def __hash__(self) -> int:
        return hash(self._key)

    def __getstate__(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}  # what it is compared by is made again

    def with_spec(self, name: str, spec: Any) -> Plan:
        """The plan with another spec for the argument of this tree path."""
        return self.with_edits({name: spec})

    def with_out_spec(self, name: str, spec: Any) -> Plan:
        """The plan with another spec for the output of this tree path; None is the compiler's choice."""
        return self.with_edits(out_edits={name: spec})

    def with_edits(
        self, edits: Mapping[str, Any] = MappingProxyType({}), out_edits: Mapping[str, Any] = MappingProxyType({})
    ) -> Plan:
        """The plan with other specs for several arguments and outputs, by tree path: `with_spec` and `with_out_spec`
        of many, in one go."""
        return self._over([*_by_path("argument", SPEC, edits), *_by_path("output", SPEC, out_edits)])

    def without_edits(self, names: Set[str]) -> Plan:
        """The plan without the edits of these arguments, and without cuts of them by logical dimension: what the rules
        and `in_specs` say of them holds again."""
        gone = lambda o: o.role == "argument" and o.path in names and o.part != MEMORY  # noqa: E731
        plan = self._replace(overrides=tuple(each for each in self.overrides if not gone(each)))
        marks = (Override("argument", Exactly(name), UNCUT, None) for name in sorted(names))
        return plan._over(marks) if plan.by_name else plan

    def _over(self, new: Iterable[Override]) -> Plan:
        """The plan with overrides of single arrays on top of its own; what they hide is left out."""
        top = {each[:3]: each for each in new}
        whole = {each[:2] for each in top.values() if each.part in (SPEC, UNCUT)}
        cut_by: dict[Any, list[Axis]] = {}
        for each in top.values():
            if each.is_cut:
                cut_by.setdefault(each[:2], []).extend(each.value)
        left: list[Override] = []
        for old in self.exact:
            if old.role != DIMENSION and (old[:3] in top or (old.is_cut and old[:2] in whole)):
                continue
            taken = cut_by.get(old[:2]) if old.is_cut and old.role != DIMENSION else None
            left.append(old._replace(value=_without(old.value, taken)) if taken else old)
        return self._replace(overrides=(*reversed(top.values()), *left, *self._ruled))

    def with_dimension(self, dimension: Dimension | str, axes: Any, *, prefer: Mapping[str, int] | None = None) -> Plan:
        """The plan with a logical dimension sharded along these axes in every array that has it, and by no others.

        What cuts the arrays' other dimensions stays, but for these axes themselves: an axis cuts an array once. Of the
        outputs only those that the plan gives a spec are sharded; the others are the compiler's choice.

        Args:
            dimension: one of `program.dimensions`, or its name, `d_ff`, or a member's, `w1:1`, which are looked up
                where the plan meets a program.
            axes: a mesh axis, several, or None for none.
            prefer: tree path → which dimension is sharded, of an array that has the logical dimension several times
                (`dimension.conflicts`); the first if not said.

        Raises:
            SpecError: if the mesh has no such axis.
            ShardvizError: if it is no dimension, a preferred dimension is none of the logical one, or it is given with
                a name alone. That a program has no dimension of that name is said where the plan meets it.
        """
        if not isinstance(dimension, Dimension | str):
            raise ShardvizError(
                f"with_dimension({excerpt(repr(dimension))}): expected a logical dimension's name, such as 'd_ff', or "
                "one of program.dimensions"
            )
        name = dimension if isinstance(dimension, str) else dimension.name
        wanted = () if axes is None else (axes,) if isinstance(axes, str) else tuple(axes)
        for axis in wanted:
            if axis_name(axis) not in self.mesh.names:
                have = ", ".join(map(repr, self.mesh.names))
                raise SpecError(f"cut {name!r} by {axis!r}: the mesh has no such axis; it has {have}")
        if isinstance(dimension, str):
            if prefer:
                raise ShardvizError(
                    f"with_dimension({name!r}, prefer=...): a name alone does not tell which arrays have it several "
                    f"times; give program.dimensions.named({name!r})"
                )
            return self._over([Override(DIMENSION, Exactly(name), 0, wanted)])
        return self._over(Override(m.role, Exactly(m.path), m.dimension, wanted) for m in dimension.chosen(prefer))

    @property
    def by_name(self) -> bool:
        """Whether it cuts logical dimensions by name; `with_members` has the arrays in their place."""
        return any(each.role == DIMENSION for each in self.exact)

    def with_members(self, dimensions: Dimensions) -> Plan:
        """The plan with each logical dimension that it shards by name sharded in the arrays that have the dimension.
        Raises ShardvizError if there is no dimension of a name."""
        if not self.by_name:
            return self
        plan = self._replace(overrides=self._ruled)
        for by_name, each in itertools.groupby(reversed(self.exact), lambda o: o.role == DIMENSION):
            if by_name:
                for one in each:
                    plan = plan.with_dimension(dimensions.named(one.path), one.value)
            else:
                plan = plan._over(each)
        return plan._replace(overrides=tuple(each for each in plan.overrides if each.part != UNCUT))

    def constrain(self, what: Any, spec: Any = None, *, line: str = "", occurrence: int | None = None) -> Plan:
        """The plan with a sharding constraint on a value inside the function, which stays as it is.

        Every report of the plan is that of the function with `jax.lax.with_sharding_constraint` around that value, in
        the backward pass, in loops and in what `jax.checkpoint` recomputes too. `program.code(plan)` has the line to
        write. Another constraint on the same value takes the place of the first.

        Args:
            what: the variable that it is assigned to (`"h"`), its expression as it stands in the source
                (`'h @ p["w1"]'`), one of a report's `intermediates`, or None for what the line makes.
            spec: how it is to be sharded there; `P.UNCONSTRAINED` leaves a dimension to the compiler, None replicates.
            line: where, as `model.py:64` (`cell:3` in a notebook); needed where the name stands in several places.
            occurrence: where Python runs the line several times, which of them, from 0; None for every time.

        Raises:
            SpecError: if `what` says no place, or `spec` is no spec. That there is no such value, or that the spec does
                not fit it, is said where the plan meets a program: `program.bind(plan)` and all that asks for it.
        """
        value = Intermediate.of(what, line, occurrence)
        new = Constrain.of(value, spec)
        constraints = tuple(new if old.value == value else old for old in self.constraints)
        return self._replace(constraints=constraints if new in constraints else (*constraints, new))

    def unconstrain(self, what: Any = None, *, line: str = "", occurrence: int | None = None) -> Plan:
        """The plan without a constraint that `constrain` has put on a value; with no arguments, without any.

        Raises:
            SpecError: if it has no such constraint; the message lists those that it has.
        """
        if what is None and not line:
            return self._replace(constraints=())
        value = Intermediate.of(what, line, occurrence)
        kept = tuple(old for old in self.constraints if old.value != value)
        if len(kept) == len(self.constraints):
            kept = tuple(o for o in kept if o.value.name != value.name or (line and o.value.line != line))
        if len(kept) == len(self.constraints):
            have = "; ".join(str(old.value) for old in self.constraints) or "none"
            raise SpecError(f"unconstrain {str(value)!r}: the plan constrains {have}")
        return self._replace(constraints=kept)

    def with_variant(self, variant: Variant) -> Plan:
        """The plan for a program that differs from the person's own in a way that no spec can say.

        Whoever is asked about such a plan answers for that program, which is traced anew: with donated arguments, a
        dimension of another length, another checkpoint policy, other constraints. Where the plan has a variant
        already, both hold.

        Args:
            variant: what is otherwise, as `Variant(donated=("state",))`. That the program cannot be so is said where
                the plan meets it.
        """
        return self._replace(variant=self.variant.also(variant))

    def with_options(self, options: Any) -> Plan:
        """The plan with more compiler options: flags of XLA, as `compiler_options` of `jax.jit` takes them.

        Every compile of the plan is given them; level `propagated`, which no compiler makes, does without.

            plan.with_options({"xla_tpu_enable_async_collective_fusion": False})
            plan.with_options("host-offload xla_tpu_scoped_vmem_limit_kib=98304")

        Args:
            options: a mapping of names to bools, numbers or texts; or text: names of `sv.gallery.option_sets`, and
                flags as XLA_FLAGS and LIBTPU_INIT_ARGS have them; or several of these. Of two values of one name the
                last holds.

        Raises:
            ShardvizError: for what can be no option. What the compiler does not know or take, it says itself when the
                plan is compiled: `CompileRefused`.
        """
        return self._replace(options={**self.options, **options_of(options)})

    def without_options(self) -> Plan:
        """The plan with the compiler's own options alone."""
        return self._replace(options={})

    def with_memory(self, name: str, kind: str) -> Plan:
        """The plan with the argument of this tree path in another memory: `device`, `pinned_host`, `unpinned_host`.

        Raises:
            SpecError: if JAX knows no such memory.
        """
        return self._over(_by_path("argument", MEMORY, {name: kind}))

    def with_out_memory(self, name: str, kind: str) -> Plan:
        """The plan with the output of this tree path in another memory; errors as `with_memory`."""
        return self._over(_by_path("output", MEMORY, {name: kind}))

    def with_rules(self, rules: Any) -> Plan:
        """The plan with other rules: specs of arguments by filter, the first that catches an argument wins.

        Rules go before `in_specs`; an edit of an argument goes before rules. One rule shards several arguments alike:
        `plan.with_rules([(sv.path_ends_with("kernel"), P("data", "model"))])`. A spec with more entries than a caught
        array has dimensions is an error when the plan is bound, as it is for JAX and flax.

        Raises:
            ShardvizError, SpecError: as `sv.Rules`.
        """
        by_rule = Rules(rules)
        return self._replace(overrides=(*self.exact, *_ruled(by_rule)), exhaustive=by_rule.exhaustive)

    def with_mesh(self, mesh: Any) -> Plan:
        """The plan on another mesh, its specs unchanged."""
        return self._replace(mesh=_mesh(mesh))

    def rename_axis(self, old: str, new: str) -> Plan:
        """The plan with a mesh axis called otherwise, in the mesh and in every spec.

        Raises:
            MeshError: if there is no axis `old`, or there is one called `new`.
        """
        self._require(old)
        names = tuple(new if name == old else name for name in self.mesh.names)
        mesh = replace(self.mesh, names=names)
        return self._map_axes(lambda axes: tuple(_renamed(a, old, new) for a in axes))._replace(mesh=mesh)

    def without_axis(self, name: str) -> Plan:
        """The plan without a mesh axis; the axis is taken out of every spec too.

        Raises:
            MeshError: if there is no such axis.
        """
        self._require(name)
        kept = [i for i, n in enumerate(self.mesh.names) if n != name]
        fields = (tuple(getattr(self.mesh, f)[i] for i in kept) for f in ("names", "sizes", "types"))
        mesh = DeviceMesh(*fields, in_order=self.mesh.in_order)
        drop = lambda axes: tuple(a for a in axes if (a if isinstance(a, str) else a[0]) != name)  # noqa: E731
        return self._map_axes(drop)._replace(mesh=mesh)

    def _require(self, axis: str) -> None:
        if axis not in self.mesh.names:
            raise MeshError(f"the mesh has no axis {axis!r}; it has {', '.join(map(repr, self.mesh.names)) or 'none'}")

    def _map_axes(self, change: Callable[[tuple[Axis, ...]], tuple[Axis, ...]]) -> Plan:
        def mapped(spec: Any) -> Any:
            if isinstance(spec, Rules):
                return Rules([(r.filter, mapped(r.spec)) for r in spec], exhaustive=spec.exhaustive)
            sums = lambda s: {"unreduced": change(s.unreduced), "reduced": change(s.reduced)}  # noqa: E731
            changed = lambda s: replace(s, dims=tuple(map(change, s.dims)), **sums(s))  # noqa: E731
            return None if spec is None else changed(spec)

        def renamed(each: Reconstrained) -> Reconstrained:
            return replace(each, after=each.after and mapped(Spec(each.after)).dims)

        tree = lambda specs: jax.tree.map(mapped, specs, is_leaf=is_spec)  # noqa: E731
        by_part = lambda o: mapped(o.value) if o.part == SPEC else change(o.value) if o.is_cut else o.value  # noqa: E731
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


def _without(axes: tuple[Axis, ...], others: Iterable[Axis]) -> tuple[Axis, ...]:
    names = set(map(axis_name, others))
    return tuple(axis for axis in axes if axis_name(axis) not in names)


def cut(spec: Spec, dimension: int, axes: tuple[Axis, ...]) -> Spec:
    """A full-rank spec with one dimension sharded along these axes, and no other dimension along them any more."""
    dims = [_without(dim, axes) for dim in spec.dims]
    dims[dimension] = axes
    return replace(spec, dims=tuple(dims), unreduced=_without(spec.unreduced, axes))


def _renamed(axis: Axis, old: str, new: str) -> Axis:
    if isinstance(axis, str):
        return new if axis == old else axis
    return (new, *axis[1:]) if axis[0] == old else axis


def _canonical(what: str, tree: Any) -> Any:
    """The tree with a `Spec` for every PartitionSpec; flax's states and StateShardings of specs are taken apart."""

    def leaf(path: Any, spec: Any) -> Any:
        where = what + jax.tree_util.keystr(path)
        if not is_spec(spec):
            raise SpecError(f"{where}: expected a PartitionSpec or None, not {spec!r}")
        if isinstance(spec, Rules) and what == "out_specs":
            words = "rules and StateShardings say how arguments are sharded; give PartitionSpecs for the result"
            raise SpecError(f"{where}: {words}")
        if isinstance(spec, jax.sharding.Sharding) and not isinstance(spec, jax.sharding.NamedSharding):
            raise SpecError(f"{where}: expected a PartitionSpec, not a {type(spec).__name__}")
        return spec if spec is None or isinstance(spec, Rules) else Spec.of(spec)

    return jax.tree_util.tree_map_with_path(leaf, spec_tree(tree), is_leaf=is_spec)


def _pairs(entries: Any) -> Iterable[Any]:
    return entries.items() if isinstance(entries, Mapping) else entries


def _by_path(role: str, part: str, entries: Any) -> list[Override]:
    def read(value: Any, name: str) -> Any:
        if part == MEMORY:
            return memory_kind(value, name)
        return None if value is None and role == "output" else Spec.of(value)

    return [Override(role, Exactly(name), part, read(value, name)) for name, value in dict(_pairs(entries)).items()]


def _ruled(rules: Rules) -> Iterable[Override]:
    return (Override("argument", rule.filter, SPEC, rule.spec) for rule in rules)


def _mesh(mesh: Any) -> DeviceMesh:
    """A plan's mesh; text of a program over it numbers its places."""
    return replace(DeviceMesh.of(mesh), by_id=False)


def _constraints(entries: Any) -> tuple[Constrain, ...]:
    of = lambda each: Constrain.of(Intermediate.of(each[0]), each[1])  # noqa: E731
    return tuple(each if isinstance(each, Constrain) else of(each) for each in _pairs(entries))


def expand(what: str, prefix: Any, tree: Any) -> list[Any]:
    """One spec, None or `Rules` for each leaf of `tree`, from a pytree prefix of it. Raises SpecError if `prefix` is no
    prefix of the tree; the message says where they part."""
    try:
        return spread(prefix, tree, is_spec)
    except (ValueError, AttributeError) as error:  # JAX stumbles over its own message where keys are attributes
        raise SpecError(
            f"{what} must be a pytree prefix of the {'arguments' if what.startswith('in_') else 'result'}: "
            f"{_parting(what, prefix, tree)}"
        ) from error


def _parting(where: str, prefix: Any, tree: Any) -> str:
    """In words, the first place where a prefix does not fit the tree; the argument that is there is named too."""
    if is_spec(prefix):
        return f"{where} fits"
    called = _called(tree)
    place = where if called in ("", where) else f"{where} ({called})"
    if type(prefix) is not type(tree):
        leaf = jax.tree_util.treedef_is_leaf(jax.tree.structure(tree))
        kind = "single array" if leaf else type(tree).__name__
        return f"{place} is a {type(prefix).__name__} where the function has a {kind}"
    ours, theirs = _children(prefix), _children(tree)
    keys = lambda paths: ", ".join(map(jax.tree_util.keystr, paths))  # noqa: E731
    if missing := [p for p in theirs if p not in ours][:5]:
        names = ", ".join(filter(None, (_called(theirs[p]) for p in missing))) if not called else ""
        return f"{place} lacks {keys(missing)}{f' ({names})' if names else ''}; give it a spec, or None"
    if extra := [p for p in ours if p not in theirs][:5]:
        return f"{place} has {keys(extra)}, which the function does not have; it has {keys(list(theirs)[:8])}"
    for path, node in ours.items():
        if not is_spec(node) and "fits" not in (text := _parting(where + keys([path]), node, theirs[path])):
            return text
    return f"{where} fits"


def _called(tree: Any) -> str:
    """What the arguments in a tree of names have in common: `params` of `params['w']` at `['w']`; empty for nothing."""
    named = jax.tree_util.tree_flatten_with_path(tree)[0]
    rows = ((path, getattr(leaf, "name", leaf)) for path, leaf in named)  # a name, or a `Leaf`
    common = {name.removesuffix(jax.tree_util.keystr(path)) for path, name in rows if isinstance(name, str)}
    return common.pop() if len(common) == 1 else ""


def _children(tree: Any) -> dict[Any, Any]:
    """What stands directly below a pytree's root, by path."""
    return dict(jax.tree_util.tree_flatten_with_path(tree, is_leaf=lambda node: node is not tree)[0])
