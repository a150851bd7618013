"""What was tried on which Python and JAX: a table in Markdown; for each file of results a line of counts, and the names
of the tests that were skipped.

    python .ci/tried_on.py tried_on.md "python 3.11.7 jax 0.10.2 jaxlib 0.10.2" tests-oldest.xml "python 3.13.0 ..." ...

Results, as JUnit XML, stand behind the versions that they are of; `wheel` behind versions says that it was tried.
"""

import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

HEAD = """\
What CI tried, on Linux x86-64. `wheel` is the wheel alone in a fresh environment (`.ci/smoke.py`); the rest are tests.

| Python | JAX | jaxlib | tried | passed | skipped | failed |
|---|---|---|---|---:|---:|---:|
"""


def rows(arguments: list[str]) -> list[str]:
    """The rows of the table; counts are printed on the way."""
    found, versions = [], ""
    for argument in arguments:
        if not argument.endswith(".xml"):
            versions = " | ".join(argument.removesuffix(" wheel").split()[1::2])
            if argument.endswith(" wheel"):
                found.append(f"| {versions} | wheel | 1 | 0 | 0 |")
            continue
        suite = next(ElementTree.parse(argument).iter("testsuite"))
        tests, failures, errors, skipped = (int(suite.get(k)) for k in ("tests", "failures", "errors", "skipped"))
        passed = tests - failures - errors - skipped
        seconds = float(suite.get("time"))
        print(f"{passed} passed, {skipped} skipped, {failures} failed, {errors} errors in {seconds:.0f} s")
        for case in suite.iter("testcase"):
            if (why := case.find("skipped")) is not None:
                print(f"  skipped: {case.get('classname')}::{case.get('name')}: {why.get('message')}")
        what = Path(argument).stem.removeprefix("tests-")
        found.append(f"| {versions} | {what} | {passed} | {skipped} | {failures + errors} |")
    return found


if __name__ == "__main__":
    table, *arguments = sys.argv[1:]
    Path(table).write_text(HEAD + "\n".join(rows(arguments)) + "\n")
