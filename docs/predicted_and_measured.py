"""Predicts published steps and writes what comes out, beside what was measured.

    python docs/predicted_and_measured.py                   # the files alone, from what is stored
    python docs/predicted_and_measured.py B16 A13           # these rows again
    python docs/predicted_and_measured.py all propagated    # this level of all rows again; all levels take half an hour
    python docs/predicted_and_measured.py measured          # the steps that were measured on one GPU
    python docs/predicted_and_measured.py foretell          # the steps that were not: write down what is predicted

It writes `shardviz/gallery/predicted.json` (row → level → seconds, and by whose compiler), the same into
`shardviz/gallery/measured.json`, `shardviz/costs/accuracy.toml` (how far that is from what was measured, by kind of
chip and level) and `docs/predicted_and_measured.md`. It needs the extras `tpu` and `cuda`.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections import Counter
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

import numpy as np

import shardviz as sv
from shardviz.costs.accuracy import HOSTS, Accuracy
from shardviz.gallery.measured import Measured, Published, accuracies, left_out, measured, published, stored
from shardviz.gallery.steps import STEPS
from shardviz.records.options import options_of
from shardviz.records.report import ASKED

ROOT = Path(__file__).resolve().parents[1]
PREDICTED = ROOT / "shardviz" / "gallery" / "predicted.json"
MEASURED = ROOT / "shardviz" / "gallery" / "measured.json"
ACCURACY = ROOT / "shardviz" / "costs" / "accuracy.toml"
PAGE = Path(__file__).with_suffix(".md")


def predict(row: Published | Measured, level: str) -> float:
    """Seconds of a row at a level."""
    if level == "propagated":
        report = row.program.propagate(row.plan)
    else:
        ask = row.program.partition if level == "partitioned" else row.program.compile
        report = ask(row.plan, row.target)
    return float(f"{sv.timeline(report, row.target).seconds:.4g}")


def compiler_of(kind: str) -> str:
    """The compiler of a kind of chip that is installed here, with its version."""
    package = {"tpu": "libtpu", "gpu": "jax-cuda13-plugin"}[kind]
    return f"{package} {version(package)}"


def compilers(rows: Iterable[Published]) -> list[str]:
    """The page's part on whose the columns are, and on what newer compilers refuse."""
    by = json.loads(PREDICTED.read_text(encoding="utf-8"))["compilers"]
    rows = [row for row in rows if row.key in by]
    lines = []
    for kind in ("tpu", "gpu"):
        (usual, _), *others = Counter(by[row.key] for row in rows if row.kind == kind).most_common()
        apart = [f"{row.key} by {by[row.key]}" for row in rows if by[row.key] in dict(others) and row.kind == kind]
        lines.append(f"- *compiled*, {kind.upper()}: {usual}{'; ' * bool(apart)}{', '.join(apart)}.")
    fuses = "xla_tpu_enable_async_collective_fusion_fuse_all_gather"
    refused = [row.key for row in rows if options_of(row.options).get(fuses) and not row.target.startswith("tpu v5e")]
    return [
        "Whose the columns are: *propagated* and *partitioned* are by the Shardy and the XLA of jaxlib 0.10.2.",
        "",
        *lines,
        "",
        "Newer compilers refuse some recipes: libtpu 0.0.48 and 0.0.50 (JAX 0.12) do not take `fused-all-gather` on a",
        f"chip other than v5e, so that {len(refused)} rows do not compile there as they are: {', '.join(refused)}.",
        f"With `{fuses}=false` behind the recipe's options they do.",
        "Tried with libtpu 0.0.42.1 and 0.0.50.1, which give the same seconds: A1 then takes 3.68 s in place of 3.63,",
        "B6 7.55 s in place of 7.29; B15, on v5e, is taken as it is, 9.42 s.",
        "",
    ]


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


def cells_of_measured(row: Measured) -> list[str]:
    """A row of the table of what was measured on one GPU."""
    levels = [f"{1e3 * row.predicted[level]:.3g}" for level in ASKED]
    ratio = f"{row.predicted['compiled'] / row.seconds:.2f}"
    notes = ["kept aside"] * row.aside + [f"gives {row.gives}"] * bool(row.gives)
    notes += [f"foretold {row.foretold['compiled'] / row.seconds:.2f}"] if row.foretold else []
    notes += [f"led to a fix: {row.fixed}"] * bool(row.fixed)
    return [row.key, f"{1e3 * row.seconds:.4g}", *levels, ratio, "; ".join(notes)]


