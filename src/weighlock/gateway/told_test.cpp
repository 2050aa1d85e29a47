#include "weighlock/gateway/told.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "weighlock/core/json.hpp"
#include "weighlock/runtime/log.hpp"

namespace weighlock {
namespace {

using namespace std::chrono_literals;
using protocol::Record;
using protocol::RecordKind;

class Told : public ::testing::Test {
 protected:
  Told() {
    EXPECT_EQ(0, ::pipe2(pipe_, O_CLOEXEC | O_NONBLOCK));
    log_to(pipe_[1]);
  }
  ~Told() override {
    log_flush(5000ms);
    log_to(2);
    ::close(pipe_[0]);
    ::close(pipe_[1]);
  }
  // What was logged since the last look, without times.
  std::string lines() const {
    EXPECT_TRUE(log_flush(5000ms));
    std::string all;
    char some[65536];
    for (ssize_t n = 0; (n = ::read(pipe_[0], some, sizeof some)) > 0;) all.append(some, static_cast<std::size_t>(n));
    std::string out;
    for (std::size_t at = 0; at < all.size(); at = all.find('\n', at) + 1)
      out += all.substr(all.find(' ', at) + 1, all.find('\n', at) - all.find(' ', at));
    return out;
  }
  static Record record(RecordKind kind, json::object body) {
    Record out;
    out.kind = kind;
    out.pair = "actor";
    out.update = "b-1";
    out.body = std::move(body);
    return out;
  }
  static HttpResponse answer(int status, std::string body) {
    HttpResponse out;
    out.status = status;
    out.body = std::move(body);
    return out;
  }

  int pipe_[2] = {-1, -1};
};

TEST_F(Told, a_pair_that_is_connected_is_told_with_what_it_is_made_of) {
  tell(record(RecordKind::pair_connected, {{"save_path", "/w"},
                                           {"workers", json::array{"http://g0:1", "http://g1:1"}},
                                           {"trainers", json::array{"http://t:1"}},
                                           {"lineage", 3}}));
  tell(record(RecordKind::pair_connected, {{"save_path", ""}, {"awex", json::object{}}}));
  tell(record(RecordKind::pair_removed, {}));
  EXPECT_EQ(lines(),
            "INFO pair=actor connected: mode=disk workers=2 trainers=1 save_path=/w lineage=3\n"
            "INFO pair=actor connected: mode=awex workers=0 trainers=0 save_path=none lineage=0\n"
            "INFO pair=actor removed\n");
}

TEST_F(Told, an_update_is_told_when_it_is_asked_for_and_not_only_when_it_ends) {
  tell(record(RecordKind::update_requested, {{"version", 7}}));
  tell(record(RecordKind::update_requested, {{"version", 6}, {"rollback", true}}));
  EXPECT_EQ(lines(),
            "INFO pair=actor v7 asked for: update=b-1\n"
            "INFO pair=actor v6 asked for: update=b-1, a rollback\n");
}

TEST_F(Told, what_operators_do_to_a_worker_is_told_with_their_reason) {
  Record changed = record(RecordKind::worker_changed, {{"change", "quarantine"}, {"reason", "disk swap"}});
  changed.worker = "http://g0:1";
  tell(changed);
  EXPECT_EQ(lines(), "INFO pair=actor worker http://g0:1: an operator asked to quarantine it: disk swap\n");
}

TEST_F(Told, calls_and_verdicts_are_the_journals_alone) {
  for (const RecordKind kind : {RecordKind::intent, RecordKind::outcome, RecordKind::verdict, RecordKind::commit})
    tell(record(kind, {{"operation", "pause"}}));
  EXPECT_EQ(lines(), "");
}

TEST_F(Told, a_request_that_is_refused_is_told_in_one_line_whatever_it_holds) {
  Refusals refusals;
  refusals.tell("POST /connect", answer(502, R"({"error":"worker http://g0:1: connection\nrefused"})"), Instant{1000});
  refusals.tell("POST /v1/pairs/a\nb", answer(403, R"({"detail":"Admin API key required."})"), Instant{1000});
  refusals.tell("POST /update_weights", answer(200, R"({"status":"ok"})"), Instant{1000});
  EXPECT_EQ(lines(),
            "WARN POST /connect was answered 502: worker http://g0:1: connection refused\n"
            "WARN POST /v1/pairs/a b was answered 403: Admin API key required.\n");
}

TEST_F(Told, a_client_that_asks_in_a_loop_fills_no_disk) {
  Refusals refusals;
  for (int i = 0; i < 1000; ++i) refusals.tell("POST /x", answer(404, "{}"), Instant{10000});
  const std::string first = lines();
  EXPECT_EQ(std::count(first.begin(), first.end(), '\n'), static_cast<std::ptrdiff_t>(Refusals::kToldPerSecond));
  refusals.tell("POST /y", answer(404, R"({"detail":"Not Found"})"), Instant{11000});
  EXPECT_EQ(lines(),
            "WARN 990 more requests were refused within a second\n"
            "WARN POST /y was answered 404: Not Found\n");
}

}  // namespace
}  // namespace weighlock
