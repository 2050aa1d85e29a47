#!/usr/bin/env python3
"""The parser of answers, the parser of event streams, URLs and keys: no input or output."""
import os
import pickle
import tempfile
import unittest

import scripted
from weighlock import errors, values
from weighlock._events import Decoder, EventFeed
from weighlock._keys import Key, find_key
from weighlock._wire import BODY_BYTES_MAX, HEAD_BYTES_MAX, ResponseReader, encode_request, parse_url
from weighlock.errors import BadAnswer, InvalidRequest

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def read(data, step=None):
    """(status, body, complete) of an answer that comes `step` bytes at a time, then a closed connection."""
    reader = ResponseReader()
    for at in range(0, len(data), step or len(data)):
        reader.feed(data[at : at + (step or len(data))])
    complete = reader.complete or reader.end()
    return reader.status, reader.take(), complete


class ResponseTest(unittest.TestCase):
    def test_an_answer_is_the_same_however_its_bytes_are_cut(self):
        for data, body in (
            (scripted.answer(200, {"a": [1, 2]}), b'{"a": [1, 2]}'),
            (scripted.answer(422, b""), b""),
            (CHUNKED + b"3\r\nabc\r\nA;x=\"y\"\r\n0123456789\r\n0\r\n\r\n", b"abc0123456789"),
            (CHUNKED + b"3\r\nabc\r\n0\r\nTrailer: x\r\n\r\n", b"abc"),
            (b"HTTP/1.0 200 OK\r\n\r\nuntil the end", b"until the end"),
            (b"HTTP/1.1 100 Continue\r\n\r\n" + scripted.answer(201, b"x"), b"x"),
            (b"HTTP/1.1 204\r\nX: y\r\n\r\n", b""),
        ):
            for step in (1, 2, 3, 7, None):
                status, got, complete = read(data, step)
                self.assertEqual((got, complete), (body, True), (data, step))
                self.assertGreaterEqual(status, 200)

    def test_an_answer_that_was_cut_anywhere_is_never_complete(self):
        for data in (scripted.answer(200, b'{"a":1}'), CHUNKED + b"3\r\nabc\r\n0\r\n\r\n"):
            for at in range(len(data)):
                reader = ResponseReader()
                reader.feed(data[:at])
                self.assertFalse(reader.complete or reader.end(), data[:at])
                self.assertEqual(reader.begun, at > 0)

    def test_what_is_not_http_is_refused(self):
        for data in (
            b"SSH-2.0-OpenSSH\r\n\r\n",
            b"HTTP/2 200\r\n\r\n",
            b"HTTP/1.1 2x0 OK\r\n\r\n",
            b"HTTP/1.1\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
            b"HTTP/1.1 200 OK\r\n folded: x\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n",
            CHUNKED + b"zz\r\n",
            CHUNKED + b"\r\n",
            CHUNKED + b"3\r\nabcd\r\n",
            CHUNKED + b"f" * 16 + b"\r\n",
            CHUNKED + b"1" * 2000,
        ):
            with self.assertRaises(BadAnswer, msg=data):
                read(data)

    def test_answers_beyond_the_limits_are_refused_before_they_are_held(self):
        with self.assertRaises(BadAnswer):
            read(b"HTTP/1.1 200 OK\r\n" + b"X: " + b"a" * HEAD_BYTES_MAX)
        with self.assertRaises(BadAnswer):
            read(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (BODY_BYTES_MAX + 1))
        with self.assertRaises(BadAnswer):
            read(CHUNKED + b"%x\r\n" % (BODY_BYTES_MAX + 1))
        with self.assertRaises(BadAnswer):
            ResponseReader(body_bytes_max=3).feed(b"HTTP/1.1 200 OK\r\n\r\nabcd")

    def test_a_request_has_its_host_its_length_and_says_that_it_is_the_last(self):
        text = encode_request(parse_url("http://[::1]:7/base/"), "POST", "/x", {"A": "b"}, b"{}").decode()
        self.assertEqual(text, "POST /base/x HTTP/1.1\r\nHost: [::1]:7\r\nConnection: close\r\nA: b\r\n"
                               "Content-Length: 2\r\n\r\n{}")

    def test_a_header_cannot_smuggle_another(self):
        with self.assertRaises(InvalidRequest):
            encode_request(parse_url("http://h"), "GET", "/", {"Idempotency-Key": "a\r\nX: y"}, None)


class UrlTest(unittest.TestCase):
    def test_urls_are_read_with_default_ports_and_a_base(self):
        for text, url in (("http://h", "http://h:80"), ("https://h/", "https://h:443"), ("http://h:7080/w/", "http://h:7080/w"),
                          ("http://[::1]:1", "http://[::1]:1")):
            self.assertEqual(parse_url(text).url, url)

    def test_wrong_urls_are_refused_and_a_password_in_one_is_not_repeated(self):
        for text in ("", "h:7080", "ftp://h", "http://", "http://h:99999", "http://h:x", "http://h/?a", "http://h/#a",
                     "http://h/a b", "http://h\r\nX: y", "http://[::1"):
            with self.assertRaises(InvalidRequest, msg=text) as caught:
                parse_url(text)
            self.assertEqual(caught.exception.field, "url")
        with self.assertRaises(InvalidRequest) as caught:
            parse_url("http://me:hunter2@h:1")
        self.assertNotIn("hunter2", str(caught.exception))


