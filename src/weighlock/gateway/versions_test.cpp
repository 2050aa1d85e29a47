// Rollback, stored versions and the changes of one worker, as clients see them: a whole gateway over real sockets, with
// real files.
#include <fmt/format.h>

#include "weighlock/gateway/gateway_fixture.hpp"

namespace weighlock::test {
namespace {

class VersionsTest : public NativeTest {
 protected:
  // A pair with versions 1 to `last` committed.
  void commit_up_to(std::int64_t last) {
    start();
    make_pair();
    for (std::int64_t version = 1; version <= last; ++version) {
      const Reply reply = call("POST", "/v1/pairs/actor/updates?wait=20", {{"version", version}});
      ASSERT_EQ(reply.json().at("state").as_string(), "succeeded") << reply.body;
    }
  }
  Reply roll_back(const json::object& asked = {}, const std::string& key = "") {
    std::vector<HttpHeader> headers;
    if (!key.empty()) headers.push_back({"Idempotency-Key", key});
    return call("POST", "/v1/pairs/actor:rollback?wait=20", asked, headers);
  }
  json::value versions() { return call("GET", "/v1/pairs/actor/versions").json(); }
  // Digests are computed beside the loads, and may end after the update.
  void await_digests() {
    for (int tries = 0; tries < 400; ++tries) {
      bool all = true;
      const json::value list = versions();
      for (const json::value& one : list.at("items").as_array()) all = all && one.at("digest").is_string();
      if (all) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(25));
    }
    FAIL() << json::serialize(versions());
  }
  std::string version_path(std::int64_t version) const {
    return directory.path(fmt::format("w/weight_update_v{}", version));
  }
};

TEST_F(VersionsTest, a_rollback_brings_every_engine_to_the_version_before_without_a_save) {
  commit_up_to(2);
  const Reply reply = roll_back();
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(reply.json().at("state").as_string(), "succeeded") << reply.body;
  EXPECT_EQ(reply.json().at("version").as_int64(), 1);
  EXPECT_TRUE(reply.json().at("rollback").as_bool());
  EXPECT_EQ(call("GET", "/v1/pairs/actor").json().at("committed").as_int64(), 1);
  on_loop([&] {
    for (const auto& engine : engines) {
      EXPECT_EQ(engine->path, version_path(1));
      EXPECT_EQ(engine->label, "1");
      EXPECT_FALSE(engine->paused);
    }
    for (const auto& trainer : trainers) EXPECT_EQ(trainer->saves, 2);
  });
  const Reply lower = call("POST", "/v1/pairs/actor/updates?wait=20", {{"version", 2}});
  EXPECT_EQ(lower.json().at("error").at("code").as_string(), "version_not_newer") << lower.body;
  EXPECT_EQ(call("POST", "/v1/pairs/actor/updates?wait=20", {{"version", 3}}).json().at("state").as_string(),
            "succeeded");
}

TEST_F(VersionsTest, a_rollback_under_one_key_happens_once) {
  commit_up_to(3);
  const Reply first = roll_back({}, "k1");
  const Reply again = roll_back({}, "k1");
  EXPECT_EQ(first.json().at("id"), again.json().at("id"));
  EXPECT_EQ(call("GET", "/v1/pairs/actor").json().at("committed").as_int64(), 2);
}

TEST_F(VersionsTest, bytes_that_changed_since_the_seal_end_a_rollback_before_any_pause) {
  commit_up_to(2);
  await_digests();
  std::string bytes = read_file(version_path(1) + "/model.safetensors");
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_file(version_path(1) + "/model.safetensors", bytes);
  const Reply verified = call("POST", "/v1/pairs/actor/versions/1:verify");
  EXPECT_EQ(verified.status, 409) << verified.body;
  EXPECT_NE(verified.body.find("sealed bytes were changed"), std::string::npos) << verified.body;
  int asked = 0;
  on_loop([&] { asked = engines[0]->loads; });
  const Reply reply = roll_back();
  EXPECT_EQ(reply.json().at("state").as_string(), "aborted") << reply.body;
  EXPECT_NE(reply.body.find("sealed bytes were changed"), std::string::npos) << reply.body;
  on_loop([&] {
    EXPECT_EQ(engines[0]->loads, asked);
    EXPECT_FALSE(engines[0]->paused);
  });
  EXPECT_EQ(call("POST", "/v1/pairs/actor/versions/2:verify").json().at("ok"), json::value(true));
}

TEST_F(VersionsTest, a_directory_that_is_gone_ends_a_rollback_before_any_pause_and_is_named) {
  commit_up_to(2);
  std::filesystem::remove_all(version_path(1));
  const Reply reply = roll_back({{"to", 1}});
  EXPECT_EQ(reply.json().at("state").as_string(), "aborted") << reply.body;
  EXPECT_NE(reply.body.find(version_path(1)), std::string::npos) << reply.body;
}

TEST_F(VersionsTest, a_handed_directory_that_holds_another_version_now_is_no_way_back) {
  write_single(directory.path("out/a"), tiny_tensors(), 5);
  write_single(directory.path("out/b"), tiny_tensors(), 6);
  start();
  make_pair();
  for (const auto& [version, name] : std::vector<std::pair<int, std::string>>{{1, "out/a"}, {2, "out/b"}}) {
    const Reply reply =
        call("POST", "/v1/pairs/actor/updates?wait=20", {{"version", version}, {"path", directory.path(name)}});
    ASSERT_EQ(reply.json().at("state").as_string(), "succeeded") << reply.body;
  }
  EXPECT_TRUE(versions().at("items").at(0).at("handed_over").as_bool());
  await_digests();
  write_single(directory.path("out/a"), tiny_tensors(), 7);
  const Reply reply = roll_back();
  EXPECT_EQ(reply.json().at("state").as_string(), "aborted") << reply.body;
  write_single(directory.path("out/a"), tiny_tensors(), 5);
  EXPECT_EQ(roll_back().json().at("state").as_string(), "succeeded");
  on_loop([&] { EXPECT_EQ(engines[0]->path, directory.path("out/a")); });
}

TEST_F(VersionsTest, refusals_say_what_there_is_and_name_the_field) {
  commit_up_to(1);
  const Reply none = roll_back();
  EXPECT_EQ(none.status, 409) << none.body;
  EXPECT_NE(none.body.find("stored: v1"), std::string::npos) << none.body;
  EXPECT_EQ(roll_back({{"to", 9}}).status, 404);
  EXPECT_EQ(call("POST", "/v1/pairs/nobody:rollback").status, 404);
  const Reply typed = roll_back({{"to", "one"}});
  EXPECT_EQ(typed.status, 400) << typed.body;
  EXPECT_EQ(typed.json().at("field").as_string(), "to");
  const Reply unknown = roll_back({{"too", 1}});
  EXPECT_NE(unknown.body.find("'to'"), std::string::npos) << unknown.body;
  EXPECT_EQ(roll_back({{"lineage", 1}}).json().at("field").as_string(), "lineage");
  EXPECT_EQ(roll_back({{"policy", {{"canary", -1}}}}).json().at("field").as_string(), "policy.canary");
  EXPECT_EQ(raw_call("POST", "/v1/pairs/actor:rollback", "{}", {}).status, 401);
}

TEST_F(VersionsTest, what_is_stored_is_listed_with_who_needs_it) {
  commit_up_to(3);
  roll_back({{"to", 2}});
  await_digests();
  const json::value list = versions();
  ASSERT_EQ(list.at("items").as_array().size(), 3U) << json::serialize(list);
  const json::value& third = list.at("items").at(0);
  EXPECT_EQ(third.at("version").as_int64(), 3);
  EXPECT_EQ(third.at("state").as_string(), "withdrawn");
  EXPECT_FALSE(third.at("removable").as_bool()) << "within keep_versions";
  const json::value& second = list.at("items").at(1);
  EXPECT_EQ(second.at("state").as_string(), "committed");
  EXPECT_EQ(second.at("directory").as_string(), version_path(2));
  EXPECT_GT(second.at("bytes").to_number<std::int64_t>(), 0);
  const json::array& leases = second.at("leases").as_array();
  EXPECT_EQ(leases.size(), 5U) << json::serialize(second) << ": committed, last good, three workers";
  EXPECT_EQ(list.at("items").at(2).at("state").as_string(), "superseded");
  EXPECT_EQ(list.at("committed").at("version").as_int64(), 2);
  EXPECT_EQ(list.at("last_good").at("version").as_int64(), 2);
  EXPECT_EQ(list.at("highest").at("version").as_int64(), 3);
  EXPECT_EQ(call("GET", "/v1/pairs/nobody/versions").status, 404);
}

TEST_F(VersionsTest, collecting_tells_first_and_deletes_then) {
  commit_up_to(3);
  json::object fewer = body();
  fewer["settings"].as_object()["keep_versions"] = 1;
  ASSERT_EQ(call("PUT", "/v1/pairs/actor", fewer).status, 200);
  const Reply told = call("POST", "/v1/pairs/actor/versions:collect", {{"dry_run", true}});
  ASSERT_EQ(told.json().at("directories").as_array().size(), 1U) << told.body;
  EXPECT_TRUE(std::filesystem::exists(version_path(1)));
  const Reply done = call("POST", "/v1/pairs/actor/versions:collect");
  EXPECT_EQ(done.json().at("directories"), told.json().at("directories"));
  for (int tries = 0; tries < 400 && std::filesystem::exists(version_path(1)); ++tries)
    std::this_thread::sleep_for(std::chrono::milliseconds(25));
  EXPECT_FALSE(std::filesystem::exists(version_path(1)));
  EXPECT_TRUE(std::filesystem::exists(version_path(2)));
  EXPECT_EQ(call("POST", "/v1/pairs/actor/versions:collect", {{"dry_run", 1}}).json().at("field").as_string(),
            "dry_run");
  EXPECT_EQ(call("POST", "/v1/pairs/actor/versions/1:verify").status, 404);
  EXPECT_EQ(call("POST", "/v1/pairs/actor/versions/x:verify").status, 404);
}

TEST_F(VersionsTest, verifying_the_served_version_changes_nothing_about_it) {
  commit_up_to(2);
  await_digests();
  const Reply reply = call("POST", "/v1/pairs/actor/versions/2:verify");
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(reply.json().at("digest"), versions().at("items").at(0).at("digest"));
  EXPECT_EQ(roll_back().json().at("state").as_string(), "succeeded");
}

}  // namespace
}  // namespace weighlock::test
