// Many connections, slow ones, silent ones, and names and files that don't answer, at a whole gateway with small
// limits.
#include <dirent.h>
#include <poll.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "weighlock/gateway/gateway_fixture.hpp"
#include "weighlock/net/socket.hpp"

namespace weighlock::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

std::size_t open_descriptors() {
  std::size_t count = 0;
  DIR* const directory = opendir("/proc/self/fd");
  while (readdir(directory) != nullptr) ++count;
  closedir(directory);
  return count;
}

double resident_mib() {
  std::ifstream statm("/proc/self/statm");
  double whole = 0;
  double resident = 0;
  statm >> whole >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1024 * 1024);
}

template <typename Condition>
bool comes_true(const Condition& condition, std::chrono::seconds within = 30s) {
  for (const auto end = Clock::now() + within; Clock::now() < end; std::this_thread::sleep_for(10ms)) {
    if (condition()) return true;
  }
  return condition();
}

// A socket without a thread; the gateway's end is what is looked at.
class Silent {
 public:
  explicit Silent(int port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const auto address = numeric_address("127.0.0.1", port);
    connected_ = ::connect(socket_, address->get(), address->size) == 0;
  }
  ~Silent() { ::close(socket_); }
  Silent(Silent&& other) noexcept
      : socket_(std::exchange(other.socket_, -1)),
        connected_(other.connected_),
        received_(std::move(other.received_)) {}
  bool connected() const { return connected_; }
  void send(const std::string& bytes) const { (void)!::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  void end_sending() const { ::shutdown(socket_, SHUT_WR); }
  bool reads(const std::string& text) {
    for (const auto end = Clock::now() + 20s; Clock::now() < end && received_.find(text) == std::string::npos;)
      if (read_some()) return false;
    return received_.find(text) != std::string::npos;
  }
  // All that came before the peer closed; nothing if it doesn't close.
  std::optional<std::string> read_to_close(std::chrono::milliseconds within) {
    for (const auto end = Clock::now() + within; Clock::now() < end;) {
      if (read_some()) return received_;
    }
    return std::nullopt;
  }

 private:
  // Waits a moment; true at the end.
  bool read_some() {
    pollfd ready{socket_, POLLIN, 0};
    if (::poll(&ready, 1, 50) <= 0) return false;
    char some[4096];
    const ssize_t got = ::recv(socket_, some, sizeof some, 0);
    if (got > 0) received_.append(some, static_cast<std::size_t>(got));
    return got <= 0;
  }

  int socket_;
  bool connected_ = false;
  std::string received_;
};

class CrowdTest : public NativeTest {
 protected:
  // The shortest of three tries: this machine may be busy with something else for a moment.
  std::chrono::milliseconds answer_time() {
    auto shortest = std::chrono::milliseconds::max();
    for (int i = 0; i < 3; ++i) {
      const auto began = Clock::now();
      EXPECT_EQ(call("GET", "/health").status, 200);
      shortest = std::min(shortest, std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - began));
    }
    return shortest;
  }
  std::int64_t records() {
    const std::string text = call("GET", "/metrics").body;
    const std::string name = "\nweighlock_journal_records ";
    return std::stoll(text.substr(text.find(name) + name.size()));
  }
};

