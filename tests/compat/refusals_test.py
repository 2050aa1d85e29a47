#!/usr/bin/env python3
"""What the compatible API refuses and in which words: keys on every route, bodies, unknown routes and verbs.

    refusals_test.py BUILD

The expected answers are those of AReaL's gateway, recorded, but for the differences that are listed in the API's
description: each is marked here with why.
"""
import json
import socket
import urllib.parse

import lab
import programs

FIELD = {"type": "missing", "msg": "Field required"}
NO_OBJECT = "Input should be a valid dictionary or object to extract fields from"

# Every route that asks for the key but those of the store (store_test.py), with a body that is right.
GUARDED = (
    ("POST", "/connect", {"pair_name": "x", "train_worker_urls": ["http://127.0.0.1:1"],
                          "inference_worker_urls": ["http://127.0.0.1:2"], "mode": "disk", "save_path": "/w"}),
    ("POST", "/update_weights", {"pair_name": "x", "version": 1}),
    ("POST", "/disconnect", {"pair_name": "x"}),
)  # fmt: skip


# The native API's routes that change something. There the key is judged before the body, which is wrong here.
NATIVE = (
    ("PUT", "/v1/pairs/x"), ("DELETE", "/v1/pairs/x"), ("POST", "/v1/pairs/x/updates"),
    ("POST", "/v1/pairs/x/updates/u:cancel"), ("POST", "/v1/pairs/x/workers:add"), ("POST", "/v1/pairs/x/workers/w:remove"),
)  # fmt: skip


def missing(*names, given=None):
    return [{**FIELD, "loc": ["body", name], "input": given or {}} for name in names]


class Refusals(lab.Lab):
    def setUp(self):
        super().setUp()
        self.at = self.gateway()


class AuthTest(Refusals):
    def test_every_guarded_route_wants_the_key_and_changes_nothing_without(self):
        self.check_refused_without_key(self.at, GUARDED)
        self.assertEqual(self.at.call("GET", "/v1/pairs").json["items"], [])

    def test_every_guarded_route_is_open_with_the_key(self):
        self.check_open_with_key(self.at, GUARDED)

    def test_every_native_route_that_changes_something_wants_the_key_before_it_looks_at_the_body(self):
        wrong = {"Authorization": "Bearer wrong"}
        for method, path in NATIVE:
            for headers, status, code in (({}, 401, "unauthenticated"), (wrong, 403, "permission_denied")):
                answer = self.at.call(method, path, b"{broken", headers, key=False)
                self.assertEqual((answer.status, answer.json["code"]), (status, code), (method, path, answer))
                self.assertEqual(answer.headers["content-type"], "application/problem+json")
            self.assertNotIn(self.at.call(method, path, b"{broken").status, (401, 403), (method, path))

    def test_the_scheme_is_read_in_any_case_and_blanks_around_the_key_are_not_part_of_it(self):
        for value in ("bearer " + lab.KEY, "BEARER   " + lab.KEY + "  "):
            answer = self.at.call("POST", "/update_weights", {"pair_name": "x"}, {"Authorization": value}, key=False)
            self.assertEqual((answer.status, answer.json), (404, {"error": "Pair 'x' not found"}), value)

    def test_a_key_that_is_not_ascii_is_403(self):
        # On purpose: the known gateway answers 500.
        request = b'POST /update_weights HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer k\xc3\xa9y\r\nConnection: close\r\n' \
                  b'Content-Type: application/json\r\nContent-Length: 17\r\n\r\n{"pair_name":"x"}'
        self.assertTrue(self.raw(request).startswith(b"HTTP/1.1 403 "))

    def test_health_needs_no_key(self):
        answer = self.at.call("GET", "/health", key=False)
        self.assertEqual((answer.status, answer.json), (200, {"status": "healthy"}))

    def test_a_bad_body_is_told_before_a_bad_key(self):
        answer = self.at.call("POST", "/update_weights", {}, key=False)
        self.assertEqual((answer.status, answer.json["detail"]), (422, missing("pair_name")))

    def raw(self, request):
        parts = urllib.parse.urlsplit(self.at.url)
        with socket.create_connection((parts.hostname, parts.port), timeout=30) as connection:
            connection.sendall(request)
            answer = b""
            while data := connection.recv(65536):
                answer += data
        return answer


