"""The real programs as processes, and one blocking HTTP call: what the tests in Python drive. Standard library only.

A test's file is run as `NAME_test.py [BUILD] [unittest's arguments]`; BUILD holds weighlock, tinyengine and tinytrainer.
"""
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

BUILD = "build/release"
KEY = "programs-test-key"
NO_ANSWER = 0  # as a status: the gateway was killed before it answered
LOADS = ("/update_weights_from_disk", "/collective_rpc")  # SGLang's and vLLM's


def main():
    """Takes the build's folder off the command line, then runs the tests of the file that was started."""
    global BUILD
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        BUILD = os.path.abspath(sys.argv.pop(1))
    unittest.main(module="__main__", verbosity=2)


def program(name):
    return os.path.join(BUILD, name)


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
    """The condition's first true value. The limit is for a machine that is busy, not an expectation."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"not within {seconds} s: {what}")


class Lag:
    """How late this machine wakes who sleeps for 20 ms: `worst`, in seconds, while the context lasts."""

    def __enter__(self):
        self.worst = 0.0
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.beat, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()

    def beat(self):
        while not self.ended.is_set():
            due = time.monotonic() + 0.02
            time.sleep(0.02)
            self.worst = max(self.worst, time.monotonic() - due)


def write_model(directory):
    """The checkpoint that engines start with and that tinytrainer's ranks (`--model-seed 1`) hold at first."""
    subprocess.run([program("tinytrainer"), "--write", directory, "--seed", "1"], check=True, stdout=subprocess.DEVNULL)


class Process:
    """A child whose output goes to a file."""

    def __init__(self, directory, name, *arguments, env=None):
        self.path = os.path.join(directory, name + ".log")
        self.log = open(self.path, "wb")
        command = [program(arguments[0]), *arguments[1:]]
        self.child = subprocess.Popen(command, stdout=self.log, stderr=self.log, env={**os.environ, **(env or {})})

    def text(self):
        with open(self.path, errors="replace") as file:
            return file.read()

    def listening(self, count):
        """The first lines that tell of an address: `listening DIALECT URL`, or without the dialect."""
        def found():
            lines = [line for line in self.text().splitlines() if line.startswith("listening ")]
            if len(lines) >= count:
                return lines[:count]
            if self.child.poll() is not None:
                raise AssertionError(f"it left with {self.child.returncode}:\n{self.text()}")
            return None
        return wait_for(f"{count} addresses in {self.path}", found)

    def urls(self, count):
        return [line.split()[-1] for line in self.listening(count)]

    def end(self):
        if self.child.poll() is None:
            self.child.kill()
        self.child.wait()
        self.log.close()


class Programs(unittest.TestCase):
    """A directory of the test's own, and programs that end with it."""

    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="weighlock-test-")
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

    def start_engines(self, *dialects, flags=()):
        """The process; `urls` of it are the engines' in this order."""
        write_model(self.path("start"))
        words = [word for dialect in dialects for word in ("--engine", dialect + ":0")]
        return self.start("engines", "tinyengine", "--model", self.path("start"), *words, "--time-scale", "0.05", *flags)

    def start_trainer(self, name="trainer"):
        """Two ranks."""
        return self.start(name, "tinytrainer", "--ranks", "2", "--model-seed", "1")

    def fleet(self):
        """Addresses of an engine of each dialect, and of two ranks."""
        engines = self.start_engines("sglang", "vllm")
        return engines.urls(2), self.start_trainer().urls(2)

    def start_gateway(self, name, *flags, state="state"):
        return self.start(name, "weighlock", "serve", "--host", "127.0.0.1", "--port", "0", "--state-dir", self.path(state),
                          "--log-level", "info", *flags, env={"WEIGHLOCK_ADMIN_API_KEY": KEY})

    def gateway(self, name="gateway", *flags, state="state"):
        """The process and its address, once it listens."""
        child = self.start_gateway(name, *flags, state=state)
        return child, child.urls(1)[0]

    def connect_disk(self, url, engines, trainers, settings=None):
        """The pair 'actor'."""
        body = {"pair_name": "actor", "train_worker_urls": trainers, "inference_worker_urls": engines, "mode": "disk",
                "save_path": self.path("shared"), **({"settings": settings} if settings else {})}
        status, answer = call("POST", url + "/connect", body, KEY)
        self.assertEqual(status, 200, answer)

    def in_background(self, work):
        """Returns the thread, and the list that its result will be in."""
        results = []

        def run():
            try:
                results.append(work())
            except OSError as lost:  # the gateway was killed
                results.append((NO_ANSWER, str(lost)))
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread, results

    def update_in_background(self, url, version):
        return self.in_background(
            lambda: call("POST", url + "/update_weights", {"pair_name": "actor", "version": version}, KEY))

    def fault(self, url, **fault):
        status, body = call("POST", url + "/_tiny/faults", fault)
        self.assertEqual(status, 200, body)

    def fault_next_loads(self, engines, **fault):
        """One load of each engine, so that those which heal are quick; `is_asked_to_load` is about loads from here on."""
        for engine in engines:
            call("DELETE", engine + "/_tiny/log")
            for route in LOADS:
                self.fault(engine, route=route, times=1, **fault)

    def is_asked_to_load(self, engine):
        _, log = call("GET", engine + "/_tiny/log")
        return any(entry["target"].startswith(LOADS) for entry in log)

    def truth(self, engine):
        """What a tinyengine really is."""
        status, body = call("GET", engine + "/_tiny/state")
        self.assertEqual(status, 200, body)
        return body

    def is_paused(self, engine):
        return self.truth(engine)["paused"]
