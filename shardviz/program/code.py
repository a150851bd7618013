"""The Python that rebuilds a plan."""

from __future__ import annotations

import keyword
import re
from collections.abc import Collection, Mapping
from typing import Any

import jax

from shardviz.notation import DeviceMesh, Spec
from shardviz.program.plan import Plan
from shardviz.program.rules import Rules, filter_code
from shardviz.program.trace import Traced
from shardviz.records import PlanRecord

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