TEST_F(CrowdTest, five_thousand_silent_connections_cost_little_and_go_when_their_time_is_over) {
  constexpr std::size_t kCount = 5000;
  ASSERT_GE(raise_descriptor_limit(), 2 * kCount + 1000)
      << "both ends are in this process: raise the limit of open files";
  settings.limits.connections = kCount + 100;
  settings.limits.idle = 20s;
  start();
  make_pair();
  const std::int64_t before = records();
  const std::size_t descriptors = open_descriptors();
  const double memory = resident_mib();
  {
    std::vector<Silent> crowd;
    crowd.reserve(kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
      crowd.emplace_back(port);
      ASSERT_TRUE(crowd.back().connected()) << i;
      if (i % 2 == 0) crowd.back().send("\r\n");  // a byte that begins nothing
      if (i % 100 == 0) crowd.back().send("GET /he");
    }
    ASSERT_TRUE(comes_true([&] { return open_descriptors() >= descriptors + 2 * kCount - 20; })) << open_descriptors();
    EXPECT_LT(answer_time(), 1s);
    EXPECT_LT(resident_mib() - memory, 40) << "8 KiB a connection, with both ends";
    EXPECT_EQ(call("POST", "/v1/pairs/actor/updates?wait=15", {{"version", 1}}).status, 200) << "and work goes on";
    for (Silent& one : crowd) {
      const auto said = one.read_to_close(60s);
      ASSERT_TRUE(said.has_value());
      EXPECT_TRUE(said->empty() || said->find("Connection: close") != std::string::npos) << *said;
    }
  }
  EXPECT_TRUE(comes_true([&] { return open_descriptors() <= descriptors + 8; }))
      << open_descriptors() << " of " << descriptors;
  EXPECT_GT(records(), before);  // by the update
}

TEST_F(CrowdTest, silent_connections_keep_nobody_out_when_all_places_are_taken) {
  settings.limits.connections = 20;
  start();
  std::vector<Silent> crowd;
  for (int i = 0; i < 40; ++i) crowd.emplace_back(port);
  for (int i = 0; i < 30; ++i) EXPECT_EQ(call("GET", "/health").status, 200);
  // The oldest went first.
  EXPECT_EQ(crowd.front().read_to_close(20s), "");
}

TEST_F(CrowdTest, places_taken_by_requests_are_told_as_such) {
  settings.limits.connections = 4;
  start();
  std::vector<Silent> crowd;
  for (int i = 0; i < 4; ++i) {
    crowd.emplace_back(port);
    crowd.back().send("POST /connect HTTP/1.1\r\nHost: g\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n");
    ASSERT_TRUE(crowd.back().reads("100 Continue"));  // it has begun, and the gateway knows it
  }
  Silent late(port);
  const auto said = late.read_to_close(20s);
  ASSERT_TRUE(said.has_value());
  EXPECT_TRUE(said->starts_with("HTTP/1.1 503")) << *said;
  EXPECT_NE(said->find("Connection: close"), std::string::npos) << *said;
  EXPECT_NE(said->find("Retry-After: 1"), std::string::npos) << *said;
}

TEST_F(CrowdTest, headers_and_bodies_that_dribble_are_cut_off_with_408) {
  settings.limits.request_read = 400ms;
  settings.limits.idle = 60s;
  start();
  const std::string head = "POST /connect HTTP/1.1\r\nHost: g\r\n";
  for (const std::string& begin :
       {std::string("G"), std::string("\r\n"), std::string("GET /health HTTP/1.1\r\nX: "),
        head + "Content-Length: 1000\r\n\r\n{", head + "Transfer-Encoding: chunked\r\n\r\n3e8\r\n{"}) {
    Silent slow(port);
    slow.send(begin);
    std::optional<std::string> said;
    for (const auto end = Clock::now() + 30s; !said && Clock::now() < end;) {
      slow.send(begin == "\r\n" ? "\r\n" : "x");
      said = slow.read_to_close(50ms);
    }
    ASSERT_TRUE(said.has_value()) << begin;
    EXPECT_TRUE(said->starts_with("HTTP/1.1 408")) << begin << *said;
    EXPECT_NE(said->find("Connection: close"), std::string::npos);
  }
}

TEST_F(CrowdTest, bodies_that_are_held_together_are_limited) {
  settings.limits.requests_bytes = 8 * 1024 * 1024;
  start();
  const std::string head = "PUT /v1/pairs/x HTTP/1.1\r\nHost: g\r\nContent-Length: 5000000\r\n\r\n";
  std::vector<Silent> crowd;
  for (int i = 0; i < 4; ++i) {
    crowd.emplace_back(port);
    crowd.back().send(head + std::string(4'000'000, ' '));
  }
  std::size_t refused = 0;
  for (Silent& one : crowd) {
    const auto said = one.read_to_close(4s);
    if (said && said->starts_with("HTTP/1.1 503")) ++refused;
  }
  EXPECT_GE(refused, 1u);
  EXPECT_LE(refused, 3u);
  // Those that were refused, or leave, give back what they held.
  crowd.clear();
  ASSERT_TRUE(comes_true([&] {
    return call("PUT", "/v1/pairs/x", json::object{{"x", std::string(4'000'000, ' ')}}).status == 400;
  }));
}

