// One worker of a pair is added, removed, drained, quarantined or released.
#include <fmt/format.h>

#include <algorithm>

#include "weighlock/protocol/phases.hpp"

namespace weighlock::protocol {
namespace {

void reply(Context& context, ReplyToken token, std::optional<Error> error) {
  if (token != 0) context.emit(Reply{token, std::move(error), {}, {}});
}

std::optional<Error> refuse_change(Context& context, const ChangeWorker& event) {
  const auto it = context.state().pairs.find(event.pair);
  if (it == context.state().pairs.end())
    return Error{ErrorCode::not_found, fmt::format("pair '{}' not found", event.pair), nullptr};
  const auto& list = it->second.spec.workers;
  const bool listed =
      std::any_of(list.begin(), list.end(), [&](const WorkerSpec& spec) { return spec.url == event.worker.url; });
  if (event.change != WorkerChange::add && !listed)
    return Error{ErrorCode::not_found, fmt::format("pair '{}': it has no worker {}", event.pair, event.worker.url),
                 nullptr};
  return std::nullopt;
}

}  // namespace

void on_change_worker(Context& context, const ChangeWorker& event) {
  if (auto error = refuse_change(context, event)) return reply(context, event.token, std::move(error));
  reply(context, event.token,
        Error{ErrorCode::conflict, fmt::format("pair '{}': connect it again with the wanted workers", event.pair),
              nullptr});
}

}  // namespace weighlock::protocol
