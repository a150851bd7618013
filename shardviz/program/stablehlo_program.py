"""A program that is StableHLO already: its arguments, constraints, mesh and shardings, read from the module.

There is no Python function behind it and no jaxpr, so nothing is traced: a plan edits the module's main function, as it
does for a function that was lowered here. What is written inside (constraints, `shard_map`s) stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
from jax.extend.mlir import ir

from shardviz import _jax
from shardviz.errors import MeshError, TraceError
from shardviz.notation import DeviceMesh, Spec
from shardviz.notation.spec import DEVICE_MEMORY, PlacedSpec
from shardviz.program.call import Brings, Call, Notes
from shardviz.program.module import (
    GROUPS,
    Place,
    argument_names,
    attributes_of,
    axis_names,
    call_target,
    complete,
    items,
    main_of,
    mesh_in,
    place_of,
    spec_of,
    with_one_mesh,
    write_over,
)
from shardviz.program.trace import Argument, Constraint, Traced
from shardviz.records.phases import is_differentiated

_TRIVIAL = re.compile(r"^\{(replicated|manual|maximal.*|)\}$|^$")


@dataclass(frozen=True, kw_only=True)
class Outline:
    """What is known of a lowered program beside its module.

    Attributes:
        name: the function's name.
        avals, out_avals: abstract values of the flat arguments, of fixed shape, and of the flat results.
        in_tree, out_tree: the tree of (positional arguments, keyword arguments), and of the result.
        kept: which of the arguments the module still takes.
        mesh: the mesh that its shardings are over, where more is known of it than the module tells.
        platform: which of its platforms to settle on.
        notes: as `Call.notes`.
    """

    name: str
    avals: tuple[Any, ...]
    out_avals: tuple[Any, ...]
    in_tree: Any
    out_tree: Any
    kept: tuple[int, ...]
    mesh: DeviceMesh | None = None
    platform: int = 0
    notes: Notes | None = None


Refine = Callable[[bytes], Any]


def call_of(
    module: Any,
    outline: Outline,
    *,
    mesh: DeviceMesh | None = None,
    refine: Refine = _jax.refined,
) -> Call:
    """A lowered program (StableHLO as JAX lowers it, which is changed) as a `Call`, its axes those of a person's mesh;
    `refine` settles the module's dynamic shapes. Raises TraceError if the module is for GSPMD, has ordered effects, or
    has dynamic shapes that do not settle; MeshError if the module's shardings cannot be written over `mesh`."""
    with module.context, ir.Location.unknown():
        located = argument_names(module, len(outline.kept))
        pending = complete(module, outline.avals, outline.kept, outline.platform)
        if pending:
            module = refine(_jax.bytecode(module.operation))
    with module.context, ir.Location.unknown():
        module = with_one_mesh(module)
    with module.context, ir.Location.unknown():
        own = mesh_in(module)
        if outline.mesh is not None and own is not None and outline.mesh.shape == own.shape:
            own = outline.mesh
        if mesh is not None and own is not None and not set(own.names) <= set(mesh.names):
            write_over(module, own, mesh, outline.name)
            own = mesh
        reading = _ModuleWalk(module, outline)
        called = names(outline.in_tree, outline.kept, located)
        traced = reading.traced(called)
        specs, out_specs = reading.specs()
    traced = replace(traced, mesh=own)
    brings = Brings(
        mesh or own or DeviceMesh(("device",), (1,)),
        specs if any(s is not None for s in specs) else (),
        jax.tree.unflatten(outline.out_tree, out_specs),
        f"the shardings that {outline.name} was exported with",
    )
    traced_for = _TracedFor(traced, own, frozenset(reading.axes))
    args, kwargs = jax.tree.unflatten(outline.in_tree, [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in outline.avals])
    call = Call(None, args, kwargs, outline.name, "exported", brings=brings, traced_for=traced_for)
    return call if outline.notes is None else replace(call, notes=outline.notes)


@dataclass(frozen=True)
class _TracedFor:
    """Gives the `Traced` for a mesh, if the module can stand on it."""

    traced: Traced
    mesh: DeviceMesh | None
    axes: frozenset[str]

    def __call__(self, mesh: DeviceMesh | None) -> Traced:
        if mesh is None:
            return self.traced
        name = self.traced.name
        if lost := sorted(self.axes - set(mesh.names)):
            raise MeshError(
                f"{name}: what is lowered already keeps its sharding constraints, which name the mesh "
                f"{'axis' if len(lost) == 1 else 'axes'} {', '.join(map(repr, lost))}; the mesh {mesh} has none of "
                f"that name. Keep the names of {self.mesh}, or explore the function itself"
            )
        if self.traced.sized and self.mesh is not None and mesh.shape != self.mesh.shape:
            raise MeshError(
                f"{name}: the shard_map inside was lowered for the mesh {self.mesh} and holds the shapes of its "
                f"devices; for the mesh {mesh} explore the function itself"
            )
        return self.traced


