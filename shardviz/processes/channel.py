"""Messages over a socket, whole or not at all: each is pickled, preceded by its length, and nobody waits in the middle.

Neither side blocks in sending or receiving: what cannot be sent yet is kept, what has come in part is kept, and `pump`
waits for either to move on, for a limited time. So an interrupt, a busy peer or a stopped one never leaves half a
message in the line, and whoever pumps can look after other things meanwhile.

>>> one, other = map(Channel, socket.socketpair())
>>> one.put(("run", 1)); one.put(("stop", 1))
>>> one.pump(0), other.pump(1)
([], [('run', 1), ('stop', 1)])
>>> one.close()
>>> other.pump(1)
Traceback (most recent call last):
EOFError: the other side has closed
>>> other.close()
"""

from __future__ import annotations

import pickle
import selectors
import socket
import struct
from collections import deque
from typing import Any

_LENGTH = struct.Struct("!Q")
_PIECE = 2**20
_ROUND = 64  # pieces in each direction, after which it is the others' turn


class Channel:
    """One side of the line.

    Args:
        line: a connected stream socket; it belongs to the channel from now on.
        wake: a further socket whose bytes end `pump`'s waiting and are dropped.
    """

    def __init__(self, line: socket.socket, wake: socket.socket | None = None):
        self._line, self._wake = line, wake
        self._outgoing: deque[memoryview] = deque()
        self._incoming = bytearray()
        self._selector = getattr(selectors, "PollSelector", selectors.SelectSelector)()  # neither has a descriptor
        self._watched = selectors.EVENT_READ
        for given in filter(None, (line, wake)):
            given.setblocking(False)
            self._selector.register(given, selectors.EVENT_READ)

    def put(self, message: Any) -> None:
        """Gives a message to be sent; `pump` sends it."""
        body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        self._outgoing += memoryview(_LENGTH.pack(len(body))), memoryview(body)

    @property
    def unsent(self) -> bool:
        """Whether something still has to be sent."""
        return bool(self._outgoing)

    def pump(self, timeout: float | None) -> list[Any]:
        """Sends and receives what it can.

        Args:
            timeout: seconds to wait for either; None to wait for as long as it takes.

        Returns:
            The messages that have come whole.

        Raises:
            EOFError, OSError: if the other side is gone.
        """
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._outgoing else 0)
        if wanted != self._watched:
            self._selector.modify(self._line, wanted)
            self._watched = wanted
        events = {key.fileobj: mask for key, mask in self._selector.select(timeout)}
        if self._wake is not None and self._wake in events:
            self._take(self._wake)
        mask = events.get(self._line, 0)
        whole: list[Any] = []
        if mask & selectors.EVENT_READ:  # first: what was said before the end counts
            ended = self._receive()
            whole = list(self._messages())
            if ended and not whole:
                raise EOFError("the other side has closed")
        if mask & selectors.EVENT_WRITE:
            self._send()
        return whole

    def close(self) -> None:
        """Closes this side; it may be called twice."""
        self._selector.close()
        self._line.close()

    def _send(self) -> None:
        for _ in range(_ROUND):
            if not self._outgoing:
                return
            piece = self._outgoing[0]
            try:
                sent = self._line.send(piece[:_PIECE])
            except BlockingIOError:
                return
            except ConnectionError:  # receiving will tell, after what was said before
                self._outgoing.clear()
                return
            if sent == len(piece):
                self._outgoing.popleft()
            else:
                self._outgoing[0] = piece[sent:]

    def _receive(self) -> bool:
        """Takes in what has come; True if no more will."""
        for _ in range(_ROUND):
            piece = self._take(self._line)
            if piece is None:
                return False
            if not piece:
                return True
            self._incoming += piece
        return False

    def _take(self, line: socket.socket) -> bytes | None:
        try:
            return line.recv(_PIECE)
        except BlockingIOError:
            return None
        except ConnectionError:  # reset: the other side ended with something unread
            return b""

    def _messages(self) -> Any:
        while len(self._incoming) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._incoming)
            end = _LENGTH.size + length
            if len(self._incoming) < end:
                return
            body = bytes(memoryview(self._incoming)[_LENGTH.size : end])
            del self._incoming[:end]
            yield pickle.loads(body)
