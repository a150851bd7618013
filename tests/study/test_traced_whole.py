"""A function is traced in one go: an edit that traces is answered while mends are tried, whatever locks there are."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import contextmanager

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.explorer.explorer import ExplorerState

pytestmark = pytest.mark.long


class Stack:
    """What a function keeps of its own calls: one may not begin while another is half done."""

    def __init__(self):
        self.open, self.calls, self.deepest = [], 0, 0

    @contextmanager
    def entered(self):
        self.calls += 1
        call = object()
        self.open.append(call)
        self.deepest = max(self.deepest, len(self.open))
        yield
        assert self.open.pop() is call


class Nothing:
    """A lock that does not lock."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


@pytest.mark.timeout(120)
@pytest.mark.parametrize("lock", [threading.Lock, Nothing])
def test_an_edit_that_traces_is_answered_while_mends_are_tried(lock):
    guard, stack = lock(), Stack()

    def loss(w, x):
        with guard, stack.entered():
            for _ in range(8):
                x = jnp.tanh(x @ w["up"]) @ w["down"]
                time.sleep(0.003)  # long enough to be met half done
            return jnp.sum(x * x)

    def step(w, x):
        return jax.tree.map(lambda a, g: a - 0.1 * g, w, jax.grad(loss)(w, x))

    shape = lambda *s: jax.ShapeDtypeStruct(s, jnp.float32)  # noqa: E731
    program = sv.trace(step, {"up": shape(64, 256), "down": shape(256, 64)}, shape(128, 64))
    plan = sv.Plan("a=4,b=2", (({"up": P(None, "b"), "down": P("b")}), P("a")))
    state = ExplorerState(program, plan, level="propagated", target="tpu v5e:2x4")
    met = []

    async def live():
        for place in range(3):
            state.try_remedies()
            calls, until = stack.calls, time.monotonic() + 1 + 0.2 * place
            while time.monotonic() < until and stack.calls <= calls + place:
                await asyncio.sleep(0.001)  # until a mend that constrains a value is traced, here or in a worker
            met.append(state.now.remedies.busy)
            calls = stack.calls
            assert state.rename_axis("b" if place == 0 else f"b{place - 1}", f"b{place}"), state.error
            assert stack.calls > calls and state.plan.mesh.names == ("a", f"b{place}")
        state.try_remedies()
        while state.now.remedies.busy or state.now.remedies.mends is None:
            await asyncio.sleep(0.01)

    asyncio.run(live())
    state.stop()
    assert any(met) and not state.now.remedies.trouble
    assert state.now.remedies.mends.finished
    assert stack.deepest == 1 and not stack.open
