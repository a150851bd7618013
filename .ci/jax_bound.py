"""The newest JAX that shardviz may be installed with: shown, and moved when the tests have passed with a newer one.

shardviz reaches into JAX's private parts (`shardviz/_jax`), which any minor release may change, so `pyproject.toml` has
`jax>=oldest,<bound`. The bound is the minor release after the newest that the tests have passed with.

    python .ci/jax_bound.py beyond          prints the newest release if it lies beyond the bound, else nothing
    python .ci/jax_bound.py move 0.13.2     sets the bound to 0.14
"""

import re
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
_BOUND = re.compile(r'("jax>=[\d.]+,<)([\d.]+)(")')


def numbers(version: str) -> tuple[int, ...]:
    """A release as numbers, to be compared."""
    return tuple(map(int, version.split(".")))


def bound_of(project: str) -> str:
    """The bound in the text of `pyproject.toml`."""
    found = _BOUND.findall(project)
    if len(found) != 1:
        raise SystemExit("pyproject.toml: one requirement of the form jax>=...,<... is expected")
    return found[0][1]


def after(version: str) -> str:
    """The minor release after a release."""
    major, minor, *_ = numbers(version)
    return f"{major}.{minor + 1}"


def moved(project: str, version: str) -> str:
    """The text with the bound after a release; never a lower one than it has."""
    new = max(bound_of(project), after(version), key=numbers)
    return _BOUND.sub(rf"\g<1>{new}\g<3>", project)


def newest() -> str:
    """The newest final release of JAX that this Python can have."""
    asked = [sys.executable, "-m", "pip", "index", "versions", "jax"]
    said = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    found = re.search(r"^Available versions: (.*)$", said, re.MULTILINE)
    if found is None:
        raise SystemExit(f"pip names no versions of jax: {said!r}")
    return max((v for v in found[1].split(", ") if re.fullmatch(r"[\d.]+", v)), key=numbers)


def main(what: str, *rest: str) -> None:
    """Does what the module's docstring says."""
    project = PROJECT.read_text()
    bound = bound_of(project)
    if what == "beyond":
        found = newest()
        print(f"the newest JAX for this Python is {found}; shardviz may have one below {bound}", file=sys.stderr)
        if numbers(found) >= numbers(bound):
            print(found)
    elif what == "move":
        PROJECT.write_text(moved(project, *rest))
        print(f"pyproject.toml: jax below {bound_of(PROJECT.read_text())}, where it was below {bound}")
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main(*sys.argv[1:])
