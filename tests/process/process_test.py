#!/usr/bin/env python3
"""The real programs as processes: signals, exit codes, and a journal that outlives its process.

    process_test.py BUILD       BUILD holds weighlock, tinyengine and tinytrainer
"""
import json
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import programs  # noqa: E402
from programs import KEY, Lag, Programs, call, wait_for  # noqa: E402


class ProcessTest(Programs):
    def finish(self, *flags, seconds=90):
        return subprocess.run([programs.program("weighlock"), "finish", "--state-dir", self.path("state"), *flags],
                              capture_output=True, text=True, timeout=seconds, check=False)

    def test_sigterm_while_engines_are_paused_brings_them_back_before_the_process_leaves(self):
        # Their loads and the heals that follow are over within the 4 s that a gateway takes to leave.
        engines, gateway, thread, answers = self.update_in_its_loads(fault="slow", delay_ms=1000)
        url = gateway.urls(1)[0]
        gateway.child.send_signal(signal.SIGTERM)
        status, body = call("POST", url + "/update_weights", {"pair_name": "actor", "version": 2}, KEY)
        self.assertTrue(status != 200 or body["status"] == "error", body)
        self.assertEqual(gateway.child.wait(timeout=30), 0, gateway.text())
        thread.join(timeout=10)
        self.assertEqual(answers[0][1]["status"], "error", answers)
        self.assertIn("shutting down", answers[0][1]["error"])
        for engine in engines:
            self.assertFalse(self.is_paused(engine), gateway.text())

    def test_sigterm_of_an_idle_gateway_ends_it_at_once_with_0(self):
        gateway, _ = self.gateway()
        began = time.monotonic()
        gateway.child.send_signal(signal.SIGTERM)
        self.assertEqual(gateway.child.wait(timeout=30), 0)
        self.assertLess(time.monotonic() - began, 4, "the time that one has whose engines are paused")

    def test_journal_outlives_its_process_and_pairs_need_not_be_connected_again(self):
        engines, trainers = self.fleet()
        gateway, url = self.gateway()
        self.connect_disk(url, engines, trainers)
        _, body = call("POST", url + "/update_weights", {"pair_name": "actor", "version": 1}, KEY, timeout=60)
        self.assertEqual(body["status"], "ok", body)
        gateway.child.kill()
        gateway.child.wait()
        again, url = self.gateway("again")
        _, pair = call("GET", url + "/v1/pairs/actor")
        self.assertEqual((pair["lineage"], pair["committed"], pair["rollback"]), (1, 1, "available"), pair)
        _, updates = call("GET", url + "/v1/pairs/actor/updates")
        self.assertEqual([item["state"] for item in updates["items"]], ["succeeded"], updates)
        _, body = call("POST", url + "/update_weights", {"pair_name": "actor", "version": 2}, KEY, timeout=60)
        self.assertEqual(body["status"], "ok", body)
        self.assertIsNone(again.child.poll())

    def update_in_its_loads(self, **fault):
        """A gateway in the middle of its first update, each engine paused and in a load that has this fault; and what its
        client is told."""
        engines, trainers = self.fleet()
        gateway, url = self.gateway()
        self.connect_disk(url, engines, trainers)
        self.fault_next_loads(engines, **fault)
        thread, answers = self.update_in_background(url, 1)
        wait_for("loads on their way", lambda: all(self.is_asked_to_load(engine) for engine in engines))
        for engine in engines:
            self.assertTrue(self.is_paused(engine))
        return engines, gateway, thread, answers

    def assert_leaves_before_its_engines_answer(self, gateway):
        """Within 5 s of SIGTERM and what this machine is late, while loads of 12 s still run."""
        with Lag() as lag:
            began = time.monotonic()
            gateway.child.send_signal(signal.SIGTERM)
            self.assertEqual(gateway.child.wait(timeout=30), 1, gateway.text())
            took = time.monotonic() - began
        self.assertLess(took, min(5 + 3 * lag.worst, 10), gateway.text())

    def test_sigterm_in_a_slow_load_leaves_within_5_s_and_finish_resumes_everyone(self):
        engines, gateway, thread, answers = self.update_in_its_loads(fault="slow", delay_ms=12000)
        self.assert_leaves_before_its_engines_answer(gateway)
        self.assertIn("weighlock finish --state-dir " + self.path("state"), gateway.text())
        for engine in engines:
            self.assertTrue(self.is_paused(engine))
            self.assertIn(engine, gateway.text())
        thread.join(timeout=10)
        self.assertEqual(answers[0][1]["status"], "error", answers)
        self.assertIn("shutting down", answers[0][1]["error"])
        self.assertIn("committed: false", answers[0][1]["error"])
        done = self.finish()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for engine in engines:
            self.assertFalse(self.is_paused(engine), done.stdout + done.stderr)
            self.assertIn(f"actor {engine}: load sent -> ready", done.stdout)
        again = self.finish("--json")
        self.assertEqual((again.returncode, json.loads(again.stdout)), (0, {"workers": []}), again.stderr)

    def test_sigterm_with_engines_that_answer_nothing_leaves_within_5_s_all_the_same(self):
        engines, gateway, _, _ = self.update_in_its_loads(fault="slow", delay_ms=12000)
        fleet = next(child for child in self.children if child.path.endswith("engines.log"))
        fleet.child.send_signal(signal.SIGSTOP)
        try:
            self.assert_leaves_before_its_engines_answer(gateway)
        finally:
            fleet.child.send_signal(signal.SIGCONT)
        self.assertEqual(self.finish().returncode, 0)
        for engine in engines:
            self.assertFalse(self.is_paused(engine))

    def test_gateway_killed_in_a_load_and_started_again_brings_everyone_back_and_goes_on(self):
        engines, gateway, _, _ = self.update_in_its_loads(fault="hang")
        gateway.child.kill()
        gateway.child.wait()
        again, url = self.gateway("again")
        wait_for("words about it", lambda: "taking over" in again.text())

        def recovered():
            status, _ = call("GET", url + "/readyz")
            return status == 200
        wait_for("the end of the recovery", recovered, seconds=60)
        for engine in engines:
            self.assertFalse(self.is_paused(engine), again.text())
        _, body = call("GET", url + "/v1/pairs/actor/updates")
        self.assertEqual([item["state"] for item in body["items"]], ["rolled_back"], body)
        _, body = call("POST", url + "/update_weights", {"pair_name": "actor", "version": 2}, KEY, timeout=60)
        self.assertEqual((body["status"], body["degraded"]), ("ok", False), body)

    def test_update_asked_for_while_the_gateway_takes_over_waits_for_its_turn(self):
        engines, gateway, _, _ = self.update_in_its_loads(fault="slow", delay_ms=9000)
        gateway.child.kill()
        gateway.child.wait()
        _, url = self.gateway("again")
        self.assertEqual(call("GET", url + "/health")[0], 200)
        self.assertEqual(call("GET", url + "/readyz"), (503, {"status": "recovering"}))
        _, body = call("POST", url + "/update_weights", {"pair_name": "actor", "version": 2}, KEY, timeout=60)
        self.assertEqual(body["status"], "ok", body)
        for engine in engines:
            self.assertFalse(self.is_paused(engine))

    def test_finish_names_a_state_directory_that_is_none_and_one_that_is_in_use(self):
        none = self.finish()
        self.assertEqual(none.returncode, 3)
        self.assertIn("--state-dir", none.stderr)
        self.assertFalse(os.path.exists(self.path("state")))
        gateway, _ = self.gateway()
        used = self.finish("--wait", "0.2")
        self.assertEqual(used.returncode, 3)
        self.assertIn(f"process {gateway.child.pid}", used.stderr)

    def test_second_gateway_on_one_state_directory_answers_503_until_it_is_free(self):
        first, _ = self.gateway()
        second = self.start_gateway("second")

        def port():
            words = [line for line in second.text().splitlines() if "answering 503 on" in line]
            return words[0].split("answering 503 on 127.0.0.1:")[1].split()[0] if words else None
        url = "http://127.0.0.1:" + wait_for("the port that answers 503", port)
        for path in ("/health", "/v1/pairs"):
            status, body = call("GET", url + path)
            self.assertEqual(status, 503)
            self.assertIn(f"process {first.child.pid}", json.dumps(body))
            self.assertIn(self.path("state"), json.dumps(body))
        first.child.send_signal(signal.SIGTERM)
        first.child.wait(timeout=30)

        def healthy():
            try:
                return call("GET", url + "/health")[0] == 200
            except OSError:
                return False  # between the two listening sockets
        wait_for("the second gateway", healthy)

    def test_gateway_that_waits_for_a_state_directory_gives_up_and_leaves_when_it_is_told_to(self):
        self.gateway()
        impatient = self.start_gateway("impatient", "--init-timeout", "0.3")
        self.assertEqual(impatient.child.wait(timeout=20), 3, impatient.text())
        self.assertIn(self.path("state"), impatient.text())
        patient = self.start_gateway("patient")
        wait_for("the gateway that waits", lambda: "answering 503" in patient.text())
        patient.child.send_signal(signal.SIGTERM)
        self.assertEqual(patient.child.wait(timeout=30), 0, patient.text())

    def test_key_is_in_no_log(self):
        gateway, url = self.gateway()
        call("POST", url + "/update_weights", {"pair_name": "x"}, "wrong-" + KEY)
        call("POST", url + "/update_weights", {"pair_name": "x"}, KEY)
        gateway.child.send_signal(signal.SIGTERM)
        gateway.child.wait(timeout=30)
        self.assertNotIn(KEY, gateway.text())


if __name__ == "__main__":
    programs.main()
