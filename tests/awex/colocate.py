"""The colocated mode of one rank: trainer and engine share a device, and one of the two has its weights in memory at a time.

A training rank puts a handle of its weights into the gateway's store; the engine's rank of the same number takes it from there,
and the engines' ranks pass on among themselves what others need. The handle is the weights themselves here, since there is no
CUDA to share memory by. Memory that was released is a name in a set, and whatever needs it while it is released fails.
"""
import datetime
import io
import json
import time
import urllib.error
import urllib.request
from typing import Any

import torch
import torch.distributed as dist
from groups import join_group, open_default_group, read_metadata
from model import TrainPart
from package import NcclColocateStreamBatchTransport, TransferPlanBuilder

POLL_SECONDS = 0.1


class Store:
    """The pair's keys in the gateway's store."""

    def __init__(self, url: str, pair: str, key: str, seconds: float) -> None:
        self.base, self.key, self.seconds = f"{url}/weight_meta/{pair}", key, seconds

    def put(self, name: str, value: Any) -> None:
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        body = json.dumps({"value": value}).encode()
        urllib.request.urlopen(urllib.request.Request(f"{self.base}/{name}", body, headers, method="PUT"), timeout=self.seconds)

    def wait_for(self, name: str) -> Any:
        end = time.monotonic() + self.seconds
        while time.monotonic() < end:
            try:
                with urllib.request.urlopen(f"{self.base}/{name}", timeout=self.seconds) as answer:
                    return json.load(answer)["value"]
            except urllib.error.HTTPError as error:
                if error.code != 404:
                    raise
            time.sleep(POLL_SECONDS)
        raise RuntimeError(f"nobody put {name} within {self.seconds} s")


class Colocation:
    """Made by the bring-up of one rank."""

    def __init__(
        self, part: Any, seconds: float, pair_name: str, kv_store_url: str, transfer_rank: int, infer_world_size: int,
        train_world_size: int, num_engines: int, master_port: int, admin_api_key: str,
    ) -> None:  # fmt: skip
        if infer_world_size != train_world_size:
            raise ValueError(f"Colocate mode needs as many ranks on both sides, not {infer_world_size} and {train_world_size}")
        self.part, self.number, self.world = part, transfer_rank, infer_world_size
        self.store = Store(kv_store_url, pair_name, admin_api_key, seconds)
        self.sends = isinstance(part, TrainPart)
        self.group: dist.ProcessGroup | None = None
        if self.sends:
            return
        self.partner = infer_world_size + transfer_rank
        infer = read_metadata(kv_store_url, pair_name, "infer_params_meta")
        train = read_metadata(kv_store_url, pair_name, "training_params_meta")
        builder = TransferPlanBuilder(infer_world_size, train_world_size, num_engines)
        self.passes_on, self.takes = (builder.build_local_transfer_plan(infer, train, n) for n in (self.partner, transfer_rank))
        open_default_group()
        timeout = datetime.timedelta(seconds=seconds)
        address, name = f"tcp://127.0.0.1:{master_port}", f"awex_colocate_{pair_name}"
        self.group = join_group(address, transfer_rank, infer_world_size, name, timeout)

    def execute(self, version: int, released: set[str]) -> None:
        if self.sends:
            self._hand_over(version, released)
        else:
            self._take_over(version, released)

    def _hand_over(self, version: int, released: set[str]) -> None:
        if "optimizer" not in released:
            raise RuntimeError("out of memory: the optimizer's state is on the device")
        handle = io.BytesIO()
        torch.save(self.part.parameters, handle)
        self.store.put(f"colocate_weights_rank{self.number}_{version}", handle.getvalue().hex())
        self.store.wait_for(f"colocate_done_rank{self.number}_{version}")

    def _take_over(self, version: int, released: set[str]) -> None:
        if "weights" in released:
            raise RuntimeError("illegal memory access: the engine's weights are released")
        handle = self.store.wait_for(f"colocate_weights_rank{self.partner}_{version}")
        weights = torch.load(io.BytesIO(bytes.fromhex(handle)), weights_only=True)
        trains = {self.world + n: n for n in range(self.world)}
        infers = {n: train for train, n in trains.items()}
        NcclColocateStreamBatchTransport(self.number, self.world).update_weights_in_colocate_mode(
            trains, infers, self.number, f"infer_{self.number}", self.world, self.passes_on, self.takes, self.group, weights,
            self.part.parameters,
        )  # fmt: skip
        self.store.put(f"colocate_done_rank{self.partner}_{version}", True)
