#include "weighlock/gateway/metrics.hpp"

#include <fmt/format.h>

#include "weighlock/gateway/views.hpp"

namespace weighlock {
namespace {

// A label's value, as the text format wants it.
std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '\\' || c == '"') out.push_back('\\');
    if (c == '\n')
      out += "\\n";
    else
      out.push_back(c);
  }
  return out + "\"";
}

void head(std::string& out, std::string_view name, std::string_view type, std::string_view help) {
  out += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

}  // namespace

void Metrics::update_ended(const protocol::Update& update, Instant now) {
  ++ended_[{update.pair, std::string(protocol::name(update.state))}];
  PairTotals& totals = pairs_[update.pair];
  totals.pause_seconds_last = static_cast<double>(pause_of(update, now).count()) / 1000.0;
  totals.pause_seconds_total += totals.pause_seconds_last;
}

std::string Metrics::text(const protocol::State& state, std::int64_t journal_records, bool disk_full) const {
  std::string out;
  head(out, "weighlock_updates_total", "counter", "Updates that ended, by pair and terminal state.");
  for (const auto& [key, count] : ended_)
    out +=
        fmt::format("weighlock_updates_total{{pair={},state={}}} {}\n", quoted(key.first), quoted(key.second), count);
  head(out, "weighlock_pause_seconds_total", "counter", "Longest pause of a worker, summed over updates.");
  for (const auto& [pair, totals] : pairs_)
    out += fmt::format("weighlock_pause_seconds_total{{pair={}}} {}\n", quoted(pair), totals.pause_seconds_total);
  head(out, "weighlock_pause_seconds_last", "gauge", "Longest pause of a worker in the last update.");
  for (const auto& [pair, totals] : pairs_)
    out += fmt::format("weighlock_pause_seconds_last{{pair={}}} {}\n", quoted(pair), totals.pause_seconds_last);
  head(out, "weighlock_committed_version", "gauge", "The version that the pair's workers should serve.");
  for (const auto& [name, pair] : state.pairs) {
    if (pair.committed)
      out += fmt::format("weighlock_committed_version{{pair={}}} {}\n", quoted(name), pair.committed->version);
  }
  std::map<std::pair<std::string, std::string>, int> workers;
  for (const auto& [url, worker] : state.workers) {
    if (!worker.pair.empty()) ++workers[{worker.pair, std::string(worker_state_word(worker))}];
  }
  head(out, "weighlock_workers", "gauge", "Workers by pair and state.");
  for (const auto& [key, count] : workers)
    out += fmt::format("weighlock_workers{{pair={},state={}}} {}\n", quoted(key.first), quoted(key.second), count);
  std::map<std::string, int> owing;
  for (const auto& [url, worker] : state.workers) {
    if (!worker.pair.empty()) owing[worker.pair] += worker.owes_flush && worker.owes_flush->since ? 1 : 0;
  }
  head(out, "weighlock_flush_owed_workers", "gauge", "Workers that serve with prefixes of former weights (mode keep).");
  for (const auto& [pair, count] : owing)
    out += fmt::format("weighlock_flush_owed_workers{{pair={}}} {}\n", quoted(pair), count);
  std::map<std::string, int> held;
  for (const auto& [url, worker] : state.workers) {
    const auto pair = state.pairs.find(worker.pair);
    if (pair != state.pairs.end()) held[worker.pair] += is_held_by_other(pair->second, worker) ? 1 : 0;
  }
  head(out, "weighlock_paused_by_other_workers", "gauge", "Workers that should serve and that somebody else paused.");
  for (const auto& [pair, count] : held)
    out += fmt::format("weighlock_paused_by_other_workers{{pair={}}} {}\n", quoted(pair), count);
  std::map<std::pair<std::string, std::string>, int> adapters;
  for (const auto& [name, pair] : state.pairs) {
    for (const auto& [url, known] : pair.adapters) ++adapters[{name, known.cause ? "lacking" : "serving"}];
  }
  head(out, "weighlock_adapter_workers", "gauge", "Workers of a LoRA pair by whether they serve its version.");
  for (const auto& [key, count] : adapters)
    out +=
        fmt::format("weighlock_adapter_workers{{pair={},state={}}} {}\n", quoted(key.first), quoted(key.second), count);
  head(out, "weighlock_journal_records", "gauge", "Records in the journal.");
  out += fmt::format("weighlock_journal_records {}\n", journal_records);
  head(out, "weighlock_journal_disk_full", "gauge",
       "1 while the state directory's disk is full and updates are refused.");
  out += fmt::format("weighlock_journal_disk_full {}\n", disk_full ? 1 : 0);
  return out;
}

}  // namespace weighlock
