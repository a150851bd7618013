"""Python code that rebuilds a plan: `sv.Plan(...)` with every spec written out, or given by a rule."""

from __future__ import annotations

import keyword
import re
from collections.abc import Collection, Mapping
from typing import Any

import jax

from shardviz.notation import DeviceMesh, Spec
from shardviz.plan.plan import Plan
from shardviz.records import PlanRecord, Variant
from shardviz.records.options import Option
from shardviz.tracing.rules import Rules, filter_code
from shardviz.tracing.trace import Traced

_WIDTH = 100
_LAYERS = 3
"""How many parts have to be alike to be written once."""


def plan_code(plan: Plan, bound: PlanRecord, traced: Traced, ruled: Collection[str] = ()) -> str:
    """Return Python code that makes an equal plan. Every spec is written out, or given by a rule (for the arguments in
    `ruled`). Dicts, lists and tuples are written as such, shared ones once; other trees by tree path. If a rule's
    filter is a function and cannot be written, the specs of the rules are written out too."""
    ins, outs = traced.in_tree[0], traced.out_tree
    rules = _rules(plan.rules)
    ruled = set(ruled) if rules else set()
    ins_specs = {name: None if name in ruled else spec for name, spec in bound.in_specs.items()}
    results = jax.tree.leaves(outs)
    given_specs = dict(plan.out_edits)
    new = {u.output: bound.out_specs[u.output] for u in traced.updates if u.output in given_specs}
    fixed = any(bound.out_specs[name] is not None for name in results)
    shared = shared_trees(ins, outs if fixed else None, ins_specs, bound.out_specs)
    lines = ["import shardviz as sv", "from jax.sharding import PartitionSpec as P"]
    lines += ["from flax import nnx"] if "nnx." in rules else []
    lines += [""]
    for text, name in shared.items():
        lines += [f"{name} = {text}", ""]
    lines += ["plan = sv.Plan(", f"    {_mesh(plan.mesh)},"]
    by_name = set(jax.tree.leaves(traced.in_tree[1])) if is_plain(ins) else set(bound.in_specs)
    before = ruled & ({name for name, _ in plan.edits} | {member.path for member, _ in plan.dim_edits})
    edits = {n: s for n, s in bound.in_specs.items() if (n in by_name and n not in ruled) or n in before}
    if is_plain(ins):
        lines.append(f"    in_specs={literal(ins, ins_specs, 1, shared)},")
    if rules:
        lines.append(f"    rules={rules},")
    if edits:
        lines.append(f"    edits={_by_path(edits)},")
    if fixed and is_plain(outs):
        lines.append(f"    out_specs={literal(outs, bound.out_specs, 1, shared)},")
    elif fixed:
        new = {name: bound.out_specs[name] for name in results} | new
    if new:
        lines.append(f"    out_edits={_by_path(new)},")
    if plan.options:
        lines += [f"    {line}" for line in options_code("options", plan.options)]
    calls = _constraints(plan, bound, traced)
    if bound.in_memory:
        calls.append(f"with_memory({dict(bound.in_memory)!r})")
    if bound.out_memory:
        calls.append(f"with_memory({dict(bound.out_memory)!r}, output=True)")
    if plan.variant:
        calls.append(variant_code(plan.variant))
    return "\n".join([*lines, ")", *(f"plan = plan.{call}" for call in calls), ""])


def _constraints(plan: Plan, bound: PlanRecord, traced: Traced) -> list[str]:
    """Return a call for each constraint: its value's current name, its line and the line's text, and its spec."""
    placed = {p.wanted: p.target for p in traced.placed}
    calls = []
    for wanted, constrained in zip(plan.constraints, bound.constraints, strict=True):
        at = placed[wanted.value]
        words = {"line": at.frame.short, "text": at.text, "function": at.function}
        keywords = ", ".join(f"{name}={value!r}" for name, value in words.items())
        calls.append(f"constrain({wanted.value.name or None!r}, {constrained.spec_text}, {keywords})")
    return calls


def variant_code(variant: Variant) -> str:
    """Return the Python call that gives a plan its variant."""
    words = variant.keywords
    changes = (f"({line!r}, {before}): {after}" for (line, before), after in words.pop("constraints", {}).items())
    texts = {name: repr(value) for name, value in words.items()}
    if text := ", ".join(changes):
        texts["constraints"] = f"{{{text}}}"
    return f"with_variant({', '.join(f'{name}={text}' for name, text in texts.items())})"


def options_code(name: str, options: Mapping[str, Option]) -> list[str]:
    """Return the lines of an argument of this name with compiler options."""
    return [f"{name}={{", *(f"    {option!r}: {value!r}," for option, value in options.items()), "},"]


