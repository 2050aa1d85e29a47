#include "walk.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

#include "at_rest.hpp"

namespace weighlock::fault {
namespace {

using Words = std::vector<std::string_view>;
const Words kReads{"read", "verify", "barrier", "resume", "heal"};

Row sglang(std::string_view name, std::string_view route, Words phases) {
  return Row{name, DialectKind::sglang, route, std::move(phases)};
}
Row vllm(std::string_view name, std::string_view route, Words phases) {
  return Row{name, DialectKind::vllm, route, std::move(phases)};
}

std::vector<Row> make_rows() {
  std::vector<Row> out{
      sglang("sglang_server_info", "/server_info", kReads),
      sglang("sglang_model_info", "/model_info", kReads),
      sglang("sglang_ready", "/ready", kReads),
      sglang("sglang_pause", "/pause_generation", {"pause"}),
      sglang("sglang_label", "/update_weight_version", {"label"}),
      sglang("sglang_load", "/update_weights_from_disk", {"load"}),
      sglang("sglang_values", "/get_weights_by_name", {"verify"}),
      sglang("sglang_resume", "/continue_generation", {"resume"}),
      sglang("sglang_flush", "/flush_cache", {"flush"}),
      sglang("sglang_probe", "/generate", {"probe"}),
      sglang("sglang_health", "/health", {"resume", "barrier"}),
      sglang("sglang_first_load", "/update_weights_from_disk", {"load"}),
      vllm("vllm_is_paused", "/is_paused", kReads),
      vllm("vllm_weight_info", "/weight_info", kReads),
      vllm("vllm_metrics", "/metrics", kReads),
      vllm("vllm_models", "/v1/models", kReads),
      vllm("vllm_pause", "/pause", {"pause"}),
      vllm("vllm_label", "/update_weight_version", {"label"}),
      vllm("vllm_world_size", "/get_world_size", {"load"}),
      vllm("vllm_load", "/collective_rpc", {"load"}),
      vllm("vllm_flush", "/reset_prefix_cache", {"flush", "load"}),
      vllm("vllm_checksums", "/weight_checker", {"verify"}),
      vllm("vllm_resume", "/resume", {"resume"}),
      vllm("vllm_probe", "/v1/completions", {"probe"}),
      vllm("vllm_first_load", "/collective_rpc", {"load"}),
      vllm("identify", "/version", {"read"}),
      sglang("trainer_save", "/save", {"save"}),
  };
  for (Row& row : out) {
    row.trainer = row.route == "/save";
    row.first_update = row.name.find("_first_") != std::string_view::npos || row.name == "identify";
    row.stale_health = row.route == "/health";
    if (row.name == "sglang_flush") row.pause_mode = "keep";
    if (row.name.ends_with("_probe")) row.evidence = "probe";
  }
  return out;
}

bool contains_any(const std::string& text, const Words& words) {
  return std::any_of(words.begin(), words.end(),
                     [&](std::string_view word) { return text.find(word) != std::string::npos; });
}

std::string list(const Words& words) {
  std::string out;
  for (const std::string_view word : words) out += (out.empty() ? "" : " | ") + std::string(word);
  return out;
}

// One case while it runs.
class Run {
 public:
  Run(Lab& lab, const Case& one) : case_(one), row_(rows()[one.row]), fleet_(lab, shape(one)) {}

  Report run() {
    put(patient_deadlines());
    if (row_.stale_health) fleet_.lab().on_peers([&] { fleet_.sglang(0).stale_health = true; });
    if (!row_.first_update) {
      await_first_looks();
      good_update(1);
      peer_begins_script();
      good_update(2);
    }
    const std::optional<std::size_t> refuse_at = place_in_script();
    put(silent(case_.fault) ? tight_deadlines(row_.trainer) : patient_deadlines());
    fleet_.lab().on_peers([&] {
      if (row_.trainer) peer().freeze_for = 2 * Milliseconds(tight_deadlines(true).at("save").as_int64());
      peer().arm(Plan{std::string(row_.route), case_.fault, case_.always}, refuse_at);
    });
    update_with_fault();
    fleet_.lab().on_peers([&] {
      for (std::size_t i = 0; i < fleet_.engines(); ++i) fleet_.engine(i).calm();
      peer().calm();
    });
    recover();
    return std::move(report_);
  }

