#!/usr/bin/env python3
"""Both clients against a gateway that answers what a test tells it. Each test runs for `Client` and for `AsyncClient`;
long because the tests of one class run for both."""
import asyncio
import gc
import os
import socket
import threading
import time
import unittest
import warnings
from unittest import mock

import scripted
import weighlock
from scripted import PAIR, STREAM_HEAD, UPDATE, WORKER, ScriptedGateway, answer, chunk, open_descriptors, problem


class Checks:
    """The tests; a subclass says how a client is made and a call performed."""

    def serve(self, script):
        gateway = ScriptedGateway(script)
        self.addCleanup(gateway.__exit__)
        return gateway

    def raises(self, kind, url, work, **settings):
        with self.assertRaises(kind) as caught:
            self.do(url, work, **settings)
        self.assertIs(type(caught.exception), kind)
        self.assertNotIn(scripted.KEY, str(caught.exception) + repr(vars(caught.exception)))
        return caught.exception

    # --- what is sent

    def test_every_call_carries_the_key_and_json_and_closes_its_connection(self):
        gateway = self.serve(lambda request, _: answer(200, PAIR))
        self.do(gateway.url, lambda c: c.put_pair("a/b c", save_path="/w", workers=["http://h:1"], trainers=["http://t:1"]))
        one = gateway.requests[0]
        self.assertEqual((one.method, one.target), ("PUT", "/v1/pairs/a%2Fb%20c"))
        self.assertEqual(one.headers["authorization"], "Bearer " + scripted.KEY)
        self.assertEqual((one.headers["content-type"], one.headers["connection"]), ("application/json", "close"))
        self.assertEqual(one.json, {"mode": "disk", "save_path": "/w",
                                    "trainers": {"kind": "areal", "urls": ["http://t:1"]},
                                    "workers": [{"url": "http://h:1"}]})

    def test_everything_that_a_pair_can_have_is_sent(self):
        gateway = self.serve(lambda request, _: answer(201, PAIR))
        worker = weighlock.WorkerSpec("http://h:1", "vllm", weighlock.KeyReference(env="A"), weighlock.KeyReference(file="/k"))
        self.do(gateway.url, lambda c: c.put_pair("p", save_path="/w", workers=[worker], lora=weighlock.Lora("policy", 3),
                                                  settings={"quorum": "all"}, new_lineage=True, keep_unnamed=True))
        self.assertEqual(gateway.requests[0].json, {
            "mode": "disk", "save_path": "/w", "trainers": {"kind": "external"},
            "workers": [{"url": "http://h:1", "dialect": "vllm", "admin_key": {"env": "A"}, "api_key": {"file": "/k"}}],
            "lora": {"name": "policy", "keep": 3}, "settings": {"quorum": "all"}, "new_lineage": True, "keep_unnamed": True})
        self.do(gateway.url, lambda c: c.put_pair("p", save_path="/w", workers=["http://h:1"], trainers=["http://t:1"],
                                                  save_trigger="rank0"))
        self.assertEqual(gateway.requests[-1].json["trainers"],
                         {"kind": "areal", "urls": ["http://t:1"], "save_trigger": "rank0"})

    def test_keys_of_a_worker_are_named_and_only_those_given(self):
        gateway = self.serve(lambda request, _: answer(200, {"worker": WORKER}))
        key = weighlock.KeyReference(env="A")
        worker = self.do(gateway.url, lambda c: c.set_worker_key("p", "h:1", api_key=key))
        self.assertEqual(worker.url, "http://h:1")
        one = gateway.requests[0]
        self.assertEqual((one.method, one.target, one.json),
                         ("POST", "/v1/pairs/p/workers/h%3A1:set-key", {"api_key": {"env": "A"}}))

    def test_mistakes_are_found_before_anything_is_sent(self):
        gateway = self.serve(lambda request, _: answer(200, PAIR))
        for field, work in (
            ("version", lambda c: c.start_update("p", "3")),
            ("version", lambda c: c.start_update("p", True)),
            ("pair", lambda c: c.pair("")),
            ("workers", lambda c: c.put_pair("p", save_path="/w", workers="http://h:1")),
            ("dialect", lambda c: c.add_worker("p", weighlock.WorkerSpec("http://h:1", "triton"))),
            ("api_key", lambda c: c.add_worker("p", weighlock.WorkerSpec("http://h:1", api_key=weighlock.KeyReference()))),
            ("admin_key", lambda c: c.set_worker_key("p", "h:1")),
            ("admin_key", lambda c: c.set_worker_key("p", "h:1", admin_key=weighlock.KeyReference("A", "/k"))),
            (None, lambda c: c.start_update("p", 3, policy={"straggler": float("nan")})),
            (None, lambda c: c.start_update("p", 3, idempotency_key="a\r\nX: y")),
        ):
            self.assertEqual(self.raises(weighlock.InvalidRequest, gateway.url, work).field, field)
        self.assertEqual(gateway.requests, [])

    # --- what answers mean

    def test_answers_become_values(self):
        gateway = self.serve(lambda request, _: answer(200, {"items": [WORKER], "next": None}))
        worker = self.do(gateway.url, lambda c: c.workers("p"))[0]
        self.assertEqual((worker.id, worker.state, worker.version, worker.cause), ("h:1", "ready", 3, None))
        gateway.script = lambda request, _: answer(503, {"ready": False, "worker": {**WORKER, "state": "torn"}, "reason": "x"})
        ready = self.do(gateway.url, lambda c: c.worker_ready("p", "h:1"))
        self.assertEqual((ready.ready, ready.reason, ready.worker.state), (False, "x", "torn"))
        self.assertEqual(gateway.requests[-1].target, "/v1/pairs/p/workers/h%3A1/ready")
        gateway.script = lambda request, _: answer(200, {"name": "p", "abandoned": ["http://h:1"]})
        self.assertEqual(self.do(gateway.url, lambda c: c.remove_pair("p")).abandoned, ["http://h:1"])

    def test_a_list_is_read_over_its_pages_and_no_further_than_was_asked(self):
        def script(request, _):
            second = "cursor=n%2F2" in request.target
            return answer(200, {"items": [UPDATE] * 2, "next": None if second else "n/2"})
        gateway = self.serve(script)
        self.assertEqual(len(self.do(gateway.url, lambda c: c.updates("p"))), 4)
        self.assertEqual(len(gateway.requests), 2)
        self.assertEqual(len(self.do(gateway.url, lambda c: c.updates("p", limit=2))), 2)
        self.assertEqual(len(gateway.requests), 3)

    def test_problems_become_exceptions_with_code_status_and_field(self):
        rows = (
            (400, "invalid_argument", weighlock.InvalidRequest), (400, "unknown_key", weighlock.InvalidRequest),
            (401, "unauthenticated", weighlock.AuthenticationFailed), (403, "permission_denied", weighlock.AuthenticationFailed),
            (404, "not_found", weighlock.NotFound), (409, "version_not_newer", weighlock.Conflict),
            (429, "queue_full", weighlock.Unavailable), (500, "internal", weighlock.ApiError),
            (418, "a_word_of_tomorrow", weighlock.ApiError),
        )  # fmt: skip
        for status, code, kind in rows:
            gateway = self.serve(lambda request, _: problem(status, code, "because", "version"))
            failure = self.raises(kind, gateway.url, lambda c: c.pair("p"))
            self.assertEqual((failure.status, failure.code, failure.field), (status, code, "version"))
            self.assertIn("because", str(failure))

    def test_a_refusal_without_a_body_of_ours_still_says_what_it_is(self):
        gateway = self.serve(lambda request, _: answer(502, b"<html>Bad Gateway</html>", "text/html"))
        failure = self.raises(weighlock.ApiError, gateway.url, lambda c: c.pair("p"))
        self.assertEqual((failure.status, failure.code), (502, "unreachable"))
        self.assertIn("Bad Gateway", str(failure))

    def test_what_is_not_an_answer_of_a_gateway_is_said_to_be_none(self):
        for sent in (b"220 mail.example ESMTP\r\n\r\n", answer(200, b"hello"), answer(200, {"hello": 1}), answer(200, [1])):
            gateway = self.serve(lambda request, _: sent)
            self.raises(weighlock.BadAnswer, gateway.url, lambda c: c.pair("p"))

    # --- no answer

    def test_nobody_there_is_unreachable_and_says_what_to_do(self):
        gateway = ScriptedGateway(None)
        gateway.__exit__()
        failure = self.raises(weighlock.Unreachable, gateway.url, lambda c: c.pair("p"))
        self.assertIn("weighlock serve", str(failure))
        self.assertTrue(failure.retryable)

    def test_an_answer_that_is_cut_is_a_lost_connection(self):
        for sent in (b"", b"HTTP/1.1 200 OK\r\n", answer(200, PAIR)[:-1]):
            gateway = self.serve(lambda request, _: sent)
            failure = self.raises(weighlock.ConnectionLost, gateway.url, lambda c: c.pair("p"))
            self.assertFalse(failure.retryable)

    def test_a_silent_gateway_and_one_that_drips_are_late_after_the_same_time(self):
        def silent(request, connection):
            gateway.release.wait(60)

        def drips(request, connection):
            while not gateway.release.wait(0.05):
                connection.sendall(b"HTTP/1.1 200 OK\r\nX: "[:1])

        for script in (silent, drips):
            gateway = self.serve(script)
            began = time.monotonic()
            self.raises(weighlock.TimedOut, gateway.url, lambda c: c.pair("p"), timeout=0.5)
            self.assertGreaterEqual(time.monotonic() - began, 0.5)
            self.assertLess(time.monotonic() - began, 20)

    def test_a_refusal_that_comes_before_the_body_was_read_is_read(self):
        class Early(ScriptedGateway):
            def _serve(self, connection):
                with connection:
                    connection.recv(10)
                    connection.sendall(problem(413, "too_large", "the body is too large"))
                    connection.shutdown(socket.SHUT_WR)
                    while connection.recv(1 << 20):
                        pass

        gateway = Early(None)
        self.addCleanup(gateway.__exit__)
        failure = self.raises(weighlock.InvalidRequest, gateway.url, lambda c: c.put_pair(
            "p", save_path="/w", workers=["http://h:1"], settings={"label_format": "x" * 5_000_000}))
        self.assertEqual((failure.status, failure.code), (413, "too_large"))

    def test_health_and_readiness_are_answers_not_errors(self):
        gateway = self.serve(lambda request, _: answer(200 if request.target == "/healthz" else 503, {"status": "x"}))
        self.assertIs(self.do(gateway.url, lambda c: c.health()), True)
        self.assertIs(self.do(gateway.url, lambda c: c.ready()), False)
        gateway.__exit__()
        self.assertIs(self.do(gateway.url, lambda c: c.health()), False)

    # --- updates

    def test_an_update_that_was_not_committed_raises_with_what_became_of_each_worker(self):
        ended = {**UPDATE, "state": "rolled_back", "error": {"code": "quorum_lost", "message": "1 of 2"}}
        ended["workers"] = [{**UPDATE["workers"][0], "verdict": "torn", "cause": {"code": "load", "message": "no", "since": "s"}}]
        gateway = self.serve(lambda request, _: answer(200, ended))
        failure = self.raises(weighlock.UpdateFailed, gateway.url, lambda c: c.update("p", 3))
        self.assertEqual((failure.code, str(failure), failure.update.state), ("quorum_lost", "1 of 2", "rolled_back"))
        self.assertEqual(failure.verdicts["http://h:1"].verdict, "torn")
        self.assertEqual(failure.verdicts["http://h:1"].cause.message, "no")
        returned = self.do(gateway.url, lambda c: c.update("p", 3, raise_on_error=False))
        self.assertEqual((returned.state, returned.committed), ("rolled_back", False))

    def test_a_degraded_update_is_committed_and_returned(self):
        ended = {**UPDATE, "state": "degraded", "error": {"code": "degraded", "message": "one is missing"}}
        gateway = self.serve(lambda request, _: answer(200, ended))
        update = self.do(gateway.url, lambda c: c.update("p", 3))
        self.assertEqual((update.degraded, update.committed, update.error.message), (True, True, "one is missing"))

    def test_the_start_is_repeated_with_one_key_and_the_wait_outlives_lost_connections(self):
        answers = iter([b"", problem(503, "shutting_down", "leaving"), answer(202, {**UPDATE, "state": "running"}),
                        b"", answer(200, {**UPDATE, "state": "running"}), answer(200, UPDATE)])
        gateway = self.serve(lambda request, _: next(answers))
        update = self.do(gateway.url, lambda c: c.update("p", 3, path="/out/3", deadline=9.5, policy={"quorum": 1}))
        self.assertEqual(update.state, "succeeded")
        starts = [one for one in gateway.requests if one.method == "POST"]
        self.assertEqual(len(starts), 3)
        self.assertEqual(len({one.headers["idempotency-key"] for one in starts}), 1)
        self.assertEqual(starts[0].json, {"version": 3, "path": "/out/3", "deadline_s": 9.5, "policy": {"quorum": 1}})
        gateway = self.serve(lambda request, _: answer(200, UPDATE))
        self.do(gateway.url, lambda c: c.start_update("p", 3, idempotency_key="k"))
        self.assertEqual(gateway.requests[0].headers["idempotency-key"], "k")

    def test_a_change_that_may_have_been_done_is_not_repeated(self):
        for work in (lambda c: c.add_worker("p", "http://h:1"), lambda c: c.remove_worker("p", "h:1"),
                     lambda c: c.remove_pair("p"), lambda c: c.cancel_update("p", "u1")):  # fmt: skip
            gateway = self.serve(lambda request, _: b"")
            self.raises(weighlock.ConnectionLost, gateway.url, work)
            self.assertEqual(len(gateway.requests), 1)

    def test_a_rollback_is_an_update_under_one_key_and_ends_like_one(self):
        def script(request, _):
            if len(gateway.requests) == 1:
                return b""  # the answer is lost
            return answer(202, {**UPDATE, "state": "running"}) if request.method == "POST" else answer(200, UPDATE)

        gateway = self.serve(script)
        ended = self.do(gateway.url, lambda c: c.rollback("p", 2, lineage=1, policy={"quorum": "all"}))
        self.assertEqual(ended.state, "succeeded")
        first, second = gateway.requests[0], gateway.requests[1]
        self.assertEqual((first.method, first.target), ("POST", "/v1/pairs/p:rollback"))
        self.assertEqual(first.headers["idempotency-key"], second.headers["idempotency-key"])
        self.assertEqual(first.json, {"to": 2, "lineage": 1, "policy": {"quorum": "all"}})
        gateway.script = lambda request, _: answer(200, {**UPDATE, "state": "aborted",
                                                         "error": {"code": "conflict", "message": "bytes were changed"}})
        self.assertIn("bytes were changed", str(self.raises(weighlock.UpdateFailed, gateway.url, lambda c: c.rollback("p"))))
        self.assertEqual(gateway.requests[-1].json, {})
        gateway.script = lambda request, _: problem(409, "conflict", "stored: v1")
        self.assertIn("stored: v1", str(self.raises(weighlock.Conflict, gateway.url, lambda c: c.start_rollback("p"))))
        self.raises(weighlock.InvalidRequest, gateway.url, lambda c: c.rollback("p", lineage=1))
        self.raises(weighlock.InvalidRequest, gateway.url, lambda c: c.rollback("p", "1"))

    def test_a_worker_is_held_and_released_with_a_reason(self):
        gateway = self.serve(lambda request, _: answer(200, {**PAIR, "worker": {**WORKER, "state": "quarantined"}}))
        held = self.do(gateway.url, lambda c: c.quarantine_worker("p", "http://h:1", "disk swap"))
        self.assertEqual(held.state, "quarantined")
        self.assertEqual(gateway.requests[-1].target, "/v1/pairs/p/workers/http%3A%2F%2Fh%3A1:quarantine")
        self.assertEqual(gateway.requests[-1].json, {"reason": "disk swap"})
        for verb in ("drain", "release"):
            self.do(gateway.url, lambda c: getattr(c, verb + "_worker")("p", "h:1"))
            self.assertEqual(gateway.requests[-1].target, f"/v1/pairs/p/workers/h%3A1:{verb}")
            self.assertEqual(gateway.requests[-1].json, {})
        self.do(gateway.url, lambda c: c.remove_worker("p", "h:1", "gone"))
        self.assertEqual(gateway.requests[-1].json, {"reason": "gone"})

    def test_stored_versions_are_listed_verified_and_collected(self):
        stored = {"lineage": 1, "version": 2, "directory": "/w/v2", "state": "committed", "handed_over": False,
                  "digest": None, "bytes": 12, "leases": ["committed", "http://h:1"], "removable": False}
        gateway = self.serve(lambda request, _: answer(200, {
            "items": [stored], "next": None, "committed": {"lineage": 1, "version": 2, "directory": "/w/v2"},
            "last_good": None, "highest": {"lineage": 1, "version": 3, "directory": "/w/v3"}}))
        found = self.do(gateway.url, lambda c: c.versions("p"))
        self.assertEqual((found.committed, found.last_good, found.highest), (2, None, 3))
        self.assertEqual((found.items[0].leases, found.items[0].digest), (["committed", "http://h:1"], None))
        gateway.script = lambda request, _: answer(200, {"items": [{"lineage": 1}]})
        self.raises(weighlock.BadAnswer, gateway.url, lambda c: c.versions("p"))
        gateway.script = lambda request, _: answer(200, {"ok": True, "digest": "d"})
        self.assertEqual(self.do(gateway.url, lambda c: c.verify_version("p", 2)), "d")
        gateway.script = lambda request, _: answer(200, {"dry_run": True, "directories": ["/w/v1"]})
        self.assertEqual(self.do(gateway.url, lambda c: c.collect_versions("p", dry_run=True)), ["/w/v1"])
        self.assertEqual(gateway.requests[-1].json, {"dry_run": True})

    def test_waiting_for_an_update_ends_when_the_time_is_over_and_names_the_phase(self):
        gateway = self.serve(lambda request, _: answer(200, {**UPDATE, "state": "running", "phase": "loading"}))
        failure = self.raises(weighlock.TimedOut, gateway.url, lambda c: c.wait_update("p", "u1", wait=0.2))
        self.assertIn("'loading'", str(failure))

    def test_each_new_phase_is_told_once(self):
        phases = iter(["preparing", "preparing", "loading", "resuming"])

        def script(request, _):
            phase = next(phases)
            return answer(200, {**UPDATE, "phase": phase, "state": "succeeded" if phase == "resuming" else "running"})
        gateway, seen = self.serve(script), []
        self.do(gateway.url, lambda c: c.wait_update("p", "u1", on_phase=lambda u: seen.append(u.phase)))
        self.assertEqual(seen, ["preparing", "loading", "resuming"])

    def test_a_wait_for_a_version_asks_again_until_it_is_there(self):
        versions = iter([None, 2, 7])
        gateway = self.serve(lambda request, _: answer(200, {**PAIR, "committed": next(versions)}))
        self.assertEqual(self.do(gateway.url, lambda c: c.wait_committed("p", 5)).committed, 7)
        gateway = self.serve(lambda request, _: answer(200, {**PAIR, "committed": 2}))
        self.raises(weighlock.TimedOut, gateway.url, lambda c: c.wait_committed("p", 5, wait=0.1))

    # --- events

    @staticmethod
    def event(number, kind="commit"):
        return (f'id: {number}\nevent: {kind}\ndata: {{"number":{number},"time":"t","kind":"{kind}","pair":"p","update":"",'
                f'"worker":"","body":{{}}}}\n\n').encode()

    def test_events_go_on_where_they_were_after_each_cut_and_none_is_missed_or_twice(self):
        parts = iter([chunk(b"id: 6\n\n"), chunk(self.event(7) + self.event(8)) + chunk(self.event(9)[:20]), b"",
                      chunk(self.event(9)) + b"0\r\n\r\n", chunk(self.event(10))])

        def script(request, connection):
            return STREAM_HEAD + next(parts)
        gateway = self.serve(script)
        self.assertEqual([one.number for one in self.take(gateway.url, 4, pair="p")], [7, 8, 9, 10])
        asked = [one.headers.get("last-event-id") for one in gateway.requests]
        self.assertEqual(asked, [None, "6", "8", "8", "9"])

    def test_events_without_reconnect_end_with_the_connection(self):
        gateway = self.serve(lambda request, _: STREAM_HEAD + chunk(self.event(1)))
        with self.assertRaises(weighlock.ConnectionLost):
            self.take(gateway.url, 2, reconnect=False)

    def test_a_refused_stream_and_one_that_is_none_are_errors_at_once(self):
        gateway = self.serve(lambda request, _: problem(429, "queue_full", "256 streams are open"))
        with self.assertRaises(weighlock.Unavailable):
            self.take(gateway.url, 1)
        gateway = self.serve(lambda request, _: STREAM_HEAD + chunk(b"id: 1\nevent: x\ndata: nonsense\n\n"))
        with self.assertRaises(weighlock.BadAnswer):
            self.take(gateway.url, 1)
        self.assertEqual(len(gateway.requests), 1)

    def test_a_loop_over_events_that_is_left_closes_its_connection(self):
        gone = threading.Event()

        def script(request, connection):
            connection.sendall(STREAM_HEAD + chunk(self.event(1)))
            if connection.recv(1) == b"":
                gone.set()
        gateway = self.serve(script)
        self.take(gateway.url, 1)
        self.assertTrue(gone.wait(10))

    def test_a_stream_that_says_something_now_and_then_is_kept_and_a_silent_one_is_asked_for_again(self):
        def lively(request, connection):
            connection.sendall(STREAM_HEAD)
            for number in range(1, 6):
                time.sleep(1.2)
                connection.sendall(chunk(self.event(number)))
            gateway.release.wait(60)
        gateway = self.serve(lively)
        with mock.patch("weighlock.client.IDLE_S", 5.0), mock.patch("weighlock.aio.IDLE_S", 5.0):
            self.assertEqual([one.number for one in self.take(gateway.url, 5, after=0)], [1, 2, 3, 4, 5])
        self.assertEqual(len(gateway.requests), 1)

        def silent_at_first(request, connection):
            if request.headers["last-event-id"] == "7":
                return STREAM_HEAD + chunk(self.event(8))
            connection.sendall(STREAM_HEAD + chunk(self.event(7)))
            gateway.release.wait(60)
        gateway = self.serve(silent_at_first)
        with mock.patch("weighlock.client.IDLE_S", 0.3), mock.patch("weighlock.aio.IDLE_S", 0.3):
            self.assertEqual([one.number for one in self.take(gateway.url, 2, after=0)], [7, 8])

    def test_nothing_is_left_to_the_collector(self):
        gateway = self.serve(lambda request, _: answer(200, PAIR))
        cut = self.serve(lambda request, _: b"HTTP/1.1 200")
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            self.do(gateway.url, lambda c: c.pair("p"))
            self.raises(weighlock.ConnectionLost, cut.url, lambda c: c.pair("p"))
            gc.collect()
        self.assertEqual([str(one.message) for one in seen if issubclass(one.category, ResourceWarning)], [])

    # --- what is shown

    def test_a_client_shows_its_url_and_no_key(self):
        shown = repr(self.make("http://h:1"))
        self.assertIn("http://h:1", shown)
        self.assertNotIn(scripted.KEY, shown + repr(vars(self.make("http://h:1"))))

    def test_url_and_key_come_from_the_environment_when_none_is_given(self):
        gateway = self.serve(lambda request, _: answer(200, PAIR))
        variables = {"WEIGHLOCK_URL": gateway.url, "WEIGHLOCK_ADMIN_API_KEY": "of-environment"}
        before = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)
        try:
            self.perform(self.kind(), lambda c: c.pair("p"))
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})
        self.assertEqual(gateway.requests[0].headers["authorization"], "Bearer of-environment")


