"""Tree paths taken apart, against the plain definitions."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardviz.explorer.arrays import tree
from shardviz.records.paths import label, segments


@pytest.mark.parametrize(
    "name",
    [
        "x",
        "params['a']['b']",
        "params['it\\'s']",
        'params["a]"]',
        "params['[0]']",
        "a.b.c[0].d",
        "p[<flat index 0>]",
        "",
        "params['<img src=x onerror=alert(1)>']",
        "].",
        "[",
        "p['a.b']['c']",
    ],
)
def test_a_path_is_the_sum_of_its_segments(name):
    assert "".join(segments(name)) == name
    assert all(label(s) for s in segments(name))


@pytest.mark.parametrize("part", ["[", "['", '["', "['a", "[a.", "].", "['\\'", "[['\""])
def test_a_long_path_is_taken_apart_in_one_pass(part):
    name = part * 50_000
    begin = time.process_time()
    found = segments(name)
    assert time.process_time() - begin < 2
    assert "".join(found) == name


def test_a_tree_has_each_leaf_once_in_order():
    leaves = ("p['a']['x']", "p['a']['y']", "p['b']", "q", "p['c']")
    rows = tree(leaves)
    assert [r.path for r in rows if not r.leaves] == list(leaves)
    assert [(r.label, r.depth, r.leaves) for r in rows if r.leaves] == [("p", 0, 4), ("a", 1, 2), ("p", 0, 4)]


parts = st.sampled_from(["['w']", "['b']", "[0]", ".mu", ".m", "['w.b']"])
paths = st.builds(
    lambda head, rest: head + "".join(rest), st.sampled_from(["p", "q", "pq", ""]), st.lists(parts, max_size=3)
)
forests = st.lists(paths, max_size=12, unique=True)


@given(forests)
def test_a_branch_says_which_leaves_are_below_it(names):
    for row in tree(tuple(names)):
        inside = [name for name in names if segments(name)[: row.depth + 1] == segments(row.path) != segments(name)]
        assert [names[place] for place in row.inside] == (inside if row.leaves else [])
