"""A shard map of many cells as a PNG, drawn with NumPy alone.

Every cell is a tile of its own colour with its device numbers in a small bitmap face, so that the picture reads on
light and dark pages; the ground is transparent.

>>> from shardviz.layouts import layout
>>> from shardviz.view.scene import build_scene
>>> picture = picture_of(build_scene(layout((512, 64), ("data", "model"), {"data": 32, "model": 16})))
>>> picture.png[:4], picture.width > 300
(b'\\x89PNG', True)
"""

from __future__ import annotations

import base64
import struct
import zlib
from dataclasses import dataclass
from functools import cache

import numpy as np

from shardviz.notation import axis_name
from shardviz.paint.theme import axis_colours
from shardviz.view.scene import Scene, nested_coordinates

MAX_WIDTH, MAX_HEIGHT = 1280, 1600
"""Pixels; a picture that would be larger is not drawn."""

_GLYPHS = {
    "0": "01110 10001 10011 10101 11001 10001 01110",
    "1": "00100 01100 00100 00100 00100 00100 01110",
    "2": "01110 10001 00001 00110 01000 10000 11111",
    "3": "11110 00001 00001 01110 00001 00001 11110",
    "4": "00010 00110 01010 10010 11111 00010 00010",
    "5": "11111 10000 11110 00001 00001 10001 01110",
    "6": "00110 01000 10000 11110 10001 10001 01110",
    "7": "11111 00001 00010 00100 01000 01000 01000",
    "8": "01110 10001 10001 01110 10001 10001 01110",
    "9": "01110 10001 10001 01111 00001 00010 01100",
    "-": "00000 00000 00000 01110 00000 00000 00000",
    ",": "00000 00000 00000 00000 00100 00100 01000",
    "…": "00000 00000 00000 00000 00000 00000 10101",
    "+": "00000 00100 00100 11111 00100 00100 00000",
    "/": "00001 00001 00010 00100 01000 10000 10000",
    " ": "00000 00000 00000 00000 00000 00000 00000",
}
_SMALL = {
    "0": "111 101 101 101 111",
    "1": "010 110 010 010 111",
    "2": "111 001 111 100 111",
    "3": "111 001 011 001 111",
    "4": "101 101 111 001 001",
    "5": "111 100 111 001 111",
    "6": "111 100 111 101 111",
    "7": "111 001 010 010 010",
    "8": "111 101 111 101 111",
    "9": "111 101 111 001 111",
    "-": "000 000 111 000 000",
    ",": "000 000 000 010 100",
    "…": "000 000 000 000 101",
    "+": "000 010 111 010 000",
    "/": "001 001 010 100 100",
    " ": "000 000 000 000 000",
}
_ORDER = "0123456789-,…+/ "
_CODE = np.zeros(0x2027, np.intp)
for _place, _char in enumerate(_ORDER):
    _CODE[ord(_char)] = _place


def _face(glyphs: dict[str, str]) -> np.ndarray:
    """The bitmaps, glyph x row x column, one empty column after each glyph."""
    face = np.array([[[int(b) for b in line] for line in glyphs[c].split()] for c in _ORDER], np.uint8)
    return np.pad(face, ((0, 0), (0, 0), (0, 1)))


_FACES = (_face(_GLYPHS), _face(_SMALL))
_CLEAR, _TILE, _LINE, _FIRST_AXIS = 0, 1, 3, 4
_GAP, _PANEL_GAP, _STACK = 1, 14, 3


@dataclass(frozen=True)
class Picture:
    """A shard map as a PNG.

    Attributes:
        png: the file's bytes.
        width, height: in pixels.
        cell: width and height of a cell in pixels.
        origins: x and y of the first cell of every panel.
    """

    png: bytes
    width: int
    height: int
    cell: tuple[int, int]
    origins: tuple[tuple[int, int], ...]