class BodyTest(Refusals):
    def refused(self, path, body, detail, headers=None):
        answer = self.at.call("POST", path, body, headers)
        self.assertEqual((answer.status, answer.headers["content-type"]), (422, "application/json"), answer)
        self.assertEqual(answer.json, {"detail": detail}, body)

    def test_update_bodies_are_refused_with_type_place_message_and_input(self):
        raw = {"Content-Type": "application/json"}
        none = [{**FIELD, "loc": ["body"], "input": None}]
        rows = (
            (b"", raw, none),
            (b"null", raw, none),
            (b"[1]", raw, [{"type": "model_attributes_type", "loc": ["body"], "msg": NO_OBJECT, "input": [1]}]),
            (b'{"pair_name":"x"}', {"Content-Type": "text/plain"},
             [{"type": "model_attributes_type", "loc": ["body"], "msg": NO_OBJECT, "input": '{"pair_name":"x"}'}]),
            (b"{}", raw, missing("pair_name")),
            (b'{"version":1}', raw, missing("pair_name", given={"version": 1})),
            (b'{"pair_name":"x","version":1.5}', raw,
             [{"type": "int_from_float", "loc": ["body", "version"], "input": 1.5,
               "msg": "Input should be a valid integer, got a number with a fractional part"}]),
            (b'{"pair_name":"x","version":null}', raw,
             [{"type": "int_type", "loc": ["body", "version"], "msg": "Input should be a valid integer", "input": None}]),
            (b'{"pair_name":"x","version":"1.5"}', raw,
             [{"type": "int_parsing", "loc": ["body", "version"], "input": "1.5",
               "msg": "Input should be a valid integer, unable to parse string as an integer"}]),
            (b'{"pair_name":5}', raw,
             [{"type": "string_type", "loc": ["body", "pair_name"], "msg": "Input should be a valid string", "input": 5}]),
        )  # fmt: skip
        for body, headers, detail in rows:
            self.refused("/update_weights", body, detail, headers)

    def test_broken_json_is_refused_as_such(self):
        for path in ("/connect", "/update_weights", "/disconnect"):
            answer = self.at.call("POST", path, b'{"pair_name": ', {"Content-Type": "application/json"})
            one = answer.json["detail"][0]
            self.assertEqual((answer.status, one["type"], one["msg"]), (422, "json_invalid", "JSON decode error"))
            self.assertEqual(one["input"], {})
            self.assertEqual(one["loc"][0], "body")
            self.assertIsInstance(one["loc"][1], int)
            self.assertTrue(one["ctx"]["error"])

    def test_numbers_that_are_none_are_refused(self):
        # On purpose: the known gateway answers 500 to NaN in a body that it accepts otherwise.
        for word in (b"NaN", b"Infinity", b"-Infinity"):
            answer = self.at.call("POST", "/update_weights", b'{"pair_name":"x","version":' + word + b"}",
                                  {"Content-Type": "application/json"})
            self.assertEqual(answer.status, 422, answer)

    def test_connect_names_every_wrong_member_at_once(self):
        self.refused("/connect", {}, missing("pair_name", "train_worker_urls", "inference_worker_urls"))
        self.refused("/connect", {"pair_name": "z", "train_worker_urls": "a", "inference_worker_urls": [1]}, [
            {"type": "list_type", "loc": ["body", "train_worker_urls"], "msg": "Input should be a valid list", "input": "a"},
            {"type": "string_type", "loc": ["body", "inference_worker_urls", 0], "msg": "Input should be a valid string",
             "input": 1}])

    def test_connect_reads_flags_laxly_and_refuses_what_is_none(self):
        body = {"pair_name": "z", "train_worker_urls": ["http://127.0.0.1:1"], "inference_worker_urls": ["http://127.0.0.1:2"],
                "mode": "disk", "save_path": "/w"}
        self.refused("/connect", {**body, "use_lora": "maybe"}, [
            {"type": "bool_parsing", "loc": ["body", "use_lora"], "input": "maybe",
             "msg": "Input should be a valid boolean, unable to interpret input"}])
        self.refused("/connect", {**body, "use_lora": None}, [
            {"type": "bool_type", "loc": ["body", "use_lora"], "msg": "Input should be a valid boolean", "input": None}])
        for no in ("no", "off", "F", 0, 0.0, False):
            self.assertEqual(self.at.call("POST", "/connect", {**body, "use_lora": no}).status, 200, no)
        for yes in ("yes", "ON", "t", 1, True):
            answer = self.at.call("POST", "/connect", {**body, "use_lora": yes})
            self.assertEqual(answer.json, {"error": "lora_name is required when use_lora=True"}, yes)

    def test_the_wrong_types_of_every_member_of_connect_are_422_and_named(self):
        body = {"pair_name": "z", "train_worker_urls": ["http://127.0.0.1:1"], "inference_worker_urls": ["http://127.0.0.1:2"]}
        wrong = {"pair_name": ["z"], "train_worker_urls": {"a": 1}, "inference_worker_urls": None, "mode": 1, "save_path": ["/w"],
                 "use_lora": {}, "lora_name": 7, "lora_keep_versions": "many", "nccl_master_addr": 1,
                 "nccl_master_port": "p", "colocate": []}
        for name, value in wrong.items():
            answer = self.at.call("POST", "/connect", {**body, name: value})
            self.assertEqual(answer.status, 422, (name, answer))
            self.assertEqual(answer.json["detail"][0]["loc"], ["body", name])
            self.assertEqual(answer.json["detail"][0]["input"], value)

    def test_json_without_a_content_type_is_json(self):
        answer = self.at.call("POST", "/update_weights", b'{"pair_name":"x"}')
        self.assertEqual((answer.status, answer.json), (404, {"error": "Pair 'x' not found"}))

    def test_a_version_of_any_size_finds_no_pair_rather_than_an_error(self):
        for version in (-1, 2**63, -(2**63), 2**70):
            answer = self.at.call("POST", "/update_weights", {"pair_name": "x", "version": version})
            self.assertEqual((answer.status, answer.json), (404, {"error": "Pair 'x' not found"}), version)

    def test_what_is_empty_or_twice_is_400_and_named(self):
        # On purpose: the known gateway takes empty and repeated lists in disk mode, and answers 500 to an empty name.
        body = {"pair_name": "z", "train_worker_urls": ["http://127.0.0.1:1"], "inference_worker_urls": ["http://127.0.0.1:2"],
                "mode": "disk", "save_path": "/w"}
        twice = ["http://127.0.0.1:1", "http://127.0.0.1:1/"]
        for name, value in (("pair_name", ""), ("train_worker_urls", []), ("inference_worker_urls", []),
                            ("train_worker_urls", twice), ("inference_worker_urls", twice)):
            answer = self.at.call("POST", "/connect", {**body, name: value})
            self.assertEqual(answer.status, 400, (name, answer))
            self.assertIn(name, answer.json["error"])
        self.assertEqual(self.at.call("GET", "/v1/pairs").json["items"], [])

    def test_a_disconnect_without_its_member_is_422(self):
        self.refused("/disconnect", {}, missing("pair_name"))
        self.refused("/disconnect", {"pair_name": 1}, [{"type": "string_type", "loc": ["body", "pair_name"],
                                                        "msg": "Input should be a valid string", "input": 1}])


