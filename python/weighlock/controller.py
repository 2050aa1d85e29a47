"""`WeightUpdateController`: AReaL's controller, with a Weighlock gateway behind it.

The same methods, arguments and defaults, so that a trainer changes an import. What differs is on purpose:

* An update that failed raises `UpdateFailed`, which carries the result and what became of each worker; AReaL's returns
  it, and a trainer that doesn't look trains on. `raise_on_error=False` returns it here, too.
* Refusals and lost connections are `WeighlockError`s with a code, not the HTTP library's exceptions.
* The gateway draws its own port and the admin key isn't on its command line.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from dataclasses import dataclass, field
from typing import Any, Mapping, Sequence

from . import _flows
from ._keys import PUBLIC_DEFAULT, Key
from ._process import GatewayProcess, find_binary
from .client import Client
from .errors import NotConnected, UpdateFailed, WeighlockError, mistake
from .values import Update, UpdateResult

logger = logging.getLogger("weighlock.controller")

_LEAVE_S = 5.0  # `destroy` waits so long for `disconnect`; the gateway's own way out does the rest
_DETAILS_S = 5.0  # for the code of an update that failed
_POLL_S = 0.02  # a gateway that listens answers in milliseconds
# The gateway answers an update that goes on before its client gives up: after 280 of AReaL's 300 s.
_REPLY_SHARE = 280.0 / 300.0


@dataclass
class WeightUpdateControllerConfig:
    """AReaL's settings and defaults, and some of ours. Times are in seconds.

    host, port:       where the gateway listens; port 0: any free one.
    admin_api_key:    its bearer token. The default is public, and taken on loopback only.
    setup_timeout:    for `initialize`.
    request_timeout:  for one call of this class.
    init_timeout_s:   the gateway's --init-timeout.
    update_timeout_s: the gateway's --update-timeout: raises the deadlines of saves and loads, never lowers them.

    Ours:
    binary:           the program; None: see `find_binary`.
    state_dir:        the gateway's journal; None: each start has one of its own.
    stop_timeout:     from SIGTERM to SIGKILL. Cutting it short can leave engines paused.
    raise_on_error:   what `update_weights` does with an update that failed, unless a call says otherwise.
    serve_arguments:  further flags of `weighlock serve`, such as ("--storage-roots", "/shared/w").
    """

    host: str = "127.0.0.1"
    port: int = 0
    admin_api_key: str = field(default=PUBLIC_DEFAULT, repr=False)
    log_level: str = "warning"
    setup_timeout: float = 30.0
    request_timeout: float = 300.0
    init_timeout_s: float = 300.0
    update_timeout_s: float = 120.0
    binary: str | os.PathLike[str] | None = None
    state_dir: str | os.PathLike[str] | None = None
    stop_timeout: float = 15.0
    raise_on_error: bool = True
    serve_arguments: Sequence[str] = ()


class WeightUpdateController:
    """A gateway of one's own, and one pair on it.

        with WeightUpdateController() as controller:
            controller.connect("actor", trainer_urls, engine_urls, mode="disk", save_path="/shared/w")
            controller.update_weights(1)

    Thread rule: `update_weights` and `health_check` may be called from several threads, the others from one at a time.
    """

    def __init__(self, config: WeightUpdateControllerConfig | None = None) -> None:
        self.config = config or WeightUpdateControllerConfig()
        self._process: GatewayProcess | None = None
        self._client: Client | None = None
        self._pair_name: str | None = None

    def __enter__(self) -> WeightUpdateController:
        if self._process is None:
            self.initialize()
        return self

    def __exit__(self, *_: object) -> None:
        self.destroy()

    def __repr__(self) -> str:
        return f"WeightUpdateController({self.gateway_url or 'not initialized'!r}, pair={self._pair_name!r})"

    @property
    def gateway_url(self) -> str:
        """The gateway's URL; "" before `initialize`."""
        return self._client.url if self._client is not None else ""

    @property
    def client(self) -> Client:
        """A client of the gateway's native API: history, workers, events."""
        return self._needed()

    # --- the gateway's life

    def initialize(self) -> None:
        """Starts the gateway and returns once it answers.

        `BinaryNotFound`, `GatewayStartFailed` with its last words, or `GatewayStartTimedOut`; nothing is left running then.
        """
        if self._process is not None:
            raise NotConnected("the gateway runs already; call destroy() before another initialize()")
        config = self.config
        until = time.monotonic() + config.setup_timeout
        key = Key(config.admin_api_key)
        process = GatewayProcess(find_binary(config.binary), _arguments(config), key)
        try:
            port = process.await_port(until)
            client = Client(f"http://{_reachable(config.host)}:{port}", key=config.admin_api_key, timeout=config.request_timeout)
            while not client._run(_flows.probe("/health", max(0.01, min(2.0, until - time.monotonic())))):
                if process.exit_code is not None:
                    raise process.failed()
                if time.monotonic() >= until:
                    raise process.late("to answer /health")
                time.sleep(_POLL_S)
        except BaseException:
            process.stop(config.stop_timeout)
            raise
        self._process, self._client = process, client
        logger.info("gateway ready at %s", client.url)

    def destroy(self) -> None:
        """Disconnects the pair, and ends the gateway. May be called at any time, and again."""
        if self._client is not None and self._pair_name is not None:
            try:
                self._leave(_LEAVE_S)
            except WeighlockError as failure:
                logger.warning("pair '%s' wasn't disconnected: %s", self._pair_name, failure)
        process, self._process, self._client, self._pair_name = self._process, None, None, None
        if process is not None:
            code = process.stop(self.config.stop_timeout)
            if code != 0:
                logger.warning("the gateway ended with exit code %s; engines may have been left paused: its log names them", code)

    def health_check(self) -> bool:
        """Whether the gateway answers. False before `initialize`, too."""
        if self._client is None:
            return False
        return self._client._run(_flows.probe("/health", self.config.request_timeout))

    # --- the pair

    def connect(
        self,
        pair_name: str,
        train_worker_urls: Sequence[str],
        inference_worker_urls: Sequence[str],
        mode: str = "awex",
        save_path: str = "",
        use_lora: bool = False,
        lora_name: str = "",
        lora_keep_versions: int = 0,
        colocate: bool = False,
        nccl_master_addr: str = "",
        nccl_master_port: int = 0,
        *,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """Tells the gateway who trains and who serves. The same pair again begins a new lineage: a trainer restarted.

        settings: the pair's policy (Weighlock's own): quorum, pause_mode, deadlines_ms, save_trigger and so on.
        `InvalidRequest` names the field that is wrong. The name is remembered even so, as AReaL's controller does, so that
        `destroy` disconnects what may have been connected.
        """
        client = self._needed()
        body: dict[str, Any] = {
            "pair_name": pair_name,
            "train_worker_urls": _urls("train_worker_urls", train_worker_urls),
            "inference_worker_urls": _urls("inference_worker_urls", inference_worker_urls),
            "mode": mode,
            "save_path": save_path,
            "use_lora": use_lora,
            "lora_name": lora_name,
            "lora_keep_versions": lora_keep_versions,
            "colocate": colocate,
            "nccl_master_addr": nccl_master_addr,
            "nccl_master_port": nccl_master_port,
        }
        if settings:
            body["settings"] = dict(settings)
        self._pair_name = pair_name
        client._run(_flows.compatible("/connect", body, self.config.request_timeout))
        logger.info("connected pair '%s' (mode=%s)", pair_name, mode)

    def update_weights(self, version: int, *, raise_on_error: bool | None = None) -> UpdateResult:
        """Brings `version` to the pair's workers and returns when that has ended.

        `UpdateFailed`, with `result`, `update` and `verdicts`, if it wasn't committed; `raise_on_error=False`, here or in the
        configuration, returns the result, as AReaL's controller does. Refusals and lost connections raise either way.
        """
        client, pair = self._needed(), self._pair_name
        if pair is None:
            raise NotConnected("Not connected. Call connect() first.")
        result = client._run(_flows.compatible_update(pair, version, self.config.request_timeout))
        if not result.ok and (self.config.raise_on_error if raise_on_error is None else raise_on_error):
            raise self._failure(client, pair, result)
        if result.degraded:
            logger.warning("pair '%s' v%d is committed, but: %s", pair, result.version, result.detail)
        return result

    def disconnect(self) -> None:
        """Removes the pair; nothing to do without one. `NotFound` if the gateway doesn't know it; it is forgotten either way."""
        if self._pair_name is not None:
            self._leave(self.config.request_timeout)

    def _failure(self, client: Client, pair: str, result: UpdateResult) -> UpdateFailed:
        """The compatible answer has no code: the update itself tells it, if the gateway still answers."""
        update: Update | None = None
        if result.update_id is not None:
            with contextlib.suppress(WeighlockError):
                update = client._run(_flows.get_update(pair, result.update_id, _DETAILS_S))
        code = update.error.code if update is not None and update.error is not None else "internal"
        text = result.error or f"pair '{pair}' v{result.version}: the gateway tells no reason"
        return UpdateFailed(text, code=code, verdicts=result.verdicts, update=update, result=result)

    def _leave(self, timeout: float) -> None:
        client, name = self._needed(), self._pair_name
        try:
            client._run(_flows.compatible("/disconnect", {"pair_name": name}, timeout))
            logger.info("disconnected pair '%s'", name)
        finally:
            self._pair_name = None

    def _needed(self) -> Client:
        if self._client is None:
            raise NotConnected("Controller not initialized. Call initialize() first.")
        return self._client


def _arguments(config: WeightUpdateControllerConfig) -> list[str]:
    arguments = ["--compat", "--host", config.host, "--port", str(config.port)]
    arguments += ["--init-timeout", str(float(config.init_timeout_s)), "--update-timeout", str(float(config.update_timeout_s))]
    arguments += ["--log-level", config.log_level, "--reply-by", f"{config.request_timeout * _REPLY_SHARE:.3f}"]
    if config.state_dir is not None:
        arguments += ["--state-dir", os.fspath(config.state_dir)]
    return arguments + list(config.serve_arguments)


def _reachable(host: str) -> str:
    """The host as a client on this machine names it: a wildcard is reached by loopback."""
    named = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(host.strip("[]"), host.strip("[]"))
    return f"[{named}]" if ":" in named else named


def _urls(name: str, urls: Sequence[str]) -> list[str]:
    if isinstance(urls, str):
        raise mistake(f"{name}: must be a list of URLs, not one text", name)
    return list(urls)
