"""How much memory the compile server and its children take while something runs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import psutil


@contextlib.contextmanager
def memory_of_children() -> Iterator[list[int]]:
    """Resident bytes of all processes below this one, time and again while the block runs; pages they share count
    for each.
    """
    seen: list[int] = [0]
    stop = threading.Event()

    def look() -> None:
        while not stop.wait(0.02):
            used = 0
            for process in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    used += process.memory_info().rss
            seen.append(used)

    watch = threading.Thread(target=look)
    watch.start()
    try:
        yield seen
    finally:
        stop.set()
        watch.join()
