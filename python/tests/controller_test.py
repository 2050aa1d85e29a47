#!/usr/bin/env python3
"""The controller's own rules: what it sends, what it raises, and the life of the process that it starts.

    controller_test.py [BUILD]      BUILD holds the program weighlock

Programs that fail to start are small scripts; the life of a good one is checked with the real program.
"""
import contextlib
import gc
import inspect
import io
import os
import signal
import stat
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import unittest
from unittest import mock

import scripted
import weighlock
from scripted import ScriptedGateway, answer, problem
from weighlock import WeightUpdateController, WeightUpdateControllerConfig

BUILD = "build/release"
KEY = scripted.KEY
RESULT = {"status": "ok", "version": 3, "duration_ms": 1.5, "error": None}


class Directory(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="weighlock-python-")
        self.addCleanup(folder.cleanup)
        self.directory = folder.name
        # The gateway's log goes to our stderr, which a test may look at and nobody else needs.
        self.said = io.StringIO()
        self.enterContext_(contextlib.redirect_stderr(self.said))

    def enterContext_(self, manager):  # unittest has it from 3.11 on
        manager.__enter__()
        self.addCleanup(manager.__exit__, None, None, None)

    def path(self, name):
        return os.path.join(self.directory, name)

    def program(self, text, name="program"):
        """A script in place of the binary: `serve` and its flags are its arguments."""
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(f"#!{sys.executable}\nimport os, signal, sys, time\n" + textwrap.dedent(text))
        os.chmod(self.path(name), stat.S_IRWXU)
        return self.path(name)

    def config(self, **fields):
        fields.setdefault("binary", os.path.join(BUILD, "weighlock"))
        fields.setdefault("state_dir", self.path("state"))
        return WeightUpdateControllerConfig(admin_api_key=KEY, **fields)

    def controller(self, **fields):
        made = WeightUpdateController(self.config(**fields))
        self.addCleanup(made.destroy)
        return made


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


class CallsTest(Directory):
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
            returned = controller.update_weights(3, raise_on_error=False)
            self.assertEqual((returned.ok, returned.error), (False, "nobody loaded"))

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


