"""Pytrees that stand for objects: arrays under their attributes' names, and a result with the function's in-place
changes.

>>> tree = Attributes.nested({("layers", 0, "kernel"): 1, ("layers", 1, "kernel"): 2, ("out",): 3})
>>> [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_flatten_with_path(tree)[0]]
['.layers[0].kernel', '.layers[1].kernel', '.out']

Objects of flax.nnx are read here: their arrays by path, their partitions, and trees of specs in their shape. Nothing
here imports flax before the person's code has; `load` says how to install it where it is missing.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec
from jax.tree_util import DictKey, GetAttrKey, SequenceKey

from shardviz import _jax
from shardviz.errors import ShardvizError
from shardviz.notation import DeviceMesh, Spec
from shardviz.tracing.rules import Rules, is_state_sharding

Path = tuple[Hashable, ...]


@jax.tree_util.register_pytree_with_keys_class
class Attributes:
    """A node of an object's arrays, whose tree paths look like attribute access: `.layers[0].kernel`."""

    def __init__(self, keys: Iterable[Hashable], children: Iterable[Any]):
        self.keys, self.children = tuple(keys), tuple(children)

    @classmethod
    def nested(cls, leaves: Mapping[Path, Any]) -> Any:
        """Return a tree from paths and leaves, in the given order; the leaf itself if the only path is empty."""
        if () in leaves:
            return leaves[()]
        groups: dict[Hashable, dict[Path, Any]] = {}
        for path, leaf in leaves.items():
            groups.setdefault(path[0], {})[path[1:]] = leaf
        return cls(groups, map(cls.nested, groups.values()))

    def tree_flatten_with_keys(self) -> tuple[list[tuple[Any, Any]], tuple[Hashable, ...]]:
        return list(zip(map(_entry, self.keys), self.children, strict=True)), self.keys

    @classmethod
    def tree_unflatten(cls, keys: tuple[Hashable, ...], children: Iterable[Any]) -> Attributes:
        return cls(keys, children)


def _entry(key: Hashable) -> Any:
    if isinstance(key, int):
        return SequenceKey(key)
    return GetAttrKey(key) if isinstance(key, str) and key.isidentifier() else DictKey(key)


def plain_path(path: Iterable[Any]) -> Path:
    """Return a JAX key path as plain keys: names, dictionary keys, indices."""
    return tuple(
        next((getattr(k, a) for a in ("name", "key", "idx") if hasattr(k, a)), str(k))  # each kind has one of these
        for k in path
    )


@dataclass(frozen=True)
class ResultPlace:
    """The place of a new value: the number of the argument that it replaces, or of one in the same object, whose path
    is `near`, for a new array at `path`; and whether it is sharded as the argument is."""

    number: int | None
    near: Path = ()
    path: Path | None = None
    follows: bool = False

    def name(self, arguments: Sequence[str]) -> str:
        """Return the tree path, given those of all arguments."""
        argument = "" if self.number is None else arguments[self.number]
        if self.path is None:
            return UPDATED + argument
        return UPDATED + (argument.removesuffix(path_text(self.near)) or "module") + path_text(self.path)


def path_text(path: Path) -> str:
    """Return a path in JAX's notation: `.layers[0].kernel`."""
    return jax.tree_util.keystr(tuple(map(_entry, path)))


@jax.tree_util.register_pytree_with_keys_class
class Outcome:
    """The outcome of a function that changes its arguments: its result, the new values with their places, and for each
    array of the result the function's own spec, or None."""

    def __init__(
        self, result: Any, values: Iterable[Any], places: tuple[ResultPlace, ...], specs: tuple[Spec | None, ...]
    ):
        self.result, self.values, self.places, self.specs = result, tuple(values), places, specs

    def tree_flatten_with_keys(self) -> tuple[list[tuple[Any, Any]], Any]:
        children = [(GetAttrKey("result"), self.result)]
        children += [(SequenceKey(i), v) for i, v in enumerate(self.values)]
        return children, (self.places, self.specs)

    def named(self, names: Sequence[str], arguments: Sequence[str]) -> tuple[list[str], tuple[Update, ...]]:
        """Return the outputs' names from JAX's names, and the updates among them, which come last."""
        count = len(names) - len(self.places)
        result = [name.replace("result.result", "result", 1) for name in names[:count]]
        new = [place.name(arguments) for place in self.places]
        owners = [None if p.path is not None or p.number is None else arguments[p.number] for p in self.places]
        pairs = zip(new, owners, self.places, strict=True)
        return result + new, tuple(Update(name, owner, place.follows) for name, owner, place in pairs)

    def brought(self, others: tuple[Spec | None, ...]) -> tuple[Spec | None, ...]:
        """Return for each output the function's own spec for it, or that of `others`; empty if there is none at all."""
        count = len(jax.tree.leaves(self.result)) + len(self.values)
        own = self.specs + (None,) * (count - len(self.specs))
        specs = tuple(o if s is None else s for s, o in zip(own, others or (None,) * count, strict=True))
        return specs if any(s is not None for s in specs) else ()

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Iterable[Any]) -> Outcome:
        result, *values = children
        return cls(result, values, *aux)


