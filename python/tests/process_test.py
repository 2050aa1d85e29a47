#!/usr/bin/env python3
"""The process that the controller starts: found, started, known to answer, ended, and never forgotten.

    process_test.py [BUILD]      BUILD holds the program weighlock

Programs that fail to start are small scripts; the life of a good one is checked with the real program.
"""
import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from unittest import mock

import scripted
import weighlock
from scripted import KEY, ControllerTest, ScriptedGateway, answer
from weighlock import WeightUpdateController


class StartTest(ControllerTest):
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
        controller = self.controller(binary=program, setup_timeout=3.0)
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
            self.controller(binary=program, setup_timeout=3.0).initialize()
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


class LifeTest(ControllerTest):
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

    def test_a_port_that_is_taken_is_named_by_the_start_that_fails(self):
        with self.controller() as first:
            port = int(first.gateway_url.rsplit(":", 1)[1])
            with self.assertRaises(weighlock.GatewayStartFailed) as caught:
                self.controller(port=port, state_dir=self.path("second")).initialize()
            self.assertIn(str(port), caught.exception.output)
            self.assertTrue(first.health_check())

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
                binary={os.path.join(os.path.abspath(scripted.BUILD), "weighlock")!r}, state_dir={self.path("state")!r}))
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


if __name__ == "__main__":
    scripted.main()
