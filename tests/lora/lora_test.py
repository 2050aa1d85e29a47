#!/usr/bin/env python3
"""LoRA through the real gateway, with tinyengine and tinytrainer as processes.

    lora_test.py BUILD       BUILD holds weighlock, tinyengine and tinytrainer
"""
import json
import os
import sys
import threading

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [TESTS, os.path.join(TESTS, "real")]
import make_adapters  # noqa: E402
import programs  # noqa: E402
from programs import KEY, call, wait_for  # noqa: E402

NAME = "policy"
KEEP = 3
VERSIONS = 50
PROMPT = list(range(40, 64))


class Engine:
    """One of tinyengine's, asked as its clients ask it."""

    def __init__(self, line):
        self.dialect, self.url = line.split()[1:]

    def listed(self):
        """Name and directory of each adapter, as the engine tells its clients."""
        status, body = call("GET", self.url + "/v1/models")
        assert status == 200, body
        return {entry["id"]: entry["root"] for entry in body["data"] if entry["parent"]}

    def scores(self, adapter=None):
        if self.dialect == "sglang":
            body = {"input_ids": PROMPT, "lora_path": adapter, "return_logprob": True, "logprob_start_len": 0}
            status, answer = call("POST", self.url + "/generate", {**body, "sampling_params": {"max_new_tokens": 1}})
            assert status == 200, answer
            return [entry[0] for entry in answer["meta_info"]["input_token_logprobs"][1:]]
        body = {"model": adapter or "base", "prompt": PROMPT, "max_tokens": 1, "prompt_logprobs": 0}
        status, answer = call("POST", self.url + "/v1/completions", body)
        assert status == 200, answer
        rows = answer["choices"][0]["prompt_logprobs"][1:]
        return [next(iter(row.values()))["logprob"] for row in rows]

    def load(self, name, directory):
        """By hand: for the reference."""
        status, body = call("POST", self.url + "/load_lora_adapter", {"lora_name": name, "lora_path": directory})
        assert status == 200, body

    def unload(self, name):
        call("POST", self.url + "/unload_lora_adapter", {"lora_name": name})

    def fault(self, fault, times=1, what="unload", **more):
        route = f"/{what}_lora_adapter" if self.dialect == "sglang" else f"/v1/{what}_lora_adapter"
        body = {"route": route, "fault": fault, "times": times, **more}
        status, answer = call("POST", self.url + "/_tiny/faults", body)
        assert status == 200, answer

    def calls(self, what):
        _, log = call("GET", self.url + "/_tiny/log")
        return [entry for entry in log if what in json.dumps(entry)]

    def state(self):
        return call("GET", self.url + "/_tiny/state")[1]


class Watcher:
    """Lists the adapters of the engines again and again: the most at once, and names whose directory is gone.

    Engines read the directory of a name that they list again when they need it; vLLM dies if it isn't there.
    """

    def __init__(self, engines):
        self.engines, self.most, self.homeless, self.looks = engines, 0, set(), 0
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()

    def watch(self):
        while not self.ended.wait(0.01):
            for engine in self.engines:
                listed = engine.listed()
                self.most = max(self.most, len(listed))
                gone = {name for name, directory in listed.items() if not os.path.isdir(directory)}
                # It may have been unloaded, and then discarded, since the list was read.
                self.homeless |= {(engine.dialect, name) for name in gone if name in engine.listed()} if gone else set()
                self.looks += 1

    def end(self):
        self.ended.set()
        self.thread.join()
        return self


