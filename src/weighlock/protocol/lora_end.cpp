// How a LoRA update ends: after the commit there is nothing to resume; RESTORING unloads the new name where it was
// loaded or may have been.
#include <fmt/format.h>

#include <algorithm>

#include "weighlock/core/limits.hpp"
#include "weighlock/protocol/lora.hpp"
#include "weighlock/protocol/phases.hpp"

namespace weighlock::protocol {
namespace {

void send_undo(Context& context, Update& update, Target& target, bool again) {
  Operation operation;
  operation.kind = OperationKind::unload_adapter;
  operation.adapter = new_name(context, update);
  target.adapter->again = again;
  call_adapter(context, update, target, Step::adapter_undoing, std::move(operation));
}

void undo(Context& context, Update& update, Target& target) {
  const WorkerAdapters& known = adapters_of(context, update, target);
  const auto it = known.names.find(new_name(context, update));
  const bool ours = it != known.names.end() && target.load_sent && it->second.attempt == update.attempt;
  if (target.step == Step::done || !ours) {
    target.step = Step::done;
    return;
  }
  target.adapter->doubtful = !it->second.certain;
  send_undo(context, update, target, false);
}

// It stays recorded: a later update unloads it, and no other bytes are loaded under the name before that.
void leave_behind(Context& context, const Update& update, Target& target, std::string_view why) {
  adapters_of(context, update, target).names[new_name(context, update)].certain = false;
  target.step = Step::done;
  target.verdict = Verdict::unknown;
  const std::string before = target.cause ? target.cause->message + "; " : "";
  target.cause = context.cause(CauseCode::adapter_failed, fmt::format("{}{} could not be unloaded again: {}", before,
                                                                      new_name(context, update), why));
}

void finish_restoring(Context& context, Update& update) {
  const bool done = std::all_of(update.targets.begin(), update.targets.end(),
                                [](const auto& e) { return e.second.step == Step::done; });
  if (!done) return;
  end_update(context, update, UpdateState::rolled_back, update.error);
}

}  // namespace

void adapters_committed(Context& context, Update& update) {
  Pair& pair = context.pair_of(update);
  add_to_window(pair, update);
  bool everyone = true;
  for (auto& [url, target] : update.targets) {
    target.step = Step::done;
    WorkerAdapters& known = adapters_of(context, update, target);
    note_lacking(pair, known, target, new_name(context, update));
    if (target.verdict == Verdict::verified) {
      known.version = update.version;
      known.cause.reset();
      known.names[new_name(context, update)].committed = true;
    } else {
      everyone = false;
      known.cause = target.cause;
    }
    watch_for_adapters(context, context.worker_of(target));
  }
  plan_retirement(pair, update.version.version);
  end_update(context, update, everyone ? UpdateState::succeeded : UpdateState::degraded, std::nullopt);
}

void begin_adapter_restoring(Context& context, Update& update) {
  context.start_timer(update, "restore", limits::kAdapterUnloadTimeout);
  for (auto& [url, target] : update.targets) undo(context, update, target);
  finish_restoring(context, update);
}

void on_adapter_undone(Context& context, Update& update, Target& target, const Outcome& outcome) {
  AdapterProgress& progress = *target.adapter;
  if (says_gone(outcome) && progress.doubtful && !progress.again) return send_undo(context, update, target, true);
  if (says_gone(outcome)) {
    adapters_of(context, update, target).names.erase(new_name(context, update));
    target.step = Step::done;
    target.verdict = Verdict::untouched;
  } else if (outcome.code == ErrorCode::adapter_half_unloaded && !progress.again) {
    return send_undo(context, update, target, true);
  } else {
    leave_behind(context, update, target, outcome.text);
  }
  finish_restoring(context, update);
}

void on_adapter_restore_timer(Context& context, Update& update) {
  for (auto& [url, target] : update.targets) {
    if (target.step == Step::done) continue;
    context.give_up(target);
    leave_behind(context, update, target,
                 fmt::format("no answer within {} ms", Milliseconds(limits::kAdapterUnloadTimeout).count()));
  }
  finish_restoring(context, update);
}

}  // namespace weighlock::protocol
