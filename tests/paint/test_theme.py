"""Colours: one an axis by its place, readable, and never alone."""

import pytest

from shardviz.errors import MeshError
from shardviz.paint.theme import axis_colours, contrast

NINE = {f"a{i}": 1 for i in range(9)}


def test_contrast_is_wcags():
    assert contrast("#000000", "#FFFFFF") == pytest.approx(21)
    assert contrast("#FFFFFF", "#767676") == pytest.approx(4.54, abs=0.005)  # the lightest grey that passes AA on white


@pytest.mark.parametrize("colour", axis_colours(NINE).values(), ids=list(NINE))
def test_text_on_a_chip_is_readable(colour):
    assert contrast(colour.light, colour.ink) >= 4.5
    assert contrast(colour.dark, colour.dark_ink) >= 4.5


def test_an_axis_has_its_colour_by_its_place_not_its_name():
    first, second = axis_colours("data=2,model=4").values()
    assert (first.light, second.light) == ("#0072B2", "#D55E00")
    assert list(axis_colours("model=4,data=2").values()) == [first, second]


def test_eight_axes_differ_in_both_cues_and_a_ninth_still_in_one():
    colours = list(axis_colours(NINE).values())
    for cue in ("light", "dark", "hatch"):
        assert len({getattr(c, cue) for c in colours[:8]}) == 8
    assert len({(c.light, c.hatch) for c in colours}) == 9


def test_no_mesh_is_refused():
    with pytest.raises(MeshError, match="expected a jax Mesh"):
        axis_colours(3)
