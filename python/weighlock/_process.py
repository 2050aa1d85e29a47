"""The gateway as a child process: found, started, known to answer, and ended.

The child binds its port itself and tells it on stdout, so no port is looked for beforehand and taken by somebody else
meanwhile. Its key goes by environment, where other users of the machine can't see it. Its log on stderr is passed on, and
its last lines are kept for the error of a start that fails.
"""

from __future__ import annotations

import collections
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import weakref
from typing import IO, Callable, Mapping, Sequence

from ._keys import Key
from .errors import BinaryNotFound, GatewayStartFailed, GatewayStartTimedOut

_READY = "listening http://"
_LINES_KEPT = 40
_LINE_BYTES_MAX = 64 * 1024


def find_binary(path: str | os.PathLike[str] | None = None) -> str:
    """The program `weighlock`: the given path, else WEIGHLOCK_BINARY, else the one in this package, else the one on PATH.

    A path that was named must be right: `BinaryNotFound` rather than another program than the one that was meant.
    """
    for named, source in ((path, "the given path"), (os.environ.get("WEIGHLOCK_BINARY"), "WEIGHLOCK_BINARY")):
        if named:
            found = os.path.abspath(os.fspath(named))
            if os.path.isfile(found) and os.access(found, os.X_OK):
                return found
            raise BinaryNotFound(f"{source} names '{found}', which isn't a program that can be run")
    packaged = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "weighlock")
    if os.path.isfile(packaged) and os.access(packaged, os.X_OK):
        return packaged
    on_path = shutil.which("weighlock")
    if on_path:
        return os.path.abspath(on_path)
    raise BinaryNotFound(
        f"the program weighlock is neither in the package ({packaged}) nor on PATH; install the wheel that `make wheel`"
        " makes, or name the program in WEIGHLOCK_BINARY or with binary="
    )


class GatewayProcess:
    """One `weighlock serve`.

    It runs in a process group of its own: a Ctrl-C in the terminal is for this program, which then ends the gateway in
    order; a second signal would have it leave at once, with engines paused. It is also ended when this object is
    collected or the interpreter leaves, so a program that forgets `stop` leaves no gateway behind.
    Thread rule: one thread at a time.
    """

    def __init__(self, binary: str, arguments: Sequence[str], key: Key, environment: Mapping[str, str] | None = None) -> None:
        variables = dict(os.environ if environment is None else environment)
        variables.pop("WEIGHLOCK_ADMIN_API_KEY_FILE", None)  # two keys are a mistake
        variables["WEIGHLOCK_ADMIN_API_KEY"] = key.reveal()
        self.arguments = [binary, "serve", *arguments]
        try:
            self._child = subprocess.Popen(
                self.arguments,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=variables,
                start_new_session=True,
            )
        except OSError as failure:
            raise GatewayStartFailed(f"{binary} can't be started: {failure.strerror or failure}") from None
        self._port: int | None = None
        self._told = threading.Event()  # the port is known, or stdout has ended
        self._last: collections.deque[str] = collections.deque(maxlen=_LINES_KEPT)
        # The threads hold no reference to this object, so that it can be collected.
        self._finalizer = weakref.finalize(self, _end_forgotten, self._child, os.getpid())
        self._readers = [
            _thread(_read_stdout, self._child.stdout, weakref.ref(self)),
            _thread(_read_stderr, self._child.stderr, self._last),
        ]

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def exit_code(self) -> int | None:
        """None while it lives; negative for a signal."""
        return self._child.poll()

    @property
    def output(self) -> str:
        """Its last lines on stderr."""
        return "\n".join(list(self._last))

    def await_port(self, until: float) -> int:
        """The port, once the gateway listens; `until` is a `time.monotonic()`.

        `GatewayStartFailed` if the process ends before, `GatewayStartTimedOut` if it is too late; it has ended then.
        """
        while not self._told.wait(min(0.05, max(0.0, until - time.monotonic()))):
            if self.exit_code is not None:
                break
            if time.monotonic() >= until:
                raise self.late("to listen")
        if self._port is None and self.exit_code is None:
            self._await_exit(max(0.0, until - time.monotonic()))
        if self._port is None:
            raise self.failed() if self.exit_code is not None else self.late("to listen")
        return self._port

    def failed(self) -> GatewayStartFailed:
        """The error for a process that has ended."""
        self._join_readers()
        code = self.exit_code
        return GatewayStartFailed(
            f"the gateway ended with exit code {code} before it answered; it said:\n{self.output or '(nothing)'}",
            exit_code=code, output=self.output)  # fmt: skip

    def late(self, what: str) -> GatewayStartTimedOut:
        """The error for a process that lives and does nothing; ends it."""
        self.stop(1.0)
        return GatewayStartTimedOut(
            f"the gateway wasn't seen {what} in time and was ended; it said:\n{self.output or '(nothing)'}",
            code="timed_out", exit_code=None, output=self.output)  # fmt: skip

    def stop(self, patience: float) -> int | None:
        """SIGTERM, so that it brings its engines to a safe state; SIGKILL after `patience` seconds. Returns its exit code."""
        self._finalizer.detach()
        if self.exit_code is None:
            self._child.terminate()
            self._await_exit(patience)
        _kill(self._child)
        self._join_readers()
        return self.exit_code

    def _await_exit(self, seconds: float) -> None:
        try:
            self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            pass

    def _join_readers(self) -> None:
        for reader in self._readers:
            reader.join(timeout=1.0)  # a process of its own making may still hold the pipe


def _thread(work: Callable[..., None], *arguments: object) -> threading.Thread:
    thread = threading.Thread(target=work, args=arguments, name="weighlock-gateway-output", daemon=True)
    thread.start()
    return thread


def _read_stdout(pipe: IO[bytes], owner: weakref.ref[GatewayProcess]) -> None:
    with pipe:
        for line in iter(lambda: pipe.readline(_LINE_BYTES_MAX), b""):
            text = line.decode("utf-8", "replace").strip()
            process = owner()
            if process is not None and text.startswith(_READY) and process._port is None:
                port = text.rsplit(":", 1)[-1]
                process._port = int(port) if port.isdigit() else None
                process._told.set()
            del process
    process = owner()
    if process is not None:
        process._told.set()


def _read_stderr(pipe: IO[bytes], last: collections.deque[str]) -> None:
    with pipe:
        for line in iter(lambda: pipe.readline(_LINE_BYTES_MAX), b""):
            text = line.decode("utf-8", "replace").rstrip("\r\n")
            last.append(text)
            try:
                print(text, file=sys.stderr, flush=True)
            except (OSError, ValueError, AttributeError):
                pass  # nobody reads ours; the gateway must not stop for that


def _end_forgotten(child: subprocess.Popen[bytes], owner: int) -> None:
    """For a gateway that nobody stopped. A fork of this program isn't its owner."""
    if os.getpid() != owner or child.poll() is not None:
        return
    child.terminate()
    try:
        child.wait(10.0)
    except subprocess.TimeoutExpired:
        pass
    _kill(child)


def _kill(child: subprocess.Popen[bytes]) -> None:
    """The whole group, unless its leader has gone: then its number may be another's."""
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
