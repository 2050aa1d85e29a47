#include "keeper.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include "weighlock/core/error.hpp"
#include "weighlock/runtime/log.hpp"

namespace weighlock {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kExitUnclean = 1;   // work may have been left for `weighlock finish`
constexpr int kExitOrphan = 127;  // the parent died before its child could ask to die with it

// Exit codes after which the gateway isn't started again. All others, and every signal, are crashes.
struct EndRow {
  int code;
  AfterEnd first;  // no gateway of this parent has answered yet
  AfterEnd later;
};
constexpr EndRow kEnds[] = {
    {0, AfterEnd::leave, AfterEnd::leave},  // told to leave
    // Told to leave, with work undone; or a start that can't succeed: the port is taken, the journal is corrupt.
    {1, AfterEnd::leave, AfterEnd::leave},
    {2, AfterEnd::leave, AfterEnd::leave},  // settings that are refused
    {3, AfterEnd::leave, AfterEnd::leave},  // another process holds the state directory
    // The journal can't be written. Who starts a gateway is told so; one that ran asks the disk again.
    {kExitJournalFailed, AfterEnd::leave, AfterEnd::start_again},
};

Milliseconds since(Clock::time_point began) {
  return std::chrono::duration_cast<Milliseconds>(Clock::now() - began);
}

std::string ordinal(int number) {
  const int last = number % 10, tens = number % 100 / 10;
  const char* const end = tens == 1 ? "th" : last == 1 ? "st" : last == 2 ? "nd" : last == 3 ? "rd" : "th";
  return fmt::format("{}{}", number, end);
}

// The signals that the parent waits for, blocked for as long as this lives.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigemptyset(&set_);
    for (const int one : {SIGTERM, SIGINT, SIGCHLD}) sigaddset(&set_, one);
    sigprocmask(SIG_BLOCK, &set_, &before_);
    ::signal(SIGCHLD, SIG_DFL);  // ignored, a child's end couldn't be waited for
    ::signal(SIGPIPE, SIG_IGN);  // a log that nobody reads any more ends nobody
  }
  ~BlockedSignals() { sigprocmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

  // The next one, or 0 when none came by then.
  int wait(std::optional<Clock::time_point> until) const {
    while (true) {
      timespec left{3600, 0};
      if (until) {
        const auto ns = std::max(std::chrono::nanoseconds(0), std::chrono::nanoseconds(*until - Clock::now()));
        left = timespec{ns.count() / 1'000'000'000, ns.count() % 1'000'000'000};
      }
      const int got = sigtimedwait(&set_, nullptr, &left);
      if (got > 0) return got;
      if (until && Clock::now() >= *until) return 0;
    }
  }

 private:
  sigset_t set_{};
  sigset_t before_{};
};

class Keeper {
 public:
  Keeper(int socket, const KeeperTimes& times) : socket_(socket), times_(times), back_off_(times) {}
  ~Keeper() {
    close_socket();
    close_pipe();
  }
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

  int run(const std::function<int(const Life&)>& gateway) {
    while (true) {
      const pid_t parent = ::getpid();
      int ends[2] = {-1, -1};
      if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return cannot("make a pipe");
      const pid_t child = ::fork();
      if (child == 0) {
        ::close(ends[0]);
        return in_child(parent, ends[1], gateway);
      }
      ::close(ends[1]);
      up_read_ = ends[0];
      if (child < 0) return cannot("fork");
      if (starts_++ > 0) tell_start(child);
      const Clock::time_point began = Clock::now();
      const ProcessEnd end = await(child);
      const bool up = was_up();
      if (const std::optional<int> code = leaves(end)) return *code;
      was_up_ = was_up_ || up;
      ended_ = end;
      if (!wait_before_next(since(began))) return kExitUnclean;
    }
  }

 private:
  static int cannot(const char* what) {
    log_now(LogLevel::error, fmt::format("can't start the gateway: {}: {}", what, std::strerror(errno)));
    return kExitUnclean;
  }