 private:
  static Fleet::Shape shape(const Case& one) {
    const Row& row = rows()[one.row];
    Fleet::Shape out;
    out.pair = one.name();
    out.dialect = row.dialect;
    out.trainers = row.trainer ? 2 : 1;
    out.find_dialect = row.name == "identify";
    out.settings = {{"pause_mode", row.pause_mode}, {"on_failure", one.always ? "rollback_all" : "degrade"}};
    if (!row.evidence.empty()) out.settings["evidence"] = row.evidence;
    return out;
  }

  Imposter& peer() {
    if (row_.trainer) return fleet_.trainer(1);
    return fleet_.engine(0);
  }

  void put(const json::object& deadlines) {
    const test::Reply reply = fleet_.put(deadlines);
    if (reply.status / 100 != 2)
      problem("the pair's settings were answered with " + std::to_string(reply.status) + ": " + reply.body);
  }

  void problem(std::string text) { report_.problems.push_back(std::move(text)); }

  // A look that an update cut short comes again a second later, among the calls of the script.
  void await_first_looks() {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    for (std::size_t i = 0; i < fleet_.engines();) {
      if (fleet_.state(i) == "ready") {
        ++i;
        continue;
      }
      if (std::chrono::steady_clock::now() > until)
        return problem("it was never read: " + json::serialize(fleet_.worker(i)));
      std::this_thread::sleep_for(Milliseconds(2));
    }
  }

  void good_update(std::int64_t version) {
    const json::value ended = fleet_.update(version);
    if (text_at(ended, "state") != "succeeded") problem("an update without faults is " + json::serialize(ended));
  }

  void peer_begins_script() {
    fleet_.lab().on_peers([&] { peer().begin_script(); });
  }

  // Where the call stands in an update: what refuses it must stop listening after the one before.
  std::optional<std::size_t> place_in_script() {
    if (row_.first_update) return 0;
    std::optional<std::size_t> place;
    fleet_.lab().on_peers([&] {
      const auto& seen = peer().seen;
      const auto it = std::find_if(seen.begin(), seen.end(), [&](const Seen& s) { return s.route == row_.route; });
      if (it != seen.end()) place = static_cast<std::size_t>(it - seen.begin());
      script_ = routes(seen);
      peer().begin_script();
    });
    if (!place) problem("an update doesn't call " + std::string(row_.route));
    return place;
  }

  static std::string routes(const std::vector<Seen>& seen) {
    std::string out;
    for (const Seen& one : seen) out += (out.empty() ? "" : " ") + one.route;
    return out;
  }

  void update_with_fault() {
    const auto began = std::chrono::steady_clock::now();
    const test::Reply reply = fleet_.compat_update(3);
    fleet_.lab().on_peers([&] { called_ = routes(peer().seen); });
    report_.took = std::chrono::duration_cast<Milliseconds>(std::chrono::steady_clock::now() - began);
    report_.answer = reply.body + "\nthe peer's calls: " + called_ + "\nin an update without faults: " + script_;
    judge_time();
    judge_answer(reply);
    for (std::string& one : fleet_.problems()) problem("after the fault: " + std::move(one));
    if (fleet_.engines() > 1 && fleet_.state(1) != "ready")
      problem("the engine without a fault is " + json::serialize(fleet_.worker(1)));
  }

