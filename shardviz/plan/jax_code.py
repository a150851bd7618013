"""Python code that runs a plan with JAX alone: its mesh, its shardings, `jax.jit`, and the lines to write inside.

Trees of dicts, lists and tuples are written out, equal layers once. In other containers (a TrainState, a FrozenDict,
modules) rules give every array its spec: patterns of its path, of which the first match counts.

The plan's constraints are lines to add to the user's source, so they are described in comments. A variable is
constrained in a new line after the statement that assigns it; an expression in place. So are the user's own constraints
that the plan's variant drops or changes.
"""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax

from shardviz import _jax
from shardviz.errors import SpecError
from shardviz.notation import DeviceMesh, Spec
from shardviz.notation.spec import axis_text
from shardviz.plan.plan_code import is_plain, literal, options_code, shared_trees, spec_code
from shardviz.plan.variants import checkpoint_words
from shardviz.records import Frame, PlanRecord, Reconstrained
from shardviz.records.groups import grouped
from shardviz.records.report import Constrained
from shardviz.tracing.call import Call
from shardviz.tracing.intermediates import constraint_calls
from shardviz.tracing.signature import parameters_of
from shardviz.tracing.trace import Placed, Traced
from shardviz.tracing.trees import plain_path

_ON_MESH = '''
def on_mesh(specs):
    """A NamedSharding for every PartitionSpec of a tree."""
    is_spec = lambda leaf: isinstance(leaf, P)
    return jax.tree.map(lambda leaf: NamedSharding(mesh, leaf) if is_spec(leaf) else leaf, specs, is_leaf=is_spec)
'''
_BY_RULE = '''
def by_rule(tree, rules, otherwise):
    """A sharding for every array of a tree, by the first rule whose pattern its path has: `layers/0/kernel`."""

    def of(path, _):
        keys = (next(getattr(k, a) for a in ("name", "key", "idx") if hasattr(k, a)) for k in path)
        name = "/".join(map(str, keys))
        spec = next((spec for rule, spec in rules if re.fullmatch(f"(.*/)?{rule}", name)), otherwise)
        return NamedSharding(mesh, spec) if isinstance(spec, P) else spec

    return jax.tree_util.tree_map_with_path(of, tree)
'''
_VARIABLE = '.removesuffix("/value")  # a variable of flax holds its array so'
_PLACED = '''
def place(module, rules):
    """Puts the arrays of a flax.nnx module where the plan has them; a jitted function keeps them there."""
    state = nnx.state(module)
    nnx.update(module, jax.device_put(state, by_rule(state, rules, P())))
'''
_PLACED_OF_EQUINOX = '''
def place(module, rules):
    """The module with its arrays where the plan has them; equinox.filter_jit keeps them there."""
    arrays, rest = eqx.partition(module, eqx.is_array)
    return eqx.combine(jax.device_put(arrays, by_rule(arrays, rules, P())), rest)
'''


