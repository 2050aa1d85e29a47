#include "weighlock/gateway/readiness.hpp"

#include <utility>

#include "weighlock/core/url.hpp"
#include "weighlock/engines/dialect.hpp"

namespace weighlock {

void Readiness::read(const std::string& worker_url, DialectKind dialect, std::function<void(const Reading&)> then) {
  State& state = workers_[worker_url];
  if (!state.reading && state.read_at && loop_.now() - *state.read_at <= kFresh) return then(state.last);
  state.waiting.push_back(std::move(then));
  if (state.reading) return;
  Result<Url> url = parse_url(worker_url);
  WEIGHLOCK_CHECK(url, "a registered worker has a good URL");
  state.reading = true;
  EngineTask task;
  task.operation.kind = OperationKind::read_state;
  task.credentials = credentials_.of(worker_url);
  calls_.start(*std::move(url), start_conversation(dialect, std::move(task)), kReadAtMost,
               [this, worker_url](const Outcome& outcome) { finish(worker_url, outcome); });
}

void Readiness::finish(const std::string& worker_url, const Outcome& outcome) {
  State& state = workers_[worker_url];
  state.reading = false;
  state.read_at = loop_.now();
  state.last = Reading{};
  state.last.paused = outcome.reading && outcome.reading->paused;
  state.last.refused = outcome.kind == OutcomeKind::not_sent;
  state.last.text = outcome.text;
  for (const auto& then : std::exchange(state.waiting, {})) then(state.last);
}

}  // namespace weighlock
