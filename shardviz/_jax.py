"""The one module that touches JAX's private parts. It is tried on the oldest and the newest JAX that we support.

Everything here is small and says what it stands on. Three things have no public way: rewriting the shardings inside a
traced program, an MLIR context of our own, and compiling a module with simulated devices and XLA's dumps.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import io
import itertools
import sys
import threading
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
from jax.extend import core as jex_core
from jax.extend.mlir import ir
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec


def names_of(traced: Any) -> tuple[tuple[str | None, ...], tuple[str | None, ...]]:
    """The tree paths of a trace's arguments and results, as `jax.jit` itself names them in its messages.

    Args:
        traced: what `jax.jit(f).trace(...)` returns.

    Returns:
        One name or None a flat argument, and one or None a flat result.
    """
    info = traced.jaxpr.jaxpr.debug_info
    return tuple(info.arg_names or ()), tuple(info.result_paths or ())


def sub_jaxprs(params: dict[str, Any]) -> Iterator[Any]:
    """The jaxprs (not closed) in an equation's parameters."""
    for value in params.values():
        for item in value if isinstance(value, tuple | list) else (value,):
            if isinstance(item, jex_core.ClosedJaxpr):
                yield item.jaxpr
            elif isinstance(item, jex_core.Jaxpr):
                yield item


def constraints(jaxpr: Any) -> Iterator[tuple[tuple[int, ...], PartitionSpec, Any]]:
    """Every `with_sharding_constraint` of a jaxpr and those inside it: shape, spec, and the equation's source info."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "sharding_constraint":
            sharding = equation.params["sharding"]
            if isinstance(sharding, NamedSharding):
                yield equation.invars[0].aval.shape, sharding.spec, equation.source_info
        for inner in sub_jaxprs(equation.params):
            yield from constraints(inner)


_DEBUG = ("debug_callback", "debug_print")
_CALLBACKS = ("pure_callback", "io_callback", "python_callback")


def callbacks(jaxpr: Any) -> Iterator[tuple[str, bool, Any]]:
    """Every equation that calls Python while the program runs: its name, whether it only reports, its source info."""
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        if name in _CALLBACKS or name in _DEBUG:
            yield name, name in _DEBUG and not equation.outvars, equation.source_info
        for inner in sub_jaxprs(equation.params):
            yield from callbacks(inner)


def meshes(jaxpr: Any) -> Iterator[Any]:
    """Every mesh that an equation names: of a `shard_map`, a constraint, or a nested jit's shardings."""
    for equation in jaxpr.eqns:
        for value in equation.params.values():
            for item in value if isinstance(value, tuple | list) else (value,):
                mesh = item.mesh if isinstance(item, NamedSharding) else item
                if isinstance(mesh, Mesh | AbstractMesh) and mesh.axis_names:
                    yield mesh
        for inner in sub_jaxprs(equation.params):
            yield from meshes(inner)


def has_shard_map(jaxpr: Any) -> bool:
    """Whether there is a `shard_map` in a jaxpr or in those inside it."""
    return any(
        equation.primitive.name == "shard_map" or any(map(has_shard_map, sub_jaxprs(equation.params)))
        for equation in jaxpr.eqns
    )


def name_stacks(jaxpr: Any) -> Iterator[str]:
    """JAX's name stack of every equation, those inside nested jaxprs included."""
    for equation in jaxpr.eqns:
        yield str(equation.source_info.name_stack)
        for inner in sub_jaxprs(equation.params):
            yield from name_stacks(inner)


def checkpoint_names(jaxpr: Any) -> Iterator[tuple[str, tuple[int, ...], str, tuple[Any, Any]]]:
    """Every `checkpoint_name` of a jaxpr and those inside it: the name, shape, dtype, and the frames of the equation
    that makes the value and of the naming itself.
    """
    made = {id(v): e for e in jaxpr.eqns for v in e.outvars}
    for equation in jaxpr.eqns:
        if equation.primitive.name == "name":
            aval = equation.outvars[0].aval
            maker = made.get(id(equation.invars[0]), equation)
            frames = user_frame(maker.source_info), user_frame(equation.source_info)
            yield equation.params["name"], tuple(aval.shape), str(aval.dtype), frames
        for inner in sub_jaxprs(equation.params):
            yield from checkpoint_names(inner)


def offloaded(jaxpr: Any) -> Iterator[tuple[tuple[str, int, str], tuple[int, ...], str]]:
    """Every value that a jaxpr, or one inside it, puts into the host's memory: its maker's frame, shape and dtype."""
    made = {id(v): e for e in jaxpr.eqns for v in e.outvars}
    for equation in jaxpr.eqns:
        if equation.primitive.name == "device_put":
            for var, place in zip(equation.invars, equation.params["devices"], strict=True):
                maker = made.get(id(var))
                while maker is not None and maker.primitive.name in ("name", "reduce_precision"):
                    maker = made.get(id(maker.invars[0]))
                frame = None if maker is None else user_frame(maker.source_info)
                kind = getattr(place, "memory_kind", None)
                if frame is not None and (place == jax.memory.Space.Host or kind in ("pinned_host", "unpinned_host")):
                    yield frame, tuple(var.aval.shape), str(var.aval.dtype)
        for inner in sub_jaxprs(equation.params):
            yield from offloaded(inner)