def picture_of(scene: Scene) -> Picture | None:
    """The scene as a PNG with transparent ground.

    Args:
        scene: what to draw; panels stand side by side as far as they fit.

    Returns:
        The picture; None where the numbers would not be readable within `MAX_WIDTH` x `MAX_HEIGHT`.
    """
    if scene.cells > 4096:
        return None
    labels = [cell for panel in scene.labels() for row in panel for cell in row]
    longest = max(map(len, labels))
    if longest > 12:
        return None
    panels, rows, columns = scene.devices.shape[:3]
    bars = [side.coordinates() if side.ways > 1 else [] for side in (scene.rows, scene.columns)]
    for face in _FACES:
        stack = _STACK * scene.stacked
        cell_w, cell_h = longest * face.shape[2] + 5 + stack, face.shape[1] + 6 + stack
        thick = [
            max(len(text) for _, spans in bars[0] for text, _ in spans) * face.shape[2] + 5 if bars[0] else 0,
            face.shape[1] + 6,
        ]
        left, top = (len(b) * (size + _GAP) + 2 if b else 0 for b, size in zip(bars, thick, strict=True))
        panel_w, panel_h = left + columns * cell_w, top + rows * cell_h
        frame, heads = _outer(scene, face, panel_w, panel_h), []
        across = max(1, min(panels, (MAX_WIDTH + _PANEL_GAP) // (panel_w + _PANEL_GAP)))
        if frame is not None:
            across = scene.nest().panels.shape[1]
            height, width = frame.shape
        else:  # each panel says at its head where it stands
            heads = nested_coordinates([side for side in scene.depth if side.ways > 1])
            panel_h += len(heads) * (face.shape[1] + 6 + _GAP) + 2 * bool(heads)
            down = -(-panels // across)
            width, height = across * (panel_w + _PANEL_GAP) - _PANEL_GAP, down * (panel_h + _PANEL_GAP) - _PANEL_GAP
        if width <= MAX_WIDTH and height <= MAX_HEIGHT:
            break
    else:
        return None
    image = np.zeros((height, width), np.uint8) if frame is None else frame
    places = np.arange(panels) if frame is None else np.argsort(scene.nest().panels.ravel())
    y0, x0 = height - _extent(panel_h, -(-panels // across)), width - _extent(panel_w, across)
    palette = _palette(scene)
    tiles = _tiles(labels, longest, face, cell_w, cell_h, stack).reshape(panels, rows, columns, cell_h, cell_w)
    below, beside = scene.edges
    tiles[:, :-1, :, -2:, :][below] = _LINE
    tiles[:, :, :-1, :, -2:][beside] = _LINE
    tiles = tiles.transpose(0, 1, 3, 2, 4)
    tiles = tiles.reshape(panels, rows * cell_h, columns * cell_w)
    edge, origins = _edges(scene, bars, face, cell_w, cell_h, left, top), []
    for panel in range(panels):
        down, right = divmod(int(places[panel]), across)
        y, x = y0 + down * (panel_h + _PANEL_GAP), x0 + right * (panel_w + _PANEL_GAP)
        end = y + panel_h
        image[end - len(edge) : end, x : x + panel_w] = edge
        image[end - len(tiles[panel]) : end, x + left : x + panel_w] = tiles[panel]
        origins.append((x + left, end - len(tiles[panel])))
        spot, own = image[y:end, x : x + panel_w], [(axis, [(_at(spans, panel), 1)]) for axis, spans in heads]
        _draw_bars(scene, spot, own, face, cell_h, left, panel_w - left, upright=False, gap=_GAP)
    return Picture(encode_png(image, palette), width, height, (cell_w, cell_h), tuple(origins))


def _at(spans: list[tuple[str, int]], place: int) -> str:
    """The text of the span that a place is in."""
    for text, count in spans:
        if place < count:
            return text
        place -= count
    return ""


def _extent(panel: int, count: int) -> int:
    """Pixels of so many panels in a line."""
    return count * (panel + _PANEL_GAP) - _PANEL_GAP


def _outer(scene: Scene, face: np.ndarray, panel_w: int, panel_h: int) -> np.ndarray | None:
    """The ground of all panels with the coordinate bars of the dimensions that they are cut along, outermost first.

    None where there is one panel, or the panels would not fit in their nest.
    """
    if not scene.depth:
        return None
    nest = scene.nest()
    down, across = nest.panels.shape
    bars = [nested_coordinates([s for s in sides if s.ways > 1]) for sides in (nest.rows, nest.columns)]
    widest = max((len(text) for _, spans in bars[0] for text, _ in spans), default=0)
    thick = (widest * face.shape[2] + 5, face.shape[1] + 6)
    left, top = (len(b) * (size + _GAP) + 4 if b else 0 for b, size in zip(bars, thick, strict=True))
    width, height = left + _extent(panel_w, across), top + _extent(panel_h, down)
    if width > MAX_WIDTH or height > MAX_HEIGHT:
        return None
    ground = np.zeros((height, width), np.uint8)
    _draw_bars(scene, ground, bars[1], face, thick[1], left, panel_w + _PANEL_GAP, upright=False, gap=_PANEL_GAP)
    _draw_bars(scene, ground, bars[0], face, thick[0], top, panel_h + _PANEL_GAP, upright=True, gap=_PANEL_GAP)
    return ground


def _tiles(labels: list[str], longest: int, face: np.ndarray, cell_w: int, cell_h: int, stack: int) -> np.ndarray:
    """Every cell as a bitmap of palette places: cell x row x column, its number centred; behind it another card."""
    text = np.array([label.center(longest) for label in labels], dtype=f"<U{longest}")
    codes = _CODE[text.view(np.uint32).reshape(len(labels), longest)]
    _, glyph_h, glyph_w = face.shape
    strip = face[codes].transpose(0, 2, 1, 3).reshape(len(labels), glyph_h, longest * glyph_w)
    tiles = np.full((len(labels), cell_h, cell_w), _TILE, np.uint8)
    tiles[:, -_GAP:, :] = _CLEAR
    tiles[:, :, -_GAP:] = _CLEAR
    if stack:  # a line of the ground around the first card, and the second one's corner showing
        tiles[:, -_GAP - stack : -_GAP - stack + 1, : -_GAP - stack + 1] = _CLEAR
        tiles[:, : -_GAP - stack + 1, -_GAP - stack : -_GAP - stack + 1] = _CLEAR
        tiles[:, :stack, -_GAP - stack :] = _CLEAR
        tiles[:, -_GAP - stack :, :stack] = _CLEAR
        cell_w, cell_h = cell_w - stack, cell_h - stack
    y, x = (cell_h - _GAP - glyph_h) // 2, (cell_w - _GAP - strip.shape[2] + 1) // 2
    tiles[:, y : y + glyph_h, x : x + strip.shape[2]] += strip
    return tiles


def _edges(scene: Scene, bars: list, face: np.ndarray, cell_w: int, cell_h: int, left: int, top: int) -> np.ndarray:
    """One panel's ground with the coordinate bars of its rows and columns."""
    ground = np.zeros((top + scene.rows.cells * cell_h, left + scene.columns.cells * cell_w), np.uint8)
    for upright, side_bars in enumerate(bars[::-1]):
        thick = ((left if upright else top) - 2) // max(1, len(side_bars)) - _GAP
        begin, step = (top, cell_h) if upright else (left, cell_w)
        _draw_bars(scene, ground, side_bars, face, thick, begin, step, upright=bool(upright), gap=_GAP)
    return ground


def _draw_bars(
    scene: Scene,
    ground: np.ndarray,
    bars: list,
    face: np.ndarray,
    thick: int,
    begin: int,
    step: int,
    *,
    upright: bool,
    gap: int,
) -> None:
    """Coordinate bars along a side: from pixel `begin` on, a place every `step` pixels, each bar `thick` pixels."""
    names = list(scene.mesh.names)
    for place, (axis, spans) in enumerate(bars):
        fill = _FIRST_AXIS + 2 * names.index(axis_name(axis))
        edge, at = place * (thick + _GAP), begin
        for text, count in spans:
            end = at + count * step - gap
            spot = ground[at:end, edge : edge + thick] if upright else ground[edge : edge + thick, at:end]
            spot[:] = fill
            _write(spot, text, face)
            at += count * step


def _write(spot: np.ndarray, text: str, face: np.ndarray) -> None:
    """Adds one to the palette places under the text's strokes, in the middle of `spot`, where it fits."""
    if not set(text) <= set(_ORDER):
        return
    strip = np.concatenate([face[_ORDER.index(c)] for c in text], axis=1)[:, :-1]
    y, x = (spot.shape[0] - strip.shape[0]) // 2, (spot.shape[1] - strip.shape[1]) // 2
    if y >= 0 and x >= 0:
        spot[y : y + strip.shape[0], x : x + strip.shape[1]] += strip


def _palette(scene: Scene) -> list[str]:
    """Clear, tile, the tile's ink, lines between processes, then each axis's fill and ink."""
    return [
        "#000000",
        "#D7DFE8",
        "#17202B",
        "#7A7A7A",
        *(c for a in axis_colours(scene.mesh).values() for c in (a.light, a.ink)),
    ]


def encode_png(image: np.ndarray, palette: list[str]) -> bytes:
    """A PNG file with a palette, whose first colour is transparent.

    Args:
        image: palette places, height x width, `uint8`.
        palette: colours `#RRGGBB`, at most 256.

    Returns:
        The file's bytes: IHDR, PLTE, tRNS, IDAT and IEND, as the W3C's PNG specification has them. (Pillow takes half
        as long again, and a shard map has to be there at once.)
    """
    height, width = image.shape
    depth = 4 if len(palette) <= 16 else 8
    if depth == 4:
        even = image if width % 2 == 0 else np.pad(image, ((0, 0), (0, 1)))
        image = even[:, ::2] << 4 | even[:, 1::2]
    lines = np.zeros((height, image.shape[1] + 1), np.uint8)
    lines[:, 1:] = image
    colours = b"".join(bytes.fromhex(c[1:]) for c in palette)
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, depth, 3, 0, 0, 0)),
        (b"PLTE", colours),
        (b"tRNS", b"\x00"),
        (b"IDAT", zlib.compress(lines.tobytes(), 5)),
        (b"IEND", b""),
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )


@cache
def hatch_url() -> str:
    """Hatching that reads on light and dark pages, as the `data:` address of a small PNG."""
    y, x = np.indices((24, 24))
    image = ((x + y) % 8 == 0).astype(np.uint8)
    return "data:image/png;base64," + base64.b64encode(encode_png(image, ["#000000", "#949494"])).decode()
