#include "weighlock/config/settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "weighlock/core/url.hpp"

namespace weighlock::config {
namespace {

constexpr double kSecondsMax = 7.0 * 24 * 3600;  // a longer wait is a typo

Error bad(std::string message) {
  return Error{ErrorCode::invalid_argument, std::move(message)};
}

Result<std::string> one(const std::vector<std::string>& values) {
  if (values.size() != 1) return bad(fmt::format("needs one value, got {}", values.size()));
  return values.front();
}

Status assign_text(std::string& target, const std::vector<std::string>& values) {
  Result<std::string> value = one(values);
  if (!value) return std::move(value).error();
  if (value->empty()) return bad("is empty");
  target = *value;
  return {};
}

// Whole numbers may be spelled "7080.0", as the Python controller does with some of its own.
Status assign_whole(int& target, const std::vector<std::string>& values, int least, int most) {
  Result<std::string> text = one(values);
  if (!text) return std::move(text).error();
  double number = 0;
  const auto [end, failure] = std::from_chars(text->data(), text->data() + text->size(), number);
  if (failure != std::errc() || end != text->data() + text->size() || std::trunc(number) != number)
    return bad(fmt::format("'{}' isn't a whole number", *text));
  if (number < least || number > most) return bad(fmt::format("{} isn't in {}..{}", *text, least, most));
  target = static_cast<int>(number);
  return {};
}

Status assign_seconds(double& target, const std::vector<std::string>& values) {
  Result<std::string> text = one(values);
  if (!text) return std::move(text).error();
  double number = 0;
  const auto [end, failure] = std::from_chars(text->data(), text->data() + text->size(), number);
  if (failure != std::errc() || end != text->data() + text->size() || !std::isfinite(number))
    return bad(fmt::format("'{}' isn't a number of seconds", *text));
  if (number <= 0 || number > kSecondsMax) return bad(fmt::format("{} s isn't in 0..{} s", *text, kSecondsMax));
  target = number;
  return {};
}

Status assign_flag(bool& target, const std::vector<std::string>& values) {
  Result<std::string> text = one(values);
  if (!text) return std::move(text).error();
  if (*text == "true" || *text == "1" || *text == "yes" || *text == "on") return target = true, Status{};
  if (*text == "false" || *text == "0" || *text == "no" || *text == "off") return target = false, Status{};
  return bad(fmt::format("'{}' isn't true or false", *text));
}

Status assign_list(std::vector<std::string>& target, const std::vector<std::string>& values) {
  target.clear();
  for (const std::string& value : values) {
    if (value.empty()) return bad("holds an empty value");
    target.push_back(value);
  }
  return {};
}

Status assign_roots(std::vector<std::string>& target, const std::vector<std::string>& values) {
  for (const std::string& value : values) {
    if (value.empty() || value.front() != '/') return bad(fmt::format("'{}' isn't an absolute path", value));
    if (value == "/") return bad("'/' would allow every path; leave the setting out to say so");
  }
  return assign_list(target, values);
}

Status assign_log_level(LogLevel& target, const std::vector<std::string>& values) {
  Result<std::string> text = one(values);
  if (!text) return std::move(text).error();
  const std::optional<LogLevel> level = log_level_from(*text);
  if (!level) return bad(fmt::format("'{}' is none of debug, info, warning, error", *text));
  target = *level;
  return {};
}

Status assign_fence(std::string& target, const std::vector<std::string>& values) {
  Result<std::string> text = one(values);
  if (!text) return std::move(text).error();
  const bool program = !text->empty() && text->front() == '/';
  if (!program) {
    if (Result<Url> url = parse_url(*text); !url)
      return wrap("must be an absolute path of a program, or a URL", std::move(url).error());
  }
  target = *text;
  return {};
}

Status assign_error_status(int& target, const std::vector<std::string>& values) {
  int status = 0;
  if (Status parsed = assign_whole(status, values, 200, 599); !parsed) return parsed;
  if (status != 200 && status < 400)
    return bad(fmt::format("{} is neither 200 nor an error status (400..599)", status));
  target = status;
  return {};
}

// What a header can carry. The key itself is never in the error.
Status assign_engine_key(std::string& target, const std::vector<std::string>& values) {
  std::string key;
  if (Status assigned = assign_text(key, values); !assigned) return assigned;
  if (std::any_of(key.begin(), key.end(), [](unsigned char c) { return c <= 0x20 || c >= 0x7f; }))
    return bad("has characters that no header can carry");
  target = std::move(key);
  return {};
}

std::string joined(const std::vector<std::string>& values) {
  return fmt::format("{}", fmt::join(values, ", "));
}

using Values = std::vector<std::string>;
using Options = ServeOptions;

constexpr std::string_view kKeyFiles[] = {"admin_api_key_file", "engine_admin_key_file", "engine_api_key_file"};

const std::vector<Setting> kSettings = {
    {"host", Kind::text, "address to listen on", [](Options& o, const Values& v) { return assign_text(o.host, v); },
     [](const Options& o) { return o.host; }},
    {"port", Kind::whole, "port to listen on, 0 for any free one",
     [](Options& o, const Values& v) { return assign_whole(o.port, v, 0, 65535); },
     [](const Options& o) { return fmt::format("{}", o.port); }},
    {"admin_api_key", Kind::secret, "bearer token that changing calls must carry (prefer admin_api_key_file)",
     [](Options& o, const Values& v) { return assign_text(o.admin_api_key, v); },
     [](const Options& o) {
       return std::string(o.admin_api_key == kPublicAdminKey ? "(the public default)" : "(hidden)");
     }},
    {"engine_admin_key", Kind::secret,
     "key of the engines' control routes, for workers that name none of their own (prefer engine_admin_key_file)",
     [](Options& o, const Values& v) { return assign_engine_key(o.engine_admin_key, v); },
     [](const Options& o) { return std::string(o.engine_admin_key.empty() ? "" : "(hidden)"); }},
    {"engine_api_key", Kind::secret,
     "key of the engines' other routes, for workers that name none of their own (prefer engine_api_key_file)",
     [](Options& o, const Values& v) { return assign_engine_key(o.engine_api_key, v); },
     [](const Options& o) { return std::string(o.engine_api_key.empty() ? "" : "(hidden)"); }},
    {"init_timeout", Kind::seconds,
     "seconds to wait for a state directory that another process still holds (503 meanwhile), and for each step that "
     "brings the workers of an AWEX pair together",
     [](Options& o, const Values& v) { return assign_seconds(o.init_timeout_s, v); },
     [](const Options& o) { return fmt::format("{}", o.init_timeout_s); }},
    {"kv_store_url", Kind::text,
     "how AWEX workers reach this gateway, http://host:port; default: the address by which each was reached",
     [](Options& o, const Values& v) { return assign_text(o.kv_store_url, v); },
     [](const Options& o) { return o.kv_store_url; }},
    {"update_timeout", Kind::seconds, "seconds for a save or load; raises their deadlines, never lowers them",
     [](Options& o, const Values& v) { return assign_seconds(o.update_timeout_s, v); },
     [](const Options& o) { return fmt::format("{}", o.update_timeout_s); }},
    {"log_level", Kind::text, "debug, info, warning or error",
     [](Options& o, const Values& v) { return assign_log_level(o.log_level, v); },
     [](const Options& o) { return std::string(name(o.log_level)); }},
    {"state_dir", Kind::text, "directory of the journal; default $XDG_STATE_HOME/weighlock/<port>",
     [](Options& o, const Values& v) { return assign_text(o.state_dir, v); },
     [](const Options& o) { return o.state_dir; }},
    {"storage_roots", Kind::list, "directories that clients may name paths in; none = any absolute path",
     [](Options& o, const Values& v) { return assign_roots(o.storage_roots, v); },
     [](const Options& o) { return joined(o.storage_roots); }},
    {"worker_hosts", Kind::list, "names, addresses and CIDRs that clients may name workers at; none = any",
     [](Options& o, const Values& v) { return assign_list(o.worker_hosts, v); },
     [](const Options& o) { return joined(o.worker_hosts); }},
    {"fence", Kind::text,
     "called when a worker may not serve: a program (absolute path), run as PROGRAM WORKER_URL PAIR CAUSE_CODE TEXT "
     "without a shell and given 10 s; or an http(s) URL, which gets the same as a JSON body by POST",
     [](Options& o, const Values& v) { return assign_fence(o.fence, v); }, [](const Options& o) { return o.fence; }},
    {"no_restart", Kind::flag, "without a parent that starts a crashed gateway again: systemd or the like does it",
     [](Options& o, const Values& v) { return assign_flag(o.no_restart, v); },
     [](const Options& o) { return std::string(o.no_restart ? "true" : "false"); }},
    {"compat", Kind::flag, "started in place of AReaL's gateway: unknown flags are warned about, not refused",
     [](Options& o, const Values& v) { return assign_flag(o.compat, v); },
     [](const Options& o) { return std::string(o.compat ? "true" : "false"); }},
    {"compat_error_status", Kind::whole, "HTTP status of a failed transfer in the compatible API: 200, or 400..599",
     [](Options& o, const Values& v) { return assign_error_status(o.compat_error_status, v); },
     [](const Options& o) { return fmt::format("{}", o.compat_error_status); }},
    {"reply_by", Kind::seconds, "seconds after which the compatible API answers what goes on",
     [](Options& o, const Values& v) { return assign_seconds(o.reply_by_s, v); },
     [](const Options& o) { return fmt::format("{}", o.reply_by_s); }},
};

}  // namespace

std::string_view name(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return "debug";
    case LogLevel::info:
      return "info";
    case LogLevel::warning:
      return "warning";
    case LogLevel::error:
      return "error";
  }
  return "info";
}

