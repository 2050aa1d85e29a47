#!/usr/bin/env python3
"""Two gateways that take one pair from each other, as real processes over real engines.

    two_gateways_test.py BUILD       BUILD holds weighlock, tinyengine and tinytrainer
"""
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import programs  # noqa: E402
from programs import KEY, LOADS, Lag, call, wait_for  # noqa: E402

# A look may be so old before the machine looks again (limits::kEpochStale); a shorter stop is no stop.
STALE_S = 1.0
# Of a call in which the first gateway is to be stopped or killed; who takes the pair waits for it, too.
SLOW_MS = 5000
CHANGING = ("/pause", "/resume", "/continue", "/update_weight", "/collective_rpc", "/flush", "/reset_prefix_cache",
            "/load", "/unload")


class Gateway:
    """One process with a state directory of its own."""

    def __init__(self, test, name):
        self.test = test
        self.name = name
        self.process, self.url = test.gateway(name, state="state-" + name)
        self.trainer = test.start_trainer("trainer-" + name)
        self.ranks = self.trainer.urls(2)

    def connect(self):
        self.test.connect_disk(self.url, self.test.engines, self.ranks)

    def update(self, version):
        return call("POST", self.url + "/update_weights", {"pair_name": "actor", "version": version}, KEY, timeout=60)[1]

    def update_ok(self, version):
        body = self.update(version)
        self.test.assertEqual((body["status"], body.get("degraded")), ("ok", False), f"{body}\n{self.process.text()}")

    def update_in_background(self, version):
        answers = []

        def ask():
            try:
                answers.append(self.update(version))
            except OSError as lost:  # the gateway was killed
                answers.append({"status": "lost", "error": str(lost)})
        thread = threading.Thread(target=ask)
        thread.start()
        return thread, answers

    def pair(self):
        return call("GET", self.url + "/v1/pairs/actor")[1]

    def ownership(self):
        return self.pair()["ownership"]

    def phase(self):
        items = call("GET", self.url + "/v1/pairs/actor/updates")[1]["items"]
        running = [item for item in items if item["state"] == "running"]
        return running[0]["phase"] if running else None

    def signal(self, number):
        self.process.child.send_signal(number)


