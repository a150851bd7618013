"""The house stands: rooms import downwards only, importing costs nothing, examples run, no text is of one machine."""

from __future__ import annotations

import ast
import doctest
import functools
import graphlib
import importlib
import io
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from shardviz import display
from tests.machine_paths import machine_paths

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "shardviz"
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if "notebooks" not in path.parts)

# From low to high. A room may import itself and what stands before it.
HOUSE = (
    *(
        "_jax",
        "errors",
        "files",
        "libtpu",
        "caching",
        "display",
        "notation",
        "layouts",
        "records",
        "graph",
        "stablehlo",
        "foresee",
        "compiler",
        "processes",
    ),
    *("tracing", "propagate", "plan", "causes"),
    *("costs", "diagnose", "judge", "ask", "compat", "study", "runs"),
    *("explorer", "gallery", "view", "paint", "page", "lessons", "cli"),
    *("pytest_plugin", "__init__"),
)

ROOMS = {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in MODULES}

# The lowest room that may import each of these.
LOWEST = {"ipywidgets": "page", "anywidget": "page", "traitlets": "page", "matplotlib": "paint"}

NUMPY_ONLY = ("notation", "layouts")

# What painters may import of the rooms of subjects and their builders: how numbers are written, and what is painted.
SUBJECTS = HOUSE[HOUSE.index("layouts") : HOUSE.index("paint")]
PAINTED = tuple(f"shardviz.{name}." for name in ("records.amounts", "view.document", "view.picture", "view.subjects"))


@dataclass(frozen=True)
class Import:
    """An import statement.

    Attributes:
        module: the full name of what is imported, such as `shardviz.notation.Spec`.
        line: where.
    """

    module: str
    line: int


@functools.lru_cache(1)
def parsed(source: str) -> ast.Module:
    """A module's tree, which several rules go through."""
    return ast.parse(source)


def imports(source: str, module: str, is_package: bool) -> Iterator[Import]:
    """All imports of a module: those inside functions, relative ones and those for type checking included."""

    def walk(node: ast.AST) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = module.split(".")
            up = node.level - is_package
            base = ".".join(parts[: len(parts) - up]) if node.level else ""
            origin = ".".join(filter(None, (base, node.module)))
            yield from (Import(f"{origin}.{alias.name}", node.lineno) for alias in node.names)
        for child in ast.iter_child_nodes(node):
            yield from walk(child)

    return walk(parsed(source))


def room_of(module: str) -> str:
    """The room that a module of ours, or a name in it, is in: `shardviz.compiler.walk.Loop` → `hlo`."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in ROOMS | set(HOUSE) else "__init__"


def faults(source: str, module: str, is_package: bool = False) -> list[str]:
    """What a module does against the rules of the house, a line of text each."""
    room = room_of(module)
    found = []
    for it in imports(source, module, is_package):
        where = f"{module}:{it.line} imports {it.module}"
        top = it.module.split(".")[0]
        if top == "shardviz":
            other = room_of(it.module)
            if other not in HOUSE:
                found.append(f"{where}: room {other!r} is not in the house's order")
            elif HOUSE.index(other) > HOUSE.index(room):
                found.append(f"{where}: {room!r} stands below {other!r}")
            elif room == "paint" and other in SUBJECTS and not f"{it.module}.".startswith(PAINTED):
                found.append(f"{where}: painters know no subjects")
            continue
        if top in LOWEST and HOUSE.index(room) < HOUSE.index(LOWEST[top]):
            found.append(f"{where}: only {LOWEST[top]!r} and what stands above it may")
        if room in NUMPY_ONLY and top != "numpy" and top not in sys.stdlib_module_names:
            found.append(f"{where}: {room!r} is NumPy only")
        if room != "_jax" and _is_private(it.module):
            found.append(f"{where}: JAX's private parts belong in shardviz/_jax")
    if room != "_jax":
        for line, text in _reaches(source):
            found.append(f"{module}:{line} reaches for {text}: that belongs in shardviz/_jax")
    if room != "__init__":
        for line, other in _named_modules(source):
            if other != "__init__" and other in HOUSE and HOUSE.index(other) > HOUSE.index(room):
                found.append(f"{module}:{line} names a module of {other!r}, which stands above {room!r}")
    return found


def _is_private(module: str) -> bool:
    top, *rest = module.split(".")
    return (top == "jaxlib" and bool(rest) and rest != ["__version__"]) or (
        top == "jax" and any(part.startswith("_") and not part.endswith("__") for part in rest)
    )


def _reaches(source: str) -> Iterator[tuple[int, str]]:
    """Private parts reached without an import statement: `jax._src`, or a module's name in a string."""
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "jax":
            if node.attr.startswith("_") and not node.attr.endswith("__"):
                yield node.lineno, f"jax.{node.attr}"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            words = node.value.split()
            if len(words) == 1 and words[0].startswith(("jax._src", "jaxlib.")):
                yield node.lineno, repr(node.value)


