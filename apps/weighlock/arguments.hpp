// The command line as values: everything is parsed and checked here, before anything is asked of a gateway.
//
// Pure. The library behind the flags (CLI11, a large header) stays in parse.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "weighlock/config/settings.hpp"
#include "weighlock/core/http.hpp"
#include "weighlock/core/json.hpp"
#include "weighlock/core/result.hpp"

namespace weighlock::cli {

// Of every command that talks to a gateway.
struct GatewayArguments {
  Url gateway;
  std::string admin_key;
  double timeout_s = 30;
  bool json = false;
};

struct ServeArguments {
  config::Loaded loaded;
};

// Ends what a gateway that left or died left undone. The settings are the gateway's own.
struct FinishArguments {
  config::Loaded loaded;
  double wait_s = 10;  // for a gateway that is still leaving; limits::kStateLockWait
  bool json = false;
};

struct ConfigArguments {
  config::Loaded loaded;
  bool check = false;  // else print
  bool json = false;
};

struct ConnectArguments {
  GatewayArguments gateway;
  std::string pair;
  json::object spec;         // the body of PUT /v1/pairs/{pair}: what it doesn't name stays as it is
  bool change_mode = false;  // a pair that is in another mode loses it
};

// Drains and removes a pair: its workers are let go as they serve.
struct DisconnectArguments {
  GatewayArguments gateway;
  std::string pair;
};

// Ends a running update before its commit.
struct CancelArguments {
  GatewayArguments gateway;
  std::string pair;
  std::string update;  // "" = the one that runs
  double wait_s = 300;
};

struct UpdateArguments {
  GatewayArguments gateway;
  std::string pair;
  std::int64_t version = 0;
  std::string from;  // "" = the trainers save
  double wait_s = 300;
  std::string key;
  json::object policy;
};

struct RollbackArguments {
  GatewayArguments gateway;
  std::string pair;
  std::optional<std::int64_t> to;       // none = the version before the present one
  std::optional<std::int64_t> lineage;  // of which run `to` is
  double wait_s = 300;
  std::string key;
  json::object policy;
};

struct WorkersArguments {
  enum class Act { list, add, remove, drain, quarantine, release, set_key };
  GatewayArguments gateway;
  std::string pair;
  Act act = Act::list;
  std::string worker;  // a URL or an id
  json::object added;  // the body of workers:add
  json::object keys;   // set-key: {"admin_key"?, "api_key"?}
  std::string reason;
};

struct VersionsArguments {
  enum class Act { list, verify, collect };
  GatewayArguments gateway;
  std::string pair;
  Act act = Act::list;
  std::int64_t version = 0;  // verify
  bool dry_run = false;      // collect
};

// Reads a journal's files itself; no gateway is asked.
struct JournalArguments {
  std::string place;  // a state directory, or the file
  std::string pair;   // "" = all
  std::int64_t from = 1;
  bool json = false;
};

struct StatusArguments {
  GatewayArguments gateway;
  std::string pair;    // "" = all
  bool check = false;  // the exit code tells whether every worker is ready
};

struct HistoryArguments {
  GatewayArguments gateway;
  std::string pair;
  std::string update;  // "" = a list
  std::size_t limit = 20;
};

struct WatchArguments {
  GatewayArguments gateway;
  std::string pair;                           // "" = all
  double for_s = 0;                           // 0 = until interrupted
  std::optional<std::int64_t> until_version;  // ends once the pair has committed it
};

struct CheckpointArguments {
  std::string directory;
  bool verify = false;  // read every byte; else the structure only
  bool follow = false;  // symbolic links that leave the directory
  bool json = false;
};

// Plans a direct transfer from two files; no gateway is asked.
struct PlanArguments {
  std::string train;
  std::string infer;
  bool one_copy_per_host = false;
  bool allow_unused = false;  // tensors that only the trainer has
  bool json = false;
};

struct DemoArguments {
  bool stay = false;
  std::string programs;  // directory of tinyengine and tinytrainer; "" = where this program is
};

using Command = std::variant<ServeArguments, FinishArguments, ConfigArguments, ConnectArguments, DisconnectArguments,
                             UpdateArguments, CancelArguments, RollbackArguments, WorkersArguments, VersionsArguments,
                             JournalArguments, StatusArguments, HistoryArguments, WatchArguments, CheckpointArguments,
                             PlanArguments, DemoArguments>;

// The command line was answered by itself: help, version, or a mistake.
struct Ended {
  int exit_code = 0;
  std::string text;
  bool json = false;  // the mistake is to be told as JSON
};

// What parsing needs of the world.
struct Surroundings {
  config::Environment environment;
  std::vector<std::string> variables;           // "NAME=value"
  std::vector<std::string> own_addresses = {};  // of this host's interfaces
};

// `arguments` without the program's name.
std::variant<Command, Ended> parse(const std::vector<std::string>& arguments, const Surroundings& surroundings);

// "key=value" of --set, laid into `settings`. Keys are those of a pair's policy, "deadlines_ms.load" reaches into the
// object.
Status set_policy(json::object& settings, std::string_view assignment);

}  // namespace weighlock::cli
