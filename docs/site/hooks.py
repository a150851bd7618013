"""What the documentation's site has beyond Markdown: lessons from notebooks, code that runs, and explorers as pages.

MkDocs calls the functions `on_...`. A page's fences ```` ```python ```` in `how_to/` and the other folders of `RUN` run
in order, as the cells of one notebook, while the site is built; what the last line of each gives stands below it. So no
output is stored, and code that fails fails the build. A fence ```` ```python tpu ```` runs where the TPU's compiler is
installed, ```` ```python skip ```` never does, as it needs what a build has not, of ```` ```python hidden ```` only the
output is shown, and ```` ```python page ```` shows what `save("page.html")` writes: pictures too.
"""

from __future__ import annotations

import ast
import contextlib
import html
import importlib.util
import io
import json
import linecache
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
ROOT = Path(__file__).parents[2]
RUN = ("index.md", "how_to/", "how_it_knows/")
"""The pages whose code runs: files, and folders by their slash."""
FENCE = re.compile(r"^```python(?P<how>[ \t]+\w+)?\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
OUTPUT = '\n\n<div class="output" data-output="{}"></div>\n'
SHOWN = (
    '<cell-output data-search-exclude><template shadowrootmode="open"><style>pre{{white-space:pre-wrap;'
    "overflow-wrap:anywhere;margin:0;font:12.5px/1.45 ui-monospace,monospace}}table{{border-collapse:collapse}}"
    "th,td{{padding:2px 8px}}img{{max-width:100%}}</style>{}</template></cell-output>"
)
"""An output in a tree of its own, which neither the page's style nor its search reaches."""
PLACE = re.compile(r'<div class="output" data-output="(\d+)"></div>')


def mimebundle(value: Any) -> dict[str, Any]:
    """What a notebook would show of a value."""
    if hasattr(value, "_repr_mimebundle_"):
        data = value._repr_mimebundle_()
        return data[0] if isinstance(data, tuple) else data
    if hasattr(value, "_repr_html_"):
        return {"text/html": value._repr_html_()}
    return {} if value is None else {"text/plain": repr(value)}


def shown(data: dict[str, Any]) -> str:
    """An output of a cell as HTML."""
    text = {kind: "".join(part) if isinstance(part, list) else part for kind, part in data.items()}
    if "text/html" in text:
        return text["text/html"]
    if "text/markdown" in text:
        from markdown import markdown

        return markdown(text["text/markdown"], extensions=["tables"])
    if "image/svg+xml" in text:
        return text["image/svg+xml"]
    if "image/png" in text:
        alt = html.escape(text.get("text/plain", ""), quote=True)
        return f'<img src="data:image/png;base64,{text["image/png"].strip()}" alt="{alt}">'
    return f"<pre>{html.escape(text.get('text/plain', ''))}</pre>"


def saved(save: Callable[[str], Path]) -> str:
    """What is written to an HTML file."""
    with tempfile.TemporaryDirectory() as folder:
        return save(f"{folder}/page.html").read_text(encoding="utf-8")


def page_of(value: Any) -> str:
    """What a value's page says, with its style and pictures."""
    page = re.search(r"<style>(.*?)</style>.*</label>(.*)</main>", saved(value.save), re.DOTALL)
    assert page is not None
    return f"<style>{page[1]}</style>{page[2]}"


class Cells:
    """The code of one page, run from top to bottom as one notebook's cells.

    Attributes:
        name: of the page, as errors and source lines name it.
        source: all code so far, at the lines that Python knows it by.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.source = ""
        self.namespace: dict[str, Any] = {"__name__": "__main__", "table": table}

    def run(self, code: str, how: str = "") -> str:
        """Runs a cell, whose last value is shown as a notebook shows it, or with `page` as its page.

        Returns:
            What it printed and what its last expression gives, as HTML.
        """
        before = self.source.count("\n")
        self.source += code
        linecache.cache[self.name] = len(self.source), None, self.source.splitlines(keepends=True), self.name
        tree = ast.increment_lineno(ast.parse(code, self.name), before)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        value, printed = None, io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(tree, self.name, "exec"), self.namespace)
            if last is not None:
                value = eval(compile(ast.Expression(last.value), self.name, "eval"), self.namespace)
        text = f"<pre>{html.escape(printed.getvalue())}</pre>" if printed.getvalue() else ""
        if how == "page":
            return text + page_of(value)
        return text + ("" if value is None else shown(mimebundle(value)))


class Table:
    """Rows for a page: what hidden code gives."""

    def __init__(self, html: str) -> None:
        self._repr_html_ = lambda: html


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    cells = lambda tag, row: "".join(f"<{tag}>{html.escape(str(cell))}</{tag}>" for cell in row)
    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return Table(f"<table><thead><tr>{cells('th', head)}</tr></thead><tbody>{body}</tbody></table>")


def has_tpu_compiler() -> bool:
    import shardviz as sv

    return any(target.name == "tpu" and target.ready for target in sv.targets())


def run_page(name: str, markdown: str) -> tuple[str, list[str]]:
    """Runs the code of a page.

    Returns:
        Its Markdown with a place below each piece of code, and what belongs there.
    """
    cells, outputs = Cells(f"{Path(name).stem}.py"), []

    def run(match: re.Match[str]) -> str:
        how = (match["how"] or "").strip()
        fence = f"```python\n{match['code']}```"
        if how == "skip":
            return fence
        if how == "tpu" and not has_tpu_compiler():
            outputs.append("<p>Not run: the TPU's compiler (the extra <code>tpu</code>) was not there.</p>")
        else:
            outputs.append(cells.run(match["code"], how))
        place = OUTPUT.format(len(outputs) - 1) if outputs[-1] else ""
        return place if how == "hidden" else fence + place

    return FENCE.sub(run, markdown), outputs


def lesson_page(notebook: dict[str, Any]) -> tuple[str, list[str]]:
    """A notebook as it was executed.

    Returns:
        Its Markdown with a place for each output, and the outputs.
    """
    parts, outputs = [], []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
        elif cell["cell_type"] == "code":
            folds, places = cell["metadata"].get("jupyter", {}), []
            code = re.sub(r"^# (folded|the answer).*\n", "", source) if folds else source
            for output in cell["outputs"]:
                if output["output_type"] == "stream":
                    outputs.append(f"<pre>{html.escape(''.join(output['text']))}</pre>")
                elif output["output_type"] == "error":
                    outputs.append(f"<pre>{html.escape(output['ename'] + ': ' + output['evalue'])}</pre>")
                elif set(output["data"]) <= {"application/vnd.jupyter.widget-view+json"}:
                    continue  # a widget, whose still is another output
                else:
                    outputs.append(shown(output["data"]))
                places.append(OUTPUT.format(len(outputs) - 1))
            code = f"````python\n{code}\n````"
            if folds.get("outputs_hidden"):
                parts.append(folded("The answer", code, *places))
            else:
                parts += [folded("Code", code) if folds.get("source_hidden") else code, *places]
    return "\n\n".join(parts), outputs


def folded(title: str, *parts: str) -> str:
    """Markdown that a click opens, as JupyterLab's bar at the left of a folded cell does."""
    return "\n\n".join([f'<details markdown="1">\n<summary>{title}</summary>', *parts, "</details>"])


def notebooks() -> list[Path]:
    return sorted((ROOT / "notebooks").glob("*.ipynb"))


LESSONS = """# Lessons

Each is a notebook, shown as it was executed. To run them, and to drag an axis yourself: `shardviz lab`. An explorer is
shown here as a notebook keeps it without its kernel; what can be clicked there stands still here.

"""


def title_of(notebook: dict[str, Any]) -> str:
    return "".join(notebook["cells"][0]["source"]).partition("\n")[0].lstrip("# ")


# --- What MkDocs calls -----------------------------------------------------------------------------------------------

_outputs: dict[str, list[str]] = {}
"""Page → what its code gave."""
_renamed: dict[str, str] = {}
"""A function's name where it stands → its public name."""


def on_config(config):
    """The lessons' place in the navigation; pages of `docs/` itself that it does not name are how-to pages."""
    named = json.dumps(config["nav"])
    more = {
        "Lessons": [f"lessons/{path.stem}.md" for path in notebooks()],
        "How to": sorted(page.name for page in (ROOT / "docs").glob("*.md") if f'"{page.name}"' not in named),
    }
    for entry in config["nav"]:
        for section in more.keys() & entry.keys():
            entry[section] += more[section]
    return config


def on_files(files, config):
    from mkdocs.structure.files import File

    from shardviz.cli.schemas import SCHEMAS, schema_of

    titles = []
    for path in notebooks():
        notebook = json.loads(path.read_text(encoding="utf-8"))
        name = f"lessons/{path.stem}.md"
        markdown, _outputs[name] = lesson_page(notebook)
        titles.append(f"- [{title_of(notebook)}]({path.stem}.md)")
        files.append(File.generated(config, name, content=markdown.replace(".ipynb)", ".md)")))
    files.append(File.generated(config, "lessons/index.md", content=LESSONS + "\n".join(titles)))
    files.append(File.generated(config, "explorers/first_light.html", content=explorer_page()))
    files.append(File.generated(config, "explorers/demo.html", content=demo_page()))
    for verb in SCHEMAS:
        files.append(File.generated(config, f"schemas/{verb}.json", content=json.dumps(schema_of(verb), indent=1)))
    return files


PATIENCE = 300.0
"""Seconds that a compile may take: a machine that builds the site may do other things besides."""


def explorer_page() -> str:
    """The explorer of the README's first command, as the page that `explorer.save` writes."""
    import shardviz as sv

    llama = sv.gallery.llama("70b")
    explorer = sv.explore(llama, target="tpu v5p:4x4x4", timeout=PATIENCE)
    explorer.wait("compiled" if has_tpu_compiler() else "partitioned", timeout=PATIENCE)
    text = saved(explorer.save)
    explorer.close()
    return text


@cache
def demo_page() -> str:
    """The explorer without a kernel; SHARDVIZ_DEMO_STATES says how many states it has, where a few will do."""
    spec = importlib.util.spec_from_file_location("shardviz_demo", ROOT / "docs" / "demo.py")
    assert spec is not None and spec.loader is not None
    demo = sys.modules["shardviz_demo"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(demo)
    return demo.demo_page(int(os.environ.get("SHARDVIZ_DEMO_STATES") or demo.STATES))


def named(match: re.Match[str]) -> str:
    """A public name as mkdocstrings finds it: where it stands, for a module may have the same name."""
    import shardviz as sv

    value = getattr(sv, match["name"])
    if not hasattr(value, "__qualname__"):
        return match[0]
    if value.__name__ != match["name"]:
        _renamed[value.__name__] = match["name"]
    where = f"{value.__module__}.{value.__qualname__}"
    options = f"{{heading: {match['name']}, toc_label: {match['name']}}}"
    return f"[](){{#shardviz.{match['name']}}}\n\n::: {where}\n    options: {options}"


def on_page_markdown(markdown, page, config, files):
    name = page.file.src_uri
    if name.startswith("reference/"):
        return re.sub(r"^::: shardviz\.(?P<name>\w+)$", named, markdown, flags=re.MULTILINE)
    if name == "command_line.md":
        from shardviz.cli.schemas import SCHEMAS

        return markdown.replace("`schemas/VERB.json`", ", ".join(f"[{verb}](schemas/{verb}.json)" for verb in SCHEMAS))
    if any(name == run or (run.endswith("/") and name.startswith(run)) for run in RUN):
        markdown, _outputs[name] = run_page(name, markdown)
    return markdown


def on_page_content(content, page, config, files):
    for own, public in _renamed.items() if page.file.src_uri.startswith("reference/") else ():
        content = content.replace(f'<span class="nf">{own}</span>', f'<span class="nf">{public}</span>')
    outputs = _outputs.get(page.file.src_uri, [])
    return PLACE.sub(lambda match: SHOWN.format(outputs[int(match[1])]), content)
