#include <arpa/inet.h>

#include <algorithm>
#include <atomic>

#include "weighlock/net/loop_fixture.hpp"

namespace weighlock::testing {

namespace {

using Kind = TransportError::Kind;
using namespace std::chrono_literals;

// A name server on a real UDP socket: "worker.test" is at 127.0.0.2 and at 127.0.0.1, names that begin with "dead" get
// no answer at all, and all others don't exist.
class NameServer {
 public:
  NameServer() : socket_(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    const auto any = numeric_address("127.0.0.1", 0);
    EXPECT_EQ(0, ::bind(socket_, any->get(), any->size));
    thread_ = std::thread([this] { serve(); });
  }
  ~NameServer() {
    stopping_ = true;
    // An empty datagram wakes the thread.
    sockaddr_in self = address();
    ::sendto(socket_, "", 0, 0, reinterpret_cast<sockaddr*>(&self), sizeof self);
    thread_.join();
    ::close(socket_);
  }
  std::string where() const { return "127.0.0.1:" + std::to_string(ntohs(address().sin_port)); }
  int address_questions() const { return address_questions_; }

 private:
  sockaddr_in address() const {
    sockaddr_in bound{};
    socklen_t size = sizeof bound;
    ::getsockname(socket_, reinterpret_cast<sockaddr*>(&bound), &size);
    return bound;
  }

  void serve() {
    while (true) {
      char raw[512];
      sockaddr_in from{};
      socklen_t size = sizeof from;
      const ssize_t n = ::recvfrom(socket_, raw, sizeof raw, 0, reinterpret_cast<sockaddr*>(&from), &size);
      if (stopping_) return;
      const std::string answer = answer_to(std::string(raw, static_cast<std::size_t>(n)));
      if (!answer.empty()) {
        ::sendto(socket_, answer.data(), answer.size(), 0, reinterpret_cast<sockaddr*>(&from), size);
      }
    }
  }

  // RFC 1035, 4.1: a header of 12 bytes, the question (labels, type, class), and records that point back at the name.
  std::string answer_to(const std::string& question) {
    const std::string name = question.substr(13);
    if (name.starts_with("dead")) return {};
    const std::size_t name_end = question.find('\0', 12);
    const char type = question.at(name_end + 2);
    constexpr char kTypeA = 1;
    const bool known = name.starts_with(std::string("worker\4test", 11));
    if (known && type == kTypeA) ++address_questions_;
    std::string answer = question.substr(0, name_end + 5);
    answer[2] = '\x81';                   // an answer, recursion was wanted ...
    answer[3] = known ? '\x80' : '\x83';  // ... and is there; 3: no such name
    answer[7] = known && type == kTypeA ? 2 : 0;
    answer[9] = answer[11] = 0;
    if (known && type == kTypeA) {
      answer += std::string("\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4\x7f\0\0\2", 16);
      answer += std::string("\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4\x7f\0\0\1", 16);
    }
    return answer;
  }

  int socket_;
  std::atomic<bool> stopping_ = false;
  std::atomic<int> address_questions_ = 0;
  std::thread thread_;
};

class DnsTest : public LoopFixture {
 protected:
  DnsTest() {
    use_client({.name_servers = names_.where()});
    port_ = serve([](const HttpRequest&, const Responder& responder) { responder.respond({}); });
  }
  Url named(const std::string& host) const {
    Url url = url_of(port_);
    url.host = host;
    return url;
  }
  std::future<HttpResult> ask(const std::string& host, Milliseconds deadline = 5s) {
    return begin_call(named(host), {"POST", "/", {}, ""}, {.deadline = deadline, .fresh_connection = true});
  }

  NameServer names_;
  int port_ = 0;
};

}  // namespace

TEST_F(DnsTest, every_address_of_a_name_is_tried) {
  // Nothing listens at 127.0.0.2, which comes first.
  EXPECT_TRUE(std::holds_alternative<HttpResponse>(ask("worker.test").get()));
}

TEST_F(DnsTest, a_name_is_called_only_at_addresses_that_it_may_have) {
  const auto reached_without = [this](std::vector<std::string> refused) {
    use_client({.name_servers = names_.where(),
                .name_may_be_at = [refused](const std::string& name, const SocketAddress& address) {
                  EXPECT_EQ("worker.test", name);
                  char text[INET_ADDRSTRLEN] = {};
                  ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address.get())->sin_addr, text,
                              sizeof text);
                  return std::find(refused.begin(), refused.end(), text) == refused.end();
                }});
    return ask("worker.test").get();
  };
  EXPECT_TRUE(std::holds_alternative<HttpResponse>(reached_without({"127.0.0.2"})));
  const HttpResult none = reached_without({"127.0.0.1", "127.0.0.2"});
  ASSERT_TRUE(std::holds_alternative<TransportError>(none));
  const auto& error = std::get<TransportError>(none);
  EXPECT_EQ(Kind::resolve, error.kind);
  EXPECT_TRUE(error.nothing_sent);
  EXPECT_NE(std::string::npos, error.text.find("may be called")) << error.text;
}

TEST_F(DnsTest, name_is_asked_for_once_by_many_calls) {
  std::vector<std::future<HttpResult>> calls;
  for (int i = 0; i < 20; ++i) calls.push_back(ask("worker.test"));
  for (auto& call : calls) EXPECT_TRUE(std::holds_alternative<HttpResponse>(call.get()));
  EXPECT_TRUE(std::holds_alternative<HttpResponse>(ask("worker.test").get()));
  EXPECT_EQ(1, names_.address_questions());
}

TEST_F(DnsTest, name_that_does_not_exist_is_told_as_such) {
  const auto error = std::get<TransportError>(ask("nobody.test").get());
  EXPECT_EQ(Kind::resolve, error.kind);
  EXPECT_TRUE(error.nothing_sent);
  EXPECT_NE(std::string::npos, error.text.find("'nobody.test'")) << error.text;
}

TEST_F(DnsTest, dead_name_stalls_nobody_else) {
  auto dead = ask("dead.test", 400ms);
  EXPECT_TRUE(std::holds_alternative<HttpResponse>(ask("worker.test").get()));
  EXPECT_EQ(std::future_status::timeout, dead.wait_for(0s));
  const auto error = std::get<TransportError>(dead.get());
  EXPECT_EQ(Kind::timeout, error.kind);
  EXPECT_TRUE(error.nothing_sent);
  EXPECT_EQ("host name 'dead.test' not resolved within 0.4 s", error.text);
}

TEST_F(DnsTest, client_may_end_while_a_name_is_asked_for) {
  auto dead = ask("dead.test");
  on_loop([&] { client_.reset(); });
  EXPECT_EQ(Kind::cancelled, std::get<TransportError>(dead.get()).kind);
}

}  // namespace weighlock::testing