def user_frame(source_info: Any) -> tuple[str, int, str] | None:
    """File, line and function of the person's innermost frame, from an equation's source info."""
    from jax._src import source_info_util

    frame = source_info_util.user_frame(source_info.traceback)
    return None if frame is None else (frame.file_name, frame.start_line, frame.function_name)


def on_mesh(closed: Any, mesh: AbstractMesh) -> Any:
    """The closed jaxpr with `mesh` in place of every mesh in its constraints, `shard_map`s and nested shardings.

    A constraint that closes over a concrete mesh keeps that mesh in its equation, and lowering then refuses any other.
    Axes are matched by name; the caller has checked that `mesh` has them. Their types are those of `mesh`, but for the
    axes of the `shard_map`s around, which are Manual. `jax.debug` callbacks, which give no value, are left out, as they
    need devices to be lowered for.
    """

    def value(item: Any, here: AbstractMesh) -> Any:
        if isinstance(item, NamedSharding):
            return NamedSharding(here, item.spec)
        if isinstance(item, Mesh | AbstractMesh):
            return here if item.axis_names else item
        if isinstance(item, jex_core.ClosedJaxpr):
            return item.replace(jaxpr=inside(item.jaxpr, here))
        if isinstance(item, jex_core.Jaxpr):
            return inside(item, here)
        if type(item) in (tuple, list):
            return type(item)(value(i, here) for i in item)
        return item

    def equation(e: Any, here: AbstractMesh) -> Any:
        below = here
        if e.primitive.name == "shard_map":
            below = here.update_axis_types(dict.fromkeys(e.params["newly_manual_axes"], AxisType.Manual))
        bodies = (jex_core.ClosedJaxpr, jex_core.Jaxpr)
        return e.replace(params={k: value(v, below if isinstance(v, bodies) else here) for k, v in e.params.items()})

    def inside(jaxpr: Any, here: AbstractMesh) -> Any:
        kept = (e for e in jaxpr.eqns if not (e.primitive.name in _DEBUG and not e.outvars))
        return jaxpr.replace(eqns=[equation(e, here) for e in kept])

    return value(closed, mesh)


def lower(
    closed: Any,
    name: str,
    donated: Sequence[bool],
    mesh: AbstractMesh,
    platform: str,
    specs: Sequence[PartitionSpec] | None = None,
    device_kind: str = "",
    num_cores: int = 1,
) -> ir.Module:
    """Lowers a closed jaxpr to StableHLO on `mesh`; unused arguments stay.

    What no result needs is left out first, as `jax.jit` does: it would have a say in Shardy's propagation.

    Args:
        closed: the program, its shardings on `mesh` already.
        name: what the module and JAX's name stack call the function.
        donated: for each flat argument whether its buffer may be reused.
        mesh: the mesh that shardings are written over.
        platform: the platform to lower for, such as `"cpu"`.
        specs: a spec for each argument, where the mesh has Explicit axes; else all are replicated.
        device_kind: JAX's name of the device's kind, which some lowerings on TPUs ask for.
        num_cores: the cores of a device, as JAX counts them.
    """
    from jax._src.interpreters import partial_eval

    with under(mesh):  # a shard_map inside enters its mesh
        needed, _ = partial_eval.dce_jaxpr(closed.jaxpr, [True] * len(closed.jaxpr.outvars), instantiate=True)
    run = jex_core.jaxpr_as_fun(closed.replace(jaxpr=needed))

    def fn(*args: Any) -> Any:
        return run(*args)

    fn.__name__ = fn.__qualname__ = name
    arguments = [
        jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=NamedSharding(mesh, spec), weak_type=a.weak_type)
        for a, spec in zip(closed.in_avals, specs or [PartitionSpec()] * len(closed.in_avals), strict=True)
    ]
    donate = tuple(i for i, d in enumerate(donated) if d)
    with under(mesh), _no_backend(platform, device_kind or platform, num_cores):
        traced = jax.jit(fn, keep_unused=True, donate_argnums=donate).trace(*arguments)
        module = traced.lower(lowering_platforms=(platform,)).compiler_ir("stablehlo")
    assert module is not None  # None is for a dialect that JAX has no text of; every lowering has StableHLO
    return module


@dataclass(frozen=True)
class _NoDevice:
    """Stands where JAX looks up a default device, of which, on an abstract mesh, it wants to know this only."""

    platform: str
    device_kind: str
    num_cores: int = 1

    @property
    def client(self) -> _NoDevice:
        return self


@contextlib.contextmanager
def _no_backend(platform: str, device_kind: str, num_cores: int) -> Iterator[None]:
    """Under it, lowering on an abstract mesh does not start JAX's backend, which would take hold of its devices."""
    _mend_default_device()
    before = getattr(_here, "device", None)
    _here.device = _NoDevice(platform, device_kind, num_cores)
    try:
        yield
    finally:
        _here.device = before


@functools.lru_cache(maxsize=1)
def _mend_default_device() -> None:
    from jax._src.interpreters import pxla

    theirs = pxla.get_default_device

    def get_default_device() -> Any:
        return getattr(_here, "device", None) or theirs()

    pxla.get_default_device = get_default_device


