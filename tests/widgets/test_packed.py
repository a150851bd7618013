"""What is sent packed is what it was when it is read, and far shorter."""

import base64
import json
import zlib

import hypothesis.strategies as st
from hypothesis import given

import shardviz as sv
from shardviz.widgets.explorer import Explorer
from shardviz.widgets.packed import packed


def unpacked(told):
    """As `static/packed.js` reads it."""
    if not isinstance(told, dict) or told.keys() != {"z"}:
        return told
    return json.loads(zlib.decompress(base64.b64decode(told["z"])).decode("utf-8", "surrogatepass"))


LEAVES = st.none() | st.booleans() | st.integers(-3, 3) | st.floats(allow_nan=False) | st.text(max_size=40)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=9) | st.dictionaries(st.text(max_size=9), inner, max_size=9)
)


@given(VALUES)
def test_what_is_packed_is_read_as_it_was(value):
    told = [value, "a text so long that all of it is packed, for what is short stays as it is " * 3]
    assert json.dumps(unpacked(json.loads(json.dumps(packed(told))))) == json.dumps(told)
    assert unpacked(packed({"v": value})) == {"v": value}


def test_what_is_short_stays_as_it_is():
    assert packed({}) == {} and packed({"t": "model", "z": 1}) == {"t": "model", "z": 1}


def test_what_the_page_shows_is_sent_packed_and_kept_plain():
    explorer = sv.explore(sv.gallery.llama("8b"), level="propagated")
    assert isinstance(explorer, Explorer)
    sent = explorer.get_state(["source", "most", "cards", "cuts", "out_cuts", "inputs", "head", "rules"])
    for name, told in sent.items():
        assert unpacked(json.loads(json.dumps(told))) == json.loads(json.dumps(getattr(explorer, name))), name
    assert len(json.dumps(sent["source"])) < 0.3 * len(json.dumps(explorer.source))
