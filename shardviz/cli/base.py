"""Reports of another git revision, built by a separate process in a separate worktree.

The process must import the revision's code, so every entry of `sys.path` inside the repository is replaced by the same
folder of the worktree. A module that still comes from the working tree is an error, because both reports would then
describe the same code.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import msgspec

from shardviz.cli.bounds import Bounds, bounds
from shardviz.cli.dry import file_of
from shardviz.cli.frame import State, open_error, persons_faults, progress
from shardviz.cli.naming import NotThere
from shardviz.cli.steps import Project, Settings, project, settings_of, step_of
from shardviz.errors import ShardvizError, TraceError
from shardviz.judge.report import Report


class Broken(str):
    """Why a revision has no report of a step that it has, for example because importing or tracing fails there."""


class _Same(ShardvizError):
    """A step that uses no code of the repository, so another revision cannot change it."""


@dataclass
class Base:
    """Reports of another revision (`main (1a2b3c4)`). A process writes them into a folder, numbered in the order of
    `wanted`."""

    name: str
    process: subprocess.Popen[Any]
    folder: Path
    wanted: list[str] = field(default_factory=list)

    def report(self, step: str) -> Report | str:
        """Return the report of a step, or why the revision has none. Raises ShardvizError if the process ended without
        an answer."""
        code = self.process.wait()
        file = self.folder / f"{self.wanted.index(step)}.json"
        if not file.exists():
            raise ShardvizError(f"--base {self.name}: building its report ended with exit code {code}; see above")
        text = file.read_text(encoding="utf-8")
        if not text.startswith('{"error"'):
            return Report.from_json(text)
        answer = json.loads(text)
        return Broken(answer["error"]) if answer["broken"] else answer["error"]


@contextlib.contextmanager
def base_of(revision: str, steps: Mapping[str, Settings], options: Mapping[str, Any]) -> Iterator[Base]:
    """Build the reports of steps at a branch, tag or commit, while the context is open.

    If the branch has newer commits, the reports are of the commit where the working tree left the branch. A step's
    settings come from the revision's own `pyproject.toml` if it has the step, otherwise from `steps`; `options`
    override both. The worktree and the process are removed at the end. Raises ShardvizError if there is no such
    revision, or no git.
    """
    root = Path(_git("rev-parse", "--show-toplevel", fault="--base needs a git repository")).resolve()
    commit = _commit(revision)
    with tempfile.TemporaryDirectory(prefix="shardviz-base-") as folder:
        tree, answers = Path(folder).resolve() / "tree", Path(folder).resolve() / "answers"
        answers.mkdir()
        try:
            _git("worktree", "add", "--quiet", "--detach", str(tree), commit)
            progress(f"building the reports of {revision} ({commit[:7]}) in a worktree")
            asked = {
                "root": str(root),
                "tree": str(tree),
                "answers": str(answers),
                "steps": msgspec.to_builtins(dict(steps)),
                "configured": list(project().steps),
                "bounds": msgspec.to_builtins(bounds()),
                "given": {name: value for name, value in options.items() if value not in (None, (), [])},
            }
            where = tree / Path.cwd().resolve().relative_to(root)
            command = [sys.executable, "-c", f"from shardviz.cli.base import child; child({json.dumps(asked)!r})"]
            # In a session of its own: Ctrl-C is for this process, which ends that one.
            cwd, environment = where if where.is_dir() else tree, _environment(root, tree)
            # What it prints goes to standard error: standard output is for this process's answer.
            settings: dict[str, Any] = {"cwd": cwd, "env": environment, "stdout": open_error()}
            with subprocess.Popen(command, start_new_session=True, **settings) as process:
                try:
                    yield Base(f"{revision} ({commit[:7]})", process, answers, list(steps))
                finally:
                    if process.poll() is None:
                        process.terminate()
        finally:
            with contextlib.suppress(ShardvizError):
                _git("worktree", "remove", "--force", str(tree))
    _git("worktree", "prune")


def _git(*words: str, fault: str = "") -> str:
    """Return what git prints. Raises ShardvizError if git fails or is not installed."""
    try:
        done = subprocess.run(["git", *words], capture_output=True, text=True, check=False)
    except OSError as error:
        raise ShardvizError(f"--base: git cannot be run: {error.strerror}") from error
    if done.returncode:
        raise ShardvizError(f"{fault or 'git ' + words[0]}: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
    return done.stdout.strip()


def _commit(revision: str) -> str:
    """Return the commit where the working tree left a revision; the revision's own commit if they have no common
    ancestor."""
    for name in (revision, f"origin/{revision}"):
        with contextlib.suppress(ShardvizError):
            commit = _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
            try:
                return _git("merge-base", commit, "HEAD")
            except ShardvizError:  # a shallow clone, say
                if bounds() is None:
                    return commit
    raise ShardvizError(
        f"--base {revision!r}: there is no such revision here; fetch it first, such as `git fetch origin {revision}` "
        "(actions/checkout: fetch-depth: 0)"
    )


def _environment(root: Path, tree: Path) -> dict[str, str]:
    """Return an environment in which the repository's modules are imported from the worktree."""
    ours = [Path(place).resolve() for place in sys.path if place]
    moved = [str(tree / place.relative_to(root)) for place in ours if place.is_relative_to(root)]
    others = [str(place) for place in ours if not place.is_relative_to(root)]
    inside = [str(place) for place in ours if place.is_relative_to(root) and "site-packages" in place.parts]
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*moved, *others, *inside])}


