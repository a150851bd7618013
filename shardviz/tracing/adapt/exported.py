"""Exports of `jax.export`, which are StableHLO: arguments, constraints, mesh and shardings are read from the module.

An export has no Python function and no jaxpr, so nothing is traced or called: a plan edits the module's main function,
as for a function that was lowered here. Constraints and `shard_map`s inside are unchanged. An export may be for several
platforms and for any batch size. Files that are not trusted are first read in a separate process.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.export

from shardviz import _jax
from shardviz._jax.mlir import ir
from shardviz.errors import MeshError, ShardvizError, SpecError, TraceError
from shardviz.notation import DeviceMesh, Spec
from shardviz.notation.spec import DEVICE_MEMORY, placed
from shardviz.records import Finding
from shardviz.records.phases import is_differentiated
from shardviz.stablehlo import module as stablehlo
from shardviz.stablehlo.donations import is_donated
from shardviz.tracing.call import Brings, Call, JitOptions, Notes, abstract_tree, specs_of
from shardviz.tracing.signature import named_tree
from shardviz.tracing.trace import Argument, Constraint, Traced

_TRIVIAL = re.compile(r"^\{(replicated|manual|maximal.*|)\}$|^$")


def held_by(fn: Any) -> Any:
    """Return a `jax.export.Exported`, given itself or an object with it as the attribute `exported`; None for other
    objects."""
    exported = fn if isinstance(fn, jax.export.Exported) else getattr(fn, "exported", None)
    return exported if isinstance(exported, jax.export.Exported) else None


def adapt(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], options: JitOptions) -> Call | None:
    """Return a `jax.export.Exported`, or an object with one as its attribute `exported`, as a `Call`. Arguments are
    needed only if dimensions are symbolic. Raises TraceError if they do not fit, or if options are given, which an
    export has fixed; SpecError if arguments are missing."""
    exported = held_by(fn)
    if exported is None:
        return None
    if options:
        raise TraceError(
            f"{exported.fun_name} is exported: {', '.join(options.given())} cannot be changed any more; leave it out"
        )
    if not args and not kwargs and exported.in_tree.num_leaves:
        return call_of(exported)
    positional, named = abstract_tree("argument ", args), abstract_tree("", kwargs)
    try:
        jax.eval_shape(exported.call, *positional, **named)
    except Exception as error:  # whatever JAX finds wrong with the arguments
        raise TraceError(f"{exported.fun_name} cannot be called so: {error}") from error
    return _exported(exported, [tuple(getattr(x, "shape", ())) for x in jax.tree.leaves((positional, named))])


def call_of(exported: Any, values: Mapping[str, int] | None = None) -> Call:
    """Return an export as a `Call`, with `values` for its symbolic dimensions. Raises SpecError if a symbolic dimension
    has no value, or one that breaks a constraint; TraceError if the module is for GSPMD or has ordered effects."""
    settled = symbol_values(exported.fun_name, _jax.symbols_of(exported.in_avals), values)
    shapes = [tuple(_jax.evaluated(d, settled) for d in aval.shape) for aval in exported.in_avals]
    return _exported(exported, shapes)


def _exported(exported: Any, shapes: Sequence[tuple[int, ...]]) -> Call:
    name, kept, platforms = exported.fun_name, tuple(exported.module_kept_var_idx), tuple(exported.platforms)
    try:
        module = _jax.exported_module(exported.mlir_module_serialized)
    except Exception as error:  # MLIR says in its own words what is wrong
        raise TraceError(f"{name}: its module cannot be read here: {error}") from error
    avals = tuple(aval.update(shape=shape) for shape, aval in zip(shapes, exported.in_avals, strict=True))
    platform = platforms.index("cpu") if "cpu" in platforms else 0
    exported_mesh = mesh_of(exported)
    with module.context, ir.Location.unknown():
        located = stablehlo.argument_names(module, len(kept))
        if stablehlo.complete(module, avals, kept, platform):
            module = _refined(name, _jax.bytecode(module.operation))
    with module.context, ir.Location.unknown():
        stablehlo.with_one_mesh(module)
        own = stablehlo.mesh_in(module)
        if exported_mesh is not None and own is not None and exported_mesh.shape == own.shape:
            own = exported_mesh  # of which more is known than the module tells
        constraints, axes, is_sized, differentiated = _inside(module, name)
        called, results = names_of(exported.in_tree, kept, located), result_names(exported.out_tree)
        types = zip(exported.out_avals, stablehlo.function_type(stablehlo.main_of(module)).results, strict=True)
        out_avals = [a.update(shape=tuple(ir.RankedTensorType(t).shape)[: a.ndim]) for a, t in types]
        ins = stablehlo.attributes_of(stablehlo.main_of(module), "arg_attrs", len(avals))
        outs = stablehlo.attributes_of(stablehlo.main_of(module), "res_attrs", len(out_avals))
        traced = Traced(
            name,
            tuple(
                Argument(n, tuple(a.shape), _jax.dtype_name(a.dtype), is_donated(e))
                for n, a, e in zip(called, avals, ins, strict=True)
            ),
            tuple(
                Argument(n, tuple(a.shape), _jax.dtype_name(a.dtype), memory_kind=_memory(e))
                for n, a, e in zip(results, out_avals, outs, strict=True)
            ),
            jax.tree.unflatten(exported.in_tree, called),
            jax.tree.unflatten(exported.out_tree, results),
            constraints,
            (),
            None,
            differentiated,
            own,
            is_sized,
            _jax.bytecode(module.operation),
            keeps=(True,) * len(avals),
        )
        specs = tuple(
            spec if (kind := _memory(e)) == DEVICE_MEMORY else placed(spec or Spec(), kind)
            for spec, e in zip(_specs(ins, avals), ins, strict=True)
        )
        out_specs = _specs(outs, out_avals)
    brings = Brings(
        own or DeviceMesh(("device",), (1,)),
        specs if any(s is not None for s in specs) else (),
        jax.tree.unflatten(exported.out_tree, out_specs),
        f"the shardings that {name} was exported with",
    )
    args, kwargs = jax.tree.unflatten(exported.in_tree, [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in avals])
    notes = _notes(name, platforms, platforms[platform], int(exported.nr_devices))
    traced_for = _traced_for(traced, own, axes)
    return Call(None, args, kwargs, name, "exported", brings=brings, notes=notes, traced_for=traced_for)


def mesh_of(exported: Any) -> DeviceMesh | None:
    """Return the mesh of an export's named shardings; None if it has none."""
    return specs_of(s for shardings in _jax.export_shardings(exported) for s in shardings)[1]


