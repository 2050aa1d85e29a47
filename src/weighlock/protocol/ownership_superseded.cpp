// Another gateway took the pair (protocol.md section 9).
#include <fmt/format.h>

#include <utility>

#include "weighlock/protocol/lora.hpp"
#include "weighlock/protocol/ownership.hpp"
#include "weighlock/protocol/phases.hpp"

namespace weighlock::protocol {
namespace {

void refuse_queue(Context& context, Pair& pair, const Error& error) {
  const std::deque<UpdateId> queue = std::exchange(pair.queue, {});
  for (const UpdateId& id : queue) {
    if (Update* update = context.find_update(id)) end_before_pause(context, *update, UpdateState::rejected, error);
  }
}

}  // namespace

bool is_superseded(const Pair& pair) {
  return pair.ownership.superseded_by.has_value();
}

Error superseded_error(const std::string& pair, const Epoch& by) {
  const std::string who = by.owner.empty() ? fmt::format("an owner that can't be read ({})", by.remark)
                                           : fmt::format("owner {} on host {}", by.owner, by.host);
  return Error{ErrorCode::superseded,
               fmt::format("pair '{}': another gateway took it: epoch {} of {}; nothing is sent to its workers from "
                           "here any more, until it is connected here again",
                           pair, by.number, who),
               nullptr};
}

void supersede(Context& context, const std::string& name, Epoch by) {
  Pair& pair = context.state().pairs.at(name);
  Ownership& own = pair.ownership;
  if (own.timer) context.emit(CancelTimer{*own.timer});
  by.paused.clear();
  const std::int64_t epoch = own.epoch;
  const std::deque<EventBody> parked = std::exchange(own.parked, {});
  own = Ownership();
  own.stop_waits = true;  // until those that wait were told
  own.epoch = epoch;
  own.superseded_by = by;
  context.record(RecordKind::superseded, name, "", "", epoch_body(by));
  const Error error = superseded_error(name, by);
  for (auto& [url, worker] : context.state().workers) {
    if (worker.pair == name) context.give_up_watch(worker);
  }
  std::vector<UpdateId> running(pair.joins.begin(), pair.joins.end());
  if (!pair.active.empty()) running.push_back(pair.active);
  for (const UpdateId& id : running) {
    for (auto& [url, target] : context.state().updates.at(id).targets) context.give_up(target);
  }
  let_go_of_workers(context.state(), name);
  stop_retirements(context, pair);
  doubt_adapters(pair, context.cause(CauseCode::foreign, error.message));
  for (auto& [url, worker] : context.state().workers) {
    if (worker.pair != name) continue;
    if (worker.state == WorkerState::abandoned) {
      begin_watch(context, worker);  // for its adapters' sake, from here on
    } else {
      context.set_worker(worker, WorkerState::foreign, context.cause(CauseCode::foreign, error.message));
    }
  }
  refuse_queue(context, pair, error);
  refuse_changes(context, pair, error);
  for (const UpdateId& id : running) {
    Update* update = context.find_update(id);
    // While the commit's record is on its way to the disk, commit.cpp ends it. A process that starts has it there.
    const bool is_being_written =
        update && update->state == UpdateState::committing && !update->committed.value_or(false);
    if (!update || is_terminal(update->state) || is_being_written) continue;
    if (update->state < UpdateState::pausing) {
      end_before_pause(context, *update, UpdateState::aborted, error);
    } else {
      end_update(context, *update, UpdateState::failed, error);
    }
  }
  for (const EventBody& body : parked) dispatch(context, body);
  const auto left = context.state().pairs.find(name);
  if (left != context.state().pairs.end()) left->second.ownership.stop_waits = false;
  stop_if_idle(context);
}

}  // namespace weighlock::protocol
