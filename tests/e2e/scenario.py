"""The end-to-end scenario: real trainers, real engines, the real gateway; nothing is imitated.

Each public method is one step and asserts what a user was promised. The order matters: the fleet goes from version
to version, and the steps that kill an engine come last.
"""
import dataclasses
import os
import time

import probes
import wire

# Moves a log-probability by 1.6 to 5 from version to version, over 30 versions (seen), and keeps all of them finite.
TRAIN_STEPS = 4
TRAIN_RATE = 0.01
# bfloat16 on the engines against float32 from the same files: up to 0.05 was seen.
NEAR = 0.1
FAR = 0.5
# How often an engine is tried to be caught in its load: about every third load of the tiny model is seen.
CATCHES = 20
# Tokens of a request that is to run through a pause: at 250 a second (the most that was seen) 6 s, and all fit in a context.
THROUGH = 1500
# Updates until on each engine a request ran through the pause. One follows the other, so only a pause that falls between two
# of them shows nothing.
KEEP_TRIES = 5
# Seconds of RESUMING in mode keep, on a busy machine; the resume's deadline is 30.
ANSWERED = 15
BEFORE_PAUSE = ("queued", "requested", "preparing")


def phase_began(name, update, answered):
    """When the update came to that phase, by the clock that `answered`, the time of its answer, was read from."""
    names = [phase["name"] for phase in update["phases"]]
    assert name in names, f"phases {names}: there is no {name}"
    since = update["phases"][names.index(name) :]
    return answered - sum(phase["duration_ms"] for phase in since) / 1000


@dataclasses.dataclass
class Running:
    """A request, and when it was seen to be computed."""

    pending: wire.Pending
    seen: float


