"""How a search that is told nothing compares with each gallery program's own plan, on v5p slices.

    python -m tests.benchmarks.own_plans --seconds 15 --devices 16 32 128 --programs moe pipeline

A line a program: the best plan's rank (seconds of a step, and more where it does not fit) over that of the program's
own, and after how many seconds it came within 2 % of it. It is a matter of minutes, so that CI does not run it.
"""

from __future__ import annotations

import argparse
import os
import time

import shardviz as sv
from tests.benchmarks.test_search import PROGRAMS

SLICES = {
    8: ("2x2x2", 4, 2),
    16: ("2x2x4", 4, 4),
    32: ("2x4x4", 8, 4),
    64: ("4x4x4", 8, 8),
    128: ("4x4x8", 16, 8),
    256: ("4x8x8", 32, 8),
    512: ("8x8x8", 64, 8),
}


def compared(name: str, devices: int, seconds: float) -> str:
    """A line of what a search finds, and when."""
    topology, *sizes = SLICES[devices]
    example = PROGRAMS[name](devices, *sizes)
    hunt = sv.search(example.program, f"tpu v5p:{topology}", seconds=seconds, level="propagated", stream=True)
    own, reached = hunt.scorer(example.plan), None
    hunt.begun = time.monotonic()
    for _ in hunt:
        if reached is None and hunt.best is not None and hunt.best.score.rank <= 1.02 * own.rank:
            reached = hunt.elapsed
    if hunt.best is None:
        return f"{name:9s} {devices:4d}: nothing found; {hunt.fallen[:1]}"
    share = hunt.best.score.rank / own.rank
    when = "not reached" if reached is None else f"reached after {reached:.1f} s"
    said = f"{len(hunt.tried)} tried in {hunt.elapsed:.1f} s, load {os.getloadavg()[0]:.1f}"
    return f"{name:9s} {devices:4d}: {share:.3f} x, {when}; {said}; {hunt.best.text}"


def main() -> None:
    """Compares what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--devices", type=int, nargs="+", choices=SLICES, default=[16, 32, 128])
    parser.add_argument("--programs", nargs="+", choices=PROGRAMS, default=list(PROGRAMS))
    given = parser.parse_args()
    for devices in given.devices:
        for name in given.programs:
            print(compared(name, devices, given.seconds), flush=True)


if __name__ == "__main__":
    main()