class StartTest(Directory):
    def test_a_program_that_ends_is_an_error_with_its_code_and_last_words(self):
        program = self.program("""
            for i in range(100):
                print("line", i, file=sys.stderr)
            print("the port is taken", file=sys.stderr)
            sys.exit(7)
        """)
        with self.assertRaises(weighlock.GatewayStartFailed) as caught:
            self.controller(binary=program).initialize()
        self.assertEqual(caught.exception.exit_code, 7)
        self.assertTrue(caught.exception.output.endswith("line 99\nthe port is taken"), caught.exception.output)
        self.assertNotIn("line 50\n", caught.exception.output)
        self.assertIn("the port is taken", str(caught.exception))

    def test_a_program_that_tells_no_port_is_ended_when_the_time_is_over(self):
        program = self.program("print('still loading', file=sys.stderr, flush=True)\nsignal.pause()\n")
        controller = self.controller(binary=program, setup_timeout=0.7)
        with self.assertRaises(weighlock.GatewayStartTimedOut) as caught:
            controller.initialize()
        self.assertIsInstance(caught.exception, TimeoutError)
        self.assertIn("still loading", caught.exception.output)
        self.assertEqual(self.children(), [])

    def test_a_program_that_tells_a_port_where_nobody_answers_is_ended_when_the_time_is_over(self):
        gateway = ScriptedGateway(lambda request, _: answer(503, {}))
        self.addCleanup(gateway.__exit__)
        program = self.program(f"print('listening {gateway.url}', flush=True)\nsignal.pause()\n")
        with self.assertRaises(weighlock.GatewayStartTimedOut):
            self.controller(binary=program, setup_timeout=0.7).initialize()
        self.assertEqual(self.children(), [])

    def test_a_program_that_ends_after_it_told_its_port_is_an_error_with_its_code(self):
        program = self.program("print('listening http://127.0.0.1:1', flush=True)\nsys.exit(3)\n")
        with self.assertRaises(weighlock.GatewayStartFailed) as caught:
            self.controller(binary=program).initialize()
        self.assertEqual(caught.exception.exit_code, 3)

    def test_a_program_that_ignores_sigterm_is_killed_with_all_it_started(self):
        gateway = ScriptedGateway(lambda request, _: answer(200, {}))
        self.addCleanup(gateway.__exit__)
        program = self.program(f"""
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            child = os.fork()
            if child:
                open({self.path("child")!r}, "w").write(str(child))
                print("listening {gateway.url}", flush=True)
            while True:
                time.sleep(1)
        """)
        controller = self.controller(binary=program, stop_timeout=0.3)
        controller.initialize()
        with self.assertLogs("weighlock", "WARNING") as logs:
            controller.destroy()
        self.assertIn(str(-signal.SIGKILL), logs.output[0])
        with open(self.path("child"), encoding="utf-8") as file:
            child = int(file.read())
        end = time.monotonic() + 10
        while os.path.exists(f"/proc/{child}") and self.state_of(child) != "Z":
            self.assertLess(time.monotonic(), end, "what the program started lives on")
            time.sleep(0.02)

    @staticmethod
    def state_of(pid):
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
                return file.read().rsplit(")", 1)[1].split()[0]
        except OSError:
            return "Z"

    def test_a_path_that_is_no_program_is_refused_and_nothing_else_is_taken_instead(self):
        for path in (self.path("absent"), self.directory):
            with self.assertRaises(weighlock.BinaryNotFound) as caught:
                self.controller(binary=path).initialize()
            self.assertIn(path, str(caught.exception))

    def test_the_program_is_looked_for_by_argument_variable_package_and_path_in_this_order(self):
        given, named = self.program("", "given"), self.program("", "named")
        os.mkdir(self.path("on-path"))
        on_path = self.program("", "on-path/weighlock")
        package = self.path("package")
        os.makedirs(os.path.join(package, "bin"))
        packaged = self.program("", "package/bin/weighlock")
        module = os.path.join(package, "_process.py")
        with mock.patch.dict(os.environ, {"WEIGHLOCK_BINARY": named, "PATH": self.path("on-path")}), \
                mock.patch("weighlock._process.__file__", module):  # fmt: skip
            self.assertEqual(weighlock.find_binary(given), given)
            self.assertEqual(weighlock.find_binary(), named)
            del os.environ["WEIGHLOCK_BINARY"]
            self.assertEqual(weighlock.find_binary(), packaged)
            os.unlink(packaged)
            self.assertEqual(weighlock.find_binary(), on_path)
            os.unlink(on_path)
            with self.assertRaises(weighlock.BinaryNotFound) as caught:
                weighlock.find_binary()
            self.assertIn("WEIGHLOCK_BINARY", str(caught.exception))

    def children(self):
        with open(f"/proc/self/task/{threading.get_native_id()}/children", encoding="utf-8") as file:
            return [pid for pid in file.read().split() if self.state_of(pid) != "Z"]


