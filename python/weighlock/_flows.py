"""Every call of the API, without any input or output: what is sent, what the answer means, and what comes next.

A flow is a generator: it yields a `Call` and gets the `Answer` (or a `TransportError`), or yields a `Sleep`; what it
returns is the result. `Client` and `AsyncClient` only differ in how they perform the two, so a rule is written once.
Only calls that may be repeated are: reads, and the start of an update, which carries an idempotency key.
"""

from __future__ import annotations

import json
import secrets
import time
import urllib.parse
from dataclasses import dataclass, field
from typing import Any, Callable, Generator, Mapping, Sequence, TypeVar, Union

from . import values
from .errors import ApiError, BadAnswer, ConnectionLost, TimedOut, TransportError, Unavailable, Unreachable
from .errors import UpdateFailed, api_error, mistake
from .values import Pair, Readiness, RemovedPair, StoredVersions, Update, UpdateResult, Worker

T = TypeVar("T")

_PAGES_MAX = 1000  # a server that always names a next page would keep us for ever
_START_TRIES = 3
_PAUSE_S = 0.5  # between tries
_AWAY_MAX_S = 15.0  # a gateway that restarts is waited for so long, as by the command line
_LONG_POLL_S = 20.0  # proxies cut calls that say nothing for a minute
_QUOTED_MAX = 300  # of a body that isn't ours


@dataclass(frozen=True, slots=True)
class Call:
    """One request. `patience` is added to the client's time-out: the gateway was asked to wait so long itself."""

    method: str
    target: str
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    patience: float = 0.0
    timeout: float | None = None  # in place of the client's

    @property
    def name(self) -> str:
        return f"{self.method} {self.target}"


@dataclass(frozen=True, slots=True)
class Sleep:
    seconds: float


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes


Step = Union[Call, Sleep]
Flow = Generator[Step, Any, T]


# --- one call


def ask(call: Call) -> Flow[Any]:
    """The answer's JSON. A status of 400 or more is an `ApiError`."""
    answer: Answer = yield call
    if answer.status >= 400:
        raise refusal(call, answer)
    return parse(call, answer)


def encode(body: Any) -> bytes:
    """JSON as the gateway takes it: no NaN, no Infinity, nothing that isn't JSON."""
    try:
        return json.dumps(body, allow_nan=False).encode()
    except (TypeError, ValueError) as failure:
        raise mistake(f"the request can't be written as JSON: {failure}") from None


def parse(call: Call, answer: Answer) -> Any:
    try:
        return json.loads(answer.body)
    except (ValueError, RecursionError):
        text = answer.body[:80].decode("utf-8", "replace")
        raise BadAnswer(f"{call.name}: the answer isn't JSON: {text!r}; is this a Weighlock gateway?") from None


def refusal(call: Call, answer: Answer) -> ApiError:
    """The exception for a status of 400 or more, whichever of the three styles of bodies it has."""
    try:
        body = json.loads(answer.body)
    except (ValueError, RecursionError):
        body = None
    told = body if isinstance(body, dict) else {}
    code, name = _text(told.get("code")), _text(told.get("field"))
    detail = told.get("detail", told.get("error"))
    if isinstance(detail, list):  # the compatible API's 422: one entry for each wrong member
        detail, name = _first_of(detail)
    text = _text(detail) or answer.body[:_QUOTED_MAX].decode("utf-8", "replace") or "no explanation"
    if answer.status in (401, 403):
        text = text.rstrip(".") + "; give the gateway's key as key=, key_file= or WEIGHLOCK_ADMIN_API_KEY"
    where = f" (field '{name}')" if name else ""
    return api_error(f"{call.name}: {text}{where} [HTTP {answer.status}]", status=answer.status, code=code, field=name)


def _first_of(details: Sequence[Any]) -> tuple[str | None, str | None]:
    one = details[0] if details and isinstance(details[0], dict) else {}
    loc = one.get("loc")
    parts = [str(part) for part in loc if part != "body"] if isinstance(loc, list) else []
    more = f" (and {len(details) - 1} more)" if len(details) > 1 else ""
    return f"{one.get('msg', 'refused')}{more}", ".".join(parts) or None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def segment(text: str) -> str:
    """A path segment with everything but unreserved characters escaped."""
    return urllib.parse.quote(text, safe="")


def _pair_target(pair: str, rest: str = "") -> str:
    if not pair:
        raise mistake("pair: must not be empty", "pair")
    return f"/v1/pairs/{segment(pair)}{rest}"


def _update_target(pair: str, update_id: str, verb: str = "") -> str:
    return _pair_target(pair, f"/updates/{segment(update_id)}{verb}")


