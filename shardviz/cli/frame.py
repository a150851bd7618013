"""The frame of every verb: `--json`, `--out`, `--width`, progress on standard error, and an exit code.

A verb is a function that returns an `Answer`. Standard output gets the answer only. Everything that user code prints
meanwhile, also from C and from other processes, goes to standard error.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | a check failed |
| 2 | wrong input, or something is not installed; the message says what to do |
| 3 | the compiler crashed or timed out, or shardviz has a bug |
| 130 | interrupted; nothing is left behind |
| 141 | the reader of standard output closed it; the files of `--out` are complete |
| 143 | ended by SIGTERM; nothing is left behind |
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import importlib
import math
import os
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TextIO

import click
import click.shell_completion
import msgspec

from shardviz.cli.bounds import Bounds
from shardviz.cli.naming import is_persons, raised
from shardviz.errors import ANYTHING, CompileError, CompileRefused, ContractError, ShardvizError
from shardviz.files import write_whole

DONE, FAILED, WRONG, BROKEN, INTERRUPTED, ENOUGH, TERMINATED = 0, 1, 2, 3, 130, 141, 143
_UNWRITTEN = (errno.EPIPE, errno.ENOSPC, errno.EBADF, errno.EIO, errno.EFBIG)
"""The system's errors for a stream that cannot be written."""
PIPED_WIDTH = 100
"""The text's width in columns if there is no terminal."""


@dataclass(frozen=True)
class Answer:
    """The result of a verb.

    Attributes:
        shown: what is printed: text, a `Displayed` or a `Document`.
        record: what `--json` prints, if that is another object: one with `to_json`, or a struct of `schemas`.
        code: the exit code.
        whole: what `--out` writes, if that is more than what is printed.
    """

    shown: Any
    record: Any = None
    code: int = DONE
    whole: Any = None

    def json(self) -> str:
        record = self.shown if self.record is None else self.record
        if hasattr(record, "to_json"):
            return record.to_json(indent=1)
        return msgspec.json.format(msgspec.json.encode(record), indent=1).decode()

    def text(self, width: int) -> str:
        """Return the printed text, at most `width` columns wide."""
        if isinstance(self.shown, str):
            return self.shown
        if hasattr(self.shown, "text"):
            return self.shown.text(width)
        from shardviz.paint.text import text_of

        return text_of(self.shown, width)

    def write(self, path: str) -> None:
        """Write the answer to a file, in the format of the file name's ending."""
        whole = self.shown if self.whole is None else self.whole
        if path.endswith(".json") and not path.endswith(".trace.json"):
            write_whole(path, self.json() + "\n")
        elif isinstance(whole, str):
            write_whole(path, whole + "\n")
        elif hasattr(whole, "save"):
            whole.save(path)
        else:
            from shardviz.paint import file

            write_whole(path, file(whole, path))


class _Verbs(click.Group):
    """The verbs in the order of their definition."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(
    cls=_Verbs,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\b
Examples:
  shardviz report llama-70b --target "tpu v5p:4x4x4"
  shardviz report model:train_step --args model:arguments --mesh data=8,model=8
  shardviz check                       # the steps in pyproject.toml
  shardviz show "bf16[8192,4096]" "P('data', None)" --mesh data=4,model=2

\b
Exit codes: 0 done; 1 a check failed; 2 wrong input, or something is missing
(the message says what to do); 3 the compiler died, or shardviz has a fault;
130 interrupted. Results go to standard output, everything else to standard
error. Every verb prints JSON with --json; `shardviz schema VERB` describes it.""",
)
@click.version_option(package_name="shardviz", prog_name="shardviz", message="%(prog)s %(version)s")
def cli() -> None:
    """Explore how JAX shards a function over a mesh of devices, without any accelerator."""


_OUTPUT = (
    click.option("--json", "as_json", is_flag=True, help="Print JSON; `shardviz schema VERB` describes it."),
    click.option(
        "--out", multiple=True, metavar="FILE", help="Also write the result to FILE: .html, .md, .txt, .json, .svg."
    ),
    click.option("--width", type=click.IntRange(min=20), help="Columns of the text; the terminal's if not given."),
    click.option("-q", "--quiet", is_flag=True, help="No progress on standard error."),
)


