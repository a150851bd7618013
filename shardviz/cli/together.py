"""The verb `together`: programs that share arrays, their memory, and the search for their plans."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from shardviz.cli.bounds import bounds
from shardviz.cli.frame import Answer, progress
from shardviz.cli.steps import load
from shardviz.errors import ShardvizError
from shardviz.runs.together import Together
from shardviz.runs.together import together as together_of


def together(
    programs: Sequence[str],
    *,
    run: str | None,
    target: str | None,
    shared: Sequence[str],
    calls: Sequence[str],
    memory: bool,
    cache: Sequence[str],
    dimension: int,
    level: str | None,
    search: bool,
    seconds: float,
) -> Answer:
    counts = {name: _number("--calls", name, text) for name, text in _pairs("--calls", calls)}
    if memory and search:
        raise ShardvizError("--memory and --search: two answers; ask for one")
    if run:
        if programs or shared:
            raise ShardvizError("--run: the programs and the shared arrays are the script's; leave out the others")
        together = _of_run(run, target)
    else:
        together = _of_steps(programs, target, _shared(shared), counts)
    if memory or cache:
        progress("reading the memory of each program")
        return Answer(together.memory(cache, dimension, level=level or "propagated"))
    if search:
        progress(f"searching for {seconds:g} s")
        result = together.search(counts if run else None, seconds=seconds, level=level or "compiled")
        return Answer(result, record=result.record)
    return Answer(together, record=together.record)


def _of_steps(programs: Sequence[str], target: str | None, shared: Any, counts: dict[str, float]) -> Together:
    subjects: dict[str, Any] = {}
    for name, step in _pairs("NAME=STEP", programs):
        loaded = load(step, target=target)
        subjects[name] = loaded.program, loaded.plan
        target = target or (None if loaded.target == "cpu" else loaded.target)
    return together_of(subjects, shared=shared, target=target, calls=counts)


def _of_run(run: str, target: str | None) -> Together:
    from shardviz.cli.dry import run_of

    if (limits := bounds()) is not None:
        limits.check_name("--run", run)
    return run_of(run, target or "").together()


def _pairs(option: str, texts: Sequence[str]) -> list[tuple[str, str]]:
    pairs = []
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name or not value:
            raise ShardvizError(f"{option} {text!r}: expected NAME=VALUE, such as train=1")
        pairs.append((name.strip(), value.strip()))
    if len(dict(pairs)) < len(pairs):
        raise ShardvizError(f"{option}: {' '.join(texts)} has a name twice")
    return pairs


def _number(option: str, name: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ShardvizError(f"{option} {name}={text}: expected a number")
    return number


def _shared(texts: Sequence[str]) -> Any:
    """Return a list of paths that all programs have, or path in the first program → path in the second."""
    if not texts:
        return None
    pairs = [text.rpartition("=") for text in texts]
    if not any(sign for _, sign, _ in pairs):
        return list(texts)
    return {one.strip() or other.strip(): other.strip() for one, _, other in pairs}