def _named_modules(source: str) -> Iterator[tuple[int, str]]:
    """The rooms whose modules stand in a string, from which they could be imported where no import statement is."""
    for node in ast.walk(parsed(source)):
        text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
        if re.fullmatch(r"shardviz(\.\w+)+", text):
            yield node.lineno, room_of(text)


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_rooms_import_downwards_only():
    found = [
        fault
        for path in MODULES
        for fault in faults(path.read_text(encoding="utf-8"), module_name(path), path.name == "__init__.py")
    ]
    assert not found, "\n" + "\n".join(found)


def files_imported(path: Path, names: frozenset[str]) -> set[str]:
    """The modules of ours that a module imports, wherever in it: for type checking and inside functions included.

    To import a module runs the `__init__` of each package around it, but for those around the importer itself.
    """
    module = module_name(path)
    found = set()
    for it in imports(path.read_text(encoding="utf-8"), module, path.name == "__init__.py"):
        target = next((name for name in (it.module, it.module.rpartition(".")[0]) if name in names), None)
        parts = target.split(".") if target else []
        around = {".".join(parts[:n]) for n in range(2, len(parts) + 1)}
        found |= {name for name in around & names if name == target or not f"{module}.".startswith(f"{name}.")}
    return found - {module}


def circle_in(graph: dict[str, set[str]]) -> list[str]:
    """Modules that import each other round in a circle; empty where none do."""
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return error.args[1]
    return []


def test_no_files_import_each_other_in_a_circle():
    names = frozenset(map(module_name, MODULES))
    found = circle_in({module_name(path): files_imported(path, names) for path in MODULES})
    assert not found, " imports ".join(reversed(found))


def test_display_alone_looks_upward():
    """What is looked up by type, and may stand above, are the painters of these media, registered where they stand."""
    importlib.import_module("shardviz.lessons.form")
    importlib.import_module("shardviz.paint")
    assert {medium for medium, _ in display._painters} == {"text", "html", "markdown", "plot", "file", "form"}
    rooms = {room_of(painter.__module__) for painter in display._painters.values()}
    assert rooms == {"paint", "lessons"}


def test_circles_are_found(tmp_path):
    assert circle_in({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})
    assert not circle_in({"a": {"b", "c"}, "b": {"c"}, "c": set()})
    names = frozenset(map(module_name, MODULES))
    inside = files_imported(PACKAGE / "ask" / "calls.py", names)
    assert "shardviz.tracing.adapt" in inside and "shardviz.ask" not in inside


def test_every_room_is_in_the_houses_order():
    assert set(HOUSE) >= ROOMS, f"not in the house's order: {sorted(ROOMS - set(HOUSE))}"