TEST_F(CrowdTest, waits_of_clients_that_left_are_forgotten) {
  start();
  make_pair();
  const std::size_t descriptors = open_descriptors();
  for (int i = 0; i < 300; ++i) {
    const Silent one(port);
    one.send("GET /v1/pairs/actor?committed_at_least=9&wait=600 HTTP/1.1\r\nHost: g\r\n\r\n");
  }
  EXPECT_TRUE(comes_true([&] { return open_descriptors() <= descriptors; }));
  Silent half_closed(port);
  half_closed.send(
      "GET /v1/pairs/actor?committed_at_least=9&wait=600 HTTP/1.1\r\nHost: g\r\nConnection: close\r\n\r\n");
  half_closed.end_sending();
  const auto said = half_closed.read_to_close(20s);
  ASSERT_TRUE(said.has_value()) << "who only ends sending is answered at once";
  EXPECT_TRUE(said->starts_with("HTTP/1.1 200")) << *said;
}

TEST_F(CrowdTest, event_streams_are_limited) {
  start();
  std::vector<Silent> readers;
  for (std::size_t i = 0; i < limits::kEventStreamsMax; ++i) {
    readers.emplace_back(port);
    readers.back().send("GET /v1/events HTTP/1.1\r\nHost: g\r\n\r\n");
  }
  ASSERT_TRUE(comes_true([&] {
    Connection one(port);
    one.send_request("GET", "/v1/events", {}, "");
    return one.read_reply().status == 429;
  }));
  readers.clear();
  ASSERT_TRUE(comes_true([&] {
    Connection one(port);
    one.send_request("GET", "/v1/events", {}, "");
    return one.read_reply().status == 200;
  }));
}

// Things outside that don't answer

TEST_F(CrowdTest, a_key_file_on_a_mount_that_hangs_holds_neither_the_gateway_nor_its_end) {
  // Outlives the gateway, as the thread does.
  const auto hung = std::make_shared<std::promise<void>>();
  const std::shared_future<void> released = hung->get_future().share();
  settings.read_key_file = [released](const std::string& path) -> std::optional<std::string> {
    if (path == "/good") return "key";
    released.wait();
    return std::nullopt;
  };
  start();
  json::object body = this->body();
  body["workers"].as_array()[0].as_object()["admin_key"] = {{"file", "/hung"}};
  std::vector<std::thread> clients;
  std::atomic<int> refused{0};
  for (int i = 0; i < 6; ++i) {
    clients.emplace_back([&, i] {
      const Reply reply = call("PUT", "/v1/pairs/p" + std::to_string(i), body);
      if (reply.status == 504 && reply.body.find("workers[0].admin_key") != std::string::npos) ++refused;
    });
  }
  EXPECT_LT(answer_time(), 1s);
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(refused, 6);
  EXPECT_TRUE(call("GET", "/v1/pairs").json().at("items").as_array().empty());
  TearDown();  // while the reads hang
  hung->set_value();
}

TEST_F(CrowdTest, a_key_file_that_can_be_read_is_used) {
  settings.read_key_file = [](const std::string&) { return std::optional<std::string>("k3y\n"); };
  for (const auto& engine : engines) engine->key = "k3y";
  start();
  json::object body = this->body();
  for (json::value& worker : body["workers"].as_array()) worker.as_object()["admin_key"] = {{"file", "/good"}};
  ASSERT_EQ(call("PUT", "/v1/pairs/actor", body).status, 201);
  EXPECT_EQ(call("POST", "/v1/pairs/actor/updates?wait=20", {{"version", 1}}).json().at("state"), "succeeded");
}

}  // namespace
}  // namespace weighlock::test
