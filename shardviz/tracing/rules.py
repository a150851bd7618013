"""Rules: specs by filter. A rule gives a spec to every array that its filter matches; the first rule that matches wins.

>>> from jax.sharding import PartitionSpec as P
>>> rules = Rules([("*bias", P("model")), ("*kernel", P("data", "model")), ("*norm*", None)])
>>> print(rules)
1 '*bias' → P('model')
2 '*kernel' → P('data', 'model')
3 '*norm*' → P()

A filter is a pattern of the tree path, a function of path and array, `...` for everything, or what `flax.nnx` takes: a
type of variable, a predicate, `nnx.All`, `nnx.Any`, `nnx.Not`, a tuple of filters (any of them).

>>> kernel = Leaf("model.layers[0].kernel", ("layers", 0, "kernel"), None, (8, 8))
>>> [catches(f, kernel) for f in ("*kernel", "model.layers[0]*", "*bias", Rules.path_ends_with("kernel"), ...)]
[True, True, False, True, True]
>>> print(filter_text(("*kernel", Rules.path_ends_with("layers", 0))))
any of '*kernel', path_ends_with('layers', 0)
"""

from __future__ import annotations

import fnmatch
import functools
import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shardviz.errors import ANYTHING, ShardvizError, SpecError
from shardviz.notation import Spec


@dataclass(frozen=True)
class Rule:
    """A filter and the spec of the arrays that it matches; None is replicated."""

    filter: Any
    spec: Spec | None

    def __str__(self) -> str:
        return f"{filter_text(self.filter)} → {self.spec or 'P()'}"


@dataclass(frozen=True, init=False, repr=False)
class Rules:
    """An ordered list of rules.

    Attributes:
        rules: the rules; the first one that matches an array determines its sharding.
        exhaustive: whether an array that matches no rule is an error, as for `nnx.StateSharding`.

    Examples:
        >>> import shardviz as sv
        >>> from jax.sharding import PartitionSpec as P
        >>> print(sv.Rules({"*bias": P("model"), "*kernel": P("data", "model")}))
        1 '*bias' → P('model')
        2 '*kernel' → P('data', 'model')
    """

    rules: tuple[Rule, ...]
    exhaustive: bool

    def __init__(self, rules: Any = (), *, exhaustive: bool = False):
        """Make rules.

        Args:
            rules: (filter, spec) pairs, a mapping of them, `Rule`s, other `Rules`, or an `nnx.StateSharding`. See
                `shardviz.tracing.rules` for what a filter may be. A spec is a PartitionSpec, a NamedSharding, a tuple
                such as `("data", None)`, or None.
            exhaustive: see above.

        Raises:
            ShardvizError: for an invalid filter.
            SpecError: for an invalid spec.
        """
        if is_state_sharding(rules):
            # In flax a text is a variable's tag, here it is a pattern: its own predicate keeps the meaning.
            from flax.nnx import filterlib

            own = [... if f is ... or f is True else filterlib.to_predicate(f) for f in rules.filters]
            rules, exhaustive = zip(own, rules.shardings, strict=True), True
        if isinstance(rules, Rules):
            rules, exhaustive = rules.rules, rules.exhaustive or exhaustive
        pairs = rules.items() if isinstance(rules, Mapping) else rules
        object.__setattr__(self, "rules", tuple(map(_rule, pairs)))
        object.__setattr__(self, "exhaustive", exhaustive)

    @staticmethod
    def path_ends_with(*suffix: Hashable) -> PathEndsWith:
        """Return a filter for the arrays whose path ends with these keys: attribute names, dictionary keys, indices.

        >>> Rules.path_ends_with("attn", "kernel")(("layers", 0, "attn", "kernel"), None)
        True

        It is a filter of `flax.nnx` too.
        """
        return PathEndsWith(suffix)

    def __len__(self) -> int:
        return len(self.rules)

    def __iter__(self) -> Iterator[Rule]:
        return iter(self.rules)

    def __str__(self) -> str:
        return "\n".join(f"{i} {rule}" for i, rule in enumerate(self.rules, 1)) or "no rules"

    def __repr__(self) -> str:
        return "Rules([" + ", ".join(f"({filter_text(r.filter)}, {r.spec or 'P()'})" for r in self.rules) + "])"

    def winner(self, leaf: Leaf) -> int | None:
        """Return the position (from 0) of the first rule that matches a leaf, or None. Raises SpecError if none matches
        and the rules are exhaustive."""
        place = next((i for i, rule in enumerate(self.rules) if catches(rule.filter, leaf)), None)
        if place is None and self.exhaustive:
            raise SpecError(
                f"{leaf.name}: it matches no filter of the StateSharding; flax requires one for every variable. It has "
                f"{', '.join(filter_text(r.filter) for r in self.rules) or 'none'}; put (..., P()) at its end",
                argument=leaf.name,
            )
        return place

    def spec(self, leaf: Leaf) -> Spec | None:
        """Return the spec that the rules give a leaf; None if no rule matches, or if the rule says None."""
        place = self.winner(leaf)
        return None if place is None else self.rules[place].spec


