// How long it takes to plan a DeepSeek-V3-sized transfer for all 384 ranks, on one core. Prints one JSON object.
//
//   plan_bench [RUNS]      exits 1 if a plan is wrong
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>

#include "deepseek.hpp"
#include "weighlock/core/json.hpp"
#include "weighlock/reshard/plan.hpp"
#include "weighlock/reshard/prove.hpp"
#include "weighlock/reshard/statistics.hpp"

namespace {

using namespace weighlock;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

int main(int argc, char** argv) {
  const int runs = argc > 1 ? std::max(1, std::atoi(argv[1])) : 3;
  const Clock::time_point start = Clock::now();
  const bench::Transfer transfer = bench::deepseek_transfer();
  json::object out{{"tensors", transfer.infer.tensors().size()},
                   {"shards", transfer.train.shards().size() + transfer.infer.shards().size()},
                   {"describe_s", seconds_since(start)}};
  json::array planned, proved;
  for (int run = 0; run < runs; ++run) {
    const Clock::time_point began = Clock::now();
    const Result<reshard::Plan> plan = reshard::make_plan(transfer.train, transfer.infer);
    planned.emplace_back(seconds_since(began));
    if (!plan) {
      std::cerr << plan.error().text() << "\n";
      return 1;
    }
    const Clock::time_point again = Clock::now();
    const Status ok = reshard::prove(transfer.train, transfer.infer, *plan);
    proved.emplace_back(seconds_since(again));
    if (!ok) {
      std::cerr << ok.error().text() << "\n";
      return 1;
    }
    if (run > 0) continue;
    const reshard::Statistics found = reshard::statistics(transfer.train, transfer.infer, *plan);
    out["operations"] = found.operations;
    out["digest"] = plan->digest;
    out["redundancy"] = found.redundancy;
    out["busiest_bytes"] = found.busiest;
    out["lower_bound_bytes"] = plan->lower_bound_bytes;
    out["over_bound"] = found.over_bound;
    out["over_mean"] = found.over_mean;
    out["idle"] = found.idle;
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  out["plan_s"] = std::move(planned);
  out["prove_s"] = std::move(proved);
  out["peak_mb"] = usage.ru_maxrss / 1024;
  std::cout << json::serialize(out) << "\n";
  return 0;
}