def mlir_context() -> ir.Context:
    """A context in which StableHLO, CHLO and Shardy modules can be read."""
    from jax._src.interpreters import mlir

    return mlir.make_ir_context()


def bytecode(module: ir.Operation) -> bytes:
    """An MLIR module as bytecode, source locations included."""
    buffer = io.BytesIO()
    module.write_bytecode(buffer)
    return buffer.getvalue()


def run_passes(module: bytes, passes: str) -> None:
    """Runs an MLIR pass pipeline on a module given as bytecode, without the verifier between passes."""
    from jax.extend.mlir.passmanager import PassManager

    with mlir_context():
        parsed = ir.Module.parse(module)
        manager = PassManager.parse(passes)
        manager.enable_verifier(False)
        manager.run(parsed.operation)


def preload() -> None:
    """Imports what compiling needs and makes neither a backend nor a thread, so that a fork afterwards is cheap."""
    import numpy  # noqa: F401
    from jax._src.interpreters import mlir  # noqa: F401
    from jax._src.lib import xla_client  # noqa: F401  # pyright: ignore[reportPrivateImportUsage]
    from jax.experimental import topologies  # noqa: F401
    from jax.extend import backend  # noqa: F401
    from jax.extend.mlir import passmanager  # noqa: F401
    from jax.extend.mlir.dialects import sdy  # noqa: F401


def compile_for_cpu(
    module: bytes,
    devices: int,
    out_chosen: Sequence[bool],
    options: dict[str, Any],
    ready: Callable[[], None] = lambda: None,
) -> Any:
    """Compiles StableHLO bytecode for simulated CPU devices; XLA writes its dumps as `options` say.

    Args:
        module: bytecode of a module with Shardy's shardings.
        devices: the number of simulated devices, at most 2048.
        out_chosen: for each output whether its sharding is the compiler's choice.
        options: XLA debug options by name, such as `xla_dump_to`.
        ready: called just before the compiler starts.

    Returns:
        The loaded executable.
    """
    import numpy as np
    from jax._src.lib import xla_client  # pyright: ignore[reportPrivateImportUsage]
    from jax.extend.backend import get_compile_options

    client = xla_client.make_cpu_client(num_devices=devices)
    compile_options = get_compile_options(
        num_replicas=1, num_partitions=devices, device_assignment=np.arange(devices).reshape(1, devices)
    )
    build = compile_options.executable_build_options
    build.use_spmd_partitioning = True
    build.use_shardy_partitioner = True
    build.allow_spmd_sharding_propagation_to_output = list(out_chosen)
    compile_options.env_option_overrides = list(options.items())
    with mlir_context():
        parsed = ir.Module.parse(module)
        ready()
        return client.compile_and_load(parsed, xla_client.DeviceList(tuple(client.devices())), compile_options)


def partition_spec(entries: Sequence[Any], unreduced: Sequence[str], reduced: Sequence[str]) -> PartitionSpec:
    """A PartitionSpec; an entry `...` is `P.UNCONSTRAINED`."""
    found = (PartitionSpec.UNCONSTRAINED if entry is ... else entry for entry in entries)
    return PartitionSpec(*found, unreduced=frozenset(unreduced), reduced=frozenset(reduced))


def op_sharding(data: bytes) -> Any:
    """XLA's `OpSharding` from its bytes."""
    from jax._src.lib import xla_client  # pyright: ignore[reportPrivateImportUsage]

    message = xla_client.OpSharding()
    message.ParseFromString(data)
    return message


def hlo_sharding_of(sharding: Any, rank: int | None) -> str | None:
    """The HLO text of a `jax.sharding.Sharding` that has no spec, such as a GSPMDSharding; None where it has none."""
    held = getattr(sharding, "_hlo_sharding", None)
    if held is None and hasattr(sharding, "_to_xla_hlo_sharding"):
        held = sharding._to_xla_hlo_sharding(rank or 0)
    return None if held is None else str(held)


def device_ids(sharding: Any) -> tuple[int, ...]:
    """The ids of a sharding's devices, in the order in which it counts them."""
    ordered = getattr(sharding, "_device_assignment", None)
    return tuple(int(d.id) for d in (sharding.device_set if ordered is None else ordered))


@dataclass(frozen=True)
class JitWrapping:
    """What `jax.jit` was told of a function: the function itself, its arguments' roles, and its shardings as given."""

    fn: Callable[..., Any]
    in_shardings: Any
    out_shardings: Any
    static_argnums: tuple[int, ...]
    static_argnames: tuple[str, ...]
    donate_argnums: tuple[int, ...]
    donate_argnames: tuple[str, ...]


def unwrap_jit(fn: Any) -> JitWrapping | None:
    """What is inside a function that `jax.jit` has wrapped; None for any other.

    A method of which `self` is static is one without it; another's `self` is an argument: unwrap its `__func__`.
    """
    if inspect.ismethod(fn):
        whole = unwrap_jit(fn.__func__)
        return None if whole is None else _bound(whole, fn.__self__)
    inner, info = getattr(fn, "_fun", None), getattr(fn, "_jit_info", None)
    if inner is None or info is None:
        return None
    return JitWrapping(
        inner,
        jax.tree.unflatten(info.in_shardings_treedef, info.in_shardings_leaves),
        jax.tree.unflatten(info.out_shardings_treedef, info.out_shardings_leaves),
        tuple(info.static_argnums),
        tuple(info.static_argnames),
        tuple(info.donate_argnums),
        tuple(info.donate_argnames),
    )