class EventStreamTest(unittest.TestCase):
    def test_events_are_the_same_however_their_bytes_are_cut(self):
        data = b": alive\n\nid: 4\n\nid: 5\r\nevent: commit\r\ndata: {\"a\":\r\ndata: 1}\r\n\r\nevent:x\ndata:y\nid:6\n\n"
        for step in (1, 2, 5, len(data)):
            decoder, found = Decoder(), []
            for at in range(0, len(data), step):
                found += decoder.feed(data[at : at + step])
            self.assertEqual(found, [("commit", '{"a":\n1}'), ("x", "y")])
            self.assertEqual(decoder.last_id, "6")

    def test_a_stream_goes_on_after_the_last_id_that_was_told_even_without_an_event(self):
        feed = EventFeed("a b", None)
        call = feed.request()
        self.assertEqual((call.target, "Last-Event-ID" in call.headers), ("/v1/events?pair=a+b", False))
        self.assertEqual(feed.feed(b"id: 17\n\n"), [])
        self.assertEqual(feed.request().headers["Last-Event-ID"], "17")
        self.assertEqual(EventFeed(None, 0).request().headers["Last-Event-ID"], "0")

    def test_pauses_between_fruitless_connections_grow_to_a_limit(self):
        feed = EventFeed(None, 0)
        pauses = [feed.pause() for _ in range(10)]
        self.assertEqual(pauses, sorted(pauses))
        self.assertEqual(pauses[-1], pauses[-2])
        feed.feed(b"id: 1\n\n")
        self.assertEqual(feed.pause(), pauses[0])

    def test_an_error_that_the_gateway_tells_ends_the_stream(self):
        with self.assertRaises(errors.WeighlockError) as caught:
            EventFeed(None, 0).feed(b'event: error\ndata: "disk on fire"\n\n')
        self.assertIn("disk on fire", str(caught.exception))


class KeyTest(unittest.TestCase):
    def file(self, text):
        handle, path = tempfile.mkstemp()
        self.addCleanup(os.unlink, path)
        os.write(handle, text)
        os.close(handle)
        return path

    def test_a_key_comes_from_argument_file_variable_or_the_public_default_in_this_order(self):
        variables = {"WEIGHLOCK_ADMIN_API_KEY": "of-variable"}
        path = self.file(b"of-file\n")
        self.assertEqual(find_key("given", None, variables).reveal(), "given")
        self.assertEqual(find_key(None, path, variables).reveal(), "of-file")
        self.assertEqual(find_key(None, None, variables).reveal(), "of-variable")
        self.assertEqual(find_key(None, None, {"WEIGHLOCK_ADMIN_API_KEY_FILE": path}).reveal(), "of-file")
        self.assertEqual(find_key(None, None, {}).reveal(), "areal-admin-key")

    def test_two_sources_at_one_level_are_a_mistake(self):
        for arguments in (("a", "b", {}), (None, None, {"WEIGHLOCK_ADMIN_API_KEY": "a", "WEIGHLOCK_ADMIN_API_KEY_FILE": "b"})):
            with self.assertRaises(InvalidRequest):
                find_key(*arguments)

    def test_what_no_header_can_carry_is_refused_and_not_repeated(self):
        for text in ("", "secret\r\nX: y", "secret key", "secr\u00e9t"):
            with self.assertRaises(InvalidRequest) as caught:
                Key(text)
            self.assertNotIn("secr", str(caught.exception))
        for text in (b"", b"one\ntwo\n", b"x" * 5000):
            with self.assertRaises(InvalidRequest):
                find_key(None, self.file(text), {})
        with self.assertRaises(InvalidRequest):
            find_key(None, "/nowhere/at/all", {})

    def test_a_key_is_shown_nowhere(self):
        self.assertNotIn("hidden-value", repr(Key("hidden-value")) + str(Key("hidden-value")))


class ExceptionTest(unittest.TestCase):
    def test_every_exception_survives_a_process_boundary(self):
        verdicts = {"http://h:1": values.Verdict("torn", "none", values.Cause("x", "y"))}
        update = values.read_update(scripted.UPDATE)
        for one in (
            errors.WeighlockError("a", code="internal"),
            errors.Unreachable("a"),
            errors.TimedOut("a"),
            errors.api_error("a", status=409, code="version_not_newer", field="version"),
            errors.UpdateFailed("a", code="quorum_lost", verdicts=verdicts, update=update),
            errors.GatewayStartFailed("a", exit_code=3, output="b"),
            errors.GatewayStartTimedOut("a"),
            errors.NotConnected("a"),
        ):
            copy = pickle.loads(pickle.dumps(one))
            self.assertIs(type(copy), type(one))
            self.assertEqual((str(copy), vars(copy)), (str(one), vars(one)))

    def test_exceptions_are_caught_by_the_kinds_that_the_other_controller_raises(self):
        for kind in (errors.NotConnected, errors.GatewayStartFailed, errors.BinaryNotFound):
            self.assertTrue(issubclass(kind, RuntimeError), kind)
        for kind in (errors.TimedOut, errors.GatewayStartTimedOut):
            self.assertTrue(issubclass(kind, TimeoutError), kind)

    def test_a_missing_or_wrong_member_of_an_answer_is_named(self):
        for change, word in (({"id": None}, "'id'"), ({"version": "3"}, "'version'"), ({"workers": {}}, "'workers'")):
            with self.assertRaises(BadAnswer) as caught:
                values.read_update({**scripted.UPDATE, **change})
            self.assertIn(word, str(caught.exception))
        with self.assertRaises(BadAnswer):
            values.read_pair([1])


if __name__ == "__main__":
    scripted.main()
