// The commands about what a pair has: its workers, its stored versions, and the way back.
#include <fmt/format.h>

#include <array>

#include "parse_app.hpp"
#include "weighlock/core/suggest.hpp"

namespace weighlock::cli {
namespace {

struct NumberFlag {
  std::string_view flag;
  const std::string& text;
  std::optional<std::int64_t>& out;
};

}  // namespace

Parsed parse_rollback(const Call& call) {
  CommandParser parser("rollback", "PAIR",
                       "Bring every worker of a pair back to a version that was committed before and is still stored. "
                       "Nothing is saved; the version is verified before any worker is paused.",
                       "weighlock rollback actor            # to the version before that no engines died of\n"
                       "  weighlock rollback actor --to 41    # `weighlock versions actor` lists what there is");
  RollbackArguments rollback;
  std::string to, lineage, wait;
  std::vector<std::string> set;
  CLI::App& app = parser.app();
  app.add_option("pair", rollback.pair, "the pair's name")->type_name("PAIR");
  app.add_option("--to", to, "the version to go to; refused if it was the last thing sent to two engines that died")
      ->type_name("N");
  app.add_option("--lineage", lineage, "of which run it is, if several have that number")->type_name("N");
  app.add_option("--wait", wait, "seconds to wait for the outcome (300); 0: only start it")->type_name("SECONDS");
  app.add_option("--key", rollback.key, "idempotency key: the same key never starts a second one")->type_name("KEY");
  app.add_option("--set", set, "a policy for this update only: quorum=all, canary=1, ...")->type_name("KEY=VALUE");
  GatewayFlags gateway(parser);
  if (auto ended = parser.parse(call.arguments)) return *ended;
  if (Status ok = check_pair_name(rollback.pair); !ok) return parser.mistake(ok.error());
  if (!lineage.empty() && to.empty())
    return parser.mistake("--lineage says of which run --to is, and there is no --to");
  for (const NumberFlag& one :
       {NumberFlag{"--to", to, rollback.to}, NumberFlag{"--lineage", lineage, rollback.lineage}}) {
    if (one.text.empty()) continue;
    Result<std::int64_t> number = parse_count(one.flag, one.text);
    if (!number) return parser.mistake(number.error());
    one.out = *number;
  }
  if (!wait.empty()) {
    Result<double> seconds = parse_seconds("--wait", wait);
    if (!seconds) return parser.mistake(seconds.error());
    rollback.wait_s = *seconds;
  }
  for (const std::string& assignment : set) {
    if (Status ok = set_policy(rollback.policy, assignment); !ok) return parser.mistake(ok.error());
  }
  Result<GatewayArguments> checked = gateway.check(call.surroundings);
  if (!checked) return parser.mistake(checked.error());
  rollback.gateway = std::move(*checked);
  return Command(std::move(rollback));
}

Parsed parse_disconnect(const Call& call) {
  CommandParser parser(
      "disconnect", "PAIR",
      "Remove a pair. A running update ends first, workers that aren't whole are healed once, then all "
      "of them are let go and serve on as they are; stored versions stay. There is no question before: "
      "`weighlock status PAIR` shows what it is about. 4: workers are left behind, each with its "
      "cause.",
      "weighlock disconnect actor");
  DisconnectArguments disconnect;
  parser.app().add_option("pair", disconnect.pair, "the pair's name")->type_name("PAIR");
  GatewayFlags gateway(parser);
  if (auto ended = parser.parse(call.arguments)) return *ended;
  if (Status ok = check_pair_name(disconnect.pair); !ok) return parser.mistake(ok.error());
  Result<GatewayArguments> checked = gateway.check(call.surroundings);
  if (!checked) return parser.mistake(checked.error());
  disconnect.gateway = std::move(*checked);
  return Command(std::move(disconnect));
}

Parsed parse_cancel(const Call& call) {
  CommandParser parser(
      "cancel", "PAIR [UPDATE]",
      "End a running update before its commit: workers that have loaded go back to the version before, "
      "the others keep it. Refused (3) once the version is committed; `weighlock rollback` goes back "
      "from it.",
      "weighlock cancel actor               # the one that runs\n"
      "  weighlock cancel actor b-12          # `weighlock history actor` lists them");
  CancelArguments cancel;
  std::string wait;
  CLI::App& app = parser.app();
  app.add_option("pair", cancel.pair, "the pair's name")->type_name("PAIR");
  app.add_option("update", cancel.update, "which one, if others wait behind it")->type_name("UPDATE");
  app.add_option("--wait", wait, "seconds to wait until all is undone (300); 0: only ask for it")->type_name("SECONDS");
  GatewayFlags gateway(parser);
  if (auto ended = parser.parse(call.arguments)) return *ended;
  if (Status ok = check_pair_name(cancel.pair); !ok) return parser.mistake(ok.error());
  if (!wait.empty()) {
    Result<double> seconds = parse_seconds("--wait", wait);
    if (!seconds) return parser.mistake(seconds.error());
    cancel.wait_s = *seconds;
  }
  Result<GatewayArguments> checked = gateway.check(call.surroundings);
  if (!checked) return parser.mistake(checked.error());
  cancel.gateway = std::move(*checked);
  return Command(std::move(cancel));
}

namespace {

struct WorkersWord {
  std::string_view word;
  WorkersArguments::Act act;
};
constexpr std::array kWorkersWords = {WorkersWord{"add", WorkersArguments::Act::add},
                                      WorkersWord{"remove", WorkersArguments::Act::remove},
                                      WorkersWord{"drain", WorkersArguments::Act::drain},
                                      WorkersWord{"quarantine", WorkersArguments::Act::quarantine},
                                      WorkersWord{"release", WorkersArguments::Act::release},
                                      WorkersWord{"set-key", WorkersArguments::Act::set_key}};

// "PAIR", or "WORD PAIR WORKER": the words decide what is meant.
Status sort_words(const std::vector<std::string>& words, WorkersArguments& out) {
  const auto bad = [](std::string text) { return Error{ErrorCode::invalid_argument, std::move(text), nullptr}; };
  if (words.empty()) return check_pair_name("");
  std::vector<std::string_view> known;
  for (const WorkersWord& row : kWorkersWords) {
    known.push_back(row.word);
    if (row.word == words[0]) out.act = row.act;
  }
  if (out.act == WorkersArguments::Act::list) {
    if (words.size() > 1) return bad(fmt::format("unknown word '{}'{}", words[0], suggestion(words[0], known)));
    out.pair = words[0];
    return check_pair_name(out.pair);
  }
  if (words.size() != 3)
    return bad(fmt::format("{} needs a pair and {}", words[0],
                           out.act == WorkersArguments::Act::add ? "the worker's URL" : "a worker (its URL or id)"));
  out.pair = words[1];
  out.worker = words[2];
  return check_pair_name(out.pair);
}

}  // namespace

Parsed parse_workers(const Call& call) {
  CommandParser parser(
      "workers", "[WORD] PAIR [WORKER]",
      "Without a word before the pair: list its workers. add: bring one to the committed version, then "
      "let it serve. remove: take one off. drain: keep it out of updates while it serves what it "
      "holds. quarantine: hold it paused. release: end either, and bring it to the committed version. set-key: call "
      "one with keys of its own from now on; those that aren't named stay.",
      "weighlock workers actor\n"
      "  weighlock workers add actor http://g2:30000 --dialect sglang\n"
      "  weighlock workers quarantine actor http://g1:30000 --reason \"disk swap\"\n"
      "  weighlock workers set-key actor http://g1:30000 --worker-api-key-env G1_API_KEY");
  WorkersArguments workers;
  std::vector<std::string> words;
  std::string dialect;
  CLI::App& app = parser.app();
  app.add_option("words", words, "PAIR, or add|remove|drain|quarantine|release|set-key PAIR WORKER")
      ->type_name("[WORD] PAIR [WORKER]")
      ->expected(0, 3);
  app.add_option("--dialect", dialect, "add: auto, sglang or vllm")->type_name("auto|sglang|vllm");
  app.add_option("--reason", workers.reason, "for people who look at the worker later")->type_name("TEXT");
  KeyFlags keys(parser);
  GatewayFlags gateway(parser);
  if (auto ended = parser.parse(call.arguments)) return *ended;
  if (Status ok = sort_words(words, workers); !ok) return parser.mistake(ok.error());
  Result<json::object> references = keys.check();
  if (!references) return parser.mistake(references.error());
  const bool adds = workers.act == WorkersArguments::Act::add;
  if (!adds && !dialect.empty()) return parser.mistake("--dialect belongs to add");
  const bool sets_key = workers.act == WorkersArguments::Act::set_key;
  if (!adds && !sets_key && !references->empty()) return parser.mistake("the worker's keys belong to add and set-key");
  if (sets_key && references->empty())
    return parser.mistake("set-key needs --worker-key-env, --worker-api-key-env, or one of them as a file");
  if (sets_key) workers.keys = *references;
  if ((adds || sets_key || workers.act == WorkersArguments::Act::list) && !workers.reason.empty())
    return parser.mistake("--reason belongs to remove, drain, quarantine and release");
  if (!dialect.empty() && dialect != "auto" && dialect != "sglang" && dialect != "vllm")
    return parser.mistake(fmt::format("--dialect: '{}' is neither auto, sglang nor vllm", dialect));
  if (adds) {
    Result<json::value> added = parse_worker("WORKER", workers.worker, *references);
    if (!added) return parser.mistake(added.error());
    workers.added = std::move(added->as_object());
    if (!dialect.empty()) workers.added["dialect"] = dialect;
  }
  Result<GatewayArguments> checked = gateway.check(call.surroundings);
  if (!checked) return parser.mistake(checked.error());
  workers.gateway = std::move(*checked);
  return Command(std::move(workers));
}

Parsed parse_versions(const Call& call) {
  CommandParser parser(
      "versions", "[WORD] PAIR [N]",
      "Without a word before the pair: what is stored of it, and who needs it. verify: read one again, "
      "every byte where there is a digest. collect: delete what nobody needs.",
      "weighlock versions actor\n  weighlock versions verify actor 41\n"
      "  weighlock versions collect actor --dry-run");
  VersionsArguments versions;
  std::vector<std::string> words;
  CLI::App& app = parser.app();
  app.add_option("words", words, "PAIR, verify PAIR N, or collect PAIR")->type_name("[WORD] PAIR [N]")->expected(0, 3);
  app.add_flag("--dry-run", versions.dry_run, "collect: only tell what would be deleted");
  GatewayFlags gateway(parser);
  if (auto ended = parser.parse(call.arguments)) return *ended;
  if (words.size() > 1 && words[0] == "verify") versions.act = VersionsArguments::Act::verify;
  if (words.size() > 1 && words[0] == "collect") versions.act = VersionsArguments::Act::collect;
  const bool lists = versions.act == VersionsArguments::Act::list;
  if (lists && words.size() > 1)
    return parser.mistake(fmt::format("unknown word '{}'{}", words[0], suggestion(words[0], {"verify", "collect"})));
  versions.pair = words.empty() ? "" : words[lists ? 0 : 1];
  if (Status ok = check_pair_name(versions.pair); !ok) return parser.mistake(ok.error());
  if (versions.act == VersionsArguments::Act::verify) {
    if (words.size() != 3) return parser.mistake("verify needs a pair and a version");
    Result<std::int64_t> number = parse_count("N", words[2]);
    if (!number) return parser.mistake(number.error());
    versions.version = *number;
  } else if (words.size() == 3) {
    return parser.mistake(fmt::format("unexpected argument '{}'", words[2]));
  }
  if (versions.dry_run && versions.act != VersionsArguments::Act::collect)
    return parser.mistake("--dry-run belongs to collect");
  Result<GatewayArguments> checked = gateway.check(call.surroundings);
  if (!checked) return parser.mistake(checked.error());
  versions.gateway = std::move(*checked);
  return Command(std::move(versions));
}

}  // namespace weighlock::cli
