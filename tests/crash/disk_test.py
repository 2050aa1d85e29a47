#!/usr/bin/env python3
"""A gateway whose journal can't be written: a disk that is full, and one that fails.

    disk_test.py BUILD       BUILD holds weighlock, tinyengine, tinytrainer and libdisk_faults.so

The full disk is a real one, a tmpfs in a mount namespace of the gateway's own; where none may be made those tests are skipped.
"""
import errno
import os
import shutil
import subprocess
import unittest

import lab
from lab import KEY, Lab, children_of
from programs import main, program, wait_for

SIZE = 16 << 20  # 8 MiB of it are the journal's reserve
LOADS = ("/update_weights_from_disk", "/collective_rpc")
NAMESPACE = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]


def may_mount():
    return subprocess.run([*NAMESPACE, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False).returncode == 0


class DiskLab(Lab):
    def serve_on_small_disk(self):
        os.makedirs(self.path("state"), exist_ok=True)
        mount = f"mount -t tmpfs -o size={SIZE} none {self.path('state')} && exec \"$@\""
        os.environ["WEIGHLOCK_ADMIN_API_KEY"] = KEY
        self.server = self.start("gateway", shutil.which(NAMESPACE[0]), *NAMESPACE[1:], "sh", "-c", mount, "sh",
                                 program("weighlock"), "serve", "--host", "127.0.0.1", "--port", "0",
                                 "--state-dir", self.path("state"), "--log-level", "info")
        self.url = self.server.urls(1)[0]

    def inside(self, name):
        """A file of the gateway's own disk."""
        return f"/proc/{self.parent}/root{self.path('state')}/{name}"

    def fill(self):
        """Nothing is left but what the gateway has put by."""
        with open(self.inside("filler"), "ab", buffering=0) as filler:
            try:
                while True:
                    filler.write(b"x" * 4096)
            except OSError as full:
                assert full.errno == errno.ENOSPC, full

    def empty(self):
        os.unlink(self.inside("filler"))


@unittest.skipUnless(may_mount(), "no file system may be mounted here")
class FullDisk(unittest.TestCase):
    def setUp(self):
        self.lab = DiskLab()
        self.addCleanup(self.lab.__exit__)
        self.lab.serve_on_small_disk()
        self.lab.connect()
        self.assertEqual(self.lab.update(1)[0]["state"], "succeeded")

    def update_that_fills_the_disk(self):
        """v2: the disk gets full while every engine is paused and one of them is in a load; then the update is cancelled."""
        engine = self.lab.engines[0]
        self.lab.forget_logs()
        self.lab.fault(engine, route=LOADS[0], fault="slow", times=1, delay_ms=8000)
        thread, answers = self.lab.in_background(lambda: self.lab.update(2, "two"))
        wait_for("a load", lambda: self.lab.requests_of(engine, LOADS[0]))
        self.lab.fill()
        status, body = self.lab.ask("POST", f"/v1/pairs/actor/updates/{self.lab.updates()[0]['id']}:cancel")
        self.assertIn(status, (200, 202), body)
        thread.join(lab.PATIENCE_S)
        self.assertIsInstance(answers[0], tuple, answers)
        return answers[0][0]

    def test_an_update_on_a_full_disk_is_undone_with_what_was_put_by_and_new_ones_are_refused_until_there_is_space(self):
        self.assertTrue(os.path.exists(self.lab.inside("journal.reserve")))
        update = self.update_that_fills_the_disk()
        self.assertEqual(update["state"], "rolled_back", update)
        self.lab.await_idle(disk_full=True)
        self.assertEqual(self.lab.broken_promises(), [])
        self.assertFalse(os.path.exists(self.lab.inside("journal.reserve")))
        wait_for("words about it", lambda: "the disk of the journal is full" in self.lab.log())
        self.assertNotIn("started again", self.lab.log())
        self.lab.fill()
        status, body = self.lab.ask("POST", "/v1/pairs/actor/updates", {"version": 3})
        self.assertEqual((status, body["code"]), (507, "storage_full"), body)
        status, body = self.lab.ask("POST", "/update_weights", {"pair_name": "actor", "version": 3})
        self.assertEqual((status, body["status"]), (200, "error"), body)
        self.assertIn("make space", body["error"])
        self.assertEqual(self.lab.update(2, "two")[0]["id"], update["id"], "what is known is told")
        for method, path, body in (("POST", "/v1/pairs/actor/workers:add", {"url": "http://127.0.0.1:9"}),
                                   ("POST", "/v1/pairs/actor:rollback", {})):
            status, answer = self.lab.ask(method, path, body)
            self.assertEqual((status, answer["code"]), (507, "storage_full"), (path, answer))
            self.assertNotIn("v0", answer["detail"])
        status, answer = self.lab.ask("POST", "/connect", {
            "pair_name": "other", "train_worker_urls": ["http://127.0.0.1:9"], "inference_worker_urls": ["http://127.0.0.1:9"],
            "mode": "disk", "save_path": self.lab.path("other")})
        self.assertEqual(status, 507, answer)
        worker = self.lab.ask("GET", "/v1/pairs/actor/workers")[1]["items"][0]["id"]
        for method, path in (("POST", f"/v1/pairs/actor/workers/{worker}:quarantine"), ("DELETE", "/v1/pairs/actor")):
            status, answer = self.lab.ask(method, path)
            self.assertEqual((status, answer["code"]), (507, "storage_full"), (path, answer))
        self.lab.empty()
        self.assertEqual(self.lab.update(4)[0]["state"], "succeeded")
        self.assertTrue(os.path.exists(self.lab.inside("journal.reserve")), "put by again")
        self.assertEqual(self.lab.broken_promises(), [])

    def test_a_gateway_that_dies_on_a_full_disk_is_started_again_and_recovers_with_what_was_put_by(self):
        engine = self.lab.engines[0]
        self.lab.forget_logs()
        self.lab.fault(engine, route=LOADS[0], fault="hang", times=1)
        thread, answers = self.lab.in_background(lambda: self.lab.update(2, "two"))
        wait_for("a load", lambda: self.lab.requests_of(engine, LOADS[0]))
        self.lab.fill()
        self.lab.kill_gateway()
        thread.join(lab.PATIENCE_S)
        self.assertEqual(answers[0][0]["state"], "rolled_back", answers)
        self.lab.await_idle(disk_full=True)
        self.assertEqual(self.lab.broken_promises(), [])
        self.lab.empty()
        self.lab.await_idle()
        self.assertEqual(self.lab.update(3)[0]["state"], "succeeded")


class FailingDisk(unittest.TestCase):
    """The journal's fsync fails, once or for a while: nothing is known to be recorded, so the process asks the disk."""

    def setUp(self):
        self.lab = Lab()
        self.addCleanup(self.lab.__exit__)
        self.control = self.lab.path("fault")
        os.environ["WEIGHLOCK_DISK_FAULT"] = self.control
        self.addCleanup(os.environ.pop, "WEIGHLOCK_DISK_FAULT")
        os.environ["LD_PRELOAD"] = program("libdisk_faults.so")
        self.lab.serve()
        del os.environ["LD_PRELOAD"]
        self.lab.connect()
        self.assertEqual(self.lab.update(1)[0]["state"], "succeeded")

    def set(self, failures):
        with open(self.control + ".new", "w") as file:
            file.write(str(failures))
        os.rename(self.control + ".new", self.control)

    def fail_in_a_load(self, failures):
        self.lab.forget_logs()
        for engine in self.lab.engines:
            for route in LOADS:
                self.lab.fault(engine, route=route, fault="slow", times=1, delay_ms=8000)
        thread, answers = self.lab.in_background(lambda: self.lab.update(2, "two"))
        wait_for("a load", lambda: any(self.lab.requests_of(self.lab.engines[0], route) for route in LOADS))
        self.set(failures)
        return thread, answers

    def test_an_error_of_the_disk_ends_the_process_and_the_next_one_asks_the_disk(self):
        before = children_of(self.lab.parent)
        thread, answers = self.fail_in_a_load(1)
        thread.join(lab.PATIENCE_S)
        self.assertIsInstance(answers[0], tuple, answers)
        update = answers[0][0]
        self.lab.await_idle()
        self.assertIn("gateway ended (exit code 70), started again", self.lab.log())
        self.assertNotEqual(children_of(self.lab.parent), before)
        is_committed = self.lab.pair()["committed"] == 2
        self.assertEqual(is_committed, update["state"] == "succeeded", update)
        self.assertEqual(self.lab.broken_promises(), [])
        self.assertEqual(self.lab.update(2, "two")[0]["id"], update["id"])
        self.assertEqual(self.lab.update(3)[0]["state"], "succeeded")

    def test_a_disk_that_goes_on_failing_is_asked_again_and_again_and_its_recovery_is_noticed(self):
        thread, answers = self.fail_in_a_load(1000)
        wait_for("a later start that fails", lambda: self.lab.log().count("exit code 70") >= 3)
        self.set(0)
        thread.join(lab.PATIENCE_S)
        self.assertIsInstance(answers[0], tuple, answers)
        self.lab.await_idle()
        self.assertEqual(self.lab.broken_promises(), [])
        self.assertEqual(self.lab.update(3)[0]["state"], "succeeded")


if __name__ == "__main__":
    main()
