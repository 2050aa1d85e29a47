#include "weighlock/gateway/readiness.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "weighlock/core/url.hpp"
#include "weighlock/engines/dialect.hpp"

namespace weighlock {
namespace {

std::string known_of(const protocol::Worker& worker) {
  return fmt::format("{}\n{}\n{}", worker.incarnation, worker.start_label, fmt::join(worker.labels, "\n"));
}

}  // namespace

void Readiness::read(const protocol::Worker& worker, std::function<void(const Reading&)> then) {
  State& state = workers_[worker.url];
  const bool fresh = state.read_at && loop_.now() - *state.read_at <= kFresh && state.known == known_of(worker);
  if (!state.reading && fresh) return then(state.last);
  state.waiting.push_back(std::move(then));
  if (state.reading) return;
  Result<Url> url = parse_url(worker.url);
  WEIGHLOCK_CHECK(url, "a registered worker has a good URL");
  state.reading = true;
  state.known = known_of(worker);
  EngineTask task;
  task.operation.kind = OperationKind::read_state;
  task.credentials = credentials_.of(worker.url);
  calls_.start(*std::move(url), start_conversation(*worker.dialect, std::move(task)), kReadAtMost,
               [this, worker_url = worker.url](const Outcome& outcome) { finish(worker_url, outcome); });
}

void Readiness::finish(const std::string& worker_url, const Outcome& outcome) {
  State& state = workers_[worker_url];
  state.reading = false;
  state.read_at = loop_.now();
  state.last = Reading{outcome.reading, !outcome.ok() && outcome.code == ErrorCode::timed_out, outcome.text};
  for (const auto& then : std::exchange(state.waiting, {})) then(state.last);
}

std::string doubt_of(const protocol::Worker& worker, const Readiness::Reading& reading) {
  if (reading.silent) return "";
  if (!reading.state) return "it can't be read: " + reading.text;
  if (reading.state->paused) return "the engine says that it is paused";
  if (!protocol::was_read(worker)) return "";
  const std::string& now = reading.state->incarnation;
  if (!worker.incarnation.empty() && !now.empty() && now != worker.incarnation)
    return fmt::format("another process answers (started {}, known {}): it serves what it started with", now,
                       worker.incarnation);
  const std::string& label = reading.state->label;
  const bool ours = worker.labels.empty()
                        ? label == worker.start_label
                        : std::find(worker.labels.begin(), worker.labels.end(), label) != worker.labels.end();
  if (ours) return "";
  return fmt::format("its label is '{}', which should be '{}'", label,
                     worker.labels.empty() ? worker.start_label : worker.labels.back());
}

}  // namespace weighlock
