#include "weighlock/runtime/log.hpp"

#include <fmt/format.h>

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <ctime>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

namespace weighlock {

namespace {

constexpr std::size_t kLinesMax = 8192;  // some seconds of a busy gateway, about 1 MB
constexpr Milliseconds kExitWait{1000};
constexpr std::array<std::string_view, 4> kLevels = {"DEBUG", "INFO", "WARN", "ERROR"};

std::string timestamp() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  std::tm utc{};
  gmtime_r(&now.tv_sec, &utc);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday,
                     utc.tm_hour, utc.tm_min, utc.tm_sec, now.tv_nsec / 1'000'000);
}

// Control characters never reach the log: a peer's text must not forge lines. In JSON quotes are escaped too.
std::string escaped(std::string_view text, bool json) {
  std::string out;
  out.reserve(text.size() + 2);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      out += "\\n";
    } else if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\u{:04x}", byte);
    } else if (json && (c == '"' || c == '\\')) {
      out += '\\';
      out += c;
    } else {
      out += c;
    }
  }
  return out;
}

class Log {
 public:
  std::atomic<LogLevel> level{LogLevel::info};
  std::atomic<bool> json{false};
  std::atomic<int> descriptor{2};
  std::atomic<std::uint64_t> dropped{0};

  void push(LogLevel at, std::string_view message) {
    std::string line = render(at, message);
    const std::scoped_lock lock(mutex_);
    if (!started_) start();
    if (lines_.size() >= kLinesMax) {
      lines_.pop_front();
      ++dropped;
    }
    lines_.push_back(std::move(line));
    changed_.notify_all();
  }

  void write_now(LogLevel at, std::string_view message) const {
    const std::string line = render(at, message);
    pollfd ready{descriptor, POLLOUT, 0};
    if (::poll(&ready, 1, static_cast<int>(kExitWait.count())) != 1) return;
    // Nobody is left to be told that it failed.
    [[maybe_unused]] const ssize_t written = ::write(descriptor, line.data(), line.size());
  }

  bool flush(Milliseconds at_most) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, at_most, [this] { return lines_.empty() && !writing_; });
  }

 private:
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<std::string> lines_;
  bool started_ = false;
  bool writing_ = false;
  std::uint64_t dropped_reported_ = 0;  // the writing thread's

  std::string render(LogLevel at, std::string_view message) const {
    const std::string_view word = kLevels.at(static_cast<std::size_t>(at));
    if (!json) return fmt::format("{} {} {}\n", timestamp(), word, escaped(message, false));
    return fmt::format("{{\"time\":\"{}\",\"level\":\"{}\",\"message\":\"{}\"}}\n", timestamp(), word,
                       escaped(message, true));
  }

  // The thread is never joined: a stuck stderr must not keep the process from ending.
  void start() {
    started_ = true;
    // Signals belong to the loop's thread.
    sigset_t all{};
    sigset_t before{};
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    std::thread([this] { write_lines(); }).detach();
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    std::atexit([] { log_flush(kExitWait); });
  }

  void write_lines() {
    while (true) {
      std::string line;
      {
        std::unique_lock lock(mutex_);
        writing_ = false;
        if (lines_.empty()) changed_.notify_all();
        changed_.wait(lock, [this] { return !lines_.empty(); });
        line = std::move(lines_.front());
        lines_.pop_front();
        writing_ = true;
      }
      const std::uint64_t lost = dropped;
      if (lost != dropped_reported_) {
        line = render(LogLevel::warn,
                      fmt::format("{} log lines were dropped: stderr is too slow", lost - dropped_reported_)) +
               line;
        dropped_reported_ = lost;
      }
      write_all(line);
    }
  }

  void write_all(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t n = ::write(descriptor, bytes.data(), bytes.size());
      if (n > 0) {
        bytes.remove_prefix(static_cast<std::size_t>(n));
      } else if (errno == EAGAIN) {
        pollfd ready{descriptor, POLLOUT, 0};
        ::poll(&ready, 1, -1);
      } else if (errno != EINTR) {
        return;  // stderr is gone: there is nobody to tell
      }
    }
  }
};

// Never destroyed: the writing thread and late callers use it until the process ends.
Log& the_log() {
  static Log* const log = new Log;
  return *log;
}

}  // namespace

void log_init(LogLevel level, bool json) {
  the_log().level = level;
  the_log().json = json;
}

void log_to(int descriptor) {
  the_log().descriptor = descriptor;
}

bool log_enabled(LogLevel level) {
  return level >= the_log().level;
}

void log_formatted(LogLevel level, fmt::string_view format, fmt::format_args arguments) {
  the_log().push(level, fmt::vformat(format, arguments));
}

void log_now(LogLevel level, std::string_view message) {
  if (log_enabled(level)) the_log().write_now(level, message);
}

std::uint64_t log_dropped() {
  return the_log().dropped;
}

bool log_flush(Milliseconds at_most) {
  return the_log().flush(at_most);
}

}  // namespace weighlock
