"""`AsyncClient`: the same API for programs on asyncio.

It runs on asyncio's streams, without threads, so cancelling a call closes its connection at once and leaves nothing
behind: no thread that still waits, no socket. A cancelled wait is only that: the update goes on in the gateway, as for
any client that goes away; `cancel_update` stops it. What is sent, what answers mean and what is tried again is the same
code as the blocking client's (`_flows`, `_events`, `_wire`).
"""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
from typing import Any, AsyncGenerator, Callable, Coroutine, Mapping, Sequence, TypeVar

from . import _bodies, _flows
from ._bodies import KeyReference, Workers, WorkerSpec
from ._events import IDLE_S, EventFeed
from ._flows import Answer, Call, Flow, Sleep
from ._keys import find_key
from ._wire import ResponseReader, parse_url
from .client import CHANGE_PATIENCE_S, DEFAULT_URL, cut_text, encode_call, reason_of, unreachable_text
from .errors import ConnectionLost, TimedOut, TransportError, Unreachable
from .values import Event, Lora, Pair, Readiness, RemovedPair, StoredVersions, Update, Worker

T = TypeVar("T")

_READ_BYTES = 65536


class AsyncClient:
    """A client of one gateway; settings, methods, results and errors are those of `Client`.

    It belongs to no event loop, and has nothing to close.
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

    async def pairs(self) -> list[Pair]:
        """See `Client.pairs`."""
        return await self._run(_flows.pairs())

    async def pair(self, name: str) -> Pair:
        """See `Client.pair`."""
        return await self._run(_flows.pair(name))

    async def put_pair(
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
        """See `Client.put_pair`."""
        body = _bodies.pair_body(save_path, workers, trainers, save_trigger, lora, settings, new_lineage, keep_unnamed)
        return await self._run(_flows.put_pair(name, body))

    async def remove_pair(self, name: str) -> RemovedPair:
        """See `Client.remove_pair`."""
        return await self._run(_flows.remove_pair(name, CHANGE_PATIENCE_S))

    async def wait_committed(self, name: str, version: int, wait: float = 60.0) -> Pair:
        """See `Client.wait_committed`."""
        return await self._run(_flows.wait_committed(name, version, wait))

    # --- updates

    async def update(
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
        """See `Client.update`."""
        body = _bodies.update_body(version, path, lineage, deadline, policy)
        return await self._run(_flows.run_update(pair, body, idempotency_key, wait, on_phase, raise_on_error))

    async def start_update(
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
        """See `Client.start_update`."""
        body = _bodies.update_body(version, path, lineage, deadline, policy)
        return await self._run(_flows.start_update(pair, body, idempotency_key))

    async def rollback(
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
        """See `Client.rollback`."""
        body = _bodies.rollback_body(to, lineage, deadline, policy)
        flow = _flows.run_update(pair, body, idempotency_key, wait, on_phase, raise_on_error, _flows.ROLLBACK)
        return await self._run(flow)

    async def start_rollback(
        self,
        pair: str,
        to: int | None = None,
        *,
        lineage: int | None = None,
        deadline: float | None = None,
        policy: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> Update:
        """See `Client.start_rollback`."""
        body = _bodies.rollback_body(to, lineage, deadline, policy)
        return await self._run(_flows.start_update(pair, body, idempotency_key, _flows.ROLLBACK))

    async def wait_update(
        self, pair: str, update_id: str, wait: float = 600.0, on_phase: Callable[[Update], None] | None = None
    ) -> Update:
        """See `Client.wait_update`."""
        return await self._run(_flows.wait_update(pair, update_id, wait, on_phase))

    async def get_update(self, pair: str, update_id: str) -> Update:
        """See `Client.get_update`."""
        return await self._run(_flows.get_update(pair, update_id))

    async def updates(self, pair: str, limit: int | None = None) -> list[Update]:
        """See `Client.updates`."""
        return await self._run(_flows.updates(pair, limit))

    async def cancel_update(self, pair: str, update_id: str) -> Update:
        """See `Client.cancel_update`."""
        return await self._run(_flows.cancel_update(pair, update_id))

    # --- workers

    async def workers(self, pair: str) -> list[Worker]:
        """See `Client.workers`."""
        return await self._run(_flows.workers(pair))

    async def add_worker(self, pair: str, worker: str | WorkerSpec) -> Pair:
        """See `Client.add_worker`."""
        return await self._run(_flows.add_worker(pair, _bodies.worker_body(worker), CHANGE_PATIENCE_S))

    async def remove_worker(self, pair: str, worker: str, reason: str | None = None) -> Pair:
        """See `Client.remove_worker`."""
        return await self._run(_flows.remove_worker(pair, worker, reason, CHANGE_PATIENCE_S))

    async def drain_worker(self, pair: str, worker: str, reason: str | None = None) -> Worker:
        """See `Client.drain_worker`."""
        return await self._run(_flows.change_worker(pair, worker, "drain", reason, CHANGE_PATIENCE_S))

    async def quarantine_worker(self, pair: str, worker: str, reason: str | None = None) -> Worker:
        """See `Client.quarantine_worker`."""
        return await self._run(_flows.change_worker(pair, worker, "quarantine", reason, CHANGE_PATIENCE_S))

    async def release_worker(self, pair: str, worker: str, reason: str | None = None) -> Worker:
        """See `Client.release_worker`."""
        return await self._run(_flows.change_worker(pair, worker, "release", reason, CHANGE_PATIENCE_S))

    async def set_worker_key(
        self, pair: str, worker: str, *, admin_key: KeyReference | None = None, api_key: KeyReference | None = None
    ) -> Worker:
        """See `Client.set_worker_key`."""
        return await self._run(_flows.set_worker_key(pair, worker, _bodies.keys_body(admin_key, api_key)))

    async def worker_ready(self, pair: str, worker: str) -> Readiness:
        """See `Client.worker_ready`."""
        return await self._run(_flows.worker_ready(pair, worker))

    # --- stored versions

    async def versions(self, pair: str) -> StoredVersions:
        """See `Client.versions`."""
        return await self._run(_flows.versions(pair))

    async def verify_version(self, pair: str, version: int) -> str | None:
        """See `Client.verify_version`."""
        return await self._run(_flows.verify_version(pair, version, CHANGE_PATIENCE_S))

    async def collect_versions(self, pair: str, *, dry_run: bool = False) -> list[str]:
        """See `Client.collect_versions`."""
        return await self._run(_flows.collect_versions(pair, dry_run))

    # --- the gateway

    async def health(self, timeout: float = 5.0) -> bool:
        """See `Client.health`."""
        return await self._run(_flows.probe("/healthz", timeout))

    async def ready(self, timeout: float = 5.0) -> bool:
        """See `Client.ready`."""
        return await self._run(_flows.probe("/readyz", timeout))

    async def metrics(self) -> str:
        """See `Client.metrics`."""
        return await self._run(_flows.metrics())

    async def events(
        self, pair: str | None = None, *, after: int | None = None, reconnect: bool = True
    ) -> AsyncGenerator[Event, None]:
        """See `Client.events`. An iterator that is left early is closed by `aclose()`, or when it is collected."""
        feed = EventFeed(pair, after)
        while True:
            stream = self._stream(feed)
            try:
                async for event in stream:
                    yield event
            except (Unreachable, ConnectionLost, TimedOut):
                if not reconnect:
                    raise
            finally:
                await stream.aclose()
            await asyncio.sleep(feed.pause())

    # --- how calls are performed

    async def _run(self, flow: Flow[T]) -> T:
        try:
            step = next(flow)
            while True:
                if isinstance(step, Sleep):
                    await asyncio.sleep(step.seconds)
                    step = flow.send(None)
                    continue
                try:
                    answer = await self._perform(step)
                except TransportError as failure:
                    step = flow.throw(failure)
                else:
                    step = flow.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result

    async def _perform(self, call: Call) -> Answer:
        limit = (call.timeout if call.timeout is not None else self._timeout) + call.patience
        connection = _Connection(self, call)
        try:
            reader = ResponseReader()
            await connection.within(limit, connection.exchange(reader))
            return Answer(reader.status, reader.take())
        finally:
            connection.close()

    async def _stream(self, feed: EventFeed) -> AsyncGenerator[Event, None]:
        call = feed.request()
        connection = _Connection(self, call)
        try:
            reader = ResponseReader(body_bytes_max=None)
            await connection.within(IDLE_S, connection.open())
            while await connection.within(IDLE_S, connection.read_into(reader)):
                if reader.status < 400:  # else the problem's body is read whole
                    for event in feed.feed(reader.take()):
                        yield event
            if reader.status >= 400:
                raise _flows.refusal(call, Answer(reader.status, reader.take()))
            for event in feed.feed(reader.take()):
                yield event
            raise ConnectionLost(f"{call.name}: the gateway ended the stream")
        finally:
            connection.close()


class _Connection:
    """One call's connection. `close` is for every way out, cancellation included, and doesn't wait."""

    def __init__(self, client: AsyncClient, call: Call) -> None:
        self._address = client._address
        self._request = encode_call(client._address, client._key, call)
        self._what = f"gateway {client.url}: {call.name}"
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def within(self, limit: float, work: Coroutine[Any, Any, T]) -> T:
        try:
            if sys.version_info >= (3, 11):
                async with asyncio.timeout(limit):
                    return await work
            return await asyncio.wait_for(work, limit)
        except asyncio.TimeoutError:
            if self._streams is None:
                raise Unreachable(f"{self._what}: no connection within {limit:g} s") from None
            raise TimedOut(f"{self._what}: no answer within {limit:g} s") from None

    async def exchange(self, reader: ResponseReader) -> None:
        await self.open()
        while await self.read_into(reader):
            pass

    async def open(self) -> None:
        context = ssl.create_default_context() if self._address.secure else None
        try:
            self._streams = await asyncio.open_connection(self._address.host, self._address.port, ssl=context)
        except OSError as failure:
            raise Unreachable(unreachable_text(self._what, failure)) from None
        _, writer = self._streams
        try:
            writer.write(self._request)
            await writer.drain()
        except OSError:
            pass  # it may have answered before it read everything (413); reading tells

    async def read_into(self, reader: ResponseReader) -> bool:
        """Feeds what comes next; False when the answer is complete."""
        if self._streams is None:
            raise AssertionError("read before open")
        try:
            data = await self._streams[0].read(_READ_BYTES)
        except OSError as failure:
            raise ConnectionLost(f"{self._what}: {reason_of(failure)}") from None
        if data:
            reader.feed(data)
        elif not reader.end():
            raise ConnectionLost(cut_text(self._what, reader))
        return not reader.complete

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].transport.abort()
