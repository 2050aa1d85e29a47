// `weighlock plan TRAIN.json INFER.json`: reads both files itself; no gateway is asked.
#include <fmt/format.h>

#include <ostream>

#include "layout_file.hpp"
#include "table.hpp"
#include "terminal.hpp"
#include "weighlock/reshard/plan.hpp"
#include "weighlock/reshard/prove.hpp"
#include "weighlock/reshard/statistics.hpp"

namespace weighlock::cli {
namespace {

using reshard::Plan;
using reshard::Side;
using reshard::Statistics;

std::string bytes(std::uint64_t count) {
  return bytes_text(static_cast<std::int64_t>(count));
}

json::array numbers(const std::vector<std::uint64_t>& values) {
  json::array out;
  for (const std::uint64_t value : values) out.emplace_back(value);
  return out;
}

json::object as_json(const Side& infer, const Plan& plan, const Statistics& found) {
  json::object out{{"ok", true}, {"digest", plan.digest}};
  out["tensors"] = infer.tensors().size();
  out["operations"] = found.operations;
  out["needed_bytes"] = found.needed;
  out["sent_bytes"] = found.total_sent;
  out["fan_out_bytes"] = found.total_fanned_out;
  out["redundancy"] = found.redundancy;
  out["busiest_sender_bytes"] = found.busiest;
  out["lower_bound_bytes"] = plan.lower_bound_bytes;
  out["busiest_over_bound"] = found.over_bound;
  out["busiest_over_mean"] = found.over_mean;
  out["idle_senders"] = found.idle;
  out["unused_source_tensors"] = plan.unused_sources;
  out["sent_by_rank"] = numbers(found.sent);
  out["received_by_rank"] = numbers(found.received);
  out["fanned_out_by_rank"] = numbers(found.fan_out_sent);
  return out;
}

std::string as_text(const Side& train, const Side& infer, const Plan& plan, const Statistics& found) {
  std::string text =
      fmt::format("plan {}: proved, every element is written once and from where it belongs\n", plan.digest);
  text += fmt::format("  {} tensors, {} -> {} ranks, {} operations\n", infer.tensors().size(), train.ranks(),
                      infer.ranks(), found.operations);
  text += fmt::format("  sent {} of {} needed, redundancy {:.2f}", bytes(found.total_sent + found.total_fanned_out),
                      bytes(found.needed), found.redundancy);
  if (found.total_fanned_out > 0) text += fmt::format("; {} of it within hosts", bytes(found.total_fanned_out));
  text +=
      fmt::format("\n  busiest sender {}: {:.2f} x the mean, {:.3f} x the lower bound {} for these sources; {} idle\n",
                  bytes(found.busiest), found.over_mean, found.over_bound, bytes(plan.lower_bound_bytes), found.idle);
  if (plan.unused_sources > 0) text += fmt::format("  {} source tensors aren't asked for\n", plan.unused_sources);
  std::vector<std::vector<std::string>> rows;
  for (std::size_t rank = 0; rank < std::max(found.sent.size(), found.received.size()); ++rank)
    rows.push_back({fmt::format("{}", rank), rank < found.sent.size() ? bytes(found.sent[rank]) : "-",
                    rank < found.received.size() ? bytes(found.received[rank]) : "-",
                    rank < found.fan_out_sent.size() ? bytes(found.fan_out_sent[rank]) : "-"});
  return text + table({"RANK", "SENT (TRAIN)", "RECEIVED (INFER)", "PASSED ON (INFER)"}, rows);
}

}  // namespace

int run_plan(const PlanArguments& arguments, Terminal& terminal) {
  const Result<Side> train = read_layout_file(arguments.train, "train");
  if (!train) return report(terminal, train.error(), arguments.json);
  const Result<Side> infer = read_layout_file(arguments.infer, "infer");
  if (!infer) return report(terminal, infer.error(), arguments.json);
  reshard::PlanOptions options;
  options.one_copy_per_host = arguments.one_copy_per_host;
  options.unused_sources_allowed = arguments.allow_unused;
  const Result<Plan> plan = reshard::make_plan(*train, *infer, options);
  if (!plan) return report(terminal, plan.error(), arguments.json);
  if (const Status proved = reshard::prove(*train, *infer, *plan); !proved)
    return report(terminal, proved.error(), arguments.json);
  const Statistics found = reshard::statistics(*train, *infer, *plan);
  if (arguments.json) {
    print_json(terminal, as_json(*infer, *plan, found));
  } else {
    terminal.out << as_text(*train, *infer, *plan, found);
  }
  return 0;
}

}  // namespace weighlock::cli
