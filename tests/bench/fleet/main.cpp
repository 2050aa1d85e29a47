// The fleet that both gateways are measured against; see fleet.hpp. Prints "control PORT" and serves until it is ended.
//
//   POST /setup {"infer": N, "train": M, "collective": bool, "awex_tensors": T, "latency_ms": {route: ms}}  -> the
//   workers' URLs POST /stall {"route": R, "every": 20}   each 20th worker does what R asks and doesn't answer; {}: now
//   it does POST /clear        statistics begin anew POST /close_idle   what an engine's keep-alive limit does between
//   two train steps POST /statistics   calls by route, connections, most calls in flight, the longest pause, the
//   fleet's own CPU
#include <sys/prctl.h>
#include <sys/resource.h>

#include <csignal>

#include "fleet.hpp"

int main() {
  prctl(PR_SET_PDEATHSIG, SIGTERM);  // a benchmark that dies leaves no fleet behind
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  weighlock::bench::Fleet fleet;
  fleet.run();
}
