"""What the gateway answers, as values; long because all of them are here.

Names and meanings are those of the API; durations are integer milliseconds, versions integers, times RFC 3339 strings
for display. Reading is lenient about members that this release doesn't know, and strict about those that it needs: a
missing one is `BadAnswer`. `raw` is the answer itself.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Mapping, Sequence

from .errors import BadAnswer

Json = Mapping[str, Any]


def _raw() -> Any:
    return dataclasses.field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Cause:
    """Why something is as it is: a word to decide by, a text to read. `since` is None where it isn't told."""

    code: str
    message: str
    since: str | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one worker in an update.

    verdict:  `untouched`, `loaded`, `verified`, `torn` or `unknown`.
    evidence: how it is known: `none`, `acknowledged`, `label`, `spot`, `checksum` or `probe`.
    """

    verdict: str
    evidence: str
    cause: Cause | None = None


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase of an update and how long it took."""

    name: str
    duration_ms: int


@dataclass(frozen=True, slots=True)
class WorkerOutcome:
    """One worker's part in an update. `duration_ms` is its load, `switched_at` when it began to serve the version.

    `state` is how the update left it, or what it is now while the update runs; None of an adapter.
    """

    id: str
    url: str
    verdict: str
    evidence: str
    duration_ms: int | None
    switched_at: str | None
    cause: Cause | None
    state: str | None = None


@dataclass(frozen=True, slots=True)
class Update:
    """An update, running or ended.

    state: `running`, or how it ended: `succeeded`, `degraded` (committed, some workers are missing), `rolled_back`,
           `aborted`, `rejected` or `failed`.
    adapter: the name under which requests ask for the version, of a LoRA pair.
    """

    id: str
    pair: str
    lineage: int
    version: int
    attempt: int
    state: str
    phase: str
    phases: Sequence[Phase]
    pause_ms: int | None
    bytes: int | None
    workers: Sequence[WorkerOutcome]
    error: Cause | None
    adapter: str | None
    raw: Json = _raw()

    @property
    def running(self) -> bool:
        return self.state == "running"

    @property
    def degraded(self) -> bool:
        """Committed, but some workers don't serve the version."""
        return self.state == "degraded"

    @property
    def committed(self) -> bool:
        """It has ended, and the quorum serves the version."""
        return self.state in ("succeeded", "degraded")

    @property
    def verdicts(self) -> dict[str, Verdict]:
        """What became of each worker, by its URL."""
        return {one.url: Verdict(one.verdict, one.evidence, one.cause) for one in self.workers}


@dataclass(frozen=True, slots=True)
class Worker:
    """An inference worker as it is now.

    state:   `joining`, `ready`, `draining`, `pausing`, `paused`, `loading`, `loaded`, `verified`, `resuming`, `unknown`,
             `torn` or `quarantined`.
    version: what it serves; None when unknown.
    """

    id: str
    url: str
    dialect: str
    state: str
    version: int | None
    incarnation: str | int | None
    cause: Cause | None
    raw: Json = _raw()


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether a worker may get traffic now; `reason` says why not."""

    ready: bool
    reason: str | None
    worker: Worker | None


@dataclass(frozen=True, slots=True)
class WorkerCounts:
    """How many workers a pair has. Who is ready and was paused by somebody else is among both."""

    total: int
    ready: int
    quarantined: int
    paused_by_other: int = 0


@dataclass(frozen=True, slots=True)
class Lora:
    """Adapters instead of whole models: version N is loaded as `{name}-vN`, the `keep` newest stay (0: all)."""

    name: str
    keep: int = 0


@dataclass(frozen=True, slots=True)
class Pair:
    """Trainers and workers that belong together. `committed` is None before the first version, `lora` for whole models.

    not_promised: what the pair's settings give up, in words.
    """

    name: str
    mode: str
    lineage: int
    committed: int | None
    state: str
    rollback: str
    workers: WorkerCounts
    settings: Json
    lora: Lora | None
    not_promised: Sequence[str]
    raw: Json = _raw()


@dataclass(frozen=True, slots=True)
class StoredVersion:
    """One version on storage.

    state:       `committed`, `superseded`, `withdrawn` (the pair was rolled back from it) or `rolled_back` (its update
                 was undone).
    handed_over: its directory is another's, and is never deleted.
    digest:      None while it isn't known.
    leases:      who needs it: `committed`, `last good`, a worker's URL, an update's id and so on.
    removable:   retention deletes it at the end of the next update.
    """

    lineage: int
    version: int
    directory: str
    state: str
    handed_over: bool
    digest: str | None
    bytes: int | None
    leases: Sequence[str]
    removable: bool
    raw: Json = _raw()


@dataclass(frozen=True, slots=True)
class StoredVersions:
    """What is stored of a pair, newest first. `last_good` is what workers are healed with; the next version must be above
    `highest`. Each is None where there is none."""

    items: Sequence[StoredVersion]
    committed: int | None
    last_good: int | None
    highest: int | None
    raw: Json = _raw()


@dataclass(frozen=True, slots=True)
class RemovedPair:
    """A pair that is gone; `abandoned` are the workers that couldn't be brought back to service, by URL."""

    name: str
    abandoned: Sequence[str]


