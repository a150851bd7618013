"""What is sent packed is what it was when it is read, and about half as long."""

import json

import hypothesis.strategies as st
from hypothesis import given

import shardviz as sv
from shardviz.widgets.explorer import Explorer
from shardviz.widgets.packed import packed


def unpacked(told):
    """As `static/packed.js` reads it."""
    made = []

    def read(each):
        if isinstance(each, bool) or not isinstance(each, int | list):
            return each
        if isinstance(each, int):
            return made[each]
        kind, *rest = each
        if kind == -1:
            return rest[0]
        if kind == -2:
            return rest
        if kind == 0:
            return list(map(read, rest))
        return dict(zip(told["keys"][kind - 1], map(read, rest), strict=True))

    for each in told["table"]:
        made.append(read(each))
    return read(told["value"])


LEAVES = st.none() | st.booleans() | st.integers(-3, 3) | st.floats(allow_nan=False) | st.text(max_size=4)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=2), inner, max_size=4)
)


@given(VALUES)
def test_what_is_packed_is_read_as_it_was(value):
    assert unpacked(json.loads(json.dumps(packed(value)))) == value


def test_true_and_one_stay_apart():
    value = [{"t": True}, {"t": "a"}, {"t": 1}, {"t": False}, {"t": 0}, {"t": None}, "a", "b", {"t": "b"}]
    assert json.dumps(unpacked(packed(value))) == json.dumps(value)


def test_what_every_edit_changes_is_sent_packed_and_kept_plain():
    explorer = sv.explore(sv.gallery.llama("8b"), level="propagated")
    assert isinstance(explorer, Explorer)
    sent = explorer.get_state(["source", "most", "cards", "cuts", "out_cuts"])
    for name, told in sent.items():
        assert unpacked(json.loads(json.dumps(told))) == json.loads(json.dumps(getattr(explorer, name))), name
    assert len(json.dumps(sent["source"])) < 0.7 * len(json.dumps(explorer.source))
