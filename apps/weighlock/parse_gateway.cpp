// The commands that talk to a gateway.
#include <fmt/format.h>

#include <set>

#include "parse_app.hpp"
#include "weighlock/core/url.hpp"

namespace weighlock::cli {
namespace {

Error bad(std::string message) {
  return Error{ErrorCode::invalid_argument, std::move(message)};
}

Status check_directory(std::string_view flag, const std::string& path) {
  if (path.empty()) return bad(fmt::format("{} is needed", flag));
  if (path.front() != '/')
    return bad(fmt::format("{}: '{}' isn't an absolute path (the gateway and the workers read it, not this shell)",
                           flag, path));
  return {};
}

struct ConnectFlags {
  std::string pair, save_path, save_trigger;
  std::vector<std::string> workers, trainers, set;
  std::string lora_name, lora_keep;
  bool external = false;
  bool new_lineage = false;
  bool change_mode = false;
};

// null, or {"name", "keep"}.
Result<json::value> lora(const ConnectFlags& flags) {
  if (flags.lora_name.empty() && flags.lora_keep.empty()) return json::value(nullptr);
  if (flags.lora_name.empty()) return bad("--lora-keep needs --lora-name: it says how many adapters stay loaded");
  json::object out{{"name", flags.lora_name}};
  if (!flags.lora_keep.empty()) {
    Result<std::int64_t> keep = parse_count("--lora-keep", flags.lora_keep);
    if (!keep) return std::move(keep).error();
    out["keep"] = *keep;
  }
  return json::value(std::move(out));
}

Result<json::object> pair_spec(const ConnectFlags& flags, const KeyFlags& key_flags) {
  if (Status ok = check_pair_name(flags.pair); !ok) return std::move(ok).error();
  if (Status ok = check_directory("--save-path", flags.save_path); !ok) return std::move(ok).error();
  if (flags.workers.empty()) return bad("at least one --worker URL is needed");
  if (flags.external && !flags.trainers.empty())
    return bad("--external and --trainer exclude each other: an external trainer saves by itself");
  if (!flags.external && flags.trainers.empty())
    return bad("either --trainer URL (one for each rank) or --external is needed");
  if (!flags.save_trigger.empty() && flags.save_trigger != "all" && flags.save_trigger != "rank0")
    return bad(fmt::format("--save-trigger: '{}' is neither all nor rank0", flags.save_trigger));
  Result<json::object> keys = key_flags.check();
  if (!keys) return std::move(keys).error();

  Result<json::value> adapters = lora(flags);
  if (!adapters) return std::move(adapters).error();

  std::set<std::string> seen;
  json::array workers, trainers;
  for (const std::string& text : flags.workers) {
    Result<json::value> parsed = parse_worker("--worker", text, *keys);
    if (!parsed) return std::move(parsed).error();
    if (!seen.insert(std::string(*find_string(*parsed, "url"))).second)
      return bad(fmt::format("--worker '{}' is given twice", text));
    workers.push_back(std::move(*parsed));
  }
  for (const std::string& text : flags.trainers) {
    Result<Url> url = parse_url(text);
    if (!url) return wrap("--trainer", std::move(url).error());
    if (!seen.insert(url->text).second) return bad(fmt::format("--trainer '{}' is given twice", text));
    trainers.emplace_back(url->text);
  }
  json::object policy;
  for (const std::string& assignment : flags.set) {
    if (Status ok = set_policy(policy, assignment); !ok) return std::move(ok).error();
  }
  json::object trainer{{"kind", flags.external ? "external" : "areal"}};
  if (!flags.external) trainer["urls"] = std::move(trainers);
  if (!flags.external && !flags.save_trigger.empty()) trainer["save_trigger"] = flags.save_trigger;
  json::object spec{{"mode", "disk"}, {"save_path", flags.save_path}};
  spec["trainers"] = std::move(trainer);
  spec["workers"] = std::move(workers);
  if (!adapters->is_null()) spec["lora"] = *std::move(adapters);
  if (!policy.empty()) spec["settings"] = std::move(policy);
  if (flags.new_lineage) spec["new_lineage"] = true;
  spec["keep_unnamed"] = true;
  return spec;
}

}  // namespace

Parsed parse_connect(const Call& call) {
  CommandParser parser(
      "connect", "PAIR",
      "Make or change a pair: who trains, who serves, and where the weights travel. Of a pair that is there already "
      "the lists of workers and trainers are replaced, settings and keys that aren't named stay as they are, and what "
      "changed is told.",
      "weighlock connect actor --save-path /shared/w --trainer http://t0:9000 http://t1:9000 \\\n"
      "      --worker sglang=http://g0:30000 vllm=http://g1:8000 --worker-key-env ENGINE_ADMIN_KEY --set quorum=all");
  ConnectFlags flags;
  CLI::App& app = parser.app();
  app.add_option("pair", flags.pair, "the pair's name")->type_name("PAIR");
  app.add_option("--save-path", flags.save_path, "directory on storage that trainers and workers share")
      ->type_name("DIR");
  app.add_option("--worker", flags.workers,
                 "inference worker; sglang=URL or vllm=URL names its dialect, else it is found out")
      ->type_name("URL");
  app.add_option("--trainer", flags.trainers, "training worker, one for each rank, rank 0 first")->type_name("URL");
  app.add_flag("--external", flags.external,
               "the trainer saves by itself and hands over directories (`weighlock update --from DIR`)");
  app.add_flag("--new-lineage", flags.new_lineage,
               "the trainer begins again: its version numbers may be below those committed so far");
  app.add_flag("--change-mode", flags.change_mode,
               "a pair in AWEX mode becomes one by files, with the settings that are named here; else that is refused");
  app.add_option("--save-trigger", flags.save_trigger, "all: /save goes to every rank; rank0: to the first only")
      ->type_name("all|rank0");
  app.add_option("--lora-name", flags.lora_name, "the versions are LoRA adapters, loaded as NAME-v1, NAME-v2, ...")
      ->type_name("NAME");
  app.add_option("--lora-keep", flags.lora_keep, "how many of them stay loaded (0: all)")->type_name("N");
  KeyFlags keys(parser);
  app.add_option("--set", flags.set, "a policy of the pair: quorum=all, pause_mode=keep, deadlines_ms.load=60000, ...")
      ->type_name("KEY=VALUE");
  GatewayFlags gateway(parser);
  if (auto ended = parser.parse(call.arguments)) return *ended;
  Result<json::object> spec = pair_spec(flags, keys);
  if (!spec) return parser.mistake(spec.error());
  Result<GatewayArguments> checked = gateway.check(call.surroundings);
  if (!checked) return parser.mistake(checked.error());
  return Command(ConnectArguments{std::move(*checked), flags.pair, std::move(*spec), flags.change_mode});
}

Parsed parse_update(const Call& call) {
  CommandParser parser("update", "PAIR", "Bring a new version of the weights to every worker of a pair.",
                       "weighlock update actor --version 42                       # the trainers save\n"
                       "  weighlock update actor --version 42 --from /shared/out/step42   # it is saved already");
  UpdateArguments update;
  std::string version, wait, quorum;
  std::vector<std::string> set;
  CLI::App& app = parser.app();
  app.add_option("pair", update.pair, "the pair's name")->type_name("PAIR");
  app.add_option("--version", version, "number of the new version, above the committed one")->type_name("N");
  app.add_option("--from", update.from, "a finished directory, instead of asking the trainers to save")
      ->type_name("DIR");
  app.add_option("--wait", wait, "seconds to wait for the outcome (300); 0: only start it")->type_name("SECONDS");
  app.add_option("--key", update.key, "idempotency key: the same key never starts a second update")->type_name("KEY");
  app.add_option("--quorum", quorum, "half, all, or how many workers must be verified")->type_name("half|all|N");
  app.add_option("--set", set, "a policy for this update only: on_failure=rollback_all, canary=1, ...")
      ->type_name("KEY=VALUE");
  GatewayFlags gateway(parser);
  if (auto ended = parser.parse(call.arguments)) return *ended;

  if (Status ok = check_pair_name(update.pair); !ok) return parser.mistake(ok.error());
  if (version.empty()) return parser.mistake("--version is needed");
  Result<std::int64_t> number = parse_count("--version", version);
  if (!number) return parser.mistake(number.error());
  update.version = *number;
  if (!update.from.empty()) {
    if (Status ok = check_directory("--from", update.from); !ok) return parser.mistake(ok.error());
  }
  if (!wait.empty()) {
    Result<double> seconds = parse_seconds("--wait", wait);
    if (!seconds) return parser.mistake(seconds.error());
    update.wait_s = *seconds;
  }
  if (!quorum.empty()) set.push_back("quorum=" + quorum);
  for (const std::string& assignment : set) {
    if (Status ok = set_policy(update.policy, assignment); !ok) return parser.mistake(ok.error());
  }
  Result<GatewayArguments> checked = gateway.check(call.surroundings);
  if (!checked) return parser.mistake(checked.error());
  update.gateway = std::move(*checked);
  return Command(std::move(update));
}

Parsed parse_status(const Call& call) {
  CommandParser parser("status", "[PAIR]", "Show pairs and their workers: state, version, and why one doesn't serve.",
                       "weighlock status actor\n  weighlock status actor --check || page somebody");
  StatusArguments status;
  parser.app().add_option("pair", status.pair, "only this pair")->type_name("PAIR");
  parser.app().add_flag("--check", status.check,
                        "for scripts: 4 unless every worker that is shown is ready, and paused by nobody else");
  GatewayFlags gateway(parser);
  if (auto ended = parser.parse(call.arguments)) return *ended;
  Result<GatewayArguments> checked = gateway.check(call.surroundings);
  if (!checked) return parser.mistake(checked.error());
  status.gateway = std::move(*checked);
  return Command(std::move(status));
}

Parsed parse_history(const Call& call) {
  CommandParser parser("history", "PAIR [UPDATE]", "Show the updates of a pair, newest first, or one of them in full.",
                       "weighlock history actor --limit 5");
  HistoryArguments history;
  std::string limit;
  CLI::App& app = parser.app();
  app.add_option("pair", history.pair, "the pair's name")->type_name("PAIR");
  app.add_option("update", history.update, "one update, in full")->type_name("UPDATE");
  app.add_option("--limit", limit, "how many (20)")->type_name("N");
  GatewayFlags gateway(parser);
  if (auto ended = parser.parse(call.arguments)) return *ended;
  if (Status ok = check_pair_name(history.pair); !ok) return parser.mistake(ok.error());
  if (!limit.empty()) {
    Result<std::int64_t> count = parse_count("--limit", limit);
    if (!count) return parser.mistake(count.error());
    if (*count == 0) return parser.mistake("--limit: must be above 0");
    history.limit = static_cast<std::size_t>(*count);
  }
  Result<GatewayArguments> checked = gateway.check(call.surroundings);
  if (!checked) return parser.mistake(checked.error());
  history.gateway = std::move(*checked);
  return Command(std::move(history));
}

Parsed parse_watch(const Call& call) {
  CommandParser parser(
      "watch", "[PAIR]",
      "Print what happens to pairs and workers, one line each with the time it was seen, until interrupted.",
      "weighlock watch actor --until-version 42 --for 600");
  WatchArguments watch;
  std::string seconds, version;
  CLI::App& app = parser.app();
  app.add_option("pair", watch.pair, "only this pair")->type_name("PAIR");
  app.add_option("--for", seconds, "end after so long")->type_name("SECONDS");
  app.add_option("--until-version", version, "end with 0 once the pair has committed this version")->type_name("N");
  GatewayFlags gateway(parser);
  if (auto ended = parser.parse(call.arguments)) return *ended;
  if (!seconds.empty()) {
    Result<double> number = parse_seconds("--for", seconds);
    if (!number) return parser.mistake(number.error());
    watch.for_s = *number;
  }
  if (!version.empty()) {
    Result<std::int64_t> number = parse_count("--until-version", version);
    if (!number) return parser.mistake(number.error());
    if (watch.pair.empty()) return parser.mistake("--until-version needs a pair");
    watch.until_version = *number;
  }
  Result<GatewayArguments> checked = gateway.check(call.surroundings);
  if (!checked) return parser.mistake(checked.error());
  watch.gateway = std::move(*checked);
  return Command(std::move(watch));
}

}  // namespace weighlock::cli
