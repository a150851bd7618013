"""Shardy's own record of where each axis came from, and in which step it was handed on.

With two options for debugging Shardy writes onto every array which input or constraint each of its axes came from, and
onto every operation between which operands and results an axis went, in which step. `sdy-propagation-pipeline` refuses
these options, and the pass that takes them does not cross calls: they are inlined first. Nobody else uses these
options: what they say is told only where the run has cut every array as the plain pipeline does, and only after a
process of its own has survived it.

    %1 = stablehlo.tanh %0 {sdy.propagation_edges = #sdy.propagation_edges<[{step-3 = [{"model" = operand-0 ->
        [result-0]}]}]>, sdy.sharding_origins = [{data = "constraint_0", model = "input: 1"}]}
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from jax.extend.mlir import ir
from jax.extend.mlir.passmanager import PassManager

from shardviz import _jax
from shardviz.errors import CompileError
from shardviz.program.links import TAG, Key, manual_place, number_of
from shardviz.program.module import main_of
from shardviz.program.perturb import Perturbed
from shardviz.program.propagate import rehearse_module
from shardviz.program.stablehlo import functions_of
from shardviz.program.uses import cut_of
from shardviz.records.why import AxisWhy, Hop, Recorded, Source

PLAIN = "builtin.module(sdy-propagation-pipeline)"
RECORDING = (
    "builtin.module(sdy-import-pipeline,sdy-apply-sharding-constraints,sdy-user-priority-propagate"
    "{debug-sharding-origins=true debug-propagation-edge-sharding=true},sdy-export-pipeline)"
)
PATH = "shardviz.path"
"""The attribute that says which calls an inlined operation stood in: their numbers."""

_ORIGINS, _EDGES, _NAME = "sdy.sharding_origins", "sdy.propagation_edges", "sdy.sharding_origin_name"
_STEP = re.compile(r"step-(\d+) = \[([^\]\[]*(?:\[[^\]\[]*\][^\]\[]*)*)\]")
_EDGE = re.compile(r'"([^"]*)"(?::\(\d+\)\d+)? = ((?:operand|result)-\d+) -> \[([^\]]*)\]')
_SAID = re.compile(r"(?:(\w+)_)?(input|output): (\d+)")

Place = tuple[tuple[int, ...], int]
"""An operation: the numbers of the calls that lead to it, and its own."""


@dataclass(frozen=True)
class Edge:
    """An axis handed on by an operation.

    Attributes:
        step: the step of Shardy's in which it went.
        axis: the mesh axis.
        of: where it was, `operand-0` or `result-0`.
        to: where it went.
    """

    step: int
    axis: str
    of: str
    to: tuple[str, ...]


@dataclass(frozen=True)
class Record:
    """What Shardy recorded of one program under a plan.

    Attributes:
        arguments: for each argument, axis → where it is from.
        results: operation and which of its results → axis → where it is from.
        edges: operation → what it handed on.
        makers: what Shardy calls a constraint or a shard_map → the number of the operation, and of its operands.
    """

    arguments: tuple[Mapping[str, str], ...]
    results: Mapping[tuple[Place, int], Mapping[str, str]]
    edges: Mapping[Place, tuple[Edge, ...]]
    makers: Mapping[str, tuple[int, int]]

    def told(self, trial: Perturbed, key: Key, answer: AxisWhy) -> Recorded:
        """What is recorded of an axis on a value, beside the answer that was tried."""
        said = self.origin(key, answer.axis)
        steps = tuple(self.step(hop, answer.axis) for hop in answer.chain)
        return Recorded(axis=answer.axis, said=said, source=self._source(trial, said, answer.axis), steps=steps)

    def _source(self, trial: Perturbed, said: str, axis: str) -> Source | None:
        found = _SAID.fullmatch(said)
        name, role, number = (found[1] or "", found[2], int(found[3])) if found else (said, "", 0)
        if name in self.makers:
            tag, operands = self.makers[name]
            manual = manual_place(tag, number + (operands if role == "output" else 0))
            place, roles = (manual, ("shard_map",)) if role else (tag, ("constraint", "type"))
        elif role and not name:
            place, roles = number, ("argument" if role == "input" else "output",)
        else:
            return None
        return next((s for s in trial.sources(axis) if s.role in roles and place in s.places), None)

    def step(self, hop: Hop, axis: str) -> int | None:
        """In which step an axis went where a hop says; None where it went another way."""
        place = hop.places[:-1], hop.places[-1]
        side = "result" if hop.backwards else "operand"
        steps = [e.step for e in self.edges.get(place, ()) if e.axis == axis and e.of.startswith(side)]
        return min(steps, default=None)

    def origin(self, key: Key, axis: str) -> str:
        """Where an axis on a value came from, in Shardy's words: `input: 1`, `constraint_0`, `self`; else empty."""
        if key.kind == "argument":
            return self.arguments[key.place].get(axis, "")
        return self.results.get(((key.calls, key.tag), key.place), {}).get(axis, "") if key.kind == "result" else ""


