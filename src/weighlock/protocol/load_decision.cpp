// LOADING and VERIFYING: who loads next, and the decision that follows from the verdicts (protocol.md section 3).
// The pipeline that leads to a verdict is load.cpp's, or lora_load.cpp's.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "weighlock/protocol/loading.hpp"
#include "weighlock/protocol/lora.hpp"

namespace weighlock::protocol {
namespace {

struct Tally {
  int members = 0;  // without those lost before their load was sent
  int lost = 0;
  int verified = 0;  // members
  int pending = 0;   // members without a verdict
  int unjudged = 0;  // of the batch
  int unloaded = 0;  // of all: not loaded yet, or not flushed
  bool batch_launched = true;
  bool batch_failed = false;  // one of the batch isn't verified
};

Tally tally(const Update& update) {
  Tally t;
  for (const auto& [url, target] : update.targets) {
    const bool pending = target.included && target.step != Step::judged;
    if (target.role == Role::member && target.counted_lost) {
      ++t.lost;
    } else if (target.role == Role::member) {
      ++t.members;
      t.verified += target.verdict == Verdict::verified ? 1 : 0;
      t.pending += pending ? 1 : 0;
    }
    t.unloaded += before_verify(target.step) || (target.included && target.step == Step::paused) ? 1 : 0;
    if (target.batch != update.batch) continue;
    t.unjudged += pending ? 1 : 0;
    if (pending && target.step == Step::paused) t.batch_launched = false;
    if (!pending && target.verdict != Verdict::verified) t.batch_failed = true;
  }
  return t;
}

void launch(Context& context, Update& update) {
  int running = 0;
  for (const auto& [url, target] : update.targets) running += in_pipeline(target.step) ? 1 : 0;
  for (auto& [url, target] : update.targets) {
    if (!target.included || target.batch != update.batch || target.step != Step::paused) continue;
    const bool windowed = update.policy.load_window > 0 && !update.transfer;  // a collective waits for all
    if (windowed && running >= update.policy.load_window) return;
    launch_pipeline(context, update, target);
    ++running;
  }
}

}  // namespace

void enter_verifying(Context& context, Update& update, int unloaded) {
  if (unloaded > 0 || update.state != UpdateState::loading) return;
  context.set_state(update, UpdateState::verifying);
  context.cancel_timer(update, "load");
  context.start_timer(update, "verify", update.policy.deadlines.verify);
}

void evaluate_verdicts(Context& context, Update& update) {
  Tally t = tally(update);
  const bool all_asked = update.policy.on_failure == OnFailure::rollback_all;
  const int needed = all_asked ? std::max(1, t.members + t.lost) : update.policy.quorum.needed(t.members);
  const auto fail = [&](ErrorCode code, std::string text) {
    begin_restoring(context, update,
                    Error{code, fmt::format("pair '{}': v{}: {}", update.pair, update.version.version, text), nullptr});
  };
  if (t.verified + t.pending < needed)
    return fail(ErrorCode::quorum_lost, fmt::format("load: {} of {} workers can be verified, {} needed",
                                                    t.verified + t.pending, t.members, needed));
  const bool is_canary = update.batch + 1 < update.batches;
  if (is_canary && t.batch_failed)
    return fail(ErrorCode::canary_failed, "load: a canary was not verified; no other worker was loaded");
  if (!t.batch_launched) {
    launch(context, update);  // only when nothing speaks against it
    t = tally(update);
  }
  if (t.unjudged == 0 && is_canary) {
    ++update.batch;
    context.set_state(update, UpdateState::loading);
    context.cancel_timer(update, "verify");
    context.start_timer(update, "load", update.policy.deadlines.load);
    return evaluate_verdicts(context, update);
  }
  if (t.unjudged == 0) return begin_commit(context, update);
  enter_verifying(context, update, t.unloaded);
  if (!is_canary && t.batch_launched && t.verified >= needed && !update.quorum_reached) {
    update.quorum_reached = true;
    std::vector<std::int64_t> times;
    for (const auto& [url, target] : update.targets) {
      if (target.load_took) times.push_back(target.load_took->count());
    }
    std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
    const Milliseconds patience{
        static_cast<std::int64_t>(update.policy.straggler * static_cast<double>(times[times.size() / 2]))};
    context.start_timer(update, "straggler", std::max(update.policy.straggler_min, patience));
  }
  const bool quorum_decides = !is_canary && t.batch_launched && !update.quorum_reached;
  update.countdown = {t.unjudged, t.unloaded, quorum_decides ? needed - t.verified : -1};
}

void decide_loading(Context& context, Update& update) {
  if (update.kind == UpdateKind::join) return adapter_join_judged(context, update);
  evaluate_verdicts(context, update);
}

}  // namespace weighlock::protocol
