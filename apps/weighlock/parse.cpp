// Which command it is, and the commands that need no gateway.
#include <fmt/format.h>

#include <map>

#include "parse_app.hpp"
#include "version.hpp"
#include "weighlock/core/suggest.hpp"

namespace weighlock::cli {
namespace {

struct CommandRow {
  std::string_view name;
  std::string_view help;
  Parsed (*parse)(const Call& call);
};

const std::vector<CommandRow> kCommands = {
    {"serve", "run the gateway", parse_serve},
    {"finish", "end what a gateway that was stopped or died left undone: nobody stays paused", parse_finish},
    {"connect", "make or change a pair of trainers and inference workers", parse_connect},
    {"disconnect", "remove a pair: its workers are let go as they serve", parse_disconnect},
    {"update", "bring a new version of the weights to every worker of a pair", parse_update},
    {"cancel", "end a running update before its commit; every worker keeps what it had", parse_cancel},
    {"rollback", "bring every worker of a pair back to a version that was committed before", parse_rollback},
    {"workers", "list, add, remove, drain, quarantine or release the workers of a pair, or set their keys",
     parse_workers},
    {"versions", "what is stored of a pair, and who needs it; verify one, or delete what nobody needs", parse_versions},
    {"status", "pairs and workers: state, version, cause", parse_status},
    {"history", "the updates of a pair", parse_history},
    {"watch", "what happens, as it happens", parse_watch},
    {"ckpt", "inspect or verify a checkpoint directory", parse_checkpoint},
    {"plan", "plan a direct transfer between two layouts: bytes per rank, balance, digest", parse_plan},
    {"journal", "show a gateway's records, also of a damaged journal", parse_journal},
    {"config", "print or check the settings of `serve`", parse_config},
    {"demo", "the whole thing on this machine, with small engines and a small trainer", parse_demo},
};

// AReaL starts its gateway as `python -m MODULE`; whoever puts this program in Python's place gets the same words.
bool is_areal_module(const std::string& word) {
  return word == "areal.v2.weight_update.gateway" || word == "areal.experimental.weight_update.gateway";
}

std::string usage() {
  std::string text =
      "Weighlock brings new model weights from training workers to inference workers, whole and verified.\n\nUsage: "
      "weighlock COMMAND ...\n\n";
  for (const CommandRow& row : kCommands) text += fmt::format("  {:<10} {}\n", row.name, row.help);
  return text +
         "\n`weighlock COMMAND --help` tells more, with an example; `weighlock --version` prints one line.\n"
         "Exit codes: 0 ok, 1 failed, 2 usage, 3 refused by the gateway, 4 degraded, 5 unreachable, 6 timed out.\n";
}

// The flags of the server, one for each setting; used by `serve` and by `config`.
class ServeFlags {
 public:
  explicit ServeFlags(CLI::App& app) {
    app.add_option("--config", config_, "TOML file with settings; else WEIGHLOCK_CONFIG")->type_name("FILE");
    for (const config::Setting& setting : config::settings()) {
      if (setting.kind == config::Kind::secret) {
        const std::string file = std::string(setting.name) + "_file";
        app.add_option(config::flag_name(file), values_[file],
                       fmt::format("file with {}, or /dev/fd/N", config::flag_name(setting.name)))
            ->type_name("FILE");
      }
      if (setting.kind == config::Kind::flag) {
        app.add_flag(config::flag_name(setting.name), flags_[std::string(setting.name)], std::string(setting.help));
        continue;
      }
      CLI::Option* option = app.add_option(config::flag_name(setting.name), values_[std::string(setting.name)],
                                           std::string(setting.help));
      option->type_name(setting.kind == config::Kind::whole     ? "N"
                        : setting.kind == config::Kind::seconds ? "SECONDS"
                                                                : "TEXT");
      if (setting.kind == config::Kind::list) {
        option->delimiter(',');
      } else {
        option->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
      }
    }
  }

  Result<config::Loaded> load(const Surroundings& surroundings, bool compat) const {
    std::vector<config::Layer> layers;
    const std::string path = !config_.empty() ? config_ : surroundings.environment("WEIGHLOCK_CONFIG").value_or("");
    if (!path.empty()) {
      Result<config::Layer> file = config::read_toml_file(path);
      if (!file) return std::move(file).error();
      layers.push_back(std::move(*file));
    }
    Result<config::EnvironmentLayer> environment = config::environment_layer(surroundings.variables);
    if (!environment) return std::move(environment).error();
    layers.push_back(environment->layer);
    config::Layer given{"flags", {}};
    for (const auto& [name, values] : values_) {
      if (!values.empty()) given.values.emplace_back(name, values);
    }
    for (const auto& [name, on] : flags_) {
      if (on || (name == "compat" && compat)) given.values.push_back({name, {"true"}});
    }
    layers.push_back(std::move(given));
    Result<config::Loaded> loaded = config::load(layers, surroundings.environment);
    if (loaded)
      loaded->warnings.insert(loaded->warnings.end(), environment->warnings.begin(), environment->warnings.end());
    return loaded;
  }