class SyncTest(Checks, unittest.TestCase):
    kind = weighlock.Client

    def make(self, url, **settings):
        return weighlock.Client(url, key=scripted.KEY, **settings)

    def perform(self, client, work):
        return work(client)

    def do(self, url, work, **settings):
        return work(self.make(url, **settings))

    def take(self, url, count, **options):
        found = []
        for event in self.make(url).events(**options):
            found.append(event)
            if len(found) == count:
                break
        return found

    def test_one_client_serves_many_threads(self):
        gateway = self.serve(lambda request, _: answer(200, {**PAIR, "name": request.target.rsplit("/", 1)[1]}))
        client, wrong = self.make(gateway.url), []

        def ask(name):
            for _ in range(20):
                if client.pair(name).name != name:
                    wrong.append(name)
        threads = [threading.Thread(target=ask, args=(f"p{i}",)) for i in range(8)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        self.assertEqual((wrong, len(gateway.requests)), ([], 160))


class AsyncTest(Checks, unittest.TestCase):
    kind = weighlock.AsyncClient

    def make(self, url, **settings):
        return weighlock.AsyncClient(url, key=scripted.KEY, **settings)

    def perform(self, client, work):
        async def run():
            return await work(client)
        return asyncio.run(run())

    def do(self, url, work, **settings):
        return self.perform(self.make(url, **settings), work)

    def take(self, url, count, **options):
        async def run():
            found, stream = [], self.make(url).events(**options)
            async for event in stream:
                found.append(event)
                if len(found) == count:
                    break
            await stream.aclose()
            return found
        return asyncio.run(run())

    def test_a_cancelled_call_closes_its_connection_and_leaves_no_thread_and_no_descriptor(self):
        gone = threading.Event()

        def script(request, connection):
            if connection.recv(1) == b"":
                gone.set()
        gateway = self.serve(script)

        async def run():
            client = self.make(gateway.url)
            before, threads = open_descriptors(), threading.active_count()
            tasks = [asyncio.create_task(client.wait_update("p", "u1")) for _ in range(5)]
            while len(gateway.requests) < 5:
                await asyncio.sleep(0.01)
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            self.assertEqual([type(one) for one in results], [asyncio.CancelledError] * 5)
            await asyncio.sleep(0.05)  # transports close in the loop's next turn
            own = open_descriptors() - before
            return own, threading.active_count() - threads
        own, threads = asyncio.run(run())
        self.assertTrue(gone.wait(10))
        gc.collect()
        self.assertLessEqual(own, 5)  # the scripted gateway's ends are in this process, too
        self.assertLessEqual(threads, 5)

    def test_calls_run_beside_each_other(self):
        together = threading.Barrier(6, timeout=20)

        def script(request, connection):
            together.wait()
            return answer(200, PAIR)
        gateway = self.serve(script)

        async def run():
            client = self.make(gateway.url)
            return await asyncio.gather(*(client.pair("p") for _ in range(6)))
        self.assertEqual(len(asyncio.run(run())), 6)

    def test_one_client_may_be_used_on_several_loops(self):
        gateway = self.serve(lambda request, _: answer(200, PAIR))
        client = self.make(gateway.url)
        for _ in range(2):
            self.assertEqual(self.perform(client, lambda c: c.pair("p")).name, "p")


if __name__ == "__main__":
    scripted.main()
