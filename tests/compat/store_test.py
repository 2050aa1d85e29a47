#!/usr/bin/env python3
"""The metadata store over HTTP: values by pair and key, and sets. Workers leave each other what they need to know there.

    store_test.py BUILD
"""
import json
import threading

import lab
import programs

GUARDED = (
    ("PUT", "/weight_meta/x/k", {"value": 1}),
    ("DELETE", "/weight_meta/x/k", None),
    ("PUT", "/weight_meta/x/set/s", {"value": "one"}),
    ("GET", "/weight_meta/x/set/s/size", None),
)
ABSENT = (404, {"error": "Key not found"})


class StoreTest(lab.Lab):
    def setUp(self):
        super().setUp()
        self.at = self.gateway()

    def put(self, path, body):
        """`body`: the request's bytes, so that a number is sent as it is spelt."""
        answer = self.at.call("PUT", "/weight_meta/" + path, body, {"Content-Type": "application/json"})
        self.assertEqual((answer.status, answer.json), (200, {"status": "ok"}), (path, body[:100]))

    def get(self, path):
        """As workers read: without a key."""
        answer = self.at.call("GET", "/weight_meta/" + path, key=False)
        return answer.status, answer.json

    def size(self, path):
        return self.at.call("GET", f"/weight_meta/{path}/size").json["size"]

    def delete(self, path):
        return self.at.call("DELETE", "/weight_meta/" + path).json

    def test_what_was_put_is_read_without_a_key_and_without_a_pair_of_that_name(self):
        for value in ({"a": [1, 2.5, None, "\u00e9"]}, [], "", 0, False, "text", {"value": 1}, [[["deep"]]]):
            self.put("p/k", json.dumps({"value": value}).encode())
            self.assertEqual(self.get("p/k"), (200, {"value": value}))
        self.assertEqual(self.at.call("GET", "/v1/pairs").json["items"], [])

    def test_numbers_and_letters_come_back_as_they_were_sent(self):
        for text in ("1180591620717411303424", "[1.0,1e+22,0.1]", "-0.0", '"\\u00e9\\n"', '{"b":1,"a":2}',
                     "12345678901234567890.5"):  # fmt: skip
            self.put("p/k", b'{"value": ' + text.encode() + b"}")
            answer = self.at.call("GET", "/weight_meta/p/k")
            self.assertEqual(answer.text, '{"value":' + text + "}")
            self.assertEqual(answer.headers["content-type"], "application/json")

    def test_a_later_value_takes_the_place_of_the_earlier(self):
        self.put("p/k", b'{"value":1}')
        self.put("p/k", b'{"value":2}')
        self.assertEqual(self.get("p/k"), (200, {"value": 2}))

    def test_what_was_never_put_and_what_is_null_are_404(self):
        self.assertEqual(self.get("p/k"), ABSENT)
        for body in (b'{"value":null}', b"{}"):
            self.put("p/k", b'{"value":1}')
            self.put("p/k", body)
            self.assertEqual(self.get("p/k"), ABSENT)

    def test_a_delete_tells_whether_there_was_something(self):
        self.put("p/k", b'{"value":1}')
        self.assertEqual(self.delete("p/k"), {"status": "ok", "deleted": True})
        self.assertEqual(self.delete("p/k"), {"status": "ok", "deleted": False})
        self.assertEqual(self.get("p/k"), ABSENT)

    def test_pairs_and_keys_do_not_see_each_other(self):
        self.put("a/k", b'{"value":1}')
        self.put("b/k", b'{"value":2}')
        self.put("a/other", b'{"value":3}')
        self.assertEqual(self.delete("a/k")["deleted"], True)
        self.assertEqual((self.get("a/k"), self.get("b/k"), self.get("a/other")),
                         (ABSENT, (200, {"value": 2}), (200, {"value": 3})))

    def test_a_set_counts_each_member_once_and_is_empty_when_nobody_added(self):
        self.assertEqual(self.size("p/set/s"), 0)
        for member, size in (("a", 1), ("b", 2), ("a", 2), ("", 3)):
            self.put("p/set/s", json.dumps({"value": member}).encode())
            self.assertEqual(self.size("p/set/s"), size)
        self.assertEqual((self.size("p/set/t"), self.size("q/set/s")), (0, 0))

    def test_a_set_and_a_value_of_one_name_are_two_things(self):
        self.put("p/s", b'{"value":"plain"}')
        self.put("p/set/s", b'{"value":"member"}')
        self.assertEqual((self.get("p/s"), self.size("p/set/s")), ((200, {"value": "plain"}), 1))

    def test_a_member_of_a_set_that_is_no_text_is_422(self):
        answer = self.at.call("PUT", "/weight_meta/p/set/s", {"value": 1})
        self.assertEqual((answer.status, answer.json), (422, {"detail": [
            {"type": "string_type", "loc": ["body", "value"], "msg": "Input should be a valid string", "input": 1}]}))
        self.assertEqual(self.size("p/set/s"), 0)

    def test_bodies_that_are_no_objects_are_422_and_change_nothing(self):
        self.put("p/k", b'{"value":1}')
        for body, kind in ((b"", "missing"), (b"[1]", "model_attributes_type"), (b'{"value":', "json_invalid"),
                           (b'{"value":NaN}', "json_invalid"), (b'{"value":1}x', "json_invalid")):  # fmt: skip
            answer = self.at.call("PUT", "/weight_meta/p/k", body, {"Content-Type": "application/json"})
            self.assertEqual((answer.status, answer.json["detail"][0]["type"]), (422, kind), (body, answer))
        self.assertEqual(self.get("p/k"), (200, {"value": 1}))

    def test_disconnect_forgets_what_was_left_for_the_pair_and_nothing_else(self):
        answer = self.at.call("POST", "/connect", {
            "pair_name": "p", "train_worker_urls": ["http://127.0.0.1:1"], "inference_worker_urls": ["http://127.0.0.1:2"],
            "mode": "disk", "save_path": self.path("shared")})
        self.assertEqual(answer.status, 200, answer)
        for path in ("p/k", "q/k"):
            self.put(path, b'{"value":1}')
            self.put(path.replace("/", "/set/"), b'{"value":"m"}')
        self.assertEqual(self.at.disconnect("p").status, 200)
        self.assertEqual((self.get("p/k"), self.size("p/set/k")), (ABSENT, 0))
        self.assertEqual((self.get("q/k"), self.size("q/set/k")), ((200, {"value": 1}), 1))

    def test_many_writers_and_readers_at_once_lose_nothing_and_read_only_whole_values(self):
        wrong = []

        def write(writer):
            for step in range(20):
                value = [writer, step] + [writer * 1000 + step] * 200
                self.at.call("PUT", f"/weight_meta/p/own{writer}", {"value": value})
                self.at.call("PUT", "/weight_meta/p/common", {"value": value})
                self.at.call("PUT", "/weight_meta/p/set/all", {"value": f"{writer}-{step}"})
                status, body = self.get("p/common")
                read = body["value"]
                if status != 200 or set(read[2:]) != {read[0] * 1000 + read[1]} or len(read) != 202:
                    wrong.append((status, str(body)[:200]))
        threads = [threading.Thread(target=write, args=(writer,)) for writer in range(6)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        self.assertEqual(wrong, [])
        self.assertEqual(self.size("p/set/all"), 120)
        for writer in range(6):
            self.assertEqual(self.get(f"p/own{writer}")[1]["value"][:2], [writer, 19])

    def test_names_are_unescaped_and_an_escaped_slash_is_no_route(self):
        self.put("actor%20one/k%C3%A9y", b'{"value":1}')
        self.assertEqual(self.get("actor%20one/k%c3%a9y"), (200, {"value": 1}))
        answer = self.at.call("GET", "/weight_meta/p/a%2Fb")
        self.assertEqual((answer.status, answer.json), (404, {"detail": "Not Found"}))

    def test_every_route_but_reading_wants_the_key(self):
        self.check_refused_without_key(self.at, GUARDED)
        self.assertEqual((self.get("x/k"), self.size("x/set/s")), (ABSENT, 0))
        self.check_open_with_key(self.at, GUARDED)

    def test_a_verb_that_a_route_does_not_have_is_405(self):
        for method, path in (("POST", "/weight_meta/p/k"), ("GET", "/weight_meta/p/set/k"), ("DELETE", "/weight_meta/p/set/k"),
                             ("PUT", "/weight_meta/p/set/k/size")):  # fmt: skip
            answer = self.at.call(method, path)
            self.assertEqual((answer.status, answer.json), (405, {"detail": "Method Not Allowed"}), (method, path))


if __name__ == "__main__":
    programs.main()
