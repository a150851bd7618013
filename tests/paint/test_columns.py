"""Text that fits a terminal, where a wide character takes two columns."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardviz.paint.columns import clip, pad, text_width, wrap

TEXTS = st.text("ab 模ーｱé\u0301·…×", max_size=60)


def test_columns_of_characters():
    """Those of Unicode: an accent stands on the letter before it, and a sequence of emoji is one."""
    widths = {"a": 1, "模": 2, "ー": 2, "Ａ": 2, "ｱ": 1, "·": 1, "…": 1, "×": 1, "e\u0301": 1, "\u200b": 0}
    widths |= {"👩‍👧": 2, "🇩🇪": 2}
    assert {text: text_width(text) for text in widths} == widths


@given(TEXTS, st.integers(4, 30))
def test_no_line_is_too_wide_and_nothing_is_lost(text, width):
    lines = wrap(text, width, " ")
    assert all(text_width(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())


@given(TEXTS, st.integers(1, 30))
def test_clipped_text_fits_and_says_so(text, width):
    short, whole = clip(text, width), " ".join(text.split())
    assert text_width(short) <= width
    assert short == whole or (short.endswith("…") and whole.startswith(short[:-1]))


@pytest.mark.parametrize("side", ["left", "right", "middle"])
@given(text=TEXTS, width=st.integers(0, 40))
def test_filled_up_text_has_the_width(side, text, width):
    assert text_width(pad(text, width, side)) == max(width, text_width(text))
    assert text in pad(text, width, side)
