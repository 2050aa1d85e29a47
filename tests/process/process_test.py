#!/usr/bin/env python3
"""The real programs as processes: signals, exit codes, and a journal that outlives its process.

    process_test.py BUILD       BUILD holds weighlock, tinyengine and tinytrainer
"""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request

BUILD = "build/release"
KEY = "process-test-key"


def call(method, url, body=None, key=None, timeout=30):
    """Returns (status, parsed body or text)."""
    headers = {"Content-Type": "application/json"}
    if key:
        headers["Authorization"] = "Bearer " + key
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            status, text = answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        status, text = refused.code, refused.read().decode()
    try:
        return status, json.loads(text)
    except ValueError:
        return status, text


def wait_for(what, condition, seconds=20):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"not within {seconds} s: {what}")


class Process:
    """A child whose output goes to a file."""

    def __init__(self, directory, name, *arguments, env=None):
        self.path = os.path.join(directory, name + ".log")
        self.log = open(self.path, "wb")
        command = [os.path.join(BUILD, arguments[0]), *arguments[1:]]
        self.child = subprocess.Popen(command, stdout=self.log, stderr=self.log, env={**os.environ, **(env or {})})

    def text(self):
        with open(self.path, errors="replace") as file:
            return file.read()

    def urls(self, count, word="listening "):
        def found():
            lines = [line for line in self.text().splitlines() if line.startswith(word)]
            return lines if len(lines) >= count else None
        return [line.split()[-1] for line in wait_for(f"{count} addresses in {self.path}", found)]

    def end(self):
        if self.child.poll() is None:
            self.child.kill()
        self.child.wait()
        self.log.close()


class ProcessTest(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="weighlock-process-")
        self.children = []
        os.makedirs(self.path("shared"))

    def tearDown(self):
        for child in self.children:
            child.end()
        shutil.rmtree(self.directory)

    def path(self, name):
        return os.path.join(self.directory, name)

    def start(self, name, *arguments, env=None):
        child = Process(self.directory, name, *arguments, env=env)
        self.children.append(child)
        return child

    def fleet(self, load_ms):
        subprocess.run([os.path.join(BUILD, "tinytrainer"), "--write", self.path("start"), "--seed", "1"], check=True,
                       stdout=subprocess.DEVNULL)
        engines = self.start("engines", "tinyengine", "--model", self.path("start"), "--engine", "sglang:0", "--engine", "vllm:0",
                             "--load-ms", str(load_ms), "--time-scale", "0.05")
        trainer = self.start("trainer", "tinytrainer", "--ranks", "2", "--model-seed", "1")
        return engines.urls(2), trainer.urls(2)

    def gateway(self, name="gateway"):
        child = self.start(name, "weighlock", "serve", "--host", "127.0.0.1", "--port", "0", "--state-dir", self.path("state"),
                           "--log-level", "info", env={"WEIGHLOCK_ADMIN_API_KEY": KEY})

        def port():
            self.assertIsNone(child.child.poll(), child.text())
            words = [line for line in child.text().splitlines() if "listening on" in line]
            return words[0].rsplit(":", 1)[-1].strip() if words else None
        return child, "http://127.0.0.1:" + wait_for("the gateway's port", port)

    def connect(self, url, engines, trainers):
        status, body = call("POST", url + "/connect", {
            "pair_name": "actor", "train_worker_urls": trainers, "inference_worker_urls": engines, "mode": "disk",
            "save_path": self.path("shared")}, KEY)
        self.assertEqual(status, 200, body)

    def update_in_background(self, url, version):
        answers = []
        thread = threading.Thread(target=lambda: answers.append(
            call("POST", url + "/update_weights", {"pair_name": "actor", "version": version}, KEY, timeout=60)))
        thread.start()
        return thread, answers

    def is_paused(self, engine):
        status, body = call("GET", engine + "/_tiny/state")
        self.assertEqual(status, 200)
        return body["paused"]

    def test_sigterm_while_engines_are_paused_brings_them_back_before_the_process_leaves(self):
        engines, trainers = self.fleet(load_ms=1500)
        gateway, url = self.gateway()
        self.connect(url, engines, trainers)
        thread, answers = self.update_in_background(url, 1)
        wait_for("a paused engine", lambda: all(self.is_paused(engine) for engine in engines))
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
        self.assertEqual(gateway.child.wait(timeout=5), 0)
        self.assertLess(time.monotonic() - began, 3)

    def test_journal_outlives_its_process_and_its_number_goes_on(self):
        engines, trainers = self.fleet(load_ms=0)
        gateway, url = self.gateway()
        self.connect(url, engines, trainers)
        _, body = call("POST", url + "/update_weights", {"pair_name": "actor", "version": 1}, KEY, timeout=60)
        self.assertEqual(body["status"], "ok", body)
        gateway.child.kill()
        gateway.child.wait()
        again, url = self.gateway("again")
        self.connect(url, engines, trainers)
        _, body = call("POST", url + "/update_weights", {"pair_name": "actor", "version": 2}, KEY, timeout=60)
        self.assertEqual(body["status"], "ok", body)
        self.assertIsNone(again.child.poll())

    def test_second_gateway_on_one_state_directory_refuses_to_start(self):
        self.gateway()
        second = subprocess.run([os.path.join(BUILD, "weighlock"), "serve", "--host", "127.0.0.1", "--port", "0", "--state-dir",
                                 self.path("state")], env={**os.environ, "WEIGHLOCK_ADMIN_API_KEY": KEY}, capture_output=True,
                                timeout=20)
        self.assertNotEqual(second.returncode, 0)
        self.assertIn(self.path("state").encode(), second.stderr)

    def test_key_is_in_no_log(self):
        gateway, url = self.gateway()
        call("POST", url + "/update_weights", {"pair_name": "x"}, "wrong-" + KEY)
        call("POST", url + "/update_weights", {"pair_name": "x"}, KEY)
        gateway.child.send_signal(signal.SIGTERM)
        gateway.child.wait(timeout=5)
        self.assertNotIn(KEY, gateway.text())


if __name__ == "__main__":
    BUILD = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else BUILD
    unittest.main(verbosity=2)
