"""The tables of source locations at the top of an HLO module.

An instruction refers to a stack frame; a frame to a location and its parent frame; a location to a file, a function and
a line. Four tables, numbered from 1, contain them:

>>> table = FrameTable.parse('''FileNames
... 1 "/home/me/model.py"
... FunctionNames
... 1 "step"
... 2 "layer"
... FileLocations
... 1 {file_name_id=1 function_name_id=1 line=31 end_line=31 column=4 end_column=9}
... 2 {file_name_id=1 function_name_id=2 line=20 end_line=20 column=4 end_column=9}
... StackFrames
... 1 {file_location_id=1 parent_frame_id=1}
... 2 {file_location_id=2 parent_frame_id=2}''')
>>> [frame.short for frame in table.stack(2)]
['model.py:20', 'model.py:31']

`parent_frame_id` is printed one too high (a root has 1, and the frame above has its parent's number plus one) where
the root's is not written as 0: both spellings are read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from shardviz.records import Frame
from shardviz.records.source import nearer

_NAME = re.compile(r'(\d{1,18}) "((?>(?:[^"\\]++|\\.)*))"', re.ASCII)
_ROW = re.compile(r"(\d{1,18}) \{(.*)\}", re.ASCII)
_FIELD = re.compile(r"(?<!\w)(\w++)=(\d{1,18})(?!\d)", re.ASCII)
_ESCAPE = re.compile(r"\\([0-7]{3}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
TABLES = ("FileNames", "FunctionNames", "FileLocations", "StackFrames")


@dataclass(frozen=True)
class FrameTable:
    """Stack frames: number → (the frame, its parent's number or 0)."""

    frames: dict[int, tuple[Frame, int]]
    _innermost: dict[int, Frame | None] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def parse(cls, text: str) -> FrameTable:
        """Read the four tables of source places; text without them gives an empty table."""
        rows: dict[str, list[str]] = {name: [] for name in TABLES}
        current: list[str] = []
        for line in text.splitlines():
            line = line.strip()
            if line in rows:
                current = rows[line]
            elif line:
                current.append(line)
        files, functions = (
            {int(m[1]): unescape(m[2]) for line in rows[name] if (m := _NAME.match(line))} for name in TABLES[:2]
        )
        locations, stacks = (
            {int(m[1]): {k: int(v) for k, v in _FIELD.findall(m[2])} for line in rows[name] if (m := _ROW.match(line))}
            for name in TABLES[2:]
        )
        one_high = all(row.get("parent_frame_id", 0) > 0 for row in stacks.values())
        frames = {}
        for number, row in stacks.items():
            place = locations.get(row.get("file_location_id", 0), {})
            frame = Frame(
                files.get(place.get("file_name_id", 0), ""),
                place.get("line", 0),
                functions.get(place.get("function_name_id", 0), ""),
            )
            frames[number] = (frame, row.get("parent_frame_id", 0) - one_high)
        return cls(frames)

    def stack(self, frame_id: int) -> tuple[Frame, ...]:
        """Return a frame and those around it, innermost first; empty for an unknown number."""
        frames: list[Frame] = []
        while frame_id in self.frames and len(frames) <= len(self.frames):
            frame, frame_id = self.frames[frame_id]
            frames.append(frame)
        return tuple(frames)

    def innermost(self, frame_id: int) -> Frame | None:
        """Return the innermost line of the user's code on a stack; see `shardviz.records.source.innermost`."""
        waiting: list[int] = []
        walked = set[int]()
        while frame_id in self.frames and frame_id not in self._innermost and frame_id not in walked:
            waiting.append(frame_id)
            walked.add(frame_id)
            frame_id = self.frames[frame_id][1]
        frame = self._innermost.get(frame_id)
        for number in reversed(waiting):
            frame = self._innermost[number] = nearer(self.frames[number][0], frame)
        return frame


def unescape(text: str) -> str:
    r"""Return the text of a quoted HLO string without its escapes; characters beyond ASCII are escaped byte by byte.

    >>> unescape(r"jos\303\251/a\"b")
    'josé/a"b'
    """
    if "\\" not in text:
        return text
    raw = _ESCAPE.sub(_letter, text)
    try:
        return raw.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return raw


def _letter(escape: re.Match[str]) -> str:
    code = escape[1]
    if len(code) == 3:
        return chr(int(code[1:], 16) if code[0] == "x" else int(code, 8))
    return {"n": "\n", "t": "\t", "r": "\r"}.get(code, code)
