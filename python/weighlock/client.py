"""`Client`: the gateway's native API for programs that block.

Thread rule: a client has no state but its settings, so any number of threads may use one. Each call opens a connection
and closes it, so there is nothing to close or to leak.
"""

from __future__ import annotations

import os
import socket
import ssl
import time
from typing import Any, Callable, Generator, Iterator, Mapping, Sequence, TypeVar

from . import _bodies, _flows
from ._bodies import KeyReference, Workers, WorkerSpec
from ._events import IDLE_S, EventFeed
from ._flows import Answer, Call, Flow, Sleep
from ._keys import Key, find_key
from ._wire import Address, ResponseReader, encode_request, parse_url
from .errors import ConnectionLost, TimedOut, TransportError, Unreachable
from .values import Event, Lora, Pair, Readiness, RemovedPair, StoredVersions, Update, Worker

T = TypeVar("T")

DEFAULT_URL = "http://127.0.0.1:7080"
# A pair's change waits for its running update; the gateway answers such calls after 280 s at the latest.
CHANGE_PATIENCE_S = 290.0
_READ_BYTES = 65536


class Client:
    """A client of one gateway.

    url:      of the gateway; else WEIGHLOCK_URL, else http://127.0.0.1:7080. Proxies of the environment aren't used.
    key:      the gateway's admin key; else key_file, else WEIGHLOCK_ADMIN_API_KEY or WEIGHLOCK_ADMIN_API_KEY_FILE, else the
              public default, which a gateway takes on loopback only. It is never shown.
    timeout:  seconds for one call, from its connection to the last byte of its answer. Waiting for an update is many calls.

    Errors: `ApiError` and its kinds when the gateway refuses, `TransportError` and its kinds without an answer.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        key: str | None = None,
        key_file: str | os.PathLike[str] | None = None,
        timeout: float = 30.0,
    ) -> None:
        self._address = parse_url(url or os.environ.get("WEIGHLOCK_URL") or DEFAULT_URL)
        self._key = find_key(key, key_file, os.environ)
        self._timeout = timeout

    @property
    def url(self) -> str:
        return self._address.url

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    # --- pairs

    def pairs(self) -> list[Pair]:
        """All pairs."""
        return self._run(_flows.pairs())

    def pair(self, name: str) -> Pair:
        """One pair; `NotFound` without it."""
        return self._run(_flows.pair(name))

    def put_pair(
        self,
        name: str,
        *,
        save_path: str,
        workers: Workers,
        trainers: Sequence[str] | None = None,
        save_trigger: str | None = None,
        lora: Lora | None = None,
        settings: Mapping[str, Any] | None = None,
        new_lineage: bool = False,
        keep_unnamed: bool = False,
    ) -> Pair:
        """Makes or changes a pair; the same again is no change.

        save_path:    absolute, on storage that trainers, workers and the gateway see.
        workers:      URLs, or `WorkerSpec` for those with a dialect or keys of their own.
        trainers:     URLs, rank 0 first, that speak AReaL's `POST /save`; None: directories are handed over with `path=`.
        save_trigger: `all` ranks get /save (what None stands for at first), or `rank0` only.
        settings:     the pair's policy: quorum, pause_mode, deadlines_ms and so on.
        new_lineage:  the trainer begins again: its version numbers may be below those committed so far.
        keep_unnamed: of a pair that is there, each setting that isn't named stays as it is, and so do the save trigger and
                      each worker's dialect and keys. Without it they go back to their defaults.
        """
        body = _bodies.pair_body(save_path, workers, trainers, save_trigger, lora, settings, new_lineage, keep_unnamed)
        return self._run(_flows.put_pair(name, body))

    def remove_pair(self, name: str) -> RemovedPair:
        """Removes a pair. A running update is waited for, and workers out of service are brought back if they can be."""
        return self._run(_flows.remove_pair(name, CHANGE_PATIENCE_S))

    def wait_committed(self, name: str, version: int, wait: float = 60.0) -> Pair:
        """Returns once `version` or a later one is committed; `TimedOut` after `wait` seconds."""
        return self._run(_flows.wait_committed(name, version, wait))

    # --- updates

    def update(
        self,
        pair: str,
        version: int,
        *,
        path: str | None = None,
        lineage: int | None = None,
        deadline: float | None = None,
        policy: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
        wait: float = 600.0,
        on_phase: Callable[[Update], None] | None = None,
        raise_on_error: bool = True,
    ) -> Update:
        """Brings `version` to the pair's workers, and returns when that has ended.

        path:     a finished directory; None: the trainers save.
        lineage:  the one that the caller believes in; None: the pair's present one.
        deadline: seconds for the whole update, in place of the pair's.
        policy:   members of the pair's settings, for this update only.
        wait:     seconds; then `TimedOut`, and the update goes on.
        on_phase: is called with the update at each change of its phase.

        `UpdateFailed` if it isn't committed, with what became of each worker. A `degraded` update is committed: it is
        returned, and its `verdicts` name who is missing. `raise_on_error=False`: a failed one is returned, too.
        """
        body = _bodies.update_body(version, path, lineage, deadline, policy)
        return self._run(_flows.run_update(pair, body, idempotency_key, wait, on_phase, raise_on_error))

    def start_update(
        self,
        pair: str,
        version: int,
        *,
        path: str | None = None,
        lineage: int | None = None,
        deadline: float | None = None,
        policy: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> Update:
        """Starts an update and returns at once; arguments as for `update`."""
        body = _bodies.update_body(version, path, lineage, deadline, policy)
        return self._run(_flows.start_update(pair, body, idempotency_key))

    def rollback(
        self,
        pair: str,
        to: int | None = None,
        *,
        lineage: int | None = None,
        deadline: float | None = None,
        policy: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
        wait: float = 600.0,
        on_phase: Callable[[Update], None] | None = None,
        raise_on_error: bool = True,
    ) -> Update:
        """Brings the pair's workers back to a version that was committed before, and returns when that has ended.

        to:      its number, of those in `versions`; None: the newest that was committed before the present one,
                 without those that engines died of.
        lineage: of which run `to` is, if several have that number.

        The rest, and what is raised, as for `update`. Nothing is saved, the version is verified before any worker is
        paused, and numbers that were committed stay used: the next version must be above `versions(pair).highest`.
        """
        body = _bodies.rollback_body(to, lineage, deadline, policy)
        flow = _flows.run_update(pair, body, idempotency_key, wait, on_phase, raise_on_error, _flows.ROLLBACK)
        return self._run(flow)

    def start_rollback(
        self,
        pair: str,
        to: int | None = None,
        *,
        lineage: int | None = None,
        deadline: float | None = None,
        policy: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> Update:
        """Starts a rollback and returns at once; arguments as for `rollback`."""
        body = _bodies.rollback_body(to, lineage, deadline, policy)
        return self._run(_flows.start_update(pair, body, idempotency_key, _flows.ROLLBACK))

    def wait_update(
        self, pair: str, update_id: str, wait: float = 600.0, on_phase: Callable[[Update], None] | None = None
    ) -> Update:
        """The update when it has ended, however it did; `TimedOut` after `wait` seconds."""
        return self._run(_flows.wait_update(pair, update_id, wait, on_phase))

    def get_update(self, pair: str, update_id: str) -> Update:
        """One update as it is now."""
        return self._run(_flows.get_update(pair, update_id))

    def updates(self, pair: str, limit: int | None = None) -> list[Update]:
        """The updates that are remembered, newest first."""
        return self._run(_flows.updates(pair, limit))

    def cancel_update(self, pair: str, update_id: str) -> Update:
        """Asks an update to stop; `Conflict` once its commit was decided. Its end is for `wait_update`."""
        return self._run(_flows.cancel_update(pair, update_id))

    # --- workers

    def workers(self, pair: str) -> list[Worker]:
        """The pair's inference workers."""
        return self._run(_flows.workers(pair))

    def add_worker(self, pair: str, worker: str | WorkerSpec) -> Pair:
        """A worker more. It gets the weights with the next update, or before."""
        return self._run(_flows.add_worker(pair, _bodies.worker_body(worker), CHANGE_PATIENCE_S))

    def remove_worker(self, pair: str, worker: str, reason: str | None = None) -> Pair:
        """A worker less, by its id or URL. `reason` is for people who look later."""
        return self._run(_flows.remove_worker(pair, worker, reason, CHANGE_PATIENCE_S))

    def drain_worker(self, pair: str, worker: str, reason: str | None = None) -> Worker:
        """It leaves the updates and goes on serving what it holds, until it is released or removed."""
        return self._run(_flows.change_worker(pair, worker, "drain", reason, CHANGE_PATIENCE_S))

    def quarantine_worker(self, pair: str, worker: str, reason: str | None = None) -> Worker:
        """It is held paused until it is released."""
        return self._run(_flows.change_worker(pair, worker, "quarantine", reason, CHANGE_PATIENCE_S))

    def release_worker(self, pair: str, worker: str, reason: str | None = None) -> Worker:
        """Whatever held it back is over: it is brought to the committed version, then it serves."""
        return self._run(_flows.change_worker(pair, worker, "release", reason, CHANGE_PATIENCE_S))

    def set_worker_key(
        self, pair: str, worker: str, *, admin_key: KeyReference | None = None, api_key: KeyReference | None = None
    ) -> Worker:
        """The worker is called with these keys from now on. One that isn't given stays as it was."""
        return self._run(_flows.set_worker_key(pair, worker, _bodies.keys_body(admin_key, api_key)))

    def worker_ready(self, pair: str, worker: str) -> Readiness:
        """Whether a worker, by its id or URL, may get traffic now. The worker itself is asked."""
        return self._run(_flows.worker_ready(pair, worker))

    # --- stored versions

    def versions(self, pair: str) -> StoredVersions:
        """What is stored of a pair, and who needs it."""
        return self._run(_flows.versions(pair))

    def verify_version(self, pair: str, version: int) -> str | None:
        """Reads a stored version again; its digest, or None where there is none and only names, sizes and headers
        could be compared. `Conflict` when its bytes were changed."""
        return self._run(_flows.verify_version(pair, version, CHANGE_PATIENCE_S))

    def collect_versions(self, pair: str, *, dry_run: bool = False) -> list[str]:
        """Deletes what nobody needs, or only tells what that is; the directories."""
        return self._run(_flows.collect_versions(pair, dry_run))

    # --- the gateway

    def health(self, timeout: float = 5.0) -> bool:
        """Whether the gateway answers."""
        return self._run(_flows.probe("/healthz", timeout))

    def ready(self, timeout: float = 5.0) -> bool:
        """Whether it takes updates; False while it is leaving."""
        return self._run(_flows.probe("/readyz", timeout))

    def metrics(self) -> str:
        """Prometheus' text format."""
        return self._run(_flows.metrics())

    def events(
        self, pair: str | None = None, *, after: int | None = None, reconnect: bool = True
    ) -> Generator[Event, None, None]:
        """The journal's records as they come, without an end.

        after:     the number of the last event that was seen; 0: from the beginning; None: from now on.
        reconnect: go on where it was when the connection breaks; else `ConnectionLost`.

        Breaking out of the loop, or closing the iterator, closes the connection.
        """
        feed = EventFeed(pair, after)
        while True:
            try:
                yield from self._stream(feed)
            except (Unreachable, ConnectionLost, TimedOut):
                if not reconnect:
                    raise
            time.sleep(feed.pause())

    # --- how calls are performed

    def _run(self, flow: Flow[T]) -> T:
        try:
            step = next(flow)
            while True:
                if isinstance(step, Sleep):
                    time.sleep(step.seconds)
                    step = flow.send(None)
                    continue
                try:
                    answer = self._perform(step)
                except TransportError as failure:
                    step = flow.throw(failure)
                else:
                    step = flow.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result

    def _perform(self, call: Call) -> Answer:
        limit = (call.timeout if call.timeout is not None else self._timeout) + call.patience
        with Connection(self._address, self._key, call, limit) as connection:
            reader = ResponseReader()
            while connection.read_into(reader):
                pass
            return Answer(reader.status, reader.take())

    def _stream(self, feed: EventFeed) -> Iterator[Event]:
        call = feed.request()
        with Connection(self._address, self._key, call, IDLE_S) as connection:
            reader = ResponseReader(body_bytes_max=None)
            while connection.read_into(reader):
                connection.extend(IDLE_S)
                if reader.status < 400:  # else the problem's body is read whole
                    yield from feed.feed(reader.take())
            if reader.status >= 400:
                raise _flows.refusal(call, Answer(reader.status, reader.take()))
            yield from feed.feed(reader.take())
        raise ConnectionLost(f"{call.name}: the gateway ended the stream")