  void judge_time() {
    constexpr Milliseconds kSlack{3'000};  // a crowded machine
    Milliseconds most = kSlack;
    for (const auto& phase : tight_deadlines(row_.trainer)) most += Milliseconds(phase.value().as_int64());
    if (report_.took > most) problem("answered after " + std::to_string(report_.took.count()) + " ms");
  }

  void judge_answer(const test::Reply& reply) {
    if (reply.status != 200) return problem("answered with status " + std::to_string(reply.status) + ": " + reply.body);
    const json::value body = reply.json();
    const std::string status = text_at(body, "status");
    const bool degraded = find_bool(body, "degraded").value_or(false);
    const json::value* error = find(body, "error");
    if (find_int(body, "version") != 3 || !error || !find(body, "duration_ms"))
      return problem("an answer without its members");
    if (status == "ok" && !error->is_null()) problem("ok, and an error beside it");
    const bool committed = find_int(fleet_.pair(), "committed") == 3;
    if (committed != (status == "ok") && (status == "ok" || reply.body.find("committed: true") == std::string::npos))
      problem(std::string("the pair's committed version is ") + (committed ? "" : "not ") + "the new one");
    if (harmless(case_.fault) && (status != "ok" || degraded)) problem("a slow answer was taken for a failure");
    if (status == "ok" && !degraded) return;
    judge_text(status == "ok" ? text_at(body, "detail") : text_at(body, "error"));
  }

  void judge_text(const std::string& text) {
    if (text.find(peer().url()) == std::string::npos) problem("the text doesn't name " + peer().url());
    if (!contains_any(text, row_.phases)) problem("the text names none of the phases " + list(row_.phases));
    const Words causes = words_of_cause(case_.fault);
    // What isn't vLLM's answer to /version is taken for another engine's; of /health only the status counts.
    const Words others{row_.name == "identify" ? "/version isn't vLLM's"
                                               : "answered 503 after the engine had continued"};
    if (!contains_any(text, others) && !contains_any(text, causes))
      problem("the text doesn't tell the cause: " + list(causes));
    if (text.find("committed: ") == std::string::npos) problem("the text doesn't tell whether it was committed");
  }

  void recover() {
    put(patient_deadlines());
    json::value ended = fleet_.update(4);
    // A save whose connection was reset is out only when its trainer says so, which a crowded machine delays.
    const auto began = std::chrono::steady_clock::now();
    while (is_busy(ended) && std::chrono::steady_clock::now() - began < kPatience) {
      std::this_thread::sleep_for(Milliseconds(20));
      ended = fleet_.update(4);
    }
    if (text_at(ended, "state") != "succeeded")
      problem("the next update, without faults, is " + json::serialize(ended));
    // One that a join had in hand as the update began is left out of it, and brought along by a join.
    const auto left = std::chrono::steady_clock::now();
    while (is_left_to_a_join() && std::chrono::steady_clock::now() - left < kPatience)
      std::this_thread::sleep_for(Milliseconds(20));
    for (std::string& one : fleet_.problems()) problem("after the next update: " + std::move(one));
    for (std::size_t i = 0; i < fleet_.engines(); ++i) {
      if (fleet_.state(i) != "ready")
        problem("after the next update engine " + std::to_string(i) + " is " + json::serialize(fleet_.worker(i)));
    }
  }

  static constexpr Milliseconds kPatience{10'000};
  bool is_left_to_a_join() {
    const std::string views = json::serialize(fleet_.workers());
    return views.find("when an update began") != std::string::npos || shows_one_in_hand(views);
  }
  static bool is_busy(const json::value& ended) {
    const json::value* error = find(ended, "error");
    return error && error->is_object() && text_at(*error, "code") == "trainer_busy";
  }

  Case case_;
  const Row& row_;
  Fleet fleet_;
  Report report_;
  std::string script_, called_;  // routes of the peer's calls in an update without faults, and in the one with
};

}  // namespace

const std::vector<Row>& rows() {
  static const std::vector<Row> kRows = make_rows();
  return kRows;
}

std::string Case::name() const {
  return std::string(rows()[row].name) + "_" + std::string(fault::name(fault)) + (always ? "_always" : "_once");
}

std::vector<Case> all_cases() {
  std::vector<Case> out;
  for (std::size_t row = 0; row < rows().size(); ++row) {
    for (const Fault fault : kFaults) {
      for (const bool always : {false, true}) out.push_back(Case{row, fault, always});
    }
  }
  return out;
}

Report run_case(Lab& lab, const Case& one) {
  return Run(lab, one).run();
}

}  // namespace weighlock::fault
