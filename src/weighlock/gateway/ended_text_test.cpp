#include "weighlock/gateway/ended_text.hpp"

#include <gtest/gtest.h>

#include "weighlock/gateway/views.hpp"

namespace weighlock {
namespace {

using namespace protocol;

class EndedText : public ::testing::Test {
 protected:
  EndedText() {
    update.id = "u-1";
    update.pair = "actor";
    update.version.version = 6;
    update.version.lineage = 1;
    update.state = UpdateState::degraded;
    update.committed = true;
    update.ended_at = Instant{5000};
  }
  void add(const std::string& url, WorkerState worker_state, std::optional<Cause> cause = std::nullopt) {
    Worker& worker = state.workers[url];
    worker.url = url;
    worker.state = worker_state;
    worker.cause = cause;
    Target& target = update.targets[url];
    target.worker = url;
    target.cause = cause;
    target.verdict = worker_state == WorkerState::ready ? Verdict::verified : Verdict::torn;
  }
  State state;
  Update update;
};

TEST_F(EndedText, names_worker_phase_words_and_what_became_of_it) {
  add("http://a:1", WorkerState::ready);
  add("http://b:1", WorkerState::ready);
  add("http://c:1", WorkerState::quarantined, Cause{CauseCode::load_failed, "400 \"size mismatch\"", Instant{1}});
  EXPECT_EQ(ended_text(state, update),
            "pair 'actor' v6: degraded: 2/3 ready; worker http://c:1: load: 400 \"size mismatch\"; quarantined "
            "(load_failed); committed: true");
}

TEST_F(EndedText, adapter_that_failed_says_nothing_of_the_worker_itself) {
  add("http://a:1", WorkerState::quarantined, Cause{CauseCode::load_failed, "of the model", Instant{1}});
  add("http://b:1", WorkerState::ready,
      Cause{CauseCode::adapter_failed, "load of policy-v6: 400 \"rank\"", Instant{1}});
  for (auto& [url, target] : update.targets) target.adapter.emplace();
  update.targets.at("http://a:1").verdict = Verdict::verified;
  update.targets.at("http://a:1").cause.reset();
  update.targets.at("http://b:1").verdict = Verdict::untouched;
  EXPECT_EQ(
      ended_text(state, update),
      "pair 'actor' v6: degraded: 1/2 ready; worker http://b:1: load of policy-v6: 400 \"rank\"; committed: true");
}

TEST_F(EndedText, is_never_empty_and_does_not_say_the_pair_twice) {
  update.state = UpdateState::rejected;
  update.committed = false;
  EXPECT_EQ(ended_text(state, update),
            "pair 'actor' v6: rejected: it ended before any worker was touched; committed: false");
  update.error = Error{ErrorCode::version_not_newer, "pair 'actor': v6: v7 is committed; a lower version is refused"};
  EXPECT_EQ(ended_text(state, update),
            "pair 'actor' v6: rejected: v7 is committed; a lower version is refused; committed: false");
  update.error = Error{ErrorCode::internal, ""};
  EXPECT_EQ(ended_text(state, update), "pair 'actor' v6: rejected: internal; committed: false");
}

TEST_F(EndedText, a_thousand_workers_that_fail_alike_are_counted_not_listed) {
  for (int i = 0; i < 1000; ++i)
    add("http://w" + std::to_string(i) + ":1", WorkerState::quarantined,
        Cause{CauseCode::pause_failed, "refused", Instant{1}});
  const std::string text = ended_text(state, update);
  EXPECT_LT(text.size(), 2000u);
  EXPECT_NE(text.find("and 992 more workers"), std::string::npos) << text;
}

TEST_F(EndedText, pause_is_the_longest_of_those_that_came_back) {
  add("http://a:1", WorkerState::ready);
  add("http://b:1", WorkerState::quarantined);
  update.targets["http://a:1"].paused_at = Instant{1000};
  update.targets["http://a:1"].resumed_at = Instant{1420};
  update.targets["http://b:1"].paused_at = Instant{1000};  // held paused: out of service
  EXPECT_EQ(pause_of(update, Instant{9000}).count(), 420);
  update.ended_at.reset();
  EXPECT_EQ(pause_of(update, Instant{9000}).count(), 8000);
}

TEST_F(EndedText, the_log_line_has_what_an_operator_greps_for) {
  update.state = UpdateState::succeeded;
  add("http://a:1", WorkerState::ready);
  update.targets["http://a:1"].load_took = Milliseconds(300);
  update.targets["http://a:1"].former_version = VersionRef{1, 5, "", "", ""};
  update.targets["http://a:1"].paused_at = Instant{1000};
  update.targets["http://a:1"].resumed_at = Instant{1420};
  update.phases = {PhaseTime{UpdateState::preparing, Instant{0}, Milliseconds(3100)},
                   PhaseTime{UpdateState::verifying, Instant{0}, Milliseconds(400)}};
  EXPECT_EQ(log_line(state, update, Instant{6000}),
            "pair=actor v5->v6 ok workers=1/1 save=3.1s load=0.00s verify=0.40s pause=0.42s slowest=http://a:1");
}

TEST_F(EndedText, the_log_line_of_an_update_that_touched_nobody_says_where_the_pair_is) {
  state.pairs["actor"].committed = VersionRef{1, 51, "", "", ""};
  update.version.version = 53;
  update.state = UpdateState::rejected;
  update.committed = false;
  update.error = Error{ErrorCode::trainer_busy, "a save still runs", nullptr};
  EXPECT_EQ(log_line(state, update, Instant{6000}),
            "pair=actor v51->v53 rejected cause=\"pair 'actor' v53: rejected: a save still runs; committed: false\"");
  update.state = UpdateState::aborted;
  EXPECT_NE(log_line(state, update, Instant{6000}).find("v51->v53 aborted save=0.00s"), std::string::npos);
  EXPECT_EQ(log_line(state, update, Instant{6000}).find("workers="), std::string::npos);
}

TEST_F(EndedText, a_join_is_told_in_one_line) {
  update.kind = UpdateKind::join;
  update.version = VersionRef{1, 42, "", "", ""};
  update.state = UpdateState::succeeded;
  update.requested_at = Instant{1000};
  update.ended_at = Instant{4100};
  add("http://a:1", WorkerState::ready);
  EXPECT_EQ(join_line(update), "pair=actor join http://a:1 v42 ok 3.1s");
  update.state = UpdateState::failed;
  update.error = Error{ErrorCode::worker_failed, "it said \"no\"", nullptr};
  EXPECT_EQ(join_line(update), "pair=actor join http://a:1 v42 failed 3.1s cause=\"it said 'no'\"");
}

TEST(Views, a_worker_has_an_id_that_fits_a_path) {
  EXPECT_EQ(worker_id("http://10.0.0.7:30000"), "10.0.0.7:30000");
  EXPECT_EQ(worker_id("https://gpu:443/engine/1"), "https~gpu:443~engine~1");
}

}  // namespace
}  // namespace weighlock
