"""`shardviz run -- python train.py`: a dry run of an unchanged script in this process, and the programs that it
compiles.

The script's own output goes to standard error. An exception of it is shown as Python shows it; what was recorded until
then is printed and written all the same, and the exit code is the script's.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import importlib.util
import os
import re
import runpy
import shlex
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import psutil

from shardviz import _jax
from shardviz.cli.frame import DONE, FAILED, INTERRUPTED, TERMINATED, Answer, Terminated, progress
from shardviz.cli.lab import DEFAULT_FOLDER, run_lab
from shardviz.cli.naming import NotThere
from shardviz.errors import ShardvizError
from shardviz.judge.processes import ProcessComparison, compare_processes
from shardviz.processes import starting
from shardviz.records.runs import RunRecord
from shardviz.runs.dry import dry_run
from shardviz.runs.run import Run, RunStep


def run(target: str | None, devices: int | None, steps: int, opens: bool, process: str | None) -> Answer:
    """Run a command, the words after the options or after `--`, dry."""
    if target and devices:
        raise ShardvizError("--target says how many devices there are; leave out --devices")
    context = click.get_current_context()
    which, count = _process(process) if process else (None, 0)
    if opens:
        if process:
            raise ShardvizError("--open: a notebook runs as one process; leave out --process")
        if context.params["out"] or context.params["as_json"]:
            raise ShardvizError("--open runs the script in a notebook of JupyterLab; leave out --out and --json")
        notebook = _notebook(context.obj.extra, target, devices, steps)
        return Answer("", code=run_lab(Path(DEFAULT_FOLDER), notebook=notebook))
    if count and which is None:
        compared, failed = _every_process(context.obj.extra, target, devices, steps, count)
        return Answer(compared, code=FAILED if failed or not compared.same else DONE)
    run, code = recorded(context.obj.extra, target, devices, steps, None if which is None else (which, count))
    return Answer(run, code=code)


def _process(text: str) -> tuple[int | None, int]:
    """Return i and n of `i/n`, and None and n of `all/n`."""
    which, _, count = text.partition("/")
    if (
        not count.isdecimal()
        or not int(count)
        or not (which == "all" or (which.isdecimal() and int(which) < int(count)))
    ):
        raise ShardvizError(f"--process {text!r}: expected I/N with I from 0 to N - 1, such as 1/4, or all/N")
    return None if which == "all" else int(which), int(count)


def _every_process(
    words: Sequence[str], target: str | None, devices: int | None, steps: int, count: int
) -> tuple[ProcessComparison, bool]:
    """Run a command dry as each of some processes, a Python process for each. Return the comparison of the runs, and
    whether a script failed; what a failed script printed goes to standard error, once for each error."""
    script_of(words)  # raises
    options = [f"--target={target}"] * bool(target) + [f"--devices={devices}"] * bool(devices) + [f"--steps={steps}"]

    def of(process: int) -> tuple[RunRecord, str | None]:
        out = Path(folder) / f"{process}.json"
        command = [sys.executable, "-m", "shardviz.cli", "run", "-q", f"--process={process}/{count}", *options]
        seed = {"PYTHONHASHSEED": str(process + 1)} | os.environ  # as different as in a job, and the same each time
        done = subprocess.run([*command, f"--out={out}", "--", *words], env=seed, capture_output=True, text=True)
        if not out.exists():
            raise ShardvizError(
                f"--process {process}/{count}: {done.stderr.strip()[-2000:].removeprefix('shardviz run: ')}"
            )
        return RunRecord.from_json(out.read_text()), done.stderr if done.returncode else None

    progress(f"running it dry as each of {count} processes")
    with (
        tempfile.TemporaryDirectory() as folder,
        concurrent.futures.ThreadPoolExecutor(min(count, os.cpu_count() or 1)) as pool,
    ):
        done = list(pool.map(of, range(count)))
    failed: dict[str, str] = {}
    for process, (run, text) in enumerate(done):
        if text is not None and failed.setdefault(run.ended, text) is text:
            print(f"process {process} of {count} printed:\n{text}", file=sys.stderr)
    return compare_processes([run for run, _ in done]), bool(failed)


def _notebook(words: list[str], target: str | None, devices: int | None, steps: int) -> tuple[str, tuple[str, ...]]:
    """Return the name and the cells of a notebook that runs the words dry here, and explores the run."""
    _, name, _ = script_of(words)
    options = [f'--target "{target}"'] * bool(target) + [f"--devices {devices}"] * bool(devices)
    ran = f"%dryrun {' '.join([*options, f'--steps {steps}'])} -- {shlex.join(words)}"
    cells = f"%load_ext shardviz\n%cd -q {os.getcwd()}\n{ran}", "import shardviz as sv\n\nsv.explore(run)"
    return f"run_{Path(name).stem}", cells


def program_of_run(command: str, target: str, program: str) -> RunStep:
    """Return the program of that name, else the longest, that a command dispatches when it is run dry.

    Raises:
        ShardvizError: if there is none, the script has failed before, or no machine says how many devices there are.
    """
    run, code = _once(command, target)
    try:
        step = run[program] if program else run.longest
    except ShardvizError as error:
        failed = f" (the script ended with exit code {code}: {run.ended})" if code else ""
        fault = ShardvizError if code else NotThere
        raise fault(f"--run {command!r}: {error}{failed}") from error
    if step.program is None:
        raise ShardvizError(f"--program {step.name}: {step.why_not}")
    return step


def programs_of_run(command: str, target: str) -> list[str]:
    """Return the names of a command's programs on several devices, without single operations, as `run[name]` takes
    them. Raises as `run_of`, and for a program that shardviz cannot read."""
    of = {name: s for name, s in run_of(command, target).named.items() if s.recorded.devices > 1 and not s.eager}
    for name, step in of.items():
        if step.program is None:
            raise ShardvizError(
                f"--run {command!r}: {name} cannot be checked: {step.why_not}; --program NAME checks another alone"
            )
    return list(of)


def run_of(command: str, target: str) -> Run:
    """Return the dry run of a command, three steps of it. Raises as `program_of_run`."""
    run, code = _once(command, target)
    if code:
        raise ShardvizError(f"--run {command!r}: the script ended with exit code {code}: {run.ended}")
    return run


def _once(command: str, target: str) -> tuple[Run, int]:
    """Return the dry run of a command, three steps of it, and its exit code. This command makes it once."""
    if not target:
        raise ShardvizError('--run: give the machine that the script is for, such as --target "tpu v5e:2x4"')
    runs = click.get_current_context().obj.runs
    if (command, target) not in runs:
        progress(f"running {command} dry")
        runs[command, target] = recorded(_words(command), target, None, 3)
    return runs[command, target]


def file_of(command: str) -> str | None:
    """Return the file that a command runs; None for a module that is in none. Raises as `program_of_run`."""
    kind, name, _ = script_of(_words(command))
    if kind == "script":
        return name
    spec = importlib.util.find_spec(name)
    return spec and spec.origin


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError as error:  # a quote that is not closed
        raise ShardvizError(f"--run {command!r}: {error}; write it as in a shell") from error


def recorded(
    words: Sequence[str], target: str | None, devices: int | None, steps: int, process: tuple[int, int] | None = None
) -> tuple[Run, int]:
    """Return the dry run of a command line, and the script's exit code.

    Raises:
        ShardvizError: as `script_of`, and `dry_run` before the script begins.
    """
    import jax

    kind, name, arguments = script_of(words)
    if not _jax.has_backend():
        jax.config.update("jax_platforms", "cpu")
        if not target:
            jax.config.update("jax_num_cpu_devices", devices or 1)
    command = shlex.join(["python", *(("-m", name) if kind == "module" else (name,)), *arguments])
    run, code, own, threads = None, 0, os.getpid(), set(threading.enumerate())
    with _children_ended(), _as_script(kind, name, arguments):
        try:
            with dry_run(target, steps=steps or None, command=command, process=process) as run:
                if kind == "module":
                    runpy.run_module(name, run_name="__main__", alter_sys=True)
                else:
                    runpy.run_path(name, run_name="__main__")
                for thread in _threads(threads):  # as Python does; a pool's thread waits for work
                    if getattr(thread, "_target", None) is not concurrent.futures.thread._worker:
                        thread.join()
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
            if isinstance(error.code, str):
                print(error.code, file=sys.stderr)
        except KeyboardInterrupt:
            code = INTERRUPTED
        except Terminated:
            code = TERMINATED
        except BaseException as error:  # whatever the script raises
            if run is None:
                raise
            _show(error)
            code = 1
        if os.getpid() != own:  # a fork, which ends where the script does
            with contextlib.suppress(OSError):
                sys.stderr.flush()
            os._exit(code)
    assert run is not None
    context = click.get_current_context(silent=True)  # in a notebook there is none
    if context and run.ended in ("steady", "interrupted") and _threads(threads):
        context.obj.abandons = True
    return run, code


def _threads(others: set[threading.Thread]) -> list[threading.Thread]:
    """Return the threads, without the `others`, that Python waits for at its end."""
    return [thread for thread in threading.enumerate() if thread not in others and not thread.daemon]


def _show(error: BaseException) -> None:
    """Print a script's exception as Python does, without the frames that run the script."""
    if isinstance(error, ShardvizError):
        return print(f"shardviz: {error}", file=sys.stderr)
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename in (__file__, runpy.__file__, "<frozen runpy>"):
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace, chain=trace is not None)