def _bound(method: JitWrapping, own: Any) -> JitWrapping | None:
    try:
        first = next(iter(inspect.signature(method.fn).parameters), None)
    except (TypeError, ValueError):
        first = None
    if 0 not in method.static_argnums and first not in method.static_argnames:
        return None
    return replace(
        method,
        fn=types.MethodType(method.fn, own),
        static_argnums=tuple(n - 1 if n > 0 else n for n in method.static_argnums if n != 0),
        static_argnames=tuple(n for n in method.static_argnames if n != first),
        donate_argnums=tuple(n - 1 if n > 0 else n for n in method.donate_argnums),
    )


def context_mesh() -> Any:
    """The mesh of the call site: that of `jax.set_mesh`, of `use_abstract_mesh`, or of `with mesh:`; None without."""
    from jax._src import mesh as mesh_lib

    for mesh in (
        mesh_lib.get_concrete_mesh(),
        mesh_lib.get_abstract_mesh(),
        mesh_lib.thread_resources.env.physical_mesh,
    ):
        if not mesh.empty:
            return mesh
    return None


def trace_context() -> dict[str, Any]:
    """The settings and contexts that a trace depends on, by name, as the keys of JAX's own caches have them."""
    from jax._src import config

    return dict(zip(config.trace_context_names(), config.trace_context(), strict=True))


def mesh_device_ids(mesh: Any) -> tuple[int, ...]:
    """The numbers of a mesh's devices in order; empty for None and for an abstract mesh."""
    return tuple(int(d.id) for d in mesh.devices.flat) if isinstance(mesh, Mesh) else ()


def device_ids_of(sharding: Any) -> tuple[int, ...]:
    """As `device_ids`; empty for a sharding over an abstract mesh."""
    abstract = isinstance(sharding, NamedSharding) and isinstance(sharding.mesh, AbstractMesh)
    return () if abstract else device_ids(sharding)


_here = threading.local()


@contextlib.contextmanager
def tracing_on(mesh: AbstractMesh | None) -> Iterator[None]:
    """Under it, a function is traced for `mesh`, which needs no devices.

    `use_abstract_mesh` does most of it. What it leaves out is mended here: a `jax.jit` inside whose shardings are bare
    PartitionSpecs asks for a mesh with devices, and a `shard_map` of a mesh of its own refuses every other.
    """
    if mesh is None:
        _mend_pmap()
        with _set("meshless", True):
            yield
        return
    _mend()
    before = getattr(_here, "mesh", None)
    _here.mesh = mesh
    try:
        with under(mesh):
            yield
    finally:
        _here.mesh = before


@contextlib.contextmanager
def under(mesh: AbstractMesh) -> Iterator[None]:
    """`use_abstract_mesh`, which by itself refuses a mesh of another size than that of `jax.set_mesh` around it."""
    from jax._src import mesh as mesh_lib

    own = mesh_lib.get_concrete_mesh()
    around = contextlib.nullcontext() if own.empty else jax.set_mesh(None)
    none = jax.sharding.use_abstract_mesh(AbstractMesh((), ()))
    with around, none, jax.sharding.use_abstract_mesh(mesh):
        yield


@functools.lru_cache(maxsize=1)
def _mend() -> None:
    """Puts the plan's mesh where JAX looks for one, on threads that are inside `tracing_on`; others are as before."""
    from jax._src import pjit

    theirs = pjit.get_ctx_mesh

    def get_ctx_mesh(use_resource_env: bool) -> Any:
        return theirs(use_resource_env) if getattr(_here, "mesh", None) is None else jax.sharding.get_abstract_mesh()

    pjit.get_ctx_mesh = get_ctx_mesh
    _mend_shard_map()
    _mend_pmap()
    _keep_operands()


class _StandIn:
    """The plan's mesh inside a person's `shard_map`, which remembers what it stands in for.

    `jax.shard_map` keeps the mesh and axis names that it has checked for its later calls; so what it is given must lead
    back to the person's own.
    """

    def __init__(self, mesh: Any, own: Any, own_axes: frozenset[Any]):
        self.mesh, self.own, self.own_axes = mesh, own, own_axes

    def __getattr__(self, name: str) -> Any:
        return getattr(self.mesh, name)


