"""An estimate of a program's memory on one device, from the propagated module, before any compiler plans it.

The module is read in program order, calls and loops included. Each value is either *held* in a buffer or *made again*
where it is used, as a compiler's fusions do. The results of products, reductions, gathers, updates and communication
are held. A result that is computed element by element is made again from the buffers of its operands, unless it is
smaller than these. A buffer is alive from where it is made to its last use; one that a loop uses is alive as long as
the loop runs. A matrix product's partial sum is whole along the axes that cut what both factors sum over, until it has
been summed, even if the result is to be sharded along them.
Partial sums that are added to each other, as the gradients of an array that is read twice, are held until then: XLA
adds first, and sums over the devices once. A buffer that is dead before an output is made may lie in that output's
place.

    needed = arguments + outputs that take no donated argument's place + the most of the buffers alive at one moment

A TPU keeps an array of a convolution in tiles of its batch and its features, in the order that pads less: 8 images of
256 x 256 x 24 take 5.3 times their bytes (24 of 128 places of a tile). Other arrays' dimensions are ordered so that
next to nothing is padded, as the layouts that v5e's and v5p's compilers chose show.

Only main memory counts, as compilers compare only that with a chip's memory: what a TPU's compiler would put into the
chip's own memory (`buffers.py`) is left out where `buffers.py` can tell. A compiler orders operations otherwise, and
holds a value where that is cheaper than to make it again. Of 138 plans of eleven kinds of programs (the presets in
`docs/promised_and_compiled.py` on 8 chips of v5e and 64 of v5p), the chip's compiler takes between `LESS` below it and
`MORE` above it for nine of ten; the gallery's on v5p are within a quarter (`tests/benchmarks/test_search.py`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from jax.extend.mlir.dialects import sdy

from shardviz.graph import Block, GraphValue
from shardviz.graph.tiles import image_padding
from shardviz.graph.uses import root
from shardviz.layouts import itemsize
from shardviz.layouts.uneven import shard_shape
from shardviz.notation import Axis, DeviceMesh, Spec
from shardviz.notation.spec import DEVICE_MEMORY
from shardviz.program.buffers import Buffer, in_place_of, most_alive, on_chip
from shardviz.program.graph import MlirGraph, MlirOperation
from shardviz.program.lower import Lowered
from shardviz.program.uses import is_reshard
from shardviz.records import PlanRecord
from shardviz.records.values import take_donated

LESS, MORE = 0.4, 0.9
"""The shares of an estimate by which nine of ten compilers' plans take less at most, and more."""
SMALL = 50e6
"""Bytes about which an estimate may be off however small the program: as much as v5p's compiler puts into VMEM."""
_NEGLIGIBLE = 0.01
"""A buffer that is a smaller share of what is alive is not looked for in an output's place."""
_TOLD = 0.05
"""A chip's own memory that is a smaller share of what is alive is not told from the rest."""

_MADE = frozenset(
    (
        *("stablehlo.dot_general", "stablehlo.convolution", "chlo.ragged_dot", "stablehlo.reduce"),
        *("stablehlo.reduce_window", "stablehlo.select_and_scatter", "stablehlo.gather", "stablehlo.scatter"),
        *("stablehlo.sort", "stablehlo.custom_call", "stablehlo.fft", "stablehlo.rng_bit_generator"),
        *("stablehlo.cholesky", "stablehlo.triangular_solve", "chlo.top_k"),
        *("sdy.all_gather", "sdy.all_to_all", "sdy.collective_permute", "sdy.reduce_scatter"),
        *("stablehlo.all_gather", "stablehlo.all_to_all", "stablehlo.collective_permute", "stablehlo.reduce_scatter"),
    )
)
"""Operations whose result is held."""
_PRODUCTS = frozenset(("stablehlo.dot_general", "stablehlo.convolution", "chlo.ragged_dot"))
_USED_TWICE = _PRODUCTS | {"stablehlo.reduce"}
"""Operations whose operands are held where something else uses them too."""
_CHEAP = frozenset(
    (
        *("stablehlo.convert", "stablehlo.reshape", "stablehlo.transpose", "stablehlo.broadcast_in_dim"),
        *("stablehlo.slice", "stablehlo.dynamic_slice", "sdy.all_slice", "sdy.sharding_constraint"),
    )
)
"""Operations that are done again wherever their result is read."""
_HELD = _MADE | {"stablehlo.while", "func.call", "stablehlo.dynamic_update_slice"}
_WHOLE = Spec()
_THIN = 8
"""A product that sums over fewer elements is computed element by element."""
_IN_PLACE = frozenset(("sdy.all_reduce", "stablehlo.all_reduce"))
"""Operations whose result may take the place of their operand."""
_SUMS = frozenset(("sdy.all_reduce", "sdy.reduce_scatter"))
"""Operations that add up partial sums."""
_SLICED = frozenset(("sdy.all_slice", "stablehlo.convert", "stablehlo.reshape", "stablehlo.transpose"))
_SHARE = 0.75
"""A value that is smaller than this share of what it is made from is held itself."""


