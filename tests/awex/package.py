"""The real awex package on a machine without a GPU: what the tests use of it, imported in one place.

Importing `awex` needs Megatron's and transformers' names and none of their code; stubs/ has the names. Everything else is
the package as it was released. On a CPU it takes the device "cpu" by itself, and its synchronisation does nothing.

As a program it plans a transfer of one tensor and prints what it found, so that a broken environment shows when it is made.
"""
import os
import sys

STUBS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "stubs")
if STUBS not in sys.path:
    sys.path.insert(0, STUBS)

import torch  # noqa: E402
from awex.meta.weight_meta import ParameterMeta, ParameterReplicaMeta, ParameterShardMeta  # noqa: E402
from awex.sharding.param_sharding import ShardingType  # noqa: E402
from awex.transfer.nccl_comm import batch_send_recv, nccl_build_recv_ops, nccl_build_send_ops  # noqa: E402
from awex.transfer.nccl_stream_batch import NcclColocateStreamBatchTransport  # noqa: E402
from awex.transfer.transfer_plan import TransferPlan, TransferPlanBuilder  # noqa: E402

__all__ = [
    "NcclColocateStreamBatchTransport",
    "ParameterMeta", "ParameterReplicaMeta", "ParameterShardMeta", "ShardingType", "TransferPlan", "TransferPlanBuilder",
    "batch_send_recv", "nccl_build_recv_ops", "nccl_build_send_ops", "shard_meta", "tensor_meta",
]  # fmt: skip

# Each of its modules has a logger of the package's own kind, which prints to stdout, several lines for each plan.
for _name, _module in list(sys.modules.items()):
    if _name.startswith("awex.") and hasattr(getattr(_module, "logger", None), "setLevel"):
        _module.logger.setLevel("WARNING")


def product(shape: tuple[int, ...]) -> int:
    out = 1
    for extent in shape:
        out *= extent
    return out


def shard_meta(
    name: str, shape: tuple[int, ...], offset: tuple[int, ...], rank: int, world: int, dtype: torch.dtype = torch.bfloat16,
    shards: int = 1, dim: int = 0, tp_rank: int = 0,
) -> ParameterShardMeta:  # fmt: skip
    """One rank's part of a tensor, as AReaL's adapters describe it: `rank` is the one in its own world (training or engine)."""
    sharding = ShardingType.TP_SHARDING if shards > 1 else ShardingType.NO_SHARDING
    return ParameterShardMeta(
        tp_rank=tp_rank, attn_tp_rank=tp_rank, pp_rank=0, ep_rank=0, ep_tp_rank=0, global_rank=rank, world_size=world,
        engine_rank=0, name=name, shape=tuple(shape), numel=product(shape), dtype=dtype, global_offset=tuple(offset),
        sharding_type=sharding, num_shards=shards, sharding_dim=dim,
    )  # fmt: skip


def tensor_meta(global_shape: tuple[int, ...], shard: ParameterShardMeta) -> ParameterMeta:
    """What one rank reports of one tensor: its own shard, written twice."""
    return ParameterMeta(
        name=shard.name, global_numel=product(global_shape), global_shape=tuple(global_shape), dtype=shard.dtype,
        shards=[shard], replicas=[ParameterReplicaMeta(shards=[shard])],
    )  # fmt: skip


def _self_check() -> str:
    from importlib.metadata import version

    meta = [tensor_meta((4, 2), shard_meta("w", (4, 2), (0, 0), rank=0, world=1))]
    plan = TransferPlanBuilder(1, 1, 1).build_local_transfer_plan(meta, meta, global_transfer_rank=1)
    if [len(ops) for ops in plan.operations.values()] != [1]:
        raise SystemExit(f"awex {version('awex')} planned {plan.operations} for one tensor between two ranks")
    return f"awex {version('awex')}, torch {torch.__version__}"


if __name__ == "__main__":
    print(_self_check())
