"""The ranks of one engine as child processes, and a call that all of them take part in.

They live and die together: a rank that dies takes the engine with it, as in SGLang.
"""
import ctypes
import multiprocessing
import multiprocessing.connection
import os
import signal
import traceback
from typing import Any

from model import InferPart, Shape
from rank import Rank


def die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def run_rank(pipe: multiprocessing.connection.Connection, shape: Shape, rank: int, size: int, seconds: float) -> None:
    die_with_parent()
    mine = Rank(InferPart(shape, rank, size), size, seconds)
    while True:
        try:
            name, arguments = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send((True, getattr(mine, name)(**arguments)))
        except Exception as error:
            traceback.print_exc()
            pipe.send((False, f"{type(error).__name__}: {error}"))


class Engine:
    """Made before its process has any thread or group: ranks are forks, which saves the imports of each."""

    def __init__(self, shape: Shape, size: int, group_seconds: float) -> None:
        context = multiprocessing.get_context("fork")
        self.pipes: list[multiprocessing.connection.Connection] = []
        self.ranks = []
        for rank in range(size):
            ours, theirs = context.Pipe()
            child = context.Process(target=run_rank, args=(theirs, shape, rank, size, group_seconds), daemon=True)
            child.start()
            theirs.close()
            self.pipes.append(ours)
            self.ranks.append(child)
        self.on_all("digests")

    def on_all(self, name: str, **arguments: Any) -> list[Any]:
        """Blocks until every rank has answered; raises what any of them raised."""
        try:
            for pipe in self.pipes:
                pipe.send((name, arguments))
            answers = self._gather()
        except (EOFError, ConnectionError):
            print(f"a rank died in {name}: the engine goes with it", flush=True)
            os._exit(9)
        failed = [f"rank {rank}: {value}" for rank, (good, value) in enumerate(answers) if not good]
        if failed:
            raise RuntimeError(f"RPC awex_{name} failed: {'; '.join(failed)}")
        return [value for _, value in answers]

    def _gather(self) -> list[tuple[bool, Any]]:
        """In the order of ranks, but read as they come: that one has died is noticed before the others time out."""
        got: dict[int, tuple[bool, Any]] = {}
        while len(got) < len(self.pipes):
            open_ones = [pipe for rank, pipe in enumerate(self.pipes) if rank not in got]
            for pipe in multiprocessing.connection.wait(open_ones):
                got[self.pipes.index(pipe)] = pipe.recv()
        return [got[rank] for rank in range(len(self.pipes))]
