"""Interception of JAX's dispatch: jitted programs, compiled programs, transfers and fetches reach a handler first.

Every path to a device ends in one of the functions in `_seams`, in JAX 0.10.2 as in 0.12.0.1. `intercepted` replaces
them, and restores them even after exceptions. Events that the handler does not answer continue to JAX. JAX's C++ fast
path, which calls no Python, is cleared at the start; answers of the handler never enter it.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import mmap
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import numpy as np
from jax.experimental.layout import Layout
from jax.sharding import Sharding, SingleDeviceSharding

from shardviz._jax.processes import process
from shardviz._jax.tracing import leave_out_frames
from shardviz._jax.wrappers import pmapped_name


@dataclass(frozen=True, kw_only=True, eq=False)
class Dispatched:
    """A jitted program that is about to be dispatched.

    Attributes:
        params: the parameters of its `jit` equation.
        kinds: JAX's record of each flat argument: `aval`, `sharding`, `committed`.
        args: the flat arguments; empty for a program that is compiled ahead of time.
        constants: the first of the arguments, which the function closes over.
        in_tree, out_tree: the trees of its other arguments and of its result.
    """

    params: Mapping[str, Any]
    kinds: tuple[Any, ...]
    args: tuple[Any, ...] = ()
    constants: tuple[Any, ...] = ()
    in_tree: Any
    out_tree: Any

    @property
    def name(self) -> str:
        return self.params["name"]

    @property
    def closed(self) -> Any:
        """The closed jaxpr."""
        return self.params["jaxpr"]

    @property
    def is_eager(self) -> bool:
        """Whether the function is JAX's own, as for an eager operation; functions under `pmap` and `shard_map` are the
        script's."""
        source = self.closed.jaxpr.debug_info.func_src_info or ""
        return "/jax/_src/" in source and not any(name in source for name in ("/pmap.py:", "/shard_map.py:"))

    @property
    def leaves_layouts_open(self) -> bool:
        """Whether XLA may choose the layouts of arrays (`Layout.AUTO`)."""
        return any(layout is Layout.AUTO for layout in (*self.params["in_layouts"], *self.params["out_layouts"]))

    @property
    def used(self) -> tuple[bool, ...]:
        """For each argument whether JAX compiles it: a result needs it, or `keep_unused` is set. Devices of the others
        are ignored."""
        if self.params["keep_unused"]:
            return (True,) * len(self.kinds)
        jaxpr = self.closed.jaxpr
        if jaxpr not in _used:
            from jax._src.interpreters import partial_eval

            _used[jaxpr] = tuple(partial_eval.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))[1])
        return _used[jaxpr]

    def traced(self) -> Any:
        """Return the call's `jax.stages.Traced`. It holds no arrays other than constants."""
        from jax._src import stages

        parts = list(self.kinds), dict(self.params), self.in_tree, self.out_tree, list(self.constants)
        needs_line = "fun_sourceinfo" in inspect.signature(stages.Traced.__init__).parameters  # JAX 0.12
        return stages.Traced(*parts, *([self.closed.jaxpr.debug_info.func_src_info] if needs_line else []))


_used: weakref.WeakKeyDictionary[Any, tuple[bool, ...]] = weakref.WeakKeyDictionary()


class Handler(Protocol):
    """A listener that may answer JAX's events; if it returns None, JAX continues."""

    def tracing(self) -> contextlib.AbstractContextManager[None]:
        """Return a context in which JAX traces a program, unless it has the trace already."""
        ...

    def run(self, program: Dispatched) -> list[Any] | None:
        """Answer a program that is about to run with its flat results."""

    def compile(self, program: Dispatched) -> Any | None:
        """Answer a program that is about to be compiled with an `Ahead`."""

    def ran(self, arguments: Sequence[Any], results: Sequence[Any]) -> None:
        """Receive what JAX did itself: a program, or a transfer or union of shards."""

    def put(self, value: Any, aval: Any, sharding: Sharding) -> Any | None:
        """Answer a transfer of an array to where `sharding` says with the array that is there then."""

    def placed(self, value: Any, array: Any) -> None:
        """Receive the array that results from a transfer, whether JAX or the handler made it."""

    def fetch(self, array: Any, decides: bool) -> np.ndarray | None:
        """Answer the host that reads an array's values, with these; `decides` where Python asks for a truth value or
        an index."""

    def shards(self, array: Any) -> Any | None:
        """Answer the host that asks for an array's shards with an array that has them."""

    def note(self, text: str) -> None:
        """Receive a note about something that was skipped."""

    @property
    def platforms(self) -> tuple[str, ...] | None:
        """The platforms that an ahead-of-time compiled program is lowered for; None for the devices' own platform."""


