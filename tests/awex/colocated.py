"""Trainers and engines that share their devices: the sequence of memory around the transfer, and the keys that it leaves."""
from collections.abc import Callable

from faults import FAULT_SECONDS, GROUP_SECONDS
from fleet import Fleet, Worker
from gateway import Gateway
from pair import Limit, Pair


class Colocated:
    """As many engines of one rank as there are trainers."""

    def __init__(self, gateway: Gateway, fleet: Fleet, ranks: int, layout: str, say: Callable[[str], None]) -> None:
        self.gateway, self.say = gateway, say
        more = {"group_seconds": GROUP_SECONDS}
        self.pair = Pair(gateway, fleet, fleet.trainers(ranks, layout=layout, **more), fleet.engines(ranks, 1, **more))
        self.pair.colocated = True

    def connect(self) -> None:
        self.pair.connect()
        for worker in self.pair.workers:
            self.pair.assert_asked(worker, "init_colocate_weight_update", 1)

    def is_refused(self) -> None:
        """Some of its ranks never exchange anything: named before anybody is brought up."""
        answer = self.pair.try_connect()
        assert answer.status == 400, f"connect: {answer}"
        self.say(answer.body["error"])
        for words in ("would never be sent", "from train rank ", f"of {len(self.pair.trainers)} ranks"):
            assert words in answer.body["error"], f"the answer doesn't say '{words}': {answer.body}"
        for worker in self.pair.workers:
            self.pair.assert_asked(worker, "init_colocate_weight_update", 0)

    def update(self) -> None:
        """While they trained, the engines' memory was released."""
        self._release_engines()
        answer = self.pair.update()
        self.pair.assert_updated(answer)
        self._assert_memory()
        self._assert_no_keys()

    def _release_engines(self) -> None:
        for engine in self.pair.engines:
            engine.ask("POST", "/debug/memory", {"released": ["kv_cache", "weights"]})

    def _assert_memory(self) -> None:
        """The engines have all of theirs back, and the trainers have given theirs up."""
        for engine in self.pair.engines:
            held = engine.digests()[0]["released"]
            assert not held, f"{engine.name}: {held} stays released after the update"
        for worker in self.pair.trainers:
            released = worker.digests()[0]["released"]
            assert released == ["optimizer", "weights"], f"{worker.name} has released {released}"

    def _assert_no_keys(self) -> None:
        """Each update's weights are as large as the model: none stays in the store."""
        pair, ranks = self.pair, len(self.pair.trainers)
        name = pair.trainers[0].seen("init_colocate_weight_update")[-1]["pair_name"]
        for rank in range(ranks, 2 * ranks):
            for key in (f"colocate_weights_rank{rank}_{pair.version}", f"colocate_done_rank{rank}_{pair.version}"):
                status = self.gateway.call("GET", f"/weight_meta/{name}/{key}").status
                assert status == 404, f"{key} is left in the store: {status}"

    def refuses(self, culprit: Worker) -> None:
        """One answers 500 without taking part: a failure of all, no keys stay, and the next update works."""
        self._release_engines()
        culprit.fail("execute_colocate_weight_update", "refuse")
        with Limit(FAULT_SECONDS, "the update that fails"):
            answer = self.pair.update()
        self.say(answer["error"] or "")
        self.pair.assert_torn(answer, culprit, "500")
        self._assert_no_keys()
        self.update()

    def disconnect(self) -> None:
        self.pair.disconnect()
