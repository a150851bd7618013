"""A lowered module as plain data: its mesh, its main function, its shardings, and its operations' source places.

JAX writes its name stack and the Python frames into each MLIR location:
`loc("jit(f)/jvp()/while/body/mul"(callsite("block"("model.py":20:8 to :30) at "f"("train.py":7:4 to :9))))`: the
outermost name is the name stack, the frames follow, innermost first.

JAX drops unused arguments, adds one for the platform if a program is for several, and leaves symbolic dimensions open.
`complete` makes each argument of the flat program an argument of the module again, of fixed shape, in order.
"""

from __future__ import annotations

import contextlib
import functools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shardviz import _jax
from shardviz._jax.mlir import ir, sdy, stablehlo
from shardviz.errors import CompileError, TraceError
from shardviz.notation import Axis, DeviceMesh, Spec
from shardviz.notation.scan import unescaped
from shardviz.notation.sdy import axis as sdy_axis
from shardviz.notation.spec import partial_kind
from shardviz.records import Frame
from shardviz.records.source import innermost


def spec_of(attribute: Any) -> Spec:
    """Return the spec of a `#sdy.sharding` attribute, whose context must be entered."""
    return _spec_of(str(attribute))


@functools.lru_cache(maxsize=4096)  # to read one takes ten times as long as to write it
def _spec_of(text: str) -> Spec:
    sharding = sdy.TensorShardingAttr(ir.Attribute.parse(text))
    dims = tuple(_axes(sdy.DimensionShardingAttr(d).axes) for d in sharding.dimension_shardings)
    kind = str(getattr(sharding, "reduction_op", None) or "sum")
    return Spec(dims, _axes(sharding.unreduced_axes), (), partial_kind(kind, text))


def _axes(attributes: Any) -> tuple[Axis, ...]:
    return tuple(_axis_of(sdy.AxisRefAttr(each), sdy.SubAxisInfoAttr) for each in attributes)


@functools.lru_cache(maxsize=4096)
def sdy_spec(spec: Spec, rank: int, unsharded: str = "") -> str:
    """Write a closed spec in Shardy's form: `[{"data"}, {}]`; `unsharded="?"` leaves the other dimensions open. Axes of
    partial sums follow: `[{}], unreduced={"model"}`."""
    dims = Spec.of(spec, rank).dims
    text = "[" + ", ".join("{" + (", ".join(map(sdy_axis, axes)) or unsharded) + "}" for axes in dims) + "]"
    kind = "" if spec.unreduced_kind == "sum" else spec.unreduced_kind
    return text + (f", unreduced={kind}{{{', '.join(map(sdy_axis, spec.unreduced))}}}" if spec.unreduced else "")


def sharding(spec: Spec, rank: int, unsharded: str = "") -> ir.Attribute:
    """Return the `#sdy.sharding` attribute of a spec; `unsharded` as for `sdy_spec`."""
    return ir.Attribute.parse(f"#sdy.sharding<@{MESH}, {sdy_spec(spec, rank, unsharded)}>")


def group_axes(attribute: Any) -> tuple[Axis, ...] | None:
    """Return the axes of replica groups that are written as mesh axes; None for groups that list devices."""
    if not str(attribute).startswith(GROUPS):
        return None
    axes = ir.ArrayAttr(stablehlo.ReplicaGroupMeshAxesAttr(attribute).axes)
    return tuple(_axis_of(stablehlo.AxisRefAttr(axis), stablehlo.SubAxisInfoAttr) for axis in axes)


def _axis_of(reference: Any, part_of: Callable[[Any], Any]) -> Axis:
    if reference.sub_axis_info is None:
        return reference.name
    part = part_of(reference.sub_axis_info)
    return reference.name, part.pre_size, part.size


