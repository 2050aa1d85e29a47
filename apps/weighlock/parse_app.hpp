// One command's CLI11 parser, with unknown words answered by a suggestion. Included by the parse_*.cpp files only:
// CLI11 is large.
#pragma once

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <optional>
#include <string>
#include <vector>

#include "arguments.hpp"

namespace weighlock::cli {

// How a command is called: its part of the arguments, and the world.
struct Call {
  std::vector<std::string> arguments;
  const Surroundings& surroundings;
};

using Parsed = std::variant<Command, Ended>;

// A CLI11 App whose extras are kept, so that they can be answered with a suggestion after the parse.
class CommandParser {
 public:
  // `words`: what follows the name, as the help's usage shows it, those in [] may be left out. `example` is printed
  // under the help text.
  CommandParser(const std::string& name, const std::string& words, const std::string& description,
                const std::string& example);
  CLI::App& app() { return app_; }
  bool json = false;  // set by --json, where add_json was called
  void add_json();

  // Help, or a mistake; nothing if the arguments are well-formed. Unknown ones are refused unless `extras` takes them.
  std::optional<Ended> parse(std::vector<std::string> arguments, std::vector<std::string>* extras = nullptr);

  Ended mistake(const std::string& text) const;
  Ended unexpected(const std::string& word) const;
  Ended mistake(const Error& error) const { return mistake(error.text()); }

 private:
  CLI::App app_;
};

// --gateway, --admin-api-key-file, --timeout and --json.
class GatewayFlags {
 public:
  explicit GatewayFlags(CommandParser& parser);
  Result<GatewayArguments> check(const Surroundings& surroundings) const;

 private:
  CommandParser& parser_;
  std::string url_;
  std::string key_file_;
  std::string timeout_;
};

// --worker-key-env, --worker-key-file and the same for the API key: references, which the gateway looks up.
class KeyFlags {
 public:
  explicit KeyFlags(CommandParser& parser);
  Result<json::object> check() const;  // {"admin_key"?, "api_key"?}

 private:
  std::string key_env_, key_file_, api_key_env_, api_key_file_;
};

// 0 or more, at most a week.
Result<double> parse_seconds(std::string_view flag, const std::string& text);
Result<std::int64_t> parse_count(std::string_view flag, const std::string& text);
// "URL" or "sglang=URL", "vllm=URL", with the keys laid into it: an entry of a pair's workers.
Result<json::value> parse_worker(std::string_view flag, const std::string& text, const json::object& keys);
Status check_pair_name(const std::string& name);

Parsed parse_serve(const Call& call);
Parsed parse_finish(const Call& call);
Parsed parse_config(const Call& call);
Parsed parse_connect(const Call& call);
Parsed parse_disconnect(const Call& call);
Parsed parse_cancel(const Call& call);
Parsed parse_update(const Call& call);
Parsed parse_rollback(const Call& call);
Parsed parse_workers(const Call& call);
Parsed parse_versions(const Call& call);
Parsed parse_journal(const Call& call);
Parsed parse_status(const Call& call);
Parsed parse_history(const Call& call);
Parsed parse_watch(const Call& call);
Parsed parse_checkpoint(const Call& call);
Parsed parse_plan(const Call& call);
Parsed parse_demo(const Call& call);

}  // namespace weighlock::cli
