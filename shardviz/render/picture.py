"""A shard map of many cells as a PNG, drawn with NumPy alone.

Every cell is a tile of its own colour with its device numbers in a small bitmap face, so that the picture reads on
light and dark pages; the ground is transparent.

>>> from shardviz.layout import layout
>>> from shardviz.render.scene import build_scene
>>> png, width, height = picture_png(build_scene(layout((512, 64), ("data", "model"), {"data": 32, "model": 16})))
>>> png[:4], width > 300
(b'\\x89PNG', True)
"""

from __future__ import annotations

import struct
import zlib

import numpy as np

from shardviz.notation import axis_name
from shardviz.render.scene import Scene
from shardviz.render.theme import axis_colours

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
    " ": "000 000 000 000 000",
}
_ORDER = "0123456789-,… "
_CODE = np.zeros(0x2027, np.intp)
for _place, _char in enumerate(_ORDER):
    _CODE[ord(_char)] = _place


def _face(glyphs: dict[str, str]) -> np.ndarray:
    """The bitmaps, glyph x row x column, one empty column after each glyph."""
    face = np.array([[[int(b) for b in line] for line in glyphs[c].split()] for c in _ORDER], np.uint8)
    return np.pad(face, ((0, 0), (0, 0), (0, 1)))


_FACES = (_face(_GLYPHS), _face(_SMALL))
_CLEAR, _TILE, _FIRST_AXIS = 0, 1, 3
_GAP, _PANEL_GAP = 1, 14


def picture_png(scene: Scene) -> tuple[bytes, int, int] | None:
    """The scene as a PNG with transparent ground.

    Args:
        scene: what to draw; panels stand side by side as far as they fit.

    Returns:
        (the file's bytes, width, height) in pixels; None where the numbers would not be readable within
        `MAX_WIDTH` x `MAX_HEIGHT`.
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
        cell_w, cell_h = longest * face.shape[2] + 5, face.shape[1] + 6
        thick = [
            max(len(text) for _, spans in bars[0] for text, _ in spans) * face.shape[2] + 5 if bars[0] else 0,
            cell_h,
        ]
        left, top = (len(b) * (size + _GAP) + 2 if b else 0 for b, size in zip(bars, thick, strict=True))
        panel_w, panel_h = left + columns * cell_w, top + rows * cell_h
        across = max(1, min(panels, (MAX_WIDTH + _PANEL_GAP) // (panel_w + _PANEL_GAP)))
        down = -(-panels // across)
        width, height = across * (panel_w + _PANEL_GAP) - _PANEL_GAP, down * (panel_h + _PANEL_GAP) - _PANEL_GAP
        if width <= MAX_WIDTH and height <= MAX_HEIGHT:
            break
    else:
        return None
    image = np.zeros((height, width), np.uint8)
    palette = _palette(scene)
    tiles = _tiles(labels, longest, face, cell_w, cell_h)
    tiles = tiles.reshape(panels, rows, columns, cell_h, cell_w).transpose(0, 1, 3, 2, 4)
    tiles = tiles.reshape(panels, rows * cell_h, columns * cell_w)
    edge = _edges(scene, bars, face, cell_w, cell_h, left, top)
    for panel in range(panels):
        y, x = panel // across * (panel_h + _PANEL_GAP), panel % across * (panel_w + _PANEL_GAP)
        image[y : y + panel_h, x : x + panel_w] = edge
        image[y + top : y + panel_h, x + left : x + panel_w] = tiles[panel]
    return encode_png(image, palette), width, height


def _tiles(labels: list[str], longest: int, face: np.ndarray, cell_w: int, cell_h: int) -> np.ndarray:
    """Every cell as a bitmap of palette places: cell x row x column, its number centred."""
    text = np.array([label.center(longest) for label in labels], dtype=f"<U{longest}")
    codes = _CODE[text.view(np.uint32).reshape(len(labels), longest)]
    _, glyph_h, glyph_w = face.shape
    strip = face[codes].transpose(0, 2, 1, 3).reshape(len(labels), glyph_h, longest * glyph_w)
    tiles = np.full((len(labels), cell_h, cell_w), _TILE, np.uint8)
    tiles[:, -_GAP:, :] = _CLEAR
    tiles[:, :, -_GAP:] = _CLEAR
    y, x = (cell_h - _GAP - glyph_h) // 2, (cell_w - _GAP - strip.shape[2] + 1) // 2
    tiles[:, y : y + glyph_h, x : x + strip.shape[2]] += strip
    return tiles


def _edges(scene: Scene, bars: list, face: np.ndarray, cell_w: int, cell_h: int, left: int, top: int) -> np.ndarray:
    """One panel's ground with the coordinate bars of its rows and columns."""
    names = list(scene.mesh.names)
    ground = np.zeros((top + scene.rows.cells * cell_h, left + scene.columns.cells * cell_w), np.uint8)
    for upright, side_bars in enumerate(bars[::-1]):
        thick = ((left if upright else top) - 2) // max(1, len(side_bars)) - _GAP
        at_cell, step = (top, cell_h) if upright else (left, cell_w)
        for place, (axis, spans) in enumerate(side_bars):
            fill = _FIRST_AXIS + 2 * names.index(axis_name(axis))
            begin, at = place * (thick + _GAP), at_cell
            for text, count in spans:
                end = at + count * step - _GAP
                spot = ground[at:end, begin : begin + thick] if upright else ground[begin : begin + thick, at:end]
                spot[:] = fill
                _write(spot, text, face)
                at += count * step
    return ground


def _write(spot: np.ndarray, text: str, face: np.ndarray) -> None:
    """Adds one to the palette places under the text's strokes, in the middle of `spot`, where it fits."""
    if not set(text) <= set(_ORDER):
        return
    strip = np.concatenate([face[_ORDER.index(c)] for c in text], axis=1)[:, :-1]
    y, x = (spot.shape[0] - strip.shape[0]) // 2, (spot.shape[1] - strip.shape[1]) // 2
    if y >= 0 and x >= 0:
        spot[y : y + strip.shape[0], x : x + strip.shape[1]] += strip


def _palette(scene: Scene) -> list[str]:
    """Clear, tile, the tile's ink, then each axis's fill and ink."""
    return ["#000000", "#D7DFE8", "#17202B", *(c for a in axis_colours(scene.mesh).values() for c in (a.light, a.ink))]


def encode_png(image: np.ndarray, palette: list[str]) -> bytes:
    """A PNG file with a palette, whose first colour is transparent.

    Args:
        image: palette places, height x width, `uint8`.
        palette: colours `#RRGGBB`, at most 256.

    Returns:
        The file's bytes: IHDR, PLTE, tRNS, IDAT and IEND, as the W3C's PNG specification has them.
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
        (b"IDAT", zlib.compress(lines.tobytes(), 6)),
        (b"IEND", b""),
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )
