"""JSON as the page gets it: deflated, as a text, for a Document says the same words, axes and fields again and again.

So it is some sixth as long, and made sooner than it could be shortened in Python. `static/packed.js` reads it at once,
where a browser's own `DecompressionStream` would have the page wait.

>>> packed([]), list(packed(["model"] * 100))
([], ['z'])
"""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

_SHORT = 200
"""Characters of JSON that stay as they are."""
_LEVEL = 3
"""Of 9: more takes twice as long for a tenth less."""


def packed(value: Any, _: Any = None) -> Any:
    """A value of plain JSON, in an object with `z`: zlib's bytes of its UTF-8, in base 64; a short one as it is.

    Args:
        value: of arrays, objects with names, texts, finite numbers, truths and nothing.
        _: the widget, which is given to a trait's `to_json`.
    """
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    if len(text) < _SHORT:
        return value
    return {"z": base64.b64encode(zlib.compress(text.encode("utf-8", "surrogatepass"), _LEVEL)).decode("ascii")}
