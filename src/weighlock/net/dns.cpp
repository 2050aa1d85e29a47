#include "weighlock/net/dns.hpp"

#include <ares.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/time.h>

#include <cstring>
#include <optional>
#include <unordered_map>

#include "weighlock/core/check.hpp"
#include "weighlock/runtime/watch.hpp"

namespace weighlock {

namespace {

constexpr Milliseconds kRemember{10'000};       // a worker that moves is found again within one reconcile period
constexpr Milliseconds kRememberFailure{1000};  // a thousand calls to a dead name are one question
constexpr int kTryTimeoutMs = 1500;             // two tries are over before limits::kConnectTimeout
constexpr int kTries = 2;
constexpr std::size_t kRememberedMax = 8192;

}  // namespace

struct Resolver::Implementation {
  struct Known {
    Answer answer;
    Instant until;
  };

  Loop& loop;
  ares_channel channel = nullptr;
  std::unordered_map<int, std::unique_ptr<Watch>> watches;  // c-ares' sockets, duplicated: it closes its own
  std::optional<Loop::TimerId> timer;
  std::unordered_map<std::string, Known> known;
  std::unordered_map<std::string, std::vector<std::function<void(const Answer&)>>> asked;
  bool ending = false;
  std::shared_ptr<bool> alive = std::make_shared<bool>(true);

  struct Question {
    Implementation* self;
    std::string host;
  };

  Implementation(Loop& on, const std::string& servers) : loop(on) {
    static const int ready = ares_library_init(ARES_LIB_INIT_ALL);
    WEIGHLOCK_CHECK(ready == ARES_SUCCESS, "c-ares starts");
    ares_options options{};
    options.timeout = kTryTimeoutMs;
    options.tries = kTries;
    options.sock_state_cb = [](void* self, ares_socket_t socket, int readable, int writable) {
      static_cast<Implementation*>(self)->watch(socket, readable != 0, writable != 0);
    };
    options.sock_state_cb_data = this;
    const int made =
        ares_init_options(&channel, &options, ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_SOCK_STATE_CB);
    WEIGHLOCK_CHECK(made == ARES_SUCCESS, "c-ares makes a channel");
    if (!servers.empty()) {
      const int set = ares_set_servers_ports_csv(channel, servers.c_str());
      WEIGHLOCK_CHECK(set == ARES_SUCCESS, "name servers are addresses, with or without ports");
    }
  }

  ~Implementation() {
    ending = true;
    *alive = false;
    if (timer) loop.cancel(*timer);
    ares_destroy(channel);
  }

  void watch(int socket, bool readable, bool writable) {
    if (ending) return;
    if (!readable && !writable) {
      watches.erase(socket);
      return;
    }
    auto& entry = watches[socket];
    if (entry == nullptr) {
      const int copy = ::fcntl(socket, F_DUPFD_CLOEXEC, 0);
      if (copy < 0) return;  // the question times out
      entry = std::make_unique<Watch>(loop, copy);
    }
    if (readable) arm_read(socket, *entry);
    if (writable) arm_write(socket, *entry);
  }

  void arm_read(int socket, Watch& on) {
    on.when_readable([this, socket] {
      ares_process_fd(channel, socket, ARES_SOCKET_BAD);
      after_step(socket, &Implementation::arm_read);
    });
  }

  void arm_write(int socket, Watch& on) {
    on.when_writable([this, socket] {
      ares_process_fd(channel, ARES_SOCKET_BAD, socket);
      schedule();
    });
  }

  void after_step(int socket, void (Implementation::*arm)(int, Watch&)) {
    if (const auto still = watches.find(socket); still != watches.end()) (this->*arm)(socket, *still->second);
    schedule();
  }

  // c-ares says when it next wants to look at its clock.
  void schedule() {
    if (timer) loop.cancel(*timer);
    timer.reset();
    timeval room{};
    const timeval* next = ares_timeout(channel, nullptr, &room);
    if (next == nullptr) return;
    timer = loop.after(Milliseconds(next->tv_sec * 1000 + next->tv_usec / 1000 + 1), [this] {
      timer.reset();
      ares_process_fd(channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
      schedule();
    });
  }

  void ask(const std::string& host) {
    ares_addrinfo_hints hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    ares_getaddrinfo(
        channel, host.c_str(), nullptr, &hints,
        [](void* raw, int status, int, ares_addrinfo* info) {
          const std::unique_ptr<Question> question(static_cast<Question*>(raw));
          if (!question->self->ending) question->self->answered(question->host, status, info);
          if (info != nullptr) ares_freeaddrinfo(info);
        },
        new Question{this, host});
    schedule();
  }

  void answered(const std::string& host, int status, const ares_addrinfo* info) {
    Answer answer;
    for (const ares_addrinfo_node* node = info == nullptr ? nullptr : info->nodes; node != nullptr;
         node = node->ai_next) {
      SocketAddress address;
      if (node->ai_addrlen > sizeof address.storage) continue;
      std::memcpy(&address.storage, node->ai_addr, node->ai_addrlen);
      address.size = node->ai_addrlen;
      answer.addresses.push_back(address);
    }
    if (answer.addresses.empty()) {
      answer.error = fmt::format("host name '{}' cannot be resolved: {}", host,
                                 status == ARES_SUCCESS ? "it has no address" : ares_strerror(status));
    }
    if (known.size() >= kRememberedMax) known.clear();
    known[host] = {answer, loop.now() + (answer.addresses.empty() ? kRememberFailure : kRemember)};
    auto waiting = asked.extract(host);
    if (waiting.empty()) return;
    // Not inside c-ares: who is called may end this resolver.
    loop.post([alive = alive, all = std::move(waiting.mapped()), answer] {
      for (const auto& done : all) {
        if (*alive) done(answer);
      }
    });
  }
};

Resolver::Resolver(Loop& loop, const std::string& servers)
    : implementation_(std::make_unique<Implementation>(loop, servers)) {}
Resolver::~Resolver() = default;

void Resolver::resolve(const std::string& host, std::function<void(const Answer&)> done) {
  if (const auto address = numeric_address(host, 0)) return done({{*address}, {}});
  if (const auto found = implementation_->known.find(host);
      found != implementation_->known.end() && found->second.until > implementation_->loop.now()) {
    const Answer answer = found->second.answer;
    return done(answer);
  }
  auto& waiting = implementation_->asked[host];
  waiting.push_back(std::move(done));
  if (waiting.size() == 1) implementation_->ask(host);
}

}  // namespace weighlock
