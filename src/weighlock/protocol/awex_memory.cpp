// Colocated pairs: trainers and workers share devices, so memory goes from hand to hand around the transfer.
//
//   release_optimizer (trainers) -> resume_weights (workers) -> transfer (all) -> release_weights (trainers)
//   -> resume_kv_cache (workers)
//
// Each step is of all members before the next, and only the machine sends it: an update that ended sends none. Once
// there will be no transfer any more (a member failed, the deadline, a cancel) it is left out and the other steps are
// done all the same, since an engine without its memory can't even be healed; then the update goes back. Whoever is
// silent in a step is asked nothing behind it; an engine that is silent in the transfer gets its cache when a barrier
// says that it is out (`resume_cache`).
//
// No engine is asked to resume a tag twice: SGLang's scheduler dies of it. So Worker::memory keeps what it was asked,
// over the death of the gateway too, and a worker whose memory isn't known to be whole is neither healed nor READY.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "weighlock/protocol/awex.hpp"
#include "weighlock/protocol/phases.hpp"

namespace weighlock::protocol {
namespace {

bool is_of_trainers(HandOverStep step) {
  return step == HandOverStep::release_optimizer || step == HandOverStep::transfer ||
         step == HandOverStep::release_weights;
}

bool is_asked(const Worker& worker, const Target& target, HandOverStep step) {
  const bool in_it = target.step == Step::assembling || target.step == Step::answered;
  if (!in_it || !worker.earlier.empty()) return false;
  if (step == HandOverStep::resume_weights) return worker.memory == EngineMemory::released;
  if (step == HandOverStep::resume_kv_cache) return worker.memory == EngineMemory::weights_back;
  return step == HandOverStep::transfer;
}

void ask_worker(Context& context, Update& update, Target& target, HandOverStep step) {
  Operation operation = load_operation(update);
  if (step == HandOverStep::resume_weights) operation.memory = "weights";
  if (step == HandOverStep::resume_kv_cache) operation.memory = "kv_cache";
  if (step == HandOverStep::transfer) target.load_started = context.now();
  // Label and flush aren't planned with it: their own intents bring the last step's answer to the disk.
  context.call(update, target, Step::loading, std::move(operation));
}

// False: nobody is left to be asked.
bool begin_step(Context& context, Update& update) {
  const HandOver& hand = *update.hand_over;
  RunTransfer run;
  run.update = update.id;
  run.pair = update.pair;
  run.name = hand.group;
  run.version = update.version.version;
  run.colocate = true;
  run.step = hand.step;
  json::array trainers;
  for (Rank& rank : update.ranks) {
    if (!is_of_trainers(hand.step) || rank.given_up) continue;
    rank.ended = false;
    rank.call = context.state().next_id++;
    context.state().transfers[rank.call] = {update.id, rank.trainer};
    run.trainers.push_back({rank.call, rank.trainer});
    trainers.push_back(json::string(rank.trainer));
  }
  std::vector<Target*> asked;
  for (const std::string& url : hand.workers) {
    Target& target = update.targets.at(url);
    if (is_asked(context.worker_of(target), target, hand.step)) asked.push_back(&target);
  }
  if (run.trainers.empty() && asked.empty()) return false;
  context.record(RecordKind::group, update, "",
                 {{"what", "hand_over"}, {"step", name(hand.step)}, {"trainers", std::move(trainers)}});
  for (Target* target : asked) {
    ask_worker(context, update, *target, hand.step);
    run.workers.push_back({*target->call, target->worker});
  }
  context.emit(std::move(run));
  if (hand.is_undone()) begin_transfer_grace(context, update);
  return true;
}

// Whoever trains has it when it asks for an update. What was in it is nobody's from then on.
void take_memory(Worker& worker) {
  worker.memory = EngineMemory::released;
  worker.version.reset();
  worker.evidence = Evidence::none;
}

// The update goes back before its first step: then the steps are done all the same, but for the transfer, with those
// that are paused. False if none is due.
bool begin_return(Context& context, Update& update, const Error* error) {
  const auto& group = context.pair_of(update).group;
  const bool is_before = update.state == UpdateState::pausing || update.state == UpdateState::loading;
  if (!error || !update.transfer || !shares_devices(context.pair_of(update)) || !is_before || !update.members_fixed ||
      !update.ranks.empty() || !group)
    return false;
  context.cancel_timer(update, "pause");
  context.cancel_timer(update, "load");
  for (const std::string& url : group->workers) {
    Target& target = update.targets.at(url);
    context.give_up(target);
    const bool gone = target.cause && (target.cause->code == CauseCode::unreachable);
    const bool is_held = target.paused || target.was_paused || update.policy.pause != PauseOwner::gateway;
    target.step = is_held && !gone ? Step::assembling : Step::judged;
  }
  context.set_state(update, UpdateState::loading);
  note_begun(context, update);
  begin_hand_over(context, update, error);
  return true;
}

void end_hand_over(Context& context, Update& update) {
  const HandOver hand = *std::exchange(update.hand_over, std::nullopt);
  if (hand.error) return begin_restoring(context, update, *hand.error);
  if (!hand.failure.empty()) return fail_transfer(context, update, hand.failure);
  transfer_succeeded(context, update);
}

void step_is_over(Context& context, Update& update) {
  HandOver& hand = *update.hand_over;
  context.cancel_timer(update, "transfer_grace");
  while (hand.step != HandOverStep::resume_kv_cache) {
    hand.step = static_cast<HandOverStep>(static_cast<int>(hand.step) + 1);
    if (hand.step == HandOverStep::transfer && hand.is_undone()) continue;
    if (begin_step(context, update)) return;
  }
  end_hand_over(context, update);
}

// Why the worker may not serve, and what helps; "" if nothing is owed to it.
std::string missing_memory(const Worker& worker) {
  constexpr std::string_view kTwice = "asked for it twice SGLang ends";
  switch (worker.memory) {
    case EngineMemory::whole:
      return "";
    case EngineMemory::released:
      return "its memory of 'weights' and 'kv_cache' is not resumed: the pair's next transfer does it, or restart it";
    case EngineMemory::weights_asked:
      return fmt::format("its memory of 'kv_cache' is not resumed, and that of 'weights' perhaps, and {}: restart it",
                         kTwice);
    case EngineMemory::weights_back:
      return "its memory of 'kv_cache' is not resumed: restart it, or resume it by hand and release the worker";
    case EngineMemory::kv_cache_asked:
      return fmt::format("its memory of 'kv_cache' is perhaps not resumed, and {}: restart it", kTwice);
  }
  return "";
}

}  // namespace

bool shares_devices(const Pair& pair) {
  return pair.spec.awex && pair.spec.awex->colocate;
}

bool may_be_probed(Context& context, const Worker& worker) {
  const auto pair = context.state().pairs.find(worker.pair);
  return pair != context.state().pairs.end() && !shares_devices(pair->second);
}

std::optional<Error> refuse_directory(const Pair& pair, std::string_view what) {
  if (!shares_devices(pair)) return std::nullopt;
  return Error{ErrorCode::not_supported,
               fmt::format("pair '{}': {}: its workers share their devices with trainers, and their memory may be in "
                           "the trainers' hands, so nothing is loaded into them from a directory; load it into the "
                           "trainers and ask for an update, or connect the pair with mode 'disk'",
                           pair.spec.name, what),
               nullptr};
}

bool has_its_memory(const Worker& worker) {
  return worker.memory == EngineMemory::whole;
}

bool may_be_resumed(const Pair& pair, const Update& update, const Worker& worker) {
  return update.transfer && shares_devices(pair) && worker.memory == EngineMemory::released;
}

Cause with_missing_memory(const Worker& worker, Cause cause) {
  const std::string missing = missing_memory(worker);
  if (missing.empty() || cause.message.find(missing) != std::string::npos) return cause;
  cause.message += (cause.message.empty() ? "" : "; ") + missing;
  // Nothing else helps, so nothing else is tried.
  const bool is_fixed = cause.code == CauseCode::outstanding || cause.code == CauseCode::unreachable;
  if (worker.memory != EngineMemory::released && !is_fixed) cause.code = CauseCode::needs_restart;
  return cause;
}

void note_released(Context& context, const Update& update) {
  const Pair& pair = context.pair_of(update);
  if (!update.transfer || !shares_devices(pair)) return;
  json::array released;
  for (const std::string& url : pair.group->workers) {
    take_memory(context.state().workers.at(url));
    released.push_back(json::string(url));
  }
  context.record(RecordKind::group, update, "", {{"what", "released"}, {"released", std::move(released)}});
}

std::string hold_without_memory(Context& context, const Update& update) {
  if (!update.transfer || !shares_devices(context.pair_of(update)) || update.state < UpdateState::preparing) return "";
  json::array released;
  for (auto& [url, worker] : context.state().workers) {
    const bool is_out = worker.state == WorkerState::quarantined && !is_held(worker);
    if (worker.pair != update.pair || !has_its_memory(worker) || !(is_out || worker.state == WorkerState::ready))
      continue;
    take_memory(worker);
    released.push_back(json::string(url));
    const Cause before = is_out && worker.cause
                             ? *worker.cause
                             : context.cause(CauseCode::load_unknown, "its update ended before its memory came back");
    const Cause cause = with_missing_memory(worker, before);
    context.set_worker(worker, WorkerState::quarantined, cause);
    if (!is_out) context.emit(Fence{worker.url, worker.pair, cause});
  }
  if (released.empty()) return "";
  const std::size_t count = released.size();
  context.record(RecordKind::group, update, "", {{"what", "not_handed_back"}, {"released", std::move(released)}});
  return fmt::format(
      "; the memory of {} workers was not handed back, and they are held until an update does it: ask "
      "again",
      count);
}

void begin_hand_over(Context& context, Update& update, const Error* error) {
  const TransferGroup& group = *context.pair_of(update).group;
  update.hand_over = HandOver{group.name, group.workers, HandOverStep::release_optimizer, "", std::nullopt};
  if (error) update.hand_over->error = *error;
  update.ranks.clear();
  for (const std::string& url : group.trainers)
    update.ranks.push_back(Rank{url, 0, false, SaveOutcomeKind::unknown, "", false, false, false});
  begin_step(context, update);
}

void note_member_failed(Context& context, Update& update) {
  HandOver& hand = *update.hand_over;
  if (!hand.is_undone()) {
    hand.failure = "a member failed";
    context.cancel_timer(update, "load");
  }
  begin_transfer_grace(context, update);
}

void conclude_step(Context& context, Update& update) {
  const bool ranks =
      std::all_of(update.ranks.begin(), update.ranks.end(), [](const Rank& r) { return r.ended || r.given_up; });
  const bool workers = std::none_of(update.targets.begin(), update.targets.end(),
                                    [](const auto& e) { return e.second.step == Step::loading; });
  if (ranks && workers) step_is_over(context, update);
}

void give_up_silent_members(Context& context, Update& update) {
  const std::string_view step = name(update.hand_over->step);
  for (Rank& rank : update.ranks) {
    if (rank.ended || rank.given_up) continue;
    rank.given_up = true;
    if (!std::exchange(rank.failed, true)) rank.text = fmt::format("{}: no answer in time", step);
  }
  for (auto& [url, target] : update.targets) {
    if (target.step != Step::loading) continue;
    context.give_up(target);
    target.step = Step::judged;
    target.verdict = Verdict::unknown;
    if (!target.cause)
      target.cause = context.cause(CauseCode::load_unknown,
                                   fmt::format("transfer of v{}: {}: no answer", update.version.version, step));
    context.set_worker(context.worker_of(target), WorkerState::unknown, target.cause);
  }
  step_is_over(context, update);
}

bool hands_memory_back(Context& context, Update& update, std::string_view failure, const Error* error) {
  if (!update.hand_over) return begin_return(context, update, error);
  HandOver& hand = *update.hand_over;
  if (hand.is_undone()) return true;  // it does already
  hand.failure = failure;
  if (error) hand.error = *error;
  context.cancel_timer(update, "load");
  if (error) {
    begin_transfer_grace(context, update);
  } else {
    give_up_silent_members(context, update);  // they had all the time that there was
  }
  return true;
}

// A process that took the update over doesn't know whether trainers have made room.
bool resume_cache(Context& context, Update& update, Target& target) {
  const Worker& worker = context.worker_of(target);
  const bool is_known = worker.memory == EngineMemory::weights_back && worker.earlier.empty();
  if (!update.transfer || update.ranks.empty() || !is_known) return false;
  Operation operation = load_operation(update);
  operation.memory = "kv_cache";
  context.call(update, target, Step::cache_resuming, std::move(operation));
  RunTransfer run;
  run.update = update.id;
  run.pair = update.pair;
  run.version = update.version.version;
  run.colocate = true;
  run.step = HandOverStep::resume_kv_cache;
  run.workers.push_back({*target.call, target.worker});
  context.emit(std::move(run));
  return true;
}

void on_cache_resumed(Context& context, Update& update, Target& target, const Outcome& outcome) {
  if (outcome.ok()) {
    heal_or_quarantine(context, update, target);
  } else {
    const std::string before = target.cause ? target.cause->message + "; " : "";
    quarantine(context, update, target,
               context.cause(outcome.kind == OutcomeKind::not_sent ? CauseCode::unreachable : CauseCode::load_failed,
                             fmt::format("{}resume of its cache: {}", before, outcome.text)));
  }
  finish_if_done(context, update);
}

}  // namespace weighlock::protocol