def _notes(name: str, platforms: tuple[str, ...], settled: str, devices: int) -> Notes:
    """Return a function that gives JAX's objections to calling the export on a plan's mesh and platform."""

    def notes(mesh: DeviceMesh, platform: str) -> tuple[Finding, ...]:
        findings = []
        if devices not in (1, mesh.size):
            text = (
                f"{name} was exported for {devices} devices, and the mesh {mesh} has {mesh.size}: JAX refuses to call "
                f"it there. To run it on {mesh.size}, export the function again for a mesh of that size"
            )
            findings.append(Finding("exported-devices", "warning", text))
        calls = "so its custom calls may be unknown to the compiler that is used here"
        if platform not in platforms:
            text = f"{name} was exported for {', '.join(platforms)} and not for {platform}, {calls}"
            findings.append(Finding("other-platform", "note", text))
        elif platform != settled:
            text = f"{name} was exported for {', '.join(platforms)}, and its code for {settled} is explored, {calls}"
            findings.append(Finding("other-platform", "note", text))
        return tuple(findings)

    return notes


def _refined(name: str, module: bytes) -> Any:
    """Return the refined module, as `_jax.refined` does; the error names the shape assertion that does not hold."""
    try:
        return _jax.refined(module)
    except ShardvizError:
        raise
    except Exception as error:  # XLA's refinement says it in the text of the cause
        message = str(error.__cause__ or error)
        sentence = message[max(message.find("Input shapes do not match"), 0) :].split(" Using the following", 1)[0]
        raise SpecError(f"{name}: its shapes do not settle: {sentence.splitlines()[0].strip()}") from error


def _traced_for(traced: Traced, own: DeviceMesh | None, axes: frozenset[str]) -> Callable[[DeviceMesh | None], Traced]:
    """Return a function from a mesh to the `Traced`, which raises if the module cannot run on the mesh; `own` is the
    module's mesh, and `axes` are the axes that it names."""

    def traced_for(mesh: DeviceMesh | None) -> Traced:
        if mesh is None:
            return traced
        if lost := sorted(axes - set(mesh.names)):
            raise MeshError(
                f"{traced.name}: what is lowered already keeps its sharding constraints, which name the mesh "
                f"{'axis' if len(lost) == 1 else 'axes'} {', '.join(map(repr, lost))}; the mesh {mesh} has none of "
                f"that name. Keep the names of {own}, or explore the function itself"
            )
        if traced.sized and own is not None and mesh.shape != own.shape:
            raise MeshError(
                f"{traced.name}: the shard_map inside was lowered for the mesh {own} and holds the shapes of its "
                f"devices; for the mesh {mesh} explore the function itself"
            )
        return traced

    return traced_for


def names_of(in_tree: Any, kept: Sequence[int], located: Sequence[str | None]) -> list[str]:
    """Return a distinct name for each flat argument: from its location (`located`, for the `kept` arguments), or its
    tree path."""
    positional, keyword = jax.tree.unflatten(in_tree, list(range(in_tree.num_leaves)))
    by_name = {name: named_tree(name, tree) for name, tree in keyword.items()}
    trees = jax.tree.leaves((named_tree("args", positional), by_name))
    named = dict(zip(kept, located, strict=True))
    unique = [named.get(flat) or path for flat, path in enumerate(trees)]
    return unique if len(set(unique)) == len(unique) else trees


def result_names(out_tree: Any) -> list[str]:
    """Return the tree path of each flat result."""
    return jax.tree.leaves(named_tree("result", jax.tree.unflatten(out_tree, list(range(out_tree.num_leaves)))))


