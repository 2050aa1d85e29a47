#!/usr/bin/env python3
"""A large fleet (the native one of tests/bench): updates, workers that stall, a gateway that is killed, few open files.

    scale_test.py BUILD [--workers N] [--updates M]      200 and 40; 1000 and 200 in `make nightly`
"""
import argparse
import os
import signal
import sys
import tempfile
import time
import unittest

import lab
import programs
from lab import KEY, children_of
from programs import Lag, call, program, wait_for

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bench"))
from processes import Fleet, memory_mib  # noqa: E402

WORKERS, UPDATES = 200, 40
LOAD = "/update_weights_from_disk"
LOAD_MS = 200
RECOVERY_S = 5  # beyond the engines' own time
FILES = 256
REMEMBERED_UPDATES, REMEMBERED_TARGETS = 256, 50_000  # docs/limits.md: kUpdatesRememberedMax, kTargetsRememberedMax
TARGET_KIB = 1.3  # of one of them: 60 MB of 50,000, and some room


def remembered_mib(updates):
    return min(min(updates, REMEMBERED_UPDATES) * WORKERS, REMEMBERED_TARGETS) * TARGET_KIB / 1024


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


class Scale(unittest.TestCase):
    STALL_EVERY = 20

    def setUp(self):
        self.directory = tempfile.TemporaryDirectory(prefix="weighlock-scale-")
        self.addCleanup(self.directory.cleanup)
        self.fleet = Fleet(programs.BUILD, infer=WORKERS, train=1, latency_ms={LOAD: LOAD_MS})
        self.addCleanup(self.fleet.end)
        self.version = 0

    def path(self, name):
        return os.path.join(self.directory.name, name)

    def serve(self, files=None):
        os.makedirs(self.path("shared"), exist_ok=True)
        limit = ["/bin/sh", "-c", f"ulimit -n {files} && exec \"$@\"", "sh"] if files else []
        command = [*limit, program("weighlock"), "serve", "--host", "127.0.0.1", "--port", "0",
                   "--state-dir", self.path("state"), "--log-level", "info"]
        self.server = lab.Process(self.directory.name, "gateway", *command, env={"WEIGHLOCK_ADMIN_API_KEY": KEY})
        self.addCleanup(self.server.end)
        self.url = self.server.urls(1)[0]
        status, body = self.ask("POST", "/connect", {
            "pair_name": "big", "train_worker_urls": self.fleet.urls["train"], "mode": "disk", "save_path": self.path("shared"),
            "inference_worker_urls": self.fleet.urls["infer"], "settings": {"dialect": "sglang", "evidence": "label"}})
        self.assertEqual(status, 200, body)

    def ask(self, method, path, body=None):
        return call(method, self.url + path, body, KEY, timeout=300)

    def update(self, expected="succeeded"):
        self.version += 1
        began = time.monotonic()
        status, body = self.ask("POST", "/v1/pairs/big/updates?wait=200", {"version": self.version})
        took = time.monotonic() - began
        self.assertEqual((status, body.get("state")), (200, expected), f"{body.get('error')} {self.server.text()[-3000:]}")
        return took, body

    def counts(self):
        return self.ask("GET", "/v1/pairs/big")[1]["workers"]

    def all_whole(self):
        self.assertEqual(self.counts(), {"total": WORKERS, "ready": WORKERS, "quarantined": 0, "paused_by_other": 0})
        self.assertEqual(self.fleet.ask("statistics")["still_paused"], 0)

    def test_an_update_and_one_in_which_some_stall(self):
        self.serve()
        took, _ = self.update()
        self.all_whole()
        print(f"\n{WORKERS} workers: the first update took {took:.2f} s, {LOAD_MS} ms of it the engines' loads", flush=True)
        self.fleet.http.json("POST", "/stall", {"route": LOAD, "every": self.STALL_EVERY})
        took, body = self.update("degraded")
        stalled = -(-WORKERS // self.STALL_EVERY)
        missing = [one for one in body["workers"] if one["verdict"] != "verified"]
        print(f"with {stalled} that stall: {took:.2f} s", flush=True)
        self.assertEqual(len(missing), stalled)
        for one in missing:
            self.assertTrue(one["cause"], one)
        counts = self.counts()
        self.assertEqual((counts["ready"], counts["quarantined"]), (WORKERS - stalled, stalled))
        self.fleet.http.json("POST", "/stall", {})
        self.update()
        self.all_whole()

    def test_a_kill_in_the_middle_is_recovered_from_in_seconds(self):
        self.serve()
        self.update()
        self.fleet.ask("clear")
        self.version += 1
        status, body = self.ask("POST", "/v1/pairs/big/updates", {"version": self.version})
        self.assertEqual(status, 202, body)
        wait_for("loads", lambda: self.fleet.ask("statistics")["routes"].get(LOAD, {}).get("count", 0) >= WORKERS / 2)
        began = time.monotonic()
        os.kill(children_of(self.server.child.pid)[0], signal.SIGKILL)

        def recovered():
            try:
                return self.ask("GET", "/readyz")[0] == 200
            except OSError:
                return False
        with Lag() as lag:
            wait_for("the recovery", recovered, seconds=120)
            took = time.monotonic() - began
        print(f"\n{WORKERS} workers: recovered {took:.2f} s after the kill", flush=True)
        own = 2 * LOAD_MS / 1e3  # the load that ran, and the heal
        self.assertLess(took, RECOVERY_S + own + 3 * lag.worst, self.server.text()[-3000:])
        self.all_whole()
        self.update()
        self.all_whole()

    def test_descriptors_and_memory_stay_flat_over_many_updates(self):
        self.serve()
        early = UPDATES // 4
        for _ in range(early):
            self.update()
        pid = children_of(self.server.child.pid)[0]
        files, (memory, _) = descriptors(pid), memory_mib(pid)
        for _ in range(UPDATES - early):
            self.update()
        history = remembered_mib(UPDATES) - remembered_mib(early)  # nothing once it is full
        files_now, (memory_now, _) = descriptors(pid), memory_mib(pid)
        print(f"\n{WORKERS} workers, {UPDATES} updates: files {files} -> {files_now}, "
              f"memory {memory:.0f} -> {memory_now:.0f} MiB, {history:.0f} of it for more history", flush=True)
        self.assertLess(files_now, files + 64)
        self.assertLess(memory_now - history, memory * 1.25 + 16)
        self.all_whole()

    def test_with_few_open_files_it_works_slower_and_says_so(self):
        self.serve(FILES)
        took, _ = self.update()
        self.all_whole()
        print(f"\n{WORKERS} workers, {FILES} open files: {took:.2f} s", flush=True)
        pid = children_of(self.server.child.pid)[0]
        self.assertLessEqual(descriptors(pid), FILES)
        text = self.server.text()
        self.assertIn(f"only {FILES} files may be open", text)
        self.assertIn("ulimit -n", text)
        self.assertIn("wait for each other", text)
        self.assertNotIn("Too many open files", text)
        self.update()
        self.all_whole()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("build", nargs="?", default="build/release")
    parser.add_argument("--workers", type=int, default=WORKERS)
    parser.add_argument("--updates", type=int, default=UPDATES)
    arguments, rest = parser.parse_known_args()
    WORKERS, UPDATES, programs.BUILD = arguments.workers, arguments.updates, os.path.abspath(arguments.build)
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
