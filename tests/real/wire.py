"""One HTTP call, with everything that can happen to it as a value.

A connection for each call: what the engines do when a caller gives up is one of the things that are measured,
so nothing is reused, nothing is repeated, and giving up is a close by reset (as the gateway does it).
"""
import dataclasses
import http.client
import json
import socket
import struct
import threading
import time
import urllib.parse


@dataclasses.dataclass
class Answer:
    """status 0 means that no answer came; failure then says in what way."""

    status: int = 0
    text: str = ""
    headers: dict = dataclasses.field(default_factory=dict)
    seconds: float = 0.0
    failure: str = ""

    @property
    def body(self):
        try:
            return json.loads(self.text)
        except ValueError:
            return None

    def __str__(self):
        what = f"{self.status} {self.text.strip()[:300]}" if self.status else self.failure
        return f"{what} ({self.seconds:.2f} s)"


def failure_of(error):
    if isinstance(error, (TimeoutError, socket.timeout)):
        return "timed out"
    if isinstance(error, ConnectionRefusedError):
        return "refused"
    if isinstance(error, (ConnectionResetError, BrokenPipeError)):
        return "reset"
    if isinstance(error, http.client.RemoteDisconnected):
        return "closed without an answer"
    return f"{type(error).__name__}: {error}"


def call(base, method, path, body=None, timeout=10.0, headers=None):
    """body: None sends none, str is sent as it is, all else as JSON."""
    url = urllib.parse.urlsplit(base)
    sent = dict(headers or {})
    data = None
    if body is not None:
        data = body if isinstance(body, str) else json.dumps(body)
        sent.setdefault("content-type", "application/json")
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=timeout)
    began = time.monotonic()
    try:
        connection.request(method, path, data, sent)
        answer = connection.getresponse()
        text = answer.read().decode("utf-8", "replace")
        got = {k.lower(): v for k, v in answer.getheaders()}
        return Answer(answer.status, text, got, time.monotonic() - began)
    except (OSError, http.client.HTTPException) as error:
        if connection.sock is not None:
            # A linger of zero makes the close a reset.
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return Answer(failure=failure_of(error), seconds=time.monotonic() - began)
    finally:
        connection.close()


class Pending:
    """A call that runs in a thread of its own; answer() waits for it."""

    def __init__(self, *args, **kwargs):
        self._answer = None
        self._thread = threading.Thread(target=self._run, args=args, kwargs=kwargs, daemon=True)
        self.began = time.monotonic()
        self._thread.start()

    def _run(self, *args, **kwargs):
        self._answer = call(*args, **kwargs)
        self.ended = time.monotonic()

    def done(self):
        return not self._thread.is_alive()

    def answer(self, timeout=60.0):
        self._thread.join(timeout)
        return self._answer if self.done() else Answer(failure=f"still waiting after {timeout} s")


def wait_until(condition, timeout, what, every=0.05):
    """Asks until the condition holds and returns what it gave; the error names what was awaited."""
    end = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {timeout} s")
        time.sleep(every)


def in_url(host):
    """An IPv6 address gets its brackets."""
    return f"[{host}]" if ":" in host else host


def family_of(host):
    return socket.AF_INET6 if ":" in host else socket.AF_INET
