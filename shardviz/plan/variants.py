"""Variants of a function's call or code: with arguments donated, with a dimension of another length, with its layers
under `jax.checkpoint`, with other sharding constraints, or with other collectives in a `shard_map`.

No plan can express these, because they are in the user's call or code. Each is another `Call`, which is traced anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import jax

from shardviz import _jax
from shardviz.errors import ShardvizError
from shardviz.notation import Spec
from shardviz.propagate.dimensions import Dimension
from shardviz.records import Frame, Reconstrained
from shardviz.records.paths import segments
from shardviz.tracing.call import Call
from shardviz.tracing.trace import Traced, first_frame

_NOT_DONATED = {
    "state": "say donate_argnums where it is jitted, and trace that",
    "nnx": "flax.nnx gives the variables of a donated object back, so its own wrapper has to know: say "
    "nnx.jit(f, donate_argnums=...) and trace that",
    "exported": "it is an export, whose donated arguments are chosen by its caller",
}


def donating(call: Call, traced: Traced, names: Iterable[str]) -> Call:
    """Return the call with donated arguments, given by tree paths or argument names; JAX donates whole arguments.
    Raises ShardvizError if the function's own wrapper determines donation, or an argument is passed by keyword."""
    wrapped = _jax.unwrap_jit(call.fn)
    if wrapped is None or call.kind in _NOT_DONATED:
        raise ShardvizError(_NOT_DONATED.get(call.kind, _NOT_DONATED["state"]))
    static = call.options.static_places(call.fn, len(call.args))
    places = [i for i in range(len(call.args)) if i not in static]
    trees = zip(places, traced.in_tree[0], strict=True)
    at = {segments(name)[0]: i for i, tree in trees for name in jax.tree.leaves(tree)}
    donated = {segments(a.name)[0] for a in traced.arguments if a.donated} - set(call.kwargs)
    roots = donated | {segments(name)[0] for name in names}
    if missing := sorted(roots - at.keys()):
        raise ShardvizError(f"{', '.join(missing)}: given by keyword, or no argument; give it by position")
    by_name = tuple(n for n in call.options.donate_argnames if n in call.kwargs)
    options = replace(call.options, donate_argnums=tuple(sorted(at[root] for root in roots)), donate_argnames=by_name)
    return replace(call, fn=jax.jit(wrapped.fn, keep_unused=True, **options.given()), options=options)


def lengthened(call: Call, traced: Traced, dimension: Dimension, size: int, better: int) -> Call:
    """Return the call with another length of a logical dimension in all arguments; multiples of `size` stay multiples.
    Raises ShardvizError if its shapes cannot be changed here."""
    flat = list(call.arrays)
    if call.kind in ("nnx", "state"):
        raise ShardvizError("the shapes of a flax.nnx object are in its own configuration: change them there")
    if call.traced_for is not None or len(flat) != len(traced.arguments):
        raise ShardvizError("it was exported before it came here, for the shapes that it has")
    at: dict[str, set[int]] = {}
    for member in dimension.arguments:
        at.setdefault(member.path, set()).add(member.dimension)
    for i, argument in enumerate(traced.arguments):
        cut = at.get(argument.name, ())
        sizes = enumerate(argument.shape)
        shape = tuple(n // size * better if d in cut and n % size == 0 else n for d, n in sizes)
        if shape != argument.shape:
            flat[i] = jax.ShapeDtypeStruct(shape, flat[i].dtype)
    args, kwargs = call.filled(flat)
    return replace(call, args=args, kwargs=kwargs)


def checkpointing(call: Call, policy: str) -> Call:
    """Return the call with a checkpoint policy (a name in `jax.checkpoint_policies`) on its checkpoints, or, if it has
    none, on the body of each differentiated loop. Raises ShardvizError for an unknown policy, and for an export."""
    if policy not in POLICIES:
        raise ShardvizError(f"there is no policy {policy!r}; there are {', '.join(POLICIES)}")
    if call.traced_for is not None:
        raise ShardvizError("it is an export, whose checkpoints cannot be changed")
    return replace(call, checkpoint=policy)


def reconstraining(call: Call, traced: Traced, changes: Iterable[Reconstrained]) -> Call:
    """Return the call with some of the function's own sharding constraints dropped or changed. Raises ShardvizError for
    an unknown constraint, and for an export."""
    if call.traced_for is not None:
        raise ShardvizError("it is an export, whose constraints cannot be changed")
    own = {(c.source.short, c.spec.dims): c.source for c in traced.constraints if c.source is not None}
    for each in changes:
        if (each.line, each.before) not in own:
            have = ", ".join(f"{Spec(dims)} at {line}" for line, dims in sorted(own)) or "none"
            raise ShardvizError(f"{call.name} has no constraint {Spec(each.before)} at {each.line}; it has {have}")
    return replace(call, constraints=tuple((own[each.line, each.before], each) for each in changes))


def rewriting(call: Call, lines: Iterable[str]) -> Call:
    """Return the call with the collectives of these lines, inside a `shard_map`, rewritten. Raises ShardvizError for an
    export; a line without such a collective is refused when the call is traced."""
    if call.traced_for is not None:
        raise ShardvizError("it is an export, whose collectives cannot be changed")
    return replace(call, collectives=tuple(lines))


POLICIES = (
    *("nothing_saveable", "dots_saveable", "dots_with_no_batch_dims_saveable", "everything_saveable"),
    *("checkpoint_dots", "checkpoint_dots_with_no_batch_dims"),
)
"""The policies of `jax.checkpoint_policies` without parameters."""


def checkpoint_lines(traced: Traced) -> dict[Frame, bool]:
    """Return the lines of loops whose body is under a checkpoint, and of other checkpoints, each with whether it is a
    loop."""
    if traced.closed is None:
        return {}
    frames = ((first_frame((info,)), loop) for info, loop in _jax.under_checkpoint(traced.closed.jaxpr))
    return {frame: loop for frame, loop in frames if frame is not None}


def checkpoint_words(traced: Traced, policy: str, most: int | None = None) -> tuple[str, ...]:
    """Return the code to write for this checkpoint policy, and where; at most `most` lines of each kind."""
    lines = checkpoint_lines(traced)

    def lines_of(loop):
        return " and ".join([f.short for f, is_loop in lines.items() if is_loop is loop][:most])

    loops, others, option = lines_of(True), lines_of(False), f"policy=jax.checkpoint_policies.{policy}"
    return (
        *([f"jax.checkpoint(body, prevent_cse=False, {option}) for the body of the loop at {loops}"] if loops else []),
        *([f"{option} in the jax.checkpoint of {others}"] if others else []),
    )