class Scenario:
    def __init__(self, gateway, ranks, engines, models, save_path, say):
        self.gateway = gateway
        self.ranks = ranks
        self.engines = engines
        self.models = models
        self.save_path = save_path
        self.say = say
        self.probes = {e.dialect: probes.probe_of(e) for e in engines}
        self.version = 0
        self.start_model = engines[0].model
        # What the fleet serves, and what it served before.
        self.directory = self.start_model
        self.before = self.start_model

    # What steps are made of.

    def url(self, dialect):
        return self.probes[dialect].engine.url

    def expected(self, directory):
        return [value for values in self.ranks.reference(directory, list(probes.SEQUENCES)) for value in values]

    def assert_serves(self, directory, dialects=None, unlike=None, near_enough=NEAR, flushed=None):
        """Each engine's scores are those of the files in `directory`, and not those of the files in `unlike`.

        After an update (`unlike` is given) nothing may come from the prefix cache that the version before has filled.
        The distance alone doesn't show it: 0.09 was seen behind a cache that was not flushed.
        """
        if flushed is None:
            flushed = unlike is not None
        expected = self.expected(directory)
        other = self.expected(unlike) if unlike else None
        if other:
            moved = probes.farthest(expected, other)
            assert moved > FAR, f"the trainer moved by {moved:.3f} only: this would prove nothing"
        for dialect in dialects or self.probes:
            probe = self.probes[dialect]
            scores = probes.all_scores(probe)
            near = probes.farthest(scores, expected)
            far = probes.farthest(scores, other) if other else 0.0
            ids, given, from_cache = probes.continued(probe)
            whole = self.ranks.reference(directory, [probes.CACHED + ids])[0][-len(ids) :]
            cached = probes.farthest(given, whole)
            self.say(f"{dialect}: {near:.3f} from its version, {cached:.3f} behind a cached prefix, "
                     f"{far:.3f} from the one before")
            assert near < near_enough, f"{dialect} is {near:.3f} away from {directory}"
            assert cached < near_enough, f"{dialect} continues a cached prefix {cached:.3f} away from {directory}: stale cache"
            assert not flushed or not from_cache, f"{dialect} took {from_cache} tokens from the cache of the version before"
            assert not other or far > FAR, f"{dialect} is only {far:.3f} away from {unlike}"

    def assert_all_ready(self, version):
        workers = self.gateway.workers()
        for dialect, probe in self.probes.items():
            worker = workers[probe.engine.url]
            assert worker["state"] == "ready", f"{dialect}: {worker}"
            assert worker["version"] == version, f"{dialect}: {worker}"
            assert worker["dialect"] == dialect, f"{dialect} was taken for {worker['dialect']}"
            assert self.gateway.worker_is_ready(worker), f"{dialect}: its readiness URL says no"
            assert not probe.paused(), f"{dialect} is left paused"
            assert probe.label() == str(version), f"{dialect} is labelled {probe.label()}, not {version}"

    def train(self):
        losses = self.ranks.step(TRAIN_STEPS, TRAIN_RATE)
        self.version += 1
        self.say(f"trained to v{self.version}, losses {losses}")

    def saved_directory(self, version):
        """Where the version was written: the engines are told it, and SGLang tells it on."""
        name = f"weight_update_v{version}"
        found = sorted(n for n in os.listdir(self.save_path) if n == name or n.startswith((name + ".", name + "-", name + "_")))
        assert found, f"{self.save_path} has no {name}: {os.listdir(self.save_path)}"
        return os.path.join(self.save_path, found[-1])

    def assert_update(self, update, state="succeeded"):
        phases = ", ".join(f"{p['name']} {p['duration_ms']}" for p in update.get("phases", []))
        self.say(f"{update['state']}, pause {update.get('pause_ms')} ms; {phases}")
        assert update["state"] == state, f"{update['state']}, {update.get('error')}: {update.get('workers')}"

    def moved_to(self, version):
        self.before, self.directory = self.directory, self.saved_directory(version)

    def update_held_in_the_load(self, dialect):
        """An update that is under way, with this engine's core stopped while it reads the new version's files.

        A load that slipped through unseen has made a good update: then the next version is tried.
        """
        engine = self.probes[dialect].engine
        for tries in range(1, CATCHES + 1):
            self.train()
            pending = self.gateway.begin_update(self.version)
            if engine.freeze_while_reading(self.save_path + "/", pending.done):
                self.say(f"caught {dialect} in its load at try {tries}")
                return pending
            self.assert_update(self.gateway.outcome(pending.answer(180)))
            self.moved_to(self.version)
        raise AssertionError(f"{dialect} was not seen in its load in {CATCHES} updates")

    def long_request(self, dialect):
        """A request that runs; returns when its engine has begun to compute it."""
        probe = self.probes[dialect]
        pending = probes.begin(probe, probes.SEQUENCES[0], THROUGH)
        # Neither engine tells that a request runs without being asked in its own way; by the time that a second,
        # short one was answered, the first has been scheduled. A paused engine answers neither.
        probes.all_scores(probe)
        return Running(pending, time.monotonic())

    def update_beside_requests(self):
        """An update in mode keep; on each engine one request runs after the other until it pauses them, and none begins later:
        SGLang refuses a flush while requests run. The update, when it was answered, and the requests of each engine."""
        requests = {d: [self.long_request(d)] for d in self.probes}
        asked = self.gateway.begin_update(self.version, policy={"pause_mode": "keep"})
        wire.wait_until(lambda: asked.done() or self.gateway.newest()["version"] == self.version, 30, "the update is known")
        while not asked.done() and self.gateway.newest()["phase"] in BEFORE_PAUSE:
            for dialect, running in requests.items():
                if running[-1].pending.done():
                    running.append(self.long_request(dialect))
            time.sleep(0.02)
        return self.gateway.outcome(asked.answer(180)), asked.ended, requests

    def ran_through(self, dialect, running, paused, resumed):
        """All requests were answered whole. True if one of them was computed before the pause and ended after the resume."""
        for one in running:
            ids, _, reason = self.probes[dialect].generated(probes.checked(one.pending.answer(120)))
            assert (len(ids), reason) == (THROUGH, "length"), f"{dialect}: {len(ids)} tokens, {reason}"
        over = [one.pending.ended - resumed for one in running if one.seen < paused and one.pending.ended > resumed]
        self.say(f"{dialect}: {len(running)} requests; through the pause, ended so many s after the resume began: "
                 f"{', '.join(f'{seconds:.2f}' for seconds in over) or 'none'}")
        return bool(over)

    # Steps.

    def connect(self):
        urls = [e.url for e in self.engines]
        pair = self.gateway.make_pair(self.ranks.urls, urls, self.save_path, {"quorum": "half", "pause_mode": "abort"})
        self.say(f"pair {pair.get('name')}: {pair.get('workers')}")
        # The start model is random and rounds worse than a trained one: 0.08 was seen.
        self.assert_serves(self.start_model, near_enough=2 * NEAR)

    def update(self):
        self.train()
        began = time.monotonic()
        update = self.gateway.update(self.version)
        self.say(f"answered after {time.monotonic() - began:.2f} s")
        self.assert_update(update)
        verdicts = {w["url"].rstrip("/"): (w["verdict"], w["evidence"]) for w in update["workers"]}
        self.say(f"verdicts {verdicts}")
        assert all(verdict == "verified" for verdict, _ in verdicts.values()), verdicts
        self.moved_to(self.version)
        self.assert_all_ready(self.version)
        self.assert_serves(self.directory, unlike=self.before)

    def update_as_areal(self):
        """The calls that AReaL's controller makes, a new connect first, as after a restart of the trainer."""
        urls = [e.url for e in self.engines]
        answer = self.gateway.connect_as_areal(self.ranks.urls, urls, self.save_path)
        assert answer == {"pair_name": self.gateway.pair}, answer
        self.train()
        answer = self.gateway.update_as_areal(self.version)
        self.say(str(answer))
        assert (answer["status"], answer["version"], answer["error"]) == ("ok", self.version, None), answer
        self.moved_to(self.version)
        self.assert_all_ready(self.version)
        self.assert_serves(self.directory, unlike=self.before)

    def request_sent_during_a_pause(self, dialect):
        """The other engine is held in its load, so that this one is surely paused while the request is sent."""
        other = next(d for d in self.probes if d != dialect)
        probe, held = self.probes[dialect], self.probes[other].engine
        pending = self.update_held_in_the_load(other)
        try:
            wire.wait_until(probe.paused, 10, f"{dialect} is paused")
            request = probes.begin(probe, probes.SEQUENCES[0], 4)
            time.sleep(0.5)
            assert not request.done(), f"answered while the engine was paused: {request.answer()}"
        finally:
            held.thaw()
        self.assert_update(self.gateway.outcome(pending.answer(180)))
        ids, given, reason = probe.generated(probes.checked(request.answer(60)))
        assert reason == "length", f"the request ended with {reason}"
        self.moved_to(self.version)
        # It was computed by the new version.
        whole = self.ranks.reference(self.directory, [probes.SEQUENCES[0] + ids])[0][-len(ids) :]
        assert probes.farthest(given, whole) < NEAR, f"answered by other weights: {probes.farthest(given, whole):.3f}"
        self.assert_all_ready(self.version)
        self.assert_serves(self.directory, unlike=self.before)

    def running_requests_survive_keep(self):
        """Repeated until it is seen on both engines: on a busy machine a request can end before the pause."""
        unseen = set(self.probes)
        for tries in range(1, KEEP_TRIES + 1):
            self.train()
            update, answered, requests = self.update_beside_requests()
            self.assert_update(update)
            paused, resumed = (phase_began(name, update, answered) for name in ("pausing", "resuming"))
            # An engine that refuses its flush holds nothing up: the flush is owed.
            assert answered - resumed < ANSWERED, f"RESUMING took {answered - resumed:.1f} s beside requests that run on"
            unseen -= {d for d, running in requests.items() if self.ran_through(d, running, paused, resumed)}
            self.moved_to(self.version)
            if not unseen:
                break
            self.say(f"try {tries}: no request ran through the pause of {sorted(unseen)}")
        assert not unseen, f"in {KEEP_TRIES} updates no request ran through a pause of {sorted(unseen)}: nothing is shown"
        self.assert_all_ready(self.version)
        # SGLang refuses a flush while requests run. They have ended: now it must come, without a further update.
        for dialect, probe in self.probes.items():
            wire.wait_until(lambda: not probes.continued(probe)[2], 30, f"{dialect} has flushed its cache", every=1.0)
        owing = [url for url, worker in self.gateway.workers().items() if "flush_owed" in worker]
        assert not owing, f"{owing} are flushed, and said to owe it"
        self.assert_serves(self.directory, unlike=self.before, flushed=False)

    def refused(self, variant, words, by_command):
        """A damaged directory is refused by its own fault's name, and no engine hears of it."""
        directory = os.path.join(self.models, variant)
        writes = {d: probes.writes_in_log(p) for d, p in self.probes.items()}
        if by_command:
            code, out, err = self.gateway.update_from(directory, self.version + 1)
            text = out + err
            assert code not in (0, 2), f"exit code {code}: {text}"
        else:
            update = self.gateway.update(self.version + 1, path=directory)
            text = str(update["error"])
            assert update["state"] in ("aborted", "rejected"), update
        self.say(" ".join(text.split())[:300])
        missing = [word for word in words if word not in text]
        assert not missing, f"the answer doesn't say {missing}: {text}"
        for dialect, probe in self.probes.items():
            assert probes.writes_in_log(probe) == writes[dialect], f"{dialect} was sent something"
        self.assert_all_ready(self.version)
        self.assert_serves(self.directory)

    def killed_in_the_load(self, dialect):
        """Held while it reads the files, then killed: the other one ends ready on the new version."""
        victim = self.probes[dialect].engine
        other = next(d for d in self.probes if d != dialect)
        pending = self.update_held_in_the_load(dialect)
        assert not pending.done(), "the update ended before the engine was killed"
        victim.kill()
        update = self.gateway.outcome(pending.answer(180))
        self.assert_update(update, "degraded")
        by_url = {w["url"].rstrip("/"): w for w in update["workers"]}
        dead, well = by_url[victim.url], by_url[self.url(other)]
        self.say(f"dead: {dead['verdict']}, {dead['cause']}")
        assert well["verdict"] == "verified", well
        assert dead["verdict"] != "verified" and dead["cause"] and dead["cause"]["message"], dead
        workers = self.gateway.workers()
        assert workers[victim.url]["state"] == "quarantined", workers[victim.url]
        assert workers[victim.url]["cause"]["message"], workers[victim.url]
        assert not self.gateway.worker_is_ready(workers[victim.url])
        assert workers[self.url(other)]["state"] == "ready", workers[self.url(other)]
        self.moved_to(self.version)
        self.assert_serves(self.directory, [other], unlike=self.before)

    def restarted_engine_comes_back(self, dialect):
        """A new process starts on the start model, and serves the fleet's version after the next update at the latest."""
        self.probes[dialect].engine.restart()
        self.train()
        update = self.gateway.update(self.version)
        # Its looks failed while it started, so it has 2 s to answer: where that is too little, it comes back by itself.
        self.assert_update(update, "degraded" if update["state"] == "degraded" else "succeeded")
        late = [w["url"].rstrip("/") for w in update["workers"] if w["verdict"] != "verified"]
        assert late in ([], [self.url(dialect)]), update["workers"]
        self.moved_to(self.version)

        def ready():
            return self.gateway.workers()[self.url(dialect)]["state"] == "ready"

        wire.wait_until(ready, 60, f"{dialect} is ready again", every=0.5)
        self.assert_all_ready(self.version)
        self.assert_serves(self.directory, unlike=self.before)

    def gateway_ends_in_order(self):
        assert self.gateway.stop(), f"the gateway didn't end with 0 after SIGTERM:\n{self.gateway.tail()}"
        for dialect, probe in self.probes.items():
            assert not probe.paused(), f"{dialect} is left paused"
