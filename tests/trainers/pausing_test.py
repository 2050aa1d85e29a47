#!/usr/bin/env python3
"""Trainers that pause engines by themselves, ignore what an update ended with and continue whatever happened.

    pausing_test.py BUILD       BUILD holds weighlock, tinyengine and tinytrainer
"""
import time
import urllib.request

from fleet import Fleet, HttpError
from programs import Lag, call, main, wait_for

LOAD = "/update_weights_from_disk"


class FoundPaused(Fleet):
    def test_engines_found_paused_stay_paused_and_are_ready_with_the_pause_of_another(self):
        self.pause_all()
        body = self.updated(1)
        self.assertFalse(body["degraded"])
        for engine in self.engines:
            self.assertTrue(self.is_paused(engine), "the trainer's pause was undone")
            self.assertEqual(self.truth(engine)["label"], "1")
            worker = self.worker(engine)
            self.assertEqual((worker["state"], worker["version"]), ("ready", 1))
            self.assertEqual(worker.get("paused_by"), "other")
            self.assertEqual(self.ready(engine)[0], 503, "no router should send requests to a paused engine")
            self.assertEqual(len(self.requests_of(engine, "/pause_generation")), 1, "only the trainer's own")
            self.assertEqual(self.requests_of(engine, "/continue_generation"), [])
        self.continue_all()
        for engine in self.engines:
            wait_for("readiness", lambda e=engine: self.ready(e)[0] == 200)
        self.assertEqual(self.counts(), {"total": 3, "ready": 3, "quarantined": 0})

    def test_trainer_that_paused_only_some_keeps_its_pause_there_and_gets_ours_elsewhere(self):
        call("POST", self.engines[0] + "/pause_generation", {})
        self.updated(1)
        self.assertTrue(self.is_paused(self.engines[0]))
        for engine in self.engines[1:]:
            self.assertFalse(self.is_paused(engine))
            self.assertEqual(len(self.requests_of(engine, "/pause_generation")), 1)
            self.assertEqual(len(self.requests_of(engine, "/continue_generation")), 1)

    def test_many_steps_of_such_a_trainer_leave_nothing_paused(self):
        for version in range(1, 5):
            body = self.step_of_a_trainer_that_ignores_the_status(version)
            self.assertEqual(body["status"], "ok", body)
            for engine in self.engines:
                self.assertFalse(self.is_paused(engine))
                self.assertEqual(self.truth(engine)["label"], str(version))


class Torn(Fleet):
    # Between updates nothing is brought back, so that what is torn stays torn, and is held.
    SETTINGS = {**Fleet.SETTINGS, "pair_lease_ms": 0}

    def tear(self, version, engine):
        """Everything that the engine loads is half of it, and it says success."""
        self.fault(engine, route=LOAD, fault="partial_load", times=-1)
        body = self.step_of_a_trainer_that_ignores_the_status(version)
        self.assertEqual((body["status"], body["degraded"]), ("ok", True), body)
        self.assertTrue(self.truth(engine)["mixed"])

    def never_ready(self, engine):
        status, body = self.ready(engine)
        self.assertEqual((status, body["ready"]), (503, False), body)
        self.assertEqual(self.counts(), {"total": 3, "ready": 2, "quarantined": 1})

    def seconds_until_paused(self, engine):
        began = time.monotonic()
        while not self.is_paused(engine):
            self.never_ready(engine)
            self.assertLess(time.monotonic() - began, 20, self.server.text())
            time.sleep(0.01)
        return time.monotonic() - began

    def test_torn_engine_that_the_trainer_continues_is_paused_again_within_two_seconds_and_never_ready(self):
        torn = self.engines[1]
        self.updated(1)
        self.tear(2, torn)  # its last act was to continue all
        with Lag() as lag:
            took = [self.seconds_until_paused(torn)]
            for _ in range(3):
                self.continue_one(torn)
                took.append(self.seconds_until_paused(torn))
        # One slow look is the machine's.
        self.assertLess(sorted(took)[1], 2.0 + 3 * lag.worst, f"seconds until it was paused again: {took}")
        self.never_ready(torn)
        for engine in self.engines:
            self.assertEqual(self.is_paused(engine), engine == torn)

        def said():
            return [line for line in self.server.text().splitlines() if torn in line and "paused again" in line]
        wait_for("words about it", said)
        self.assertEqual(len(said()), 1, self.server.text())

    def test_a_foreign_continue_is_an_event(self):
        torn = self.engines[1]
        self.updated(1)
        self.tear(2, torn)
        self.seconds_until_paused(torn)
        request = urllib.request.Request(self.gateway_url + "/v1/events?pair=actor", headers={"Last-Event-ID": "0"})
        with urllib.request.urlopen(request, timeout=20) as events:
            for line in events:
                if b"continued_by_other" in line:
                    self.assertIn(torn.encode(), line)
                    break

    def test_next_whole_version_brings_it_back(self):
        torn = self.engines[1]
        self.updated(1)
        self.tear(2, torn)
        self.seconds_until_paused(torn)
        self.clear_faults(torn)
        body = self.step_of_a_trainer_that_ignores_the_status(3)
        self.assertEqual((body["status"], body["degraded"]), ("ok", False), body)
        for engine in self.engines:
            wait_for("readiness", lambda e=engine: self.ready(e)[0] == 200)
            self.assertFalse(self.is_paused(engine))
        time.sleep(2.5)  # more than two looks: nobody is held any more
        self.assertFalse(any(self.is_paused(engine) for engine in self.engines))

    def test_trainer_that_continues_in_the_middle_of_the_load_makes_no_engine_ready_with_a_mix(self):
        self.updated(1)
        call("DELETE", self.engines[0] + "/_tiny/log")
        self.pause_all()
        self.fault(self.engines[0], route=LOAD, fault="slow", times=1, delay_ms=8000)
        thread, answers = self.in_background(lambda: self.update(2))
        wait_for("the load", lambda: self.requests_of(self.engines[0], LOAD + '"'))
        self.continue_all()
        thread.join(timeout=60)
        status, body = answers[0]
        self.assertEqual((status, body["status"]), (200, "ok"), body)
        for engine in self.engines:
            self.assertEqual(self.truth(engine)["label"], "2")
            self.assertFalse(self.is_paused(engine))
        wait_for("words about it", lambda: "paused again" in self.server.text())


