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
    """An inference worker to be told of. `admin_key` opens its control routes, `api_key` the others.

    dialect: `sglang`, `vllm`, or `auto`: it is asked. None: as it was (`keep_unnamed`), else `auto`.
    """

    url: str
    dialect: str | None = None
    admin_key: KeyReference | None = None
    api_key: KeyReference | None = None

    def as_body(self) -> dict[str, Any]:
        body: dict[str, Any] = {"url": self.url}
        if self.dialect is not None:
            if self.dialect not in DIALECTS:
                raise mistake(f"dialect: '{self.dialect}' is none of {', '.join(DIALECTS)}", "dialect")
            body["dialect"] = self.dialect
        body.update(_named_keys(self.admin_key, self.api_key))
        return body


def _named_keys(admin_key: KeyReference | None, api_key: KeyReference | None) -> dict[str, Any]:
    keys = {"admin_key": admin_key, "api_key": api_key}
    return {name: key.as_body(name) for name, key in keys.items() if key is not None}


def keys_body(admin_key: KeyReference | None, api_key: KeyReference | None) -> dict[str, Any]:
    if admin_key is None and api_key is None:
        raise mistake("give admin_key= or api_key=, or both", "admin_key")
    return _named_keys(admin_key, api_key)


Workers = Sequence[Union[str, WorkerSpec]]


def worker_body(worker: str | WorkerSpec) -> dict[str, Any]:
    return (WorkerSpec(worker) if isinstance(worker, str) else worker).as_body()


def pair_body(
    save_path: str,
    workers: Workers,
    trainers: Sequence[str] | None,
    save_trigger: str | None,
    lora: Lora | None,
    settings: Mapping[str, Any] | None,
    new_lineage: bool,
    keep_unnamed: bool,
) -> dict[str, Any]:
    if isinstance(workers, str) or isinstance(trainers, str):
        raise mistake("workers and trainers are lists of URLs, not one text", "workers")
    if trainers is None:
        trained: dict[str, Any] = {"kind": "external"}
    else:
        trained = {"kind": "areal", "urls": list(trainers)}
        if save_trigger is not None:
            trained["save_trigger"] = save_trigger
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
    if keep_unnamed:
        body["keep_unnamed"] = True
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
