// The policy of a pair or an update, as it is written on the command line.
#include <fmt/format.h>

#include <charconv>

#include "arguments.hpp"
#include "weighlock/core/suggest.hpp"

namespace weighlock::cli {
namespace {

struct PolicyKey {
  std::string_view name;
  enum class Kind { whole, number, flag, text, word, quorum } kind;
  std::vector<std::string_view> words = {};  // Kind::word: what it may be
};

using Kind = PolicyKey::Kind;

// The names of design: every one of a pair's settings that a person may set.
const std::vector<PolicyKey> kKeys = {
    {"quorum", Kind::quorum},
    {"on_failure", Kind::word, {"degrade", "rollback_all"}},
    {"canary", Kind::whole},
    {"max_lag", Kind::whole},
    {"pause", Kind::word, {"gateway", "caller", "never"}},
    {"pause_mode", Kind::word, {"abort", "keep", "retract", "wait"}},
    {"load_window", Kind::whole},
    {"straggler", Kind::number},
    {"evidence", Kind::word, {"acknowledged", "label", "spot", "checksum", "probe"}},
    {"digest", Kind::word, {"overlap", "before", "off"}},
    {"keep_versions", Kind::whole},
    {"label_format", Kind::text},
    {"allow_layout_change", Kind::flag},
    {"coalesce", Kind::flag},
    {"pair_lease_ms", Kind::whole},
};

const std::vector<std::string_view> kDeadlines = {"save", "pause", "load", "verify", "resume", "restore", "whole"};
constexpr std::string_view kDeadlinePrefix = "deadlines_ms.";

Error bad(std::string message) {
  return Error{ErrorCode::invalid_argument, std::move(message)};
}

std::string listed(const std::vector<std::string_view>& words) {
  return fmt::format("{}", fmt::join(words, ", "));
}

Result<std::int64_t> whole(std::string_view key, std::string_view text) {
  std::int64_t number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc() || end != text.data() + text.size() || number < 0)
    return bad(fmt::format("{}: '{}' isn't a whole number of 0 or more", key, text));
  return number;
}

Result<json::value> number(std::string_view key, std::string_view text) {
  double value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size() || !(value >= 0) || value > 1e12)
    return bad(fmt::format("{}: '{}' isn't a number of 0 or more", key, text));
  return json::value(value);
}

Result<json::value> word(const PolicyKey& key, std::string_view text) {
  for (const std::string_view known : key.words) {
    if (known == text) return json::value(json::string_view(text.data(), text.size()));
  }
  return bad(fmt::format("{}: '{}' is none of {}{}", key.name, text, listed(key.words), suggestion(text, key.words)));
}

Result<json::value> policy_value(const PolicyKey& key, std::string_view text) {
  switch (key.kind) {
    case Kind::text:
      return json::value(json::string_view(text.data(), text.size()));
    case Kind::word:
      return word(key, text);
    case Kind::number:
      return number(key.name, text);
    case Kind::flag:
      if (text != "true" && text != "false")
        return bad(fmt::format("{}: '{}' is neither true nor false", key.name, text));
      return json::value(text == "true");
    case Kind::quorum:
      if (text == "half" || text == "all") return json::value(json::string_view(text.data(), text.size()));
      if (Result<std::int64_t> count = whole(key.name, text); count && *count > 0) return json::value(*count);
      return bad(fmt::format("quorum: '{}' is neither half, all nor a number of workers above 0", text));
    case Kind::whole:
      break;
  }
  Result<std::int64_t> count = whole(key.name, text);
  if (!count) return std::move(count).error();
  return json::value(*count);
}

}  // namespace

Status set_policy(json::object& settings, std::string_view assignment) {
  const std::size_t equals = assignment.find('=');
  if (equals == std::string_view::npos || equals == 0)
    return bad(fmt::format("--set '{}' isn't of the form key=value", assignment));
  const std::string_view key = assignment.substr(0, equals);
  const std::string_view value = assignment.substr(equals + 1);
  if (key.starts_with(kDeadlinePrefix)) {
    const std::string_view step = key.substr(kDeadlinePrefix.size());
    if (std::find(kDeadlines.begin(), kDeadlines.end(), step) == kDeadlines.end())
      return bad(fmt::format("--set: no deadline is called '{}'; there are {}{}", step, listed(kDeadlines),
                             suggestion(step, kDeadlines)));
    Result<std::int64_t> count = whole(key, value);
    if (!count) return std::move(count).error();
    if (!settings.contains("deadlines_ms")) settings["deadlines_ms"] = json::object();
    settings["deadlines_ms"].as_object()[json::string_view(step.data(), step.size())] = *count;
    return {};
  }
  std::vector<std::string_view> names;
  for (const PolicyKey& known : kKeys) {
    names.push_back(known.name);
    if (known.name != key) continue;
    Result<json::value> parsed = policy_value(known, value);
    if (!parsed) return std::move(parsed).error();
    settings[json::string_view(key.data(), key.size())] = std::move(*parsed);
    return {};
  }
  return Error{ErrorCode::unknown_key, fmt::format("--set: unknown key '{}'{}", key, suggestion(key, names))};
}

}  // namespace weighlock::cli