@dataclass(frozen=True, eq=False)
class Ahead:
    """The answers of an ahead-of-time compiled program: its call, its shardings, its cost analysis and its memory
    analysis."""

    call: Callable[[tuple[Any, ...]], list[Any]]
    in_shardings: Callable[[], Sequence[Any]]
    out_shardings: Callable[[], Sequence[Any]]
    memory_analysis: Callable[[], Any]
    cost_analysis: Callable[[], Any]


class _Here(threading.local):
    handler_at_work: bool = False
    pjit: tuple[Any, Any, Any] | None = None  # the parameters, flat arguments and function of the Python call at work


_here = _Here()


@contextlib.contextmanager
def past_handler() -> Iterator[None]:
    """Pass everything to JAX, on this thread, inside the context."""
    before, _here.handler_at_work = _here.handler_at_work, True
    try:
        yield
    finally:
        _here.handler_at_work = before


@contextlib.contextmanager
def intercepted(handler: Handler) -> Iterator[None]:
    """Ask the handler first, on every thread, inside the context. `missing_seam` says beforehand whether that is
    possible."""
    places = [(owner, name, make(getattr(owner, name), handler)) for owner, name, make in _seams()]
    theirs = [(owner, name, owner.__dict__[name]) for owner, name, _ in places]
    _empty_fast_path()
    leave_out_frames()
    try:
        for owner, name, ours in places:
            setattr(owner, name, ours)
        yield
    finally:
        for owner, name, own in theirs:
            setattr(owner, name, own)


def _seams() -> list[tuple[Any, str, Callable[[Any, Handler], Any]]]:
    """Return where JAX is intercepted: the module or class, the name in it, and the replacement."""
    from jax._src import array, dispatch, pjit, stages
    from jax._src.interpreters import pxla

    return [
        (pjit, "_infer_params", _tracing),
        (pjit, "_run_python_pjit", _noting_call),
        (pjit, "_pjit_call_impl_python", _running),
        (stages.Traced, "lower", _lowering),
        (stages.Lowered, "compile", _compiling),
        (dispatch, "_device_put_sharding_impl", _putting),
        (dispatch, "_batched_device_put_impl", _putting_several),
        (pxla, "batched_device_put", _placing),
        (jax, "make_array_from_single_device_arrays", _joining),
        (array.ArrayImpl, "_value", _fetching),
        (array.ArrayImpl, "addressable_data", _sharing),
        (array.ArrayImpl, "addressable_shards", _sharing_each),
        (array.ArrayImpl, "delete", _deleting),
        (type(jax.config), "update", _configuring),
        (jax.distributed, "initialize", _starting),
    ]


def array_types() -> tuple[type, ...]:
    """Return the classes of `jax.Array`s: of numbers, and of PRNG keys."""
    from jax._src import array
    from jax._src.random import prng

    return array.ArrayImpl, prng.PRNGKeyArray


def missing_seam() -> str | None:
    """Return the name of a function that `intercepted` replaces and this JAX lacks; None if it has all."""
    missing = (f"{owner.__name__}.{name}" for owner, name, _ in _seams() if name not in vars(owner))
    return next(missing, None)


def _empty_fast_path() -> None:
    from jax._src import pjit

    pjit._cpp_pjit_cache_fun_only.clear()
    pjit._cpp_pjit_cache_explicit_attributes.clear()


