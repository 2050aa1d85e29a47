#include "finish.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ostream>
#include <thread>

#include "serve.hpp"
#include "weighlock/core/limits.hpp"
#include "weighlock/gateway/gateway.hpp"
#include "weighlock/io/access.hpp"
#include "weighlock/runtime/log.hpp"
#include "weighlock/runtime/loop.hpp"

namespace weighlock {
namespace {

Status check_state(const std::string& directory) {
  RealFileSystem files;
  Status open = check_openable(files, directory + "/journal.db", true);
  if (open || open.error().code != ErrorCode::not_found) return open;
  return Error{ErrorCode::not_found, fmt::format("no gateway kept its state in '{}' (there is no journal.db); name its "
                                                 "state directory with --state-dir",
                                                 directory)};
}

// A gateway that leaves holds its state for a few seconds yet; one that goes on needs no `finish`.
Result<std::unique_ptr<Gateway>> take_state(Loop& loop, const GatewaySettings& settings, Milliseconds wait) {
  const Instant give_up_at = loop.now() + wait;
  while (true) {
    Result<std::unique_ptr<Gateway>> made = Gateway::make(loop, settings);
    if (made || made.error().code != ErrorCode::conflict) return made;
    if (loop.now() >= give_up_at)
      return wrap("a gateway that runs ends its work itself; stop it first if it doesn't", std::move(made).error());
    std::this_thread::sleep_for(limits::kStateLockRetry);
  }
}

int tell(const std::vector<FinishedWorker>& workers, bool as_json, cli::Terminal& terminal) {
  const bool left = std::any_of(workers.begin(), workers.end(), [](const auto& w) { return w.paused_by_us; });
  const int exit_code = left ? info(ErrorCode::degraded).exit_code : 0;
  if (as_json) {
    json::array list;
    for (const FinishedWorker& worker : workers) {
      list.push_back({{"pair", worker.pair},
                      {"url", worker.url},
                      {"was", worker.was},
                      {"now", worker.now},
                      {"paused", worker.paused_by_us},
                      {"cause", worker.cause.empty() ? json::value(nullptr) : json::value(worker.cause)}});
    }
    cli::print_json(terminal, json::object{{"workers", std::move(list)}});
    return exit_code;
  }
  if (workers.empty()) terminal.out << "nothing was left undone, and no worker is held paused\n";
  for (const FinishedWorker& worker : workers) {
    terminal.out << fmt::format("{} {}: {} -> {}{}{}{}\n", worker.pair, worker.url, worker.was, worker.now,
                                worker.paused_by_us ? ", held paused" : "", worker.cause.empty() ? "" : ": ",
                                worker.cause);
  }
  return exit_code;
}

}  // namespace

int run_finish(const cli::FinishArguments& arguments, cli::Terminal& terminal) {
  log_init(level_of(arguments.loaded.options.log_level));
  const GatewaySettings settings = gateway_settings(arguments.loaded.options);
  if (Status found = check_state(settings.state_dir); !found)
    return cli::report(terminal, found.error(), arguments.json);
  Loop loop;
  const Milliseconds wait(static_cast<std::int64_t>(arguments.wait_s * 1000));
  Result<std::unique_ptr<Gateway>> made = take_state(loop, settings, wait);
  if (!made) return cli::report(terminal, made.error(), arguments.json);
  int exit_code = 1;
  (*made)->finish([&](const std::vector<FinishedWorker>& workers) {
    exit_code = tell(workers, arguments.json, terminal);
    loop.stop();
  });
  loop.run();
  log_flush(Milliseconds(1000));
  return exit_code;
}

}  // namespace weighlock
