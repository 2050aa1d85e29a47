"""Arguments of the clients' methods as the JSON bodies of the API, and the mistakes that can be found before sending."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping, Sequence, Union

from .errors import mistake
from .values import Lora

DIALECTS = ("auto", "sglang", "vllm")


@dataclass(frozen=True, slots=True)
class KeyReference:
    """Where the *gateway* finds a worker's key: a variable of its environment, or a file on its host.

    The key itself never passes through this client.
    """

    env: str | None = None
    file: str | None = None

    def as_body(self, name: str) -> dict[str, str]:
        if (self.env is None) == (self.file is None):
            raise mistake(f"{name}: give either env= or file=", name)
        return {"env": self.env} if self.env is not None else {"file": str(self.file)}


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """An inference worker to be told of. `admin_key` opens its control routes, `api_key` the others."""

    url: str
    dialect: str = "auto"
    admin_key: KeyReference | None = None
    api_key: KeyReference | None = None

    def as_body(self) -> dict[str, Any]:
        if self.dialect not in DIALECTS:
            raise mistake(f"dialect: '{self.dialect}' is none of {', '.join(DIALECTS)}", "dialect")
        body: dict[str, Any] = {"url": self.url, "dialect": self.dialect}
        if self.admin_key is not None:
            body["admin_key"] = self.admin_key.as_body("admin_key")
        if self.api_key is not None:
            body["api_key"] = self.api_key.as_body("api_key")
        return body


Workers = Sequence[Union[str, WorkerSpec]]


def worker_body(worker: str | WorkerSpec) -> dict[str, Any]:
    return (WorkerSpec(worker) if isinstance(worker, str) else worker).as_body()


def pair_body(
    save_path: str,
    workers: Workers,
    trainers: Sequence[str] | None,
    save_trigger: str,
    lora: Lora | None,
    settings: Mapping[str, Any] | None,
    new_lineage: bool,
) -> dict[str, Any]:
    if isinstance(workers, str) or isinstance(trainers, str):
        raise mistake("workers and trainers are lists of URLs, not one text", "workers")
    if trainers is None:
        trained: dict[str, Any] = {"kind": "external"}
    else:
        trained = {"kind": "areal", "urls": list(trainers), "save_trigger": save_trigger}
    body: dict[str, Any] = {
        "mode": "disk",
        "save_path": save_path,
        "trainers": trained,
        "workers": [worker_body(one) for one in workers],
    }
    if lora is not None:
        body["lora"] = {"name": lora.name, "keep": lora.keep}
    if settings:
        body["settings"] = dict(settings)
    if new_lineage:
        body["new_lineage"] = True
    return body


def update_body(
    version: int,
    path: str | None,
    lineage: int | None,
    deadline: float | None,
    policy: Mapping[str, Any] | None,
) -> dict[str, Any]:
    if isinstance(version, bool) or not isinstance(version, int):
        raise mistake(f"version: must be a whole number, not {version!r}", "version")
    body: dict[str, Any] = {"version": version}
    optional = {"path": path, "lineage": lineage, "deadline_s": deadline, "policy": dict(policy) if policy else None}
    body.update({name: value for name, value in optional.items() if value is not None})
    return body


def rollback_body(
    to: int | None, lineage: int | None, deadline: float | None, policy: Mapping[str, Any] | None
) -> dict[str, Any]:
    for name, number in (("to", to), ("lineage", lineage)):
        if number is not None and (isinstance(number, bool) or not isinstance(number, int)):
            raise mistake(f"{name}: must be a whole number, not {number!r}", name)
    if lineage is not None and to is None:
        raise mistake("lineage: it says of which run to= is, and there is no to=", "lineage")
    optional = {"to": to, "lineage": lineage, "deadline_s": deadline, "policy": dict(policy) if policy else None}
    return {name: value for name, value in optional.items() if value is not None}