def test_readme_and_contributing_say_the_same_order_of_rooms():
    contributing = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| `(\w+)(?:/|\.py)` \|", contributing.partition("## The path")[0], re.MULTILINE)
    assert tuple(table) == tuple(room for room in HOUSE if room != "__init__")
    sentence = re.search(r"from low to high:\s+((?:`\w+`[,.]\s+)+)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert sentence is not None and re.findall(r"`(\w+)`", sentence[1]) == table


@pytest.mark.parametrize(
    ("module", "source", "fault"),
    [
        ("shardviz.notation.spec", "from shardviz.layouts import layout", "'notation' stands below 'layouts'"),
        ("shardviz.notation.spec", "def f():\n    from ..layouts import layout", "'notation' stands below 'layouts'"),
        ("shardviz.notation.spec", "import scipy", "'notation' is NumPy only"),
        ("shardviz.records", "from shardviz import ask", "'records' stands below 'ask'"),
        ("shardviz.records", "import shardviz", "'records' stands below '__init__'"),
        ("shardviz.tracing.trace", "from shardviz.ask import trace", "'tracing' stands below 'ask'"),
        ("shardviz.records.report", "from shardviz.paint import text", "'records' stands below 'paint'"),
        ("shardviz.records.report", "def f():\n    from shardviz.paint import text", "'records' stands below 'paint'"),
        ("shardviz.records.report", "def f():\n    from shardviz.page import x", "'records' stands below 'page'"),
        ("shardviz.ask.why", "import_module('shardviz.study.fixes')", "names a module of 'study'"),
        ("shardviz.view.why", "import_module('shardviz.study.fixes')", None),
        ("shardviz.paint.html", "from shardviz.layouts import Layout", "painters know no subjects"),
        ("shardviz.paint.html", "from shardviz.view.shard_map import shard_map", "painters know no subjects"),
        ("shardviz.paint.html", "def f():\n    from shardviz.records import Report", "painters know no subjects"),
        ("shardviz.paint.html", "from shardviz.view.picture import Picture", None),
        ("shardviz.plan.text", "import traitlets", "only 'page' and what stands above it may"),
        ("shardviz.costs.chart", "from matplotlib.figure import Figure", "only 'paint' and what stands above it may"),
        ("shardviz.tracing.trace", "from jax._src import core", "JAX's private parts"),
        ("shardviz.tracing.trace", "import jaxlib.xla_client", "JAX's private parts"),
        ("shardviz.tracing.trace", "import jax\njax._src.core.Jaxpr", "reaches for jax._src"),
        ("shardviz.tracing.trace", "import_module('jax._src.core')", "reaches for 'jax._src.core'"),
        ("shardviz.tracing.trace", "import jax, jaxlib\nfrom jax.extend.mlir import ir\njax.__version__", None),
        ("shardviz._jax", "from jax._src import core", None),
    ],
)
def test_the_rules_are_checked(module: str, source: str, fault: str | None):
    found = faults(source, module)
    assert (fault in found[0] if found else False) if fault else not found, found


def in_a_process(script: str) -> dict:
    """What a fresh interpreter prints as JSON."""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_import_brings_in_no_plotting_no_widgets_and_no_workers():
    heavy = ["matplotlib", "ipywidgets", "anywidget", "traitlets", "IPython", "psutil"]
    loaded = in_a_process(
        f"import json, sys, shardviz\nprint(json.dumps({{name: name in sys.modules for name in {heavy}}}))"
    )
    assert not any(loaded.values()), loaded


def test_import_starts_no_backend_no_process_and_no_thread():
    facts = in_a_process("""
import json, threading
import jax, psutil
from jax._src import xla_bridge

me = psutil.Process()
def state():
    return [me.num_threads(), threading.active_count(), len(me.children(recursive=True))]

before = state()
import shardviz
print(json.dumps({"before": before, "after": state(), "backend": xla_bridge.backends_are_initialized()}))
""")
    assert facts["after"] == facts["before"]
    assert not facts["backend"]


def test_without_its_dependencies_it_says_what_to_install():
    """As in a Python in which nothing is installed."""
    code = f"import sys; sys.path.append({str(Path(__file__).parents[1])!r}); import shardviz"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True)
    assert "shardviz needs the package lazy_loader, which is not installed here; `pip install shardviz`" in done.stderr


def test_looking_for_targets_starts_no_backend():
    facts = in_a_process("""
import json
import re
import jax
from jax._src import xla_bridge
from shardviz.compiler.targets import targets

found = [status.name for status in targets()]
print(json.dumps({"found": found, "backend": xla_bridge.backends_are_initialized()}))
""")
    assert facts == {"found": ["cpu", "tpu", "gpu"], "backend": False}


@pytest.mark.long
def test_exploring_starts_no_backend_in_the_kernel():
    """A backend takes hold of the machine's devices, which the kernel's owner may want for something else."""
    facts = in_a_process("""
import json
import re
from jax._src import xla_bridge
from shardviz import gallery

started = {}
small = {"layers": 1, "batch": 8, "length": 64, "vocabulary": 1024}
for name, how in {"mlp": {}, "moe": {}, "gpt_2021": small}.items():
    example = getattr(gallery, name)(**how)
    example.program.propagate(example.plan)
    example.program.partition(example.plan)
    started[name] = xla_bridge.backends_are_initialized()
print(json.dumps(started))
""")
    assert facts == {"mlp": False, "moe": False, "gpt_2021": False}


