#!/usr/bin/env python3
"""The controller's own rules: what it sends, and what it makes of the answers. The gateway's answers are a test's.

    controller_test.py
"""
import inspect
import time
import unittest
from unittest import mock

import scripted
import weighlock
from scripted import KEY, ControllerTest, ScriptedGateway, answer, problem
from weighlock import WeightUpdateController, WeightUpdateControllerConfig

RESULT = {"status": "ok", "version": 3, "duration_ms": 1.5, "error": None}


class SurfaceTest(unittest.TestCase):
    def test_methods_arguments_and_defaults_are_those_of_the_known_controller(self):
        # As its documentation lists them; tests/compat drives the real one.
        config = WeightUpdateControllerConfig()
        self.assertEqual(
            (config.host, config.port, config.admin_api_key, config.log_level, config.setup_timeout, config.request_timeout,
             config.init_timeout_s, config.update_timeout_s),
            ("127.0.0.1", 0, "areal-admin-key", "warning", 30.0, 300.0, 300.0, 120.0))  # fmt: skip
        connect = inspect.signature(WeightUpdateController.connect).parameters
        self.assertEqual(
            [(one.name, one.default) for one in list(connect.values())[1:12]],
            [("pair_name", inspect.Parameter.empty), ("train_worker_urls", inspect.Parameter.empty),
             ("inference_worker_urls", inspect.Parameter.empty), ("mode", "awex"), ("save_path", ""), ("use_lora", False),
             ("lora_name", ""), ("lora_keep_versions", 0), ("colocate", False), ("nccl_master_addr", ""),
             ("nccl_master_port", 0)])  # fmt: skip
        for name in ("initialize", "connect", "update_weights", "disconnect", "health_check", "destroy", "gateway_url"):
            self.assertTrue(hasattr(WeightUpdateController, name), name)
            self.assertTrue(getattr(WeightUpdateController, name).__doc__, name)

    def test_the_key_is_in_no_text_of_configuration_or_controller(self):
        config = WeightUpdateControllerConfig(admin_api_key=KEY)
        self.assertNotIn(KEY, repr(config) + repr(WeightUpdateController(config)))


