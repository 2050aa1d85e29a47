#include "weighlock/gateway/outside.hpp"

#include <fmt/format.h>

#include <atomic>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "weighlock/core/limits.hpp"
#include "weighlock/core/url.hpp"

namespace weighlock {
namespace {

constexpr int kReadsMax = 4;  // threads that a hung mount may hold

FieldError refused(std::string field, ErrorCode code, std::string_view what) {
  Error error{code, fmt::format("{}: {}", field, what)};
  return FieldError{std::move(field), std::move(error)};
}

}  // namespace

struct Outside::Look {
  std::vector<DoubtfulHost> hosts;
  std::vector<KeyFile> keys;
  Done done;
  std::size_t waiting = 0;
  std::vector<std::string> why_not;  // by host; "" = good
  std::optional<Loop::TimerId> timer;

  void end(std::optional<FieldError> failure) {
    if (Done then = std::exchange(done, nullptr)) then(std::move(failure), std::move(keys));
  }
};

// How a thread that may outlive everything else reaches the loop.
struct Outside::Door {
  std::mutex mutex;
  Loop* loop;  // null once `Outside` is gone; guarded by `mutex`
  std::atomic<int> reads{0};

  explicit Door(Loop& to) : loop(&to) {}
  void post(std::function<void()> work) {
    const std::scoped_lock lock(mutex);
    if (loop != nullptr) loop->post(std::move(work));
  }
};

void find_doubtful(const Confinement& confinement, const std::vector<std::string>& urls, std::string_view field,
                   std::string_view after_index, std::vector<DoubtfulHost>& out) {
  for (std::size_t i = 0; i < urls.size(); ++i) {
    const Result<Url> url = parse_url(urls[i]);
    if (url && confinement.proof_needed(*url))
      out.push_back({fmt::format("{}[{}]{}", field, i, after_index), url->host});
  }
}

Outside::Outside(Loop& loop, HttpClient& http, ReadFile read_file)
    : loop_(loop), http_(http), read_file_(std::move(read_file)), door_(std::make_shared<Door>(loop)) {}

Outside::~Outside() {
  const std::scoped_lock lock(door_->mutex);
  door_->loop = nullptr;
}

void Outside::look(std::vector<DoubtfulHost> hosts, std::vector<KeyFile> keys, Done done) {
  const auto look = std::make_shared<Look>();
  look->hosts = std::move(hosts);
  look->keys = std::move(keys);
  look->done = std::move(done);
  look_at_hosts(look);
}

void Outside::look_at_hosts(const std::shared_ptr<Look>& look) {
  look->why_not.resize(look->hosts.size());
  look->waiting = look->hosts.size() + 1;
  const auto one_less = [this, look, alive = std::weak_ptr(alive_)] {
    if (--look->waiting > 0 || alive.expired()) return;
    for (std::size_t i = 0; i < look->hosts.size(); ++i) {
      if (look->why_not[i].empty()) continue;
      const std::string what = fmt::format(
          "{}, and it is not listed in worker_hosts by its name; start the gateway with --worker-hosts ...,{}",
          look->why_not[i], look->hosts[i].host);
      return look->end(refused(look->hosts[i].field, ErrorCode::permission_denied, what));
    }
    look_at_keys(look);
  };
  for (std::size_t i = 0; i < look->hosts.size(); ++i) {
    http_.may_reach(look->hosts[i].host, [look, i, one_less](const std::string& why_not) {
      look->why_not[i] = why_not;
      one_less();
    });
  }
  one_less();
}

void Outside::look_at_keys(const std::shared_ptr<Look>& look) {
  if (look->keys.empty()) return look->end(std::nullopt);
  const std::string& field = look->keys.front().field;
  if (door_->reads >= kReadsMax)
    return look->end(
        refused(field, ErrorCode::timed_out,
                fmt::format("{} key files are being read and don't come; is their mount well?", kReadsMax)));
  look->timer = loop_.after(Milliseconds(limits::kKeyFileTimeout), [look, alive = std::weak_ptr(alive_)] {
    look->timer.reset();
    if (alive.expired()) return;
    look->end(refused(
        look->keys.front().field, ErrorCode::timed_out,
        fmt::format("a key file was not read within {} s; is its mount well?", limits::kKeyFileTimeout.count())));
  });
  std::vector<std::string> paths;
  for (const KeyFile& key : look->keys) paths.push_back(key.path);
  ++door_->reads;
  const auto job = [door = door_, loop = &loop_, alive = std::weak_ptr(alive_), read = read_file_,
                    paths = std::move(paths), look] {
    std::vector<std::optional<std::string>> held;
    for (const std::string& path : paths) held.push_back(read(path));
    --door->reads;
    door->post([loop, look, alive, held = std::move(held)] {
      if (alive.expired() || !look->done) return;  // too late
      if (look->timer) loop->cancel(*std::exchange(look->timer, std::nullopt));
      for (std::size_t i = 0; i < held.size(); ++i) {
        if (auto failure = take_key(held[i], look->keys[i])) return look->end(std::move(failure));
      }
      look->end(std::nullopt);
    });
  };
  try {
    std::thread(job).detach();
  } catch (const std::system_error& failure) {
    --door_->reads;
    loop_.cancel(*std::exchange(look->timer, std::nullopt));
    look->end(refused(field, ErrorCode::internal, fmt::format("no thread to read it: {}", failure.what())));
  }
}

}  // namespace weighlock