def _items(target: str, most: int | None) -> Flow[list[Any]]:
    """All items of a list, over its pages, at most `most`."""
    items: list[Any] = []
    cursor: str | None = None
    mark = "&" if "?" in target else "?"
    for _ in range(_PAGES_MAX):
        call = Call("GET", target if cursor is None else f"{target}{mark}cursor={segment(cursor)}")
        page = values.Members((yield from ask(call)), f"the answer to {call.name}")
        items += page.list("items")
        if most is not None and len(items) >= most:
            return items[:most]
        if page.raw.get("next") is None:
            return items
        cursor = str(page.raw["next"])
    raise BadAnswer(f"GET {target}: more than {_PAGES_MAX} pages")


# --- pairs


def pairs() -> Flow[list[Pair]]:
    return [values.read_pair(one) for one in (yield from _items("/v1/pairs", None))]


def pair(name: str) -> Flow[Pair]:
    return values.read_pair((yield from ask(Call("GET", _pair_target(name)))))


def put_pair(name: str, spec: Mapping[str, Any]) -> Flow[Pair]:
    return values.read_pair((yield from ask(Call("PUT", _pair_target(name), spec))))


def remove_pair(name: str, patience: float) -> Flow[RemovedPair]:
    return values.read_removed((yield from ask(Call("DELETE", _pair_target(name), patience=patience))))


def wait_committed(name: str, version: int, wait: float) -> Flow[Pair]:
    until = time.monotonic() + wait
    while True:
        turn = min(_LONG_POLL_S, max(0.0, until - time.monotonic()))
        target = _pair_target(name, f"?committed_at_least={version}&wait={turn:.3f}")
        found = values.read_pair((yield from ask(Call("GET", target, patience=turn))))
        if found.committed is not None and found.committed >= version:
            return found
        if time.monotonic() >= until:
            raise TimedOut(f"pair '{name}': v{found.committed} is committed, not v{version}, after {wait:g} s")


# --- updates


START = "/updates"
ROLLBACK = ":rollback"  # an update, too, but one that saves nothing


def start_update(target_pair: str, body: Mapping[str, Any], key: str | None, target: str = START) -> Flow[Update]:
    headers = {"Idempotency-Key": key or secrets.token_hex(16)}
    call = Call("POST", _pair_target(target_pair, target), body, headers)
    for attempt in range(_START_TRIES):
        try:
            return values.read_update((yield from ask(call)))
        except (Unreachable, ConnectionLost, Unavailable):
            if attempt + 1 == _START_TRIES:
                raise
        yield Sleep(_PAUSE_S)
    raise AssertionError("unreachable")


def get_update(of: str, update_id: str, timeout: float | None = None) -> Flow[Update]:
    return values.read_update((yield from ask(Call("GET", _update_target(of, update_id), timeout=timeout))))


def updates(of: str, most: int | None) -> Flow[list[Update]]:
    limit = "" if most is None else f"?limit={max(1, min(most, 50))}"
    return [values.read_update(one) for one in (yield from _items(_pair_target(of, "/updates") + limit, most))]


def cancel_update(of: str, update_id: str) -> Flow[Update]:
    return values.read_update((yield from ask(Call("POST", _update_target(of, update_id, ":cancel")))))


def wait_update(of: str, update_id: str, wait: float, seen: Callable[[Update], None] | None) -> Flow[Update]:
    """Asks until the update has ended; `TimedOut` after `wait`. A gateway that restarts is waited for."""
    until = time.monotonic() + wait
    answered = time.monotonic()
    last = ""
    while True:
        # With somebody who watches, each answer comes at once and the pauses are ours.
        turn = 0.0 if seen else min(_LONG_POLL_S, max(0.0, until - time.monotonic()))
        call = Call("GET", _update_target(of, update_id, f"?wait={turn:.3f}" if turn else ""), patience=turn)
        try:
            found = values.read_update((yield from ask(call)))
            answered = time.monotonic()
            if seen and found.phase != last:
                seen(found)
            last = found.phase
            if not found.running:
                return found
        except (Unreachable, ConnectionLost):
            if time.monotonic() - answered > _AWAY_MAX_S:
                raise
            yield Sleep(_PAUSE_S)
        if time.monotonic() >= until:
            raise TimedOut(f"update {update_id} of pair '{of}' is still running after {wait:g} s, last seen in "
                           f"'{last or 'no phase'}'; it goes on: wait again, or cancel it")  # fmt: skip
        if seen:
            yield Sleep(0.05)