def _mend_shard_map() -> None:
    from jax._src import core, shard_map

    check, bind = shard_map._shmap_checks, shard_map.shard_map_p.bind

    def checked(mesh: Any, axis_names: Any, *rest: Any) -> Any:
        own, own_axes = (mesh.own, mesh.own_axes) if isinstance(mesh, _StandIn) else (mesh, frozenset(axis_names))
        if getattr(_here, "mesh", None) is None:
            return check(own, own_axes, *rest)
        target, axes = jax.sharding.get_abstract_mesh(), own_axes
        if own is not None:
            if missing := [name for name in own.axis_names if name not in target.axis_names]:
                if missing == ["_internal_pmap_axis_name"]:
                    raise ValueError(
                        "a pmap inside has no axis_name, so that no axis of the mesh is meant; give it axis_name= "
                        f"{' or '.join(map(repr, target.axis_names))}"
                    )
                raise ValueError(
                    f"shard_map is over a mesh with the axis {missing[0]!r}, which the mesh that it is traced on has "
                    f"not (it has {', '.join(map(repr, target.axis_names)) or 'none'}); add the axis or rename one"
                )
            if not own_axes and len(own.axis_names) < len(target.axis_names):
                axes = frozenset(own.axis_names) - core.get_axis_env().explicit_mesh_axis_names
        mesh, axes = check(target, axes, *rest)
        return _StandIn(mesh, own, own_axes), axes

    def bound(*args: Any, **params: Any) -> Any:
        mesh = params.get("mesh")
        if isinstance(mesh, _StandIn):
            if getattr(_here, "mesh", None) is None:  # a trace on another thread has put it there this very moment
                mesh = jax.sharding.get_abstract_mesh() if mesh.own is None else mesh.own
            else:
                mesh = mesh.mesh
        return bind(*args, **(params | {"mesh": mesh}))

    shard_map._shmap_checks = checked
    shard_map.shard_map_p.bind = bound


@dataclass(frozen=True)
class Operand:
    """An operand of an operation that JAX refused for its sharding."""

    shape: tuple[int, ...]
    spec: PartitionSpec


@dataclass(frozen=True)
class Refusal:
    """What JAX had at hand where it refused an operation under Explicit axes.

    Attributes:
        operands: the operands, in order.
        contraction: the dimension numbers of a matrix product: ((contracting, contracting), (batch, batch)); None for
            any other operation.
    """

    operands: tuple[Operand, ...]
    contraction: Any = None


def refusal(error: BaseException) -> Refusal | None:
    """What JAX refused, if an error is one about the shardings in types; None for any other."""
    return getattr(error, "_shardviz_refusal", None)


def _keep_operands() -> None:
    """Makes JAX's errors about shardings in types keep the operands, which are known only where they are raised."""
    from jax._src import core, named_sharding

    def keeping(kind: type) -> None:
        theirs = kind.__init__

        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            theirs(self, *args, **kwargs)
            mesh = getattr(_here, "mesh", None)
            if mesh is not None and AxisType.Explicit in mesh.axis_types:
                self._shardviz_refusal = _refused(sys._getframe(1))

        kind.__init__ = __init__

    keeping(core.ShardingTypeError)
    keeping(named_sharding.DuplicateSpecError)


def _refused(frame: Any) -> Refusal:
    """The operands from the innermost frame that has some among its arguments."""
    from jax.core import ShapedArray

    is_array = lambda x: isinstance(x, ShapedArray)  # noqa: E731
    for _ in range(12):
        if frame is None:
            break
        code, values = frame.f_code, frame.f_locals
        names = code.co_varnames[: code.co_argcount + bool(code.co_flags & inspect.CO_VARARGS) + code.co_kwonlyargcount]
        given = [values[name] for name in names if name in values]
        flat = [x for value in given for x in (value if isinstance(value, tuple | list) else (value,)) if is_array(x)]
        if flat:
            found = tuple(Operand(tuple(x.shape), x.sharding.spec) for x in flat)
            return Refusal(found, _contraction(frame) if len(found) == 2 else None)
        frame = frame.f_back
    return Refusal(())


def _contraction(frame: Any) -> Any:
    """The dimension numbers of the matrix product that a frame is at work on; None if it is on none."""
    for _ in range(4):
        if frame is None:
            break
        known = frame.f_locals
        options = known.get("kwargs")
        inner = options.get("dimension_numbers") if isinstance(options, dict) else None
        numbers = known.get("dimension_numbers", inner)
        if type(numbers) is tuple and len(numbers) == 2:
            return numbers
        frame = frame.f_back
    return None


@dataclass(frozen=True)
class ShardMapped:
    """A `shard_map` that takes a program's own arguments, seen from outside.

    Attributes:
        in_specs: for each argument of the program its spec there, or None.
        out_specs: for each result of the program, or None where it comes from elsewhere.
    """

    in_specs: tuple[PartitionSpec | None, ...]
    out_specs: tuple[PartitionSpec | None, ...]


def outermost_shard_map(jaxpr: Any) -> ShardMapped | None:
    """The specs that `shard_map`s give to a program's arguments and results that they take and give directly.

    Of one that leaves some mesh axes Auto, the results' specs say only a part, which is none to fix them by.
    """
    ins: dict[Any, PartitionSpec] = {}
    outs: dict[Any, PartitionSpec] = {}
    for equation in jaxpr.eqns:
        if equation.primitive.name == "shard_map":
            ins |= {v: s for v, s in zip(equation.invars, equation.params["in_specs"], strict=True) if _is_var(v)}
            if set(equation.params["newly_manual_axes"]) == set(equation.params["mesh"].axis_names):
                outs |= dict(zip(equation.outvars, equation.params["out_specs"], strict=True))
        elif equation.primitive.name in ("jit", "pjit"):
            inner = outermost_shard_map(equation.params["jaxpr"].jaxpr)
            if inner is not None:
                pairs = zip(equation.invars, inner.in_specs, strict=True)
                ins |= {v: s for v, s in pairs if s is not None and _is_var(v)}
                outs |= {v: s for v, s in zip(equation.outvars, inner.out_specs, strict=True) if s is not None}
    found_in = tuple(ins.get(v) for v in jaxpr.invars)
    found_out = tuple(outs.get(v) if _is_var(v) else None for v in jaxpr.outvars)
    return ShardMapped(found_in, found_out) if any(s is not None for s in (*found_in, *found_out)) else None


