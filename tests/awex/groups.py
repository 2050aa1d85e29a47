"""Groups of ranks over gloo beside the default one, and the metadata that a rank reads before it joins one."""
import datetime
import json
import os
import urllib.request
from typing import Any

import torch
import torch.distributed as dist
import values

METADATA_SECONDS = 60


def read_metadata(store_url: str, pair: str, key: str) -> Any:
    with urllib.request.urlopen(f"{store_url}/weight_meta/{pair}/{key}", timeout=METADATA_SECONDS) as answer:
        return values.decode(json.load(answer)["value"])


def join_group(address: str, rank: int, world: int, name: str, timeout: datetime.timedelta) -> dist.ProcessGroup:
    """A group beside the default one. torch has no public way to make a second one with members of its own."""
    from torch.distributed import distributed_c10d as c10d

    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "False"
    store, rank, world = next(c10d.rendezvous(address, rank, world, timeout=timeout))
    store.set_timeout(timeout)
    group, _ = c10d._new_process_group_helper(
        world, rank, [], c10d.Backend("gloo"), c10d.PrefixStore(name, store), group_name=name, timeout=timeout
    )
    c10d._world.pg_group_ranks[group] = {n: n for n in range(world)}
    return group


def warm_up(group: dist.ProcessGroup, sidecar: dist.ProcessGroup, rank: int, world: int) -> None:
    """One message along a ring: the first between two ranks makes their connection. All must call it."""
    got = torch.full((100,), -1.0)
    source = (rank - 1) % world
    ops = [
        dist.P2POp(dist.irecv, got, source, group=group),
        dist.P2POp(dist.isend, torch.full((100,), float(rank)), (rank + 1) % world, group=group),
    ]
    for work in dist.batch_isend_irecv(ops) if world > 1 else []:
        work.wait()
    dist.barrier(group=sidecar)
    if world > 1 and not bool((got == source).all()):
        raise RuntimeError(f"rank {rank} got something else than rank {source}'s number from it")


def open_default_group() -> None:
    """Workers have one of their training or of their engine; a member of one is enough here."""
    if not dist.is_initialized():
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