def _asked(ask: Callable[..., Any], *args: Any) -> Any:
    """Return the handler's answer; None while the handler itself is running."""
    if _here.handler_at_work:
        return None
    with past_handler(), _outside_of_traces():
        return ask(*args)


@contextlib.contextmanager
def _outside_of_traces() -> Iterator[None]:
    """Suspend tracing inside the context. An eager `shard_map` dispatches each operation from inside its own trace,
    where JAX allows no `set_mesh`."""
    from jax._src import core

    before = core.trace_ctx.trace, core.trace_ctx.axis_env
    core.trace_ctx.set_trace(core.eval_trace)
    core.trace_ctx.set_axis_env(core.top_axis_env)
    try:
        yield
    finally:
        core.trace_ctx.set_trace(before[0])
        core.trace_ctx.set_axis_env(before[1])


def _tracing(theirs: Any, handler: Handler) -> Any:
    def infer_params(*args: Any) -> Any:
        with handler.tracing():
            return theirs(*args)

    return infer_params


def _noting_call(theirs: Any, handler: Handler) -> Any:
    def run_python_pjit(p: Any, args_flat: Any, fun: Any, args: Any, kwargs: Any) -> Any:
        before, _here.pjit = _here.pjit, (p, args_flat, fun)
        try:
            return theirs(p, args_flat, fun, args, kwargs)
        finally:
            _here.pjit = before

    return run_python_pjit


def _running(theirs: Any, handler: Handler) -> Any:
    def pjit_call_impl_python(*args: Any, **params: Any) -> Any:
        results = _asked(lambda: handler.run(_dispatched(args, params)))
        if results is None:
            results = theirs(*args, **params)[0]
            _asked(handler.ran, args, results)
        return results, None, None, []  # no fast path: each call is seen

    return pjit_call_impl_python


def _dispatched(args: tuple[Any, ...], params: dict[str, Any]) -> Dispatched:
    """Return a program with the argument trees of the Python call that it comes from, if known. A derivative of the
    call has the same name, but other arguments or results."""
    from jax._src import pjit

    kinds, results = tuple(map(pjit.convert_to_metaty, args)), len(params["jaxpr"].out_avals)
    p, leaves, fn = _here.pjit or (None, (), None)
    if p and (p.params["name"], len(leaves), p.out_tree.num_leaves) == (params["name"], len(args), results):
        constants, in_tree, out_tree = args[: len(p.consts)], p.in_tree, p.out_tree
        params = params | {"name": pmapped_name(fn) or params["name"]}
    else:
        constants, in_tree = (), jax.tree.structure((tuple(range(len(args))), {}))
        out_tree = jax.tree.structure(list(range(results)))
    return Dispatched(params=params, kinds=kinds, args=args, constants=constants, in_tree=in_tree, out_tree=out_tree)


def _lowering(theirs: Any, handler: Handler) -> Any:
    def lower(traced: Any, **options: Any) -> Any:
        if _here.handler_at_work:
            return theirs(traced, **options)
        if options.get("lowering_platforms") is None:
            options["lowering_platforms"] = handler.platforms
        lowered = theirs(traced, **options)
        lowered._shardviz_traced = traced
        return lowered

    return lower


def _compiling(theirs: Any, handler: Handler) -> Any:
    from jax._src import stages

    def compile(lowered: Any, *args: Any, **options: Any) -> Any:
        traced = getattr(lowered, "_shardviz_traced", None)
        if traced is None or _here.handler_at_work:
            return theirs(lowered, *args, **options)
        compiler_options = (args[0] if args else options.get("compiler_options")) or {}
        params = dict(traced.lojax._params)
        params["compiler_options_kvs"] = (*params["compiler_options_kvs"], *compiler_options.items())
        program = Dispatched(
            params=params,
            kinds=tuple(traced.lojax._meta_tys_flat),
            constants=tuple(traced._consts),
            in_tree=traced._in_tree,
            out_tree=traced.out_tree,
        )
        ahead = _asked(handler.compile, program)
        if ahead is None:
            return theirs(lowered, *args, **options)
        executable = _executable(ahead, params["jaxpr"])
        constants = list(traced._consts)
        return stages.Compiled(executable, constants, lowered.args_info, lowered.out_tree, lowered._no_kwargs)

    return compile