@contextlib.contextmanager
def _children_ended() -> Iterator[None]:
    """End the processes that a script has left behind."""
    before = set(_children())
    yield
    abandoned = [p for child in _children() if child not in before for p in (child, *child.children(recursive=True))]
    for process in abandoned:
        with contextlib.suppress(psutil.Error):
            process.terminate()
    for process in psutil.wait_procs(abandoned, timeout=3)[1]:
        with contextlib.suppress(psutil.Error):
            process.kill()


def _children() -> list[psutil.Process]:
    """Return this process's children, without shardviz's own and Python's resource tracker, which end with it."""
    with contextlib.suppress(psutil.Error):
        return [
            child
            for child in psutil.Process().children()
            if child.pid not in starting.started and "resource_tracker" not in " ".join(child.cmdline())
        ]
    return []


def script_of(words: Sequence[str]) -> tuple[str, str, list[str]]:
    """Return what `python -m package args`, `python train.py args` or `train.py args` runs: `module` or `script`, its
    name, and its arguments.

    Raises:
        ShardvizError: if there are no such words, or no such file.

    >>> script_of(["python", "-u", "-m", "package.train", "steps=3"])
    ('module', 'package.train', ['steps=3'])
    """
    words = list(words)
    if words and re.fullmatch(r"python[\d.]*", Path(words[0]).name):
        words.pop(0)
        while words and words[0].startswith("-") and words[0] not in ("-m", "-c"):
            if words.pop(0) in ("-W", "-X"):
                words = words[1:]
    if words[:1] == ["-m"] and len(words) > 1:
        return "module", words[1], words[2:]
    if not words or words[0].startswith("-"):
        raise ShardvizError(
            "shardviz run needs a script after its options, such as: shardviz run --devices 8 -- python train.py"
        )
    if not Path(words[0]).is_file():
        raise ShardvizError(f"there is no file {words[0]!r}; for a module write: python -m {words[0]}")
    return "script", words[0], words[1:]


@contextlib.contextmanager
def _as_script(kind: str, name: str, arguments: Sequence[str]) -> Iterator[None]:
    """Set the script's `sys.argv` and `sys.path` inside the context."""
    argv, path, folder = sys.argv, list(sys.path), os.getcwd()
    sys.argv = [name, *arguments]
    sys.path.insert(0, os.getcwd() if kind == "module" else str(Path(name).resolve().parent))
    try:
        yield
    finally:
        sys.argv, sys.path[:] = argv, path
        os.chdir(folder)
