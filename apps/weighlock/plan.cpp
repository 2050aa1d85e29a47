// `weighlock plan TRAIN.json INFER.json`: reads both files itself; no gateway is asked.
#include <fmt/format.h>

#include <ostream>
#include <utility>

#include "layout_file.hpp"
#include "plan_files.hpp"
#include "table.hpp"
#include "terminal.hpp"
#include "weighlock/awex/sides.hpp"
#include "weighlock/reshard/plan.hpp"
#include "weighlock/reshard/prove.hpp"
#include "weighlock/reshard/statistics.hpp"

namespace weighlock::cli {
namespace {

using reshard::Plan;
using reshard::Side;
using reshard::Statistics;

struct Transfer {
  Side train;
  Side infer;
  Plan plan;
  std::size_t moved = 0;  // reported parts whose offset was wrong
  bool by_workers = false;
};

std::string bytes(std::uint64_t count) {
  return bytes_text(static_cast<std::int64_t>(count));
}

json::array numbers(const std::vector<std::uint64_t>& values) {
  json::array out;
  for (const std::uint64_t value : values) out.emplace_back(value);
  return out;
}

json::object as_json(const Transfer& transfer, const Statistics& found) {
  const Plan& plan = transfer.plan;
  json::object out{{"ok", true}, {"digest", plan.digest}};
  out["planned_by"] = transfer.by_workers ? "awex" : "weighlock";
  if (transfer.by_workers) out["repaired_offsets"] = transfer.moved;
  out["tensors"] = transfer.infer.tensors().size();
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

std::string as_text(const Transfer& transfer, const Statistics& found) {
  const auto& [train, infer, plan, moved, by_workers] = transfer;
  std::string text =
      found.needed == 0
          ? fmt::format("plan {}: there is nothing to send: no inference rank holds an element\n", plan.digest)
          : fmt::format("plan {}: proved, every element is written once and from where it belongs\n", plan.digest);
  if (by_workers)
    text += fmt::format(
        "  it is what AWEX workers do with the metadata that a gateway serves them; {} reported offsets "
        "were put right\n",
        moved);
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

Result<Transfer> plan_layouts(const PlanArguments& arguments) {
  Result<Side> train = read_layout_file(arguments.train, "train");
  if (!train) return std::move(train).error();
  Result<Side> infer = read_layout_file(arguments.infer, "infer");
  if (!infer) return std::move(infer).error();
  reshard::PlanOptions options;
  options.one_copy_per_host = arguments.one_copy_per_host;
  options.unused_sources_allowed = arguments.allow_unused;
  Result<Plan> plan = reshard::make_plan(*train, *infer, options);
  if (!plan) return std::move(plan).error();
  return Transfer{std::move(*train), std::move(*infer), std::move(*plan)};
}

// AWEX workers plan for themselves: theirs is predicted, and ours tells how good any could be.
Result<Transfer> plan_reports(const PlanArguments& arguments) {
  if (arguments.one_copy_per_host || arguments.allow_unused)
    return Error{ErrorCode::invalid_argument,
                 "--one-copy-per-host and --allow-unused are for layouts: AWEX workers can do neither"};
  const Result<AwexReports> read = read_awex_reports(arguments.train, arguments.infer);
  if (!read) return read.error();
  const Result<awex::Repaired> repaired = awex::repair(read->train, read->infer, read->topology);
  if (!repaired) return repaired.error();
  Result<awex::Sides> sides = awex::sides_of(read->train, read->infer, read->topology);
  if (!sides) return std::move(sides).error();
  Result<Plan> theirs = awex::as_reshard(*repaired, awex::predict(*repaired), *sides);
  if (!theirs) return std::move(theirs).error();
  const Result<Plan> ours = reshard::make_plan(sides->train, sides->infer);
  if (!ours) return ours.error();
  theirs->lower_bound_bytes = ours->lower_bound_bytes;
  theirs->capable_senders = ours->capable_senders;
  return Transfer{std::move(sides->train), std::move(sides->infer), std::move(*theirs), repaired->moved, true};
}

}  // namespace

namespace {

// Whatever is wrong with what the files say is 2; a file that can't be read, and a mistake of ours, keep their codes.
int report_refusal(Terminal& terminal, const Error& error, bool json) {
  const int code = report(terminal, error, json);
  const bool is_of_input = error.code == ErrorCode::invalid_argument || error.code == ErrorCode::not_supported ||
                           error.code == ErrorCode::too_large || error.code == ErrorCode::bad_answer ||
                           error.code == ErrorCode::checkpoint_invalid;
  return is_of_input ? 2 : code;
}

}  // namespace

int run_plan(const PlanArguments& arguments, Terminal& terminal) {
  const bool of_reports = is_directory(arguments.train) || is_directory(arguments.infer);
  const Result<Transfer> transfer = of_reports ? plan_reports(arguments) : plan_layouts(arguments);
  if (!transfer) return report_refusal(terminal, transfer.error(), arguments.json);
  if (const Status proved = reshard::prove(transfer->train, transfer->infer, transfer->plan); !proved)
    return report(terminal, proved.error(), arguments.json);
  const Statistics found = reshard::statistics(transfer->train, transfer->infer, transfer->plan);
  if (arguments.json) {
    print_json(terminal, as_json(*transfer, found));
  } else {
    terminal.out << as_text(*transfer, found);
  }
  return 0;
}

}  // namespace weighlock::cli