def _executable(ahead: Ahead, closed: Any) -> Any:
    """Return the executable object that JAX's `Compiled` uses, with a handler's answers."""
    from jax._src import stages

    class DryExecutable(stages.Executable):
        in_avals, out_avals = list(closed.in_avals), list(closed.out_avals)
        _kept_var_idx = frozenset(range(len(closed.in_avals)))

        def call(self, *args_flat: Any) -> Sequence[Any]:
            with past_handler():
                return ahead.call(args_flat)

        # What `Compiled` reads of its executable for shardings and formats.
        _in_shardings = property(lambda self: ahead.in_shardings())
        _out_shardings = property(lambda self: ahead.out_shardings())
        _xla_in_layouts = property(lambda self: _row_major(self.in_avals))
        _xla_out_layouts = property(lambda self: _row_major(self.out_avals))

        def memory_analysis(self) -> Any:
            with past_handler():
                return ahead.memory_analysis()

        def cost_analysis(self) -> Any:
            with past_handler():
                return ahead.cost_analysis()

        def as_text(self) -> str:
            raise NotImplementedError("a dry run compiles nothing")

    return DryExecutable()


def _row_major(avals: Sequence[Any]) -> list[Any]:
    """Return layouts in which the last dimension is contiguous. With `Layout.AUTO` XLA may choose others, which only a
    compile reveals."""
    return [Layout(tuple(range(aval.ndim))) for aval in avals]


def _putting(theirs: Any, handler: Handler) -> Any:
    from jax._src import dispatch

    def device_put_sharding_impl(x: Any, aval: Any, device: Any, copy: Any) -> Any:
        if device is not None:
            where = device if isinstance(device, Sharding) else SingleDeviceSharding(device)
            answer = _asked(handler.put, x, aval, where)
            if answer is not None:
                _asked(handler.placed, x, answer)
                if copy == dispatch.ArrayCopySemantics.DONATE_INPUT and handler.platforms and isinstance(x, jax.Array):
                    x.delete()  # not by a CPU
                return answer
        return theirs(x, aval, device, copy)

    return device_put_sharding_impl


def _putting_several(theirs: Any, handler: Handler) -> Any:
    def batched_device_put_impl(*xs: Any, **options: Any) -> list[Any]:
        ys = theirs(*xs, **options)
        for x, y in zip(xs, ys, strict=True):
            _asked(handler.placed, x, y)
        return ys

    return batched_device_put_impl


def _placing(theirs: Any, handler: Handler) -> Any:
    def batched_device_put(aval: Any, sharding: Any, xs: Any, devices: Any, *args: Any, **options: Any) -> Any:
        answer = _asked(handler.put, None, aval, sharding)
        if answer is None:
            answer = theirs(aval, sharding, xs, devices, *args, **options)
            _asked(handler.ran, xs, [answer])
        return answer

    return batched_device_put


def _joining(theirs: Any, handler: Handler) -> Any:
    def make_array_from_single_device_arrays(shape: Any, sharding: Any, arrays: Any, **options: Any) -> Any:
        array = theirs(shape, sharding, arrays, **options)
        _asked(handler.ran, arrays, [array])
        return array

    return make_array_from_single_device_arrays


def _fetching(theirs: Any, handler: Handler) -> Any:
    def value(array: Any) -> Any:
        decides = sys._getframe(1).f_code.co_name in ("__bool__", "__index__")
        numbers, zeros = _asked(handler.fetch, array, decides), theirs.fget(array)
        if numbers is None:
            return zeros
        numbers.flags.writeable = False
        array._npy_value = numbers
        return numbers

    return property(value)