def _is_var(atom: Any) -> bool:
    return not isinstance(atom, jex_core.Literal)


def type_specs(jaxpr: Any) -> tuple[PartitionSpec, ...]:
    """The spec in each result's type."""
    return tuple(atom.aval.sharding.spec for atom in jaxpr.outvars)


def read_export(data: bytes, *, any_type: bool = False) -> Any:
    """What a file of `jax.export` holds, a `jax.export.Exported`.

    Only bytes are read. Of pytree nodes it makes those that this process has registered with `jax.export`.

    Args:
        data: the file.
        any_type: take a tuple for a pytree node that is not registered.

    Raises:
        Exception: of any kind, for bytes that are no such file.
    """
    from jax._src.export import _export

    registered = _export.deserialization_registry
    try:
        if any_type:
            _export.deserialization_registry = _AnyType()
        return jax.export.deserialize(bytearray(data))
    finally:
        _export.deserialization_registry = registered


class _AnyType(dict[str, Any]):
    """In the place of the registry of pytree nodes: a tuple for every name."""

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> Any:
        return tuple, lambda _: None, lambda _, children: tuple(children)


def is_export_file(data: bytes) -> bool:
    """Whether bytes begin as a file of `jax.export` does: a table with a function's name and a StableHLO module in it.

    Raises:
        Exception: of any kind, for bytes that are none.
    """
    from jax._src.export import serialization_generated

    table = serialization_generated.Exported.GetRootAsExported(data, 0)
    return table.FunctionName() is not None and table.MlirModuleSerializedLength() > 0


def exported_module(artifact: bytes) -> ir.Module:
    """The StableHLO of an export's `mlir_module_serialized`, in a context of its own.

    Shardings that older versions left as text become Shardy's attributes.

    Raises:
        Exception: of any kind, for bytes that are no portable artifact.
    """
    from jax._src.lib import _jax as xla  # pyright: ignore[reportPrivateImportUsage]
    from jax.extend.mlir.passmanager import PassManager

    with mlir_context():
        module = xla.mlir.deserialize_portable_artifact(artifact)
        passes = ["sdy-lift-inlined-meshes"]
        if "xla.sdy.meshes" in str(module.operation.attributes):
            passes.insert(0, "xla-sdy-round-trip-import-shardy-attrs")
        PassManager.parse(f"builtin.module({','.join(passes)})").run(module.operation)
        return module


