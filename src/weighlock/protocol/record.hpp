// What the journal keeps: facts and intents, in the order in which they became true.
//
// A record is also an event for whoever watches: GET /v1/events serves them by number.
#pragma once

#include <string>
#include <string_view>

#include "weighlock/core/json.hpp"

namespace weighlock::protocol {

enum class RecordKind {
  gateway_started,  // boot id, release
  gateway_stopping,
  pair_connected,  // the whole spec, lineage
  pair_removed,
  update_requested,  // version, key, policy
  update_rejected,
  update_phase,  // a state was entered
  update_ended,  // terminal state, error, verdict of each worker
  save_intent,   // directory, ranks
  save_ended,    // one rank's answer
  sealed,        // directory, bytes, digest when known
  targets,       // incarnation, was_paused, role of each
  intent,        // before every pause, label, load, flush, resume and heal step: worker, operation, attempt
  outcome,       // what a call to a worker ended with
  verdict,
  commit,  // the decision point: committed := version
  digest,
  worker_state,    // state, cause
  worker_seen,     // a process seen for the first time: incarnation, labels, start model, whose pause it has
  death,           // a version was the last thing sent to an incarnation that died
  worker_changed,  // an operator added, removed, drained, quarantined or released it
  key_joined,      // another idempotency key for an update that runs already
  discard,         // a directory goes (the intent), or has gone (`done`)
  last_good,
  owner,       // this state directory's id as an owner of pairs, drawn once
  epoch,       // the pair's epoch is ours; whose it was before, and what that one held paused
  group,       // a transfer group: built, its collective begun (the intent), or dead
  superseded,  // another took the pair; nothing is sent to its workers any more
};

struct Record {
  RecordKind kind = RecordKind::gateway_started;
  std::string pair;
  std::string update;
  std::string worker;  // URL
  json::object body;
};

std::string_view name(RecordKind kind);

// `state` of a worker_state record that changes no state: a worker that was to stay paused was found running.
inline constexpr std::string_view kContinuedByOther = "continued_by_other";
// Likewise: one that serves was found paused, and not by us.
inline constexpr std::string_view kPausedByOther = "paused_by_other";
// Likewise: one that came to a pair wasn't reached yet.
inline constexpr std::string_view kNotReached = "not_reached";

}  // namespace weighlock::protocol