def _sharing(theirs: Any, handler: Handler) -> Any:
    def addressable_data(array: Any, index: int) -> Any:
        own, numbers = theirs(array, index), _asked(handler.shards, array)
        return own if numbers is None else theirs(numbers, index)

    return addressable_data


def _sharing_each(theirs: Any, handler: Handler) -> Any:
    def addressable_shards(array: Any) -> Any:
        own, numbers = theirs.fget(array), _asked(handler.shards, array)  # JAX keeps an array's own alive
        return own if numbers is None else theirs.fget(numbers)

    return property(addressable_shards)


def _deleting(theirs: Any, handler: Handler) -> Any:
    return lambda array: delete([array]) if getattr(array, _ZEROS, False) else theirs(array)


_DEVICES = ("jax_num_cpu_devices", "jax_platforms", "jax_platform_name")


def _configuring(theirs: Any, handler: Handler) -> Any:
    def update(config: Any, name: str, value: Any) -> None:
        if name in _DEVICES:
            handler.note(f"jax.config.update({name!r}, {value!r}) is left out: the devices are those of the dry run")
        else:
            theirs(config, name, value)

    return update


def _starting(theirs: Any, handler: Handler) -> Any:
    def initialize(*_: Any, **__: Any) -> None:
        index, count = process()
        alone = "one process has all devices; --process i/n runs as one of several"
        handler.note(
            f"jax.distributed.initialize is left out: {alone if count == 1 else f'process {index} of {count}'}"
        )

    return initialize


_PAGE_BYTES = 1 << 40
_pages: list[mmap.mmap] = []


def zero_array(aval: Any, sharding: Sharding, committed: bool = True) -> Any:
    """Return a `jax.Array` of zeros that takes no memory: each shard is a view of one read-only page. Raises
    MemoryError for a shard above 1 TiB."""
    return zero_arrays([aval], [sharding], committed)[0]


def zero_arrays(avals: Sequence[Any], shardings: Sequence[Sharding], committed: bool) -> list[Any]:
    """Return several arrays of zeros."""
    with jax.transfer_guard("allow"):  # a script may forbid transfers, and nothing is moved here
        return [_zeros(aval, sharding, committed) for aval, sharding in zip(avals, shardings, strict=True)]


def delete(arrays: Iterable[Any]) -> None:
    """Delete arrays, and no buffers that others of zeros share."""
    ends: dict[Any, Any] = {}
    for array in map(numbers_of, arrays):
        if not getattr(array, _ZEROS, False):
            array.delete()
            continue
        kind = array.aval, array.sharding, array.committed
        if kind not in ends:
            ends[kind] = _new_zeros(*kind)
        array._replace_with(ends[kind])
    for end in ends.values():
        end.delete()  # and so all that it was put in place of


_ZEROS = "_shardviz_zeros"
_alive: weakref.WeakValueDictionary[Any, Any] = weakref.WeakValueDictionary()
"""By shape, type and sharding, an array of zeros whose buffers the next one shares: new buffers for a hundred devices
take ten times as long."""


def _zeros(aval: Any, sharding: Sharding, committed: bool) -> Any:
    from jax._src import core

    if jax.numpy.issubdtype(aval.dtype, jax.dtypes.extended):
        from jax._src import sharding_impls
        from jax._src.random import prng

        base = _zeros(core.physical_aval(aval), sharding_impls.physical_sharding(aval, sharding), committed)
        return prng.PRNGKeyArray(aval.dtype._impl, base)
    kind = aval.shape, aval.dtype, aval.weak_type, sharding, committed
    other = _alive.get(kind)
    array = _new_zeros(aval, sharding, committed) if other is None or other.is_deleted() else other.clone()
    setattr(array, _ZEROS, True)
    if sharding.num_devices > 1 and sharding.is_fully_addressable:  # JAX clones no others, and donates from one device
        _alive[kind] = array
    return array


