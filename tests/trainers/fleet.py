"""One pair over real programs, and a trainer that pauses by itself; for the tests of this folder."""
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import programs  # noqa: E402
from programs import KEY, call  # noqa: E402


class HttpError(Exception):
    """What `raise_for_status` of an HTTP library raises."""

    def __init__(self, status, body):
        super().__init__(f"{status}: {body}")
        self.status, self.body = status, body


class Fleet(programs.Programs):
    """Engines, ranks, one gateway and one pair 'actor'; `engines`, `trainers` and `gateway_url` are their addresses."""

    DIALECTS = ("sglang", "sglang", "sglang")
    GATEWAY_OPTIONS = ()
    SETTINGS = {}

    def setUp(self):
        super().setUp()
        self.engines = self.start_engines(*self.DIALECTS).urls(len(self.DIALECTS))
        self.trainers = self.start_trainer().urls(2)
        self.serve(*self.GATEWAY_OPTIONS)
        self.connect()

    def serve(self, *options):
        self.server, self.gateway_url = self.gateway("gateway", *options)

    def ask(self, method, path, body=None, timeout=60):
        return call(method, self.gateway_url + path, body, KEY, timeout)

    def connect(self, workers=None, settings=None):
        self.connect_disk(self.gateway_url, workers or self.engines, self.trainers, {**self.SETTINGS, **(settings or {})})

    def update(self, version):
        return self.ask("POST", "/update_weights", {"pair_name": "actor", "version": version})

    def updated(self, version):
        status, body = self.update(version)
        self.assertEqual((status, body["status"]), (200, "ok"), body)
        return body

    # --- what is true, and what the gateway says

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

    def counts(self):
        """Of workers, by state. Who is seen as paused by somebody else is told a look later, and left out here."""
        return {name: count for name, count in self.pair()["workers"].items() if name != "paused_by_other"}

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
