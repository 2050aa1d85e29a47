#include <fmt/format.h>

#include <algorithm>
#include <ostream>

#include "explain.hpp"
#include "table.hpp"
#include "terminal.hpp"

namespace weighlock::cli {
namespace {

std::string pair_text(const client::Pair& pair, const std::vector<client::Worker>& workers) {
  std::string text =
      fmt::format("pair {}: mode {}, {}, committed {}, lineage {}, {} of {} workers ready", pair.name, pair.mode,
                  pair.state, version_text(pair.committed), pair.lineage, pair.workers_ready, pair.workers_total);
  if (pair.workers_quarantined > 0) text += fmt::format(", {} quarantined", pair.workers_quarantined);
  if (pair.workers_paused_by_other > 0)
    text += fmt::format(", {} paused by somebody else", pair.workers_paused_by_other);
  if (!pair.rollback.empty()) text += fmt::format(", rollback {}", pair.rollback);
  text += "\n";
  if (!pair.last_update.empty()) text += fmt::format("last update: {}\n", one_line(pair.last_update));
  if (!pair.transfer.empty()) text += fmt::format("transfer: {}\n", one_line(pair.transfer));
  if (!pair.ownership.empty()) text += fmt::format("ownership: {}\n", one_line(pair.ownership));
  for (const std::string& sentence : pair.not_promised)
    text += fmt::format("not promised with {}\n", one_line(sentence));
  return text + workers_text(workers);
}

}  // namespace

int run_status(const StatusArguments& arguments, Terminal& terminal) {
  client::Client gateway(client_settings(arguments.gateway));
  std::vector<client::Pair> pairs;
  if (arguments.pair.empty()) {
    Result<std::vector<client::Pair>> all = gateway.pairs();
    if (!all) return report(terminal, all.error(), arguments.gateway.json);
    pairs = std::move(*all);
  } else {
    Result<client::Pair> one = gateway.pair(arguments.pair);
    if (!one) return report(terminal, one.error(), arguments.gateway.json);
    pairs.push_back(std::move(*one));
  }
  json::array out;
  std::string text;
  for (const client::Pair& pair : pairs) {
    Result<std::vector<json::value>> raw = gateway.workers_raw(pair.name);
    if (!raw) return report(terminal, raw.error(), arguments.gateway.json);
    std::vector<client::Worker> workers;
    for (const json::value& item : *raw) {
      Result<client::Worker> worker = client::read_worker(item);
      if (!worker) return report(terminal, worker.error(), arguments.gateway.json);
      workers.push_back(std::move(*worker));
    }
    out.push_back(json::object{{"pair", pair.raw}, {"workers", json::array(raw->begin(), raw->end())}});
    text += (text.empty() ? "" : "\n") + pair_text(pair, workers);
  }
  if (arguments.gateway.json) {
    print_json(terminal, json::object{{"items", std::move(out)}});
  } else {
    terminal.out << (pairs.empty() ? std::string("no pairs: `weighlock connect` makes one\n") : text);
  }
  const bool whole = std::all_of(pairs.begin(), pairs.end(), [](const client::Pair& pair) {
    return pair.workers_ready == pair.workers_total && pair.workers_paused_by_other == 0;
  });
  return arguments.check && !whole ? info(ErrorCode::degraded).exit_code : 0;
}

}  // namespace weighlock::cli
