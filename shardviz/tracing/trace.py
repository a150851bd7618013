"""A traced function: its arguments with names, its results, its constraints, and its jaxpr.

The trace has global shapes only, so every plan over a mesh with the same axis names can use it. Exceptions are programs
with a `shard_map`, which contain shapes of single devices, and meshes with Explicit axes, whose shardings are in the
types.
"""

from __future__ import annotations

import functools
import itertools
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from shardviz import _jax
from shardviz.caching import cached_property, collection_paused
from shardviz.errors import ANYTHING, ShardingTypeError, ShardvizError, TraceError, message_of
from shardviz.notation import DeviceMesh, Spec
from shardviz.records import Frame, Reconstrained
from shardviz.records.kernels import Estimate
from shardviz.records.phases import is_differentiated
from shardviz.records.source import innermost
from shardviz.tracing.call import Call
from shardviz.tracing.contexts import Constraint
from shardviz.tracing.explicit import typed_arguments
from shardviz.tracing.intermediates import Intermediate, Target
from shardviz.tracing.meshes import abstract_mesh
from shardviz.tracing.trees import Outcome, Update, names_of


@dataclass(frozen=True)
class Argument:
    """An array of the function's arguments or results."""

    name: str  # its tree path, such as `params['layers']['wq']`
    shape: tuple[int, ...]  # global
    dtype: str
    donated: bool = False  # its buffer may be reused for a result
    memory_kind: str = "device"  # where the function leaves a result; of an argument only a plan knows it
    scanned: bool = False  # a loop takes one slice of it along its first dimension in each run


@dataclass(frozen=True)
class Callback:
    """A call to Python while the program runs: the primitive, whether it only reports (`jax.debug`), and its line."""

    name: str
    reports: bool
    source: Frame | None


@dataclass(frozen=True, kw_only=True)
class Placed:
    """A constrained value inside the function."""

    wanted: Intermediate  # what it is called in a plan
    target: Target  # where it stands in the source
    # where the function makes it, of one example under `vmap`; several of a line that is run several times
    shapes: tuple[tuple[int, ...], ...]
    dtype: str
    times: int  # how often Python runs its line: once for each of a loop of its own, once for a scan
    manual: frozenset[str]  # the mesh axes of the `shard_map`s around it


@dataclass(frozen=True, eq=False)
class Traced:
    """The result of tracing."""

    name: str
    arguments: tuple[Argument, ...]  # every array, in the order of the flat program
    outputs: tuple[Argument, ...]
    # pytrees of names: of the positional arguments and the keyword ones
    in_tree: tuple[tuple[Any, ...], dict[str, Any]]
    out_tree: Any  # ... and of the result
    constraints: tuple[Constraint, ...]  # those inside, as are the calls to Python
    callbacks: tuple[Callback, ...]
    closed: Any  # the closed jaxpr; None where only a module is there
    differentiated: bool  # has a backward pass: what is neither forward nor backward then is the update
    mesh: DeviceMesh | None = None  # the first that a `shard_map`, a constraint or a nested `jit` inside stands on
    sized: bool = False  # holds shapes of single devices, so that it is another program on other sizes
    module: bytes = b""  # StableHLO bytecode of a program that JAX has lowered already
    types: tuple[Spec, ...] = ()  # the part of every argument's spec that is in its type, with Explicit axes
    out_types: tuple[Spec | None, ...] = ()  # the same for every result; None where the compiler decides it
    in_specs: tuple[Spec | None, ...] = ()  # those of a `shard_map` that takes an argument directly, or None
    out_specs: tuple[Spec | None, ...] = ()  # ... or gives a result; both empty where there is no such `shard_map`
    updates: tuple[Update, ...] = ()  # the outputs that are new values of arguments, which come last
    keeps: tuple[bool, ...] = ()  # whether an argument stays though no result needs it; empty where none does
    estimates: tuple[Estimate, ...] = ()  # the FLOPs of its Pallas kernels, where they are known
    placed: tuple[Placed, ...] = ()  # the values inside that a plan constrains; the jaxpr has a mark at each
    # the function's own constraints that it has otherwise, by line
    reconstrained: tuple[tuple[Frame, Reconstrained], ...] = ()
    written: tuple[tuple[str, str], ...] = ()  # the collectives that it has otherwise: (line, what to write)

    @cached_property
    def constants(self) -> tuple[tuple[tuple[int, ...], str, Frame | None], ...]:
        """The arrays that the function closes over: shape, element type, and the line that first reads each."""
        if self.closed is None:
            return ()
        return tuple(
            (shape, dtype, None if info is None else first_frame((info,)))
            for shape, dtype, info in _jax.constants(self.closed)
            if not dtype.startswith("key<")
        )

    @cached_property
    def self_partitioned(self) -> tuple[tuple[str, Frame | None], ...]:
        """The operations that define their own partitioning (`custom_partitioning`), with their lines."""
        names = _jax.self_partitioned()
        return tuple(self.operations(lambda name: name in names))

    def operations(self, wanted: Callable[[str], bool]) -> Iterator[tuple[str, Frame | None]]:
        """Yield the operations inside with a wanted name, each with its line; none if there is no jaxpr."""
        equations = () if self.closed is None else _jax.equations(self.closed.jaxpr)
        return ((name, first_frame(at)) for name, at in equations if wanted(name))


