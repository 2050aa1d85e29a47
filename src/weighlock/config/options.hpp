// What the gateway is started with: the outcome of file, environment and flags, every value already checked.
//
// A value; the gateway keeps its own copy. Where each value came from is in config/settings.hpp (`Loaded`).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace weighlock::config {

// The key of AReaL's own gateway, printed in its sources: as good as none.
inline constexpr std::string_view kPublicAdminKey = "areal-admin-key";

enum class LogLevel { debug, info, warning, error };

struct ServeOptions {
  std::string host = "0.0.0.0";  // an IP address, or a name that the caller resolves; wildcard = every interface
  int port = 7080;               // 0 = any free one
  std::string admin_api_key{kPublicAdminKey};
  std::string engine_admin_key;  // for workers that name no keys of their own; "" = none
  std::string engine_api_key;
  double init_timeout_s = 300;  // for a state directory that another process still holds, and for each step of an AWEX
                                // connect
  std::string kv_store_url;     // how AWEX workers reach us; "" = the address by which each was reached
  double update_timeout_s = 120;  // AReaL's; raises the save and load deadlines, never lowers them
  LogLevel log_level = LogLevel::info;
  std::string state_dir;                   // absolute; journal and lock file live here
  std::vector<std::string> storage_roots;  // absolute; empty = any absolute path is taken
  std::vector<std::string>
      worker_hosts;               // names, addresses and CIDRs; empty = any but link-local and metadata addresses
  std::string fence;              // program (absolute path) or http(s) URL; empty = none
  bool no_restart = false;        // whoever started the gateway starts it again when it crashed
  bool compat = false;            // started in place of AReaL's Python gateway
  int compat_error_status = 200;  // HTTP status of a failed transfer in the compatible API: 200, or 400..599
  double reply_by_s = 280;        // the compatible API answers by then; below its client's 300
};

std::string_view name(LogLevel level);
std::optional<LogLevel> log_level_from(std::string_view name);

}  // namespace weighlock::config
