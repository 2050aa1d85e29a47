#!/usr/bin/env python3
"""What AReaL's Python gateway was recorded to say, said by this one: the same requests to the workers, the same answers.

    golden_test.py BUILD [--only NAME] [--print]

Each recording's client steps are sent to a fresh gateway, started as AReaL's controller starts it, with imposters as workers.
Whatever differs from the recording becomes a line; differences.json lists the lines that may be, in which recordings, and why.
A line that isn't listed fails, and so does a listed one that doesn't occur. --print shows all lines and judges nothing.
"""
import argparse
import collections
import http.client
import json
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

import imposters

HERE = pathlib.Path(__file__).parent
KEY = "golden-key"
SETTLE_S = 0.5  # retiring an adapter may still run when the client has its answer


class Differences:
    """Lines, each counted; worker numbers and versions are left out, so that one line stands for all of its kind."""

    def __init__(self):
        self.lines = collections.Counter()

    def add(self, line):
        self.lines[line] += 1

    def mapping(self, where, expected, got):
        for key in expected:
            if key not in got:
                self.add("%s lacks %s" % (where, key))
            elif expected[key] is not None and got[key] != expected[key]:
                self.add("%s has another %s" % (where, key))
        for key in got:
            if key not in expected:
                self.add("%s has also %s" % (where, key))


class Scene:
    """The imposters and the gateway of one recording."""

    def __init__(self, build, recording, directory):
        self.log, self.directory = [], directory
        lora = "lora" in recording["scenario"]
        start = str(directory / "start")
        imposters.write_model(start, 0)
        self.save_path = directory / "w"
        self.save_path.mkdir()
        write = imposters.write_adapter if lora else imposters.write_model
        names = list(recording["final_state"])
        preloaded = ["lora-v0"] if lora else []
        ranks = threading.Barrier(sum(name.startswith("train") for name in names))
        self.workers = {}
        for name in names:
            if name.startswith("infer"):
                self.workers[name] = imposters.Engine(name, self.log, start, preloaded)
            else:
                self.workers[name] = imposters.Trainer(name, self.log, write if name == "train:0" else None, ranks)
        everyone = threading.Barrier(len(names))
        for name, reports in recording.get("reports", {}).items():
            first = recording["reports"][name.partition(":")[0] + ":0"]  # the one that was asked for its parallelism
            self.workers[name].awex = awex_of(name, {**first, **reports}, everyone)
        self.probe = socket.socket()
        self.port = hold_free_port(self.probe)
        self.output = open(directory / "gateway.log", "w+")
        self.gateway = subprocess.Popen(
            [str(build / "weighlock"), "-m", "areal.v2.weight_update.gateway", "--host", "127.0.0.1", "--port", str(self.port),
             "--admin-api-key", KEY, "--init-timeout", "300.0", "--update-timeout", "120.0", "--log-level", "warning"],
            stdout=self.output, stderr=self.output, env={"XDG_STATE_HOME": str(directory / "state"), "PATH": "/usr/bin:/bin"})
        self.client = None

    def await_health(self):
        until = time.monotonic() + 30
        while time.monotonic() < until:
            if self.gateway.poll() is not None:
                raise RuntimeError("the gateway ended with %d:\n%s" % (self.gateway.returncode, self.words()))
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=5):
                    self.probe.close()
                    return
            except ConnectionRefusedError:
                time.sleep(0.02)
        raise RuntimeError("the gateway doesn't listen:\n" + self.words())

    def words(self):
        self.output.seek(0)
        return self.output.read()

    def named(self, value, back=False):
        """The value with names for what is this run's own, or the other way round."""
        text = json.dumps(value)
        pairs = [("{%s}" % name, worker.url) for name, worker in self.workers.items()]
        pairs += [("{save_path}", str(self.save_path)), ("{key}", KEY), ("{gateway}", "http://127.0.0.1:%d" % self.port)]
        for name, own in pairs:
            text = text.replace(name, own) if back else text.replace(own, name)
        return json.loads(text)

    def call(self, request, headers):
        if self.client is None:
            self.client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        body = None if request["body"] is None else json.dumps(self.named(request["body"], back=True), separators=(",", ":"))
        self.client.putrequest(request["method"], request["path"], skip_accept_encoding=True)
        for name, value in self.named(headers, back=True).items():
            if name.lower() != "content-type" or body is not None:
                self.client.putheader(name, value)
        if body is not None:
            self.client.putheader("Content-Length", str(len(body)))
        self.client.endheaders(body.encode() if body is not None else None)
        answer = self.client.getresponse()
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read().decode()

    def close(self):
        if self.client:
            self.client.close()
        self.gateway.terminate()
        try:
            self.gateway.wait(10)
        except subprocess.TimeoutExpired:
            self.gateway.kill()
            self.gateway.wait()
        for worker in self.workers.values():
            worker.stop()
        self.probe.close()
        self.output.close()


