// Whole commands against a gateway in this process.
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <algorithm>
#include <regex>
#include <sstream>

#include "commands_fixture.hpp"
#include "table.hpp"
#include "weighlock/io/temporary_directory.hpp"
#include "weighlock/journal/sqlite_journal.hpp"

namespace weighlock::cli {
namespace {

TEST_F(Commands, an_update_that_succeeds_is_0_with_its_pause_on_out_and_phases_on_err) {
  gateway_.script("POST /v1/pairs/actor/updates", 202, update_body("running", "preparing"));
  gateway_.script("GET /v1/pairs/actor/updates/b-1", {HttpResponse{200, {}, update_body("running", "loading")},
                                                      HttpResponse{200, {}, update_body("succeeded", "resuming")}});
  EXPECT_EQ(run({"update", "actor", "--version", "3"}), 0);
  EXPECT_EQ(out_.str().substr(0, out_.str().find('\n')),
            "pair actor v3: succeeded, 1 of 2 workers, paused 420 ms, 1.2 kB (preparing 3.1 s, loading 400 ms)");
  EXPECT_EQ(err_.str(), "update b-1 of pair actor: v3 preparing\nupdate b-1 of pair actor: v3 loading\n");
}

TEST_F(Commands, a_terminal_gets_one_line_a_phase_that_is_written_over) {
  gateway_.script("POST /v1/pairs/actor/updates", 202, update_body("running", "loading"));
  gateway_.script("GET /v1/pairs/actor/updates/b-1", {HttpResponse{200, {}, update_body("running", "loading")},
                                                      HttpResponse{200, {}, update_body("succeeded", "resuming")}});
  EXPECT_EQ(run({"update", "actor", "--version", "3"}, true), 0);
  EXPECT_NE(err_.str().find("\r\x1b[Kv3 loading     1/2 workers"), std::string::npos) << err_.str();
  EXPECT_EQ(err_.str().back(), '\n');
}

TEST_F(Commands, a_degraded_update_is_4_and_says_which_worker_why_and_what_to_do) {
  gateway_.script("POST /v1/pairs/actor/updates", 200,
                  update_body("degraded", "resuming", R"({"code":"degraded","message":"1 of 2"})"));
  EXPECT_EQ(run({"update", "actor", "--version", "3"}), 4);
  EXPECT_NE(out_.str().find("  http://g1:1: torn, load_failed: 400 \"size?mismatch\"\n    to do: "), std::string::npos)
      << out_.str();
}

TEST_F(Commands, how_an_update_failed_decides_the_exit_code) {
  const auto ended = [&](const std::string& state, const std::string& code) {
    gateway_.script("POST /v1/pairs/actor/updates", 200,
                    update_body(state, "x", R"({"code":")" + code + R"(","message":"m"})"));
    return run({"update", "actor", "--version", "3"});
  };
  EXPECT_EQ(ended("aborted", "trainer_failed"), 1);
  EXPECT_EQ(ended("rolled_back", "quorum_lost"), 1);
  EXPECT_EQ(ended("rejected", "version_not_newer"), 3);
  EXPECT_EQ(ended("rejected", "a_word_of_the_future"), 1);
  EXPECT_EQ(ended("failed", "timed_out"), 6);
}

TEST_F(Commands, waiting_for_nothing_starts_the_update_only) {
  gateway_.script("POST /v1/pairs/actor/updates", 202, update_body("running", "queued"));
  EXPECT_EQ(run({"update", "actor", "--version", "3", "--wait", "0"}), 0);
  EXPECT_EQ(gateway_.requests().size(), 1u);
}

TEST_F(Commands, an_update_that_takes_too_long_is_6) {
  gateway_.script("POST /v1/pairs/actor/updates", 202, update_body("running", "queued"));
  gateway_.script("GET /v1/pairs/actor/updates/b-1", 200, update_body("running", "loading"));
  EXPECT_EQ(run({"update", "actor", "--version", "3", "--wait", "0.02"}), 6);
  EXPECT_NE(err_.str().find("it goes on"), std::string::npos);
}

TEST_F(Commands, errors_are_json_on_out_when_json_was_asked_for) {
  gateway_.script("POST /v1/pairs/actor/updates", 404, R"({"code":"not_found","detail":"pair 'actor' isn't known"})");
  EXPECT_EQ(run({"update", "actor", "--version", "3", "--json"}), 3);
  const Result<json::value> told = parse_json(std::string_view(out_.str()).substr(0, out_.str().size() - 1), "out");
  ASSERT_TRUE(told);
  EXPECT_EQ(find_string(*find(*told, "error"), "code"), "not_found");
  EXPECT_EQ(run({"update", "actor", "--version", "x", "--json"}), 2);
  EXPECT_TRUE(out_.str().starts_with(R"({"error":{"code":"invalid_argument")"));
}

TEST_F(Commands, status_says_who_holds_prefixes_of_former_versions) {
  gateway_.script("GET /v1/pairs", 200, std::string(R"({"items":[)") + kPair + R"(],"next":null})");
  gateway_.script("GET /v1/pairs/actor/workers", 200,
                  R"({"items":[{"id":"g0:1","url":"http://g0:1","dialect":"sglang","state":"ready","version":2,
                      "incarnation":"i","cause":null,
                      "flush_owed":{"version":2,"since":"2026-01-01T00:00:00Z","tries":3}}],"next":null})");
  EXPECT_EQ(run({"status"}), 0);
  EXPECT_NE(out_.str().find("http://g0:1: holds cached prefixes of former versions since 2026-01-01T00:00:00Z; "),
            std::string::npos)
      << out_.str();
}