  int in_child(pid_t parent, int up_pipe, const std::function<int(const Life&)>& gateway) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(kExitOrphan);
    Life life;
    life.parent = parent;
    life.socket = std::exchange(socket_, -1);
    life.address_told = was_up_;
    life.up_pipe = up_pipe;
    sigset_t own{};
    sigemptyset(&own);
    sigaddset(&own, SIGCHLD);
    sigprocmask(SIG_UNBLOCK, &own, nullptr);
    return gateway(life);
  }

  // Waits for the end of `child`. As the first process of a container this one is handed the orphans, too.
  ProcessEnd await(pid_t child) {
    while (true) {
      int status = 0;
      for (pid_t one = 0; (one = ::waitpid(-1, &status, WNOHANG)) > 0;) {
        if (one == child)
          return WIFSIGNALED(status) ? ProcessEnd{0, WTERMSIG(status)} : ProcessEnd{WEXITSTATUS(status), 0};
      }
      const int got = signals_.wait(stop_by_);
      if (got == SIGCHLD) continue;
      if (got == 0) {
        log_now(LogLevel::error, fmt::format("the gateway didn't leave within {} ms and is killed; what it began is in "
                                             "its journal",
                                             times_.stop.count()));
      } else if (stopping()) {
        log_now(LogLevel::error, fmt::format("second signal {}: leaving at once", got));
      } else {
        begin_stop();
        ::kill(child, got);
        continue;
      }
      ::kill(child, SIGKILL);
      ::waitpid(child, &status, 0);
      return ProcessEnd{0, SIGKILL};
    }
  }

  // Nobody is let in any more: who comes now is refused once the child has closed its own, and not left in the queue.
  void begin_stop() {
    stop_by_ = Clock::now() + times_.stop;
    close_socket();
  }
  bool stopping() const { return stop_by_.has_value(); }

  // The exit code, if this end is the last one.
  std::optional<int> leaves(const ProcessEnd& end) {
    if (stopping()) return end.signal != 0 ? kExitUnclean : end.code;
    if (after_end(end, was_up_ || was_up()) == AfterEnd::start_again) return std::nullopt;
    if (was_up_) log_now(LogLevel::error, fmt::format("gateway ended ({}) and isn't started again", text_of(end)));
    return end.code == kExitJournalFailed ? kExitUnclean : end.code;
  }

  // False if the process was told to leave meanwhile.
  bool wait_before_next(Milliseconds life) {
    close_pipe();
    const Milliseconds pause = back_off_.after(life);
    if (back_off_.quick_deaths() == limits::kQuickDeathsTold)
      log_now(LogLevel::error,
              fmt::format("the gateway ended {} times in a row within {} s of its start. It is started again, every {} "
                          "s in the end; what it said before it ended tells why",
                          back_off_.quick_deaths(), times_.quick.count() / 1000, times_.again_max.count() / 1000));
    const Clock::time_point until = Clock::now() + pause;
    while (const int got = signals_.wait(until)) {
      if (got == SIGCHLD) continue;
      log_now(LogLevel::error,
              fmt::format("signal {}: leaving, while the gateway was to be started again after {}; what "
                          "it left undone is for `weighlock finish`, or the next start",
                          got, text_of(ended_)));
      return false;
    }
    return true;
  }

  void tell_start(pid_t child) const {
    log_now(LogLevel::warn, fmt::format("gateway ended ({}), started again as pid {} ({} time)", text_of(ended_), child,
                                        ordinal(starts_ - 1)));
  }

  bool was_up() {
    char byte = 0;
    up_ = up_ || ::read(up_read_, &byte, 1) == 1;
    return up_;
  }

  void close_socket() {
    if (socket_ >= 0) ::close(std::exchange(socket_, -1));
  }
  void close_pipe() {
    if (up_read_ >= 0) ::close(std::exchange(up_read_, -1));
    up_ = false;
  }

  BlockedSignals signals_;
  int socket_;
  KeeperTimes times_;
  BackOff back_off_;
  std::optional<Clock::time_point> stop_by_;  // set: told to leave
  ProcessEnd ended_;                          // the one before
  int starts_ = 0;
  int up_read_ = -1;     // a byte comes when the present gateway answers
  bool up_ = false;      // ... it came
  bool was_up_ = false;  // one before did
};

}  // namespace

std::string text_of(const ProcessEnd& end) {
  return end.signal != 0 ? fmt::format("signal {}", end.signal) : fmt::format("exit code {}", end.code);
}

AfterEnd after_end(const ProcessEnd& end, bool was_up) {
  if (end.signal != 0) return AfterEnd::start_again;
  for (const EndRow& row : kEnds) {
    if (row.code == end.code) return was_up ? row.later : row.first;
  }
  return AfterEnd::start_again;
}

Milliseconds BackOff::after(Milliseconds life) {
  if (life >= times_.quick) {
    next_ = times_.again;
    quick_deaths_ = 0;
  } else {
    ++quick_deaths_;
  }
  return std::exchange(next_, std::min(next_ * 2, times_.again_max));
}

void Life::up() const {
  const char byte = 1;
  // Nobody reads it any more: then the parent is gone, and this process with it.
  if (up_pipe >= 0 && ::write(up_pipe, &byte, 1) != 1) log_warn("can't tell the parent that the gateway is up");
}

void Life::take_signals() const {
  if (parent == 0) return;
  sigset_t own{};
  sigemptyset(&own);
  for (const int one : {SIGTERM, SIGINT}) sigaddset(&own, one);
  pthread_sigmask(SIG_UNBLOCK, &own, nullptr);
}

int keep_gateway(int socket, const KeeperTimes& times, const std::function<int(const Life&)>& gateway) {
  return Keeper(socket, times).run(gateway);
}

}  // namespace weighlock
