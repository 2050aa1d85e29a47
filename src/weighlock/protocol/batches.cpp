// Who loads first: canaries, then the rest (protocol.md section 3).
#include <algorithm>

#include "weighlock/protocol/lora.hpp"
#include "weighlock/protocol/phases.hpp"

namespace weighlock::protocol {

void assign_batches(Context& context, Update& update) {
  int canary = update.policy.canary;
  const bool incomparable = !update.sealed || !update.sealed->compared || update.sealed->layout_changed;
  if (incomparable && !is_lora(context, update)) canary = std::max(canary, 1);
  if (update.transfer) canary = 0;  // all or none
  std::map<DialectKind, int> taken;
  bool any_left = false;
  for (const Role role : {Role::member, Role::extra}) {
    for (auto& [url, target] : update.targets) {
      if (!target.included) target.batch = -1;  // left out: no part of any batch
      if (!target.included || target.role != role) continue;
      int& count = taken[*context.worker_of(target).dialect];
      target.batch = canary == 0 || (role == Role::member && count < canary) ? 0 : 1;
      count += target.batch == 0 ? 1 : 0;
      any_left = any_left || target.batch == 1;
    }
  }
  update.batches = any_left ? 2 : 1;
}

}  // namespace weighlock::protocol