def export_shardings(exported: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """An export's shardings of arguments and of results: for each a NamedSharding, an HLO sharding, or None."""
    found = []
    for way in ("in", "out"):
        named, hlo = getattr(exported, f"_{way}_named_shardings"), getattr(exported, f"{way}_shardings_hlo")
        found.append(tuple(n if n is not None else h for n, h in zip(named, hlo, strict=True)))
    return found[0], found[1]


def stable_custom_calls() -> frozenset[str]:
    """The targets of custom calls that JAX promises to keep: a file that has them can be run for six months."""
    from jax._src.export import _export

    return frozenset(_export._CUSTOM_CALL_TARGETS_GUARANTEED_STABLE)


def calling_conventions() -> tuple[int, int]:
    """The oldest and the newest calling convention of exports that this JAX reads."""
    return (
        jax.export.minimum_supported_calling_convention_version,
        jax.export.maximum_supported_calling_convention_version,
    )


def symbols_of(avals: Sequence[Any]) -> tuple[str, ...]:
    """The names of the symbolic dimensions in the shapes of abstract values."""
    from jax._src.export import shape_poly

    return tuple(shape_poly.all_dim_vars(avals))


def constraints_of(avals: Sequence[Any]) -> tuple[str, ...]:
    """The constraints, as they were written, that symbolic dimensions in shapes were made with."""
    for aval in avals:
        for dimension in aval.shape:
            if jax.export.is_symbolic_dim(dimension):
                return tuple(dict.fromkeys(c.debug_str for c in dimension.scope._explicit_constraints))
    return ()


def with_shape(aval: Any, shape: tuple[int, ...]) -> Any:
    """An abstract value with another shape."""
    return aval.update(shape=shape)


def evaluated(dimension: Any, values: dict[str, int]) -> int:
    """A dimension, which may be an expression such as `2*b + 1`, under values for its symbols."""
    return int(dimension._evaluate(dict[str, Any](values))) if jax.export.is_symbolic_dim(dimension) else int(dimension)


def refined(module: bytes) -> ir.Module:
    """A module whose main function has fixed shapes, with all shapes inside fixed too and its shape assertions checked.

    Raises:
        Exception: of any kind; the assertion that does not hold is in the text of its cause.
    """
    from jax._src.interpreters import mlir

    with mlir_context():
        return mlir.refine_polymorphic_shapes(ir.Module.parse(module))


def ir_type(aval: Any) -> ir.Type:
    """The tensor type of an abstract value; of a PRNG key's, that of its bits. In a context that is entered."""
    from jax._src import core
    from jax._src.interpreters import mlir

    if jax.numpy.issubdtype(aval.dtype, jax.dtypes.extended):
        aval = core.physical_aval(aval)
    return ir.RankedTensorType.get(aval.shape, mlir.dtype_to_ir_type(aval.dtype))


@dataclass(frozen=True)
class LoweredFacts:
    """What a `jax.stages.Lowered` knows beside its module.

    Attributes:
        name: the function's name; empty where it is not known.
        names: a name or None for each flat argument.
        avals: an abstract value for each flat argument.
        out_avals: one for each flat result.
        kept: which of the arguments the module still has.
        constants: how many arguments of the module, its first ones, are constants of the program.
    """

    name: str
    names: tuple[str | None, ...]
    avals: tuple[Any, ...]
    out_avals: tuple[Any, ...]
    kept: tuple[int, ...]
    constants: int


def lowered_facts(lowered: Any) -> LoweredFacts:
    """What a `jax.stages.Lowered` knows beside its module."""
    known = lowered._lowering.compile_args
    avals = tuple(jax.tree.leaves(lowered.in_avals))
    every = known.get("all_args_info")
    names = tuple(every.debug_info.arg_names or ()) if every is not None else ()
    constants = len(lowered._lowering.const_args)
    kept = sorted(k - constants for k in known.get("kept_var_idx", range(len(avals))) if k >= constants)
    named = names[-len(avals) :] if avals and len(names) >= len(avals) else (None,) * len(avals)
    return LoweredFacts(
        getattr(every.debug_info, "func_name", "") if every is not None else "",
        named,
        avals,
        tuple(known["global_out_avals"]),
        tuple(kept),
        constants,
    )


def traced_shardings(traced: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The shardings that a `jax.stages.Traced` was made with, of its flat arguments and results; None where none.

    An argument's is what the function was wrapped with, else its own.
    """
    params = traced._params
    found = []
    for key in ("in_shardings", "out_shardings"):
        found.append([s if isinstance(s, jax.sharding.Sharding) else None for s in params[key]])
    own = [kind.sharding if isinstance(kind.sharding, NamedSharding) else None for kind in traced._meta_tys_flat]
    given = found[0][len(found[0]) - len(own) :]
    return tuple(g or o for g, o in zip(given, own, strict=True)), tuple(found[1])


def module_from(data: bytes) -> ir.Module:
    """A module from its bytecode, in a context of its own."""
    with mlir_context():
        return ir.Module.parse(data)


@dataclass(frozen=True)
class PmapWrapping:
    """What `jax.pmap` was told of a function.

    Attributes:
        fn: the function itself.
        axis_name: the mapped axis's name; None where none was given.
        in_axes, out_axes: as given, pytree prefixes of dimensions and None.
        static_argnums, donate_argnums: numbers among all positional arguments.
        devices: the ids of the devices that were named, if any.
        axis_size: the size that was named, if any.
    """

    fn: Callable[..., Any]
    axis_name: Any
    in_axes: Any
    out_axes: Any
    static_argnums: tuple[int, ...]
    donate_argnums: tuple[int, ...]
    devices: tuple[int, ...] | None
    axis_size: int | None


def unwrap_pmap(fn: Any) -> PmapWrapping | None:
    """What is inside a function that `jax.pmap` has wrapped; None for any other.

    The wrapper is a closure, and what it was told stands in its cells.
    """
    from jax._src import pmap

    if getattr(fn, "__globals__", None) is not vars(pmap):
        return None
    infer = _cells(fn).get("infer_params")
    if infer is None:
        return None
    told = _cells(infer)
    static = told["static_broadcasted_tuple"]
    dynamic = (i for i in itertools.count() if i not in static)
    donated = dict(zip(range(max(told["donate_tuple"], default=-1) + 1), dynamic, strict=False))
    name = told["axis_name"]
    return PmapWrapping(
        told["wrapped_fun"].f,
        None if name == "_internal_pmap_axis_name" else name,
        told["in_axes"],
        jax.tree.unflatten(told["out_axes_tree"], told["out_axes_flat"]),
        tuple(static),
        tuple(donated[i] for i in told["donate_tuple"]),
        None if told["devices"] is None else tuple(int(d.id) for d in told["devices"]),
        told["axis_size"],
    )


def _cells(fn: Any) -> dict[str, Any]:
    """What a closure closes over, by name."""
    return dict(zip(fn.__code__.co_freevars, (cell.cell_contents for cell in fn.__closure__ or ()), strict=True))


def shard_map_mesh(fn: Any) -> tuple[bool, Any]:
    """Whether a function is what `jax.shard_map` gives, and the mesh that it was given itself, or None."""
    inner = _cells(fn).get("fun") if inspect.isfunction(fn) else None
    if getattr(getattr(inner, "__code__", None), "co_qualname", "") != "_shard_map.<locals>.wrapped":
        return False, None
    mesh = _cells(inner).get("mesh")
    return True, mesh.own if isinstance(mesh, _StandIn) else mesh


class NestedPmap(ValueError):
    """A `jax.pmap` was called inside another, which JAX does not have since pmap is a `shard_map`."""


@contextlib.contextmanager
def inside_pmap() -> Iterator[None]:
    """Under it, on this thread, a call of a pmapped function is an error, as it is inside JAX's own pmap.

    Raises:
        NestedPmap: if there is such a call.
    """
    _mend_pmap()
    with _set("pmapped", True):
        yield


@contextlib.contextmanager
def _set(name: str, value: Any) -> Iterator[None]:
    """Says something to what is mended, on this thread."""
    before = getattr(_here, name, None)
    setattr(_here, name, value)
    try:
        yield
    finally:
        setattr(_here, name, before)


@functools.lru_cache(maxsize=1)
def _mend_pmap() -> None:
    """Has pmap say at once, on threads that are inside `tracing_on`, where it cannot be on the mesh traced for."""
    from jax._src import pmap

    theirs = pmap._get_mesh_devices

    def get_mesh_devices(*args: Any) -> Any:
        size, mesh = args[2], getattr(_here, "mesh", None)
        if getattr(_here, "pmapped", False):
            raise NestedPmap("a pmap inside a pmap")
        if mesh is not None and size not in mesh.shape.values():
            sizes = ", ".join(f"{name!r}={n}" for name, n in mesh.shape.items())
            raise ValueError(f"a pmap inside maps a dimension of {size}, and of the mesh ({sizes}) no axis is as long")
        devices = theirs(*args)
        if mesh is None and getattr(_here, "meshless", False) and len(devices) != size:
            raise ValueError(f"a pmap inside maps a dimension of {size}, which needs a mesh with an axis as long")
        return devices

    pmap._get_mesh_devices = get_mesh_devices


def in_types(traced: Any) -> bool:
    """Whether a `jax.stages.Traced` has shardings in the types of its arguments, over Explicit mesh axes."""
    return any(
        getattr(getattr(aval, "sharding", None), "mesh", None) is not None
        and jax.sharding.AxisType.Explicit in (aval.sharding.mesh.axis_types or ())
        for aval in traced.jaxpr.in_avals
    )


def compiled_results(compiled: Any) -> tuple[Any, ...]:
    """An abstract value for each flat result of a `jax.stages.Compiled`."""
    return tuple(compiled._executable.out_avals)


def compile_for_tpu(
    module: bytes,
    topology: str,
    details: dict[str, Any],
    device_ids: Sequence[int],
    out_chosen: Sequence[bool],
    options: dict[str, Any],
) -> Any:
    """Compiles StableHLO bytecode for a slice of TPUs that need not be there; XLA writes its dumps as `options` say.

    libtpu reads its environment when it is first loaded: it has to be set before, in a process that is not the kernel.

    Args:
        module: bytecode of a module with Shardy's shardings.
        topology: libtpu's name of the slice, such as `v5p:4x4x4`.
        details: libtpu's further words for it, such as `num_slices` or `chip_config_name`.
        device_ids: the id of the device at each place of the mesh.
        out_chosen: for each output whether its sharding is the compiler's choice.
        options: XLA debug options by name.

    Returns:
        The executable, which cannot be run here.

    Raises:
        Exception: whatever libtpu raises, for a topology that the chip has not or a program that does not fit.
    """
    return _compile_only(module, "tpu", {"topology_name": topology, **details}, device_ids, out_chosen, options)


def compile_for_gpu(
    module: bytes,
    topology: str,
    config: str,
    device_ids: Sequence[int],
    out_chosen: Sequence[bool],
    options: dict[str, Any],
) -> Any:
    """As `compile_for_tpu`, for a cluster of GPUs; `JAX_PLATFORMS=cpu` must be set.

    Args:
        topology: NVLink domains x hosts in each x GPUs of each host, such as `2x1x8`.
        config: XLA's description of the GPU, in text form.
    """
    names = {"topology": topology, "target_config": config}
    return _compile_only(module, "cuda", names, device_ids, out_chosen, options)


def _compile_only(
    module: bytes,
    platform: str,
    names: dict[str, Any],
    device_ids: Sequence[int],
    out_chosen: Sequence[bool],
    options: dict[str, Any],
) -> Any:
    import numpy as np
    from jax._src.lib import xla_client  # pyright: ignore[reportPrivateImportUsage]
    from jax.experimental import topologies
    from jax.extend.backend import get_compile_options

    found = {device.id: device for device in topologies.get_topology_desc(platform=platform, **names).devices}
    devices = [found[i] for i in device_ids]
    compile_options = get_compile_options(
        num_replicas=1, num_partitions=len(devices), device_assignment=np.array(device_ids).reshape(1, -1)
    )
    build = compile_options.executable_build_options
    build.use_spmd_partitioning = True
    build.use_shardy_partitioner = True
    build.allow_spmd_sharding_propagation_to_output = list(out_chosen)
    compile_options.env_option_overrides = list(options.items())
    with mlir_context():
        parsed = ir.Module.parse(module)
        return devices[0].client.compile(parsed, xla_client.DeviceList(tuple(devices)), compile_options)


def unregistered(trees: Iterable[Any]) -> list[type]:
    """The types of nodes in tree structures that `jax.export` has not been told how to write."""
    from jax._src.export import _export

    known = {tuple, list, dict, type(None), *_export.serialization_registry}
    found: dict[type, None] = {}

    def visit(tree: Any) -> None:
        data = tree.node_data()
        if data is not None and data[0] not in known:
            found[data[0]] = None
        for child in tree.children():
            visit(child)

    for tree in trees:
        visit(tree)
    return list(found)