 private:
  std::string config_;
  std::map<std::string, std::vector<std::string>> values_;
  std::map<std::string, bool> flags_;
};

}  // namespace

Parsed parse_serve(const Call& call) {
  CommandParser parser("serve", "",
                       "Run the gateway. Every flag is also a key of the TOML file and a WEIGHLOCK_* variable; later "
                       "wins: file, environment, flags.",
                       "WEIGHLOCK_ADMIN_API_KEY=... weighlock serve --port 7080 --storage-roots /shared/w");
  ServeFlags flags(parser.app());
  std::vector<std::string> arguments = call.arguments;
  bool compat = false;
  if (arguments.size() >= 2 && arguments[0] == "-m" && is_areal_module(arguments[1])) {
    arguments.erase(arguments.begin(), arguments.begin() + 2);
    compat = true;
  }
  std::vector<std::string> extras;
  if (auto ended = parser.parse(arguments, &extras)) return *ended;
  Result<config::Loaded> loaded = flags.load(call.surroundings, compat);
  if (!loaded) return parser.mistake(loaded.error());
  if (!extras.empty() && !loaded->options.compat) return parser.unexpected(extras.front());
  for (const std::string& extra : extras)
    loaded->warnings.push_back(fmt::format("unknown argument '{}' is ignored", extra));
  if (Status ok = config::admissible(loaded->options, call.surroundings.environment, call.surroundings.own_addresses);
      !ok)
    return parser.mistake(ok.error());
  return Command(ServeArguments{std::move(*loaded)});
}

Parsed parse_finish(const Call& call) {
  CommandParser parser(
      "finish", "",
      "End what a gateway that was stopped or died left undone: engines that it paused are resumed, "
      "healed or named. Takes the gateway's own settings; of these it needs the state directory and the "
      "engines' keys. A `weighlock serve` on that directory does the same by itself.",
      "weighlock finish --state-dir /var/lib/weighlock");
  FinishArguments finish;
  std::string wait;
  parser.app()
      .add_option("--wait", wait, "seconds to wait for a gateway that is still leaving (10)")
      ->type_name("SECONDS");
  parser.add_json();
  ServeFlags flags(parser.app());
  if (auto ended = parser.parse(call.arguments)) return *ended;
  if (!wait.empty()) {
    Result<double> seconds = parse_seconds("--wait", wait);
    if (!seconds) return parser.mistake(seconds.error());
    finish.wait_s = *seconds;
  }
  Result<config::Loaded> loaded = flags.load(call.surroundings, false);
  if (!loaded) return parser.mistake(loaded.error());
  finish.loaded = std::move(*loaded);
  finish.json = parser.json;
  return Command(std::move(finish));
}

Parsed parse_config(const Call& call) {
  CommandParser parser(
      "config", "print|check",
      "print: each setting of `weighlock serve`, and where it came from. check: what is refused or risky.",
      "weighlock config print --config /etc/weighlock.toml");
  std::string what;
  parser.app().add_option("what", what, "print or check")->type_name("print|check");
  parser.add_json();
  ServeFlags flags(parser.app());
  if (auto ended = parser.parse(call.arguments)) return *ended;
  if (what.empty()) return parser.mistake("print or check is needed");
  if (what != "print" && what != "check")
    return parser.mistake(fmt::format("unknown word '{}'{}", what, suggestion(what, {"print", "check"})));
  Result<config::Loaded> loaded = flags.load(call.surroundings, false);
  if (!loaded) return parser.mistake(loaded.error());
  if (what == "check") {
    if (Status ok = config::admissible(loaded->options, call.surroundings.environment, call.surroundings.own_addresses);
        !ok)
      return parser.mistake(ok.error());
  }
  return Command(ConfigArguments{std::move(*loaded), what == "check", parser.json});
}

Parsed parse_checkpoint(const Call& call) {
  CommandParser parser("ckpt", "inspect|verify DIR",
                       "inspect: the structure of a checkpoint directory (headers, index, shapes). verify: that, and "
                       "every byte against the digests of its manifest.",
                       "weighlock ckpt verify /shared/w/weight_update_v42");
  std::string what;
  CheckpointArguments checkpoint;
  CLI::App& app = parser.app();
  app.add_option("what", what, "inspect or verify")->type_name("inspect|verify");
  app.add_option("directory", checkpoint.directory, "the checkpoint's directory")->type_name("DIR");
  app.add_flag("--follow", checkpoint.follow,
               "follow symbolic links that leave the directory, as hub caches have them");
  parser.add_json();
  if (auto ended = parser.parse(call.arguments)) return *ended;
  if (what.empty()) return parser.mistake("inspect or verify is needed");
  if (what != "inspect" && what != "verify")
    return parser.mistake(fmt::format("unknown word '{}'{}", what, suggestion(what, {"inspect", "verify"})));
  if (checkpoint.directory.empty()) return parser.mistake("a directory is needed");
  checkpoint.verify = what == "verify";
  checkpoint.json = parser.json;
  return Command(std::move(checkpoint));
}

Parsed parse_journal(const Call& call) {
  CommandParser parser("journal", "inspect PATH",
                       "inspect: print every record of a gateway's journal, and say which one is missing or altered. "
                       "The files are only read; a gateway may have them open. 0: sound, 1: damaged.",
                       "weighlock journal inspect /var/lib/weighlock --pair actor --from 120");
  std::string what, from, state_dir;
  JournalArguments journal;
  CLI::App& app = parser.app();
  app.add_option("what", what, "inspect")->type_name("inspect");
  app.add_option("path", journal.place, "a state directory, or its journal.db")->type_name("PATH");
  app.add_option("--state-dir", state_dir, "the same, as `weighlock serve` takes it; else WEIGHLOCK_STATE_DIR")
      ->type_name("DIR");
  app.add_option("--pair", journal.pair, "only records of this pair; all are checked")->type_name("PAIR");
  app.add_option("--from", from, "only records from this number on; all are checked")->type_name("N");
  parser.add_json();
  if (auto ended = parser.parse(call.arguments)) return *ended;
  if (what.empty()) return parser.mistake("inspect is needed");
  if (what != "inspect") return parser.mistake(fmt::format("unknown word '{}'{}", what, suggestion(what, {"inspect"})));
  if (!journal.place.empty() && !state_dir.empty())
    return parser.mistake("PATH and --state-dir are the same thing; leave one out");
  if (journal.place.empty()) journal.place = state_dir;
  if (journal.place.empty()) journal.place = call.surroundings.environment("WEIGHLOCK_STATE_DIR").value_or("");
  if (journal.place.empty()) return parser.mistake("a state directory is needed: PATH or --state-dir");
  if (!from.empty()) {
    Result<std::int64_t> number = parse_count("--from", from);
    if (!number) return parser.mistake(number.error());
    journal.from = *number;
  }
  journal.json = parser.json;
  return Command(std::move(journal));
}

Parsed parse_plan(const Call& call) {
  CommandParser parser(
      "plan", "TRAIN.json INFER.json",
      "Plan a direct transfer, prove that it writes every element once, and print bytes per rank, "
      "balance and the lower bound. Each file is one side: ranks, tensors, shards. Or two directories of "
      "what AWEX workers report, a file for each rank and each engine: then it is their plan. 2: no "
      "plan is possible, and why.",
      "weighlock plan train.json infer.json");
  PlanArguments plan;
  CLI::App& app = parser.app();
  app.add_option("train", plan.train, "what the training ranks hold, or a directory of reports")
      ->type_name("TRAIN.json");
  app.add_option("infer", plan.infer, "what the inference ranks want, or a directory of reports")
      ->type_name("INFER.json");
  app.add_flag("--one-copy-per-host", plan.one_copy_per_host,
               "send what ranks of a host hold alike once, and pass it on there; needs the hosts");
  app.add_flag("--allow-unused", plan.allow_unused, "leave out tensors that only the training side has");
  parser.add_json();
  if (auto ended = parser.parse(call.arguments)) return *ended;
  if (plan.train.empty() || plan.infer.empty()) return parser.mistake("two files are needed: TRAIN.json INFER.json");
  plan.json = parser.json;
  return Command(std::move(plan));
}

Parsed parse_demo(const Call& call) {
  CommandParser parser("demo", "",
                       "Start a gateway, a trainer of 2 ranks and 3 engines here, and bring them 7 versions, one of "
                       "which an engine refuses.",
                       "weighlock demo --stay");
  DemoArguments demo;
  CLI::App& app = parser.app();
  app.add_flag("--stay", demo.stay, "stay up at the end and print the addresses");
  app.add_option("--programs", demo.programs, "where tinyengine and tinytrainer are; default: beside this program")
      ->type_name("DIR");
  if (auto ended = parser.parse(call.arguments)) return *ended;
  return Command(std::move(demo));
}

Parsed parse(const std::vector<std::string>& arguments, const Surroundings& surroundings) {
  if (arguments.empty()) return Ended{2, usage(), false};
  const std::string& word = arguments.front();
  if (word == "--help" || word == "-h" || word == "help") return Ended{0, usage(), false};
  if (word == "--version" || word == "-V") return Ended{0, std::string(kVersionLine) + "\n", false};
  if (word == "-m") return parse_serve(Call{arguments, surroundings});
  const std::vector<std::string> rest(arguments.begin() + 1, arguments.end());
  std::vector<std::string_view> names;
  for (const CommandRow& row : kCommands) {
    names.push_back(row.name);
    if (row.name == word) return row.parse(Call{rest, surroundings});
  }
  return Ended{2,
               fmt::format("weighlock: unknown command '{}'{}\n(`weighlock --help` lists them)\n", word,
                           suggestion(word, names)),
               false};
}

}  // namespace weighlock::cli
