#!/usr/bin/env python3
"""Updates in which something fails, as a client of the compatible API sees them: who is told what, and what the engines are
left as. And updates that come together.

    failure_test.py BUILD
"""
import lab
import programs


class FailureTest(lab.Lab):
    def setUp(self):
        super().setUp()
        self.fleet = self.engines("sglang", "sglang", "vllm")
        self.ranks = self.trainers()
        self.at = self.gateway()

    def connect(self, settings=None):
        more = {"settings": settings} if settings else {}
        answer = self.at.connect("p", self.ranks, self.fleet, self.path("shared"), **more)
        self.assertEqual(answer.status, 200, answer)

    def ok(self, version):
        answer = self.at.update("p", version)
        self.assertEqual((answer.status, answer.json["status"], answer.json["error"]), (200, "ok", None), answer)
        return answer.json

    def failed(self, version):
        """A failed transfer is 200 with a text that isn't empty, the version and a duration."""
        answer = self.at.update("p", version)
        self.assertEqual((answer.status, answer.json["status"], answer.json["version"]), (200, "error", version), answer)
        self.assertIsInstance(answer.json["duration_ms"], float)
        self.assertTrue(answer.json["error"])
        return answer.json

    def workers(self):
        return {one["url"]: one for one in self.at.call("GET", "/v1/pairs/p/workers").json["items"]}

    def assert_nobody_is_left(self, labels):
        """No engine is paused without a cause, and those that serve say the version."""
        known = self.workers()
        for engine, label in zip(self.fleet, labels):
            worker = known[engine.url]
            if worker["state"] == "ready":
                self.assertFalse(engine.state()["paused"], worker)
                self.assertEqual(worker["version"], label, worker)
            else:
                self.assertTrue(worker["cause"]["message"], worker)

    def test_a_rank_that_cannot_save_is_named_and_no_engine_is_asked_for_anything(self):
        self.connect()
        self.ok(1)
        self.tape.clear()
        self.ranks[1].fault("/save", "write_error", message="No space left on device")
        text = self.failed(2)["error"]
        self.assertIn(self.ranks[1].url, text)
        self.assertIn("No space left on device", text)
        self.assertEqual([one for one in self.tape.all(worker="engine") if one.method == "POST"], [])
        self.assert_nobody_is_left([1, 1, 1])
        # The other rank may still be in its call: until then a second save would break the collective.
        programs.wait_for("an update that is ok", lambda: self.at.update("p", 3).json["status"] == "ok")

    def test_one_of_three_that_refuses_the_load_leaves_the_others_on_the_new_version_and_is_named(self):
        self.connect()
        self.ok(1)
        self.fleet[1].fault("/update_weights_from_disk", "status_500", times=-1, message="CUDA error: injected")
        answer = self.ok(2)
        self.assertTrue(answer["degraded"])
        self.assertIn(self.fleet[1].url, answer["detail"])
        verdicts = answer["verdicts"]
        self.assertEqual(verdicts[self.fleet[0].url]["verdict"], "verified")
        self.assertEqual(verdicts[self.fleet[2].url]["verdict"], "verified")
        self.assertNotEqual(verdicts[self.fleet[1].url]["verdict"], "verified")
        self.assertTrue(verdicts[self.fleet[1].url]["cause"]["message"])
        self.assert_nobody_is_left([2, 1, 2])
        self.assertNotEqual(self.workers()[self.fleet[1].url]["state"], "ready")

    def test_a_200_that_says_it_loaded_nothing_is_not_taken_for_success(self):
        self.connect()
        self.ok(1)
        self.fleet[0].fault("/update_weights_from_disk", "success_false", times=-1, message="weights not found")
        answer = self.ok(2)
        self.assertTrue(answer["degraded"], answer)
        self.assertIn(self.fleet[0].url, answer["detail"])

    def test_an_update_without_a_quorum_is_an_error_and_everybody_is_back_on_the_old_version(self):
        self.connect({"quorum": "all"})
        self.ok(1)
        self.fleet[1].fault("/update_weights_from_disk", "status_400", message="wrong dtype")
        answer = self.failed(2)
        self.assertIn(self.fleet[1].url, answer["error"])
        self.assert_nobody_is_left([1, 1, 1])
        self.assertEqual([one["state"] for one in self.workers().values()], ["ready"] * 3, self.workers())
        self.ok(3)

    def test_an_engine_whose_pause_fails_keeps_nobody_else_paused(self):
        self.connect()
        self.ok(1)
        self.fleet[1].fault("/pause_generation", "status_500", times=-1, message="cannot pause")
        answer = self.ok(2)
        self.assertTrue(answer["degraded"], answer)
        self.assertIn(self.fleet[1].url, answer["detail"])
        loads = self.tape.all("/update_weights_from_disk", worker="engine1")
        self.assertEqual(len(loads), 1, "an engine that isn't paused was loaded")  # of version 1
        self.assert_nobody_is_left([2, 1, 2])

    def test_when_nobody_can_be_paused_the_update_is_an_error_and_nobody_is_loaded_or_left_paused(self):
        self.connect()
        self.ok(1)
        self.tape.clear()
        for engine, route in zip(self.fleet, ("/pause_generation", "/pause_generation", "/pause")):
            engine.fault(route, "status_500", times=-1, message="cannot pause")
        self.failed(2)
        self.assertEqual(self.tape.all("/update_weights_from_disk") + self.tape.all("/collective_rpc"), [])
        self.assertEqual([one.state()["paused"] for one in self.fleet], [False] * 3)

    def test_an_engine_that_is_not_continued_is_told_and_never_counted_ready(self):
        self.connect({"deadlines_ms": {"resume": 2000}})
        self.ok(1)
        self.fleet[0].fault("/continue_generation", "status_500", times=-1, message="cannot continue")
        answer = self.ok(2)
        self.assertTrue(answer["degraded"], answer)
        self.assertIn(self.fleet[0].url, answer["detail"])
        worker = self.workers()[self.fleet[0].url]
        self.assertNotEqual(worker["state"], "ready")
        self.assertTrue(worker["cause"]["message"])
        ready = self.at.call("GET", f"/v1/pairs/p/workers/{worker['id']}/ready")
        self.assertEqual(ready.status, 503, ready)

    def test_a_failed_load_is_followed_by_a_continue_of_everybody_that_was_paused(self):
        self.connect({"quorum": "all"})
        self.ok(1)
        self.tape.clear()
        self.fleet[2].fault("/collective_rpc", "status_500", message="injected")
        self.failed(2)
        for name, pause, resume in (("engine0", "/pause_generation", "/continue_generation"),
                                    ("engine1", "/pause_generation", "/continue_generation"), ("engine2", "/pause", "/resume")):
            self.assertGreaterEqual(len(self.tape.all(pause, worker=name)), 1, name)
            self.assertEqual(self.tape.all(worker=name, path=resume)[-1].status, 200, name)
        self.assertEqual([one.state()["paused"] for one in self.fleet], [False] * 3)

    def test_a_version_that_is_not_newer_is_an_error_and_asks_nobody(self):
        self.connect()
        self.ok(5)
        self.tape.clear()
        for version in (4, -1):
            text = self.failed(version)["error"]
            self.assertIn("v5", text)
        self.assertEqual(self.tape.all("/save"), [])

    def test_a_version_beyond_64_bits_is_an_error_that_says_so(self):
        self.connect()
        for version in (2**70, -(2**70)):
            answer = self.at.call("POST", "/update_weights", {"pair_name": "p", "version": version})
            self.assertEqual((answer.status, answer.json["status"]), (200, "error"))
            self.assertIn("64 bits", answer.json["error"])
        self.assertEqual(self.tape.changes(), [])


