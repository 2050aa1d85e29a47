"""One AWEX pair: its workers, and the gateway's calls about it. What a user was promised is asserted here, once for all tests."""
import os
import random
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(os.path.dirname(HERE), part) for part in ("real", "e2e")]
import wire  # noqa: E402
from fleet import Fleet, Worker  # noqa: E402
from gateway import KEY, Gateway  # noqa: E402

# Below the ports that are drawn for connections: one of those may be another's by the time the ranks meet there, and a rank
# that tries too early may even meet itself.
MEETING_PORTS = (20_000, 32_000)
# A crowded machine; what must be quick has a limit of its own.
PATIENCE = 90


def meeting_port(host: str) -> int:
    while True:
        port = random.randrange(*MEETING_PORTS)
        with socket.socket(wire.family_of(host)) as probe:
            if probe.connect_ex((host, port)) != 0:
                return port


class Pair:
    """`trainers` in the order of their ranks. Each update sends weights of a seed of its own, so nothing old can pass for new."""

    def __init__(self, gateway: Gateway, fleet: Fleet, trainers: list[Worker], engines: list[Worker]) -> None:
        self.gateway, self.fleet, self.trainers, self.engines = gateway, fleet, trainers, engines
        self.colocated = False
        self.version = 0
        self.served = 0  # the version that was committed last

    @property
    def workers(self) -> list[Worker]:
        return self.trainers + self.engines

    @staticmethod
    def seed_of(version: int) -> int:
        return 1000 + version

    # --- calls

    def try_connect(self, save_path: str = "") -> wire.Answer:
        meeting = self.engines[0].host
        body = {
            "pair_name": self.gateway.pair,
            "train_worker_urls": [w.url for w in self.trainers],
            "inference_worker_urls": [w.url for w in self.engines],
            "mode": "awex",
            "save_path": save_path,
            "nccl_master_addr": meeting,
            "nccl_master_port": meeting_port(meeting),
            "colocate": self.colocated,
        }
        return self.gateway.call("POST", "/connect", body, timeout=PATIENCE)

    def connect(self, save_path: str = "") -> dict[str, Any]:
        answer = self.try_connect(save_path)
        assert answer.status == 200, f"connect: {answer}"
        return answer.body

    def disconnect(self) -> None:
        self.gateway.good("POST", "/disconnect", {"pair_name": self.gateway.pair}, timeout=PATIENCE)

    def add(self, engine: Worker) -> None:
        self.gateway.good("POST", f"/v1/pairs/{self.gateway.pair}/workers:add", {"url": engine.url}, timeout=PATIENCE)

    def remove(self, engine: Worker) -> None:
        identity = self.told()[engine.url]["id"]
        at = f"/v1/pairs/{self.gateway.pair}/workers/{identity}:remove"
        self.gateway.good("POST", at, {}, timeout=PATIENCE)

    def train(self) -> int:
        self.version += 1
        for worker in self.trainers:
            worker.ask("POST", "/debug/set_weights", {"seed": self.seed_of(self.version)})
            worker.ask("POST", "/debug/memory", {"released": []})
        return self.version

    def begin_update(self) -> wire.Pending:
        """Of weights that the trainers have just got."""
        body = {"pair_name": self.gateway.pair, "version": self.train()}
        return wire.Pending(self.gateway.url, "POST", "/update_weights", body, PATIENCE, {"Authorization": f"Bearer {KEY}"})

    def update(self) -> dict[str, Any]:
        answer = self.begin_update().answer(PATIENCE + 5)
        assert answer.status == 200, f"update {self.version}: {answer}"
        return answer.body

    def told(self) -> dict[str, dict[str, Any]]:
        """What the gateway says of each engine, by its URL."""
        return self.gateway.workers()

    # --- promises

    def assert_updated(self, answer: dict[str, Any]) -> None:
        assert answer["status"] == "ok", f"update {self.version}: {answer}"
        self.served = self.version
        self.assert_serves(self.version)

    def assert_serves(self, version: int) -> None:
        """Every engine: byte by byte the trainers' weights, labelled, not paused, and the gateway says so."""
        for engine in self.engines:
            wrong = engine.differing(self.seed_of(version))
            assert not wrong, f"{engine.name} differs from v{version} in {len(wrong)} tensors: {wrong[:5]}"
        told = wire.wait_until(lambda: self._all_in("ready"), PATIENCE, "every engine in state ready")
        for engine in self.engines:
            assert told[engine.url]["version"] == version, f"{engine.name}: {told[engine.url]}, not v{version}"
            assert not engine.paused(), f"{engine.name} is left paused"
            assert engine.label() == str(version), f"{engine.name} is labelled {engine.label()}, not {version}"

    def _all_in(self, *states: str) -> dict[str, dict[str, Any]] | None:
        told = self.told()
        return told if all(told[e.url]["state"] in states for e in self.engines) else None

    def assert_nothing_sent_twice(self) -> None:
        """Each byte of a receiver was sent once, and senders of equal copies share the work."""
        received = [(rank["last"]["bytes"], rank["bytes"]) for e in self.engines for rank in e.digests()]
        for got, held in received:
            assert got == held, f"an engine's rank holds {held} bytes and was sent {got}: {received}"
        sent = [w.digests()[0]["last"]["bytes"] for w in self.trainers]
        needed = sum(held for _, held in received)
        assert sum(sent) == needed, f"{sent} bytes were sent, {needed} were needed"

    def sent_bytes(self) -> list[int]:
        return [w.digests()[0]["last"]["bytes"] for w in self.trainers]

    def assert_asked(self, worker: Worker, call: str, times: int) -> None:
        got = len(worker.seen(call))
        assert got == times, f"{worker.name} was asked {got} times for {call}, not {times}"

    def group_names(self) -> list[str]:
        """Under which names the first trainer was asked to join a group, one after the other."""
        return [body["pair_name"] for body in self.trainers[0].seen("init_weights_update_group")]

    def assert_torn(self, answer: dict[str, Any], culprit: Worker, *words: str) -> None:
        """No member's success counts: the answer names who failed and why, and nobody serves a mixture."""
        assert answer["status"] == "error", f"a transfer that one worker failed is told as {answer}"
        for word in (culprit.url, *words):
            assert word in answer["error"], f"the answer doesn't say '{word}': {answer['error']}"
        self.assert_fenced()

    def assert_fenced(self) -> None:
        """Every engine is quarantined, with its cause, and held paused; or it has gone."""
        told = wire.wait_until(lambda: self._all_in("quarantined", "joining", "unknown"), PATIENCE, "every engine fenced")
        for engine in self.engines:
            assert told[engine.url]["cause"], f"{engine.name} is fenced without a cause: {told[engine.url]}"
            assert told[engine.url]["version"] is None, f"{engine.name} is told to have a version: {told[engine.url]}"
            assert not engine.alive() or engine.paused(), f"{engine.name} serves a mixture"

    def assert_recovers(self, action: Callable[[], object] = lambda: None) -> None:
        """After the action the next update goes through a new group, under a name that no worker has seen, and all serve it."""
        before = self.group_names()
        action()
        self.assert_updated(self.update())
        names = self.group_names()
        assert len(set(names)) == len(names), f"a name of a group was used twice: {names}"
        assert len(names) > len(before), "the update went through the group of before"
        self.assert_nothing_sent_twice()


class Limit:
    """Asserts that what is inside took no longer."""

    def __init__(self, seconds: float, what: str) -> None:
        self.seconds, self.what = seconds, what

    def __enter__(self) -> "Limit":
        self.began = time.monotonic()
        return self

    def __exit__(self, kind: type | None, *_: object) -> None:
        took = time.monotonic() - self.began
        if kind is None and took > self.seconds:
            raise AssertionError(f"{self.what} took {took:.1f} s, more than {self.seconds} s")
