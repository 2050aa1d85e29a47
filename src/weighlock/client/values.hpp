// What the gateway answers, as values. Field names and meanings are those of the native API.
//
// Reading is lenient about members that this build doesn't know, and strict about those it needs: a missing one is
// `bad_answer`. `raw` is the answer itself, for `--json`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weighlock/core/json.hpp"
#include "weighlock/core/result.hpp"

namespace weighlock::client {

struct Cause {
  std::string code;
  std::string message;
  std::string since;  // RFC 3339; "" where it isn't told
};

struct Worker {
  std::string id;
  std::string url;
  std::string dialect;
  std::string state;
  std::optional<std::int64_t> version;
  std::optional<Cause> cause;
  bool paused_by_other = false;  // it should serve, and somebody else paused it
  std::string flush_owed_since;  // mode keep: its cache holds prefixes of former versions since then; "" = it doesn't
};

struct Phase {
  std::string name;
  std::int64_t duration_ms = 0;
};

// One worker's part in an update.
struct WorkerOutcome {
  std::string id;
  std::string url;
  std::string verdict;
  std::string evidence;
  std::string state;  // how the update left it; "" of an adapter, and of gateways that don't tell
  std::optional<std::int64_t> duration_ms;
  std::optional<Cause> cause;
};

struct Update {
  std::string id;
  std::string pair;
  std::int64_t version = 0;
  std::int64_t attempt = 0;
  std::string state;  // "running", or how it ended
  std::string phase;
  std::vector<Phase> phases;
  std::optional<std::int64_t> pause_ms;
  std::optional<std::int64_t> bytes;
  std::vector<WorkerOutcome> workers;
  std::optional<Cause> error;
  json::value raw;
  bool running() const { return state == "running"; }
};

struct Pair {
  std::string name;
  std::string mode;
  std::int64_t lineage = 0;
  std::optional<std::int64_t> committed;
  std::string state;
  std::string rollback;
  std::string ownership;                  // in words; "" where the gateway tells nothing
  std::vector<std::string> not_promised;  // what the pair's policy takes away, one sentence each
  std::string transfer;                   // of a pair in AWEX mode: whether its group stands, in words
  std::string last_update;                // the one that runs or ended last, and why it failed, in words
  std::int64_t workers_total = 0;
  std::int64_t workers_ready = 0;
  std::int64_t workers_quarantined = 0;
  std::int64_t workers_paused_by_other = 0;
  json::value raw;
};

// One version on storage.
struct StoredVersion {
  std::int64_t lineage = 0;
  std::int64_t version = 0;
  std::string directory;
  std::string state;         // "committed", "superseded", "withdrawn" (the pair was rolled back from it), "rolled_back"
  bool handed_over = false;  // its directory is another's, and is never deleted
  std::string digest;        // "" while it isn't known
  std::optional<std::int64_t> bytes;
  std::vector<std::string> leases;  // who needs it: "committed", "last good", a worker's URL, an update's id, ...
  bool removable = false;           // retention deletes it at the end of the next update
};

struct Versions {
  std::vector<StoredVersion> items;  // newest first
  std::optional<std::int64_t> committed;
  std::optional<std::int64_t> last_good;  // what workers are healed with
  std::optional<std::int64_t> highest;    // the next version must be above it
  json::value raw;
};

// The pair after one of its workers was added or changed, and that worker; none once it has left.
struct ChangedWorker {
  Pair pair;
  std::optional<Worker> worker;
  json::value raw;
};

Result<Versions> read_versions(const json::value& value);
Result<ChangedWorker> read_changed_worker(const json::value& value);
Result<Worker> read_worker(const json::value& value);
Result<Update> read_update(const json::value& value);
Result<Pair> read_pair(const json::value& value);

}  // namespace weighlock::client
