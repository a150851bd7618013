"""Work in slices: where nobody else waits it is done at once, else between what others ask."""

import asyncio

from shardviz.explorer.background import Chore
from shardviz.explorer.compile_loop import Inbox


def counted(done):
    for number in range(3):
        done.append(number)
        yield


def test_where_a_loop_runs_it_is_done_in_turns_and_can_be_stopped():
    done, stopped = [], []

    async def live():
        chores = [Chore(Inbox(), counted(each)) for each in (done, stopped)]
        for chore in chores:
            chore.start()
        assert not done and chores[0].running, "it returned at once"
        chores[1].stop()
        while chores[0].running:
            await asyncio.sleep(0.001)

    asyncio.run(live())
    assert done == [0, 1, 2] and not stopped


def test_where_nobody_else_waits_it_is_done_at_once():
    done = []
    Chore(Inbox(), counted(done)).start()
    assert done == [0, 1, 2]