def child(asked: str) -> None:
    """Build reports in a worktree; each is written to its own file, as a report or an error."""
    question = json.loads(asked)
    steps = msgspec.convert(question["steps"], dict[str, Settings])
    root, tree, answers = (Path(question[name]) for name in ("root", "tree", "answers"))
    limits = msgspec.convert(question["bounds"], Bounds | None)
    if limits is not None:
        limits = dataclasses.replace(limits, root=str(tree))
    with click.Context(click.Command("base"), obj=State(quiet=True, bounds=limits)):
        for place, (name, here) in enumerate(steps.items()):
            of = project()
            try:
                with persons_faults():
                    report = _report(name, here, of, options=question["given"], root=root, tree=tree)
                    text = report.to_json(stages=False)
            except ShardvizError as error:
                own = _step(name, here)
                new = NotThere if own not in question["configured"] else (NotThere, TraceError)
                broken = name in of.steps or not isinstance(error, new)
                text = json.dumps({"error": str(error), "broken": broken and not isinstance(error, _Same)})
            (answers / f"{place}.part").write_text(text, encoding="utf-8")
            (answers / f"{place}.part").rename(answers / f"{place}.json")


def _step(name: str, settings: Settings) -> str:
    """Return the name of the step of which this is one program, as `each_program` has named it."""
    return name.removeprefix(f"{settings.program} of ") if settings.program else name


def _report(name: str, here: Settings, of: Project, *, options: Mapping[str, Any], root: Path, tree: Path) -> Report:
    """Return the revision's report of a step, on the target and at the level that are requested now."""
    if (own := _step(name, here)) in of.steps:
        _, settings = settings_of(own, options, of)
        program = settings.program if own == name else here.program
        settings = msgspec.structs.replace(settings, target=here.target, level=here.level, program=program)
    else:
        settings = here
    step = step_of(name, settings, of)
    files = {module: getattr(sys.modules[module], "__file__", None) for module in list(sys.modules)}
    if settings.run:
        files[settings.run] = file_of(settings.run)
    places = {module: Path(file).resolve() for module, file in files.items() if file}
    for module, place in places.items():
        if place.is_relative_to(root) and "site-packages" not in place.parts:
            raise ShardvizError(
                f"--base: {module} is imported from the working tree ({place}) and not from the revision; name the "
                'folder that it is in: [tool.shardviz] path = ["src"]'
            )
    if not any(place.is_relative_to(tree) for place in places.values()):
        raise _Same(
            f"--base: nothing of {settings.run or settings.function} comes from this repository; it is the same before"
        )
    return step.report()