class Connection:
    """One call's connection, with one limit on its time. For this package."""

    def __init__(self, address: Address, key: Key | None, call: Call, limit: float) -> None:
        self._what = f"gateway {address.url}: {call.name}"
        self._limit = limit
        self._until = time.monotonic() + limit
        request = encode_call(address, key, call)
        self._socket = self._connect(address)
        self._send(request)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def extend(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds

    def read_into(self, reader: ResponseReader) -> bool:
        """Feeds what comes next; False when the answer is complete."""
        try:
            self._socket.settimeout(self._left())
            data = self._socket.recv(_READ_BYTES)
        except TimeoutError:
            raise self._late() from None
        except OSError as failure:
            raise ConnectionLost(f"{self._what}: {reason_of(failure)}") from None
        if data:
            reader.feed(data)
        elif not reader.end():
            raise ConnectionLost(cut_text(self._what, reader))
        return not reader.complete

    def _connect(self, address: Address) -> socket.socket:
        try:
            made = socket.create_connection((address.host, address.port), timeout=self._left())
        except TimeoutError:
            raise Unreachable(f"{self._what}: no connection within {self._limit:g} s") from None
        except OSError as failure:
            raise Unreachable(unreachable_text(self._what, failure)) from None
        if not address.secure:
            return made
        try:
            return ssl.create_default_context().wrap_socket(made, server_hostname=address.host)
        except (OSError, ssl.SSLError) as failure:
            made.close()
            raise Unreachable(f"{self._what}: TLS: {reason_of(failure)}") from None

    def _send(self, request: bytes) -> None:
        try:
            self._socket.settimeout(self._left())
            self._socket.sendall(request)
        except TimeoutError:
            self._socket.close()
            raise self._late() from None
        except OSError:
            pass  # it may have answered before it read everything (413); reading tells
        except BaseException:
            self._socket.close()
            raise

    def _left(self) -> float:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left

    def _late(self) -> TimedOut:
        return TimedOut(f"{self._what}: no answer within {self._limit:g} s")


def encode_call(address: Address, key: Key | None, call: Call) -> bytes:
    """The bytes of a call, with what every call carries."""
    headers = {"Accept": "application/json", "User-Agent": "weighlock-python", **call.headers}
    if key is not None:
        headers["Authorization"] = f"Bearer {key.reveal()}"
    body = None
    if call.body is not None:
        body = _flows.encode(call.body)
        headers["Content-Type"] = "application/json"
    elif call.method in ("POST", "PUT"):
        body = b""
    return encode_request(address, call.method, call.target, headers, body)


def unreachable_text(what: str, failure: BaseException) -> str:
    return f"{what}: {reason_of(failure)}; is `weighlock serve` running there? (url= or WEIGHLOCK_URL names it)"


def cut_text(what: str, reader: ResponseReader) -> str:
    return f"{what}: the connection was closed {'within' if reader.begun else 'before'} the answer"


def reason_of(failure: BaseException) -> str:
    return (failure.strerror if isinstance(failure, OSError) else None) or str(failure) or type(failure).__name__
