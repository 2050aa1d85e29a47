#include <fmt/format.h>

#include <algorithm>
#include <ostream>

#include "explain.hpp"
#include "table.hpp"
#include "terminal.hpp"

namespace weighlock::cli {
namespace {

constexpr std::size_t kErrorShown = 120;  // `history PAIR UPDATE` has the whole text

std::string shortened(std::string text) {
  if (text.size() <= kErrorShown) return text;
  text.resize(kErrorShown);
  return text + "...";
}

std::vector<std::string> row(const client::Update& update) {
  std::int64_t total_ms = 0;
  for (const client::Phase& phase : update.phases) total_ms += phase.duration_ms;
  const auto good = std::count_if(update.workers.begin(), update.workers.end(), verified);
  return {update.id,
          fmt::format("v{}", update.version),
          update.running() && !update.phase.empty() ? update.phase : update.state,
          update.pause_ms ? duration_text(*update.pause_ms) : "-",
          duration_text(total_ms),
          fmt::format("{}/{}", good, update.workers.size()),
          update.error ? shortened(one_line(update.error->message)) : ""};
}

}  // namespace

int run_history(const HistoryArguments& arguments, Terminal& terminal) {
  client::Client gateway(client_settings(arguments.gateway));
  if (!arguments.update.empty()) {
    Result<client::Update> update = gateway.update(arguments.pair, arguments.update);
    if (!update) return report(terminal, update.error(), arguments.gateway.json);
    if (arguments.gateway.json) {
      print_json(terminal, update->raw);
    } else {
      terminal.out << explain(*update);
    }
    return 0;
  }
  Result<std::vector<client::Update>> updates = gateway.updates(arguments.pair, arguments.limit);
  if (!updates) return report(terminal, updates.error(), arguments.gateway.json);
  if (arguments.gateway.json) {
    json::array items;
    for (const client::Update& update : *updates) items.push_back(update.raw);
    print_json(terminal, json::object{{"items", std::move(items)}});
    return 0;
  }
  std::vector<std::vector<std::string>> rows;
  for (const client::Update& update : *updates) rows.push_back(row(update));
  terminal.out << table({"UPDATE", "VERSION", "STATE", "PAUSE", "TOTAL", "WORKERS", "ERROR"}, rows);
  return 0;
}

}  // namespace weighlock::cli
