"""Programs that JAX has staged: a `jax.stages.Traced` or `Lowered`, and what `jax.export` made.

Of a trace the jaxpr is taken as it is, of the others the module, which is read and never called. An export may be for
several platforms and for any batch size. Where its file is not to be trusted, whoever loads it has it read in a process
of its own first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.export
from jax.sharding import NamedSharding

from shardviz import _jax
from shardviz.errors import ShardvizError, SpecError, TraceError
from shardviz.notation import DeviceMesh, Spec
from shardviz.program import stablehlo_program, symbols
from shardviz.program.call import Brings, Call, Options, abstract_tree
from shardviz.program.module import assertions
from shardviz.records import Diagnostic

STAGES = (jax.stages.Traced, jax.stages.Lowered, jax.stages.Compiled)


def adapt(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options) -> Call | None:
    """A stage of `jax.jit`: traced, or lowered.

    Raises:
        TraceError: for a compiled one, in which nothing can be changed; if arguments or options are given, which a
            stage has already; or as `stablehlo_program.call_of`.
    """
    if not isinstance(fn, STAGES):
        return None
    kind = type(fn).__name__
    if args or kwargs or options:
        given = "arguments" if args or kwargs else ", ".join(options.given())
        raise TraceError(f"a jax.stages.{kind} has its arguments and options already; leave out the {given}")
    if isinstance(fn, jax.stages.Compiled):
        raise TraceError(
            "a jax.stages.Compiled is finished, so no plan can be tried on it: sv.analyze(compiled) says what is in "
            "it; for plans give the function, or what its .trace(...) or .lower(...) returned"
        )
    if isinstance(fn, jax.stages.Lowered):
        return _lowered(fn)
    if _jax.has_shard_map(fn.jaxpr.jaxpr) or _jax.in_types(fn):  # its mesh is part of the jaxpr
        try:
            return _lowered(fn.lower(lowering_platforms=("cpu",)))
        except ShardvizError:
            raise
        except Exception as error:  # whatever keeps JAX from lowering it
            raise TraceError(f"{fn.fun_name} cannot be lowered: {error}") from error
    return _traced(fn)


@dataclass(frozen=True)
class _Given:
    """What `Call.fn` is for a function that JAX has traced already."""

    traced: Any

    def trace(self, *_args: Any, **_kwargs: Any) -> Any:
        """The trace that was given."""
        return self.traced


def _traced(traced: Any) -> Call:
    leaves, tree = jax.tree.flatten(traced.args_info)
    args, kwargs = jax.tree.unflatten(tree, [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in leaves])
    ins, outs = _jax.traced_shardings(traced)
    specs, mesh = _specs(ins[len(ins) - len(leaves) :])
    out_specs, out_mesh = _specs(outs)
    brings = Brings(
        mesh or out_mesh,
        specs if any(s is not None for s in specs) else (),
        jax.tree.unflatten(traced.out_tree, list(out_specs)),
        f"the shardings that {traced.fun_name} was traced with",
    )
    return Call(_Given(traced), args, kwargs, traced.fun_name, "traced", brings=brings)


def _lowered(lowered: Any) -> Call:
    facts = _jax.lowered_facts(lowered)
    source = lowered.compiler_ir("stablehlo")
    if source is None:
        raise TraceError("this jax.stages.Lowered has no StableHLO; give the function itself")
    symbol = (
        str(source.operation.attributes["sym_name"]).strip('"') if "sym_name" in source.operation.attributes else ""
    )
    name = facts.name or symbol.removeprefix("jit_") or "lowered"
    if facts.constants:
        raise TraceError(
            f"{name} takes {facts.constants} of its constants as arguments (jax_use_simplified_jaxpr_constants); give "
            "the function itself"
        )
    if _jax.symbols_of(facts.avals):
        raise TraceError(
            f"{name} has symbolic dimensions ({', '.join(_jax.symbols_of(facts.avals))}), which a lowering keeps open; "
            "export it with jax.export and give them values: sv.load(exported).program(symbols=...)"
        )
    module = _jax.module_from(_jax.bytecode(source.operation))  # a copy: JAX keeps the module for its own compile
    outline = stablehlo_program.Outline(
        name,
        "lowered",
        facts.avals,
        facts.out_avals,
        lowered.in_tree,
        lowered.out_tree,
        facts.kept,
        tuple(bool(a.donated) for a in jax.tree.leaves(lowered.args_info)),
        facts.names,
    )
    return stablehlo_program.call_of(module, outline)


def _specs(shardings: Sequence[Any]) -> tuple[tuple[Spec | None, ...], DeviceMesh | None]:
    """A spec or None for each sharding, and the first mesh among them."""
    named = [s if isinstance(s, NamedSharding) else None for s in shardings]
    mesh = next((DeviceMesh.of(s.mesh) for s in named if s is not None and s.mesh.axis_names), None)
    return tuple(None if s is None else Spec.of(s.spec) for s in named), mesh


def held_by(fn: Any) -> Any:
    """A `jax.export.Exported`, or the one that something holds as its attribute `exported`; None for anything else."""
    found = fn if isinstance(fn, jax.export.Exported) else getattr(fn, "exported", None)
    return found if isinstance(found, jax.export.Exported) else None


def adapt_exported(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options) -> Call | None:
    """A `jax.export.Exported`, or what holds one as its attribute `exported`.

    Arguments are needed only where dimensions are symbolic: their shapes say what the symbols stand for.

    Raises:
        TraceError: if arguments are given that do not fit, or options, which an export has fixed.
        SpecError: if dimensions are symbolic and no arguments are given.
    """
    exported = held_by(fn)
    if exported is None:
        return None
    if options:
        raise TraceError(
            f"{exported.fun_name} is exported: {', '.join(options.given())} cannot be changed any more; leave it out"
        )
    if not args and not kwargs and exported.in_tree.num_leaves:
        return call_of(exported)
    given, named = abstract_tree("argument ", args), abstract_tree("", kwargs)
    try:
        jax.eval_shape(exported.call, *given, **named)
    except Exception as error:  # whatever JAX finds wrong with the arguments
        raise TraceError(f"{exported.fun_name} cannot be called so: {error}") from error
    shapes = [tuple(getattr(leaf, "shape", ())) for leaf in jax.tree.leaves((given, named))]
    return _exported(exported, shapes, None)


def call_of(
    exported: Any,
    values: Mapping[str, int] | None = None,
    mesh: DeviceMesh | None = None,
) -> Call:
    """An export as a `Call`.

    Args:
        exported: the export.
        values: a value for every symbolic dimension.
        mesh: the mesh to write its shardings over; None for its own.

    Raises:
        SpecError: if a symbolic dimension has no value, or one that breaks a constraint.
        TraceError, MeshError: as `stablehlo_program.call_of`.
    """
    names = _jax.symbols_of(exported.in_avals)
    found: tuple[symbols.Constraint, ...] = ()
    if names:
        module = _jax.exported_module(exported.mlir_module_serialized)
        with module.context:
            found = symbols.constraints(assertions(module), _jax.constraints_of(exported.in_avals))
    settled = symbols.check(exported.fun_name, names, values, found)
    shapes = [tuple(_jax.evaluated(d, settled) for d in aval.shape) for aval in exported.in_avals]
    return _exported(exported, shapes, mesh)


def _exported(exported: Any, shapes: list[tuple[int, ...]], mesh: DeviceMesh | None) -> Call:
    try:
        module = _jax.exported_module(exported.mlir_module_serialized)
    except Exception as error:  # MLIR says in its own words what is wrong
        raise TraceError(f"{exported.fun_name}: its module cannot be read here: {error}") from error
    avals = tuple(_jax.with_shape(aval, shape) for shape, aval in zip(shapes, exported.in_avals, strict=True))
    outs = _out_avals(exported, avals)
    platforms = tuple(exported.platforms)
    outline = stablehlo_program.Outline(
        exported.fun_name,
        "exported",
        avals,
        outs,
        exported.in_tree,
        exported.out_tree,
        tuple(exported.module_kept_var_idx),
        mesh=mesh_of(exported),
        platform=platforms.index("cpu") if "cpu" in platforms else 0,
    )
    return stablehlo_program.call_of(
        module, outline, mesh=mesh, notes=_notes(exported), refine=_told(exported.fun_name)
    )


def _out_avals(exported: Any, avals: tuple[Any, ...]) -> tuple[Any, ...]:
    if not _jax.symbols_of(exported.out_avals):
        return tuple(exported.out_avals)
    args, kwargs = jax.tree.unflatten(exported.in_tree, [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in avals])
    try:
        return tuple(jax.tree.leaves(jax.eval_shape(exported.call, *args, **kwargs)))
    except Exception as error:  # a constraint that the module alone knows
        raise SpecError(f"{exported.fun_name}: {error}") from error


def mesh_of(exported: Any) -> DeviceMesh | None:
    """The mesh of an export's named shardings; None where it has none."""
    for sharding in (s for found in _jax.export_shardings(exported) for s in found):
        if isinstance(sharding, jax.sharding.NamedSharding) and sharding.mesh.axis_names:
            return DeviceMesh.of(sharding.mesh)
    return None


def _notes(exported: Any) -> tuple[Diagnostic, ...]:
    if "cpu" in exported.platforms:
        return ()
    return (
        Diagnostic(
            "other-platform",
            "info",
            f"{exported.fun_name} was exported for {', '.join(exported.platforms)} and not for cpu, so what it calls "
            "by name (custom calls) may be unknown to the compiler that is used here",
        ),
    )


def _told(name: str) -> Callable[[bytes], Any]:
    """`_jax.refined` with its errors in words: the shape assertion that does not hold."""

    def told(module: bytes) -> Any:
        try:
            return _jax.refined(module)
        except ShardvizError:
            raise
        except Exception as error:  # XLA's refinement says it in the text of the cause
            said = str(error.__cause__ or error)
            raise SpecError(f"{name}: its shapes do not settle: {_first(said)}") from error

    return told


def _first(text: str) -> str:
    """The sentence of a failed assertion, or the first line."""
    start = text.find("Input shapes do not match")
    sentence = text[start:] if start >= 0 else text
    return sentence.split(" Using the following", 1)[0].splitlines()[0].strip()
