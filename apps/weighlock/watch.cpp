// Reads pairs, workers and the newest updates every half second and prints what changed.
#include <fmt/format.h>

#include <chrono>
#include <map>
#include <ostream>
#include <thread>

#include "explain.hpp"
#include "table.hpp"
#include "terminal.hpp"

namespace weighlock::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kInterval = std::chrono::milliseconds(500);
constexpr std::size_t kUpdatesRead = 5;  // more than can end in one interval

std::int64_t unix_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

class Watch {
 public:
  Watch(client::Client& gateway, Terminal& terminal, bool json) : gateway_(gateway), terminal_(terminal), json_(json) {}

  Status look(const std::string& only) {
    std::vector<client::Pair> pairs;
    if (only.empty()) {
      Result<std::vector<client::Pair>> all = gateway_.pairs();
      if (!all) return std::move(all).error();
      pairs = std::move(*all);
    } else {
      Result<client::Pair> one = gateway_.pair(only);
      if (!one) return std::move(one).error();
      pairs.push_back(std::move(*one));
    }
    for (const client::Pair& pair : pairs) {
      committed[pair.name] = pair.committed;
      if (Status ok = look_at(pair); !ok) return ok;
    }
    return {};
  }

  std::map<std::string, std::optional<std::int64_t>> committed;

 private:
  Status look_at(const client::Pair& pair) {
    Result<std::vector<client::Update>> updates = gateway_.updates(pair.name, kUpdatesRead);
    if (!updates) return std::move(updates).error();
    for (auto update = updates->rbegin(); update != updates->rend(); ++update) {
      const std::string state = update->running() && !update->phase.empty() ? update->phase : update->state;
      const std::string text =
          update->running() ? fmt::format("{} v{} {}", pair.name, update->version, state) : ended_text(*update);
      note("update " + update->id, state, text, json::object{{"kind", "update"}, {"update", update->raw}});
    }
    Result<std::vector<json::value>> workers = gateway_.workers_raw(pair.name);
    if (!workers) return std::move(workers).error();
    for (const json::value& raw : *workers) {
      Result<client::Worker> worker = client::read_worker(raw);
      if (!worker) return std::move(worker).error();
      const std::string version = worker->version ? fmt::format(" v{}", *worker->version) : "";
      const std::string cause =
          worker->cause ? fmt::format(" ({}: {})", worker->cause->code, one_line(worker->cause->message)) : "";
      note("worker " + pair.name + " " + worker->url, worker->state + version + cause,
           fmt::format("{} {} {}{}{}", pair.name, worker->url, worker->state, version, cause),
           json::object{{"kind", "worker"}, {"pair", pair.name}, {"worker", raw}});
    }
    return {};
  }

  // What became of a worker has a line of its own.
  static std::string ended_text(const client::Update& update) {
    const std::string whole = explain(update);
    std::string text = whole.substr(0, whole.find('\n'));
    if (update.error && update.state != "degraded")
      text += fmt::format("; why: {} ({})", one_line(update.error->message), update.error->code);
    return text;
  }

  void note(const std::string& what, const std::string& state, const std::string& text, json::object event) {
    std::string& last = last_[what];
    if (last == state) return;
    last = state;
    const std::string seen_at = time_text(unix_ms());
    if (json_) {
      event["time"] = seen_at;
      print_json(terminal_, event);
    } else {
      terminal_.out << seen_at << " " << text << "\n" << std::flush;
    }
  }

  client::Client& gateway_;
  Terminal& terminal_;
  bool json_;
  std::map<std::string, std::string> last_;
};

}  // namespace

int run_watch(const WatchArguments& arguments, Terminal& terminal) {
  client::Client gateway(client_settings(arguments.gateway));
  Watch watch(gateway, terminal, arguments.gateway.json);
  const Clock::time_point start = Clock::now();
  Clock::time_point answered = start;
  bool away = false;
  for (;;) {
    Status looked = watch.look(arguments.pair);
    const Clock::time_point now = Clock::now();
    if (looked) {
      answered = now;
      away = false;
    } else {
      // A gateway that restarts is waited for; one that was never there, or that refuses, is not.
      const ErrorCode code = looked.error().code;
      const bool may_return =
          answered != start && (code == ErrorCode::unreachable || code == ErrorCode::connection_lost);
      if (!may_return || now - answered > client::Client::kAwayMax)
        return report(terminal, looked.error(), arguments.gateway.json);
      if (!std::exchange(away, true)) terminal.err << "weighlock: the gateway is away; waiting for it\n" << std::flush;
    }
    if (arguments.until_version && watch.committed[arguments.pair].value_or(-1) >= *arguments.until_version) return 0;
    const bool over = arguments.for_s > 0 && std::chrono::duration<double>(now - start).count() >= arguments.for_s;
    if (over && !arguments.until_version) return 0;
    if (over)
      return report(terminal,
                    Error{ErrorCode::timed_out, fmt::format("pair '{}' hasn't committed v{} after {} s", arguments.pair,
                                                            *arguments.until_version, arguments.for_s)},
                    arguments.gateway.json);
    std::this_thread::sleep_for(kInterval);
  }
}

}  // namespace weighlock::cli