@dataclass(frozen=True, slots=True)
class Event:
    """One record of the gateway's journal. `number` grows; it is what a stream is resumed after."""

    number: int
    time: str
    kind: str
    pair: str
    update: str
    worker: str
    body: Any
    raw: Json = _raw()


@dataclass(frozen=True, slots=True)
class UpdateResult:
    """The compatible API's answer to an update.

    The first four members are those of AReaL's own result. `degraded`: it is committed, but some workers are missing;
    `detail` then says which and why. `pause_ms` is the longest pause of a worker. `verdicts`: by worker URL.
    """

    status: str
    version: int
    duration_ms: float
    error: str | None = None
    update_id: str | None = None
    degraded: bool = False
    verdicts: Mapping[str, Verdict] = dataclasses.field(default_factory=dict)
    pause_ms: int | None = None
    detail: str | None = None

    @property
    def ok(self) -> bool:
        """The version is committed and the quorum serves it."""
        return self.status == "ok"


class Members:
    """A JSON object of an answer, read member by member with the types that are needed."""

    def __init__(self, value: object, what: str) -> None:
        if not isinstance(value, dict):
            raise BadAnswer(f"{what} should be an object, not {_shown(value)}")
        self.raw: dict[str, Any] = value
        self.what = what

    def text(self, name: str) -> str:
        value = self.raw.get(name)
        if not isinstance(value, str):
            raise self._wrong(name, "a text")
        return value

    def text_or_none(self, name: str) -> str | None:
        return None if self.raw.get(name) is None else self.text(name)

    def whole(self, name: str) -> int:
        value = self.raw.get(name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._wrong(name, "a whole number")
        return value

    def whole_or_none(self, name: str) -> int | None:
        return None if self.raw.get(name) is None else self.whole(name)

    def number(self, name: str) -> float:
        value = self.raw.get(name)
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise self._wrong(name, "a number")
        return float(value)

    def flag(self, name: str) -> bool:
        value = self.raw.get(name)
        if not isinstance(value, bool):
            raise self._wrong(name, "true or false")
        return value

    def list(self, name: str) -> Sequence[Any]:
        value = self.raw.get(name)
        if not isinstance(value, list):
            raise self._wrong(name, "a list")
        return value

    def members(self, name: str) -> Members:
        return Members(self.raw.get(name), f"{self.what}: '{name}'")

    def cause(self, name: str) -> Cause | None:
        if self.raw.get(name) is None:
            return None
        one = self.members(name)
        return Cause(one.text("code"), one.text("message"), one.text_or_none("since"))

    def _wrong(self, name: str, wanted: str) -> BadAnswer:
        if name not in self.raw:
            return BadAnswer(f"{self.what} lacks '{name}'")
        return BadAnswer(f"{self.what}: '{name}' should be {wanted}, not {_shown(self.raw[name])}")


def _shown(value: object) -> str:
    return repr(value)[:80]


def read_update(value: object) -> Update:
    m = Members(value, "an update")
    workers = [Members(one, "an update's worker") for one in m.list("workers")]
    phases = [Members(one, "an update's phase") for one in m.list("phases")]
    return Update(
        id=m.text("id"),
        pair=m.text("pair"),
        lineage=m.whole("lineage"),
        version=m.whole("version"),
        attempt=m.whole("attempt"),
        state=m.text("state"),
        phase=m.text("phase"),
        phases=[Phase(one.text("name"), one.whole("duration_ms")) for one in phases],
        pause_ms=m.whole_or_none("pause_ms"),
        bytes=m.whole_or_none("bytes"),
        workers=[_read_outcome(one) for one in workers],
        error=m.cause("error"),
        adapter=m.text_or_none("adapter"),
        raw=m.raw,
    )


def _read_outcome(m: Members) -> WorkerOutcome:
    return WorkerOutcome(
        id=m.text("id"),
        url=m.text("url"),
        verdict=m.text("verdict"),
        evidence=m.text("evidence"),
        duration_ms=m.whole_or_none("duration_ms"),
        switched_at=m.text_or_none("switched_at"),
        cause=m.cause("cause"),
        state=m.text_or_none("state"),
    )


def read_worker(value: object) -> Worker:
    m = Members(value, "a worker")
    return Worker(
        id=m.text("id"),
        url=m.text("url"),
        dialect=m.text("dialect"),
        state=m.text("state"),
        version=m.whole_or_none("version"),
        incarnation=m.raw.get("incarnation"),
        cause=m.cause("cause"),
        raw=m.raw,
    )


def read_readiness(value: object) -> Readiness:
    m = Members(value, "a readiness")
    return Readiness(m.flag("ready"), m.text_or_none("reason"), read_worker(m.raw["worker"]) if m.raw.get("worker") else None)


def read_pair(value: object) -> Pair:
    m = Members(value, "a pair")
    counts = m.members("workers")
    return Pair(
        name=m.text("name"),
        mode=m.text("mode"),
        lineage=m.whole("lineage"),
        committed=m.whole_or_none("committed"),
        state=m.text("state"),
        rollback=m.text("rollback"),
        workers=WorkerCounts(
            total=counts.whole("total"),
            ready=counts.whole("ready"),
            quarantined=counts.whole("quarantined"),
            paused_by_other=counts.whole_or_none("paused_by_other") or 0,  # earlier gateways don't tell
        ),
        settings=m.members("settings").raw,
        lora=_read_lora(m),
        not_promised=[str(one) for one in m.list("not_promised")] if "not_promised" in m.raw else [],
        raw=m.raw,
    )


def _read_lora(m: Members) -> Lora | None:
    if m.raw.get("lora") is None:
        return None
    one = m.members("lora")
    return Lora(one.text("name"), one.whole("keep"))


def read_versions(value: object) -> StoredVersions:
    m = Members(value, "stored versions")

    def number(name: str) -> int | None:
        return None if m.raw.get(name) is None else m.members(name).whole("version")

    return StoredVersions(
        items=[_read_stored(Members(one, "a stored version")) for one in m.list("items")],
        committed=number("committed"),
        last_good=number("last_good"),
        highest=number("highest"),
        raw=m.raw,
    )


def _read_stored(m: Members) -> StoredVersion:
    return StoredVersion(
        lineage=m.whole("lineage"),
        version=m.whole("version"),
        directory=m.text("directory"),
        state=m.text("state"),
        handed_over=m.flag("handed_over"),
        digest=m.text_or_none("digest"),
        bytes=m.whole_or_none("bytes"),
        leases=[str(one) for one in m.list("leases")],
        removable=m.flag("removable"),
        raw=m.raw,
    )


def read_changed_worker(value: object) -> Worker:
    return read_worker(Members(value, "a changed worker").raw.get("worker"))


def read_removed(value: object) -> RemovedPair:
    m = Members(value, "a removed pair")
    return RemovedPair(m.text("name"), [str(url) for url in m.list("abandoned")])


def read_event(value: object) -> Event:
    m = Members(value, "an event")
    texts = {name: m.text(name) for name in ("time", "kind", "pair", "update", "worker")}
    return Event(number=m.whole("number"), body=m.raw.get("body"), raw=m.raw, **texts)


def read_result(value: object) -> UpdateResult:
    m = Members(value, "the answer to /update_weights")
    verdicts: dict[str, Verdict] = {}
    if m.raw.get("verdicts") is not None:
        by_url = m.members("verdicts")
        for url in by_url.raw:
            one = by_url.members(url)
            verdicts[url] = Verdict(one.text("verdict"), one.text("evidence"), one.cause("cause"))
    return UpdateResult(
        status=m.text("status"),
        version=m.whole("version"),
        duration_ms=m.number("duration_ms"),
        error=m.text_or_none("error"),
        update_id=m.text_or_none("update_id"),
        degraded=m.raw.get("degraded") is True,
        verdicts=verdicts,
        pause_ms=m.whole_or_none("pause_ms"),
        detail=m.text_or_none("detail"),
    )
