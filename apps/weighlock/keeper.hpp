// The parent of `weighlock serve`: starts the gateway as its child, and starts it again when it crashed.
//
// It does nothing else: it forks, waits, and passes SIGTERM and SIGINT on, after which nothing is started again. The
// child has what the parent has read (settings, keys) and the parent's socket, so that clients that come between two
// lives wait in its queue, and a port that was drawn stays. The child dies with its parent (SIGKILL), so no orphan
// holds the port or the state directory.
//
// Thread rule: the calling thread is the process's only one; a fork takes no other along. Blocks until the end.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>

#include "weighlock/core/limits.hpp"
#include "weighlock/core/time.hpp"

namespace weighlock {

// How a process ended: by a signal, or by itself with a code.
struct ProcessEnd {
  int code = 0;
  int signal = 0;  // 0: by itself
};
std::string text_of(const ProcessEnd& end);  // "signal 9", "exit code 70"

// `was_up`: this gateway or one before it answered requests. The table is in keeper.cpp.
enum class AfterEnd { leave, start_again };
AfterEnd after_end(const ProcessEnd& end, bool was_up);

struct KeeperTimes {
  Milliseconds again{limits::kRestartAfter};
  Milliseconds again_max{limits::kRestartAfterMax};
  Milliseconds quick{limits::kQuickDeath};
  Milliseconds stop{limits::kStopEnforced};
};

// How long to wait before the next start. Pure.
class BackOff {
 public:
  explicit BackOff(const KeeperTimes& times) : times_(times), next_(times.again) {}
  // `life`: how long the one that ended has lived.
  Milliseconds after(Milliseconds life);
  int quick_deaths() const { return quick_deaths_; }  // in a row

 private:
  KeeperTimes times_;
  Milliseconds next_;
  int quick_deaths_ = 0;
};

// What the gateway's process knows of its parent. Without one (`--no-restart`) nothing is set and all calls do nothing.
struct Life {
  pid_t parent = 0;           // 0: none
  int socket = -1;            // bound; the parent's own, for as long as both live
  bool address_told = false;  // a life before this one said where it listens
  int up_pipe = -1;

  void up() const;            // requests are answered from now on
  void take_signals() const;  // SIGTERM and SIGINT come through; until then they wait
};

// Runs `gateway` in a child, again and again, until it ended for good; gives the exit code of this process. `socket` is
// bound and not listened on; it is closed by SIGTERM. In the child the call returns what `gateway` gave.
int keep_gateway(int socket, const KeeperTimes& times, const std::function<int(const Life&)>& gateway);

}  // namespace weighlock
