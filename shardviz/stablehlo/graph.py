"""A StableHLO module as an operation graph (`shardviz.graph`), read through MLIR once.

func.call, stablehlo.case, stablehlo.while, sdy.manual_computation     run their blocks as wholes
stablehlo.reduce, stablehlo.sort, ...                                  their regions are no part of the program
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

from shardviz._jax.mlir import ir, sdy, stablehlo
from shardviz.graph import Block, Contraction, Convolution, Dims, Graph, GraphValue, Operation
from shardviz.notation import Axis, Spec
from shardviz.notation.scan import unescaped
from shardviz.notation.spec import axis_name
from shardviz.records import KINDS
from shardviz.stablehlo.module import call_target, dtype_of, functions_of, spec_of

RETURNS = frozenset(("stablehlo.return", "func.return", "sdy.return"))
"""Operations that end a block."""

ENTERED = frozenset(
    (
        *("func.call", "stablehlo.while", "stablehlo.case", "stablehlo.if"),
        *("sdy.manual_computation", "sdy.named_computation"),
    )
)
"""Operations that run full blocks."""

COLLECTIVES = {
    "sdy.all_gather": "gathering_axes",
    "sdy.all_reduce": "reduction_axes",
    "sdy.reduce_scatter": "reduce_scatter_axes",
    "sdy.all_to_all": "params",
    "sdy.collective_permute": "",
}
"""Shardy's collectives, and the attribute with the axes of each."""

PROPAGATED = "shardviz.propagated"
"""The attribute with the shardings that propagation gives an operation's results. If the operation computes them with
others, they are resharded."""

CONSTRAINED = "shardviz.constrained"
"""The attribute with the location of a constraint that requires the propagated sharding of an operation's result."""

_MET = re.compile(r"rhs_(?:contracting|batching|group)_dimensions\s*=\s*\[([^\]]*)\]")
_KINDS = {
    "stablehlo.case": "conditional",
    "stablehlo.if": "conditional",
    "stablehlo.dot_general": "dot",
    "stablehlo.optimization_barrier": "opt-barrier",
    "sdy.reshard": "sharding",
    "sdy.sharding_constraint": "sharding",
}


