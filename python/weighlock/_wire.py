"""HTTP/1.1 as far as one call needs it, without any input or output: bytes in, bytes out.

Both clients drive this one parser, one from a socket, one from asyncio's streams. The standard library's own client
can't be driven by asyncio, and its time-out is for each read, not for the call.

One call has one connection (`Connection: close`). Calls come once a training step, so a connection costs nothing that
matters, and none goes stale, is shared between threads, or is inherited by a fork.
"""

from __future__ import annotations

import urllib.parse
from dataclasses import dataclass, field
from typing import Mapping

from .errors import BadAnswer, InvalidRequest, mistake

HEAD_BYTES_MAX = 64 * 1024  # as the C++ client's
BODY_BYTES_MAX = 64 * 1024 * 1024  # as the C++ client's; metadata of large models is tens of MB
_LINE_BYTES_MAX = 1024  # a chunk's size with extensions


@dataclass(frozen=True, slots=True)
class Address:
    """Where a gateway is: parsed from its URL."""

    host: str
    port: int
    secure: bool
    base: str  # path before the API's own, without a slash at the end

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{'https' if self.secure else 'http'}://{self.authority}{self.base}"


def parse_url(text: str) -> Address:
    """`http://host[:port][/path]` or https; a user, a query or a fragment is refused."""

    def bad(what: str) -> InvalidRequest:
        return mistake(f"gateway URL {text[:200]!r}: {what}", "url")

    try:
        parts = urllib.parse.urlsplit(text)
        port = parts.port
    except ValueError as failure:
        raise bad(str(failure)) from None
    if parts.scheme not in ("http", "https"):
        raise bad("must begin with http:// or https://")
    if "@" in parts.netloc:
        raise mistake("gateway URL: a user or password isn't taken; give the key as key=", "url")
    if not parts.hostname or any(ord(c) <= 0x20 or ord(c) >= 0x7F for c in text):
        raise bad("has no host, or blanks, control characters or non-ASCII in it")
    if parts.query or parts.fragment:
        raise bad("must have neither query nor fragment")
    secure = parts.scheme == "https"
    return Address(parts.hostname, port or (443 if secure else 80), secure, parts.path.rstrip("/"))


