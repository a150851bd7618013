"""Patches of other packages' modules: applied when a script imports the module, and undone when the run ends."""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

Patch = Callable[[ModuleType, Callable[[Any, str, Any], None]], None]
"""Given a module and `replace(owner, name, value)`, replaces what a run watches of it."""


@contextlib.contextmanager
def patched_imports(patches: Mapping[str, Patch]) -> Iterator[None]:
    """Patch these modules inside the context, on all threads: at once if they are imported already, and otherwise when
    the script imports them. At the end, the patches are undone."""
    undone = contextlib.ExitStack()

    def replace(owner: Any, name: str, value: Any) -> None:
        undone.callback(setattr, owner, name, vars(owner)[name])
        setattr(owner, name, value)

    finder = _Finder(patches.keys(), lambda module: patches[module.__name__](module, replace))
    with undone:
        for name in patches:
            if name in sys.modules:
                finder.imported(sys.modules[name])
        sys.meta_path.insert(0, finder)
        undone.callback(sys.meta_path.remove, finder)
        yield


class _Finder(importlib.abc.MetaPathFinder):
    """An import finder that calls `imported` with each module of some names, once it is imported as Python does it."""

    def __init__(self, names: Any, imported: Callable[[ModuleType], None]):
        self.names, self.imported = names, imported

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname not in self.names:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                run(module)
                self.imported(module)

            spec.loader.exec_module = exec_module
        return spec
