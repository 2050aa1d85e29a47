"""Which ranks of a colocated group exchange nothing, told by the real package's transport itself.

It is run with the one method replaced that would send: which peers it turns to, round by round, is all that is looked at.
"""
import pathlib
import subprocess
from collections.abc import Iterable

from package import NcclColocateStreamBatchTransport

RANKS_MAX = 40
SENDS, RECEIVES = "sends", "receives"


class Watched(NcclColocateStreamBatchTransport):
    """Takes the name of a direction for the operations of it, and notes the peers."""

    def __init__(self, rank: int, ranks: int) -> None:
        super().__init__(rank, ranks)
        self.peers: dict[str, set[int]] = {SENDS: set(), RECEIVES: set()}

    def _execute_ops_concurrent(self, ops_dict: str, peer_ranks: Iterable[int]) -> int:
        self.peers[ops_dict].update(peer_ranks)
        return 0


def never_meeting(ranks: int) -> list[tuple[int, int]]:
    watched = [Watched(rank, ranks) for rank in range(ranks)]
    for rank, one in enumerate(watched):
        one.execute_recursive_partition_stream_transfer(rank, ranks, SENDS, RECEIVES, None, f"rank {rank}", 0)
    return [
        (sender, receiver)
        for sender in range(ranks)
        for receiver in range(ranks)
        if sender != receiver
        and not (receiver in watched[sender].peers[SENDS] and sender in watched[receiver].peers[RECEIVES])
    ]


def check(tool: pathlib.Path) -> str:
    found = 0
    for ranks in range(1, RANKS_MAX + 1):
        told = subprocess.run([tool, "--never-meet", str(ranks)], check=True, stdout=subprocess.PIPE, text=True).stdout
        ours = [tuple(map(int, line.split())) for line in told.splitlines()]
        theirs = never_meeting(ranks)
        if ours != theirs:
            raise SystemExit(f"{ranks} colocated ranks: {ours} never meet, as predicted; with awex {theirs}")
        found += len(theirs)
    return f"{found} pairs of ranks never meet, as predicted, in colocated groups of up to {RANKS_MAX}"
