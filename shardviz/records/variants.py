"""What a program has otherwise than the person's own, where no spec says it: donated arguments, dimensions of another
length, a checkpoint policy. Plain data, which a plan carries and a report keeps.

>>> variant = Variant(donated=("state",)).also(Variant(lengths=(Longer(path="w", dimension=0, size=30, better=32),)))
>>> variant.words
('donates state', 'has 32 in place of 30 in w:0 and all that is as long with it')
>>> bool(variant), bool(Variant())
(True, False)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

_LONGEST = 2**40
_Length = Annotated[int, Meta(ge=1, le=_LONGEST)]


@dataclass(frozen=True, kw_only=True)
class Longer:
    """A logical dimension of another length in all arguments.

    Attributes:
        path, dimension: an argument that has it, by tree path, and which of its dimensions it is.
        size: how long it is there; what is some times as long stays so many times as long.
        better: the new length.
    """

    path: str
    dimension: int
    size: _Length
    better: _Length

    @property
    def words(self) -> str:
        """`32 in place of 30 in w:0 and all that is as long with it`."""
        where = f"{self.path}:{self.dimension}"
        return f"{self.better:,} in place of {self.size:,} in {where} and all that is as long with it"


@dataclass(frozen=True, kw_only=True)
class Variant:
    """How a program is called or written otherwise. Without anything in it, the program as it is.

    Attributes:
        donated: arguments of the function that are donated besides, as `donate_argnames` of `jax.jit` has them.
        lengths: dimensions that have another length.
        checkpoint: the policy of `jax.checkpoint_policies` around the body of each differentiated loop, and of the
            checkpoints that are there; empty for what is there.
    """

    donated: tuple[str, ...] = ()
    lengths: tuple[Longer, ...] = ()
    checkpoint: str = ""

    def __bool__(self) -> bool:
        return bool(self.donated or self.lengths or self.checkpoint)

    def also(self, other: Variant) -> Variant:
        """Both; of two policies the other's."""
        return Variant(
            donated=tuple(sorted({*self.donated, *other.donated})),
            lengths=tuple(dict.fromkeys((*self.lengths, *other.lengths))),
            checkpoint=other.checkpoint or self.checkpoint,
        )

    @property
    def words(self) -> tuple[str, ...]:
        """What is otherwise, each in a few words that follow "its program"."""
        donated = (f"donates {' and '.join(self.donated)}",) if self.donated else ()
        checkpoint = (f"has jax.checkpoint with {self.checkpoint}",) if self.checkpoint else ()
        return (*donated, *(f"has {each.words}" for each in self.lengths), *checkpoint)
