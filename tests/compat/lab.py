"""What the tests of this folder share: real programs on free ports, workers whose requests are recorded, raw HTTP.

Nothing here knows the gateway's insides: it is started as a process and spoken to over HTTP.
"""
import http.client
import http.server
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.parse

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import programs  # noqa: E402

# The two refusals of the key, in the words of AReaL's gateway.
MISSING_KEY = {"detail": "Missing or malformed Authorization header. Expected 'Bearer <token>'."}
WRONG_KEY = {"detail": "Admin API key required."}

KEY = "compat-test-key-0123"


def in_background(work, *arguments):
    """Runs a call in a thread; the result is a function that waits for what it returned."""
    answers = []
    thread = threading.Thread(target=lambda: answers.append(work(*arguments)), daemon=True)
    thread.start()

    def answer():
        thread.join(120)
        if not answers:
            raise AssertionError("no answer within 120 s")
        return answers[0]
    return answer


class Answer:
    """Status, headers (lower case), text, and the JSON if it is one."""

    def __init__(self, status, headers, text):
        self.status, self.headers, self.text = status, headers, text
        try:
            self.json = json.loads(text)
        except ValueError:
            self.json = None

    def __repr__(self):
        return f"{self.status} {self.text[:600]}"


def http_call(url, method, path, body=None, headers=None, timeout=120):
    """One request on a connection of its own. `body`: bytes as they are, None for none, anything else as JSON."""
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout)
    sent = dict(headers or {})
    data = body
    if body is not None and not isinstance(body, bytes):
        data = json.dumps(body).encode()
        sent.setdefault("Content-Type", "application/json")
    try:
        connection.request(method, path, data, sent)
        response = connection.getresponse()
        text = response.read().decode("utf-8", "replace")
        return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, text)
    finally:
        connection.close()


class Request:
    """One request that a worker got. `began` and `ended` are monotonic seconds; `ended` is None while it is answered."""

    def __init__(self, worker, method, path, headers, body):
        self.worker, self.method, self.path, self.headers, self.body = worker, method, path, headers, body
        self.began, self.ended, self.status = time.monotonic(), None, None

    @property
    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return f"{self.worker}: {self.method} {self.path} {self.body[:200]!r} -> {self.status}"


class Tape:
    """Every request to every recorded worker, in the order of arrival."""

    def __init__(self):
        self._lock = threading.Lock()
        self._requests = []

    def add(self, request):
        with self._lock:
            self._requests.append(request)

    def all(self, path=None, worker=None):
        """Those with this path (without its query) and of workers whose name begins so."""
        with self._lock:
            found = list(self._requests)
        return [r for r in found if (path is None or r.path.split("?")[0] == path) and r.worker.startswith(worker or "")]

    def changes(self):
        """Those that aren't mere reads: workers of a pair are looked at from its connect on."""
        return [r for r in self.all() if r.method != "GET"]

    def clear(self):
        with self._lock:
            self._requests.clear()


class Recorder:
    """A worker as the gateway sees it: records each request, and hands it to the real one behind."""

    def __init__(self, name, upstream, tape):
        parts = urllib.parse.urlsplit(upstream)

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Head and body in one packet, at once: otherwise each answer waits 40 ms for the other side's acknowledgement.
            wbufsize = -1
            disable_nagle_algorithm = True

            def handle_any(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                request = Request(name, self.command, self.path, self.headers.items(), body)
                tape.add(request)
                behind = http.client.HTTPConnection(parts.hostname, parts.port, timeout=600)
                try:
                    behind.request(self.command, self.path, body, dict(self.headers.items()))
                    answer = behind.getresponse()
                    data = answer.read()
                    request.status = answer.status
                    self.send_response(answer.status)
                    self.send_header("Content-Type", answer.getheader("Content-Type", "application/json"))
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)
                    self.wfile.flush()
                except (OSError, http.client.HTTPException):
                    self.close_connection = True  # as it was behind: no answer
                finally:
                    request.ended = time.monotonic()
                    behind.close()

            do_GET = do_POST = handle_any

            def log_message(self, *arguments):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, request, client_address):
                pass  # the gateway reset a connection, which is its right

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.upstream = upstream
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def tiny(self, method, path, body=None):
        """Steers the real worker behind, unrecorded."""
        answer = http_call(self.upstream, method, path, body)
        if answer.status != 200:
            raise AssertionError(f"{method} {path}: {answer}")
        return answer.json

    def fault(self, route, fault, times=1, **more):
        return self.tiny("POST", "/_tiny/faults", {"route": route, "fault": fault, "times": times, **more})

    def state(self):
        return self.tiny("GET", "/_tiny/state")

    def end(self):
        self.server.shutdown()
        self.server.server_close()


