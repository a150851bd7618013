"""The step that a verb is about: a function with its arguments, mesh, specs and machine.

It is given on the command line, `model:train_step --args model:arguments`, or in `pyproject.toml`:

    [tool.shardviz.steps.train]
    function = "model:train_step"
    args = "model:arguments"
    mesh = { data = 8, model = 8 }
    in_specs = "model:specs"
    target = "tpu v5p:4x4x4"
    max_memory = "90%"
    forbid = ["all-gather inside loop"]

The command line overrides the file. `llama-70b` is a step of `sv.gallery`.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import click
import msgspec

from shardviz.cli.bounds import bounds
from shardviz.cli.frame import Positive, progress
from shardviz.cli.naming import gallery_names, is_name, resolve, value_of
from shardviz.errors import MeshError, ShardvizError, TraceError, excerpt
from shardviz.records.report import ASKED


@dataclass(frozen=True, kw_only=True)
class Flag:
    """The command-line option of a field of `Settings`, in click's words; `check`: for `shardviz check` only."""

    help: str
    metavar: str | None = None
    name: str = ""
    type: Any = None
    multiple: bool = False
    check: bool = False

    def option(self, field: str) -> Callable[[Any], Any]:
        words = (f"--{self.name or field.replace('_', '-')}", field)
        return click.option(*words, metavar=self.metavar, help=self.help, type=self.type, multiple=self.multiple)


