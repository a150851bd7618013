"""Runs programs that others wrote dry, on machines that are not here, and writes what came of it.

    python docs/strangers.py                                   # the page alone, from what is stored
    python docs/strangers.py --clones FOLDER flax-mnist        # this program again; `all`: all that are installed here
    python docs/strangers.py --clones FOLDER --show flax-mnist # what it prints and what came of it; nothing is stored
    python docs/strangers.py --clones FOLDER --compile llama3  # the same, and its programs compiled for their machine

`docs/strangers.toml` names them. It writes `docs/strangers.json` (program → outcome) and `docs/strangers.md`. A program
is a module that is installed, or a file of a clone of its repository, in FOLDER/owner/name. None of them is changed.
`before` fakes data and weights that are not here; `stubs` are modules that no step needs.
"""

from __future__ import annotations

import argparse
import html
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import itertools
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
import tomllib
import types
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shardviz.records.amounts import format_bytes, format_seconds

PAGE = Path(__file__).with_suffix(".md")
STORED = Path(__file__).with_suffix(".json")
LIMIT = 400
"""Seconds that one program may take."""
SHORT = 50e-6
"""Seconds of a compiled program below which it is not judged: most of it is what a call costs."""
COMPILED, COMPILING = 4, 600
"""Of each script so many programs are compiled, those that take longest first, in so many seconds."""


