#include "sim/pairs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string_view>
#include <vector>

namespace weighlock::sim {
namespace {

using protocol::State;
using protocol::Step;
using protocol::UpdateState;

constexpr std::size_t kWatchRow = kSteps, kLateRow = kSteps + 1, kRetireRow = kSteps + 2, kGoneRow = kSteps + 3;
constexpr std::size_t kNone = kUpdateStates;  // row of events
constexpr std::string_view kPurposeNames[kPurposes] = {
    "save",      "save_grace", "survey",  "silent_survey", "pause",          "load", "verify",
    "straggler", "resume",     "restore", "whole",         "transfer_grace", "other"};
constexpr std::string_view kEventNames[] = {"connect",       "remove",      "change_worker",  "request",  "collect",
                                            "cancel",        "call_ended",  "save_ended",     "prepared", "sealed",
                                            "digest_done",   "timer_fired", "commit_durable", "recover",  "shutdown",
                                            "epoch_claimed", "epoch_seen",  "group_built",    "discarded"};
constexpr std::string_view kOnlyWithout = "without-epochs", kOnlyWith = "with-epochs";  // before a line of the table
constexpr std::size_t kCallEnded = 6, kTimerFired = 11;
static_assert(std::size(kEventNames) == kEvents);

std::size_t row_of(const State& state, const protocol::UpdateId& id) {
  const auto update = state.updates.find(id);
  return update == state.updates.end() ? kNone : static_cast<std::size_t>(update->second.state);
}

std::size_t row_of_pair(const State& state, const std::string& name) {
  const auto pair = state.pairs.find(name);
  return pair == state.pairs.end() ? kNone : row_of(state, pair->second.active);
}

const protocol::Target* target_of(const State& state, const protocol::UpdateId& id, const std::string& url) {
  const auto update = state.updates.find(id);
  if (update == state.updates.end()) return nullptr;
  const auto target = update->second.targets.find(url);
  return target == update->second.targets.end() ? nullptr : &target->second;
}

std::size_t answer_row(const State& state, protocol::CallId call) {
  if (const auto adapter = state.adapter_calls.find(call); adapter != state.adapter_calls.end()) {
    const protocol::Target* target = target_of(state, adapter->second.update, adapter->second.worker);
    const bool waits = target != nullptr && target->call == call;
    return waits ? static_cast<std::size_t>(target->step) : kRetireRow;
  }
  const auto known = state.calls.find(call);
  if (known == state.calls.end()) return kGoneRow;
  const auto worker = state.workers.find(known->second.second);
  if (worker == state.workers.end()) return kGoneRow;
  if (worker->second.watch.call == call) return kWatchRow;
  const protocol::Target* target = target_of(state, known->second.first, known->second.second);
  return target != nullptr && target->call == call ? static_cast<std::size_t>(target->step) : kLateRow;
}

std::size_t timer_row(const State& state, protocol::TimerId timer) {
  constexpr std::size_t kOfWatch = kTimerRows - 2, kOfNobody = kTimerRows - 1;
  if (state.watch_timers.contains(timer)) return kOfWatch;
  const auto known = state.timers.find(timer);
  const auto update = known == state.timers.end() ? state.updates.end() : state.updates.find(known->second);
  if (update == state.updates.end() || !update->second.timers.contains(timer)) return kOfNobody;
  const std::string& purpose = update->second.timers.at(timer);
  if (const auto target = update->second.targets.find(purpose); target != update->second.targets.end())
    return kUpdateStates * kPurposes + static_cast<std::size_t>(target->second.step);
  const auto* found = std::find(std::begin(kPurposeNames), std::end(kPurposeNames) - 1, purpose);
  return static_cast<std::size_t>(update->second.state) * kPurposes +
         static_cast<std::size_t>(found - std::begin(kPurposeNames));
}

std::size_t event_row(const State& state, const protocol::EventBody& body) {
  return std::visit(
      [&](const auto& event) -> std::size_t {
        using T = std::decay_t<decltype(event)>;
        if constexpr (std::is_same_v<T, protocol::ConnectPair>) return row_of_pair(state, event.spec.name);
        if constexpr (std::is_same_v<T, protocol::RemovePair> || std::is_same_v<T, protocol::ChangeWorker> ||
                      std::is_same_v<T, protocol::RequestUpdate> || std::is_same_v<T, protocol::CollectVersions>)
          return row_of_pair(state, event.pair);
        if constexpr (std::is_same_v<T, protocol::CancelUpdate> || std::is_same_v<T, protocol::Prepared> ||
                      std::is_same_v<T, protocol::Sealed> || std::is_same_v<T, protocol::DigestDone> ||
                      std::is_same_v<T, protocol::CommitDurable>)
          return row_of(state, event.update);
        if constexpr (std::is_same_v<T, protocol::SaveEnded>) {
          if (const auto part = state.transfers.find(event.call); part != state.transfers.end())
            return row_of(state, part->second.first);
          const auto save = state.saves.find(event.call);
          if (save == state.saves.end()) return kNone;
          const auto busy = state.busy.find(save->second.second);
          return busy == state.busy.end() ? kNone : row_of(state, busy->second.update);
        }
        if constexpr (std::is_same_v<T, protocol::EpochClaimed> || std::is_same_v<T, protocol::EpochSeen>)
          return row_of_pair(state, event.pair);
        if constexpr (std::is_same_v<T, protocol::GroupBuilt>) {
          const auto ask = state.group_asks.find(event.ask);
          if (ask == state.group_asks.end()) return kNone;
          if (ask->second.connect) return row_of_pair(state, ask->second.connect->spec.name);
          return row_of(state, ask->second.update);
        }
        return kNone;
      },
      body);
}

bool is_of_all_pairs(const protocol::EventBody& body) {
  return std::holds_alternative<protocol::Recover>(body) || std::holds_alternative<protocol::Shutdown>(body);
}

// One pair, as the table names it.
struct Cell {
  std::string kind, row, column;
  std::uint64_t count = 0;
};

std::string step_name(std::size_t row) {
  if (row == kWatchRow) return "watch";
  if (row == kLateRow) return "late";
  if (row == kRetireRow) return "retire";
  if (row == kGoneRow) return "gone";
  return std::string(name_of_step(row));
}

std::string state_name(std::size_t row) {
  return row == kNone ? "none" : std::string(name(static_cast<UpdateState>(row)));
}

std::vector<Cell> cells_of(const Coverage& coverage) {
  std::vector<Cell> cells;
  for (std::size_t row = 0; row < kAnswerRows; ++row) {
    for (std::size_t i = 0; i < kOutcomes; ++i)
      cells.push_back(
          {"answer", step_name(row), std::string(name(static_cast<OutcomeKind>(i))), coverage.answers[row][i]});
  }
  for (std::size_t row = 0; row < kEventRows; ++row) {
    for (std::size_t i = 0; i < kEvents; ++i) {
      if (i != kCallEnded && i != kTimerFired)
        cells.push_back({"event", state_name(row), std::string(kEventNames[i]), coverage.events[row][i]});
    }
  }
  for (std::size_t row = 0; row < kUpdateStates; ++row) {
    for (std::size_t i = 0; i + 1 < kPurposes; ++i)
      cells.push_back({"timer", state_name(row), std::string(kPurposeNames[i]), coverage.timers[row * kPurposes + i]});
  }
  for (std::size_t row = 0; row < kSteps; ++row)
    cells.push_back({"timer", step_name(row), "retry", coverage.timers[kUpdateStates * kPurposes + row]});
  cells.push_back({"timer", "watch", "-", coverage.timers[kTimerRows - 2]});
  cells.push_back({"timer", "gone", "-", coverage.timers[kTimerRows - 1]});
  return cells;
}

bool names(const std::string& list, const std::string& word) {
  if (list == "*") return true;
  std::istringstream words(list);
  for (std::string one; std::getline(words, one, ',');) {
    if (one == word) return true;
  }
  return false;
}

}  // namespace

void note_pair(Coverage& coverage, const State& state, const protocol::Event& event) {
  if (const auto* ended = std::get_if<protocol::CallEnded>(&event.body)) {
    ++coverage.answers[answer_row(state, ended->call)][static_cast<std::size_t>(ended->outcome.kind)];
  } else if (const auto* fired = std::get_if<protocol::TimerFired>(&event.body)) {
    ++coverage.timers[timer_row(state, fired->timer)];
  } else if (is_of_all_pairs(event.body) && !state.pairs.empty()) {
    for (const auto& [name, pair] : state.pairs) ++coverage.events[row_of(state, pair.active)][event.body.index()];
  } else {
    ++coverage.events[event_row(state, event.body)][event.body.index()];
  }
}

bool check_pairs(const Coverage& coverage, const std::string& table, MissingPairs missing, bool keeps_epochs) {
  std::vector<Cell> cells = cells_of(coverage);
  std::ifstream file(table);
  if (!file) {
    fmt::print("FAILED: no table of pairs at '{}'\n", table);
    return false;
  }
  bool good = true;
  std::vector<bool> listed(cells.size());
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    std::string kind, rows, columns;
    words >> kind;
    if (kind == kOnlyWithout || kind == kOnlyWith) {
      if ((kind == kOnlyWith) != keeps_epochs) continue;
      words >> kind;
    }
    words >> rows >> columns;
    bool any = false;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const Cell& cell = cells[i];
      if (cell.kind != kind || !names(rows, cell.row) || !names(columns, cell.column)) continue;
      any = listed[i] = true;
      if (cell.count == 0) continue;
      good = false;
      fmt::print("REACHED {} times, and listed as impossible: {} {} {}  ({})\n", cell.count, kind, cell.row,
                 cell.column, line);
    }
    good = good && any;
    if (!any) fmt::print("NAMES NOTHING: {}\n", line);
  }
  std::size_t reached = 0;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    reached += cells[i].count > 0 ? 1 : 0;
    if (cells[i].count > 0 || listed[i] || missing == MissingPairs::ignored) continue;
    good = good && missing != MissingPairs::fail;
    fmt::print("NEVER REACHED: {} {} {}\n", cells[i].kind, cells[i].row, cells[i].column);
  }
  fmt::print("{} of {} pairs of state and event reached, {} can't be\n", reached, cells.size(),
             std::count(listed.begin(), listed.end(), true));
  return good;
}

}  // namespace weighlock::sim
