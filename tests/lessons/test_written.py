"""Functions written by hand: right ones pass, wrong ones get one sentence on what is wrong, and par is measured."""

import itertools
import re
from pathlib import Path

import nbformat
import pytest

import shardviz as sv
from shardviz.errors import ShardvizError
from shardviz.lessons.running import defined
from tests.lessons.solutions import RIGHT, WRONG

pytestmark = pytest.mark.slow

NAMES = sorted(RIGHT)
QUICK = ("all-gather", "fsdp", "pipeline")


def _marked(name, *values):
    """A parameter; the newest Python tests all puzzles, each run of the tests a few."""
    return pytest.param(name, *values, marks=() if name in QUICK else pytest.mark.long)


def puzzle_of(name):
    puzzle = sv.lessons.write(name)
    puzzle.limit = 60.0
    return puzzle


@pytest.mark.parametrize("name", [_marked(name) for name in NAMES])
def test_two_different_solutions_reach_par(name):
    puzzle = puzzle_of(name)
    for code in (puzzle.solution, RIGHT[name]):
        tried = puzzle.answer(defined(code))
        assert (tried.problem, tried.stars) == ("", 3), tried.text()
    assert puzzle.result.score == 1 and "par" in tried.text() and tried.html()


@pytest.mark.parametrize(("name", "code", "said"), [_marked(n, *each) for n in NAMES for each in WRONG[n]])
def test_a_wrong_function_is_told_what_is_wrong(name, code, said):
    puzzle = puzzle_of(name)
    if "never ends" in said or "deadlock" in said:
        puzzle.limit = 5.0
    tried = puzzle.answer(defined(code))
    assert re.search(said, tried.sentence), tried.sentence
    assert tried.share < 1 and tried.stars <= 1 and (puzzle.about["hints"].splitlines()[0],) == tried.ideas


def test_what_the_notebook_gives_is_what_the_puzzle_gives():
    """Each task in lesson 7 is followed by its function to complete, and by a solution that is folded away."""
    path = Path(__file__).parents[2] / "notebooks" / "07_collectives_by_hand.ipynb"
    cells = [c for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code"]
    tasks = [i for i, cell in enumerate(cells) if "sv.lessons.write(" in cell.source]
    assert len(tasks) == len(NAMES)
    for i in tasks:
        variable, name = re.findall(r'(\w+) = sv\.lessons\.write\("([\w-]+)"\)', cells[i].source)[0]
        start = puzzle_of(name).start
        assert cells[i + 1].source.startswith(start) and f"{variable}.answer(" in cells[i + 1].source
        assert f"print({variable}.reveal(give_up=True))" in cells[i + 2].source
        assert cells[i + 2].metadata.jupyter.outputs_hidden


def test_every_puzzle_has_two_right_and_five_wrong_functions():
    with pytest.raises(ShardvizError) as error:
        sv.lessons.write("none")
    assert re.findall(r"'([\w-]+)'", str(error.value).split("there are ")[1]) and set(RIGHT) == set(WRONG)
    assert sorted(re.findall(r"'([\w-]+)'", str(error.value).split("there are ")[1])) == NAMES
    assert all(len(wrong) >= 5 for wrong in WRONG.values()) and len(NAMES) == 10


@pytest.mark.parametrize("name", [_marked(name) for name in NAMES])
def test_the_task_shows_what_to_complete(name):
    puzzle = puzzle_of(name)
    text = puzzle.text()
    assert puzzle.start.strip().splitlines()[0] in text and puzzle.title in text
    unchanged = puzzle.answer(defined(puzzle.start))
    assert "as it was given" in unchanged.sentence and (puzzle.tries, puzzle.wrong, puzzle.result) == (0, 0, None)
    assert ("stage 3  .  .  .  F0" in text) == (name == "pipeline")


def test_hints_come_one_at_a_time_and_the_solution_after_the_third_wrong_try():
    puzzle, wrong = puzzle_of("all-gather"), defined("def f(x):\n    return x")
    with pytest.raises(ShardvizError, match="0 of 3 wrong tries so far"):
        puzzle.reveal()
    tried = [puzzle.answer(wrong) for _ in range(3)]
    assert [*itertools.chain(*(each.ideas for each in tried))] == puzzle.about["hints"].splitlines()
    assert "A solution" not in tried[1].text() and "rows.at[(me - turn) % 8].set(x)" in tried[2].text()
    right = puzzle.answer(defined(puzzle.solution))
    assert right.share == 1 and (right.stars, right.score) == (0, 0) and "no stars" in right.text()


def test_a_solution_that_was_asked_for_gives_no_stars():
    puzzle = puzzle_of("reduce-scatter")
    code = puzzle.reveal(give_up=True)
    assert puzzle.answer(defined(code)).stars == 0
    solved = puzzle_of("reduce-scatter")
    first = solved.answer(defined(code))
    assert first.stars == 3 and solved.reveal() == code and solved.result is first


def test_costs_are_those_of_the_books():
    """A ring of 8 sends 7 shards; a reduce-scatter is half of an all-reduce; each in the steps of its ring."""
    mine = {
        name: puzzle_of(name).answer(defined(RIGHT[name])).costs
        for name in ("ring-all-reduce", "reduce-scatter", "fsdp")
    }
    row = 1024 * 4
    assert mine["ring-all-reduce"]["sent"] == 2 * mine["reduce-scatter"]["sent"] == 2 * 7 / 8 * row
    assert (mine["ring-all-reduce"]["steps"], mine["reduce-scatter"]["steps"]) == (14, 7)
    assert mine["fsdp"]["sent"] == 2 * 7 / 8 * 128 * 256 * 4 and mine["fsdp"]["largest"] == 128 * 256 * 4


def test_what_a_function_prints_is_shown():
    code = 'def f(x):\n    print("here", x.shape)\n    jax.debug.print("there")\n    return jnp.zeros((16, 128))'
    assert "here (2, 128)" in puzzle_of("all-gather").answer(defined(code)).text()


def test_what_is_no_function_is_refused():
    with pytest.raises(ShardvizError, match=r"answer\(int\): expected a function"):
        puzzle_of("all-gather").answer(3)
    with pytest.raises(ShardvizError, match="cannot be sent to its own process"):
        lock = __import__("threading").Lock()
        puzzle_of("all-gather").answer(lambda x: lock and x)