ENVIRONMENT = {"TF_CPP_MIN_LOG_LEVEL": "3", "TPU_SKIP_MDS_QUERY": "1", "TPU_ACCELERATOR_TYPE": "v5p-8"}
ENVIRONMENT |= {"TPU_WORKER_HOSTNAMES": "localhost", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1", "TPU_STDERR_LOG_LEVEL": "3"}


@dataclass(frozen=True, kw_only=True)
class Stranger:
    """A program that somebody else wrote.

    Attributes:
        source: where it is from: a package on PyPI, or `owner/name` on GitHub.
        words: what follows `shardviz run --target TARGET --`; `{here}` is the folder of the package, or `folder` in the
            clone, and `{tmp}` an empty folder, in which it runs.
        target: the machine; a number for so many CPU devices.
        folder: in the clone, where Python finds its modules.
        needs: modules that have to be installed.
        stubs: modules that no step needs.
        before: Python that runs first, to fake data and weights.
        faked: what `before` fakes, and what differs from the program's defaults.
        asks: the program that is asked about; the one that takes longest, where it is empty.
        fails: why it does not work, where it does not.
        studied: whether a rule of `shardviz.foresee` was made from what the compiler does with it, so that it cannot
            judge the rules.
    """

    source: str
    words: str
    target: str = "tpu v5p:2x2x4"
    folder: str = ""
    needs: Sequence[str] = ()
    stubs: Sequence[str] = ()
    before: str = ""
    faked: str = ""
    asks: str = ""
    fails: str = ""
    studied: bool = False


CLU = ("flax", "tensorflow", "clu", "ml_collections", "tensorboard")
FLAX = "python {here}/main.py --workdir={tmp} --config={here}/configs/"
PIPELINE = "module('input_pipeline', "


def strangers() -> dict[str, Stranger]:
    """Every program by its name."""
    table = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    found = {}
    for name, fields in table.items():
        for each in fields.pop("each", [""]):
            words = fields["words"].replace("{each}", each)
            found[name.replace("{each}", each)] = Stranger(**fields | {"words": " ".join(words.split())})
    return found


STRANGERS = strangers()


def installed(stranger: Stranger, clones: Path | None) -> str:
    """The version or the commit that is here. Raises LookupError that says what is missing."""
    for module in stranger.needs:
        try:
            there = importlib.util.find_spec(module) is not None
        except ModuleNotFoundError:
            there = False
        if not there:
            raise LookupError(f"not installed here: {module}")
    if "/" not in stranger.source:
        try:
            return importlib.metadata.version(stranger.source)
        except importlib.metadata.PackageNotFoundError:
            raise LookupError(f"not installed here: {stranger.source}") from None
    if clones is None or not (clones / stranger.source).is_dir():
        raise LookupError(f"no clone of {stranger.source} here")
    command = ["git", "-C", str(clones / stranger.source), "log", "-1", "--format=%h, %cs"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def folder_of(stranger: Stranger, clones: Path | None) -> Path:
    """The folder `{here}`."""
    if "/" in stranger.source:
        return Path(clones or ".") / stranger.source / stranger.folder
    spec = importlib.util.find_spec(stranger.needs[0])
    return Path(spec.origin).parent / stranger.folder  # pyright: ignore


def tried(key: str, clones: Path | None, show: bool, compile: bool = False) -> dict[str, Any]:
    """Run a program in a process of its own; what came of it. With `compile`, its programs are compiled too."""
    stranger = STRANGERS[key]
    version = installed(stranger, clones)
    here = folder_of(stranger, clones)
    with tempfile.TemporaryDirectory() as tmp:
        out = Path(tmp) / "outcome.json"
        (Path(tmp) / "cwd").mkdir()
        words = stranger.words.format(here=here, tmp=f"{tmp}/cwd")
        command = [sys.executable, __file__, "--alone", key, str(out), words, *(["--compile"] if compile else [])]
        paths = [str(Path(__file__).resolve().parents[1]), str(here), os.environ.get("PYTHONPATH", "")]
        environment = os.environ | {
            "HERE": str(here),
            "HOME": f"{tmp}/cwd",
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            **ENVIRONMENT,
        }
        start, pipe = time.perf_counter(), None if show else subprocess.PIPE
        try:
            done = subprocess.run(
                command,
                cwd=f"{tmp}/cwd",
                env=environment,
                stdout=pipe,
                stderr=pipe,
                stdin=subprocess.DEVNULL,
                timeout=LIMIT + COMPILING * compile,
            )
            fault = "" if out.exists() else f"died with exit code {done.returncode}"
        except subprocess.TimeoutExpired:
            fault = f"did not end in {LIMIT} s"
        seconds = round(time.perf_counter() - start, 1)
        outcome = json.loads(out.read_text()) if out.exists() else {}
    private = {str(here): "{here}", tmp: "{tmp}"}
    text = json.dumps(outcome | {"version": version, "all_seconds": seconds} | ({"fault": fault} if fault else {}))
    for path, name in private.items():
        text = text.replace(path, name)
    return json.loads(text)


def alone(key: str, out: Path, words: str, compile: bool) -> None:
    """In a process of its own: run the program dry, ask what there is to ask, and write the outcome."""
    stranger = STRANGERS[key]
    sys.meta_path.insert(0, _Stubs(stranger.stubs))
    import shardviz as sv
    from shardviz.cli.dry import recorded

    is_machine = not stranger.target.isdigit()
    target = stranger.target if is_machine else None
    if stranger.before:
        import jax

        jax.config.update("jax_platforms", "cpu")
        exec(stranger.before, globals())
    start = time.perf_counter()
    run, code = recorded(shlex.split(words), target, None if is_machine else int(stranger.target), 3)
    outcome: dict[str, Any] = {
        "seconds": round(time.perf_counter() - start, 1),
        "code": code,
        "ended": run.record.ended,
    }
    outcome["jax"] = importlib.metadata.version("jax")
    outcome["programs"] = len(run.programs)
    outcome["several"] = sum(p.devices > 1 for p in run.programs)
    outcome["unread"] = {step.name: step.why_not for step in run if step.why_not}
    print(run)
    try:
        step = run[stranger.asks] if stranger.asks else run.longest
        outcome["asked"], outcome["step"], outcome["memory"] = step.name, step.record.seconds, step.record.needs_bytes
        report = step.program.propagate(step.plan, target) if step.target else step.program.propagate(step.plan)
        outcome["findings"] = Counter(finding.rule for finding in report.findings)
        outcome["collectives"] = len(report.collectives)
    except sv.errors.ShardvizError as error:
        outcome["unasked"] = str(error)
    out.write_text(json.dumps(outcome))
    if compile and is_machine:
        outcome["levels"] = []
        for row in levels(run, stranger.target):
            outcome["levels"].append(row)
            out.write_text(json.dumps(outcome))


def levels(run: Any, target: str) -> Iterator[dict[str, Any]]:
    """What each level says of the longest programs of a run: seconds of the step, and the number of collectives."""
    import shardviz as sv

    end, seen = time.monotonic() + COMPILING, set()
    steps = [step for step in run if step.target and step.record.devices > 1 and not step.why_not]
    for step in sorted(steps, key=lambda step: -(step.record.seconds or 0.0)):
        if (name := step.record.name.split("[")[0]) in seen or len(seen) == COMPILED or time.monotonic() > end:
            continue
        try:
            reports = [step.program.propagate(step.plan, target), step.program.partition(step.plan, target)]
            reports.append(step.program.compile(step.plan, target, timeout=end - time.monotonic()))
        except sv.errors.ShardvizError as error:
            yield {"program": step.name, "fault": str(error).splitlines()[0]}
            continue
        seen.add(name)
        yield {
            "program": step.name,
            "seconds": [sv.cost(report, target).step.seconds for report in reports],
            "collectives": [len(report.collectives) for report in reports],
        }


def rows(*shape: int, dtype: str = "int32") -> np.ndarray:
    """Zeros that answer as a tensor of TensorFlow does."""
    from ml_dtypes import bfloat16

    class Rows(np.ndarray):
        _numpy = numpy = lambda self: np.asarray(self)

    return np.zeros(shape, bfloat16 if dtype == "bfloat16" else dtype).view(Rows)


class batches:
    """The same batch, for ever or `count` times, asked as data sets are asked."""

    def __init__(self, batch: Any = None, /, count: int | None = None, sharding: Any = None, **named: Any):
        self.seq_length = 2048
        self.batch, self.count, self.sharding = named if batch is None else batch, count, sharding

    def __iter__(self) -> Iterator[Any]:
        import jax

        batch = self.batch if self.sharding is None else jax.device_put(self.batch, self.sharding)
        return itertools.repeat(batch) if self.count is None else itertools.repeat(batch, self.count)

    def take(self, count: int) -> batches:
        return batches(self.batch, count, self.sharding)

    as_numpy_iterator = __iter__


class tokenizer:
    """An encoder of text: all tokens are 7, which no model here takes for padding."""

    pad_token_id = eos_token_id = bos_token_id = 0

    def __init__(self, size: int = 32_000):
        self.vocab_size = self.GetPieceSize = lambda: size
        self.pad_id = self.bos_id = self.eos_id = lambda: 0

    def tokenize(self, *_: Any, **__: Any) -> np.ndarray:
        return rows(8) + 7

    def encode(self, *_: Any, **__: Any) -> list[int]:
        return [7] * 8

    def decode(self, *_: Any, **__: Any) -> str:
        return ""

    def detokenize(self, *_: Any) -> Any:
        return types.SimpleNamespace(numpy=lambda: b"")

    apply_chat_template = encode


def info(examples: int) -> Any:
    """What TensorFlow Datasets says of a data set of so many examples."""
    split = types.SimpleNamespace(num_examples=examples)
    splits = dict.fromkeys(("train", "validation", "test"), split)
    return types.SimpleNamespace(info=types.SimpleNamespace(splits=splits))


def notebook(name: str) -> None:
    """The code of a notebook of the folder `{here}`, as a script; lines for the shell are left out."""
    there = Path(os.environ["HERE"]) / f"{name}.ipynb"
    cells = json.loads(there.read_text(encoding="utf-8"))["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    lines = [line for line in code.splitlines() if not line.lstrip().startswith(("!", "%"))]
    (Path.home() / f"{name}.py").write_text("\n".join(lines))


def module(name: str, **contents: Any) -> None:
    """A module in the place of one that reads data."""
    sys.modules[name] = types.ModuleType(name)
    vars(sys.modules[name]).update(contents)


def weights(model: Any, folder: str, config: dict[str, Any]) -> None:
    """Weights of jax-llm-examples are initialized in place of being read."""
    import jax

    there = Path.home() / folder
    there.mkdir(parents=True, exist_ok=True)
    (there / "config.json").write_text(json.dumps(config))
    configs, shardings, init = [], model.Weights.shardings, model.Weights.init
    model.Weights.shardings = classmethod(lambda _, cfg, *a: (configs.append(cfg), shardings(cfg, *a))[1])
    model.Weights.init = classmethod(lambda _, key, cfg, *a: init(jax.random.key(0), cfg, *a))
    model.load_pytree = lambda *_: model.Weights.init(0, configs[0])
    model.load_tokenizer = lambda *_: tokenizer()


class _Stubs(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Modules that have every attribute, for those of these names."""

    def __init__(self, names: Sequence[str]):
        self.names = names

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if any(fullname == name or fullname.startswith(name + ".") for name in self.names):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> types.ModuleType:
        module = types.ModuleType(spec.name)
        vars(module).update(__getattr__=_anything, __version__="0")
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def _anything(name: str) -> Any:
    """A class that can be called, subclassed and raised, and has every attribute."""
    if name.startswith("__"):
        raise AttributeError(name)
    here = {"__init__": lambda self, *a, **k: None, "__call__": lambda self, *a, **k: self}
    meta = type("meta", (type,), {"__getattr__": lambda cls, name: _anything(name)})
    return meta(name, (Exception,), here | {"__getattr__": lambda self, name: _anything(name)})


def cells_of(key: str, outcome: dict[str, Any]) -> list[str]:
    """A row of the page's table."""
    stranger = STRANGERS[key]
    asked = outcome.get("asked", "")
    findings = sum(outcome.get("findings", {}).values()) if asked else ""
    step, memory = outcome.get("step"), outcome.get("memory")
    cells = [key, f"{stranger.source} {outcome.get('version', '')}", stranger.target]
    cells += [f"{outcome['programs']}, {outcome['several']}" if "programs" in outcome else "", asked]
    cells += ["" if step is None else format_seconds(step), "" if memory is None else format_bytes(memory)]
    return [*cells, str(findings), str(outcome.get("seconds", "")), failing(stranger, outcome)]


def failing(stranger: Stranger, outcome: dict[str, Any]) -> str:
    """What does not work, and why; empty where all does."""
    said = [stranger.fails, outcome.get("missing", ""), outcome.get("fault", "")]
    said += [outcome.get("unasked", "")] if not stranger.fails else []
    said += [f"ended by {outcome['ended']}"] if outcome.get("code") and not stranger.fails else []
    said += [f"{name} cannot be read: {why}" for name, why in outcome.get("unread", {}).items()]
    return "; ".join(text if len(text) < 200 else text[:200] + " …" for text in said if text)


def compiled(stored: dict[str, Any]) -> list[str]:
    """What the levels say of the programs that were compiled, and how far they are from the compiled one."""
    rows = [(key, row) for key in STRANGERS for row in stored.get(key, {}).get("levels", []) if "seconds" in row]
    rows = [(key, row) for key, row in rows if row["seconds"][-1] > SHORT]
    lines = [
        "## Estimated and compiled",
        "",
        f"A step of the longest programs of the scripts, {COMPILED} of each at most, from {format_seconds(SHORT)} on,",
        "at three levels. `compiled` is libtpu's own schedule, walked as the others are. No rule was made from those",
        "that are *judged*; a rule was made from what libtpu does with those that are *studied*.",
        "",
        "| | programs | propagated | partitioned |",
        "|---|---|---|---|",
    ]
    for studied, name in ((False, "judged"), (True, "studied")):
        if not (of := [row for key, row in rows if STRANGERS[key].studied == studied]):
            continue
        cells = [name, str(len(of))]
        for level in (0, 1):
            off = np.abs([row["seconds"][level] / row["seconds"][-1] - 1 for row in of])
            cells.append(f"{100 * np.median(off):.0f} % in the median, {100 * np.mean(off <= 0.25):.0f} % within 25 %")
        lines.append(f"| {' | '.join(cells)} |")
    head = ("program of", "program", "propagated", "partitioned", "compiled")
    lines += ["", f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for key, row in rows:
        cells = [key + " (studied)" * STRANGERS[key].studied, f"`{row['program']}`"]
        cells += map(format_seconds, row["seconds"])
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, ""]


def page(stored: dict[str, Any]) -> str:
    """The page."""
    head = ("program", "from", "machine", "programs, on several devices", "asked about", "step", "memory of a device")
    head = (*head, "findings", "seconds", "what does not work")
    shown = {key: cells_of(key, stored.get(key, {"missing": "not tried yet"})) for key in STRANGERS}
    works = sum(bool(stored.get(key, {}).get("asked")) and not cells[-1] for key, cells in shown.items())
    jax = sorted({outcome["jax"] for outcome in stored.values() if "jax" in outcome})
    lines = [
        "# Programs of others",
        "",
        "`shardviz run` runs these programs, which other people wrote, dry: unmodified, and without an accelerator.",
        "Where their data, weights or packages are not here, these are faked; *The commands* says which.",
        f"{works} of {len(shown)} give a report of their step; the last column says why the others do not.",
        f"JAX {', '.join(jax)}. `python docs/strangers.py` writes this page.",
        "",
        "- *step* and *memory of a device*: of one call of the program that was *asked about*, estimated at the level",
        "  `propagated`. Nothing was measured. Empty where the machine is CPUs, or the program is on one device.",
        "- *programs, on several devices*: all that were recorded, and how many of them are on several devices. A",
        "  program on one device whose arrays are below 16 MiB really runs, and is not recorded.",
        "- *seconds*: the dry run with the program's imports, on two cores that others used too.",
        "",
        f"| {' | '.join(head)} |",
        f"|{'---|' * len(head)}",
        *(f"| {' | '.join(html.escape(cell).replace('|', '&#124;') for cell in cells)} |" for cells in shown.values()),
        "",
        *compiled(stored),
        "## The commands",
        "",
        "`{here}` is the package's folder, or that of the clone; `{tmp}` an empty folder.",
        "",
    ]
    for key, stranger in STRANGERS.items():
        on = f"--devices {stranger.target}" if stranger.target.isdigit() else f'--target "{stranger.target}"'
        lines += [f"**{key}**" + f" (faked: {stranger.faked})" * bool(stranger.faked), ""]
        lines += ["```sh", f"shardviz run {on} -- {stranger.words}", "```", ""]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*")
    parser.add_argument("--clones", type=Path)
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--alone", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.alone:
        key, out, words = options.alone
        return alone(key, Path(out), words, options.compile)
    clones = options.clones and options.clones.resolve()
    stored = json.loads(STORED.read_text()) if STORED.exists() else {}
    for key in STRANGERS if options.programs == ["all"] else options.programs:
        try:
            outcome = tried(key, clones, options.show, options.compile)
        except LookupError as error:
            print(f"{key}: {error}")
            outcome = {"missing": str(error)}
            if key in stored:
                continue
        print(key, json.dumps(outcome, indent=1))
        if not options.show:
            stored = json.loads(STORED.read_text()) if STORED.exists() else {}
            stored[key] = outcome
            STORED.write_text(json.dumps(stored, indent=1) + "\n")
    if not options.show:
        stored = {key: stored[key] for key in STRANGERS if key in stored}
        STORED.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
        PAGE.write_text(page(stored), encoding="utf-8")


if __name__ == "__main__":
    main()
