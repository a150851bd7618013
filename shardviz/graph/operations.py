"""One program as a graph of operations, whichever text it came from: HLO or StableHLO.

    block main (x, w)                        a `Block`: its arguments, its operations, what it returns
      y = dot(x, w)                          an `Operation`: kind, operands, results
      s = while(y) condition(c) body(h)      ... with blocks that it runs as a whole
      return s

A kind is HLO's word, `dot` or `dynamic-slice`, at both ends. A `GraphValue` is one array: tuples are taken apart where
the graph is made, so that a loop has as many operands and results as it carries arrays. A block that stands in its
operation (a loop's body) has that one caller; a function or a computation may have several, the entry has none.

Operations keep their order in the text, which is the schedule where the text is a scheduled program's; of an
asynchronous pair the start and the done stay two operations. What a front end has read itself, such as attributes, is
reached through `native`, when it is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from shardviz.errors import ParseError

Dims = tuple[int, ...]


class Contraction(NamedTuple):
    """The dimensions that a matrix product's two factors have in common: those that are summed over, and those of the
    batch."""

    summed: tuple[Dims, Dims]
    batch: tuple[Dims, Dims]


class Convolution(NamedTuple):
    """The positions of a convolution's dimensions: batch, features and spatial dimensions of input and output; input
    features, output features and spatial dimensions of the kernel. Then the movement of its window in each spatial
    dimension, as in `records.counting.Window`, and the numbers of groups."""

    input: Dims
    kernel: Dims
    output: Dims
    strides: Dims
    low: Dims
    input_dilation: Dims
    kernel_dilation: Dims
    feature_groups: int
    batch_groups: int


class GraphValue:
    """An array: an operation's result, or a block's argument. It has its position there (`index`), its shape in the
    text, which is the whole array's or one device's (empty for what is no array), NumPy's name of its element type, and
    the front end's own object. `uses` lists, in the order of the text, an operation and the operand's position, or a
    block that returns the value and the result's position."""

    __slots__ = ("dtype", "index", "native", "owner", "shape", "uses")

    def __init__(self, owner: Any, index: int, shape: tuple[int, ...], dtype: str, native: Any):
        self.owner, self.index, self.shape, self.dtype, self.native = owner, index, shape, dtype, native
        self.uses: list[tuple[Any, int]] = []

    @property
    def maker(self) -> Any:
        """The operation whose result it is; None for a block's argument."""
        return self.owner if isinstance(self.owner, Operation) else None

    @property
    def is_token(self) -> bool:
        """Whether it is a token, which orders effects, and no array."""
        return self.dtype in ("token", "!stablehlo.token")

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def block(self) -> Block:
        return self.owner.block if isinstance(self.owner, Operation) else self.owner


class Operation:
    """An operation: HLO's opcode, its operands and results, the blocks that it runs (a loop's condition and body, the
    branches of a conditional, a called function), the HLO functions that it `applied` to elements, as a reduction does,
    and the block that it is in. Front ends add what they read on demand."""

    __slots__ = ("applied", "block", "blocks", "kind", "native", "operands", "results")

    # What the front ends read when it is asked for.
    collective: Any  # the kind of the collective that it is, or begins; empty for any other operation
    constant: Any  # the number of a constant of one element, or its text
    direction: Any  # a comparison's, `LT` say
    contraction: Any  # a `Contraction`: how the factors of a matrix product meet
    convolution: Any  # a `Convolution`: how it goes over its input
    spreads: Any  # whether a pad puts something between the elements too, or a slice leaves some out between
    slice_sizes: Any  # of what a gather takes for each index
    met: Any  # the dimensions of a ragged product's second factor that are summed over, are a batch, or are the groups
    target: Any  # what a custom call calls; empty where it says none
    config: Any  # what it says to what it calls: its `backend_config`, as text

    def __init__(self, kind: str, operands: tuple[GraphValue, ...], block: Block, native: Any):
        self.kind, self.block, self.native = kind, block, native
        self.operands: tuple[Any, ...] = operands  # the front ends extend `GraphValue` too
        self.results: tuple[Any, ...] = ()
        self.blocks: tuple[Block, ...] = ()
        self.applied: tuple[Block, ...] = ()
        for place, value in enumerate(operands):
            value.uses.append((self, place))

    def calls(self, block: Block) -> None:
        """Add a block that it runs."""
        self.blocks = (*self.blocks, block)
        block.callers.append(self)

    def block_operands(self, block: Block) -> tuple[GraphValue, ...]:
        """Return the values that it passes to the arguments of one of its blocks; empty if they are unknown."""
        if self.kind != "conditional":
            return self.operands
        return self.branch_operands(self.blocks.index(block))

    def branch_operands(self, branch: int) -> tuple[GraphValue, ...]:
        """Return the values that a conditional passes to a branch; StableHLO's branches have no arguments."""
        return ()

    @property
    def known_trips(self) -> int | None:
        """The trip count of a loop, if the text states it."""
        return None

    def array(self, index: int) -> Any:
        """Return an operand. Raises ParseError if there is none at this position."""
        if index < len(self.operands):
            return self.operands[index]
        raise ParseError(f"{self}: operand {index} is missing or no array")

    @property
    def result(self) -> Any:
        """The only result. Raises ParseError if there is none, or more than one."""
        if len(self.results) == 1:
            return self.results[0]
        raise ParseError(f"{self}: its result is no array")

    @property
    def is_data(self) -> bool:
        """Whether it is a constant with different elements, which lies in memory."""
        return False

    @property
    def goes_on(self) -> bool:
        """Whether it continues or ends an asynchronous operation that another operation began."""
        return False

    @property
    def is_exact(self) -> bool:
        """Whether a product is requested in its element type's full precision (`highest`)."""
        return False

    @property
    def compares(self) -> bool:
        """Whether a scatter puts one element into each row; XLA replaces it by a comparison before it partitions."""
        return False


class Block:
    """Operations in order, operands before their users, with its arguments, its returned values, the operations that
    run it, and the name of its computation or function, if any."""

    __slots__ = ("arguments", "callers", "name", "operations", "returned")

    def __init__(self, name: str = ""):
        self.name = name
        self.arguments: tuple[Any, ...] = ()
        self.operations: list[Any] = []
        self.returned: tuple[GraphValue, ...] = ()
        self.callers: list[Any] = []

    def returns(self, values: tuple[GraphValue, ...]) -> None:
        self.returned = values
        for place, value in enumerate(values):
            value.uses.append((self, place))


class Graph:
    """A program: the block that runs once, and the blocks with names."""

    def __init__(self, entry: Block, blocks: dict[str, Block]):
        self.entry, self.blocks = entry, blocks

    @property
    def operations(self) -> Iterator[Any]:
        """The operations that the entry reaches, as `operations_in` yields them."""
        return operations_in(self.entry)


def operations_in(block: Block) -> Iterator[Any]:
    """Yield the operations that a block reaches, in program order; those of another block where it first runs."""
    seen, walks = {block}, [iter(block.operations)]  # one within the other, as deep as the calls are
    while walks:
        operation = next(walks[-1], None)
        if operation is None:
            walks.pop()
            continue
        yield operation
        inner = [each for each in dict.fromkeys(operation.blocks) if each not in seen]
        seen.update(inner)
        walks.extend(iter(each.operations) for each in reversed(inner))
