"""A gateway that answers what a test tells it, for what a real one rarely does; and the path to the package."""
import contextlib
import io
import json
import os
import socket
import stat
import sys
import tempfile
import textwrap
import threading
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import weighlock  # noqa: E402

BUILD = "build/release"
KEY = "scripted-test-key-4711"


class Request:
    def __init__(self, data):
        head, _, self.body = data.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        self.method, self.target, _ = lines[0].split(" ")
        self.headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}

    @property
    def json(self):
        return json.loads(self.body)


def answer(status, body, kind="application/json", headers=""):
    """The bytes of an answer with a length."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return (f"HTTP/1.1 {status} Word\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n{headers}\r\n").encode() + data


def problem(status, code, detail, field=None):
    """A problem as the native API tells it."""
    body = {"type": f"urn:weighlock:error:{code}", "title": code, "status": status, "detail": detail, "instance": "/",
            "code": code, **({"field": field} if field else {})}
    return answer(status, body, "application/problem+json")


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


class ScriptedGateway:
    """Serves each connection by `script(request, connection)`: returned bytes are sent, then the connection is closed.

    A script may also send and wait by itself, and return anything else. Requests are kept in `requests`.
    """

    def __init__(self, script):
        self.script = script
        self.requests = []
        self.release = threading.Event()  # for scripts that hang: set at the end
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release.set()
        try:
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept, which close alone doesn't
        except OSError:
            pass
        self._listener.close()

    def _accept(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with connection:
            data = b""
            while not self._whole(data):
                try:
                    more = connection.recv(65536)
                except OSError:
                    return
                if not more:
                    return
                data += more
            request = Request(data)
            self.requests.append(request)
            try:
                sent = self.script(request, connection)
                if isinstance(sent, bytes):
                    connection.sendall(sent)
            except OSError:
                pass  # the client has gone, which some tests are about

    @staticmethod
    def _whole(data):
        head, mark, body = data.partition(b"\r\n\r\n")
        if not mark:
            return False
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                return len(body) >= int(line.split(b":")[1])
        return True


UPDATE = {
    "id": "u1", "pair": "p", "lineage": 1, "version": 3, "attempt": 1, "state": "succeeded", "phase": "resuming",
    "phases": [{"name": "loading", "duration_ms": 5}], "pause_ms": 7, "bytes": 100, "error": None,
    "workers": [{"id": "h:1", "url": "http://h:1", "verdict": "verified", "evidence": "spot", "switched_at": None,
                 "duration_ms": 4, "cause": None}]}  # fmt: skip
PAIR = {
    "name": "p", "mode": "disk", "lineage": 1, "committed": 3, "state": "idle", "rollback": "available",
    "workers": {"total": 1, "ready": 1, "quarantined": 0, "paused_by_other": 0}, "settings": {"quorum": "half"}}  # fmt: skip
WORKER = {"id": "h:1", "url": "http://h:1", "dialect": "sglang", "state": "ready", "version": 3, "incarnation": "a",
          "cause": None}


def open_descriptors():
    """How many sockets and pipes this process has open."""
    count = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            count += os.readlink(f"/proc/self/fd/{name}").startswith(("socket:", "pipe:"))
        except OSError:
            pass
    return count


class ControllerTest(unittest.TestCase):
    """A directory, and controllers whose gateway ends with the test."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="weighlock-python-")
        self.addCleanup(folder.cleanup)
        self.directory = folder.name
        # The gateway's log goes to our stderr, which a test may look at and nobody else needs.
        self.said = io.StringIO()
        self.enterContext_(contextlib.redirect_stderr(self.said))

    def enterContext_(self, manager):  # unittest has it from 3.11 on
        manager.__enter__()
        self.addCleanup(manager.__exit__, None, None, None)

    def path(self, name):
        return os.path.join(self.directory, name)

    def program(self, text, name="program"):
        """A script in place of the binary: `serve` and its flags are its arguments."""
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(f"#!{sys.executable}\nimport os, signal, sys, time\n" + textwrap.dedent(text))
        os.chmod(self.path(name), stat.S_IRWXU)
        return self.path(name)

    def config(self, **fields):
        fields.setdefault("binary", os.path.join(BUILD, "weighlock"))
        fields.setdefault("state_dir", self.path("state"))
        return weighlock.WeightUpdateControllerConfig(admin_api_key=KEY, **fields)

    def controller(self, **fields):
        made = weighlock.WeightUpdateController(self.config(**fields))
        self.addCleanup(made.destroy)
        return made


def main():
    """Runs the file's tests. A folder as first argument is the build, for the tests that need the real program."""
    global BUILD
    if len(sys.argv) > 1 and os.path.isdir(sys.argv[1]):
        BUILD = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2, module="__main__")
