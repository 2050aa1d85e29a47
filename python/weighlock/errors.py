"""What can go wrong, as exceptions.

Everything that this package raises on purpose is a `WeighlockError`. `code` is a word of the gateway's error table
(`src/weighlock/core/error_codes.def`), so a caller can tell causes apart without reading texts. All of them can be
pickled: they cross process boundaries in trainers that run on Ray or multiprocessing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Mapping

if TYPE_CHECKING:
    from .values import Update, UpdateResult, Verdict

# Codes after which the same call, sent again unchanged, may succeed (column "may be retried" of the error table).
_RETRYABLE = frozenset({"queue_full", "shutting_down", "timed_out", "unreachable", "trainer_busy"})


class WeighlockError(Exception):
    """Base of all. `code` says what kind of trouble it is."""

    def __init__(self, message: str = "", *, code: str = "internal") -> None:
        super().__init__(message)
        self.code = code

    @property
    def retryable(self) -> bool:
        """Whether the same call, sent again unchanged, may succeed."""
        return self.code in _RETRYABLE


# --- no answer


class TransportError(WeighlockError):
    """The call has no answer."""


class Unreachable(TransportError):
    """No connection: the gateway has surely not seen the call."""

    def __init__(self, message: str = "", *, code: str = "unreachable") -> None:
        super().__init__(message, code=code)


class ConnectionLost(TransportError):
    """The connection broke in the call: whether the gateway acted on it isn't known."""

    def __init__(self, message: str = "", *, code: str = "connection_lost") -> None:
        super().__init__(message, code=code)


class TimedOut(TransportError, TimeoutError):
    """No answer in time. The gateway may act on the call all the same."""

    def __init__(self, message: str = "", *, code: str = "timed_out") -> None:
        super().__init__(message, code=code)


class BadAnswer(TransportError):
    """What came back isn't an answer of a Weighlock gateway."""

    def __init__(self, message: str = "", *, code: str = "bad_answer") -> None:
        super().__init__(message, code=code)


# --- the gateway refused


class ApiError(WeighlockError):
    """The gateway answered with a status of 400 or more.

    status: the HTTP status.
    field:  the member of the request that is wrong, as the gateway spells it; None if no one member is.
    """

    def __init__(
        self, message: str = "", *, code: str = "internal", status: int = 500, field: str | None = None
    ) -> None:
        super().__init__(message, code=code)
        self.status = status
        self.field = field


class InvalidRequest(ApiError):
    """The request is wrong in itself; `field` says where."""


def mistake(message: str, field: str | None = None) -> InvalidRequest:
    """A wrong argument that was found here, before anything was sent."""
    return InvalidRequest(message, code="invalid_argument", status=400, field=field)


class AuthenticationFailed(ApiError):
    """The key is missing (401) or isn't the gateway's (403)."""


class NotFound(ApiError):
    """No such pair, update, worker or route."""


class Conflict(ApiError):
    """The request doesn't fit the present state: a version that isn't newer, trainers that still save."""


class Unavailable(ApiError):
    """The gateway can't take the request now: its queue is full, or it is leaving."""


_CLASSES: Mapping[str, type[ApiError]] = {
    "invalid_argument": InvalidRequest,
    "unknown_key": InvalidRequest,
    "not_supported": InvalidRequest,
    "too_large": InvalidRequest,
    "unauthenticated": AuthenticationFailed,
    "permission_denied": AuthenticationFailed,
    "not_found": NotFound,
    "conflict": Conflict,
    "version_not_newer": Conflict,
    "version_reused": Conflict,
    "superseded": Conflict,
    "trainer_busy": Conflict,
    "queue_full": Unavailable,
    "shutting_down": Unavailable,
}

# For bodies without a code: those of the compatible routes, and of proxies.
_CODES_BY_STATUS: Mapping[int, str] = {
    400: "invalid_argument",
    401: "unauthenticated",
    403: "permission_denied",
    404: "not_found",
    405: "not_supported",
    409: "conflict",
    413: "too_large",
    422: "invalid_argument",
    429: "queue_full",
    502: "unreachable",
    503: "shutting_down",
    504: "timed_out",
}


def api_error(message: str, *, status: int, code: str | None, field: str | None) -> ApiError:
    """The exception for an answer of 400 or more. Without a code of the gateway's own, it follows from the status."""
    word: str = code if code else _CODES_BY_STATUS.get(status, "internal")
    return _CLASSES.get(word, ApiError)(message, code=word, status=status, field=field)


# --- an update failed


class UpdateFailed(WeighlockError):
    """An update ended without being committed, or nobody knows that it was.

    verdicts: what became of each worker, by its URL; empty for an update that was refused before it began.
    update:   the update of the native API (`Client`), else None.
    result:   the answer of the compatible API (`WeightUpdateController`), else None.
    """

    def __init__(
        self,
        message: str = "",
        *,
        code: str = "internal",
        verdicts: Mapping[str, Verdict] | None = None,
        update: Update | None = None,
        result: UpdateResult | None = None,
    ) -> None:
        super().__init__(message, code=code)
        self.verdicts: Mapping[str, Verdict] = dict(verdicts or {})
        self.update = update
        self.result = result


# --- the controller


class NotConnected(WeighlockError, RuntimeError):
    """A call of the controller that needs `initialize()` or `connect()` before it."""

    def __init__(self, message: str = "", *, code: str = "conflict") -> None:
        super().__init__(message, code=code)


class BinaryNotFound(WeighlockError, RuntimeError):
    """The program `weighlock` is nowhere that was looked at; the text lists the places."""

    def __init__(self, message: str = "", *, code: str = "not_found") -> None:
        super().__init__(message, code=code)


class GatewayStartFailed(WeighlockError, RuntimeError):
    """The gateway's process ended before it answered.

    exit_code: of the process; negative for a signal, None if it hadn't ended.
    output:    its last lines on stderr.
    """

    def __init__(
        self, message: str = "", *, code: str = "internal", exit_code: int | None = None, output: str = ""
    ) -> None:
        super().__init__(message, code=code)
        self.exit_code = exit_code
        self.output = output


class GatewayStartTimedOut(GatewayStartFailed, TimeoutError):
    """The gateway's process lives and didn't answer in time. It was ended."""
