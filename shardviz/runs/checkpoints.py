"""Orbax's checkpoints in a dry run: nothing is written, and restored arrays are zeros with the requested shardings.

`CheckpointManager` and every checkpointer of `orbax.checkpoint` end in the methods replaced here, and the functions of
`orbax.checkpoint.experimental.v1` in others. Tried on orbax-checkpoint 0.12.8.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import jax
import numpy as np
from jax.sharding import Sharding

from shardviz import _jax
from shardviz.runs.imports import Patch


def orbax_patches(note: Callable[[str], None], restored: Callable[[Any, Sharding], Any]) -> dict[str, Patch]:
    """Return the patch of Orbax.

    Args:
        note: receives a sentence about each save that is skipped.
        restored: makes an array from its shape, dtype and sharding.
    """

    def patch(module: ModuleType, replace: Callable[[Any, str, Any], None]) -> None:
        manager = module.CheckpointManager

        def saved(self: Any, directory: Any, *_: Any, **__: Any) -> None:
            note(f"orbax does not write the checkpoint {directory}")

        def saved_step(self: Any, step: int, *_: Any, force: bool = False, metrics: Any = None, **__: Any) -> bool:
            if wanted := force or self.should_save(step):
                note(f"orbax does not write checkpoints to {self.directory}")
                self._add_checkpoint_info(step, metrics)  # decides what is saved next, and `latest_step()`
            return wanted

        def restore(theirs: Any, arguments: Callable[..., Any]) -> Any:
            def restored_from(self: Any, place: Any, *args: Any, **kwargs: Any) -> Any:
                asked = arguments(self, *args, **kwargs)
                if not _targets(asked):  # only the checkpoint says what is in it
                    return theirs(self, place, *args, **kwargs)
                directory = self.directory if isinstance(self, manager) else place
                note(f"orbax does not read the checkpoint {directory}: what it would restore is zeros")
                return _restored(asked, restored)

            return restored_from

        def of_manager(
            self: Any, items: Any = None, restore_kwargs: Any = None, _: Any = None, args: Any = None
        ) -> Any:
            return args if items is None else {"item": items, **(restore_kwargs or {})}

        def of_checkpointer(self: Any, *args: Any, **kwargs: Any) -> Any:
            construct = vars(sys.modules[module.Checkpointer.__module__])["construct_checkpoint_args"]
            return construct(self._handler, False, *args, **kwargs)

        replace(manager, "save", saved_step)
        replace(manager, "restore", restore(manager.restore, of_manager))
        replace(module.Checkpointer, "save", saved)
        replace(module.AsyncCheckpointer, "save", saved)
        replace(module.Checkpointer, "restore", restore(module.Checkpointer.restore, of_checkpointer))

    def patch_v1(module: ModuleType, replace: Callable[[Any, str, Any], None]) -> None:
        loading = sys.modules[module.load.__module__]
        execution = sys.modules[loading.__name__.replace("loading.loading", "saving.execution")]

        def saved(path: Any, *_: Any, **__: Any) -> _Done:
            note(f"orbax does not write the checkpoint {path}")
            return _Done()

        def load(theirs: Any, answer: Callable[[Any], Any]) -> Any:
            @functools.wraps(theirs)
            def loaded(path: Any, wanted: Any = None, *args: Any, **kwargs: Any) -> Any:
                wanted = kwargs.pop("abstract_state", kwargs.pop("abstract_checkpointables", wanted))
                wanted = loading._standardize_abstract_checkpointables(wanted)
                if not jax.tree.leaves(wanted):  # only the checkpoint says what is in it
                    return theirs(path, wanted, *args, **kwargs)
                note(f"orbax does not read the checkpoint {path}: what it would restore is zeros")
                return answer(jax.tree.map(lambda each: _leaf(each, None, restored), wanted))

            return loaded

        replace(execution, "save_checkpointables_impl", saved)
        for name, answer in (("load", lambda x: x), ("load_checkpointables", lambda x: x), ("load_async", _Done)):
            ours = load(vars(loading)[name], answer)
            replace(loading, name, ours)
            replace(module, name, ours)

    return {"orbax.checkpoint": patch, "orbax.checkpoint.experimental.v1": patch_v1}


@dataclass(frozen=True)
class _Done:
    """The future that Orbax returns for work in the background."""

    value: Any = None

    def result(self, timeout: float | None = None) -> Any:
        return self.value

    def on_complete(self, callback: Callable[[Any], None]) -> None:
        callback(self.value)


def _targets(asked: Any) -> bool:
    """Return whether the arguments of an Orbax restore, or of one of its items, say which arrays are requested."""
    if hasattr(asked, "items") and not isinstance(asked, dict):
        return any(_targets(each) for _, each in asked.items())
    return _of(asked, "item") is not None or _of(asked, "restore_args") is not None


def _of(asked: Any, name: str) -> Any:
    return asked.get(name) if isinstance(asked, Mapping) else getattr(asked, name, None)


def _restored(asked: Any, restored: Callable[[Any, Sharding], Any]) -> Any:
    """Return the arrays for the arguments of an Orbax restore; None for an item that only the checkpoint describes."""
    if hasattr(asked, "items") and not isinstance(asked, dict):  # Composite
        return type(asked)(**{name: _restored(each, restored) for name, each in asked.items()})
    item, how = _of(asked, "item"), _of(asked, "restore_args")
    if item is None and how is None:
        return None

    def leaf(wanted: Any, how: Any = None) -> Any:
        return _leaf(wanted, how, restored)

    def is_leaf(x: Any) -> bool:
        return hasattr(x, "restore_type")

    if item is None:
        return jax.tree.map(lambda each: leaf(None, each), how, is_leaf=is_leaf)
    return jax.tree.map(leaf, item) if how is None else jax.tree.map(leaf, item, how, is_leaf=lambda x: x is None)


def _leaf(wanted: Any, how: Any, restored: Callable[[Any, Sharding], Any]) -> Any:
    """Return the array for a leaf and its `RestoreArgs`."""
    shape, dtype = (
        getattr(how, a, None) or getattr(wanted, b, None) for a, b in (("global_shape", "shape"), ("dtype",) * 2)
    )
    if shape is None or dtype is None:
        return wanted
    if isinstance(wanted, np.ndarray) or getattr(how, "restore_type", None) is np.ndarray:
        return np.broadcast_to(np.zeros((), dtype), shape)
    there = (getattr(how, "sharding", None), getattr(wanted, "sharding", None))
    alone = jax.sharding.SingleDeviceSharding(_jax.default_device())
    sharding = next((each for each in there if isinstance(each, Sharding)), alone)
    return restored(jax.ShapeDtypeStruct(shape, dtype), sharding)
