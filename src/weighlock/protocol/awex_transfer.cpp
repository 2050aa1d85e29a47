// The collective: all members are asked once, at the same time. While one hasn't answered well, nobody has the version.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "weighlock/core/limits.hpp"
#include "weighlock/protocol/awex.hpp"
#include "weighlock/protocol/awex_blame.hpp"
#include "weighlock/protocol/mutant.hpp"
#include "weighlock/protocol/phases.hpp"

namespace weighlock::protocol {
namespace {

bool takes_part(Step step) {
  return step == Step::assembling || step == Step::loading || step == Step::answered;
}

// "; trainer URL: what it said" for each member that failed or is silent, whoever failed by itself first.
std::string words_of_members(const Update& update) {
  constexpr const char* kSilent = "no answer yet";
  std::vector<MemberEnd> ends;
  for (const Rank& rank : update.ranks) {
    if (!rank.ended || rank.kind != SaveOutcomeKind::ok)
      ends.push_back({"trainer " + rank.trainer, rank.ended ? rank.text : kSilent, !rank.ended, rank.blames_a_peer});
  }
  for (const auto& [url, target] : update.targets) {
    const bool answered = target.included && target.step == Step::answered && !target.transferred;
    if (target.step == Step::loading)
      ends.push_back({"worker " + url, kSilent, true, false});
    else if (target.cause && (answered || target.step == Step::judged))
      ends.push_back({"worker " + url, target.cause->message, false, target.blames_a_peer});
  }
  const std::string text = blame_text(std::move(ends));
  return text.empty() ? "" : "; " + text;
}

void start_transfer(Context& context, Update& update) {
  const TransferGroup& group = *context.pair_of(update).group;
  note_begun(context, update);
  if (shares_devices(context.pair_of(update))) return begin_hand_over(context, update, nullptr);
  RunTransfer run;
  run.update = update.id;
  run.pair = update.pair;
  run.name = group.name;
  run.version = update.version.version;
  update.ranks.clear();
  for (const std::string& url : group.trainers) {
    const CallId call = context.state().next_id++;
    update.ranks.push_back(Rank{url, call, false, SaveOutcomeKind::unknown, "", false, false, false});
    context.state().transfers[call] = {update.id, url};
    run.trainers.push_back({call, url});
  }
  for (const std::string& url : group.workers) {
    Target& target = update.targets.at(url);
    context.call(update, target, Step::loading, load_operation(update));
    intend_after_load(context, update, target);
    run.workers.push_back({*target.call, url});
  }
  context.emit(std::move(run));
}

void conclude_if_all_answered(Context& context, Update& update) {
  const bool ranks = std::all_of(update.ranks.begin(), update.ranks.end(), [](const Rank& r) { return r.ended; });
  const bool workers = std::none_of(update.targets.begin(), update.targets.end(),
                                    [](const auto& e) { return e.second.step == Step::loading; });
  if (!ranks || !workers) return;
  const bool all_well = std::all_of(update.ranks.begin(), update.ranks.end(),
                                    [](const Rank& r) { return r.kind == SaveOutcomeKind::ok; }) &&
                        std::all_of(update.targets.begin(), update.targets.end(), [](const auto& e) {
                          return e.second.step != Step::answered || e.second.transferred;
                        });
  if (!all_well && !mutant(Mutant::member_failure_ignored)) return fail_transfer(context, update, "a member failed");
  context.cancel_timer(update, "transfer_grace");
  transfer_succeeded(context, update);
}

void member_ended(Context& context, Update& update, bool ok) {
  if (update.hand_over) {
    if (!ok) note_member_failed(context, update);
    return conclude_step(context, update);
  }
  if (!ok) begin_transfer_grace(context, update);
  conclude_if_all_answered(context, update);
}

}  // namespace

void note_begun(Context& context, Update& update) {
  const TransferGroup& group = *context.pair_of(update).group;
  json::array trainers;
  for (const std::string& url : group.trainers) trainers.push_back(json::string(url));
  context.record(RecordKind::group, update, "",
                 {{"what", "transfer"},
                  {"name", group.name},
                  {"version", update.version.version},
                  {"trainers", std::move(trainers)}});
  for (const std::string& url : group.workers) {
    Target& target = update.targets.at(url);
    Worker& worker = context.worker_of(target);
    target.load_sent = true;
    target.load_started = context.now();
    target.verdict = Verdict::torn;  // until shown otherwise
    worker.version.reset();
    worker.evidence = Evidence::none;
    context.set_worker(worker, WorkerState::loading, worker.cause);
  }
}

void begin_transfer_grace(Context& context, Update& update) {
  const bool runs = std::any_of(update.timers.begin(), update.timers.end(),
                                [](const auto& timer) { return timer.second == "transfer_grace"; });
  if (!runs) context.start_timer(update, "transfer_grace", limits::kTransferGrace);
}

bool is_transferring(const Update& update) {
  return update.hand_over || (update.transfer && std::any_of(update.targets.begin(), update.targets.end(),
                                                             [](const auto& e) { return takes_part(e.second.step); }));
}

void assemble(Context& context, Update& update, Target& target) {
  target.step = Step::assembling;
  const bool all = std::all_of(update.targets.begin(), update.targets.end(),
                               [](const auto& e) { return !e.second.included || e.second.step == Step::assembling; });
  if (all && !group_is_whole(context, update))
    return fail_transfer(context, update, "a worker of the group could not be labelled");
  if (all) start_transfer(context, update);
}

// Where devices are shared, whose label is under way could be asked for nothing, and so not for its memory.
void label_refused(Context& context, Update& update, const Target& target) {
  const bool others_wait = std::any_of(update.targets.begin(), update.targets.end(),
                                       [](const auto& e) { return e.second.step == Step::labelling; });
  if (shares_devices(context.pair_of(update)) && others_wait) return;
  fail_transfer(context, update, fmt::format("worker {} is not in it", target.worker));
}

void on_transferred(Context& context, Update& update, Target& target, const Outcome& outcome) {
  const bool is_first_failure = !outcome.ok() && !(update.hand_over && target.cause);
  const bool is_around_it = update.hand_over && update.hand_over->step != HandOverStep::transfer;
  target.step = Step::answered;
  target.transferred = outcome.ok() && (!is_around_it || target.transferred);
  if (is_first_failure) {
    const bool gone = outcome.kind == OutcomeKind::not_sent;
    target.blames_a_peer = outcome.blames_a_peer;
    target.cause = context.cause(gone ? CauseCode::unreachable : CauseCode::load_failed,
                                 fmt::format("transfer of v{}: {}", update.version.version, outcome.text));
  }
  member_ended(context, update, outcome.ok());
}

bool on_trainer_transferred(Context& context, const SaveEnded& event) {
  const auto node = context.state().transfers.extract(event.call);
  if (node.empty()) return false;
  const auto& [id, trainer] = node.mapped();
  Update* update = context.find_update(id);
  if (!update) return true;
  const bool ok = event.kind == SaveOutcomeKind::ok;
  context.record(RecordKind::group, *update, "",
                 {{"what", "answered"}, {"trainer", trainer}, {"ok", ok}, {"text", event.text}});
  if (update->state != UpdateState::loading || !is_transferring(*update)) return true;
  for (Rank& rank : update->ranks) {
    if (rank.call != event.call) continue;
    rank.ended = true;
    if (rank.failed) continue;  // what it said or did not say first is why
    rank.failed = !ok;
    rank.kind = event.kind;
    rank.blames_a_peer = event.blames_a_peer;
    rank.text = event.text.empty() ? "an answer without a text" : event.text;
  }
  member_ended(context, *update, ok);
  return true;
}

void on_transfer_grace_timer(Context& context, Update& update) {
  if (update.hand_over) return give_up_silent_members(context, update);
  if (is_transferring(update)) fail_transfer(context, update, "a member failed");
}

void fail_transfer(Context& context, Update& update, std::string_view what) {
  if (hands_memory_back(context, update, what, nullptr)) return;
  const std::string text = fmt::format("pair '{}': v{}: transfer: {}{}", update.pair, update.version.version, what,
                                       words_of_members(update));
  for (auto& [url, target] : update.targets) {
    if (!takes_part(target.step)) continue;
    const bool silent = target.step == Step::loading;
    const bool began = target.load_sent;
    context.give_up(target);
    target.step = Step::judged;
    if (!began) continue;  // nothing was transferred: it goes back to what it was
    target.verdict = silent ? Verdict::unknown : Verdict::torn;
    if (!target.cause)
      target.cause = context.cause(silent ? CauseCode::load_unknown : CauseCode::load_failed,
                                   silent ? fmt::format("transfer of v{}: no answer", update.version.version)
                                          : fmt::format("transfer of v{}: another member failed, so nothing shows "
                                                        "that what it holds is whole",
                                                        update.version.version));
    context.set_worker(context.worker_of(target), silent ? WorkerState::unknown : WorkerState::torn, target.cause);
  }
  begin_restoring(context, update, Error{ErrorCode::quorum_lost, text, nullptr});
}

void transfer_undone(Context& context, Update& update) {
  if (!update.ranks.empty()) drop_group(context, update.pair, "a transfer was undone");
}

}  // namespace weighlock::protocol