TEST_F(Commands, status_says_who_was_paused_by_somebody_else_and_its_check_fails) {
  gateway_.script(
      "GET /v1/pairs/actor", 200,
      R"({"name":"actor","lineage":1,"state":"idle","workers":{"total":2,"ready":2,"quarantined":0,"paused_by_other":1}})");
  gateway_.script("GET /v1/pairs/actor/workers", 200, R"({"items":[
      {"url":"http://g0:1","dialect":"vllm","state":"ready","paused_by":"other","cause":null},
      {"url":"http://g1:1","dialect":"sglang","state":"loading","paused_by":"other","cause":null}],"next":null})");
  EXPECT_EQ(run({"status", "actor", "--check"}), 4);
  EXPECT_NE(out_.str().find("2 of 2 workers ready, 1 paused by somebody else\n"), std::string::npos) << out_.str();
  EXPECT_NE(out_.str().find("it is paused, and not by this gateway\n"), std::string::npos);
  EXPECT_NE(out_.str().find("http://g0:1: whoever paused it continues it: POST /resume\n"), std::string::npos);
  EXPECT_EQ(out_.str().find("http://g1:1: "), std::string::npos) << "an update has it";
}

TEST_F(Commands, status_shows_every_worker_with_version_cause_and_remedy) {
  gateway_.script("GET /v1/pairs", 200, std::string(R"({"items":[)") + kPair + R"(],"next":null})");
  gateway_.script("GET /v1/pairs/actor/workers", 200, kWorkers);
  EXPECT_EQ(run({"status"}), 0);
  EXPECT_EQ(
      out_.str(),
      "pair actor: mode disk, idle, committed v2, lineage 1, 1 of 2 workers ready, 1 quarantined, rollback available\n"
      "last update: v3 rejected at 2026-01-01T00:00:09Z: a save still runs on http://t:1\n"
      "transfer: group g-7 stands, colocated\n"
      "WORKER       DIALECT  STATE        VERSION  SINCE                 CAUSE\n"
      "http://g0:1  sglang   ready        v2       -\n"
      "http://g1:1  vllm     quarantined  -        2026-01-01T00:00:00Z  needs_restart: wrong shape\n"
      "http://g1:1: only a new process can serve again: restart the engine\n");
  EXPECT_EQ(run({"status", "--check"}), 4) << "one of two is ready";
  EXPECT_TRUE(out_.str().starts_with("pair actor: mode disk")) << "it is shown all the same";
  EXPECT_EQ(run({"status", "--json"}), 0);
  EXPECT_TRUE(out_.str().starts_with(R"({"items":[{"pair":{"name":"actor")")) << out_.str();
}

TEST_F(Commands, status_check_is_0_when_every_worker_is_ready) {
  gateway_.script("GET /v1/pairs/actor", 200,
                  R"({"name":"actor","lineage":1,"committed":2,"state":"idle","workers":{"total":1,"ready":1}})");
  gateway_.script("GET /v1/pairs/actor/workers", 200, R"({"items":[],"next":null})");
  EXPECT_EQ(run({"status", "actor", "--check"}), 0);
  EXPECT_EQ(run({"status", "nobody", "--check"}), 3);
}