def verb(
    name: str,
    module: str,
    *options: Callable[[Any], Any],
    help: str,
    examples: str,
    after: str = "[OPTIONS]",
    takes_command: bool = False,
) -> None:
    """Register a verb with click's `options`, in the order of the help. It calls the function of the same name in a
    module of this package with the options by name; the function returns an `Answer`. `examples` are command lines,
    `after` is what the usage has after the verb. A verb that `takes_command` takes the words that follow its options as
    it takes those after `--`."""

    def run(as_json: bool, out: Sequence[str], width: int | None, quiet: bool, **arguments: Any) -> int:
        context = click.get_current_context()
        context.obj.quiet = quiet
        if command := context.args:
            if command[0].startswith("-") and command[0] != "-m":
                raise click.NoSuchOption(command[0].partition("=")[0], ctx=context)
            context.obj.extra = [*command, *["--"] * bool(context.obj.extra), *context.obj.extra]
        for parameter in context.command.params:
            value = arguments.get(parameter.name or "")
            words = value if isinstance(value, tuple) else (value,)
            if any(isinstance(word, str) and not word.strip() for word in words):
                raise click.BadParameter("it is empty; give a value, or leave it out", context, parameter)
        wide, trouble = width or columns(), None  # of the terminal, which standard output is not meanwhile
        with _set_apart(context.obj) as stream:
            with persons_faults():
                answer: Answer = getattr(importlib.import_module(f"shardviz.cli.{module}"), name)(**arguments)
            text, code = answer.json() if as_json else answer.text(wide), answer.code
            try:
                stream.write(f"{text}\n" * bool(text))
                stream.flush()
            except OSError as error:  # `shardviz report ... | head`: whoever read has enough; the files are written
                trouble = error
                _forget(stream)
            for path in out:
                answer.write(path)
                progress(f"wrote {path}")
        if trouble is None:
            return code
        if isinstance(trouble, BrokenPipeError):
            return ENOUGH
        raise _unwritten(trouble)

    for option in reversed((*options, *_OUTPUT)):
        run = option(run)
    lines = "\n".join(f"  {line}" for line in examples.strip().splitlines())
    settings = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}
    settings = settings if takes_command else {}
    texts = {"help": help, "epilog": f"\b\nExamples:\n{lines}", "options_metavar": after}
    cli.command(name, context_settings=settings, **texts)(run)


@contextlib.contextmanager
def persons_faults() -> Iterator[None]:
    """Turn errors and `sys.exit` of the user's own code into a ShardvizError that names the user's line."""
    try:
        yield
    except (ShardvizError, click.ClickException, click.Abort):
        raise
    except ANYTHING as error:
        if not is_persons(error):
            raise
        raise ShardvizError(raised(error)) from error


@contextlib.contextmanager
def _set_apart(state: State) -> Iterator[TextIO]:
    """Yield standard output for the answer, and send all other output to standard error. If the process is the
    command's own, this stays so until it ends, because threads and `atexit` functions print late."""
    stream, number = sys.stdout, None
    with contextlib.suppress(AttributeError, OSError, ValueError):  # standard output may be anything, in a notebook say
        number = stream.fileno()
    if number == 1:
        stream.flush()
        stream = open(os.dup(1), "w", encoding=stream.encoding, errors="replace")  # noqa: SIM115
        os.dup2(open_error(), 1)
    old, sys.stdout = sys.stdout, sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    try:
        yield stream
    finally:
        if number == 1:
            if not state.own:
                os.dup2(stream.fileno(), 1)
            with contextlib.suppress(OSError):
                stream.close()
        if not state.own:
            sys.stdout = old


def open_error() -> int:
    """Return the file descriptor of standard error, or of `os.devnull` if standard error is closed."""
    try:
        os.fstat(2)
        return 2
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)