def jax_code(bound: PlanRecord, traced: Traced, call: Call) -> str:
    """Return Python code that runs a program under a plan. Raises SpecError for a part of a mesh axis."""
    call = replace(call, name=function_name(call))
    ins, outs = _texts(bound.in_specs, bound.in_memory), _texts(bound.out_specs, bound.out_memory)
    rules: dict[str, str] = {}
    if call.kind == "nnx":
        body = _nnx(traced, call, ins, rules)
    elif call.kind == "equinox":
        body = _equinox(_Function.of(call, traced, bound), call, ins, rules)
    elif all(map(is_plain, (traced.in_tree[0], traced.in_tree[1], traced.out_tree))):
        body = _plain(_Function.of(call, traced, bound), traced, ins, outs)
    else:
        body = _ruled(_Function.of(call, traced, bound), traced, ins, outs, rules)
    text, joined = "\n".join(body), '"/".join(map(str, keys))'
    by_rule = _BY_RULE.replace(joined, joined + _VARIABLE) if call.kind in ("nnx", "state") else _BY_RULE
    helpers = [_ON_MESH] if "on_mesh(" in text else []
    helpers += [by_rule] if "by_rule(" in text or "place(" in text else []
    helpers += [_PLACED_OF_EQUINOX if call.kind == "equinox" else _PLACED] if "place(" in text else []
    lines = _imports(call, bound.mesh, "".join(helpers) + text)
    for title, notes in (
        ("Constrain inside your function:", written_lines(bound, traced)),
        ("Write in your function:", checkpoint_words(traced, call.checkpoint) if call.checkpoint else ()),
        ("Change constraints of your function:", reconstrained_lines(traced)),
        ("Change collectives of your function:", [f"{line}: {words}" for line, words in traced.written]),
        ("The arrays have another length than yours:", [each.words for each in bound.variant.lengths]),
    ):
        lines += ["", f"# {title}", *(f"#   {note}" for note in notes)] if notes else []
    if bound.options and call.kind in ("nnx", "equinox"):
        code = options_code("compiler_options", bound.options)
        lines += ["", f"# Compile it with {call.name}.lower(...).compile(", *(f"#     {line}" for line in code), "# )"]
    lines += ["", *_mesh(bound.mesh)]
    lines += ["".join(helpers).rstrip()] if helpers else []
    lines += [f"\n{name} = {rule}" for name, rule in rules.items()]
    return "\n".join([*lines, "", text, ""])


def function_name(call: Call) -> str:
    """Return the function's name in the code: `function` for a lambda."""
    return call.name if call.name.isidentifier() else "function"


def flat_code(bound: PlanRecord, name: str) -> str:
    """Return Python code that runs the function `name` of a flat list of arrays under a plan, on a mesh of devices in
    their own order. Raises SpecError as `jax_code`."""
    ins, outs = _texts(bound.in_specs, bound.in_memory), _texts(bound.out_specs, bound.out_memory)
    body = [f"# {name} is the function, with the arrays of its arguments and results in lists"]
    for title, texts in (("inputs", ins), ("outputs", outs)):
        rows = (f"    {text},  # {path}" for path, text in texts.items())
        body += [f"{title} = on_mesh([", *rows, "])"]
    body += [f"step = jax.jit({name}, in_shardings=(inputs,), out_shardings=outputs)"]
    sharding = "AxisType, NamedSharding", "PartitionSpec as P"
    imports = ["import jax", *(f"from jax.sharding import {names}" for names in sharding)]
    return "\n".join([*imports, "", *_mesh(bound.mesh), _ON_MESH, *body, ""])


def _texts(specs: Mapping[str, Spec | None], memory: Mapping[str, str]) -> dict[str, str]:
    """Return tree path → the text of its sharding: a PartitionSpec, None, or a NamedSharding in another memory."""
    texts = {}
    for name, spec in specs.items():
        if spec is not None and (parts := [a for a in spec.axes if not isinstance(a, str)]):
            why = "no PartitionSpec shards along a part of a mesh axis"
            raise SpecError(f"{name} {spec}: {why}, {axis_text(parts[0])}")
        kind, text = memory.get(name), spec_code(spec)
        texts[name] = f"NamedSharding(mesh, {text}, memory_kind={kind!r})" if kind and spec is not None else text
    return texts


def _imports(call: Call, mesh: DeviceMesh, uses: str) -> list[str]:
    sharding = ["Mesh" if mesh.device_ids or mesh.in_order else "AxisType"]
    sharding += ["NamedSharding"] if "NamedSharding" in uses else []
    lines = ["import re", ""] if "re.fullmatch" in uses else []
    lines += ["import jax"]
    lines += ["import numpy as np"] if "Mesh" in sharding else []
    lines += ["import equinox as eqx"] if "eqx." in uses else []
    lines += ["from flax import nnx"] if "nnx." in uses else []
    lines += [f"from jax.sharding import {', '.join(sharding)}", "from jax.sharding import PartitionSpec as P"]
    fn = _jax.plain_function(call.fn)
    module, name = getattr(fn, "__module__", ""), getattr(fn, "__qualname__", "")
    if module and module != "__main__" and name.isidentifier():
        return [*lines, "", f"from {module} import {name}"]
    return [*lines, "", f"# {call.name} is your own function"]