@contextlib.contextmanager
def valid_mlir() -> Iterator[None]:
    """Turn MLIR's errors while a module is read or verified into CompileError with MLIR's words."""
    try:
        yield
    except ir.MLIRError as error:
        reasons = [line.removeprefix("error: unknown: ") for line in str(error).splitlines()[1:2]]
        raise CompileError(
            f"the program's module is not valid MLIR: {''.join(reasons) or error}. If it comes from a file of "
            "jax.export, the file is damaged: export it again"
        ) from error


def verify(module: ir.Operation) -> None:
    """Raise for a module on which Shardy would abort the process; errors as `valid_mlir`."""
    with valid_mlir():
        module.verify()


_DTYPES = {"i1": "bool", "bf16": "bfloat16", "complex<f32>": "complex64", "complex<f64>": "complex128"}
_KINDS = {"ui": "uint", "i": "int", "f": "float"}


def dtype_of(text: str) -> str:
    """Return NumPy's name of an MLIR element type: `float8_e4m3fn` for `f8E4M3FN`."""
    if plain := re.fullmatch(r"(ui|i|f)([2-9]|\d\d+)", text):
        return _KINDS[plain[1]] + plain[2]
    small = re.fullmatch(r"f(\d)(E.*)", text)
    return f"float{small[1]}_{small[2].lower()}" if small else _DTYPES.get(text, text)


def call_target(op: Any) -> str:
    """Return the target of a `stablehlo.custom_call`; empty if it has none."""
    attributes = op.attributes
    return ir.StringAttr(attributes["call_target_name"]).value if "call_target_name" in attributes else ""


_NAME = re.compile(r'^loc\("((?:[^"\\]|\\.)*)"[()]')
_FRAME = re.compile(r'"((?:[^"\\]|\\.)*)"\("((?:[^"\\]|\\.)*)":(\d+):(\d*)(?: to :(\d+)\b)?')


@dataclass(frozen=True)
class Place:
    """The origin of an operation: JAX's name stack, including its own name, and the user's innermost line."""

    name_stack: str
    frame: Frame | None

    @property
    def op(self) -> str:
        """The operation's own name, the last one in the name stack."""
        return self.name_stack.rsplit("/", 1)[-1]


def within(place: Place, caller: Place | None) -> Place:
    """Return the place of an operation in a function that is called at `caller` (None in the main function). JAX lowers
    a nested function once, with name stacks relative to it, to which the caller's is added; stacks that begin at the
    program are unchanged. An operation without a line gets the call's line, without the columns, which belong to the
    call's result."""
    if caller is None:
        return place
    root = caller.name_stack.split("/", 1)[0]
    whole = place.name_stack.startswith(f"{root}/") and not caller.name_stack.endswith(f"/{root}")
    name = place.name_stack if whole else f"{caller.name_stack}/{place.name_stack}".rstrip("/")
    return Place(name, place.frame or (caller.frame and replace(caller.frame, columns=None)))


def place_of(location: Any, places: dict[Any, Place]) -> Place:
    """Read a location. `places` caches what was read, because a module's locations are the same under every plan."""
    key = location.attr  # attributes hash by identity, locations do not
    if key not in places:
        places[key] = parse(str(location))
    return places[key]


def parse(text: str) -> Place:
    """Read a location's text."""
    name = _NAME.match(text)
    frames = [
        Frame(unescaped(file), int(line), unescaped(function), (int(start), int(end)) if end else None)
        for function, file, line, start, end in _FRAME.findall(text, name.end(1) if name else 0)
    ]
    return Place(unescaped(name[1]) if name else "", innermost(frames))


def location(text: str) -> ir.Location:
    """Return a location from its text, in an entered context."""
    return ir.Module.parse(f"module {{}} {text}").operation.location


MESH = "mesh"
"""The name of a lowered module's mesh."""

CONSTRAINT, SHARDING = "sdy.sharding_constraint", "sdy.sharding"

GROUPS = "#stablehlo.replica_group_mesh_axes"


