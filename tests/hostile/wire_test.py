#!/usr/bin/env python3
"""Bytes that are no request in good order, over real sockets: a clear 4xx that says that it closes, and nothing left behind.

    wire_test.py BUILD          BUILD holds weighlock
"""
import json
import socket
import struct
import unittest

from gateway_process import KEY, GatewayProcess, RawConnection, request
from programs import main, wait_for

HOST = b"Host: gateway\r\n"
AUTHORIZED = HOST + b"Authorization: Bearer " + KEY.encode() + b"\r\n"
POST = b"POST /disconnect HTTP/1.1\r\n" + AUTHORIZED
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"


def get(target, more=b"", version=b"HTTP/1.1"):
    return b"GET " + target + b" " + version + b"\r\n" + HOST + more + b"\r\n"


# (name, bytes): each is 400 and the end of the connection.
MALFORMED = [
    ("TE and CL", POST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n"),
    ("CL and TE", POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    ("TE twice", POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    ("TE twice, one unknown", POST + b"Transfer-Encoding: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    ("TE list", POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
    ("TE chunked twice in a list", POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n"),
    ("TE identity", POST + b"Transfer-Encoding: identity\r\n\r\n"),
    ("TE with a parameter", POST + b"Transfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n"),
    ("TE quoted", POST + b'Transfer-Encoding: "chunked"\r\n\r\n0\r\n\r\n'),
    ("TE after a vertical tab", POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n"),
    ("TE with a blank before the colon", POST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n"),
    ("TE with a tab before the colon", POST + b"Transfer-Encoding\t: chunked\r\n\r\n0\r\n\r\n"),
    ("TE folded", POST + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n"),
    ("TE empty", POST + b"Transfer-Encoding:\r\n\r\n"),
    ("TE on HTTP/1.0", b"POST /disconnect HTTP/1.0\r\n" + AUTHORIZED + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    ("two CLs", POST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{} "),
    ("two equal CLs", POST + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}"),
    ("CL list", POST + b"Content-Length: 2, 2\r\n\r\n{}"), ("CL signed", POST + b"Content-Length: +2\r\n\r\n{}"),
    ("CL negative", POST + b"Content-Length: -2\r\n\r\n{}"), ("CL hex", POST + b"Content-Length: 0x2\r\n\r\n{}"),
    ("CL fraction", POST + b"Content-Length: 2.0\r\n\r\n{}"), ("CL empty", POST + b"Content-Length:\r\n\r\n{}"),
    ("CL of 2^64", POST + b"Content-Length: 18446744073709551616\r\n\r\n{}"),
    ("CL with a word", POST + b"Content-Length: 2 x\r\n\r\n{}"),
    ("CL folded", POST + b"Content-Length: 2\r\n 3\r\n\r\n{}"),
    ("chunk size of 2^64", CHUNKED + b"10000000000000000\r\n"), ("chunk size of 2^64+2",
    CHUNKED + b"10000000000000002\r\n{}\r\n0\r\n\r\n"),
    ("chunk size negative", CHUNKED + b"-2\r\n{}\r\n0\r\n\r\n"), ("chunk size signed", CHUNKED + b"+2\r\n{}\r\n0\r\n\r\n"),
    ("chunk size 0x", CHUNKED + b"0x2\r\n{}\r\n0\r\n\r\n"), ("chunk size empty", CHUNKED + b"\r\n{}\r\n0\r\n\r\n"),
    ("chunk size after a blank", CHUNKED + b" 2\r\n{}\r\n0\r\n\r\n"), ("chunk size of letters",
    CHUNKED + b"zz\r\n{}\r\n0\r\n\r\n"),
    ("chunk longer than it says", CHUNKED + b"2\r\n{} \r\n0\r\n\r\n"),
    ("chunk shorter than it says", CHUNKED + b"3\r\n{}\r\n0\r\n\r\n"),
    ("chunk that ends in a bare LF", CHUNKED + b"2\r\n{}\n0\r\n\r\n"),
    ("chunk size that ends in a bare LF", CHUNKED + b"2\n{}\r\n0\r\n\r\n"),
    ("bare LFs", b"GET /health HTTP/1.1\n" + HOST.replace(b"\r", b"") + b"\n"),
    ("bare LF in a header", get(b"/health", b"X: a\nY: b\r\n")), ("bare CR in a header", get(b"/health", b"X: a\rY: b\r\n")),
    ("bare CR after the first line", b"GET /health HTTP/1.1\r" + HOST + b"\r\n"),
    ("NUL in a header", get(b"/health", b"X: a\0b\r\n")), ("NUL in a header's name", get(b"/health", b"X\0: a\r\n")),
    ("length among the trailers", CHUNKED + b"2\r\n{}\r\n0\r\nContent-Length: 5\r\n\r\n"),
    ("TE among the trailers", CHUNKED + b"2\r\n{}\r\n0\r\nTransfer-Encoding: x\r\n\r\n"),
    ("folded header", get(b"/health", b"X: a\r\n b\r\n")), ("folded by a tab", get(b"/health", b"X: a\r\n\tb\r\n")),
    ("fold before the first header", b"GET /health HTTP/1.1\r\n " + HOST + b"\r\n"),
    ("no colon", get(b"/health", b"X\r\n")), ("no name", get(b"/health", b": x\r\n")),
    ("blank in a name", get(b"/health", b"X y: z\r\n")),
    ("blank before the colon", get(b"/health", b"X : z\r\n")), ("name outside ASCII", get(b"/health", b"X\xff: z\r\n")),
    ("name with a bracket", get(b"/health", b"X(: z\r\n")), ("no Host", b"GET /health HTTP/1.1\r\n\r\n"),
    ("two Hosts", get(b"/health", HOST)),
    ("HTTP/0.9", b"GET /health\r\n\r\n"), ("HTTP/1.2", get(b"/health", version=b"HTTP/1.2")),
    ("HTTP/2.0", get(b"/health", version=b"HTTP/2.0")),
    ("HTTP/1.10", get(b"/health", version=b"HTTP/1.10")), ("http/1.1", get(b"/health", version=b"http/1.1")),
    ("HTTP/+1.1", get(b"/health", version=b"HTTP/+1.1")),
    ("HTTP/2 with prior knowledge", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    ("TLS hello", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x55" * 600 + b"\r\n\r\n"),
    ("SSH", b"SSH-2.0-OpenSSH_9.2\r\n\r\n"),
    ("SMTP", b"EHLO gateway\r\n\r\n"), ("zeros", b"\0" * 512 + b"\r\n\r\n"), ("bytes", bytes(range(256)) + b"\r\n\r\n"),
    ("two blanks", b"GET  /health HTTP/1.1\r\n" + HOST + b"\r\n"), ("blank at the end",
    b"GET /health HTTP/1.1 \r\n" + HOST + b"\r\n"),
    ("tab for blank", b"GET\t/health\tHTTP/1.1\r\n" + HOST + b"\r\n"),
    ("blank at the front", b" GET /health HTTP/1.1\r\n" + HOST + b"\r\n"),
    ("blank in the target", get(b"/hea lth")), ("NUL in the target", get(b"/health\0")),
    ("line end in the target", get(b"/health\nX: y")),
    ("no slash", get(b"health")), ("asterisk for GET", get(b"*")), ("authority form",
    b"CONNECT gateway:80 HTTP/1.1\r\n" + HOST + b"\r\n"),
    ("absolute without a host", get(b"http:///health")), ("absolute of another scheme", get(b"ftp://gateway/health")),
    ("empty target", b"GET HTTP/1.1\r\n" + HOST + b"\r\n"), ("method with a bracket",
    b"GE{T /health HTTP/1.1\r\n" + HOST + b"\r\n"),
]

# (name, bytes, status): too much of something.
TOO_LARGE = [
    ("header of 16 KiB", get(b"/health", b"X: " + b"x" * 16_384 + b"\r\n"), 431),
    ("many headers", get(b"/health", b"".join(b"X-%d: y\r\n" % i for i in range(100))), 431),
    ("very many short headers", get(b"/health", b"a:\r\n" * 4000), 431),
    ("name of 16 KiB", get(b"/health", b"X" * 16_384 + b": x\r\n"), 431),
    ("target of 8 KiB", get(b"/" + b"x" * 8192), 414), ("query of 8 KiB", get(b"/health?" + b"x=y&" * 2048), 414),
    ("target without end", b"GET /" + b"x" * 20_000, 431), ("method without end", b"G" * 20_000, 431),
    ("header without end", get(b"/health", b"X: " + b"x" * 20_000)[:-4], 431),
    ("body of 64 MiB and one byte", POST + b"Content-Length: 67108865\r\n\r\n{", 413),
    ("body of an exabyte", POST + b"Content-Length: 1000000000000000000\r\n\r\n{", 413),
    ("chunk of 64 MiB and one byte", CHUNKED + b"4000001\r\n{", 413), ("chunk of 2^63", CHUNKED + b"8000000000000000\r\n{",
    413),
    ("expected body of an exabyte", POST + b"Expect: 100-continue\r\nContent-Length: 1000000000000000000\r\n\r\n", 413),
    ("chunk's extension without end", CHUNKED + b"2;" + b"x" * 100_000, 431),
    ("trailers without end", CHUNKED + b"0\r\n" + b"X: y\r\n" * 4000, 431),
]

# (name, bytes, status): well-formed requests that are answered, and leave the connection as it is.
ANSWERED = [
    ("HEAD", b"HEAD /health HTTP/1.1\r\n" + HOST + b"\r\n", 405), ("OPTIONS",
    b"OPTIONS /v1/pairs HTTP/1.1\r\n" + HOST + b"\r\n", 405),
    ("OPTIONS *", b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n", 404), ("TRACE", b"TRACE /health HTTP/1.1\r\n" + HOST + b"\r\n",
    405),
    ("PATCH", b"PATCH /v1/pairs/held HTTP/1.1\r\n" + AUTHORIZED + b"\r\n", 405),
    ("DELETE of a list", b"DELETE /v1/pairs HTTP/1.1\r\n" + AUTHORIZED + b"\r\n", 405),
    ("HEAD of the stream", b"HEAD /v1/events HTTP/1.1\r\n" + HOST + b"\r\n", 405),
    ("lower case", b"get /health HTTP/1.1\r\n" + HOST + b"\r\n", 405),
    ("a method of its own", b"BREW /health HTTP/1.1\r\n" + HOST + b"\r\n", 405),
    ("absolute form", get(b"http://elsewhere:1/health"), 200),
    ("absolute form with https", get(b"HTTPS://elsewhere/health?x"), 200),
    ("absolute form without a path", get(b"http://elsewhere"), 404),
    ("slash at the end", get(b"/health/"), 200), ("escaped letter", get(b"/%68ealth"), 404),
    ("escaped slash", get(b"/v1%2Fpairs"), 404),
    ("escaped NUL", get(b"/health%00"), 404), ("dots", get(b"/v1/../health"), 404),
    ("escaped dots", get(b"/v1/%2e%2e/health"), 404),
    ("semicolon", get(b"/health;x=1"), 404), ("two slashes", get(b"//health"), 404), ("backslash", get(b"/\\health"), 404),
    ("query", get(b"/health?%00&&==&a=%zz"), 200),
    ("upgrade to HTTP/2", get(b"/health",
    b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"), 200),
    ("upgrade to a web socket", get(b"/health", b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n"), 200),
    ("GET with a body", get(b"/health", b"Content-Length: 2\r\n") + b"{}", 200),
    ("empty lines before it", b"\r\n\r\n" + get(b"/health"), 200),
    ("header outside ASCII", get(b"/health", b"X: \xff\xfe\r\n"), 200),
    ("chunk size with zeros", CHUNKED + b"0002\r\n{}\r\n000\r\n\r\n", 422),
    ("chunk's extension", CHUNKED + b'2;a="b\r\n'.replace(b'"', b"") + b"{}\r\n0\r\n\r\n", 422),
]


class WireTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.gateway = GatewayProcess()

    @classmethod
    def tearDownClass(cls):
        cls.gateway.end()

    def setUp(self):
        self.before = self.gateway.holdings()
        self.descriptors = self.gateway.descriptors()

    def tearDown(self):
        self.assertEqual(self.gateway.holdings(), self.before)
        wait_for("the descriptors that there were", lambda: self.gateway.descriptors() <= self.descriptors)

    def expect_refused(self, data, status):
        """Followed by a request in good order, which must not be answered: nobody knows where it begins."""
        with RawConnection(self.gateway.port) as connection:
            connection.send(data + get(b"/health"))
            answer = connection.read_answer(to_head=data.startswith(b"HEAD"))
            self.assertEqual(answer.status, status, answer)
            self.assertTrue(answer.says_close, answer)
            self.assertTrue(answer.json()["detail"], answer)
            self.assertTrue(connection.is_closed())
            self.assertEqual(connection.received, b"")

    def test_what_is_no_request_is_refused_and_the_connection_closed(self):
        for name, data in MALFORMED:
            with self.subTest(name):
                self.expect_refused(data, 400)

    def test_what_is_too_large_is_refused_and_the_connection_closed(self):
        for name, data, status in TOO_LARGE:
            with self.subTest(name):
                self.expect_refused(data, status)

    def test_what_is_well_formed_is_answered_and_the_connection_kept(self):
        for name, data, status in ANSWERED:
            with self.subTest(name), RawConnection(self.gateway.port) as connection:
                connection.send(data + get(b"/health"))
                answer = connection.read_answer(to_head=data.startswith(b"HEAD"))
                self.assertEqual(answer.status, status, answer)
                if status == 405:
                    self.assertTrue(answer.headers.get("allow"), answer)
                self.assertEqual(connection.read_answer().json(), {"status": "healthy"}, "the next one on the connection")

    def test_the_same_bytes_one_by_one_are_answered_alike(self):
        """Short rows only: each byte is a segment of its own."""
        rows = [(n, d, 400) for n, d in MALFORMED if len(d) < 200] + [(n, d, s) for n, d, s in ANSWERED if len(d) < 200]
        rows.append(("HTTP/1.0 without a header", b"GET /health HTTP/1.0\r\n\r\n", 200))
        for name, data, status in rows:
            with self.subTest(name), RawConnection(self.gateway.port) as connection:
                for at in range(len(data)):
                    if not connection.send(data[at:at + 1]):
                        break
                answer = connection.read_answer(to_head=data.startswith(b"HEAD"))
                self.assertEqual(answer.status, status, answer)

    def test_requests_sent_ahead_are_answered_in_order_up_to_the_first_bad_one(self):
        good = [get(b"/v1/pairs/p%d" % i) for i in range(200)]
        with RawConnection(self.gateway.port) as connection:
            connection.send(b"".join(good) + MALFORMED[0][1] + good[0])
            for i in range(200):
                self.assertIn(f"'p{i}'", connection.read_answer().text)
            self.assertEqual(connection.read_answer().status, 400)
            self.assertTrue(connection.is_closed())

    def test_a_request_in_a_body_is_no_request(self):
        inner = request("DELETE", "/v1/pairs/nobody")
        with RawConnection(self.gateway.port) as connection:
            connection.send(request("POST", "/disconnect", inner, content_type="text/plain"))
            self.assertEqual(connection.read_answer().status, 422)
            connection.send(get(b"/health"))
            self.assertEqual(connection.read_answer().status, 200)
            self.assertEqual(connection.received, b"")

    def test_connections_that_end_early_leave_nothing(self):
        for how in ("nothing", "half a line", "half a header", "half a body", "half a chunk"):
            for reset in (False, True):
                with self.subTest(how, reset=reset):
                    data = {"nothing": b"", "half a line": b"GET /he", "half a header": POST[:-4],
                        "half a body": POST + b"Content-Length: 9\r\n\r\n{", "half a chunk": CHUNKED + b"9\r\n{"}[how]
                    connection = RawConnection(self.gateway.port)
                    connection.send(data)
                    if reset:
                        connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    connection.socket.close()
        self.assertEqual(self.gateway.call("GET", "/health").status, 200)

    def test_empty_lines_without_end_do_not_hold_the_gateway(self):
        with RawConnection(self.gateway.port) as connection:
            for _ in range(160):  # 10 MiB
                connection.send(b"\r\n" * 32_768)
            connection.send(get(b"/health"))
            self.assertEqual(connection.read_answer().status, 200)

    def test_an_answer_in_json_is_json_whatever_the_path(self):
        for target in (b"/v1/pairs/\xff", b"/\xff", b"/v1/pairs/%ff/updates/%fe", b"/v1/\xc3\x28"):
            with self.subTest(target):
                answer = self.gateway.ask(get(target))
                self.assertEqual(answer.status, 404, answer)
                self.assertIsInstance(json.loads(answer.text), dict)


if __name__ == "__main__":
    main()