def is_state_sharding(value: Any) -> bool:
    """Return whether this is an `nnx.StateSharding`; flax is not imported to find out."""
    return type(value).__name__ == "StateSharding" and type(value).__module__.startswith("flax.")


def _rule(pair: Any) -> Rule:
    if isinstance(pair, Rule):
        return pair
    if not isinstance(pair, Sequence) or isinstance(pair, str) or len(pair) != 2:
        raise ShardvizError(f"expected a rule (filter, spec), such as ('*kernel', P('data', 'model')), not {pair!r}")
    filter, spec = pair
    return Rule(check_filter(filter), None if spec is None else Spec.of(spec))


@dataclass(frozen=True, eq=False)
class Leaf:
    """An array among a program's arguments, as filters see it: its tree path, such as `model.layers[0].kernel`, the
    keys below its argument or module, `("layers", 0, "kernel")`, the abstract array, or the `flax.nnx` variable that
    holds it, and its global shape."""

    name: str
    path: tuple[Hashable, ...]
    value: Any
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Exactly:
    """The filter of an edit: the one array at this tree path."""

    path: str


@dataclass(frozen=True)
class PathEndsWith:
    """The filter of `Rules.path_ends_with`."""

    suffix: tuple[Hashable, ...]

    def __call__(self, path: tuple[Hashable, ...], value: Any) -> bool:
        return tuple(path[len(path) - len(self.suffix) :]) == self.suffix

    def __repr__(self) -> str:
        return f"path_ends_with({', '.join(map(repr, self.suffix))})"


def catches(filter: Any, leaf: Leaf) -> bool:
    """Whether a filter means a leaf.

    A text is a pattern: `*` stands for any characters, `?` for one, everything else for itself. It matches the full
    tree path, in JAX's notation or with a dot before each key, or one key of the path, or several successive keys.
    Raises ShardvizError for an invalid filter, and for a filter that raises.

    >>> down = Leaf("params['mlp'][0]['down']['kernel']", (), None, (8, 8))
    >>> [catches(p, down) for p in ("*kernel", "['down']", "down", "mlp.*.down", "mlp/0/down", "dow", "*kern")]
    [True, True, True, True, True, False, False]
    """
    if isinstance(filter, str):
        return _means(filter, leaf.name)
    if filter is ... or isinstance(filter, bool):
        return filter is not False
    if isinstance(filter, tuple | list):
        return any(catches(f, leaf) for f in filter)
    if isinstance(filter, type):
        return isinstance(leaf.value, filter)
    if callable(filter):
        try:
            return bool(filter(leaf.path, leaf.value))
        except ANYTHING as error:  # a person's function may raise anything
            raise ShardvizError(
                f"the filter {filter_text(filter)} raised {type(error).__name__} for {leaf.name}: {error}; it is "
                f"called with the path {leaf.path!r} and the array"
            ) from error
    raise ShardvizError(_no_filter(filter))


def check_filter(filter: Any) -> Any:
    """Return the filter with its lists as tuples. Raises ShardvizError for an invalid filter."""
    if isinstance(filter, tuple | list):
        return tuple(map(check_filter, filter))
    if isinstance(filter, str | bool) or filter is ... or callable(filter):
        return filter
    raise ShardvizError(_no_filter(filter))


def _no_filter(value: Any) -> str:
    return (
        f"{value!r} is no filter: expected a pattern of the tree path such as '*kernel', "
        "sv.Rules.path_ends_with('kernel'), a function of (path, array), ..., or a filter of flax.nnx such as nnx.Param"
    )