@dataclass(frozen=True)
class Footprint:
    """An estimate of the memory that a program takes on one device, in bytes.

    Attributes:
        arguments: the arguments that it uses, as the plan cuts them.
        outputs: the outputs that take no donated argument's place.
        temporaries: the most of what it makes that is alive at one moment in main memory, and lies in no place where an
            output will be made.
    """

    arguments: float
    outputs: float
    temporaries: float

    @property
    def needed(self) -> float:
        """Bytes in all."""
        return self.arguments + self.outputs + self.temporaries

    @property
    def margin(self) -> tuple[float, float]:
        """The shares of them by which a compiler's plan may be less, and more."""
        small = SMALL / self.needed if self.needed else 0.0
        return min(1.0, max(LESS, small)), max(MORE, small)


def footprint(graph: MlirGraph, lowered: Lowered, bound: PlanRecord, room: float = 0.0) -> Footprint:
    """The estimate for a propagated program; its context is entered, the lock held, and `lowered.unused` known. `room`
    are the bytes of its own memory that a chip's compiler fills with values (a TPU's VMEM)."""
    walk = _FootprintWalk(graph, bound.mesh, tiled=room > 0)
    kept = zip(lowered.traced.arguments, graph.entry.arguments, lowered.unused, strict=True)
    held = [
        (a, walk.bytes_of(value, compact=True))
        for a, value, unused in kept
        if not unused and bound.in_memory.get(a.name, DEVICE_MEMORY) == DEVICE_MEMORY
    ]
    returned = walk.run()
    donated = [size for a, size in held if a.donated]
    outputs = 0.0
    for output, value in zip(lowered.traced.outputs, returned, strict=True):
        size = walk.bytes_of(value, compact=True)
        if bound.out_memory.get(output.name, DEVICE_MEMORY) != DEVICE_MEMORY:
            continue
        if not take_donated(donated, size):
            outputs += size
            walk.place(value, size)
    return Footprint(sum(size for _, size in held), outputs, walk.temporaries(room))


_Roots = tuple[Buffer, ...]


