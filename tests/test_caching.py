"""What an object finds out once is found by each thread on its own: none waits for another."""

from __future__ import annotations

import threading

from shardviz.caching import Memo, cached_property


class Found:
    """Its `value` is found only once another's has been, where there is another."""

    def __init__(self, begun: threading.Event | None = None, other: threading.Event | None = None):
        self.begun, self.other, self.times = begun, other, 0

    @cached_property
    def value(self) -> bool:
        """Whether it has not had to wait too long."""
        self.times += 1
        if self.begun is not None:
            self.begun.set()
        return self.other is None or self.other.wait(20)


def test_one_thread_does_not_wait_for_another():
    begun, done = threading.Event(), threading.Event()
    waits, found = Found(begun, done), Found()
    thread = threading.Thread(target=lambda: waits.value)
    thread.start()
    assert begun.wait(20)
    other = threading.Thread(target=lambda: found.value and done.set())
    other.start()
    thread.join()
    other.join()
    assert waits.value and found.value and (waits.times, found.times) == (1, 1)


def test_it_stays_as_it_was_found_and_can_be_forgotten():
    one = Found()
    assert one.value is one.value and one.times == 1
    del one.value
    assert one.value and one.times == 2
    assert Found.value.__doc__ == "Whether it has not had to wait too long."


def test_what_is_kept_under_a_name_is_made_once_nothing_included():
    class Known(Memo):
        pass

    made: list[int] = []
    one = Known()
    assert [one.once("a", lambda: made.append(1)) for _ in range(3)] == [None] * 3 and made == [1]
    assert one.once(("a", 1), lambda: 2) == 2 and Known().once("a", lambda: 3) == 3
