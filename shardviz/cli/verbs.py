"""The definitions of all verbs. The module that answers a verb is imported when the verb runs."""

from __future__ import annotations

from pathlib import Path

import click
from click import argument, option

from shardviz.cli.frame import Positive, State, cli, run, verb
from shardviz.cli.lab import DEFAULT_FOLDER, run_lab
from shardviz.cli.steps import BUDGETS, OPTIONS, STEP, STEPS, step_names
from shardviz.records.report import ASKED

__all__ = ["cli", "run"]

ARRAY = argument("array")
MESH = option("--mesh", required=True, metavar="AXES", help="The mesh: data=4,model=2.")
MESHES = option(
    "--mesh", required=True, multiple=True, metavar="AXES", help="The mesh: data=4,model=2. A second is the mesh after."
)

verb(
    "report",
    "asking",
    *STEP,
    option("--full", is_flag=True, help="Print all that a file would have."),
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
    option("--target", metavar="MACHINE", help='Such as "tpu v5p:4x4x4": its devices are simulated.'),
    option("--devices", type=click.IntRange(1, 2048), help="How many devices to simulate, without a machine."),
    option(
        "--steps",
        type=click.IntRange(min=0),
        default=3,
        show_default=True,
        help="End after this many calls of one program without a new program; 0: run the script to its end.",
    ),
    option("--open", "opens", is_flag=True, help="Run it in a notebook of JupyterLab, and explore it there."),
    option(
        "--process", metavar="I/N", help="Run as process I of N. all/N: run as each of N, and compare their programs."
    ),
    help="""
Run a script dry and say what it compiles, moves and keeps.

Nothing large is computed: programs on several devices, or with large arrays,
are recorded and return arrays of zeros. COMMAND is the script as it is started
without shardviz; its options are its own, so shardviz's stand before it.
""",
    examples="""
shardviz run --target "tpu v5p:4x4x4" -- python -m package.train config.yml
shardviz run --devices 8 --out run.html --out run.json -- train.py --layers 4
shardviz run --target "tpu v5p:4x4x4" --open -- python train.py
shardviz run --target "tpu v5p:4x4x4" --process all/16 -- python train.py
""",
    after="[OPTIONS] [--] COMMAND",
    takes_command=True,
)
verb(
    "check",
    "judging",
    STEPS,
    *BUDGETS,
    option("--update", is_flag=True, help="Write the golden files anew."),
    option("--base", metavar="REVISION", help="Compare with the report of another revision of git, such as main."),
    option(
        "--accept", multiple=True, metavar="RULE", help="A rule that may fail, by its name in the output; may end in *."
    ),
    *OPTIONS,
    help="""
Check steps against goldens, budgets and another revision.

The exit code is 1 if a check fails. With --base, a newly gathered weight or a new warning is a failure too.

With --run and no --program, every program of the script on several devices must pass; of several, each has a golden
file of its own, with its name. With --base, the script runs at both revisions.
""",
    examples="""
shardviz check                                # all steps of pyproject.toml
shardviz check train --base main --max-step-time +5%
shardviz check --run "python train.py" --target "tpu v5e:2x4" --max-memory 90% --base main
shardviz check model:train_step --args model:arguments --mesh data=8,model=8 \\
    --forbid "all-gather inside loop larger than 100 MB" --max-memory 90% \\
    --target "tpu v5p:4x4x4" --level compiled
""",
)
verb(
    "comment",
    "comment",
    STEPS,
    option("--base", required=True, metavar="REVISION", help="What to compare with, such as main."),
    option("--threshold", default="1%", metavar="SHARE", help="The smallest change to report: 1%."),
    *OPTIONS,
    help="""
Write a pull request's comment: what became worse or better.

The output is Markdown. It is empty if no change reaches the threshold.
""",
    examples="""
shardviz comment --base main                    # all steps of pyproject.toml
shardviz comment train --base origin/main --threshold 5%
""",
)
verb(
    "compare",
    "judging",
    argument("old"),
    argument("new"),
    option("--target", metavar="MACHINE", help="The machine that both are timed on; each report's own if not given."),
    option("--exit-code", is_flag=True, help="Exit with 1 if they differ, as processes of one job always do."),
    help="""
Say what is different between two reports.

They are compared by meaning: specs, collectives, memory, the step. OLD and NEW are files that
`shardviz report ... --out report.json` or `Report.save` has written. Or they are dry runs, which
`shardviz run ... --out run.json` has written; two with different `--process I/N` are compared as
processes of one job, and if their programs differ the exit code is 1, as of a check that fails.
""",
    examples="""
shardviz compare old.json new.json
shardviz compare old.json new.json --out difference.md --exit-code
shardviz compare process0.json process1.json    # of one job: exits with 1 if their programs differ
""",
)
verb(
    "why",
    "asking",
    argument("words", nargs=-1, required=True, metavar="[STEP] VALUE", shell_complete=step_names),
    option("--axis", help="The mesh axis to explain; all if not given."),
    *OPTIONS,
    help="""
Explain a value's sharding, or why a collective exists.

VALUE is a tree path, a variable or a line of the program, or a kind of collective with words that say which:
"all-gather over data inside loop at model.py:20". Each cause was tested by propagating with something changed.
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
    option("--findings", type=click.IntRange(min=1), help="How many findings to try fixes for."),
    option("--seconds", type=click.FloatRange(min=0, min_open=True), help="Time limit in seconds; 300 if not given."),
    help="""
Try changes that may make a step faster or smaller.

The best fix is first. Each change is propagated and the best are partitioned; changes that make the step worse are
not listed.
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
    option("--seconds", type=Positive(), default=30.0, help="Time limit in seconds; 30."),
    option("--keep-mesh", is_flag=True, help="Only plans on the step's own mesh."),
    option(
        "--pin", "pins", multiple=True, metavar="NAME=VALUE", help="What must not change, such as an argument's spec."
    ),
    help="""
Search for the best plan on a machine.

It starts from the step's plan, and says why alternatives are worse. Ctrl-C ends it with the results so far.
The best plans are compiled by the machine's own compiler if that is installed; --level partitioned is faster.
""",
    examples="""
shardviz search llama-70b --target "tpu v5p:4x4x4" --seconds 20
shardviz search train --keep-mesh --pin "tokens=P('data')" --pin model=8 --json
""",
)
verb(
    "sweep",
    "asking",
    argument("function", metavar="MAKE"),
    option(
        "--over", multiple=True, required=True, metavar="NAME=A,B,...", help="Values; between | if they have commas."
    ),
    option("--mesh", metavar="AXES", help="The mesh of points that have none."),
    option("--target", metavar="MACHINE", help="The machine of points that have none."),
    option("--level", type=click.Choice(ASKED), default="propagated", help="How exact; propagated if not given."),
    option("--tokens", type=Positive(), help="Tokens of a step."),
    help="""
Evaluate a step at every point of a grid.

MAKE is module:function, called with a point's values by name; it returns a step of the gallery, a program with its
plan, or (function, arguments, keywords). The names mesh, target and options are reserved for the sweep itself.
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
Show a step's schedule over time.

It says what waits for what, and what would make the step faster. A file that ends in .trace.json is for Perfetto
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
    argument("spec"),
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
    argument("before"),
    argument("after"),
    MESHES,
    option(
        "--target",
        multiple=True,
        metavar="MACHINE",
        help="How long it takes there: tpu v5p:4x4x4. A second is for after.",
    ),
    option(
        "--rename",
        multiple=True,
        metavar="PATH=PATH",
        help="An array's path before and after; * stands for a key, or for layers that the other side has stacked.",
    ),
    option("--apart", is_flag=True, help="The second mesh has other devices than the first."),
    option("--dtype", metavar="TYPE", help="Floating-point arrays get this element type: bfloat16."),
    option("--limit", metavar="BYTES", help="A device has this much memory for it: 16GB. Else the machine's."),
    option("--code", is_flag=True, help="Print the Python that does it in the first of the ways."),
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
shardviz reshard model:params model:train_specs model:serving --mesh fsdp=64 \\
    --rename "['blocks'][*]['w']=['layers']['w']"    # which serving has stacked
""",
)
verb(
    "checkpoint",
    "arrays",
    ARRAY,
    argument("before"),
    argument("after", required=False),
    MESHES,
    option(
        "--processes",
        type=click.IntRange(min=1),
        multiple=True,
        metavar="N",
        help="The number of processes that write. A second: of processes that read.",
    ),
    option(
        "--target",
        multiple=True,
        metavar="MACHINE",
        help="A machine, with a process for each host: tpu v5p:4x4x4. A second is the machine that reads.",
    ),
    option("--chunk-bytes", metavar="BYTES", help="A chunk has this many bytes at most: 64MB."),
    option("--file-bytes", metavar="BYTES", help="A data file, and so a chunk, has this many bytes at most: 2GB."),
    option("--limit", metavar="BYTES", help="A host holds this many bytes at most while it writes: 16GB."),
    option("--read-limit", metavar="BYTES", help="A host holds this many bytes at most while it reads: 16GB."),
    option(
        "--bandwidth", metavar="BYTES/S", help="The rate at which one process writes and reads, for seconds: 2GB/s."
    ),
    option(
        "--one-replica",
        is_flag=True,
        help="Replica 0 writes, as Orbax does on GPUs; otherwise replicas share the writing.",
    ),
    help="""
Say which process writes and reads what of a checkpoint.

The checkpoint is Orbax's; nothing is written. ARRAY is an element type and a shape, or module:name of a tree of arrays
or of a function that makes it. BEFORE, where it is written, and AFTER, where it is read, are shardings in any notation,
one for all arrays, or module:name of a tree of specs.
""",
    examples="""
shardviz checkpoint "f32[8192,4096]" "P('data', None)" --mesh data=8,model=8 --processes 16
shardviz checkpoint model:params model:specs --mesh fsdp=256 --target "tpu v5p:4x8x8" --bandwidth 2GB/s
shardviz checkpoint model:params model:specs model:serve_specs --mesh fsdp=64 --mesh tensor=8 \\
    --processes 16 --processes 1
""",
)
verb(
    "together",
    "together",
    argument("programs", nargs=-1, metavar="[NAME=STEP]...", shell_complete=step_names),
    option("--run", metavar="COMMAND", help='A script to run dry, "python serve.py", in place of the programs.'),
    option("--target", metavar="MACHINE", help='Such as "tpu v5p:4x4x4".'),
    option("--shared", multiple=True, metavar="PATH[=PATH]", help="The same arrays: params, or params=weights."),
    option("--calls", multiple=True, metavar="NAME=NUMBER", help="How often a program is called in an hour."),
    option("--memory", is_flag=True, help="Show one memory budget instead."),
    option("--cache", multiple=True, metavar="PATH", help="The KV cache, for --memory: how large it can be."),
    option("--dimension", type=int, default=0, help="The cache's dimension that counts sequences or pages; 0."),
    option(
        "--level",
        type=click.Choice(ASKED),
        help="For --memory propagated (if not given) or compiled; for --search, by which the best plans are confirmed: "
        "compiled if not given.",
    ),
    option("--search", is_flag=True, help="Search for the best plans together instead."),
    option("--seconds", type=Positive(), default=30.0, help="Time limit of --search in seconds; 30."),
    help="""
Show the costs of programs that share arrays.

A program is NAME=STEP: a step of pyproject.toml or of the gallery, or module:name of (program, plan) or of a function
that returns this pair. Or --run runs a script dry, and takes its programs that share arrays.
""",
    examples="""
shardviz together train=train decode=decode --target "tpu v5p:4x4x4"
shardviz together train=model:train decode=model:decode --target "tpu v5p:4x4x4" --shared params=weights \\
    --calls train=1 --calls decode=1000 --search
shardviz together --run "python serve.py" --target "tpu v5e:2x4" --cache cache --level compiled
""",
)
verb(
    "targets",
    "here",
    help="""
List the machines that programs can be compiled for here.

For the others it says what is missing, and the command that installs it.
""",
    examples="shardviz targets\nshardviz targets --json | jq '.targets[] | select(.ready) | .name'",
)


