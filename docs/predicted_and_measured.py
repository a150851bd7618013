"""Predicts every published step and writes what comes out, beside what was measured.

    python docs/predicted_and_measured.py            # the tables alone, from what is stored
    python docs/predicted_and_measured.py B16 A13    # these rows again; `all` for all of them, half an hour

It writes `shardviz/gallery/predicted.json` (row → level → seconds), `shardviz/costs/accuracy.toml` (how far that is from
what was measured, by kind of chip and level) and `docs/predicted_and_measured.md`. It needs the extras `tpu` and `cuda`.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterable
from pathlib import Path

import shardviz as sv
from shardviz.gallery.published import LEVELS, Accuracy, Published, accuracies, published

ROOT = Path(__file__).resolve().parents[1]
PREDICTED = ROOT / "shardviz" / "gallery" / "predicted.json"
ACCURACY = ROOT / "shardviz" / "costs" / "accuracy.toml"
PAGE = Path(__file__).with_suffix(".md")


def predict(row: Published) -> dict[str, float]:
    """Level → seconds of a row."""
    reports = (
        row.program.propagate(row.plan),
        row.program.partition(row.plan, row.target),
        row.program.compile(row.plan, row.target, options=row.options),
    )
    return {report.level: float(f"{sv.timeline(report, row.target).seconds:.4g}") for report in reports}


def toml(accuracy: Iterable[Accuracy]) -> str:
    """The table of accuracies as TOML."""
    lines = ["# How far published steps were from predicted ones: measured / predicted, by kind of chip and level."]
    lines += ["# Written by docs/predicted_and_measured.py; shardviz.gallery.published.Accuracy says what each is."]
    for each in accuracy:
        fields = dataclasses.asdict(each) | {"rows": list(each.rows)}
        lines += ["", "[[accuracy]]", *(f"{name} = {json.dumps(value)}" for name, value in fields.items())]
    return "\n".join(lines) + "\n"


def page(rows: Iterable[Published], accuracy: Iterable[Accuracy]) -> str:
    """The page."""
    lines = [
        "# Predicted and measured",
        "",
        "Step times that others printed, and what `sv.timeline` says of the same program: compiled by the target's own",
        "compiler with the recipe's options, walked in that compiler's schedule. Nothing in the table was run here.",
        "`aside`: the row was not looked at while the method was made. Written by `predicted_and_measured.py`; the rows",
        "with their sources are in `shardviz/gallery/published.toml`, each opens with `sv.gallery.published()[key]`.",
        "",
        "| row | model | target | mesh | measured, s | propagated | partitioned | compiled | compiled / measured | differs |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        if not row.predicted:
            continue
        cells = [f"{row.predicted[level]:.3g}" if level in row.predicted else "" for level in LEVELS]
        ratio = f"{row.predicted['compiled'] / row.seconds:.2f}" if "compiled" in row.predicted else ""
        key = f"{row.key} (aside)" if row.aside else row.key
        cells = [
            key,
            row.model,
            row.target,
            str(row.settings["mesh"]),
            f"{row.seconds:.4g}",
            *cells,
            ratio,
            row.differs,
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        "## How far off",
        "",
        "| chip | level | rows | median error | measured / predicted |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {a.kind} | {a.level} | {len(a.rows)} | {a.error:.0%} | {a.low:.2f} to {a.high:.2f}, median {a.median:.2f} |"
        for a in accuracy
    ]
    return "\n".join(lines) + "\n"


def main(keys: list[str]) -> None:
    """Predicts the rows of these keys, and writes all files."""
    table = published()
    stored = json.loads(PREDICTED.read_text(encoding="utf-8"))
    for key in table if keys == ["all"] else keys:
        stored[key] = predict(table[key])
        print(key, stored[key], f"measured {table[key].seconds:.4g}", flush=True)
        PREDICTED.write_text(
            json.dumps({k: stored[k] for k in table if k in stored}, indent=1) + "\n", encoding="utf-8"
        )
    rows = [dataclasses.replace(row, predicted=stored.get(key, {})) for key, row in table.items()]
    accuracy = accuracies(rows)
    ACCURACY.write_text(toml(accuracy), encoding="utf-8")
    PAGE.write_text(page(rows, accuracy), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