class _FootprintWalk:
    """One reading of a module: which buffers there are, and when."""

    def __init__(self, graph: MlirGraph, mesh: DeviceMesh, tiled: bool = False):
        self.graph, self.mesh, self.tiled = graph, mesh, tiled
        self.time = 0
        self.manual: tuple[Axis, ...] = ()
        self.buffers: list[Buffer] = []
        self.fixed: list[Buffer] = []
        self.outputs: list[Buffer] = []
        self.loops = 0
        self.roots: dict[GraphValue, _Roots] = {}
        self.sizes: dict[Any, float] = {}
        self.images: dict[tuple[int, ...], tuple[int, ...]] = {}
        self.last: set[MlirOperation] = set()

    def run(self) -> tuple[GraphValue, ...]:
        """Reads the main function, and returns the values that it returns."""
        for argument in self.graph.entry.arguments:
            self.fixed.append(Buffer(self.bytes_of(argument), 0, 0, fixed=True))
            self.roots[argument] = (self.fixed[-1],)
        self.last = _last_steps(self.graph.entry)
        return self.read(self.graph.entry)

    def place(self, returned: GraphValue, size: float) -> None:
        """Notes that a returned value has its own place from when it can be made; others may lie there before."""
        roots = self._of(returned)
        ready = max((b.start for b in roots if not b.fixed), default=self.time)
        if len(roots) == 1 and not roots[0].fixed and roots[0].size == size:
            roots[0].size = 0.0  # it is made there
        else:
            ready += 1  # what it is made from may lie there
        self.outputs.append(Buffer(size, ready, self.time + 1))

    def temporaries(self, room: float) -> float:
        """The most bytes of buffers that are alive at one moment in main memory beside `room` bytes of a chip's own,
        and lie in no output's place."""
        most, away = most_alive(self.buffers), set[Buffer]()
        if room >= _TOLD * most:
            away.update(on_chip([*self.buffers, *self.fixed], room))
        large = [b for b in self.buffers if b.size > _NEGLIGIBLE * most and b not in away]
        return most_alive(self.buffers, away.union(in_place_of(large, self.outputs)))

    def read(self, block: Block, inside: bool = False) -> tuple[GraphValue, ...]:
        """Reads a block, and returns the values that it returns; `inside`: the operation around it uses them itself,
        later."""
        for op in block.operations:
            self.visit(op)
        if not inside:
            self.use([v for v in block.returned if v.owner not in self.last])
        return block.returned

    def visit(self, op: MlirOperation) -> None:
        self.time += 2
        if op.kind in ("call", "named-computation"):
            self._through(op)
        elif op.kind == "manual-computation":
            around = self.manual
            self.manual = (*around, *sdy.ManualAxesAttr(op.attributes["manual_axes"]))
            self._through(op)
            self.manual = around
        elif op.kind == "while":
            self._while(op)
        elif op.blocks:
            self._branches(op)
        else:
            self._plain(op, op.name)

    def _plain(self, op: MlirOperation, name: str) -> None:
        """An operation without blocks: its operands are used now, and each result gets the buffers it is made from."""
        self._hold_operands(op, name)
        if op in self.last:
            self._use_early(op.operands)
        else:
            self.use(op.operands)
        if name == "stablehlo.dot_general" and (spec := self._partial(op)) is not None:
            self._hold(self._cut_by(op.result, spec), self.time)
        if name in _MADE and not (name == "stablehlo.dot_general" and _is_thin(op)):
            for result in op.results:
                self.roots[result] = self._hold(self.bytes_of(result), self.time)
                self.roots[result][0].product = name in _PRODUCTS
        elif name == "stablehlo.dynamic_update_slice":
            self.roots[op.results[0]] = self._updated(op)
        elif name == "stablehlo.optimization_barrier":
            for result, value in zip(op.results, op.operands, strict=True):
                self.roots[result] = self._of(value)
        else:
            self._fused(op, name)

    def _hold_operands(self, op: MlirOperation, name: str) -> None:
        """Gives buffers to operands that no fusion would make again just for this operation."""
        if name in _SUMS:
            self._sum_later(op)
        if self.tiled and name == "stablehlo.convolution":
            self._hold_image(op)
        if self.loops and name in _USED_TWICE:
            for value in op.operands:
                self._kept(value, name)

    def _hold_image(self, convolution: MlirOperation) -> None:
        """Notes which dimensions of a convolution's images a TPU tiles; its input needs a buffer in these tiles."""
        image, dims = convolution.operands[0], convolution.convolution
        self.images[image.shape] = dims.input
        self.images[convolution.results[0].shape] = dims.output
        roots, size = self._of(image), self.bytes_of(image)
        if len(roots) != 1 or roots[0].fixed or roots[0].size != size:
            self.use([image])
            self.roots[image] = self._hold(size, self.time)

    def _partial(self, product: MlirOperation) -> Spec | None:
        """How a matrix product's partial sum is sharded; None where it is sharded as the result."""
        first, second = (self.graph.cut(root(value, is_reshard), self.manual) for value in product.operands)
        own = self.graph.cut(product.result, self.manual)
        if first is None or second is None or own is None:
            return None
        meeting = zip(*product.contraction.summed, strict=True)
        both = {a for i, j in meeting for a in first.dims[i] if a in second.dims[j]}
        whole = tuple(tuple(a for a in dim if a not in both) for dim in own.dims)
        return None if whole == own.dims else Spec(whole)

    def _updated(self, update: MlirOperation) -> _Roots:
        """An array with a slice replaced: in the array's own buffer if nothing else is in that, else in a new one."""
        roots, size = self._of(update.operands[0]), self.bytes_of(update.results[0])
        alone = len(roots) == 1 and not roots[0].fixed and roots[0].size >= size
        return roots if alone else self._hold(size, self.time)

    def _fused(self, op: MlirOperation, name: str) -> None:
        """What is computed element by element, so that a fusion can make it again where it is used."""
        operands = op.operands
        roots = self._made_from(operands)
        counted = sum([b.size for b in roots if not b.fixed])
        if not counted:
            self.roots.update(dict.fromkeys(op.results, roots))
            return
        for result in op.results:
            self.roots[result] = self._elementwise(result, name, operands, roots, counted)

    def _made_from(self, operands: Sequence[GraphValue]) -> _Roots:
        """The buffers that operands are made from."""
        several = [roots for value in operands if (roots := self.roots.get(value))]
        if len(several) < 2:
            return several[0] if several else ()
        return tuple(dict.fromkeys(itertools.chain.from_iterable(several)))

    def _elementwise(
        self, result: GraphValue, name: str, operands: Sequence[GraphValue], roots: _Roots, counted: float
    ) -> _Roots:
        """The buffers of a result that is computed element by element: its operands', or its own if it is much smaller.

        A result that is made from one product and from no other buffer is written by the product's own fusion.
        """
        size = self.bytes_of(result)
        real = [b for b in roots if not b.fixed]
        if len(real) == 1 and real[0].product and self._alone(operands, real[0]):
            if size <= real[0].size:
                real[0].size = size
            elif self.loops or _used_twice(result):
                roots = self._hold(size, self.time + 1, light=True)
                roots[0].product = True
            return roots
        if name in _IN_PLACE or (size < _SHARE * counted and not _only_reduced(result)):
            return self._hold(size, self.time + 1, light=name not in _IN_PLACE)
        return roots

    def _alone(self, operands: Sequence[GraphValue], buffer: Buffer) -> bool:
        """Whether a buffer is used by one value alone, which is used here and nowhere else."""
        through = [value for value in operands if buffer in self._of(value)]
        return len(through) == 1 and len(through[0].uses) == 1

    def _sum_later(self, op: MlirOperation) -> None:
        """Keeps operands of earlier sums until this one, if their results are added: XLA adds first, and sums once."""
        added = _after_slices(op.results[0])
        if added is None or added.name != "stablehlo.add":
            return
        makers = [value.maker for value in added.operands]
        while makers:
            maker = makers.pop()
            if maker is None or maker is op or len(maker.results[0].uses) > 1:
                continue
            if maker.name in _SUMS:
                if _axes_summed(maker) == _axes_summed(op):
                    self.use(maker.operands)
            elif maker.name in _SLICED or maker.name == "stablehlo.add":
                makers += [value.maker for value in maker.operands]

    def _kept(self, value: GraphValue, name: str) -> None:
        """Holds an operand of a product or a reduction that would otherwise be made again here and elsewhere."""
        real = [b for b in self._of(value) if not b.fixed]
        maker = value.maker
        if not real or maker is None or maker.name in _HELD or len(value.uses) < 2:
            return
        if name == "stablehlo.reduce" and maker.name in _CHEAP:
            return
        size = self.bytes_of(value)
        if len(real) > 1 or real[0].size != size or not real[0].product:
            for buffer in real:
                buffer.last = max(buffer.last, self.time)
            self.roots[value] = self._hold(size, self.time, light=True)

    def _hold(self, size: float, start: int, *, light: bool = False) -> _Roots:
        buffer = Buffer(size, start, start, light=light)
        self.buffers.append(buffer)
        return (buffer,)

    def use(self, values: Iterable[GraphValue]) -> None:
        """Notes that values are used now."""
        for value in values:
            for buffer in self._of(value):
                buffer.last = self.time
                buffer.used.append(self.time)

    def _use_early(self, values: Sequence[GraphValue]) -> None:
        """Notes that values are used by one of the last steps, which is done as soon as its operands are there."""
        buffers = [b for value in values for b in self._of(value) if not b.fixed]
        ready = max((b.start for b in buffers), default=0)
        for buffer in buffers:
            buffer.last = max(buffer.last, ready)

    def _of(self, value: GraphValue) -> _Roots:
        return self.roots.get(value, ())

    def _through(self, op: MlirOperation) -> None:
        """Reads a block that runs once, with the operands as its arguments."""
        (block,) = op.blocks
        for argument, value in zip(block.arguments, op.operands, strict=True):
            self.roots[argument] = self._of(value)
        returned = self.read(block, inside=True)
        for result, value in zip(op.results, returned, strict=True):
            self.roots[result] = self._of(value)

    def _branches(self, op: MlirOperation) -> None:
        """Reads branches, of which one runs, one after the other."""
        self.use(op.operands)
        returned = [self.read(block) for block in op.blocks]
        for place, result in enumerate(op.results):
            roots = (b for values in returned for b in self._of(values[place]))
            self.roots[result] = tuple(dict.fromkeys(roots))

    def _while(self, op: MlirOperation) -> None:
        """Reads a loop: the values that it carries are held, and those that it only reads are alive until it ends."""
        condition, body = op.blocks
        operands = op.operands
        self.use(operands)
        start = self.time
        carried: list[_Roots] = []
        for place, value in enumerate(operands):
            stays = body.returned[place] is body.arguments[place]
            roots, size = self._of(value), self.bytes_of(value)
            own = len(roots) == 1 and not roots[0].fixed and roots[0].size == size
            if (not stays and not own) or (stays and len(roots) > 1):
                roots = self._hold(size, start)
            carried.append(roots)
            self.roots[body.arguments[place]] = self.roots[condition.arguments[place]] = roots
        self.loops += 1
        self.read(condition)
        returned = self.read(body)
        self.loops -= 1
        self.time += 2
        for place, value in enumerate(returned):
            before = carried[place]
            after = self._of(value)
            if value is body.arguments[place] or after == before:
                continue
            if len(after) == 1 and after[0].start > start and before[0].last < after[0].start:
                after[0].size = max(0.0, after[0].size - before[0].size)  # it is written where the old value was
        for buffer in self.buffers:
            if buffer.start <= start <= buffer.last:
                buffer.last = self.time
        for result, roots in zip(op.results, carried, strict=True):
            self.roots[result] = roots

    def bytes_of(self, value: GraphValue, compact: bool = False) -> float:
        """Bytes of a value on one device; an argument or a result of the program is `compact`, not padded."""
        return self._cut_by(value, self.graph.cut(value, self.manual) or _WHOLE, compact)

    def _cut_by(self, value: GraphValue, spec: Spec, compact: bool = False) -> float:
        if value.is_token:
            return 0.0
        dims = None if compact else self.images.get(value.shape)
        key = value.shape, value.dtype, spec, dims
        size = self.sizes.get(key)
        if size is None:
            shard = shard_shape(value.shape, spec, self.mesh)
            padding = image_padding(shard, dims) if dims else 0.0
            size = self.sizes[key] = float(math.prod(shard) * itemsize(value.dtype)) * (1 + padding)
        return size


