// What long surveys of the simulator found: each as short as it can be told.
#include <algorithm>

#include "weighlock/protocol/fixture_test.hpp"
#include "weighlock/protocol/worker_calls.hpp"

namespace weighlock::protocol {
namespace {

using namespace std::chrono_literals;
using K = OperationKind;

class FoundInSurveysTest : public Fixture {
 protected:
  const Pair& pair() const { return state().pairs.at("actor"); }
  static Outcome ok() {
    Outcome outcome;
    outcome.kind = OutcomeKind::ok;
    return outcome;
  }
  static Outcome reading(StateReading reading) {
    Outcome outcome = ok();
    outcome.reading = std::move(reading);
    return outcome;
  }
};

// Of a blind storage no version is listed, so only the worker's own records tell what it holds.
TEST_F(FoundInSurveysTest, worker_that_may_lag_behind_a_blind_commit_is_read_back_with_the_version_that_it_holds) {
  sealed.blind = true;
  sealed.reference_clean = false;
  connect(2);
  Policy lags;
  lags.max_lag = 1;
  ASSERT_EQ(update(request(1, lags)).state, UpdateState::succeeded);
  script(0, K::pause, failed(OutcomeKind::untouched, "no"));
  ASSERT_EQ(update(request(2, lags)).state, UpdateState::degraded);
  ASSERT_EQ(worker(0).state, WorkerState::ready);
  ASSERT_EQ(worker(0).version->version, 1);
  flush();
  const State next = replayed();
  const Worker& again = next.workers.at(url(0));
  ASSERT_TRUE(again.version);
  EXPECT_EQ(again.version->directory, "/shared/v1.a1");
  EXPECT_EQ(again.version->label, "1");
}

// The label "loading:" went to the process before it, and the new one has none that tells of a load.
TEST_F(FoundInSurveysTest, load_is_not_sent_to_a_process_that_started_before_the_answer_to_its_label_came) {
  engine(0).dialect = DialectKind::vllm;
  sealed.reference_clean = false;
  connect(1);
  silence(0, K::set_label);
  const UpdateId id = request(1);
  advance(2s);
  restart(0);
  answer_silenced(0, ok());
  EXPECT_EQ(count(0, K::load), 0);
  EXPECT_NE(update(id).state, UpdateState::succeeded);
  EXPECT_FALSE(worker(0).touched);
}

TEST_F(FoundInSurveysTest, slow_answer_to_a_label_costs_one_reading) {
  connect(1);
  silence(0, K::set_label);
  const UpdateId id = request(1);
  const int reads_before = count(0, K::read_state);
  advance(2s);
  engine(0).label = "loading:" + id;
  answer_silenced(0, ok());
  EXPECT_EQ(update(id).state, UpdateState::succeeded);
  EXPECT_EQ(count(0, K::load), 1);
  EXPECT_EQ(count(0, K::read_state), reads_before + 1);
}

TEST_F(FoundInSurveysTest, heal_begins_anew_with_a_process_that_started_before_the_answer_to_its_label_came) {
  reconciles = true;
  connect(1);
  request(1);
  restart(0);
  silence(0, K::set_label);
  advance(20s);
  ASSERT_TRUE(worker(0).in_flight && worker(0).in_flight->kind == K::set_label);
  restart(0);
  const std::size_t before = engine(0).operations.size();
  answer_silenced(0, ok());
  const std::vector<K> asked(engine(0).operations.begin() + static_cast<std::ptrdiff_t>(before),
                             engine(0).operations.end());
  ASSERT_GE(asked.size(), 4U);
  EXPECT_EQ((std::vector<K>(asked.begin(), asked.begin() + 4)),
            (std::vector<K>{K::read_state, K::pause, K::set_label, K::load}));
  EXPECT_EQ(worker(0).state, WorkerState::ready);
  EXPECT_EQ(engine(0).loaded, "/shared/v1.a1");
}

// An engine that was started from the directory of an attempt, which is undone now.
TEST_F(FoundInSurveysTest, directory_that_is_being_removed_is_nobodys_start_model) {
  script(0, K::read_state, reading({"start-1", "1", false, "/shared/v1.a1"}), -1);
  seal_error = Error{ErrorCode::checkpoint_invalid, "cut short", nullptr};
  discards_silent = true;
  connect(1);
  ASSERT_EQ(update(request(1)).state, UpdateState::aborted);
  ASSERT_EQ(pair().doomed.size(), 1u);
  ASSERT_EQ(worker(0).start_path, pair().doomed.front().directory);
  seal_error.reset();
  request(2);
  EXPECT_EQ(seals.back().reference_directory, "");
  ASSERT_TRUE(pair().committed);
  EXPECT_FALSE(pair().previous_good);
}

TEST_F(FoundInSurveysTest, model_of_a_process_that_started_while_another_was_inspected_is_not_last_good) {
  connect(1);
  seals_silent = true;
  const UpdateId id = request(1);
  ASSERT_EQ(seals.back().reference_directory, "/models/start");
  script(0, K::read_state, reading({"start-2", "default", false, "/models/other"}), -1);
  advance(100s);
  ASSERT_EQ(worker(0).start_path, "/models/other");
  post(Sealed{id, sealed});
  EXPECT_FALSE(pair().previous_good);
  const std::vector<std::string> names = record_names();
  EXPECT_EQ(std::count(names.begin(), names.end(), "last_good"), 0);
}

// The process that was read had ended before the label was sent, so its connection ended in one that nobody had read.
TEST_F(FoundInSurveysTest, what_was_sent_to_a_process_that_nobody_had_read_is_not_forgotten_when_it_is_read) {
  for (const K kind : {K::set_label, K::flush, K::resume, K::pause}) {
    SCOPED_TRACE(std::string(weighlock::name(kind)));
    Worker one;
    one.labels = {"1"};
    EarlierCall call;
    call.call = 7;
    call.kind = kind;
    note_sent(one, call, "loading:x", kind == K::set_label);
    note_ended(one, call, failed(OutcomeKind::unknown, "connection reset"), kind == K::set_label);
    note_new_process(one);
    EXPECT_EQ(one.earlier.size(), 1u);
  }
}

// Nothing but a new process ends the doubt about a drain, so the first one must.
TEST_F(FoundInSurveysTest, load_that_its_label_announced_and_a_drain_end_with_the_process_that_was_read) {
  for (const K kind : {K::load, K::pause}) {
    SCOPED_TRACE(std::string(weighlock::name(kind)));
    Worker one;
    one.labels = {"1", "loading:x"};
    EarlierCall call;
    call.call = 7;
    call.kind = kind;
    call.pause_mode = PauseMode::wait;
    note_sent(one, call, "", false);
    note_ended(one, call, failed(OutcomeKind::unknown, "connection reset"), false);
    note_new_process(one);
    EXPECT_TRUE(one.earlier.empty());
  }
}

}  // namespace
}  // namespace weighlock::protocol