def _means(text: str, name: str) -> bool:
    """Return whether a pattern matches a tree path; see `catches`."""
    if _fits(text, name):
        return True
    keys, wanted = _dotted(name), _dotted(text)
    return bool(wanted) and _fits(f"*.{wanted}.*", f".{keys}.")


_BRACKETED = re.compile(r"""\[(?:'([^'\]]*)'|"([^"\]]*)"|([^\[\]'"]*))\]""")


@functools.lru_cache(maxsize=1 << 15)
def _dotted(text: str) -> str:
    """Return a path or a pattern with a dot before each key, whatever its notation: `params['w'][0]` as
    `params.w.0`."""
    plain = _BRACKETED.sub(lambda match: "." + (match[1] or match[2] or match[3] or ""), text)
    return plain.replace("/", ".").strip(".")


def patterns_of(path: str) -> tuple[str, ...]:
    """Return patterns that match an array, the widest first: its last key, its last two keys, its path.

    >>> patterns_of("params['layers'][0]['down']['kernel']")
    ('kernel', 'down.kernel', "params['layers'][0]['down']['kernel']")
    """
    keys = _dotted(path).split(".")
    ends = (keys[-1], ".".join(keys[-2:])) if len(keys) > 1 else ()
    return tuple(dict.fromkeys((*ends, path)))


def _fits(pattern: str, name: str) -> bool:
    """Return whether a pattern of `*` and `?` is a name's; one that wants more characters than there are takes no
    time."""
    pattern = re.sub(r"\*+", "*", pattern)
    wanted = len(pattern) - pattern.count("*")
    return wanted <= len(name) and fnmatch.fnmatchcase(name, pattern.replace("[", "[[]"))


def filter_text(filter: Any) -> str:
    """Return a filter as text that is equal on every run: it contains no function's address."""
    if isinstance(filter, tuple | list):
        return "any of " + ", ".join(map(filter_text, filter))
    if _of_nnx(filter):
        return _nnx_text(filter, filter_text)
    if (written := filter_code(filter)) is not None:
        return written.removeprefix("sv.Rules.")
    if isinstance(filter, type):
        return filter.__qualname__
    code = getattr(filter, "__code__", None)
    if code is not None:
        name = getattr(filter, "__name__", "function")
        file = code.co_filename.replace("\\", "/").rsplit("/", 1)[-1]
        return f"{name} at {file}:{code.co_firstlineno}" if name == "<lambda>" else name
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(filter))


def filter_code(filter: Any) -> str | None:
    """Return Python that makes the filter, with `sv` and `nnx` imported; None if it cannot be written."""
    if isinstance(filter, str | bool):
        return repr(filter)
    if filter is ...:
        return "..."
    if isinstance(filter, tuple):
        parts = [filter_code(f) for f in filter]
        return None if None in parts else "(" + ", ".join(map(str, parts)) + ("," if len(parts) == 1 else "") + ")"
    if isinstance(filter, PathEndsWith):
        return f"sv.Rules.{filter!r}"
    if isinstance(filter, type):
        return f"nnx.{filter.__qualname__}" if filter.__module__.startswith("flax.nnx") else None
    if _of_nnx(filter):
        return _nnx_text(filter, filter_code)
    return None


def _of_nnx(filter: Any) -> bool:
    return type(filter).__module__ == "flax.nnx.filterlib"


def _nnx_text(filter: Any, text: Callable[[Any], Any]) -> Any:
    """Return a predicate of `flax.nnx` as text, its parts by `text`; None if a part is None."""
    kind = type(filter).__name__
    if kind in ("Any", "All"):
        parts = [text(p) for p in filter.predicates]
    elif kind == "Not":
        parts = [text(filter.predicate)]
    elif kind == "OfType":
        return text(filter.type)
    elif kind == "PathIn":  # it holds a set, whose order is another on every run
        return f"nnx.filterlib.PathIn({', '.join(sorted(map(repr, filter.paths)))})"
    else:  # WithTag, PathContains, Everything, ...: they hold only plain keys
        return f"nnx.{re.sub(r' at 0x[0-9a-fA-F]+', '', repr(filter))}"
    return None if None in parts else f"nnx.{kind}({', '.join(map(str, parts))})"
