"""Engines, ranks and a gateway whose processes are killed; and what must be true afterwards. Standard library only."""
import http.client
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import programs  # noqa: E402
from programs import Process, call, wait_for  # noqa: E402

KEY = "crash-test-key"
TERMINAL = ("succeeded", "degraded", "rolled_back", "aborted", "failed", "rejected")
PATIENCE_S = 60  # a crowded machine; what must be quick has a limit of its own in its test


def children_of(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def is_gone(pid):
    """Dead, or a zombie that somebody else has to wait for."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] in "ZX"
    except OSError:
        return True


class Lab:
    """One pair 'actor' over engines of both dialects. Use as a context."""

    DIALECTS = ("sglang", "vllm", "sglang")
    SETTINGS = {"quorum": "all", "deadlines_ms": {"save": 20000, "pause": 20000, "load": 20000, "verify": 20000,
                                                  "resume": 20000, "restore": 40000}}

    def __init__(self, load_ms=0, flags=()):
        self.directory = tempfile.mkdtemp(prefix="weighlock-crash-")
        self.flags = flags
        self.processes = []
        self.gateways = 0
        self.server = None
        os.makedirs(self.path("shared"))
        programs.write_model(self.path("start"))
        ports = [word for dialect in self.DIALECTS for word in ("--engine", dialect + ":0")]
        engines = self.start("engines", "tinyengine", "--model", self.path("start"), *ports, "--time-scale", "0.02",
                             "--load-ms", str(load_ms))
        trainer = self.start("trainer", "tinytrainer", "--ranks", "2", "--model-seed", "1", "--collective-timeout-ms", "2000")
        self.engines = engines.urls(len(self.DIALECTS))
        self.trainers = trainer.urls(2)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in reversed(self.processes):
            process.end()
        shutil.rmtree(self.directory, ignore_errors=True)

    def path(self, name):
        return os.path.join(self.directory, name)

    def start(self, name, *arguments, env=None):
        process = Process(self.directory, name, *arguments, env=env)
        self.processes.append(process)
        return process

    # --- the gateway's processes

    def serve(self, *flags):
        """Starts `weighlock serve`, at the port that it had before; returns once it has told its address."""
        port = self.url.rsplit(":", 1)[1] if self.gateways else "0"
        self.gateways += 1
        self.server = self.start(f"gateway{self.gateways}", "weighlock", "serve", "--host", "127.0.0.1", "--port", port,
                                 "--state-dir", self.path("state"), "--log-level", "info", *self.flags, *flags,
                                 env={"WEIGHLOCK_ADMIN_API_KEY": KEY})
        self.url = self.server.urls(1)[0]

    @property
    def parent(self):
        return self.server.child.pid

    def gateway_pid(self):
        """The parent's child; waits for one that lives."""
        return wait_for("the gateway's process", lambda: [one for one in children_of(self.parent) if not is_gone(one)])[0]

    def kill_gateway(self):
        """Returns the process that was killed."""
        pid = self.gateway_pid()
        os.kill(pid, signal.SIGKILL)
        return pid

    def kill_parent(self):
        """With it goes the gateway."""
        pids = children_of(self.parent)
        self.server.child.kill()
        self.server.child.wait()
        for pid in pids:
            wait_for("the end of the gateway", lambda one=pid: is_gone(one))

    def leave(self):
        self.server.child.send_signal(signal.SIGTERM)
        return self.server.child.wait(PATIENCE_S)

    def log(self):
        return "".join(process.text() for process in self.processes if os.path.basename(process.path).startswith("gateway"))

    # --- requests

    def ask(self, method, path, body=None, timeout=PATIENCE_S):
        return call(method, self.url + path, body, KEY, timeout)

    def ask_until_answered(self, method, path, body=None, key=None):
        """As a client does it whose connections die: the same request again, until there is an answer."""
        end = time.monotonic() + PATIENCE_S
        host = self.url.split("//", 1)[1]
        tries = 0
        while True:
            tries += 1
            connection = http.client.HTTPConnection(host, timeout=PATIENCE_S)
            try:
                headers = {"Content-Type": "application/json", "Authorization": "Bearer " + KEY}
                if key:
                    headers["Idempotency-Key"] = key
                connection.request(method, path, body=json.dumps(body) if body is not None else None, headers=headers)
                answer = connection.getresponse()
                return answer.status, json.loads(answer.read()), tries
            except (OSError, http.client.HTTPException):
                if time.monotonic() > end:
                    raise
                time.sleep(0.01)
            finally:
                connection.close()

    def connect(self, settings=None):
        status, answer = self.ask("POST", "/connect", {
            "pair_name": "actor", "train_worker_urls": self.trainers, "inference_worker_urls": self.engines, "mode": "disk",
            "save_path": self.path("shared"), "settings": {**self.SETTINGS, **(settings or {})}})
        assert status == 200, answer

    def update(self, version, key=None):
        """The update at its end, and how often it was asked for."""
        status, body, tries = self.ask_until_answered("POST", f"/v1/pairs/actor/updates?wait={PATIENCE_S}",
                                                      {"version": version}, key)
        assert status == 200 and body["state"] in TERMINAL, (status, body)
        return body, tries

    def in_background(self, work):
        """Returns the thread, and the list that its result, or what it raised, will be in."""
        results = []

        def run():
            try:
                results.append(work())
            except BaseException as failure:  # told where the result is asked for
                results.append(failure)
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread, results

    def await_idle(self, disk_full=False):
        """Ready, or not ready because of the journal's disk alone."""
        def idle():
            try:
                status, body = self.ask("GET", "/readyz")
                is_as_expected = (status, body["status"]) == (503, "storage_full") if disk_full else status == 200
                return is_as_expected and self.pair()["state"] == "idle"
            except OSError:
                return False
        wait_for("an idle gateway", idle, PATIENCE_S)

    def pair(self):
        return self.ask("GET", "/v1/pairs/actor")[1]

    def workers(self):
        return {one["url"]: one for one in self.ask("GET", "/v1/pairs/actor/workers")[1]["items"]}

    def updates(self):
        return self.ask("GET", "/v1/pairs/actor/updates")[1]["items"]

    # --- what is true

    def truth(self, engine):
        return call("GET", engine + "/_tiny/state")[1]

    def requests_of(self, peer, route):
        """Those whose entry in the peer's log has this text."""
        return [one for one in call("GET", peer + "/_tiny/log")[1] if route in json.dumps(one)]

    def fault(self, peer, **fault):
        status, body = call("POST", peer + "/_tiny/faults", fault)
        assert status // 100 == 2, body

    def forget_logs(self):
        for peer in [*self.engines, *self.trainers]:
            call("DELETE", peer + "/_tiny/log")

    def forget_faults(self):
        for peer in [*self.engines, *self.trainers]:
            call("DELETE", peer + "/_tiny/faults")

    def broken_promises(self):
        """What isn't as the gateway says or must not be; the pair is idle."""
        committed = self.pair()["committed"]
        out = []
        for url, worker in self.workers().items():
            truth = self.truth(url)
            where = f"{url} ({worker['dialect']}): "
            if worker["state"] == "quarantined" and worker["cause"]:
                if truth["paused"]:
                    continue
                out.append(where + f"quarantined ({worker['cause']}), and runs")
            if worker["state"] != "ready":
                out.append(where + f"is {worker['state']}, cause {worker['cause']}")
            if truth["paused"]:
                out.append(where + "is paused, and not quarantined")
            if truth["mixed"]:
                out.append(where + "serves a mix")
            if committed is not None and truth["label"] != str(committed):
                out.append(where + f"has label {truth['label']}, committed is {committed}")
            if committed is not None and not os.path.basename(truth["directory"]).startswith(f"weight_update_v{committed}"):
                out.append(where + f"serves {truth['directory']}, committed is {committed}")
            if any(one.get("overlap") for one in call("GET", url + "/_tiny/log")[1]):
                out.append(where + "got a load while another ran")
        return out
