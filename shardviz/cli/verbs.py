"""All verbs: what can be typed, and in which module each is answered, which is imported only then."""

from __future__ import annotations

from pathlib import Path

import click

from shardviz.cli.frame import Positive, State, cli, run, verb
from shardviz.cli.lab import DEFAULT_FOLDER, run_lab
from shardviz.cli.steps import BUDGETS, OPTIONS, STEP, STEPS, step_names
from shardviz.records.report import ASKED

__all__ = ["cli", "run"]

ARRAY = click.argument("array")
MESH = click.option("--mesh", required=True, metavar="AXES", help="The mesh: data=4,model=2.")

verb(
    "report",
    "asking",
    *STEP,
    click.option("--full", is_flag=True, help="Print all that a file would have."),
    help="""
Say what a step communicates and costs, and what to look at.

STEP is module:function, file.py:function, a step of pyproject.toml, or a name of the gallery.
""",
    examples="""
shardviz report llama-70b --target "tpu v5p:4x4x4"
shardviz report model:train_step --args model:arguments --mesh data=8,model=8
shardviz report train --level compiled --out report.html --out report.json
shardviz report train --json | jq '.collectives[] | {kind, count, source}'
""",
)
verb(
    "run",
    "dry",
    click.option("--target", metavar="MACHINE", help='Such as "tpu v5p:4x4x4": its devices are simulated.'),
    click.option("--devices", type=click.IntRange(1, 2048), help="How many devices to simulate, without a machine."),
    click.option(
        "--steps",
        type=click.IntRange(min=0),
        default=3,
        show_default=True,
        help="End once a program was called so often with nothing new in between; 0: run the script to its end.",
    ),
    click.option("--open", "opens", is_flag=True, help="Run it in a notebook of JupyterLab, and explore it there."),
    help="""
Run a script dry and say what it compiles, moves and keeps.

Nothing large is computed: programs on several devices, and those with large
arrays, are recorded, and give arrays of zeros. The script follows `--`.
""",
    examples="""
shardviz run --target "tpu v5p:4x4x4" -- python -m package.train config.yml
shardviz run --devices 8 --out run.html --out run.json -- train.py --layers 4
shardviz run --target "tpu v5p:4x4x4" --open -- python train.py
""",
    after="[OPTIONS] -- COMMAND",
)
verb(
    "check",
    "judging",
    STEPS,
    *BUDGETS,
    click.option("--update", is_flag=True, help="Write the golden files anew."),
    click.option(
        "--base", metavar="REVISION", help="Compare with the report of another revision of git, such as main."
    ),
    click.option(
        "--accept", multiple=True, metavar="RULE", help="What may fail, as the output calls it; * at the end."
    ),
    *OPTIONS,
    help="""
Check steps against goldens, budgets and another revision.

It exits with 1 if one fails. With --base, a weight that is gathered now and was not, and a new warning, fail too.
""",
    examples="""
shardviz check                                # all steps of pyproject.toml
shardviz check train --base main --max-step-time +5%
shardviz check model:train_step --args model:arguments --mesh data=8,model=8 \\
    --forbid "all-gather inside loop larger than 100 MB" --max-memory 90% \\
    --target "tpu v5p:4x4x4" --level compiled
""",
)
verb(
    "comment",
    "comment",
    STEPS,
    click.option("--base", required=True, metavar="REVISION", help="What to compare with, such as main."),
    click.option("--threshold", default="1%", metavar="SHARE", help="The least change that is told: 1%."),
    *OPTIONS,
    help="""
Write for a pull request what it makes worse or better.

It is Markdown. Nothing is printed where nothing changes by the threshold.
""",
    examples="""
shardviz comment --base main                    # all steps of pyproject.toml
shardviz comment train --base origin/main --threshold 5%
""",
)
verb(
    "compare",
    "judging",
    click.argument("old"),
    click.argument("new"),
    click.option(
        "--target", metavar="MACHINE", help="The machine that both are timed on; each report's own if not given."
    ),
    click.option("--exit-code", is_flag=True, help="Exit with 1 if they differ."),
    help="""
Say what is different between two reports.

They are compared by meaning: specs, collectives, memory, the step. OLD and NEW are files that
`shardviz report ... --out report.json` or `Report.save` has written.
""",
    examples="""
shardviz compare old.json new.json
shardviz compare old.json new.json --out difference.md --exit-code
""",
)
verb(
    "why",
    "asking",
    click.argument("words", nargs=-1, required=True, metavar="[STEP] VALUE", shell_complete=step_names),
    click.option("--axis", help="The mesh axis to explain; all if not given."),
    *OPTIONS,
    help="""
Say why a value is sharded so, or why a collective is there.

VALUE is a tree path, a variable or a line of the program, or a kind of collective with words that say which:
"all-gather over data inside loop at model.py:20". What is said was tried, by propagating with something changed.
""",
    examples="""
shardviz why mlp "params[0]['w']" --axis data
shardviz why model:train_step model.py:20 --args model:arguments --mesh data=2,model=4
shardviz why mlp "all-gather over data"       # that which sends most
shardviz why "all-reduce at model.py:*"       # of the only step in pyproject.toml
""",
)
verb(
    "fixes",
    "asking",
    *STEP,
    click.option("--findings", type=click.IntRange(min=1), help="Of how many findings fixes are tried."),
    click.option("--seconds", type=click.FloatRange(min=0, min_open=True), help="When to stop; 300 if not given."),
    help="""
Try what would make a step shorter or smaller.

The best comes first. Each change is propagated and the best are partitioned; what makes the step worse is not
offered.
""",
    examples="""
shardviz fixes llama-70b --target "tpu v5p:4x4x4"
shardviz fixes train --json | jq -r '.fixes[0].write'
""",
)
verb(
    "search",
    "asking",
    *STEP,
    click.option("--seconds", type=Positive(), default=30.0, help="How long; 30 s."),
    click.option("--keep-mesh", is_flag=True, help="Only plans on the mesh as it is."),
    click.option("--pin", "pins", multiple=True, metavar="NAME=VALUE", help="What must stay: an argument's spec, say."),
    help="""
Search for the best plan on a machine.

It says why not otherwise. It begins with the plan that the step has; Ctrl-C ends it with what is known by then.
The best are compiled by the machine's own compiler where that is installed; --level partitioned is quicker.
""",
    examples="""
shardviz search llama-70b --target "tpu v5p:4x4x4" --seconds 20
shardviz search train --keep-mesh --pin "tokens=P('data')" --pin model=8 --json
""",
)
verb(
    "sweep",
    "asking",
    click.argument("function", metavar="MAKE"),
    click.option(
        "--over", multiple=True, required=True, metavar="NAME=A,B,...", help="Values; between | if they have commas."
    ),
    click.option("--mesh", metavar="AXES", help="The mesh where the points name none."),
    click.option("--target", metavar="MACHINE", help="The machine where the points name none."),
    click.option("--level", type=click.Choice(ASKED), default="propagated", help="How exact; propagated if not given."),
    click.option("--tokens", type=Positive(), help="Tokens of a step."),
    help="""
Ask the same at every point of a grid.

MAKE is module:function, called with a point's values by name; it gives a step of the gallery, a program with its
plan, or (function, arguments, keywords). Points named mesh, target and options are the sweep's own.
""",
    examples="""
shardviz sweep gallery:llama --over size=8b --over batch=32,64,128 --target "tpu v5p:4x4x4"
shardviz sweep model:make --over policy=none,full --over "mesh=data=8,model=8|data=16,model=4"
""",
)
verb(
    "timeline",
    "asking",
    *STEP,
    help="""
Lay out a step as it would run.

It says what waits for what, and what would make the step shorter. A file that ends in .trace.json is for Perfetto
and Chrome.
""",
    examples="""
shardviz timeline llama-70b --target "tpu v5p:4x4x4"
shardviz timeline train --level compiled --out step.trace.json   # opens in https://ui.perfetto.dev
""",
)
verb(
    "show",
    "arrays",
    ARRAY,
    click.argument("spec"),
    MESH,
    help="""
Draw which device holds which slice of an array.

ARRAY is an element type and a shape, "bf16[8192,4096]"; SPEC is a sharding in any notation.
""",
    examples="""
shardviz show "bf16[8192,4096]" "P('data', None)" --mesh data=4,model=2
shardviz show "f32[1024]" "{devices=[4]<=[4]}" --mesh x=4       # any notation
shardviz show "bf16[8192,4096]" "P('data')" --mesh data=4 --out map.svg
""",
)
verb(
    "reshard",
    "arrays",
    ARRAY,
    click.argument("before"),
    click.argument("after"),
    click.option(
        "--mesh",
        required=True,
        multiple=True,
        metavar="AXES",
        help="The mesh: data=4,model=2. A second is the mesh after.",
    ),
    click.option(
        "--target",
        multiple=True,
        metavar="MACHINE",
        help="How long it takes there: tpu v5p:4x4x4. A second is for after.",
    ),
    click.option("--apart", is_flag=True, help="The second mesh has other devices than the first."),
    click.option("--dtype", metavar="TYPE", help="Floating-point arrays get this element type: bfloat16."),
    click.option("--limit", metavar="BYTES", help="A device has this much memory for it: 16GB. Else the machine's."),
    click.option("--code", is_flag=True, help="Print the Python that does it in the first of the ways."),
    help="""
Say what is sent when arrays change their sharding or mesh.

ARRAY is an element type and a shape, or module:name of a tree of arrays or of a function that makes it. BEFORE and
AFTER are shardings in any notation, one for all arrays, or module:name of a tree of specs.
""",
    examples="""
shardviz reshard "bf16[8192,4096]" "P('data', None)" "P(None, 'data')" --mesh data=8
shardviz reshard model:params model:train_specs model:serve_specs --mesh data=8 --limit 16GB
shardviz reshard model:params model:train_specs model:serve_specs --mesh fsdp=256 --mesh data=8,model=8 \\
    --target "tpu v5p:4x8x8" --target "tpu v5p:4x4x4" --code > move.py    # to another machine
""",
)
verb(
    "targets",
    "here",
    help="""
List the machines that can be compiled for here.

What is missing for the others is said with the command that installs it.
""",
    examples="shardviz targets\nshardviz targets --json | jq '.targets[] | select(.ready) | .name'",
)


