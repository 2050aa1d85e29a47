#!/usr/bin/env python3
"""Each field of each route with each bad value, over real sockets: a 4xx that names the field, and nothing left behind.

    bodies_test.py BUILD        BUILD holds weighlock
"""
import json
import socket
import unittest

import body_cases
import gateway_process
from gateway_process import GatewayProcess, RawConnection, request
from programs import main, wait_for

# Nothing listens there, and nothing of this suite may call.
ENGINE, TRAINER = "http://127.0.0.1:9", "http://127.0.0.1:19"


class BodiesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.gateway = GatewayProcess()
        base = body_cases.pair_base(cls.gateway.shared, ENGINE, TRAINER)
        made = cls.gateway.call("PUT", body_cases.PAIR, base)
        assert made.status == 201, made
        items = cls.gateway.call("GET", body_cases.PAIR + "/workers").json()["items"]
        cls.worker = items[0]["id"]
        cls.gateway.await_first_records()

    @classmethod
    def tearDownClass(cls):
        cls.gateway.end()

    def check(self, cases):
        """Every row; what it names stands in the answer, and what the gateway holds is as before."""
        before = self.gateway.holdings()
        descriptors = self.gateway.descriptors()
        count = 0
        for name, method, target, body, statuses, words in cases:
            count += 1
            if isinstance(body, dict) and body.get("url") == "{engine}":
                body = {"url": ENGINE}
            if isinstance(target, str):
                target = target.replace("{worker}", self.worker)
            with self.subTest(name):
                answer = self.gateway.ask(request(method, target, body))
                self.assertIn(answer.status, statuses, answer)
                text = json.dumps(answer.json(), ensure_ascii=False)
                for word in words:
                    self.assertIn(json.dumps(word)[1:-1], json.dumps(answer.json()), answer)
                self.assertLess(len(text), 20_000, "an answer that repeats what it was sent")
                self.assertNotIn("secret", text)
                expected, before = before, self.gateway.holdings()  # a row answers for itself alone
                self.assertEqual(before, expected, answer)
        self.assertGreater(count, 10)
        wait_for("the descriptors that there were", lambda: self.gateway.descriptors() <= descriptors)

    def test_compatible_routes_refuse_each_bad_field_by_name(self):
        self.check(body_cases.compat_cases(self.gateway.shared, ENGINE, TRAINER))

    def test_the_metadata_store_refuses_what_is_no_value_and_keeps_nothing_of_it(self):
        self.check(body_cases.meta_cases())
        self.assertEqual(self.gateway.call("GET", "/weight_meta/p/k").status, 404)
        self.assertEqual(self.gateway.call("GET", "/weight_meta/p/set/s/size").json(), {"size": 0})

    def test_native_routes_refuse_each_bad_field_by_name(self):
        self.check(body_cases.native_cases(self.gateway.shared, ENGINE, TRAINER))

    def test_keys_are_refused_before_anything_else_in_v1(self):
        for key in (None, "", "x", "hostile-test-ke", gateway_process.KEY + "x", "\u00e9", "a b", "x" * 8000):
            for method, target in (("PUT", "/v1/pairs/new"), ("DELETE", "/v1/pairs/held"), ("POST", "/v1/pairs/held/updates"),
                ("POST", "/v1/pairs/held/updates/u:cancel"), ("POST", "/v1/pairs/held/workers:add"),
                ("POST", "/v1/pairs/held/workers/w:remove"), ("POST", "/v1/pairs/held/workers/w:drain"),
                ("POST", "/v1/pairs/held/workers/w:quarantine"), ("POST", "/v1/pairs/held/workers/w:release"),
                ("POST", "/v1/pairs/held:rollback"), ("POST", "/v1/pairs/held/versions:collect"),
                ("POST", "/v1/pairs/held/versions/1:verify")):
                with self.subTest(key=key and key[:20], target=target):
                    answer = self.gateway.call(method, target, {"version": 1}, key=key)
                    self.assertIn(answer.status, (401, 403), answer)
        two = [("Authorization", "Bearer " + gateway_process.KEY)]
        self.assertEqual(self.gateway.call("DELETE", "/v1/pairs/nobody", key="wrong", headers=two).status, 401)

    def test_an_idempotency_key_is_short_and_printable(self):
        before = self.gateway.holdings()
        for value in (b"k" * 257, b"\xff", b"a\tb", "\u00e9".encode()):
            with self.subTest(value[:10]):
                answer = self.gateway.call("POST", "/v1/pairs/held/updates", {"version": 1},
                    headers=[("Idempotency-Key", value)])
                self.assertEqual(answer.status, 400, answer)
                self.assertIn("Idempotency-Key", answer.text)
        self.assertEqual(self.gateway.holdings(), before)

    def test_an_event_number_of_the_future_is_the_last_one(self):
        with RawConnection(self.gateway.port) as connection:
            connection.send(request("GET", "/v1/events", headers=[("Last-Event-ID", str(2 ** 63 - 1))]))
            self.assertEqual(connection.read_answer().status, 200)
        self.assertEqual(self.gateway.call("GET", "/health").status, 200)