def _new_zeros(aval: Any, sharding: Sharding, committed: bool) -> Any:
    """Return an array of zeros with buffers of its own."""
    shape, dtype = sharding.shard_shape(aval.shape), np.dtype(aval.dtype)
    count = math.prod(shape) * dtype.itemsize
    if count > _PAGE_BYTES:
        raise MemoryError(f"{aval.str_short()} has shards of {count:,} bytes: a dry run has at most 1 TiB")
    if not _pages:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000)
        _pages.append(mmap.mmap(-1, _PAGE_BYTES, flags=flags, prot=mmap.PROT_READ))
    zeros = np.frombuffer(_pages[0], np.uint8, count).view(dtype).reshape(shape) if count else np.zeros(shape, dtype)
    return _placed(aval, sharding, zeros, committed)


def _placed(aval: Any, sharding: Sharding, shard: np.ndarray, committed: bool) -> Any:
    """Return an array with the same numbers in each shard."""
    from jax._src import core
    from jax._src.lib import xla_client  # pyright: ignore[reportPrivateImportUsage]

    devices = list(sharding._addressable_device_assignment)
    placed = core.update_aval_with_sharding(core.ShapedArray(aval.shape, aval.dtype, aval.weak_type), sharding)
    return xla_client.batched_device_put(placed, sharding, [shard] * len(devices), devices, committed)


def is_zero_array(array: Any) -> bool:
    """Return whether an array on one device is a view of the page of zeros. (To ask a shard of several devices would
    keep it alive, next to its array.)"""
    if not _pages or len(array.sharding.device_set) > 1 or not array.is_fully_addressable:
        return False
    first = np.frombuffer(_pages[0], np.uint8).ctypes.data
    return first <= array.unsafe_buffer_pointer() < first + _PAGE_BYTES


def numbers_of(array: Any) -> Any:
    """Return an array of numbers: the array itself, or the bits of PRNG keys."""
    return getattr(array, "_base_array", array)


def read(array: Any) -> np.ndarray:
    """Return the values of an array, or the bits of PRNG keys, copied; otherwise JAX would keep the array's shards
    alive."""
    from jax._src.lib import xla_client  # pyright: ignore[reportPrivateImportUsage]

    array = numbers_of(array)
    copy, devices = xla_client.ArrayCopySemantics.ALWAYS_COPY, array.sharding._internal_device_list
    with jax.transfer_guard("allow"):
        copies = xla_client.batched_copy_array_to_devices_with_sharding([array], [devices], [array.sharding], [copy])
        return np.array(copies[0])


def array_of(numbers: np.ndarray, like: Any) -> Any:
    """Return an array of these numbers (bits for PRNG keys) on the device of `like`, which is on one device."""
    base = numbers_of(like)
    with jax.transfer_guard("allow"):
        placed = _placed(base.aval, base.sharding, numbers, base.committed)
    return placed if base is like else type(like)(like.dtype._impl, placed)


def is_unspecified(sharding: Any) -> bool:
    """Return whether nobody says how a result is sharded."""
    return sharding is None or type(sharding).__name__ == "UnspecifiedValue"


def has_backend() -> bool:
    """Return whether JAX has made its devices, whose number is then settled."""
    from jax._src import xla_bridge

    return xla_bridge.backends_are_initialized()


def default_device() -> Any:
    """Return the device on which JAX puts unplaced arrays."""
    from jax._src.interpreters import pxla

    return pxla.get_default_device()


def compiled_shardings(program: Dispatched) -> list[Any]:
    """Return the shardings that XLA chooses for a program's results, which requires compiling for the attached
    devices."""
    with past_handler():
        compiled = program.traced().lower().compile()
    return jax.tree.leaves(compiled.output_shardings)


def lowered_text(program: Dispatched, platforms: Sequence[str] | None) -> str:
    """Return a program's StableHLO as JAX lowers it for these platforms, with a location for each operation."""
    with past_handler():
        lowered = program.traced().lower(lowering_platforms=platforms)
    return lowered.compiler_ir("stablehlo").operation.get_asm(enable_debug_info=True, use_local_scope=True)
