"""Values of a function marked while it is traced, as the person would mark them; and constraints traced otherwise.

A function is differentiated, mapped and put into loops while it is traced, so a value of one of its lines is there only
while the line runs. So the functions of a file get code for the time of a trace in which a call stands around some
expressions (`marked`). The call puts a sharding constraint on the value, there and then, as the person would by writing
`with_sharding_constraint` there: so JAX's own rules say what becomes of it in the backward pass, inside loops and under
`vmap`. A mark says "replicated", and has a number in its name stack by which `marked_text` finds it again; what it
shall say is written over it later.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import gc
import itertools
import re
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec

from shardviz._jax.jaxprs import every_equation, rewritten
from shardviz._jax.tracing import here, target_mesh, told

MARK = "__shardviz_mark__"
"""What is called around a marked expression, with the expression's name and its value; it gives the value."""


@dataclass(frozen=True)
class MarkedValue:
    """A value of a marked expression.

    Attributes:
        kind: the type of a value that is no array.
        shape, dtype: of an array; None for any other value.
        manual: the mesh axes of the `shard_map`s around.
        whole: whether any mesh axis is left that no `shard_map` around has made its own.
    """

    kind: str
    shape: tuple[int, ...] | None
    dtype: str
    manual: frozenset[str]
    whole: bool


class Marking:
    """Marks put on values while a function is traced.

    Args:
        places: the name of a marked expression → the numbers of its marks.
        chosen: for each mark which of its expression's values have it, counted from 0; None for all.

    Attributes:
        values: for each mark its expression's values, in order.
    """

    def __init__(self, places: Mapping[str, Collection[int]], chosen: Sequence[Collection[int] | None]):
        self.values: list[list[MarkedValue]] = [[] for _ in chosen]
        self._places, self._chosen = places, chosen

    def __call__(self, name: str, value: Any) -> Any:
        """The value with its marks."""
        aval, mesh = getattr(value, "aval", None), jax.sharding.get_abstract_mesh()
        manual = frozenset(mesh.manual_axes)
        whole = not manual or bool(set(mesh.axis_names) - manual)
        shape = None if aval is None else tuple(aval.shape)
        row = MarkedValue(type(value).__name__, shape, str(getattr(aval, "dtype", "")), manual, whole)
        for place in self._places.get(name, ()):
            number, chosen = len(self.values[place]), self._chosen[place]
            self.values[place].append(row)
            if shape is not None and whole and (chosen is None or number in chosen):
                with jax.named_scope(mark(place, number)):
                    value = jax.lax.with_sharding_constraint(value, NamedSharding(target_mesh(), PartitionSpec()))
        return value


def _mark(name: str, value: Any) -> Any:
    marking = getattr(here, "marking", None)
    return value if marking is None else marking(name, value)


@contextlib.contextmanager
def marked(marking: Marking, codes: Mapping[CodeType, CodeType]) -> Iterator[None]:
    """Under it, what is traced on this thread is marked, and nothing is taken from earlier traces.

    Args:
        marking: is told of each value.
        codes: a function's code → the same with calls of `MARK`, which other threads pass through.
    """
    setattr(builtins, MARK, _mark)  # functions that are made meanwhile keep the call
    files = {code.co_filename for code in codes}
    with _swapping:
        before = [(fn, fn.__code__) for fn in _functions_of(files) if fn.__code__ in codes]
        try:
            for fn, code in before:
                fn.__code__ = codes[code]
            with told("marking", marking), fresh_traces():
                yield
        finally:
            for fn, code in before:
                fn.__code__ = code


_swapping = threading.RLock()


def _functions_of(files: Collection[str]) -> list[FunctionType]:
    """All functions of some files, those too that the garbage collector does not look at."""
    frozen = gc.get_freeze_count()
    if frozen:
        gc.unfreeze()
    try:
        return [fn for fn in gc.get_objects() if type(fn) is FunctionType and fn.__code__.co_filename in files]
    finally:
        if frozen:
            gc.freeze()


def _of_a_mark() -> bool:
    """Whether what JAX does now stands for a mark, as in the backward pass."""
    from jax._src import source_info_util

    return _MARK.search(str(source_info_util.current_name_stack())) is not None


_numbers = itertools.count(1)


@contextlib.contextmanager
def fresh_traces() -> Iterator[None]:
    """Under it, JAX takes nothing from earlier traces, and later ones take nothing from what is traced here.

    JAX keeps traces by its settings. This one says how often a compiled program is profiled, and decides nothing below
    1. A `jax.make_user_context` would be one more part of every key, and all that the person has compiled be lost.
    """
    from jax._src import config

    with config.pgle_profiling_runs(-next(_numbers)):
        yield


_lock = threading.Lock()
_telling_on: list[Any] = []
"""What `Primitive.bind` was, once for each `told_of_operations` that is at work on any thread."""