@cli.command("lab", epilog="What stands after `--` goes to JupyterLab: shardviz lab -- --ServerApp.ip=0.0.0.0")
@click.argument("folder", default=DEFAULT_FOLDER, type=click.Path(path_type=Path))
@click.option(
    "--port", type=click.IntRange(0, 65535), help="The server's port; the first free one from 8888 if not given."
)
@click.option("--no-browser", "browser", flag_value=False, default=True, help="Only print the address.")
@click.pass_obj
def lab(state: State, folder: Path, port: int | None, browser: bool) -> int:
    """Open JupyterLab on a copy of the notebooks in FOLDER.

    What is there is never overwritten: rename or delete a notebook to get the shipped one.
    """
    return run_lab(folder, port=port, browser=browser, extra=state.extra)


verb(
    "doctor",
    "here",
    help="""
Say what works on this machine, and what is missing.

It exits with 1 if the basics do not work.
""",
    examples="shardviz doctor",
)
verb(
    "skill",
    "here",
    help="Print a guide to these verbs for coding agents.",
    examples="shardviz skill > .claude/skills/shardviz/SKILL.md",
)


@cli.command("mcp", epilog="Claude, say: claude mcp add shardviz -- shardviz mcp")
@click.option(
    "--steps", multiple=True, metavar="STEP", help="What may be asked about; all of pyproject.toml if not given."
)
def mcp(steps: tuple[str, ...]) -> None:
    """Offer the verbs to a coding agent as tools.

    They ask about steps of this project. STEP is a step of pyproject.toml, or module:function. A call imports and
    traces the code of these steps, as its files are then, and no other code; it reads files of this project alone. The
    tools speak on standard input and output until that ends. The package mcp is wanted: pip install 'shardviz[mcp]'.
    """
    from shardviz.cli.mcp import serve

    serve(steps)


verb(
    "schema",
    "here",
    click.argument("name", metavar="VERB", required=False),
    help="""
Print the JSON Schema of what a verb prints with --json.

Without VERB, those of all verbs, by name.
""",
    examples="shardviz schema report\nshardviz schema > schemas.json",
)
verb(
    "completion",
    "here",
    click.argument("shell", type=click.Choice(["bash", "zsh", "fish"])),
    help="Print what completes verbs and options in a shell.",
    examples="""
shardviz completion bash >> ~/.bashrc
shardviz completion zsh >> ~/.zshrc
shardviz completion fish > ~/.config/fish/completions/shardviz.fish
""",
)