def run_update(
    of: str,
    body: Mapping[str, Any],
    key: str | None,
    wait: float,
    seen: Callable[[Update], None] | None,
    strict: bool,
    target: str = START,
) -> Flow[Update]:
    """Starts an update and waits for its end. With `strict` one that isn't committed is `UpdateFailed`."""
    started: Update = yield from start_update(of, body, key, target)
    ended: Update = started if not started.running else (yield from wait_update(of, started.id, wait, seen))
    if strict and not ended.committed:
        raise update_failed(ended)
    return ended


def update_failed(ended: Update) -> UpdateFailed:
    error = ended.error
    text = error.message if error else f"pair '{ended.pair}' v{ended.version} ended as {ended.state}"
    return UpdateFailed(text, code=error.code if error else "internal", verdicts=ended.verdicts, update=ended)


# --- workers


def workers(of: str) -> Flow[list[Worker]]:
    return [values.read_worker(one) for one in (yield from _items(_pair_target(of, "/workers"), None))]


def add_worker(of: str, worker: Mapping[str, Any], patience: float) -> Flow[Pair]:
    call = Call("POST", _pair_target(of, "/workers:add"), worker, patience=patience)
    return values.read_pair((yield from ask(call)))


def _change(of: str, worker_id: str, verb: str, reason: str | None, patience: float) -> Call:
    body = {} if reason is None else {"reason": reason}
    return Call("POST", _pair_target(of, f"/workers/{segment(worker_id)}:{verb}"), body, patience=patience)


def remove_worker(of: str, worker_id: str, reason: str | None, patience: float) -> Flow[Pair]:
    return values.read_pair((yield from ask(_change(of, worker_id, "remove", reason, patience))))


def change_worker(of: str, worker_id: str, verb: str, reason: str | None, patience: float) -> Flow[Worker]:
    return values.read_changed_worker((yield from ask(_change(of, worker_id, verb, reason, patience))))


def set_worker_key(of: str, worker_id: str, keys: Mapping[str, Any]) -> Flow[Worker]:
    call = Call("POST", _pair_target(of, f"/workers/{segment(worker_id)}:set-key"), keys)
    return values.read_changed_worker((yield from ask(call)))


def worker_ready(of: str, worker_id: str) -> Flow[Readiness]:
    call = Call("GET", _pair_target(of, f"/workers/{segment(worker_id)}/ready"))
    answer: Answer = yield call
    if answer.status in (200, 503):
        body = parse(call, answer)
        if isinstance(body, dict) and "ready" in body:
            return values.read_readiness(body)
    raise refusal(call, answer) if answer.status >= 400 else BadAnswer(f"{call.name}: HTTP {answer.status}")


# --- stored versions


def versions(of: str) -> Flow[StoredVersions]:
    return values.read_versions((yield from ask(Call("GET", _pair_target(of, "/versions")))))


def verify_version(of: str, version: int, patience: float) -> Flow[str | None]:
    call = Call("POST", _pair_target(of, f"/versions/{version}:verify"), patience=patience)
    return values.Members((yield from ask(call)), f"the answer to {call.name}").text_or_none("digest")


def collect_versions(of: str, dry_run: bool) -> Flow[list[str]]:
    call = Call("POST", _pair_target(of, "/versions:collect"), {"dry_run": dry_run})
    answer = values.Members((yield from ask(call)), f"the answer to {call.name}")
    return [str(one) for one in answer.list("directories")]


# --- the gateway itself


def probe(path: str, timeout: float) -> Flow[bool]:
    """Whether the path answers 200 in time; no answer is False."""
    try:
        answer: Answer = yield Call("GET", path, timeout=timeout)
    except TransportError:
        return False
    return answer.status == 200


def metrics() -> Flow[str]:
    call = Call("GET", "/metrics")
    answer: Answer = yield call
    if answer.status != 200:
        raise refusal(call, answer) if answer.status >= 400 else BadAnswer(f"{call.name}: HTTP {answer.status}")
    return answer.body.decode("utf-8", "replace")


# --- the compatible API, for the controller


def compatible(path: str, body: Mapping[str, Any], timeout: float) -> Flow[Any]:
    return (yield from ask(Call("POST", path, body, timeout=timeout)))


def compatible_update(of: str, version: int, timeout: float) -> Flow[UpdateResult]:
    """The answer, whatever its HTTP status: a gateway may be set to answer a failed transfer with an error status."""
    call = Call("POST", "/update_weights", {"pair_name": of, "version": version}, timeout=timeout)
    answer: Answer = yield call
    if answer.status >= 400:
        failure = refusal(call, answer)
        try:
            return values.read_result(parse(call, answer))
        except BadAnswer:
            raise failure from None
    return values.read_result(parse(call, answer))
