#!/usr/bin/env python3
"""Disk mode through the compatible API, from connect to disconnect: what a client of AReaL's gateway relies on.

    disk_test.py BUILD
"""
import os

import lab
import programs

SAVE_BODY = {
    "args": [{"type": "dataclass", "class_path": "areal.api.io_struct.SaveLoadMeta",
              "data": {"path": None, "weight_format": "hf", "with_optim": False, "tokenizer": None, "processor": None,
                       "base_model_path": None, "naive_distributed": False}}],
    "kwargs": {}}  # fmt: skip


class ConnectTest(lab.Lab):
    def setUp(self):
        super().setUp()
        self.at = self.gateway()

    def refused(self, text, **fields):
        """A connect that is 400 with exactly this text, and leaves no pair behind."""
        body = {"pair_name": "p", "train_worker_urls": ["http://127.0.0.1:1"],
                "inference_worker_urls": ["http://127.0.0.1:2"], **fields}
        answer = self.at.call("POST", "/connect", body)
        self.assertEqual((answer.status, answer.json), (400, {"error": text}))
        self.assertEqual(self.at.update("p", 1).status, 404)

    def test_disk_mode_without_a_save_path_is_refused_and_registers_nothing(self):
        self.refused("save_path is required when mode='disk'", mode="disk")
        self.refused("save_path is required when mode='disk'", mode="disk", save_path="")

    def test_a_relative_save_path_is_refused_and_registers_nothing(self):
        self.refused("save_path must be an absolute path when mode='disk'", mode="disk", save_path="shared/w")

    def test_lora_without_a_name_is_refused_and_registers_nothing(self):
        self.refused("lora_name is required when use_lora=True", mode="disk", save_path="/w", use_lora=True)

    def test_lora_in_awex_mode_is_refused(self):
        self.refused("awex weight update does not support LoRA; set actor.weight_update_mode=disk in your config.",
                     use_lora=True, lora_name="l")

    def test_checks_of_the_body_come_in_the_order_of_the_known_gateway(self):
        # The save path is looked at before LoRA's name, both before anything of ours.
        self.refused("save_path is required when mode='disk'", mode="disk", use_lora=True, train_worker_urls=[])
        self.refused("lora_name is required when use_lora=True", mode="disk", save_path="/w", use_lora=True,
                     inference_worker_urls=[])

    def test_a_mode_that_nobody_knows_is_refused_by_name(self):
        answer = self.at.call("POST", "/connect", {"pair_name": "p", "train_worker_urls": ["http://127.0.0.1:1"],
                                                   "inference_worker_urls": ["http://127.0.0.1:2"], "mode": "bogus"})
        self.assertEqual(answer.status, 400)
        self.assertIn("'bogus'", answer.json["error"])

    def test_connect_registers_the_pair_and_changes_nobody(self):
        engines, trainers = self.engines("sglang", "vllm"), self.trainers()
        answer = self.at.connect("actor-rollout", trainers, engines, self.path("shared"))
        self.assertEqual((answer.status, answer.json), (200, {"pair_name": "actor-rollout"}))
        self.assertEqual(self.tape.changes(), [])
        names = [one["name"] for one in self.at.call("GET", "/v1/pairs").json["items"]]
        self.assertEqual(names, ["actor-rollout"])

    def test_connecting_a_pair_again_is_accepted_and_begins_a_new_lineage(self):
        engines, trainers = self.engines("sglang"), self.trainers()
        self.assertEqual(self.at.connect("p", trainers, engines, self.path("shared")).status, 200)
        self.assertEqual(self.at.update("p", 42).json["status"], "ok")
        self.assertEqual(self.at.connect("p", trainers, engines, self.path("shared")).status, 200)
        answer = self.at.update("p", 5)
        self.assertEqual(answer.json["status"], "ok", answer)
        self.assertEqual(self.at.call("GET", "/v1/pairs/p").json["committed"], 5)

    def test_a_name_may_be_used_again_after_its_disconnect(self):
        engines, trainers = self.engines("sglang"), self.trainers()
        for version in (3, 1):
            self.assertEqual(self.at.connect("p", trainers, engines, self.path("shared")).status, 200)
            self.assertEqual(self.at.update("p", version).json["status"], "ok")
            self.assertEqual(self.at.disconnect("p").status, 200)
        self.assertEqual(self.at.call("GET", "/v1/pairs").json["items"], [])

    def test_several_pairs_are_known_by_name_and_leave_one_by_one(self):
        def names():
            return [one["name"] for one in self.at.call("GET", "/v1/pairs").json["items"]]
        for name in ("a", "b", "c/d"):
            answer = self.at.call("POST", "/connect", {
                "pair_name": name, "train_worker_urls": ["http://127.0.0.1:1"], "mode": "disk",
                "inference_worker_urls": [f"http://127.0.0.1:{2 + len(names())}"], "save_path": self.path("shared")})
            self.assertEqual((answer.status, answer.json), (200, {"pair_name": name}))
        self.assertEqual(sorted(names()), ["a", "b", "c/d"])
        self.assertEqual(self.at.disconnect("b").json, {"status": "ok", "pair_name": "b"})
        self.assertEqual(sorted(names()), ["a", "c/d"])
        self.assertEqual(self.at.disconnect("b").status, 404)
        self.assertEqual(self.at.disconnect("c/d").json, {"status": "ok", "pair_name": "c/d"})

    def test_members_of_the_body_that_nobody_knows_are_ignored(self):
        answer = self.at.call("POST", "/connect", {
            "pair_name": "p", "train_worker_urls": ["http://127.0.0.1:1"], "inference_worker_urls": ["http://127.0.0.1:2"],
            "mode": "disk", "save_path": self.path("shared"), "comm_backend": "nccl", "future": {"x": [1]}})
        self.assertEqual((answer.status, answer.json), (200, {"pair_name": "p"}))


