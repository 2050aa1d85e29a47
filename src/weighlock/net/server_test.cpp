// long because each way to break a request has its own short test.
#include "weighlock/net/server.hpp"

#include <chrono>
#include <mutex>

#include "weighlock/net/loop_fixture.hpp"

namespace weighlock::testing {

namespace {

using namespace std::chrono_literals;

const std::string kHost = "Host: here\r\n";

int status_of(const std::string& answer) {
  return answer.starts_with("HTTP/1.1 ") ? std::stoi(answer.substr(9, 3)) : 0;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class HttpServerTest : public LoopFixture {
 protected:
  // Answers with the method, the target and the body.
  int serve_echo(ServerLimits limits = {}) {
    return serve(
        [this](const HttpRequest& request, const Responder& responder) {
          ++handled_;
          responder.respond({200, {}, request.method + " " + request.target + " " + request.body});
        },
        limits);
  }
  // The whole connection's answer to these bytes; what refuses must also close.
  std::string answer_to(int port, const std::string& bytes) const {
    const RawSocket socket = RawSocket::connect_to(port);
    socket.send(bytes);
    return socket.read_to_end();
  }
  void expect_refused(int port, int status, const std::string& bytes) const {
    const std::string answer = answer_to(port, bytes);
    EXPECT_EQ(status, status_of(answer)) << bytes.substr(0, 200) << "\n" << answer;
    EXPECT_TRUE(contains(answer, "Connection: close\r\n")) << answer;
    EXPECT_TRUE(contains(answer, "Content-Type: application/json\r\n")) << answer;
    EXPECT_TRUE(contains(answer, "{\"detail\":\"")) << answer;
  }

  std::atomic<int> handled_ = 0;
};

}  // namespace

TEST_F(HttpServerTest, ambiguous_framing_is_refused_before_the_handler) {
  const int port = serve_echo();
  const std::string post = "POST /x HTTP/1.1\r\n" + kHost;
  for (const std::string& bytes : std::vector<std::string>{
           post + "Transfer-Encoding: gzip\r\nContent-Length: 2\r\n\r\nab",
           post + "Transfer-Encoding: gzip\r\n\r\n",
           post + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
           post + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
           post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
           post + "Transfer-Encoding: xchunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
           post + "Transfer-Encoding:\r\n\r\n",
           post + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
           post + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
           post + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
           post + "Content-Length: 2\r\nContent-Length: 2\r\n\r\nab",
           post + "Content-Length: 2\r\nContent-Length: 3\r\n\r\nabc",
           post + "Content-Length: 2, 2\r\n\r\nab",
           post + "Content-Length: +2\r\n\r\nab",
           post + "Content-Length: -1\r\n\r\n",
           post + "Content-Length: 0x2\r\n\r\nab",
           post + "Content-Length: 2 2\r\n\r\nab",
           post + "Content-Length:\r\n\r\n",
           post + "Content-Length: 99999999999999999999\r\n\r\n",
           "POST /x HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
       }) {
    expect_refused(port, 400, bytes);
  }
  EXPECT_EQ(0, handled_);
}

TEST_F(HttpServerTest, what_is_not_http_1_is_refused) {
  const int port = serve_echo();
  for (const std::string& bytes : std::vector<std::string>{
           "hello\r\n\r\n",
           "GET / HTTP/2.0\r\n" + kHost + "\r\n",
           "GET / HTTP/1.2\r\n" + kHost + "\r\n",
           "GET  / HTTP/1.1\r\n" + kHost + "\r\n",
           "GET / HTTP/1.1\n" + kHost + "\n",
           "GET nothing HTTP/1.1\r\n" + kHost + "\r\n",
           "GET ftp://here/x HTTP/1.1\r\n" + kHost + "\r\n",
           "CONNECT here:80 HTTP/1.1\r\n" + kHost + "\r\n",
           "GET / HTTP/1.1\r\n\r\n",
           "GET / HTTP/1.1\r\n" + kHost + kHost + "\r\n",
           "GET / HTTP/1.1\r\n" + kHost + "No colon\r\n\r\n",
           "GET / HTTP/1.1\r\n" + kHost + std::string("X: a\0b\r\n\r\n", 10),
           "POST / HTTP/1.1\r\n" + kHost + "Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
           "POST / HTTP/1.1\r\n" + kHost + "Transfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n0\r\n\r\n",
       }) {
    expect_refused(port, 400, bytes);
  }
  EXPECT_EQ(0, handled_);
}

TEST_F(HttpServerTest, oversized_requests_are_refused) {
  ServerLimits limits;
  limits.header_bytes = 1000;
  limits.body_bytes = 500;
  const int port = serve_echo(limits);
  expect_refused(port, 431, "GET / HTTP/1.1\r\n" + kHost + "X: " + std::string(1000, 'x') + "\r\n\r\n");
  expect_refused(port, 431, "GET /" + std::string(2000, 'x'));
  std::string many = "GET / HTTP/1.1\r\n" + kHost;
  for (int i = 0; i < 40; ++i) many += "X-Filler: 0123456789012345\r\n";
  expect_refused(port, 431, many + "\r\n");
  const std::string post = "POST / HTTP/1.1\r\n" + kHost;
  expect_refused(port, 413, post + "Content-Length: 501\r\n\r\n" + std::string(501, 'x'));
  expect_refused(port, 413,
                 post + "Transfer-Encoding: chunked\r\n\r\n1ff\r\n" + std::string(511, 'x') + "\r\n0\r\n\r\n");
  expect_refused(port, 413, post + "Transfer-Encoding: chunked\r\n\r\n96\r\n" + std::string(150, 'x') + "\r\n190\r\n");
  // Headers that dribble in line by line, an endless chunk header, and endless trailers.
  expect_refused(port, 431, post + "Transfer-Encoding: chunked\r\n\r\n1;" + std::string(2000, 'x'));
  expect_refused(port, 431, post + "Transfer-Encoding: chunked\r\n\r\n0\r\n" + many.substr(many.find("X-Filler")));
  const RawSocket slow = RawSocket::connect_to(port);
  slow.send("GET / HTTP/1.1\r\n" + kHost);
  for (int i = 0; i < 60; ++i) slow.send("X-Filler: 0123456789012345\r\n");
  EXPECT_EQ(431, status_of(slow.read_to_end()));
  EXPECT_EQ(0, handled_);
}

TEST_F(HttpServerTest, refused_peer_that_goes_on_sending_is_listened_to_for_a_while) {
  // Closing at once would reset the connection, and the answer might be lost with it.
  const RawSocket socket = RawSocket::connect_to(serve_echo());
  socket.send("POST / HTTP/1.1\r\n" + kHost + "Content-Length: 99999999999\r\n\r\n");
  EXPECT_EQ(413, status_of(socket.read_to_end()));
  const std::string more(100'000, 'x');
  for (int i = 0; i < 10; ++i) EXPECT_GT(::send(socket.descriptor(), more.data(), more.size(), MSG_NOSIGNAL), 0);
}

TEST_F(HttpServerTest, chunked_body_arrives_whole_and_trailers_are_no_headers) {
  std::vector<HttpHeader> headers;
  std::string body;
  const int port = serve([&](const HttpRequest& request, const Responder& responder) {
    headers = request.headers;
    body = request.body;
    responder.respond({});
  });
  answer_to(port, "POST / HTTP/1.1\r\n" + kHost +
                      "Connection: close\r\ntransfer-ENCODING: Chunked\r\n\r\n2;a=b\r\nab\r\n3\r\ncde\r\n0\r\n"
                      "Authorization: forged\r\n\r\n");
  EXPECT_EQ("abcde", body);
  EXPECT_EQ("", header(headers, "Authorization"));
}

TEST_F(HttpServerTest, request_may_arrive_byte_by_byte) {
  const RawSocket socket = RawSocket::connect_to(serve_echo());
  const std::string request = "POST /p HTTP/1.1\r\n" + kHost + "Content-Length: 3\r\n\r\nabc";
  for (int round = 0; round < 2; ++round) {
    for (const char byte : request) socket.send(std::string(1, byte));
    EXPECT_TRUE(contains(socket.read_until("POST /p abc"), "200 OK"));
  }
}

TEST_F(HttpServerTest, slow_request_is_ended_at_one_wall_clock_deadline) {
  ServerLimits limits;
  limits.request_read = 150ms;
  const int port = serve_echo(limits);
  const RawSocket socket = RawSocket::connect_to(port);
  std::thread dripping([&] {
    // Never idle, and never done: a limit on each wait would not end it.
    for (int i = 0; i < 100; ++i) {
      socket.send("X");
      std::this_thread::sleep_for(5ms);
    }
  });
  const std::string answer = socket.read_to_end();
  dripping.join();
  EXPECT_EQ(408, status_of(answer));
  EXPECT_TRUE(contains(answer, "Connection: close\r\n"));
}

TEST_F(HttpServerTest, idle_connection_is_closed) {
  ServerLimits limits;
  limits.idle = 50ms;
  const RawSocket socket = RawSocket::connect_to(serve_echo(limits));
  socket.send("GET /a HTTP/1.1\r\n" + kHost + "\r\n");
  EXPECT_TRUE(contains(socket.read_to_end(), "GET /a"));
}

TEST_F(HttpServerTest, connection_too_many_is_told_and_closed) {
  ServerLimits limits;
  limits.connections = 1;
  const int port = serve_echo(limits);
  RawSocket first = RawSocket::connect_to(port);
  // A request that has begun, and the server knows it: an idle connection would make room.
  first.send("POST /a HTTP/1.1\r\n" + kHost + "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n");
  first.read_until("100 Continue\r\n\r\n");
  expect_refused(port, 503, "GET /b HTTP/1.1\r\n" + kHost + "\r\n");
  EXPECT_EQ(0, handled_);
  first.close();
  // The place is free again, as soon as the server has seen the end.
  std::string answer;
  for (int i = 0; i < 100 && !contains(answer, "200 OK"); ++i) {
    if (i > 0) std::this_thread::sleep_for(20ms);
    answer = answer_to(port, "GET /c HTTP/1.1\r\nConnection: close\r\n" + kHost + "\r\n");
  }
  EXPECT_TRUE(contains(answer, "GET /c")) << answer;
}

TEST_F(HttpServerTest, pipelined_requests_are_answered_in_order_and_one_at_a_time) {
  std::mutex mutex;
  std::vector<std::thread> workers;
  int under_way = 0;
  int most = 0;
  const int port = serve([&](const HttpRequest& request, Responder responder) {
    const std::scoped_lock lock(mutex);
    most = std::max(most, ++under_way);
    workers.emplace_back([&, target = request.target, responder = std::move(responder)] {
      // The earlier, the slower.
      std::this_thread::sleep_for(target == "/1" ? 30ms : 0ms);
      const std::scoped_lock inner(mutex);
      --under_way;
      responder.respond({200, {}, "<" + target + ">"});
    });
  });
  const RawSocket socket = RawSocket::connect_to(port);
  std::string all;
  for (int i = 1; i <= 20; ++i) all += "GET /" + std::to_string(i) + " HTTP/1.1\r\n" + kHost + "\r\n";
  socket.send(all);
  const std::string answers = socket.read_until("</20>");
  std::size_t last = 0;
  for (int i = 1; i <= 20; ++i) {
    const std::size_t at = answers.find("</" + std::to_string(i) + ">");
    ASSERT_NE(std::string::npos, at) << answers;
    EXPECT_GT(at, last);
    last = at;
  }
  EXPECT_EQ(1, most);
  for (std::thread& worker : workers) worker.join();
}

TEST_F(HttpServerTest, peer_that_only_ends_sending_gets_all_its_answers) {
  const RawSocket socket = RawSocket::connect_to(serve_echo());
  socket.send("GET /1 HTTP/1.1\r\n" + kHost + "\r\nGET /2 HTTP/1.1\r\n" + kHost + "\r\n");
  socket.end_sending();
  const std::string answers = socket.read_to_end();
  EXPECT_TRUE(contains(answers, "GET /1")) << answers;
  EXPECT_TRUE(contains(answers, "GET /2")) << answers;
}

TEST_F(HttpServerTest, head_is_answered_without_a_body) {
  const int port = serve_echo();
  const RawSocket socket = RawSocket::connect_to(port);
  socket.send("HEAD /h HTTP/1.1\r\n" + kHost + "\r\nGET /g HTTP/1.1\r\n" + kHost + "\r\n");
  const std::string answers = socket.read_until("GET /g ");
  EXPECT_TRUE(contains(answers, "Content-Length: 8\r\n")) << answers;
  EXPECT_FALSE(contains(answers, "HEAD /h")) << answers;
}

TEST_F(HttpServerTest, absolute_targets_become_paths) {
  const int port = serve_echo();
  const auto target_of = [&](const std::string& target) {
    const std::string answer = answer_to(port, "GET " + target + " HTTP/1.1\r\nConnection: close\r\n" + kHost + "\r\n");
    const std::size_t at = answer.find("\r\n\r\n");
    return at == std::string::npos ? answer : answer.substr(at + 4);
  };
  EXPECT_EQ("GET /a?b=http://c ", target_of("http://here:80/a?b=http://c"));
  EXPECT_EQ("GET /?q ", target_of("HTTP://here?q"));
  EXPECT_EQ("GET / ", target_of("http://here"));
  EXPECT_EQ("GET /x://y ", target_of("/x://y"));
}

TEST_F(HttpServerTest, http_1_0_is_closed_after_the_answer_unless_kept_alive) {
  const int port = serve_echo();
  EXPECT_TRUE(contains(answer_to(port, "GET /o HTTP/1.0\r\n\r\n"), "GET /o"));
  const RawSocket kept = RawSocket::connect_to(port);
  for (int i = 0; i < 2; ++i) {
    kept.send("GET /k HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    EXPECT_TRUE(contains(kept.read_until("GET /k "), "Connection: keep-alive\r\n"));
  }
}

TEST_F(HttpServerTest, expectation_is_answered_before_the_body_comes) {
  const RawSocket socket = RawSocket::connect_to(serve_echo());
  socket.send("POST /e HTTP/1.1\r\n" + kHost + "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_EQ("HTTP/1.1 100 Continue\r\n\r\n", socket.read_until("\r\n\r\n"));
  socket.send("ab");
  EXPECT_TRUE(contains(socket.read_until("POST /e ab"), "200 OK"));
}

TEST_F(HttpServerTest, dropped_request_is_answered_500) {
  const int port = serve([](const HttpRequest&, const Responder&) {});
  const std::string answer = answer_to(port, "GET / HTTP/1.1\r\nConnection: close\r\n" + kHost + "\r\n");
  EXPECT_EQ(500, status_of(answer));
  EXPECT_TRUE(contains(answer, "{\"detail\":\"")) << answer;
}

TEST_F(HttpServerTest, only_the_first_answer_counts) {
  const int port = serve([](const HttpRequest&, const Responder& responder) {
    responder.respond({200, {}, "one"});
    responder.respond({200, {}, "two"});
    responder.reset();
  });
  const std::string answer = answer_to(port, "GET / HTTP/1.1\r\nConnection: close\r\n" + kHost + "\r\n");
  EXPECT_TRUE(answer.ends_with("one")) << answer;
}

// Streams

TEST_F(HttpServerTest, stream_is_chunked_on_1_1_and_ends_the_connection_on_1_0) {
  const int port = serve([](const HttpRequest&, const Responder& responder) {
    responder.begin_stream({200, {{"Content-Type", "text/event-stream"}}, ""});
    responder.write("data: 1\n\n");
    responder.write("data: 2\n\n");
    responder.end_stream();
  });
  const RawSocket socket = RawSocket::connect_to(port);
  for (int i = 0; i < 2; ++i) {
    socket.send("GET / HTTP/1.1\r\n" + kHost + "\r\n");
    const std::string answer = socket.read_until("0\r\n\r\n");
    EXPECT_TRUE(contains(answer, "Transfer-Encoding: chunked\r\n")) << answer;
    EXPECT_TRUE(answer.ends_with("9\r\ndata: 1\n\n\r\n9\r\ndata: 2\n\n\r\n0\r\n\r\n")) << answer;
  }
  const std::string old = answer_to(port, "GET / HTTP/1.0\r\n\r\n");
  EXPECT_TRUE(old.ends_with("\r\n\r\ndata: 1\n\ndata: 2\n\n")) << old;
}

TEST_F(HttpServerTest, stream_dropped_unended_is_cut_short) {
  const int port = serve([](const HttpRequest&, const Responder& responder) {
    responder.begin_stream({});
    responder.write("part");
  });
  const std::string answer = answer_to(port, "GET / HTTP/1.1\r\n" + kHost + "\r\n");
  EXPECT_FALSE(answer.ends_with("0\r\n\r\n")) << answer;
}

TEST_F(HttpServerTest, hang_up_is_told_while_an_answer_is_due) {
  for (const bool streaming : {false, true}) {
    for (const bool abruptly : {false, true}) {
      std::promise<Responder> asked;
      std::promise<void> closed;
      const int port = serve([&](const HttpRequest&, const Responder& responder) {
        responder.on_closed([&] { closed.set_value(); });
        if (streaming) responder.begin_stream({});
        asked.set_value(responder);
      });
      RawSocket socket = RawSocket::connect_to(port);
      socket.send("GET / HTTP/1.1\r\n" + kHost + "\r\n");
      const Responder responder = asked.get_future().get();
      if (streaming) socket.read_until("\r\n\r\n");
      EXPECT_FALSE(responder.closed());
      abruptly ? socket.reset() : socket.close();
      EXPECT_EQ(std::future_status::ready, closed.get_future().wait_for(5s));
      EXPECT_TRUE(responder.closed());
      responder.write("nobody reads this");
      responder.respond({});
    }
  }
}

TEST_F(HttpServerTest, hang_up_is_not_told_after_the_answer) {
  std::atomic<bool> told = false;
  const auto held = std::make_shared<int>(0);
  const int port = serve([&](const HttpRequest&, const Responder& responder) {
    // A callback that holds its own Responder goes with the answer.
    responder.on_closed([&told, held, responder] { told = true; });
    responder.respond({});
  });
  answer_to(port, "GET / HTTP/1.1\r\nConnection: close\r\n" + kHost + "\r\n");
  on_loop([&] { server_.reset(); });
  EXPECT_FALSE(told);
  EXPECT_EQ(1, held.use_count());
}

TEST_F(HttpServerTest, reader_of_a_stream_that_falls_behind_is_dropped) {
  ServerLimits limits;
  limits.stream_backlog_bytes = 100'000;
  std::promise<Responder> asked;
  std::promise<void> closed;
  const int port = serve(
      [&](const HttpRequest&, const Responder& responder) {
        responder.on_closed([&] { closed.set_value(); });
        responder.begin_stream({});
        asked.set_value(responder);
      },
      limits);
  const RawSocket socket = RawSocket::connect_to(port);
  socket.send("GET / HTTP/1.1\r\n" + kHost + "\r\n");
  const Responder responder = asked.get_future().get();
  for (int i = 0; i < 2000 && !responder.closed(); ++i) {
    on_loop([&] { responder.write(std::string(50'000, 'x')); });
  }
  EXPECT_EQ(std::future_status::ready, closed.get_future().wait_for(5s));
}

TEST_F(HttpServerTest, client_that_takes_no_byte_of_its_answer_is_dropped) {
  ServerLimits limits;
  limits.answer_stall = 100ms;
  std::promise<void> closed;
  const int port = serve(
      [&](const HttpRequest&, const Responder& responder) {
        responder.on_closed([&] { closed.set_value(); });
        responder.respond({200, {}, std::string(20'000'000, 'x')});
      },
      limits);
  const RawSocket socket = RawSocket::connect_to(port);
  socket.send("GET / HTTP/1.1\r\n" + kHost + "\r\n");
  EXPECT_EQ(std::future_status::ready, closed.get_future().wait_for(5s));
}

// Bodies that are shared

TEST_F(HttpServerTest, shared_body_is_sent_whole_to_each_reader_and_let_go_after_the_last) {
  auto body = std::make_shared<std::string>();
  for (int i = 0; body->size() < 5'000'000; ++i) *body += std::to_string(i);
  std::weak_ptr<const std::string> held = body;
  const int port = serve([body](const HttpRequest&, const Responder& responder) {
    responder.respond({200, {{"X-Kind", "shared"}}, "not this"}, body);
  });
  std::vector<RawSocket> sockets;
  for (int i = 0; i < 8; ++i) {
    sockets.push_back(RawSocket::connect_to(port));
    sockets.back().send("HEAD / HTTP/1.1\r\n" + kHost + "\r\nGET / HTTP/1.1\r\nConnection: close\r\n" + kHost + "\r\n");
  }
  for (const RawSocket& socket : sockets) {
    const std::string answers = socket.read_to_end();
    const std::size_t first = answers.find("\r\n\r\n") + 4;
    EXPECT_TRUE(contains(answers.substr(0, first), "Content-Length: " + std::to_string(body->size()) + "\r\n"));
    const std::size_t second = answers.find("\r\n\r\n", first) + 4;
    EXPECT_TRUE(contains(answers.substr(first, second - first), "X-Kind: shared\r\n"));
    EXPECT_TRUE(answers.substr(second) == *body);
  }
  on_loop([&] { server_.reset(); });
  body.reset();
  EXPECT_TRUE(held.expired());
}

TEST_F(HttpServerTest, connection_goes_on_after_a_shared_body) {
  const auto body = std::make_shared<const std::string>(300'000, 'x');
  const int port = serve([body](const HttpRequest& request, const Responder& responder) {
    if (request.target == "/large") return responder.respond({}, body);
    responder.respond({200, {}, "small."});
  });
  const RawSocket socket = RawSocket::connect_to(port);
  for (int i = 0; i < 2; ++i) {
    socket.send("GET /large HTTP/1.1\r\n" + kHost + "\r\nGET /small HTTP/1.1\r\n" + kHost + "\r\n");
    EXPECT_GT(socket.read_until("small.").size(), body->size());
  }
}

TEST_F(HttpServerTest, large_answer_to_a_fast_reader_lets_the_others_be_answered_in_between) {
  // The loop writes to itself here: what it writes at once, nobody can have asked for meanwhile.
  const auto body = std::make_shared<const std::string>(64'000'000, 'x');
  std::atomic<bool> large_ended = false;
  const int port = serve([body](const HttpRequest& request, const Responder& responder) {
    if (request.target == "/large") return responder.respond({}, body);
    responder.respond({200, {}, "small."});
  });
  int answered_meanwhile = 0;
  // Again where this thread got no turn while the answer went; a loop that keeps to one connection never passes.
  for (int tries = 0; tries < 5 && answered_meanwhile <= 3; ++tries) {
    large_ended = false;
    answered_meanwhile = 0;
    const RawSocket large = RawSocket::connect_to(port);
    std::thread reading([&] {
      large.send("GET /large HTTP/1.1\r\nConnection: close\r\n" + kHost + "\r\n");
      EXPECT_GT(large.read_to_end().size(), body->size());
      large_ended = true;
    });
    const RawSocket small = RawSocket::connect_to(port);
    while (!large_ended) {
      small.send("GET /small HTTP/1.1\r\n" + kHost + "\r\n");
      EXPECT_TRUE(small.read_until("small.").ends_with("small."));
      if (!large_ended) ++answered_meanwhile;
    }
    reading.join();
  }
  EXPECT_GT(answered_meanwhile, 3);
}

// Life and death

TEST_F(HttpServerTest, open_connections_outlive_the_end_of_accepting) {
  const int port = serve_echo();
  const RawSocket socket = RawSocket::connect_to(port);
  socket.send("GET /1 HTTP/1.1\r\n" + kHost + "\r\n");
  socket.read_until("GET /1 ");
  on_loop([&] { server_->stop_accepting(); });
  socket.send("GET /2 HTTP/1.1\r\n" + kHost + "\r\n");
  EXPECT_TRUE(contains(socket.read_until("GET /2 "), "200 OK"));
  const int late = open_socket(AF_INET);
  const auto address = numeric_address("127.0.0.1", port);
  EXPECT_EQ(-1, ::connect(late, address->get(), address->size));
  ::close(late);
}

TEST_F(HttpServerTest, responder_outlives_its_server) {
  std::promise<Responder> asked;
  const int port = serve([&](const HttpRequest&, const Responder& responder) { asked.set_value(responder); });
  const RawSocket socket = RawSocket::connect_to(port);
  socket.send("GET / HTTP/1.1\r\n" + kHost + "\r\n");
  const Responder responder = asked.get_future().get();
  on_loop([&] { server_.reset(); });
  EXPECT_EQ("", socket.read_to_end());
  EXPECT_TRUE(responder.closed());
  responder.respond({});
}

TEST_F(HttpServerTest, connections_wait_while_the_loop_is_busy) {
  const int port = serve_echo();
  std::promise<void> busy;
  std::promise<void> go_on;
  loop_.post([&] {
    busy.set_value();
    go_on.get_future().wait();
  });
  busy.get_future().wait();
  std::vector<RawSocket> waiting;
  for (int i = 0; i < 400; ++i) {  // three times what a backlog of 128 would hold
    waiting.push_back(RawSocket::connect_to(port));
    waiting.back().send("GET /" + std::to_string(i) + " HTTP/1.1\r\nConnection: close\r\n" + kHost + "\r\n");
  }
  go_on.set_value();
  for (const RawSocket& socket : waiting) EXPECT_EQ(200, status_of(socket.read_to_end()));
}

TEST_F(HttpServerTest, who_comes_between_two_servers_on_a_lent_socket_waits_for_the_second) {
  const Result<int> lent = HttpServer::bind("127.0.0.1", 0);
  ASSERT_TRUE(lent) << lent.error().text();
  HttpServer::Settings settings;
  settings.socket = *lent;
  const auto made = [&](const char* name) {
    auto server = std::make_unique<HttpServer>(loop_, [name](const HttpRequest&, const Responder& responder) {
      responder.respond({200, {}, name});
    });
    EXPECT_TRUE(server->listen(settings));
    return server;
  };
  const std::string request = "GET / HTTP/1.1\r\nConnection: close\r\n" + kHost + "\r\n";
  std::unique_ptr<HttpServer> server;
  on_loop([&] { server = made("first"); });
  const int port = server->port();
  EXPECT_TRUE(contains(answer_to(port, request), "first"));
  on_loop([&] { server.reset(); });
  const RawSocket between = RawSocket::connect_to(port);
  between.send(request);
  on_loop([&] { server = made("second"); });
  EXPECT_EQ(server->port(), port);
  EXPECT_TRUE(contains(between.read_to_end(), "second"));
  on_loop([&] { server->stop_accepting(); });  // for good: nobody is left in a queue that no one serves
  const RawSocket late(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto address = numeric_address("127.0.0.1", port);
  EXPECT_EQ(-1, ::connect(late.descriptor(), address->get(), address->size));
  EXPECT_EQ(ECONNREFUSED, errno);
  on_loop([&] { server.reset(); });
  ::close(*lent);
}

TEST_F(HttpServerTest, port_in_use_and_a_host_name_are_errors_that_name_it) {
  const RawListener taken;
  on_loop([&] {
    HttpServer server(loop_, [](const HttpRequest&, const Responder&) {});
    HttpServer::Settings settings;
    settings.port = taken.port();
    const Status in_use = server.listen(settings);
    ASSERT_FALSE(in_use);
    EXPECT_TRUE(contains(in_use.error().text(), "127.0.0.1:" + std::to_string(taken.port()))) << in_use.error().text();
    settings.host = "localhost";
    const Status named = server.listen(settings);
    ASSERT_FALSE(named);
    EXPECT_TRUE(contains(named.error().text(), "not an IP address")) << named.error().text();
  });
}

}  // namespace weighlock::testing