def signature(call: Call) -> Traced:
    """Return a call's arguments without tracing its function's body. Raises TraceError for a kind of callable that
    needs the body."""
    wrapped = _jax.unwrap_jit(call.fn)
    if wrapped is None:
        raise TraceError(f"{call.name}: its arguments are not known before it is traced, which a plan's mesh allows")

    @functools.wraps(wrapped.fn)
    def nothing(*args: Any, **kwargs: Any) -> tuple[()]:
        return ()

    hollow = jax.jit(nothing, keep_unused=True, **call.options.given())
    traced = hollow.trace(*call.args, **call.kwargs)
    arguments, in_tree = _arguments(traced, names_of(traced)[0])
    return Traced(call.name, arguments, (), in_tree, None, (), (), None, False)


def _arguments(traced: Any, names: Sequence[str | None]) -> tuple[tuple[Argument, ...], Any]:
    info = jax.tree.leaves(traced.args_info)
    scanned = _jax.scanned(traced.jaxpr.jaxpr)
    ins = tuple(
        Argument(
            *(name or f"argument {i}", tuple(a.shape), _jax.dtype_name(a.dtype), bool(a.donated)), scanned=i in scanned
        )
        for i, (name, a) in enumerate(zip(names, info, strict=True))
    )
    return ins, jax.tree.unflatten(jax.tree.structure(traced.args_info), [a.name for a in ins])


def staged(
    call: Call,
    mesh: DeviceMesh | None,
    types: tuple[Spec, ...],
    places: frozenset[str],
    watch: _jax.Watch | None = None,
) -> Any:
    """Return the `jax.stages.Traced` of a call; `watch` is notified of each operation. Raises as `trace`."""
    target = None if mesh is None else abstract_mesh(mesh)
    args, kwargs = call.args, call.kwargs
    if target is not None and types:
        args, kwargs = typed_arguments(call, target, types)
    try:
        checkpointing = _jax.Checkpointing(call.checkpoint) if call.checkpoint else None
        reconstrain = _reconstrain(call) if call.constraints else None
        passing = _jax.passing(watch=watch, checkpointing=checkpointing, reconstrain=reconstrain)
        with call.contexts.around(), _jax.tracing_on(target, places), passing, collection_paused():
            call.tally.traces += 1
            traced = call.fn.trace(*args, **kwargs)
    except ShardvizError:
        raise
    except ANYTHING as error:  # the person's function may raise anything at all
        if types and _jax.refuses_types(error):
            raise ShardingTypeError(
                f"{call.name}: JAX refuses the operation{_where(_raised_at(error))} under Explicit mesh axes: "
                f"{_first(error)}. Give the operation out_sharding=, or an operand jax.sharding.reshard before it"
            ) from error
        raise TraceError(_what_happened(call, error, mesh)) from error
    for kind, source_info in _jax.leaked(traced):
        raise TraceError(
            f"{call.name} uses a {kind} that another trace has made{_where(_frame(source_info))} and that leaked out "
            "of it, by way of a global, a closure or an attribute; return the value where it is made, and give it to "
            f"{call.name} as an argument"
        )
    return traced


def _reconstrain(call: Call) -> Any:
    """Return a function from a line's source info and a spec to the variant's spec, or None to drop the constraint."""
    wanted: dict[Any, Any] = {(frame.bare, each.before): each.after for frame, each in call.constraints}

    def reconstrain(source_info: Any, spec: Any) -> Any:
        frame, open_ = _frame(source_info), jax.sharding.PartitionSpec.UNCONSTRAINED
        place = frame and frame.bare, _dims(spec)
        if place not in wanted or (after := wanted[place]) is None:
            return spec if place not in wanted else None
        entries = itertools.zip_longest(Spec(after).entries(), spec)
        return jax.sharding.PartitionSpec(*(open_ if e is None and was is open_ else e for e, was in entries))

    return reconstrain


