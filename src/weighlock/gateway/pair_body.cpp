#include "weighlock/gateway/pair_body.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "weighlock/core/limits.hpp"
#include "weighlock/core/url.hpp"
#include "weighlock/core/words.hpp"

namespace weighlock {
namespace {

using Failure = std::optional<FieldError>;

FieldError bad(std::string field, std::string_view what) {
  Error error{ErrorCode::invalid_argument, fmt::format("{}: {}", field, what)};
  return FieldError{std::move(field), std::move(error)};
}

Failure within(std::string field, Status status) {
  if (status) return std::nullopt;
  Error error = wrap(field, status.error());
  return FieldError{std::move(field), std::move(error)};
}

Failure read_trainers(const json::value& value, const Confinement& confinement, protocol::PairSpec& spec) {
  const json::object* object = value.if_object();
  if (!object) return bad("trainers", "must be an object");
  if (Failure unknown = unknown_key(*object, "trainers", {"kind", "urls", "save_trigger"})) return unknown;
  const auto kind = find_string(value, "kind");
  if (object->contains("kind") && kind != "areal" && kind != "external")
    return bad("trainers.kind", "must be 'areal' or 'external'");
  spec.trainer_kind = kind == "external" ? protocol::TrainerKind::external : protocol::TrainerKind::areal;
  const auto trigger = find_string(value, "save_trigger");
  if (object->contains("save_trigger") && trigger != "all" && trigger != "rank0")
    return bad("trainers.save_trigger", "must be 'all' or 'rank0'");
  if (trigger) spec.save_trigger = trigger == "rank0" ? protocol::SaveTrigger::rank0 : protocol::SaveTrigger::all;
  std::vector<std::string> texts;
  if (const json::value* urls = object->if_contains("urls")) {
    if (!urls->is_array()) return bad("trainers.urls", "must be a list of URLs");
    for (const json::value& url : urls->get_array()) {
      if (!url.is_string()) return bad("trainers.urls", "must be a list of URLs");
      texts.emplace_back(url.get_string());
    }
  }
  if (texts.empty() && spec.trainer_kind == protocol::TrainerKind::areal)
    return bad("trainers.urls", "must name at least one training worker");
  if (texts.empty()) return std::nullopt;
  return read_urls(texts, "trainers.urls", limits::kTrainersPerPairMax, confinement, spec.trainer_urls);
}

Failure read_workers(const json::value& value, const Confinement& confinement, PairBody& out) {
  const json::array* list = value.if_array();
  if (!list || list->empty()) return bad("workers", "must be a list of at least one worker");
  if (list->size() > limits::kWorkersPerPairMax)
    return bad("workers",
               fmt::format("has {} entries; at most {} are taken", list->size(), limits::kWorkersPerPairMax));
  for (std::size_t i = 0; i < list->size(); ++i) {
    if (Failure failure = read_worker((*list)[i], fmt::format("workers[{}]", i), confinement, out)) return failure;
  }
  return std::nullopt;
}

// Only with "keep_unnamed".
Failure begin_as(const protocol::PairSpec& present, protocol::PairSpec& spec) {
  if (present.awex)
    return FieldError{
        "mode", Error{ErrorCode::conflict,
                      fmt::format("pair '{}' is in mode awex, where weights go from rank to rank; this would make it a "
                                  "pair by files, without its settings: if that is meant, say so (`weighlock connect "
                                  "--change-mode`; in /v1, no \"keep_unnamed\"), else take another name",
                                  present.name)}};
  spec.policy = present.policy;
  spec.save_trigger = present.save_trigger;
  return std::nullopt;
}

// `given`: the body's list, from which `spec` has been read.
void keep_of_workers(const protocol::PairSpec& present, const json::array& given, protocol::PairSpec& spec) {
  std::map<std::string_view, const protocol::WorkerSpec*> former;
  for (const protocol::WorkerSpec& worker : present.workers) former[worker.url] = &worker;
  for (std::size_t i = 0; i < spec.workers.size(); ++i) {
    protocol::WorkerSpec& worker = spec.workers[i];
    const auto it = former.find(worker.url);
    if (it == former.end()) continue;
    if (worker.key_references.empty()) worker.key_references = it->second->key_references;
    if (!given[i].as_object().contains("dialect")) worker.dialect = it->second->dialect;
  }
}

// `kept`: the present pair, if what isn't named stays as it is there.
Failure read_lora(const json::value& value, const protocol::PairSpec* kept, protocol::PairSpec& spec) {
  const json::object* object = value.if_object();
  if (!object) return bad("lora", "must be null or an object with a \"name\"");
  if (Failure unknown = unknown_key(*object, "lora", {"name", "keep"})) return unknown;
  protocol::LoraSpec lora;
  const auto name = find_string(value, "name");
  if (!name) return bad("lora.name", "is required: versions are loaded as NAME-v1, NAME-v2, ...");
  if (Failure failure = check_lora_name(*name, "lora.name")) return failure;
  lora.name = *name;
  const bool was_lora = kept && kept->lora;
  if (was_lora) lora.keep = kept->lora->keep;
  if (object->contains("keep")) {
    const auto keep = find_int(value, "keep");
    if (!keep || *keep < 0 || *keep > limits::kAdapterWindowMax)
      return bad("lora.keep", fmt::format("must be how many versions stay loaded, up to {}, or 0 for all",
                                          limits::kAdapterWindowMax));
    lora.keep = *keep;
  }
  spec.lora = std::move(lora);
  if (!was_lora) spec.policy.quorum.kind = protocol::Quorum::Kind::all;  // unless the settings say otherwise
  return std::nullopt;
}

}  // namespace

std::vector<std::string> worker_urls(const protocol::PairSpec& spec) {
  std::vector<std::string> out;
  for (const protocol::WorkerSpec& worker : spec.workers) out.push_back(worker.url);
  return out;
}

Failure check_lora_name(std::string_view name, const std::string& field) {
  if (name.empty()) return bad(field, "must not be empty");
  if (name.size() > limits::kLoraNameBytesMax)
    return bad(field, fmt::format("has {} bytes; at most {} are taken", name.size(), limits::kLoraNameBytesMax));
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) return bad(field, "must not contain control characters");
    if (c == '/' || c == '\\') return bad(field, fmt::format("must not contain '{}'", c));
  }
  if (name == "." || name == "..") return bad(field, fmt::format("must not be '{}'", name));
  return std::nullopt;
}

