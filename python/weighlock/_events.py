"""The stream of events without input or output: server-sent events decoded, and what to ask after a cut.

`EventFeed` is driven by both clients: `request()` says what to send, `feed()` turns bytes into events, `pause()` says how
long to wait before the next try. The gateway tells where a stream begins, so nothing is missed between two connections.
"""

from __future__ import annotations

import json
import urllib.parse

from ._flows import Call
from .errors import BadAnswer, WeighlockError
from .values import Event, read_event

IDLE_S = 45.0  # three heartbeats of the gateway: a connection that is silent for longer is dead
_PAUSE_FIRST_S = 0.2
_PAUSE_LAST_S = 5.0
_LINE_BYTES_MAX = 8 * 1024 * 1024  # a record that names a thousand workers is some hundred KB


class Decoder:
    """Bytes of `text/event-stream` to (kind, data). Data without an id, and ids without data, are legal.

    An id counts when its block has ended: a cut within an event must not skip it.
    """

    def __init__(self) -> None:
        self.last_id: str | None = None
        self._rest = b""
        self._id: str | None = None
        self._kind = ""
        self._data: list[str] = []

    def feed(self, data: bytes) -> list[tuple[str, str]]:
        self._rest += data
        *lines, self._rest = self._rest.split(b"\n")
        if len(self._rest) > _LINE_BYTES_MAX:
            raise BadAnswer(f"a line of the event stream has more than {_LINE_BYTES_MAX} bytes")
        found: list[tuple[str, str]] = []
        for line in lines:
            self._line(line.rstrip(b"\r").decode("utf-8", "replace"), found)
        return found

    def _line(self, line: str, found: list[tuple[str, str]]) -> None:
        if not line:
            if self._data:
                found.append((self._kind or "message", "\n".join(self._data)))
            if self._id is not None:
                self.last_id = self._id
            self._kind, self._data = "", []
            return
        name, _, value = line.partition(":")  # a line that begins with a colon is a comment: the heartbeat
        value = value.removeprefix(" ")
        if name == "id":
            self._id = value
        elif name == "event":
            self._kind = value
        elif name == "data":
            self._data.append(value)


class EventFeed:
    """The state of one subscription, over as many connections as it takes."""

    def __init__(self, pair: str | None, after: int | None) -> None:
        self._pair = pair
        self._last: str | None = None if after is None else str(after)
        self._decoder = Decoder()
        self._fruitless = 0

    def request(self) -> Call:
        self._decoder = Decoder()
        query = "" if self._pair is None else "?" + urllib.parse.urlencode({"pair": self._pair})
        headers = {"Accept": "text/event-stream"}
        if self._last is not None:
            headers["Last-Event-ID"] = self._last
        return Call("GET", "/v1/events" + query, headers=headers, timeout=IDLE_S)

    def feed(self, data: bytes) -> list[Event]:
        events: list[Event] = []
        for kind, text in self._decoder.feed(data):
            try:
                value = json.loads(text)
            except ValueError:
                raise BadAnswer(f"an event's data isn't JSON: {text[:80]!r}") from None
            if kind == "error":
                raise WeighlockError(f"the gateway can't read its journal: {value}", code="journal_failed")
            events.append(read_event(value))
        if self._decoder.last_id is not None:
            self._last = self._decoder.last_id
            self._fruitless = 0
        return events

    def pause(self) -> float:
        """Seconds to wait before the next connection; longer with each that brought nothing."""
        self._fruitless += 1
        return min(_PAUSE_LAST_S, _PAUSE_FIRST_S * 2.0 ** (self._fruitless - 1))
