"""The plan: what a person edits. A mesh, and a spec for every input and output. Immutable; an edit makes a new one.

>>> from jax.sharding import PartitionSpec as P
>>> plan = Plan({"data": 8, "model": 8}, in_specs=({"w": P("data", "model")}, P("data")))
>>> plan.with_spec("params['w']", P(None, "model")).edits
(("params['w']", Spec(dims=((), ('model',)), unreduced=())),)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any

import jax

from shardviz.errors import MeshError, ShardvizError, SpecError, excerpt
from shardviz.kept import cached_property
from shardviz.notation import Axis, DeviceMesh, Spec
from shardviz.notation.spec import axis_name, memory_kind
from shardviz.program.dimensions import Dimension, Dimensions, Member
from shardviz.program.intermediates import Constrain, Intermediate
from shardviz.program.rules import Rules
from shardviz.program.trees import spec_tree, spread
from shardviz.records.variants import Variant

_BY_NAME = "dimension"  # the role of a member that is a whole logical dimension, its path the name
_ALL = -1  # every dimension of an array, to be left out


def is_spec(leaf: Any) -> bool:
    """Whether a node of a tree of specs is a spec, rules, or None, rather than a branch."""
    return leaf is None or isinstance(leaf, Spec | Rules | jax.sharding.PartitionSpec | jax.sharding.Sharding)


@dataclass(frozen=True, init=False, eq=False)
class Plan:
    """A mesh with input and output specs.

    Attributes:
        mesh: the device mesh.
        in_specs: specs for the positional arguments, a pytree prefix of the tuple of them: None inside it is
            replicated, a spec for a branch holds for all its leaves. None for the whole means what the function brings:
            its `in_shardings` or its arguments' own shardings; replicated where it brings none.
        out_specs: the same for the result; None inside is the compiler's choice.
        edits, out_edits: (tree path, spec) pairs that go before `in_specs` and `out_specs`.
        rules: specs of arguments by filter, which go before `in_specs` and after `edits`; the first that catches wins.
        memory, out_memory: (tree path, memory kind) pairs of arguments and outputs, which go before what a
            NamedSharding among the specs says. They stay where they are when a spec is changed.
        cuts: (member of a logical dimension, axes) pairs, which go before all specs: the axes that cut one dimension of
            an array, whatever cuts its others; see `with_dimension`.
        constraints: values inside the function, and how they are to be cut there; see `constrain`.
        variant: what the program has otherwise than the person's own; see `with_variant`.

    Where an array lies (`device`, `pinned_host` or `unpinned_host`) is said as JAX says it,

        NamedSharding(mesh, P("data"), memory_kind="pinned_host")

    in place of a spec, or by tree path: `Plan(..., memory={"momentum['w']": "pinned_host"})`. Nothing said is the
    device's own memory, and for an output that of what the function returns.
    """

    mesh: DeviceMesh
    in_specs: Any
    out_specs: Any
    edits: tuple[tuple[str, Spec], ...]
    out_edits: tuple[tuple[str, Spec | None], ...]
    rules: Rules
    memory: tuple[tuple[str, str], ...]
    out_memory: tuple[tuple[str, str], ...]
    cuts: tuple[tuple[Member, tuple[Axis, ...]], ...]
    constraints: tuple[Constrain, ...]
    variant: Variant

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

        Raises:
            MeshError: if `mesh` is no mesh.
            SpecError: if a leaf is no PartitionSpec, or a memory kind is none that JAX knows.
        """
        given = {
            "mesh": mesh,
            "in_specs": in_specs,
            "out_specs": out_specs,
            "edits": edits,
            "out_edits": out_edits,
            "rules": rules,
            "memory": memory,
            "out_memory": out_memory,
            "cuts": cuts,
            "constraints": constraints,
            "variant": variant,
        }
        self.__dict__.update({name: _READ[name](value) for name, value in given.items()})

    @cached_property
    def _key(self) -> Any:
        flat = lambda tree: jax.tree.flatten(tree, is_leaf=is_spec)  # noqa: E731
        (ins, in_tree), (outs, out_tree) = flat(self.in_specs), flat(self.out_specs)
        return (
            self.mesh,
            tuple(ins),
            in_tree,
            tuple(outs),
            out_tree,
            frozenset(self.edits),
            frozenset(self.out_edits),
            self.rules,
            frozenset(self.memory),
            frozenset(self.out_memory),
            self.cuts if self.by_name else frozenset(self.cuts),
            self.constraints,
            self.variant,
        )

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
        gone = {("argument", name) for name in edits} | {("output", name) for name in out_edits}
        return self._replace(
            edits={**dict(self.edits), **edits},
            out_edits={**dict(self.out_edits), **out_edits},
            cuts=self._uncut(gone),
        )

    def without_edits(self, names: Set[str]) -> Plan:
        """The plan without the edits of these arguments, and without cuts of them by logical dimension: what the rules
        and `in_specs` say of them holds again."""
        return self._replace(
            edits=tuple((name, spec) for name, spec in self.edits if name not in names),
            cuts=self._uncut({("argument", name) for name in names}),
        )

    def _uncut(self, gone: Set[tuple[str, str]]) -> tuple[tuple[Member, tuple[Axis, ...]], ...]:
        """The cuts without those of some arrays; what is cut by name is left out of them when the names are known."""
        left = tuple(cut for cut in self.cuts if cut[0][:2] not in gone)
        return (*left, *((Member(*array, _ALL), ()) for array in sorted(gone))) if self.by_name else left

    def with_dimension(self, dimension: Dimension | str, axes: Any, *, prefer: Mapping[str, int] | None = None) -> Plan:
        """The plan with a logical dimension cut by these axes in every array that has it, and by no others.

        What cuts the arrays' other dimensions stays, but for these axes themselves: an axis cuts an array once. Of the
        outputs only those that the plan gives a spec are cut; the others are the compiler's choice.

        Args:
            dimension: one of `program.dimensions`, or its name, `d_ff`, or a member's, `w1:1`, which are looked up
                where the plan meets a program.
            axes: a mesh axis, several, or None for none.
            prefer: tree path → which dimension is cut, of an array that has the logical dimension several times
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
            return self._replace(cuts=(*self.cuts, (Member(_BY_NAME, name, 0), wanted)))
        chosen = {member[:2]: member for member in dimension.chosen(prefer)}
        cuts = {m: _without(old, wanted) if m[:2] in chosen else old for m, old in self.cuts}
        return self._replace(cuts=tuple((cuts | dict.fromkeys(chosen.values(), wanted)).items()))

    @property
    def by_name(self) -> bool:
        """Whether it cuts logical dimensions by name; `with_members` has the arrays in their place."""
        return any(member.role == _BY_NAME for member, _ in self.cuts)

    def with_members(self, dimensions: Dimensions) -> Plan:
        """The plan in which each logical dimension that is cut by name is cut in the arrays that have it.

        Raises:
            ShardvizError: if there is no dimension of a name.
        """
        plan = self._replace(cuts=())
        for member, axes in self.cuts if self.by_name else ():
            if member.role == _BY_NAME:
                plan = plan.with_dimension(dimensions.named(member.path), axes)
            elif member.dimension == _ALL:
                plan = plan._replace(cuts=plan._uncut({member[:2]}))
            else:
                cuts = {m: _without(old, axes) if m[:2] == member[:2] else old for m, old in plan.cuts}
                plan = plan._replace(cuts=tuple((cuts | {member: axes}).items()))
        return plan if self.by_name else self

    def constrain(self, what: Any, spec: Any = None, *, line: str = "", occurrence: int | None = None) -> Plan:
        """The plan with a sharding constraint on a value inside the function, which stays as it is.

        Every report of the plan is that of the function with `jax.lax.with_sharding_constraint` around that value, in
        the backward pass, in loops and in what `jax.checkpoint` recomputes too. `program.code(plan)` has the line to
        write. Another constraint on the same value takes the place of the first.

        Args:
            what: the variable that it is assigned to (`"h"`), its expression as it stands in the source
                (`'h @ p["w1"]'`), one of a report's `intermediates`, or None for what the line makes.
            spec: how it is to be cut there; `P.UNCONSTRAINED` leaves a dimension to the compiler, None cuts none.
            line: where, as `model.py:64` (`cell:3` in a notebook); needed where the name stands in several places.
            occurrence: where Python runs the line several times, which of them, from 0; None for every time.

        Raises:
            SpecError: if `what` says no place, or `spec` is no spec. That there is no such value, or that the spec does
                not fit it, is said where the plan meets a program: `program.bind(plan)` and all that asks for it.
        """
        value = Intermediate.of(what, line, occurrence)
        new = Constrain.of(value, spec)
        found = [new if old.value == value else old for old in self.constraints]
        return self._replace(constraints=found if new in found else [*found, new])

    def unconstrain(self, what: Any = None, *, line: str = "", occurrence: int | None = None) -> Plan:
        """The plan without a constraint that `constrain` has put on a value; with no arguments, without any.

        Raises:
            SpecError: if it has no such constraint; the message lists those that it has.
        """
        if what is None and not line:
            return self._replace(constraints=())
        value = Intermediate.of(what, line, occurrence)
        kept = [old for old in self.constraints if old.value != value]
        if len(kept) == len(self.constraints):
            kept = [o for o in kept if o.value.name != value.name or (line and o.value.line != line)]
        if len(kept) == len(self.constraints):
            have = "; ".join(str(old.value) for old in self.constraints) or "none"
            raise SpecError(f"unconstrain {str(value)!r}: the plan constrains {have}")
        return self._replace(constraints=kept)

    def with_variant(self, variant: Variant) -> Plan:
        """The plan for a program that has something otherwise than the person's own, which no spec says.

        Whoever is asked about such a plan answers for that program, which is traced anew: with donated arguments, a
        dimension of another length, another checkpoint policy. Where the plan has a variant already, both hold.

        Args:
            variant: what is otherwise, as `Variant(donated=("state",))`. That the program cannot be so is said where
                the plan meets it.
        """
        return self._replace(variant=self.variant.also(variant))

    def without_variant(self) -> Plan:
        """The plan for the program as it is."""
        return self._replace(variant=None)

    def with_memory(self, name: str, kind: str) -> Plan:
        """The plan with the argument of this tree path in another memory: `device`, `pinned_host`, `unpinned_host`.

        Raises:
            SpecError: if JAX knows no such memory.
        """
        return self._replace(memory=tuple({**dict(self.memory), name: kind}.items()))

    def with_out_memory(self, name: str, kind: str) -> Plan:
        """The plan with the output of this tree path in another memory; errors as `with_memory`."""
        return self._replace(out_memory=tuple({**dict(self.out_memory), name: kind}.items()))

    def with_rules(self, rules: Any) -> Plan:
        """The plan with other rules: specs of arguments by filter, the first that catches an argument wins.

        They go before `in_specs`; an edit of an argument goes before them. Where several arguments are to be cut alike,
        one rule says it: `plan.with_rules([(sv.path_ends_with("kernel"), P("data", "model"))])`. A spec with more
        entries than a caught array has dimensions is an error when the plan is bound, as it is for JAX and flax.

        Raises:
            ShardvizError, SpecError: as `sv.Rules`.
        """
        return self._replace(rules=Rules(rules))

    def with_mesh(self, mesh: Any) -> Plan:
        """The plan on another mesh, its specs unchanged."""
        return self._replace(mesh=DeviceMesh.of(mesh))

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

        tree = lambda specs: jax.tree.map(mapped, specs, is_leaf=is_spec)  # noqa: E731
        pairs = lambda edits: tuple((name, mapped(spec)) for name, spec in edits)  # noqa: E731
        return self._replace(
            in_specs=tree(self.in_specs),
            out_specs=tree(self.out_specs),
            edits=pairs(self.edits),
            out_edits=pairs(self.out_edits),
            rules=mapped(self.rules),
            cuts=tuple((member, change(axes)) for member, axes in self.cuts),
            constraints=tuple(replace(each, spec=mapped(each.spec)) for each in self.constraints),
        )

    def _replace(self, **changes: Any) -> Plan:
        """The plan with other fields; what stays has been read already."""
        made = object.__new__(Plan)
        made.__dict__.update(self.__getstate__() | {name: _READ[name](value) for name, value in changes.items()})
        return made


def _without(axes: tuple[Axis, ...], others: tuple[Axis, ...]) -> tuple[Axis, ...]:
    names = set(map(axis_name, others))
    return tuple(axis for axis in axes if axis_name(axis) not in names)


def cut(spec: Spec, dimension: int, axes: tuple[Axis, ...]) -> Spec:
    """A full-rank spec with one dimension cut by these axes, which cut no other any more."""
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
        if not is_spec(spec):
            raise SpecError(f"{what}{jax.tree_util.keystr(path)}: expected a PartitionSpec or None, not {spec!r}")
        if isinstance(spec, Rules):
            if what == "out_specs":
                raise SpecError(
                    f"{what}{jax.tree_util.keystr(path)}: rules and StateShardings say how arguments are cut; give "
                    "PartitionSpecs for the result"
                )
            return spec
        if isinstance(spec, jax.sharding.Sharding) and not isinstance(spec, jax.sharding.NamedSharding):
            raise SpecError(
                f"{what}{jax.tree_util.keystr(path)}: expected a PartitionSpec, not a {type(spec).__name__}"
            )
        return None if spec is None else Spec.of(spec)

    return jax.tree_util.tree_map_with_path(leaf, spec_tree(tree), is_leaf=is_spec)


def _pairs(given: Any) -> Iterable[Any]:
    return given.items() if isinstance(given, Mapping) else given


def _edits(given: Any) -> tuple[tuple[str, Spec], ...]:
    return tuple((name, Spec.of(spec)) for name, spec in _pairs(given))


def _out_edits(given: Any) -> tuple[tuple[str, Spec | None], ...]:
    return tuple((name, None if spec is None else Spec.of(spec)) for name, spec in _pairs(given))


def _memory(given: Any) -> tuple[tuple[str, str], ...]:
    return tuple((name, memory_kind(kind, name)) for name, kind in _pairs(given))


def _constraints(given: Any) -> tuple[Constrain, ...]:
    of = lambda each: Constrain.of(Intermediate.of(each[0]), each[1])  # noqa: E731
    return tuple(each if isinstance(each, Constrain) else of(each) for each in _pairs(given))


_READ: Mapping[str, Callable[[Any], Any]] = {
    "mesh": lambda given: replace(DeviceMesh.of(given), by_id=False),  # a program's text numbers the places of its mesh
    "in_specs": lambda given: _canonical("in_specs", given),
    "out_specs": lambda given: _canonical("out_specs", given),
    "edits": _edits,
    "out_edits": _out_edits,
    "rules": Rules,
    "memory": _memory,
    "out_memory": _memory,
    "cuts": lambda given: tuple((Member(*member), tuple(axes)) for member, axes in _pairs(given)),
    "constraints": _constraints,
    "variant": lambda given: Variant() if given is None else given,
}
"""How each field of a plan is read from what a person gives."""


def expand(what: str, prefix: Any, tree: Any) -> list[Any]:
    """One spec, None or `Rules` for each leaf of `tree`, from a pytree prefix of it.

    Raises:
        SpecError: if `prefix` is no prefix of the tree; the message says where they part.
    """
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
        return f"{place} is a {type(prefix).__name__} where the function has a {_kind(tree)}"
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


def _kind(tree: Any) -> str:
    leaves = jax.tree_util.treedef_is_leaf(jax.tree.structure(tree))
    return "single array" if leaves else type(tree).__name__
