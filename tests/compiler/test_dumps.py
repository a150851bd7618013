"""Which of XLA's texts are whole: one that is still being written may stop at any byte."""

import os

import pytest

from shardviz.processes import dumps

FILES = {
    "partitioned": (
        "m.0001.sdy.after_shardy-xla.before_spmd-partitioning.txt",
        "m.0002.after_spmd-partitioning.before_hlo-domain-remover.txt",
    ),
    "compiled": tuple(
        f"m.after_optimizations{end}.txt"
        for end in ("", "-buffer-assignment", "-live-range", "_after_buffer_assignment")
    ),
}


@pytest.mark.parametrize("milestone", dumps.LEVELS)
@pytest.mark.parametrize("name", ["cond", "shard_map"])
def test_no_part_of_a_program_is_taken_for_the_whole(all_compiled, name, milestone, tmp_path):
    program = all_compiled[name].text("after" if milestone == "partitioned" else "optimized")
    growing = tmp_path / FILES[milestone][0]
    for file in FILES[milestone]:
        (tmp_path / file).write_text(program)

    def whole():
        return dumps.complete(tmp_path, milestone, 8, ended=False, platform="tpu")

    assert whole()
    size = len(program.rstrip("\n").encode()) + 1
    os.truncate(growing, size)
    assert whole()  # only an empty line is missing
    for length in reversed(range(size)):
        os.truncate(growing, length)
        assert not whole(), program[max(0, length - 200) : length]
    # nor where the compiler has ended: it goes on where there is no room for its files
    assert not dumps.complete(tmp_path, milestone, 8, ended=True)
    growing.write_text(program)
    assert dumps.complete(tmp_path, milestone, 8, ended=True)


@pytest.mark.parametrize("platform", ["cpu", "gpu"])
@pytest.mark.parametrize("late", ["", "-buffer-assignment", "-live-range", "-memory-usage-report"])
def test_texts_are_whole_once_the_options_after_them_are_written(all_compiled, late, platform, tmp_path):
    """The options are there from the module's first dump on, and are written again after each."""
    program = all_compiled["mlp_float32"].text("optimized")
    options = tmp_path / "module_0001.jit_f.debug_options"
    ends = ("", "-buffer-assignment", "-live-range", "-memory-usage-report")
    files = [tmp_path / f"module_0001.jit_f.after_optimizations{end}.txt" for end in sorted(ends, key=late.__eq__)]
    for second, file in enumerate([options, *files]):
        file.write_text(program)
        os.utime(file, (second + 1, second + 1))
        assert not dumps.complete(tmp_path, "compiled", 8, ended=False, platform=platform)
    (tmp_path / "module_0002.jit_g.debug_options").touch()
    assert not dumps.complete(tmp_path, "compiled", 8, ended=False, platform=platform)
    assert dumps.complete(tmp_path, "compiled", 8, ended=True, platform=platform)
    os.utime(options, (9, 9))
    assert dumps.complete(tmp_path, "compiled", 8, ended=False, platform=platform)