class Settings(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A step's settings in `pyproject.toml`. `function` is `module:function`, `file.py:function`, or a name of the
    gallery. A field with a `Flag` is a command-line option too, and the flag explains it. `tolerance` is as for
    `Report.check_golden`."""

    function: str = ""
    run: Annotated[str, Flag(metavar="COMMAND", help='A script to run dry, "python train.py", in place of STEP.')] = ""
    program: Annotated[str, Flag(metavar="NAME", help="Which of its programs; the longest if not given.")] = ""
    args: Annotated[str, Flag(metavar="MODULE:NAME", help="Its arguments, or a function that makes them.")] = ""
    mesh: Annotated[str | dict[str, int] | None, Flag(metavar="AXES", help="The mesh: data=8,model=8.")] = None
    in_specs: Annotated[
        str, Flag(metavar="SPECS", help="MODULE:NAME, or one spec an argument: \"P('data'); P()\".")
    ] = ""
    out_specs: Annotated[str, Flag(metavar="SPECS", help="The same for the result.")] = ""
    rules: Annotated[
        dict[str, str],
        Flag(name="rule", multiple=True, metavar="PATTERN=SPEC", help="Specs by name: *kernel=P('model')."),
    ] = {}
    static: Annotated[
        tuple[int | str, ...], Flag(metavar="ARGS", help="Static arguments, as for jax.jit: 2,mode.")
    ] = ()
    donate: Annotated[tuple[int | str, ...], Flag(metavar="ARGS", help="Donated arguments: 0,opt_state.")] = ()
    target: Annotated[str, Flag(metavar="MACHINE", help='Such as "tpu v5p:4x4x4" or "gpu h100:2x8".')] = ""
    level: Annotated[
        Literal["propagated", "partitioned", "compiled"],
        Flag(type=click.Choice(ASKED), help="How exact; partitioned if not given."),
    ] = "partitioned"
    options: Annotated[
        str | dict[str, str | int | float | bool],
        Flag(metavar="OPTIONS", help='Compiler options: "xla_a=1 host-offload".'),
    ] = ""
    tokens: Annotated[float | None, Flag(type=Positive(), help="Tokens of a step, for tokens a second.")] = None
    max_step_time: Annotated[str, Flag(check=True, metavar="TIME", help="5.5s; or +5%, with --base.")] = ""
    max_memory: Annotated[
        str, Flag(check=True, metavar="AMOUNT", help="Of a device: 90GB, 90% of what it has; or +5%, with --base.")
    ] = ""
    forbid: Annotated[
        tuple[str, ...], Flag(check=True, multiple=True, metavar="COLLECTIVE", help='Such as "all-gather inside loop".')
    ] = ()
    golden: Annotated[str, Flag(check=True, metavar="FILE", help="What the report's golden file must still say.")] = ""
    tolerance: dict[str, str | float] = {}


class Project(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """`[tool.shardviz]` of a project: the folders to import modules from, relative to its `pyproject.toml`; its steps
    by name; and the folder of that file (without a file, the working folder)."""

    path: tuple[str, ...] = (".",)
    steps: dict[str, Settings] = {}
    folder: str = "."


@dataclass(frozen=True, kw_only=True)
class LoadedStep:
    """A traced step with its plan, its target (`cpu` if none is given), and the FLOPs that its model needs, if
    known."""

    name: str
    settings: Settings
    program: Any
    plan: Any
    target: str
    model_flops: float | None = None

    def report(self) -> Any:
        """Return its report at the requested level."""
        settings = self.settings
        progress({
            "propagated": f"propagating {self.program.name}",
            "partitioned": f"partitioning {self.program.name} on {self.plan.mesh.size} simulated devices",
            "compiled": f"compiling {self.program.name} for {self.target}",
        }[settings.level])  # fmt: skip
        return getattr(self.program, LEVEL_VERBS[settings.level])(self.plan, self.target)

    def cost(self, report: Any) -> Any:
        """Return the cost of a report; None if the machine has no known speed."""
        from shardviz.costs.machine import machine_of
        from shardviz.costs.step_cost import cost_of

        machine = machine_of(self.target, report.mesh.size)
        if machine.chip.kind == "cpu":
            return None
        return cost_of(report, machine, tokens=self.settings.tokens, model_flops=self.model_flops)


LEVEL_VERBS = {"propagated": "propagate", "partitioned": "partition", "compiled": "compile"}

_FLAGS = {
    field: flag
    for field, kind in get_type_hints(Settings, include_extras=True).items()
    for flag in getattr(kind, "__metadata__", ())
}
OPTIONS = tuple(flag.option(field) for field, flag in _FLAGS.items() if not flag.check)
BUDGETS = tuple(flag.option(field) for field, flag in _FLAGS.items() if flag.check)
"""The additional requirements of `check`."""


def step_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the steps of `pyproject.toml` and of the gallery that begin with a text, for shell completion."""
    try:
        own = tuple(project().steps)
    except ShardvizError:
        own = ()
    return [name for name in (*own, *gallery_names()) if name.startswith(incomplete)]


STEP = (click.argument("function", required=False, metavar="[STEP]", shell_complete=step_names), *OPTIONS)
"""The arguments of a verb about one step: `module:function`, a step of `pyproject.toml`, or a name of the gallery."""
STEPS = click.argument("names", nargs=-1, metavar="[STEP]...", shell_complete=step_names)
"""The argument of a verb about several steps."""


def project() -> Project:
    """Return the settings of the nearest `pyproject.toml`, in the working folder or above it. Raises ShardvizError if
    it cannot be read."""
    here = Path.cwd()
    files = (folder / "pyproject.toml" for folder in (here, *here.parents))
    file = next((each for each in files if each.is_file()), None)
    if file is None:
        return Project()
    try:
        tool = tomllib.loads(file.read_text(encoding="utf-8")).get("tool", {})
        table = tool.get("shardviz", {}) if isinstance(tool, dict) else tool
    except (OSError, ValueError, RecursionError) as error:  # a number of thousands of digits, lists without end
        raise ShardvizError(f"{file}: [tool.shardviz] cannot be read: {error}") from error
    if not isinstance(table, dict):
        raise ShardvizError(f"{file}: [tool.shardviz] must be a table, not {excerpt(repr(table))}")
    try:
        loaded = msgspec.convert(table | {"folder": str(file.parent)}, Project)
    except msgspec.ValidationError as error:
        raise ShardvizError(f"{file}: [tool.shardviz] cannot be read: {error}{_given(table)}") from error
    if (limits := bounds()) is None:
        return loaded
    steps = {name: step for name, step in loaded.steps.items() if not limits.steps or name in limits.steps}
    for step in steps.values():
        own = {"STEP": step.function, "--args": step.args, "--in-specs": step.in_specs, "--out-specs": step.out_specs}
        limits.written.update((own | {"--run": step.run}).items())
    return msgspec.structs.replace(loaded, steps=steps)


def _given(table: Mapping[str, Any]) -> str:
    """Return the invalid setting of a step as it is written, and how to write it if a list is expected."""
    for name, step in table.get("steps", {}).items() if isinstance(table.get("steps", {}), dict) else ():
        for key, value in step.items() if isinstance(step, dict) else ():
            try:
                msgspec.convert({key: value}, Settings)
            except msgspec.ValidationError as error:
                items = places(value) if key in _PLACES and isinstance(value, str) else [value]
                lists = "Expected `array`" in str(error)
                write = f"; write {key} = {json.dumps(items, ensure_ascii=False, default=str)}" if lists else ""
                return f"\nsteps.{name}: {key} = {excerpt(repr(value))}{write}"
    return ""


_PLACES = ("static", "donate")


def places(text: str) -> tuple[int | str, ...]:
    """Return arguments by number or name, from text such as `0,opt_state`."""
    return tuple(map(number_or_name, re.split(r"[,\s]+", text.strip())))


def number_or_name(word: str) -> int | str:
    """Return a word as an integer if it is one. Python does not read thousands of digits, so these stay text."""
    return int(word) if word.isdecimal() and len(word) < 19 else word


def importable(of: Project) -> None:
    """Make modules in a project's folders importable."""
    for folder in reversed(of.path):
        place = str((Path(of.folder) / folder).resolve())
        if place not in sys.path:
            sys.path.insert(0, place)


def settings_of(function: str | None, options: Mapping[str, Any], of: Project) -> tuple[str, Settings]:
    """Return the step's name and its settings, from the command line, else from `pyproject.toml`. Raises ShardvizError
    if no step is named and the project does not have exactly one, and for an invalid value."""
    if function is None and options.get("run"):
        function = options.get("program") or "run"
    if function is None and len(of.steps) != 1:
        have = f"there are {', '.join(of.steps)}" if of.steps else "pyproject.toml names none in [tool.shardviz.steps]"
        raise ShardvizError(
            f"STEP: which one? {have}; give a step's name, module:function, or a name of the gallery such as llama-8b"
        )
    name = next(iter(of.steps)) if function is None else function
    base = of.steps.get(name, Settings(function=name))
    overrides = {name: value for name, value in options.items() if value not in (None, ())}
    for names in overrides.keys() & _PLACES:
        overrides[names] = places(overrides[names])
    if "options" in overrides and (limits := bounds()) is not None:
        limits.check_options("--options", overrides["options"])
    if "rules" in overrides:
        overrides["rules"] = dict(map(_rule, overrides["rules"]))
    return name, msgspec.structs.replace(base, **overrides)


def _rule(text: str) -> tuple[str, str]:
    pattern, sign, spec = text.partition("=")
    if not sign or not pattern.strip():
        raise ShardvizError(f"--rule {text!r}: expected PATTERN=SPEC, such as \"*kernel=P(None, 'model')\"")
    return pattern.strip(), spec.strip()


def wanted(names: Sequence[str], options: Mapping[str, Any], of: Project) -> dict[str, Settings]:
    """Return name → settings of the named steps, or of all steps of the project. Raises as `settings_of`."""
    return dict(settings_of(name, options, of) for name in names or tuple(of.steps) or (None,))


def each_program(steps: Mapping[str, Settings], of: Project) -> dict[str, Settings]:
    """Return name → settings for each program on several devices of the steps' scripts; a step alone if it has no
    script, names one program, or has only one. Each has a golden file of its own."""
    return {key: each for name, settings in steps.items() for key, each in _programs(name, settings, of).items()}


def _programs(name: str, settings: Settings, of: Project) -> dict[str, Settings]:
    if not settings.run or settings.program:
        return {name: settings}
    from shardviz.cli.dry import programs_of_run

    importable(of)
    _allow_run(settings)
    programs = programs_of_run(settings.run, settings.target)
    if len(programs) < 2:
        return {name: settings}
    golden, each = Path(settings.golden), {}
    for program in programs:
        end = re.sub(r"[^\w.-]+", "-", program)
        own = str(golden.with_stem(f"{golden.stem}-{end}")) if settings.golden else ""
        each[f"{program} of {name}"] = msgspec.structs.replace(settings, program=program, golden=own)
    return each


def load(function: str | None, **options: Any) -> LoadedStep:
    """Return a traced step by its name (None: the only step of `pyproject.toml`). Raises ShardvizError, which names the
    option, for anything that cannot be found, read or traced."""
    of = project()
    name, settings = settings_of(function, options, of)
    return step_of(name, settings, of)


def step_of(name: str, settings: Settings, of: Project) -> LoadedStep:
    """Return a step of a project, traced. Raises as `load`."""
    import jax

    from shardviz.ask.calls import program_and_plan
    from shardviz.costs.machine import machine_of
    from shardviz.notation import DeviceMesh

    importable(of)
    if settings.target != "attached" and "JAX_PLATFORMS" not in os.environ:
        jax.config.update("jax_platforms", "cpu")  # whoever holds an accelerator here is left alone
    mesh = None if settings.mesh is None else _option("mesh", lambda: DeviceMesh.of(settings.mesh))
    subject = _subject(name, settings, mesh)
    if callable(subject) and not hasattr(subject, "program"):
        specs_mesh = mesh  # on which specs are read
        if mesh is None and settings.target and (settings.in_specs or settings.out_specs):
            specs_mesh = DeviceMesh.of(machine_of(settings.target).default_mesh)
        named = {kind: [a for a in getattr(settings, kind) if isinstance(a, str)] for kind in _PLACES}
        numbered = {kind: [a for a in getattr(settings, kind) if isinstance(a, int)] for kind in _PLACES}
        subject = (subject, arguments_of(settings), {
            "static_argnums": numbered["static"], "static_argnames": named["static"],
            "donate_argnums": numbered["donate"], "donate_argnames": named["donate"],
            "in_specs": specs_of("in-specs", settings.in_specs, specs_mesh),
            "out_specs": specs_of("out-specs", settings.out_specs, specs_mesh),
        })  # fmt: skip
        program, plan = _with_hint(settings, lambda: program_and_plan(subject, mesh, settings.target or None))
        if mesh is None:
            progress(f"on the mesh {plan.mesh}")
    else:
        own = ("args", "static", "donate", "in_specs", "out_specs")
        if any(getattr(settings, name) for name in own):
            flags = ", ".join(f"--{name.replace('_', '-')}" for name in own)
            what = settings.run or settings.function
            raise ShardvizError(f"{flags}: {what} has its own; leave them out, or change specs by --rule")
        program, plan = program_and_plan(subject, mesh)
    if settings.rules:
        rules = {pattern: _spec("rule", text, plan.mesh) for pattern, text in settings.rules.items()}
        plan = _option("rule", lambda: plan.with_rules(rules))
        for row in program.rules_table(plan).rows:
            if not row.caught:
                some = ", ".join([value.name for value in program.arguments][:3])
                raise ShardvizError(f"--rule {row.rule} matches no argument of {name}; its arguments include {some}")
    if settings.options:
        plan = _option("options", lambda: plan.with_options(settings.options))
    tokens = getattr(subject, "tokens", None) if settings.tokens is None else settings.tokens
    return LoadedStep(
        name=name,
        settings=msgspec.structs.replace(settings, tokens=tokens),
        program=program,
        plan=plan,
        target=settings.target or "cpu",
        model_flops=getattr(subject, "model_flops", None),
    )


def _subject(name: str, settings: Settings, mesh: Any) -> Any:
    """Return the step's function, an object that has its own arguments, or a program of a dry run."""
    if not settings.run:
        if settings.program:
            raise ShardvizError(
                f"--program {settings.program}: it is one of a script's programs; give --run COMMAND too"
            )
        subject = resolve("STEP", settings.function, mesh)
        progress(f"tracing {name}")
        return subject
    from shardviz.cli.dry import program_of_run

    _allow_run(settings)
    step = program_of_run(settings.run, settings.target, settings.program)
    return step.program, step.plan


def _allow_run(settings: Settings) -> None:
    if (limits := bounds()) is not None:
        limits.check_name("--run", settings.run)


def _with_hint(settings: Settings, make: Callable[[], Any]) -> Any:
    """Return a program and its plan. If arguments or a mesh are missing, the error names the option that gives them."""
    try:
        return make()
    except ShardvizError as error:
        if isinstance(error, MeshError) and settings.mesh is None:
            raise MeshError(
                f"--mesh: {settings.function} has no mesh; give one, such as --mesh data=8,model=8, or a "
                'topology, such as --target "tpu v5e:4x4"'
            ) from error
        if isinstance(error, TraceError) and not settings.args:
            raise TraceError(f"{error}\nNo arguments were given; give them with --args module:function") from error
        raise


def arguments_of(settings: Settings) -> tuple[Any, ...]:
    """Return the arguments: the items of a tuple or list, or any other object as the only argument."""
    if not settings.args:
        return ()
    value = value_of("--args", settings.args)
    return tuple(value) if isinstance(value, tuple | list) and not hasattr(value, "_fields") else (value,)


def specs_of(option: str, text: str, mesh: Any) -> Any:
    """Return specs from `module:name`, or from text with one spec per argument."""
    if not text:
        return None
    if is_name(text):
        return value_of(f"--{option}", text)
    specs = [_spec(option, each, mesh) for each in text.split(";")]
    return tuple(specs) if option == "in-specs" or len(specs) > 1 else specs[0]


def _spec(option: str, text: str, mesh: Any) -> Any:
    from shardviz.notation.read import sharding

    if mesh is None:
        raise ShardvizError(f"--{option} {text!r}: a spec needs a mesh; give --mesh data=8,model=8")
    return _option(option, lambda: sharding(text.strip(), mesh).to("pspec"))


def _option(option: str, read: Callable[[], Any]) -> Any:
    """Return an option's value; if it cannot be read, the error names the option."""
    try:
        return read()
    except ShardvizError as error:
        raise ShardvizError(f"--{option}: {error}") from error
