"""The real programs as processes, and a trainer that pauses by itself; for the tests of this folder."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request

KEY = "trainers-test-key"
BUILD = "build/release"


def main():
    """Takes the build's folder off the command line, then runs the tests."""
    global BUILD
    BUILD = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else BUILD
    unittest.main(verbosity=2)


class HttpError(Exception):
    """What `raise_for_status` of an HTTP library raises."""

    def __init__(self, status, body):
        super().__init__(f"{status}: {body}")
        self.status, self.body = status, body


def call(method, url, body=None, key=None, timeout=60):
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


def wait_for(what, condition, seconds=30):
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

    def urls(self, count):
        def found():
            if self.child.poll() is not None:
                raise AssertionError(self.text())
            lines = [line for line in self.text().splitlines() if line.startswith("listening ")]
            return lines if len(lines) >= count else None
        return [line.split()[-1] for line in wait_for(f"{count} addresses in {self.path}", found)]

    def end(self):
        if self.child.poll() is None:
            self.child.kill()
        self.child.wait()
        self.log.close()


class Fleet(unittest.TestCase):
    """Engines, ranks, one gateway and one pair 'actor'; `engines`, `trainers` and `gateway` are their addresses."""

    DIALECTS = ("sglang", "sglang", "sglang")
    GATEWAY_OPTIONS = ()
    SETTINGS = {}

    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="weighlock-trainers-")
        self.children = []
        os.makedirs(self.path("shared"))
        subprocess.run([os.path.join(BUILD, "tinytrainer"), "--write", self.path("start"), "--seed", "1"], check=True,
                       stdout=subprocess.DEVNULL)
        ports = [word for dialect in self.DIALECTS for word in ("--engine", dialect + ":0")]
        engines = self.start("engines", "tinyengine", "--model", self.path("start"), *ports, "--time-scale", "0.05")
        trainer = self.start("trainer", "tinytrainer", "--ranks", "2", "--model-seed", "1")
        self.engines = engines.urls(len(self.DIALECTS))
        self.trainers = trainer.urls(2)
        self.serve(*self.GATEWAY_OPTIONS)
        self.connect()

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

    def serve(self, *options):
        self.server = self.start("gateway", "weighlock", "serve", "--host", "127.0.0.1", "--port", "0", "--state-dir",
                                 self.path("state"), "--log-level", "info", *options, env={"WEIGHLOCK_ADMIN_API_KEY": KEY})

        def port():
            self.assertIsNone(self.server.child.poll(), self.server.text())
            words = [line for line in self.server.text().splitlines() if "listening on" in line]
            return words[0].rsplit(":", 1)[-1].strip() if words else None
        self.gateway = "http://127.0.0.1:" + wait_for("the gateway's port", port)

    def ask(self, method, path, body=None, timeout=60):
        return call(method, self.gateway + path, body, KEY, timeout)

    def connect(self, workers=None, settings=None):
        body = {"pair_name": "actor", "train_worker_urls": self.trainers, "inference_worker_urls": workers or self.engines,
                "mode": "disk", "save_path": self.path("shared"), "settings": {**self.SETTINGS, **(settings or {})}}
        status, answer = self.ask("POST", "/connect", body)
        self.assertEqual(status, 200, answer)

    def update(self, version):
        return self.ask("POST", "/update_weights", {"pair_name": "actor", "version": version})

    def updated(self, version):
        status, body = self.update(version)
        self.assertEqual((status, body["status"]), (200, "ok"), body)
        return body

    def in_background(self, work):
        """Returns the thread, and the list that its result will be in."""
        results = []
        thread = threading.Thread(target=lambda: results.append(work()), daemon=True)
        thread.start()
        return thread, results

    # --- what is true, and what the gateway says

    def truth(self, engine):
        status, body = call("GET", engine + "/_tiny/state")
        self.assertEqual(status, 200)
        return body

    def is_paused(self, engine):
        return self.truth(engine)["paused"]

    def fault(self, engine, **fault):
        status, body = call("POST", engine + "/_tiny/faults", fault)
        self.assertEqual(status // 100, 2, body)

    def clear_faults(self, engine):
        call("DELETE", engine + "/_tiny/faults")

    def requests_of(self, engine, route):
        """Those whose entry in the engine's log has this text."""
        _, log = call("GET", engine + "/_tiny/log")
        return [one for one in log if route in json.dumps(one)]

    def worker(self, engine):
        _, body = self.ask("GET", "/v1/pairs/actor/workers")
        return next(one for one in body["items"] if one["url"] == engine)

    def ready(self, engine):
        """Status and body of the readiness URL."""
        return self.ask("GET", f"/v1/pairs/actor/workers/{self.worker(engine)['id']}/ready")

    def pair(self):
        return self.ask("GET", "/v1/pairs/actor")[1]

    # --- the trainer's part

    def pause_all(self):
        for engine, dialect in zip(self.engines, self.DIALECTS):
            status, body = call("POST", engine + ("/pause_generation" if dialect == "sglang" else "/pause"), {})
            self.assertEqual(status, 200, body)

    def continue_one(self, engine):
        dialect = self.DIALECTS[self.engines.index(engine)]
        status, body = call("POST", engine + ("/continue_generation" if dialect == "sglang" else "/resume"), {})
        self.assertEqual(status, 200, body)

    def continue_all(self):
        for engine in self.engines:
            self.continue_one(engine)

    def step_of_a_trainer_that_ignores_the_status(self, version):
        """Pause, update, continue: an HTTP error is the only thing that keeps it from continuing."""
        self.pause_all()
        status, body = self.update(version)
        if status // 100 != 2:
            raise HttpError(status, body)
        self.continue_all()
        return body