class MlirOperation(Operation):
    """An MLIR operation, with its MLIR name, such as `stablehlo.dot_general`, and the place where it was last
    visited."""

    __slots__ = ("_contraction", "around", "name", "place")

    _contraction: Contraction | None  # once it was read

    @property
    def attributes(self) -> Any:
        return self.native.attributes

    @property
    def location(self) -> Any:
        return self.native.location

    @property
    def constant(self) -> Any:
        """The single number of a constant, or its text."""
        try:
            value = self.attributes["value"]
        except TypeError:  # a complex number, which MLIR's bindings do not know
            return math.nan
        if not isinstance(value, ir.DenseIntElementsAttr | ir.DenseFPElementsAttr):
            return math.nan
        try:
            return value[0]
        except TypeError:  # a float that Python has no bindings for, such as bfloat16
            return str(value).partition("<")[2].partition(">")[0]

    @property
    def is_data(self) -> bool:
        if self.kind != "constant":
            return False
        try:
            value = self.attributes["value"]
        except TypeError:  # complex numbers, which MLIR's bindings do not know
            return True
        return not (isinstance(value, ir.DenseElementsAttr) and value.is_splat)

    @property
    def direction(self) -> str:
        return str(self.attributes["comparison_direction"]).strip("<>")[-2:]

    @property
    def collective(self) -> str:
        """The kind of a collective that the program contains itself, in a `shard_map`; empty for other operations."""
        kind = self.target.replace("_", "-") if self.name == "stablehlo.custom_call" else self.kind
        return kind if kind in KINDS and not self.name.startswith("sdy.") else ""

    @property
    def target(self) -> str:
        return call_target(self)

    @property
    def config(self) -> str:
        """`backend_config`, as text."""
        return unescaped(str(self.attributes["backend_config"])) if "backend_config" in self.attributes else ""

    @property
    def is_exact(self) -> bool:
        return "precision_config" in self.attributes and "HIGHEST" in str(self.attributes["precision_config"])

    @property
    def contraction(self) -> Contraction:
        if self._contraction is None:
            self._contraction = contraction_of(self.native)
        return self._contraction

    @property
    def spreads(self) -> bool:
        if self.kind == "slice":
            return any(step > 1 for step in self.integers("strides", ()))
        return any(self.integers("interior_padding", ()))

    @property
    def compares(self) -> bool:
        """Whether a scatter puts one element into each row: it compares the rows' indices with 0, 1, 2, ..."""
        updates, result = self.operands[-1], self.results[0]
        one = math.prod(updates.shape) == math.prod(result.shape[:-1])
        rows = ", ".join(map(str, range(len(result.shape) - 1)))
        return one and f"input_batching_dims = [{rows}]" in str(self.attributes["scatter_dimension_numbers"])

    @property
    def slice_sizes(self) -> Dims:
        return self.integers("slice_sizes", ())

    @property
    def met(self) -> Dims:
        met = ",".join(_MET.findall(str(self.attributes["ragged_dot_dimension_numbers"])))
        return tuple(map(int, re.findall(r"\d+", met)))

    @property
    def convolution(self) -> Convolution:
        dims = stablehlo.ConvDimensionNumbers(self.attributes["dimension_numbers"])
        many = len(dims.input_spatial_dimensions)
        groups = (ir.IntegerAttr(self.attributes[f"{name}_group_count"]).value for name in ("feature", "batch"))
        return Convolution(
            (dims.input_batch_dimension, dims.input_feature_dimension, *dims.input_spatial_dimensions),
            (
                dims.kernel_input_feature_dimension,
                dims.kernel_output_feature_dimension,
                *dims.kernel_spatial_dimensions,
            ),
            (dims.output_batch_dimension, dims.output_feature_dimension, *dims.output_spatial_dimensions),
            self.integers("window_strides", [1] * many),
            self.integers("padding", [0] * (2 * many))[::2],
            self.integers("lhs_dilation", [1] * many),
            self.integers("rhs_dilation", [1] * many),
            *groups,
        )

    def integers(self, name: str, default: Sequence[int]) -> Dims:
        """Return the whole numbers of an attribute; the default if it is missing."""
        if name not in self.attributes:
            return tuple(default)
        attribute = self.attributes[name]
        try:
            return tuple(ir.DenseI64ArrayAttr(attribute))
        except ValueError:
            return tuple(int(n) for n in ir.DenseIntElementsAttr(attribute))


def contraction_of(product: ir.Operation) -> Contraction:
    """Return how the factors of a `dot_general` combine."""
    numbers = stablehlo.DotDimensionNumbers(product.attributes["dot_dimension_numbers"])
    return Contraction(
        (tuple(numbers.lhs_contracting_dimensions), tuple(numbers.rhs_contracting_dimensions)),
        (tuple(numbers.lhs_batching_dimensions), tuple(numbers.rhs_batching_dimensions)),
    )