def of_one_gpu(rows: Iterable[Measured]) -> list[str]:
    """The page's part on what was measured on one GPU."""
    rows, about = list(rows), stored()
    judges = [row for row in rows if not row.gives and not row.fixed]
    foretold = sorted(row.foretold["compiled"] / row.seconds for row in rows if row.foretold)
    errors = {level: [abs(row.predicted[level] / row.seconds - 1) for row in judges] for level in ASKED}
    apart = [error for error, row in zip(errors["compiled"], judges, strict=True) if row.aside]
    middle = lambda errors: f"{100 * np.median(errors):.0f}"
    head = ("step", "measured, ms", *ASKED, "compiled / measured", "notes")
    return [
        "## One H100, measured by us",
        "",
        f"These steps (`shardviz/gallery/steps.py`) ran on one {about['device']}, driver {about['driver']}, with",
        f"JAX {about['jax']}, on {about['date']} (convolutions alone a day later), on random data: the median of ten",
        "spans or more, one step behind the other (`docs/measure_on_a_gpu.py`). What is predicted is of programs",
        "compiled where there is no GPU.",
        "",
        f"Compiled, the median error of {len(judges)} rows is {middle(errors['compiled'])} %, of those kept aside",
        f"{middle(apart)} %; {100 * np.mean(np.array(errors['compiled']) <= 0.2):.0f} % of all are within 20 %.",
        f"At `propagated` it is {middle(errors['propagated'])} %.",
        "Rows kept aside were measured after the method's fixes; but `launch_seconds` and `matrix_share` in",
        "`chips.toml` got their last values after that, each from a row that is no judge.",
        "",
        f"Of {len(foretold)} more steps, which no constant has seen, what is predicted was written down before they",
        f"were measured (*foretold*): a median error of {middle([abs(ratio - 1) for ratio in foretold])} %,",
        f"{sum(abs(ratio - 1) <= 0.2 for ratio in foretold)} within 20 %,",
        f"from {foretold[0]:.2f} to {foretold[-1]:.2f} of what they took.",
        "A GPU's compiler tries kernels on the GPU that it finds, and so makes another program where there is none:",
        "walked, the programs that ran come to 0.94 in place of 1.22 (`decode, 1 sequence`), 0.84 in place of",
        "0.72 (`mlp, narrow, float32`), and to a median error of 5 %.",
        "",
        f"| {' | '.join(head)} |",
        f"|{'---|' * len(head)}",
        *(f"| {' | '.join(cells_of_measured(row))} |" for row in rows),
        "",
        "What ran, kernel by kernel beside what is predicted for it:",
        "",
        "- Products by cuBLAS take 0.94 to 1.05 times as long: a step of them alone is at the chip's limit of 700 W,",
        "  and slower than one product for a moment. What is computed element by element takes 0.95 to 1.05 times.",
        "- cuDNN's convolutions reach less than cuBLAS's products (`convolution_share`), of 64 features half of that:",
        "  they count as 128. Reductions over images (batch norms) take 1.6 times as long as their bytes, updates of",
        "  weights that are turned meanwhile 7 times. The GPU is busy for 98 % of such a step: it waits for no host.",
        "- Small products by Triton take up to 2.4 times as long, and those of float32 whose second factor is turned",
        "  1.4 times (`mlp`, `mlp, narrow, float32`).",
        "- Scatters take 3 to 14 times as long as what they add: atomic additions. Gathers of rows take 1.9 times",
        "  (`messages`).",
        "- `norms` is one fusion of several reductions, and takes 3.4 times as long as its bytes. It moves no",
        "  more than these (1.06 GB by Nsight Compute), but keeps two rows of 8,192 in 185 registers a thread: of its",
        "  blocks one runs at a time on a multiprocessor, and its 65 instructions an element are issued in 46 % of the",
        "  cycles. No HLO text tells registers.",
        "- `propagated` knows no library: cuBLAS fuses nothing with a product but a bias, and XLA turns arrays for it",
        "  (`decode`), so there is more traffic than that of a TPU's fusions.",
        "",
    ]