class LoraTest(programs.Programs):
    def start_fleet(self, step_ms=0, at_start=""):
        programs.write_model(self.path("base"))
        options = ["--engine", "sglang:0", "--engine", "vllm:0", "--engine", "sglang:0", "--served-model-name", "base"]
        options += ["--max-lora-rank", "8", "--max-cpu-loras", "2", "--time-scale", "0.02", "--step-ms", str(step_ms)]
        if at_start:
            options += ["--lora", at_start]
        child = self.start("engines", "tinyengine", "--model", self.path("base"), *options)
        self.sglang, self.vllm, self.reference = (Engine(line) for line in child.listening(3))
        self.engines = [self.sglang, self.vllm]
        trainer = self.start("trainer", "tinytrainer", "--ranks", "2", "--model-seed", "1", "--lora-rank", "4")
        self.trainers = trainer.urls(2)
        self.process, self.gateway_url = self.gateway()
        body = {"pair_name": "actor", "train_worker_urls": self.trainers, "mode": "disk", "save_path": self.path("shared")}
        body |= {"inference_worker_urls": [engine.url for engine in self.engines]}
        body |= {"use_lora": True, "lora_name": NAME, "lora_keep_versions": KEEP}
        status, answer = call("POST", self.gateway_url + "/connect", body, KEY)
        self.assertEqual(status, 200, answer)
        self.base = self.reference.scores()

    def update(self, version, timeout=60):
        body = {"pair_name": "actor", "version": version}
        status, answer = call("POST", self.gateway_url + "/update_weights", body, KEY, timeout=timeout)
        self.assertEqual(status, 200, answer)
        return answer

    def good_update(self, version):
        answer = self.update(version)
        self.assertEqual((answer["status"], answer["error"]), ("ok", None), f"{answer}\n{self.process.text()[-3000:]}")
        for engine in self.engines:
            self.assertIn(f"{NAME}-v{version}", engine.listed(), engine.dialect)

    def window(self, version):
        return {f"{NAME}-v{v}" for v in range(max(1, version - KEEP + 1), version + 1)}

    def assert_window(self, version, seconds=20):
        for engine in self.engines:
            wait_for(
                f"{engine.dialect} lists {sorted(self.window(version))} and nothing else, not {sorted(engine.listed())}",
                lambda e=engine: set(e.listed()) == self.window(version),
                seconds,
            )

    def assert_serves_the_window(self, version):
        self.assert_window(version)
        seen = [self.base]
        for name in sorted(self.window(version)):
            directory = self.sglang.listed()[name]
            self.assertEqual(directory, self.vllm.listed()[name])
            self.reference.load(name, directory)
            expected = self.reference.scores(name)
            self.reference.unload(name)
            self.assertNotIn(expected, seen, "two versions are alike: this would prove nothing")
            seen.append(expected)
            for engine in self.engines:
                self.assertEqual(engine.scores(name), expected, f"{engine.dialect} {name}")
        for engine in self.engines:
            self.assertEqual(engine.scores(), self.base, f"{engine.dialect}: the base moved")

    def watched_updates(self, first, last, settled=False):
        """`settled`: each begins when what the one before gives up is unloaded, else an update may cut that short."""
        watcher = Watcher(self.engines)
        for version in range(first, last + 1):
            self.good_update(version)
            if settled:
                self.assert_window(version)
        self.assertGreater(watcher.end().looks, last - first)
        self.assertEqual(watcher.homeless, set(), "an engine lists names whose directory is gone")
        return watcher.most

    def test_fifty_versions_keep_the_window_and_failing_unloads_fail_no_update(self):
        self.start_fleet()
        self.assertLessEqual(self.watched_updates(1, 20, settled=True), KEEP + 1)
        self.assert_serves_the_window(20)
        for engine, first, second in ((self.sglang, "status_400", "half_unload"), (self.vllm, "hang", "reset_after")):
            engine.fault(first, times=3)
            engine.fault(second, times=2)
        self.watched_updates(21, 35)
        for engine in self.engines:
            self.assertEqual(call("GET", engine.url + "/_tiny/faults")[1], [], f"{engine.dialect}: faults that nobody met")
        self.assert_serves_the_window(35)
        self.assertLessEqual(self.watched_updates(36, VERSIONS, settled=True), KEEP + 1)
        self.assert_serves_the_window(VERSIONS)
        for engine in self.engines:
            for word in ("pause", "collective_rpc", "update_weight", "flush", "reset_prefix"):
                self.assertEqual(engine.calls(f"/{word}"), [], f"{engine.dialect} was asked to {word}")

    def test_request_that_runs_on_an_old_version_ends_whole_while_newer_ones_come(self):
        self.start_fleet(step_ms=4)
        self.good_update(1)
        answers = []
        body = {"input_ids": PROMPT, "lora_path": f"{NAME}-v1", "sampling_params": {"max_new_tokens": 1500, "ignore_eos": True}}
        running = threading.Thread(target=lambda: answers.append(call("POST", self.sglang.url + "/generate", body, timeout=90)))
        running.start()
        wait_for("the request runs", lambda: self.sglang.state()["running"] == 1)
        for version in (2, 3):
            self.good_update(version)
            self.assertIn(f"{NAME}-v1", self.sglang.listed())
        self.good_update(4)
        running.join(timeout=90)
        status, answer = answers[0]
        self.assertEqual((status, answer["meta_info"]["finish_reason"]["type"]), (200, "length"), answer)
        self.good_update(5)
        self.assert_window(5)

    def test_engine_that_was_started_again_gets_the_whole_window(self):
        self.start_fleet()
        for version in (1, 2, 3):
            self.good_update(version)
        for engine in self.engines:
            lives = engine.state()["lives"]
            call("POST", engine.url + "/_tiny/restart")
            wait_for("another life", lambda e=engine, n=lives: e.state()["alive"] and e.state()["lives"] == n + 1)
        self.good_update(4)
        self.assert_serves_the_window(4)

    def test_adapter_that_the_engines_were_started_with_leaves_when_its_window_ends(self):
        directory = make_adapters.make(self.directory, "lora1")
        self.start_fleet(at_start=f"{NAME}-v0={directory}")
        for version in (1, 2):
            self.good_update(version)
            self.assertTrue(all(f"{NAME}-v0" in engine.listed() for engine in self.engines), version)
        self.good_update(3)
        self.assert_serves_the_window(3)
        self.assertTrue(os.path.isdir(directory), "it isn't ours to delete")

    def test_load_whose_answer_was_lost_is_a_success_and_the_name_is_loaded_once(self):
        self.start_fleet()
        self.good_update(1)
        for engine in self.engines:
            engine.fault("reset_after", what="load")
        self.good_update(2)
        self.assert_serves_the_window(2)

    def test_damaged_adapter_reaches_no_engine_and_is_told_by_what_is_wrong(self):
        self.start_fleet()
        self.good_update(1)
        loads = [len(engine.calls("load_lora_adapter")) for engine in self.engines]
        words = {"wrong_rank": "rank", "wrong_prefix": "base model", "modules_to_save": "modules_to_save", "dora": "dora"}
        words |= {"truncated": "adapter_model.safetensors", "silent": "adapter"}
        for version, (fault, word) in enumerate(words.items(), start=2):
            status, _ = call("POST", self.trainers[0] + "/_tiny/faults", {"fault": fault})
            self.assertEqual(status, 200)
            answer = self.update(version)
            self.assertEqual(answer["status"], "error", f"{fault}: {answer}")
            self.assertIn(word, answer["error"].lower(), fault)
            print(f"{fault}: {answer['error']}", flush=True)
        self.assertEqual([len(engine.calls("load_lora_adapter")) for engine in self.engines], loads)
        self.assert_serves_the_window(1)
        self.good_update(20)


if __name__ == "__main__":
    programs.main()
