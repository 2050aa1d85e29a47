#!/usr/bin/env python3
"""`kill -9` of the gateway at random moments of real updates, and at chosen ones; afterwards all is as promised.

    kill_test.py BUILD [--kills N] [--seed S]      else WEIGHLOCK_KILLS (100), WEIGHLOCK_SEED (drawn, and printed)

What a kill leaves depends on the moment, so a seed gives the same choices and not always the same outcome. After each kill:
the parent has started another gateway, the update is at its end, its repetition with the same key gives that one outcome, no
engine is paused or serves anything but the committed version, no rank was asked twice to save one attempt, and the next update
succeeds.
"""
import argparse
import collections
import os
import random
import sys
import time
import unittest

import lab
import programs
from lab import Lab
from programs import wait_for

KILLS = 100
SEED = None
LIVES_PER_PARENT = 2  # then the parent is killed too, and its pause before a start begins at 100 ms again


class Kills(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.lab = Lab(load_ms=20)
        cls.addClassCleanup(cls.lab.__exit__)
        cls.lab.serve()
        cls.lab.connect()
        cls.version = 0
        cls.kills_of_parent = 0
        took = []
        for _ in range(4):
            began = time.monotonic()
            cls.next_update_succeeds()
            took.append(time.monotonic() - began)
        cls.update_s = sorted(took)[1]

    @classmethod
    def next_update_succeeds(cls):
        """With patience for a rank that still waits for another one, which a kill between two saves leaves."""
        end = time.monotonic() + 20
        while True:
            cls.version += 1
            update, _ = cls.lab.update(cls.version)
            if update["state"] == "succeeded":
                return
            busy = update["error"] and update["error"]["code"] == "trainer_busy"
            if not busy or time.monotonic() > end:
                raise AssertionError(f"the next update: {update}\n{cls.lab.log()[-8000:]}")
            time.sleep(0.05)

    def kill(self):
        """The gateway alone, so that its parent starts another; or, every third time, both, and they are started from here."""
        if self.kills_of_parent < LIVES_PER_PARENT:
            type(self).kills_of_parent += 1
            old = self.lab.kill_gateway()
            wait_for("its end", lambda: lab.is_gone(old))
            return
        type(self).kills_of_parent = 0
        self.lab.kill_parent()
        self.lab.serve()

    def begin(self, version):
        self.lab.forget_logs()
        return self.lab.in_background(lambda: self.lab.update(version, f"key-{version}"))

    def judge(self, version, thread, answers):
        thread.join(lab.PATIENCE_S)
        self.assertTrue(answers, f"v{version} has no answer\n{self.lab.log()[-8000:]}")
        if isinstance(answers[0], BaseException):
            raise answers[0]
        update, _ = answers[0]
        self.lab.await_idle()
        try:
            again, _ = self.lab.update(version, f"key-{version}")
            self.assertEqual((again["id"], again["state"]), (update["id"], update["state"]))
            self.assertEqual([one["id"] for one in self.lab.updates() if one["version"] == version], [update["id"]])
            is_committed = self.lab.pair()["committed"] == version
            self.assertEqual(is_committed, update["state"] in ("succeeded", "degraded"), update)
            self.assertEqual(self.lab.broken_promises(), [])
            for rank in self.lab.trainers:
                paths = [one["body"] for one in self.lab.requests_of(rank, "/save")]
                self.assertEqual(len(paths), len(set(paths)), paths)
            self.next_update_succeeds()
            self.assertEqual(self.lab.broken_promises(), [])
        except AssertionError as failure:
            raise AssertionError(f"v{version}, {update['state']}: {failure}\n{self.lab.log()[-8000:]}") from None
        return update["state"]


class RandomMoments(Kills):
    def test_after_a_kill_at_any_moment_all_is_as_promised(self):
        seed = SEED if SEED is not None else random.SystemRandom().randrange(1 << 32)
        print(f"\n{KILLS} kills, --seed {seed}; an update takes {self.update_s * 1e3:.0f} ms", flush=True)
        draw = random.Random(seed)
        ends = collections.Counter()
        began = time.monotonic()
        kills = 0
        while kills < KILLS:
            type(self).version += 1
            version = self.version
            moment = draw.uniform(0, 1.3) * self.update_s
            again = draw.uniform(0, 0.3) if draw.random() < 0.25 else None
            with self.subTest(version=version, moment=moment, again=again, seed=seed):
                thread, answers = self.begin(version)
                time.sleep(moment)
                self.kill()
                kills += 1
                if again is not None:  # in the recovery, or soon after it
                    time.sleep(again)
                    self.kill()
                    kills += 1
                ends[self.judge(version, thread, answers)] += 1
        took = time.monotonic() - began
        print(f"{kills} kills in {took:.1f} s, {took / kills * 1e3:.0f} ms each; the updates ended "
              + ", ".join(f"{state} {count}" for state, count in sorted(ends.items())), flush=True)


# Where the gateway waits when it is killed: the dialect of the engine, the route, and whether the engine still did it.
MOMENTS = [(dialect, route, fault) for dialect, routes in {
    "sglang": ("/pause_generation", "/update_weight_version", "/update_weights_from_disk", "/get_weights_by_name",
               "/continue_generation", "/server_info", "/model_info"),
    "vllm": ("/pause", "/update_weight_version", "/collective_rpc", "/weight_checker", "/resume", "/is_paused", "/weight_info"),
}.items() for route in routes for fault in ("hang", "hang_after")]


class ChosenMoments(Kills):
    def kill_where_it_waits_for(self, peer, route, fault):
        type(self).version += 1
        self.lab.forget_logs()
        self.lab.fault(peer, route=route, fault=fault, times=1)
        thread, answers = self.begin(self.version)
        wait_for(f"{route} at {peer}", lambda: self.lab.requests_of(peer, f'"fault": "{fault}"'))
        self.kill()
        return self.judge(self.version, thread, answers)

    def test_in_each_call_to_an_engine_done_or_not(self):
        for dialect, route, fault in MOMENTS:
            with self.subTest(dialect=dialect, route=route, fault=fault):
                self.kill_where_it_waits_for(self.lab.engines[self.lab.DIALECTS.index(dialect)], route, fault)

    def test_in_the_save(self):
        for fault in ("slow", "hang_after"):
            with self.subTest(fault=fault):
                type(self).version += 1
                self.lab.fault(self.lab.trainers[1], fault=fault, times=1, delay_ms=3000)
                thread, answers = self.begin(self.version)
                wait_for("the saves", lambda: all(self.lab.requests_of(rank, "/save") for rank in self.lab.trainers))
                self.kill()
                self.assertEqual(self.judge(self.version, thread, answers), "aborted")

    def test_in_the_recovery_of_a_load_again_and_again(self):
        engine = self.lab.engines[0]
        type(self).version += 1
        self.lab.fault(engine, route="/update_weights_from_disk", fault="hang", times=1)
        self.lab.fault(engine, route="/update_weights_from_disk", fault="slow", times=2, delay_ms=400)
        thread, answers = self.begin(self.version)
        wait_for("the load", lambda: self.lab.requests_of(engine, "/update_weights_from_disk"))
        for pause in (0, 0.15, 0.3, 0.05):
            time.sleep(pause)
            self.kill()
        self.assertEqual(self.judge(self.version, thread, answers), "rolled_back")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("build", nargs="?", default="build/release")
    parser.add_argument("--kills", type=int, default=int(os.environ.get("WEIGHLOCK_KILLS", KILLS)))
    parser.add_argument("--seed", type=int, default=int(os.environ["WEIGHLOCK_SEED"]) if "WEIGHLOCK_SEED" in os.environ else None)
    arguments, rest = parser.parse_known_args()
    KILLS, SEED, programs.BUILD = arguments.kills, arguments.seed, os.path.abspath(arguments.build)
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
