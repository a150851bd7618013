"""The lessons' exercises and puzzles: right answers are those of JAX and XLA alone, wrong ones are recognised, and no
plan of the space that the lesson names beats par.

Of seconds JAX and XLA say nothing. What decides there is theirs all the same: the bytes of a collective over the
link's published speed (lesson 3), bytes that are sent (4, 10), FLOPs of products (3, 7), bytes that are read (9).
"""

from __future__ import annotations

import ast
import functools
import itertools
import json
import linecache
import math
import re
from collections import Counter
from copy import copy
from pathlib import Path

import jax
import pytest
from jax.sharding import AbstractMesh, NamedSharding
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.notation import Spec
from tests.ask import counting
from tests.notebooks import lessons
from tests.truth import filled_once

pytestmark = pytest.mark.long  # each compiles some dozens of small plans

LINK = 45e9
"""Bytes a second, one way, of a TPU v5e's link: How to Scale Your Model, part 3."""


@pytest.fixture(scope="module")
def told(tmp_path_factory) -> dict:
    """What JAX and XLA say; see `lessons.py`."""
    return json.loads((filled_once(tmp_path_factory, Path(lessons.__file__)) / "told.json").read_text())


@pytest.fixture(scope="module")
def spec_of(told):
    """Name of a question → the spec that XLA gives its only result."""

    def spec(name: str) -> P:
        (line,) = told[name]["specs"]
        return P(*ast.literal_eval(line))

    return spec


@pytest.fixture(scope="module")
def xla(told):
    """Name of a question → (kind, axes) → operand bytes on one device in a step, as XLA's text has it."""

    @functools.cache
    def answer(name: str) -> dict[tuple[str, str], float]:
        layers = {"ring": 8, "data=16": 4, "model=8": 4}
        if name in layers:
            sizes, trips = lessons.TWO_MESHES.get(name, {"data": 2, "seq": 8}), layers[name]
        else:
            *_, sizes, _, _, trips = lessons.questions(P)[name]
        sums: Counter = Counter()
        for (kind, axes, _, operand, _, runs), many in counting.count(told[name]["program"], sizes, trips).items():
            sums[kind, ", ".join(sorted(axes))] += operand * runs * many
        most = sum(sums.values())
        return {key: size for key, size in sums.items() if size > 0.01 * most}

    return answer


def cells(name: str) -> list[dict]:
    return json.loads((lessons.NOTEBOOKS / f"{name}.ipynb").read_text())["cells"]


@functools.cache
def lesson(name: str):
    """What a lesson defines: its cells tagged `lesson`, run in order, without forms."""
    space: dict = {}
    for number, cell in enumerate(cells(name)):
        if "lesson" in cell["metadata"].get("tags", ()):
            lines = [line for line in cell["source"] if ".widget()" not in line and line[0] != "%"]
            file = f"<{name}, cell {number}>"
            linecache.cache[file] = sum(map(len, lines)), None, lines, file  # as in a notebook, lines are read again
            exec(compile("".join(lines), file, "exec"), space)
    return space


def sent_bytes(answer: dict[tuple[str, str], float], sizes: dict[str, int]) -> float:
    """What a device sends: How to Scale Your Model, part 3."""
    total = 0.0
    for (kind, axes), operand in answer.items():
        n = math.prod(sizes[axis] for axis in axes.split(", "))
        share = {"all-gather": n - 1, "all-reduce": 2 * (n - 1) / n, "all-to-all": (n - 1) / n, "collective-permute": 1}
        total += operand * share[kind]
    return total


def said(answer: dict[tuple[str, str], float]) -> list[tuple[str, tuple[str, ...], float]]:
    return [(kind, tuple(axes.split(", ")), size) for (kind, axes), size in answer.items()]


def shard_bytes(shape, dtype_bytes, sizes, spec):
    mesh = AbstractMesh(tuple(sizes.values()), tuple(sizes))
    return dtype_bytes * math.prod(NamedSharding(mesh, spec).shard_shape(shape))


