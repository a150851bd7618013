"""What `jax.export` made: its module is read and never called.

An export may be for several platforms and for any batch size. Where a file is not to be trusted, whoever loads it has
it read in a process of its own first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.export

from shardviz import _jax
from shardviz.errors import ShardvizError, SpecError, TraceError
from shardviz.notation import DeviceMesh
from shardviz.program import stablehlo_program
from shardviz.program.call import Call, JitOptions, Notes, abstract_tree, specs_of
from shardviz.records import Finding


def held_by(fn: Any) -> Any:
    """A `jax.export.Exported`, or the one that something holds as its attribute `exported`; None for anything else."""
    exported = fn if isinstance(fn, jax.export.Exported) else getattr(fn, "exported", None)
    return exported if isinstance(exported, jax.export.Exported) else None


def adapt(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], options: JitOptions) -> Call | None:
    """A `jax.export.Exported`, or what holds one as its attribute `exported`. Arguments are needed only where
    dimensions are symbolic. Raises TraceError if they do not fit, or options are given, which an export has fixed;
    SpecError if they are needed and not given."""
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
    return _exported(exported, [tuple(getattr(x, "shape", ())) for x in jax.tree.leaves((positional, named))], None)


def call_of(exported: Any, values: Mapping[str, int] | None = None, mesh: DeviceMesh | None = None) -> Call:
    """An export as a `Call`, its shardings written over `mesh` (None: its own), its symbolic dimensions as in `values`.
    Raises SpecError if a symbolic dimension has no value, or one that breaks a constraint; TraceError, MeshError as
    `stablehlo_program.call_of`."""
    settled = symbol_values(exported.fun_name, _jax.symbols_of(exported.in_avals), values)
    shapes = [tuple(_jax.evaluated(d, settled) for d in aval.shape) for aval in exported.in_avals]
    return _exported(exported, shapes, mesh)


def _exported(exported: Any, shapes: Sequence[tuple[int, ...]], mesh: DeviceMesh | None) -> Call:
    try:
        module = _jax.exported_module(exported.mlir_module_serialized)
    except Exception as error:  # MLIR says in its own words what is wrong
        raise TraceError(f"{exported.fun_name}: its module cannot be read here: {error}") from error
    avals = tuple(aval.update(shape=shape) for shape, aval in zip(shapes, exported.in_avals, strict=True))
    platforms = tuple(exported.platforms)
    platform = platforms.index("cpu") if "cpu" in platforms else 0
    outline = stablehlo_program.Outline(
        name=exported.fun_name,
        avals=avals,
        out_avals=_out_avals(exported, avals),
        in_tree=exported.in_tree,
        out_tree=exported.out_tree,
        kept=tuple(exported.module_kept_var_idx),
        mesh=mesh_of(exported),
        platform=platform,
        notes=_notes(exported.fun_name, platforms, platforms[platform], int(exported.nr_devices)),
    )
    return stablehlo_program.call_of(module, outline, mesh=mesh, refine=_told(exported.fun_name))


def _out_avals(exported: Any, avals: tuple[Any, ...]) -> tuple[Any, ...]:
    if not _jax.symbols_of(exported.out_avals):
        return tuple(exported.out_avals)
    args, kwargs = exported.in_tree.unflatten(jax.ShapeDtypeStruct(a.shape, a.dtype) for a in avals)
    try:
        return tuple(jax.tree.leaves(jax.eval_shape(exported.call, *args, **kwargs)))
    except Exception as error:  # a constraint that the module alone knows
        raise SpecError(f"{exported.fun_name}: its shapes do not settle: {_sentence(error)}") from error


def mesh_of(exported: Any) -> DeviceMesh | None:
    """The mesh of an export's named shardings; None where it has none."""
    return specs_of(s for shardings in _jax.export_shardings(exported) for s in shardings)[1]


def _notes(name: str, platforms: tuple[str, ...], settled: str, devices: int) -> Notes:
    """What JAX would say to a call of the export on a plan's mesh and platform, if `settled`'s code is explored."""

    def notes(mesh: DeviceMesh, platform: str) -> tuple[Finding, ...]:
        findings = []
        if devices not in (1, mesh.size):
            text = (
                f"{name} was exported for {devices} devices, and the mesh {mesh} has {mesh.size}: JAX refuses to call "
                f"it there. To run it on {mesh.size}, export the function again for a mesh of that size"
            )
            findings.append(Finding("exported-devices", "warning", text))
        calls = "so what it calls by name (custom calls) may be unknown to the compiler that is used here"
        if platform not in platforms:
            text = f"{name} was exported for {', '.join(platforms)} and not for {platform}, {calls}"
            findings.append(Finding("other-platform", "note", text))
        elif platform != settled:
            text = f"{name} was exported for {', '.join(platforms)}, and its code for {settled} is explored, {calls}"
            findings.append(Finding("other-platform", "note", text))
        return tuple(findings)

    return notes


def _told(name: str) -> Callable[[bytes], Any]:
    """`_jax.refined` with its errors in words: the shape assertion that does not hold."""

    def told(module: bytes) -> Any:
        try:
            return _jax.refined(module)
        except ShardvizError:
            raise
        except Exception as error:  # XLA's refinement says it in the text of the cause
            raise SpecError(f"{name}: its shapes do not settle: {_sentence(error.__cause__ or error)}") from error

    return told


def _sentence(error: BaseException) -> str:
    """Which constraint does not hold, as the program's own check says it."""
    message = str(error)
    sentence = message[max(message.find("Input shapes do not match"), 0) :].split(" Using the following", 1)[0]
    return sentence.splitlines()[0].strip()


_AT_LEAST = re.compile(r"Expected value >= (\d+) for dimension variable '(\w+)'")
_WRITTEN = re.compile(r"the symbolic shape constraint (.+?)\. Expected '")


def symbol_constraints(assertions: Iterable[str], written: Iterable[str] = ()) -> tuple[str, ...]:
    """The constraints on a program's symbolic dimensions: those `written`, and those that its module checks, whose
    messages alone a file keeps.

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
    """The values of a program's symbolic dimensions; whether they keep its constraints the module itself checks. Raises
    SpecError naming the dimension that has no value, or one that is no whole number, or that there is none."""
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
