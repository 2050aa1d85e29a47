"""A small HTTP/1.1 server on one asyncio loop: a handler that blocks holds up every other request, as in SGLang's server."""
import asyncio
import dataclasses
import json
import socket
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qsl, urlsplit

REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 500: "Internal Server Error", 503: "Service Unavailable"}


@dataclasses.dataclass
class Request:
    method: str
    path: str
    query: dict[str, str]
    body: dict[str, Any]

    @property
    def route(self) -> str:
        return f"{self.method} {self.path}"


@dataclasses.dataclass
class Answer:
    """body: None is an empty one, str goes as text, all else as JSON."""

    status: int = 200
    body: Any = None

    def encoded(self) -> bytes:
        kind = "text/plain" if self.body is None or isinstance(self.body, str) else "application/json"
        text = "" if self.body is None else self.body if isinstance(self.body, str) else json.dumps(self.body)
        body = text.encode()
        head = f"HTTP/1.1 {self.status} {REASONS[self.status]}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        return head.encode() + body


Handler = Callable[[Request], Awaitable[Answer]]


async def read_request(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, target, _ = head[0].split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
    text = await reader.readexactly(int(headers.get("content-length") or 0))
    url = urlsplit(target)
    body = json.loads(text) if text else {}
    return Request(method, url.path, dict(parse_qsl(url.query)), body if isinstance(body, dict) else {})


async def serve_connection(handler: Handler, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            request = await read_request(reader)
            writer.write((await handler(request)).encoded())
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass  # The peer has gone.
    finally:
        writer.close()


async def serve(listener: socket.socket, handler: Handler) -> None:
    """Until the process ends."""
    server = await asyncio.start_server(lambda r, w: serve_connection(handler, r, w), sock=listener, limit=1 << 20)
    async with server:
        await server.serve_forever()