def names(in_tree: Any, kept: Sequence[int], located: Sequence[str | None]) -> list[str]:
    """A name for each flat argument, none twice: of its location (`located`, of those `kept`), or its tree path."""
    positional, keyword = jax.tree.unflatten(in_tree, list(range(in_tree.num_leaves)))
    paths = jax.tree_util.tree_flatten_with_path(positional)[0]
    trees = ["args" + jax.tree_util.keystr(path) for path, _ in paths]
    for path, _ in jax.tree_util.tree_flatten_with_path(keyword)[0]:
        trees.append(f"{path[0].key}{jax.tree_util.keystr(path[1:])}")
    named = dict(zip(kept, located, strict=True))
    unique = [named.get(flat) or path for flat, path in enumerate(trees)]
    return unique if len(set(unique)) == len(unique) else trees


def result_names(out_tree: Any) -> list[str]:
    """The tree path of each flat result."""
    tree = jax.tree.unflatten(out_tree, list(range(out_tree.num_leaves)))
    return ["result" + jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_flatten_with_path(tree)[0]]


class _ModuleWalk:
    def __init__(self, module: Any, outline: Outline):
        self.module, self.outline = module, outline
        self.constraints: list[Constraint] = []
        self.axes: set[str] = set()
        self.sized = False
        self.gspmd = ""
        self.main = main_of(module)
        self.places: dict[Any, Place] = {}
        for op in _jax.walk(module.operation):  # each function once, where a Walker would read it for each call
            self._visit(op, place_of(op.location, self.places))
        if self.gspmd:
            raise TraceError(
                f"{outline.name} was lowered for GSPMD: it has the sharding {self.gspmd}, and none that Shardy reads. "
                "Export it again with jax_use_shardy_partitioner=True, JAX's default"
            )

    def _visit(self, op: ir.Operation, place: Place) -> None:
        name = op.name
        if name == "sdy.manual_computation" or (
            name == "stablehlo.custom_call" and call_target(op) == "SPMDFullToShardShape"
        ):
            self.sized = True
        if name == "sdy.sharding_constraint":
            spec = spec_of(op.attributes["sharding"])
            shape = tuple(ir.RankedTensorType(op.operands[0].type).shape)
            self.constraints.append(Constraint(shape, spec, place.frame))
        if name in ("sdy.mesh", "builtin.module"):
            return
        if name == "func.func":
            for entry in (*attributes_of(op, "arg_attrs", 0), *attributes_of(op, "res_attrs", 0)):
                if "sdy.sharding" not in entry:
                    self._hlo(str(entry.get("mhlo.sharding", "")))
                elif op != self.main:  # of the main function plans write them
                    self.axes |= axis_names(str(entry["sdy.sharding"]))
            return
        for key, attribute in items(op):
            text = str(attribute)
            if "mhlo.sharding" in key:
                self._hlo(text)
            elif "#sdy" in text or GROUPS in text:
                self.axes |= axis_names(text)

    def _hlo(self, text: str) -> None:
        if not _TRIVIAL.match(text.strip('"')):
            self.gspmd = text.strip('"')

    def traced(self, called: Sequence[str]) -> Traced:
        outline = self.outline
        attributes = attributes_of(self.main, "arg_attrs", len(called))
        donated = [any(k in a for k in ("jax.buffer_donor", "tf.aliasing_output")) for a in attributes]
        ins = tuple(
            Argument(name, tuple(a.shape), str(a.dtype), gone)
            for name, a, gone in zip(called, outline.avals, donated, strict=True)
        )
        results, kinds = result_names(outline.out_tree), self._memory("res_attrs", len(outline.out_avals))
        outs = tuple(
            Argument(name, tuple(a.shape), str(a.dtype), memory_kind=kind)
            for name, a, kind in zip(results, outline.out_avals, kinds, strict=True)
        )
        return Traced(
            outline.name,
            ins,
            outs,
            jax.tree.unflatten(outline.in_tree, called),
            jax.tree.unflatten(outline.out_tree, [o.name for o in outs]),
            tuple(self.constraints),
            (),
            None,
            is_differentiated(place.name_stack for place in self.places.values()),
            None,
            self.sized,
            _jax.bytecode(self.module.operation),
            keeps=(True,) * len(ins),
        )

    def specs(self) -> tuple[tuple[Spec | None, ...], list[Spec | None]]:
        """The shardings on the main function's arguments and results, in the ranks that JAX shows."""

        def read(which: str, avals: Sequence[Any]) -> list[Spec | None]:
            specs: list[Spec | None] = []
            for entry, aval in zip(attributes_of(self.main, which, len(avals)), avals, strict=True):
                sharding = entry.get("sdy.sharding")
                spec = None if sharding is None else spec_of(sharding)
                specs.append(None if spec is None else spec.with_dims(spec.dims[: len(aval.shape)]))
            return specs

        ins = read("arg_attrs", self.outline.avals)
        for place, kind in enumerate(self._memory("arg_attrs", len(ins))):
            if kind != DEVICE_MEMORY:
                cut = ins[place] or Spec()
                ins[place] = PlacedSpec(cut.dims, cut.unreduced, (), cut.unreduced_kind, kind)
        return tuple(ins), read("res_attrs", self.outline.out_avals)

    def _memory(self, which: str, count: int) -> list[str]:
        """The memory that each argument or result of the main function is in."""
        kinds = (a.get("mhlo.memory_kind") for a in attributes_of(self.main, which, count))
        return [DEVICE_MEMORY if kind is None else ir.StringAttr(kind).value for kind in kinds]
