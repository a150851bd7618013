"""The lines of operations that JAX lowers without any, such as those of `jnp.cumsum` on a TPU.

JAX lowers some library functions once, apart from where they are called, and writes a line at the call alone:

    %0 = call @cumsum(%x) : ... loc("jit(f)/jit(cumsum)"("f"("model.py":20:4)))
    func.func private @cumsum(...) { ... "stablehlo.reduce_window"(...) ... loc("reduce_window_sum") }

XLA puts the body where the function is called, and the line is lost. Where all calls of such a function stand on one
line, its operations get that line. Where they stand on several, its operations stay without one: a copy of the function
for each line would be another program than JAX's, which the compilers may order and combine in another way.
"""

from __future__ import annotations

import re
from itertools import islice

from jax.extend.mlir import ir

from shardviz import _jax
from shardviz.program.module import functions_of

_NAMED = re.compile(r'^loc\("(?:[^"\\]|\\.)*"')
_LINE = re.compile(r'"(?:[^"\\]|\\.)*":\d+:')


def give_lines(module: ir.Operation) -> None:
    """Gives the operations of functions without lines that of their calls, in place; its context is entered."""
    functions = functions_of(module)
    lineless = {name for name, op in functions.items() if name != "main" and not _has_lines(op)}
    calls: dict[str, list[tuple[str, str]]] = {name: [] for name in lineless}  # callee → (caller, location of the call)
    for caller, function in functions.items() if lineless else ():
        for op in _jax.walk(function):
            if op.name == "func.call" and (callee := ir.FlatSymbolRefAttr(op.attributes["callee"]).value) in lineless:
                calls[callee].append((caller, str(op.location)))
    lines: dict[str, set[str]] = {}

    def lines_of(name: str) -> set[str]:
        if name not in lines:
            lines[name] = set()
            lines[name] = {
                line for caller, at in calls[name] for line in (lines_of(caller) if caller in lineless else {at})
            }
        return lines[name]

    for name in lineless:
        if len(lines_of(name)) == 1 and _LINE.search(at := next(iter(lines_of(name)))):
            for op in _jax.walk(functions[name]):
                op.location = ir.Module.parse(f"module {{}} {_at(at, str(op.location))}").operation.location


def _has_lines(function: ir.Operation) -> bool:
    return any(_LINE.search(str(op.location)) for op in islice(_jax.walk(function), 1, None))


def _at(call: str, own: str) -> str:
    """The location of an operation in a function that is called: the call's line behind the operation's own name.

    >>> _at('loc("jit(f)/jit(cumsum)"("f"("model.py":20:4)))', 'loc("reduce_window_sum")')
    'loc("reduce_window_sum"("f"("model.py":20:4)))'
    """
    at, named = _NAMED.match(call), _NAMED.match(own)
    return call if at is None or named is None else named[0] + call[at.end() :]
