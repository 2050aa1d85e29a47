#!/usr/bin/env python3
"""Limits on what a client with the key may pile up: each is reached over real sockets, refused, and free again afterwards.

    limits_test.py BUILD        BUILD holds weighlock
"""
import socket
import unittest

import body_cases
from gateway_process import GatewayProcess
from programs import main, wait_for

QUEUED_MAX, REMEMBERED_MAX, PAIRS_MAX = 16, 256, 1024


def url_of(listener):
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


class LimitsTest(unittest.TestCase):
    def setUp(self):
        self.gateway = GatewayProcess()
        self.addCleanup(self.gateway.end)

    def put(self, name, engine, trainer, settings=None):
        body = body_cases.pair_base(self.gateway.shared, engine, trainer)
        return self.gateway.call("PUT", f"/v1/pairs/{name}", {**body, "settings": settings or {}})

    def update(self, name, version, wait=""):
        return self.gateway.call("POST", f"/v1/pairs/{name}/updates{wait}", {"version": version})

    def test_pairs_are_limited_and_one_that_goes_makes_room(self):
        for i in range(PAIRS_MAX):
            self.assertEqual(self.put(f"p{i}", f"http://10.0.{i // 256}.{i % 256}:1", "http://10.9.0.1:1").status, 201)
        refused = self.put("one-too-many", "http://10.1.0.1:1", "http://10.9.0.1:1")
        self.assertEqual(refused.status, 429, refused)
        self.assertIn(str(PAIRS_MAX), refused.text)
        self.assertEqual(self.gateway.call("DELETE", "/v1/pairs/p0").status, 200)
        self.assertEqual(self.put("one-too-many", "http://10.1.0.1:1", "http://10.9.0.1:1").status, 201)

    def test_updates_that_wait_are_limited(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:  # a trainer that takes the request and never answers
            self.assertEqual(self.put("p", "http://127.0.0.1:9", url_of(silent), {"coalesce": False}).status, 201)
            self.gateway.await_first_records()
            self.assertEqual(self.update("p", 1).status, 202)
            wait_for("the first update to run", lambda: self.gateway.call("GET", "/v1/pairs/p").json()["state"] == "updating")
            for version in range(2, 2 + QUEUED_MAX):
                self.assertEqual(self.update("p", version).status, 202)
            before = self.gateway.records()
            refused = self.update("p", 99)
            self.assertEqual((refused.status, refused.headers.get("retry-after")), (429, "1"), refused)
            self.assertEqual(self.gateway.records(), before)

    def test_updates_that_ended_are_forgotten_in_time(self):
        # Nobody listens: each ends at once.
        self.assertEqual(self.put("p", "http://127.0.0.1:9", "http://127.0.0.1:9").status, 201)
        for version in range(1, REMEMBERED_MAX + 10):
            self.assertEqual(self.update("p", version, "?wait=20").status, 200)
        items = self.gateway.call("GET", f"/v1/pairs/p/updates?limit={REMEMBERED_MAX}").json()["items"]
        self.assertEqual(len(items), REMEMBERED_MAX)
        self.assertEqual(items[0]["version"], REMEMBERED_MAX + 9)


if __name__ == "__main__":
    main()