class UpdateTest(lab.Lab):
    def setUp(self):
        super().setUp()
        self.workers = self.engines("sglang", "sglang", "vllm")
        self.ranks = self.trainers()
        self.at = self.gateway()
        answer = self.at.connect("p", self.ranks, self.workers, self.path("shared"))
        self.assertEqual(answer.status, 200, answer)

    def test_an_update_answers_ok_with_version_duration_and_a_null_error(self):
        answer = self.at.update("p", 1)
        self.assertEqual(answer.status, 200)
        self.assertEqual(answer.headers["content-type"], "application/json")
        self.assertEqual((answer.json["status"], answer.json["version"], answer.json["error"]), ("ok", 1, None))
        self.assertIsInstance(answer.json["duration_ms"], float)
        self.assertGreater(answer.json["duration_ms"], 0)
        self.assertEqual(list(answer.json)[:4], ["status", "version", "duration_ms", "error"])

    def test_every_rank_gets_one_save_and_every_engine_one_load_of_the_same_versioned_directory(self):
        self.assertEqual(self.at.update("p", 7).json["status"], "ok")
        saves = self.tape.all("/save")
        self.assertEqual(sorted(one.worker for one in saves), ["rank0", "rank1"])
        paths = {one.json["args"][0]["data"]["path"] for one in saves}
        self.assertEqual(len(paths), 1)
        path = paths.pop()
        self.assertEqual(os.path.dirname(path), self.path("shared"))
        self.assertTrue(os.path.basename(path).startswith("weight_update_v7"), path)
        for one in saves:
            self.assertEqual(one.method, "POST")
            body = one.json
            body["args"][0]["data"]["path"] = None
            self.assertEqual(body, SAVE_BODY)
        loads = self.tape.all("/update_weights_from_disk") + self.tape.all("/collective_rpc")
        self.assertEqual(sorted(one.worker for one in loads), ["engine0", "engine1", "engine2"])
        for one in loads:
            self.assertIn(path, one.body.decode())
        for one in self.workers:
            self.assertFalse(one.state()["paused"])

    def test_saves_are_in_flight_together_and_no_engine_is_paused_before_they_have_ended(self):
        self.assertEqual(self.at.update("p", 1).json["status"], "ok")
        saves = self.tape.all("/save")
        self.assertLess(max(one.began for one in saves), min(one.ended for one in saves))
        pauses = self.tape.all("/pause_generation") + self.tape.all("/pause")
        self.assertEqual(sorted(one.worker for one in pauses), ["engine0", "engine1", "engine2"])
        self.assertGreater(min(one.began for one in pauses), max(one.ended for one in saves))

    def test_each_engine_is_paused_loaded_and_continued_in_this_order_and_once(self):
        self.assertEqual(self.at.update("p", 1).json["status"], "ok")
        wanted = {"/pause_generation": "pause", "/pause": "pause", "/update_weights_from_disk": "load",
                  "/collective_rpc": "load", "/continue_generation": "continue", "/resume": "continue"}
        for name in ("engine0", "engine1", "engine2"):
            seen = [wanted[r.path.split("?")[0]] for r in self.tape.all(worker=name) if r.path.split("?")[0] in wanted]
            self.assertEqual(seen, ["pause", "load", "continue"], name)

    def test_no_request_to_a_worker_carries_the_gateways_key(self):
        self.assertEqual(self.at.update("p", 1).json["status"], "ok")
        for one in self.tape.all():
            self.assertNotIn("authorization", [name.lower() for name, _ in one.headers], one)
            self.assertNotIn(lab.KEY, one.body.decode() + str(one.headers))

    def test_an_unknown_pair_is_404_and_changes_nobody(self):
        answer = self.at.update("nobody", 1)
        self.assertEqual((answer.status, answer.json), (404, {"error": "Pair 'nobody' not found"}))
        self.assertEqual(self.tape.changes(), [])

    def test_disconnect_removes_the_pair_and_a_second_one_is_404(self):
        answer = self.at.disconnect("p")
        self.assertEqual((answer.status, answer.json), (200, {"status": "ok", "pair_name": "p"}))
        for again in (self.at.update("p", 1), self.at.disconnect("p")):
            self.assertEqual((again.status, again.json), (404, {"error": "Pair 'p' not found"}))

    def test_lax_types_are_read_as_the_known_gateway_reads_them(self):
        for version in ("2", 3.0, " 4 ", True):
            answer = self.at.call("POST", "/update_weights", {"pair_name": "nobody", "version": version})
            self.assertEqual(answer.status, 404, (version, answer))

    def test_an_update_without_a_version_is_version_0(self):
        answer = self.at.call("POST", "/update_weights", {"pair_name": "p"})
        self.assertEqual((answer.json["status"], answer.json["version"]), ("ok", 0), answer)
        self.assertIn("weight_update_v0", self.tape.all("/save")[0].json["args"][0]["data"]["path"])


if __name__ == "__main__":
    programs.main()
