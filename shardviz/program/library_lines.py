"""The lines of operations that JAX lowers without any, such as those of `jnp.cumsum` on a TPU.

JAX lowers some library functions once, apart from where they are called, and writes a line at the call alone:

    %0 = call @cumsum(%x) : ... loc("jit(f)/jit(cumsum)"("f"("model.py":20:4)))
    func.func private @cumsum(...) { ... "stablehlo.reduce_window"(...) ... loc("reduce_window_sum") }

XLA puts the body where the function is called, and the line is lost. So what is given to the compiler has a copy of the
function for each line, whose operations have that line and keep their names.
"""

from __future__ import annotations

import re
from itertools import islice

from jax.extend.mlir import ir
from jax.extend.mlir.passmanager import PassManager

from shardviz.program.module import symbol_of, walk

_NAMED = re.compile(r'^loc\("(?:[^"\\]|\\.)*"')
_LINE = re.compile(r'"(?:[^"\\]|\\.)*":\d+:')


def give_lines(module: ir.Operation) -> None:
    """Gives the operations of functions without lines those of their calls, in place; its context is entered."""
    block = module.regions[0].blocks[0]
    functions = {symbol_of(op.operation): op.operation for op in block.operations if op.operation.name == "func.func"}
    lineless = {name: op for name, op in functions.items() if name != "main" and not _has_lines(op)}
    waiting = [op for name, op in functions.items() if name not in lineless] if lineless else []
    copies: dict[tuple[str, str], str] = {}
    while waiting:
        for call in [op for op in walk(waiting.pop()) if op.name == "func.call"]:
            name, at = ir.FlatSymbolRefAttr(call.attributes["callee"]).value, str(call.location)
            if name not in lineless or not _LINE.search(at):
                continue
            if (name, at) not in copies:
                copies[name, at] = f"{name}_at_{len(copies)}"
                while copies[name, at] in functions:
                    copies[name, at] += "_"
                copy = functions[copies[name, at]] = lineless[name].clone()
                copy.attributes["sym_name"] = ir.StringAttr.get(copies[name, at])
                for op in walk(copy):
                    op.location = ir.Module.parse(f"module {{}} {_at(at, str(op.location))}").operation.location
                block.append(copy)
                waiting.append(copy)
            call.attributes["callee"] = ir.FlatSymbolRefAttr.get(copies[name, at])
    if copies:
        PassManager.parse("builtin.module(symbol-dce)").run(module)  # what no call names any more


def _has_lines(function: ir.Operation) -> bool:
    return any(_LINE.search(str(op.location)) for op in islice(walk(function), 1, None))


def _at(call: str, own: str) -> str:
    """The location of an operation in a function that is called: the call's line behind the operation's own name.

    >>> _at('loc("jit(f)/jit(cumsum)"("f"("model.py":20:4)))', 'loc("reduce_window_sum")')
    'loc("reduce_window_sum"("f"("model.py":20:4)))'
    """
    at, named = _NAMED.match(call), _NAMED.match(own)
    return call if at is None or named is None else named[0] + call[at.end() :]