def symbol_of(operation: Any) -> str:
    """Return the symbol that an operation defines; empty if none."""
    attributes = operation.attributes
    return ir.StringAttr(attributes["sym_name"]).value if "sym_name" in attributes else ""


_AXES = "stablehlo.mesh"


def set_mesh(module: ir.Operation, body: Any, shape: Mapping[str, int]) -> None:
    """Replace the module's mesh; `shape` is mesh axis → size."""
    axes = ", ".join(f"{sdy_axis(name)}={size}" for name, size in shape.items())
    named = False
    for old in [op for op in body.operations if op.operation.name == "sdy.mesh" and symbol_of(op) == MESH]:
        named = named or _AXES in old.operation.attributes
        old.operation.erase()  # others are those of single devices, which callbacks run on
    # Built from text: typed builders differ between versions. No device ids: partition i is the mesh's i-th place, and
    # which device that is the device assignment says.
    sizes = ", ".join(f"{{name = {sdy_axis(name)}, size = {size} : i64}}" for name, size in shape.items())
    also = f" {{{_AXES} = {{axes = [{sizes}]}}}}" if named else ""  # StableHLO's own word for it, where JAX writes one
    text = f"module {{ sdy.mesh @{MESH} = <[{axes}]>{also} }}"
    new = ir.Module.parse(text).body.operations[0].operation.clone()
    ir.InsertionPoint.at_block_begin(body).insert(new)
    i32 = ir.IntegerType.get_signless(32)
    if (size := math.prod(shape.values())) < 2**31:  # what is only propagated may have more
        module.attributes["mhlo.num_partitions"] = ir.IntegerAttr.get(i32, size)


def _meshes(module: Any) -> dict[str, DeviceMesh]:
    meshes = {}
    for op in module.operation.regions[0].blocks[0].operations:
        if op.operation.name == "sdy.mesh":
            mesh = sdy.MeshAttr(op.attributes["mesh"])
            axes = [sdy.MeshAxisAttr(axis) for axis in mesh.axes]
            if axes:
                names, sizes = tuple(a.name for a in axes), tuple(a.size for a in axes)
                meshes[symbol_of(op)] = DeviceMesh(names, sizes, device_ids=tuple(mesh.device_ids))
    return meshes


def mesh_in(module: Any) -> DeviceMesh | None:
    """Return the mesh of a module's shardings."""
    meshes = _meshes(module)
    return meshes.get(MESH) or next(iter(meshes.values()), None)


def leave_out_constraints(module: ir.Operation) -> None:
    """Remove every sharding constraint from a module, in place."""
    for op in _jax.walk(module, CONSTRAINT):
        op.results[0].replace_all_uses_with(op.operands[0])
        op.erase()


def with_one_mesh(module: Any) -> None:
    """Rename a module's mesh to `MESH`, in place, and merge several names of one mesh."""
    meshes = _meshes(module)
    kept = meshes.get(MESH) or next(iter(meshes.values()), DeviceMesh((), ()))
    for op in [op.operation for op in module.operation.regions[0].blocks[0].operations]:
        symbol = symbol_of(op)
        if symbol == MESH or op.name != "sdy.mesh" or symbol not in meshes or meshes[symbol].shape != kept.shape:
            continue
        ir.SymbolTable.replace_all_symbol_uses(symbol, MESH, module.operation)
        if MESH in meshes:
            op.erase()
        else:
            op.attributes["sym_name"] = ir.StringAttr.get(MESH)
            meshes[MESH] = kept


def axis_names(text: str) -> set[str]:
    """Return the mesh axes in the text of a Shardy attribute, or of replica groups."""
    return {unescaped(name) for name, _ in _QUOTED.findall(text)}


_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"(:\(\d+\)\d+)?')


_NAMED = re.compile(r'^loc\("((?:[^"\\]|\\.)*)"')
_INNER = "_wrapped_jax_export_main"
_PLATFORM = "_platform_index"