Failure check_pair_name(const std::string& name) {
  if (name.empty()) return bad("pair_name", "must not be empty");
  if (name.size() > limits::kNameBytesMax)
    return bad("pair_name", fmt::format("has {} bytes; at most {} are taken", name.size(), limits::kNameBytesMax));
  const bool control =
      std::any_of(name.begin(), name.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
  if (control) return bad("pair_name", "must not contain control characters");
  if (!is_utf8(name)) return bad("pair_name", "must be UTF-8");
  return std::nullopt;
}

Failure read_urls(const std::vector<std::string>& texts, const std::string& field, std::size_t most,
                  const Confinement& confinement, std::vector<std::string>& out) {
  if (texts.empty()) return bad(field, "must not be empty");
  if (texts.size() > most) return bad(field, fmt::format("has {} entries; at most {} are taken", texts.size(), most));
  std::set<std::string> seen;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const std::string at = fmt::format("{}[{}]", field, i);
    Result<Url> url = parse_url(texts[i]);
    if (!url) return FieldError{at, wrap(at, std::move(url).error())};
    if (Failure failure = within(at, confinement.check_host(*url))) return failure;
    if (!seen.insert(url->text).second) return bad(at, fmt::format("{} is named twice", url->text));
    out.push_back(url->text);
  }
  return std::nullopt;
}

