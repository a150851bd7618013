"""Files are written whole or not at all, keep their permissions, and leave nothing behind; odd names are refused."""

import os
import signal
import stat
import subprocess
import sys
import time

import pytest

from shardviz.errors import ShardvizError
from shardviz.files import read_whole, write_whole

posix = pytest.mark.skipif(os.name != "posix", reason="permissions and signals are POSIX's")


@pytest.fixture
def full_disk():
    """Files of more than 1,000 bytes have no room."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path, full_disk):
    path = tmp_path / "report.md"
    path.write_text("the old one")
    with pytest.raises(ShardvizError, match="File too large"):
        write_whole(path, "the new one" * 100)
    assert path.read_text() == "the old one" and list(tmp_path.iterdir()) == [path]
    assert write_whole(path, "a lone \ud800 surrogate") == path
    assert read_whole(path) == b"a lone ? surrogate" and list(tmp_path.iterdir()) == [path]


@posix
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644, 0o664, 0o400])
def test_a_file_that_is_replaced_keeps_its_permissions(tmp_path, mode):
    path = tmp_path / "report.md"
    path.write_text("the old one")
    path.chmod(mode)
    write_whole(path, "the new one")
    assert stat.S_IMODE(path.stat().st_mode) == mode and path.read_text() == "the new one"


@posix
@pytest.mark.parametrize("exists", [True, False])
def test_a_link_stays_and_its_file_is_replaced(tmp_path, exists):
    (tmp_path / "elsewhere").mkdir()
    link, file = tmp_path / "report.md", tmp_path / "elsewhere" / "report.md"
    link.symlink_to(file)
    if exists:
        file.write_text("the old one")
        file.chmod(0o600)
    write_whole(link, "the new one")
    assert link.is_symlink() and file.read_text() == "the new one"
    assert [each.name for each in file.parent.iterdir()] == ["report.md"]
    assert not exists or stat.S_IMODE(file.stat().st_mode) == 0o600


@posix
def test_a_new_file_has_the_permissions_that_others_get(tmp_path):
    (tmp_path / "theirs").write_text("")
    write_whole(tmp_path / "ours", "")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "theirs").stat().st_mode


@posix
def test_nobody_else_may_read_the_part_of_a_file_that_is_ones_own(tmp_path, monkeypatch):
    path, modes = tmp_path / "report.md", []
    path.write_text("the old one")
    path.chmod(0o600)
    monkeypatch.setattr("os.chmod", lambda part, mode: modes.append((os.stat(part).st_size, os.stat(part).st_mode)))
    write_whole(path, "the new one")
    assert [(size, stat.S_IMODE(mode)) for size, mode in modes] == [(11, 0o600)]


@posix
def test_what_a_killed_save_leaves_goes_with_the_next(tmp_path):
    path = tmp_path / "report.md"
    path.write_text("the old one")
    code = f"""
import os, signal
from shardviz.files import write_whole
os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
write_whole({str(path)!r}, "the new one")
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == -signal.SIGKILL
    (part,) = set(tmp_path.iterdir()) - {path}
    assert path.read_text() == "the old one" and part.read_text() == "the new one"
    write_whole(path, "a newer one")
    assert list(tmp_path.iterdir()) == [path]


@posix
def test_the_part_of_a_save_that_goes_on_stays(tmp_path, monkeypatch):
    """Another thread or process is in the middle of a save."""
    kept = []

    def replace(part, where):
        monkeypatch.undo()
        write_whole(tmp_path / "other.md", "")
        kept.append(part.exists())
        os.replace(part, where)

    monkeypatch.setattr("os.replace", replace)
    write_whole(tmp_path / "report.md", "")
    assert kept == [True] and sorted(os.listdir(tmp_path)) == ["other.md", "report.md"]


def test_an_old_part_of_another_machine_goes(tmp_path):
    new, old = (tmp_path / f".shardviz-00000000-1-0000000{i}.part" for i in range(2))
    for part in (new, old):
        part.write_text("")
    os.utime(old, (0, time.time() - 7200))
    write_whole(tmp_path / "report.md", "")
    assert new.exists() and not old.exists()


ODD = ["a\0b", "\ud800", "a" * 300, "é" * 200, "~nobody-of-this-name/a", "no folder/a", "", None, 3]


@pytest.mark.parametrize("name", ODD, ids=ascii)
def test_a_name_that_no_file_has_is_refused(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ShardvizError, match=r"cannot be written|is not a path"):
        write_whole(name, "")
    with pytest.raises(ShardvizError, match=r"cannot be read|is not a path"):
        read_whole(name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["é" * 127, "𝔸" * 63, "a" * 255], ids=["é", "𝔸", "a"])
def test_a_name_as_long_as_names_can_be_is_taken(name, tmp_path):
    assert read_whole(write_whole(tmp_path / name, "all")) == b"all"


def test_folders_are_made_where_that_is_asked(tmp_path):
    assert read_whole(write_whole(tmp_path / "a" / "b" / "c.txt", "all", folders=True)) == b"all"
    with pytest.raises(ShardvizError, match=r"cannot be written: (File exists|Not a directory)"):
        write_whole(tmp_path / "a" / "b" / "c.txt" / "d.txt", "all", folders=True)