def functions_of(module: Any) -> dict[str, ir.Operation]:
    """Return symbol → function of a module."""
    operations = (op.operation for op in module.operation.regions[0].blocks[0].operations)
    return {symbol_of(op): op for op in operations if op.name == "func.func"}


def main_of(module: Any) -> ir.Operation:
    """Return the module's main function. Raises TraceError if it has none."""
    main = functions_of(module).get("main")
    if main is None:
        raise TraceError("the module has no function 'main'; expected StableHLO as JAX lowers it")
    return main


def argument_names(module: Any, count: int) -> list[str | None]:
    """Return the names that the module's last `count` arguments were lowered with, from their locations if known."""
    function = functions_of(module).get(_INNER) or main_of(module)
    arguments = list(function.regions[0].blocks[0].arguments)[-count:] if count else []
    matches = [_NAMED.match(str(a.location)) for a in arguments]
    return [unescaped(m[1]) if m else None for m in matches]


ENDS = {"argument": "arg_attrs", "output": "res_attrs"}
"""Role → the name of the attributes of a function's arguments or results."""


def shardings_of(op: ir.Operation, name: str) -> list[Any]:
    """Return the shardings that an operation states for several values."""
    return [sdy.TensorShardingAttr(s) for s in sdy.TensorShardingPerValueAttr(op.attributes[name]).shardings]


def attributes_of(function: ir.Operation, which: str, count: int) -> list[dict[str, Any]]:
    """Return the attributes of a function's arguments (`arg_attrs`) or results (`res_attrs`)."""
    if which not in function.attributes:
        return [{} for _ in range(count)]
    return [{n.name: n.attr for n in ir.DictAttr(entry)} for entry in ir.ArrayAttr(function.attributes[which])]


def set_attributes(function: ir.Operation, which: str, entries: Iterable[dict[str, Any]]) -> None:
    """Write the attributes of a function's arguments or results, in the form of `attributes_of`."""
    function.attributes[which] = ir.ArrayAttr.get(list(map(ir.DictAttr.get, entries)))


def function_type(function: ir.Operation) -> ir.FunctionType:
    """Return the types of a function's arguments (`inputs`) and results."""
    return ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)


def set_arguments(function: ir.Operation, entries: Iterable[dict[str, Any]]) -> None:
    """Update a function's type and argument attributes to match the arguments of its block."""
    inputs = [argument.type for argument in function.regions[0].blocks[0].arguments]
    kind = ir.FunctionType.get(inputs, function_type(function).results)
    function.attributes["function_type"] = ir.TypeAttr.get(kind)
    set_attributes(function, "arg_attrs", entries)


def complete(module: Any, avals: Sequence[Any], kept: Sequence[int], platform: int = 0) -> bool:
    """Make the main function take exactly `avals`, of fixed shapes, in place (its context must be entered). The module
    still has the `kept` ones, and is settled on one of its platforms. Return whether inner shapes must still be
    refined. Raises TraceError if the module takes other arguments too."""
    main = main_of(module)
    block = main.regions[0].blocks[0]
    old = list(block.arguments)
    attributes = attributes_of(main, "arg_attrs", len(old))
    settled = _settle_platform(block, old, attributes, platform)
    old, attributes = old[settled:], attributes[settled:]
    if any("token" in str(a.type) for a in old):
        raise TraceError(
            "the program has ordered effects (a callback with ordered=True, say), which chain it to the host; "
            "explore it without them"
        )
    if len(old) != len(kept):
        raise TraceError(f"the module takes {len(old)} arguments where {len(kept)} were expected")
    place = {flat: i for i, flat in enumerate(kept)}
    entries: list[dict[str, Any]] = []
    reshaped = False
    for flat, aval in enumerate(avals):
        kind = _jax.ir_type(aval)
        if (i := place.get(flat)) is None:
            block.add_argument(kind, ir.Location.unknown())
            entries.append({})
            continue
        value = new = block.add_argument(kind, old[i].location)
        entries.append(attributes[i])
        if old[i].type != kind:
            reshaped = True
            with ir.InsertionPoint.at_block_begin(block):
                value = stablehlo.convert(old[i].type, new)
        old[i].replace_all_uses_with(value)
    for _ in range(len(old) + settled):
        block.erase_argument(0)
    set_arguments(main, entries)
    uses = "jax.uses_shape_polymorphism"
    open_shapes = uses in module.operation.attributes and ir.BoolAttr(module.operation.attributes[uses]).value
    return reshaped or bool(settled) or open_shapes


