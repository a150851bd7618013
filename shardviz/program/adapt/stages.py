"""`jax.stages.Traced` and `jax.stages.Lowered`, taken as they are: the jaxpr of the one, the module of the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax.sharding import NamedSharding

from shardviz import _jax
from shardviz.errors import ShardvizError, TraceError
from shardviz.notation import DeviceMesh, Spec
from shardviz.program import ready
from shardviz.program.adapt.call import Brings, Call, Options

STAGES = (jax.stages.Traced, jax.stages.Lowered, jax.stages.Compiled)


def adapt(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options) -> Call | None:
    """A stage of `jax.jit`: traced, or lowered.

    Raises:
        TraceError: for a compiled one, in which nothing can be changed; if arguments or options are given, which a
            stage has already; or as `ready.call_of`.
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
    outline = ready.Outline(
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
    return ready.call_of(module, outline)


def _specs(shardings: Sequence[Any]) -> tuple[tuple[Spec | None, ...], DeviceMesh | None]:
    """A spec or None for each sharding, and the first mesh among them."""
    named = [s if isinstance(s, NamedSharding) else None for s in shardings]
    mesh = next((DeviceMesh.of(s.mesh) for s in named if s is not None and s.mesh.axis_names), None)
    return tuple(None if s is None else Spec.of(s.spec) for s in named), mesh
