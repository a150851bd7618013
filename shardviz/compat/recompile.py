"""Why JAX traced or compiled a function again: what differs between two calls, and which of its caches that misses.

A difference that a trace depends on costs a new trace and a new executable. One of where arguments lie, or of what is
donated, costs a new executable from the old trace. One that only the fast look-up sees costs microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shardviz.errors import ShardvizError
from shardviz.program.signature import ArgumentSignature, CallSignature, StaticSignature, short
from shardviz.visible import Visible

EFFECTS = ("traced", "compiled", "looked up")
_WORDS = {
    "traced": "traced and compiled again",
    "compiled": "compiled again, from the same trace",
    "looked up": "the same trace and executable, found by a slower look-up once",
}
_MESHES = {"mesh_context_manager": "`with mesh:`", "abstract_mesh_context_manager": "jax.set_mesh"}


@dataclass(frozen=True)
class Difference:
    """One thing in which two calls differ.

    Attributes:
        what: `function`, `tree`, `shape`, `dtype`, `weak type`, `static value`, `mesh`, `sharding`, `committed`,
            `donated`, `setting` or `kind of array`.
        where: the argument's tree path, or the setting's name; empty for the whole call.
        before, after: what it is in the first call and in the second.
        effect: `traced` (and so compiled) again, `compiled` again, or only `looked up` again.
        advice: what keeps it from happening.
    """

    what: str
    where: str
    before: str
    after: str
    effect: str
    advice: str = ""

    @property
    def consequence(self) -> str:
        """The effect, in words."""
        return _WORDS[self.effect]

    def __str__(self) -> str:
        where = f"{self.where}: " if self.where else ""
        return f"{where}{self.what} {self.before} → {self.after}"


@dataclass(frozen=True, repr=False)
class Recompilation(Visible):
    """Why the second of two calls was traced or compiled again; false where it was not.

    Attributes:
        name: the function's name.
        differences: what differs, the costliest first.
    """

    name: str
    differences: tuple[Difference, ...]

    @property
    def traced(self) -> bool:
        """Whether the function runs again as Python."""
        return any(d.effect == "traced" for d in self.differences)

    @property
    def compiled(self) -> bool:
        """Whether XLA compiles again."""
        return any(d.effect in ("traced", "compiled") for d in self.differences)

    def __bool__(self) -> bool:
        return self.compiled

    @property
    def verdict(self) -> str:
        """In words, what the second call costs."""
        if not self.differences:
            return "the same: no recompilation"
        worst = min((d.effect for d in self.differences), key=EFFECTS.index)
        return _WORDS[worst] if self.compiled else f"no recompilation: {_WORDS[worst]}"


def why_recompiled(a: Any, b: Any) -> Recompilation:
    """Names what differs between two calls, as the caches of `jax.jit` see it, and of `jax.pmap`, which is built on it.

    Args:
        a, b: two of `program.calls`, in order.

    Returns:
        A `Recompilation`: its `differences`, whether the second call is `traced` or only `compiled` again, and nothing
        where it finds what the first call left.

    Raises:
        ShardvizError: if one of them is no call.
    """
    for given in (a, b):
        if not isinstance(given, CallSignature):
            raise ShardvizError(f"expected two of program.calls, such as program.call(x) gives, not {short(given)}")
    found = _function(a, b) + _tree(a, b) + _arguments(a, b) + _statics(a, b) + _rest(a, b)
    return Recompilation(b.name, tuple(sorted(found, key=lambda d: EFFECTS.index(d.effect))))


def _function(a: CallSignature, b: CallSignature) -> list[Difference]:
    if a.fn is b.fn:
        return []
    same = " (another object of that name)" if a.name == b.name else ""
    advice = "JAX knows a function by identity: define it, and wrap it, once and not on every call"
    return [Difference("function", "", a.name, b.name + same, "traced", advice)]


def _tree(a: CallSignature, b: CallSignature) -> list[Difference]:
    if a.tree == b.tree:
        return []
    before, after = ({x.name: None for x in call.arguments} for call in (a, b))
    gone, new = [n for n in before if n not in after], [n for n in after if n not in before]
    if gone or new:
        said = [_with(here, there) for here, there in ((gone, new), (new, gone))]
        return [Difference("tree", "", said[0], said[1], "traced")]
    cut = lambda text: text if len(text) <= 120 else text[:119] + "…"  # noqa: E731
    return [Difference("tree", "", cut(a.tree), cut(b.tree), "traced", "the same names in other containers")]


def _with(here: list[str], there: list[str]) -> str:
    """Which arrays only this call has, or only the other."""
    some = lambda names: ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")  # noqa: E731
    return " and ".join(f"{word} {some(names)}" for word, names in (("with", here), ("without", there)) if names)


def _arguments(a: CallSignature, b: CallSignature) -> list[Difference]:
    before = {x.name: x for x in a.arguments}
    return [d for x in b.arguments if x.name in before for d in _argument(before[x.name], x)]


def _argument(a: ArgumentSignature, b: ArgumentSignature) -> list[Difference]:
    found: list[Difference] = []

    def say(what: str, before: str, after: str, effect: str, advice: str = "") -> None:
        found.append(Difference(what, a.name, before, after, effect, advice))

    if a.shape != b.shape:
        say("shape", str(list(a.shape)), str(list(b.shape)), "traced", "pad to one shape, or to a few")
    if a.dtype != b.dtype:
        say("dtype", a.dtype, b.dtype, "traced")
    if a.weak_type != b.weak_type:
        kind = lambda x: f"weak ({x.given})" if x.weak_type else f"not weak ({x.given})"  # noqa: E731
        say("weak type", kind(a), kind(b), "traced", "a Python number's dtype is weak: pass jnp.asarray(x, dtype)")
    if a.typed != b.typed:
        advice = "the mesh of an argument's sharding is in its type"
        say("mesh", a.typed or "none", b.typed or "none", "traced", advice)
    elif a.placed != b.placed:
        if a.committed != b.committed:
            say("committed", _placing(a), _placing(b), "compiled", "put it there with jax.device_put before every call")
        else:
            advice = "give it one sharding with jax.device_put before the call"
            say("sharding", a.sharding, b.sharding, "compiled", advice)
    elif a.sharding != b.sharding or a.committed != b.committed:
        if bool(a.sharding) == bool(b.sharding):
            say("sharding", _placing(a), _placing(b), "looked up")
        else:
            say("kind of array", a.given, b.given, "looked up")
    elif not a.sharding and a.weak_type == b.weak_type and len({x.given.startswith("Python") for x in (a, b)}) > 1:
        say("kind of array", a.given, b.given, "looked up")
    return found


def _placing(a: ArgumentSignature) -> str:
    held = "committed to " if a.committed else "not committed, on "
    return held + a.sharding if a.sharding else f"not on a device ({a.given})"


def _statics(a: CallSignature, b: CallSignature) -> list[Difference]:
    key = lambda s: (s.name, s.by_keyword)  # noqa: E731
    before, after = ({key(s): s for s in call.static} for call in (a, b))
    found = [_static(before[k], after[k]) for k in after if k in before and not before[k].same(after[k])]
    said = lambda names: ", ".join(f"{n} by keyword" if kw else n for n, kw in names)  # noqa: E731
    gone, new = [k for k in before if k not in after], [k for k in after if k not in before]
    if gone or new:
        advice = "a static value given by position, by keyword or by its default is another call each time"
        found.append(Difference("static value", "", said(gone) or "none", said(new) or "none", "traced", advice))
    return found


def _static(a: StaticSignature, b: StaticSignature) -> Difference:
    before, after = short(a.value), short(b.value)
    advice = "every value of it has a trace of its own; pass it as an array if it changes often"
    if type(a.value) is not type(b.value):
        before, after = (f"{text} ({type(s.value).__name__})" for text, s in ((before, a), (after, b)))
        if a.value == b.value:
            advice = "equal, but not of one type, which JAX asks for too"
    elif before == after or type(a.value).__eq__ is object.__eq__:
        equal = hash(a.value) == hash(b.value)
        before, after = (f"{text} (hash {hash(s.value)})" for text, s in ((before, a), (after, b)))
        why = "their hashes are equal and they are not" if equal else "their hashes differ"
        advice = (
            f"{why}: give {type(a.value).__name__} an __eq__ and a __hash__ by its fields, as a frozen dataclass has"
        )
    return Difference("static value", a.name, before, after, "traced", advice)


def _rest(a: CallSignature, b: CallSignature) -> list[Difference]:
    found = []
    for name in {**a.context, **b.context}:
        before, after = a.context.get(name), b.context.get(name)
        if before != after:
            what = "mesh" if name in _MESHES else "setting"
            found.append(Difference(what, _MESHES.get(name, name), short(before), short(after), "traced"))
    if a.devices != b.devices and not any(d.what == "mesh" for d in found):
        found.append(Difference("mesh", "devices", short(a.devices), short(b.devices), "compiled"))
    if a.donated != b.donated and a.tree == b.tree:
        names = lambda call: ", ".join(call.donated) or "nothing"  # noqa: E731
        found.append(Difference("donated", "", names(a), names(b), "compiled"))
    return found
