#include "weighlock/client/values.hpp"

#include <fmt/format.h>

namespace weighlock::client {
namespace {

std::string text_or_empty(const json::value& value, std::string_view key) {
  return std::string(find_string(value, key).value_or(""));
}

Error missing(std::string_view what, std::string_view key) {
  return Error{
      ErrorCode::bad_answer,
      fmt::format("the gateway's answer about {} lacks '{}': is it a Weighlock gateway of this release?", what, key)};
}

std::optional<Cause> read_cause(const json::value* value) {
  if (!value || !value->is_object()) return std::nullopt;
  return Cause{text_or_empty(*value, "code"), text_or_empty(*value, "message"), text_or_empty(*value, "since")};
}

const json::array* array_member(const json::value& value, std::string_view key) {
  const json::value* member = find(value, key);
  return member ? member->if_array() : nullptr;
}

WorkerOutcome read_outcome(const json::value& value) {
  WorkerOutcome outcome;
  outcome.id = text_or_empty(value, "id");
  outcome.url = text_or_empty(value, "url");
  outcome.verdict = text_or_empty(value, "verdict");
  outcome.evidence = text_or_empty(value, "evidence");
  outcome.state = text_or_empty(value, "state");
  outcome.duration_ms = find_int(value, "duration_ms");
  outcome.cause = read_cause(find(value, "cause"));
  return outcome;
}

std::string transfer_text(const json::value* transfer) {
  if (!transfer || !transfer->is_object()) return "";
  const std::string group = text_or_empty(*transfer, "group");
  return fmt::format("{}{}",
                     group.empty() ? "no group stands; the next update builds one" : "group " + group + " stands",
                     find_bool(*transfer, "colocate").value_or(false) ? ", colocated" : "");
}

std::string last_update_text(const json::value* update) {
  if (!update || !update->is_object()) return "";
  std::string text = fmt::format("v{} {}", find_int(*update, "version").value_or(0), text_or_empty(*update, "state"));
  if (find_bool(*update, "rollback").value_or(false)) text += " (a rollback)";
  if (const std::string phase = text_or_empty(*update, "phase"); !phase.empty()) text += ", " + phase;
  if (const std::string at = text_or_empty(*update, "ended_at"); !at.empty()) text += " at " + at;
  if (const std::string error = text_or_empty(*update, "error"); !error.empty()) text += ": " + error;
  return text;
}

std::string ownership_text(const json::value* value) {
  if (!value || !value->is_object()) return "";
  std::string text;
  if (const json::value* by = find(*value, "superseded_by")) {
    text = fmt::format("superseded by epoch {} of owner {} on host {}", find_int(*by, "epoch").value_or(0),
                       text_or_empty(*by, "owner"), text_or_empty(*by, "host"));
  } else if (const auto epoch = find_int(*value, "epoch")) {
    text = fmt::format("epoch {} of owner {}", *epoch, text_or_empty(*value, "owner"));
  } else {
    text = fmt::format("none ({})", text_or_empty(*value, "none"));
  }
  const std::string trouble = text_or_empty(*value, "trouble");
  // What keeps a pair from being owned is its trouble, too.
  return text.find(trouble) != std::string::npos ? text : fmt::format("{}; {}", text, trouble);
}

}  // namespace

Result<Worker> read_worker(const json::value& value) {
  Worker worker;
  worker.id = text_or_empty(value, "id");
  worker.url = text_or_empty(value, "url");
  worker.dialect = text_or_empty(value, "dialect");
  worker.state = text_or_empty(value, "state");
  worker.version = find_int(value, "version");
  worker.cause = read_cause(find(value, "cause"));
  worker.paused_by_other = worker.state == "ready" && find_string(value, "paused_by") == "other";
  if (const json::value* owed = find(value, "flush_owed")) worker.flush_owed_since = text_or_empty(*owed, "since");
  if (worker.url.empty()) return missing("a worker", "url");
  if (worker.state.empty()) return missing("a worker", "state");
  return worker;
}

Result<Update> read_update(const json::value& value) {
  Update update;
  update.id = text_or_empty(value, "id");
  update.pair = text_or_empty(value, "pair");
  update.state = text_or_empty(value, "state");
  update.phase = text_or_empty(value, "phase");
  const std::optional<std::int64_t> version = find_int(value, "version");
  if (update.id.empty()) return missing("an update", "id");
  if (update.state.empty()) return missing("an update", "state");
  if (!version) return missing("an update", "version");
  update.version = *version;
  update.attempt = find_int(value, "attempt").value_or(0);
  update.pause_ms = find_int(value, "pause_ms");
  update.bytes = find_int(value, "bytes");
  update.error = read_cause(find(value, "error"));
  if (const json::array* phases = array_member(value, "phases")) {
    for (const json::value& phase : *phases)
      update.phases.push_back(Phase{text_or_empty(phase, "name"), find_int(phase, "duration_ms").value_or(0)});
  }
  if (const json::array* workers = array_member(value, "workers")) {
    for (const json::value& worker : *workers) update.workers.push_back(read_outcome(worker));
  }
  update.raw = value;
  return update;
}

Result<Versions> read_versions(const json::value& value) {
  Versions out;
  const json::array* items = array_member(value, "items");
  if (!items) return missing("stored versions", "items");
  for (const json::value& item : *items) {
    StoredVersion one;
    const std::optional<std::int64_t> version = find_int(item, "version");
    if (!version) return missing("a stored version", "version");
    one.version = *version;
    one.lineage = find_int(item, "lineage").value_or(0);
    one.directory = text_or_empty(item, "directory");
    one.state = text_or_empty(item, "state");
    one.handed_over = find_bool(item, "handed_over").value_or(false);
    one.digest = text_or_empty(item, "digest");
    one.bytes = find_int(item, "bytes");
    one.removable = find_bool(item, "removable").value_or(false);
    if (const json::array* leases = array_member(item, "leases")) {
      for (const json::value& who : *leases) {
        if (who.is_string()) one.leases.emplace_back(std::string_view(who.get_string()));
      }
    }
    out.items.push_back(std::move(one));
  }
  const auto number = [&](std::string_view key) -> std::optional<std::int64_t> {
    const json::value* version = find(value, key);
    return version ? find_int(*version, "version") : std::nullopt;
  };
  out.committed = number("committed");
  out.last_good = number("last_good");
  out.highest = number("highest");
  out.raw = value;
  return out;
}

Result<ChangedWorker> read_changed_worker(const json::value& value) {
  Result<Pair> pair = read_pair(value);
  if (!pair) return std::move(pair).error();
  ChangedWorker out;
  out.pair = *std::move(pair);
  out.raw = value;
  const json::value* worker = find(value, "worker");
  if (!worker || worker->is_null()) return out;
  Result<Worker> read = read_worker(*worker);
  if (!read) return std::move(read).error();
  out.worker = *std::move(read);
  return out;
}

Result<Pair> read_pair(const json::value& value) {
  Pair pair;
  pair.name = text_or_empty(value, "name");
  if (pair.name.empty()) return missing("a pair", "name");
  pair.mode = text_or_empty(value, "mode");
  pair.lineage = find_int(value, "lineage").value_or(0);
  pair.committed = find_int(value, "committed");
  pair.state = text_or_empty(value, "state");
  pair.rollback = text_or_empty(value, "rollback");
  pair.ownership = ownership_text(find(value, "ownership"));
  const json::value* texts = find(value, "not_promised");
  if (texts && texts->is_array()) {
    for (const json::value& text : texts->get_array()) {
      if (text.is_string()) pair.not_promised.emplace_back(std::string_view(text.get_string()));
    }
  }
  pair.transfer = transfer_text(find(value, "transfer"));
  pair.last_update = last_update_text(find(value, "last_update"));
  if (const json::value* workers = find(value, "workers")) {
    pair.workers_total = find_int(*workers, "total").value_or(0);
    pair.workers_ready = find_int(*workers, "ready").value_or(0);
    pair.workers_quarantined = find_int(*workers, "quarantined").value_or(0);
    pair.workers_paused_by_other = find_int(*workers, "paused_by_other").value_or(0);
  }
  pair.raw = value;
  return pair;
}

}  // namespace weighlock::client
