#include "progress.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <ostream>

#include "explain.hpp"
#include "table.hpp"

namespace weighlock::cli {
namespace {

// Workers that are through the phase, where the verdicts tell.
std::int64_t done_in(const client::Update& update) {
  if (update.phase == "loading") return std::count_if(update.workers.begin(), update.workers.end(), took_part_fully);
  return std::count_if(update.workers.begin(), update.workers.end(), verified);
}

bool counts_workers(const std::string& phase) {
  return phase == "loading" || phase == "verifying" || phase == "resuming" || phase == "restoring";
}

}  // namespace

std::string Progress::line(const client::Update& update, std::int64_t now_ms) const {
  const std::int64_t elapsed_ms = now_ms - phase_since_ms_;
  std::string text = fmt::format("v{} {:<10}", update.version, update.phase.empty() ? update.state : update.phase);
  const auto total = static_cast<std::int64_t>(update.workers.size());
  if (counts_workers(update.phase) && total > 0) {
    const std::int64_t done = done_in(update);
    text += fmt::format("  {}/{} workers", done, total);
    if (update.phase == "loading" && update.bytes && *update.bytes > 0 && done > 0 && elapsed_ms > 0) {
      // Every worker reads all of the version.
      text += fmt::format("  {}  {}/s", bytes_text(*update.bytes * done),
                          bytes_text(*update.bytes * done * 1000 / elapsed_ms));
    }
    if (update.phase == "loading" && done > 0 && done < total)
      text += fmt::format("  ETA {}", duration_text(elapsed_ms * (total - done) / done));
  }
  return text + fmt::format("  {}", duration_text(elapsed_ms));
}

void Progress::seen(const client::Update& update, std::int64_t now_ms) {
  const std::string phase = update.phase.empty() ? update.state : update.phase;
  const bool entered = phase != phase_;
  if (entered) {
    if (terminal_.live && !phase_.empty()) terminal_.err << "\n";
    phase_ = phase;
    phase_since_ms_ = now_ms;
    shown_.clear();
  }
  if (terminal_.live) {
    const std::string text = line(update, now_ms);
    if (text != shown_) terminal_.err << "\r\x1b[K" << text << std::flush;
    shown_ = text;
  } else if (entered && update.running()) {
    terminal_.err << fmt::format("update {} of pair {}: v{} {}\n", update.id, update.pair, update.version, phase)
                  << std::flush;
  }
}

void Progress::finish() {
  if (terminal_.live && !phase_.empty()) terminal_.err << "\n" << std::flush;
  phase_.clear();
}

}  // namespace weighlock::cli
