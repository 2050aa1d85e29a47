#include "weighlock/gateway/settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "weighlock/core/limits.hpp"
#include "weighlock/core/suggest.hpp"
#include "weighlock/core/words.hpp"

namespace weighlock {
namespace {

using protocol::DigestPolicy;
using protocol::OnFailure;
using protocol::PauseOwner;
using protocol::Quorum;
using protocol::SaveTrigger;

constexpr std::int64_t kDeadlineMsMax = 24LL * 3600 * 1000;  // a save of hours is real; a day is a typing error
constexpr std::size_t kShownBytesMax = 100;                  // of a key or value in an error
// These two follow from the others where they aren't given, and what is shown of them can be given back.
constexpr std::int64_t kRestoreMsMax = 4 * kDeadlineMsMax;
constexpr std::int64_t kLeaseMsMax = 365 * kDeadlineMsMax;  // a year is for ever
constexpr std::int64_t kWholeMsMax = 5 * kDeadlineMsMax + kRestoreMsMax;

std::string place(std::string_view at, std::string_view key) {
  return at.empty() ? std::string(key) : fmt::format("{}.{}", at, key);
}

FieldError bad(std::string field, std::string_view what) {
  Error error{ErrorCode::invalid_argument, fmt::format("{}: {}", field, what)};
  return FieldError{std::move(field), std::move(error)};
}

std::string shown(const json::value& value) {
  return printable(json::serialize(value), kShownBytesMax);
}

using Failure = std::optional<FieldError>;

// Reads members of one object; the first failure is kept, later ones are not looked for.
class Reader {
 public:
  Reader(const json::object& object, std::string_view at) : object_(object), at_(at) {}

  void whole(std::string_view key, std::int64_t low, std::int64_t high, auto&& set) {
    const json::value* value = member(key);
    if (!value) return;
    if (!value->is_int64() || value->get_int64() < low || value->get_int64() > high) {
      fail(key, fmt::format("must be a whole number from {} to {}, not {}", low, high, shown(*value)));
    } else {
      set(value->get_int64());
    }
  }
  void number(std::string_view key, double low, double high, auto&& set) {
    const json::value* value = member(key);
    if (!value) return;
    const double got = value->is_number() ? value->to_number<double>() : std::nan("");
    if (!(got >= low && got <= high)) {
      fail(key, fmt::format("must be a number from {} to {}, not {}", low, high, shown(*value)));
    } else {
      set(got);
    }
  }
  void flag(std::string_view key, bool& out) {
    const json::value* value = member(key);
    if (!value) return;
    if (value->is_bool())
      out = value->get_bool();
    else
      fail(key, fmt::format("must be true or false, not {}", shown(*value)));
  }
  template <typename E>
  void word(std::string_view key, const std::vector<std::pair<std::string_view, E>>& words, auto&& set) {
    const json::value* value = member(key);
    if (!value) return;
    std::string list;
    for (const auto& [text, meaning] : words) {
      if (value->is_string() && value->get_string() == text) return set(meaning);
      list += fmt::format("{}'{}'", list.empty() ? "" : ", ", text);
    }
    fail(key, fmt::format("must be one of {}, not {}", list, shown(*value)));
  }
  void text(std::string_view key, auto&& set) {
    const json::value* value = member(key);
    if (!value) return;
    if (value->is_string())
      set(std::string(value->get_string()));
    else
      fail(key, fmt::format("must be a text, not {}", shown(*value)));
  }
  const json::value* member(std::string_view key) const { return failure ? nullptr : object_.if_contains(key); }
  void fail(std::string_view key, std::string_view what) { failure = bad(place(at_, key), what); }

  Failure failure;

