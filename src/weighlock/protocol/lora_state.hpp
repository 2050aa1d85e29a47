// What the machine knows of LoRA adapters in engines. Plain data, part of State.
//
// An adapter's name is shared by all who talk to the engine, and carries neither lineage nor attempt. So what a name
// holds is known by the attempt whose load we sent in this incarnation, never by the name alone.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "weighlock/core/operation.hpp"
#include "weighlock/protocol/types.hpp"

namespace weighlock::protocol {

// One name in one engine.
struct KnownAdapter {
  std::int64_t version = 0;
  std::int64_t attempt =
      0;                  // whose bytes it holds; 0 = not known, or it may go at any time: unloaded before it is used
  std::string directory;  // an engine may read it again at any time, so it outlives the name
  bool certain = false;   // false: a load or an unload of it has no known end
  bool committed = false;
};

// One worker of a LoRA pair. Beside the registry, whose Worker belongs to the full model's pair: a LoRA failure never
// changes that.
struct WorkerAdapters {
  std::string incarnation;  // "" until its adapters were first listed
  std::string model_path;
  std::optional<std::int64_t> rank_max;       // the greatest rank that it takes, where it told
  std::map<std::string, KnownAdapter> names;  // loaded, or may be
  std::optional<VersionRef> version;          // the newest committed version that it serves
  std::optional<Cause> cause;                 // why it doesn't serve the committed one
  std::vector<std::string> missing;           // older names of the window that it could not get, each with the reason
  std::set<std::string> lacking;  // names of the window that it could not get: left to the pair's next update
  // What another owner of the pair had sent may still be on its way: a list proves nothing, and the first name that is
  // loaded is unloaded (twice) before, which nothing comes in behind.
  bool taken_over = false;

  // Unloading what has left the window: after an update, outside of its time (lora_window.cpp).
  std::deque<std::string> to_retire;
  std::optional<CallId> retire_call;
  TimerId retire_timer = 0;
  bool retire_again = false;  // the name's end is confirmed by a second unload
};

// A committed version of the pair, as long as it is in the window.
struct AdapterVersion {
  std::string name;
  std::int64_t attempt = 0;
  VersionRef version;
  bool reused = false;  // its directory was handed over or is blind: other bytes may have lain there
};

// A running call about adapters. Kept apart from Worker::in_flight: a read of the full model's pair may overlap.
struct AdapterCall {
  std::string pair;
  std::string worker;
  UpdateId update;
  OperationKind kind = OperationKind::list_adapters;
  std::string adapter;
};

// How far a target of a LoRA update is.
struct AdapterProgress {
  std::map<std::string, std::string> listed;  // name -> directory, by the last list
  bool fresh = false;                         // nothing was sent since
  bool confirmed = false;                     // listed with the lock held
  bool tells = true;                          // it lists its adapters
  std::string name;                           // what the running load or unload is about
  bool repeated = false;                      // its load was sent before, by this attempt and to this incarnation
  bool doubtful = false;                      // an unload: an earlier call about the name may still be on its way
  bool again = false;                         // ... and this is the second
  std::map<std::string, int> loads;           // sent, by name
  std::map<std::string, int> unloads;
  Instant repairs_end;             // of the time that older names of the window may take
  std::set<std::string> given_up;  // older names of the window
  std::set<std::string> seen;      // listed or loaded in this update, and not unloaded since
  std::vector<std::string> missing;
  int restarts = 0;
};

}  // namespace weighlock::protocol