TEST_F(Commands, status_remedies_fit_the_state_and_the_key_that_was_refused) {
  gateway_.script("GET /v1/pairs/actor/workers", 200,
                  R"({"items":[
      {"url":"http://g0:1","state":"loading","cause":{"code":"operator_hold","message":"disk swap","since":""}},
      {"url":"http://g1:1","state":"quarantined","cause":{"code":"operator_hold","message":"disk swap","since":""}},
      {"url":"http://g2:1","state":"unknown","cause":null},
      {"url":"http://g3:1","state":"quarantined",
       "cause":{"code":"credentials","message":"answered 401: the worker's api_key is wrong: set the one","since":""}},
      {"url":"http://g4:1","state":"quarantined",
       "cause":{"code":"credentials","message":"the worker has no admin_key, and its api_key was refused","since":""}},
      {"url":"http://g5:1","state":"quarantined","cause":{"code":"unreachable","message":"refused","since":""}}]})");
  EXPECT_EQ(run({"workers", "actor"}), 0);
  const std::string text = out_.str();
  const auto told = [&text](const std::string& url) {
    const std::size_t at = text.find("\n" + url + ": ");
    return at == std::string::npos ? std::string("nothing") : text.substr(at + 1, text.find('\n', at + 1) - at - 1);
  };
  EXPECT_EQ(told("http://g0:1"), "http://g0:1: nothing: it is being brought to the committed version");
  EXPECT_NE(told("http://g1:1").find("workers release"), std::string::npos) << text;
  EXPECT_EQ(told("http://g2:1"), "nothing");
  EXPECT_NE(text.find("it is being read: the gateway was started again\n"), std::string::npos) << text;
  EXPECT_NE(told("http://g3:1").find("`--engine-api-key-file`"), std::string::npos) << text;
  EXPECT_NE(told("http://g3:1").find("--worker-api-key-env NAME`"), std::string::npos) << text;
  EXPECT_NE(told("http://g4:1").find("`--engine-admin-key-file`"), std::string::npos) << text;
  EXPECT_EQ(told("http://g4:1").find("api-key-env"), std::string::npos) << text;
  EXPECT_NE(told("http://g5:1").find("by itself"), std::string::npos) << text;
}

TEST_F(Commands, status_says_of_a_pair_that_nobody_can_own_why_once) {
  std::string pair = kPair;
  pair.insert(pair.size() - 1,
              R"(,"ownership":{"none":"the pair has no save_path","trouble":"the pair has no save_path"})");
  gateway_.script("GET /v1/pairs/actor", 200, pair);
  gateway_.script("GET /v1/pairs/actor/workers", 200, kWorkers);
  EXPECT_EQ(run({"status", "actor"}), 0);
  EXPECT_NE(out_.str().find("\nownership: none (the pair has no save_path)\n"), std::string::npos) << out_.str();
}