def held_bytes(arrays, sizes, specs):
    """What one device holds of a tree of arrays."""
    leaves = jax.tree.leaves(arrays), jax.tree.leaves(specs, is_leaf=lambda spec: isinstance(spec, P))
    return sum(shard_bytes(a.shape, a.dtype.itemsize, sizes, spec) for a, spec in zip(*leaves, strict=True))


def is_recognised(exercise, wrong, words: str):
    """A wrong answer does not get all points, and is told so in the lesson's words."""
    result = exercise.answer(wrong)
    assert result.score < 1 and any(words in idea for idea in result.ideas), (result.ideas, result.text())


def is_right(exercise, answer):
    """The answer gets all points. Each wrong idea of the lesson does not, and is recognised; its hint does not state
    what is right."""
    result = exercise.answer(answer)
    assert result.score == 1 and not result.ideas, result.text()
    assert exercise.ideas
    for words, wrong in exercise.ideas.items():
        result = exercise.graded(wrong)  # as it was read
        assert result.score < 1 and words in result.ideas, (words, result.text())
        assert not [part for part in parts_of(exercise) if part not in str(wrong) and part in words]


def parts_of(exercise) -> set[str]:
    """What states the right answer of a question, or a part of it."""
    rows = [row for row in copy(exercise).reveal(give_up=True).rows if row.right and row.of]
    if exercise.ask == "collectives":
        kinds = {row.what.split(" over ")[0] for row in rows}
        return kinds | ({"gathers"} if "all-gather" in kinds else set())
    return {row.right.split(":")[0] if exercise.ask == "cheaper" else row.right for row in rows}