def awex_of(name, reports, everyone):
    """As the recorded imposters: engines say "ok" and note the versions of both kinds of transfer, trainers say "success"."""
    if name.startswith("infer"):
        return imposters.Awex({"status": "ok"}, reports, everyone, ("update_weights", "execute_colocate_weight_update"))
    return imposters.Awex({"result": None, "status": "success"}, reports, everyone, ("update_weights",))


def hold_free_port(probe):
    """Nobody else gets it as long as `probe` is open; the gateway, which binds with SO_REUSEADDR too, may listen there."""
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    probe.bind(("127.0.0.1", 0))
    return probe.getsockname()[1]


def compare_answer(differences, recording, step, answer):
    status, headers, text = answer
    where = "answer to %s" % step["request"]["path"]
    if status != step["answer"]["status"]:
        differences.add("%s has status %d instead of %d" % (where, status, step["answer"]["status"]))
    differences.mapping("an answer's header", recording["answer_headers"], headers)
    body, expected = json.loads(text), step["answer"]["body"]
    if text != json.dumps(body, separators=(",", ":")):
        differences.add("%s isn't compact JSON" % where)
    if [key for key in body if key in expected] != list(expected):
        differences.add("%s has its keys in another order" % where)
    for key, value in expected.items():
        if key == "duration_ms":  # the time is this run's own
            if not isinstance(body.get(key), float):
                differences.add("%s has no float in %s" % (where, key))
        elif key in body and body[key] != value:
            differences.add("%s has another %s: %s" % (where, key, body[key]))
    differences.mapping(where, {key: None for key in expected}, body)


def compare_requests(differences, scene, recording, step, asked):
    """Every recorded request finds one of ours, in the order of the phases; what is left of ours is more than recorded."""
    left = list(asked)
    phases = []
    for phase in step["phases"]:
        found = []
        for expected in phase:
            ours = next((r for r in left if (r.worker, r.method, r.path) == (expected["worker"], expected["method"],
                                                                           expected["path"])), None)
            what = "%s %s" % (expected["method"], expected["path"])
            if ours is None:
                differences.add("request %s isn't sent" % what)
                continue
            left.remove(ours)
            found.append(ours)
            differences.mapping("a request's header", recording["worker_headers"], ours.headers)
            body, wanted = scene.named(ours.body), expected["body"]
            if wanted is None or body is None:
                if wanted != body:
                    differences.add("body of %s is another" % what)
                continue
            differences.mapping("body of %s" % what, wanted, body)
        phases.append((phase, found))
    for (before, earlier), (after, later) in zip(phases, phases[1:]):
        if earlier and later and max(r.ended for r in earlier) > min(r.began for r in later):
            differences.add("%s isn't over before %s begins" % (before[0]["path"], after[0]["path"]))
    for request in left:
        differences.add("request %s %s is sent, too" % (request.method, request.path))


def compare_state(differences, scene, recording):
    for name, expected in recording["final_state"].items():
        got = scene.named(scene.workers[name].state())
        for key, value in got.items():
            if value != expected[key]:
                differences.add("%s ends with another %s: %s" % (name.partition(":")[0], key, json.dumps(value)))


def replay(build, recording):
    differences = Differences()
    directory = pathlib.Path(tempfile.mkdtemp(prefix="weighlock-golden-"))
    scene = Scene(build, recording, directory)
    try:
        scene.await_health()
        for step in recording["steps"]:
            before = len(scene.log)
            answer = scene.call(step["request"], recording["client_headers"])
            wait_until_quiet(scene)
            asked = scene.log[before:]
            compare_answer(differences, recording, step, answer)
            compare_requests(differences, scene, recording, step, asked)
        compare_state(differences, scene, recording)
        words = scene.words()
    finally:
        scene.close()
        shutil.rmtree(directory, ignore_errors=True)
    return differences.lines, words


def wait_until_quiet(scene):
    while True:
        count = len(scene.log)
        time.sleep(SETTLE_S)
        if len(scene.log) == count:
            return


def judge(name, lines, table):
    """The complaints: unlisted lines, and listed ones that didn't occur."""
    listed = {row["line"] for row in table if name in row["in"]}
    out = ["not listed: %s (%d times)" % (line, count) for line, count in sorted(lines.items()) if line not in listed]
    return out + ["listed, but doesn't occur: " + line for line in sorted(listed - set(lines))]


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("build", type=pathlib.Path)
    arguments.add_argument("--only")
    arguments.add_argument("--print", action="store_true")
    given = arguments.parse_args()
    table = json.loads((HERE / "differences.json").read_text())
    failed = False
    for path in sorted((HERE / "recordings").glob("*.json")):
        if given.only and path.stem != given.only:
            continue
        lines, words = replay(given.build, json.loads(path.read_text()))
        complaints = judge(path.stem, lines, table)
        if given.print:
            print("%s\n%s" % (path.stem, "\n".join("  %3d  %s" % (n, line) for line, n in sorted(lines.items()))))
            continue
        print("%s: %d kinds of differences, %s" % (path.stem, len(lines), "all listed" if not complaints else "NOT as listed"))
        for complaint in complaints:
            print("  " + complaint)
        if complaints:
            failed = True
            print("the gateway wrote:\n" + words)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