TEST_F(Commands, status_says_what_a_pairs_policy_does_not_promise) {
  std::string pair = kPair;
  pair.insert(pair.size() - 1, R"(,"not_promised":["pause=caller: it is the caller's"])");
  gateway_.script("GET /v1/pairs/actor", 200, pair);
  gateway_.script("GET /v1/pairs/actor/workers", 200, kWorkers);
  EXPECT_EQ(run({"status", "actor"}), 0);
  EXPECT_NE(out_.str().find("\nnot promised with pause=caller: it is the caller's\nWORKER"), std::string::npos)
      << out_.str();
}

TEST_F(Commands, history_lists_updates_and_shows_one_in_full) {
  gateway_.script("GET /v1/pairs/actor/updates", 200,
                  R"({"items":[)" + update_body("succeeded", "resuming") + R"(],"next":null})");
  EXPECT_EQ(run({"history", "actor"}), 0);
  EXPECT_EQ(
      out_.str(),
      "UPDATE  VERSION  STATE      PAUSE   TOTAL  WORKERS  ERROR\nb-1     v3       succeeded  420 ms  3.5 s  1/2\n");
  gateway_.script("GET /v1/pairs/actor/updates/b-1", 200, update_body("succeeded", "resuming"));
  EXPECT_EQ(run({"history", "actor", "b-1"}), 0);
  EXPECT_NE(out_.str().find("load_failed"), std::string::npos);
}

TEST_F(Commands, a_rollback_is_followed_like_an_update_and_its_refusal_is_3) {
  gateway_.script("POST /v1/pairs/actor:rollback", 202, update_body("running", "preparing"));
  gateway_.script("GET /v1/pairs/actor/updates/b-1", 200, update_body("succeeded", "resuming"));
  EXPECT_EQ(run({"rollback", "actor", "--to", "3"}), 0);
  EXPECT_EQ(gateway_.requests().at(0).body, R"({"to":3})");
  EXPECT_TRUE(out_.str().starts_with("pair actor v3: succeeded")) << out_.str();
  EXPECT_NE(err_.str().find("v3 preparing"), std::string::npos) << err_.str();
  gateway_.script("POST /v1/pairs/actor:rollback", 409, R"({"code":"conflict","detail":"stored: v3"})");
  EXPECT_EQ(run({"rollback", "actor"}), 3);
  EXPECT_NE(err_.str().find("stored: v3"), std::string::npos);
}

TEST_F(Commands, cancel_ends_the_update_that_runs_and_is_0_when_it_is_undone) {
  const auto named = [](const std::string& id, const std::string& state) {
    std::string body = update_body(state, "loading");
    return body.replace(body.find("b-1"), 3, id);
  };
  gateway_.script("GET /v1/pairs/actor/updates", 200,
                  R"({"items":[)" + named("b-3", "running") + "," + named("b-2", "running") + "," +
                      named("b-1", "succeeded") + R"(],"next":null})");
  gateway_.script("POST /v1/pairs/actor/updates/b-2:cancel", 202, named("b-2", "running"));
  const std::string cancelled =
      R"({"id":"b-2","pair":"actor","version":3,"state":"rolled_back","phase":"restoring",
          "error":{"code":"cancelled","message":"cancelled in phase loading"},"workers":[]})";
  gateway_.script("GET /v1/pairs/actor/updates/b-2", 200, cancelled);
  EXPECT_EQ(run({"cancel", "actor"}), 0) << out_.str() << err_.str();
  EXPECT_NE(out_.str().find("pair actor v3: rolled_back"), std::string::npos) << out_.str();
  EXPECT_EQ(run({"cancel", "actor", "b-2", "--wait", "0"}), 0);
  EXPECT_EQ(out_.str(), "update b-2 of pair actor to v3 is being undone\n");
  gateway_.script("GET /v1/pairs/actor/updates/b-2", 200,
                  update_body("rolled_back", "restoring", R"({"code":"cancelled","message":"m"})"));
  EXPECT_EQ(run({"cancel", "actor", "b-2"}), 4) << "a worker couldn't be brought back";
}

TEST_F(Commands, cancel_of_nothing_or_of_a_committed_update_is_refused) {
  gateway_.script("GET /v1/pairs/actor/updates", 200,
                  R"({"items":[)" + update_body("succeeded", "resuming") + R"(],"next":null})");
  EXPECT_EQ(run({"cancel", "actor"}), 3);
  EXPECT_NE(err_.str().find("has no running update to cancel"), std::string::npos) << err_.str();
  gateway_.script("POST /v1/pairs/actor/updates/b-1:cancel", 409,
                  R"({"code":"conflict","detail":"its version is committed"})");
  EXPECT_EQ(run({"cancel", "actor", "b-1"}), 3);
}

TEST_F(Commands, workers_are_listed_and_changed) {
  gateway_.script("GET /v1/pairs/actor/workers", 200, kWorkers);
  EXPECT_EQ(run({"workers", "actor"}), 0);
  EXPECT_TRUE(out_.str().starts_with("WORKER       DIALECT  STATE")) << out_.str();
  EXPECT_NE(out_.str().find("http://g1:1: only a new process"), std::string::npos);
  std::string changed = kPair;
  changed.insert(changed.size() - 1,
                 R"(,"worker":{"id":"g1:1","url":"http://g1:1","dialect":"vllm","state":"quarantined","version":2,
                     "cause":{"code":"operator_hold","message":"disk swap","since":""}})");
  gateway_.script("POST /v1/pairs/actor/workers/g1%3A1:quarantine", 200, changed);
  EXPECT_EQ(run({"workers", "quarantine", "actor", "g1:1", "--reason", "disk swap"}), 0);
  EXPECT_EQ(out_.str(),
            "pair actor: http://g1:1 is quarantined, version v2 (operator_hold: disk swap); 1 of 2 workers ready\n");
  gateway_.script("POST /v1/pairs/actor/workers/g1%3A1:remove", 200, kPair);
  EXPECT_EQ(run({"workers", "remove", "actor", "g1:1"}), 0);
  EXPECT_EQ(out_.str(), "pair actor: g1:1 has left; 1 of 2 workers ready\n");
  EXPECT_EQ(run({"workers", "drain", "actor", "g7:1"}), 3);
  gateway_.script("POST /v1/pairs/actor/workers:add", 200, changed);
  EXPECT_EQ(run({"workers", "add", "actor", "http://g1:1", "--json"}), 0);
  EXPECT_TRUE(out_.str().starts_with(R"({"name":"actor")")) << out_.str();
}

