"""The page's modules put together."""

from __future__ import annotations

import re

from shardviz.page import bundle


def test_the_bundle_has_every_module_and_no_import_left():
    text = bundle.module()
    for file in set(bundle.STATIC.glob("*.js")) - {bundle.STATIC / "start.js"}:
        assert f"const ${file.stem} = " in text, f"static/{file.name} is used by nothing"
    assert not re.search(r"^\s*(import|export)\b(?! default \$explorer)", text, re.MULTILINE)
    own = "".join(file.read_text(encoding="utf-8") for file in bundle.STATIC.glob("*.js"))
    assert not re.search("innerHTML|outerHTML|insertAdjacentHTML|InnerHTML", own)
    assert "http://www.w3.org/2000/svg" in text and not re.search(r"https?://(?!www\.w3\.org)", text + bundle.styles())