class ErrorStatusTest(lab.Lab):
    def test_a_failed_transfer_has_the_status_that_was_asked_for_and_the_same_body(self):
        engines, ranks = self.engines("sglang"), self.trainers()
        at = self.gateway("--compat-error-status", "409")
        at.connect("p", ranks, engines, self.path("shared"))
        ranks[0].fault("/save", "status_500", message="boom")
        answer = at.update("p", 1)
        self.assertEqual((answer.status, answer.json["status"], answer.json["version"]), (409, "error", 1), answer)
        self.assertIn("boom", answer.json["error"])


class TogetherTest(lab.Lab):
    def test_two_updates_at_once_are_both_answered_and_the_later_version_is_served(self):
        engines, ranks = self.engines("sglang", "vllm", load_ms=300), self.trainers()
        at = self.gateway()
        at.connect("p", ranks, engines, self.path("shared"))
        first = lab.in_background(at.update, "p", 1)
        programs.wait_for("the first save", lambda: self.tape.all("/save"))
        second = lab.in_background(at.update, "p", 2)
        self.assertEqual([first().json["status"], second().json["status"]], ["ok", "ok"])
        # Never both at once: every request of the second's save came after the last load of the first had ended.
        saves = [r for r in self.tape.all("/save") if "weight_update_v2" in r.body.decode()]
        loads = [r for r in self.tape.all(worker="engine") if r.path in ("/update_weights_from_disk", "/collective_rpc")
                 and "weight_update_v1" in r.body.decode()]
        self.assertEqual((len(saves), len(loads)), (2, 2))
        self.assertGreater(min(r.began for r in saves), max(r.ended for r in loads))
        self.assertEqual({one["version"] for one in at.call("GET", "/v1/pairs/p/workers").json["items"]}, {2})

    def test_a_dozen_updates_at_once_are_all_answered_and_none_is_served_out_of_order(self):
        engines, ranks = self.engines("sglang", "vllm"), self.trainers()
        at = self.gateway()
        at.connect("p", ranks, engines, self.path("shared"))
        answers = [lab.in_background(at.update, "p", version) for version in range(1, 13)]
        texts = [answer().json for answer in answers]
        good = [one["version"] for one in texts if one["status"] == "ok"]
        for one in texts:
            # A version that came in behind a higher one is refused, in words.
            self.assertTrue(one["status"] == "ok" or "committed" in one["error"], one)
        self.assertEqual(max(good), 12)
        self.assertEqual(at.call("GET", "/v1/pairs/p").json["committed"], 12)

    def test_pairs_do_not_wait_for_each_other(self):
        slow, ranks = self.engines("sglang", name="slow"), self.trainers()
        slow[0].fault("/update_weights_from_disk", "slow", delay_ms=8000)
        quick, others = self.engines("sglang", name="quick"), self.trainers(name="others")
        at = self.gateway()
        at.connect("slow", ranks, slow, self.path("shared", "a"))
        at.connect("quick", others, quick, self.path("shared", "b"))
        waits = lab.in_background(at.update, "slow", 1)
        programs.wait_for("the slow load", lambda: [r for r in self.tape.all("/update_weights_from_disk")])
        self.assertEqual(at.update("quick", 1).json["status"], "ok")
        running = at.call("GET", "/v1/pairs/slow/updates").json["items"][0]
        self.assertEqual(running["state"], "running", "the quick pair waited for the slow one")
        self.assertEqual(waits().json["status"], "ok")

    def test_a_disconnect_in_an_update_waits_for_it_and_both_are_answered(self):
        engines, ranks = self.engines("sglang", load_ms=800), self.trainers()
        at = self.gateway()
        at.connect("p", ranks, engines, self.path("shared"))
        update = lab.in_background(at.update, "p", 1)
        programs.wait_for("the load", lambda: self.tape.all("/update_weights_from_disk"))
        self.assertEqual(at.disconnect("p").json, {"status": "ok", "pair_name": "p"})
        self.assertIn(update().json["status"], ("ok", "error"))
        self.assertFalse(engines[0].state()["paused"])
        self.assertEqual(at.update("p", 2).status, 404)

    def test_health_answers_while_an_update_runs(self):
        engines, ranks = self.engines("sglang", load_ms=800), self.trainers()
        at = self.gateway()
        at.connect("p", ranks, engines, self.path("shared"))
        update = lab.in_background(at.update, "p", 1)
        programs.wait_for("the load", lambda: self.tape.all("/update_weights_from_disk"))
        self.assertEqual(at.call("GET", "/health", timeout=5).json, {"status": "healthy"})
        self.assertEqual(update().json["status"], "ok")


if __name__ == "__main__":
    programs.main()