TEST_F(Commands, versions_show_what_is_stored_and_who_needs_it) {
  gateway_.script("GET /v1/pairs/actor/versions", 200,
                  R"({"items":[{"lineage":1,"version":3,"directory":"/w/v3","state":"withdrawn","handed_over":false,
                      "digest":"0123456789abcdef","bytes":1200,"leases":[],"removable":true},
                      {"lineage":1,"version":2,"directory":"/w/v2","state":"committed","handed_over":true,"digest":null,
                      "bytes":null,"leases":["committed","last good","http://g0:1","http://g1:1"],"removable":false}],
                      "next":null,"committed":{"version":2},"last_good":{"version":2},"highest":{"version":3}})");
  EXPECT_EQ(run({"versions", "actor"}), 0);
  EXPECT_EQ(out_.str(),
            "pair actor: committed v2, workers are healed with v2, the next version is above v3\n"
            "VERSION  LINEAGE  STATE      SIZE    DIGEST        NEEDED BY                                  DIRECTORY\n"
            "v3       1        withdrawn  1.2 kB  0123456789ab  nobody                                     /w/v3\n"
            "v2       1        committed  -       -             committed, last good, http://g0:1, 1 more  /w/v2 "
            "(handed over)\n");
  gateway_.script("POST /v1/pairs/actor/versions/2:verify", 409,
                  R"({"code":"conflict","detail":"bytes were changed"})");
  EXPECT_EQ(run({"versions", "verify", "actor", "2"}), 3);
  gateway_.script("POST /v1/pairs/actor/versions:collect", 200, R"({"dry_run":true,"directories":["/w/v3"]})");
  EXPECT_EQ(run({"versions", "collect", "actor", "--dry-run"}), 0);
  EXPECT_EQ(out_.str(), "would be deleted: /w/v3\n");
}

class JournalCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    SqliteJournal::Settings settings;
    settings.directory = directory.path("state");
    settings.reserve_bytes = 64 * 1024;
    auto journal = SqliteJournal::open(settings);
    ASSERT_TRUE(journal);
    for (const char* pair : {"actor", "actor", "other", "actor"}) {
      protocol::Record record;
      record.kind = protocol::RecordKind::update_phase;
      record.pair = pair;
      record.update = "b-1";
      record.body["state"] = "preparing";
      ASSERT_TRUE((*journal)->append({record}, 1'767'225'600'123));
    }
  }
  int run(std::vector<std::string> arguments) {
    out_.str("");
    err_.str("");
    Surroundings surroundings{[](std::string_view) { return std::nullopt; }, {}};
    Terminal terminal{out_, err_, false};
    return cli::run(arguments, surroundings, terminal, [](const config::ServeOptions&) { return 0; });
  }
  void run_sql(const char* sql) {
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open(directory.path("state/journal.db").c_str(), &db), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(db, sql, nullptr, nullptr, nullptr), SQLITE_OK);
    sqlite3_close(db);
  }
  TemporaryDirectory directory;
  std::ostringstream out_, err_;
};

TEST_F(JournalCommand, a_sound_journal_is_0_and_shows_what_was_asked_for) {
  EXPECT_EQ(run({"journal", "inspect", directory.path("state"), "--pair", "actor", "--from", "2"}), 0);
  const std::string line = "2026-01-01T00:00:00.123Z  update_phase pair=actor update=b-1  {\"state\":\"preparing\"}\n";
  EXPECT_EQ(out_.str(),
            "       2  " + line + "       4  " + line + directory.path("state/journal.db") + ": sound: 4 records\n");
}

