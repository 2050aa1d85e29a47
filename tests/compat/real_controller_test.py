#!/usr/bin/env python3
"""AReaL's own, unmodified controller class drives our gateway through its whole life.

    $(tests/compat/install_env.sh)/bin/python tests/compat/real_controller_test.py BUILD

The class is the released one, from the environment that install_env.sh makes. Its package imports the whole trainer, so
each package on the way to it is entered by its path alone; what it starts is our program, because its module is shown
another `sys.executable`. Nothing else of it is touched.

One difference to the peer is on purpose: a pair that is connected again is accepted, where the peer answers 500.
"""
import contextlib
import importlib
import importlib.util
import os
import sys
import time
import types
from unittest import mock

import httpx
import lab
import programs

PACKAGES = ("areal", "areal.experimental", "areal.infra", "areal.infra.utils", "areal.utils")
MODULE = "areal.experimental.weight_update.controller"


def load_controller():
    """The module with the class, and the one with its configuration."""
    root = importlib.util.find_spec("areal").submodule_search_locations[0]
    for name in PACKAGES:
        package = types.ModuleType(name)
        package.__path__ = [os.path.join(root, *name.split(".")[1:])]
        sys.modules[name] = package
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], last, package)
    return importlib.import_module(MODULE + ".controller"), importlib.import_module(MODULE + ".config")


CONTROLLER, CONFIG = load_controller()
for talkative in (CONTROLLER, sys.modules["areal.infra.utils.proc"]):
    talkative.logger.setLevel("ERROR")


class Sys:
    """The module's view of `sys`: with another program as the interpreter, and with an output of our own."""

    def __init__(self, program, output):
        self.executable, self.stdout = program, output

    def __getattr__(self, name):
        return getattr(sys, name)


