#!/usr/bin/env python3
"""LoRA through the compatible API: adapters are loaded beside the model under a name for each version, and old ones go.

    lora_test.py BUILD
"""
import os

import lab
import programs

MODEL_LOADS = ("/update_weights_from_disk", "/collective_rpc")
PAUSES = ("/pause_generation", "/pause")
LOADS = ("/load_lora_adapter", "/v1/load_lora_adapter")
UNLOADS = ("/unload_lora_adapter", "/v1/unload_lora_adapter")


class LoraTest(lab.Lab):
    def setUp(self):
        super().setUp()
        self.fleet = self.engines("sglang", "vllm", flags=("--max-lora-rank", "16"))
        self.ranks = self.trainers(flags=("--lora-rank", "4"))
        self.at = self.gateway()

    def connect(self, **more):
        answer = self.at.connect("p", self.ranks, self.fleet, self.path("shared"), use_lora=True, lora_name="policy", **more)
        self.assertEqual((answer.status, answer.json), (200, {"pair_name": "p"}), answer)

    def ok(self, version):
        answer = self.at.update("p", version)
        self.assertEqual((answer.status, answer.json["status"], answer.json["error"]), (200, "ok", None), answer)
        return answer.json

    def asked(self, paths, worker=""):
        return [one for one in self.tape.all(worker=worker) if one.path.split("?")[0] in paths]

    def names(self, paths, worker):
        return [one.json["lora_name"] for one in self.asked(paths, worker)]

    def adapters(self):
        return [sorted(one.state()["adapters"]) for one in self.fleet]

    def test_connect_asks_nobody(self):
        self.connect(lora_keep_versions=2)
        self.assertEqual(self.tape.all(), [])

    def test_a_version_is_loaded_as_name_v_number_from_its_directory_and_no_model_is_loaded_or_paused(self):
        self.connect()
        self.ok(1)
        path = self.asked(("/save",))[0].json["args"][0]["data"]["path"]
        self.assertEqual(os.path.dirname(path), self.path("shared"))
        self.assertTrue(os.path.basename(path).startswith("weight_update_v1"), path)
        self.assertEqual(len(self.asked(("/save",))), 2)
        for worker in ("engine0", "engine1"):
            loads = self.asked(LOADS, worker)
            self.assertEqual([(one.json["lora_name"], one.json["lora_path"]) for one in loads], [("policy-v1", path)])
        self.assertEqual(self.asked(MODEL_LOADS + PAUSES), [])
        self.assertEqual(self.adapters(), [["policy-v1"]] * 2)

    def test_the_newest_of_the_window_stay_and_each_older_one_is_unloaded_once(self):
        self.connect(lora_keep_versions=2)
        for version in range(1, 6):
            self.ok(version)
        programs.wait_for("the window", lambda: self.adapters() == [["policy-v4", "policy-v5"]] * 2)
        for worker in ("engine0", "engine1"):
            self.assertEqual(self.names(LOADS, worker), [f"policy-v{version}" for version in range(1, 6)])
            unloaded = self.names(UNLOADS, worker)
            self.assertEqual([name for name in unloaded if name != "policy-v0"], ["policy-v1", "policy-v2", "policy-v3"])

    def test_without_a_window_nothing_is_unloaded(self):
        self.connect()
        for version in (1, 2, 3):
            self.ok(version)
        self.assertEqual(self.asked(UNLOADS), [])
        self.assertEqual(self.adapters(), [["policy-v1", "policy-v2", "policy-v3"]] * 2)

    def test_an_unload_that_fails_or_hangs_neither_fails_nor_delays_an_update(self):
        self.connect(lora_keep_versions=1)
        self.ok(1)
        self.fleet[0].fault(UNLOADS[0], "status_400", times=-1, message="LoRA with name policy-v1 does not exist")
        self.fleet[1].fault(UNLOADS[1], "hang", times=-1)
        for version in (2, 3):
            answer = self.ok(version)
            self.assertFalse(answer["degraded"], answer)
            self.assertLess(answer["duration_ms"], 20000, "the update waited for an unload")

    def test_a_load_that_one_engine_refuses_is_told_with_its_name_and_words(self):
        self.connect()
        self.ok(1)
        self.fleet[0].fault(LOADS[0], "status_400", times=-1, message="rank too large")
        answer = self.at.update("p", 2).json
        text = answer["error"] or answer["detail"]
        self.assertTrue(answer["status"] == "error" or answer["degraded"], answer)
        self.assertIn(self.fleet[0].url, text)
        self.assertIn("rank too large", text)

    def test_an_adapter_that_is_damaged_reaches_no_engine(self):
        self.connect()
        self.ok(1)
        self.tape.clear()
        self.ranks[0].fault("/save", "truncated")
        answer = self.at.update("p", 2).json
        self.assertEqual(answer["status"], "error", answer)
        self.assertIn("adapter_model.safetensors", answer["error"])
        self.assertEqual(self.asked(LOADS), [])

    def test_a_window_below_nothing_is_refused_by_name_and_a_lax_one_is_read(self):
        urls = [one.url for one in self.ranks], [one.url for one in self.fleet]
        body = {"pair_name": "p", "train_worker_urls": urls[0], "inference_worker_urls": urls[1], "mode": "disk",
                "save_path": self.path("shared"), "use_lora": "yes", "lora_name": "policy"}
        answer = self.at.call("POST", "/connect", {**body, "lora_keep_versions": -1})
        self.assertEqual(answer.status, 400, answer)
        self.assertIn("lora_keep_versions", answer.json["error"])
        self.assertEqual(self.at.call("POST", "/connect", {**body, "lora_keep_versions": "2"}).status, 200)


if __name__ == "__main__":
    programs.main()