class CallsTest(ControllerTest):
    """The calls, against a gateway that answers what a test tells it."""

    def attach(self, script, **fields):
        """A controller whose gateway is a script; the program only tells its address."""
        gateway = ScriptedGateway(script)
        self.addCleanup(gateway.__exit__)
        made = self.controller(binary=self.program(f"print('listening {gateway.url}', flush=True)\nsignal.pause()\n"), **fields)
        made.initialize()
        gateway.requests.clear()
        return made, gateway

    def test_connect_sends_all_eleven_members_and_remembers_the_name(self):
        controller, gateway = self.attach(lambda request, _: answer(200, {"pair_name": "p", "status": "healthy"}))
        controller.connect("p", ["http://t:1"], ["http://h:1", "http://h:2"], nccl_master_addr="10.0.0.1", nccl_master_port=29500)
        self.assertEqual((gateway.requests[0].method, gateway.requests[0].target), ("POST", "/connect"))
        self.assertEqual(gateway.requests[0].headers["authorization"], "Bearer " + KEY)
        self.assertEqual(gateway.requests[0].json, {
            "pair_name": "p", "train_worker_urls": ["http://t:1"], "inference_worker_urls": ["http://h:1", "http://h:2"],
            "mode": "awex", "save_path": "", "use_lora": False, "lora_name": "", "lora_keep_versions": 0, "colocate": False,
            "nccl_master_addr": "10.0.0.1", "nccl_master_port": 29500})
        self.assertIn("pair='p'", repr(controller))

    def test_connect_sends_disk_and_lora_arguments_and_settings_of_ours_only_when_given(self):
        controller, gateway = self.attach(lambda request, _: answer(200, {"pair_name": "p"}))
        controller.connect("p", ["http://t:1"], ["http://h:1"], "disk", "/w", True, "policy", 3, settings={"quorum": "all"})
        self.assertEqual(gateway.requests[0].json, {
            "pair_name": "p", "train_worker_urls": ["http://t:1"], "inference_worker_urls": ["http://h:1"], "mode": "disk",
            "save_path": "/w", "use_lora": True, "lora_name": "policy", "lora_keep_versions": 3, "colocate": False,
            "nccl_master_addr": "", "nccl_master_port": 0, "settings": {"quorum": "all"}})

    def test_one_url_in_place_of_a_list_is_a_mistake_that_names_the_argument(self):
        controller, gateway = self.attach(lambda request, _: answer(200, {}))
        for name, urls in (("train_worker_urls", ("http://t:1", ["http://h:1"])),
                           ("inference_worker_urls", (["http://t:1"], "http://h:1"))):  # fmt: skip
            with self.assertRaises(weighlock.InvalidRequest) as caught:
                controller.connect("p", *urls)
            self.assertEqual(caught.exception.field, name)
        self.assertEqual(gateway.requests, [])

    def test_an_update_returns_the_answers_members_and_ours(self):
        told = {**RESULT, "update_id": "u1", "degraded": True, "detail": "http://h:2 is missing", "pause_ms": 12, "future": 1,
                "verdicts": {"http://h:1": {"verdict": "verified", "evidence": "spot", "cause": None}}}
        controller, gateway = self.attach(lambda request, _: answer(200, told))
        controller.connect("p", ["http://t:1"], ["http://h:1"])
        result = controller.update_weights(3)
        self.assertEqual(gateway.requests[1].json, {"pair_name": "p", "version": 3})
        self.assertEqual((result.status, result.version, result.duration_ms, result.error), ("ok", 3, 1.5, None))
        self.assertEqual((result.ok, result.update_id, result.degraded, result.pause_ms), (True, "u1", True, 12))
        self.assertEqual(result.verdicts["http://h:1"], weighlock.Verdict("verified", "spot"))

    def test_the_four_members_of_the_known_gateway_are_enough(self):
        controller, _ = self.attach(lambda request, _: answer(200, RESULT))
        controller.connect("p", ["http://t:1"], ["http://h:1"])
        result = controller.update_weights(3)
        self.assertEqual((result.update_id, result.degraded, dict(result.verdicts)), (None, False, {}))

    def test_a_failed_update_raises_with_its_result_and_verdicts_whatever_its_http_status(self):
        told = {**RESULT, "status": "error", "error": "nobody loaded",
                "verdicts": {"http://h:1": {"verdict": "torn", "evidence": "none", "cause": {"code": "a", "message": "b"}}}}
        for status in (200, 409, 502):
            controller, _ = self.attach(
                lambda request, _: answer(status, told) if request.target == "/update_weights" else answer(200, {}))
            controller.connect("p", ["http://t:1"], ["http://h:1"])
            with self.assertRaises(weighlock.UpdateFailed) as caught:
                controller.update_weights(3)
            self.assertEqual(str(caught.exception), "nobody loaded")
            self.assertEqual(caught.exception.result.status, "error")
            self.assertEqual(caught.exception.verdicts["http://h:1"].cause.message, "b")
            self.assertEqual((caught.exception.code, caught.exception.update), ("internal", None))
            returned = controller.update_weights(3, raise_on_error=False)
            self.assertEqual((returned.ok, returned.error), (False, "nobody loaded"))

    def test_the_configuration_says_what_a_failed_update_does_unless_the_call_does(self):
        told = answer(200, {**RESULT, "status": "error", "error": "no"})
        controller, _ = self.attach(lambda request, _: told, raise_on_error=False)
        controller._pair_name = "p"
        self.assertEqual(controller.update_weights(3).error, "no")
        with self.assertRaises(weighlock.UpdateFailed):
            controller.update_weights(3, raise_on_error=True)

    def test_the_code_of_a_failed_update_is_read_from_the_update_itself_if_that_can_be_read(self):
        told = {**RESULT, "status": "error", "error": "too old", "update_id": "u1"}
        ended = {**scripted.UPDATE, "state": "rejected", "error": {"code": "version_not_newer", "message": "x"}}
        for details, code in ((answer(200, ended), "version_not_newer"), (problem(404, "not_found", "forgotten"), "internal"),
                              (b"", "internal")):  # fmt: skip
            bodies = {"/update_weights": answer(200, told), "/v1/pairs/p/updates/u1": details}
            controller, _ = self.attach(lambda request, _: bodies.get(request.target, answer(200, {})))
            controller.connect("p", ["http://t:1"], ["http://h:1"])
            with self.assertRaises(weighlock.UpdateFailed) as caught:
                controller.update_weights(3)
            self.assertEqual((caught.exception.code, str(caught.exception)), (code, "too old"))

    def test_refusals_raise_with_and_without_raise_on_error(self):
        rows = ((404, {"error": "Pair 'p' not found"}, weighlock.NotFound, "Pair 'p' not found", None),
                (403, {"detail": "Admin API key required."}, weighlock.AuthenticationFailed, "Admin API key required", None),
                (422, {"detail": [{"type": "missing", "loc": ["body", "version"], "msg": "Field required", "input": {}}]},
                 weighlock.InvalidRequest, "Field required", "version"),
                (500, b"Internal Server Error", weighlock.ApiError, "Internal Server Error", None))  # fmt: skip
        for status, body, kind, text, field in rows:
            controller, _ = self.attach(
                lambda request, _: answer(status, body) if request.target == "/update_weights" else answer(200, {}))
            controller.connect("p", ["http://t:1"], ["http://h:1"])
            for strict in (True, False):
                with self.assertRaises(kind) as caught:
                    controller.update_weights(3, raise_on_error=strict)
                self.assertEqual((caught.exception.status, caught.exception.field), (status, field))
                self.assertIn(text, str(caught.exception))

    def test_a_refused_connect_raises_and_its_name_is_disconnected_at_the_end(self):
        controller, gateway = self.attach(
            lambda request, _: answer(400, {"error": "save_path is required when mode='disk'"}) if request.target == "/connect"
            else answer(200, {}))
        with self.assertRaises(weighlock.InvalidRequest) as caught:
            controller.connect("p", ["http://t:1"], ["http://h:1"], mode="disk")
        self.assertIn("save_path is required", str(caught.exception))
        controller.destroy()
        self.assertEqual([one.target for one in gateway.requests], ["/connect", "/disconnect"])

    def test_update_and_disconnect_without_a_pair_do_not_ask_the_gateway(self):
        controller, gateway = self.attach(lambda request, _: answer(200, {}))
        with self.assertRaisesRegex(RuntimeError, "Not connected"):
            controller.update_weights(1)
        controller.disconnect()
        self.assertEqual(gateway.requests, [])

    def test_disconnect_forgets_the_pair_even_when_it_is_refused(self):
        refused = answer(404, {"error": "Pair 'p' not found"})
        controller, gateway = self.attach(
            lambda request, _: refused if request.target == "/disconnect" else answer(200, {}))
        controller.connect("p", ["http://t:1"], ["http://h:1"])
        with self.assertRaises(weighlock.NotFound):
            controller.disconnect()
        self.assertEqual(gateway.requests[-1].json, {"pair_name": "p"})
        controller.disconnect()
        self.assertEqual(len(gateway.requests), 2)

    def test_health_is_true_for_200_and_false_for_anything_else_or_nobody(self):
        status = [200]
        controller, gateway = self.attach(lambda request, _: answer(status[0], {"status": "healthy"}))
        self.assertIs(controller.health_check(), True)
        status[0] = 503
        self.assertIs(controller.health_check(), False)
        gateway.__exit__()
        self.assertIs(controller.health_check(), False)
        self.assertIs(WeightUpdateController().health_check(), False)

    def test_destroy_does_not_wait_for_a_gateway_that_does_not_answer_the_disconnect(self):
        def script(request, _):
            return gateway.release.wait(60) if request.target == "/disconnect" else answer(200, {})
        controller, gateway = self.attach(script)
        controller.connect("p", ["http://t:1"], ["http://h:1"])
        began = time.monotonic()
        with mock.patch("weighlock.controller._LEAVE_S", 0.3), self.assertLogs("weighlock", "WARNING"):
            controller.destroy()
        self.assertLess(time.monotonic() - began, 20)
        self.assertEqual(controller.gateway_url, "")

    def test_calls_before_initialize_say_so(self):
        for work in (lambda c: c.connect("p", [], []), lambda c: c.update_weights(1), lambda c: c.client):
            with self.assertRaisesRegex(RuntimeError, "initialize"):
                work(WeightUpdateController())


class ScriptedErrorTest(ControllerTest):
    def test_a_gateway_of_another_kind_is_seen_as_such(self):
        gateway = ScriptedGateway(lambda request, _: problem(404, "not_found", "no such route") if request.target != "/health"
                                  else answer(200, {}))
        self.addCleanup(gateway.__exit__)
        controller = self.controller(binary=self.program(f"print('listening {gateway.url}', flush=True)\nsignal.pause()\n"))
        controller.initialize()
        with self.assertRaises(weighlock.NotFound):
            controller.connect("p", ["http://t:1"], ["http://h:1"])


if __name__ == "__main__":
    scripted.main()
