#include <fmt/format.h>

#include <chrono>
#include <ostream>

#include "explain.hpp"
#include "progress.hpp"
#include "terminal.hpp"

namespace weighlock::cli {
namespace {

std::int64_t monotonic_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

int run_update(const UpdateArguments& arguments, Terminal& terminal) {
  client::Client gateway(client_settings(arguments.gateway));
  client::UpdateRequest request;
  request.version = arguments.version;
  request.path = arguments.from;
  request.policy = arguments.policy;
  request.idempotency_key = arguments.key;
  Result<client::Update> update = gateway.start_update(arguments.pair, request);
  if (!update) return report(terminal, update.error(), arguments.gateway.json);

  if (arguments.wait_s > 0 && update->running()) {
    Progress progress(terminal);
    progress.seen(*update, monotonic_ms());
    update = gateway.await_update(arguments.pair, update->id,
                                  Milliseconds(static_cast<std::int64_t>(arguments.wait_s * 1000)),
                                  [&](const client::Update& reading) { progress.seen(reading, monotonic_ms()); });
    progress.finish();
    if (!update) return report(terminal, update.error(), arguments.gateway.json);
  }
  if (arguments.gateway.json) {
    print_json(terminal, update->raw);
  } else if (update->running()) {
    terminal.out << fmt::format("update {} of pair {} to v{} has started\n", update->id, update->pair, update->version);
  } else {
    terminal.out << explain(*update);
  }
  return update->running() ? 0 : exit_code(*update);
}

}  // namespace weighlock::cli
