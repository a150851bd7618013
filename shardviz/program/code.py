"""The Python that rebuilds a plan."""

from __future__ import annotations

from typing import Any

import jax

from shardviz.notation import DeviceMesh, Spec
from shardviz.program.lower import Bound
from shardviz.program.plan import Plan
from shardviz.program.trace import Traced

_WIDTH = 100


def plan_code(plan: Plan, bound: Bound, traced: Traced) -> str:
    """Python source that makes an equal plan, every spec spelled out.

    Trees of dicts, lists and tuples are written as such; where the arguments have other containers, specs go by tree path.
    """
    ins, outs = traced.in_tree[0], traced.out_tree
    keyword = {name for name in jax.tree.leaves(traced.in_tree[1])}
    lines = ["import shardviz as sv", "from jax.sharding import PartitionSpec as P", "", "plan = sv.Plan("]
    lines.append(f"    {_mesh(plan.mesh)},")
    edits: dict[str, Spec] = {n: bound.in_specs[n] for n in bound.in_specs if n in keyword}
    if _plain(ins):
        lines.append(f"    in_specs={_literal(ins, bound.in_specs, 1)},")
    else:
        edits = dict(bound.in_specs)
    if edits:
        lines.append(f"    edits={_by_path(edits)},")
    if any(spec is not None for spec in bound.out_specs.values()):
        if _plain(outs):
            lines.append(f"    out_specs={_literal(outs, bound.out_specs, 1)},")
        else:
            lines.append(f"    out_edits={_by_path(bound.out_specs)},")
    return "\n".join([*lines, ")", ""])


def _mesh(mesh: DeviceMesh) -> str:
    if all(n.isidentifier() for n in mesh.names) and not mesh.device_ids and set(mesh.types) <= {"Auto"}:
        return "sv.mesh(" + ", ".join(f"{n}={s}" for n, s in mesh.shape.items()) + ")"
    if not mesh.device_ids and set(mesh.types) <= {"Auto"}:
        return f"sv.mesh({mesh.shape!r})"
    return f"sv.notation.DeviceMesh({mesh.names!r}, {mesh.sizes!r}, {mesh.types!r}, {mesh.device_ids!r})"


def _plain(tree: Any) -> bool:
    """Whether a tree of names has only containers that can be written as literals."""
    if isinstance(tree, str) or tree is None:
        return True
    if type(tree) is dict:
        return all(isinstance(k, str | int) for k in tree) and all(map(_plain, tree.values()))
    return type(tree) in (list, tuple) and all(map(_plain, tree))


def _literal(tree: Any, specs: Any, depth: int) -> str:
    if tree is None:
        return "None"
    if isinstance(tree, str):
        return _spec(specs[tree])
    if type(tree) is dict:
        opening, closing, items = "{", "}", [f"{k!r}: {_literal(v, specs, depth + 1)}" for k, v in tree.items()]
    else:
        items = [_literal(v, specs, depth + 1) for v in tree]
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