def _mesh(mesh: DeviceMesh) -> list[str]:
    sizes, names = repr(tuple(mesh.sizes)), repr(tuple(mesh.names))
    types = ", ".join(f"AxisType.{kind}" for kind in mesh.types) + ("," if len(mesh.types) == 1 else "")
    if mesh.device_ids:
        ids = list(mesh.device_ids)
        return [f"devices = np.array(jax.devices())[{ids}]", f"mesh = Mesh(devices.reshape({sizes}), {names})"]
    if mesh.in_order:
        return [f"mesh = Mesh(np.array(jax.devices()).reshape({sizes}), {names})"]
    return [f"mesh = jax.make_mesh({sizes}, {names}, axis_types=({types}))"]


@dataclass(frozen=True)
class _Function:
    """The function to jit, with positional arguments only, as `in_shardings` requires: code that makes it if the user's
    function takes keyword arguments, its parameters, the trees of those that are arrays, and options of `jax.jit`."""

    name: str
    code: list[str]
    parameters: tuple[str, ...]
    arrays: dict[str, Any]
    options: list[str]

    @classmethod
    def of(cls, call: Call, traced: Traced, bound: PlanRecord) -> _Function:
        positional, keyword = traced.in_tree
        parameters = [p.name for p in parameters_of(_jax.plain_function(call.fn))]
        count = max(len(call.args), len(positional))
        places = [parameters[i] if i < len(parameters) else f"argument_{i}" for i in range(count)]
        options_of, options = call.options, []
        by_name = [*keyword, *sorted(set(options_of.static_argnames) & set(call.kwargs))]
        every = (*places, *by_name)
        fixed = options_of.static_places(call.fn, len(call.args))
        static = [i for i, name in enumerate(every) if i in fixed or name in options_of.static_argnames]
        numbers, names = options_of.donate_argnums, options_of.donate_argnames
        donated = [i for i, name in enumerate(every) if i in numbers or name in names]
        options += [f"static_argnums={tuple(static)!r},"] if static else []
        options += [f"donate_argnums={tuple(donated)!r},"] if donated else []
        options += ["keep_unused=True,"] if call.keeps_unused else []
        options += options_code("compiler_options", bound.options) if bound.options else []
        dynamic = [name for i, name in enumerate(every) if i not in static]
        arrays = dict(zip(dynamic, (*positional, *keyword.values()), strict=True))
        if not by_name:
            return cls(call.name, [], every, arrays, options)
        passed = ", ".join([*places, *(f"{name}={name}" for name in by_name)])
        code = [f"def {call.name}_by_position({', '.join(every)}):", f"    return {call.name}({passed})", "", ""]
        return cls(f"{call.name}_by_position", code, every, arrays, options)

    def jitted(self, begin: str, ins: str, outs: str, pad: str = "") -> list[str]:
        """Return the lines of `jax.jit(...)` with these shardings, after `begin`; without `outs` the compiler chooses
        the results' shardings."""
        options = [f"in_shardings={ins},", *([f"out_shardings={outs},"] if outs else []), *self.options]
        return [f"{pad}{begin}jax.jit(", f"{pad}    {self.name},", *(f"{pad}    {o}" for o in options), f"{pad})"]

    @property
    def passed(self) -> str:
        return ", ".join(self.parameters)


def _plain(function: _Function, traced: Traced, ins: Any, outs: Any) -> list[str]:
    """Return the lines of the jitted function with every spec written out."""
    fixed = any(text != "None" for text in outs.values())
    trees = tuple(function.arrays.values())
    shared = shared_trees(trees, traced.out_tree if fixed else None, ins, outs)
    lines = [line for text, name in shared.items() for line in (f"{name} = {text}", "")]
    results = f"on_mesh({literal(traced.out_tree, outs, 1, shared)})" if fixed else ""
    name = "jitted" if function.name == "step_by_position" else "step"  # that function calls the person's `step`
    lines += [*function.code, *function.jitted(f"{name} = ", f"on_mesh({literal(trees, ins, 1, shared)})", results)]
    return [*lines, "", "# with jax.set_mesh(mesh):", f"#     {name}({function.passed})"]