class TwoGatewaysTest(programs.Programs):
    def setUp(self):
        super().setUp()
        self.engines = self.start_engines("sglang", "vllm").urls(2)

    def tearDown(self):
        for child in self.children:
            if child.child.poll() is None:
                child.child.send_signal(signal.SIGCONT)
        super().tearDown()

    def changing_calls(self, engine):
        return [entry for entry in self.log(engine) if entry["target"].startswith(CHANGING)]

    def is_loading(self, engine):
        return any(entry["took_ms"] is None and entry["target"].startswith(LOADS) for entry in self.log(engine))

    def log(self, engine):
        return call("GET", engine + "/_tiny/log")[1]

    def epoch_files(self):
        folder = Path(self.path("shared"), ".weighlock", "epochs", "actor")
        return {file.name: json.loads(file.read_text()) for file in folder.glob("epoch.*")}

    def first_gateway(self):
        first = Gateway(self, "first")
        first.connect()
        first.update_ok(1)
        self.assertEqual(first.ownership()["epoch"], 1)
        return first

    def stop(self, gateway):
        gateway.signal(signal.SIGSTOP)
        self.stopped_at = time.monotonic()

    def assert_all_serve(self, gateway, version):
        pair = gateway.pair()
        self.assertEqual((pair["committed"], pair["workers"]["ready"]), (version, 2), pair)
        for engine in self.engines:
            state = self.truth(engine)
            self.assertFalse(state["paused"], state)
            self.assertEqual(state["label"], str(version), state)

    def take_over(self, first, thread, answers):
        """The second gateway takes the pair from the first, which stands still in an update, and the first wakes up."""
        second = Gateway(self, "second")
        second.connect()
        second.update_ok(7)
        self.assertEqual(second.ownership()["epoch"], 2)
        self.assert_all_serve(second, 7)
        wait_for("a stop that is one", lambda: time.monotonic() - self.stopped_at > STALE_S + 0.2)
        before = {engine: len(self.changing_calls(engine)) for engine in self.engines}
        with Lag() as lag:
            first.signal(signal.SIGCONT)
            woke = time.monotonic()
            wait_for("the first to find out", lambda: "superseded_by" in first.ownership())
            took = time.monotonic() - woke
        self.assertLess(took, 6 + 3 * lag.worst)
        thread.join(timeout=30)
        self.assertEqual(answers[0]["status"], "error", answers)
        for named in ("another gateway took it", "epoch 2", second.ownership()["owner"]):
            self.assertIn(named, answers[0]["error"])
        by = first.ownership()["superseded_by"]
        self.assertEqual((by["epoch"], by["owner"]), (2, second.ownership()["owner"]))
        refused = first.update(9)
        self.assertEqual(refused["status"], "error", refused)
        self.assertIn("another gateway took it", refused["error"])
        Path(self.path("key")).write_text("a-key\n")
        key = {"api_key": {"file": self.path("key")}}
        status, body = call("POST", first.url + "/v1/pairs/actor/workers/" + self.engines[0][7:] + ":set-key", key, KEY)
        self.assertEqual((status, body["code"]), (409, "superseded"), body)
        for engine in self.engines:
            self.assertEqual(len(self.changing_calls(engine)), before[engine], first.process.text())
        self.assert_all_serve(second, 7)
        second.update_ok(8)
        self.assert_all_serve(second, 8)
        return second

    def test_stopped_in_the_save(self):
        first = self.first_gateway()
        for rank in first.ranks:
            self.fault(rank, fault="slow", delay_ms=SLOW_MS)
        thread, answers = first.update_in_background(2)
        wait_for("a save on its way", lambda: first.phase() == "preparing")
        self.stop(first)
        self.take_over(first, thread, answers)

    def test_stopped_with_engines_paused(self):
        first = self.first_gateway()
        self.fault(self.engines[0], route="/pause_generation", fault="slow", delay_ms=SLOW_MS)
        thread, answers = first.update_in_background(2)
        wait_for("paused engines", lambda: self.is_paused(self.engines[1]) and first.phase() == "pausing")
        self.stop(first)
        self.assertEqual({worker["url"] for worker in self.epoch_files()["epoch.1"]["paused"]}, set(self.engines))
        self.take_over(first, thread, answers)

    def test_stopped_in_the_loads_and_then_in_the_other_order(self):
        first = self.first_gateway()
        for engine, route in zip(self.engines, LOADS):
            self.fault(engine, route=route, fault="slow", delay_ms=SLOW_MS)
        thread, answers = first.update_in_background(2)
        wait_for("loads on their way", lambda: all(self.is_loading(engine) for engine in self.engines))
        self.stop(first)
        second = self.take_over(first, thread, answers)
        first.connect()
        first.update_ok(20)
        self.assertEqual(first.ownership()["epoch"], 3)
        wait_for("the second to find out", lambda: "superseded_by" in second.ownership(), seconds=10)
        refused = second.update(21)
        self.assertIn("epoch 3", refused["error"])
        self.assert_all_serve(first, 20)

    def test_killed_while_engines_are_paused_and_nobody_asks_for_an_update(self):
        first = self.first_gateway()
        self.fault(self.engines[0], route="/pause_generation", fault="slow", delay_ms=SLOW_MS)
        thread, _ = first.update_in_background(2)
        wait_for("paused engines", lambda: self.is_paused(self.engines[1]) and first.phase() == "pausing")
        first.signal(signal.SIGKILL)
        thread.join(timeout=30)
        second = Gateway(self, "second")
        second.connect()
        wait_for("engines that serve again", lambda: not any(self.is_paused(engine) for engine in self.engines))
        wait_for("an empty list", lambda: self.epoch_files()["epoch.2"]["paused"] == [])
        self.assertEqual(second.pair()["workers"]["ready"], 2)

    def test_same_state_directory_keeps_its_epoch_and_the_command_line_tells_it(self):
        first = self.first_gateway()
        owner = first.ownership()["owner"]
        first.signal(signal.SIGKILL)
        first.process.child.wait()
        again = Gateway(self, "first")
        self.assertEqual(again.ownership(), {"epoch": 1, "owner": owner})
        again.update_ok(2)
        self.assertEqual(list(self.epoch_files()), ["epoch.1"])
        told = subprocess.run([programs.program("weighlock"), "status", "--gateway", again.url], capture_output=True,
                              text=True, env={**os.environ, "WEIGHLOCK_ADMIN_API_KEY": KEY}, timeout=30, check=False)
        self.assertIn(f"ownership: epoch 1 of owner {owner}", told.stdout, told.stderr)


if __name__ == "__main__":
    programs.main()
