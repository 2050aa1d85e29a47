#include "weighlock/protocol/spec_record.hpp"

namespace weighlock::protocol {
namespace {

json::value optional_ms(const std::optional<Milliseconds>& ms) {
  return ms ? json::value(ms->count()) : json::value(nullptr);
}

json::object deadlines_body(const Deadlines& deadlines) {
  return {{"save", deadlines.save.count()},       {"pause", deadlines.pause.count()},
          {"load", deadlines.load.count()},       {"verify", deadlines.verify.count()},
          {"resume", deadlines.resume.count()},   {"restore", optional_ms(deadlines.restore)},
          {"whole", optional_ms(deadlines.whole)}};
}

Deadlines deadlines_from(JsonMembers body) {
  Deadlines out;
  const auto read = [&](std::string_view key, auto& member) {
    if (const auto ms = find_int(body, key)) member = Milliseconds(*ms);
  };
  read("save", out.save);
  read("pause", out.pause);
  read("load", out.load);
  read("verify", out.verify);
  read("resume", out.resume);
  read("restore", out.restore);
  read("whole", out.whole);
  return out;
}

std::string_view quorum_word(Quorum::Kind kind) {
  return kind == Quorum::Kind::half ? "half" : kind == Quorum::Kind::all ? "all" : "count";
}

json::array texts_body(const std::vector<std::string>& texts) {
  json::array out;
  for (const std::string& text : texts) out.push_back(json::string(text));
  return out;
}

}  // namespace

std::string_view text_of(JsonMembers body, std::string_view key, std::string_view fallback) {
  return find_string(body, key).value_or(fallback);
}

std::int64_t number_of(JsonMembers body, std::string_view key, std::int64_t fallback) {
  return find_int(body, key).value_or(fallback);
}

bool flag_of(JsonMembers body, std::string_view key, bool fallback) {
  return find_bool(body, key).value_or(fallback);
}

const json::array& list_of(JsonMembers body, std::string_view key) {
  static const json::array kEmpty;
  const json::value* member = find(body, key);
  return member && member->is_array() ? member->get_array() : kEmpty;
}

json::object policy_body(const Policy& policy) {
  json::object out{{"quorum", quorum_word(policy.quorum.kind)},
                   {"quorum_count", policy.quorum.count},
                   {"on_failure", name(policy.on_failure)},
                   {"canary", policy.canary},
                   {"max_lag", policy.max_lag},
                   {"pause", name(policy.pause)},
                   {"pause_mode", name(policy.pause_mode)},
                   {"load_window", policy.load_window},
                   {"straggler", policy.straggler},
                   {"straggler_min", policy.straggler_min.count()},
                   {"digest", name(policy.digest)},
                   {"keep_versions", policy.keep_versions},
                   {"label_format", policy.label_format},
                   {"allow_layout_change", policy.allow_layout_change},
                   {"coalesce", policy.coalesce},
                   {"pair_lease", policy.pair_lease.count()},
                   {"deadlines", deadlines_body(policy.deadlines)}};
  if (policy.evidence) out["evidence"] = name(*policy.evidence);
  return out;
}

Policy policy_from(JsonMembers body) {
  Policy out;
  const std::string_view quorum = text_of(body, "quorum", "half");
  out.quorum.kind = quorum == "all" ? Quorum::Kind::all : quorum == "count" ? Quorum::Kind::count : Quorum::Kind::half;
  out.quorum.count = static_cast<int>(number_of(body, "quorum_count"));
  out.on_failure = enum_from(text_of(body, "on_failure"), OnFailure::rollback_all, out.on_failure);
  out.canary = static_cast<int>(number_of(body, "canary", out.canary));
  out.max_lag = static_cast<int>(number_of(body, "max_lag", out.max_lag));
  out.pause = enum_from(text_of(body, "pause"), PauseOwner::never, out.pause);
  out.pause_mode = pause_mode_from(text_of(body, "pause_mode")).value_or(out.pause_mode);
  out.load_window = static_cast<int>(number_of(body, "load_window", out.load_window));
  if (const json::value* straggler = find(body, "straggler"); straggler && straggler->is_number())
    out.straggler = straggler->to_number<double>();
  out.straggler_min = Milliseconds(number_of(body, "straggler_min", out.straggler_min.count()));
  out.evidence = evidence_from(text_of(body, "evidence"));
  out.digest = enum_from(text_of(body, "digest"), DigestPolicy::off, out.digest);
  out.keep_versions = static_cast<int>(number_of(body, "keep_versions", out.keep_versions));
  out.label_format = text_of(body, "label_format", out.label_format);
  out.allow_layout_change = flag_of(body, "allow_layout_change");
  out.coalesce = flag_of(body, "coalesce");
  out.pair_lease = Milliseconds(number_of(body, "pair_lease", out.pair_lease.count()));
  if (const json::value* deadlines = find(body, "deadlines")) out.deadlines = deadlines_from(*deadlines);
  return out;
}

json::object spec_body(const PairSpec& spec) {
  json::array workers;
  for (const WorkerSpec& worker : spec.workers) {
    json::object one{{"url", worker.url}};
    if (worker.dialect) one["dialect"] = name(*worker.dialect);
    if (!worker.key_references.empty()) one["keys"] = worker.key_references;
    workers.push_back(std::move(one));
  }
  json::object out{{"save_path", spec.save_path},
                   {"trainer_kind", spec.trainer_kind == TrainerKind::external ? "external" : "areal"},
                   {"trainers", texts_body(spec.trainer_urls)},
                   {"save_trigger", spec.save_trigger == SaveTrigger::rank0 ? "rank0" : "all"},
                   {"workers", std::move(workers)},
                   {"policy", policy_body(spec.policy)}};
  if (spec.lora) out["lora"] = {{"name", spec.lora->name}, {"keep", spec.lora->keep}};
  if (spec.awex)
    out["awex"] = {{"master_addr", spec.awex->master_addr},
                   {"master_port", spec.awex->master_port},
                   {"colocate", spec.awex->colocate},
                   {"master_of", spec.awex->master_of}};
  return out;
}

PairSpec spec_from(JsonMembers body) {
  PairSpec out;
  out.save_path = text_of(body, "save_path");
  out.trainer_kind = text_of(body, "trainer_kind") == "external" ? TrainerKind::external : TrainerKind::areal;
  for (const json::value& url : list_of(body, "trainers")) {
    if (url.is_string()) out.trainer_urls.emplace_back(url.get_string());
  }
  out.save_trigger = text_of(body, "save_trigger") == "rank0" ? SaveTrigger::rank0 : SaveTrigger::all;
  for (const json::value& worker : list_of(body, "workers")) {
    WorkerSpec one;
    one.url = worker.is_string() ? std::string(worker.get_string()) : std::string(text_of(worker, "url"));
    one.dialect = dialect_from(text_of(worker, "dialect"));
    one.key_references = text_of(worker, "keys");
    if (!one.url.empty()) out.workers.push_back(std::move(one));
  }
  if (const json::value* policy = find(body, "policy")) out.policy = policy_from(*policy);
  if (const json::value* lora = find(body, "lora"))
    out.lora = LoraSpec{std::string(text_of(*lora, "name")), number_of(*lora, "keep")};
  if (const json::value* awex = find(body, "awex"))
    out.awex = AwexSpec{std::string(text_of(*awex, "master_addr")), static_cast<int>(number_of(*awex, "master_port")),
                        flag_of(*awex, "colocate"), std::string(text_of(*awex, "master_of"))};
  return out;
}

json::object version_body(const VersionRef& version) {
  return {{"lineage", version.lineage},
          {"version", version.version},
          {"directory", version.directory},
          {"label", version.label},
          {"digest", version.digest}};
}

VersionRef version_from(JsonMembers body) {
  return {number_of(body, "lineage"), number_of(body, "version"), std::string(text_of(body, "directory")),
          std::string(text_of(body, "label")), std::string(text_of(body, "digest"))};
}

json::value cause_body(const std::optional<Cause>& cause) {
  if (!cause) return nullptr;
  return json::object{{"code", name(cause->code)}, {"message", cause->message}};
}

std::optional<Cause> cause_from(const json::value* body, Instant since) {
  if (!body || !body->is_object()) return std::nullopt;
  return Cause{enum_from(text_of(*body, "code"), CauseCode::operator_hold, CauseCode::unreachable),
               std::string(text_of(*body, "message")), since};
}

}  // namespace weighlock::protocol
