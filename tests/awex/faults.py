"""Transfers that go wrong. A collective has no verdict for one member: when one fails, none has the new version for sure.

In each: how the update ends, what every engine is then, that the answer names who failed and why, and that a later update
works. The pair has no checkpoint to heal from, so engines whose weights are in doubt are quarantined and held paused.
"""
import os
import signal
import time
from collections.abc import Callable

import wire
from fleet import Fleet, Worker
from gateway import Gateway
from pair import PATIENCE, Limit, Pair

# How long members wait for one that doesn't come. AReaL's workers wait for thirty minutes.
GROUP_SECONDS = 12
# All of one fault: the members' own wait, and the machine's.
FAULT_SECONDS = 60
HANG_SECONDS = GROUP_SECONDS + 6


class Faults:
    """One pair of two FSDP ranks and two engines, of two ranks and of one, through all of it in order."""

    def __init__(self, gateway: Gateway, fleet: Fleet, say: Callable[[str], None]) -> None:
        self.gateway, self.fleet, self.say = gateway, fleet, say
        self.more = {"group_seconds": GROUP_SECONDS}
        trainers = fleet.trainers(2, layout="fsdp", **self.more)
        self.pair = Pair(gateway, fleet, trainers, fleet.engines(2, 2, **self.more))

    def connect(self) -> None:
        self.pair.connect()
        self.pair.assert_updated(self.pair.update())

    def _update_that_fails(self, culprit: Worker, *words: str) -> None:
        """The culprit was armed before. Everybody is asked once, whatever was answered."""
        before = {w.name: len(w.seen("update_weights")) for w in self.pair.workers}
        began = time.monotonic()
        with Limit(FAULT_SECONDS, "the update that fails"):
            answer = self.pair.update()
        self.say(f"{time.monotonic() - began:.1f} s: {answer['error']}")
        self.pair.assert_torn(answer, culprit, *words)
        for worker in self.pair.workers:
            if worker is not culprit:
                self.pair.assert_asked(worker, "update_weights", before[worker.name] + 1)

    def refuses(self, culprit: Worker) -> None:
        """One answers 500 without taking part; the others wait for it until their time-out."""
        culprit.fail("update_weights", "refuse")
        self._update_that_fails(culprit, "500")
        self.pair.assert_recovers()

    def hangs(self, culprit: Worker) -> None:
        """One takes the call and takes no part until the others have given up; then it is back."""
        culprit.fail("update_weights", "hang", seconds=HANG_SECONDS)
        self._update_that_fails(culprit)
        self.pair.assert_recovers()

    def dies(self, culprit: Worker, **more: int) -> None:
        """One loses its power when half is transferred, and is started again at the same place."""
        culprit.fail("update_weights", "die_midway", **more)
        try:
            self._update_that_fails(culprit)
            assert not culprit.alive(), f"{culprit.name} was to die"
            self._assert_in_mid_transfer(culprit)
        finally:
            culprit.kill()
            self.fleet.start(culprit)  # Also for the steps after this one, if it has failed.
        self.pair.assert_recovers()

    def _assert_in_mid_transfer(self, culprit: Worker) -> None:
        """A sender's receivers hold a mixture of both versions; else this proves nothing. A receiver's fellows may be whole,
        and don't know it."""
        versions = [self.pair.seed_of(self.pair.served), self.pair.seed_of(self.pair.version)]
        mixed = [e.name for e in self.pair.engines if e.alive() and all(e.differing(seed) for seed in versions)]
        self.say(f"a mixture of versions is in {mixed}")
        assert mixed or culprit.infers, "every engine that lives has one version whole"

    def bring_up_fails(self, culprit: Worker) -> None:
        """One answers 500 to the bring-up, the others wait in it. Nothing is left of a connect that failed."""
        pair = self.pair
        before = len(pair.group_names())
        pair.disconnect()
        culprit.fail("init_weights_update_group", "refuse")
        with Limit(FAULT_SECONDS, "the connect that fails"):
            answer = pair.try_connect()
        self.say(str(answer))
        assert answer.status >= 400, f"the connect that one worker refused is told as {answer}"
        assert culprit.url in answer.text, f"the answer doesn't name {culprit.url}: {answer}"
        for name in pair.group_names()[before:]:
            for key in ("training_params_meta", "infer_params_meta"):
                status = self.gateway.call("GET", f"/weight_meta/{name}/{key}").status
                assert status == 404, f"{key} of {name} is left behind by the failed connect: {status}"
        for engine in pair.engines:
            assert not engine.paused(), f"{engine.name} is left paused by the failed connect"
        pair.assert_recovers(pair.connect)

    def gateway_dies(self) -> None:
        """Killed while the workers are in the collective. Its next life knows only that they were asked."""
        slow = self.pair.trainers[0]
        asked = len(slow.seen("update_weights"))
        slow.fail("update_weights", "hang", seconds=GROUP_SECONDS - 4)
        pending = self.pair.begin_update()
        wire.wait_until(lambda: pending.done() or len(slow.seen("update_weights")) > asked, PATIENCE, "the update is on its way")
        assert not pending.done(), f"the update ended before the gateway was killed: {pending.answer()}"
        os.kill(self._gateway_process(), signal.SIGKILL)
        pending.answer(PATIENCE)
        wire.wait_until(lambda: self.gateway.call("GET", "/readyz").status == 200, PATIENCE, "the gateway's next life")
        self.pair.assert_fenced()
        self.pair.assert_recovers()

    def _gateway_process(self) -> int:
        """`weighlock serve` is a parent that waits for the one that works, and starts it again."""
        parent = self.gateway.process.pid
        with open(f"/proc/{parent}/task/{parent}/children", encoding="ascii") as file:
            return int(file.read().split()[0])

    def joins(self) -> None:
        """Another engine between two updates: the group is built anew, and it has the next version with the others."""
        engine = self.fleet.engine(2, **self.more)
        self.pair.engines.append(engine)
        self.pair.assert_recovers(lambda: self.pair.add(engine))

    def leaves(self, gone: Worker) -> None:
        """The first one, at which the group's ranks have met: it goes on listening there, so the next group meets elsewhere."""
        asked = len(gone.seen("update_weights"))
        self.pair.engines.remove(gone)
        self.pair.assert_recovers(lambda: self.pair.remove(gone))
        assert not gone.paused(), f"{gone.name} left and is held paused"
        self.pair.assert_asked(gone, "update_weights", asked)

    def connects_with_others(self) -> None:
        """The trainers' controller names other engines: one goes, one comes."""
        gone = self.pair.engines.pop()
        self.pair.engines.insert(0, self.fleet.engine(2, **self.more))
        self.pair.assert_recovers(self.pair.connect)
        assert not gone.paused(), f"{gone.name} left and is held paused"
