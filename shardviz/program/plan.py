"""The plan: what a person edits. A mesh, and a spec for every input and output. Immutable; an edit makes a new one.

>>> from jax.sharding import PartitionSpec as P
>>> plan = Plan({"data": 8, "model": 8}, in_specs=({"w": P("data", "model")}, P("data")))
>>> plan.with_spec("params['w']", P(None, "model")).edits
(("params['w']", Spec(dims=((), ('model',)), unreduced=())),)

`plan_code` writes the Python that rebuilds a plan.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax

from shardviz.errors import MeshError, SpecError
from shardviz.notation import Axis, DeviceMesh, Spec
from shardviz.program.rules import Rules, filter_code
from shardviz.program.trace import Traced
from shardviz.program.trees import spec_tree
from shardviz.records import PlanRecord


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
    """

    mesh: DeviceMesh
    in_specs: Any
    out_specs: Any
    edits: tuple[tuple[str, Spec], ...]
    out_edits: tuple[tuple[str, Spec | None], ...]
    rules: Rules

    def __init__(
        self,
        mesh: Any,
        in_specs: Any = None,
        out_specs: Any = None,
        *,
        edits: Mapping[str, Any] | tuple[tuple[str, Any], ...] = (),
        out_edits: Mapping[str, Any] | tuple[tuple[str, Any], ...] = (),
        rules: Any = (),
    ):
        """A plan.

        Args:
            mesh: a mesh in any form that `sv.mesh` takes.
            in_specs: a pytree prefix of the function's positional arguments, as for `jax.jit`'s `in_shardings`.
            out_specs: a pytree prefix of the function's result.
            edits, out_edits: specs by tree path, which go before the prefixes.
            rules: specs of arguments by filter, as `sv.Rules` takes them.

        Raises:
            MeshError: if `mesh` is no mesh.
            SpecError: if a leaf is no PartitionSpec.
        """
        pairs = lambda m: tuple(m.items() if isinstance(m, Mapping) else m)  # noqa: E731
        put = lambda name, value: object.__setattr__(self, name, value)  # noqa: E731
        put("mesh", DeviceMesh.of(mesh))
        put("in_specs", _canonical("in_specs", in_specs))
        put("out_specs", _canonical("out_specs", out_specs))
        put("edits", tuple((name, Spec.of(spec)) for name, spec in pairs(edits)))
        put("rules", Rules(rules))
        put("out_edits", tuple((name, None if spec is None else Spec.of(spec)) for name, spec in pairs(out_edits)))

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
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def with_spec(self, name: str, spec: Any) -> Plan:
        """The plan with another spec for the argument of this tree path."""
        edits = {**dict(self.edits), name: Spec.of(_unwrap(spec))}
        return self._replace(edits=tuple(edits.items()))

    def with_out_spec(self, name: str, spec: Any) -> Plan:
        """The plan with another spec for the output of this tree path; None is the compiler's choice."""
        edits = {**dict(self.out_edits), name: None if spec is None else Spec.of(_unwrap(spec))}
        return self._replace(out_edits=tuple(edits.items()))

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
            return None if spec is None else Spec(tuple(change(d) for d in spec.dims), change(spec.unreduced))

        tree = lambda specs: jax.tree.map(mapped, specs, is_leaf=is_spec)  # noqa: E731
        pairs = lambda edits: tuple((name, mapped(spec)) for name, spec in edits)  # noqa: E731
        return self._replace(
            in_specs=tree(self.in_specs),
            out_specs=tree(self.out_specs),
            edits=pairs(self.edits),
            out_edits=pairs(self.out_edits),
            rules=mapped(self.rules),
        )

    def _replace(self, **changes: Any) -> Plan:
        fields = {f: getattr(self, f) for f in ("mesh", "in_specs", "out_specs", "edits", "out_edits", "rules")}
        fields.update(changes)
        return Plan(fields.pop("mesh"), **fields)


def _renamed(axis: Axis, old: str, new: str) -> Axis:
    if isinstance(axis, str):
        return new if axis == old else axis
    return (new, *axis[1:]) if axis[0] == old else axis