def _ruled(function: _Function, traced: Traced, ins: Any, outs: Any, rules: dict[str, str]) -> list[str]:
    """Return the lines of a function that jits for given arguments, with every spec given by a rule."""
    arguments = []
    for name, tree in function.arrays.items():
        if is_plain(tree):
            arguments.append(f"on_mesh({literal(tree, ins, 2)})")
        else:
            arguments.append(f"by_rule({name}, {_add(rules, name, _rules(_paths(tree), ins, 'P()'))}, P())")
    lines = [*function.code, f"def jitted({function.passed}):", '    """The function compiled for such arguments."""']
    results = ""
    if any(text != "None" for text in outs.values()):
        if is_plain(traced.out_tree):
            results = f"on_mesh({literal(traced.out_tree, outs, 2)})"
        else:
            static = "".join(f", {option.rstrip(',')}" for option in function.options if option.startswith("static"))
            lines.append(f"    result = jax.eval_shape(jax.jit({function.name}{static}), {function.passed})")
            results = f"by_rule(result, {_add(rules, 'result', _rules(_paths(traced.out_tree), outs, 'None'))}, None)"
    pad = "    "
    taken = "\n".join(["(", *(f"{pad * 3}{each}," for each in arguments), f"{pad * 2})"])
    call = f"#     jitted({function.passed})({function.passed})"
    return [*lines, *function.jitted("return ", taken, results, pad), "", "# with jax.set_mesh(mesh):", call]


def _nnx(traced: Traced, call: Call, ins: Any, rules: dict[str, str]) -> list[str]:
    """Return the lines that place the arrays of flax.nnx modules; a function wrapped by nnx.jit follows these
    shardings."""
    names = [argument.name for argument in traced.arguments]
    pairs = zip(call.leaves, names, strict=True)
    groups = grouped((re.split(r"[\[.]", name, maxsplit=1)[0], (leaf.path, name)) for leaf, name in pairs)
    lines = []
    for root, paths in groups.items():
        if any(path for path, _ in paths):
            lines.append(f"place({root}, {_add(rules, root, _rules(paths, ins, 'P()'))})")
        else:
            lines.append(f"{root} = jax.device_put({root}, NamedSharding(mesh, {ins[root]}))")
    named = ", ".join(groups)
    return [*lines, "", "# with jax.set_mesh(mesh):", f"#     {call.name}({named})"]


def _equinox(function: _Function, call: Call, ins: Any, rules: dict[str, str]) -> list[str]:
    """Return the lines that place the arrays of equinox modules and of other arguments; `equinox.filter_jit` follows
    these shardings."""
    lines = []
    for name, tree in function.arrays.items():
        if not jax.tree.leaves(tree):
            continue  # a static argument
        if is_plain(tree):
            lines.append(f"{name} = jax.device_put({name}, on_mesh({literal(tree, ins, 1)}))")
        else:
            lines.append(f"{name} = place({name}, {_add(rules, name, _rules(_paths(tree), ins, 'P()'))})")
    passed = ", ".join(f"{name}={name}" if name in call.kwargs else name for name in function.parameters)
    return [*lines, "", "# with jax.set_mesh(mesh):", f"#     {call.name}({passed})"]


def _add(rules: dict[str, str], name: str, rule: str) -> str:
    """Add a list of rules under a name, and return the name; a list with the same text shares it."""
    same = next((other for other, text in rules.items() if text == rule), f"{name.upper()}_RULES")
    rules.setdefault(same, rule)
    return same


def _paths(tree: Any) -> list[tuple[tuple[Any, ...], str]]:
    """Return (path, name) of every array in a tree of names."""
    return [(plain_path(path), name) for path, name in jax.tree_util.tree_flatten_with_path(tree)[0]]


