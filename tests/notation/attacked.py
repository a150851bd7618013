"""Readers of outside text in a process of their own, with a clock and a limit of memory; see test_hostile.py.

A job is a line of JSON: the reader's name and the text as pieces, each so many times. So is the answer: the seconds
of processor time, what came of it, and the length of its message.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import json
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

SECONDS = 0.2
BYTES = 100 << 20
LONG = ("module", "shape")
"""Readers of text that may be long: they are allowed more for each of its characters, and so no squares of these."""
SECONDS_A_CHARACTER = 4e-6
BYTES_A_CHARACTER = 400
MOST_MESSAGE = 4_000
BREAK_THE_LAW = ("backtracking", "swelling", "recursive")
"""Readers that do, so that the test can fail."""
_HANGS = (
    2.0  # seconds of processor time, at which the process is killed, and ten times as many of the clock on the wall
)

Pieces = list[tuple[str, int]]


class Attacked:
    """The process; it is started when it is first needed, and again after a text that it did not come back from."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def __call__(self, reader: str, pieces: Pieces) -> dict[str, Any]:
        """What came of a text: `seconds`, `outcome` (`answered`, or the error's name), `message`, its length."""
        answer = self._ask(reader, pieces)
        for _ in range(2):
            # Another process had the machine, or memory was first touched: what breaks the law does so in a new process
            if not wrong(answer) or reader in BREAK_THE_LAW:
                break
            self.close()
            answer = self._ask(reader, pieces)
        return answer

    def _ask(self, reader: str, pieces: Pieces) -> dict[str, Any]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-X", "faulthandler", "-m", "tests.notation.attacked"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=Path(__file__).parents[2],
                env=os.environ | {"JAX_PLATFORMS": "cpu", "OPENBLAS_NUM_THREADS": "1"},
            )
            assert self._line() == "ready\n"
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([reader, pieces]) + "\n")
        self._process.stdin.flush()
        line = self._line(10 * _HANGS)
        if not line:
            self.close()
            return {"seconds": _HANGS, "outcome": "hangs or dies", "message": 0}
        return json.loads(line)

    def _line(self, seconds: float = 120.0) -> str:
        assert self._process is not None and self._process.stdout is not None
        watch = threading.Timer(seconds, self._process.kill)
        watch.start()
        try:
            return self._process.stdout.readline()
        finally:
            watch.cancel()

    def close(self) -> None:
        """Ends the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def wrong(answer: dict[str, Any]) -> str:
    """What of an answer breaks the law; empty where nothing does."""
    seconds = answer.get("allowed", SECONDS)
    if answer["outcome"] not in ("answered", "refused"):
        return answer["outcome"]
    if answer["seconds"] > seconds:
        return f"{answer['seconds']:.2f} s"
    return f"a message of {answer['message']} characters" if answer["message"] > MOST_MESSAGE else ""


# The process itself


def readers() -> dict[str, Any]:
    """Every reader of a notation, by its name, and three that break the law."""
    import shardviz as sv
    from shardviz.compiler.shapes import parse_shape
    from shardviz.costs.machine import Machine
    from shardviz.notation import DeviceMesh, hlo, sdy
    from shardviz.notation.groups import axes_of, axes_of_pairs, parse_groups, parse_pairs
    from shardviz.paint.json import json_of
    from shardviz.view.rosetta import read_rosetta
    from tests.view.sample import report

    small = DeviceMesh.of("a=2,b=4")
    large = DeviceMesh.of({"a": 512, "b": 128, "c": 2})
    shown = report()
    return {
        "sharding": lambda text: sv.sharding(text, small),
        "sharding of rank 2": lambda text: sv.sharding(text, small, 2),
        "sharding, large mesh": lambda text: sv.sharding(text, large),
        "sharding, no mesh": lambda text: sv.sharding(text),
        "bytes": lambda text: sv.sharding(text.encode("latin-1", "replace"), small),
        "mesh": lambda text: DeviceMesh.of(text),
        "spec of HLO": lambda text: hlo.read_spec(text, small, 2),
        "tile counts": lambda text: hlo.tile_counts(text, 2),
        "Shardy": lambda text: sdy.read(text, small),
        "groups": lambda text: axes_of(parse_groups(text, 8), small),
        "many groups": lambda text: axes_of(parse_groups(text, large.size), large),
        "pairs": lambda text: axes_of_pairs(parse_pairs(text), small),
        "shape": lambda text: parse_shape(text),
        "module": _module,
        "machine": lambda text: Machine.of(text),
        "pane": lambda text: _painted(read_rosetta(shown, shown.arguments[0].name, text), json_of),
        "backtracking": lambda text: re.fullmatch(r"(a+)+b", text),
        "swelling": lambda text: [0] * (len(text) << 20),
        "recursive": lambda text: _deep(len(text)),
    }


def _module(text: str) -> None:
    """Reads all of a module of HLO that is ever asked for."""
    from shardviz.compiler.collectives import collectives
    from shardviz.compiler.module import parse
    from shardviz.compiler.shardings import values
    from shardviz.compiler.work import count_bytes, count_flops
    from shardviz.errors import ShardvizError
    from shardviz.notation import DeviceMesh

    module = parse(text)
    parts = ("operands", "attributes", "metadata", "op_name", "shape", "called", "parameter_number", "sharding")
    for _, instruction in module:
        for part in parts:
            with contextlib.suppress(ShardvizError):
                getattr(instruction, part)
        with contextlib.suppress(ShardvizError):
            module.source(instruction)
    mesh = DeviceMesh.of("a=2,b=4")
    for read in (
        lambda: collectives(module, mesh),
        lambda: values(module, mesh),
        lambda: count_flops(module),
        lambda: count_bytes(module),
        lambda: module.attributes,
        lambda: module.num_partitions,
    ):
        with contextlib.suppress(ShardvizError):
            read()


def _painted(reading: Any, json_of: Any) -> str:
    return json.dumps([json_of(reading.answer), reading.document and json_of(reading.document), reading.error])


def _deep(count: int) -> int:
    return 1 + _deep(count - 1) if count else 0


_PACE = 0.008


def _pace() -> float:
    """Processor seconds of some plain work, which takes `_PACE` on the machine that `SECONDS` was chosen on."""
    start = time.process_time()
    found: dict[str, int] = {}
    for i in range(80_000):
        found[str(i % 1000)] = len(found) + i
    return time.process_time() - start


def _memory() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _attacked(reader: Any, text: str, more: int, errors: type[Exception], caches: list[Any]) -> dict[str, Any]:
    for cache in caches:
        cache.cache_clear()
    gc.collect()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_memory() + BYTES + BYTES_A_CHARACTER * more, hard))
    allowed = SECONDS + SECONDS_A_CHARACTER * more
    signal.setitimer(signal.ITIMER_PROF, _HANGS + 2 * allowed)
    start, message, outcome = time.process_time(), "", "answered"
    try:
        reader(text)
    except errors as error:
        message, outcome = str(error), "refused"
    except Exception as error:  # noqa: BLE001  whatever a reader raises is what the test asks for
        outcome = type(error).__name__
    seconds = time.process_time() - start
    signal.setitimer(signal.ITIMER_PROF, 0)
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    if seconds > allowed:
        allowed *= max(1.0, _pace() / _PACE)
    return {"seconds": seconds, "allowed": allowed, "outcome": outcome, "message": len(message)}


def main() -> None:
    """Answers jobs until its input ends."""
    from shardviz.errors import ShardvizError

    table = readers()
    for name, reader in table.items():  # what is imported on first use is
        if name not in BREAK_THE_LAW:
            with contextlib.suppress(ShardvizError):
                reader("P('a')")
    caches = [each for each in gc.get_objects() if isinstance(each, functools._lru_cache_wrapper)]
    gc.freeze()
    print("ready", flush=True)
    for line in sys.stdin:
        name, pieces = json.loads(line)
        text = "".join(piece * times for piece, times in pieces)
        more = len(text) if name in LONG else 0
        print(json.dumps(_attacked(table[name], text, more, ShardvizError, caches)), flush=True)


if __name__ == "__main__":
    main()