def _inside(module: Any, name: str) -> tuple[tuple[Constraint, ...], frozenset[str], bool, bool]:
    """Return a module's constraints, the mesh axes that it names, whether it contains shapes of single devices, and
    whether it takes a derivative. Raises TraceError if it was lowered for GSPMD."""
    constraints, texts, hlo, is_sized = list[Constraint](), list[str](), list[str](), False
    main, places = stablehlo.main_of(module), dict[Any, stablehlo.Place]()
    for op in _jax.walk(module.operation):  # each function once, where a Walker would read it for each call
        place, target = (
            stablehlo.place_of(op.location, places),
            stablehlo.call_target(op) if op.name == "stablehlo.custom_call" else "",
        )
        is_sized |= op.name == "sdy.manual_computation" or target == "SPMDFullToShardShape"
        if op.name == "sdy.sharding_constraint":
            shape = tuple(ir.RankedTensorType(op.operands[0].type).shape)
            constraints.append(Constraint(shape, stablehlo.spec_of(op.attributes["sharding"]), place.frame))
        if op.name == "func.func":
            entries = [entry for which in stablehlo.ENDS.values() for entry in stablehlo.attributes_of(op, which, 0)]
            hlo += [str(entry.get("mhlo.sharding", "")) for entry in entries if "sdy.sharding" not in entry]
            if op != main:  # of the main function plans write them
                texts += [str(entry["sdy.sharding"]) for entry in entries if "sdy.sharding" in entry]
        elif op.name not in ("sdy.mesh", "builtin.module"):
            for key, text in ((key, str(attribute)) for key, attribute in stablehlo.items(op)):
                if "mhlo.sharding" in key:
                    hlo.append(text)
                elif "#sdy" in text or stablehlo.GROUPS in text:
                    texts.append(text)
    if gspmd := [text.strip('"') for text in hlo if not _TRIVIAL.match(text.strip('"'))]:
        raise TraceError(
            f"{name} was lowered for GSPMD: it has the sharding {gspmd[-1]}, and none that Shardy reads. Export it "
            "again with jax_use_shardy_partitioner=True, JAX's default"
        )
    axes = frozenset().union(*map(stablehlo.axis_names, texts))
    return tuple(constraints), axes, is_sized, is_differentiated(place.name_stack for place in places.values())


def _specs(entries: Sequence[Mapping[str, Any]], avals: Sequence[Any]) -> list[Spec | None]:
    """Return the specs of the main function's arguments or results, in the ranks that JAX shows."""
    specs = [stablehlo.spec_of(entry["sdy.sharding"]) if "sdy.sharding" in entry else None for entry in entries]
    pairs = zip(specs, avals, strict=True)
    return [spec and spec.with_dims(spec.dims[: len(aval.shape)]) for spec, aval in pairs]


def _memory(entry: Mapping[str, Any]) -> str:
    """Return the memory kind of an argument or result of the main function."""
    return ir.StringAttr(entry["mhlo.memory_kind"]).value if "mhlo.memory_kind" in entry else DEVICE_MEMORY


_AT_LEAST = re.compile(r"Expected value >= (\d+) for dimension variable '(\w+)'")
_WRITTEN = re.compile(r"the symbolic shape constraint (.+?)\. Expected '")


def symbol_constraints(assertions: Iterable[str], written: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the constraints on a program's symbolic dimensions: the `written` ones, and those that its module checks,
    of which a file has only the messages.

    >>> symbol_constraints(["Expected value >= 8 for dimension variable 'b'"], ["mod(b, 4) == 0"])
    ('mod(b, 4) == 0', 'b >= 8')
    """
    texts = list(written)
    for message in assertions:
        if match := _AT_LEAST.search(message):
            texts.append(f"{match[2]} >= {match[1]}")
        elif match := _WRITTEN.search(message):
            texts.append(match[1])
    unique = {re.sub(r"\s", "", text): text for text in reversed(texts)}
    return tuple(reversed(unique.values()))


def symbol_values(name: str, symbols: Sequence[str], values: Mapping[str, int] | None) -> dict[str, int]:
    """Return the values of a program's symbolic dimensions; the module itself checks its constraints. Raises SpecError,
    which names the dimension, if a value is missing, not a whole number, or of an unknown dimension."""
    values = dict(values or {})
    way = f"give symbols={{{', '.join(f'{symbol!r}: 8' for symbol in symbols)}}} or the like"
    for symbol, value in values.items():
        if symbol not in symbols:
            have = f"it has {', '.join(symbols)}" if symbols else "all its dimensions are fixed"
            raise SpecError(f"{name} has no symbolic dimension {symbol!r}; {have}", argument=symbol)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise SpecError(
                f"{name}: symbolic dimension {symbol} must be a whole number, not {value!r}; {way}", argument=symbol
            )
    if missing := [symbol for symbol in symbols if symbol not in values]:
        which = f"dimension{'s' if len(missing) > 1 else ''} {', '.join(missing)}"
        raise SpecError(f"{name}: no value for the symbolic {which}; {way}", argument=missing[0])
    return {symbol: int(values[symbol]) for symbol in symbols}
