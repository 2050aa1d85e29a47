// Who comes to a pair, and who leaves it (protocol.md section 2, "Leaving").
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "weighlock/core/limits.hpp"
#include "weighlock/protocol/awex.hpp"
#include "weighlock/protocol/lora.hpp"
#include "weighlock/protocol/ownership.hpp"
#include "weighlock/protocol/phases.hpp"

namespace weighlock::protocol {
namespace {

bool is_leaving(const Pair& pair, const Worker& worker) {
  if (!pair.removing.empty() || pair.leaving.contains(worker.url)) return true;
  if (!pair.reconnect) return false;
  const auto& list = pair.reconnect->spec.workers;
  return std::none_of(list.begin(), list.end(), [&](const WorkerSpec& spec) { return spec.url == worker.url; });
}

// A worker that LoRA pairs still use stays, as one that no full-model pair ever had.
std::map<std::string, Worker>::iterator forget_worker(Context& context, std::map<std::string, Worker>::iterator it) {
  State& state = context.state();
  if (!is_shared(state, it->first)) return state.workers.erase(it);
  Worker fresh;
  fresh.url = it->first;
  fresh.dialect = it->second.dialect;
  fresh.locked_by = it->second.locked_by;  // an adapter may be on its way
  it->second = std::move(fresh);
  watch_for_adapters(context, it->second);
  return std::next(it);
}

// Nothing of ours is in it: it runs as it was found.
bool is_as_found(const Worker& worker) {
  return worker.state == WorkerState::joining && !worker.paused_by_us && worker.labels.empty() &&
         worker.earlier.empty();
}

// Of a pair that is another gateway's nothing is kept but what this one must know if the worker comes back: that a call
// of its own may still run there, or memory be missing.
bool may_be_let_go(const Pair& pair, const Worker& worker) {
  if (is_superseded(pair)) return worker.earlier.empty() && has_its_memory(worker);
  return worker.state == WorkerState::ready || worker.state == WorkerState::gone ||
         worker.state == WorkerState::draining || is_as_found(worker);
}

}  // namespace

void forget_worker(Context& context, const std::string& url) {
  const auto it = context.state().workers.find(url);
  if (it == context.state().workers.end()) return;
  end_watch(context, it->second);
  context.reset_earlier(it->second);
  forget_worker(context, it);
}

std::vector<std::string> release_leaving(Context& context, const std::string& name, const Pair& pair) {
  std::vector<std::string> abandoned;
  auto& workers = context.state().workers;
  for (auto it = workers.begin(); it != workers.end();) {
    Worker& worker = it->second;
    if (worker.pair != name || !is_leaving(pair, worker)) {
      ++it;
    } else if (may_be_let_go(pair, worker)) {
      end_watch(context, worker);
      context.reset_earlier(worker);
      it = forget_worker(context, it);
    } else {
      abandoned.push_back(fmt::format("{}: {}", worker.url, worker.cause ? worker.cause->message : "left as it was"));
      if (worker.state != WorkerState::abandoned) context.set_worker(worker, WorkerState::abandoned, worker.cause);
      ++it;
    }
  }
  return abandoned;
}

void enter_pair(Context& context, Pair& pair, const WorkerSpec& spec) {
  Worker& worker = context.state().workers[spec.url];
  const bool was_abandoned = worker.state == WorkerState::abandoned;
  const bool is_new = worker.pair != pair.spec.name;
  worker.url = spec.url;
  if (worker.pair.empty())
    worker.incarnation.clear();  // seen for its adapters' sake, and not recorded: to be read anew
  worker.pair = pair.spec.name;
  if (spec.dialect && !worker.seen_as) worker.dialect = spec.dialect;  // what an engine showed is known better
  take_over_stranger(pair, worker);
  if (was_abandoned) {
    worker.version.reset();  // its numbers were of a pair that is gone, whatever this one is named
    worker.evidence = Evidence::none;
    context.set_worker(worker, WorkerState::quarantined, worker.cause);
  } else if (is_new && pair.committed) {
    context.set_worker(worker, WorkerState::joining,
                       context.cause(CauseCode::restarted, "joined after the last update"));
  } else if (is_new) {
    const Milliseconds apart(static_cast<std::int64_t>(pair.spec.workers.size()));  // a millisecond for each
    look_soon(context, worker, std::min<Milliseconds>(apart, limits::kFirstLookWithin));
  }
}

// Leaving workers that aren't READY get one heal before they are let go (protocol.md section 2, "Leaving").
bool start_leave_job(Context& context, const std::string& name, Pair& pair) {
  if (is_superseded(pair) || shares_devices(pair)) return false;  // nothing is loaded where memory may be elsewhere
  std::vector<std::string> urls;
  for (auto& [url, worker] : context.state().workers) {
    const bool needs_it =
        worker.state == WorkerState::quarantined || (worker.state == WorkerState::joining && !is_as_found(worker));
    if (worker.pair == name && is_leaving(pair, worker) && needs_it) urls.push_back(url);
  }
  if (urls.empty()) return false;
  start_leave(context, name, urls, false);
  return true;
}

}  // namespace weighlock::protocol
