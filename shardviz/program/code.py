"""The Python that rebuilds a plan."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from typing import Any

import jax

from shardviz.notation import DeviceMesh, Spec
from shardviz.program.plan import Plan
from shardviz.program.trace import Traced
from shardviz.records import PlanRecord

_WIDTH = 100


def plan_code(plan: Plan, bound: PlanRecord, traced: Traced) -> str:
    """Python source that makes an equal plan, every spec spelled out.

    Trees of dicts, lists and tuples are written as such, one that occurs several times (the parameters', the
    optimizer's, the result's) only once; where the arguments have other containers, specs go by tree path.
    """
    ins, outs = traced.in_tree[0], traced.out_tree
    fixed = any(spec is not None for spec in bound.out_specs.values())
    shared = _shared(ins, outs if fixed else None, bound)
    lines = ["import shardviz as sv", "from jax.sharding import PartitionSpec as P", ""]
    for text, name in shared.items():
        lines += [f"{name} = {text}", ""]
    lines += ["plan = sv.Plan(", f"    {_mesh(plan.mesh)},"]
    by_name = set(jax.tree.leaves(traced.in_tree[1]))
    edits: dict[str, Spec] = {n: bound.in_specs[n] for n in bound.in_specs if n in by_name}
    if _plain(ins):
        lines.append(f"    in_specs={_literal(ins, bound.in_specs, 1, shared)},")
    else:
        edits = dict(bound.in_specs)
    if edits:
        lines.append(f"    edits={_by_path(edits)},")
    if fixed and _plain(outs):
        lines.append(f"    out_specs={_literal(outs, bound.out_specs, 1, shared)},")
    elif fixed:
        lines.append(f"    out_edits={_by_path(bound.out_specs)},")
    return "\n".join([*lines, ")", ""])


def _shared(ins: Any, outs: Any, bound: PlanRecord) -> dict[str, str]:
    """The text of each tree that several arguments or results share → a name for it."""
    found: dict[str, list[str]] = {}
    for trees, specs in ((ins, bound.in_specs), (outs if type(outs) in (list, tuple) else (outs,), bound.out_specs)):
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
