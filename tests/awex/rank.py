"""One rank of a transfer: plans with the real package from what the gateway serves, joins the groups, sends or receives.

What AReaL's adapters do with NCCL and a sidecar is done here with two gloo groups. A rank is used by one thread.
"""
import datetime
import json
import os
import signal
import time
from typing import Any

import torch
import torch.distributed as dist
import values
from colocate import Colocation
from groups import join_group, open_default_group, read_metadata, warm_up
from model import InferPart, TrainPart, digests, weights_of
from package import TransferPlan, TransferPlanBuilder, batch_send_recv, nccl_build_recv_ops, nccl_build_send_ops


class Rank:
    """`size` is the number of ranks of its engine; a training rank is alone in its process."""

    def __init__(self, part: TrainPart | InferPart, size: int, group_seconds: float) -> None:
        self.part, self.size = part, size
        self.timeout = datetime.timedelta(seconds=group_seconds)
        self.sends = isinstance(part, TrainPart)
        self.dies_midway = False
        self.last: dict[str, float] = {}
        self._forget()

        self.colocation: Colocation | None = None
        self.released: set[str] = set()

    def _forget(self) -> None:
        self.plan: TransferPlan | None = None
        self.group: dist.ProcessGroup | None = None
        self.sidecar: dist.ProcessGroup | None = None
        self.number = -1

    # What the gateway asks for.
    def report_weight_meta(self) -> list[dict[str, Any]]:
        return values.encode(self.part.meta())

    def init_weights_update_group(
        self, pair_name: str, master_addr: str, master_port: int, transfer_rank: int, world_size: int, kv_store_url: str,
        infer_world_size: int, train_world_size: int, num_engines: int,
    ) -> None:  # fmt: skip
        if not self.sends:
            if infer_world_size // num_engines != self.size:
                told = f"infer_world_size {infer_world_size} of {num_engines} engines"
                raise RuntimeError(f"awex per-engine world mismatch: {told}, this engine has {self.size} ranks")
            transfer_rank = transfer_rank * self.size + self.part.rank
        infer = read_metadata(kv_store_url, pair_name, "infer_params_meta")
        train = read_metadata(kv_store_url, pair_name, "training_params_meta")
        builder = TransferPlanBuilder(infer_world_size, train_world_size, num_engines)
        self.plan = builder.build_local_transfer_plan(infer, train, global_transfer_rank=transfer_rank)
        open_default_group()
        address, name = f"tcp://{master_addr}:{master_port}", f"awex_{pair_name}"
        self.group = join_group(address, transfer_rank, world_size, name, self.timeout)
        self.sidecar = join_group(address, transfer_rank, world_size, name + "_gloo", self.timeout)
        self.number = transfer_rank

    def batch_isend_irecv(self, world_size: int = 0) -> None:
        if self.group is None:
            raise RuntimeError("Weight update group is not initialized")
        warm_up(self.group, self.sidecar, self.number, world_size)

    def update_weights(self, version: int) -> None:
        if self.plan is None or self.group is None:
            raise RuntimeError("Transfer plan is not initialized")
        began = time.monotonic()
        ops, copies = self._operations()
        if self.dies_midway:
            self._die_midway(ops)
        sends, receives = (ops, []) if self.sends else ([], ops)
        batch_send_recv(send_ops=sends, recv_ops=receives, blocking=True, use_stream=False)
        for original, received in copies:
            original.copy_(received)
        dist.barrier(group=self.sidecar)
        size = sum(op.tensor.numel() * op.tensor.element_size() for op in ops)
        self.last = {"version": version, "ops": len(ops), "bytes": size, "seconds": time.monotonic() - began}

    def _operations(self) -> tuple[list[dist.P2POp], list[tuple[torch.Tensor, torch.Tensor]]]:
        if self.sends:
            return nccl_build_send_ops(self.part.parameters, self.plan, self.group, copy_rank=self.number)[0], []
        ops, copies, _ = nccl_build_recv_ops(self.part.parameters, self.plan, self.group)
        return ops, copies

    def _die_midway(self, ops: list[dist.P2POp]) -> None:
        """Half of the transfer is done, then the machine loses its power."""
        for work in dist.batch_isend_irecv(ops[: len(ops) // 2]):
            work.wait()
        os.kill(os.getpid(), signal.SIGKILL)

    def teardown(self) -> None:
        for group in (self.group, self.sidecar):
            if group is not None:
                dist.destroy_process_group(group)
        self._forget()

    def init_colocate_weight_update(self, timeout_s: float | None = None, **bring_up: Any) -> None:
        self.colocation = Colocation(self.part, timeout_s or self.timeout.total_seconds(), **bring_up)

    def execute_colocate_weight_update(self, version: int) -> None:
        if self.colocation is None:
            raise RuntimeError("init_colocate_weight_update must be called first")
        self.colocation.execute(version, self.released)

    def release_memory(self, tags: list[str]) -> None:
        self.released |= set(tags)

    def resume_memory(self, tags: list[str]) -> None:
        self.released -= set(tags)

    # What the tests ask for.
    def die_midway(self, rank: int) -> None:
        self.dies_midway = self.part.rank == rank

    def digests(self) -> dict[str, Any]:
        sizes = {value.data_ptr(): value.numel() * value.element_size() for value in self.part.parameters.values()}
        held = {"names": digests(self.part.parameters), "bytes": sum(sizes.values())}
        return {**held, "last": self.last, "in_group": self.group is not None, "released": sorted(self.released)}

    def set_released(self, tags: list[str]) -> None:
        self.released = set(tags)

    def expected(self, seed: int) -> dict[str, str]:
        return digests(self.part.expected(seed))

    def set_weights(self, seed: int) -> None:
        if self.sends:
            self.part.set_weights(seed)
        else:
            self.part.load(weights_of(self.part.shape, seed))

    def load(self, directory: str) -> None:
        from safetensors.torch import load_file

        self.part.load(load_file(os.path.join(directory, "model.safetensors")))

    def leading(self, name: str, count: int) -> list | None:
        return self.part.leading(name, count)

    def save(self, directory: str) -> None:
        """Each rank knows the whole model by its seed; the first one writes it."""
        if self.part.rank != 0:
            return
        from safetensors.torch import save_file

        os.makedirs(directory, exist_ok=True)
        whole = {name: value.clone() for name, value in weights_of(self.part.shape, self.part.seed).items()}
        save_file(whole, os.path.join(directory, "model.safetensors"), {"format": "pt"})
        with open(os.path.join(directory, "config.json"), "w", encoding="utf-8") as file:
            json.dump({"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "torch_dtype": "bfloat16"}, file)