def _settle_platform(block: Any, arguments: list[Any], attributes: list[dict[str, Any]], platform: int) -> int:
    """Replace the argument that states the platform by a constant; return 1 if there was one, else 0."""
    if not attributes or str(attributes[0].get("jax.global_constant")) != f'"{_PLATFORM}"':
        return 0
    with ir.InsertionPoint.at_block_begin(block):
        value: Any = np.array(platform, np.int32)
        chosen = stablehlo.constant(ir.DenseElementsAttr.get(value))
    arguments[0].replace_all_uses_with(chosen)
    return 1


def items(operation: ir.Operation) -> list[tuple[str, Any]]:
    """Yield an operation's attributes by name, except a constant's value, which has no sharding and cannot always be
    read."""
    names = [n if isinstance(n, str) else n.name for n in operation.attributes]
    constant = operation.name in ("stablehlo.constant", "sdy.constant")
    return [(name, operation.attributes[name]) for name in names if not (constant and name == "value")]


def assertions(module: Any) -> list[str]:
    """Return the messages of the checks that a module makes of its arguments' shapes."""
    calls = _jax.walk(module.operation, "stablehlo.custom_call")
    return [ir.StringAttr(c.attributes["error_message"]).value for c in calls if "error_message" in c.attributes]


# Lines of operations that JAX lowers without any, as those of `jnp.cumsum` on a TPU: it lowers some library functions
# once, and writes a line at their calls alone, so that the line is lost where XLA puts the body in place of a call.

_LINE = re.compile(r'"(?:[^"\\]|\\.)*":\d+:')


def give_lines(module: ir.Operation) -> None:
    """Give operations without lines in a function the line of its calls, if all calls are on one line; in place.
    Otherwise a copy of the function for each call would be needed, a program that compilers may order differently from
    JAX's."""
    functions = functions_of(module)

    def has_lines(function):
        return any(_LINE.search(str(op.location)) for op in _jax.walk(function)[1:])

    lineless = {name for name, op in functions.items() if name != "main" and not has_lines(op)}
    calls: dict[str, list[tuple[str, str]]] = {name: [] for name in lineless}  # callee → (caller, location of the call)
    for caller, function in functions.items() if lineless else ():
        for op in _jax.walk(function, "func.call"):
            if (callee := ir.FlatSymbolRefAttr(op.attributes["callee"]).value) in lineless:
                calls[callee].append((caller, str(op.location)))

    @functools.cache
    def lines_of(name: str) -> set[str]:
        return {line for caller, at in calls[name] for line in (lines_of(caller) if caller in lineless else {at})}

    for name in lineless:
        if len(lines_of(name)) == 1 and _LINE.search(at := next(iter(lines_of(name)))):
            for op in _jax.walk(functions[name]):
                op.location = location(_at(at, str(op.location)))


def _at(call: str, own: str) -> str:
    """Return the location of an operation in a called function: its own name, and the call's line.

    >>> _at('loc("jit(f)/jit(cumsum)"("f"("model.py":20:4)))', 'loc("reduce_window_sum")')
    'loc("reduce_window_sum"("f"("model.py":20:4)))'
    """
    at, named = _NAMED.match(call), _NAMED.match(own)
    return call if at is None or named is None else named[0] + call[at.end() :]
