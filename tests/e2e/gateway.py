"""The gateway as its clients see it: every call that the end-to-end test makes of it is here."""
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "real"))
import ports  # noqa: E402
import wire  # noqa: E402

KEY = "end-to-end-admin-key"
TERMINAL = {"succeeded", "degraded", "rolled_back", "aborted", "rejected", "failed"}


class Gateway:
    """One `weighlock serve` with a state directory of its own, and one pair."""

    def __init__(self, binary, folder, pair="policy", host="127.0.0.1"):
        self.binary = binary
        self.folder = folder
        self.pair = pair
        self.host = host
        self.held = ports.HeldPort(host)
        self.port = self.held.number
        self.url = f"http://{wire.in_url(host)}:{self.port}"
        self.log = os.path.join(folder, "gateway.log")
        self.process = None

    def start(self):
        os.makedirs(self.folder, exist_ok=True)
        command = [
            self.binary, "serve", "--host", self.host, "--port", str(self.port),
            "--state-dir", os.path.join(self.folder, "state"), "--log-level", "info",
        ]  # fmt: skip
        # The key comes from the environment: one on a command line is seen by everybody on the machine.
        env = {**os.environ, "WEIGHLOCK_ADMIN_API_KEY": KEY}
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, start_new_session=True
            )

        def answers():
            if self.process.poll() is not None:
                raise RuntimeError(f"the gateway ended with {self.process.returncode}:\n{self.tail()}")
            return self.call("GET", "/health").status == 200

        wire.wait_until(answers, 30, "the gateway's /health")
        return self

    def tail(self, size=4000):
        with open(self.log, encoding="utf-8", errors="replace") as f:
            return f.read()[-size:]

    def stop(self):
        """True if it ended by itself, with 0, after SIGTERM."""
        if self.process is None or self.process.poll() is not None:
            return False
        self.process.terminate()
        try:
            return self.process.wait(60) == 0
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return False

    def call(self, method, path, body=None, timeout=30.0):
        return wire.call(self.url, method, path, body, timeout, {"Authorization": f"Bearer {KEY}"})

    def good(self, method, path, body=None, timeout=30.0):
        answer = self.call(method, path, body, timeout)
        if answer.status not in (200, 201, 202):
            raise AssertionError(f"{method} {path}: {answer}")
        return answer.body

    def make_pair(self, trainers, engines, save_path, settings):
        body = {
            "mode": "disk",
            "save_path": save_path,
            "trainers": {"kind": "areal", "urls": trainers, "save_trigger": "all"},
            "workers": [{"url": url, "dialect": "auto"} for url in engines],
            "lora": None,
            "settings": settings,
        }
        return self.good("PUT", f"/v1/pairs/{self.pair}", body, timeout=60)

    def connect_adapters_as_areal(self, trainers, engines, save_path, name, keep):
        body = {
            "pair_name": self.pair,
            "train_worker_urls": trainers,
            "inference_worker_urls": engines,
            "mode": "disk",
            "save_path": save_path,
            "use_lora": True,
            "lora_name": name,
            "lora_keep_versions": keep,
        }
        return self.good("POST", "/connect", body, timeout=60)

    def connect_as_areal(self, trainers, engines, save_path):
        body = {
            "pair_name": self.pair,
            "train_worker_urls": trainers,
            "inference_worker_urls": engines,
            "mode": "disk",
            "save_path": save_path,
        }
        return self.good("POST", "/connect", body, timeout=60)

    def update_as_areal(self, version, seconds=150):
        body = {"pair_name": self.pair, "version": version}
        return self.good("POST", "/update_weights", body, timeout=seconds)

    def workers(self):
        """By URL, without a slash at the end."""
        items = self.good("GET", f"/v1/pairs/{self.pair}/workers")["items"]
        return {w["url"].rstrip("/"): w for w in items}

    def worker_is_ready(self, worker):
        return self.call("GET", f"/v1/pairs/{self.pair}/workers/{worker['id']}/ready").status == 200

    def update(self, version, path=None, policy=None, seconds=150):
        """One update to its end: the update object, whatever its outcome."""
        return self.outcome(self.begin_update(version, path, policy, seconds).answer(seconds + 30))

    def newest(self):
        """The update that was asked for last, as it is now."""
        return self.good("GET", f"/v1/pairs/{self.pair}/updates?limit=1")["items"][0]

    def begin_update(self, version, path=None, policy=None, seconds=150):
        body = {"version": version}
        if path:
            body["path"] = path
        if policy:
            body["policy"] = policy
        # One key for each: the version alone is not unique, a refused one is tried again with another path.
        headers = {"Authorization": f"Bearer {KEY}", "Idempotency-Key": f"e2e-{version}-{os.urandom(4).hex()}"}
        at = f"/v1/pairs/{self.pair}/updates?wait={seconds}"
        return wire.Pending(self.url, "POST", at, body, seconds + 20, headers)

    @staticmethod
    def outcome(answer):
        """An update object, or for one that was refused before it began the problem in the same shape."""
        body = answer.body
        if isinstance(body, dict) and body.get("state") in TERMINAL:
            return body
        if isinstance(body, dict) and answer.status >= 400:
            error = {"code": body.get("code"), "message": body.get("detail") or body.get("title")}
            return {"state": "rejected", "workers": [], "error": error}
        raise AssertionError(f"the update has no outcome: {answer}")

    def command(self, *words, timeout=180):
        """The command line client: (exit code, stdout, stderr)."""
        env = {**os.environ, "WEIGHLOCK_ADMIN_API_KEY": KEY, "WEIGHLOCK_URL": self.url}
        done = subprocess.run(
            [self.binary, *words], env=env, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL
        )
        return done.returncode, done.stdout, done.stderr

    def update_from(self, directory, version):
        return self.command("update", self.pair, "--version", str(version), "--from", directory)
