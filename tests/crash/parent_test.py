#!/usr/bin/env python3
"""The parent of `weighlock serve`: who is started again, with which port, and what a client sees of it.

    parent_test.py BUILD       BUILD holds weighlock, tinyengine and tinytrainer
"""
import os
import re
import signal
import socket
import subprocess
import time
import unittest

import lab
from lab import KEY, Lab, children_of, is_gone
from programs import main, program, wait_for

LOADS = ("/update_weights_from_disk", "/collective_rpc")


class ParentTest(unittest.TestCase):
    def setUp(self):
        self.lab = Lab()
        self.addCleanup(self.lab.__exit__)

    def serve(self, *flags):
        self.lab.serve(*flags)
        return self.lab.server

    def healthy(self):
        return self.lab.ask("GET", "/health")[0] == 200

    def new_gateway_after(self, old):
        def another():
            now = children_of(self.lab.parent)
            return now[0] if now and now[0] != old else None
        return wait_for("another gateway", another)

    def test_a_killed_gateway_is_there_again_at_its_port_and_told_with_its_process_and_count(self):
        server = self.serve()
        first = self.lab.kill_gateway()
        second = self.new_gateway_after(first)
        self.assertTrue(self.healthy(), "a client that comes meanwhile waits")
        self.lab.kill_gateway()
        third = self.new_gateway_after(second)
        self.assertTrue(self.healthy())
        text = server.text()
        self.assertIn(f"gateway ended (signal 9), started again as pid {second} (1st time)", text)
        self.assertIn(f"gateway ended (signal 9), started again as pid {third} (2nd time)", text)
        self.assertEqual(len(re.findall(r"^listening http://", text, re.MULTILINE)), 1, text)
        self.assertEqual(self.lab.leave(), 0, text)

    def test_nobody_is_refused_between_two_lives(self):
        self.serve()
        port = int(self.lab.url.rsplit(":", 1)[1])
        old = self.lab.kill_gateway()
        wait_for("its end", lambda: is_gone(old))
        end = time.monotonic() + 0.5
        refused = 0
        while time.monotonic() < end:
            with socket.socket() as one:
                refused += one.connect_ex(("127.0.0.1", port)) != 0
        self.assertEqual(refused, 0)
        self.assertTrue(self.healthy())

    def test_pairs_are_there_after_a_kill_also_when_started_the_compatible_way_with_a_state_directory_of_its_own(self):
        self.lab.server = self.lab.start("compat", "weighlock", "serve", "--compat", "--host", "127.0.0.1", "--port", "0",
                                         env={"WEIGHLOCK_ADMIN_API_KEY": KEY, "XDG_STATE_HOME": self.lab.path("xdg")})
        self.lab.url = self.lab.server.urls(1)[0]
        self.lab.connect()
        self.assertEqual(self.lab.update(1)[0]["state"], "succeeded")
        self.new_gateway_after(self.lab.kill_gateway())
        self.assertEqual(self.lab.pair()["committed"], 1)
        self.assertEqual(len(os.listdir(self.lab.path("xdg/weighlock"))), 1)

    def test_a_signal_ends_both_with_0_and_a_second_gateway_may_take_port_and_state_at_once(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            server = self.serve()
            child = self.lab.gateway_pid()
            server.child.send_signal(number)
            self.assertEqual(server.child.wait(10), 0, server.text())
            self.assertTrue(is_gone(child))
            self.assertNotIn("started again", server.text())

    def test_a_terminal_that_tells_both_at_once_does_not_make_it_a_second_signal(self):
        server = self.serve()
        child = self.lab.gateway_pid()
        os.kill(child, signal.SIGINT)
        server.child.send_signal(signal.SIGINT)
        self.assertEqual(server.child.wait(10), 0, server.text())
        self.assertNotIn("second signal", server.text())

    def test_a_gateway_that_is_told_to_leave_itself_is_not_started_again(self):
        server = self.serve()
        os.kill(self.lab.gateway_pid(), signal.SIGTERM)
        self.assertEqual(server.child.wait(10), 0, server.text())

    def test_who_is_told_to_leave_refuses_new_connections_and_does_not_keep_them_waiting(self):
        server = self.serve()
        self.lab.connect()
        for engine in self.lab.engines:
            self.lab.fault(engine, route=LOADS[0], fault="slow", times=1, delay_ms=1500)
        thread, _ = self.lab.in_background(lambda: self.lab.ask("POST", "/update_weights", {"pair_name": "actor", "version": 1}))
        wait_for("a load", lambda: self.lab.requests_of(self.lab.engines[0], LOADS[0]))
        server.child.send_signal(signal.SIGTERM)
        self.assertEqual(server.child.wait(10) in (0, 1), True, server.text())
        port = int(self.lab.url.rsplit(":", 1)[1])
        with socket.socket() as late:
            self.assertNotEqual(late.connect_ex(("127.0.0.1", port)), 0)
        thread.join(10)

    def test_a_killed_parent_leaves_no_gateway_behind(self):
        self.serve()
        child = self.lab.gateway_pid()
        self.lab.server.child.kill()
        self.lab.server.child.wait()
        wait_for("the end of the gateway", lambda: is_gone(child), seconds=10)
        self.serve()
        self.assertTrue(self.healthy())

    def test_starts_that_are_refused_are_not_repeated(self):
        def ends_with(code, word, *flags):
            done = subprocess.run([program("weighlock"), "serve", "--host", "127.0.0.1", *flags],
                                  capture_output=True, text=True, timeout=30, check=False,
                                  env={**os.environ, "WEIGHLOCK_ADMIN_API_KEY": KEY})
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(word, done.stderr)
            self.assertNotIn("started again", done.stderr)
        ends_with(2, "unknown flag", "--prot", "1")
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            ends_with(1, "Address already in use", "--port", str(taken.getsockname()[1]), "--state-dir", self.lab.path("own"))
        self.serve()
        ends_with(3, f"process {self.lab.parent}", "--port", "0", "--state-dir", self.lab.path("state"), "--init-timeout", "0.2")
        self.assertEqual(self.lab.leave(), 0)
        with open(self.lab.path("state/journal.db"), "r+b") as journal:  # of one whose middle was overwritten
            journal.seek(0)
            journal.write(b"\0" * 4096)
        os.unlink(self.lab.path("state/journal.db-wal")) if os.path.exists(self.lab.path("state/journal.db-wal")) else None
        ends_with(1, "journal", "--port", "0", "--state-dir", self.lab.path("state"))

    def test_a_gateway_that_crashes_at_every_start_is_tried_again_and_again_and_its_parent_can_be_told_to_leave(self):
        server = self.serve()
        killed = self.lab.kill_gateway()
        for _ in range(4):
            pid = self.new_gateway_after(killed)
            killed = self.lab.kill_gateway()
            self.assertEqual(killed, pid)
        wait_for("the words", lambda: "the gateway ended 5 times in a row within 60 s of its start" in server.text())
        server.child.send_signal(signal.SIGTERM)
        self.assertIn(server.child.wait(10), (0, 1))

    def test_no_restart_is_one_process_that_is_gone_when_it_is_killed(self):
        server = self.serve("--no-restart")
        self.assertEqual(children_of(self.lab.parent), [])
        self.assertTrue(self.healthy())
        server.child.kill()
        self.assertEqual(server.child.wait(), -signal.SIGKILL)

    def test_the_same_request_with_its_key_after_a_kill_gets_the_one_true_outcome(self):
        self.serve()
        self.lab.connect()
        self.assertEqual(self.lab.update(1, "one")[0]["state"], "succeeded")
        for engine in self.lab.engines:
            for route in LOADS:
                self.lab.fault(engine, route=route, fault="hang", times=1)
        self.lab.forget_logs()
        thread, answers = self.lab.in_background(lambda: self.lab.update(2, "two"))
        wait_for("loads that hang", lambda: all(self.lab.requests_of(engine, '"fault": "hang"') for engine in self.lab.engines))
        self.lab.kill_gateway()
        thread.join(lab.PATIENCE_S)
        update, tries = answers[0]
        self.assertGreater(tries, 1, "its first connection died")
        self.assertEqual(update["state"], "rolled_back", update)
        self.assertEqual(self.lab.update(2, "two")[0]["id"], update["id"])
        self.assertEqual([one["version"] for one in self.lab.updates()], [2, 1])
        self.lab.await_idle()
        self.assertEqual(self.lab.broken_promises(), [])
        again = self.lab.update(3, "three")[0]
        self.assertEqual(again["state"], "succeeded", again)

    def test_python_controller_health_is_back_after_a_kill_and_destroy_leaves_no_orphan(self):
        text = f"""
import os, signal, sys, time
sys.path.insert(0, {os.path.join(os.path.dirname(lab.__file__), "..", "..", "python")!r})
sys.path.insert(0, {os.path.dirname(lab.__file__)!r})
import weighlock
from lab import children_of, is_gone
from programs import wait_for
controller = weighlock.WeightUpdateController(weighlock.WeightUpdateControllerConfig(
    binary={os.path.abspath(program("weighlock"))!r}, state_dir={self.lab.path("controllers")!r}))
controller.initialize()
parent = controller._process.pid
child = children_of(parent)[0]
os.kill(child, signal.SIGKILL)
wait_for("health", controller.health_check)
second = wait_for("another", lambda: [one for one in children_of(parent) if one != child])[0]
wait_for("health", controller.health_check)
controller.destroy()
print(is_gone(parent), is_gone(second))
"""
        done = subprocess.run(["python3", "-c", text], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.stdout.split(), ["True", "True"], done.stderr)


if __name__ == "__main__":
    main()
