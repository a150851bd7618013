"""The verbs that ask about a step: `report`, `why`, `mends`, `search`, `sweep`, `timeline`."""

from __future__ import annotations

import ast
import sys
from collections.abc import Sequence
from typing import Any

import click

from shardviz.cli.frame import Answer, Positive, progress, quiet, verb
from shardviz.cli.naming import collectives_of, resolve
from shardviz.cli.steps import OPTIONS, STEP, LoadedStep, importable, load, project, step_names
from shardviz.errors import ShardvizError
from shardviz.records.amounts import format_seconds, plural
from shardviz.records.collectives import KINDS, axes_words
from shardviz.records.report import ASKED


@verb(
    "report",
    *STEP,
    click.option("--full", is_flag=True, help="Print all that a file would have."),
    examples="""
shardviz report llama-70b --target "tpu v5p:4x4x4"
shardviz report model:train_step --args model:arguments --mesh data=8,model=8
shardviz report train --level compiled --out report.html --out report.json
shardviz report train --json | jq '.collectives[] | {kind, count, source}'
""",
)
def report(function: str | None, full: bool, **options: Any) -> Answer:
    """Say what a step communicates and costs, and what to look at.

    STEP is module:function, file.py:function, a step of pyproject.toml, or a name of the gallery.
    """
    from shardviz.cli.answers import ReportAnswer, report_document

    step = load(function, **options)
    step_report = step.report()
    cost = step.cost(step_report)
    whole = report_document(step_report, cost)
    brief = whole if full else report_document(step_report, cost, brief=True)
    return Answer(brief, record=ReportAnswer(step_report, cost), whole=whole)


@verb(
    "why",
    click.argument("words", nargs=-1, required=True, metavar="[STEP] VALUE", shell_complete=step_names),
    click.option("--axis", help="The mesh axis to explain; all if not given."),
    *OPTIONS,
    examples="""
shardviz why mlp "params[0]['w']" --axis data
shardviz why model:train_step model.py:20 --args model:arguments --mesh data=2,model=4
shardviz why mlp "all-gather over data"       # that which sends most
shardviz why "all-reduce at model.py:*"       # of the only step in pyproject.toml
""",
)
def why(words: Sequence[str], axis: str | None, **options: Any) -> Answer:
    """Say why a value is sharded so, or why a collective is there.

    VALUE is a tree path, a variable or a line of the program, or a kind of collective with words that say which:
    "all-gather over data inside loop at model.py:20". What is said was tried, by propagating with something changed.
    """
    if len(words) > 2:
        raise click.UsageError(f"expected [STEP] VALUE, not {len(words)} words; put quotes around VALUE")
    step = load(words[0] if len(words) == 2 else None, **options)
    wanted: Any = words[-1]
    if wanted.split(" ")[0] in KINDS:
        kept = step.program.propagate(step.plan).collectives
        which = kept.where(**collectives_of(wanted, argument="VALUE"))
        if not which:
            has = ", ".join(
                f"{kind} over {axes}" for kind, axes in sorted({(c.kind, axes_words(c.axes)) for c in kept})
            )
            raise ShardvizError(
                f"VALUE {wanted!r}: there is no such collective at level propagated; there are {has or 'none'}"
            )
        wanted = max(which, key=lambda c: c.assumed_bytes)
    progress(f"propagating {step.program.name} with something changed")
    return Answer(step.program.why(step.plan, wanted, axis=axis, target=None if step.target == "cpu" else step.target))


@verb(
    "mends",
    *STEP,
    click.option("--findings", type=click.IntRange(min=1), help="Of how many findings mends are tried."),
    examples="""
shardviz mends llama-70b --target "tpu v5p:4x4x4"
shardviz mends train --json | jq -r '.mends[0].write'
""",
)
def mends(function: str | None, findings: int | None, **options: Any) -> Answer:
    """Try what would make a step shorter or smaller.

    The best comes first. Each change is propagated and the best are partitioned; what makes the step worse is not
    offered.
    """
    from shardviz.study import mends as mend

    step = load(function, **options)
    step_report = step.report()
    progress("trying changes")
    more: dict[str, Any] = {} if findings is None else {"findings": findings}
    return Answer(mend(step.program, step_report, step.target, plan=step.plan, **more))