@contextlib.contextmanager
def told_of_operations() -> Iterator[None]:
    """Under it, every operation passes by the other constraints and the checkpointing of its thread, where there are
    such."""
    from jax._src import core

    with _lock:
        theirs = _telling_on[0] if _telling_on else core.Primitive.bind
        _telling_on.append(theirs)
        core.Primitive.bind = _telling(theirs)
    try:
        yield
    finally:
        with _lock:
            _telling_on.pop()
            if not _telling_on:
                core.Primitive.bind = theirs


def _telling(theirs: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(theirs)
    def bind(self: Any, *args: Any, **params: Any) -> Any:
        reconstrain = getattr(here, "reconstrain", None)
        if reconstrain is not None and self.name == "sharding_constraint" and not _of_a_mark():
            changed = _reconstrained(params, reconstrain)
            if changed is None:
                return args[0]
            params = changed
        if (checkpointing := getattr(here, "checkpointing", None)) is not None:
            return checkpointing.bind(theirs, self, args, params)
        return theirs(self, *args, **params)

    return bind


def _reconstrained(params: dict[str, Any], reconstrain: Callable[[Any, Any], Any]) -> dict[str, Any] | None:
    """The parameters of a constraint as it is to be; None where it is left out."""
    from jax._src import source_info_util

    sharding = params["sharding"]
    if not isinstance(sharding, NamedSharding):
        return params
    spec = reconstrain(source_info_util.current(), sharding.spec)
    if spec is None or spec is sharding.spec:
        return None if spec is None else params
    free = frozenset(d for d, entry in enumerate(spec) if entry is PartitionSpec.UNCONSTRAINED)
    return params | {"sharding": NamedSharding(sharding.mesh, spec), "unconstrained_dims": free}


@contextlib.contextmanager
def reconstrained(reconstrain: Callable[[Any, Any], Any]) -> Iterator[None]:
    """Under it, on this thread, the function's own sharding constraints are traced otherwise.

    Args:
        reconstrain: given a constraint's source info and PartitionSpec, the spec that it is to have; None for none.
    """
    with told_of_operations(), told("reconstrain", reconstrain), fresh_traces():
        yield


_MARK = re.compile(r"shardviz_mark_(\d+)_(\d+)")
_LEFT_OUT = re.compile(r"shardviz_mark_\d+_\d+/|/shardviz_mark_\d+_\d+|shardviz_mark_\d+_\d+")


def mark(number: int, run: int) -> str:
    """What a mark is called in a name stack.

    Args:
        number: which of what is marked it stands for.
        run: which of the values there.
    """
    return f"shardviz_mark_{number}_{run}"


def marked_text(text: str) -> tuple[int, str] | None:
    """The number of the mark in a name stack, or in text around one, and the text without it; None without a mark."""
    match = _MARK.search(text)
    return None if match is None else (int(match[1]), _LEFT_OUT.sub("", text))


def marks_in(jaxpr: Any) -> set[tuple[int, int]]:
    """(number, run) of every mark in a jaxpr and those inside it."""
    constraints = (e for e in every_equation(jaxpr) if e.primitive.name == "sharding_constraint")
    marks = (_MARK.search(str(e.source_info.name_stack)) for e in constraints)
    return {(int(mark[1]), int(mark[2])) for mark in marks if mark}


def with_marks_as(closed: Any, entries_of: Callable[[int], tuple[Any, ...]]) -> Any:
    """The closed jaxpr with what marks stand for in their place.

    Args:
        closed: the program.
        entries_of: gives a PartitionSpec's entries for a mark's number, as many as the array has dimensions where it is
            made; those that `vmap` adds keep what it says of them.
    """

    def equation(e: Any, here: None, inside: Callable[[Any, Any], Any]) -> Any:
        params = {k: inside(v, here) for k, v in e.params.items()}
        marked = _MARK.search(str(e.source_info.name_stack)) if e.primitive.name == "sharding_constraint" else None
        if marked:
            params |= constraint(e, entries_of(int(marked[1])))
        same = not marked and all(v is e.params[k] for k, v in params.items())
        return e if same else e.replace(params=params)

    def constraint(e: Any, wanted: tuple[Any, ...]) -> dict[str, Any]:
        sharding, rank = e.params["sharding"], len(e.invars[0].aval.shape)
        mapped = (*sharding.spec, *(None,) * (rank - len(sharding.spec)))
        rest = iter(wanted)
        entries = [next(rest, None) if entry is None else entry for entry in mapped]
        opened = frozenset(d for d, entry in enumerate(entries) if entry is PartitionSpec.UNCONSTRAINED)
        return {"sharding": NamedSharding(sharding.mesh, PartitionSpec(*entries)), "unconstrained_dims": opened}

    return rewritten(closed, None, equation)
