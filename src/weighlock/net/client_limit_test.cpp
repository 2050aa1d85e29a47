// A client that may open only so many connections: who waits, who goes first, and what is told.
#include <atomic>
#include <chrono>
#include <vector>

#include "weighlock/net/loop_fixture.hpp"

namespace weighlock::testing {
namespace {

using namespace std::chrono_literals;
using Kind = TransportError::Kind;

class ClientLimitTest : public LoopFixture {
 protected:
  void limit(std::size_t connections) {
    HttpClient::Settings settings;
    settings.connections_max = connections;
    use_client(settings);
  }
  // A peer that answers nothing until `release`.
  int serve_held() {
    return serve([this](const HttpRequest& request, const Responder& responder) {
      order_.push_back(request.target);
      most_ = std::max(most_, ++open_);
      held_.push_back(responder);
    });
  }
  // The oldest request is answered.
  void release() {
    on_loop([this] {
      ASSERT_FALSE(held_.empty());
      --open_;
      held_.front().respond({200, {}, "done"});
      held_.erase(held_.begin());
    });
  }
  std::size_t held() {
    std::size_t out = 0;
    on_loop([&] { out = held_.size(); });
    return out;
  }
  void until_held(std::size_t count) {
    const auto end = std::chrono::steady_clock::now() + 20s;
    while (held() != count) {
      ASSERT_LT(std::chrono::steady_clock::now(), end) << held();
      std::this_thread::sleep_for(1ms);
    }
  }
  static bool ok(const HttpResult& result) { return std::holds_alternative<HttpResponse>(result); }

  std::vector<Responder> held_;  // the loop's
  std::vector<std::string> order_;
  std::size_t open_ = 0;
  std::size_t most_ = 0;
};

TEST_F(ClientLimitTest, calls_beyond_the_limit_wait_in_their_order_and_all_are_answered) {
  limit(3);
  const Url peer = url_of(serve_held());
  std::vector<std::future<HttpResult>> calls;
  for (int i = 0; i < 10; ++i) calls.push_back(begin_call(peer, {"GET", "/" + std::to_string(i), {}, ""}));
  for (int i = 0; i < 10; ++i) {
    until_held(static_cast<std::size_t>(std::min(3, 10 - i)));
    release();
  }
  for (auto& call : calls) EXPECT_TRUE(ok(call.get()));
  on_loop([&] {
    EXPECT_EQ(most_, 3u);
    for (int i = 3; i < 10; ++i) EXPECT_EQ(order_[static_cast<std::size_t>(i)], "/" + std::to_string(i));
  });
}

TEST_F(ClientLimitTest, a_connection_that_is_only_kept_makes_room_for_another_peer) {
  limit(1);
  const Url first = url_of(serve_held());
  auto call = begin_call(first, {"GET", "/a", {}, ""});
  until_held(1);
  release();
  EXPECT_TRUE(ok(call.get()));
  const RawListener other;
  auto next = begin_call(url_of(other.port()), {"GET", "/b", {}, ""});
  const RawSocket accepted = other.accept();
  EXPECT_FALSE(accepted.read_until("\r\n\r\n").empty());
  accepted.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
  EXPECT_TRUE(ok(next.get()));
}

TEST_F(ClientLimitTest, a_call_whose_time_is_over_while_it_waits_has_sent_nothing_and_tells_why) {
  limit(1);
  const Url peer = url_of(serve_held());
  auto first = begin_call(peer, {"GET", "/a", {}, ""});
  until_held(1);
  HttpCallOptions options;
  options.deadline = 50ms;
  const HttpResult late = call(peer, {"POST", "/b", {}, ""}, options);
  ASSERT_FALSE(ok(late));
  const auto& error = std::get<TransportError>(late);
  EXPECT_EQ(error.kind, Kind::timeout);
  EXPECT_TRUE(error.nothing_sent);
  EXPECT_NE(error.text.find("limit of open files"), std::string::npos) << error.text;
  release();
  EXPECT_TRUE(ok(first.get()));
}

TEST_F(ClientLimitTest, cancelled_calls_make_room_and_waiting_ones_may_be_cancelled) {
  limit(1);
  const Url peer = url_of(serve_held());
  auto first = begin_call(peer, {"GET", "/a", {}, ""});
  const HttpClient::CallId holder = last_call_;
  until_held(1);
  auto second = begin_call(peer, {"GET", "/b", {}, ""});
  const HttpClient::CallId waiter = last_call_;
  auto third = begin_call(peer, {"GET", "/c", {}, ""});
  on_loop([&] { client_->cancel(waiter); });
  EXPECT_EQ(std::get<TransportError>(second.get()).kind, Kind::cancelled);
  on_loop([&] { client_->cancel(holder); });
  EXPECT_EQ(std::get<TransportError>(first.get()).kind, Kind::cancelled);
  until_held(2);  // the first one's request is still the peer's
  release();
  release();
  EXPECT_TRUE(ok(third.get()));
}

TEST_F(ClientLimitTest, calls_that_only_end_together_do_not_wait) {
  limit(1);
  const Url peer = url_of(serve_held());
  HttpCallOptions options;
  options.never_waits = true;
  std::vector<std::future<HttpResult>> ranks;
  for (int i = 0; i < 3; ++i) ranks.push_back(begin_call(peer, {"POST", "/save", {}, ""}, options));
  until_held(3);
  auto other = begin_call(peer, {"GET", "/", {}, ""});
  for (int i = 0; i < 3; ++i) release();
  for (auto& rank : ranks) EXPECT_TRUE(ok(rank.get()));
  until_held(1);
  release();
  EXPECT_TRUE(ok(other.get()));
}

TEST_F(ClientLimitTest, connections_that_fail_give_their_place_back) {
  limit(2);
  int port = 0;
  {
    const RawListener gone;
    port = gone.port();
  }
  std::vector<std::future<HttpResult>> calls;
  for (int i = 0; i < 20; ++i) calls.push_back(begin_call(url_of(port), {"GET", "/", {}, ""}));
  for (auto& call : calls) EXPECT_EQ(std::get<TransportError>(call.get()).kind, Kind::refused);
  const Url peer = url_of(serve_held());
  auto two = begin_call(peer, {"GET", "/a", {}, ""});
  auto more = begin_call(peer, {"GET", "/b", {}, ""});
  until_held(2);
  release();
  release();
  EXPECT_TRUE(ok(two.get()) && ok(more.get()));
}

TEST(DescriptorSharesTest, leave_something_for_everyone_and_never_add_up_to_more_than_there_is) {
  for (const std::size_t limit : {256u, 1024u, 4096u, 1048576u}) {
    const DescriptorShares shares = descriptor_shares(limit);
    EXPECT_LE(shares.clients + shares.refused_clients + shares.calls + 48, limit) << limit;
    EXPECT_GE(shares.calls, 64u) << limit;
    EXPECT_GE(shares.clients, 64u) << limit;
  }
}

}  // namespace
}  // namespace weighlock::testing