class RealControllerTest(lab.Lab):
    def setUp(self):
        super().setUp()
        self.log = open(self.path("gateway.log"), "wb")
        self.addCleanup(self.log.close)
        self.program(programs.program("weighlock"))
        self.environment(XDG_STATE_HOME=self.path("state"))

    def program(self, path):
        view = mock.patch.object(CONTROLLER, "sys", Sys(path, self.log))
        view.start()
        self.addCleanup(view.stop)

    def environment(self, **variables):
        patch = mock.patch.dict(os.environ, variables)
        patch.start()
        self.addCleanup(patch.stop)

    def controller(self, **fields):
        made = CONTROLLER.WeightUpdateController(CONFIG.WeightUpdateControllerConfig(**{"admin_api_key": lab.KEY, **fields}))
        self.addCleanup(made.destroy)
        return made

    def initialized(self, **fields):
        made = self.controller(**fields)
        made.initialize()
        return made

    def connect(self, controller, ranks, fleet, pair="actor-rollout", **more):
        controller.connect(pair, [one.url for one in ranks], [one.url for one in fleet], mode="disk",
                           save_path=self.path("shared"), **more)

    def assert_gone(self, process):
        self.assertIsNotNone(process.poll(), "the gateway outlived destroy()")
        self.assertEqual(process.returncode, 0)

    # --- its whole life

    def test_whole_life_with_disk_updates_from_initialize_to_destroy(self):
        fleet, ranks = self.engines("sglang", "sglang", "vllm"), self.trainers()
        controller = self.initialized()
        process = controller._gateway_proc
        self.assertEqual(process.args[1:3], ["-m", "areal.experimental.weight_update.gateway"])
        self.assertIs(controller.health_check(), True)

        self.connect(controller, ranks, fleet)
        self.assertEqual(self.tape.changes(), [], "connect changed a worker")

        for version in (1, 2):
            self.tape.clear()
            result = controller.update_weights(version)
            self.assertEqual((result.status, result.version, result.error), ("ok", version, None))
            self.assertGreater(result.duration_ms, 0)
            self.assertEqual(len(self.tape.all("/save")), 2)
            loads = self.tape.all("/update_weights_from_disk") + self.tape.all("/collective_rpc")
            self.assertEqual(sorted(one.worker for one in loads), ["engine0", "engine1", "engine2"])
        self.assertEqual([one.state()["paused"] for one in fleet], [False] * 3)

        self.connect(controller, ranks, fleet)  # the listed difference: the peer's controller raises here
        self.assertEqual(controller.update_weights(1).status, "ok")

        controller.disconnect()
        with self.assertRaisesRegex(RuntimeError, "Not connected"):
            controller.update_weights(3)
        controller.disconnect()
        began = time.monotonic()
        controller.destroy()
        self.assertLess(time.monotonic() - began, 5, "its controller kills what takes longer")
        self.assert_gone(process)

    def test_a_failed_update_is_a_result_that_says_why_and_the_next_call_works_at_once(self):
        fleet, ranks = self.engines("sglang"), self.trainers()
        controller = self.initialized()
        self.connect(controller, ranks, fleet)
        for rank in ranks:
            rank.fault("/save", "status_500", message="No space left on device")
        result = controller.update_weights(1)
        self.assertEqual((result.status, result.version), ("error", 1))
        self.assertIn("No space left on device", result.error)
        self.assertEqual(controller.update_weights(2).status, "ok")

    def test_lora_updates_load_an_adapter_for_each_version(self):
        # This release of the controller names no window: nothing is unloaded.
        fleet = self.engines("sglang", "sglang", flags=("--max-lora-rank", "16"))
        ranks = self.trainers(flags=("--lora-rank", "4"))
        controller = self.initialized()
        self.connect(controller, ranks, fleet, pair="lora-pair", use_lora=True, lora_name="lora")
        for version in (1, 2):
            self.assertEqual(controller.update_weights(version).status, "ok")
        self.assertEqual([sorted(one.state()["adapters"]) for one in fleet], [["lora-v1", "lora-v2"]] * 2)
        self.assertEqual(self.tape.all("/update_weights_from_disk") + self.tape.all("/unload_lora_adapter"), [])
        controller.disconnect()

    def test_with_an_error_status_it_raises_before_its_trainer_would_go_on(self):
        fleet, ranks = self.engines("sglang"), self.trainers()
        self.environment(WEIGHLOCK_COMPAT_ERROR_STATUS="409")
        controller = self.initialized()
        self.connect(controller, ranks, fleet)
        for rank in ranks:
            rank.fault("/save", "status_500", message="boom")
        with self.assertRaises(httpx.HTTPStatusError) as caught:
            controller.update_weights(1)
        self.assertEqual((caught.exception.response.status_code, caught.exception.response.json()["status"]), (409, "error"))
        self.assertEqual(controller.update_weights(2).status, "ok")

    def test_destroy_in_an_update_ends_the_gateway_before_it_would_be_killed_and_leaves_no_engine_paused(self):
        fleet, ranks = self.engines("sglang", "vllm"), self.trainers()
        for one, route in zip(fleet, programs.LOADS):
            one.fault(route, "slow", delay_ms=1000)  # once: the heal is quick
        controller = self.initialized()
        self.connect(controller, ranks, fleet)
        process = controller._gateway_proc
        second = httpx.Client(headers={"Authorization": f"Bearer {lab.KEY}"}, timeout=60)
        self.addCleanup(second.close)
        url = controller.gateway_url

        def update():
            with contextlib.suppress(httpx.HTTPError):
                return second.post(url + "/update_weights", json={"pair_name": "actor-rollout", "version": 1})
        waits = lab.in_background(update)
        programs.wait_for("loads, of engines that are paused", lambda: all(self.tape.all(route) for route in programs.LOADS))
        controller._pair_name = None  # disconnect would wait for the update: SIGTERM at once
        controller.destroy()
        self.assert_gone(process)
        waits()
        self.assertEqual([one.state()["paused"] for one in fleet], [False] * 2)

    # --- what is refused

    def test_refused_connects_raise_with_the_known_texts_and_the_connection_stays_usable(self):
        controller = self.initialized()
        url = "http://127.0.0.1:1"
        for fields, text in (
            ({"mode": "disk"}, "save_path is required when mode='disk'"),
            ({"mode": "disk", "save_path": "relative"}, "save_path must be an absolute path when mode='disk'"),
            ({"mode": "disk", "save_path": "/w", "use_lora": True}, "lora_name is required when use_lora=True"),
        ):
            with self.assertRaises(httpx.HTTPStatusError) as caught:
                controller.connect("bad", [url], [url], **fields)
            self.assertEqual(caught.exception.response.status_code, 400)
            self.assertEqual(caught.exception.response.json(), {"error": text})
            self.assertIs(controller.health_check(), True)
            with self.assertRaises(httpx.HTTPStatusError) as unknown:
                controller.disconnect()
            self.assertEqual(unknown.exception.response.json(), {"error": "Pair 'bad' not found"})

    def test_a_wrong_key_raises_with_the_known_text(self):
        controller = self.initialized()
        controller._session.headers["Authorization"] = "Bearer wrong"
        with self.assertRaises(httpx.HTTPStatusError) as caught:
            controller.connect("p", ["http://127.0.0.1:1"], ["http://127.0.0.1:2"], mode="disk", save_path="/w")
        self.assertEqual((caught.exception.response.status_code, caught.exception.response.json()), (403, lab.WRONG_KEY))

    def test_a_gateway_that_has_gone_is_not_healthy(self):
        controller = self.initialized()
        controller._gateway_proc.kill()
        controller._gateway_proc.wait()
        # The gateway dies with its parent, a moment later; a connection that it had is reset, which the class lets through.
        end = time.monotonic() + 10
        healthy = True
        while healthy and time.monotonic() < end:
            with contextlib.suppress(httpx.ReadError, httpx.RemoteProtocolError):
                healthy = controller.health_check()
        self.assertIs(healthy, False)

    # --- the store, through its own helper

    def test_metadata_is_read_through_its_own_helper(self):
        controller = self.initialized()
        with self.assertRaisesRegex(RuntimeError, "404.*Key not found"):
            controller._gateway_get("/weight_meta/p/training_params_meta")
        url = controller.gateway_url + "/weight_meta/p/training_params_meta"
        put = controller._http.put(url, json={"value": [{"name": "w"}]})
        self.assertEqual(put.json(), {"status": "ok"})
        self.assertEqual(controller._gateway_get("/weight_meta/p/training_params_meta"), {"value": [{"name": "w"}]})

    # --- its start

    def test_its_default_configuration_starts_on_loopback_with_the_public_key(self):
        controller = CONTROLLER.WeightUpdateController()
        self.addCleanup(controller.destroy)
        controller.initialize()
        self.assertIs(controller.health_check(), True)

    def test_the_public_key_beyond_loopback_is_refused_and_it_sees_the_end_of_the_program(self):
        os.environ.pop("AREAL_ALLOW_DEFAULT_ADMIN_KEY", None)
        controller = self.controller(host="0.0.0.0", admin_api_key="areal-admin-key")
        with self.assertRaisesRegex(RuntimeError, "exited prematurely"):
            controller.initialize()
        self.environment(AREAL_ALLOW_DEFAULT_ADMIN_KEY="1")
        allowed = self.initialized(host="0.0.0.0", admin_api_key="areal-admin-key")
        self.assertIs(allowed.health_check(), True)


if __name__ == "__main__":
    programs.main()
