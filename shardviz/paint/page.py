"""A Document as one self-contained HTML file: no script, no network, light and dark, printable.

`html_of` paints the blocks, `inline_of` the Pictures.

>>> from shardviz.view.document import Document, words
>>> page = page_of(Document(title=words("a < b")))
>>> page[:15], "<title>a &lt; b</title>" in page, "<script" in page
('<!DOCTYPE html>', True, False)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape

from shardviz.paint.html import html_of
from shardviz.paint.outside import shown
from shardviz.paint.svg import inline_of, page_hatches, page_style
from shardviz.view.document import Block, Document, Figure, Section, SideBySide, Table, plain
from shardviz.view.picture import Picture

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""A browser loads and runs nothing for this page, whatever its contents."""

_STYLE = """
:root{color-scheme:light dark}
@media(prefers-color-scheme:dark){:root:has(#theme:checked){color-scheme:light}.theme span:first-of-type{display:none}}
@media(prefers-color-scheme:light){:root:has(#theme:checked){color-scheme:dark}.theme span:last-of-type{display:none}}
*{box-sizing:border-box}
body{margin:0;background:#fff;color:#1f2328;background:light-dark(#fff,#15181c);color:light-dark(#1f2328,#e6e6e6)}
main{max-width:1180px;margin:0 auto;padding:14px 20px 40px;overflow-wrap:anywhere}
h1{font-size:19px;font-weight:500;line-height:1.3;margin:6px 0 2px}
h2{font-size:14px;font-weight:400;margin:22px 0 4px;padding-top:8px;border-top:1px solid rgba(128,128,128,.35)}
h2 b{font-weight:650}
.lead{margin:2px 0}
summary{cursor:pointer;padding:4px 0}
.rest>summary{opacity:.75;padding:0 8px 8px}
figure{margin:8px 0 16px;overflow-x:auto}
figure>svg{max-width:100%;height:auto;display:block}
.table{overflow-x:auto;max-width:100%}
.table :is(th,td:not([style*="text-align:right"])),.table td:not([style*="text-align:right"]) *{
white-space:normal!important;overflow-wrap:break-word}
.table table{max-width:100%}
pre{white-space:pre-wrap!important}
.beside{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,360px),1fr));gap:0 28px}
.beside>div{min-width:0}
.theme{float:right;font:12px system-ui,sans-serif;opacity:.75;cursor:pointer;padding:4px 0 4px 12px}
footer{font:12px system-ui,sans-serif;opacity:.75;margin-top:28px}
@media print{
:root,:root:has(#theme:checked){color-scheme:light}
main{max-width:none;padding:0}
.theme,.rest{display:none}
.table{overflow:visible}
.table :is(th,td,span,div){white-space:normal!important;overflow-wrap:break-word}
.table td:not(:last-child){max-width:300px}
.table :is(th,td){padding:1px 5px 1px 0!important}
summary{list-style:none}
pre{overflow:visible!important;max-height:none!important}
tr,figure{break-inside:avoid}
thead{display:table-header-group}
h2,summary,caption{break-after:avoid}
figure{overflow:visible}
details::details-content{content-visibility:visible;block-size:auto}
span{print-color-adjust:exact;-webkit-print-color-adjust:exact}
}
"""


def page_of(document: Document, note: str = "") -> str:
    """Return a document as the text of an HTML file, with a note at its foot."""
    pictures = list(_pictures(document.blocks))
    body = html_of(document, inline_of)
    title = escape(shown(plain(document.title)) or "shardviz")
    style = _STYLE.strip().replace("\n", "") + (page_style(pictures) if pictures else "")
    foot = f"<footer>{escape(note)}</footer>" if note else ""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1"><meta name="color-scheme" '
        f'content="light dark"><title>{title}</title><style>{style}</style></head><body><main>'
        '<label class="theme"><input type="checkbox" id="theme"><span> dark mode</span><span> light mode</span></label>'
        f"{page_hatches(pictures)}{body}{foot}</main></body></html>\n"
    )


def _pictures(blocks: Iterable[Block]) -> Iterator[Picture]:
    for block in blocks:
        if isinstance(block, Figure) and isinstance(block.of, Picture):
            yield block.of
        elif isinstance(block, Section | SideBySide):
            yield from _pictures(block.blocks)
        elif isinstance(block, Table):
            yield from _pictures(part for row in block.rows for part in row.detail)