class RouteTest(Refusals):
    def test_a_route_that_nobody_knows_is_404(self):
        for path in ("/", "/nothing", "/update_weights/more", "/weight_meta", "/weight_meta/p"):
            answer = self.at.call("GET", path)
            self.assertEqual((answer.status, answer.json), (404, {"detail": "Not Found"}), path)

    def test_a_verb_that_a_route_does_not_have_is_405_and_tells_the_right_one(self):
        for method, path, allow in (("GET", "/update_weights", "POST"), ("GET", "/connect", "POST"),
                                    ("PUT", "/disconnect", "POST"), ("POST", "/health", "GET"), ("DELETE", "/health", "GET")):
            answer = self.at.call(method, path)
            self.assertEqual((answer.status, answer.json), (405, {"detail": "Method Not Allowed"}), (method, path))
            self.assertEqual(answer.headers["allow"], allow)

    def test_a_slash_at_the_end_answers_like_the_route(self):
        # On purpose: the known gateway redirects, which costs a call and loses bodies.
        self.assertEqual(self.at.call("GET", "/health/", key=False).json, {"status": "healthy"})

    def test_answers_are_compact_json_with_their_length(self):
        answer = self.at.call("GET", "/health", key=False)
        self.assertEqual(answer.text, json.dumps(answer.json, separators=(",", ":")))
        self.assertEqual(answer.headers["content-length"], str(len(answer.text)))


if __name__ == "__main__":
    programs.main()