class LifeTest(Directory):
    """With the real program."""

    def test_a_started_gateway_answers_on_a_port_of_its_own_and_leaves_with_0(self):
        with self.controller() as controller, self.controller(state_dir=self.path("second")) as second:
            self.assertNotEqual(controller.gateway_url, second.gateway_url)
            self.assertTrue(controller.health_check() and second.health_check())
            self.assertTrue(controller.client.ready())
            process = controller._process
            with open(f"/proc/{process.pid}/cmdline", "rb") as file:
                self.assertNotIn(KEY.encode(), file.read())
        self.assertEqual(process.exit_code, 0)
        self.assertEqual(controller.gateway_url, "")

    def test_wildcard_and_ipv6_hosts_are_reached_by_loopback(self):
        for host, url in (("0.0.0.0", "http://127.0.0.1:"), ("::1", "http://[::1]:"), ("::", "http://[::1]:")):
            with self.controller(host=host, state_dir=self.path("state" + host.replace(":", "c"))) as controller:
                self.assertTrue(controller.gateway_url.startswith(url), controller.gateway_url)
                self.assertTrue(controller.health_check())

    def test_a_start_that_is_refused_says_why_in_the_programs_words(self):
        config = self.config(host="0.0.0.0")
        config.admin_api_key = "areal-admin-key"
        with mock.patch.dict(os.environ):
            os.environ.pop("AREAL_ALLOW_DEFAULT_ADMIN_KEY", None)
            with self.assertRaises(weighlock.GatewayStartFailed) as caught:
                WeightUpdateController(config).initialize()
        self.assertIn("public default", str(caught.exception))

    def test_a_controller_may_be_initialized_again_after_destroy_and_not_before(self):
        controller = self.controller()
        controller.initialize()
        with self.assertRaises(weighlock.NotConnected):
            controller.initialize()
        controller.destroy()
        controller.destroy()
        controller.initialize()
        self.assertTrue(controller.health_check())

    def test_a_key_file_in_the_environment_does_not_get_in_the_way(self):
        with mock.patch.dict(os.environ, {"WEIGHLOCK_ADMIN_API_KEY_FILE": "/nowhere", "WEIGHLOCK_BINARY": "/bin/false"}):
            with self.controller() as controller:
                self.assertTrue(controller.health_check())

    def test_a_forgotten_controller_ends_its_gateway_when_it_is_collected(self):
        controller = WeightUpdateController(self.config())
        controller.initialize()
        child = controller._process._child
        del controller
        gc.collect()
        self.assertEqual(child.wait(20), 0)

    def test_a_program_that_leaves_without_destroy_leaves_no_gateway(self):
        done = subprocess.run([sys.executable, "-c", textwrap.dedent(f"""
            import os, sys
            sys.path.insert(0, {os.path.dirname(scripted.HERE)!r})
            import weighlock
            kept = weighlock.WeightUpdateController(weighlock.WeightUpdateControllerConfig(
                binary={os.path.join(os.path.abspath(BUILD), "weighlock")!r}, state_dir={self.path("state")!r}))
            kept.initialize()
            if os.fork() == 0:
                sys.exit(0)  # a fork that leaves in order isn't the owner
            os.wait()
            print(kept._process.pid, kept.health_check())
        """)], capture_output=True, text=True, timeout=60)  # fmt: skip
        pid, healthy = done.stdout.split()
        self.assertEqual(healthy, "True", done.stderr)
        self.assertFalse(os.path.exists(f"/proc/{pid}"), done.stderr)

    def test_a_ctrl_c_in_the_terminal_is_not_the_gateways(self):
        with self.controller() as controller:
            self.assertNotEqual(os.getpgid(controller._process.pid), os.getpgid(0))

    def test_the_gateways_log_is_passed_on_and_has_no_key(self):
        with self.controller(log_level="info") as controller:
            controller.health_check()
        self.assertIn("listening on", self.said.getvalue())
        self.assertNotIn(KEY, self.said.getvalue())


class ScriptedErrorTest(Directory):
    def test_a_gateway_of_another_kind_is_seen_as_such(self):
        gateway = ScriptedGateway(lambda request, _: problem(404, "not_found", "no such route") if request.target != "/health"
                                  else answer(200, {}))
        self.addCleanup(gateway.__exit__)
        controller = self.controller(binary=self.program(f"print('listening {gateway.url}', flush=True)\nsignal.pause()\n"))
        controller.initialize()
        with self.assertRaises(weighlock.NotFound):
            controller.connect("p", ["http://t:1"], ["http://h:1"])


if __name__ == "__main__":
    BUILD = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 and os.path.isdir(sys.argv[1]) else BUILD
    unittest.main(verbosity=2)
