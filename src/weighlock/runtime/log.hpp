// Log lines to stderr, that never block who writes them.
//
// A line goes into a bounded queue; a thread of its own writes it. When stderr stands still the oldest waiting lines
// are dropped and counted, and the next line that comes through says how many. At exit the queue gets a second to
// empty. (Why not an async spdlog logger: its exit waits for a stuck stderr for ever, and it can't write JSON.)
//
// Thread rule: safe from any thread. The only process-wide state of the project. Before `log_init`: level info, plain
// text.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <string_view>

#include "weighlock/core/time.hpp"

namespace weighlock {

enum class LogLevel { debug, info, warn, error };

// `json`: one JSON object a line, {"time", "level", "message"}; otherwise "2026-01-02T03:04:05.678Z WARN message".
void log_init(LogLevel level, bool json = false);
// Lines go to this descriptor from now on (2 at first). For tests.
void log_to(int descriptor);

bool log_enabled(LogLevel level);
void log_formatted(LogLevel level, fmt::string_view format, fmt::format_args arguments);

// Writes the line at once and on this thread, which waits for stderr a second at most. For a process that forks, and so
// must not have the queue's thread.
void log_now(LogLevel level, std::string_view message);

// Lines dropped since the start, because stderr was too slow.
std::uint64_t log_dropped();
// Waits until all lines are written, at most this long; tells whether they are.
bool log_flush(Milliseconds at_most);

template <typename... Arguments>
void log_debug(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  if (log_enabled(LogLevel::debug)) log_formatted(LogLevel::debug, format, fmt::make_format_args(arguments...));
}
template <typename... Arguments>
void log_info(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  if (log_enabled(LogLevel::info)) log_formatted(LogLevel::info, format, fmt::make_format_args(arguments...));
}
template <typename... Arguments>
void log_warn(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  if (log_enabled(LogLevel::warn)) log_formatted(LogLevel::warn, format, fmt::make_format_args(arguments...));
}
template <typename... Arguments>
void log_error(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  if (log_enabled(LogLevel::error)) log_formatted(LogLevel::error, format, fmt::make_format_args(arguments...));
}

}  // namespace weighlock
