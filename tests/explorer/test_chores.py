"""Work in slices gives way to what a person waits for, and is done then."""

import asyncio

from shardviz.explorer import chores
from shardviz.explorer.compile_loop import Inbox


def test_a_chore_waits_while_somebody_is_in_a_hurry_and_is_done_then():
    done = []

    async def live():
        chores.hurry(60)
        chore = chores.Chore(Inbox(), (done.append(n) for n in range(3)))
        chore.start()
        for _ in range(5):
            await asyncio.sleep(0)
        assert done == [] and chore.running
        chore.stop()
        chores.hurry(0)
        chore = chores.Chore(Inbox(), (done.append(n) for n in range(3)))
        chore.start()
        while chore.running:
            await asyncio.sleep(0.001)

    asyncio.run(live())
    assert done == [0, 1, 2]


def test_where_nobody_else_waits_it_is_done_at_once():
    chores.hurry(60)
    try:
        done = []
        chores.Chore(Inbox(), (done.append(n) for n in range(3))).start()
        assert done == [0, 1, 2]
    finally:
        chores.hurry(0)
