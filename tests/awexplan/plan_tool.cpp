// Puts reports of AWEX workers right, from files: what the gateway does at connect, for tests and measurements.
//
//   awex_plan_tool DIRECTORY TRAIN_RANKS ENGINE_RANKS ENGINES [--no-plan]
//   awex_plan_tool --never-meet RANKS
//
// Reads DIRECTORY/train-<i>.json and DIRECTORY/infer-<e>.json, each a worker's answer. Writes
// training_params_meta.json, infer_params_meta.json (what workers are served) and plan.tsv (one line an operation, each
// rank's in its order: rank, peer, tensor, send offset, receive offset, shape). Prints times and statistics as JSON. A
// refusal: exit code 1, the text on stderr. The second form prints the pairs of ranks of a colocated group that never
// exchange anything, a line each.
#include <fmt/format.h>

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <fstream>

#include <string>
#include <utility>
#include <vector>

#include "weighlock/awex/colocated.hpp"
#include "weighlock/awex/predict.hpp"
#include "weighlock/awex/repair.hpp"
#include "weighlock/awex/serve.hpp"

namespace weighlock::awex {
namespace {

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

long resident_kib_max() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  std::string text(static_cast<std::size_t>(std::max<std::streamoff>(0, file.tellg())), '\0');
  file.seekg(0);
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  return text;
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary).write(text.data(), static_cast<std::streamsize>(text.size()));
}

struct Reading {
  double parse_seconds = 0;
  std::uint64_t bytes = 0;
};

Result<std::vector<Report>> read_side(const std::string& directory, Side side, std::uint32_t count, Reading& reading) {
  std::vector<Report> reports;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::string name = fmt::format("{}-{}", side == Side::train ? "train" : "infer", i);
    const std::string body = read_file(directory + "/" + name + ".json");
    const double before = cpu_seconds();
    Result<Report> report = parse_report({side, i, "http://" + name}, body);
    reading.parse_seconds += cpu_seconds() - before;
    reading.bytes += body.size();
    if (!report) return std::move(report).error();
    reports.push_back(std::move(*report));
  }
  return reports;
}

std::string plan_text(const Repaired& repaired, const Plan& plan) {
  std::string out;
  for (std::uint32_t rank = 0; rank < repaired.topology.world(); ++rank) {
    const bool sends = rank >= repaired.topology.infer_ranks();
    for (const Operation* op : operations_of(repaired, plan, rank))
      out += fmt::format("{}\t{}\t{}\t{}\t{}\t{}\n", rank, sends ? op->recv_rank : op->send_rank,
                         repaired.train.tensors[op->tensor].name, text(send_offset(repaired, *op)),
                         text(recv_offset(repaired, *op)), text(op->part.shape));
  }
  return out;
}

Status run(const std::string& directory, const Topology& topology, bool with_plan) {
  Reading reading;
  Result<std::vector<Report>> train = read_side(directory, Side::train, topology.train_ranks, reading);
  if (!train) return std::move(train).error();
  Result<std::vector<Report>> infer = read_side(directory, Side::infer, topology.engines, reading);
  if (!infer) return std::move(infer).error();
  double at = cpu_seconds();
  const auto passed = [&at] {
    const double before = std::exchange(at, cpu_seconds());
    return at - before;
  };
  Result<Repaired> repaired = repair(*train, *infer, topology);
  if (!repaired) return std::move(repaired).error();
  const double repair_seconds = passed();
  const Served served = *serialise(*repaired, SIZE_MAX);
  const double serve_seconds = passed();
  // What the gateway does at connect.
  const Status lists_proven = prove(*repaired);
  if (!lists_proven) return lists_proven;
  const double lists_seconds = passed();
  const Plan plan = predict(*repaired);
  const double predict_seconds = passed();
  const Status proven = prove(*repaired, plan);
  if (!proven) return proven;
  const double prove_seconds = passed();
  const Statistics s = statistics(*repaired, plan);
  write_file(directory + "/training_params_meta.json", served.train);
  write_file(directory + "/infer_params_meta.json", served.infer);
  if (with_plan) write_file(directory + "/plan.tsv", plan_text(*repaired, plan));
  fmt::print(
      "{{\"reported_bytes\":{},\"served_train_bytes\":{},\"served_infer_bytes\":{},\"parse_s\":{:.3f},\"repair_s\":{:."
      "3f},"
      "\"serialise_s\":{:.3f},\"prove_lists_s\":{:.3f},\"pairs\":{},\"predict_s\":{:.3f},\"prove_s\":{:.3f},"
      "\"operations\":{},\"needed\":{},\"sent\":{},"
      "\"busiest\":{},\"lower_bound\":{},\"idle\":{},\"moved\":{},\"resident_kib\":{}}}\n",
      reading.bytes, served.train.size(), served.infer.size(), reading.parse_seconds, repair_seconds, serve_seconds,
      lists_seconds, pairs_of_parts(*repaired), predict_seconds, prove_seconds, plan.operations.size(), s.needed,
      s.total_sent, s.busiest, s.lower_bound, s.idle, repaired->moved, resident_kib_max());
  return {};
}

void print_never_meeting(std::uint32_t ranks) {
  for (std::uint32_t one = 0; one < ranks; ++one)
    for (std::uint32_t other = 0; other < ranks; ++other)
      if (!ranks_meet(one, other, ranks)) fmt::print("{} {}\n", one, other);
}

}  // namespace
}  // namespace weighlock::awex

int main(int count, char** words) {
  using namespace weighlock;
  const auto number = [words](int i) { return static_cast<std::uint32_t>(std::strtoul(words[i], nullptr, 10)); };
  if (count == 3 && std::string(words[1]) == "--never-meet") {
    awex::print_never_meeting(number(2));
    return 0;
  }
  if (count < 5) {
    fmt::print(stderr,
               "usage: awex_plan_tool DIRECTORY TRAIN_RANKS ENGINE_RANKS ENGINES [--no-plan] | --never-meet RANKS\n");
    return 2;
  }
  const Status done = awex::run(words[1], {number(2), number(3), number(4)}, count < 6);
  if (done) return 0;
  fmt::print(stderr, "{}\n", done.error().text());
  return 1;
}