 private:
  const json::object& object_;
  std::string at_;
};

void read_quorum(Reader& reader, Quorum& quorum) {
  const json::value* value = reader.member("quorum");
  if (!value) return;
  if (value->is_string() && value->get_string() == "half")
    quorum = {Quorum::Kind::half, 0};
  else if (value->is_string() && value->get_string() == "all")
    quorum = {Quorum::Kind::all, 0};
  else if (value->is_int64() && value->get_int64() >= 1 &&
           value->get_int64() <= static_cast<std::int64_t>(limits::kWorkersPerPairMax))
    quorum = {Quorum::Kind::count, static_cast<int>(value->get_int64())};
  else
    reader.fail("quorum", fmt::format("must be \"half\", \"all\" or a number from 1 to {}, not {}",
                                      limits::kWorkersPerPairMax, shown(*value)));
}

void read_deadlines(Reader& outer, std::string_view at, protocol::Deadlines& deadlines) {
  const json::value* value = outer.member("deadlines_ms");
  if (!value) return;
  const json::object* object = value->if_object();
  if (!object) return outer.fail("deadlines_ms", "must be an object of milliseconds by phase");
  const std::string inner = place(at, "deadlines_ms");
  if (Failure unknown =
          unknown_key(*object, inner, {"save", "pause", "load", "verify", "resume", "restore", "whole"})) {
    outer.failure = std::move(unknown);
    return;
  }
  Reader reader(*object, inner);
  const auto into = [](auto& member) { return [&member](std::int64_t ms) { member = Milliseconds(ms); }; };
  reader.whole("save", 1, kDeadlineMsMax, into(deadlines.save));
  reader.whole("pause", 1, kDeadlineMsMax, into(deadlines.pause));
  reader.whole("load", 1, kDeadlineMsMax, into(deadlines.load));
  reader.whole("verify", 1, kDeadlineMsMax, into(deadlines.verify));
  reader.whole("resume", 1, kDeadlineMsMax, into(deadlines.resume));
  reader.whole("restore", 1, kRestoreMsMax, into(deadlines.restore));
  reader.whole("whole", 1, kWholeMsMax, into(deadlines.whole));
  outer.failure = std::move(reader.failure);
}

void read_label_format(Reader& reader, std::string& format) {
  reader.text("label_format", [&](std::string text) {
    const bool control =
        std::any_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
    if (text.size() > limits::kNameBytesMax || text.find("{version}") == std::string::npos ||
        text.starts_with("loading:") || control)
      reader.fail("label_format",
                  fmt::format("must contain {{version}}, be at most {} bytes, have no control characters and not begin "
                              "with 'loading:'",
                              limits::kNameBytesMax));
    else
      format = std::move(text);
  });
}

void read_evidence(Reader& reader, std::optional<Evidence>& evidence) {
  const json::value* value = reader.member("evidence");
  if (!value) return;
  if (value->is_null()) {
    evidence.reset();
    return;
  }
  const std::optional<Evidence> level =
      value->is_string() ? evidence_from(std::string_view(value->get_string())) : std::nullopt;
  if (level && *level != Evidence::none)
    evidence = level;
  else
    reader.fail("evidence", fmt::format("must be one of 'acknowledged', 'label', 'spot', 'checksum', 'probe', not {}",
                                        shown(*value)));
}

void read_policy(Reader& reader, std::string_view at, protocol::Policy& policy) {
  const auto into_int = [](int& member) { return [&member](std::int64_t n) { member = static_cast<int>(n); }; };
  const auto into = [](auto& member) { return [&member](auto word) { member = word; }; };
  const auto into_ms = [](Milliseconds& member) { return [&member](std::int64_t ms) { member = Milliseconds(ms); }; };
  const auto workers = static_cast<std::int64_t>(limits::kWorkersPerPairMax);
  read_quorum(reader, policy.quorum);
  reader.word<OnFailure>("on_failure", {{"degrade", OnFailure::degrade}, {"rollback_all", OnFailure::rollback_all}},
                         into(policy.on_failure));
  reader.whole("canary", 0, workers, into_int(policy.canary));
  reader.whole("max_lag", 0, 1'000'000, into_int(policy.max_lag));
  reader.word<PauseOwner>(
      "pause", {{"gateway", PauseOwner::gateway}, {"caller", PauseOwner::caller}, {"never", PauseOwner::never}},
      into(policy.pause));
  reader.word<PauseMode>("pause_mode",
                         {{"abort", PauseMode::abort},
                          {"keep", PauseMode::keep},
                          {"retract", PauseMode::retract},
                          {"wait", PauseMode::wait}},
                         into(policy.pause_mode));
  reader.whole("load_window", 0, workers, into_int(policy.load_window));
  reader.number("straggler", 1.0, 1000.0, into(policy.straggler));
  read_evidence(reader, policy.evidence);
  reader.word<DigestPolicy>(
      "digest", {{"overlap", DigestPolicy::overlap}, {"before", DigestPolicy::before}, {"off", DigestPolicy::off}},
      into(policy.digest));
  reader.whole("keep_versions", 1, 100'000, into_int(policy.keep_versions));
  read_label_format(reader, policy.label_format);
  reader.flag("allow_layout_change", policy.allow_layout_change);
  reader.flag("coalesce", policy.coalesce);
  reader.whole("pair_lease_ms", 0, kLeaseMsMax, into_ms(policy.pair_lease));
  read_deadlines(reader, at, policy.deadlines);
}

}  // namespace

std::optional<FieldError> unknown_key(const json::object& object, std::string_view at,
                                      const std::vector<std::string_view>& known) {
  for (const json::key_value_pair& member : object) {
    const std::string_view key(member.key().data(), member.key().size());
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    const std::string shown = printable(key, kShownBytesMax);
    std::string field = place(at, shown.empty() ? "''" : shown);  // a key of blanks has nothing to show either
    Error error{ErrorCode::unknown_key, fmt::format("{}: unknown key{}", field, suggestion(key, known))};
    return FieldError{std::move(field), std::move(error)};
  }
  return std::nullopt;
}

std::optional<FieldError> read_settings(const json::value& value, std::string_view at, SettingsPlace where,
                                        Settings& base) {
  const json::object* object = value.if_object();
  if (!object) return bad(std::string(at), "must be an object");
  std::vector<std::string_view> known{
      "quorum",       "on_failure",          "canary",   "max_lag",      "pause",         "pause_mode",
      "load_window",  "straggler",           "evidence", "digest",       "keep_versions", "label_format",
      "deadlines_ms", "allow_layout_change", "coalesce", "pair_lease_ms"};
  if (where == SettingsPlace::compatible_connect) known.insert(known.end(), {"save_trigger", "dialect"});
  if (Failure unknown = unknown_key(*object, at, known)) return unknown;
  Reader reader(*object, at);
  read_policy(reader, at, base.policy);
  if (where == SettingsPlace::compatible_connect) {
    reader.word<SaveTrigger>("save_trigger", {{"all", SaveTrigger::all}, {"rank0", SaveTrigger::rank0}},
                             [&](SaveTrigger t) { base.save_trigger = t; });
    reader.word<std::optional<DialectKind>>(
        "dialect", {{"auto", std::nullopt}, {"sglang", DialectKind::sglang}, {"vllm", DialectKind::vllm}},
        [&](std::optional<DialectKind> kind) { base.dialect = kind; });
  }
  return std::move(reader.failure);
}

json::object settings_view(const protocol::Policy& policy) {
  json::object out;
  switch (policy.quorum.kind) {
    case Quorum::Kind::half:
      out["quorum"] = "half";
      break;
    case Quorum::Kind::all:
      out["quorum"] = "all";
      break;
    case Quorum::Kind::count:
      out["quorum"] = policy.quorum.count;
      break;
  }
  out["on_failure"] = protocol::name(policy.on_failure);
  out["canary"] = policy.canary;
  out["max_lag"] = policy.max_lag;
  out["pause"] = protocol::name(policy.pause);
  out["pause_mode"] = name(policy.pause_mode);
  out["load_window"] = policy.load_window;
  out["straggler"] = policy.straggler;
  out["evidence"] = policy.evidence ? json::value(name(*policy.evidence)) : json::value(nullptr);
  out["digest"] = protocol::name(policy.digest);
  out["keep_versions"] = policy.keep_versions;
  out["label_format"] = policy.label_format;
  out["allow_layout_change"] = policy.allow_layout_change;
  out["coalesce"] = policy.coalesce;
  out["pair_lease_ms"] = policy.pair_lease.count();
  const protocol::Deadlines& deadlines = policy.deadlines;
  out["deadlines_ms"] = {{"save", deadlines.save.count()},
                         {"pause", deadlines.pause.count()},
                         {"load", deadlines.load.count()},
                         {"verify", deadlines.verify.count()},
                         {"resume", deadlines.resume.count()},
                         {"restore", deadlines.restore_or_default().count()},
                         {"whole", deadlines.whole_or_default().count()}};
  return out;
}

}  // namespace weighlock
