"""The programs of a benchmark as processes: the fleet, and the two gateways; and what they use of the machine."""
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
KEY = "bench-key"


class Http:
    """One kept connection. `call` gives (status, body as bytes)."""

    def __init__(self, port, key=None, timeout=600):
        self.port, self.key, self.timeout, self.connection = port, key, timeout, None

    def call(self, method, path, body=None):
        headers = {"Content-Type": "application/json"}
        if self.key:
            headers["Authorization"] = "Bearer " + self.key
        data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        for attempt in (1, 2):
            try:
                if self.connection is None:
                    self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=self.timeout)
                    self.connection.connect()
                    self.connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.connection.request(method, path, data, headers)
                answer = self.connection.getresponse()
                return answer.status, answer.read()
            except (http.client.RemoteDisconnected, ConnectionError):  # a kept connection that the other side ended
                self.connection = None
                if attempt == 2:
                    raise

    def json(self, method, path, body=None):
        status, text = self.call(method, path, body)
        return json.loads(text) if status == 200 else {"status_code": status, "text": text.decode(errors="replace")}


def cpu_seconds(pid):
    """Of all its threads. Nanoseconds where the kernel has schedstat, else ticks."""
    try:
        total = 0
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/schedstat") as file:
                total += int(file.read().split()[0])
        return total / 1e9
    except FileNotFoundError:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mib(pid):
    """(resident now, most ever)."""
    with open(f"/proc/{pid}/status") as file:
        text = file.read()
    return tuple(int(re.search(name + r":\s+(\d+)", text).group(1)) / 1024 for name in ("VmRSS", "VmHWM"))


class Fleet:
    def __init__(self, build, **setup):
        self.child = subprocess.Popen([os.path.join(build, "fleet")], stdout=subprocess.PIPE, text=True)
        port = int(self.child.stdout.readline().split()[1])
        self.http = Http(port)
        self.urls = self.http.json("POST", "/setup", setup)

    def ask(self, what, body=None):
        return self.http.json("POST", "/" + what, body or {})

    def end(self):
        self.child.kill()
        self.child.wait()


def gateway_of(pid):
    """The process that does the work: `weighlock serve` is a parent that waits for it."""
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        children = file.read().split()
    return int(children[0]) if children else pid


class Gateway:
    """`name` is "ours" or "peer". Started on a free port; `start_s` is the time until /health answers."""

    def __init__(self, name, command, directory, more=(), environment=None):
        self.name, self.directory = name, directory
        probe = socket.socket()  # held until it listens: both bind with SO_REUSEADDR
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        self.log = os.path.join(directory, name + ".log")
        with open(self.log, "wb") as log:
            began = time.monotonic()
            arguments = [*command, "--host", "127.0.0.1", "--port", str(port), "--admin-api-key", KEY, *more]
            self.child = subprocess.Popen(arguments, stdout=log, stderr=log, env={**os.environ, **(environment or {})})
        self.http = Http(port, KEY)
        while True:
            try:
                if Http(port, timeout=5).call("GET", "/health")[0] == 200:
                    break
            except OSError:
                time.sleep(0.002)
            if self.child.poll() is not None or time.monotonic() - began > 60:
                self.end()
                with open(self.log, errors="replace") as log:
                    sys.exit(f"{name} did not start: {log.read()[-2000:]}")
        self.start_s = time.monotonic() - began
        probe.close()
        self.pid = gateway_of(self.child.pid) if name == "ours" else self.child.pid

    def connect(self, urls, save_path, settings=None):
        body = {"pair_name": "bench", "mode": "disk", "save_path": save_path,
                "train_worker_urls": urls["train"], "inference_worker_urls": urls["infer"]}
        if settings and self.name == "ours":
            body["settings"] = settings
        status, text = self.http.call("POST", "/connect", body)
        if status != 200:
            sys.exit(f"{self.name}: /connect answered {status}: {text[:500]}")

    def connect_awex(self, urls, settings=None):
        """(seconds, None), or (seconds, why not)."""
        body = {"pair_name": "bench", "mode": "awex", "nccl_master_addr": "127.0.0.1", "nccl_master_port": 29500,
                "train_worker_urls": urls["train"], "inference_worker_urls": urls["infer"]}
        if settings and self.name == "ours":
            body["settings"] = settings
        began = time.monotonic()
        status, text = self.http.call("POST", "/connect", body)
        return time.monotonic() - began, None if status == 200 else f"/connect answered {status}: {text[:500]}"

    def update(self, version):
        """(seconds, the answer)."""
        began = time.monotonic()
        answer = self.http.json("POST", "/update_weights", {"pair_name": "bench", "version": version})
        return time.monotonic() - began, answer

    def cpu(self):
        return cpu_seconds(self.pid)

    def end(self):
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGTERM)
            try:
                self.child.wait(10)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()


class Lab:
    """One measurement's processes and its own directory, gone at the end."""

    def __init__(self, arguments, gateway, fleet, more=()):
        self.directory = tempfile.mkdtemp(prefix="weighlock-bench-", dir=arguments.scratch)
        self.save_path = os.path.join(self.directory, "w")
        os.mkdir(self.save_path)
        commands = {"ours": [os.path.join(arguments.build, "weighlock"), "serve", "--compat",
                             "--state-dir", os.path.join(self.directory, "state")],
                    "peer": [arguments.peer, os.path.join(HERE, "peer_gateway.py")]}
        self.fsync_log = os.path.join(self.directory, "fsyncs")
        environment = {"LD_PRELOAD": os.path.abspath(os.path.join(arguments.build, "libfsync_log.so")),
                       "WEIGHLOCK_FSYNC_LOG": self.fsync_log} if gateway == "ours" else {}
        self.fleet = self.gateway = None
        try:
            self.fleet = Fleet(arguments.build, **fleet)
            self.gateway = Gateway(gateway, commands[gateway], self.directory, more, environment)
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.gateway:
            self.gateway.end()
        if self.fleet:
            self.fleet.end()
        shutil.rmtree(self.directory, ignore_errors=True)
