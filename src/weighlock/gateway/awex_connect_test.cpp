// Connecting an AWEX pair: addresses, what newer releases report, and each step of it failing in turn.
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>

#include "weighlock/gateway/awex_pair_fixture.hpp"

namespace weighlock::test {
namespace {

// An address of this host that is no loopback one, or "".
std::string address_of_host(int family) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return "";
  std::string out;
  for (const ifaddrs* one = all; one && out.empty(); one = one->ifa_next) {
    if (!one->ifa_addr || one->ifa_addr->sa_family != family || (one->ifa_flags & IFF_LOOPBACK) != 0) continue;
    char text[NI_MAXHOST];
    const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (getnameinfo(one->ifa_addr, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) continue;
    if (std::string(text).find('%') == std::string::npos) out = text;  // a link-local one means nothing elsewhere
  }
  freeifaddrs(all);
  return out;
}

bool has_ipv6() {
  const int socket = ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in6 to{};
  to.sin6_family = AF_INET6;
  to.sin6_addr = in6addr_loopback;
  const bool bound = socket >= 0 && bind(socket, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0;
  if (socket >= 0) close(socket);
  return bound;
}

class AwexAddressTest : public AwexPairTest {
 protected:
  AwexAddressTest() { starts = false; }
  // The second engine is at `host`, the others at 127.0.0.1.
  void start_with(const std::string& own_host, const std::string& host) {
    settings.host = own_host;
    engines[1] = std::make_unique<FakeEngine>(loop, directory.path("start"), host);
    engines[1]->awex = [this](const auto& r, const auto& a) { infer[1].answer(r, a); };
    start();
  }
  std::string store_of(Member& member) {
    const json::value body = parse_json(body_of(member, "init_weights_update_group"), "body").value_or(nullptr);
    return std::string(find_string(body, "kv_store_url").value_or(""));
  }
};

TEST_F(AwexAddressTest, each_worker_is_told_the_address_at_which_it_reaches_us) {
  const std::string other = address_of_host(AF_INET);
  if (other.empty()) GTEST_SKIP() << "this host has one address";
  start_with("0.0.0.0", other);
  const Reply reply = connect();
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(store_of(infer[0]), fmt::format("http://127.0.0.1:{}", port));
  EXPECT_EQ(store_of(infer[1]), fmt::format("http://{}:{}", other, port));
  EXPECT_EQ(store_of(train[1]), fmt::format("http://127.0.0.1:{}", port));
}

TEST_F(AwexAddressTest, of_a_gateway_that_listens_at_one_address_every_worker_is_told_that) {
  const std::string own = address_of_host(AF_INET);
  if (own.empty()) GTEST_SKIP() << "this host has one address";
  start_with(own, own);
  Connection client(port, own);
  ASSERT_TRUE(client.connected());
  client.send_request("POST", "/connect", {{"Authorization", std::string("Bearer ") + kKey}},
                      json::serialize(awex_body()));
  const Reply reply = client.read_reply();
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(store_of(infer[0]), fmt::format("http://{}:{}", own, port));
  EXPECT_EQ(store_of(infer[1]), fmt::format("http://{}:{}", own, port));
}

TEST_F(AwexAddressTest, a_worker_that_can_not_reach_us_is_refused_with_the_remedy) {
  const std::string other = address_of_host(AF_INET);
  if (other.empty()) GTEST_SKIP() << "this host has one address";
  start_with("127.0.0.1", other);
  const Reply reply = connect();
  EXPECT_EQ(reply.status, 400) << reply.body;
  EXPECT_NE(reply.body.find(engines[1]->url()), std::string::npos) << reply.body;
  EXPECT_NE(reply.body.find("--kv-store-url"), std::string::npos) << reply.body;
  EXPECT_EQ(count(train[0], "init_weights_update_group"), 0);
}

TEST_F(AwexAddressTest, a_worker_on_ipv6_is_told_an_address_in_brackets) {
  if (!has_ipv6()) GTEST_SKIP() << "no IPv6 here";
  start_with("::", "::1");
  const Reply reply = connect();
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(store_of(infer[1]), fmt::format("http://[::1]:{}", port));
  EXPECT_EQ(store_of(infer[0]), fmt::format("http://127.0.0.1:{}", port));
}

TEST_F(AwexAddressTest, an_ipv4_address_in_the_notation_of_ipv6_is_told_to_workers_as_what_it_is) {
  if (!has_ipv6()) GTEST_SKIP() << "no IPv6 here";
  start_with("::ffff:0.0.0.0", "127.0.0.1");
  const Reply reply = connect();
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(store_of(infer[1]), fmt::format("http://127.0.0.1:{}", port));
}

TEST_F(AwexAddressTest, a_loopback_address_in_the_notation_of_ipv6_is_no_worker_elsewheres) {
  const std::string other = address_of_host(AF_INET);
  if (other.empty() || !has_ipv6()) GTEST_SKIP() << "this host has one address, or no IPv6";
  start_with("::ffff:127.0.0.1", other);
  const Reply reply = connect();
  EXPECT_EQ(reply.status, 400) << reply.body;
  EXPECT_NE(reply.body.find(engines[1]->url()), std::string::npos) << reply.body;
  EXPECT_EQ(count(train[0], "init_weights_update_group"), 0);
}

TEST_F(AwexAddressTest, a_worker_on_ipv6_of_a_gateway_on_ipv4_is_refused_with_the_remedy) {
  if (!has_ipv6()) GTEST_SKIP() << "no IPv6 here";
  start_with("0.0.0.0", "::1");
  const Reply reply = connect();
  EXPECT_EQ(reply.status, 400) << reply.body;
  EXPECT_NE(reply.body.find(engines[1]->url()), std::string::npos) << reply.body;
  EXPECT_NE(reply.body.find("IPv6"), std::string::npos) << reply.body;
}

TEST_F(AwexAddressTest, a_first_worker_on_loopback_is_no_meeting_place_for_workers_elsewhere) {
  const std::string other = address_of_host(AF_INET);
  if (other.empty()) GTEST_SKIP() << "this host has one address";
  start_with("0.0.0.0", other);
  json::object body = awex_body();
  body["nccl_master_addr"] = "";
  const Reply refused = call("POST", "/connect", body);
  EXPECT_EQ(refused.status, 400) << refused.body;
  for (const std::string& word :
       {std::string("127.0.0.1 is another host for ") + engines[1]->url(),
        std::string("give the address by which every worker reaches it"), std::string("nccl_master_addr")})
    EXPECT_NE(refused.body.find(word), std::string::npos) << refused.body;
  EXPECT_EQ(count(train[0], "report_parallelism"), 0);
  body["nccl_master_addr"] = other;
  EXPECT_EQ(call("POST", "/connect", body).status, 200);
  // The others are all on loopback.
  body["nccl_master_addr"] = "";
  body["inference_worker_urls"] = json::array{json::string(engines[0]->url())};
  EXPECT_EQ(call("POST", "/connect", body).status, 200);
}

TEST_F(AwexAddressTest, ranks_of_a_first_worker_on_ipv6_meet_at_an_address_in_brackets) {
  if (!has_ipv6()) GTEST_SKIP() << "no IPv6 here";
  engines[0] = std::make_unique<FakeEngine>(loop, directory.path("start"), "::1");
  engines[0]->awex = [this](const auto& r, const auto& a) { infer[0].answer(r, a); };
  settings.host = "::";
  start();
  json::object body = awex_body();
  for (const json::value& given : json::array{"", "::1", "[::1]"}) {
    body["nccl_master_addr"] = given;
    const Reply reply = call("POST", "/connect", body);
    ASSERT_EQ(reply.status, 200) << reply.body;
    const json::value init =
        parse_json(bodies_of(train[0], "init_weights_update_group").back(), "body").value_or(nullptr);
    EXPECT_EQ(init.at("master_addr").as_string(), "[::1]") << given;
  }
}

TEST_F(AwexAddressTest, the_address_of_the_store_can_be_set) {
  settings.kv_store_url = "http://[FD00::7]:7080/";
  start();
  ASSERT_EQ(connect().status, 200);
  EXPECT_EQ(store_of(train[0]), "http://[fd00::7]:7080");
  EXPECT_EQ(store_of(infer[1]), "http://[fd00::7]:7080");
}

TEST_F(AwexAddressTest, a_wildcard_is_no_address_of_the_store_nor_of_a_worker_nor_of_a_meeting) {
  for (const char* url : {"http://0.0.0.0:7080", "http://[::]:7080", "10.0.0.1:7080"}) {
    settings.kv_store_url = url;
    const auto made = Gateway::make(loop, settings);
    ASSERT_FALSE(made) << url;
    EXPECT_NE(made.error().text().find("kv_store_url"), std::string::npos) << made.error().text();
  }
  settings.kv_store_url.clear();
  start();
  for (const std::string host : {"0.0.0.0", "[::]"}) {
    for (const std::string field : {"inference_worker_urls", "train_worker_urls", "nccl_master_addr"}) {
      json::object body = awex_body();
      body[field] =
          field == "nccl_master_addr" ? json::value(host) : json::array{json::string("http://" + host + ":80")};
      const Reply reply = call("POST", "/connect", body);
      EXPECT_EQ(reply.status, 400) << host << field << reply.body;
      EXPECT_NE(reply.body.find(field), std::string::npos) << reply.body;
    }
  }
}

TEST_F(AwexPairTest, what_newer_releases_report_is_told_to_the_other_side) {
  on_loop([this] {
    train[0].told["parameter_layout"] = "mcore";
    infer[0].told["converter_context"] = {{"tp_size", 4}};
  });
  ASSERT_EQ(connect().status, 200);
  for (Member& member : train)
    EXPECT_EQ(body_of(member, "report_weight_meta"), R"({"infer_conf":{"tp_size":4,"infer_world_size":3}})");
  for (Member& member : infer) EXPECT_EQ(body_of(member, "report_weight_meta"), R"({"parameter_layout":"mcore"})");
}

TEST_F(AwexPairTest, where_one_side_alone_reports_more_the_other_gets_the_defaults) {
  on_loop([this] { train[0].told["parameter_layout"] = "mcore"; });
  ASSERT_EQ(connect().status, 200);
  EXPECT_EQ(body_of(train[1], "report_weight_meta"), R"({"infer_conf":null})");
  on_loop([this] {
    train[0].told.clear();
    infer[0].told["converter_context"] = json::object();
  });
  ASSERT_EQ(connect().status, 200);
  EXPECT_EQ(body_of(infer[2], "report_weight_meta", 1), R"({"parameter_layout":"hf"})");
}

class AwexDeviceTest : public AwexPairTest {
 protected:
  json::object colocated() {
    json::object body = awex_body();
    body["colocate"] = true;
    json::array two = urls_of(engines);
    two.pop_back();
    body["inference_worker_urls"] = two;
    return body;
  }
  void at(Member& member, const std::string& ip, const json::value& device) {
    on_loop([&] {
      member.told["ip"] = json::string(ip);
      member.told["device_id"] = device;
    });
  }
  void all_shared() {
    for (int i = 0; i < 2; ++i) {
      at(train[i], "10.0.0.4", i);
      at(infer[i], "10.0.0.4", i);
    }
  }
};

TEST_F(AwexDeviceTest, every_worker_of_a_colocated_pair_is_asked_for_its_device) {
  all_shared();
  const Reply reply = call("POST", "/connect", colocated());
  EXPECT_EQ(reply.status, 200) << reply.body;
  for (Member* member : {&train[0], &train[1], &infer[0], &infer[1]})
    EXPECT_EQ(count(*member, "report_parallelism?include_device=1"), 1) << member->name;
  EXPECT_EQ(count(train[0], "report_parallelism"), 0);
}

TEST_F(AwexDeviceTest, a_device_that_is_reported_twice_or_by_one_side_alone_is_422) {
  all_shared();
  at(train[1], "10.0.0.4", 0);
  Reply reply = call("POST", "/connect", colocated());
  EXPECT_EQ(reply.status, 422) << reply.body;
  EXPECT_NE(reply.body.find(trainers[1]->url()), std::string::npos) << reply.body;
  at(train[1], "10.0.0.5", 1);
  reply = call("POST", "/connect", colocated());
  EXPECT_EQ(reply.status, 422) << reply.body;
  EXPECT_NE(reply.body.find("10.0.0.5"), std::string::npos) << reply.body;
  EXPECT_EQ(count(train[0], "init_colocate_weight_update"), 0);
  all_shared();
  EXPECT_EQ(call("POST", "/connect", colocated()).status, 200);
}

TEST_F(AwexDeviceTest, engines_are_numbered_by_the_devices_that_they_share_with_trainers_not_as_they_are_listed) {
  all_shared();
  at(infer[0], "10.0.0.4", 1);
  at(infer[1], "10.0.0.4", "0");
  const Reply reply = call("POST", "/connect", colocated());
  ASSERT_EQ(reply.status, 200) << reply.body;
  const auto rank_of = [this](Member& member) {
    const std::string told = body_of(member, "init_colocate_weight_update");
    return find_int(parse_json(told, "body").value_or(nullptr), "transfer_rank").value_or(-1);
  };
  EXPECT_EQ(rank_of(infer[0]), 1);
  EXPECT_EQ(rank_of(infer[1]), 0);
  EXPECT_EQ(rank_of(train[0]), 2);
  EXPECT_EQ(rank_of(train[1]), 3);
}

TEST_F(AwexDeviceTest, workers_that_do_not_report_devices_are_taken_as_they_are_listed) {
  at(train[0], "10.0.0.4", 0);
  const Reply reply = call("POST", "/connect", colocated());
  EXPECT_EQ(reply.status, 200) << reply.body;
}

TEST_F(AwexDeviceTest, a_second_colocated_pair_of_the_same_trainers_is_409_and_the_first_is_connected_again) {
  ASSERT_EQ(call("POST", "/connect", colocated()).status, 200);
  json::object second = colocated();
  second["pair_name"] = "critic";
  second["inference_worker_urls"] = json::array{json::string(engines[2]->url())};
  const Reply reply = call("POST", "/connect", second);
  EXPECT_EQ(reply.status, 409) << reply.body;
  EXPECT_NE(reply.body.find(trainers[0]->url()), std::string::npos) << reply.body;
  EXPECT_EQ(call("POST", "/connect", colocated()).status, 200);
}

// A mistake of ours in the metadata: the first trainer's part is told to be shorter than it is.
class AwexProofTest : public AwexPairTest {
 protected:
  AwexProofTest() {
    starts = false;
    settings.awex_put_right = [](const auto& of_train, const auto& of_infer, const auto& topology) {
      Result<awex::Repaired> out = awex::repair(of_train, of_infer, topology);
      if (out) out->train.shards.front().box.shape[0] -= 1;
      return out;
    };
  }
};

TEST_F(AwexProofTest, metadata_that_would_leave_a_hole_is_not_served_and_nobody_is_brought_up) {
  start();
  const Reply reply = connect();
  EXPECT_EQ(reply.status, 500) << reply.body;
  EXPECT_NE(reply.body.find("tensor 'w' for inference rank 0 is wrong: hole [2,3)"), std::string::npos) << reply.body;
  EXPECT_EQ(count(train[0], "init_weights_update_group"), 0);
  EXPECT_EQ(call("GET", "/v1/pairs/actor").status, 404);
}

TEST_F(AwexProofTest, a_plan_of_more_pairs_of_parts_than_the_limit_is_served_unproven) {
  settings.proven_pairs_max = 1;
  start();
  EXPECT_EQ(connect().status, 200);
}

// Three ranks on each side, whatever reported.
class AwexReachTest : public AwexPairTest {
 protected:
  AwexReachTest() {
    starts = false;
    settings.awex_put_right = [](const auto&, const auto&, const auto& topology) -> Result<awex::Repaired> {
      std::vector<std::vector<awex::Told>> rows;
      for (int rank = 0; rank < 3; ++rank) rows.push_back({awex::fsdp_of("w", {6, 4}, rank, 3)});
      const std::vector<std::vector<awex::Told>> whole(3, {awex::whole_of("w", {6, 4}, 0, 1)});
      return awex::repair(*awex::reports(awex::Side::train, rows), *awex::reports(awex::Side::infer, whole),
                          {3, 1, 3, topology.colocated});
    };
  }
};

TEST_F(AwexReachTest, a_colocated_pair_of_which_some_parts_would_never_be_sent_is_refused_and_nobody_is_brought_up) {
  start();
  json::object body = awex_body();
  body["colocate"] = true;
  const Reply reply = call("POST", "/connect", body);
  EXPECT_EQ(reply.status, 400) << reply.body;
  for (const char* word : {"tensor 'w'", "from train rank 2 to inference rank 1", "would never be sent"})
    EXPECT_NE(reply.body.find(word), std::string::npos) << word << reply.body;
  EXPECT_EQ(count(train[0], "init_colocate_weight_update"), 0);
  EXPECT_EQ(call("GET", "/v1/pairs/actor").status, 404);
  EXPECT_EQ(connect().status, 200);  // separated: they are all in one group
}

class AwexListsTest : public AwexPairTest {
 protected:
  AwexListsTest() { starts = false; }
};

TEST_F(AwexListsTest, lists_that_are_larger_than_a_gateway_keeps_are_refused_with_the_models_size_and_a_remedy) {
  settings.list_bytes_max = 500;
  start();
  const Reply reply = connect();
  EXPECT_EQ(reply.status, 413) << reply.body;
  for (const char* word : {"more than 500 bytes", "1 tensors", "2 parts for trainers", "mode \\\"disk\\\""})
    EXPECT_NE(reply.body.find(word), std::string::npos) << word << reply.body;
  EXPECT_EQ(count(train[0], "init_weights_update_group"), 0);
  EXPECT_EQ(call("GET", "/v1/pairs/actor").status, 404);
}

// Each HTTP call of a connect fails in turn.
class AwexNthTest : public AwexPairTest {
 protected:
  void arm(int nth, RequestFate how) {
    on_loop([&] {
      left = nth;
      fate = how;
    });
  }
  void strike_all() {
    on_loop([this] {
      const auto strike = [this] { return --left == 0 ? fate : RequestFate::handled; };
      for (Member& member : infer) member.fate = strike;
      for (Member& member : train) member.fate = strike;
    });
  }
  int disarm() {
    int now = 0;
    on_loop([&] { now = std::exchange(left, -1'000'000); });
    return now;
  }
  void expect_nothing_left(std::size_t groups_before, const char* init, const std::string& at) {
    EXPECT_EQ(call("GET", "/v1/pairs/actor").status, 404) << at;
    const std::vector<std::string> inits = bodies_of(train[0], init);
    for (std::size_t i = groups_before; i < inits.size(); ++i) {
      const std::string name(parse_json(inits[i], "body").value_or(nullptr).at("pair_name").as_string());
      EXPECT_EQ(meta_status(name), 404) << at;
    }
    on_loop([&] {
      for (auto& engine : engines) EXPECT_FALSE(engine->paused) << at;
      for (Member* member : {&train[0], &train[1], &infer[0], &infer[1], &infer[2]}) {
        EXPECT_EQ(member->count("release_memory") + member->count("resume_memory"), 0) << at;
      }
    });
  }
  // How many calls the connect has.
  int fail_each(const json::object& body, const char* init) {
    for (int nth = 1;; ++nth) {
      for (const RequestFate how : {RequestFate::refused, RequestFate::lost, RequestFate::answer_lost}) {
        const std::string at = fmt::format("call {}, fate {}", nth, static_cast<int>(how));
        const std::size_t groups = bodies_of(train[0], init).size();
        arm(nth, how);
        const Reply reply = call("POST", "/connect", body);
        if (disarm() > 0) {
          EXPECT_EQ(reply.status, 200) << at << reply.body;
          return nth - 1;
        }
        EXPECT_GE(reply.status, 400) << at;
        EXPECT_TRUE(reply.body.find("trainer http://") != std::string::npos ||
                    reply.body.find("worker http://") != std::string::npos)
            << at << reply.body;
        expect_nothing_left(groups, init, at);
      }
    }
  }
  int left = -1'000'000;
  RequestFate fate = RequestFate::handled;
};

TEST_F(AwexNthTest, whichever_call_of_a_connect_fails_nothing_is_left_and_the_next_one_works) {
  strike_all();
  EXPECT_EQ(fail_each(awex_body(), "init_weights_update_group"), 2 + 5 + 5 + 5);
  // Who was asked to join was told to leave, each time but the last.
  for (Member& member : train) EXPECT_EQ(count(member, "teardown"), 3 * (5 + 5)) << member.name;
  EXPECT_EQ(update(1).json().at("status").as_string(), "ok");
}

TEST_F(AwexNthTest, whichever_call_of_a_colocated_connect_fails_nothing_is_left_and_no_memory_is_released) {
  strike_all();
  json::object body = awex_body();
  body["colocate"] = true;
  EXPECT_EQ(fail_each(body, "init_colocate_weight_update"), 5 + 5 + 5);
  EXPECT_EQ(update(1).json().at("status").as_string(), "ok");
}

}  // namespace
}  // namespace weighlock::test
