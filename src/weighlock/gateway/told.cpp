#include "weighlock/gateway/told.hpp"

#include <fmt/format.h>

#include <chrono>

#include "weighlock/core/json.hpp"
#include "weighlock/core/words.hpp"
#include "weighlock/protocol/spec_record.hpp"
#include "weighlock/protocol/types.hpp"
#include "weighlock/runtime/log.hpp"

namespace weighlock {
namespace {

using namespace std::chrono_literals;
using protocol::list_of;
using protocol::Record;
using protocol::RecordKind;
using protocol::text_of;
using protocol::WorkerState;

constexpr std::size_t kRequestBytesMax = 200;  // of a request's line
constexpr std::size_t kWordsBytesMax = 500;    // of why it was refused: the whole text went to the client

void tell_pair(const Record& record) {
  const std::string_view save_path = text_of(record.body, "save_path");
  log_info("pair={} connected: mode={} workers={} trainers={} save_path={} lineage={}", record.pair,
           record.body.contains("awex") ? "awex" : "disk", list_of(record.body, "workers").size(),
           list_of(record.body, "trainers").size(), save_path.empty() ? "none" : save_path,
           find_int(record.body, "lineage").value_or(0));
}

void tell_change(const Record& record) {
  const std::string_view reason = text_of(record.body, "reason");
  log_info("pair={} worker {}: an operator asked to {} it{}{}", record.pair, record.worker,
           text_of(record.body, "change"), reason.empty() ? "" : ": ", reason);
}

void tell_group(const Record& record) {
  const std::string_view what = text_of(record.body, "what");
  if (what == "built") log_info("pair={} transfer group {} stands", record.pair, text_of(record.body, "name"));
  if (what == "dead")
    log_info("pair={} transfer group {} is dropped: {}", record.pair, text_of(record.body, "name"),
             text_of(record.body, "why"));
}

// What others do to engines behind our back, and what becomes of workers between updates.
void tell_worker(const Record& record) {
  const std::string_view state = text_of(record.body, "state");
  if (state == protocol::kContinuedByOther || state == protocol::kPausedByOther || state == protocol::kNotReached)
    return log_warn("pair={} worker {}: {}", record.pair, record.worker, text_of(record.body, "message"));
  const bool is_told = state == name(WorkerState::joining) || state == name(WorkerState::foreign) ||
                       state == name(WorkerState::draining);
  if (!is_told || !record.update.empty()) return;
  const json::value* cause = record.body.if_contains("cause");
  log_warn("pair={} worker {} is {}: {}", record.pair, record.worker, state,
           cause ? find_string(*cause, "message").value_or("") : "");
}

}  // namespace

void tell(const Record& record) {
  switch (record.kind) {
    case RecordKind::pair_connected:
      return tell_pair(record);
    case RecordKind::pair_removed:
      return log_info("pair={} removed", record.pair);
    case RecordKind::update_requested:
      return log_info("pair={} v{} asked for: update={}{}", record.pair, find_int(record.body, "version").value_or(0),
                      record.update, find_bool(record.body, "rollback").value_or(false) ? ", a rollback" : "");
    case RecordKind::update_phase:
      return log_debug("pair={} update={} {}", record.pair, record.update, text_of(record.body, "state"));
    case RecordKind::worker_changed:
      return tell_change(record);
    case RecordKind::worker_state:
      return tell_worker(record);
    case RecordKind::group:
      return tell_group(record);
    case RecordKind::epoch:
      return log_info("pair={} is this gateway's: epoch {}{}", record.pair, find_int(record.body, "epoch").value_or(0),
                      record.body.contains("predecessor") ? ", taken over from another" : "");
    case RecordKind::superseded:
      return log_warn(
          "pair={} was taken by another gateway (owner {} on {}, epoch {}): nothing is sent to its workers "
          "from here any more",
          record.pair, text_of(record.body, "owner"), text_of(record.body, "host"),
          find_int(record.body, "epoch").value_or(0));
    default:
      return;
  }
}

void Refusals::tell(const std::string& request, const HttpResponse& answer, Instant now) {
  if (answer.status < 400) return;
  if (now - second_ >= 1s) {
    if (held_back_ > 0) log_warn("{} more requests were refused within a second", held_back_);
    second_ = now;
    told_ = held_back_ = 0;
  }
  if (told_ == kToldPerSecond) {
    ++held_back_;
    return;
  }
  ++told_;
  log_warn("{} was answered {}: {}", printable(request, kRequestBytesMax), answer.status,
           words_of(answer.body, kWordsBytesMax));
}

}  // namespace weighlock