def _rules(rules: Rules) -> str:
    """Return the rules as Python; empty if there are none, or if a filter cannot be written."""
    written = [(filter_code(rule.filter), spec_code(rule.spec)) for rule in rules]
    if not written or any(code is None for code, _ in written):
        return ""
    text = "[\n" + "".join(f"        ({code}, {spec}),\n" for code, spec in written) + "    ]"
    return f"sv.Rules({text}, exhaustive=True)" if rules.exhaustive else text


def shared_trees(ins: Any, outs: Any, in_specs: Any, out_specs: Any) -> dict[str, str]:
    """Return the text of each tree that several arguments or results share → a name for it."""
    roots: dict[str, list[str]] = {}
    for trees, specs in ((ins, in_specs), (outs if type(outs) in (list, tuple) else (outs,), out_specs)):
        for tree in trees:
            if is_plain(tree) and tree is not None and not isinstance(tree, str):
                text = literal(tree, specs, 0)
                if "\n" in text:
                    root = re.match(r"\w*", next(iter(jax.tree.leaves(tree)), ""))
                    roots.setdefault(text, []).append(root[0] if root else "")
    several = {text: names[0] for text, names in roots.items() if len(names) > 1}
    return {text: f"{name or 'shared'}_specs" + (str(i) if i else "") for i, (text, name) in enumerate(several.items())}


def _mesh(mesh: DeviceMesh) -> str:
    if mesh != DeviceMesh(mesh.names, mesh.sizes):  # axis types, an order of devices, slices
        return f"sv.notation.DeviceMesh.of({mesh.text!r})"
    if all(n.isidentifier() and not keyword.iskeyword(n) for n in mesh.names):
        return "sv.mesh(" + ", ".join(f"{n}={s}" for n, s in mesh.shape.items()) + ")"
    return f"sv.mesh({mesh.shape!r})"


def is_plain(tree: Any) -> bool:
    """Return whether a tree of names has only containers that can be written as literals."""
    if isinstance(tree, str) or tree is None:
        return True
    if type(tree) is dict:
        return all(isinstance(k, str | int) for k in tree) and all(map(is_plain, tree.values()))
    return type(tree) in (list, tuple) and all(map(is_plain, tree))


def literal(tree: Any, specs: Any, depth: int, shared: Mapping[str, str] | None = None) -> str:
    """Return a tree of names (dicts, lists, tuples) as indented Python with specs in place of the names; equal layers
    are written once, and texts in `shared` by their names."""
    if shared and (name := shared.get(literal(tree, specs, 0))):
        return name
    if tree is None:
        return "None"
    if isinstance(tree, str):
        return spec_code(specs[tree])
    if (once := _repeated(tree, specs, depth, shared)) is not None:
        return once
    if type(tree) is dict:
        opening, closing, items = "{", "}", [f"{k!r}: {literal(v, specs, depth + 1, shared)}" for k, v in tree.items()]
    else:
        items = [literal(v, specs, depth + 1, shared) for v in tree]
        opening, closing = ("[", "]") if type(tree) is list else ("(", ",)" if len(items) == 1 else ")")
    flat = opening + ", ".join(items) + closing
    if len(flat) + 4 * depth <= _WIDTH and "\n" not in flat:
        return flat
    pad = "    " * (depth + 1)
    return opening + "\n" + "".join(f"{pad}{item},\n" for item in items) + "    " * depth + closing.lstrip(",")


_NUMBERED = re.compile(r"(.*?)(\d+)")


def _repeated(tree: Any, specs: Any, depth: int, shared: Mapping[str, str] | None) -> str | None:
    """Return Python for a tree of equal parts, such as a list of layers, with one part written out; None for other
    trees."""
    parts = list(tree.values()) if type(tree) is dict else list(tree)
    if len(parts) < _LAYERS or isinstance(parts[0], str) or len({literal(p, specs, 0) for p in parts}) > 1:
        return None
    one = literal(parts[0], specs, depth, shared)
    if type(tree) is not dict:
        return f"[{one}] * {len(parts)}" if type(tree) is list else f"({one},) * {len(parts)}"
    if set(tree) == set(range(len(tree))):
        return f"dict.fromkeys(range({len(tree)}), {one})"
    numbered = [_NUMBERED.fullmatch(str(key)) for key in tree]
    heads = {m[1] for m in numbered if m is not None}
    if len(heads) == 1 and set(tree) == {f"{min(heads)}{n}" for n in range(len(tree))} and "{" not in min(heads):
        return f"{{f{min(heads) + '{i}'!r}: {one} for i in range({len(tree)})}}"
    return None


def _by_path(specs: Any) -> str:
    return "{\n" + "".join(f"        {name!r}: {spec_code(spec)},\n" for name, spec in specs.items()) + "    }"


def spec_code(spec: Spec | str | None) -> str:
    """Return a spec as Python; text unchanged."""
    if isinstance(spec, str):
        return spec
    return "None" if spec is None else str(spec.canonical())
