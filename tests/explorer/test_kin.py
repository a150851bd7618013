"""Twins: the same leaf of different trees and layers, and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardviz.errors import SpecError
from shardviz.explorer.apply import twins
from shardviz.explorer.arrays import layers_of, twins_of
from shardviz.explorer.explorer import ExplorerState
from shardviz.notation import Spec
from shardviz.plan.plan import Plan
from shardviz.propagate.dimensions import Member

SHAPES = {"q": (8, 8), "k": (8, 8), "v": (8, 8), "o": (8, 8), "w1": (8, 32), "w3": (8, 32), "w2": (32, 8)}


def block(root, count=3, leaf="['kernel']"):
    """The arrays of a transformer's blocks, whose weights are alike in shape."""
    return {f"{root}['layers'][{i}]['{name}']{leaf}": shape for i in range(count) for name, shape in SHAPES.items()}


def names(groups, name, **options):
    return {twin for _, twin in groups.twins(name, **options)}


@pytest.mark.parametrize(
    "roots",
    [
        ["params"],
        ["params", "momentum"],
        ["state.params", "state.opt[0].mu", "state.opt[0].nu"],
        ["state['params']", "state['opt']['mu']"],
        ["params", "opt_state[1][0].mu", "opt_state[1][0].nu"],
    ],
)
def test_twins_are_the_same_leaf_of_every_layer_and_of_every_tree_alike(roots):
    arguments = {name: shape for root in roots for name, shape in block(root).items()} | {"x": (8, 8), "step": ()}
    results = {f"result[0]{name.removeprefix(roots[0])}": shape for name, shape in block(roots[0]).items()}
    groups = twins_of(tuple(arguments.items()), tuple(results.items()))
    for leaf in SHAPES:
        own = f"{roots[0]}['layers'][1]['{leaf}']['kernel']"
        every = {name for name in arguments | results if f"['{leaf}']" in name}
        assert names(groups, own) == every - {own}, "and no other weight of its shape"
        assert names(groups, own, layers=True) == {n for n in every if n.startswith(f"{roots[0]}['layers']")} - {own}
    assert names(groups, "x") == set()


def test_names_that_differ_by_a_number_are_no_layers():
    arguments = {
        "p['w1']": (8, 8),
        "p['w3']": (8, 8),
        "p['up']['w1']['kernel']": (8, 8),
        "p['up']['w3']['kernel']": (8, 8),
    }
    groups = twins_of(tuple(arguments.items()), ())
    assert not any(names(groups, name) for name in arguments)
    blocks = {f"p['block_{i}']['{leaf}']": (8, 8) for i in range(2) for leaf in "abc"}
    assert names(twins_of(tuple(blocks.items()), ()), "p['block_0']['a']") == {"p['block_1']['a']"}


def test_dimensions_tell_apart_what_paths_do_not():
    arguments = {f"p['{tree}']['{leaf}']": (8, 8) for tree in ("up", "down") for leaf in ("kernel", "gate")}
    plain = twins_of(tuple(arguments.items()), ())
    assert names(plain, "p['up']['kernel']") == {"p['down']['kernel']"}
    member = lambda tree, d: Member("argument", f"p['{tree}']['kernel']", d)
    known = (("in", (member("up", 0), member("down", 1))), ("hidden", (member("up", 1), member("down", 0))))
    assert names(twins_of(tuple(arguments.items()), (), known), "p['up']['kernel']") == set()


parts = st.sampled_from(["['w']", "['b']", "[0]", "[1]", ".mu", "['layer_2']", "['w.b']"])
paths = st.builds(lambda head, rest: head + "".join(rest), st.sampled_from(["p", "q", ""]), st.lists(parts, max_size=4))
arrays = st.dictionaries(paths, st.sampled_from([(8, 8), (8,), ()]), max_size=14).map(
    lambda named: {p: s for p, s in named.items() if not any(o != p and o.startswith(p) for o in named)}  # leaves
)


@given(arrays, arrays)
def test_twins_are_mutual_and_of_one_shape(arguments, results):
    groups = twins_of(tuple(arguments.items()), tuple(results.items()))
    shapes = {("argument", n): s for n, s in arguments.items()} | {("output", n): s for n, s in results.items()}
    for name, shape in arguments.items():
        twins = list(groups.twins(name))
        assert ("argument", name) not in twins and len(set(twins)) == len(twins)
        assert all(shapes[twin] == shape for twin in twins)
        for role, twin in twins:
            if role == "argument":
                assert ("argument", name) in groups.twins(twin)


@given(arrays)
def test_layers_are_alike_in_all_that_is_below_them(arguments):
    found = layers_of(tuple(arguments.items()))
    below = lambda path: {n.removeprefix("".join(path)): s for n, s in arguments.items() if n.startswith("".join(path))}
    for path, number in found.items():
        others = [other for other, which in found.items() if which == number and other != path]
        assert others and all(other[:-1] == path[:-1] for other in others)
        if all(len("".join(o)) == len("".join(path)) for o in others):
            assert all(below(other) == below(path) for other in others)


def test_there_is_no_twin_of_what_is_not_there(program, plan):
    with pytest.raises(SpecError, match="no argument 'nowhere'"):
        twins(ExplorerState(program, plan, level="propagated").now, "nowhere")


def test_an_edit_goes_to_twins_that_are_cut_alike(make_program, plan):
    shapes = {"params['w']": (8, 8), "params['b']": (8,), "momentum['w']": (8, 8), "momentum['b']": (8,), "w": (8, 8)}
    state = ExplorerState(make_program(shapes), Plan(plan.mesh), level="propagated")
    assert twins(state.now, "params['w']") == (("argument", "momentum['w']"),)
    assert twins(state.now, "w") == ()
    assert state.set_dim("params['w']", 0, ["data"], twins=True)
    assert state.bound.in_specs["momentum['w']"] == Spec.of(("data", None)) != state.bound.in_specs["w"]
    assert state.set_dim("params['w']", 0, [])
    assert twins(state.now, "params['w']") == (), "they are no longer alike"


def test_an_edit_of_all_layers_leaves_other_trees_alone(make_program, plan):
    shapes = {f"{root}[{i}]['w']": (8, 8) for root in ("params", "mu") for i in range(3)}
    state = ExplorerState(make_program(shapes), Plan(plan.mesh), level="propagated")
    assert state.move_axis("params[0]['w']", "data", 1, layers=True)
    cut = {name for name, spec in state.bound.in_specs.items() if spec.axes}
    assert cut == {f"params[{i}]['w']" for i in range(3)}