def page(rows: list[Published], accuracy: Iterable[Accuracy], ran: Iterable[Measured]) -> str:
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
        "`propagated` and `partitioned`, in a schedule of shardviz's own. None of them was run here.",
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
        *compilers(shown),
        f"| {' | '.join(head)} |",
        f"|{'---|' * len(head)}",
        *(f"| {' | '.join(cells_of(row))} |" for row in shown),
        "",
        "## How far off",
        "",
        "From the 10th to the 90th percentile; from the least to the most of fewer than ten rows and of several hosts.",
        "The rows of GPUs on one host include those that were measured on one H100 (below).",
        "",
        "| chip | level | rows | median error | measured / predicted |",
        "|---|---|---|---|---|",
        *(
            f"| {a.kind}{', ' * bool(a.hosts)}{a.hosts} | {a.level} | {len(a.rows)} | {100 * a.error:.0f} % "
            f"| {a.low:.2f} to {a.high:.2f} |"
            for a in accuracy
        ),
        "",
        *of_one_gpu(ran),
        "## Where it misses",
        "",
        "- **Many slices**: all wait for the slowest. `slice_wait` says how much longer each doubling makes a step of",
        "  v5e, from one row (B19 beside B15); of other chips it is not known, and not in their steps (A12).",
        "- **GPUs**: the multiprocessors that NCCL takes from the products are not in it (D1, D3). Of an A100 nobody",
        "  measured what attention and HBM reach (D10). Before it is compiled (`propagated`, `partitioned`)",
        "  elementwise work is taken to be fused as a TPU's compiler does it, on GPUs too much.",
        f"- **Several hosts of GPUs** (D17 to D20 beside D16): {HOSTS}.",
        "  The same step takes 1.53 s on one host and 2.01 s on sixteen; 1.16 s and 1.19 s are predicted. So a step on",
        "  several hosts has a band of its own, from the least to the most of the rows on several hosts.",
        "- **D6**, and so perhaps D7: what ran there is not what is predicted here. The very step takes 74 ms on one",
        "  H100, with nobody to wait for (`gpt-126m` above), and 54 ms are printed: attention ran otherwise.",
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


def foretell() -> None:
    """Writes down what is predicted for the steps that nobody measured yet, to be judged by what they then take."""
    table = stored()
    for key in (key for key in STEPS if key not in measured()):
        row = Measured(
            key=key, target=table["target"], seconds=0.0, least=0.0, most=0.0, steps=0, peak_bytes=0, predicted={}
        )
        table["rows"][key] = {"foretold": {level: predict(row, level) for level in ASKED}}
        print(key, table["rows"][key], flush=True)
        write_measured(measured())


def write_measured(rows: dict[str, Measured]) -> None:
    """Writes what was measured, a row a line, with what is predicted for it."""
    table = stored()
    for key, row in rows.items():
        table["rows"][key]["predicted"] = {**row.predicted}
    lines = (f" {json.dumps(key)}: {json.dumps(row)}" for key, row in table["rows"].items())
    head = json.dumps({name: value for name, value in table.items() if name != "rows"})[:-1]
    MEASURED.write_text(head + ', "rows": {\n' + ",\n".join(lines) + "\n}}\n", encoding="utf-8")


def main(words: list[str]) -> None:
    """Predicts the rows, at the levels, that the words name, and writes all files."""
    table, levels = published(), [word for word in words if word in ASKED]
    keys = list(table) if "all" in words else [word for word in words if word not in ASKED]
    if "foretell" in words:
        foretell()
    stored = json.loads(PREDICTED.read_text(encoding="utf-8"))
    ran = {**measured()}
    for row in ran.values() if "measured" in words else ():
        predicted = {level: predict(row, level) for level in levels or ASKED}
        print(row.key, predicted, f"measured {row.seconds:.4g}", flush=True)
        ran[row.key] = dataclasses.replace(row, predicted={**row.predicted, **predicted})
        write_measured(ran)
    keys = [key for key in keys if key not in ("measured", "foretell")]
    for key in keys:
        stored[key] = stored.get(key, {}) | {level: predict(table[key], level) for level in levels or ASKED}
        if "compiled" in (levels or ASKED):
            stored["compilers"][key] = compiler_of(table[key].kind)
        print(key, stored[key], f"measured {table[key].seconds:.4g}", flush=True)
        ordered = {key: stored[key] for key in ("compilers", *table) if key in stored}
        lines = (f" {json.dumps(key)}: {json.dumps(levels)}" for key, levels in ordered.items())
        PREDICTED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    rows = [dataclasses.replace(row, predicted=stored.get(key, {})) for key, row in table.items()]
    accuracy = accuracies([*rows, *ran.values()])
    ACCURACY.write_text(toml(accuracy), encoding="utf-8")
    PAGE.write_text(page(rows, accuracy, ran.values()), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