@verb(
    "search",
    *STEP,
    click.option("--seconds", type=Positive(), default=30.0, help="How long; 30 s."),
    click.option("--keep-mesh", is_flag=True, help="Only plans on the mesh as it is."),
    click.option("--pin", "pins", multiple=True, metavar="NAME=VALUE", help="What must stay: an argument's spec, say."),
    examples="""
shardviz search llama-70b --target "tpu v5p:4x4x4" --seconds 20
shardviz search train --keep-mesh --pin "tokens=P('data')" --pin model=8 --json
""",
)
def search(function: str | None, seconds: float, keep_mesh: bool, pins: tuple[str, ...], **options: Any) -> Answer:
    """Search for the best plan on a machine.

    It says why not otherwise. It begins with the plan that the step has; Ctrl-C ends it with what is known by then.
    The best are compiled by the machine's own compiler where that is installed; --level partitioned is quicker.
    """
    from shardviz.cli.answers import search_data
    from shardviz.study import search as look

    step = load(function, **options | {"level": options["level"] or "compiled"})
    if step.target == "cpu":
        raise ShardvizError(
            "--target: a search is for a machine with a speed; give one, such as --target 'tpu v5p:4x4x4'"
        )
    fixed = dict(_pin(pin, step) for pin in pins)
    mesh = step.plan.mesh if keep_mesh else None
    level = step.settings.level
    states = look(
        step.program, step.target, seconds=seconds, plan=step.plan, mesh=mesh, pins=fixed, level=level, stream=True
    )
    state, best = None, None
    try:
        for state in states:
            if state.best is not None and state.best is not best:
                best = state.best
                progress(f"{state.seconds:.0f} s: {format_seconds(best.seconds)}, {best.text}")
    except KeyboardInterrupt:
        states.stop()
    if state is None:
        raise click.Abort
    return Answer(state, record=search_data(state, step.program))


def _pin(text: str, step: LoadedStep) -> tuple[str, Any]:
    """What must stay: a spec of an argument, the size of a mesh axis, the axes that shard a logical dimension."""
    name, sign, value = text.rpartition("=") if "P(" not in text else text.partition("=")
    if not sign:
        raise ShardvizError(f"--pin {text!r}: expected NAME=VALUE, such as \"tokens=P('data')\" or model=8")
    if "(" in value:
        from shardviz.notation.read import sharding

        return name, sharding(value, step.plan.mesh).to("pspec")
    return name, int(value) if value.isdecimal() else None if value in ("", "None") else tuple(value.split(","))


@verb(
    "sweep",
    click.argument("function", metavar="MAKE"),
    click.option(
        "--over", multiple=True, required=True, metavar="NAME=A,B,...", help="Values; between | if they have commas."
    ),
    click.option("--mesh", metavar="AXES", help="The mesh where the points name none."),
    click.option("--target", metavar="MACHINE", help="The machine where the points name none."),
    click.option("--level", type=click.Choice(ASKED), default="propagated", help="How exact; propagated if not given."),
    click.option("--tokens", type=Positive(), help="Tokens of a step."),
    examples="""
shardviz sweep gallery:llama --over size=8b --over batch=32,64,128 --target "tpu v5p:4x4x4"
shardviz sweep model:make --over policy=none,full --over "mesh=data=8,model=8|data=16,model=4"
""",
)
def sweep(
    function: str,
    over: tuple[str, ...],
    mesh: str | None,
    target: str | None,
    level: str,
    tokens: float | None,
) -> Answer:
    """Ask the same at every point of a grid.

    MAKE is module:function, called with a point's values by name; it gives a step of the gallery, a program with its
    plan, or (function, arguments, keywords). Points named mesh, target and options are the sweep's own.
    """
    from shardviz.cli.answers import sweep_data
    from shardviz.study import sweep as ask

    importable(project())
    make = resolve("MAKE", function, call=False)
    grid: dict[str, list[Any]] = {}
    for name, values in map(_values, over):
        if name in grid:
            raise ShardvizError(f"--over {name}: it is given twice; put all its values behind one")
        grid[name] = values
    bar = sys.stderr.isatty() and not quiet()
    answers = ask(make, grid, mesh=mesh, target=target, level=level, tokens=tokens, progress=bar)
    if answers.rows and not answers.left and all(row.trouble for row in answers.rows):
        raise ShardvizError(
            f"none of the {plural(len(answers.rows), 'point')} has an answer; the first: {answers.rows[0].trouble}"
        )
    return Answer(answers, record=sweep_data(answers))


def _values(text: str) -> tuple[str, list[Any]]:
    """`batch=8,16` as a name and its values: literals where they are, else texts."""
    name, sign, values = text.partition("=")
    if not sign or not name.strip() or not values.strip():
        raise ShardvizError(f"--over {text!r}: expected NAME=A,B,... such as batch=8,16,32")

    def value(word: str) -> Any:
        try:
            return ast.literal_eval(word)
        except (SyntaxError, ValueError):
            return word

    return name.strip(), [value(word.strip()) for word in values.split("|" if "|" in values else ",")]


@verb(
    "timeline",
    *STEP,
    examples="""
shardviz timeline llama-70b --target "tpu v5p:4x4x4"
shardviz timeline train --level compiled --out step.trace.json   # opens in https://ui.perfetto.dev
""",
)
def timeline(function: str | None, **options: Any) -> Answer:
    """Lay out a step as it would run.

    It says what waits for what, and what would make the step shorter. A file that ends in .trace.json is for Perfetto
    and Chrome.
    """
    from shardviz.costs.timeline import timeline_of

    step = load(function, **options)
    return Answer(timeline_of(step.report(), step.target))