@pytest.mark.long
def test_public_names_do_not_depend_on_what_was_imported_before():
    """Importing a room puts it into the package under its own name, where a function of that name may have to be."""
    tree = ast.parse((PACKAGE / "__init__.pyi").read_text(encoding="utf-8"))
    promised = {  # what type checkers are told: name → the module that it is from, and its name there
        alias.asname or alias.name: (f"shardviz.{node.module}", alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
    assert promised
    wrong = in_a_process(f"""
import importlib, json, shardviz
for name in {[module_name(path) for path in MODULES if path.stem != "__main__"]}:
    importlib.import_module(name)
print(json.dumps([
    name for name, (module, there) in {promised}.items()
    if getattr(shardviz, name) is not getattr(importlib.import_module(module), there)
]))
""")
    assert not wrong, f"once all rooms are imported, shardviz.{wrong[0]} is something else"


@pytest.mark.long
def test_no_name_hides_a_package():
    """`import shardviz.layouts.bytes as b` goes through the attributes, whatever was used or imported before."""
    packages = [module_name(path) for path in MODULES if path.name == "__init__.py"]
    hidden = in_a_process(f"""
import importlib, json, shardviz
used = [getattr(shardviz, name) for name in shardviz.__all__]
for name in {[module_name(path) for path in MODULES if path.stem != "__main__"]}:
    importlib.import_module(name)
used += [getattr(importlib.import_module(p), n) for p in {packages} for n in dir(importlib.import_module(p))]
reached = lambda name: __import__("functools").reduce(getattr, name.split(".")[1:], shardviz)
rooms = {sorted(set(HOUSE) - {"__init__", "_jax"})}
print(json.dumps(
    [name for name in {packages} if reached(name) is not importlib.import_module(name)]
    + [name for name in rooms if getattr(shardviz, name, None) is not importlib.import_module("shardviz." + name)]
))
""")
    assert not hidden, f"something else has the name of {hidden[0]}"


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_examples_in_docstrings_run(path: Path):
    module = importlib.import_module(module_name(path))
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS, verbose=False)
    differences = io.StringIO()
    for example in doctest.DocTestFinder().find(module, module.__name__):
        runner.run(example, out=differences.write)
    assert not runner.failures, differences.getvalue()


def repository_files() -> list[Path]:
    """The files that are, or would be, committed."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode == 0 and listed.stdout:
        return [path for name in listed.stdout.splitlines() if (path := ROOT / name).is_file()]
    skipped = ("artifacts", "build", "dist", "__pycache__", ".")  # no git here: a copy, or an unpacked archive
    paths = (path for path in ROOT.rglob("*") if path.is_file())
    return [p for p in paths if not any(part.startswith(skipped) for part in p.relative_to(ROOT).parts)]


def test_the_repository_has_no_machine_paths():
    found = {}
    for path in repository_files():
        content = path.read_bytes()
        if b"\0" not in content and (hits := machine_paths(content.decode("utf-8", errors="replace"))):
            found[str(path.relative_to(ROOT))] = hits
    assert not found, found


def test_no_group_is_repeated_possessively():
    """Before Python 3.11.5, `(...)*+` keeps what its failed iteration had read; `(?>(?:...)*)` does not.

    Source: https://github.com/python/cpython/issues/106052, which Debian 12's Python 3.11.2 has.
    """
    found = [
        f"{path.relative_to(ROOT)}: {node.value!r}"
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        and re.search(r"(?<!\\)\)(?:[*+?]|\{\d*,?\d*\})\+", node.value)
    ]  # fmt: skip
    assert not found


# Words that no name has, because another word is used for the same thing: presets, fixes, search, shardings.
NOT_IN_NAMES = {
    "offer",
    "offers",
    "mend",
    "mends",
    "remedy",
    "remedies",
    "hunt",
    "told",
    "kin",
    "company",
    "cuts",
    "uncut",
}


def defined_names(source: str) -> Iterator[tuple[str, int]]:
    """The functions, classes, parameters and attributes that a module defines, each with its line."""
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno


def words_of(name: str) -> set[str]:
    """The words of an identifier: `not_offered` and `NotOffered` have two."""
    return set(re.findall(r"[a-z]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()))


def test_no_name_has_a_word_that_was_replaced():
    found = [
        f"{module_name(path)}:{line} {name}"
        for path in MODULES
        for name, line in defined_names(path.read_text(encoding="utf-8"))
        if words_of(name) & NOT_IN_NAMES
    ]
    assert not found, "\n" + "\n".join(found)


def test_replaced_words_are_found_in_names():
    source = "class TakeOffer:\n    kin: int\n    def told(self, by_cuts): self.company = 1"
    found = {name for name, _ in defined_names(source) if words_of(name) & NOT_IN_NAMES}
    assert found == {"TakeOffer", "told", "kin", "by_cuts", "company"}