class Positive(click.FloatRange):
    """A finite number above 0."""

    def __init__(self) -> None:
        super().__init__(min=0, min_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        return number if math.isfinite(number) else self.fail(f"{value!r} is no finite number", param, ctx)


@dataclass
class State:
    """The state of one run of the command.

    Attributes:
        extra: the words after `--`, or after the options of a verb that takes a command.
        quiet: whether progress is hidden.
        interrupted: whether Ctrl-C was pressed.
        own: whether the process belongs to the command.
        abandons: whether the process ends without waiting for threads that a script started.
        bounds: the limits of a call that a server answers.
        runs: (command, target) → the dry run that the command has made, and its exit code.
    """

    extra: Sequence[str] = ()
    quiet: bool = False
    interrupted: bool = False
    own: bool = False
    abandons: bool = False
    bounds: Bounds | None = None
    runs: dict[tuple[str, str], Any] = field(default_factory=dict)


def columns() -> int:
    """Return the width of the terminal in columns, or `COLUMNS`; 100 if neither is known."""
    return shutil.get_terminal_size((PIPED_WIDTH, 24)).columns or PIPED_WIDTH


def quiet() -> bool:
    """Return whether progress is hidden."""
    return click.get_current_context().obj.quiet


def progress(text: str) -> None:
    """Print progress on standard error."""
    if not quiet():
        _tell(f"shardviz: {text}")


def _tell(text: str) -> None:
    """Print a line on standard error if it can be written."""
    try:
        click.echo(text, err=True)
    except OSError:
        _forget(sys.stderr)


def _unwritten(error: OSError) -> ShardvizError:
    return ShardvizError(f"standard output cannot be written: {error.strerror}; make room, or give --out FILE")


def _forget(stream: TextIO) -> None:
    """Redirect a stream that cannot be written, because Python would try again to write its buffer at exit."""
    with contextlib.suppress(AttributeError, OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def run(argv: Sequence[str] | None = None, *, own: bool | None = None, bounds: Bounds | None = None) -> int:
    """Run the command on the words after `shardviz` (None: this process's own words) and return its exit code. `own` is
    whether the process ends with the command; by default it does if the words are the process's own."""
    words = list(sys.argv[1:] if argv is None else argv)
    cut = words.index("--") if "--" in words else len(words)
    state = State(extra=words[cut + 1 :], own=argv is None if own is None else own, bounds=bounds)
    words = words[:cut]
    code = _code(words, state)
    if state.own and state.abandons:
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(AttributeError, OSError, ValueError):
                stream.flush()
        os._exit(code)
    return code


def _code(words: list[str], state: State) -> int:
    """Run the command on the words before `--`; return its exit code."""
    name = " ".join(["shardviz", *words[:1]]) if words and words[0] in cli.commands else "shardviz"
    if sys.stdout is None:
        _tell(f"{name}: standard output is closed; send it to a file, or to {os.devnull}")
        return WRONG
    with contextlib.suppress(AttributeError, ValueError):  # standard output may be anything, in a notebook say
        sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        with _signals(state):
            if shell := os.environ.get("_SHARDVIZ_COMPLETE"):
                sys.exit(click.shell_completion.shell_complete(cli, {}, "shardviz", "_SHARDVIZ_COMPLETE", shell))
            if state.extra and words[:1] not in (["lab"], ["run"]):
                raise click.UsageError(
                    "only `shardviz run`, for a script, and `shardviz lab`, for JupyterLab, take words after `--`, not "
                    + " ".join(state.extra)
                )
            with cli.make_context("shardviz", words or ["--help"], obj=state) as context:
                code = cli.invoke(context)
            sys.stdout.flush()
            if state.interrupted:  # and what is known by then is told
                raise click.Abort
            return code or DONE
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as error:
        try:
            error.show()
        except OSError:
            _forget(sys.stderr)
        return WRONG
    except (click.Abort, KeyboardInterrupt):
        _tell(f"{name}: interrupted")
        return INTERRUPTED
    except Terminated:
        return TERMINATED
    except ShardvizError as error:
        if "SHARDVIZ_TRACEBACK" in os.environ:
            traceback.print_exc()
        _tell(f"{name}: {error}")
        if isinstance(error, ContractError):
            return FAILED
        return BROKEN if isinstance(error, CompileError) and not isinstance(error, CompileRefused) else WRONG
    except Exception as error:  # noqa: BLE001  # whatever it is, it is no failed check
        if isinstance(error, OSError) and error.errno in _UNWRITTEN and error.filename is None:
            _forget(sys.stdout)
            if isinstance(error, BrokenPipeError):
                return ENOUGH
            _tell(f"{name}: {_unwritten(error)}")
            return WRONG
        _tell(traceback.format_exc())
        _tell(f"{name}: this is a fault of shardviz; please report it with the lines above")
        return BROKEN


class Terminated(BaseException):
    """The process got SIGTERM. It is no SystemExit, because user code may raise that."""


@contextlib.contextmanager
def _signals(state: State) -> Iterator[None]:
    """Record a Ctrl-C, which some verbs take as "enough", and turn SIGTERM into an exception, so that cleanup runs."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupted(*_: Any) -> None:
        state.interrupted = True
        raise KeyboardInterrupt

    def again() -> None:
        if sys.unraisablehook is dropped:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    def dropped(unraisable: Any) -> None:
        if unraisable.exc_type is KeyboardInterrupt:  # dropped where Python collects garbage and JAX has a callback
            threading.Timer(0.05, again).start()
        else:
            hook(unraisable)

    def ended(*_: Any) -> None:
        raise Terminated

    hook, sys.unraisablehook = sys.unraisablehook, dropped
    old = {signal.SIGINT: signal.getsignal(signal.SIGINT), signal.SIGTERM: signal.getsignal(signal.SIGTERM)}
    if old[signal.SIGINT] is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, interrupted)
    signal.signal(signal.SIGTERM, ended)
    try:
        yield
    finally:
        sys.unraisablehook = hook
        for number, handler in old.items():
            signal.signal(number, handler)