def _unwrap(leaf: Any) -> Any:
    return leaf.spec if isinstance(leaf, jax.sharding.NamedSharding) else leaf


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
        spec = _unwrap(spec)
        if isinstance(spec, jax.sharding.Sharding):
            raise SpecError(
                f"{what}{jax.tree_util.keystr(path)}: expected a PartitionSpec, not a {type(spec).__name__}"
            )
        return None if spec is None else Spec.of(spec)

    return jax.tree_util.tree_map_with_path(leaf, spec_tree(tree), is_leaf=is_spec)


@dataclass(frozen=True)
class _Box:
    spec: Any


def expand(what: str, prefix: Any, tree: Any) -> list[Any]:
    """One spec, None or `Rules` for each leaf of `tree`, from a pytree prefix of it.

    Raises:
        SpecError: if `prefix` is no prefix of the tree; the message says where they part.
    """
    # None is a spec in the prefix, but an empty branch in the tree: a box keeps them apart
    boxed = jax.tree.map(_Box, prefix, is_leaf=is_spec)
    try:
        return [box.spec for box in jax.tree.leaves(jax.tree.broadcast(boxed, tree))]
    except (ValueError, AttributeError) as error:  # JAX stumbles over its own message where keys are attributes
        raise SpecError(
            f"{what} must be a pytree prefix of the {'arguments' if what.startswith('in_') else 'result'}: "
            f"{_parting(what, prefix, tree)}"
        ) from error


def _parting(where: str, prefix: Any, tree: Any) -> str:
    """In words, the first place where a prefix does not fit the tree."""
    if is_spec(prefix):
        return f"{where} fits"
    kind, want = type(prefix), type(tree)
    if kind is not want:
        return f"{where} is a {kind.__name__} where the function has a {_kind(tree)}"
    ours, theirs = _children(prefix), _children(tree)
    key = lambda p: jax.tree_util.keystr(p)  # noqa: E731
    if missing := [key(p) for p in theirs if p not in ours]:
        return f"{where} lacks {', '.join(missing[:5])}; give it a spec, or None"
    if extra := [key(p) for p in ours if p not in theirs]:
        return (
            f"{where} has {', '.join(extra[:5])}, which the function does not have; "
            f"it has {', '.join(key(p) for p in list(theirs)[:8])}"
        )
    for path, node in ours.items():
        if not is_spec(node) and "fits" not in (text := _parting(where + key(path), node, theirs[path])):
            return text
    return f"{where} fits"


def _children(tree: Any) -> dict[Any, Any]:
    """What stands directly below a pytree's root, by path."""
    return dict(jax.tree_util.tree_flatten_with_path(tree, is_leaf=lambda node: node is not tree)[0])


def _kind(tree: Any) -> str:
    leaves = jax.tree_util.treedef_is_leaf(jax.tree.structure(tree))
    return "single array" if leaves else type(tree).__name__


_WIDTH = 100


def plan_code(plan: Plan, bound: PlanRecord, traced: Traced, ruled: Collection[str] = ()) -> str:
    """Python source that makes an equal plan, every spec spelled out, or said by a rule.

    Trees of dicts, lists and tuples are written as such, one that occurs several times (the parameters', the
    optimizer's, the result's) only once; where the arguments have other containers, specs go by tree path. A rule whose
    filter cannot be written (a function) is not: then what the rules say is spelled out too.

    Args:
        plan, bound: the plan, and what it says of the program.
        traced: the program.
        ruled: the arguments whose spec a rule says.
    """
    ins, outs = traced.in_tree[0], traced.out_tree
    rules = _rules(plan.rules)
    ruled = set(ruled) if rules else set()
    ins_specs = {name: None if name in ruled else spec for name, spec in bound.in_specs.items()}
    results = jax.tree.leaves(outs)
    new = {u.output: bound.out_specs[u.output] for u in traced.updates if u.output in dict(plan.out_edits)}
    fixed = any(bound.out_specs[name] is not None for name in results)
    shared = _shared(ins, outs if fixed else None, ins_specs, bound.out_specs)
    lines = ["import shardviz as sv", "from jax.sharding import PartitionSpec as P"]
    lines += ["from flax import nnx"] if "nnx." in rules else []
    lines += [""]
    for text, name in shared.items():
        lines += [f"{name} = {text}", ""]
    lines += ["plan = sv.Plan(", f"    {_mesh(plan.mesh)},"]
    by_name = set(jax.tree.leaves(traced.in_tree[1])) if _plain(ins) else set(bound.in_specs)
    edits = {n: s for n, s in bound.in_specs.items() if (n in by_name and n not in ruled) or _edited(plan, n, ruled)}
    if _plain(ins):
        lines.append(f"    in_specs={_literal(ins, ins_specs, 1, shared)},")
    if rules:
        lines.append(f"    rules={rules},")
    if edits:
        lines.append(f"    edits={_by_path(edits)},")
    if fixed and _plain(outs):
        lines.append(f"    out_specs={_literal(outs, bound.out_specs, 1, shared)},")
    elif fixed:
        new = {name: bound.out_specs[name] for name in results} | new
    if new:
        lines.append(f"    out_edits={_by_path(new)},")
    return "\n".join([*lines, ")", ""])