class BroughtBack(Fleet):
    def test_torn_engine_that_loads_again_serves_the_committed_version_without_another_update(self):
        torn = self.engines[1]
        self.updated(1)
        self.fault(torn, route=LOAD, fault="partial_load", times=-1)
        body = self.step_of_a_trainer_that_ignores_the_status(2)
        self.assertEqual((body["status"], body["degraded"]), ("ok", True), body)
        self.assertEqual(self.ready(torn)[0], 503)
        self.clear_faults(torn)
        wait_for("readiness", lambda: self.ready(torn)[0] == 200)
        self.assertEqual((self.truth(torn)["label"], self.truth(torn)["mixed"]), ("2", False))
        self.assertFalse(self.is_paused(torn))


class TornVllm(Torn):
    DIALECTS = ("sglang", "vllm", "sglang")

    def tear(self, version, engine):
        self.fault(engine, route="/collective_rpc", fault="partial_load", times=-1)
        body = self.step_of_a_trainer_that_ignores_the_status(version)
        self.assertEqual((body["status"], body["degraded"]), ("ok", True), body)

    # The routes that these count are SGLang's.
    test_trainer_that_continues_in_the_middle_of_the_load_makes_no_engine_ready_with_a_mix = None


def fail_everywhere(fleet_of):
    """The load of the next version is half of it on each engine; the heal that follows works."""
    for engine in fleet_of.engines:
        fleet_of.fault(engine, route=LOAD, fault="partial_load", times=1)


class FailedTransfer(Fleet):
    def test_by_default_it_is_a_200_and_the_trainer_continues_on_the_last_good_version(self):
        self.updated(1)
        fail_everywhere(self)
        body = self.step_of_a_trainer_that_ignores_the_status(2)
        self.assertEqual(body["status"], "error")
        for engine in self.engines:
            self.assertFalse(self.is_paused(engine))
            self.assertEqual((self.truth(engine)["label"], self.truth(engine)["mixed"]), ("1", False))


class FailedTransferIsAnHttpError(Fleet):
    GATEWAY_OPTIONS = ("--compat-error-status", "409")

    def test_the_trainer_raises_before_it_continues(self):
        self.updated(1)
        fail_everywhere(self)
        with self.assertRaises(HttpError) as raised:
            self.step_of_a_trainer_that_ignores_the_status(2)
        self.assertEqual(raised.exception.status, 409)
        self.assertEqual(raised.exception.body["status"], "error")
        self.assertIn("committed: false", raised.exception.body["error"])
        for engine in self.engines:
            self.assertTrue(self.is_paused(engine), "only the trainer undoes its own pause, and it raised")
        self.continue_all()
        self.updated(3)


