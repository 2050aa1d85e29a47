"""A gateway as a process, raw sockets to it, and what it holds: pairs, journal records, descriptors, memory.

Nothing here speaks HTTP for the caller: a request is the bytes that a test wrote.
"""
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from programs import program, wait_for  # noqa: E402

KEY = "hostile-test-key"
ANSWER_WITHIN_S = 20  # a loaded machine; what must be quick has a limit of its own in its test


class Answer:
    """One answer, or the end of the connection without one (status 0)."""

    def __init__(self, status, headers, body, closed):
        self.status, self.headers, self.body, self.closed = status, headers, body, closed

    @property
    def says_close(self):
        return self.headers.get("connection", "").lower() == "close"

    @property
    def text(self):
        return self.body.decode()  # strict: an answer that isn't UTF-8 fails its test

    def json(self):
        def no_constant(word):
            raise AssertionError(f"not JSON: {word}")
        return json.loads(self.text, parse_constant=no_constant)

    def __repr__(self):
        return f"<{self.status} {self.headers} {self.body[:2000]!r}{' closed' if self.closed else ''}>"


class RawConnection:
    def __init__(self, port, timeout=ANSWER_WITHIN_S):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.received = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        """False when the peer has had enough."""
        try:
            self.socket.sendall(data)
            return True
        except (BrokenPipeError, ConnectionResetError):
            return False

    def fill(self):
        try:
            some = self.socket.recv(65536)
        except ConnectionResetError:
            some = b""
        self.received += some
        return bool(some)

    def read_answer(self, to_head=False):
        while b"\r\n\r\n" not in self.received:
            if not self.fill():
                return Answer(0, {}, self.received, True)
        head, _, rest = self.received.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        length = 0 if to_head else int(headers.get("content-length", "0"))
        closed = False
        while len(rest) < length and not closed:
            self.received = b""
            closed = not self.fill()
            rest += self.received
        self.received = rest[length:]
        return Answer(int(lines[0].split(" ")[1]), headers, rest[:length], closed)

    def is_closed(self):
        """Whether the peer ends the connection; waits for it."""
        try:
            while self.fill():
                pass
            return True
        except socket.timeout:
            return False


def request(method, target, body=b"", key=KEY, headers=(), content_type="application/json"):
    """The bytes of a request in good order but for what is handed in."""
    def raw(part):
        return part if isinstance(part, bytes) else part.encode()
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    out = raw(method) + b" " + raw(target) + b" HTTP/1.1\r\nHost: gateway\r\n"
    if key is not None:
        out += b"Authorization: Bearer " + raw(key) + b"\r\n"
    if body:
        out += b"Content-Type: " + raw(content_type) + b"\r\n"
    for name, value in headers:
        out += raw(name) + b": " + raw(value) + b"\r\n"
    return out + b"Content-Length: " + str(len(body)).encode() + b"\r\n\r\n" + body


class GatewayProcess:
    def __init__(self, *arguments, env=None):
        self.directory = tempfile.mkdtemp(prefix="weighlock-hostile-")
        self.shared = os.path.join(self.directory, "shared")
        self.state = os.path.join(self.directory, "state")
        os.makedirs(self.shared)
        self.log_path = os.path.join(self.directory, "log")
        self.log = open(self.log_path, "wb")
        command = [program("weighlock"), "serve", "--host", "127.0.0.1", "--port", "0", "--state-dir", self.state,
                   "--storage-roots", self.shared, "--log-level", "info", "--no-restart", *arguments]
        self.child = subprocess.Popen(command, stdout=self.log, stderr=self.log,
            env={**os.environ, "WEIGHLOCK_ADMIN_API_KEY": KEY, **(env or {})})

        def find_port():
            assert self.child.poll() is None, self.text()
            lines = [line for line in self.text().splitlines() if "listening on" in line]
            return int(lines[0].rsplit(":", 1)[-1]) if lines else None
        self.port = wait_for("the gateway's port", find_port)

    def text(self):
        with open(self.log_path, errors="replace") as file:
            return file.read()

    def end(self):
        if self.child.poll() is None:
            self.child.kill()
        self.child.wait()
        self.log.close()
        shutil.rmtree(self.directory)

    def ask(self, data, timeout=ANSWER_WITHIN_S):
        """The answer to these bytes, over a connection of their own."""
        with RawConnection(self.port, timeout) as connection:
            connection.send(data)
            return connection.read_answer(to_head=data.startswith(b"HEAD "))

    def call(self, method, target, body=b"", **how):
        return self.ask(request(method, target, body, **how))

    def records(self):
        for line in self.call("GET", "/metrics").text.splitlines():
            if line.startswith("weighlock_journal_records "):
                return int(line.split()[1])
        raise AssertionError("no count of records in /metrics")

    def await_first_records(self):
        """Of a gateway with one pair whose one worker isn't there. The last that comes by itself: after its start, its owner's
        name and the pair, that the worker isn't reached."""
        wait_for("the record of a worker that isn't reached", lambda: self.records() >= 4)

    def holdings(self):
        """What a refused request must leave as it was."""
        return {"pairs": self.call("GET", "/v1/pairs").json()["items"], "records": self.records(),
                "files": sorted(os.listdir(self.shared))}

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.child.pid}/fd"))

    def resident_mib(self):
        with open(f"/proc/{self.child.pid}/status") as file:
            for line in file:
                if line.startswith("VmRSS:"):
                    return int(line.split()[1]) / 1024
        raise AssertionError("no VmRSS")

    def peak_mib(self):
        with open(f"/proc/{self.child.pid}/status") as file:
            for line in file:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) / 1024
        raise AssertionError("no VmHWM")