def _edited(plan: Plan, name: str, ruled: Collection[str]) -> bool:
    """Whether an edit goes before the rule that an argument has a spec by."""
    return name in ruled and name in dict(plan.edits)


def _rules(rules: Rules) -> str:
    """The rules as Python; empty where there are none, or one of them has a filter that cannot be written."""
    written = [(filter_code(rule.filter), _spec(rule.spec)) for rule in rules]
    if not written or any(code is None for code, _ in written):
        return ""
    text = "[\n" + "".join(f"        ({code}, {spec}),\n" for code, spec in written) + "    ]"
    return f"sv.Rules({text}, exhaustive=True)" if rules.exhaustive else text


def _shared(ins: Any, outs: Any, in_specs: Any, out_specs: Any) -> dict[str, str]:
    """The text of each tree that several arguments or results share → a name for it."""
    found: dict[str, list[str]] = {}
    for trees, specs in ((ins, in_specs), (outs if type(outs) in (list, tuple) else (outs,), out_specs)):
        for tree in trees:
            if _plain(tree) and tree is not None and not isinstance(tree, str):
                text = _literal(tree, specs, 0)
                if "\n" in text:
                    root = re.match(r"\w*", next(iter(jax.tree.leaves(tree)), ""))
                    found.setdefault(text, []).append(root[0] if root else "")
    several = {text: names[0] for text, names in found.items() if len(names) > 1}
    return {text: f"{name or 'shared'}_specs" + (str(i) if i else "") for i, (text, name) in enumerate(several.items())}


def _mesh(mesh: DeviceMesh) -> str:
    if mesh != DeviceMesh(mesh.names, mesh.sizes):  # axis types, an order of devices, slices
        return f"sv.notation.DeviceMesh.of({mesh.text!r})"
    if all(n.isidentifier() and not keyword.iskeyword(n) for n in mesh.names):
        return "sv.mesh(" + ", ".join(f"{n}={s}" for n, s in mesh.shape.items()) + ")"
    return f"sv.mesh({mesh.shape!r})"


def _plain(tree: Any) -> bool:
    """Whether a tree of names has only containers that can be written as literals."""
    if isinstance(tree, str) or tree is None:
        return True
    if type(tree) is dict:
        return all(isinstance(k, str | int) for k in tree) and all(map(_plain, tree.values()))
    return type(tree) in (list, tuple) and all(map(_plain, tree))


def _literal(tree: Any, specs: Any, depth: int, shared: Mapping[str, str] | None = None) -> str:
    if shared and (name := shared.get(_literal(tree, specs, 0))):
        return name
    if tree is None:
        return "None"
    if isinstance(tree, str):
        return _spec(specs[tree])
    if type(tree) is dict:
        opening, closing, items = "{", "}", [f"{k!r}: {_literal(v, specs, depth + 1, shared)}" for k, v in tree.items()]
    else:
        items = [_literal(v, specs, depth + 1, shared) for v in tree]
        opening, closing = ("[", "]") if type(tree) is list else ("(", ",)" if len(items) == 1 else ")")
    flat = opening + ", ".join(items) + closing
    if len(flat) + 4 * depth <= _WIDTH and "\n" not in flat:
        return flat
    pad = "    " * (depth + 1)
    return opening + "\n" + "".join(f"{pad}{item},\n" for item in items) + "    " * depth + closing.lstrip(",")


def _by_path(specs: Any) -> str:
    return "{\n" + "".join(f"        {name!r}: {_spec(spec)},\n" for name, spec in specs.items()) + "    }"


def _spec(spec: Spec | None) -> str:
    return "None" if spec is None else str(spec.canonical())