@pytest.mark.parametrize("path", sorted(lessons.NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_no_table_above_a_question_has_its_answer(path):
    """A row gives an answer away if it has the collective, and its axes or the title. The rows of two plans do
    if their times differ."""
    for name, exercise in lesson(path.stem).items():
        if getattr(exercise, "ask", "") not in ("collectives", "seconds", "cheaper"):
            continue
        labels = lambda text: {text, text.removeprefix("way "), text.removesuffix(" stages")}
        right = [row for row in copy(exercise).reveal(give_up=True).rows if row.right]
        rows = [*rows_above(path.stem, f"{name} = sv.lessons.exercise(")]
        times = [re.findall(r"[\d.]+ (?:s|ms|µs)\b", " ".join(row)) for row in rows]
        timed = [(row, found) for row, found in zip(rows, times, strict=True) if found]
        if exercise.ask == "cheaper":
            of_plans = [[found for row, found in timed if row[0] in labels(plan)] for plan in exercise.plans]
            assert of_plans[0] == of_plans[1], (name, of_plans)
        for row in rows:
            for kind, _, axes in (graded.what.partition(" over ") for graded in right):
                assert not (kind in row and {axes, *labels(exercise.title)} & {*row}), (name, row)
        if exercise.ask == "seconds":
            assert not [row for row, _ in timed if row[0] in labels(exercise.title)], name


def rows_above(name: str, source: str):
    """The rows of tables in Markdown above the cell with this source."""
    for cell in cells(name):
        text = "".join(cell["source"])
        if source in text:
            return
        tables = [text] if cell["cell_type"] == "markdown" else []
        tables += ["".join(output.get("data", {}).get("text/markdown", "")) for output in cell.get("outputs", ())]
        for line in itertools.chain.from_iterable(table.splitlines() for table in tables):
            if line.startswith("|"):
                yield [cell.strip(" *") for cell in line.strip("| ").split("|")]
    raise AssertionError(f"{name} has no cell with {source!r}")


def never_beaten(name, puzzle, plans, also=()):
    """Par is reached by its own plan, and no plan is better in seconds or bytes and worse in neither; the lesson says
    of how many plans. Each wrong idea is that of a plan here, or of one `also` tried, and none is par's."""
    par = puzzle.answer(puzzle.par)
    assert par.stars == 3 and not par.ideas
    attempts, others = [puzzle.answer(plan) for plan in plans], [puzzle.answer(plan) for plan in also]
    assert not [a for a in attempts + others if a.under_par]
    assert puzzle.answer(puzzle.start).stars < 3
    prose = "".join(line for cell in cells(name) if cell["cell_type"] == "markdown" for line in cell["source"])
    assert f"Of the {len(attempts)} plans" in prose
    assert {idea for a in attempts + others for idea in a.ideas} == {*puzzle.ideas}
    return attempts


def test_lesson_0_asks_what_the_next_lessons_teach(xla):
    space = lesson("00_start_here")
    mesh = {"data": 4, "model": 2}
    is_right(space["one"], {"x": shard_bytes((1024, 1024), 4, mesh, P("data", None))})
    is_recognised(space["one"], {"x": 1024 * 1024 * 4 / 8}, "hold the same")
    is_right(space["two"], said(xla("sum")))
    is_recognised(space["two"], [("all-gather", "model")], "part of the sum")
    is_recognised(space["two"], [], "Is that the whole sum?")
    fewer = sum(xla("whole").values()) < sum(xla("sharded").values())
    is_right(space["three"], "whole" if fewer else "FSDP")
    is_recognised(space["three"], "FSDP", "saves memory")


def test_lesson_1_counts_a_large_model(told):
    space = lesson("01_first_light")
    example, sizes = sv.gallery.llama("70b"), {"data": 8, "model": 8}
    arguments = zip(("params", "momentum", "tokens"), example.args, example.in_specs, strict=True)
    held = {name: held_bytes(arrays, sizes, specs) for name, arrays, specs in arguments}
    is_right(space["held"], held | {"kept": told["kept"]["lesson 1"]})
    is_recognised(space["held"], {"params": 2 * example.parameters / 8}, "an eighth")
    make, plan, without = space["feed_forward"], example.plan, space["broken"]
    places = [P(None, "data", "model"), P(None, None, ("data", "model")), P(None, None, "model")]
    turned = [P(None, "model", "data"), P(None, ("model", "data")), P(None, "model")]
    plans = [make(plan, w1, w2) for w1, w2 in itertools.product(places, turned)]
    ours = without
    for name, spec in ("w1", places[0]), ("w2", turned[0]), ("w3", places[0]):
        ours = ours.with_spec(f"params['layers']['{name}']", spec).with_spec(
            f"result[0]['layers']['{name}']", spec, output=True
        )
    never_beaten("01_first_light", space["fix"], plans, also=[ours])


def test_lesson_2_counts_shards(spec_of):
    space = lesson("02_where_the_bytes_lie")
    sizes = {"data": 4, "model": 2}
    shapes = (1024, 1024), (1024, 1024), (1024, 1024), (16, 64, 1024)
    specs = P("data", "model"), P("model"), P(("data", "model")), P(None, "data")
    is_right(
        space["weigh"], {n: shard_bytes(s, 2, sizes, spec) for n, s, spec in zip("abcd", shapes, specs, strict=True)}
    )
    is_recognised(space["weigh"], {"b": 1024 * 1024 * 2 / 8}, "hold replicas")
    is_right(space["spec"], spec_of("transpose"))
    is_recognised(space["spec"], P("data", "model"), "stays with its dimension")
    sums = P(None, unreduced={"data"})
    for before, after, *kinds in (  # the rows of the table of reshardings
        (P("data"), P(), "all-gather"),
        (P(), P("data"), "slice"),
        (P("data"), P(None, "data"), "all-to-all"),
        (P(("data", "model")), P(("model", "data")), "collective-permute"),
        (P("data"), P("model"), "collective-permute", "all-gather"),
        (P("model"), P("data"), "slice", "collective-permute"),
        (sums, P(), "all-reduce"),
        (sums, P("data"), "reduce-scatter"),
    ):
        assert [step.kind for step in sv.moves((8, 8), before, after, space["mesh"]).steps] == kinds
    axes = (None, "data", "model", ("data", "model"), ("model", "data"))
    pairs = [
        (a, b) for a in axes for b in axes if not set(str(a).split("'")) & set(str(b).split("'")) & {"data", "model"}
    ]
    plans = [sv.Plan(space["mesh"], P(a, b), space["wanted"]) for a, b in pairs]
    attempts = never_beaten("02_where_the_bytes_lie", space["free"], plans)
    assert len(attempts) == 11 and any(a.ideas for a in attempts)


def test_lesson_3_knows_collectives_and_seconds(xla, told):
    space = lesson("03_a_matrix_product_four_ways")
    is_right(space["two"], said(xla("way 2")))
    is_recognised(space["two"], [("all-reduce", "Y")], "lacks a part of x")
    is_recognised(space["two"], [], "quarter of their columns")
    ((_, size),) = xla("way 3").items()
    is_right(space["three"], 2 * size * 3 / 4 / LINK)
    is_recognised(space["three"], size * 3 / 4 / LINK, "there and back")
    is_recognised(space["three"], 2 * size / LINK, "a quarter already")
    assert xla("way 2") == xla("way 4")  # so the products decide: a device makes its part of the result
    shapes = {way: re.findall(r"ENTRY .*-> bf16\[([\d,]+)\]", told[way]["program"])[0] for way in ("way 2", "way 4")}
    is_right(space["cheaper"], min(shapes, key=lambda way: math.prod(map(int, shapes[way].split(",")))))
    is_recognised(space["cheaper"], "equal", "who multiplies")
    places = P(), P("Y"), P(None, "Y")
    never_beaten(
        "03_a_matrix_product_four_ways",
        space["block"],
        [sv.Plan(space["mesh"], (P("X"), *w)) for w in itertools.product(places, places)],
    )


def test_lesson_4_knows_what_a_plan_holds_and_sends(xla, told):
    space = lesson("04_one_model")
    weights = sum(math.prod(shape) for shape in lessons.ONE_MODEL.values())
    right = {
        "w": 2 * weights,
        "m": 4 * weights,
        "v": 4 * weights,
        "x": shard_bytes((65536, 4096), 2, {"d": 16}, P("d")),
    }
    is_right(space["first"], right | {"kept": told["kept"]["lesson 4"]})
    is_recognised(space["first"], {"w": 2 * weights / 16}, "Only the batch is sharded")
    is_recognised(space["first"], {"m": 2 * weights}, "float32")
    is_right(space["second"], said(xla("FSDP")))
    is_recognised(space["second"], [("reduce-scatter", "data")], "keeps a part")
    zero, tensor = (sent_bytes(xla(name), {axis: 16}) for name, axis in (("ZeRO", "data"), ("tensor", "model")))
    is_right(space["third"], "ZeRO" if zero < tensor else "tensor parallel")
    is_recognised(space["third"], "tensor parallel", "adds activations")
    places = [(P(), P()), (P(None, "data"),) * 2, (P(None, None, "data"),) * 2]
    plans = [space["plan"](space["flat"], w, state, P("data")) for w, state in itertools.product(places, places)]
    assert any(a.ideas for a in never_beaten("04_one_model", space["par"], plans))


def test_lesson_5_finds_what_propagation_and_the_partitioner_do(xla, spec_of):
    space = lesson("05_why")
    is_right(space["out"], spec_of("only w1"))
    is_recognised(space["out"], P("data", "model"), "sums over the columns")
    is_right(space["fight"], said(xla("conflict")))
    is_recognised(space["fight"], [("all-to-all", "data")], "What if w1 is resharded?")
    is_recognised(space["fight"], [("all-reduce", "model")], "besides")
    line = sv.mesh(data=8)  # which operand is resharded: a dimension that the result keeps wins; else the larger one
    for rows, inner, columns in ((256, 1024, 4096), (8, 8192, 8192), (8192, 8192, 8)):
        product = sv.trace(lambda x, w: x @ w, space["f32"](rows, inner), space["f32"](inner, columns))
        for specs, gathered in (
            ((P("data"), P("data")), "w"),
            ((P(None, "data"), P(None, "data")), "x"),
            ((P("data"), P(None, "data")), "x" if rows < columns else "w"),
        ):
            assert [(c.kind, c.operand) for c in product.partition(sv.Plan(line, specs)).collectives] == [
                ("all-gather", gathered)
            ]


def test_lesson_6_fixes_three_accidents():
    space = lesson("06_ten_accidents")
    right = {name: shard_bytes(shape, 2, {"data": 4, "model": 4}, spec) for name, shape, spec in (
        ("cache", (64, 4096, 16, 128), P("data")), ("q", (64, 1, 16, 128), P("data", None, "model")),
    )}  # fmt: skip
    is_right(space["whole"], right)
    is_recognised(space["whole"], {"cache": 2 * 64 * 4096 * 16 * 128 / 16}, "same heads")
    text = "\n".join("".join(cell["source"]) for cell in cells("06_ten_accidents"))
    heads = re.findall(r"^## (\d+)\. ", text, re.MULTILINE)
    assert heads == [str(n) for n in range(1, 11)]  # each accident is told
    good, places = space["crossed"], ([P(None, "model"), P("model")], [P(), P()])
    plans = [space["trained"](w, m, x) for w in (good, *places) for m in (good, *places) for x in (P(), P("data"))]
    assert any(a.ideas for a in never_beaten("06_ten_accidents", space["three"], plans))


def test_lesson_7_knows_what_goes_round(xla, told):
    space = lesson("07_collectives_by_hand")
    is_right(space["sent"], said(xla("ring")))
    is_recognised(space["sent"], [("collective-permute", "seq", 8 * space["turn"])], "Keys and values")
    is_recognised(space["sent"], [("all-gather", "seq")], "a part at a time")
    flops = told["product_flops"]
    assert flops["16 stages"] / flops["4 stages"] == pytest.approx(31 / 19)  # as the turns
    is_right(space["which"], min(flops, key=flops.__getitem__))
    is_recognised(space["which"], "16 stages", "bubble")
    attempts = never_beaten("07_collectives_by_hand", space["how_many"], space["plans"].values())
    assert attempts[0].ideas and min(a.cost.seconds for a in attempts) == attempts[0].cost.seconds  # faster, and larger


def test_lesson_8_holds_what_fsdp_shards(told):
    space = lesson("08_your_own_function")
    _, arrays, sizes, specs = lessons.losses(P)["lesson 8"]
    right = {
        name: held_bytes(array, sizes, spec)
        for name, array, spec in zip(("params", "x", "y"), arrays, specs, strict=True)
    }
    is_right(space["bytes_held"], right | {"kept": told["kept"]["lesson 8"]})
    is_recognised(space["bytes_held"], {"params": 8 * right["params"]}, "on all devices together")
    never_beaten("08_your_own_function", space["own"], space["presets"].values())


def test_lesson_9_serves(told):
    space = lesson("09_serving")
    w, cache = map(
        held_bytes, space["arguments"](32, 1, 2048)[:2], [{"model": 8}] * 2, (space["tensor"], space["by_heads"])
    )
    is_right(space["held"], {"w": w, "cache": cache})
    is_recognised(space["held"], {"cache": cache / 2}, "keys and values")
    is_recognised(space["held"], {"cache": cache * 8}, "all chips together")
    names = "heads over 8", "users over 2, heads over 4"
    is_right(
        space["which"], min(names, key=lambda name: told[name]["argument_bytes"])
    )  # a step reads what a chip holds
    is_recognised(space["which"], names[1], "how many weights")
    weights = space["tensor"], P(), {name: P(None, "model") for name in space["tensor"]}
    caches = space["by_heads"], P(), dict.fromkeys("kv", P(None, "model"))
    plans = [sv.Plan(space["mesh"], (w, c, P(), P()), (P(), c)) for w in weights for c in caches]
    assert any(a.ideas for a in never_beaten("09_serving", space["serve"], plans))


def test_lesson_10_weighs_a_slice(xla, told):
    space = lesson("10_does_it_fit")
    example, sizes = space["small"], {"data": 16, "model": 1}
    held = held_bytes(example.args[0], sizes, example.in_specs[0])
    is_right(space["fits"], {"params": held, "momentum": held, "kept": told["kept"]["lesson 10"]})
    is_recognised(space["fits"], {"params": 2 * example.parameters}, "on all devices together")
    sent = {name: sent_bytes(xla(name), sizes) for name, sizes in lessons.TWO_MESHES.items()}
    is_right(space["mesh_of"], min(sent, key=lambda name: sent[name]))
    is_recognised(space["mesh_of"], "model=8", "adds activations")
    meshes = [{"data": 16 // n, "model": n} for n in (1, 2, 4, 8)]
    examples = [sv.gallery.llama("8b", batch=32, layers=4, mesh=mesh) for mesh in meshes]
    attempts = never_beaten("10_does_it_fit", space["right_mesh"], [each.plan for each in examples])
    assert attempts[-1].ideas


def test_lesson_11_needs_no_pmean(xla):
    space = lesson("11_from_pmap")
    is_right(space["same"], said(xla("without pmean")))
    is_recognised(space["same"], [], "Nobody wrote one")
    sizes = {"data": 4, "model": 2}
    shapes = {"w1": (1024, 4096), "w2": (4096, 1024), "x": (512, 1024)}
    specs = P(None, "model"), P("model", None), P("data", None)
    is_right(space["words"], {n: shard_bytes(s, 2, sizes, p) for (n, s), p in zip(shapes.items(), specs, strict=True)})
    is_recognised(space["words"], {"w1": 1024 * 4096 * 2 / 8}, "one of them only")
    line, places = sv.mesh(batch=8), (P(), P("batch"), P(None, "batch"))
    plans = [sv.Plan(line, (w, x), out) for w, x, out in itertools.product(places, repeat=3)]
    never_beaten("11_from_pmap", space["move_on"], plans)


def test_lesson_12_finds_what_went_wrong():
    linen = pytest.importorskip("flax.linen")
    space = lesson("12_incidents")
    is_right(space["split"], "B")
    is_right(space["logits"], [("all-gather", "model", 2048 * 128 * 1024 * 2 / 8)])
    is_right(space["rule"], "after")
    is_right(space["layers16"], {"w": 2 * 16 * 2 * 1024 * 4096, "x": 2 * 8192 * 1024, "kept": 16 * 2 * 8192 * 1024})
    is_recognised(space["layers16"], {"kept": 2 * 8192 * 1024}, "How many layers")
    reports = [space[name].partition(space["lookup"]) for name in ("warned", "silent", "tokens_first")]
    assert [sum(f.rule == "involuntary-rematerialisation" for f in r.findings) for r in reports] == [1, 0, 0]
    was, steps, first = (sv.cost(report, space["target"]).seconds for report in reports)
    assert first < was < steps  # without the warning it is slower, as in the thread
    present = {"fsdp", "tensor_sequence"}
    for rules, spec in (("rules", space["before"]), ("fixed_rules", space["after"])):
        axes = Spec.of(linen.logical_to_mesh_axes(space["names"], space[rules]), 3).dims  # flax's own
        kept = [[axis for axis in each if axis in present] for each in axes]
        (constraint,) = spec.constraints
        assert [list(dim) for dim in constraint.spec.dims] == kept
    sizes = [16 * 64] + [64] * 48 + [0] * 15  # groups in whole blocks
    x, w = jax.random.normal(jax.random.key(0), (4096, 256)), jax.random.normal(jax.random.key(1), (64, 256, 128))
    x, w, sizes = x * 0.1, w * 0.1, jax.numpy.array(sizes)
    assert jax.numpy.allclose(space["in_blocks"](x, w, sizes), space["mixture"](x, w, sizes), atol=1e-3)