class Lab(unittest.TestCase):
    """A directory, and programs that end with the test."""

    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="weighlock-compat-")
        self.addCleanup(shutil.rmtree, self.directory)
        self.tape = Tape()
        os.makedirs(self.path("shared"))

    def path(self, *names):
        return os.path.join(self.directory, *names)

    def start(self, name, *command, env=None):
        """A program whose stdout has `listening ... URL` lines; its stderr goes to a file."""
        with open(self.path(name + ".log"), "wb") as log:
            child = subprocess.Popen([programs.program(command[0]), *command[1:]], stdin=subprocess.DEVNULL,
                                     stdout=subprocess.PIPE, stderr=log, env={**os.environ, **(env or {})})
        self.addCleanup(self.end, child)
        return child

    def end(self, child):
        if child.poll() is None:
            child.kill()
        child.wait()
        child.stdout.close()

    def log_of(self, name):
        with open(self.path(name + ".log"), errors="replace") as file:
            return file.read()

    def addresses(self, name, child, count):
        found = []
        for line in child.stdout:
            text = line.decode()
            if text.startswith("listening"):
                found.append(text.split()[-1])
            if len(found) == count:
                return found
        raise AssertionError(f"{name} told {found}, {count} addresses were expected:\n{self.log_of(name)}")

    def recorded(self, prefix, urls):
        recorders = [Recorder(f"{prefix}{i}", url, self.tape) for i, url in enumerate(urls)]
        for one in recorders:
            self.addCleanup(one.end)
        return recorders

    def engines(self, *dialects, load_ms=0, name="engines", flags=()):
        programs.write_model(self.path("start"))
        words = [word for dialect in dialects for word in ("--engine", dialect + ":0")]
        child = self.start(name, "tinyengine", "--model", self.path("start"), *words, "--load-ms", str(load_ms),
                           "--time-scale", "0.02", *flags)
        return self.recorded("engine", self.addresses(name, child, len(dialects)))

    def trainers(self, ranks=2, name="trainers", flags=()):
        # A rank whose peer has failed answers soon, so that the next save isn't refused as one too many.
        child = self.start(name, "tinytrainer", "--ranks", str(ranks), "--model-seed", "1", "--collective-timeout-ms", "2000",
                           *flags)
        return self.recorded("rank", self.addresses(name, child, ranks))

    def gateway(self, *flags, key=KEY, name="gateway"):
        child = self.start(name, "weighlock", "serve", "--compat", "--host", "127.0.0.1", "--port", "0", "--state-dir",
                           self.path(name + "-state"), "--log-level", "info", *flags,
                           env={"WEIGHLOCK_ADMIN_API_KEY": key})
        return Gateway(child, self.addresses(name, child, 1)[0], key)


    # --- what several files check of their routes: (method, path, a body that is right)

    def check_refused_without_key(self, gateway, routes):
        for method, path, body in routes:
            for value in (None, "", "Bearer", "Bearer ", "Basic " + KEY, KEY, "Bearer" + KEY):
                headers = {} if value is None else {"Authorization": value}
                answer = gateway.call(method, path, body, headers, key=False)
                self.assertEqual((answer.status, answer.json), (401, MISSING_KEY), (method, path, value))
            for token in ("wrong", KEY[:-1], KEY + "x", KEY.upper()):
                answer = gateway.call(method, path, body, {"Authorization": "Bearer " + token}, key=False)
                self.assertEqual((answer.status, answer.json), (403, WRONG_KEY), (method, path, token))

    def check_open_with_key(self, gateway, routes):
        for method, path, body in routes:
            answer = gateway.call(method, path, body)
            self.assertIn(answer.status, (200, 404), (method, path, answer))  # 404: of the pair, not of the route
            self.assertNotEqual(answer.json, {"detail": "Not Found"}, (method, path))


class Gateway:
    """The gateway as a client sees it."""

    def __init__(self, child, url, key):
        self.child, self.url, self.key = child, url, key

    def call(self, method, path, body=None, headers=None, key=True, timeout=120):
        sent = {"Authorization": f"Bearer {self.key}"} if key else {}
        return http_call(self.url, method, path, body, {**sent, **(headers or {})}, timeout)

    def connect(self, pair, trainers, engines, save_path, **more):
        return self.call("POST", "/connect", {
            "pair_name": pair, "train_worker_urls": [one.url for one in trainers],
            "inference_worker_urls": [one.url for one in engines], "mode": "disk", "save_path": save_path, **more})

    def update(self, pair, version):
        return self.call("POST", "/update_weights", {"pair_name": pair, "version": version})

    def disconnect(self, pair):
        return self.call("POST", "/disconnect", {"pair_name": pair})
