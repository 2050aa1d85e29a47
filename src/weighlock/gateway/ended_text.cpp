#include "weighlock/gateway/ended_text.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "weighlock/gateway/views.hpp"

namespace weighlock {
namespace {

using namespace protocol;

constexpr std::size_t kWorkersNamedMax = 8;  // a thousand workers that fail alike are one cause

std::string_view phase_of(CauseCode code) {
  switch (code) {
    case CauseCode::pause_failed:
      return "pause";
    case CauseCode::label_failed:
      return "label";
    case CauseCode::load_failed:
    case CauseCode::load_unknown:
    case CauseCode::adapter_failed:
      return "load";
    case CauseCode::verify_failed:
      return "verify";
    case CauseCode::flush_failed:
      return "flush";
    case CauseCode::heal_failed:
    case CauseCode::no_last_good:
      return "heal";
    case CauseCode::resume_failed:
      return "resume";
    case CauseCode::probe_failed:
      return "probe";
    default:
      return "reach";
  }
}

std::string_view committed_word(const Update& update) {
  if (!update.committed) return "undecided";
  return *update.committed ? "true" : "false";
}

const Worker* worker_of(const State& state, const std::string& url) {
  const auto it = state.workers.find(url);
  return it == state.workers.end() ? nullptr : &it->second;
}

// How the update left the worker, or what it is now while the update runs.
WorkerState state_of(const State& state, const std::string& url, const Target& target) {
  if (target.ended_as) return *target.ended_as;
  const Worker* worker = worker_of(state, url);
  return worker ? worker->state : WorkerState::gone;
}

int ready_count(const State& state, const Update& update) {
  int ready = 0;
  for (const auto& [url, target] : update.targets) {
    if (target.adapter) {  // the worker itself is as before; what counts is whether it serves this version
      ready += target.verdict == Verdict::verified ? 1 : 0;
      continue;
    }
    ready += state_of(state, url, target) == WorkerState::ready ? 1 : 0;
  }
  return ready;
}

// The target's part of the text, or "" for one of which there is nothing to tell.
std::string target_text(const State& state, const std::string& url, const Target& target) {
  const Worker* worker = worker_of(state, url);
  const bool live = !target.ended_as && worker && worker->cause && !target.adapter;
  const Cause* cause = target.cause ? &*target.cause : live ? &*worker->cause : nullptr;
  if (!cause) return "";
  const WorkerState now = state_of(state, url, target);
  const std::string_view words = cause->message.empty() ? name(cause->code) : std::string_view(cause->message);
  const std::string_view phase = phase_of(cause->code);  // most messages begin with it already
  std::string text = words.starts_with(phase) ? fmt::format("worker {}: {}", url, words)
                                              : fmt::format("worker {}: {}: {}", url, phase, words);
  if (!target.adapter && worker_state_word(now) == "quarantined")
    text += fmt::format("; {} ({})", name(now), name(cause->code));
  return text;
}

std::string targets_text(const State& state, const Update& update) {
  std::string out;
  std::size_t named = 0;
  std::size_t more = 0;
  for (const auto& [url, target] : update.targets) {
    const std::string text = target_text(state, url, target);
    if (text.empty()) continue;
    if (named == kWorkersNamedMax) {
      ++more;
      continue;
    }
    out += "; " + text;
    ++named;
  }
  if (more > 0) out += fmt::format("; and {} more workers", more);
  return out;
}

std::string seconds(Milliseconds ms) {
  return fmt::format(fmt::runtime(ms.count() < 1000 ? "{:.2f}s" : "{:.1f}s"), static_cast<double>(ms.count()) / 1000.0);
}

Milliseconds phase_took(const Update& update, UpdateState state) {
  Milliseconds total{0};
  for (const PhaseTime& phase : update.phases) {
    if (phase.state == state) total += phase.took;
  }
  return total;
}

// The machine's texts begin with pair and version, as ours do.
std::string without_prefix(std::string text, const Update& update) {
  for (const std::string& prefix :
       {fmt::format("pair '{}': ", update.pair), fmt::format("v{}: ", update.version.version)}) {
    if (text.starts_with(prefix)) text.erase(0, prefix.size());
  }
  return text;
}

}  // namespace

std::string ended_text(const State& state, const Update& update) {
  std::string text = fmt::format("pair '{}' v{}: {}", update.pair, update.version.version, name(update.state));
  if (!update.targets.empty()) text += fmt::format(": {}/{} ready", ready_count(state, update), update.targets.size());
  if (update.error) {
    const std::string why = without_prefix(update.error->text(), update);
    text += fmt::format("{} {}", update.targets.empty() ? ":" : ";",
                        why.empty() ? info(update.error->code).type : std::string_view(why));
  }
  text += targets_text(state, update);
  if (!update.error && update.targets.empty()) text += ": it ended before any worker was touched";
  return text + fmt::format("; committed: {}", committed_word(update));
}

ErrorCode ended_code(const Update& update) {
  if (update.state == UpdateState::degraded) return ErrorCode::degraded;
  return update.error ? update.error->code : ErrorCode::worker_failed;
}

std::string running_text(const Update& update, Milliseconds waited) {
  std::size_t verified = 0;
  for (const auto& [url, target] : update.targets) verified += target.verdict == Verdict::verified ? 1 : 0;
  std::string count = update.targets.empty() ? "" : fmt::format(" ({}/{} verified)", verified, update.targets.size());
  // While it runs nothing can be said for sure: the decision may be on its way to the disk.
  const bool committed = update.committed.value_or(false);
  return fmt::format(
      "pair '{}' v{}: still in {} after {}{}; it goes on, and the next update waits behind it; committed: {}",
      update.pair, update.version.version, name(update.state), seconds(waited), count,
      committed ? "true" : "undecided");
}

std::string join_line(const Update& join) {
  const std::string_view word = join.state == UpdateState::succeeded ? "ok"
                                : join.state == UpdateState::aborted ? "dropped"
                                                                     : "failed";
  std::string worker;
  for (const auto& [url, target] : join.targets) worker = url;
  const Milliseconds took = join.ended_at.value_or(join.requested_at) - join.requested_at;
  const std::string version = join.version.lineage == 0 ? "start" : fmt::format("v{}", join.version.version);
  std::string line = fmt::format("pair={} join {} {} {} {}", join.pair, worker, version, word, seconds(took));
  if (join.error) {
    std::string cause = join.error->text();
    std::replace(cause.begin(), cause.end(), '"', '\'');
    line += fmt::format(" cause=\"{}\"", cause);
  }
  return line;
}

std::string log_line(const State& state, const Update& update, Instant now) {
  const bool ok = update.state == UpdateState::succeeded;
  std::string slowest;
  Milliseconds longest{-1};
  std::string before = "none";
  for (const auto& [url, target] : update.targets) {
    if (target.load_took && *target.load_took > longest) {
      longest = *target.load_took;
      slowest = url;
    }
    if (target.former_version && target.former_version->lineage > 0)
      before = fmt::format("v{}", target.former_version->version);
  }
  // Without a commit the pair is where it was, whatever its workers hold.
  const auto pair = state.pairs.find(update.pair);
  if (before == "none" && update.committed == false && pair != state.pairs.end() && pair->second.committed)
    before = fmt::format("v{}", pair->second.committed->version);
  std::string line = fmt::format("pair={} {}->v{} {}", update.pair, before, update.version.version,
                                 ok ? std::string_view("ok") : name(update.state));
  if (!update.targets.empty()) line += fmt::format(" workers={}/{}", ready_count(state, update), update.targets.size());
  if (update.state != UpdateState::rejected)
    line += fmt::format(" save={} load={} verify={} pause={}", seconds(phase_took(update, UpdateState::preparing)),
                        seconds(phase_took(update, UpdateState::loading)),
                        seconds(phase_took(update, UpdateState::verifying)), seconds(pause_of(update, now)));
  if (!slowest.empty()) line += fmt::format(" slowest={}", slowest);
  if (!ok) {
    std::string cause = ended_text(state, update);
    std::replace(cause.begin(), cause.end(), '"', '\'');  // engines quote; one value of the line stays one value
    line += fmt::format(" cause=\"{}\"", cause);
  }
  return line;
}

}  // namespace weighlock