@cli.command("lab", epilog="Words after `--` go to JupyterLab: shardviz lab -- --ServerApp.ip=0.0.0.0")
@argument("folder", default=DEFAULT_FOLDER, type=click.Path(path_type=Path))
@option("--port", type=click.IntRange(0, 65535), help="The server's port; the first free one from 8888 if not given.")
@option("--no-browser", "browser", flag_value=False, default=True, help="Only print the address.")
@click.pass_obj
def lab(state: State, folder: Path, port: int | None, browser: bool) -> int:
    """Open JupyterLab on a copy of the notebooks in FOLDER.

    Existing notebooks are never overwritten: rename or delete one to get the shipped version.
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
@option(
    "--steps", multiple=True, metavar="STEP", help="A step that the tools may use; all of pyproject.toml if not given."
)
def mcp(steps: tuple[str, ...]) -> None:
    """Offer the verbs to a coding agent as tools.

    The tools answer questions about steps of this project. STEP is a step of pyproject.toml, or module:function. A call
    imports and traces the current code of these steps and no other code, and reads only files of this project. The
    server uses standard input and output until they end. It needs the package mcp: pip install 'shardviz[mcp]'.
    """
    from shardviz.cli.mcp import serve

    serve(steps)


verb(
    "schema",
    "here",
    argument("name", metavar="VERB", required=False),
    help="""
Print the JSON Schema of a verb's --json output.

Without VERB, it prints the schemas of all verbs by name.
""",
    examples="shardviz schema report\nshardviz schema > schemas.json",
)
verb(
    "completion",
    "here",
    argument("shell", type=click.Choice(["bash", "zsh", "fish"])),
    help="Print a script that completes verbs and options in a shell.",
    examples="""
shardviz completion bash >> ~/.bashrc
shardviz completion zsh >> ~/.zshrc
shardviz completion fish > ~/.config/fish/completions/shardviz.fish
""",
)
