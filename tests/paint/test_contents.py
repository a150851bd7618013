"""Small arrays with their numbers in each shard."""

from types import SimpleNamespace

import numpy as np
import pytest

from shardviz.layouts import layout
from shardviz.view.scene import number, shard_lines
from shardviz.view.show import Shown, show
from tests.view.sanitizer import words


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.float32(1 / 3), "0.333"),
        (np.float32(7), "7"),
        (np.float64(1e-9), "1e-09"),
        (np.int64(123456), "123456"),
        (np.bool_(True), "True"),
        (np.complex64(1 + 2j), "1+2j"),
        (np.float32("nan"), "nan"),
        (np.float32("-inf"), "-inf"),
    ],
)
def test_numbers(value, text):
    assert number(value) == text


def test_every_element_stands_in_its_shard():
    values = np.arange(24).reshape(4, 6)
    shown = Shown(layout((4, 6), ("a", "b"), "a=2,b=3"), "x", "int32", values)
    assert " 0:2 │ 0     │ 1     │ 2     │\n     │ 0 1   │ 2 3   │  4  5 │" in shown.text()
    assert "1 2 3 8 9" in words(shown.html()).replace("<br>", " ").replace("38 9", "3 8 9")


def test_padding_holds_nothing():
    text = Shown(layout((5,), ("a",), "a=4"), "", "int8", np.arange(5)).text()
    assert "│ 0       │ 1       │ 2       │ 3       │\n│ 0 1     │ 2 3     │ 4       │ nothing │" in text


def test_long_shards_are_cut_short_and_say_so():
    assert shard_lines(np.arange(100), (slice(0, 100),))[0].endswith("15 …")
    assert len(shard_lines(np.zeros((100, 2)), (slice(0, 100), slice(0, 2)))) == 33


def test_values_are_fetched_only_from_small_arrays_within_reach():
    def array(**more):
        given = {
            "shape": (4,),
            "dtype": np.dtype("int32"),
            "is_fully_addressable": True,
            "is_deleted": lambda: False,
            "sharding": SimpleNamespace(spec=("x",), mesh={"x": 2}),
            "__array__": lambda: 1 / 0,
        }
        return SimpleNamespace(**given | more)

    assert show(array(shape=(1024,))).values is None
    assert show(array(is_fully_addressable=False)).values is None
    assert show(array(is_deleted=lambda: True)).values is None


def test_a_jax_array():
    jax = pytest.importorskip("jax")
    shown = show(jax.numpy.arange(6.0).reshape(2, 3) / 4)
    assert "│    0 0.25  0.5 │\n     │ 0.75    1 1.25 │" in shown.text()
    assert "one device" not in shown.text() and shown.layout.mesh.size == 1


def test_random_keys_have_no_numbers():
    jax = pytest.importorskip("jax")
    assert show(jax.random.key(0)).values is None