class CallerPauses(Fleet):
    SETTINGS = {"pause": "caller"}

    def test_nothing_is_paused_or_continued_and_the_answer_says_what_is_not_promised(self):
        self.pause_all()
        body = self.updated(1)
        self.assertTrue(any("pause=caller" in text for text in body["not_promised"]), body)
        self.assertTrue(any("pause=caller" in text for text in self.pair()["not_promised"]))
        self.continue_all()
        for engine in self.engines:
            self.assertEqual(len(self.requests_of(engine, "/pause_generation")), 1)
            self.assertEqual(len(self.requests_of(engine, "/continue_generation")), 1)
            self.assertEqual(self.truth(engine)["label"], "1")
            wait_for("readiness", lambda e=engine: self.ready(e)[0] == 200)

    def test_without_any_pause_the_load_goes_into_running_engines(self):
        self.updated(1)
        for engine in self.engines:
            self.assertEqual(self.requests_of(engine, "/pause_generation"), [])
            self.assertEqual(self.truth(engine)["label"], "1")

    def test_torn_engine_is_out_of_service_and_left_as_the_caller_left_it(self):
        self.updated(1)
        self.fault(self.engines[1], route=LOAD, fault="partial_load", times=-1)
        self.step_of_a_trainer_that_ignores_the_status(2)
        time.sleep(2.5)  # two looks
        self.assertFalse(self.is_paused(self.engines[1]))
        self.assertEqual(self.ready(self.engines[1])[0], 503)
        self.assertEqual(len(self.requests_of(self.engines[1], "/pause_generation")), 1)


class NobodyPauses(Fleet):
    SETTINGS = {"pause": "never"}

    def test_no_engine_is_paused_and_the_answer_says_what_is_not_promised(self):
        body = self.updated(1)
        self.assertTrue(any("pause=never" in text for text in body["not_promised"]), body)
        for engine in self.engines:
            self.assertEqual(self.requests_of(engine, "/pause_generation"), [])
            self.assertEqual(self.requests_of(engine, "loading:"), [], "live traffic would show that label")
            self.assertEqual(self.truth(engine)["label"], "1")
            self.assertEqual(self.ready(engine)[0], 200)

    def test_torn_engine_is_held_paused(self):
        self.updated(1)
        self.fault(self.engines[1], route=LOAD, fault="partial_load", times=-1)
        status, body = self.update(2)
        self.assertEqual((status, body["status"], body["degraded"]), (200, "ok", True), body)
        wait_for("a pause", lambda: self.is_paused(self.engines[1]))
        self.continue_one(self.engines[1])
        wait_for("another pause", lambda: self.is_paused(self.engines[1]))


class Unwell(Fleet):
    """An SGLang whose /health failed in a pause says 503 on /ready until one succeeds, also when it runs again."""

    def make_unwell(self, engine):
        call("POST", engine + "/pause_generation", {})
        self.assertEqual(call("GET", engine + "/health")[0], 503)  # it waits for a token that a paused engine doesn't make
        call("POST", engine + "/continue_generation", {})
        self.assertEqual((call("GET", engine + "/ready")[0], self.is_paused(engine)), (503, False))
        call("DELETE", engine + "/_tiny/log")

    def updated_while_unwell(self, unwell, route, times, made=lambda: None):
        """The gateway gives the engine 300 ms to show that it runs. A machine that stands still as long makes the engine
        seem paused, which is no fault of either: then once more, with the next version."""
        for version in range(2, 6):
            call("DELETE", unwell + "/_tiny/faults")
            self.make_unwell(unwell)
            made()
            with Lag() as lag:
                body = self.updated(version)
            self.assertFalse(body["degraded"], body)
            if len(self.requests_of(unwell, route)) == times or lag.worst < 0.1:
                break

    def test_engine_that_is_only_unwell_does_not_count_as_paused_by_another(self):
        unwell = self.engines[1]
        self.updated(1)
        self.updated_while_unwell(unwell, "/pause_generation", 1)
        self.assertEqual(len(self.requests_of(unwell, "/pause_generation")), 1, "it ran, so the pause is ours")
        self.assertEqual(len(self.requests_of(unwell, "/continue_generation")), 1)
        self.assertNotIn("paused_by", self.worker(unwell))
        self.assertEqual(self.ready(unwell)[0], 200)

    def test_health_that_fails_for_a_while_in_an_update_costs_no_worker(self):
        unwell = self.engines[1]
        self.updated(1)
        self.updated_while_unwell(unwell, '"/health', 4, lambda: self.fault(unwell, route="/health", fault="status_503", times=3))
        self.assertEqual(len(self.requests_of(unwell, '"/health')), 4)
        self.assertEqual((self.worker(unwell)["state"], self.ready(unwell)[0]), ("ready", 200))

    def test_engine_that_is_paused_gets_one_request_that_it_answers_when_it_is_continued(self):
        self.updated(1)
        self.pause_all()
        for engine in self.engines:
            call("DELETE", engine + "/_tiny/log")
        self.updated(2)
        for engine in self.engines:
            self.assertTrue(self.is_paused(engine))
            self.assertEqual(len(self.requests_of(engine, "/generate")), 1)
        self.continue_all()
        for engine in self.engines:
            wait_for("nothing that waits", lambda e=engine: self.truth(e)["running"] == self.truth(e)["waiting"] == 0)


if __name__ == "__main__":
    main()