TEST_F(JournalCommand, a_damaged_one_is_1_and_tells_where_between_the_records) {
  run_sql("DELETE FROM records WHERE number = 2");
  EXPECT_EQ(run({"journal", "inspect", "--state-dir", directory.path("state")}), 1);
  const std::string text = out_.str();
  const std::size_t damage = text.find("DAMAGE  record 2 is missing: 3 comes after 1, and 2 was expected\n");
  ASSERT_NE(damage, std::string::npos) << text;
  EXPECT_LT(text.find("       1  "), damage);
  EXPECT_GT(text.find("       3  "), damage);
  EXPECT_NE(text.find("records 1 to 1 are whole, 3 can be read in all"), std::string::npos) << text;
  run_sql("UPDATE records SET body = x'7b7d' WHERE number = 3");
  EXPECT_EQ(run({"journal", "inspect", directory.path("state"), "--json"}), 1);
  const auto told = parse_json(std::string_view(out_.str()).substr(0, out_.str().size() - 1), "out");
  ASSERT_TRUE(told) << out_.str();
  EXPECT_FALSE(told->at("sound").as_bool());
  EXPECT_EQ(told->at("faults").as_array().size(), 2U);
  EXPECT_EQ(told->at("records").at(1).at("trusted"), json::value(false));
}

TEST_F(JournalCommand, what_is_no_journal_is_told_on_err) {
  EXPECT_EQ(run({"journal", "inspect", directory.path("nothing")}), 3);
  write_file(directory.path("text"), "hello, this is not a journal at all, however one looks at it");
  EXPECT_EQ(run({"journal", "inspect", directory.path("text")}), 1);
  EXPECT_NE(err_.str().find("no journal of a gateway"), std::string::npos) << err_.str();
}

TEST_F(Commands, watch_prints_what_changed_and_ends_with_the_version) {
  gateway_.script("GET /v1/pairs/actor", 200, kPair);
  gateway_.script("GET /v1/pairs/actor/workers", 200, kWorkers);
  gateway_.script("GET /v1/pairs/actor/updates", 200, R"({"items":[],"next":null})");
  EXPECT_EQ(run({"watch", "actor", "--until-version", "2"}), 0);
  const std::string time = "\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d\\.\\d{3}Z ";
  EXPECT_TRUE(
      std::regex_match(out_.str(), std::regex(time + "actor http://g0:1 ready v2\n" + time +
                                              "actor http://g1:1 quarantined \\(needs_restart: wrong shape\\)\n")))
      << out_.str();
  EXPECT_EQ(run({"watch", "actor", "--until-version", "3", "--for", "0.01"}), 6);
}

TEST_F(Commands, watch_tells_the_end_of_an_update_in_one_line) {
  gateway_.script("GET /v1/pairs/actor", 200, kPair);
  gateway_.script("GET /v1/pairs/actor/workers", 200, R"({"items":[],"next":null})");
  gateway_.script("GET /v1/pairs/actor/updates", 200,
                  R"({"items":[)" +
                      update_body("rolled_back", "restoring", R"({"code":"quorum_lost","message":"1 of 2"})") +
                      R"(],"next":null})");
  EXPECT_EQ(run({"watch", "actor", "--until-version", "2"}), 0);
  const std::string text = out_.str();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
  EXPECT_NE(text.find("Z pair actor v3: rolled_back, 1 of 2 workers"), std::string::npos) << text;
  EXPECT_NE(text.find("; why: 1 of 2 (quorum_lost)\n"), std::string::npos) << text;
  EXPECT_EQ(run({"watch", "actor", "--until-version", "2", "--json"}), 0);
  EXPECT_NE(out_.str().find(R"("time":"20)"), std::string::npos) << out_.str();
}

TEST(Table, columns_are_as_wide_as_their_longest_cell) {
  EXPECT_EQ(table({"A", "B"}, {{"long", "x"}}), "A     B\nlong  x\n");
}

TEST(Table, durations_and_sizes_read_well) {
  EXPECT_EQ(duration_text(999), "999 ms");
  EXPECT_EQ(duration_text(3140), "3.1 s");
  EXPECT_EQ(duration_text(250'000), "4 min 10 s");
  EXPECT_EQ(bytes_text(999), "999 B");
  EXPECT_EQ(bytes_text(1'234'000'000), "1.2 GB");
}

}  // namespace
}  // namespace weighlock::cli
