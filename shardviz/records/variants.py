"""Changes of a program that no spec expresses: donated arguments, other dimension lengths, a checkpoint policy, other
sharding constraints. A variant is plain data in a plan and its report.

>>> variant = Variant(donated=("state",)).also(Variant(lengths=(Longer(path="w", dimension=0, size=30, better=32),)))
>>> variant.words
('donates state', 'has 32 instead of 30 in w:0 and in all dimensions of that size')
>>> bool(variant), bool(Variant())
(True, False)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from shardviz.errors import ShardvizError, SpecError, excerpt
from shardviz.notation import Spec

_LONGEST = 2**40
_Length = Annotated[int, Meta(ge=1, le=_LONGEST)]
_EXPECTED = {
    "donated": "'state', names of arguments",
    "lengths": "{'emb:0': (50257, 50304)}, an argument's dimension, its length and the new one",
    "checkpoint": "'dots_saveable', the name of a policy",
    "constraints": "{('model.py:64', P('data', None)): None}, a line and its spec, and another spec or None",
}


@dataclass(frozen=True, kw_only=True)
class Longer:
    """Another length for a logical dimension in all arguments.

    Attributes:
        path, dimension: an argument with this dimension, by tree path, and the dimension's number.
        size: its length there; multiples of this length remain the same multiples.
        better: the new length.

    Examples:
        >>> Longer(path="emb", dimension=0, size=50257, better=50304).words
        '50,304 instead of 50,257 in emb:0 and in all dimensions of that size'
    """

    path: str
    dimension: int
    size: _Length
    better: _Length

    @property
    def words(self) -> str:
        """`32 instead of 30 in w:0 and in all dimensions of that size`."""
        where = f"{self.path}:{self.dimension}"
        return f"{self.better:,} instead of {self.size:,} in {where} and in all dimensions of that size"


@dataclass(frozen=True, kw_only=True)
class Reconstrained:
    """A `with_sharding_constraint` in the function that is dropped, or gets another spec.

    Attributes:
        line: its line: `model.py:64`.
        before: the axes of each dimension in the function.
        after: the new axes; None if the constraint is dropped.

    Examples:
        >>> Reconstrained(line="model.py:64", before=(("data",), ())).words
        "drops P('data', None) at model.py:64"
    """

    line: str
    before: tuple[tuple[str, ...], ...]
    after: tuple[tuple[str, ...], ...] | None = None

    @property
    def words(self) -> str:
        """`has P('data', 'model') in place of P('data') at model.py:64`."""
        before = f"{Spec(self.before)} at {self.line}"
        return f"drops {before}" if self.after is None else f"has {Spec(self.after)} instead of {before}"


@dataclass(frozen=True, kw_only=True)
class Variant:
    """The changes of a program's call or code; an empty variant is the unchanged program.

    Attributes:
        donated: arguments of the function that are donated in addition, as `donate_argnames` of `jax.jit` names them.
        lengths: dimensions with another length.
        checkpoint: the policy of `jax.checkpoint_policies` for the body of each differentiated loop, and for existing
            checkpoints; empty for no change.
        constraints: changes of the function's own constraints.
        collectives: lines of collectives in a `shard_map` that are written otherwise, with the same result.

    Examples:
        >>> Variant(donated=("params",), checkpoint="dots_saveable").words
        ('donates params', 'has jax.checkpoint with dots_saveable')
    """

    donated: tuple[str, ...] = ()
    lengths: tuple[Longer, ...] = ()
    checkpoint: str = ""
    constraints: tuple[Reconstrained, ...] = ()
    collectives: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        donated: str | Iterable[str],
        lengths: Mapping[str, tuple[int, int]],
        checkpoint: str,
        constraints: Mapping[tuple[str, Any], Any],
        collectives: str | Iterable[str] = (),
    ) -> Variant:
        """Return the variant of the arguments of `Plan.with_variant`, with its errors."""
        try:
            sizes = [(*member.rpartition(":")[::2], was, new) for member, (was, new) in lengths.items()]
            specs: list[tuple[str, Any, Any]] = [
                (at, Spec.of(before).dims, _dims(after)) for (at, before), after in constraints.items()
            ]
            variant = cls(
                donated=(donated,) if isinstance(donated, str) else tuple(donated),
                lengths=tuple(Longer(path=p, dimension=int(d), size=was, better=new) for p, d, was, new in sizes),
                checkpoint=checkpoint,
                constraints=tuple(Reconstrained(line=at, before=b, after=a) for at, b, a in specs),
                collectives=(collectives,) if isinstance(collectives, str) else tuple(collectives),
            )
            return msgspec.convert(msgspec.to_builtins(variant), cls)
        except ShardvizError:
            raise
        except (AttributeError, TypeError, ValueError) as error:
            values = {"donated": donated, "lengths": lengths, "checkpoint": checkpoint}
            values |= {"constraints": constraints, "collectives": collectives}
            names = [name for name, value in values.items() if value not in ((), {}, "")]
            arguments = ", ".join(f"{name}={excerpt(repr(values[name]))}" for name in names)
            expected = ", ".join(f"{name}={_EXPECTED[name]}" for name in names)
            raise ShardvizError(f"with_variant({arguments}): expected {expected}") from error

    @property
    def keywords(self) -> dict[str, Any]:
        """The arguments for `of` and `Plan.with_variant`."""

        def spec(dims):
            return None if dims is None else Spec(dims)

        every = {
            "donated": self.donated,
            "lengths": {f"{each.path}:{each.dimension}": (each.size, each.better) for each in self.lengths},
            "checkpoint": self.checkpoint,
            "constraints": {(each.line, Spec(each.before)): spec(each.after) for each in self.constraints},
            "collectives": self.collectives,
        }
        return {name: value for name, value in every.items() if value}

    def __bool__(self) -> bool:
        return bool(self.donated or self.lengths or self.checkpoint or self.constraints or self.collectives)

    def also(self, other: Variant) -> Variant:
        """Return both variants combined; `other` decides about policies, constraints and dimensions in both."""
        lengths = {(each.path, each.dimension): each for each in self.lengths}
        for each in other.lengths:
            before = lengths.get((each.path, each.dimension), each)
            follows = before.better == each.size
            lengths[each.path, each.dimension] = replace(each, size=before.size) if follows else each
        constraints = {(each.line, each.before): each for each in self.constraints}
        changed = {(each.line, each.after): each.before for each in self.constraints}
        for each in other.constraints:
            before = changed.get((each.line, each.before), each.before)
            constraints[each.line, before] = replace(each, before=before)
        return Variant(
            donated=tuple(sorted({*self.donated, *other.donated})),
            lengths=tuple(lengths.values()),
            checkpoint=other.checkpoint or self.checkpoint,
            constraints=tuple(constraints[place] for place in sorted(constraints)),
            collectives=tuple(sorted({*self.collectives, *other.collectives})),
        )

    @property
    def words(self) -> tuple[str, ...]:
        """The changes, each in a few words that follow "its program"."""
        donated = (f"donates {' and '.join(self.donated)}",) if self.donated else ()
        checkpoint = (f"has jax.checkpoint with {self.checkpoint}",) if self.checkpoint else ()
        constraints = (each.words for each in self.constraints)
        collectives = (f"has another collective at {line}" for line in self.collectives)
        return (*donated, *(f"has {each.words}" for each in self.lengths), *checkpoint, *constraints, *collectives)


def _dims(spec: Any) -> tuple[tuple[Any, ...], ...] | None:
    """Return the axes of each dimension of a constraint's spec; None for None."""
    if spec is None:
        return None
    constraint = Spec.of(spec)
    if constraint != Spec(constraint.dims):
        raise SpecError(
            f"with_variant(constraints=...), {constraint}: a constraint can only shard dimensions along axes, without "
            "partial sums or memory kinds"
        )
    return constraint.dims
