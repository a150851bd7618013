"""Progress: the best score of each lesson, kept in the notebook's folder when a person runs the lesson."""

import pytest

import shardviz as sv
from shardviz.lessons import questions
from shardviz.lessons.running import defined


@pytest.fixture
def scored(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    puzzle = sv.lessons.write("reduce-scatter")
    puzzle.answer(defined(puzzle.solution))
    return puzzle


def test_the_best_score_is_kept_in_the_folder(scored, tmp_path, monkeypatch):
    sv.lessons.scores(scored, lesson="7. Collectives")
    assert not list(tmp_path.iterdir()) and "No lesson was done" in sv.lessons.progress().text()  # nobody watches
    monkeypatch.setattr(questions, "is_watched", lambda: True)
    assert sv.lessons.scores(scored, lesson="10. Does it fit?").score == 1
    sv.lessons.scores(scored, sv.lessons.write("fsdp"), lesson="7. Collectives")
    sv.lessons.scores(sv.lessons.write("fsdp"), lesson="1. First light")  # not answered
    sv.lessons.scores(scored, sv.lessons.write("fsdp"), sv.lessons.write("experts"), lesson="10. Does it fit?")
    assert sv.lessons.progress().scores == {"10. Does it fit?": 1.0, "7. Collectives": 0.5}
    text = sv.lessons.progress().text()
    assert text.index("7. Collectives") < text.index("10. Does it fit?") and "★★★" in text


@pytest.mark.parametrize("kept", ["", "[1]", '{"7": "much"}', "{"])
def test_a_file_that_is_not_ours_is_no_progress(tmp_path, monkeypatch, kept):
    monkeypatch.chdir(tmp_path)
    (tmp_path / questions.PROGRESS).write_text(kept)
    assert sv.lessons.progress().scores == {}


def test_an_amount_is_locked_until_a_person_has_guessed(monkeypatch):
    assert sv.lessons.guess(None, 277.0, "MB").text().strip() == "277 MB"  # nobody watches: it is saved
    monkeypatch.setattr(questions, "is_watched", lambda: True)
    locked = sv.lessons.guess(None, 277.0, "MB").text()
    assert "Locked" in locked and "277" not in locked
    for guess, times in ((27.7, "10"), (554.0, "2")):
        assert f"is off by a factor of {times}" in sv.lessons.guess(guess, 277.0, "MB").text()
    for wrong in (0, -1.0, float("nan")):
        with pytest.raises(sv.errors.ShardvizError, match="expected a positive number"):
            sv.lessons.guess(wrong, 277.0)