Failure read_worker(const json::value& value, const std::string& field, const Confinement& confinement, PairBody& out) {
  const json::object* object = value.if_object();
  if (!object) return bad(field, "must be an object with a \"url\"");
  if (Failure unknown = unknown_key(*object, field, {"url", "dialect", "admin_key", "api_key"})) return unknown;
  const auto text = find_string(value, "url");
  if (!text) return bad(field + ".url", "is required");
  std::vector<std::string> urls;
  if (Failure failure = read_urls({std::string(*text)}, field + ".url", 1, confinement, urls)) return failure;
  const auto same = [&](const protocol::WorkerSpec& other) { return other.url == urls[0]; };
  if (std::any_of(out.spec.workers.begin(), out.spec.workers.end(), same))
    return bad(field + ".url", fmt::format("{} is named twice", urls[0]));
  protocol::WorkerSpec spec{urls[0], std::nullopt};
  if (object->contains("dialect")) {
    const auto word = find_string(value, "dialect");
    spec.dialect = word ? dialect_from(*word) : std::nullopt;
    if (!spec.dialect && word != "auto") return bad(field + ".dialect", "must be 'auto', 'sglang' or 'vllm'");
  }
  Credentials keys;
  const json::value* admin = object->if_contains("admin_key");
  const json::value* api = object->if_contains("api_key");
  for (const bool is_admin : {true, false}) {
    const json::value* reference = is_admin ? admin : api;
    if (!reference) continue;
    KeyFile file{field + (is_admin ? ".admin_key" : ".api_key"), spec.url, "", is_admin, ""};
    std::string& key = is_admin ? keys.admin_key : keys.api_key;
    if (Failure failure = read_key_reference(*reference, file.field, key, file.path)) return failure;
    if (!file.path.empty()) out.key_files.push_back(std::move(file));
  }
  if (admin || api) out.credentials[spec.url] = std::move(keys);
  json::object references;
  if (admin) references["admin_key"] = *admin;
  if (api) references["api_key"] = *api;
  if (!references.empty()) spec.key_references = json::serialize(references);
  out.spec.workers.push_back(std::move(spec));
  return std::nullopt;
}

Failure read_pair_body(const json::value& value, const std::string& name, const Confinement& confinement,
                       const protocol::PairSpec* present, PairBody& out) {
  const json::object* object = value.if_object();
  if (!object) return bad("body", "must be an object");
  if (Failure failure = check_pair_name(name)) return failure;
  if (Failure unknown = unknown_key(
          *object, "", {"mode", "save_path", "trainers", "workers", "lora", "settings", "new_lineage", "keep_unnamed"}))
    return unknown;
  if (const json::value* fresh = object->if_contains("new_lineage")) {
    if (!fresh->is_bool()) return bad("new_lineage", "must be true or false");
    out.new_lineage = fresh->get_bool();
  }
  out.spec.name = name;
  const auto mode = find_string(value, "mode");
  if (mode != "disk") return bad("mode", "must be 'disk': the only mode that this release carries in /v1");
  const json::value* keep = object->if_contains("keep_unnamed");
  if (keep && !keep->is_bool()) return bad("keep_unnamed", "must be true or false");
  const protocol::PairSpec* kept = keep && keep->get_bool() ? present : nullptr;
  if (kept) {
    if (Failure failure = begin_as(*kept, out.spec)) return failure;
  }
  const auto save_path = find_string(value, "save_path");
  if (!save_path) return bad("save_path", "is required: an absolute path that trainers write and workers read");
  if (Failure failure = within("save_path", confinement.check_directory(*save_path, "save_path"))) return failure;
  out.spec.save_path = *save_path;
  if (const json::value* lora = object->if_contains("lora"); lora && !lora->is_null()) {
    if (Failure failure = read_lora(*lora, kept, out.spec)) return failure;
  }
  const json::value* trainers = object->if_contains("trainers");
  if (!trainers) return bad("trainers", "is required");
  if (Failure failure = read_trainers(*trainers, confinement, out.spec)) return failure;
  const json::value* workers = object->if_contains("workers");
  if (!workers) return bad("workers", "is required");
  if (Failure failure = read_workers(*workers, confinement, out)) return failure;
  if (kept) keep_of_workers(*kept, workers->get_array(), out.spec);
  if (const json::value* settings = object->if_contains("settings")) {
    Settings read;
    read.policy = out.spec.policy;
    if (Failure failure = read_settings(*settings, "settings", SettingsPlace::pair, read)) return failure;
    out.spec.policy = read.policy;
  }
  return std::nullopt;
}

}  // namespace weighlock
