"""The page's ES modules bundled into one, because a notebook loads a single module without relative imports.

Each module becomes a function that returns its exports; nothing else changes, so browsers can load the files in
`static/` directly. Imports must be `import { a, b } from "./file.js";`. Exports must be `export function`,
`export const` or `export default`. Files in `static/vendor/` end with `export{a as b};`. `types.d.ts` is used in
comments only and is not bundled.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from pathlib import Path

STATIC = Path(__file__).with_name("static")

_IMPORT = re.compile(r'^import \{\s([\w,\s]+)\s\} from "\./(?:vendor/)?([\w-]+)\.js";$', re.MULTILINE)
_EXPORTS = re.compile(r"^(.*)export\{([\w$,\s]+)\};?\s*\Z", re.DOTALL)
_EXPORT = re.compile(r"^export (?:async )?(?:function|const) (\w+)", re.MULTILINE)


def start() -> str:
    """Return `static/start.js`, which anywidget loads and notebooks save; it fetches `page()` from the kernel."""
    return STATIC.joinpath("start.js").read_text(encoding="utf-8")


@lru_cache(maxsize=1)
def page() -> str:
    """Return `module()` with the style sheets."""
    return f"{module()}export const styles = {json.dumps(styles())};\n"


@lru_cache(maxsize=1)
def module() -> str:
    """Return `static/explorer.js` and everything that it imports as one module."""
    done: dict[str, str] = {}
    _load("explorer", done, ())
    return "\n".join(done.values()) + "\nexport default $explorer.$default;\n"


@lru_cache(maxsize=1)
def styles() -> str:
    """Return the style sheets as one: `explorer.css`, then the others by name."""
    sheets = sorted(STATIC.glob("*.css"), key=lambda path: (path.name != "explorer.css", path.name))
    return "\n".join(path.read_text(encoding="utf-8") for path in sheets)


def _load(name: str, done: dict[str, str], waiting: tuple[str, ...]) -> None:
    if name in waiting:
        raise ValueError(f"static/{name}.js imports itself by way of {' and '.join(waiting)}")
    own = STATIC / f"{name}.js"
    text = (own if own.exists() else STATIC / "vendor" / f"{name}.js").read_text(encoding="utf-8")
    for _, other in _IMPORT.findall(text):
        if other not in done:
            _load(other, done, (*waiting, name))
    body = _IMPORT.sub(lambda m: f"const {{ {m[1]} }} = ${m[2]};", text)
    exports = _EXPORT.findall(body)
    body = re.sub(r"^export default ", "const $default = ", body, flags=re.MULTILINE)
    body = re.sub(r"^export ", "", body, flags=re.MULTILINE)
    if other := re.search(r"^(import|export)\b.*", body, re.MULTILINE):
        raise ValueError(f"static/{name}.js: {other[0]!r} is none of the forms that bundle.py can read")
    names = [*exports, *(["$default"] if "const $default = " in body else [])]
    if vendored := _EXPORTS.match(text):
        body, names = vendored[1], [": ".join(reversed(each.split(" as "))) for each in vendored[2].split(",")]
    done[name] = f"const ${name} = (() => {{\n{body}\nreturn {{ {', '.join(names)} }};\n}})();"
