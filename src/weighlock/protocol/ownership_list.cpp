// Whom an epoch's file lists: who is paused by this gateway or about to be, who is in its hands while somebody else
// holds it paused, and under which label each is whole.
#include <algorithm>

#include "weighlock/protocol/ownership.hpp"

namespace weighlock::protocol {
namespace {

// Whether the update's next step could be the pause of this worker.
bool may_be_paused(const Update& update, const Worker& worker) {
  if (update.policy.pause == PauseOwner::caller || worker.state == WorkerState::abandoned) return false;
  if (update.state < UpdateState::pausing) return true;
  const auto target = update.targets.find(worker.url);
  return target != update.targets.end() && target->second.included && !target->second.was_paused;
}

// One that may not serve is paused again whenever somebody continues it, and to be brought back.
bool is_kept_out(const Update* active, const Worker& worker) {
  if (worker.state == WorkerState::ready || worker.state == WorkerState::draining ||
      worker.state == WorkerState::foreign || worker.state == WorkerState::gone ||
      worker.state == WorkerState::abandoned)
    return false;
  const auto target = active ? active->targets.find(worker.url) : decltype(active->targets.end())();
  const bool found_paused = active && target != active->targets.end() && target->second.was_paused;
  return !worker.paused_by_other && !found_paused;
}

// A load of this gateway may have torn it, or is about to. `active`: the pair's. `update`: one that is about to load.
bool may_be_torn(const Update* active, const Update* update, const Worker& worker) {
  switch (worker.state) {
    case WorkerState::draining:
    case WorkerState::foreign:
    case WorkerState::gone:
    case WorkerState::abandoned:
      return false;
    case WorkerState::ready:
      break;
    default:
      return true;
  }
  if (update && update->state < UpdateState::pausing) return true;
  const Update* has = update ? update : active;
  if (!has) return false;
  const auto target = has->targets.find(worker.url);
  if (target == has->targets.end() || !target->second.included) return false;
  return update || (has->members_fixed && target->second.step != Step::done);
}

// HeldWorker::label. `active`: the pair's. A heal goes back to a label that the worker had before, so a worker that is
// being healed has none that tells; nor has one that is loaded under the label that it had.
std::string whole_label(const Update* active, const Worker& worker) {
  const std::string& now = worker.labels.empty() ? worker.start_label : worker.labels.back();
  const bool updates = active && active->kind == UpdateKind::update;
  const auto found = active ? active->targets.find(worker.url) : decltype(active->targets.end())();
  // A load that no label announces leaves the former one until it is over.
  const bool unannounced = updates && (active->policy.pause == PauseOwner::never || trusts_answers(*active));
  const bool in_hand = active && found != active->targets.end() && (!updates || active->members_fixed);
  if (!in_hand) {
    const bool loads_next = updates && (active->version.label == now || unannounced);
    return worker.state == WorkerState::ready && !loads_next ? now : "";
  }
  const Target& target = found->second;
  if (!updates) {
    const bool as_it_was = !target.load_sent && !target.label_changed;
    return target.former_state == WorkerState::ready && as_it_was ? now : "";
  }
  const bool comes_back = active->state >= UpdateState::resuming;
  if (comes_back && active->committed.value_or(false) && target.verdict == Verdict::verified)
    return active->version.label;
  const bool healed = comes_back && worker.touched;  // also by a load that nobody has judged yet
  const bool tells =
      target.former_state == WorkerState::ready && target.former_label != active->version.label && !unannounced;
  return tells && !healed ? target.former_label : "";
}

}  // namespace

std::vector<HeldWorker> held_workers(Context& context, const std::string& pair, const Update* update) {
  const Pair& owned = context.state().pairs.at(pair);
  std::vector<HeldWorker> out = owned.ownership.strangers;
  const Update* active = context.find_update(owned.active);
  const bool pauses = owned.spec.policy.pause != PauseOwner::caller;
  for (const auto& [url, worker] : context.state().workers) {
    if (worker.pair != pair) continue;
    if (worker.taken_over && worker.taken_over->listed) {
      out.push_back({url, worker.taken_over->incarnation, worker.taken_over->label, worker.taken_over->held});
      continue;
    }
    const bool held =
        worker.paused_by_us || (pauses && is_kept_out(active, worker)) || (update && may_be_paused(*update, worker));
    if (held || may_be_torn(active, update, worker))
      out.push_back({url, worker.incarnation, whole_label(active, worker), held});
  }
  std::sort(out.begin(), out.end(), [](const HeldWorker& a, const HeldWorker& b) { return a.url < b.url; });
  return out;
}

// Who is listed as held is listed; who is listed only for its label isn't listed as held.
bool covers(const std::vector<HeldWorker>& written, const std::vector<HeldWorker>& wanted) {
  auto there = written.begin();
  for (const HeldWorker& one : wanted) {
    while (there != written.end() && there->url < one.url) ++there;
    if (there == written.end() || there->url != one.url) return false;
    if (there->incarnation != one.incarnation || there->label != one.label) return false;
    if (one.held && !there->held) return false;
  }
  return true;
}

}  // namespace weighlock::protocol
