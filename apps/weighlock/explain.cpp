#include "explain.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "table.hpp"

namespace weighlock::cli {
namespace {

struct Remedy {
  std::string_view code;
  std::string_view text;
  bool again = false;  // kAgain is said after it
};

// What comes back by itself does so while the pair is in use (protocol/join.cpp: is_curable).
constexpr std::string_view kAgain = "it is tried again by itself, and by the next update";

// One row for each cause that a worker can have (protocol/types.hpp).
constexpr std::array kRemedies = {
    Remedy{"unreachable",
           "check that the engine runs and that the gateway's host reaches its address; once it answers it is brought "
           "up to date by itself"},
    Remedy{"restarted",
           "nothing: a new process is brought to the committed version by itself, or by the next update, before it "
           "counts as ready"},
    Remedy{"pause_failed", "look at the engine's log", true},
    Remedy{"label_failed", "look at the engine's log", true},
    Remedy{"load_failed", "look at the engine's words above and its log", true},
    Remedy{"load_unknown",
           "the engine didn't answer in time and may still be loading; it is asked again before anything else is sent "
           "to it"},
    Remedy{"verify_failed", "it serves other weights than it said: a restart of the engine is the sure way", true},
    Remedy{"flush_failed",
           "of one that serves (mode keep): nothing, it is flushed when no request runs for once (`flush_owed`); else "
           "look at the engine's log",
           true},
    Remedy{"heal_failed", "no version could be put into it: restart the engine if that goes on", true},
    Remedy{"resume_failed", "the engine holds verified weights but stays paused: look at its log, or restart it"},
    Remedy{"probe_failed", "it generates nothing valid on verified weights: restart the engine"},
    Remedy{"no_last_good", "there is no verified version to go back to: the next update brings it one"},
    Remedy{"outstanding",
           "an earlier call may still run in it: once that has ended it is brought along, or restart the engine"},
    Remedy{"needs_restart", "only a new process can serve again: restart the engine"},
    Remedy{"suspect",
           "this version killed engines: look at the checkpoint (`weighlock ckpt verify`) before a newer one is "
           "published"},
    Remedy{"lagging", "it is whole, but versions behind: the next update brings it along"},
    Remedy{"foreign", "someone else changed its weights: find out who, then update again"},
    Remedy{
        "adapter_failed",
        "only this adapter isn't served there; look at the engine's words: is LoRA enabled, is there room for its rank "
        "and for one more?"},
    Remedy{"operator_hold", "an operator holds it: `weighlock workers release PAIR WORKER` ends that"},
};

// The cause's text says which of the two keys was refused (engines/exchange.cpp); a remedy for the other is none.
std::string credentials_remedy(std::string_view message) {
  const auto named = [message](std::string_view key) {
    return message.find(fmt::format("worker's {}", key)) != std::string_view::npos ||
           message.find(fmt::format("has no {}", key)) != std::string_view::npos;
  };
  std::string engine_flag = "--engine-admin-key-file` or `--engine-api-key-file";
  std::string worker_flag = "--worker-key-env NAME` or `--worker-api-key-env NAME";
  if (named("api_key")) {
    engine_flag = "--engine-api-key-file";
    worker_flag = "--worker-api-key-env NAME";
  } else if (named("admin_key")) {
    engine_flag = "--engine-admin-key-file";
    worker_flag = "--worker-key-env NAME";
  }
  return fmt::format(
      "it refused the gateway's key: start the gateway with the engines' (`{}`), or give this worker its own "
      "(`weighlock workers set-key PAIR WORKER {}`, NAME a variable of the gateway)",
      engine_flag, worker_flag);
}

// Somebody is at work on the worker: what its cause asked for has been done, or isn't needed.
bool is_in_hand(std::string_view state, std::string_view cause_code) {
  constexpr std::array kInHand = {"pausing", "paused", "loading", "loaded", "verified", "resuming"};
  if (std::find(kInHand.begin(), kInHand.end(), state) != kInHand.end()) return true;
  return cause_code == "operator_hold" && !state.empty() && state != "quarantined" && state != "draining";
}

std::string phases_text(const client::Update& update) {
  std::string text;
  for (const client::Phase& phase : update.phases) {
    if (phase.duration_ms == 0) continue;  // those that only note something
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", phase.name, duration_text(phase.duration_ms));
  }
  return text.empty() ? "" : fmt::format(" ({})", text);
}

}  // namespace

std::string remedy(const client::Cause& cause, std::string_view state) {
  if (is_in_hand(state, cause.code)) return "nothing: it is being brought to the committed version";
  if (cause.code == "credentials") return credentials_remedy(cause.message);
  for (const Remedy& row : kRemedies) {
    if (row.code == cause.code) return row.again ? fmt::format("{}; {}", row.text, kAgain) : std::string(row.text);
  }
  return "";
}

bool verified(const client::WorkerOutcome& worker) {
  return worker.verdict == "verified" && !worker.cause;
}

bool took_part_fully(const client::WorkerOutcome& worker) {
  return worker.verdict == "loaded" || worker.verdict == "verified";
}

// At the end of the update: what was rolled back well is well.
bool serves(const client::WorkerOutcome& worker) {
  return worker.state.empty() ? verified(worker) : worker.state == "ready";
}

std::string explain(const client::Update& update) {
  const auto good = std::count_if(update.workers.begin(), update.workers.end(), serves);
  std::string text = fmt::format("pair {} v{}: {}", update.pair, update.version, update.state);
  if (!update.workers.empty()) text += fmt::format(", {} of {} workers", good, update.workers.size());
  if (update.pause_ms.value_or(0) > 0) text += fmt::format(", paused {}", duration_text(*update.pause_ms));
  if (update.bytes && *update.bytes > 0) text += fmt::format(", {}", bytes_text(*update.bytes));
  text += phases_text(update) + "\n";
  for (const client::WorkerOutcome& worker : update.workers) {
    if (!worker.cause) continue;
    text += fmt::format("  {}: {}, {}: {}\n", worker.url, worker.verdict, worker.cause->code,
                        one_line(worker.cause->message));
    const std::string what = worker.state == "ready" ? "" : remedy(*worker.cause, worker.state);
    if (!what.empty()) text += fmt::format("    to do: {}\n", what);
  }
  // Of a degraded update the error says once more what the workers' lines say.
  if (update.error && update.state != "degraded")
    text += fmt::format("  why: {} ({})\n", one_line(update.error->message), update.error->code);
  return text;
}

std::string version_text(const std::optional<std::int64_t>& version) {
  return version ? fmt::format("v{}", *version) : std::string("-");
}

std::string workers_text(const std::vector<client::Worker>& workers) {
  std::vector<std::vector<std::string>> rows;
  std::string remedies;
  for (const client::Worker& worker : workers) {
    std::string cause = worker.cause ? fmt::format("{}: {}", worker.cause->code, one_line(worker.cause->message)) : "";
    if (cause.empty() && worker.state == "unknown") cause = "it is being read: the gateway was started again";
    if (cause.empty() && worker.paused_by_other) cause = "it is paused, and not by this gateway";
    const std::string since = worker.cause && !worker.cause->since.empty() ? worker.cause->since : "-";
    rows.push_back({worker.url, worker.dialect, worker.state, version_text(worker.version), since, cause});
    const std::string what = worker.cause ? remedy(*worker.cause, worker.state) : "";
    if (!what.empty()) remedies += fmt::format("{}: {}\n", worker.url, what);
    if (worker.paused_by_other)
      remedies += fmt::format("{}: whoever paused it continues it: POST {}\n", worker.url,
                              worker.dialect == "vllm" ? "/resume" : "/continue_generation");
    if (!worker.flush_owed_since.empty())
      remedies +=
          fmt::format("{}: holds cached prefixes of former versions since {}; it is flushed when it is idle for once\n",
                      worker.url, worker.flush_owed_since);
  }
  return table({"WORKER", "DIALECT", "STATE", "VERSION", "SINCE", "CAUSE"}, rows) + remedies;
}

int exit_code(const client::Update& update) {
  if (update.state == "succeeded") return 0;
  if (update.state == "degraded") return info(ErrorCode::degraded).exit_code;
  if (update.error) {
    const int code = info(error_code_from(update.error->code)).exit_code;
    if (code != 0) return code;
  }
  return update.state == "rejected" ? 3 : 1;
}

}  // namespace weighlock::cli