def encode_request(address: Address, method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
    """A whole request. Header values must be free of line breaks; the callers' are checked where they come in."""
    lines = [f"{method} {address.base}{target} HTTP/1.1", f"Host: {address.authority}", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    text = "\r\n".join(lines) + "\r\n\r\n"
    if any("\n" in line or "\r" in line for line in lines):
        raise mistake(f"{method} {target[:200]}: a header has a line break")
    return text.encode("latin-1", "strict") + (body or b"")


@dataclass(slots=True)
class Head:
    """Status and headers of an answer; header names are in lower case."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)


class ResponseReader:
    """Turns the bytes of a connection into one answer.

    Feed bytes as they come, `end()` when the peer has closed. `head` is there once it was read, `take()` gives what
    came of the body since, `complete` says that nothing follows. Wrong bytes are `BadAnswer`. `end()` returns False if
    the answer was cut.
    """

    def __init__(self, body_bytes_max: int | None = BODY_BYTES_MAX) -> None:
        self.head: Head | None = None
        self.complete = False
        self._buffer = bytearray()
        self._body = bytearray()
        self._left: int | None = None  # of the body, or of the present chunk; None: until the peer closes
        self._chunked = False
        self._trailer = False  # past the last chunk
        self._after_chunk = False  # the line break behind a chunk's data comes next
        self._total = 0
        self._most = body_bytes_max

    def feed(self, data: bytes) -> None:
        self._buffer += data
        if self.head is None and not self._read_head():
            return
        while not self.complete and (self._read_chunk_line() if self._between_chunks() else self._read_data()):
            pass

    def end(self) -> bool:
        if self.head is not None and not self._chunked and self._left is None:
            self.complete = True
        return self.complete

    def take(self) -> bytes:
        data = bytes(self._body)
        self._body.clear()
        return data

    @property
    def status(self) -> int:
        """Of the answer; 0 while none has come."""
        return self.head.status if self.head is not None else 0

    @property
    def begun(self) -> bool:
        """Whether any byte of an answer has come."""
        return self.head is not None or bool(self._buffer)

    def _read_head(self) -> bool:
        while True:
            at = self._buffer.find(b"\r\n\r\n")
            if at < 0 or at > HEAD_BYTES_MAX:
                if len(self._buffer) > HEAD_BYTES_MAX:
                    raise BadAnswer(f"the answer's headers have more than {HEAD_BYTES_MAX} bytes")
                return False
            head = _parse_head(bytes(self._buffer[:at]))
            del self._buffer[: at + 4]
            if head.status >= 200:  # before that: 100 Continue and its like, which an answer follows
                break
        self.head = head
        self._frame(head)
        return True

    def _frame(self, head: Head) -> None:
        encoding = head.headers.get("transfer-encoding", "")
        length = head.headers.get("content-length")
        if encoding:
            if encoding.lower() != "chunked" or length is not None:
                raise BadAnswer(f"the answer's body has the unknown framing {encoding[:80]!r}")
            self._chunked = True
            self._left = 0
        elif head.status in (204, 304):
            self.complete = True
        elif length is not None:
            if not length.isascii() or not length.isdigit() or len(length) > 18:
                raise BadAnswer(f"the answer's Content-Length is {length[:80]!r}")
            self._left = int(length)
            self.complete = self._left == 0
            self._count(self._left)

    def _between_chunks(self) -> bool:
        return self._chunked and (self._left == 0 or self._trailer)

    def _read_chunk_line(self) -> bool:
        at = self._buffer.find(b"\r\n")
        if at < 0:
            if len(self._buffer) > _LINE_BYTES_MAX:
                raise BadAnswer("a chunk's size has no end")
            return False
        line = bytes(self._buffer[:at])
        del self._buffer[: at + 2]
        if self._trailer:
            self.complete = not line
            return True
        if self._after_chunk:
            if line:
                raise BadAnswer("a chunk is longer than its size")
            self._after_chunk = False
            return True
        size = line.split(b";", 1)[0].strip()
        if not size or len(size) > 15 or any(c not in b"0123456789abcdefABCDEF" for c in size):
            raise BadAnswer(f"a chunk's size is {line[:40]!r}")
        self._left = int(size, 16)
        self._trailer = self._left == 0
        self._after_chunk = not self._trailer
        self._count(self._left)
        return True

    def _read_data(self) -> bool:
        size = len(self._buffer) if self._left is None else min(self._left, len(self._buffer))
        if size == 0:
            return False
        self._body += self._buffer[:size]
        del self._buffer[:size]
        if self._left is None:
            self._count(size)
            return False
        self._left -= size
        if not self._chunked:
            self.complete = self._left == 0
        return True

    def _count(self, size: int) -> None:
        self._total += size
        if self._most is not None and self._total > self._most:
            raise BadAnswer(f"the answer's body has more than {self._most} bytes")


def _parse_head(data: bytes) -> Head:
    lines = data.decode("latin-1").split("\r\n")
    words = lines[0].split(" ", 2)
    good = len(words) >= 2 and words[0] in ("HTTP/1.1", "HTTP/1.0") and len(words[1]) == 3 and words[1].isdigit()
    if not good:
        raise BadAnswer(f"the answer begins with {lines[0][:80]!r}, which isn't HTTP/1.1")
    head = Head(int(words[1]))
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise BadAnswer(f"the answer has the header line {line[:80]!r}")
        name = name.lower()
        if name == "content-length" and head.headers.get(name, value.strip()) != value.strip():
            raise BadAnswer("the answer has two different Content-Lengths")
        head.headers[name] = value.strip()
    return head
