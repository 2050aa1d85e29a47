#!/usr/bin/env python3
"""A pair from its connect to its disconnect by the command line, and what the commands say to the wrong user.

    commands_test.py BUILD       BUILD holds weighlock, tinyengine and tinytrainer
"""
import os
import signal
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import programs  # noqa: E402
from programs import KEY, call, wait_for  # noqa: E402

NOBODY = 65534


class CommandsTest(programs.Programs):
    def weighlock(self, *arguments, url=None, seconds=90, user=None):
        """Exit code, stdout, stderr."""
        where = ["--gateway", url] if url else []
        done = subprocess.run([programs.program("weighlock"), *arguments, *where], capture_output=True, text=True,
                              timeout=seconds, check=False, env={**os.environ, "WEIGHLOCK_ADMIN_API_KEY": KEY}, user=user)
        return done.returncode, done.stdout, done.stderr

    def connect_by_hand(self, url, engines, trainers, *more):
        code, out, err = self.weighlock("connect", "actor", "--save-path", self.path("shared"), "--trainer", *trainers,
                                        "--worker", *engines, *more, url=url)
        self.assertEqual(code, 0, out + err)
        return out

    def test_a_pair_is_connected_changed_and_disconnected(self):
        engines, trainers = self.fleet()
        _, url = self.gateway()
        first = self.connect_by_hand(url, engines, trainers, "--set", "quorum=all", "deadlines_ms.load=60000")
        self.assertNotIn("->", first)
        self.assertIn("as it was before", self.connect_by_hand(url, engines, trainers))
        less = self.connect_by_hand(url, engines[:1], trainers, "--set", "deadlines_ms.load=50000")
        self.assertIn(f"leaves: {engines[1]}\n", less)
        self.assertIn("deadlines_ms.load: 60000 -> 50000\n", less)
        self.assertNotIn("quorum", less)
        _, pair = call("GET", url + "/v1/pairs/actor")
        self.assertEqual((pair["settings"]["quorum"], pair["workers"]["total"]), ("all", 1), pair)
        code, out, err = self.weighlock("workers", "add", "actor", engines[0], url=url)
        self.assertEqual(code, 3, out)
        self.assertIn("already a member of pair 'actor'", err)
        code, out, err = self.weighlock("update", "actor", "--version", "1", url=url)
        self.assertEqual(code, 0, out + err)
        code, out, err = self.weighlock("status", "actor", "--check", url=url)
        self.assertEqual(code, 0, out + err)
        code, out, err = self.weighlock("disconnect", "actor", url=url)
        self.assertEqual((code, out), (0, "pair actor is removed: 1 of 1 workers let go, as they serve v1\n"), err)
        self.assertFalse(self.is_paused(engines[0]))
        self.assertEqual(self.weighlock("status", "actor", url=url)[0], 3)

    def test_a_running_update_is_cancelled_and_every_engine_serves_what_it_had(self):
        engines, trainers = self.fleet()
        gateway, url = self.gateway()
        self.connect_by_hand(url, engines, trainers)
        code, out, err = self.weighlock("update", "actor", "--version", "1", url=url)
        self.assertEqual(code, 0, out + err)
        code, out, err = self.weighlock("cancel", "actor", url=url)
        self.assertEqual(code, 3, out)
        self.assertIn("no running update", err)
        self.fault_next_loads(engines, fault="slow", delay_ms=8000)
        code, out, err = self.weighlock("update", "actor", "--version", "2", "--wait", "0", url=url)
        self.assertEqual(code, 0, out + err)
        wait_for("loads on their way", lambda: all(self.is_asked_to_load(engine) for engine in engines))
        code, out, err = self.weighlock("cancel", "actor", url=url)
        self.assertEqual(code, 0, out + err + gateway.text())
        self.assertIn("pair actor v2: rolled_back", out)
        for engine in engines:
            self.assertFalse(self.is_paused(engine))
        _, listed = call("GET", url + "/v1/pairs/actor/workers")
        self.assertEqual([worker["version"] for worker in listed["items"]], [1, 1], listed)

    def test_finish_and_inspect_of_another_users_state_name_the_user_and_the_remedy(self):
        if os.geteuid() != 0 or self.weighlock("--version", user=NOBODY)[0] != 0:
            self.skipTest("needs root, and a build that others may run")
        os.chmod(self.directory, 0o755)
        gateway, _ = self.gateway()
        gateway.child.send_signal(signal.SIGTERM)
        self.assertEqual(gateway.child.wait(timeout=30), 0)
        os.chmod(self.path("state"), 0o700)
        for command in (("finish", "--state-dir", self.path("state")), ("journal", "inspect", self.path("state"))):
            code, out, err = self.weighlock(*command, user=NOBODY)
            self.assertEqual(code, 3, out + err)
            self.assertIn(f"'{self.path('state')}' belongs to user root (uid 0), mode 0700", err)
            self.assertIn("sudo -u root", err)
            self.assertNotIn("no journal.db", err)
        code, out, err = self.weighlock("finish", "--state-dir", self.path("elsewhere"), user=NOBODY)
        self.assertEqual(code, 3, out)
        self.assertIn("there is no journal.db", err)


if __name__ == "__main__":
    programs.main()
