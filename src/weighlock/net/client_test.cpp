#include "weighlock/net/client.hpp"

#include <atomic>
#include <chrono>

#include "weighlock/core/limits.hpp"
#include "weighlock/net/loop_fixture.hpp"

namespace weighlock::testing {

namespace {

using Kind = TransportError::Kind;
using namespace std::chrono_literals;

const HttpRequest kGet{"GET", "/state", {}, ""};
const HttpRequest kPost{"POST", "/load", {{"Content-Type", "application/json"}}, "{}"};

class HttpClientTest : public LoopFixture {
 protected:
  int serve_raw(std::string bytes) {
    return serve([bytes](const HttpRequest&, const Responder& responder) { responder.raw(bytes); });
  }
  TransportError error_of_raw(std::string bytes) {
    const TransportError error = error_of(call(url_of(serve_raw(std::move(bytes))), kPost, within(5s)));
    EXPECT_FALSE(error.nothing_sent);
    return error;
  }
};

}  // namespace

TEST_F(HttpClientTest, request_and_answer_arrive_whole) {
  HttpRequest seen;
  const int port = serve([&](HttpRequest request, const Responder& responder) {
    seen = std::move(request);
    responder.respond({201, {{"X-Test", "yes"}}, "made"});
  });
  Url peer = url_of(port);
  peer.path = "/prefix";
  const HttpResponse response = response_of(call(peer, {"POST", "/a?b=c d", {{"X-Key", "v\r\nEvil: 1"}}, "body"}));
  EXPECT_EQ(201, response.status);
  EXPECT_EQ("made", response.body);
  EXPECT_EQ("yes", header(response.headers, "x-test"));
  EXPECT_EQ("POST", seen.method);
  EXPECT_EQ("/prefix/a?b=c%20d", seen.target);
  EXPECT_EQ("body", seen.body);
  EXPECT_EQ("v  Evil: 1", header(seen.headers, "x-key"));
  EXPECT_EQ("127.0.0.1:" + std::to_string(port), header(seen.headers, "host"));
}

TEST_F(HttpClientTest, without_a_target_a_url_is_called_as_it_is_given) {
  HttpRequest seen;
  Url peer = url_of(serve([&](HttpRequest request, const Responder& responder) {
    seen = std::move(request);
    responder.respond({});
  }));
  for (const auto& [path, target] : {std::pair("/fence", "/fence"), std::pair("", "/")}) {
    peer.path = path;
    response_of(call(peer, {"POST", "", {}, ""}));
    EXPECT_EQ(target, seen.target);
  }
}

TEST_F(HttpClientTest, bodyless_post_says_length_zero) {
  HttpRequest seen;
  const int port = serve([&](HttpRequest request, const Responder& responder) {
    seen = std::move(request);
    responder.respond({});
  });
  response_of(call(url_of(port), {"POST", "/pause", {}, ""}));
  EXPECT_EQ("0", header(seen.headers, "content-length"));
  response_of(call(url_of(port), kGet));
  EXPECT_EQ("", header(seen.headers, "content-length"));
}

TEST_F(HttpClientTest, refused_connection_has_sent_nothing) {
  RawListener closed;
  const int port = closed.port();
  closed.close();
  const TransportError error = error_of(call(url_of(port), kPost));
  EXPECT_EQ(Kind::refused, error.kind);
  EXPECT_TRUE(error.nothing_sent);
  EXPECT_EQ("connection refused", error.text);
}

TEST_F(HttpClientTest, connection_that_never_opens_times_out_with_nothing_sent) {
  // A full backlog drops further connection requests, as a host that is down does.
  const RawListener full(0);
  std::vector<RawSocket> fillers;
  for (int i = 0; i < 4; ++i) {
    fillers.emplace_back(open_socket(AF_INET));
    const auto address = numeric_address("127.0.0.1", full.port());
    ::connect(fillers.back().descriptor(), address->get(), address->size);
  }
  // By the call's deadline, and by the limit for connecting.
  for (const Milliseconds deadline : {200ms, 7'200'000ms}) {
    const TransportError error = error_of(call(url_of(full.port()), kPost, within(deadline)));
    EXPECT_EQ(Kind::timeout, error.kind);
    EXPECT_TRUE(error.nothing_sent);
    EXPECT_EQ("no connection within 0.2 s", error.text);
    use_client({.connect_timeout = 200ms});
  }
}

TEST_F(HttpClientTest, localhost_is_resolved_and_every_address_tried) {
  // "localhost" may come with ::1 first, where nothing listens.
  Url peer = url_of(serve([](const HttpRequest&, const Responder& responder) { responder.respond({}); }));
  peer.host = "localhost";
  EXPECT_EQ(200, response_of(call(peer, kGet, within(5s))).status);
}

TEST_F(HttpClientTest, ipv6_peer_is_reached) {
  std::string host;
  on_loop([&] {
    server_ = std::make_unique<HttpServer>(loop_, [&](HttpRequest request, const Responder& responder) {
      host = header(request.headers, "Host");
      responder.respond({});
    });
    HttpServer::Settings settings;
    settings.host = "::1";
    if (!server_->listen(settings)) server_.reset();
  });
  if (server_ == nullptr) GTEST_SKIP() << "this machine has no IPv6";
  Url peer = url_of(server_->port());
  peer.host = "::1";
  EXPECT_EQ(200, response_of(call(peer, kGet)).status);
  EXPECT_EQ("[::1]:" + std::to_string(server_->port()), host);
}

TEST_F(HttpClientTest, reset_after_the_request_may_have_had_effect) {
  const int port = serve([](const HttpRequest&, const Responder& responder) { responder.reset(); });
  const TransportError error = error_of(call(url_of(port), kPost));
  EXPECT_EQ(Kind::reset, error.kind);
  EXPECT_FALSE(error.nothing_sent);
  EXPECT_EQ("connection reset before any answer byte", error.text);
}

TEST_F(HttpClientTest, close_without_an_answer_is_a_reset) {
  EXPECT_EQ(Kind::reset, error_of_raw("").kind);
}

TEST_F(HttpClientTest, silent_peer_times_out_at_the_deadline) {
  const int port = serve([](const HttpRequest&, const Responder& responder) { responder.hang(); });
  const auto begin = std::chrono::steady_clock::now();
  const TransportError error = error_of(call(url_of(port), kPost, within(200ms)));
  const auto took = std::chrono::steady_clock::now() - begin;
  EXPECT_EQ(Kind::timeout, error.kind);
  EXPECT_FALSE(error.nothing_sent);
  EXPECT_EQ("no answer within 0.2 s", error.text);
  EXPECT_GE(took, 200ms);
  EXPECT_LT(took, 4s);  // below the limit of connecting
}

TEST_F(HttpClientTest, dripping_answer_ends_at_the_deadline_and_not_before) {
  const int port = serve([](const HttpRequest&, const Responder& responder) { responder.drip({200, {}, "ok"}, 30ms); });
  EXPECT_EQ("ok", response_of(call(url_of(port), kGet, within(60s))).body);
  const TransportError error = error_of(call(url_of(port), kPost, within(1s)));
  EXPECT_EQ(Kind::timeout, error.kind);
  EXPECT_FALSE(error.nothing_sent);
  EXPECT_NE(std::string::npos, error.text.find("bytes of it came")) << error.text;
}

TEST_F(HttpClientTest, answers_that_are_not_http_are_malformed) {
  for (const char* bytes :
       {"garbage\r\n\r\n", "HTTP/2.0 200 OK\r\n\r\n", "HTTP/1.1 20 OK\r\n\r\n", "SSH-2.0-OpenSSH_9.2\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\nContent-Length: 2\r\n\r\nab",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\nab",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "HTTP/1.1 101 Switching\r\n\r\n"}) {
    EXPECT_EQ(Kind::malformed, error_of_raw(bytes).kind) << bytes;
  }
}

TEST_F(HttpClientTest, answer_cut_short_is_never_taken_for_whole) {
  for (const char* bytes : {"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", "HTTP/1.1 200 OK\r\nContent-Le",
                            "HTTP/1.1", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
                            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nha"}) {
    const TransportError error = error_of_raw(bytes);
    EXPECT_EQ(Kind::reset, error.kind) << bytes << " " << error.text;
    EXPECT_NE(std::string::npos, error.text.find("middle of the answer")) << error.text;
  }
}

TEST_F(HttpClientTest, answer_that_ends_with_the_connection_is_whole) {
  EXPECT_EQ("all of it", response_of(call(url_of(serve_raw("HTTP/1.0 200 OK\r\n\r\nall of it")), kPost)).body);
}

TEST_F(HttpClientTest, oversized_answers_are_refused) {
  EXPECT_EQ(Kind::too_large, error_of_raw("HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n").kind);
  EXPECT_EQ(Kind::too_large, error_of_raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffff\r\n").kind);
  const std::string large(limits::kAnswerHeaderBytesMax + 1, 'x');
  EXPECT_EQ(Kind::too_large, error_of_raw("HTTP/1.1 200 OK\r\nX: " + large + "\r\n\r\n").kind);
  std::string many = "HTTP/1.1 200 OK\r\n";
  while (many.size() < limits::kAnswerHeaderBytesMax + 1000) many += "X-Filler: 0123456789012345678901234567890\r\n";
  EXPECT_EQ(Kind::too_large, error_of_raw(many + "\r\n").kind);
}

TEST_F(HttpClientTest, interim_answers_are_skipped) {
  const int port =
      serve_raw("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nX: y\r\n\r\nHTTP/1.1 204 No\r\n\r\n");
  EXPECT_EQ(204, response_of(call(url_of(port), kPost)).status);
}

TEST_F(HttpClientTest, answer_to_head_has_no_body_to_wait_for) {
  const int port = serve([](const HttpRequest&, const Responder& responder) { responder.respond({200, {}, "12345"}); });
  for (int i = 0; i < 2; ++i) {
    const HttpResponse response = response_of(call(url_of(port), {"HEAD", "/", {}, ""}, within(5s)));
    EXPECT_EQ("", response.body);
    EXPECT_EQ("5", header(response.headers, "Content-Length"));
  }
}

TEST_F(HttpClientTest, cancelled_call_is_reset_at_the_peer) {
  const RawListener listener;
  auto result = begin_call(url_of(listener.port()), kPost);
  RawSocket peer = listener.accept();
  EXPECT_TRUE(peer.read_until("{}").ends_with("{}"));
  on_loop([&] { client_->cancel(last_call_); });
  const TransportError error = error_of(result.get());
  EXPECT_EQ(Kind::cancelled, error.kind);
  EXPECT_FALSE(error.nothing_sent);
  char byte = 0;
  EXPECT_EQ(-1, ::recv(peer.descriptor(), &byte, 1, 0));
  EXPECT_EQ(ECONNRESET, errno);
}

TEST_F(HttpClientTest, call_cancelled_at_once_has_sent_nothing) {
  const RawListener listener;
  auto outcome = std::make_shared<std::promise<HttpResult>>();
  on_loop([&] {
    client_ = std::make_unique<HttpClient>(loop_);
    bool called = false;
    const auto id = client_->send(url_of(listener.port()), kPost, {}, [&called, outcome](HttpResult result) {
      called = true;
      outcome->set_value(std::move(result));
    });
    client_->cancel(id);
    client_->cancel(id);
    EXPECT_FALSE(called);
    called = false;
  });
  const TransportError error = error_of(outcome->get_future().get());
  EXPECT_EQ(Kind::cancelled, error.kind);
  EXPECT_TRUE(error.nothing_sent);
}

TEST_F(HttpClientTest, calls_end_with_their_client) {
  const int port = serve([](const HttpRequest&, const Responder& responder) { responder.hang(); });
  auto first = begin_call(url_of(port), kPost);
  auto second = begin_call(url_of(port), kGet);
  on_loop([&] { client_.reset(); });
  EXPECT_EQ(Kind::cancelled, error_of(first.get()).kind);
  EXPECT_EQ(Kind::cancelled, error_of(second.get()).kind);
}

TEST_F(HttpClientTest, client_may_be_destroyed_by_its_own_callback) {
  const int port = serve([](const HttpRequest&, const Responder& responder) { responder.respond({}); });
  std::promise<void> done;
  on_loop([&] {
    client_ = std::make_unique<HttpClient>(loop_);
    client_->send(url_of(port), kGet, {}, [&](const HttpResult&) {
      client_.reset();
      done.set_value();
    });
  });
  EXPECT_EQ(std::future_status::ready, done.get_future().wait_for(5s));
}

// Connections

TEST_F(HttpClientTest, connection_is_used_again_unless_a_fresh_one_is_asked_for) {
  const RawListener listener;
  std::vector<std::string> served;
  std::thread peer([&] {
    RawSocket first = listener.accept();
    for (int i = 0; i < 2; ++i) {
      first.read_until("\r\n\r\n");
      first.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirst");
    }
    const RawSocket second = listener.accept();
    second.read_until("\r\n\r\n");
    second.send("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecond");
  });
  const Url url = url_of(listener.port());
  EXPECT_EQ("first", response_of(call(url, kGet)).body);
  EXPECT_EQ("first", response_of(call(url, kGet)).body);
  EXPECT_EQ("second", response_of(call(url, kGet, {.fresh_connection = true})).body);
  peer.join();
}

TEST_F(HttpClientTest, kept_connection_that_was_idle_for_too_long_is_not_used) {
  const RawListener listener;
  std::thread peer([&] {
    RawSocket first = listener.accept();
    for (int i = 0; i < 2; ++i) {
      first.read_until("\r\n\r\n");
      first.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirst");
    }
    const RawSocket second = listener.accept();
    second.read_until("{}");
    second.send("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecond");
  });
  const Url url = url_of(listener.port());
  EXPECT_EQ("first", response_of(call(url, kGet)).body);
  EXPECT_EQ("first", response_of(call(url, kGet, {.idle_at_most = 60s})).body);
  std::this_thread::sleep_for(5ms);
  EXPECT_EQ("second", response_of(call(url, kPost, {.idle_at_most = 1ms})).body);
  peer.join();
}

TEST_F(HttpClientTest, connection_is_not_kept_after_connection_close_or_stray_bytes) {
  for (const char* answer : {"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
                             "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 Forged\r\n\r\n",
                             "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n"}) {
    const RawListener listener;
    std::thread peer([&] {
      const RawSocket first = listener.accept();
      first.read_until("\r\n\r\n");
      first.send(answer);
      const RawSocket second = listener.accept();
      second.read_until("\r\n\r\n");
      second.send("HTTP/1.1 202 OK\r\nContent-Length: 0\r\n\r\n");
    });
    EXPECT_EQ(200, response_of(call(url_of(listener.port()), kGet)).status);
    EXPECT_EQ(202, response_of(call(url_of(listener.port()), kGet)).status);
    peer.join();
  }
}

TEST_F(HttpClientTest, kept_connection_that_the_peer_closed_is_replaced) {
  const RawListener listener;
  const Url url = url_of(listener.port());
  auto first = begin_call(url, kGet);
  RawSocket peer = listener.accept();
  peer.read_until("\r\n\r\n");
  peer.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  response_of(first.get());
  peer.close();
  auto second = begin_call(url, kPost);
  const RawSocket again = listener.accept();
  again.read_until("{}");
  again.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  EXPECT_EQ(200, response_of(second.get()).status);
}

TEST_F(HttpClientTest, reused_connection_lost_under_a_request_is_retried_for_get_alone) {
  for (const HttpRequest& request : {kGet, kPost}) {
    const RawListener listener;
    std::thread peer([&] {
      RawSocket first = listener.accept();
      first.read_until("\r\n\r\n");
      first.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
      first.read_until("\r\n\r\n");
      first.close();
      if (request.method == "POST") return;
      const RawSocket second = listener.accept();
      second.read_until("\r\n\r\n");
      second.send("HTTP/1.1 202 OK\r\nContent-Length: 0\r\n\r\n");
    });
    response_of(call(url_of(listener.port()), kGet));
    const HttpResult result = call(url_of(listener.port()), request);
    if (request.method == "GET") {
      EXPECT_EQ(202, response_of(result).status);
    } else {
      EXPECT_EQ(Kind::reset, error_of(result).kind);
      EXPECT_FALSE(error_of(result).nothing_sent);
    }
    peer.join();
  }
}

TEST_F(HttpClientTest, retry_that_is_refused_does_not_claim_that_nothing_was_sent) {
  RawListener listener;
  std::thread peer([&] {
    RawSocket first = listener.accept();
    first.read_until("\r\n\r\n");
    first.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    first.read_until("\r\n\r\n");
    listener.close();
    first.close();
  });
  response_of(call(url_of(listener.port()), kGet));
  const TransportError error = error_of(call(url_of(listener.port()), kGet));
  EXPECT_EQ(Kind::refused, error.kind);
  EXPECT_FALSE(error.nothing_sent);
  peer.join();
}

TEST_F(HttpClientTest, get_is_retried_only_once) {
  const RawListener listener;
  std::thread peer([&] {
    RawSocket first = listener.accept();
    first.read_until("\r\n\r\n");
    first.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    first.read_until("\r\n\r\n");
    first.close();
    const RawSocket second = listener.accept();
    second.read_until("\r\n\r\n");
  });
  response_of(call(url_of(listener.port()), kGet));
  const TransportError error = error_of(call(url_of(listener.port()), kGet));
  EXPECT_EQ(Kind::reset, error.kind);
  EXPECT_FALSE(error.nothing_sent);
  peer.join();
}

TEST_F(HttpClientTest, early_answer_to_a_large_request_is_read) {
  const int port = serve([](const HttpRequest&, const Responder& responder) { responder.respond({}); });
  HttpRequest large = kPost;
  large.body.assign(limits::kRequestBodyBytesMax + 1, 'x');
  EXPECT_EQ(413, response_of(call(url_of(port), std::move(large), within(10s))).status);
}

TEST_F(HttpClientTest, large_bodies_pass_both_ways) {
  const int port = serve([](HttpRequest request, const Responder& responder) {
    responder.respond({200, {}, std::move(request.body)});
  });
  HttpRequest large = kPost;
  for (int i = 0; i < 2'000'000; ++i) large.body += static_cast<char>(i * 7);
  const HttpRequest sent = large;
  EXPECT_TRUE(sent.body == response_of(call(url_of(port), std::move(large), within(10s))).body);
}

TEST_F(HttpClientTest, two_hundred_calls_run_at_once) {
  // Nobody is answered before all have asked, so all 200 connections are open together.
  constexpr int kCalls = 200;
  auto waiting = std::make_shared<std::vector<Responder>>();
  const int port = serve([waiting](const HttpRequest&, Responder responder) {
    waiting->push_back(std::move(responder));
    if (waiting->size() < kCalls) return;
    for (const Responder& each : *waiting) each.respond({200, {}, "together"});
    waiting->clear();
  });
  std::vector<std::future<HttpResult>> results;
  for (int i = 0; i < kCalls; ++i) results.push_back(begin_call(url_of(port), kPost, within(10s)));
  for (auto& result : results) EXPECT_EQ("together", response_of(result.get()).body);
}

}  // namespace weighlock::testing