@dataclass(frozen=True)
class Update:
    """An output that is the new value of an argument (None: of a new array), and whether it is sharded as the
    argument."""

    output: str
    argument: str | None
    follows: bool


UPDATED = "updated."
"""The prefix that distinguishes the name of a new value from its argument's tree path."""


def load() -> Any:
    """Return the module `flax.nnx`. Raises ShardvizError, with the command that installs it, if flax is missing."""
    try:
        return importlib.import_module("flax.nnx")
    except ImportError as error:
        raise ShardvizError(
            "this needs flax, which is not installed here; pip install 'shardviz[flax]' installs it"
        ) from error


def is_object(x: Any) -> bool:
    """Return whether this is a module, an optimizer, a variable, a state or another object of flax.nnx."""
    nnx = sys.modules.get("flax.nnx")
    return nnx is not None and isinstance(x, (nnx.Pytree, nnx.Variable, nnx.State))


def entries(state: Any) -> Iterator[tuple[Path, Any, Any]]:
    """Yield (path, variable, array) of everything in a state, in the order of its pytree leaves; without a variable,
    the array twice."""
    nnx = load()
    for path, held in nnx.to_flat_state(state):
        for below, value in jax.tree_util.tree_flatten_with_path(held, is_leaf=lambda x: x is None)[0]:
            below = plain_path(below)
            yield (*path, *(below[1:] if isinstance(held, nnx.Variable) else below)), held, value


def views(
    state: Any,
    count: int,
    of: Callable[[Path, Any, Any], Any],
    keep: Callable[[Path, Any, Any], bool] = lambda *_: True,
) -> list[Any]:
    """Return the state that `nnx.split` gives for a tuple of `count` objects as one tree for each object. `of` makes a
    leaf from a path (which begins with the object's number), a variable and its array; `keep` says whether the leaf is
    in the tree."""
    trees: list[dict[Path, Any]] = [{} for _ in range(count)]
    for path, held, value in entries(state):
        if keep(path, held, value):
            trees[path[0]][path[1:]] = of(path, held, value)  # pyright: ignore[reportArgumentType, reportCallIssue]
    return [Attributes.nested(leaves) for leaves in trees]


def partition(held: Any) -> tuple[Spec | None, DeviceMesh | None]:
    """Return the spec in a variable's metadata, with logical axis names resolved by flax's rules, and its mesh."""
    nnx = load()
    metadata = held.get_metadata() if isinstance(held, nnx.Variable) else {}
    asked, mesh = metadata.get("out_sharding"), metadata.get("mesh")
    asked = getattr(asked, "sharding", asked)  # of a Format
    if isinstance(asked, NamedSharding):
        return Spec.of(asked), DeviceMesh.of(asked.mesh)
    if not asked:
        return None, None
    spec = jax.tree.leaves(nnx.get_partition_spec(held), is_leaf=lambda x: isinstance(x, PartitionSpec))[0]
    return Spec.of(spec), None if mesh is None else DeviceMesh.of(mesh)


def spec_tree(tree: Any) -> Any:
    """Return a tree of specs with `Rules` for each `nnx.StateSharding`, and plain trees for states and modules of
    specs."""

    def leaf(x: Any) -> Any:
        if _says_state(x):
            return Rules(x.metadata if _is_split(x) else x)
        if isinstance(x, getattr(sys.modules.get("flax.nnx"), "State", ())):
            return Attributes.nested({path: value for path, _, value in entries(x)})
        if is_object(x):
            _, state = load().split((x,))
            return views(state, 1, lambda _, __, value: value)[0]
        return x

    return jax.tree.map(leaf, tree, is_leaf=lambda x: x is None or is_object(x) or _says_state(x))


def _is_split(x: Any) -> bool:
    """Return whether this is the object that `nnx.jit` passes to `jax.jit` in place of a StateSharding."""
    return type(x).__name__ == "NodeStates" and type(x).__module__.startswith("flax.nnx")


