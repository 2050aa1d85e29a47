// Reading the workers before anything is done to them, and what a reading means for the registry (protocol.md sections
// 2, 4, 5).
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "weighlock/core/limits.hpp"
#include "weighlock/protocol/awex.hpp"
#include "weighlock/protocol/ownership.hpp"
#include "weighlock/protocol/phases.hpp"

namespace weighlock::protocol {
namespace {

void survey_ended(Context& context, Update& update) {
  if (update.waiting > 0) return;
  for (const auto& [url, target] : update.targets) {
    if (target.step == Step::surveying) return;
  }
  context.cancel_timer(update, "survey");
  context.cancel_timer(update, "silent_survey");
  if (update.state == UpdateState::preparing) return first_survey_done(context, update);
  if (update.state == UpdateState::pausing) return pausing_survey_done(context, update);
}

// Not one that serves: who is busy is waited for until enough looks were missed to fence it.
bool is_known_silent(const Worker& worker) {
  constexpr int kMissedLooks = 2;
  if (worker.state == WorkerState::ready && was_read(worker)) return false;
  const bool is_out = worker.state == WorkerState::quarantined && worker.cause;
  return worker.watch.failures >= kMissedLooks || (is_out && worker.cause->code == CauseCode::unreachable);
}

// Some are, and some aren't: if nobody is known to answer, each gets its time.
bool knows_who_is_silent(Context& context, const Update& update) {
  const auto silent = std::count_if(update.targets.begin(), update.targets.end(), [&](const auto& entry) {
    return is_known_silent(context.worker_of(entry.second));
  });
  return silent > 0 && static_cast<std::size_t>(silent) < update.targets.size();
}

std::string silent_text() {
  return fmt::format("read: no answer within {} ms, nor to the looks before", limits::kSilentSurvey.count());
}

void give_up_reading(Context& context, Target& target, std::string why) {
  context.give_up(target);
  target.step = Step::surveyed;
  target.cause = context.cause(CauseCode::unreachable, std::move(why));
}

// The process that was read spoke another dialect than the one that answers: whatever it tells of its start.
bool is_other_engine(const Worker& worker) {
  return worker.seen_as && worker.dialect && *worker.seen_as != *worker.dialect;
}

void note_new_incarnation(Context& context, Worker& worker, const StateReading& reading) {
  const bool was_used = worker.version.has_value() || !worker.labels.empty() || worker.state != WorkerState::ready;
  const std::string before = std::exchange(worker.incarnation, reading.incarnation);
  note_replaced_member(context, worker, before);
  std::string who = "a new process answers";
  if (is_other_engine(worker)) {
    who = fmt::format("another engine answers ({} in place of {})", name(*worker.dialect), name(*worker.seen_as));
    note_other_dialect(worker);
  }
  // One of ours went to the new process; what it started with is likely what the old one did.
  const bool has_our_label = !worker.labels.empty() && reading.label != worker.start_label &&
                             label_is_ours(worker, reading.label) && worker.touched;
  if (says_loading(reading.label) || has_our_label) {
    worker.labels = {reading.label};
  } else {
    worker.start_label = reading.label;
    worker.labels.clear();
  }
  worker.start_path = reading.model_path;
  note_new_process(worker);
  worker.touched = worker.touched || has_our_label;  // labels come behind the load: so did that
  // A pause that was sent since the last reading may have reached the new process instead of the old one.
  worker.paused_by_us = reading.paused && worker.pause_since_read;
  worker.version.reset();
  worker.evidence = Evidence::none;
  const auto pair = context.state().pairs.find(worker.pair);
  const bool has_committed = pair != context.state().pairs.end() && pair->second.committed.has_value();
  worker.watch.whole = true;
  const std::string doubtful = std::exchange(worker.joins.doubtful_load, "");
  note_doubtful_death(context, worker, before, doubtful);
  // One that may have got what was meant for its predecessor is held like any other until it is brought back.
  if (is_held(worker)) return;
  if (!worker.earlier.empty())
    context.set_worker(worker, WorkerState::quarantined,
                       context.cause(CauseCode::outstanding, who + ", and an earlier call may have gone to it"));
  else if (worker.touched)
    context.set_worker(worker, WorkerState::quarantined,
                       context.cause(CauseCode::load_unknown,
                                     who + ", and a load that was meant for its predecessor may have gone to it"));
  else if (worker.paused_by_us)
    context.set_worker(worker, WorkerState::quarantined,
                       context.cause(CauseCode::restarted,
                                     who + "; it holds its start model, and was paused when its predecessor was"));
  else if (was_used || has_committed)
    context.set_worker(worker, WorkerState::joining,
                       context.cause(CauseCode::restarted, who + "; it holds its start model"));
}

void record_seen(Context& context, const Worker& worker) {
  json::array labels;
  for (const std::string& label : worker.labels) labels.push_back(json::string(label));
  json::object body{{"incarnation", worker.incarnation},
                    {"start_label", worker.start_label},
                    {"start_path", worker.start_path},
                    {"labels", std::move(labels)},
                    {"paused_by_us", worker.paused_by_us},
                    {"outstanding", !worker.earlier.empty()},
                    {"touched", worker.touched}};
  if (worker.dialect) body["dialect"] = std::string(name(*worker.dialect));
  context.record(RecordKind::worker_seen, worker.pair, worker.locked_by, worker.url, std::move(body));
}

}  // namespace

bool was_read(const Worker& worker) {
  return !worker.incarnation.empty() || !worker.start_path.empty() || !worker.start_label.empty();
}

// One that only LoRA pairs use is asked nothing before their first update: its adapters are what can be told of it.
bool is_ready(const Worker& worker) {
  return worker.state == WorkerState::ready && (worker.pair.empty() || was_read(worker));
}

std::optional<Cause> cause_of(const Worker& worker) {
  const std::optional<Cause>& trouble = worker.watch.trouble;
  const bool is_awaited =
      worker.state == WorkerState::joining || (worker.state == WorkerState::ready && !is_ready(worker));
  if (!is_awaited || (!trouble && worker.cause)) return worker.cause;
  Cause out = trouble.value_or(Cause{CauseCode::unreachable, "no look at it has ended", Instant{}});
  out.message = (was_read(worker) ? "it doesn't answer: " : "not reached yet: ") + out.message;
  if (worker.cause) out.message = worker.cause->message + "; " + out.message;
  return out;
}

void read_worker(Context& context, Update& update, Target& target) {
  Worker& worker = context.worker_of(target);
  yield_watch(context, worker);
  Operation reading = next_reading(context, worker);
  reading.brief = reading.kind == OperationKind::read_state && may_read_briefly(update, target, worker);
  const bool last = update.state >= UpdateState::pausing || update.transfer;  // a survey from which something follows
  const bool ours = update.policy.pause == PauseOwner::gateway;
  reading.doubt_pause =
      last && ours && may_be_probed(context, worker) && !worker.paused_by_us && !context.pair_of(update).trainer_pauses;
  context.call(update, target, Step::surveying, std::move(reading));
}

Operation next_reading(Context& context, Worker& worker) {
  Operation operation;
  if (must_be_identified(worker)) {
    operation.kind = OperationKind::identify;
  } else if (!worker.earlier.empty() && can_barrier_all(context.traits_of(worker), worker)) {
    context.reset_earlier(worker);
    operation.kind = OperationKind::barrier;
  } else {
    operation.kind = OperationKind::read_state;
  }
  return operation;
}

bool is_updated(const Update& update, const Worker& worker) {
  return worker.pair == update.pair && worker.state != WorkerState::abandoned && worker.state != WorkerState::draining;
}

bool is_held(const Worker& worker) {
  if (worker.state == WorkerState::draining) return true;
  return worker.state == WorkerState::quarantined && worker.cause && worker.cause->code == CauseCode::operator_hold;
}

bool is_in_hand(const Update& update, const std::string& worker) {
  return update.targets.contains(worker);
}

bool says_loading(const std::string& label) {
  return label.starts_with("loading:");
}

bool label_is_ours(const Worker& worker, const std::string& label) {
  if (worker.labels.empty()) return label == worker.start_label;
  return std::find(worker.labels.begin(), worker.labels.end(), label) != worker.labels.end();
}

bool observe(Context& context, Worker& worker, const StateReading& reading) {
  const bool first = !was_read(worker);
  const bool other_start = !reading.incarnation.empty() && reading.incarnation != worker.incarnation;
  const bool is_new = !first && (other_start || is_other_engine(worker));
  if (first) {
    worker.incarnation = reading.incarnation;
    worker.start_label = says_loading(reading.label) ? "start" : reading.label;
    worker.start_path = reading.model_path;
    if (says_loading(reading.label)) {
      worker.labels = {reading.label};
      context.set_worker(worker, WorkerState::quarantined,
                         context.cause(CauseCode::load_unknown,
                                       fmt::format("its label '{}' says that a load of an earlier gateway did not end",
                                                   reading.label)));
    }
  } else if (is_new) {
    note_new_incarnation(context, worker, reading);
  }
  worker.seen_as = worker.dialect;
  worker.watch.trouble.reset();
  if (!reading.incarnation.empty()) {  // a brief reading doesn't tell which process answers
    worker.pause_since_read = worker.load_since_read = false;
    for (EarlierCall& earlier : worker.earlier) earlier.since_read = false;
  }
  if (first) note_read_member(context, worker);
  const bool settled = worker.taken_over && worker.earlier.empty();
  if (settled) settle_taken_over(context, worker, reading, first);
  if (first || is_new || settled) record_seen(context, worker);
  worker.paused_by_other = reading.paused && !worker.paused_by_us;
  return is_new;
}

void begin_survey(Context& context, Update& update) {
  update.targets.clear();
  for (auto& [url, worker] : context.state().workers) {
    if (!is_updated(update, worker) || is_joining_now(context.state(), worker)) continue;
    Target& target = update.targets[url];
    target.worker = url;
  }
  context.start_timer(update, "survey", update.policy.deadlines.pause);
  if (knows_who_is_silent(context, update))
    context.start_timer(update, "silent_survey", std::min(limits::kSilentSurvey, update.policy.deadlines.pause));
  for (auto& [url, target] : update.targets) read_worker(context, update, target);
  if (update.targets.empty()) survey_ended(context, update);
}

void take_new_process(Target& target, const Worker& worker, const StateReading& reading) {
  target.paused = reading.paused;
  target.was_paused = false;
  target.incarnation = worker.incarnation;
}

void survey_step(Context& context, Update& update, Target& target, OperationKind kind, const Outcome& outcome) {
  Worker& worker = context.worker_of(target);
  constexpr int kReadTries = 3;  // a read may be repeated; one lost answer shouldn't cost a worker its place
  const bool may_be_repeated = outcome.kind == OutcomeKind::unknown || is_strange(kind, outcome);
  if (!outcome.ok() && may_be_repeated && kind != OperationKind::identify && ++target.tries < kReadTries) {
    read_worker(context, update, target);
    return;
  }
  if (outcome.ok() && kind == OperationKind::identify && worker.dialect) {
    read_worker(context, update, target);
    return;
  }
  const bool was_brief = kind == OperationKind::read_state && may_read_briefly(update, target, worker);
  if (outcome.ok() && outcome.reading && was_brief && !label_is_ours(worker, outcome.reading->label)) {
    target.read_whole = true;
    read_worker(context, update, target);
    return;
  }
  target.step = Step::surveyed;
  if (outcome.ok() && outcome.reading) {
    if (kind == OperationKind::barrier) worker.earlier.clear();
    // It got the pause that was meant for its predecessor: it is held, whatever becomes of this update.
    if (observe(context, worker, *outcome.reading) && worker.paused_by_us) {
      const Cause restarted =
          context.cause(CauseCode::restarted, "a new process answers, and the pause of its predecessor reached it");
      context.set_worker(worker, WorkerState::quarantined, worker.cause.value_or(restarted));
    }
    target.reached = worker.earlier.empty();
    target.was_paused = outcome.reading->paused && !worker.paused_by_us;
    target.paused = outcome.reading->paused;
    target.incarnation = worker.incarnation;
    target.former_label = outcome.reading->label;
    if (!target.reached) target.cause = context.cause(CauseCode::outstanding, "an earlier call may still run in it");
    if (!label_is_ours(worker, outcome.reading->label) && worker.state == WorkerState::ready)
      context.set_worker(
          worker, WorkerState::foreign,
          context.cause(CauseCode::foreign,
                        fmt::format("its label is '{}', which this gateway did not write", outcome.reading->label)));
  } else {
    const bool refused_key = outcome.code == ErrorCode::permission_denied;
    target.cause = context.cause(refused_key ? CauseCode::credentials : CauseCode::unreachable,
                                 fmt::format("read: {}", outcome.text.empty() ? "no answer" : outcome.text));
  }
  if (update.takes_over) {
    on_taken_over_read(context, update, target);
  } else if (update.kind == UpdateKind::leave) {
    on_leave_surveyed(context, update, target);
  } else {
    survey_ended(context, update);  // may clear the targets
  }
}

void on_survey_timer(Context& context, Update& update) {
  for (auto& [url, target] : update.targets) {
    if (target.step == Step::surveying)
      give_up_reading(context, target,
                      fmt::format("read: no answer within {} ms", update.policy.deadlines.pause.count()));
  }
  survey_ended(context, update);
}

namespace {

// Who leaves, hangs, and has nothing of ours in it isn't waited for: that is why it leaves. Whoever is held paused, or
// may still be in a call of ours, has the time of the whole leave to come back.
void on_silent_leave_timer(Context& context, Update& update) {
  std::vector<std::string> silent;
  for (auto& [url, target] : update.targets) {
    const Worker& worker = context.worker_of(target);
    const bool is_free = worker.earlier.empty() && !worker.paused_by_us;
    if (target.step != Step::surveying || !is_free || !is_known_silent(worker)) continue;
    give_up_reading(context, target, silent_text());
    silent.push_back(url);
  }
  for (const std::string& url : silent)
    on_leave_surveyed(context, update, update.targets.at(url));  // the last may end it
}

}  // namespace

void on_silent_survey_timer(Context& context, Update& update) {
  if (update.kind == UpdateKind::leave) return on_silent_leave_timer(context, update);
  for (auto& [url, target] : update.targets) {
    if (target.step == Step::surveying && is_known_silent(context.worker_of(target)))
      give_up_reading(context, target, silent_text());
  }
  survey_ended(context, update);
}

}  // namespace weighlock::protocol
