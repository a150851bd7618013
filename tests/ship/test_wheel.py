"""What is released: an sdist, the wheel made of it with every file of the package, which works when it stands alone."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import shardviz as sv

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.long


def run(*command: str | Path, cwd: Path, **options) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory) -> Path:
    """A folder with the sdist, the wheel made of it, and the sdist unpacked."""
    pytest.importorskip("hatchling", reason="no hatchling: pip install 'shardviz[test]'")
    folder = tmp_path_factory.mktemp("dist")
    hatchling = (sys.executable, "-m", "hatchling", "build", "--directory", folder)
    run(*hatchling, "--target", "sdist", cwd=ROOT)
    with tarfile.open(folder / f"shardviz-{sv.__version__}.tar.gz") as sdist:
        sdist.extractall(folder, filter="data")
    run(*hatchling, "--target", "wheel", cwd=folder / f"shardviz-{sv.__version__}")
    return folder


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    return dist / f"shardviz-{sv.__version__}-py3-none-any.whl"


def files_of(folder: Path, pattern: str = "*") -> set[str]:
    """The files of a folder of the checkout, as the wheel should have them."""
    paths = (path for path in folder.rglob(pattern) if path.is_file())
    return {f"{path.relative_to(ROOT)}" for path in paths if not {"__pycache__", ".ipynb_checkpoints"} & {*path.parts}}


def test_the_wheel_has_the_package_the_notebooks_and_the_licence_and_nothing_else(wheel: Path):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    info = f"shardviz-{sv.__version__}.dist-info"
    notebooks = {f"shardviz/{name}" for name in files_of(ROOT / "notebooks", "*.ipynb")}
    vendored = files_of(ROOT / "shardviz" / "page" / "static" / "vendor", "LICENSE-*")
    licences = {f"licenses/{name}" for name in ("LICENSE", *vendored)}
    about = {f"{info}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt", *licences)}
    assert names == files_of(ROOT / "shardviz") | notebooks | about and len(vendored) == 2
    assert len(notebooks) >= 7 and "shardviz/py.typed" in names


def test_the_sdist_can_be_tested(dist: Path):
    unpacked = dist / f"shardviz-{sv.__version__}"
    for needed in ("pyproject.toml", "LICENSE", "README.md", "CHANGELOG.md", "tests/conftest.py", ".ci/run"):
        assert (unpacked / needed).is_file(), needed
    assert not any(path.name.startswith((".venv", "artifacts")) for path in unpacked.iterdir())


def test_the_wheel_works_alone(wheel: Path, tmp_path: Path):
    """In an environment that has what shardviz needs from this one, and shardviz itself from the wheel alone."""
    environment = tmp_path / "venv"
    venv.create(environment, with_pip=False, symlinks=True)
    python = environment / "bin" / "python"
    (site,) = environment.glob("lib/python*/site-packages")
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", wheel, cwd=tmp_path)
    others = [place for place in sys.path if Path(place).name == "site-packages"]
    (site / "others.pth").write_text("\n".join(others))
    row = run(python, "-", cwd=tmp_path, input=(ROOT / ".ci" / "smoke.py").read_text(), env={"PATH": "/usr/bin:/bin"})
    assert row.startswith(f"| {sv.__version__} | {sys.version.split()[0]} |")
