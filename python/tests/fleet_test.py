#!/usr/bin/env python3
"""The controller and both clients with the real gateway, real small engines and trainers; and the README's examples.

    fleet_test.py BUILD      BUILD holds weighlock, tinyengine and tinytrainer
"""
import asyncio
import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.request
from unittest import mock

import scripted
import weighlock

BUILD = "build/release"
KEY = scripted.KEY


def started(*command):
    """A program and a function that reads its next `listening` addresses."""
    child = subprocess.Popen([os.path.join(BUILD, command[0]), *command[1:]], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def addresses(count):
        found = []
        for line in child.stdout:
            if line.startswith(b"listening"):
                found.append(line.decode().split()[-1])
            if len(found) == count:
                return found
        raise AssertionError(f"{command[0]} ended: {child.wait()}")
    return child, addresses


class Fleet(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="weighlock-python-")
        self.addCleanup(shutil.rmtree, self.directory)
        os.mkdir(self.path("shared"))
        subprocess.run([os.path.join(BUILD, "tinytrainer"), "--write", self.path("start"), "--seed", "1"], check=True,
                       stdout=subprocess.DEVNULL)
        self.engines = self.start("tinyengine", "--model", self.path("start"), "--engine", "sglang:0", "--engine", "vllm:0",
                                  "--time-scale", "0.02", "--max-lora-rank", "16", count=2)
        self.trainers = self.start("tinytrainer", "--ranks", "2", "--model-seed", "1", count=2)

    def path(self, name):
        return os.path.join(self.directory, name)

    def start(self, *command, count):
        child, addresses = started(*command)

        def end():
            child.kill()
            child.wait()
            child.stdout.close()
        self.addCleanup(end)
        return addresses(count)

    def fault(self, url, **fault):
        request = urllib.request.Request(url + "/_tiny/faults", data=scripted.json.dumps(fault).encode(), method="POST")
        urllib.request.urlopen(request, timeout=30).close()

    @contextlib.contextmanager
    def controller(self, **fields):
        config = weighlock.WeightUpdateControllerConfig(
            binary=os.path.join(BUILD, "weighlock"), state_dir=self.path("state"), admin_api_key=KEY, log_level="error", **fields)
        with weighlock.WeightUpdateController(config) as controller:
            yield controller

    def put(self, client, **more):
        return client.put_pair("p", save_path=self.path("shared"), workers=self.engines, trainers=self.trainers, **more)


class ControllerTest(Fleet):
    def test_whole_life_of_a_pair(self):
        with self.controller() as controller:
            controller.connect("actor", self.trainers, self.engines, mode="disk", save_path=self.path("shared"))
            for version in (1, 2):
                result = controller.update_weights(version)
                self.assertEqual((result.ok, result.version, result.error, result.degraded), (True, version, None, False))
                self.assertEqual({url: one.verdict for url, one in result.verdicts.items()},
                                 dict.fromkeys(self.engines, "verified"))
            controller.connect("actor", self.trainers, self.engines, mode="disk", save_path=self.path("shared"))
            self.assertEqual(controller.update_weights(1).version, 1)  # a new lineage
            controller.disconnect()
            with self.assertRaisesRegex(RuntimeError, "Not connected"):
                controller.update_weights(3)

    def test_a_failed_update_raises_and_names_the_rank_and_the_next_one_is_good(self):
        with self.controller() as controller:
            controller.connect("actor", self.trainers, self.engines, mode="disk", save_path=self.path("shared"))
            self.fault(self.trainers[0], fault="status_500", times=1, message="No space left on device")
            self.fault(self.trainers[1], fault="status_500", times=1, message="No space left on device")
            with self.assertRaises(weighlock.UpdateFailed) as caught:
                controller.update_weights(1)
            self.assertIn("No space left on device", str(caught.exception))
            self.assertEqual((caught.exception.result.status, caught.exception.code), ("error", "trainer_failed"))
            self.assertEqual(caught.exception.update.id, caught.exception.result.update_id)
            self.assertTrue(controller.update_weights(2).ok)

    def test_adapters_are_loaded_by_version_and_the_window_is_kept(self):
        trainers = self.start("tinytrainer", "--ranks", "2", "--model-seed", "1", "--lora-rank", "4", count=2)
        with self.controller() as controller:
            controller.connect("actor", trainers, self.engines, mode="disk", save_path=self.path("shared"), use_lora=True,
                               lora_name="policy", lora_keep_versions=2)
            for version in (1, 2, 3):
                self.assertTrue(controller.update_weights(version).ok)
            self.assertEqual(controller.client.pair("actor").committed, 3)
            self.assertEqual(controller.client.updates("actor", 1)[0].adapter, "policy-v3")
            controller.disconnect()
            pair = controller.client.put_pair("native", save_path=self.path("shared"), workers=self.engines, trainers=trainers,
                                              lora=weighlock.Lora("other", keep=1))
            self.assertEqual(pair.lora, weighlock.Lora("other", 1))
            self.assertEqual(controller.client.update("native", 1).adapter, "other-v1")

    def test_a_degraded_update_is_returned_and_names_who_is_missing(self):
        with self.controller() as controller:
            controller.connect("actor", self.trainers, self.engines, mode="disk", save_path=self.path("shared"),
                               settings={"quorum": 1})
            controller.update_weights(1)
            self.fault(self.engines[0], route="/update_weights_from_disk", fault="status_500", times=-1, message="no memory")
            with self.assertLogs("weighlock", "WARNING"):
                result = controller.update_weights(2)
            self.assertTrue(result.ok and result.degraded)
            self.assertIn(self.engines[0], result.detail)
            self.assertNotEqual(result.verdicts[self.engines[0]].verdict, "verified")

    def test_several_threads_may_update_at_once_and_each_gets_its_own_answer(self):
        with self.controller() as controller:
            controller.connect("actor", self.trainers, self.engines, mode="disk", save_path=self.path("shared"))
            results = {}

            def update(version):
                results[version] = controller.update_weights(version, raise_on_error=False)
            threads = [threading.Thread(target=update, args=(version,)) for version in (1, 2, 3)]
            for one in threads:
                one.start()
            for one in threads:
                one.join()
            self.assertEqual({version: one.version for version, one in results.items()}, {1: 1, 2: 2, 3: 3})
            self.assertTrue(results[3].ok, results[3])


class ClientTest(Fleet):
    def test_pairs_updates_and_workers_from_the_first_to_the_last(self):
        with self.controller() as controller:
            client = controller.client
            self.assertEqual(client.pairs(), [])
            pair = self.put(client, settings={"quorum": "all"})
            self.assertEqual((pair.name, pair.committed, pair.settings["quorum"]), ("p", None, "all"))
            phases = []
            update = client.update("p", 1, on_phase=lambda one: phases.append(one.phase))
            self.assertEqual((update.state, update.version, set(update.verdicts)), ("succeeded", 1, set(self.engines)))
            self.assertGreater(update.bytes, 0)
            self.assertEqual(client.get_update("p", update.id), update)
            self.assertEqual(client.wait_committed("p", 1).committed, 1)
            with self.assertRaises(weighlock.TimedOut):
                client.wait_committed("p", 2, wait=0.2)
            second = client.start_update("p", 2, idempotency_key="two")
            self.assertEqual(client.start_update("p", 2, idempotency_key="two").id, second.id)
            self.assertEqual(client.wait_update("p", second.id).state, "succeeded")
            self.assertEqual([one.version for one in client.updates("p")], [2, 1])
            self.assertEqual([one.version for one in client.updates("p", limit=1)], [2])
            self.assertEqual({one.version for one in client.workers("p")}, {2})
            self.assertTrue(client.worker_ready("p", client.workers("p")[0].id).ready)
            self.assertIn("weighlock", client.metrics())
            self.assertEqual(list(client.remove_pair("p").abandoned), [])
            with self.assertRaises(weighlock.NotFound):
                client.pair("p")

    def test_a_refused_update_has_a_code_and_the_gateways_words(self):
        with self.controller() as controller:
            self.put(controller.client)
            controller.client.update("p", 5)
            with self.assertRaises(weighlock.UpdateFailed) as caught:
                controller.client.update("p", 4)
            self.assertEqual(caught.exception.code, "version_not_newer")
            with self.assertRaises(weighlock.InvalidRequest) as refused:
                controller.client.update("p", 6, policy={"quorom": "all"})
            self.assertEqual((refused.exception.code, refused.exception.field), ("unknown_key", "policy.quorom"))
            with self.assertRaises(weighlock.AuthenticationFailed):
                weighlock.Client(controller.gateway_url, key="another").update("p", 6)

    def test_an_update_is_cancelled_and_its_end_tells_so(self):
        with self.controller() as controller:
            client = controller.client
            self.put(client)
            self.fault(self.trainers[0], fault="slow", times=1, delay_ms=60000)
            update = client.start_update("p", 1)
            client.cancel_update("p", update.id)
            ended = client.wait_update("p", update.id)
            self.assertEqual((ended.committed, ended.error.code), (False, "cancelled"))

    def test_workers_come_and_go(self):
        with self.controller() as controller:
            client = controller.client
            client.put_pair("p", save_path=self.path("shared"), workers=self.engines[:1], trainers=self.trainers)
            client.update("p", 1)
            added = client.add_worker("p", weighlock.WorkerSpec(self.engines[1], "vllm"))
            self.assertEqual(added.workers.total, 2)
            self.assertEqual(set(client.update("p", 2).verdicts), set(self.engines))
            with open(self.path("key"), "w", encoding="utf-8") as file:
                file.write("a-key\n")
            key = weighlock.KeyReference(file=self.path("key"))
            self.assertEqual(client.set_worker_key("p", self.engines[1], api_key=key).url, self.engines[1])
            with self.assertRaises(weighlock.InvalidRequest) as missing:
                client.set_worker_key("p", self.engines[1], api_key=weighlock.KeyReference(file=self.path("none")))
            self.assertIn(self.path("none"), str(missing.exception))
            self.assertEqual(client.remove_worker("p", self.engines[0].removeprefix("http://")).workers.total, 1)
            self.assertEqual(set(client.update("p", 3).verdicts), {self.engines[1]})

    def test_the_way_back_and_what_is_stored(self):
        with self.controller() as controller:
            client = controller.client
            self.put(client)
            client.update("p", 1)
            client.update("p", 2)
            back = client.rollback("p", idempotency_key="back")
            self.assertEqual((back.state, back.version), ("succeeded", 1))
            self.assertEqual(client.rollback("p", idempotency_key="back").id, back.id)
            stored = client.versions("p")
            self.assertEqual((stored.committed, stored.last_good, stored.highest), (1, 1, 2))
            self.assertEqual([(one.version, one.state) for one in stored.items], [(2, "withdrawn"), (1, "committed")])
            self.assertTrue(set(self.engines) <= set(stored.items[1].leases), stored)
            with self.assertRaises(weighlock.Conflict):
                client.rollback("p")
            with self.assertRaises(weighlock.UpdateFailed) as used:
                client.update("p", 2)
            self.assertEqual(used.exception.code, "version_not_newer")
            client.verify_version("p", 2)
            self.assertEqual(client.collect_versions("p", dry_run=True), [])

    def test_a_finished_directory_is_handed_over(self):
        shutil.copytree(self.path("start"), self.path("out"))
        with self.controller() as controller:
            controller.client.put_pair("p", save_path=self.path("shared"), workers=self.engines)
            self.assertEqual(controller.client.update("p", 1, path=self.path("out")).state, "succeeded")

    def test_events_tell_an_update_from_its_request_to_its_end_and_may_be_read_again(self):
        with self.controller() as controller:
            client = controller.client
            self.put(client)
            update = client.update("p", 1)

            def until_end(after):
                found = []
                for event in client.events("p", after=after):
                    found.append(event)
                    if event.kind == "update_ended":
                        return found
            events = until_end(0)
            kinds = [one.kind for one in events if one.update == update.id]
            self.assertEqual((kinds[0], kinds[-1]), ("update_requested", "update_ended"))
            self.assertIn("commit", kinds)
            self.assertEqual(until_end(events[3].number), events[4:])

    def test_async_client_does_the_same(self):
        async def run(client):
            self.assertTrue(await client.health() and await client.ready())
            await client.put_pair("p", save_path=self.path("shared"), workers=self.engines, trainers=self.trainers)
            stream = client.events("p", after=0)
            kinds = []

            async def watch():
                async for event in stream:
                    kinds.append(event.kind)
                    if event.kind == "update_ended":
                        return
            watching = asyncio.create_task(watch())
            update = await client.update("p", 1)
            await watching
            await stream.aclose()
            self.assertEqual((update.state, kinds[-1]), ("succeeded", "update_ended"))
            with self.assertRaises(weighlock.UpdateFailed):
                await client.update("p", 0)
            self.assertEqual([one.version for one in await client.updates("p")], [0, 1])
            self.assertEqual(len(await client.workers("p")), 2)
            return await client.remove_pair("p")
        with self.controller() as controller:
            removed = asyncio.run(run(weighlock.AsyncClient(controller.gateway_url, key=KEY)))
            self.assertEqual(removed.name, "p")

    def test_a_cancelled_wait_leaves_the_update_running(self):
        async def run(client):
            await client.put_pair("p", save_path=self.path("shared"), workers=self.engines, trainers=self.trainers)
            self.fault(self.trainers[0], fault="slow", times=1, delay_ms=5000)
            task = asyncio.create_task(client.update("p", 1))
            while not await client.updates("p"):
                await asyncio.sleep(0.02)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            return (await client.wait_committed("p", 1)).committed
        with self.controller() as controller:
            self.assertEqual(asyncio.run(run(weighlock.AsyncClient(controller.gateway_url, key=KEY))), 1)


class ReadmeTest(Fleet):
    def test_examples_run_as_they_stand(self):
        with open(os.path.join(os.path.dirname(scripted.HERE), "README.md"), encoding="utf-8") as file:
            examples = re.findall(r"```python\n(.*?)```", file.read(), re.DOTALL)
        self.assertEqual(len(examples), 3)
        names = {"http://t0:9000": self.trainers[0], "http://t1:9000": self.trainers[1], "http://g0:30000": self.engines[0],
                 "http://g1:8000": self.engines[1], "/shared/w": self.path("shared")}
        variables = {"WEIGHLOCK_BINARY": os.path.abspath(os.path.join(BUILD, "weighlock")), "WEIGHLOCK_ADMIN_API_KEY": KEY,
                     "XDG_STATE_HOME": self.path("xdg")}
        said = io.StringIO()
        with mock.patch.dict(os.environ, variables), contextlib.redirect_stdout(said), self.controller() as controller:
            for example in examples:
                for name, real in {**names, "http://gateway:7080": controller.gateway_url}.items():
                    example = example.replace(name, real)
                exec(compile(example, "README.md", "exec"), {"__name__": "example"})
        self.assertIn("succeeded", said.getvalue())


if __name__ == "__main__":
    BUILD = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 and os.path.isdir(sys.argv[1]) else BUILD
    unittest.main(verbosity=2)
