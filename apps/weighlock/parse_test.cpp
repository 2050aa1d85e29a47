#include <gtest/gtest.h>

#include <map>

#include "arguments.hpp"

namespace weighlock::cli {
namespace {

Surroundings surroundings(std::map<std::string, std::string> values = {{"HOME", "/home/u"}}) {
  Surroundings out;
  for (const auto& [name, value] : values) out.variables.push_back(name + "=" + value);
  out.environment = [values](std::string_view name) -> std::optional<std::string> {
    const auto found = values.find(std::string(name));
    return found == values.end() ? std::nullopt : std::optional(found->second);
  };
  return out;
}

std::string mistake(const std::vector<std::string>& arguments) {
  const auto parsed = parse(arguments, surroundings());
  const Ended* ended = std::get_if<Ended>(&parsed);
  if (!ended) return "accepted";
  EXPECT_EQ(ended->exit_code, 2);
  return ended->text.substr(0, ended->text.find('\n'));
}

template <typename T>
T accepted(const std::vector<std::string>& arguments, const Surroundings& around = surroundings()) {
  const auto parsed = parse(arguments, around);
  if (const Ended* ended = std::get_if<Ended>(&parsed)) {
    ADD_FAILURE() << ended->text;
    return T{};
  }
  return std::get<T>(std::get<Command>(parsed));
}

const std::vector<std::string> kConnect = {"connect",  "actor",           "--save-path", "/w",
                                           "--worker", "http://g0:30000", "--external"};

std::vector<std::string> with(std::vector<std::string> base, std::vector<std::string> more) {
  base.insert(base.end(), more.begin(), more.end());
  return base;
}

TEST(Parse, an_unknown_command_or_flag_gets_a_suggestion) {
  EXPECT_EQ(mistake({"updaet"}), "weighlock: unknown command 'updaet'; did you mean 'update'?");
  EXPECT_EQ(mistake({"update", "actor", "--verison", "3"}),
            "weighlock update: unknown flag '--verison'; did you mean '--version'?");
  EXPECT_EQ(mistake({"update", "actor", "--verison=3"}),
            "weighlock update: unknown flag '--verison'; did you mean '--version'?");
  EXPECT_EQ(mistake({"status", "a", "b"}), "weighlock status: unexpected argument 'b'");
  EXPECT_EQ(mistake({"ckpt", "verfy", "/d"}), "weighlock ckpt: unknown word 'verfy'; did you mean 'verify'?");
  EXPECT_EQ(mistake(with(kConnect, {"--set", "quorom=all"})),
            "weighlock connect: --set: unknown key 'quorom'; did you mean 'quorum'?");
}

TEST(Parse, help_and_version_end_with_0_and_every_help_has_an_example) {
  for (const char* command : {"serve", "finish", "connect", "disconnect", "update", "cancel", "rollback", "workers",
                              "versions", "status", "history", "watch", "ckpt", "journal", "config", "plan", "demo"}) {
    const auto parsed = parse({command, "--help"}, surroundings());
    ASSERT_TRUE(std::holds_alternative<Ended>(parsed)) << command;
    EXPECT_EQ(std::get<Ended>(parsed).exit_code, 0);
    const std::string& text = std::get<Ended>(parsed).text;
    EXPECT_NE(text.find(std::string("Example:\n  ")), std::string::npos) << command;
    EXPECT_NE(text.find(std::string("\nUsage: weighlock ") + command), std::string::npos) << text;
    EXPECT_EQ(text.find("(0x)"), std::string::npos) << text;
    EXPECT_EQ(text.find("... ..."), std::string::npos) << text;
  }
  const auto version = parse({"--version"}, surroundings());
  EXPECT_TRUE(std::get<Ended>(version).text.starts_with("weighlock 0."));
  EXPECT_EQ(std::get<Ended>(parse({"--help"}, surroundings())).exit_code, 0);
  EXPECT_EQ(std::get<Ended>(parse({}, surroundings())).exit_code, 2);
}

TEST(Parse, help_shows_which_words_are_needed) {
  const auto usage = [](const char* command) {
    const std::string text = std::get<Ended>(parse({command, "--help"}, surroundings())).text;
    const std::size_t at = text.find("Usage: ");
    return text.substr(at, text.find('\n', at) - at);
  };
  EXPECT_EQ(usage("update"), "Usage: weighlock update PAIR [OPTIONS]");
  EXPECT_EQ(usage("status"), "Usage: weighlock status [PAIR] [OPTIONS]");
  EXPECT_EQ(usage("workers"), "Usage: weighlock workers [WORD] PAIR [WORKER] [OPTIONS]");
  EXPECT_EQ(usage("cancel"), "Usage: weighlock cancel PAIR [UPDATE] [OPTIONS]");
}

TEST(Parse, finish_takes_the_gateways_own_settings_and_a_wait) {
  const auto finish = accepted<FinishArguments>({"finish", "--state-dir", "/var/lib/w", "--wait", "2.5", "--json"});
  EXPECT_EQ(finish.loaded.options.state_dir, "/var/lib/w");
  EXPECT_EQ(finish.wait_s, 2.5);
  EXPECT_TRUE(finish.json);
  EXPECT_EQ(accepted<FinishArguments>({"finish"}).wait_s, 10);
  EXPECT_EQ(mistake({"finish", "--wait", "soon"}).substr(0, 24), "weighlock finish: --wait");
  EXPECT_EQ(mistake({"finish", "--stat-dir", "/x"}),
            "weighlock finish: unknown flag '--stat-dir'; did you mean '--state-dir'?");
}

TEST(Parse, an_update_is_checked_before_anything_is_sent) {
  EXPECT_EQ(mistake({"update", "--version", "3"}), "weighlock update: the pair's name is empty");
  EXPECT_EQ(mistake({"update", "actor"}), "weighlock update: --version is needed");
  EXPECT_EQ(mistake({"update", "actor", "--version", "-3"}),
            "weighlock update: --version: '-3' isn't a whole number of 0 or more");
  EXPECT_EQ(mistake({"update", "actor", "--version", "3x"}),
            "weighlock update: --version: '3x' isn't a whole number of 0 or more");
  EXPECT_EQ(
      mistake({"update", "actor", "--version", "3", "--from", "out"}),
      "weighlock update: --from: 'out' isn't an absolute path (the gateway and the workers read it, not this shell)");
  EXPECT_EQ(mistake({"update", "actor", "--version", "3", "--quorum", "most"}),
            "weighlock update: quorum: 'most' is neither half, all nor a number of workers above 0");
  EXPECT_EQ(mistake({"update", "actor", "--version", "3", "--gateway", "ftp://x"}).substr(0, 28),
            "weighlock update: --gateway:");

  const auto update = accepted<UpdateArguments>({"update", "actor", "--version", "42", "--from", "/out/42", "--wait",
                                                 "1.5", "--key", "k", "--quorum", "2", "--json"});
  EXPECT_EQ(update.pair, "actor");
  EXPECT_EQ(update.version, 42);
  EXPECT_EQ(update.from, "/out/42");
  EXPECT_EQ(update.wait_s, 1.5);
  EXPECT_EQ(update.key, "k");
  EXPECT_EQ(json::serialize(update.policy), R"({"quorum":2})");
  EXPECT_TRUE(update.gateway.json);
}

TEST(Parse, a_rollback_goes_to_a_number_or_to_the_version_before) {
  const auto plain = accepted<RollbackArguments>({"rollback", "actor"});
  EXPECT_FALSE(plain.to);
  EXPECT_EQ(plain.wait_s, 300);
  const auto named = accepted<RollbackArguments>({"rollback", "actor", "--to", "41", "--lineage", "2", "--wait", "0",
                                                  "--key", "k", "--set", "quorum=all", "--json"});
  EXPECT_EQ(named.to, 41);
  EXPECT_EQ(named.lineage, 2);
  EXPECT_EQ(named.wait_s, 0);
  EXPECT_EQ(json::serialize(named.policy), R"({"quorum":"all"})");
  EXPECT_EQ(mistake({"rollback"}), "weighlock rollback: the pair's name is empty");
  EXPECT_EQ(mistake({"rollback", "actor", "--to", "last"}),
            "weighlock rollback: --to: 'last' isn't a whole number of 0 or more");
  EXPECT_EQ(mistake({"rollback", "actor", "--lineage", "1"}),
            "weighlock rollback: --lineage says of which run --to is, and there is no --to");
  EXPECT_EQ(mistake({"rollback", "actor", "--too", "1"}),
            "weighlock rollback: unknown flag '--too'; did you mean '--to'?");
}

TEST(Parse, a_pair_is_disconnected_and_an_update_cancelled_by_name) {
  EXPECT_EQ(accepted<DisconnectArguments>({"disconnect", "actor"}).pair, "actor");
  const auto plain = accepted<CancelArguments>({"cancel", "actor"});
  EXPECT_EQ(plain.update, "");
  EXPECT_EQ(plain.wait_s, 300);
  const auto named = accepted<CancelArguments>({"cancel", "actor", "b-12", "--wait", "0"});
  EXPECT_EQ(named.update, "b-12");
  EXPECT_EQ(named.wait_s, 0);
  EXPECT_EQ(mistake({"cancel", "actor", "b-1", "b-2"}), "weighlock cancel: unexpected argument 'b-2'");
  EXPECT_EQ(mistake({"disconnekt", "actor"}), "weighlock: unknown command 'disconnekt'; did you mean 'disconnect'?");
}

TEST(Parse, workers_are_listed_or_changed_by_a_word_before_the_pair) {
  EXPECT_EQ(accepted<WorkersArguments>({"workers", "actor"}).act, WorkersArguments::Act::list);
  const auto add = accepted<WorkersArguments>(
      {"workers", "add", "actor", "http://G2:30000/", "--dialect", "vllm", "--worker-key-env", "KEY"});
  EXPECT_EQ(json::serialize(add.added), R"({"admin_key":{"env":"KEY"},"url":"http://g2:30000","dialect":"vllm"})");
  const auto held = accepted<WorkersArguments>({"workers", "quarantine", "actor", "g1:30000", "--reason", "disk swap"});
  EXPECT_EQ(held.act, WorkersArguments::Act::quarantine);
  EXPECT_EQ(held.worker, "g1:30000");
  EXPECT_EQ(held.reason, "disk swap");
  EXPECT_EQ(mistake({"workers", "quarantin", "actor", "g1"}),
            "weighlock workers: unknown word 'quarantin'; did you mean 'quarantine'?");
  EXPECT_EQ(mistake({"workers", "drain", "actor"}),
            "weighlock workers: drain needs a pair and a worker (its URL or id)");
  EXPECT_EQ(mistake({"workers", "add", "actor"}), "weighlock workers: add needs a pair and the worker's URL");
  EXPECT_EQ(mistake({"workers", "add", "actor", "ftp://x"}).substr(0, 25), "weighlock workers: WORKER");
  EXPECT_EQ(mistake({"workers", "add", "actor", "http://g2:1", "--dialect", "trt"}),
            "weighlock workers: --dialect: 'trt' is neither auto, sglang nor vllm");
  EXPECT_EQ(mistake({"workers", "actor", "--reason", "x"}),
            "weighlock workers: --reason belongs to remove, drain, quarantine and release");
  EXPECT_EQ(mistake({"workers", "drain", "actor", "g1", "--dialect", "vllm"}),
            "weighlock workers: --dialect belongs to add");
  const auto keyed = accepted<WorkersArguments>({"workers", "set-key", "actor", "g1:1", "--worker-api-key-env", "K"});
  EXPECT_EQ(json::serialize(keyed.keys), R"({"api_key":{"env":"K"}})");
  EXPECT_EQ(mistake({"workers", "set-key", "actor", "g1:1"}).substr(0, 51),
            "weighlock workers: set-key needs --worker-key-env, ");
  EXPECT_EQ(mistake({"workers", "drain", "actor", "g1", "--worker-key-env", "K"}),
            "weighlock workers: the worker's keys belong to add and set-key");
  EXPECT_EQ(mistake({"workers"}), "weighlock workers: the pair's name is empty");
}

TEST(Parse, versions_are_listed_verified_or_collected) {
  EXPECT_EQ(accepted<VersionsArguments>({"versions", "actor"}).act, VersionsArguments::Act::list);
  EXPECT_EQ(accepted<VersionsArguments>({"versions", "verify", "actor", "41"}).version, 41);
  const auto collect = accepted<VersionsArguments>({"versions", "collect", "actor", "--dry-run"});
  EXPECT_EQ(collect.act, VersionsArguments::Act::collect);
  EXPECT_TRUE(collect.dry_run);
  EXPECT_EQ(mistake({"versions", "verify", "actor"}), "weighlock versions: verify needs a pair and a version");
  EXPECT_EQ(mistake({"versions", "verfy", "actor", "1"}),
            "weighlock versions: unknown word 'verfy'; did you mean 'verify'?");
  EXPECT_EQ(mistake({"versions", "actor", "--dry-run"}), "weighlock versions: --dry-run belongs to collect");
  EXPECT_EQ(mistake({"versions", "collect", "actor", "3"}), "weighlock versions: unexpected argument '3'");
}

TEST(Parse, a_journal_is_named_by_a_path_a_flag_or_the_environment) {
  EXPECT_EQ(accepted<JournalArguments>({"journal", "inspect", "/s/journal.db"}).place, "/s/journal.db");
  const auto flagged =
      accepted<JournalArguments>({"journal", "inspect", "--state-dir", "/s", "--pair", "a", "--from", "12", "--json"});
  EXPECT_EQ(flagged.place, "/s");
  EXPECT_EQ(flagged.from, 12);
  EXPECT_TRUE(flagged.json);
  EXPECT_EQ(accepted<JournalArguments>({"journal", "inspect"}, surroundings({{"WEIGHLOCK_STATE_DIR", "/e"}})).place,
            "/e");
  EXPECT_EQ(mistake({"journal", "inspect"}), "weighlock journal: a state directory is needed: PATH or --state-dir");
  EXPECT_EQ(mistake({"journal", "inspct", "/s"}), "weighlock journal: unknown word 'inspct'; did you mean 'inspect'?");
  EXPECT_EQ(mistake({"journal", "inspect", "/s", "--state-dir", "/s"}),
            "weighlock journal: PATH and --state-dir are the same thing; leave one out");
}

TEST(Parse, connect_makes_the_body_of_the_api) {
  const auto connect = accepted<ConnectArguments>(
      {"connect", "actor", "--save-path", "/w", "--worker", "sglang=http://G0:30000/", "http://g1:8000", "--trainer",
       "http://t0:9000", "http://t1:9000", "--save-trigger", "rank0", "--worker-key-env", "KEY", "--set",
       "deadlines_ms.load=60000", "pause_mode=keep"});
  EXPECT_EQ(json::serialize(connect.spec),
            R"({"mode":"disk","save_path":"/w",)"
            R"("trainers":{"kind":"areal","urls":["http://t0:9000","http://t1:9000"],"save_trigger":"rank0"},)"
            R"("workers":[{"admin_key":{"env":"KEY"},"url":"http://g0:30000","dialect":"sglang"},)"
            R"({"admin_key":{"env":"KEY"},"url":"http://g1:8000"}],)"
            R"("settings":{"deadlines_ms":{"load":60000},"pause_mode":"keep"},"keep_unnamed":true})");
  EXPECT_FALSE(connect.change_mode);
  const auto plain = accepted<ConnectArguments>({"connect", "actor", "--save-path", "/w", "--worker", "http://g0:1",
                                                 "--trainer", "http://t0:1", "--change-mode"});
  EXPECT_FALSE(plain.spec.at("trainers").as_object().contains("save_trigger")) << "it stays as it was";
  EXPECT_TRUE(plain.change_mode);
}

TEST(Parse, connect_asks_for_a_new_lineage_only_when_told_to) {
  EXPECT_FALSE(accepted<ConnectArguments>(kConnect).spec.contains("new_lineage"));
  EXPECT_TRUE(accepted<ConnectArguments>(with(kConnect, {"--new-lineage"})).spec.at("new_lineage").as_bool());
}

TEST(Parse, connect_names_the_adapters_of_a_lora_pair) {
  EXPECT_EQ(accepted<ConnectArguments>(kConnect).spec.if_contains("lora"), nullptr);
  const auto connect = accepted<ConnectArguments>(with(kConnect, {"--lora-name", "policy", "--lora-keep", "3"}));
  EXPECT_EQ(json::serialize(connect.spec.at("lora")), R"({"name":"policy","keep":3})");
  EXPECT_EQ(json::serialize(accepted<ConnectArguments>(with(kConnect, {"--lora-name", "policy"})).spec.at("lora")),
            R"({"name":"policy"})");
  EXPECT_EQ(mistake(with(kConnect, {"--lora-keep", "3"})),
            "weighlock connect: --lora-keep needs --lora-name: it says how many adapters stay loaded");
  EXPECT_EQ(mistake(with(kConnect, {"--lora-name", "policy", "--lora-keep", "-1"})),
            "weighlock connect: --lora-keep: '-1' isn't a whole number of 0 or more");
}

TEST(Parse, connect_refuses_what_the_gateway_would) {
  EXPECT_EQ(mistake({"connect", "a", "--worker", "http://g:1", "--external"}),
            "weighlock connect: --save-path is needed");
  EXPECT_EQ(mistake({"connect", "a", "--save-path", "/w", "--external"}),
            "weighlock connect: at least one --worker URL is needed");
  EXPECT_EQ(mistake({"connect", "a", "--save-path", "/w", "--worker", "http://g:1"}),
            "weighlock connect: either --trainer URL (one for each rank) or --external is needed");
  EXPECT_EQ(mistake(with(kConnect, {"--trainer", "http://t:1"})),
            "weighlock connect: --external and --trainer exclude each other: an external trainer saves by itself");
  EXPECT_EQ(mistake(with(kConnect, {"--worker", "http://G0:30000/"})),
            "weighlock connect: --worker 'http://G0:30000/' is given twice");
  EXPECT_NE(mistake(with(kConnect, {"--worker", "http://0.0.0.0:1"})), "accepted");
  EXPECT_NE(mistake(with(kConnect, {"--set", "quorum"})), "accepted");
  EXPECT_NE(mistake(with(kConnect, {"--set", "deadlines_ms.lod=1"})), "accepted");
}

TEST(Parse, the_environment_names_gateway_and_key_and_flags_win) {
  const Surroundings around =
      surroundings({{"HOME", "/h"}, {"WEIGHLOCK_URL", "http://gw:1"}, {"WEIGHLOCK_ADMIN_API_KEY", "secret"}});
  EXPECT_EQ(accepted<StatusArguments>({"status"}, around).gateway.gateway.text, "http://gw:1");
  EXPECT_EQ(accepted<StatusArguments>({"status"}, around).gateway.admin_key, "secret");
  EXPECT_EQ(accepted<StatusArguments>({"status", "--gateway", "http://other:2"}, around).gateway.gateway.text,
            "http://other:2");
  EXPECT_EQ(accepted<StatusArguments>({"status"}).gateway.gateway.text, "http://127.0.0.1:7080");
}

TEST(ParseServe, every_setting_is_a_flag) {
  const auto serve = accepted<ServeArguments>({"serve",
                                               "--host",
                                               "127.0.0.1",
                                               "--port",
                                               "0",
                                               "--init-timeout",
                                               "300.0",
                                               "--update-timeout=120.5",
                                               "--log-level",
                                               "debug",
                                               "--state-dir",
                                               "/s",
                                               "--engine-admin-key=engine-secret",
                                               "--storage-roots",
                                               "/a,/b",
                                               "--worker-hosts",
                                               "g0",
                                               "--fence",
                                               "/bin/true",
                                               "--compat-error-status",
                                               "409",
                                               "--reply-by",
                                               "100"});
  const config::ServeOptions& options = serve.loaded.options;
  EXPECT_EQ(options.port, 0);
  EXPECT_EQ(options.update_timeout_s, 120.5);
  EXPECT_EQ(options.storage_roots, (std::vector<std::string>{"/a", "/b"}));
  EXPECT_EQ(options.fence, "/bin/true");
  EXPECT_EQ(options.engine_admin_key, "engine-secret");
  EXPECT_EQ(options.compat_error_status, 409);
  EXPECT_FALSE(options.compat);
}

TEST(ParseServe, the_bare_command_is_refused_for_its_public_key) {
  EXPECT_NE(mistake({"serve"}).find("AREAL_ALLOW_DEFAULT_ADMIN_KEY=1"), std::string::npos);
  EXPECT_NE(mistake({"config", "check"}), "accepted");
  EXPECT_EQ(mistake({"config", "print"}), "accepted");
}

TEST(ParseServe, a_fence_that_cannot_be_run_is_refused_at_start_and_by_the_check) {
  const std::vector<std::string> local = {"--host", "127.0.0.1", "--fence"};
  for (const char* fence : {"/no/such/program", "/tmp", "/etc/passwd"}) {
    for (const std::vector<std::string>& command : {std::vector<std::string>{"serve"}, {"config", "check"}}) {
      const std::string text = mistake(with(with(command, local), {fence}));
      EXPECT_NE(text.find(std::string("fence '") + fence + "' can't be run"), std::string::npos) << text;
    }
  }
  EXPECT_EQ(accepted<ServeArguments>(with(with({"serve"}, local), {"http://router:1/fence"})).loaded.options.fence,
            "http://router:1/fence");
}

TEST(ParseServe, the_public_key_is_taken_where_nobody_can_come_from_outside) {
  Surroundings alone = surroundings();
  alone.own_addresses = {"127.0.0.1", "::1"};
  EXPECT_EQ(accepted<ServeArguments>({"serve"}, alone).loaded.options.host, "0.0.0.0");
}

TEST(ParseServe, unknown_flags_are_refused_but_in_the_compatible_way_of_starting) {
  EXPECT_EQ(mistake({"serve", "--host", "127.0.0.1", "--prot", "1"}),
            "weighlock serve: unknown flag '--prot'; did you mean '--port'?");
  const std::vector<std::string> compatible = {"--host",         "127.0.0.1", "--port",          "7081",
                                               "--comm-backend", "nccl",      "--admin-api-key", "k"};
  for (const std::vector<std::string>& start : {std::vector<std::string>{"serve", "--compat"},
                                                {"serve", "-m", "areal.v2.weight_update.gateway"},
                                                {"-m", "areal.v2.weight_update.gateway"}}) {
    const auto serve = accepted<ServeArguments>(with(start, compatible));
    EXPECT_TRUE(serve.loaded.options.compat);
    EXPECT_EQ(serve.loaded.options.port, 7081);
    EXPECT_EQ(serve.loaded.options.admin_api_key, "k");
    EXPECT_GE(serve.loaded.warnings.size(), 2u);  // the unknown flag, and the key where everybody sees it
  }
}

TEST(ParseServe, a_bad_value_is_a_mistake_in_the_compatible_way_too) {
  EXPECT_NE(mistake({"serve", "--compat", "--host", "127.0.0.1", "--port", "x"}), "accepted");
  EXPECT_NE(mistake({"serve", "--compat", "--host", "127.0.0.1", "--log-level", "loud"}), "accepted");
}

}  // namespace
}  // namespace weighlock::cli
