"""A report whose JSON was changed is refused by the field that is wrong, or shown: nothing else is raised or run."""

from __future__ import annotations

import contextlib
import json
import random
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz import paint
from shardviz.errors import ShardvizError
from shardviz.judge.report import Report
from shardviz.paint.mpl import png_of
from shardviz.view.picture import picture
from tests.records.test_report_json import NUMBERS as PLACES
from tests.records.test_report_json import changed, places
from tests.view.sample import report
from tests.view.sanitizer import read as sanitized

pytestmark = pytest.mark.long

EVIL = "<img src=x onerror=alert(1)>"
NUMBERS = [
    *(0, -1, 1, 7, 2**31, 2**53, 2**63, 2**64, -(2**63), 10**30, 10**400),
    *(1.5, -1.5, 1e30, 1e308, 5e-324, float("nan"), float("inf"), -float("inf")),
]
ANYTHING = [
    *(None, True, False, "", EVIL, "a" * 300, "0", "\ud800", "\0", "nan"),
    *([], {}, [1], [-1], ["data"], ["data", "data"], [EVIL], {EVIL: EVIL}, {"-1": EVIL}, [[]], [[["data", 2, 4]]]),
    *([10**30], [[0]], [{}], {"mesh": {}}, [None]),
]


def propagated() -> Report:
    """A gradient's report, with residuals, sources and diagnostics."""

    def loss(params, x):
        y, _ = jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, params["layers"])
        return jnp.mean((y @ params["out"]) ** 2)

    shape = lambda *dims: jax.ShapeDtypeStruct(dims, jnp.float32)
    program = sv.trace(jax.grad(loss), {"layers": shape(3, 16, 16), "out": shape(16, 8)}, shape(8, 16))
    specs = ({"layers": P(None, "data", "model"), "out": P("model")}, P("data"))
    return program.propagate(sv.Plan({"data": 2, "model": 2}, specs))


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return [report().to_json(), propagated().to_json(stages=False)]


def distorted(data: Any, paths: list[tuple[Any, ...]], chosen: random.Random) -> Any:
    """With one, two or four places removed, doubled, retyped or taken to an extreme."""
    for _ in range(chosen.choice([1, 1, 1, 2, 4])):
        path = chosen.choice(paths)
        try:
            holder = data
            for key in path[:-1]:
                holder = holder[key]
            old = holder[path[-1]]
        except (KeyError, IndexError, TypeError):  # an earlier change has taken it away
            continue
        if not isinstance(holder, dict | list):  # it is a text by now, which has places too
            continue
        kind = chosen.randrange(6)
        if kind == 0:
            del holder[path[-1]]
        elif kind == 1 and isinstance(holder, list):
            holder.insert(path[-1], old)
        elif kind < 5 and isinstance(old, int | float) and not isinstance(old, bool):
            holder[path[-1]] = chosen.choice(NUMBERS)
        else:
            holder[path[-1]] = chosen.choice(ANYTHING + NUMBERS)
    return data


def check_shown(found: Report, full: bool) -> None:
    """It is shown in every medium, with nothing of its text let through, or refused by its field."""
    pages = [lambda: paint.html(found)]
    plain = []
    if full:
        pages += [lambda: bundle(found)["text/html"]]
        plain += [
            lambda: paint.text(found, 80),
            lambda: paint.markdown(found),
            lambda: json.dumps(paint.json(found)),
            lambda: paint.text(sv.cost(found, "tpu v5e:8x8")),
        ]
    for show in pages:
        with contextlib.suppress(ShardvizError):
            assert "<img src=x" not in show()
    for show in plain:
        with contextlib.suppress(ShardvizError):
            assert isinstance(show(), str)
    if full:
        with contextlib.suppress(ShardvizError):
            sanitized(paint.html(found))


def bundle(found: Report) -> dict[str, str]:
    """As a notebook asks for it."""
    return found._repr_mimebundle_()


def test_changed_reports_are_refused_by_name_or_shown(texts):
    chosen = random.Random(0)
    paths = [list(places(json.loads(text))) for text in texts]
    read = refused = 0
    for attempt in range(800):
        which = attempt % len(texts)
        text = json.dumps(distorted(json.loads(texts[which]), paths[which], chosen))
        try:
            found = Report.from_json(text)
        except ShardvizError as error:
            refused += 1
            assert len(str(error)) < 1_000
            continue
        read += 1
        check_shown(found, full=read % 6 == 0)
    assert read > 80 and refused > 400  # both ways are taken


@pytest.mark.parametrize("number", [n for n in NUMBERS if not 0 <= n <= (1e30 if isinstance(n, float) else 2**63 - 1)])
def test_a_number_that_counts_nothing_is_refused_wherever_it_stands(number):
    for path in PLACES:
        with pytest.raises(ShardvizError, match=str(path[0])):
            Report.from_json(changed(path, number))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[" * 100_000,
        '{"a":' * 100_000,
        "9" * 5_000,
        '{"shardviz_report": ' + "9" * 4_000 + "}",
        "null",
        '"\\ud800"',
        "{}",
        '{"shardviz_report": 1, "level": ' + "[" * 500 + "]" * 500 + "}",
        '{"shardviz_report": 1, "\\ud800": 1}',
    ],
)
def test_what_is_no_report_is_said_to_be_none(text):
    with pytest.raises(ShardvizError, match="report") as caught:
        Report.from_json(text)
    assert len(str(caught.value)) < 1_000


def test_pictures_of_changed_reports_are_drawn_or_refused(texts):
    """PNG takes longer than the others, so fewer are drawn."""
    chosen = random.Random(1)
    paths = [list(places(json.loads(text))) for text in texts]
    for attempt in range(80):
        which = attempt % len(texts)
        try:
            found = Report.from_json(json.dumps(distorted(json.loads(texts[which]), paths[which], chosen)))
            cost = sv.cost(found, "tpu v5e:8x8")
            if attempt < 24:
                png_of(picture(cost))
            picture(cost)
        except ShardvizError:
            continue


def test_a_whole_number_beyond_64_bits_is_refused_however_it_is_written():
    for path in (("arguments", 0, "shape", 0), ("collectives", 0, "count"), ("plan", "mesh", "sizes", 0)):
        with pytest.raises(ShardvizError, match=path[0]):
            Report.from_json(changed(path, 1e20))
    large = Report.from_json(changed(("cost", "dot_flops"), 1e20))  # a large model's step on one device
    assert large.cost.dot_flops == 1e20