def recorded(trial: Perturbed) -> Record | None:
    """What Shardy records; None where that run cuts an array otherwise than the plain pipeline, or fails.

    To be called with the trial entered.
    """
    with ir.Location.unknown():
        flat = trial.module.clone()
        inline(flat)
        try:
            rehearse_module(_jax.bytecode(flat), RECORDING)
        except CompileError:
            return None
        plain, found = flat.clone(), flat
        for module, passes in ((plain, PLAIN), (found, RECORDING)):
            pipeline = PassManager.parse(passes)
            pipeline.enable_verifier(False)
            pipeline.run(module)
    trial.runs += 2
    if _cuts(plain) != _cuts(found) or _cuts(plain) != _cuts(trial.run((), passes=PLAIN)):
        return None
    return _read(found)


def inline(module: ir.Operation) -> None:
    """Puts the body of every function where it is called; each operation then says in `PATH` which calls it was in."""
    main, functions = main_of(module), functions_of(module)
    while calls := [op for op in _walked(main) if op.name == "func.call"]:
        for call in calls:
            _inlined(call, functions[ir.FlatSymbolRefAttr(call.attributes["callee"]).value])
    for name, function in functions.items():
        if name != "main":
            function.operation.erase()


def _inlined(call: ir.Operation, function: Any) -> None:
    (block,) = function.regions[0].blocks
    path = (*_path(call), number_of(call))
    known = dict(zip(block.arguments, call.operands, strict=True))
    said = ir.DenseI64ArrayAttr.get(list(path))
    with ir.InsertionPoint(call):
        *body, end = block.operations
        for op in body:
            copy = op.operation.clone()
            for old, new in zip(_walked(op.operation), _walked(copy), strict=True):
                for n, value in enumerate(old.operands):
                    if value in known:
                        new.operands[n] = known[value]
                new.attributes[PATH] = (
                    ir.DenseI64ArrayAttr.get([*path, *_path(old)]) if PATH in old.attributes else said
                )
            known.update(zip(op.operation.results, copy.results, strict=True))
    for result, value in zip(call.results, end.operands, strict=True):
        result.replace_all_uses_with(known[value])
    call.erase()


def _walked(root: Any) -> list[Any]:
    """An operation and those inside it, in order."""
    found: list[Any] = []

    def visit(op: ir.Operation) -> Any:
        found.append(op)
        return ir.WalkResult.ADVANCE

    _jax.walk(root, visit, ir.WalkOrder.PRE_ORDER)
    return found


def _path(op: ir.Operation) -> tuple[int, ...]:
    return tuple(ir.DenseI64ArrayAttr(op.attributes[PATH])) if PATH in op.attributes else ()


def _place(op: ir.Operation) -> Place:
    return _path(op), number_of(op)


def _cuts(module: ir.Operation) -> dict[Any, Any]:
    """How every array is cut, by what made it; functions may be inlined or not."""
    found: dict[Any, Any] = {}

    def read(function: Any, path: tuple[int, ...]) -> None:
        for op in _walked(function)[1:]:
            if TAG not in op.attributes:
                continue
            if op.name == "func.call":
                read(functions[ir.FlatSymbolRefAttr(op.attributes["callee"]).value], (*path, number_of(op)))
                continue
            for n, result in enumerate(op.results):
                cut = cut_of(result, ())
                if cut is not None and any(cut.dims):
                    found[((*path, *_path(op)), number_of(op), n)] = cut.dims

    functions = functions_of(module)
    read(main_of(module), ())
    return found


def _read(module: ir.Operation) -> Record:
    main = main_of(module)
    results: dict[tuple[Place, int], Mapping[str, str]] = {}
    edges: dict[Place, tuple[Edge, ...]] = {}
    makers: dict[str, tuple[int, int]] = {}
    for op in _walked(main)[1:]:
        attributes, place = op.attributes, _place(op)
        if _ORIGINS in attributes:
            said = attributes[_ORIGINS]
            each = list(said) if isinstance(said, ir.ArrayAttr) else [said]
            results.update({(place, n): dict(_origins(one)) for n, one in enumerate(each)})
        if _EDGES in attributes:
            edges[place] = tuple(edges_of(str(attributes[_EDGES])))
        if _NAME in attributes:
            makers[ir.StringAttr(attributes[_NAME]).value] = number_of(op), len(op.operands)
    entries = ir.ArrayAttr(main.attributes["arg_attrs"]) if "arg_attrs" in main.attributes else ()
    given = tuple(dict(_origins(e[_ORIGINS])) if _ORIGINS in e else {} for e in map(ir.DictAttr, entries))
    return Record(given, results, edges, makers)


def _origins(attribute: Any) -> Iterator[tuple[str, str]]:
    for each in ir.DictAttr(attribute):
        yield each.name, ir.StringAttr(each.attr).value


def edges_of(text: str) -> Iterator[Edge]:
    """Reads `sdy.propagation_edges`.

    >>> list(edges_of('#sdy.propagation_edges<[{step-7 = [{"data" = operand-0 -> [operand-1, result-0]}]}]>'))
    [Edge(step=7, axis='data', of='operand-0', to=('operand-1', 'result-0'))]
    """
    for step, said in _STEP.findall(text):
        for axis, of, to in _EDGE.findall(said):
            yield Edge(int(step), axis, of, tuple(to.split(", ")))
