// `connect` and `disconnect`: what of a pair changes, and what is told of it.
#include "commands_fixture.hpp"

namespace weighlock::cli {
namespace {

TEST_F(Commands, connect_sends_the_spec_and_tells_the_pair) {
  gateway_.script("PUT /v1/pairs/actor", 200, kPair);
  EXPECT_EQ(run({"connect", "actor", "--save-path", "/w", "--external", "--worker", "http://g0:1", "http://g1:1"}), 0);
  EXPECT_EQ(out_.str(), "pair actor: 2 workers, lineage 1, committed v2\n");
  EXPECT_EQ(gateway_.requests().back().method, "PUT");
  EXPECT_NE(gateway_.requests().back().body.find(R"("keep_unnamed":true)"), std::string::npos);
}

std::string connected(const std::string& mode, const std::string& rest) {
  return R"({"name":"actor","mode":")" + mode + R"(","lineage":1,"committed":2,"state":"idle","workers":{"total":2},)" +
         rest + "}";
}

const std::vector<std::string> kConnectAgain = {"connect",    "actor",    "--save-path", "/w",
                                                "--external", "--worker", "http://g1:1", "http://g2:1"};

TEST_F(Commands, connect_again_tells_who_joins_and_leaves_and_which_settings_change) {
  gateway_.script("GET /v1/pairs/actor", 200,
                  connected("disk", R"("save_path":"/old","settings":{"quorum":"half","deadlines_ms":{"load":1}})"));
  gateway_.script("GET /v1/pairs/actor/workers", 200, kWorkers);
  gateway_.script("PUT /v1/pairs/actor", 200,
                  connected("disk", R"("save_path":"/w","settings":{"quorum":"all","deadlines_ms":{"load":2}})"));
  EXPECT_EQ(run(kConnectAgain), 0);
  EXPECT_EQ(out_.str(),
            "pair actor: 2 workers, lineage 1, committed v2\n"
            "  joins: http://g2:1\n  leaves: http://g0:1\n"
            "  deadlines_ms.load: 1 -> 2\n  quorum: half -> all\n  save_path: /old -> /w\n");
  std::vector<std::string> as_json = kConnectAgain;
  as_json.push_back("--json");
  EXPECT_EQ(run(as_json), 0);
  EXPECT_NE(out_.str().find(R"("changes":{"joined":["http://g2:1"],"left":["http://g0:1"],"terms":{)"),
            std::string::npos)
      << out_.str();
}

TEST_F(Commands, connect_that_changes_nothing_says_so) {
  const std::string same = connected("disk", R"("settings":{"quorum":"half"})");
  gateway_.script("GET /v1/pairs/actor", 200, same);
  gateway_.script("GET /v1/pairs/actor/workers", 200,
                  R"({"items":[{"url":"http://g1:1","state":"ready"},{"url":"http://g2:1","state":"ready"}]})");
  gateway_.script("PUT /v1/pairs/actor", 200, same);
  EXPECT_EQ(run(kConnectAgain), 0);
  EXPECT_EQ(out_.str(), "pair actor: 2 workers, lineage 1, committed v2\n  as it was before\n");
}

TEST_F(Commands, connect_gives_up_the_settings_of_another_mode_only_when_told_to) {
  gateway_.script("GET /v1/pairs/actor", 200, connected("awex", R"("settings":{"quorum":"all"})"));
  gateway_.script("GET /v1/pairs/actor/workers", 200, kWorkers);
  gateway_.script("PUT /v1/pairs/actor", 409, R"({"code":"conflict","detail":"it is in mode awex","field":"mode"})");
  EXPECT_EQ(run(kConnectAgain), 3);
  EXPECT_NE(err_.str().find("it is in mode awex"), std::string::npos) << err_.str();
  EXPECT_NE(gateway_.requests().back().body.find("keep_unnamed"), std::string::npos);
  gateway_.script("PUT /v1/pairs/actor", 200, connected("disk", R"("settings":{"quorum":"half"})"));
  std::vector<std::string> told = kConnectAgain;
  told.push_back("--change-mode");
  EXPECT_EQ(run(told), 0);
  EXPECT_EQ(gateway_.requests().back().body.find("keep_unnamed"), std::string::npos);
  EXPECT_NE(out_.str().find("  mode: awex -> disk\n  quorum: all -> half\n"), std::string::npos) << out_.str();
}

TEST_F(Commands, disconnect_removes_the_pair_and_names_whom_it_left_behind) {
  gateway_.script("GET /v1/pairs/actor", 200, kPair);
  gateway_.script("DELETE /v1/pairs/actor", 200, R"({"name":"actor","abandoned":[]})");
  EXPECT_EQ(run({"disconnect", "actor"}), 0);
  EXPECT_EQ(out_.str(), "pair actor is removed: 2 of 2 workers let go, as they serve v2\n");
  gateway_.script("DELETE /v1/pairs/actor", 200, R"({"name":"actor","abandoned":["http://g1:1: wrong shape"]})");
  EXPECT_EQ(run({"disconnect", "actor"}), 4);
  EXPECT_NE(out_.str().find("1 of 2 workers let go, as they serve v2\n  left behind: http://g1:1: wrong shape\n"),
            std::string::npos)
      << out_.str();
  EXPECT_EQ(run({"disconnect", "other"}), 3) << "there is none";
  EXPECT_EQ(gateway_.requests().back().method, "GET");
}

}  // namespace
}  // namespace weighlock::cli