def names_of(traced: Any) -> tuple[list[str | None], list[str | None]]:
    """Return the tree paths of a trace's arguments and results, as `jax.jit` names them; None if unnamed. Arrays of an
    object that `nnx.jit` has split have attribute paths: `model.layers[0].kernel`. Values that the function changed
    begin with `updated.`, and its own result is `result`, without what `nnx.jit` returns beside it."""
    taken, returned = traced.args_info, traced.out_info  # which JAX makes anew each time
    names, out_names = map(list, _jax.names_of(traced))
    for each, tree in ((names, taken), (out_names, returned)):
        if len(each) != (count := len(jax.tree.leaves(tree))):  # of a derivative's
            each[:] = [None] * count
    if "flax.nnx" not in sys.modules:
        return names, out_names
    roots: dict[Any, str] = {}
    for where, arrays in _split_objects(taken):
        for number, end, path in arrays:
            roots[where] = (names[number] or "").removesuffix(end)
            names[number] = roots[where] + path
    for where, arrays in _split_objects(returned):
        for number, end, path in arrays:
            root = (out_names[number] or "result").removesuffix(end)
            out_names[number] = (UPDATED + roots[where] if where in roots else root) + path
    for number, name in _updates(taken, returned, names):
        out_names[number] = name
    if own := _own_result(taken, returned):
        at = (f"result{name.removeprefix(own)}" if name and name.startswith(own) else name for name in out_names)
        out_names = list(at)
    return names, out_names


def _own_result(taken: Any, returned: Any) -> str:
    """The path of the function's own result in what `nnx.jit` returns to JAX; empty for other functions. In graph mode
    the arguments' objects come before it, in tree mode the changed variables after it."""
    match returned:
        case (tuple() as args, dict() as kwargs, _):
            arguments, named = taken
            among = jax.tree.leaves((args, kwargs), is_leaf=_is_split)
            if len(args) >= len(arguments) and kwargs.keys() >= named.keys() and all(map(_is_split, among)):
                return "result[2]"
        case (_, [*updates]) if updates and all(map(_is_updates, updates)):
            return "result[0]"
    return ""


def _updates(taken: Any, returned: Any, names: Sequence[str | None]) -> Iterator[tuple[int, str]]:
    """Yield the number and the path of each variable that `nnx.jit` gives back in tree mode."""
    structure = jax.tree.structure(returned)
    nodes = jax.tree.leaves(structure.unflatten(range(structure.num_leaves)), is_leaf=_is_updates)
    arguments = jax.tree_util.tree_flatten_with_path(taken)[0]
    at = {plain_path(path): name for (path, _), name in zip(arguments, names, strict=True)}
    for updates in filter(_is_updates, nodes):
        for (where, *path), held in updates:
            role = ("args", "kwargs").index(where.name)
            for below, number in jax.tree_util.tree_flatten_with_path(held)[0]:
                if name := at.get((role, *plain_path([*path, *below]))):
                    yield number, UPDATED + name


def _split_objects(tree: Any) -> Iterator[tuple[Any, list[tuple[int, str, str]]]]:
    """Yield each object that `nnx.jit` has split: its path in the tree, and a row for each of its arrays. A row has the
    number of the leaf, JAX's path within the object, and the attribute path."""
    structure = jax.tree.structure(tree)
    nodes = jax.tree_util.tree_flatten_with_path(structure.unflatten(range(structure.num_leaves)), is_leaf=_is_split)[0]
    if not any(_is_split(node) for _, node in nodes):
        return
    nnx = load()

    def together(context: Any, _: Any, __: Any, node: Any) -> Any:
        return (context.merge if isinstance(node.states[0], nnx.State) else context.unflatten)(
            node.graphdef, *node.states
        )

    objects = nnx.extract.from_tree([node for _, node in nodes], merge_fn=together)  # as for the function itself
    for (where, node), whole in zip(nodes, objects, strict=True):
        if _is_split(node):
            ends = {number: path for path, number in jax.tree_util.tree_flatten_with_path(node)[0]}
            rows = [row for row in entries(nnx.split((whole,))[1]) if row[2] in ends]  # others are an earlier object's
            yield where, [(n, jax.tree_util.keystr(ends[n]), path_text(path[1:])) for path, _, n in rows]


def _is_updates(x: Any) -> bool:
    """Return whether these are the changed variables that `nnx.jit` returns to JAX in tree mode."""
    return type(x).__name__ == "Updates" and type(x).__module__.startswith("flax.nnx")


def _says_state(x: Any) -> bool:
    return _is_split(x) or is_state_sharding(x)


def spec_meshes(tree: Any) -> Iterator[Any]:
    """Return the meshes of the NamedShardings in a tree of specs, including those in a StateSharding."""
    if _is_split(tree):
        tree = tree.metadata
    if is_state_sharding(tree):
        tree = list(tree.shardings)
    for x in jax.tree.leaves(tree, is_leaf=lambda x: x is not tree and _says_state(x)):
        if isinstance(x, NamedSharding):
            yield x.mesh
        elif _says_state(x):
            yield from spec_meshes(x)
