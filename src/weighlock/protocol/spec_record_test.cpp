#include "weighlock/protocol/spec_record.hpp"

#include <gtest/gtest.h>

namespace weighlock::protocol {
namespace {

// Through the text, as the journal keeps it.
json::value written(const json::object& body) {
  return *parse_json(json::serialize(body), "record");
}

Policy strange_policy() {
  Policy policy;
  policy.quorum = Quorum{Quorum::Kind::count, 3};
  policy.on_failure = OnFailure::rollback_all;
  policy.canary = 2;
  policy.max_lag = 4;
  policy.pause = PauseOwner::caller;
  policy.pause_mode = PauseMode::retract;
  policy.load_window = 5;
  policy.straggler = 2.5;
  policy.straggler_min = Milliseconds(77);
  policy.evidence = Evidence::checksum;
  policy.digest = DigestPolicy::before;
  policy.keep_versions = 9;
  policy.label_format = "step-{version}";
  policy.allow_layout_change = true;
  policy.coalesce = true;
  policy.pair_lease = Milliseconds(88);
  policy.deadlines = Deadlines{Milliseconds(1), Milliseconds(2), Milliseconds(3), Milliseconds(4),
                               Milliseconds(5), Milliseconds(6), Milliseconds(7)};
  return policy;
}

// Every member; whoever adds one adds it here, and to the record.
void expect_same(const Policy& a, const Policy& b) {
  EXPECT_EQ(a.quorum.kind, b.quorum.kind);
  EXPECT_EQ(a.quorum.count, b.quorum.count);
  EXPECT_EQ(a.on_failure, b.on_failure);
  EXPECT_EQ(a.canary, b.canary);
  EXPECT_EQ(a.max_lag, b.max_lag);
  EXPECT_EQ(a.pause, b.pause);
  EXPECT_EQ(a.pause_mode, b.pause_mode);
  EXPECT_EQ(a.load_window, b.load_window);
  EXPECT_EQ(a.straggler, b.straggler);
  EXPECT_EQ(a.straggler_min, b.straggler_min);
  EXPECT_EQ(a.evidence, b.evidence);
  EXPECT_EQ(a.digest, b.digest);
  EXPECT_EQ(a.keep_versions, b.keep_versions);
  EXPECT_EQ(a.label_format, b.label_format);
  EXPECT_EQ(a.allow_layout_change, b.allow_layout_change);
  EXPECT_EQ(a.coalesce, b.coalesce);
  EXPECT_EQ(a.pair_lease, b.pair_lease);
  EXPECT_EQ(a.deadlines.save, b.deadlines.save);
  EXPECT_EQ(a.deadlines.pause, b.deadlines.pause);
  EXPECT_EQ(a.deadlines.load, b.deadlines.load);
  EXPECT_EQ(a.deadlines.verify, b.deadlines.verify);
  EXPECT_EQ(a.deadlines.resume, b.deadlines.resume);
  EXPECT_EQ(a.deadlines.restore, b.deadlines.restore);
  EXPECT_EQ(a.deadlines.whole, b.deadlines.whole);
}

TEST(SpecRecord, policy_comes_back_as_it_was) {
  expect_same(policy_from(written(policy_body(strange_policy()))), strange_policy());
  expect_same(policy_from(written(policy_body(Policy{}))), Policy{});
}

TEST(SpecRecord, spec_comes_back_as_it_was) {
  PairSpec spec;
  spec.save_path = "/shared/w";
  spec.trainer_kind = TrainerKind::external;
  spec.trainer_urls = {"http://t0:9000", "http://t1:9000"};
  spec.save_trigger = SaveTrigger::rank0;
  spec.workers = {WorkerSpec{"http://g0:30000", DialectKind::vllm, R"({"admin_key":{"env":"KEY"}})"},
                  WorkerSpec{"http://g1:30000", std::nullopt, ""}};
  spec.lora = LoraSpec{"policy", 3};
  spec.policy = strange_policy();
  const PairSpec back = spec_from(written(spec_body(spec)));
  EXPECT_EQ(back.save_path, spec.save_path);
  EXPECT_EQ(back.trainer_kind, spec.trainer_kind);
  EXPECT_EQ(back.trainer_urls, spec.trainer_urls);
  EXPECT_EQ(back.save_trigger, spec.save_trigger);
  ASSERT_TRUE(back.lora.has_value());
  EXPECT_EQ(back.lora->name, "policy");
  EXPECT_EQ(back.lora->keep, 3);
  ASSERT_EQ(back.workers.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(back.workers[i].url, spec.workers[i].url);
    EXPECT_EQ(back.workers[i].dialect, spec.workers[i].dialect);
    EXPECT_EQ(back.workers[i].key_references, spec.workers[i].key_references);
  }
  expect_same(back.policy, spec.policy);
}

TEST(SpecRecord, every_word_of_a_state_or_cause_is_read_back) {
  for (int i = 0; i <= static_cast<int>(UpdateState::failed); ++i) {
    const auto state = static_cast<UpdateState>(i);
    EXPECT_EQ(enum_from(name(state), UpdateState::failed, UpdateState::queued), state);
  }
  for (int i = 0; i <= static_cast<int>(CauseCode::operator_hold); ++i) {
    const Cause cause{static_cast<CauseCode>(i), "why", {}};
    const json::value body = cause_body(cause);
    EXPECT_EQ(cause_from(&body, Instant{})->code, cause.code);
  }
}

TEST(SpecRecord, what_an_earlier_release_wrote_keeps_the_defaults) {
  const PairSpec spec = spec_from(
      written({{"lineage", 1}, {"save_path", "/w"}, {"workers", {"http://g0:1"}}, {"trainers", {"http://t0:1"}}}));
  ASSERT_EQ(spec.workers.size(), 1u);
  EXPECT_EQ(spec.workers[0].url, "http://g0:1");
  expect_same(spec.policy, Policy{});
}

}  // namespace
}  // namespace weighlock::protocol
