"""Weighlock from Python: start a gateway, and bring new weights to inference workers.

* `WeightUpdateController` starts a gateway of its own and has the methods of AReaL's controller.
* `Client` and `AsyncClient` speak the native API of a gateway that runs somewhere.

Standard library only. `weighlock.errors` has all exceptions, `weighlock.values` all results.
"""

from ._bodies import KeyReference, WorkerSpec
from ._process import find_binary
from ._version import __version__
from .aio import AsyncClient
from .client import Client
from .controller import WeightUpdateController, WeightUpdateControllerConfig
from .errors import (
    ApiError,
    AuthenticationFailed,
    BadAnswer,
    BinaryNotFound,
    Conflict,
    ConnectionLost,
    GatewayStartFailed,
    GatewayStartTimedOut,
    InvalidRequest,
    NotConnected,
    NotFound,
    TimedOut,
    TransportError,
    Unavailable,
    Unreachable,
    UpdateFailed,
    WeighlockError,
)
from .values import (
    Cause,
    Event,
    Lora,
    Pair,
    Readiness,
    RemovedPair,
    StoredVersion,
    StoredVersions,
    Update,
    UpdateResult,
    Verdict,
    Worker,
    WorkerOutcome,
)

__all__ = [
    "ApiError",
    "AsyncClient",
    "AuthenticationFailed",
    "BadAnswer",
    "BinaryNotFound",
    "Cause",
    "Client",
    "Conflict",
    "ConnectionLost",
    "Event",
    "GatewayStartFailed",
    "GatewayStartTimedOut",
    "InvalidRequest",
    "KeyReference",
    "Lora",
    "NotConnected",
    "NotFound",
    "Pair",
    "Readiness",
    "RemovedPair",
    "StoredVersion",
    "StoredVersions",
    "TimedOut",
    "TransportError",
    "Unavailable",
    "Unreachable",
    "Update",
    "UpdateFailed",
    "UpdateResult",
    "Verdict",
    "WeighlockError",
    "WeightUpdateController",
    "WeightUpdateControllerConfig",
    "Worker",
    "WorkerOutcome",
    "WorkerSpec",
    "__version__",
    "find_binary",
]