def _used_twice(value: GraphValue) -> bool:
    """Whether a value, or one made from it alone element by element, is used more than once, as in softmax."""
    shape = value.shape
    while len(value.uses) == 1:
        op, _ = value.uses[0]
        if isinstance(op, Block) or op.name in _MADE or (op.blocks and op.kind != "call"):
            return False
        alike = [r for r in op.results if r.shape == shape]
        if not alike:
            return False
        value = alike[0]
    return len(value.uses) > 1


def _last_steps(block: Block) -> set[MlirOperation]:
    """The operations that compute element by element only what is returned, as an update does: they can run early."""
    last: set[MlirOperation] = set()
    for op in reversed(block.operations):
        if op.name in _HELD or op.name in _IN_PLACE or len(op.native.regions) or not op.results:
            continue
        users = (user for result in op.results for user, _ in result.uses)
        if all(isinstance(user, Block) or user in last for user in users):
            last.add(op)
    return last


def _only_reduced(value: GraphValue) -> bool:
    """Whether a value is summed up and nothing else: the sum makes it as it goes."""
    return all(isinstance(user, MlirOperation) and user.kind == "reduce" for user, _ in value.uses)


def _after_slices(value: GraphValue) -> MlirOperation | None:
    """What uses a value alone, after each device has taken its slice."""
    while len(value.uses) == 1:
        user, _ = value.uses[0]
        if not isinstance(user, MlirOperation):
            return None
        if user.name not in _SLICED:
            return user
        (value,) = user.results
    return None


def _axes_summed(op: MlirOperation) -> str:
    """The axes that a sum of partial sums is along."""
    name = "reduction_axes" if op.name == "sdy.all_reduce" else "reduce_scatter_axes"
    return str(op.attributes[name])


def _is_thin(product: MlirOperation) -> bool:
    """Whether a matrix product sums over a few elements only."""
    return math.prod(product.operands[0].shape[d] for d in product.contraction.summed[0]) < _THIN