def trace(
    call: Call, mesh: DeviceMesh | None, types: tuple[Spec, ...] = (), places: frozenset[str] = _jax.PLACES
) -> Traced:
    """Trace for a mesh, or without one, under the settings around the call. `types` are the specs of the arguments over
    Explicit axes, and `places` is where code may ask for the mesh. Raises ShardingTypeError if JAX refuses an operation
    for the shardings in types; TraceError, with the function's own exception as its cause."""
    if call.traced_for is not None:
        return call.traced_for(mesh)
    traced = staged(call, mesh, types, places)
    closed, written = _rewritten(call, traced.jaxpr)
    jaxpr = closed.jaxpr
    inside = list(dict.fromkeys(map(DeviceMesh.of, dict.fromkeys(_jax.meshes(jaxpr)))))
    _check_devices(call, [m for m in inside if mesh is None or m.shape != mesh.shape])
    sized = any(name == "shard_map" for name, _ in _jax.equations(jaxpr))
    if call.kind == "recorded" and (sized or types):
        _check_sizes(call, mesh, "shard_map" if sized else "Explicit axes")
    in_names, out_names = call.fn.names if call.kind == "recorded" else names_of(traced)
    ins, in_tree = _arguments(traced, in_names)
    out_leaves, out_tree = jax.tree.flatten(traced.out_info)
    names = [name or f"result[{i}]" for i, name in enumerate(out_names)]
    updates: tuple[Update, ...] = ()
    if isinstance(outcome := traced.out_info, Outcome):
        names, updates = outcome.named(names, [a.name for a in ins])
        out_tree = jax.tree.structure(outcome.result)
    kinds = _jax.memory_kinds(traced.jaxpr.out_avals)
    outs = tuple(
        Argument(name, tuple(a.shape), _jax.dtype_name(a.dtype), memory_kind=kind)
        for name, a, kind in zip(names, out_leaves, kinds, strict=True)
    )
    constraints = tuple(
        Constraint(tuple(shape), Spec(_dims(spec)), _frame(source)) for shape, spec, source in _jax.constraints(jaxpr)
    )
    in_specs, out_specs = (
        tuple(None if s is None else Spec.of(s) for s in specs) for specs in _jax.outermost_shard_map(jaxpr)
    )
    if not any((*in_specs, *out_specs)):
        in_specs = out_specs = ()
    if isinstance(outcome, Outcome):
        out_specs = outcome.brought(out_specs)
    return Traced(
        call.name,
        ins,
        outs,
        in_tree,
        jax.tree.unflatten(out_tree, names[: out_tree.num_leaves]),
        constraints,
        tuple(Callback(name, reports, _frame(info)) for name, reports, info in _jax.callbacks(jaxpr)),
        closed,
        is_differentiated(str(at[0].name_stack) for _, at in _jax.equations(jaxpr)),
        inside[0] if inside else None,
        sized,
        types=types,
        out_types=tuple(_type_of(atom.aval.sharding) for atom in jaxpr.outvars) if types else (),
        in_specs=in_specs,
        out_specs=out_specs,
        updates=updates,
        keeps=(True,) * len(ins) if call.keeps_unused else (),
        reconstrained=call.constraints,
        written=written,
        estimates=tuple(
            Estimate(each.name, first_frame(each.infos), each.operands, each.results, each.flops, each.at_most)
            for each in _jax.kernel_estimates(closed)
        ),
    )


def _rewritten(call: Call, closed: Any) -> tuple[Any, tuple[tuple[str, str], ...]]:
    """Return the jaxpr with the collectives of the call's lines rewritten, and (line, code to write) for each. Raises
    TraceError if a line has none."""
    written: list[tuple[str, str]] = []
    for line in call.collectives:
        closed, words = better_collectives(closed, line)
        written += ((line, each) for each in dict.fromkeys(words))
        if not words:
            raise TraceError(
                f"{call.name}: no collective in a shard_map and no constraint in a loop at {line} can be written "
                "otherwise with the same result"
            )
    return closed, tuple(written)


def better_collectives(closed: Any, line: str) -> tuple[Any, list[str]]:
    """Return a jaxpr with a line's collectives inside a `shard_map`, or its constraints inside a loop, written
    otherwise; and what to write."""

    def is_there(info: Any) -> bool:
        return (frame := _frame(info)) is not None and frame.short == line

    return _jax.better_collectives(closed, is_there)


def _check_devices(call: Call, inside: Sequence[DeviceMesh]) -> None:
    """Raise TraceError if a program's own meshes, the call's and inner ones, have different devices: JAX runs a program
    on one list of devices."""
    meshes = [mesh for mesh in (call.brings.mesh, *inside) if mesh is not None]
    for first, other in itertools.product(meshes[:1], meshes[1:]):
        if set(first.ids().tolist()) != set(other.ids().tolist()):  # an abstract mesh has no order
            raise TraceError(
                f"{call.name} is on the mesh {first.text}, and something inside it, such as a nested jit or a "
                f"constraint, on the mesh {other.text}: JAX refuses a program on two lists of devices. Give both the "
                "same mesh, or call two programs, one after the other"
            )


