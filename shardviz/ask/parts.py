"""The arrays and dimensions of a program that may be sharded, by their purpose: data, state, matrices, dimensions
between products."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shardviz.caching import cached_property
from shardviz.layouts import itemsize
from shardviz.propagate.dimensions import Dimension, Dimensions, Member
from shardviz.tracing.trace import Argument


@dataclass(frozen=True, kw_only=True)
class Parts:
    """A program's arguments and logical dimensions by purpose; `optimizer` has the tree paths of the arguments that
    only the update uses."""

    arguments: Sequence[Argument]
    dimensions: Dimensions
    optimizer: frozenset[str] = frozenset()

    @cached_property
    def data(self) -> frozenset[str]:
        """The tree paths of the data arguments: those with a batch or a sequence."""
        return frozenset(m.path for d in self.dimensions if d.of for m in d.arguments)

    @cached_property
    def state(self) -> tuple[Argument, ...]:
        """The arguments that are not data: the optimizer's state, and the parameters."""
        return tuple(a for a in self.arguments if a.name not in self.data and a.shape)

    @cached_property
    def stepped(self) -> frozenset[Member]:
        """The dimensions that a loop steps along, and the windows of convolutions."""
        return frozenset(m for d in self.dimensions if d.undivided for m in d.members)

    @cached_property
    def matrices(self) -> Mapping[str, Argument]:
        """Tree path → array of the state with at least two dimensions, not counting those of loops and windows."""

        def rank(a):
            return sum(Member("argument", a.name, d) not in self.stepped for d in range(len(a.shape)))

        return {a.name: a for a in self.state if rank(a) > 1}

    @cached_property
    def through(self) -> Dimension | None:
        """The dimension that runs through all layers, such as d_model: the one that most matrices have."""
        if len(self._of_matrices) < 2:
            return None
        return max(self._of_matrices, key=lambda d: len({m.path for m in d.arguments if m.path in self.matrices}))

    @cached_property
    def inner(self) -> tuple[Dimension, ...]:
        """The dimensions between the layers' products: all dimensions of matrices except the one that runs through all
        layers, most bytes first."""
        sizes = {name: nbytes(array) for name, array in self.matrices.items()}
        kept = (d for d in self._of_matrices if d is not self.through)
        return tuple(sorted(kept, key=lambda d: -sum(sizes.get(m.path, 0.0) for m in d.arguments)))

    @cached_property
    def _of_matrices(self) -> list[Dimension]:
        plain = (d for d in self.dimensions if not (d.of or d.undivided))
        return [d for d in plain if any(m.path in self.matrices for m in d.arguments)]


def nbytes(array: Argument) -> float:
    """Return the bytes of a whole array."""
    return math.prod(array.shape) * itemsize(array.dtype)
