"""The effects of `%load_ext shardviz` in a notebook: magics, and the sharding of a `jax.Array` beside its values.

`%%shard` explores the last call of a cell instead of running it. `%%dryrun` runs a cell dry, and
`%dryrun -- python train.py` a script.

    %%shard --mesh data=2,model=4 --in-specs specs
    params, tokens = abstract_arguments()
    train_step(params, tokens)

The code before the last expression is run as in any cell. If that expression is a call, its function and its arguments
are evaluated and passed to `sv.explore`, which traces the function and never runs it. Any other expression, such as
the name of a traced program or an example of the gallery, is explored as it is.
"""

from __future__ import annotations

import argparse
import ast
import shlex
from typing import Any

from shardviz.cli import beside

_CALL = "__shardviz_call__"


def load_ipython_extension(ipython: Any) -> None:
    """Register `%%shard`, `%%dryrun` and `%dryrun`, and show the sharding of arrays; `%load_ext shardviz` calls it.

    Args:
        ipython: the running IPython.
    """
    from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring

    @magic_arguments()
    @argument("--mesh", help="the mesh, data=2,model=4, or the name of one")
    @argument("--in-specs", help="an expression for the arguments' specs, such as a variable's name")
    @argument("--out-specs", help="the same for the result")
    @argument("--target", default="cpu", help="the machine, such as 'tpu v5p:2x2x2'")
    @argument("--level", default="compiled", help="propagated, partitioned or compiled")
    @argument("--donate", default="()", help="an expression for donate_argnums, such as 0 or (0,1)")
    @argument("--static", default="()", help="an expression for static_argnums")
    def shard(line: str, cell: str) -> Any:
        """Explore the last call of a cell: its communication, its cost, and which device holds which slice.

        The code before the last expression is run. If that expression is a call, `train_step(params, tokens)`, its
        function is explored with these arguments instead of run. Any other expression's value is explored.
        """
        from shardviz.page import explore

        options = parse_argstring(shard, line)
        head, last = split(ipython.transform_cell(cell))
        if head.strip():
            ipython.run_cell(head).raise_error()

        def value(text: str | None) -> Any:
            return None if text is None else eval(text.strip("\"'"), ipython.user_global_ns, ipython.user_ns)

        fn, args, kwargs = call_of(last, ipython.user_global_ns, ipython.user_ns)
        mesh = options.mesh if options.mesh is None or "=" in options.mesh else value(options.mesh)
        return explore(
            fn,
            *args,
            mesh=mesh,
            in_specs=value(options.in_specs),
            out_specs=value(options.out_specs),
            target=options.target.strip("\"'"),
            level=options.level,
            donate_argnums=value(options.donate),
            static_argnums=value(options.static),
            **kwargs,
        )

    @magic_arguments()
    @argument("--target", help="the machine, such as 'tpu v5p:2x2x2'; by default the devices that JAX has")
    @argument("--devices", type=int, help="for a script: how many devices to simulate, without a machine")
    @argument("--steps", type=int, default=3, help="for a script: as in `shardviz run`")
    @argument("--name", default="run", help="the variable that the run is kept in")
    @argument("command", nargs=argparse.REMAINDER, help="a script as it is started, with its own options")
    def dryrun(line: str, cell: str | None = None) -> Any:
        """Run a cell, or the script after the options or `--`, dry: record what it compiles, moves and keeps, without
        computing anything large."""
        from shardviz.cli.dry import recorded
        from shardviz.runs.dry import dry_run

        line, _, command = f" {line}".partition(" -- ")
        options = parse_argstring(dryrun, line)
        target = options.target and options.target.strip("\"'")
        if cell is None:
            words = shlex.split(command or " ".join(options.command))
            ipython.user_ns[options.name], _ = recorded(words, target, options.devices, options.steps)
            return ipython.user_ns[options.name]
        with dry_run(target) as run:
            ipython.user_ns[options.name] = run
            ipython.run_cell(cell).raise_error()
        return run

    ipython.register_magic_function(shard, "cell", "shard")
    ipython.register_magic_function(dryrun, "line_cell", "dryrun")
    beside.add(ipython)


def unload_ipython_extension(ipython: Any) -> None:
    """Undo `load_ipython_extension`; `%unload_ext shardviz` calls it.

    Args:
        ipython: the running IPython.
    """
    for kind in ipython.magics_manager.magics.values():
        for name in ("shard", "dryrun"):
            kind.pop(name, None)
    beside.remove(ipython)


def split(code: str) -> tuple[str, ast.expr]:
    """Return a cell's code before its last expression, and that expression.

    >>> head, last = split("x = 1\\nf(x)")
    >>> head, ast.unparse(last)
    ('x = 1\\n', 'f(x)')

    Raises:
        UsageError: if the last statement is not an expression.
    """
    from IPython.core.error import UsageError

    body = ast.parse(code).body
    if not body or not isinstance(body[-1], ast.Expr):
        raise UsageError(
            "%%shard: the last line of the cell must be a call to explore, such as train_step(params, tokens)"
        )
    last = body[-1]
    lines = code.encode().splitlines(keepends=True)
    head = b"".join(lines[: last.lineno - 1]) + lines[last.lineno - 1][: last.col_offset]
    return head.decode(), last.value


def call_of(
    last: ast.expr, global_names: dict[str, Any], names: dict[str, Any]
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Return the function, arguments and keywords of a call, evaluated without calling it; for other expressions the
    value without arguments.

    >>> call_of(ast.parse("max(1 + 1, key=2)", mode="eval").body, {}, {})[1:]
    ((2,), {'key': 2})
    """
    if not isinstance(last, ast.Call):
        return eval(compile(ast.Expression(last), "<%%shard>", "eval"), global_names, names), (), {}
    kept = ast.Call(ast.Name(_CALL, ast.Load()), [last.func, *last.args], last.keywords)
    code = compile(ast.fix_missing_locations(ast.Expression(kept)), "<%%shard>", "eval")
    return eval(code, {**global_names, _CALL: lambda fn, *args, **kwargs: (fn, args, kwargs)}, names)