class MlirGraph(Graph):
    """The graph of a StableHLO module, with its functions by symbol. It keeps the MLIR operations alive."""

    def __init__(self, module: ir.Operation):
        """Read a module, whose context must be entered."""
        self.module, self.functions = module, functions_of(module)
        blocks = {symbol: Block(symbol) for symbol in self.functions}
        super().__init__(blocks["main"], blocks)
        self._shape_and_dtype, self._nth = cache(_shape_and_dtype), cache(_nth)  # few differ
        self._values: dict[Any, GraphValue] = {}
        self._specs: dict[Any, Spec | None] = {}
        for symbol, function in self.functions.items():
            self._read(blocks[symbol], function.regions[0].blocks[0])

    def spec_of(self, value: GraphValue, manual: Sequence[Axis] = ()) -> Spec | None:
        """Return a value's spec, without the axes that are manual around it; None for one that is replicated."""
        specs = self._specs
        key = value if isinstance(value.owner, Operation) else (value, manual)
        if key not in specs:
            specs[key] = self._read_spec(value, manual)
        return specs[key]

    def _read_spec(self, value: GraphValue, manual: Sequence[Axis]) -> Spec | None:
        maker = value.maker
        if maker is None or "sdy.sharding" not in (attributes := maker.native.attributes):
            return spec_of_value(value.native, manual)
        return self._nth(attributes["sdy.sharding"], value.index)

    def propagated(self, value: GraphValue) -> Spec | None:
        """Return the spec of a value as propagation has it; `spec_of` is how the operation computes it."""
        maker = value.maker
        if maker is not None and PROPAGATED in (attributes := maker.native.attributes):
            return _nth(attributes[PROPAGATED], value.index)
        return self.spec_of(value)

    def free(self) -> None:
        """Let go of all operations and values."""
        for value in self._values.values():
            value.block.operations.clear()
            value.owner = None
            value.uses.clear()
        self._values.clear()

    def _value(self, owner: Operation | Block, index: int, native: Any) -> GraphValue:
        value = self._values[native] = GraphValue(owner, index, *self._shape_and_dtype(native.type), native)
        return value

    def _read(self, block: Block, native: Any) -> None:
        block.arguments = tuple([self._value(block, i, v) for i, v in enumerate(native.arguments)])
        values = self._values
        for op in native.operations:
            op = op.operation
            name = op.name
            operands = tuple([values[v] for v in op.operands])
            if name in RETURNS:
                block.returns(operands)
                return
            operation = MlirOperation(kind_of(name), operands, block, op)
            operation.name, operation.place, operation._contraction = name, None, None
            operation.results = tuple([self._value(operation, i, v) for i, v in enumerate(op.results)])
            block.operations.append(operation)
            if name == "func.call":
                operation.calls(self.blocks[ir.FlatSymbolRefAttr(op.attributes["callee"]).value])
            elif name in ENTERED:
                for region in op.regions:
                    inner = Block()
                    operation.calls(inner)
                    self._read(inner, region.blocks[0])


def is_moved(attributes: Any) -> bool:
    """Return whether an operation with these attributes computes its results otherwise than propagation has them."""
    return PROPAGATED in attributes and attributes[PROPAGATED] != attributes["sdy.sharding"]


@lru_cache(maxsize=1024)
def kind_of(name: str) -> str:
    """Return HLO's word for an MLIR operation name."""
    return _KINDS.get(name) or name.rpartition(".")[2].replace("_", "-")


def _shape_and_dtype(kind: Any) -> tuple[tuple[int, ...], str]:
    try:
        tensor = ir.RankedTensorType(kind)
    except ValueError:  # a token
        return (), str(kind)
    return tuple(tensor.shape), dtype_of(str(tensor.element_type))


def spec_of_value(value: Any, manual: Sequence[Axis] = ()) -> Spec | None:
    """Return the spec of any value, as `MlirGraph.spec_of` does."""
    owner = value.owner
    if isinstance(owner, ir.Block):
        return _of_argument(ir.BlockArgument(value), manual)
    attributes = owner.attributes
    for name in ("out_sharding", "sharding"):  # of a collective, and of a constraint
        if name in attributes:
            return spec_of(attributes[name])
    for name in ("sdy.sharding", "out_shardings"):
        if name in attributes:
            return _nth(attributes[name], ir.OpResult(value).result_number)
    return None


def _of_argument(value: Any, manual: Sequence[Axis]) -> Spec | None:
    parent, place = value.owner.owner.operation, value.arg_number
    attributes = parent.attributes
    if parent.name == "func.func":
        if "arg_attrs" not in attributes:
            return None
        entry = ir.DictAttr(ir.ArrayAttr(attributes["arg_attrs"])[place])
        return spec_of(entry["sdy.sharding"]) if "sdy.sharding" in entry else None
    if parent.name == "stablehlo.while":
        return _nth(attributes["sdy.sharding"], place) if "sdy.sharding" in attributes else None
    if parent.name not in ("sdy.manual_computation", "sdy.named_computation"):
        return None
    dims = _nth(attributes["in_shardings"], place).dims
    return Spec(tuple(tuple(a for a in dim if axis_name(a) not in manual) for dim in dims))


def _nth(attribute: Any, place: int) -> Spec:
    return spec_of(sdy.TensorShardingPerValueAttr(attribute).shardings[place])