def _check_sizes(call: Call, mesh: DeviceMesh | None, what: str) -> None:
    """Raise TraceError if a program that was traced in a dry run is used on a mesh of other sizes than the run's."""
    ran = call.brings.mesh
    if mesh is not None and ran is not None and mesh.sizes != ran.sizes:
        raise TraceError(
            f"{call.name} was traced in a run on the mesh {ran.text}. It has {what}, so its shapes and types are those "
            f"of that mesh, and it cannot be planned on {mesh.text}: run the script again on the other mesh, or give "
            "the function to sv.trace"
        )


def _type_of(sharding: Any) -> Spec | None:
    """Return the spec in a type; None after `auto_axes`, where no mesh axis is Explicit."""
    mesh = sharding.mesh
    return None if mesh.axis_names and not mesh.explicit_axes else Spec.of(sharding.spec)


def _dims(spec: Any) -> tuple[tuple[str, ...], ...]:
    """Return the axes of each entry of a constraint's spec; an unconstrained dimension has none."""
    return tuple((e,) if isinstance(e, str) else tuple(e) if isinstance(e, tuple) else () for e in spec)


def _frame(source_info: Any) -> Frame | None:
    return innermost(Frame(*frame) for frame in _jax.user_frames(source_info))


def first_frame(infos: Iterable[Any]) -> Frame | None:
    """Return an operation's line; if JAX has no frame of the user's for it, as in a library's jitted function, its
    caller's."""
    return next((frame for info in infos if (frame := _frame(info)) is not None), None)


def needs_mesh(error: ShardvizError) -> bool:
    """Return whether a trace without a mesh failed for want of one, so that the plan's mesh may fix it: its message, or
    the function that raised it, speaks of a mesh."""
    cause = error.__cause__
    words = [message_of(cause).lower()]
    own, frame = _raised_at(cause), None if cause is None else cause.__traceback__
    while frame is not None:
        code = frame.tb_frame.f_code
        if own is not None and (code.co_filename, code.co_name) == (own.file, own.function):
            words += (*code.co_names, *code.co_varnames, *code.co_freevars)
        frame = frame.tb_next
    return any("mesh" in word or "shard_map" in word for word in words)


def cannot_lower(traced: Traced, platform: str, error: BaseException) -> TraceError:
    """Return the message about an operation that JAX traces and cannot lower, such as a Pallas kernel for another
    platform."""
    text = _first(error)
    named = traced.operations(lambda name: f"'{name.removesuffix('_wrapper')}'" in text)
    at = _raised_at(error) or _raised_at(error.__cause__) or next((frame for _, frame in named), None)
    where = _where(at)
    advice = "explore the function without that operation, or with one that JAX lowers everywhere in its place"
    if "interpret mode" in text:
        advice = "give pallas_call interpret=True here, or put the same function without the kernel in its place"
    return TraceError(f"{traced.name}: JAX cannot lower the operation{where} for {platform}: {text}; {advice}")


def _raised_at(error: BaseException | None) -> Frame | None:
    if error is None:
        return None
    frames = [Frame(f.filename, f.lineno or 0, f.name) for f in traceback.extract_tb(error.__traceback__)]
    return innermost(reversed(frames))


def _where(frame: Frame | None) -> str:
    return f" at {frame.short} ({frame.function})" if frame else ""


def _first(error: BaseException) -> str:
    return message_of(error).strip().split("\n\n")[0].rstrip(".")


def _what_happened(call: Call, error: BaseException, mesh: DeviceMesh | None) -> str:
    where = _where(_raised_at(error))
    text, *more = message_of(error).strip().split("\n\n")
    if text.endswith(":"):  # what it is about stands in the next paragraphs
        text = " ".join(" ".join((text, *more[:2])).split())
    under = f" on the mesh {mesh}" if mesh is not None and "mesh" in text.lower() else ""
    advice = next((words for kind, words in _ADVICE if isinstance(error, kind)), "")
    return f"{call.name} raised {type(error).__name__}{where} while it was traced{under}: {text}{advice}"


_ADVICE = (
    (
        jax.errors.TracerBoolConversionError,
        "\nIn place of Python's if, while, and, or: jnp.where, jax.lax.cond, jax.lax.while_loop; or if the value is a "
        "setting, name its argument in static_argnums or static_argnames",
    ),
    (
        jax.errors.TracerArrayConversionError,
        "\nUse jax.numpy in place of numpy, or name the argument in static_argnums or static_argnames",
    ),
    (
        jax.errors.ConcretizationTypeError | jax.errors.TracerIntegerConversionError,
        "\nName the argument that it depends on in static_argnums or static_argnames, or leave its value an array",
    ),
)
"""Error class → the fix for Python code that needs an array's value, which a trace does not have."""