def _rules(paths: Iterable[tuple[tuple[Any, ...], str]], texts: Mapping[str, str], otherwise: str) -> str:
    """Return rules that give every array its text, each by the shortest suffix that distinguishes its path. A number in
    a path becomes a wildcard if the layers are alike."""

    def alike(key):
        return re.sub(r"\d+", r"\\d+", re.escape(str(key)))

    rows = [(tuple(map(alike, path)), path, texts[name]) for path, name in paths]
    rules: dict[str, str] = {}
    for general, path, text in rows:
        if text == otherwise:
            continue
        exact = tuple(re.escape(str(key)) for key in path)
        ends = [general[-n:] for n in range(1, len(general) + 1)]
        alone = (end for end in ends if {t for other, _, t in rows if other[-len(end) :] == end} == {text})
        rules.setdefault("/".join(next(alone, exact)), text)
    ordered = sorted(rules.items(), key=lambda rule: -rule[0].count("/"))

    def quoted(rule):
        return repr(rule) if '"' in rule or rule.endswith("\\") else f'r"{rule}"'

    return "[\n" + "".join(f"    ({quoted(rule)}, {text}),\n" for rule, text in ordered) + "]"


def written_lines(bound: PlanRecord, traced: Traced) -> list[str]:
    """Return for each constraint the line and the code to insert: `model.py, after line 64: h = ...`."""
    return [
        f"{placed.target.frame.short.rpartition(':')[0]}, {where}: {code}"
        for each, placed in _pairs(bound, traced)
        for where, code in [_written(each, placed)]
    ]


def _written(each: Constrained, placed: Placed) -> tuple[str, str]:
    target = placed.target
    code = f"jax.lax.with_sharding_constraint({target.label}, {each.spec_text})"
    if _own_line(placed):
        return f"after line {target.statement.last}", f"{target.variable} = {code}"
    return f"in line {target.line}, in place of {target.label}", code


def _pairs(bound: PlanRecord, traced: Traced) -> list[tuple[Constrained, Placed]]:
    by_value = {(p.target.label, p.target.frame): p for p in traced.placed}
    return [(each, by_value[each.name, each.source]) for each in bound.constraints]


def _own_line(placed: Placed) -> bool:
    """Return whether a variable's statement is alone on its lines, so that another line can follow."""
    target = placed.target
    lines = [line.encode() for line in linecache.getlines(target.file)]
    statement = target.statement
    before = lines[statement.first - 1][: statement.start]
    behind = lines[statement.last - 1][statement.end :].strip()
    return bool(target.variable) and not before.strip() and (not behind or behind.startswith(b"#"))


def reconstrained_lines(traced: Traced) -> list[str]:
    """Return for each of the function's own constraints that a variant changes the line and the new code."""
    lines = []
    for frame, each in traced.reconstrained:
        calls = _calls(frame, each, traced)
        for call in calls:
            value, of = ast.unparse(call.args[0]), ast.unparse(call.func)
            instead = value if each.after is None else f"{of}({value}, {Spec(each.after)})"
            lines.append(f"{frame.short}: {instead} in place of {ast.unparse(call)}")
        if not calls:
            what = "no constraint" if each.after is None else f"a constraint to {Spec(each.after)}"
            only = ", where it is to that and to no other spec" if _others(frame, each, traced) else ""
            lines.append(f"{frame.short}: {what} in place of that to {Spec(each.before)}{only}")
    return lines


def _calls(frame: Frame, each: Reconstrained, traced: Traced) -> list[ast.Call]:
    """Return the calls in the source that make a constraint; empty if they are unknown, or make other constraints
    too."""
    calls = constraint_calls(frame.file, frame.line)
    same = [call for call in calls if ast.unparse(call.args[1]).endswith(f"P{str(Spec(each.before))[1:]}")]
    return same or (calls if len(calls) == 1 and not _others(frame, each, traced) else [])


def _others(frame: Frame, each: Reconstrained, traced: Traced) -> bool:
    """Return whether the line of a changed constraint also makes constraints to other specs."""
    here = [c.spec.dims for c in traced.constraints if c.source is not None and c.source.bare == frame.bare]
    return any(dims not in (each.before, each.after) for dims in here)
