"""Predicts published steps and writes what comes out, beside what was measured.

    python docs/predicted_and_measured.py                   # the files alone, from what is stored
    python docs/predicted_and_measured.py B16 A13           # these rows again
    python docs/predicted_and_measured.py all propagated    # this level of all rows again; all levels take half an hour

It writes `shardviz/gallery/predicted.json` (row → level → seconds), `shardviz/costs/accuracy.toml` (how far that is
from what was measured, by kind of chip and level) and `docs/predicted_and_measured.md`. It needs the extras `tpu` and
`cuda`.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np

import shardviz as sv
from shardviz.costs.accuracy import Accuracy
from shardviz.gallery.published import Published, accuracies, left_out, published
from shardviz.records.report import ASKED

ROOT = Path(__file__).resolve().parents[1]
PREDICTED = ROOT / "shardviz" / "gallery" / "predicted.json"
ACCURACY = ROOT / "shardviz" / "costs" / "accuracy.toml"
PAGE = Path(__file__).with_suffix(".md")


def predict(row: Published, level: str) -> float:
    """Seconds of a row at a level."""
    if level == "propagated":
        report = row.program.propagate(row.plan)
    else:
        ask = row.program.partition if level == "partitioned" else row.program.compile
        report = ask(row.plan, row.target)
    return float(f"{sv.timeline(report, row.target).seconds:.4g}")


def toml(accuracy: Iterable[Accuracy]) -> str:
    """The table of accuracies as TOML."""
    lines = ["# How far published steps were from predicted ones: measured / predicted, by kind of chip and level."]
    lines += ["# Written by docs/predicted_and_measured.py; shardviz.costs.accuracy.Accuracy says what each is."]
    for each in accuracy:
        fields = dataclasses.asdict(each) | {"rows": list(each.rows)}
        lines += ["", "[[accuracy]]", *(f"{name} = {json.dumps(value)}" for name, value in fields.items())]
    return "\n".join(lines) + "\n"


def cells_of(row: Published) -> list[str]:
    """A row of the page's table."""
    levels = [f"{row.predicted[level]:.3g}" if level in row.predicted else "" for level in ASKED]
    ratio = f"{row.predicted['compiled'] / row.seconds:.2f}" if "compiled" in row.predicted else ""
    notes = ["kept aside"] * row.aside + [f"gives {row.gives}"] * bool(row.gives) + [row.differs] * bool(row.differs)
    mesh = str(row.settings["mesh"]).replace(",", " ")
    return [row.key, row.model, row.target, mesh, f"{row.seconds:.4g}", *levels, ratio, "; ".join(notes)]


def page(rows: list[Published], accuracy: Iterable[Accuracy]) -> str:
    """The page."""
    shown = [row for row in rows if row.predicted]
    judges = [row for row in shown if "compiled" in row.predicted and not row.gives]
    errors = np.array([abs(row.predicted["compiled"] / row.seconds - 1) for row in judges])
    head = ("row", "model", "target", "mesh", "measured, s", *ASKED, "compiled / measured", "notes")
    lines = [
        "# Predicted and measured",
        "",
        "Step times that others printed, and what `sv.timeline` says of the same program: compiled by the target's own",
        "compiler with the recipe's options and walked in that compiler's schedule; before that, at the levels",
        "`propagated` and `partitioned`, in a schedule of shardviz's own. Nothing here was run.",
        "",
        f"Compiled, the median error of {len(judges)} rows is {100 * np.median(errors):.0f} %;",
        f"{100 * np.mean(errors <= 0.2):.0f} % of them are within 20 %,",
        f"{100 * np.mean(errors <= 0.3):.0f} % within 30 %.",
        "",
        "What a large product reaches of a TPU's rate (`matrix_share` in `chips.toml`) is on no data sheet, nor how",
        "long many slices wait for the slowest (`slice_wait`): for a chip each comes from one row, which then is no",
        "judge. Rows kept aside came after its first trials.",
        "The rows are in `shardviz/gallery/published.toml`, with their sources and compiler options; each opens with",
        "`sv.gallery.published()[key]`. `python docs/predicted_and_measured.py` writes this page.",
        "",
        f"| {' | '.join(head)} |",
        f"|{'---|' * len(head)}",
        *(f"| {' | '.join(cells_of(row))} |" for row in shown),
        "",
        "## How far off",
        "",
        "| chip | level | rows | median error | measured / predicted |",
        "|---|---|---|---|---|",
        *(
            f"| {a.kind} | {a.level} | {len(a.rows)} | {100 * a.error:.0f} % | {a.low:.2f} to {a.high:.2f} |"
            for a in accuracy
        ),
        "",
        "## Where it misses",
        "",
        "- **Many slices**: all wait for the slowest. `slice_wait` says how much longer each doubling makes a step of",
        "  v5e, from one row (B19 beside B15); of other chips it is not known, and not in their steps (A12).",
        "- **GPUs**: steps by cuDNN's attention (D1, D3, D10) take a quarter more than predicted. Launches, and the",
        "  multiprocessors that NCCL takes from the products, are not in it. Before it is compiled (`propagated`,",
        "  `partitioned`) elementwise work is taken to be fused as a TPU's compiler does it, on GPUs too much.",
        "- **Kernels on v6e** (A1 to A6, A14): steps with much attention take 4 % less than predicted; perhaps the",
        "  splash kernel fills more of the matrix unit than the half that heads of 128 features are counted to.",
        "- **tpu7x** (C1, C5): no row gives it a matrix share, so its products count at the data sheet's rate.",
        "",
        "## Left out",
        "",
        *(f"- {key}: {why}." for key, why in left_out().items()),
        *(f"- {row.key}, {row.model}: not compiled yet." for row in rows if not row.predicted),
    ]
    return "\n".join(lines) + "\n"


def main(words: list[str]) -> None:
    """Predicts the rows, at the levels, that the words name, and writes all files."""
    table, levels = published(), [word for word in words if word in ASKED]
    keys = list(table) if "all" in words else [word for word in words if word not in ASKED]
    stored = json.loads(PREDICTED.read_text(encoding="utf-8"))
    for key in keys:
        stored[key] = stored.get(key, {}) | {level: predict(table[key], level) for level in levels or ASKED}
        print(key, stored[key], f"measured {table[key].seconds:.4g}", flush=True)
        ordered = {key: stored[key] for key in table if key in stored}
        lines = (f" {json.dumps(key)}: {json.dumps(levels)}" for key, levels in ordered.items())
        PREDICTED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    rows = [dataclasses.replace(row, predicted=stored.get(key, {})) for key, row in table.items()]
    accuracy = accuracies(rows)
    ACCURACY.write_text(toml(accuracy), encoding="utf-8")
    PAGE.write_text(page(rows, accuracy), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
