// One update at a time on a worker, whichever pairs share it (protocol.md section 2). The locks of all targets are
// taken together, never while holding another, so nobody waits in a circle; who came first goes first.
#include <algorithm>
#include <utility>

#include "weighlock/protocol/lora.hpp"
#include "weighlock/protocol/phases.hpp"

namespace weighlock::protocol {
namespace {

bool wants_one_of(const Update& update, const std::set<std::string>& workers) {
  return std::any_of(workers.begin(), workers.end(),
                     [&](const std::string& url) { return update.wanted_locks.contains(url); });
}

std::vector<UpdateId> waiting(Context& context) {
  std::vector<const Update*> found;
  for (const auto& [name, pair] : context.state().pairs) {
    const Update* update = context.find_update(pair.active);
    if (update && update->waits_for_locks) found.push_back(update);
  }
  std::sort(found.begin(), found.end(), [](const Update* a, const Update* b) { return a->number < b->number; });
  std::vector<UpdateId> ids;
  for (const Update* update : found) ids.push_back(update->id);
  return ids;
}

}  // namespace

bool take_locks(Context& context, Update& update, std::set<std::string> workers) {
  update.wanted_locks = std::move(workers);
  update.waits_for_locks = true;
  for (const std::string& url : update.wanted_locks) {
    const auto worker = context.state().workers.find(url);
    if (worker == context.state().workers.end()) continue;
    if (!worker->second.locked_by.empty() && worker->second.locked_by != update.id) return false;
  }
  for (const UpdateId& id : waiting(context)) {
    const Update* other = context.find_update(id);
    if (other->number < update.number && wants_one_of(*other, update.wanted_locks)) return false;
  }
  update.waits_for_locks = false;
  for (const std::string& url : update.wanted_locks) {
    const auto worker = context.state().workers.find(url);
    if (worker != context.state().workers.end()) worker->second.locked_by = update.id;
    preempt_retirement(context, url);
  }
  return true;
}

void release_locks(Context& context, Update& update) {
  update.waits_for_locks = false;
  for (const std::string& url : std::exchange(update.wanted_locks, {})) {
    const auto worker = context.state().workers.find(url);
    if (worker != context.state().workers.end() && worker->second.locked_by == update.id)
      worker->second.locked_by.clear();
  }
}

void resume_waiting(Context& context) {
  for (const UpdateId& id : waiting(context)) {
    Update* update = context.find_update(id);
    if (!update || !update->waits_for_locks) continue;  // ended by what another one did
    if (update->kind == UpdateKind::leave) {
      begin_leave(context, *update);
    } else if (is_lora(context, *update)) {
      begin_adapter_loading(context, *update);
    } else {
      begin_pausing(context, *update);
    }
  }
}

}  // namespace weighlock::protocol