class NamesTest(unittest.TestCase):
    """Names that no list names: judged by the ranges, where they lead."""

    def gateway(self, worker_hosts):
        made = GatewayProcess("--worker-hosts", worker_hosts)
        self.addCleanup(made.end)
        return made

    def requests(self, gateway, url):
        """(field, method, target, body), each naming `url` once."""
        native = body_cases.pair_base(gateway.shared, url, "http://10.0.0.2:19")
        yield "workers[0].url", "PUT", "/v1/pairs/new", native
        yield ("trainers.urls[0]", "PUT", "/v1/pairs/new",
               body_cases.with_value(native, ("trainers", "urls", 0), url) | {"workers": [{"url": "http://10.0.0.9:9"}]})
        yield "worker.url[0]", "POST", "/v1/pairs/held/workers:add", {"url": url}
        compatible = body_cases.connect_base(gateway.shared, url, "http://10.0.0.2:19")
        yield "inference_worker_urls[0]", "POST", "/connect", compatible
        yield "train_worker_urls[0]", "POST", "/connect", {**compatible, "inference_worker_urls": ["http://10.0.0.9:9"],
                                                           "train_worker_urls": [url]}

    def test_a_name_that_leads_out_of_the_ranges_or_nowhere_is_refused_at_registration(self):
        gateway = self.gateway("10.0.0.0/8,trainer")
        held = body_cases.pair_base(gateway.shared, "http://10.0.0.1:9", "http://trainer:9")
        self.assertEqual(gateway.call("PUT", "/v1/pairs/held", held).status, 201)
        gateway.await_first_records()
        before = gateway.holdings()
        for url in ("http://nobody.invalid:9", "http://localhost:9"):
            for field, method, target, body in self.requests(gateway, url):
                with self.subTest(url, field=field):
                    answer = gateway.call(method, target, body)
                    self.assertEqual(answer.status, 403, answer)
                    self.assertIn(field, answer.text)
                    self.assertIn("--worker-hosts", answer.text)
        self.assertEqual(gateway.holdings(), before)

    def test_a_name_that_leads_into_the_ranges_is_taken_and_called_there(self):
        gateway = self.gateway("127.0.0.0/8")
        with socket.create_server(("127.0.0.1", 0)) as trainer:
            trainer.settimeout(20)
            base = body_cases.pair_base(gateway.shared, "http://127.0.0.1:9", f"http://localhost:{trainer.getsockname()[1]}")
            self.assertEqual(gateway.call("PUT", "/v1/pairs/p", base).status, 201)
            self.assertEqual(gateway.call("POST", "/v1/pairs/p/updates", {"version": 1}).status, 202)
            trainer.accept()[0].close()

    def test_an_address_outside_is_refused_in_each_spelling(self):
        gateway = self.gateway("10.0.0.0/8")
        for host in ("11.0.0.1", "0x0b000001", "11.1", "184549377", "[::ffff:11.0.0.1]", "[::ffff:b00:1]", "[::1]", "127.1"):
            with self.subTest(host):
                base = body_cases.pair_base(gateway.shared, f"http://{host}:9", "http://10.0.0.1:9")
                answer = gateway.call("PUT", "/v1/pairs/p", base)
                self.assertEqual(answer.status, 403, answer)
                self.assertIn("workers[0].url", answer.text)


if __name__ == "__main__":
    main()
