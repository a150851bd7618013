"""The one module that touches JAX's private parts. It is tried on the oldest and the newest JAX that we support.

Everything here is small and says what it stands on. Three things have no public way: rewriting the shardings inside a
traced program, an MLIR context of our own, and compiling a module with simulated devices and XLA's dumps.
"""

from __future__ import annotations

import contextlib
import functools
import io
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax.extend import core as jex_core
from jax.extend.mlir import ir
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec


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


def user_frame(source_info: Any) -> tuple[str, int, str] | None:
    """File, line and function of the person's innermost frame, from an equation's source info."""
    from jax._src import source_info_util

    frame = source_info_util.user_frame(source_info.traceback)
    return None if frame is None else (frame.file_name, frame.start_line, frame.function_name)


def on_mesh(closed: Any, mesh: AbstractMesh) -> Any:
    """The closed jaxpr with `mesh` in place of every mesh in its constraints and nested shardings.

    A constraint that closes over a concrete mesh keeps that mesh in its equation, and lowering then refuses any other.
    Axes are matched by name; the caller has checked that `mesh` has them. `jax.debug` callbacks, which give no value,
    are left out, as they need devices to be lowered for.
    """

    def value(item: Any) -> Any:
        if isinstance(item, NamedSharding):
            return NamedSharding(mesh, item.spec)
        if isinstance(item, Mesh | AbstractMesh):
            return mesh if item.axis_names else item
        if isinstance(item, jex_core.ClosedJaxpr):
            return item.replace(jaxpr=inside(item.jaxpr))
        if isinstance(item, jex_core.Jaxpr):
            return inside(item)
        if type(item) in (tuple, list):
            return type(item)(value(i) for i in item)
        return item

    def inside(jaxpr: Any) -> Any:
        return jaxpr.replace(
            eqns=[
                e.replace(params={k: value(v) for k, v in e.params.items()})
                for e in jaxpr.eqns
                if not (e.primitive.name in _DEBUG and not e.outvars)
            ]
        )

    return value(closed)


def lower(closed: Any, name: str, donated: Sequence[bool], mesh: AbstractMesh, platform: str) -> ir.Module:
    """Lowers a closed jaxpr to StableHLO with all arguments replicated on `mesh`; unused arguments stay.

    Args:
        closed: the program, its shardings on `mesh` already.
        name: what the module and JAX's name stack call the function.
        donated: for each flat argument whether its buffer may be reused.
        mesh: the mesh that shardings are written over.
        platform: the platform to lower for, such as `"cpu"`.
    """
    run = jex_core.jaxpr_as_fun(closed)

    def fn(*args: Any) -> Any:
        return run(*args)

    fn.__name__ = fn.__qualname__ = name
    replicated = NamedSharding(mesh, PartitionSpec())
    arguments = [
        jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=replicated, weak_type=a.weak_type) for a in closed.in_avals
    ]
    donate = tuple(i for i, d in enumerate(donated) if d)
    with jax.sharding.use_abstract_mesh(mesh):
        traced = jax.jit(fn, keep_unused=True, donate_argnums=donate).trace(*arguments)
        module = traced.lower(lowering_platforms=(platform,)).compiler_ir("stablehlo")
    assert module is not None  # None is for a dialect that JAX has no text of; every lowering has StableHLO
    return module


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
    """What is inside a function that `jax.jit` has wrapped; None for any other."""
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


_here = threading.local()


@contextlib.contextmanager
def tracing_on(mesh: AbstractMesh | None) -> Iterator[None]:
    """Under it, a function is traced for `mesh`, which needs no devices.

    `use_abstract_mesh` does most of it. What it leaves out is mended here: a `jax.jit` inside whose shardings are bare
    PartitionSpecs asks for a mesh with devices.
    """
    if mesh is None:
        yield
        return
    _mend()
    before = getattr(_here, "mesh", None)
    _here.mesh = mesh
    try:
        with jax.sharding.use_abstract_mesh(mesh):
            yield
    finally:
        _here.mesh = before


@functools.lru_cache(maxsize=1)
def _mend() -> None:
    """Puts the plan's mesh where JAX looks for one, on threads that are inside `tracing_on`; others are as before."""
    from jax._src import pjit

    theirs = pjit.get_ctx_mesh

    def get_ctx_mesh(use_resource_env: bool) -> Any:
        return theirs(use_resource_env) if getattr(_here, "mesh", None) is None else jax.sharding.get_abstract_mesh()

    pjit.get_ctx_mesh = get_ctx_mesh
