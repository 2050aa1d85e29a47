#include "weighlock/gateway/leaving.hpp"

#include <fmt/format.h>

namespace weighlock {
namespace {

using namespace protocol;

constexpr std::size_t kWorkersNamedMax = 8;  // of one pair, in one line of the log

std::string was_of(const Target& target) {
  if (target.verdict == Verdict::verified) return "verified";
  if (target.load_sent) return "load sent";
  if (target.label_changed) return "label written";
  if (target.pause_sent) return "paused";
  return "not touched yet";
}

const Target* open_target(const State& state, const Worker& worker) {
  const auto pair = state.pairs.find(worker.pair);
  if (pair == state.pairs.end()) return nullptr;
  const auto update = state.updates.find(pair->second.active);
  if (update == state.updates.end() || update->second.state < UpdateState::pausing) return nullptr;
  const auto target = update->second.targets.find(worker.url);
  return target == update->second.targets.end() || target->second.step == Step::done ? nullptr : &target->second;
}

}  // namespace

std::vector<LeftWorker> left_behind(const State& state) {
  std::vector<LeftWorker> out;
  for (const auto& [url, worker] : state.workers) {
    const Target* target = open_target(state, worker);
    if (target) {
      out.push_back(LeftWorker{url, worker.pair, was_of(*target), worker.paused_by_us});
    } else if (worker.paused_by_us) {
      out.push_back(LeftWorker{url, worker.pair, std::string(name(worker.state)), true});
    }
  }
  return out;
}

std::string left_text(const State& state) {
  std::string out;
  for (const auto& [name, pair] : state.pairs) {
    const auto update = state.updates.find(pair.active);
    if (update == state.updates.end()) continue;
    std::string workers;
    std::size_t paused = 0;
    for (const auto& [url, target] : update->second.targets) {
      const auto worker = state.workers.find(url);
      if (worker == state.workers.end() || !worker->second.paused_by_us) continue;
      if (++paused <= kWorkersNamedMax) workers += (workers.empty() ? "" : ", ") + url;
    }
    if (paused > kWorkersNamedMax) workers += fmt::format(" and {} more", paused - kWorkersNamedMax);
    out += fmt::format("{}pair '{}': v{} is in phase {}, {} workers are paused by this gateway{}{}",
                       out.empty() ? "" : "; ", name, update->second.version.version,
                       protocol::name(update->second.state), paused, paused > 0 ? ": " : "", workers);
  }
  return out;
}

std::vector<FinishedWorker> finished(const std::vector<LeftWorker>& before, const State& state) {
  std::vector<FinishedWorker> out;
  for (const LeftWorker& left : before) {
    FinishedWorker one{left.url, left.pair, left.was, "gone", "", false};
    if (const auto it = state.workers.find(left.url); it != state.workers.end()) {
      const Worker& worker = it->second;
      one.now = name(worker.state);
      if (worker.version && worker.version->lineage > 0 && worker.state == WorkerState::ready)
        one.now += fmt::format(" (v{})", worker.version->version);
      if (worker.cause) one.cause = fmt::format("{}: {}", name(worker.cause->code), worker.cause->message);
      one.paused_by_us = worker.paused_by_us;
    }
    out.push_back(std::move(one));
  }
  return out;
}

}  // namespace weighlock