std::optional<LogLevel> log_level_from(std::string_view text) {
  for (const LogLevel level : {LogLevel::debug, LogLevel::info, LogLevel::warning, LogLevel::error}) {
    if (name(level) == text) return level;
  }
  return std::nullopt;
}

const std::vector<Setting>& settings() {
  return kSettings;
}

std::vector<std::string_view> setting_names() {
  std::vector<std::string_view> names;
  for (const Setting& setting : kSettings) names.push_back(setting.name);
  for (const std::string_view file : kKeyFiles) names.push_back(file);
  return names;
}

const Setting* secret_of_file(std::string_view file) {
  if (std::find(std::begin(kKeyFiles), std::end(kKeyFiles), file) == std::end(kKeyFiles)) return nullptr;
  file.remove_suffix(std::string_view("_file").size());
  const auto found =
      std::find_if(kSettings.begin(), kSettings.end(), [&](const Setting& setting) { return setting.name == file; });
  return &*found;
}

std::string flag_name(std::string_view setting) {
  std::string flag = "--" + std::string(setting);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

std::string environment_name(std::string_view setting) {
  std::string variable = "WEIGHLOCK_" + std::string(setting);
  std::transform(variable.begin(), variable.end(), variable.begin(),
                 [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; });
  return variable;
}

}  // namespace weighlock::config
