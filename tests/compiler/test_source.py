"""Whose line it is, which pass it stands in, and the tables that say so."""

import os

import pytest

import shardviz
from shardviz.compiler import FrameTable
from shardviz.records import Frame
from shardviz.records.phases import is_differentiated, phase
from shardviz.records.source import innermost

HERE = os.path.dirname(shardviz.__file__)
PACKAGES = "/env/lib/python3.12/site-packages"


@pytest.mark.parametrize(("stack", "expected"), [
    (["/home/me/model.py", "/home/me/train.py"], "/home/me/model.py"),
    ([f"{PACKAGES}/flax/nnx/linear.py", "/home/me/model.py"], "/home/me/model.py"),
    ([f"{PACKAGES}/jax/_src/nn/functions.py", f"{PACKAGES}/flax/nnx/linear.py"], f"{PACKAGES}/flax/nnx/linear.py"),
    ([f"{PACKAGES}/jax/_src/api.py"], None),
    ([f"{HERE}/program/trace.py", f"{HERE}/gallery/llama.py"], f"{HERE}/gallery/llama.py"),
    ([f"{HERE}/_jax.py"], None),
    ([os.__file__, "/tmp/ipykernel_12/34.py"], "/tmp/ipykernel_12/34.py"),
    ([r"C:\env\Lib\site-packages\flax\core.py", r"C:\me\model.py"], r"C:\me\model.py"),
    ([], None),
])  # fmt: skip
def test_innermost(stack, expected):
    found = innermost([Frame(file, 1) for file in stack])
    assert (found and found.file) == expected


@pytest.mark.parametrize(("name_stack", "expected"), [
    ("jit(f)/jvp()/while/body/closed_call/checkpoint/dot_general", "forward"),
    ("jit(f)/jvp(jit(silu))/mul", "forward"),
    ("jit(f)/transpose(jvp())/while/body/closed_call/checkpoint/dot_general", "backward"),
    ("jit(f)/transpose(jvp())/while/body/closed_call/checkpoint/rematted_computation/dot_general", "rematerialised"),
    ("jit(f)/vmap(jvp(vmap(transpose(jvp()))))/mul", "backward"),
    ("jit(f)/vmap(jvp(jvp()))/mul", "forward"),
    ("jit(f)/jit(update)/sub", "update"),
    ("jit(f)/sub", "update"),
    ("jit(transpose)/mul", "update"),
    ("jit(f)/btd,dhk->bthk/transpose", "update"),
])  # fmt: skip
def test_phase(name_stack, expected):
    assert phase(name_stack) == expected


def test_a_program_without_derivatives_is_all_forward():
    assert not is_differentiated(["jit(f)/dot_general", "jit(transpose)/mul"])
    assert is_differentiated(["jit(f)/x", "jit(f)/jvp()/dot_general"])
    assert phase("jit(f)/dot_general", differentiated=False) == "forward"


TABLES = """FileNames
1 "/me/a.py"
2 "/me/it\\'s.py"
FunctionNames
1 "outer"
2 "f.<locals>.<lambda>"
FileLocations
1 {{file_name_id=1 function_name_id=1 line=10 end_line=10 column=1 end_column=2}}
2 {{file_name_id=2 function_name_id=2 line=20 end_line=21 column=1 end_column=2}}
StackFrames
1 {{file_location_id=1 {root}}}
2 {{file_location_id=2 parent_frame_id={parent}}}
"""


@pytest.mark.parametrize(("root", "parent"), [("parent_frame_id=1", 2), ("parent_frame_id=0", 1), ("", 1)])
def test_both_ways_to_number_parents(root, parent):
    table = FrameTable.parse(TABLES.format(root=root, parent=parent))
    assert table.stack(2) == (Frame("/me/it's.py", 20, "f.<locals>.<lambda>"), Frame("/me/a.py", 10, "outer"))
    assert table.stack(1) == (Frame("/me/a.py", 10, "outer"),)
    assert table.stack(9) == ()
    assert table.innermost(0) is None


def test_a_long_chain_of_frames_is_walked_once():
    """The innermost line of each is that of its whole stack; a chain that comes back to itself ends too."""
    files = [FILES[n % len(FILES)] for n in range(3000)]
    for root in (0, 2000):
        frames = {n: (Frame(file, n), n - 1 or root) for n, file in enumerate(files, 1)}
        some = FrameTable(frames)
        assert root or [some.innermost(n) for n in range(1, 300)] == [innermost(some.stack(n)) for n in range(1, 300)]
        reads = Counted(frames)
        table = FrameTable(reads)
        for number in reversed(frames):
            table.innermost(number)
        assert reads.count <= 3 * len(frames)


class Counted(dict):
    count = 0

    def __getitem__(self, key):
        self.count += 1
        return super().__getitem__(key)


FILES = [
    "/env/lib/site-packages/jax/_src/api.py",
    "/env/lib/site-packages/flax/nnx/nn/linear.py",
    "/env/lib/site-packages/jax/_src/pjit.py",
    "/home/me/model.py",
    "/env/lib/site-packages/optax/base.py",
]
